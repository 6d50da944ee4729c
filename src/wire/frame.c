/* SPDX-License-Identifier: BSD-2-Clause */
/* RoCEv2 packets as whole IP packets, see frame.h. */
#include "wire/frame.h"

#include <string.h>

static uint8_t *write_headers(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
			      size_t size)
{
	const struct ip_fields fields = {
		.source = path->source,
		.destination = path->destination,
		.id = ip->id,
		.traffic_class = ip->traffic_class,
		.hop_limit = ip->hop_limit,
	};
	uint8_t *udp = ip_write(to, &fields, size);

	ip_checksum(to);
	return udp_write(udp, path->source_port, path->destination_port, size);
}

size_t frame_wrap(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
		  const uint8_t *packet, size_t size)
{
	uint8_t *at = write_headers(to, path, ip, size);

	memcpy(at, packet, size);
	udp_checksum(to, size);
	return at + size - to;
}

size_t frame_make(uint8_t *to, const struct icrc_path *path, const struct frame_ip *ip,
		  const uint8_t *packet, size_t size)
{
	static const struct frame_ip usual = {.hop_limit = IP_HOP_LIMIT};
	size_t whole = size + WIRE_ICRC;
	const struct frame_ip *used = ip ? ip : &usual;
	uint8_t *at = write_headers(to, path, used, whole);

	memcpy(at, packet, size);
	icrc_write(icrc_begin(path, whole, used->id), at, whole);
	udp_checksum(to, whole);
	return at + whole - to;
}
