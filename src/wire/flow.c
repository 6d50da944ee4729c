/* SPDX-License-Identifier: BSD-2-Clause */
/* GIDs as socket addresses, flow labels as source ports, see flow.h. */
#include "wire/flow.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "wire/ip.h"

bool flow_is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

bool flow_is_multicast(const uint8_t gid[16])
{
	return gid[0] == 0xff || (ip_is_v4(gid) && gid[12] >> 4 == 14);
}

static socklen_t address_v4(const uint8_t gid[16], uint16_t port, struct sockaddr_storage *to)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	memcpy(&in.sin_addr, gid + 12, 4);
	memcpy(to, &in, sizeof(in));
	return sizeof(in);
}

socklen_t flow_address(const uint8_t gid[16], uint16_t port, uint32_t scope, int family,
		       struct sockaddr_storage *to)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	if (family == AF_INET)
		return ip_is_v4(gid) ? address_v4(gid, port, to) : 0;
	if (flow_is_link_local(gid)) {
		if (!scope)
			return 0;
		in6.sin6_scope_id = scope;
	}
	if (gid[0] == 0xff)
		in6.sin6_scope_id = scope;
	memcpy(&in6.sin6_addr, gid, 16);
	memcpy(to, &in6, sizeof(in6));
	return sizeof(in6);
}

bool flow_gid(const struct sockaddr *from, uint8_t gid[16], uint16_t *port)
{
	if (from->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)from;

		memset(gid, 0, 10);
		memset(gid + 10, 0xff, 2);
		memcpy(gid + 12, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return true;
	}
	if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)from;

		memcpy(gid, &in6->sin6_addr, 16);
		*port = ntohs(in6->sin6_port);
		return true;
	}
	return false;
}

/* The exclusive or of the three 20-bit pieces of the product of the numbers, so both ends compute
 * the same. */
uint32_t flow_label_of_qps(uint32_t local_qpn, uint32_t remote_qpn)
{
	uint64_t product = (uint64_t)local_qpn * remote_qpn;

	product ^= product >> 20;
	product ^= product >> 40;
	return product & 0xfffff;
}

/* The lower 14 bits, exclusive or the upper 6, in the range of dynamic ports. */
uint16_t flow_source_port(uint32_t flow_label)
{
	return 0xc000 | ((flow_label ^ (flow_label & 0xfc000) >> 14) & 0x3fff);
}
