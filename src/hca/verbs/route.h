/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a destination is, and therefore which carrier leads there. */
#ifndef VERBENA_HCA_VERBS_ROUTE_H
#define VERBENA_HCA_VERBS_ROUTE_H

#include <netinet/in.h>

#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"

struct membership;

struct route {
	bool roce; /* else self or local: a process of this host */
	struct proto_route_resp at;
};

/*
 * Asks the daemon, which knows the host's addresses, for the route to grh's destination. 0; EINVAL:
 * the device has no such source GID; EHOSTUNREACH: no packet can be sent there (both are logged).
 */
int route_find(struct context *context, const struct ibv_global_route *grh, struct route *route);

/* The same on a fabric: the tables decide with each request (fabric/path.h), so only what an
 * adapter would refuse is refused. 0; EINVAL: no such port, source GID, or unicast LID. */
int route_find_on_fabric(const struct membership *membership, const struct ibv_ah_attr *ah,
			 struct route *route);

/* Whether the RoCE carrier leads to where the daemon says the destination is. */
static inline bool route_is_roce(const struct hca *hca, const struct proto_route_resp *at)
{
	uint32_t way = at->flags & (PROTO_ROUTE_LOCAL | PROTO_ROUTE_WIRE);

	return hca->roce_forced || (hca_has_wire(hca) && way == PROTO_ROUTE_WIRE);
}

/* The way of datagrams to where the daemon says the destination is. */
static inline const struct datagram_carrier *route_of_datagrams(const struct hca *hca,
								const struct proto_route_resp *at)
{
	if (at->flags & PROTO_ROUTE_GROUP)
		return &datagram_group;
	return route_is_roce(hca, at) ? &datagram_roce : &datagram_local;
}

/* Whether datagrams to a group also go to other hosts (mcast.h). */
static inline bool route_group_is_roce(const struct hca *hca, const struct proto_route_resp *at)
{
	const struct in6_addr *from = (const struct in6_addr *)at->sgid;
	bool loopback =
		IN6_IS_ADDR_V4MAPPED(from) ? at->sgid[12] == 127 : IN6_IS_ADDR_LOOPBACK(from);

	return hca_has_wire(hca) && (at->flags & PROTO_ROUTE_WIRE) &&
	       (hca->roce_forced || !loopback);
}

#endif
