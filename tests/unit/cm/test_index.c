/* SPDX-License-Identifier: BSD-2-Clause */
/* The hash table: every node is found while the table grows, and no call moves many of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/list.h"
#include "cm/index.h"

enum { NODES = 5000, SAME = 3 }; /* SAME: each key belongs to that many nodes */

struct thing {
	struct index_node node;
	int number;
};

static struct thing things[NODES];
static struct index table;

static uint64_t key_of(int number)
{
	return (uint64_t)(number / SAME) << 20;
}

static int count_of(uint64_t key)
{
	int count = 0;

	for (struct index_node *n = index_first(&table, key); n; n = index_next(n)) {
		assert_int_equal(key_of(container_of(n, struct thing, node)->number), key);
		count++;
	}
	return count;
}

/* How many of the first `made` nodes have this key. */
static int wanted(int made, int number)
{
	int first = number / SAME * SAME;

	return made - first < SAME ? made - first : SAME;
}

static void nodes_are_found_while_it_grows(void **state)
{
	(void)state;
	assert_int_equal(index_init(&table), 0);
	for (int i = 0; i < NODES; i++) {
		things[i].number = i;
		index_add(&table, &things[i].node, key_of(i));
		for (int j = 0; j <= i; j += 1 + i / 50)
			assert_int_equal(count_of(key_of(j)), wanted(i + 1, j));
	}
	assert_int_equal(table.count, NODES);
	for (int i = NODES - 1; i >= 0; i--) {
		index_remove(&table, &things[i].node);
		index_remove(&table, &things[i].node);
		assert_int_equal(count_of(key_of(i)), i % SAME);
	}
	assert_int_equal(table.count, 0);
	index_fini(&table);
}

static void a_node_is_removed_while_it_grows(void **state)
{
	(void)state;
	assert_int_equal(index_init(&table), 0);
	int made = 0;

	while (!table.old) {
		assert_true(made < NODES);
		things[made].number = made;
		index_add(&table, &things[made].node, key_of(made));
		made++;
	}
	for (int i = 0; i < made; i++)
		index_remove(&table, &things[i].node);
	assert_int_equal(table.count, 0);
	for (int i = 0; i < made; i++)
		assert_int_equal(count_of(key_of(i)), 0);
	index_fini(&table);
}

static void no_call_moves_many(void **state)
{
	bool grew = false;

	(void)state;
	assert_int_equal(index_init(&table), 0);
	for (int i = 0; i < NODES; i++) {
		uint32_t before = table.old ? table.moved : 0, size = table.size;

		things[i].number = i;
		index_add(&table, &things[i].node, key_of(i));
		uint32_t now = table.old ? table.moved : table.size / 2;

		if (size == table.size && !before && !table.old)
			continue;
		grew |= size != table.size;
		assert_true(now - before <= 2);
	}
	assert_true(grew);
	for (int i = 0; i < NODES; i++)
		index_remove(&table, &things[i].node);
	index_fini(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_are_found_while_it_grows),
		cmocka_unit_test(a_node_is_removed_while_it_grows),
		cmocka_unit_test(no_call_moves_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
