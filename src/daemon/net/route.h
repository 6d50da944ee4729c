/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a GID is: on this host, behind a route, or not reachable. */
#ifndef VERBENA_DAEMON_NET_ROUTE_H
#define VERBENA_DAEMON_NET_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/proto.h"

struct device;
struct server;

/* Finds the way from the source GID at this index. Returns 0, also when the GID can't be reached;
 * -EINVAL: no such port or source. */
int device_find_route(const struct device *device, uint32_t port, uint32_t sgid_index,
		      const uint8_t dgid[16], struct proto_route_resp *resp);

/* Whether the GID is an address of this host. */
bool route_is_local(const struct server *server, const uint8_t gid[16]);

#endif
