/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process's memory keys. A key is the region's index in the process's published table, then an
 * 8-bit tag: even for the lkey, one more for the rkey, so that the two of a region differ. The tag
 * changes with each reuse of an index, and indices age (ids.h).
 */
#ifndef VERBENA_DAEMON_KEYS_H
#define VERBENA_DAEMON_KEYS_H

#include <stdint.h>

#include "daemon/ids.h"

struct keys {
	struct ids ids;
	uint8_t *tags; /* by index; the last tag that it had */
	uint32_t room;
	uint8_t seed; /* first tag of every index */
};

/* `start`: see ids_init(). `seed`: any number. */
void keys_init(struct keys *keys, uint32_t start, uint8_t seed);
void keys_fini(struct keys *keys);

/* 0; -ENOSPC no index is free; -ENOMEM. */
int keys_take(struct keys *keys, uint32_t *lkey, uint32_t *rkey);
void keys_give(struct keys *keys, uint32_t lkey);

#endif
