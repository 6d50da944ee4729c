/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_getaddrinfo(): names to addresses, and to the QP type and port space that belong to them.
 * The C library resolves names. This library has no routes to offer, so ai_route is only what the
 * hints contain. With RAI_FAMILY and AF_IB a name is a GID in the text form of an IPv6 address, as
 * upstream has it with RAI_NUMERICHOST.
 */
#include "base/refused.h"
#include "rdmacm/rdmacm.h"

#include <endian.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY };

/* 0 or EAI_*. */
static int addrinfo_copy_bytes(void **out, const void *in, size_t size)
{
	*out = in && size ? malloc(size) : NULL;
	if (!*out)
		return in && size ? EAI_MEMORY : 0;
	memcpy(*out, in, size);
	return 0;
}

static int copy_addr(struct sockaddr **out, socklen_t *out_size, const struct sockaddr *in,
		     socklen_t size)
{
	void *bytes;
	int err = addrinfo_copy_bytes(&bytes, in, size);

	if (!err && bytes) {
		*out = bytes;
		*out_size = size;
	}
	return err;
}

/* Chooses QP type and port space; each may follow from the other. */
static int choose_service(struct rdma_addrinfo *info, const struct rdma_addrinfo *hints)
{
	int space = hints ? hints->ai_port_space : 0, type = hints ? hints->ai_qp_type : 0;

	if (!space)
		space = type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (!type)
		type = (int)id_default_type((enum rdma_port_space)space);
	if ((space == RDMA_PS_UDP || space == RDMA_PS_IPOIB) && type != IBV_QPT_UD)
		return refused(EAI_SOCKTYPE,
			       "rdma_getaddrinfo: ai_port_space 0x%x is for "
			       "IBV_QPT_UD only, and ai_qp_type is %d",
			       (unsigned int)space, type);
	if (space == RDMA_PS_TCP && type == IBV_QPT_UD)
		return refused(EAI_SOCKTYPE, "rdma_getaddrinfo: IBV_QPT_UD isn't for RDMA_PS_TCP; "
					     "ai_port_space must be RDMA_PS_UDP");
	info->ai_port_space = space;
	info->ai_qp_type = type;
	return 0;
}

/* Copies the fields that aren't resolved from the hints. */
static int take_hints(struct rdma_addrinfo *info, const struct rdma_addrinfo *hints)
{
	int err = choose_service(info, hints);

	if (err || !hints)
		return err;
	info->ai_flags = hints->ai_flags;
	err = addrinfo_copy_bytes(&info->ai_route, hints->ai_route, hints->ai_route_len);
	if (!err && info->ai_route)
		info->ai_route_len = hints->ai_route_len;
	if (!err)
		err = addrinfo_copy_bytes(&info->ai_connect, hints->ai_connect,
					  hints->ai_connect_len);
	if (!err && info->ai_connect)
		info->ai_connect_len = hints->ai_connect_len;
	if (!err && !info->ai_src_addr)
		err = copy_addr(&info->ai_src_addr, &info->ai_src_len, hints->ai_src_addr,
				hints->ai_src_len);
	if (!err && !info->ai_dst_addr && !(hints->ai_flags & RAI_PASSIVE))
		err = copy_addr(&info->ai_dst_addr, &info->ai_dst_len, hints->ai_dst_addr,
				hints->ai_dst_len);
	return err;
}

static bool wants_ib(const struct rdma_addrinfo *hints)
{
	return hints && hints->ai_family == AF_IB && hints->ai_flags & RAI_FAMILY;
}

/* Replaces an IPv6 address by the AF_IB address with these bytes as GID, and the service id that is
 * this port in the port space. */
static int addrinfo_to_ib(struct rdma_addrinfo *info, struct sockaddr **addr, socklen_t *size)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)*addr;
	struct sockaddr_ib *ib = calloc(1, sizeof(*ib));
	uint64_t space = (uint64_t)info->ai_port_space << 16;

	if (!ib)
		return EAI_MEMORY;
	ib->sib_family = AF_IB;
	ib->sib_pkey = htons(0xffff);
	ib->sib_flowinfo = six->sin6_flowinfo;
	memcpy(ib->sib_addr.sib_raw, &six->sin6_addr, sizeof(ib->sib_addr.sib_raw));
	ib->sib_sid = htobe64(space | ntohs(six->sin6_port));
	ib->sib_sid_mask = htobe64(six->sin6_port ? UINT64_MAX : ~(uint64_t)UINT16_MAX);
	ib->sib_scope_id = six->sin6_scope_id;
	free(*addr);
	*addr = (struct sockaddr *)ib;
	*size = sizeof(*ib);
	info->ai_family = AF_IB;
	return 0;
}

/* Appends one of the C library's answers. */
static int addrinfo_append(struct rdma_addrinfo ***tail, const struct addrinfo *found,
			   const struct rdma_addrinfo *hints)
{
	bool is_source = hints && hints->ai_flags & RAI_PASSIVE;
	struct rdma_addrinfo *info = calloc(1, sizeof(*info));

	if (!info)
		return EAI_MEMORY;
	**tail = info;
	*tail = &info->ai_next;
	info->ai_family = found->ai_family;
	int err = is_source ? copy_addr(&info->ai_src_addr, &info->ai_src_len, found->ai_addr,
					found->ai_addrlen)
			    : copy_addr(&info->ai_dst_addr, &info->ai_dst_len, found->ai_addr,
					found->ai_addrlen);

	if (!err && found->ai_canonname) {
		char **name = is_source ? &info->ai_src_canonname : &info->ai_dst_canonname;

		*name = strdup(found->ai_canonname);
		err = *name ? 0 : EAI_MEMORY;
	}
	if (!err)
		err = choose_service(info, hints);
	if (!err && wants_ib(hints))
		err = is_source ? addrinfo_to_ib(info, &info->ai_src_addr, &info->ai_src_len)
				: addrinfo_to_ib(info, &info->ai_dst_addr, &info->ai_dst_len);
	return err ? err : take_hints(info, hints);
}

/* Upstream's library uses ai_family with and without RAI_FAMILY, and its callers rely on that:
 * perftest asks for IPv4 that way. getaddrinfo() doesn't know AF_IB; without RAI_FAMILY it only
 * selects a port space, which works with an IP address as well. */
static int family_wanted(const struct rdma_addrinfo *hints)
{
	if (!hints || (hints->ai_family == AF_IB && !(hints->ai_flags & RAI_FAMILY)))
		return AF_UNSPEC;
	return wants_ib(hints) ? AF_INET6 : hints->ai_family;
}

static int addrinfo_look_up(const char *node, const char *service,
			    const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	int flags = hints ? hints->ai_flags : 0;
	struct addrinfo wish = {
		/* This yields one answer for each address. */
		.ai_socktype = SOCK_STREAM,
		.ai_flags = (flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
			    (flags & RAI_NUMERICHOST || wants_ib(hints) ? AI_NUMERICHOST : 0),
		.ai_family = family_wanted(hints),
	};
	struct addrinfo *found;
	struct rdma_addrinfo **tail = res;

	if (wish.ai_family != AF_UNSPEC && wish.ai_family != AF_INET && wish.ai_family != AF_INET6)
		return refused(EAI_FAMILY,
			       "rdma_getaddrinfo: ai_family %d is none of AF_INET, "
			       "AF_INET6 and AF_IB",
			       wish.ai_family);
	int err = getaddrinfo(node, service, &wish, &found);

	if (err)
		return err;
	for (const struct addrinfo *a = found; a && !err; a = a->ai_next)
		if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
			err = addrinfo_append(&tail, a, hints);
	freeaddrinfo(found);
	return err;
}

static int from_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct rdma_addrinfo *info = *res = calloc(1, sizeof(*info));

	if (!info)
		return EAI_MEMORY;
	const struct sockaddr *addr = hints->ai_dst_addr ? hints->ai_dst_addr : hints->ai_src_addr;

	info->ai_family = addr ? addr->sa_family : hints->ai_family;
	return take_hints(info, hints);
}

EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			    const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct rdma_addrinfo *found = NULL;
	int err;

	if (!node && !service && !hints)
		return cm_result(refused(-EINVAL, "rdma_getaddrinfo: a node, a service or hints "
						  "are needed"));
	if (hints && hints->ai_flags & ~FLAGS)
		return refused(EAI_BADFLAGS, "rdma_getaddrinfo: ai_flags 0x%x has unknown bits",
			       (unsigned int)hints->ai_flags);
	err = node || service ? addrinfo_look_up(node, service, hints, &found)
			      : from_hints(hints, &found);
	if (!err && !found)
		err = EAI_NONAME;
	if (err)
		rdma_freeaddrinfo(found);
	else
		*res = found;
	return err;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_connect);
		free(res->ai_route);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}
