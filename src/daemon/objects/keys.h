/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process's memory keys. A key is the region's index in the process's published table, then an
 * 8-bit tag: even for the lkey, one more for the rkey, so that the two keys of a region differ. The
 * tag changes with each reuse of an index, and indices are quarantined before reuse (ids.h).
 */
#ifndef VERBENA_DAEMON_OBJECTS_KEYS_H
#define VERBENA_DAEMON_OBJECTS_KEYS_H

#include <stdint.h>

#include "daemon/core/ids.h"

/* Index 0 is never used, because key 0 is what programs leave in a field that they forgot to
 * set. */
#define KEYS_FIRST 1

struct keys {
	struct ids ids;
	uint8_t *tags; /* by place of first use: the last tag */
	uint32_t room;
	uint8_t seed; /* first tag of every index */
};

/* `start`: see ids_init(). `seed`: any number. */
void keys_init(struct keys *keys, uint32_t start, uint8_t seed);
void keys_fini(struct keys *keys);

/* Takes a pair of keys. Returns 0; -ENOSPC: no index is free; -ENOMEM. */
int keys_take(struct keys *keys, uint32_t *lkey, uint32_t *rkey);
/* As ids_claim() and ids_claimed(), for a pair of keys in use. -EINVAL: keys_take() gives no such
 * lkey. */
int keys_claim(struct keys *keys, uint32_t lkey);
void keys_claimed(struct keys *keys);
/* Gives back a pair of keys, named by its lkey. */
void keys_give(struct keys *keys, uint32_t lkey);

#endif
