/* SPDX-License-Identifier: BSD-2-Clause */
/* A binary heap of deadlines, the earliest first. Setting one never fails, because room is reserved
 * before. */
#ifndef VERBENA_CM_DEADLINES_H
#define VERBENA_CM_DEADLINES_H

#include <stdint.h>

struct deadline {
	uint64_t at_ms;
	uint32_t place; /* index in the heap, from 1 on; 0: not set */
};

struct deadlines {
	struct deadline **heap; /* [0] is unused */
	uint32_t count, room;
};

/* Reserves room for `count` deadlines at once. Returns 0 or -ENOMEM. */
int deadlines_reserve(struct deadlines *deadlines, uint32_t count);
void deadlines_fini(struct deadlines *deadlines);
/* Sets or changes a deadline; deadline_clear() does nothing if it isn't set. */
void deadline_set(struct deadlines *deadlines, struct deadline *deadline, uint64_t at_ms);
void deadline_clear(struct deadlines *deadlines, struct deadline *deadline);
/* The earliest deadline; NULL: none. */
struct deadline *deadlines_first(const struct deadlines *deadlines);

#endif
