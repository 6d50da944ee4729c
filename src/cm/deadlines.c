/* SPDX-License-Identifier: BSD-2-Clause */
/* See deadlines.h. */
#include "cm/deadlines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum { FIRST_ROOM = 64 };

int deadlines_reserve(struct deadlines *d, uint32_t count)
{
	uint32_t room = d->room ? d->room : FIRST_ROOM;

	if (count <= d->room)
		return 0;
	while (room < count)
		room *= 2;
	struct deadline **heap = realloc(d->heap, ((size_t)room + 1) * sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	d->heap = heap;
	d->room = room;
	return 0;
}

void deadlines_fini(struct deadlines *d)
{
	free(d->heap);
	*d = (struct deadlines){0};
}

static void deadlines_put(struct deadlines *d, uint32_t place, struct deadline *deadline)
{
	d->heap[place] = deadline;
	deadline->place = place;
}

/* Moves the free `place` up or down to where `deadline` belongs. */
static void deadlines_settle(struct deadlines *d, uint32_t place, struct deadline *deadline)
{
	while (place > 1 && d->heap[place / 2]->at_ms > deadline->at_ms) {
		deadlines_put(d, place, d->heap[place / 2]);
		place /= 2;
	}
	for (uint32_t child; (child = place * 2) <= d->count; place = child) {
		if (child < d->count && d->heap[child + 1]->at_ms < d->heap[child]->at_ms)
			child++;
		if (d->heap[child]->at_ms >= deadline->at_ms)
			break;
		deadlines_put(d, place, d->heap[child]);
	}
	deadlines_put(d, place, deadline);
}

void deadline_set(struct deadlines *d, struct deadline *deadline, uint64_t at_ms)
{
	deadline->at_ms = at_ms;
	deadlines_settle(d, deadline->place ? deadline->place : ++d->count, deadline);
}

void deadline_clear(struct deadlines *d, struct deadline *deadline)
{
	uint32_t place = deadline->place;

	if (!place)
		return;
	struct deadline *last = d->heap[d->count--];

	if (last != deadline)
		deadlines_settle(d, place, last);
	deadline->place = 0;
}

struct deadline *deadlines_first(const struct deadlines *d)
{
	return d->count ? d->heap[1] : NULL;
}
