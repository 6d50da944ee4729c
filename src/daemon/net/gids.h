/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port's GID table, in the form of the kernel's Soft-RoCE: index 0 is the link-local address that
 * is made of the device's GUID, then come the host's addresses. An address that goes leaves a hole,
 * a new one takes the first hole; entries never move.
 */
#ifndef VERBENA_DAEMON_NET_GIDS_H
#define VERBENA_DAEMON_NET_GIDS_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/net/host.h"
#include "proto/limits.h"

struct gids {
	struct host_address entry[LIMIT_GIDS];
	bool used[LIMIT_GIDS];
	bool full_said; /* the message that the table is full was logged; never cleared */
};

/* NULL: no entry at this index. */
const struct host_address *gids_get(const struct gids *gids, uint32_t index);
/* The entry with this address; its index is its position in `entry`. NULL: none. */
const struct host_address *gids_find(const struct gids *gids, const uint8_t gid[16]);

/* `first` stays at index 0; the other entries follow `wanted`. Returns whether anything changed. */
bool gids_update(struct gids *gids, const struct host_address *first,
		 const struct host_address *wanted, unsigned int count);

#endif
