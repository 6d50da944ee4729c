/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles are a place (20 bits) and its generation (12): a stale one finds nothing. O(1). */
#ifndef VERBENA_DAEMON_TABLE_H
#define VERBENA_DAEMON_TABLE_H
#include <stdint.h>
struct table_slot {
	void *object;
	uint32_t generation;
	uint32_t next_free;
};
struct table {
	struct table_slot *slots;
	uint32_t size, used, limit;
	uint32_t free_head, free_tail;
};
void table_init(struct table *table, uint32_t limit);
void table_destroy(struct table *table);
int table_add(struct table *table, void *object, uint32_t *handle);
void *table_find(const struct table *table, uint32_t handle);
void table_remove(struct table *table, uint32_t handle);
static inline void *table_at(const struct table *table, uint32_t place)
{
	return table->slots[place].object;
}
#endif
