/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers that are quarantined before reuse. See ids.h. A *place* is 0 .. count - 1 in the order of
 * first use; its number is rotated by `start`. */
#include "daemon/core/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ids_init(struct ids *ids, uint32_t first, uint32_t count, uint32_t age, uint32_t start)
{
	*ids = (struct ids){.first = first, .count = count, .age = age, .start = start % count};
}

void ids_fini(struct ids *ids)
{
	free(ids->next);
	free(ids->claimed);
	ids->next = NULL;
	ids->claimed = NULL;
}

static uint32_t number_of(const struct ids *ids, uint32_t place)
{
	return ids->first + (uint32_t)(((uint64_t)place + ids->start) % ids->count);
}

static uint32_t ids_place(const struct ids *ids, uint32_t number)
{
	uint64_t offset = (uint64_t)(number - ids->first) + ids->count - ids->start;

	return (uint32_t)(offset % ids->count);
}

/* Makes room for so many places in advance, so that giving one back can't fail. */
static int ids_grow(struct ids *ids, uint32_t places)
{
	if (places <= ids->room)
		return 0;
	uint32_t room = ids->room ? ids->room : 16;

	while (room < places)
		room *= 2;
	if (room > ids->count)
		room = ids->count;
	uint32_t *next = realloc(ids->next, room * sizeof(*next));

	if (!next)
		return -ENOMEM;
	ids->next = next;
	ids->room = room;
	return 0;
}

static uint32_t ids_pop(struct ids *ids)
{
	uint32_t place = ids->head;

	ids->head = ids->next[place];
	ids->waiting--;
	return place;
}

int ids_take(struct ids *ids, uint32_t *number)
{
	if (ids->waiting <= ids->age && ids->fresh < ids->count &&
	    ids_grow(ids, ids->fresh + 1) == 0) {
		*number = number_of(ids, ids->fresh++);
		return 0;
	}
	if (!ids->waiting)
		return ids->fresh < ids->count ? -ENOMEM : -ENOSPC;
	*number = number_of(ids, ids_pop(ids));
	return 0;
}

void ids_give(struct ids *ids, uint32_t number)
{
	uint32_t place = ids_place(ids, number);

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

/* ------------------------------------------------------------------ numbers in use already */

/* Makes room for the bits of as many places as `next` has. */
static int grow_claimed(struct ids *ids)
{
	uint32_t bytes = (ids->room + 7) / 8;

	if (bytes <= ids->claimed_bytes)
		return 0;
	uint8_t *claimed = realloc(ids->claimed, bytes);

	if (!claimed)
		return -ENOMEM;
	memset(claimed + ids->claimed_bytes, 0, bytes - ids->claimed_bytes);
	ids->claimed = claimed;
	ids->claimed_bytes = bytes;
	return 0;
}

int ids_claim(struct ids *ids, uint32_t number)
{
	if (number < ids->first || number - ids->first >= ids->count)
		return -EINVAL;
	uint32_t place = ids_place(ids, number);
	int err = ids_grow(ids, place + 1);

	if (!err)
		err = grow_claimed(ids);
	if (err)
		return err;
	uint8_t bit = (uint8_t)(1u << place % 8);

	if (ids->claimed[place / 8] & bit)
		return -EEXIST;
	ids->claimed[place / 8] |= bit;
	if (place >= ids->fresh)
		ids->fresh = place + 1;
	return 0;
}

void ids_claimed(struct ids *ids)
{
	for (uint32_t place = 0; place < ids->fresh; place++)
		if (!ids->claimed || !(ids->claimed[place / 8] >> place % 8 & 1))
			ids_give(ids, number_of(ids, place));
	free(ids->claimed);
	ids->claimed = NULL;
	ids->claimed_bytes = 0;
}
