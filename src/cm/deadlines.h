/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is due first: a binary heap of deadlines. Setting one never fails, as room is made before. */
#ifndef VERBENA_CM_DEADLINES_H
#define VERBENA_CM_DEADLINES_H

#include <stdint.h>

struct deadline {
	uint64_t at_ms;
	uint32_t place; /* in the heap, from 1 on; 0: not set */
};

struct deadlines {
	struct deadline **heap; /* [0] isn't used */
	uint32_t count, room;
};

/* Room for so many at once. 0 or -ENOMEM. */
int deadlines_reserve(struct deadlines *deadlines, uint32_t count);
void deadlines_fini(struct deadlines *deadlines);
void deadline_set(struct deadlines *deadlines, struct deadline *deadline, uint64_t at_ms);
void deadline_clear(struct deadlines *deadlines, struct deadline *deadline);
/* NULL: none. */
struct deadline *deadlines_first(const struct deadlines *deadlines);

#endif
