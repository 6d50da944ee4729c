/* SPDX-License-Identifier: BSD-2-Clause */
/* Which carrier leads to a GID. No state: addresses come and go, and connecting is not a fast path.
 */
#include "hca/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"

static void say_unreachable(const struct hca *hca, const struct ibv_global_route *grh)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, grh->dgid.raw, text, sizeof(text));
	if (hca->wire)
		log_warn("destination GID %s: no route leads there", text);
	else
		log_warn(
			"destination GID %s: %s, and the daemon hasn't got UDP port 4791 ('verbena "
			"status' says why)",
			text,
			hca->wire_forced ? "VERBENA_CARRIER=wire asks for the wire"
					 : "it isn't an address of this host");
}

int route_find(struct context *context, const struct ibv_global_route *grh, struct route *route)
{
	struct proto_route request = {.port = 1, .sgid_index = grh->sgid_index};

	memcpy(request.dgid, grh->dgid.raw, sizeof(request.dgid));
	int err = daemon_route(&context->conn, &request, &route->at);

	if (err) {
		log_warn("GID index %u is empty (ibv_devinfo -v lists the GIDs)", grh->sgid_index);
		return EINVAL;
	}
	if (route->at.flags & PROTO_ROUTE_GROUP) {
		log_warn("a connected QP can't have a multicast group for its destination");
		return EINVAL;
	}
	route->wire = route_is_wire(context->hca, &route->at);
	if (route->wire ? context->hca->wire != NULL : route->at.flags & PROTO_ROUTE_LOCAL)
		return 0;
	say_unreachable(context->hca, grh);
	return EHOSTUNREACH;
}
