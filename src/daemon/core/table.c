/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles. See table.h. */
#include "daemon/core/table.h"

#include <errno.h>
#include <stdlib.h>

#define INDEX_MASK ((1u << TABLE_INDEX_BITS) - 1)
#define GENERATION_MASK ((1u << TABLE_GENERATION_BITS) - 1)

/* How many other objects are made before a place is reused. A small number keeps the table
 * short. */
enum { TABLE_AGE = 32 };

void table_init(struct table *table)
{
	*table = (struct table){0};
	ids_init(&table->ids, 1, INDEX_MASK, TABLE_AGE, 0);
}

void table_fini(struct table *table)
{
	ids_fini(&table->ids);
	free(table->entries);
	table->entries = NULL;
	table->room = 0;
}

static int handles_grow(struct table *table, uint32_t index)
{
	if (index < table->room)
		return 0;
	uint32_t room = table->room ? table->room : 16;

	while (room <= index)
		room *= 2;
	struct table_entry *entries = realloc(table->entries, room * sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	for (uint32_t i = table->room; i < room; i++)
		entries[i] = (struct table_entry){NULL, table->first_generation};
	table->entries = entries;
	table->room = room;
	return 0;
}

int table_add(struct table *table, void *object, uint32_t *handle)
{
	uint32_t index;
	int err = ids_take(&table->ids, &index);

	if (err)
		return err;
	err = handles_grow(table, index);
	if (err) {
		ids_give(&table->ids, index);
		return err;
	}
	struct table_entry *entry = &table->entries[index];

	entry->object = object;
	*handle = (entry->generation & GENERATION_MASK) << TABLE_INDEX_BITS | index;
	return 0;
}

void *table_find(const struct table *table, uint32_t handle)
{
	uint32_t index = handle & INDEX_MASK, generation = handle >> TABLE_INDEX_BITS;

	if (index >= table->room)
		return NULL;
	const struct table_entry *entry = &table->entries[index];

	return (entry->generation & GENERATION_MASK) == generation ? entry->object : NULL;
}

void *table_at(const struct table *table, uint32_t index)
{
	return index < table->room ? table->entries[index].object : NULL;
}

void table_remove(struct table *table, uint32_t handle)
{
	struct table_entry *entry = &table->entries[handle & INDEX_MASK];

	entry->object = NULL;
	entry->generation++;
	ids_give(&table->ids, handle & INDEX_MASK);
}

int table_claim(struct table *table, void *object, uint32_t handle)
{
	uint32_t index = handle & INDEX_MASK, generation = handle >> TABLE_INDEX_BITS;

	if (index >= TABLE_CLAIM_MAX || generation > GENERATION_MASK)
		return -EINVAL;
	int err = ids_claim(&table->ids, index);

	if (!err)
		err = handles_grow(table, index);
	if (err)
		return err;
	table->entries[index] = (struct table_entry){object, generation};
	return 0;
}

void table_claimed(struct table *table)
{
	ids_claimed(&table->ids);
}
