/* SPDX-License-Identifier: BSD-2-Clause */
/* See index.h. */
#include "cm/index.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_SIZE = 64 };

/* Stafford's variant 13 of the finalizer of MurmurHash3. */
uint64_t index_mix(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ value >> 27) * 0x94d049bb133111ebull;
	return value ^ value >> 31;
}

int index_init(struct index *index)
{
	*index = (struct index){.size = FIRST_SIZE};
	index->buckets = calloc(index->size, sizeof(struct index_node *));
	return index->buckets ? 0 : -ENOMEM;
}

void index_fini(struct index *index)
{
	free(index->buckets);
	free(index->old);
	index->buckets = index->old = NULL;
}

static struct index_node **index_bucket(const struct index *index, uint64_t key)
{
	uint64_t hash = index_mix(key);
	uint32_t before = (uint32_t)hash & (index->size / 2 - 1);

	if (index->old && before >= index->moved)
		return &index->old[before];
	return &index->buckets[hash & (index->size - 1)];
}

static void index_push(struct index *index, struct index_node *node)
{
	struct index_node **head = index_bucket(index, node->key);

	node->next = *head;
	*head = node;
}

/* Begins to move all nodes to a table twice as large. */
static void index_grow(struct index *index)
{
	struct index_node **larger = calloc((size_t)index->size * 2, sizeof(struct index_node *));

	if (!larger)
		return;
	index->old = index->buckets;
	index->moved = 0;
	index->buckets = larger;
	index->size *= 2;
}

static void index_move_bucket(struct index *index)
{
	struct index_node *next, *node = index->old[index->moved++];

	for (; node; node = next) {
		next = node->next;
		index_push(index, node);
	}
	if (index->moved < index->size / 2)
		return;
	free(index->old);
	index->old = NULL;
}

/* Two buckets for each node that is added: the old table is empty long before the new one is
 * full. */
static void index_go_on(struct index *index)
{
	for (int i = 0; i < 2 && index->old; i++)
		index_move_bucket(index);
}

void index_add(struct index *index, struct index_node *node, uint64_t key)
{
	if (index->count >= index->size && !index->old)
		index_grow(index);
	index_go_on(index);
	node->key = key;
	node->in = true;
	index_push(index, node);
	index->count++;
}

void index_remove(struct index *index, struct index_node *node)
{
	if (!node->in)
		return;
	struct index_node **at = index_bucket(index, node->key);

	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	node->in = false;
	index->count--;
}

static struct index_node *with_key(struct index_node *node, uint64_t key)
{
	while (node && node->key != key)
		node = node->next;
	return node;
}

struct index_node *index_first(const struct index *index, uint64_t key)
{
	return with_key(*index_bucket(index, key), key);
}

struct index_node *index_next(const struct index_node *node)
{
	return with_key(node->next, node->key);
}
