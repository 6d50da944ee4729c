/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port's GID table, in the form of the kernel's: index 0 is the link-local address that is made
 * of the device's GUID, where the interface has it, then come the addresses of the device's
 * interfaces. An address that goes leaves a hole, a new one takes the first hole; entries never
 * move. Without that link-local address index 0 has a copy of another entry, so that programs which
 * take the first one have an address that works, and the other entries are at the same indices.
 *
 * Behind the table, from index LIMIT_GIDS on, are *hidden* entries: addresses of the host that are
 * no device's, those of the loopback interface above all. Programs that search a table for a GID
 * that other hosts can reach don't see them; the connection manager uses them, because it serves
 * all addresses of the host. The first device has them.
 */
#ifndef VERBENA_DAEMON_NET_GIDS_H
#define VERBENA_DAEMON_NET_GIDS_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/net/host.h"
#include "proto/limits.h"

struct gids {
	struct host_address entry[LIMIT_GID_INDICES];
	bool used[LIMIT_GID_INDICES];
	bool full_said; /* the message that the table is full was logged; never cleared */
};

/* NULL: no entry at this index. */
const struct host_address *gids_get(const struct gids *gids, uint32_t index);
/* The entry with this address; its index is its position in `entry`. NULL: none. */
const struct host_address *gids_find(const struct gids *gids, const uint8_t gid[16]);

/* Puts `first` at index 0; the other entries follow `wanted`. Returns whether anything changed. */
bool gids_update(struct gids *gids, const struct host_address *first,
		 const struct host_address *wanted, unsigned int count);

/* The hidden entries follow `wanted`. Returns whether anything changed. */
bool gids_update_hidden(struct gids *gids, const struct host_address *wanted, unsigned int count);

/* Empties the table: no program has an index of it. */
void gids_forget(struct gids *gids);

#endif
