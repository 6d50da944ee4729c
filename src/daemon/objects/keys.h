/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process's memory keys. A key is the region's index in the process's published table, then an
 * 8-bit tag, which changes with each reuse of the index; indices are quarantined before reuse
 * (ids.h). A region's key is both its lkey and its rkey.
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

/* Returns 0; -ENOSPC: no index is free; -ENOMEM. */
int keys_take(struct keys *keys, uint32_t *key);
/* As ids_claim() and ids_claimed(), for a key in use. */
int keys_claim(struct keys *keys, uint32_t key);
void keys_claimed(struct keys *keys);
void keys_give(struct keys *keys, uint32_t key);

#endif
