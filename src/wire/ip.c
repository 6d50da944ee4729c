/* SPDX-License-Identifier: BSD-2-Clause */
/* IP and UDP headers, see ip.h. */
#include "wire/ip.h"

#include <netinet/in.h>
#include <string.h>

enum { DONT_FRAGMENT = 0x4000, CHECKSUM = 10 /* CHECKSUM: its offset in the IPv4 header */ };

bool ip_is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid, mapped, sizeof(mapped));
}

static void ip_put16(uint8_t *to, uint16_t value)
{
	to[0] = value >> 8;
	to[1] = value & 0xff;
}

static uint8_t *write_v4(uint8_t *to, const struct ip_fields *ip, size_t size)
{
	to[0] = 0x45;
	to[1] = ip->traffic_class;
	ip_put16(to + 2, IP_V4_HEADER + UDP_HEADER + size);
	ip_put16(to + 4, ip->id);
	ip_put16(to + 6, DONT_FRAGMENT);
	to[8] = ip->hop_limit;
	to[9] = IPPROTO_UDP;
	ip_put16(to + CHECKSUM, 0);
	memcpy(to + 12, ip->source + 12, 4);
	memcpy(to + 16, ip->destination + 12, 4);
	return to + IP_V4_HEADER;
}

static uint8_t *write_v6(uint8_t *to, const struct ip_fields *ip, size_t size)
{
	ip_put16(to, 0x6000 | ip->traffic_class << 4 | (ip->flow_label >> 16 & 0xf));
	ip_put16(to + 2, ip->flow_label);
	ip_put16(to + 4, UDP_HEADER + size);
	to[6] = IPPROTO_UDP;
	to[7] = ip->hop_limit;
	memcpy(to + 8, ip->source, 16);
	memcpy(to + 24, ip->destination, 16);
	return to + IP_V6_HEADER;
}

uint8_t *ip_write(uint8_t *to, const struct ip_fields *ip, size_t size)
{
	return ip_is_v4(ip->destination) ? write_v4(to, ip, size) : write_v6(to, ip, size);
}

uint8_t *udp_write(uint8_t *to, uint16_t source_port, uint16_t destination_port, size_t size)
{
	ip_put16(to, source_port);
	ip_put16(to + 2, destination_port);
	ip_put16(to + 4, UDP_HEADER + size);
	ip_put16(to + 6, 0);
	return to + UDP_HEADER;
}

/* The sum of the Internet checksum (RFC 1071), of 16-bit words; the callers fold the carries. */
static uint64_t sum_words(uint64_t sum, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i + 1 < size; i += 2)
		sum += bytes[i] << 8 | bytes[i + 1];
	if (size & 1)
		sum += bytes[size - 1] << 8;
	return sum;
}

static uint16_t sum_end(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

void ip_checksum(uint8_t *header)
{
	if (header[0] >> 4 == 4)
		ip_put16(header + CHECKSUM, sum_end(sum_words(0, header, IP_V4_HEADER)));
}

void udp_checksum(uint8_t *ip_packet, size_t size)
{
	bool is_v4 = ip_packet[0] >> 4 == 4;
	uint32_t addresses = is_v4 ? 8 : 32;
	uint8_t *udp = ip_packet + (is_v4 ? IP_V4_HEADER : IP_V6_HEADER);
	uint64_t sum = IPPROTO_UDP + UDP_HEADER + size;

	ip_put16(udp + 6, 0);
	sum = sum_words(sum, udp - addresses, addresses);

	uint16_t checksum = sum_end(sum_words(sum, udp, UDP_HEADER + size));

	ip_put16(udp + 6, checksum ? checksum : 0xffff); /* 0 would mean no checksum */
}
