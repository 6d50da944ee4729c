/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hash table of structures that contain their node, so that adding one allocates nothing. The
 * table grows with the number of nodes; without memory for that it gets slower and goes on. It
 * grows bit by bit: each index_add() moves two of the old buckets to the larger table, so no call
 * takes long, however many nodes there are. Keys need not be unique: the caller compares what
 * index_first() and index_next() return.
 */
#ifndef VERBENA_CM_INDEX_H
#define VERBENA_CM_INDEX_H

#include <stdbool.h>
#include <stdint.h>

struct index_node {
	struct index_node *next;
	uint64_t key;
	bool in;
};

struct index {
	struct index_node **buckets;
	uint32_t size, count; /* size: a power of two */
	/* While the table grows, half its size: the buckets from `moved` on still have their nodes.
	 * Else NULL. */
	struct index_node **old;
	uint32_t moved;
};

/* 0 or -ENOMEM. */
int index_init(struct index *index);
void index_fini(struct index *index);
void index_add(struct index *index, struct index_node *node, uint64_t key);
/* Does nothing if the node isn't in the table. */
void index_remove(struct index *index, struct index_node *node);
/* The nodes with this key; NULL: no further one. */
struct index_node *index_first(const struct index *index, uint64_t key);
struct index_node *index_next(const struct index_node *node);

/* A bijective function in whose result every bit depends on all bits of `value`. */
uint64_t index_mix(uint64_t value);

#endif
