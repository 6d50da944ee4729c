/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ethernet frames: where which header is, and the checksums of IP, TCP and UDP. For raw packet
 * queue pairs. A frame comes from another process or from a network: every length in it is checked
 * against the bytes that there are.
 */
#ifndef VERBENA_WIRE_ETHER_H
#define VERBENA_WIRE_ETHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ETHER_HEADER = 14,
	ETHER_TAG = 4,
	/* The headers of a frame are looked for in its first bytes only. */
	ETHER_LOOK = 512,
};

/* The headers of a frame, or of the frame or packet in its tunnel. A pointer that isn't NULL leads
 * to a whole header within the frame. */
struct ether_part {
	const uint8_t *mac;  /* destination, source; NULL: the part has no Ethernet header */
	const uint8_t *ip;   /* the fixed part of the IP header */
	const uint8_t *l4;   /* what follows the IP headers; NULL also in later fragments */
	const uint8_t *mpls; /* the first label after the Ethernet header */
	size_t l4_bytes;     /* bytes that there are from l4 on */
	uint16_t type;	     /* EtherType after the last VLAN tag */
	uint16_t tag;	     /* control information of the first VLAN tag */
	bool tagged;
	uint8_t version;  /* of IP: 4, 6, or 0: there is none */
	uint8_t protocol; /* of what follows the IP headers */
};

struct ether_frame {
	struct ether_part outer, inner;
	const uint8_t *vxlan;	    /* the tunnel's header */
	const uint8_t *gre;	    /* likewise; with as many optional words as its flags say */
	const uint8_t *tunnel_mpls; /* the first label after a UDP or GRE header */
};

/* Finds the headers in the first `size` bytes of a frame (at most ETHER_LOOK are looked at). */
void ether_parse(const uint8_t *frame, size_t size, struct ether_frame *out);

/* Whether the frame's destination is a group: multicast or broadcast. `frame`: 6 bytes. */
static inline bool ether_is_group(const uint8_t *frame)
{
	return frame[0] & 1;
}

/* Whether a whole frame has an IPv4 header and a TCP or UDP header whose checksums are right (a UDP
 * checksum of 0 means that there is none, and is right), outside tunnels. False for fragments. */
bool ether_checksums_right(const uint8_t *frame, size_t size);

/* Computes the checksums of a whole frame's IPv4 header, if it has one, and of its TCP or UDP
 * header, outside tunnels. Frames that have none of these stay as they are. */
void ether_checksums_fill(uint8_t *frame, size_t size);

#endif
