/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IP and UDP headers of RoCEv2 packets: no options, no fragments, DF set. The kernel makes the real
 * ones; these are for the ICRC, for the GRH of a datagram's receive, and for captures.
 */
#ifndef VERBENA_WIRE_IP_H
#define VERBENA_WIRE_IP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IP_V4_HEADER = 20, IP_V6_HEADER = 40, IP_HEADER_MAX = IP_V6_HEADER, UDP_HEADER = 8 };
/* The host's default hop limit, used where an address handle asks for none. */
enum { IP_HOP_LIMIT = 64 };

/* The fields of an IP header apart from its size. Addresses are GIDs, IPv4 ones mapped into IPv6;
 * the destination decides the IP version. */
struct ip_fields {
	const uint8_t *source, *destination;
	uint32_t flow_label; /* IPv6 only */
	uint16_t id;	     /* IPv4 only */
	uint8_t traffic_class, hop_limit;
};

/* Whether a GID is an IPv4 address (::ffff:a.b.c.d). */
bool ip_is_v4(const uint8_t gid[16]);

/* The hop limit for `wanted`; 0 stands for the host's default. */
static inline uint8_t ip_hop_limit(uint8_t wanted)
{
	return wanted ? wanted : IP_HOP_LIMIT;
}

/* Writes the IP header of a UDP datagram with `size` bytes after the UDP header; IPv4's checksum is
 * left 0. Returns the header's end. */
uint8_t *ip_write(uint8_t *to, const struct ip_fields *ip, size_t size);

/* Computes an IPv4 header's checksum; does nothing for IPv6. */
void ip_checksum(uint8_t *header);

/* Writes the UDP header with checksum 0; `size`: bytes after it. Returns its end. */
uint8_t *udp_write(uint8_t *to, uint16_t source_port, uint16_t destination_port, size_t size);

/* Computes the UDP checksum of a whole IP packet, with `size` bytes after the UDP header. */
void udp_checksum(uint8_t *ip_packet, size_t size);

#endif
