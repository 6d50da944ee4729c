/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers that age. See ids.h. A *place* is 0 .. count - 1 in the order of first use; its number
 * is rotated by `start`. */
#include "daemon/ids.h"

#include <errno.h>
#include <stdlib.h>

void ids_init(struct ids *ids, uint32_t first, uint32_t count, uint32_t age, uint32_t start)
{
	*ids = (struct ids){.first = first, .count = count, .age = age, .start = start % count};
}

void ids_fini(struct ids *ids)
{
	free(ids->next);
	ids->next = NULL;
}

static uint32_t number_of(const struct ids *ids, uint32_t place)
{
	return ids->first + (uint32_t)(((uint64_t)place + ids->start) % ids->count);
}

static uint32_t place_of(const struct ids *ids, uint32_t number)
{
	uint64_t offset = (uint64_t)(number - ids->first) + ids->count - ids->start;

	return (uint32_t)(offset % ids->count);
}

/* Room for one more place, so that giving it back can't fail. */
static int grow(struct ids *ids)
{
	if (ids->fresh < ids->room)
		return 0;
	uint32_t room = ids->room ? ids->room * 2 : 16;

	if (room > ids->count)
		room = ids->count;
	uint32_t *next = realloc(ids->next, room * sizeof(*next));

	if (!next)
		return -ENOMEM;
	ids->next = next;
	ids->room = room;
	return 0;
}

static uint32_t pop(struct ids *ids)
{
	uint32_t place = ids->head;

	ids->head = ids->next[place];
	ids->waiting--;
	return place;
}

int ids_take(struct ids *ids, uint32_t *number)
{
	if (ids->waiting <= ids->age && ids->fresh < ids->count && grow(ids) == 0) {
		*number = number_of(ids, ids->fresh++);
		return 0;
	}
	if (!ids->waiting)
		return ids->fresh < ids->count ? -ENOMEM : -ENOSPC;
	*number = number_of(ids, pop(ids));
	return 0;
}

void ids_give(struct ids *ids, uint32_t number)
{
	uint32_t place = place_of(ids, number);

	if (ids->waiting++)
		ids->next[ids->tail] = place;
	else
		ids->head = place;
	ids->tail = place;
}

uint32_t ids_mark(const struct ids *ids)
{
	return (uint32_t)(((uint64_t)ids->start + ids->fresh) % ids->count);
}
