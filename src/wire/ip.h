/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IP and UDP headers, as they are around RoCEv2 packets: no options, no fragments, DF set. The
 * kernel makes the real ones; these are for the ICRC, for the GRH of a datagram's receive, and for
 * captures.
 */
#ifndef VERBENA_WIRE_IP_H
#define VERBENA_WIRE_IP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IP_V4_HEADER = 20, IP_V6_HEADER = 40, IP_HEADER_MAX = IP_V6_HEADER, UDP_HEADER = 8 };
/* The host's own, as a rule: of what asks for none. */
enum { IP_HOP_LIMIT = 64 };

/* What an IP header says beside its size. Addresses as GIDs, IPv4 mapped; the destination decides
 * which IP it is. */
struct ip_fields {
	const uint8_t *source, *destination;
	uint32_t flow_label; /* IPv6 */
	uint16_t id;	     /* IPv4 */
	uint8_t traffic_class, hop_limit;
};

/* Whether a GID is an IPv4 address (::ffff:a.b.c.d). */
bool ip_is_v4(const uint8_t gid[16]);

/* What `wanted` means, 0 being the host's own. */
static inline uint8_t ip_hop_limit(uint8_t wanted)
{
	return wanted ? wanted : IP_HOP_LIMIT;
}

/* Writes the header of a UDP datagram with `size` bytes after the UDP header; IPv4's checksum is 0.
 * Returns the header's end. */
uint8_t *ip_write(uint8_t *to, const struct ip_fields *ip, size_t size);

/* Completes an IPv4 header's checksum; nothing to do for IPv6. */
void ip_checksum(uint8_t *header);

/* The UDP header, its checksum 0. Returns its end. */
uint8_t *udp_write(uint8_t *to, uint16_t source_port, uint16_t destination_port, size_t size);

/* Completes the UDP checksum of a whole IP packet, with `size` bytes after the UDP header. */
void udp_checksum(uint8_t *ip_packet, size_t size);

#endif
