/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opaque 32-bit handles for a client's objects. Each context has one table for objects of all
 * kinds, so that a handle names at most one object. A handle is never an address, and another
 * client can't use it: it has a meaning only in its own table.
 *
 * A handle is a place in the table and that place's generation, which changes at every reuse. Bit
 * 31 is 0 (some commands carry a handle in a signed field), and 0 is no handle. All operations are
 * O(1).
 */
#ifndef VERBENA_DAEMON_CORE_TABLE_H
#define VERBENA_DAEMON_CORE_TABLE_H

#include <stdint.h>

#include "daemon/core/ids.h"

#define TABLE_INDEX_BITS 22
#define TABLE_GENERATION_BITS 9

struct table_entry {
	void *object;	     /* NULL: the place is free */
	uint32_t generation; /* minus first_generation */
};

/* Places are added by chunks, which never move: so that to add an object takes about as long in a
 * table of a million as in an empty one. The first chunk grows by doubling, because most tables are
 * small. */
#define TABLE_CHUNK 1024u

struct table {
	struct table_entry **chunks;
	uint32_t room;		   /* places that there are: less than a chunk, or whole chunks */
	uint32_t first_generation; /* of every place; to be set while the table is empty */
	struct ids ids;
};

void table_init(struct table *table);
/* The objects stay the caller's. */
void table_fini(struct table *table);

/* Adds an object. Returns 0; -ENOSPC: the table is full; -ENOMEM. */
int table_add(struct table *table, void *object, uint32_t *handle);
/*
 * As ids_claim() and ids_claimed(): adds an object with the handle that it had at another daemon. A
 * table that is filled this way may have TABLE_CLAIM_MAX places. Returns 0; -EINVAL, -EEXIST,
 * -ENOMEM.
 */
#define TABLE_CLAIM_MAX (1u << 21)
int table_claim(struct table *table, void *object, uint32_t handle);
void table_claimed(struct table *table);
/* The handle's object; NULL: no such handle, or not any more. */
void *table_find(const struct table *table, uint32_t handle);
/* The object at the place `index`; NULL: none. Places are 0 to table->room - 1. */
void *table_at(const struct table *table, uint32_t index);
/* `handle` must be valid. */
void table_remove(struct table *table, uint32_t handle);

#endif
