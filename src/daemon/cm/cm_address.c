/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket addresses of identifiers, see cm_id.h. No state. */
#include <arpa/inet.h>
#include <string.h>

#include "daemon/cm/cm_id.h"

bool cm_address_take(const void *bytes, size_t size, union cm_address *out)
{
	union cm_address a = {0};

	if (size > sizeof(a) || size < sizeof(a.any.sa_family))
		return false;
	memcpy(&a, bytes, size);
	if ((a.any.sa_family != AF_INET || size < sizeof(a.four)) &&
	    (a.any.sa_family != AF_INET6 || size < sizeof(a.six)))
		return false;
	*out = a;
	return true;
}

socklen_t cm_address_size(const union cm_address *address)
{
	switch (address->any.sa_family) {
	case AF_INET:
		return sizeof(address->four);
	case AF_INET6:
		return sizeof(address->six);
	default:
		return 0;
	}
}

uint16_t cm_address_port(const union cm_address *address)
{
	return ntohs(address->any.sa_family == AF_INET ? address->four.sin_port
						       : address->six.sin6_port);
}

void cm_address_set_port(union cm_address *address, uint16_t port)
{
	if (address->any.sa_family == AF_INET)
		address->four.sin_port = htons(port);
	else
		address->six.sin6_port = htons(port);
}

bool cm_address_is_any(const union cm_address *address)
{
	if (address->any.sa_family == AF_INET)
		return address->four.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&address->six.sin6_addr);
}

void cm_address_gid(const union cm_address *address, uint8_t gid[16])
{
	if (address->any.sa_family == AF_INET6) {
		memcpy(gid, &address->six.sin6_addr, 16);
		return;
	}
	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 12, &address->four.sin_addr, 4);
}

void cm_address_from_gid(const uint8_t gid[16], uint32_t version, uint16_t port, uint32_t scope,
			 union cm_address *out)
{
	memset(out, 0, sizeof(*out));
	if (version == 4) {
		out->four.sin_family = AF_INET;
		memcpy(&out->four.sin_addr, gid + 12, 4);
	} else {
		out->six.sin6_family = AF_INET6;
		memcpy(&out->six.sin6_addr, gid, 16);
		if (IN6_IS_ADDR_LINKLOCAL(&out->six.sin6_addr))
			out->six.sin6_scope_id = scope;
	}
	cm_address_set_port(out, port);
}
