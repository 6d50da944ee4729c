/* SPDX-License-Identifier: BSD-2-Clause */
/* Opaque handles: see table.h. */
#include "daemon/table.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define PLACE_BITS 20
#define PLACE_MASK ((1u << PLACE_BITS) - 1)
#define NONE UINT32_MAX
void table_init(struct table *table, uint32_t limit)
{
	*table = (struct table){.limit = limit, .free_head = NONE, .free_tail = NONE};
}
void table_destroy(struct table *table)
{
	free(table->slots);
	table_init(table, table->limit);
}
static void free_place(struct table *table, uint32_t place)
{
	table->slots[place].next_free = NONE;
	if (table->free_tail == NONE)
		table->free_head = place;
	else
		table->slots[table->free_tail].next_free = place;
	table->free_tail = place;
}
static int grow(struct table *table)
{
	uint32_t size = table->size ? table->size * 2 : 16;
	struct table_slot *slots = reallocarray(table->slots, size, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	table->slots = slots;
	memset(slots + table->size, 0, (size - table->size) * sizeof(*slots));
	for (uint32_t i = table->size; i < size; i++)
		free_place(table, i);
	table->size = size;
	return 0;
}
int table_add(struct table *table, void *object, uint32_t *handle)
{
	if (table->used >= table->limit)
		return -ENOSPC;
	if (table->free_head == NONE) {
		int err = grow(table);
		if (err)
			return err;
	}
	uint32_t place = table->free_head;
	struct table_slot *slot = &table->slots[place];
	table->free_head = slot->next_free;
	if (table->free_head == NONE)
		table->free_tail = NONE;
	slot->object = object;
	table->used++;
	*handle = place | slot->generation << PLACE_BITS;
	return 0;
}
void *table_find(const struct table *table, uint32_t handle)
{
	uint32_t place = handle & PLACE_MASK;
	if (place >= table->size || table->slots[place].generation != handle >> PLACE_BITS)
		return NULL;
	return table->slots[place].object;
}
void table_remove(struct table *table, uint32_t handle)
{
	uint32_t place = handle & PLACE_MASK;
	struct table_slot *slot = &table->slots[place];
	slot->object = NULL;
	slot->generation = (slot->generation + 1) & (UINT32_MAX >> PLACE_BITS);
	table->used--;
	free_place(table, place);
}
