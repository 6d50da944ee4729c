/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which carrier leads to a GID. The daemon is asked, since addresses come and go. Its last answer
 * about an address of this host holds until the host's addresses change (struct own_route): a
 * program that connects to its own host repeatedly saves the round trip.
 */
#include "hca/verbs/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "fabric/port_info.h"
#include "hca/exec/mcast.h"
#include "hca/fabric/membership.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"

static void say_unreachable(const struct hca *hca, const struct ibv_global_route *grh)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, grh->dgid.raw, text, sizeof(text));
	if (hca_has_wire(hca))
		log_warn("destination GID %s: no route leads there", text);
	else
		log_warn(
			"destination GID %s: %s, and the daemon hasn't got UDP port 4791 ('verbena "
			"status' says why)",
			text,
			hca->roce_forced ? "VERBENA_CARRIER=wire asks for the wire"
					 : "it isn't an address of this host");
}

static bool route_recall(struct context *context, const struct proto_route *request,
			 uint64_t addresses, struct proto_route_resp *at)
{
	const struct own_route *own = &context->own_route;

	mutex_take(&context->hca->lock);
	bool yes = addresses && own->addresses == addresses &&
		   !memcmp(&own->request, request, sizeof(*request));

	if (yes)
		*at = own->at;
	mutex_give(&context->hca->lock);
	return yes;
}

/* `addresses` was read before the daemon was asked. */
static void route_remember(struct context *context, const struct proto_route *request,
			   uint64_t addresses, const struct proto_route_resp *at)
{
	mutex_take(&context->hca->lock);
	context->own_route = (struct own_route){addresses, *request, *at};
	mutex_give(&context->hca->lock);
}

static int route_ask_daemon(struct context *context, const struct proto_route *request,
			    struct proto_route_resp *at)
{
	int err = 0;

	books_enter(context->hca);
	uint64_t addresses = mcast_addresses(context->hca);

	if (!route_recall(context, request, addresses, at)) {
		err = daemon_route(&context->conn, request, at);
		if (!err && at->flags & PROTO_ROUTE_LOCAL && !route_is_roce(context->hca, at))
			route_remember(context, request, addresses, at);
	}
	books_leave(context->hca);
	return err;
}

int route_find(struct context *context, const struct ibv_global_route *grh, struct route *route)
{
	struct proto_route request = {.port = 1, .sgid_index = grh->sgid_index};

	memcpy(request.dgid, grh->dgid.raw, sizeof(request.dgid));
	int err = route_ask_daemon(context, &request, &route->at);

	if (err) {
		log_warn("GID index %u is empty (ibv_devinfo -v lists the GIDs)", grh->sgid_index);
		return EINVAL;
	}
	if (route->at.flags & PROTO_ROUTE_GROUP) {
		log_warn("a connected QP can't have a multicast group for its destination");
		return EINVAL;
	}
	route->roce = route_is_roce(context->hca, &route->at);
	if (route->roce ? hca_has_wire(context->hca) : route->at.flags & PROTO_ROUTE_LOCAL)
		return 0;
	say_unreachable(context->hca, grh);
	return EHOSTUNREACH;
}

int route_find_on_fabric(const struct membership *membership, const struct ibv_ah_attr *ah,
			 struct route *route)
{
	struct ibv_gid_entry gid;

	*route = (struct route){0};
	if (node_port_row(membership->node, ah->port_num) == FABRIC_NONE) {
		log_warn("the device has no port %u", ah->port_num);
		return EINVAL;
	}
	int err = node_query_gid(membership->node, ah->port_num,
				 ah->is_global ? ah->grh.sgid_index : 0, &gid);

	if (err) {
		log_warn("GID index %u is empty (ibv_devinfo -v lists the GIDs)",
			 ah->grh.sgid_index);
		return EINVAL;
	}
	memcpy(route->at.sgid, gid.gid.raw, sizeof(route->at.sgid));
	if (ah->dlid && ah->dlid < LID_MULTICAST)
		return 0;
	log_warn("0x%x is no unicast LID: a connected QP needs its peer's (ah_attr.dlid)",
		 ah->dlid);
	return EINVAL;
}
