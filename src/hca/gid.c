/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks GIDs up in the device's table, which the daemon keeps. No state: addresses come and go,
 * and connecting is not a fast path. */
#include "hca/gid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { HOLES_MAX = 8 }; /* so many empty places in a row end the table */

int gid_check_local(struct context *context, const struct ibv_global_route *grh)
{
	struct proto_query_gid_resp entry;
	int holes = 0;

	if (daemon_query_gid(&context->conn, 1, grh->sgid_index, &entry)) {
		log_warn("GID index %u is empty (ibv_devinfo -v lists the GIDs)", grh->sgid_index);
		return EINVAL;
	}
	if (!memcmp(entry.gid, grh->dgid.raw, 16))
		return 0;
	for (uint32_t i = 0; i < LIMIT_GIDS && holes < HOLES_MAX; i++) {
		if (daemon_query_gid(&context->conn, 1, i, &entry)) {
			holes++;
			continue;
		}
		holes = 0;
		if (!memcmp(entry.gid, grh->dgid.raw, 16))
			return 0;
	}
	const uint8_t *g = grh->dgid.raw;

	log_warn("destination GID %02x%02x:%02x%02x:...:%02x%02x is not an address of this host; "
		 "RoCEv2 between hosts isn't built yet",
		 g[0], g[1], g[2], g[3], g[14], g[15]);
	return EHOSTUNREACH;
}
