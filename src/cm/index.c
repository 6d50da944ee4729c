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
	index->buckets = NULL;
}

static struct index_node **index_bucket(const struct index *index, uint64_t key)
{
	return &index->buckets[index_mix(key) & (index->size - 1)];
}

static void index_push(struct index *index, struct index_node *node)
{
	struct index_node **head = index_bucket(index, node->key);

	node->next = *head;
	*head = node;
}

static void index_grow(struct index *index)
{
	struct index larger = {.size = index->size * 2};

	larger.buckets = calloc(larger.size, sizeof(struct index_node *));
	if (!larger.buckets)
		return;
	for (uint32_t i = 0; i < index->size; i++) {
		struct index_node *next;

		for (struct index_node *node = index->buckets[i]; node; node = next) {
			next = node->next;
			index_push(&larger, node);
		}
	}
	free(index->buckets);
	index->buckets = larger.buckets;
	index->size = larger.size;
}

void index_add(struct index *index, struct index_node *node, uint64_t key)
{
	if (index->count >= index->size)
		index_grow(index);
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
