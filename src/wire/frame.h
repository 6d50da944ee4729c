/* SPDX-License-Identifier: BSD-2-Clause */
/* RoCEv2 packets as whole IP packets, for captures. */
#ifndef VERBENA_WIRE_FRAME_H
#define VERBENA_WIRE_FRAME_H

#include "wire/icrc.h"
#include "wire/ip.h"
#include "wire/packet.h"

enum { FRAME_MAX = IP_HEADER_MAX + UDP_HEADER + WIRE_PACKET_MAX };

/* The fields of a packet's IP header, beside addresses, that a socket may know. */
struct frame_ip {
	uint16_t id; /* IPv4: the identification that icrc_matches() found */
	uint8_t traffic_class, hop_limit;
};

/* Writes IP and UDP headers and the unchanged packet of `size` bytes, BTH to ICRC, to `to`
 * (FRAME_MAX bytes; size <= WIRE_PACKET_MAX). Returns the whole size. */
size_t frame_wrap(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
		  const uint8_t *packet, size_t size);

/* The same for a packet that never was on a network: `size` bytes, BTH to padding, without ICRC, at
 * least WIRE_BTH and at most WIRE_PACKET_MAX - WIRE_ICRC. Adds the ICRC, and an IP header as this
 * library's sockets send it. `ip` NULL: no traffic class and the default hop limit. */
size_t frame_make(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
		  const uint8_t *packet, size_t size);

#endif
