/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket addresses of identifiers, see cm_id.h. No state. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "daemon/cm/cm_id.h"

bool cm_address_is_ib(const union cm_address *address)
{
	return address->any.sa_family == CM_AF_IB;
}

bool cm_address_take(const void *bytes, size_t size, union cm_address *out)
{
	union cm_address a = {0};

	if (size > sizeof(a) || size < sizeof(a.any.sa_family))
		return false;
	memcpy(&a, bytes, size);
	if ((a.any.sa_family != AF_INET || size < sizeof(a.four)) &&
	    (a.any.sa_family != AF_INET6 || size < sizeof(a.six)) &&
	    (!cm_address_is_ib(&a) || size < sizeof(a.ib)))
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
	case CM_AF_IB:
		return sizeof(address->ib);
	default:
		return 0;
	}
}

uint16_t cm_address_port(const union cm_address *address)
{
	if (cm_address_is_ib(address))
		return (uint16_t)be64toh(address->ib.service_id & address->ib.service_mask);
	return ntohs(address->any.sa_family == AF_INET ? address->four.sin_port
						       : address->six.sin6_port);
}

void cm_address_set_port(union cm_address *address, uint16_t port)
{
	if (cm_address_is_ib(address)) {
		uint64_t space = be64toh(address->ib.service_id) & ~(uint64_t)UINT16_MAX;

		address->ib.service_id = htobe64(space | port);
		address->ib.service_mask = UINT64_MAX;
	} else if (address->any.sa_family == AF_INET) {
		address->four.sin_port = htons(port);
	} else {
		address->six.sin6_port = htons(port);
	}
}

bool cm_address_is_any(const union cm_address *address)
{
	static const uint8_t none[16];

	if (cm_address_is_ib(address))
		return !memcmp(address->ib.gid, none, sizeof(none));
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
	if (cm_address_is_ib(address)) {
		memcpy(gid, address->ib.gid, 16);
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

void cm_address_from_ib(const uint8_t gid[16], uint16_t pkey, uint64_t service_id,
			union cm_address *out)
{
	memset(out, 0, sizeof(*out));
	out->ib = (struct cm_sockaddr_ib){
		.family = CM_AF_IB,
		.pkey = htons(pkey),
		.service_id = htobe64(service_id),
		.service_mask = UINT64_MAX,
	};
	memcpy(out->ib.gid, gid, sizeof(out->ib.gid));
}

int cm_address_choose_space(union cm_address *address, uint16_t wanted, uint16_t *port_space)
{
	static const uint16_t spaces[] = {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP};
	uint64_t mask = be64toh(address->ib.service_mask) & ~(uint64_t)UINT16_MAX;
	uint64_t part = be64toh(address->ib.service_id) & mask;
	uint16_t port = cm_address_port(address);

	for (unsigned int i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		uint64_t space = (uint64_t)spaces[i] << 16;

		/* An identifier of the port space IB may use the others, too. */
		if ((wanted != spaces[i] && wanted != RDMA_PS_IB) || part != (space & mask))
			continue;
		*port_space = spaces[i];
		address->ib.service_id = htobe64(space | port);
		address->ib.service_mask |= htobe64(~(uint64_t)UINT16_MAX);
		return 0;
	}
	return -EPROTONOSUPPORT;
}
