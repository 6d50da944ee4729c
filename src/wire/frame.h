/* SPDX-License-Identifier: BSD-2-Clause */
/* RoCEv2 packets as whole IP packets, for captures. */
#ifndef VERBENA_WIRE_FRAME_H
#define VERBENA_WIRE_FRAME_H

#include "wire/icrc.h"
#include "wire/ip.h"
#include "wire/packet.h"

enum { FRAME_MAX = IP_HEADER_MAX + UDP_HEADER + WIRE_PACKET_MAX };

/* What a socket may know of a packet's IP header beside addresses. */
struct frame_ip {
	uint16_t id; /* IPv4; what icrc_matches() found */
	uint8_t traffic_class, hop_limit;
};

/* Writes IP and UDP headers and the packet of `size` bytes, BTH to ICRC, as it is, to `to`
 * (FRAME_MAX bytes; size <= WIRE_PACKET_MAX). Returns the whole size. */
size_t frame_wrap(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
		  const uint8_t *packet, size_t size);

/* The same for a packet that wasn't on any wire: BTH to padding, no ICRC yet, at least WIRE_BTH
 * and at most WIRE_PACKET_MAX - WIRE_ICRC bytes. It gets its ICRC, and an IP header as our sockets
 * send it: `ip` NULL for no traffic class and the usual hop limit. */
size_t frame_make(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
		  const uint8_t *packet, size_t size);

#endif
