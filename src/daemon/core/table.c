/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles. See table.h. */
#include "daemon/core/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static uint32_t chunk_count(uint32_t room)
{
	return (room + TABLE_CHUNK - 1) / TABLE_CHUNK;
}

void table_fini(struct table *table)
{
	ids_fini(&table->ids);
	for (uint32_t i = 0; i < chunk_count(table->room); i++)
		free(table->chunks[i]);
	free(table->chunks);
	table->chunks = NULL;
	table->room = 0;
}

static struct table_entry *entry_at(const struct table *table, uint32_t index)
{
	return &table->chunks[index / TABLE_CHUNK][index % TABLE_CHUNK];
}

static uint32_t generation_of(const struct table *table, const struct table_entry *entry)
{
	return (entry->generation + table->first_generation) & GENERATION_MASK;
}

/* The first chunk, which there is not or which is smaller than others. */
static int first_chunk_grow(struct table *table, uint32_t index)
{
	uint32_t old = table->room, room = old ? old : 16;

	while (room <= index && room < TABLE_CHUNK)
		room *= 2;
	if (!table->chunks)
		table->chunks = calloc(1, sizeof(*table->chunks));
	if (!table->chunks)
		return -ENOMEM;
	struct table_entry *entries = realloc(table->chunks[0], room * sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	memset(entries + old, 0, (room - old) * sizeof(*entries));
	table->chunks[0] = entries;
	table->room = room;
	return 0;
}

/* The chunks' addresses are a thousandth of the places. */
static int chunk_add(struct table *table)
{
	uint32_t count = chunk_count(table->room);
	struct table_entry **chunks = realloc(table->chunks, (count + 1) * sizeof(*chunks));

	if (!chunks)
		return -ENOMEM;
	table->chunks = chunks;
	chunks[count] = calloc(TABLE_CHUNK, sizeof(*chunks[count]));
	if (!chunks[count])
		return -ENOMEM;
	table->room = (count + 1) * TABLE_CHUNK;
	return 0;
}

/* Makes the place `index`. */
static int handles_grow(struct table *table, uint32_t index)
{
	int err = 0;

	while (!err && index >= table->room)
		err = table->room < TABLE_CHUNK ? first_chunk_grow(table, index) : chunk_add(table);
	return err;
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
	struct table_entry *entry = entry_at(table, index);

	entry->object = object;
	*handle = generation_of(table, entry) << TABLE_INDEX_BITS | index;
	return 0;
}

void *table_find(const struct table *table, uint32_t handle)
{
	uint32_t index = handle & INDEX_MASK, generation = handle >> TABLE_INDEX_BITS;

	if (index >= table->room)
		return NULL;
	const struct table_entry *entry = entry_at(table, index);

	return generation_of(table, entry) == generation ? entry->object : NULL;
}

void *table_at(const struct table *table, uint32_t index)
{
	return index < table->room ? entry_at(table, index)->object : NULL;
}

void table_remove(struct table *table, uint32_t handle)
{
	struct table_entry *entry = entry_at(table, handle & INDEX_MASK);

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
	*entry_at(table, index) =
		(struct table_entry){object, generation - table->first_generation};
	return 0;
}

void table_claimed(struct table *table)
{
	ids_claimed(&table->ids);
}
