/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of multicast groups: what is set is found, what is cleared isn't, places are used
 * again, and a reader finds a group that stays while others come and go. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/groups.h"

static struct groups *table;

static int make_table(void **state)
{
	(void)state;
	table = aligned_alloc(4096, GROUPS_SIZE);
	if (!table)
		return -1;
	memset(table, 0, GROUPS_SIZE);
	table->seed = 0x1234567890abcdef;
	return 0;
}

static int free_table(void **state)
{
	(void)state;
	free(table);
	return 0;
}

/* IPv4 groups have even numbers, IPv6 groups odd ones. */
static void make_gid(uint32_t number, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (number % 2) {
		gid[0] = 0xff;
		gid[1] = 0x0e;
	} else {
		gid[10] = gid[11] = 0xff;
	}
	for (int i = 0; i < 4; i++)
		gid[15 - i] = number >> 8 * i;
	if (number % 2 == 0)
		gid[12] |= 224;
}

static int set(uint32_t number, uint32_t slot)
{
	uint8_t gid[16];

	make_gid(number, gid);
	return groups_set(table, gid, slot);
}

static void clear(uint32_t number, uint32_t slot)
{
	uint8_t gid[16];

	make_gid(number, gid);
	groups_clear(table, gid, slot);
}

static bool find(uint32_t number, uint64_t slots[GROUPS_WORDS])
{
	uint8_t gid[16];

	memset(slots, 0, GROUPS_WORDS * sizeof(slots[0]));
	make_gid(number, gid);
	return groups_find(table, gid, slots);
}

static bool has(uint32_t number, uint32_t slot)
{
	uint64_t slots[GROUPS_WORDS];

	return find(number, slots) && slots[slot / 64] >> slot % 64 & 1;
}

static void slots_of_a_group(void **state)
{
	uint64_t slots[GROUPS_WORDS];

	(void)state;
	assert_false(find(1, slots));
	clear(1, 5); /* nothing */
	assert_int_equal(set(1, 5), 0);
	assert_int_equal(set(1, 5), 0);
	assert_int_equal(set(1, LIMIT_SLOTS - 1), 0);
	assert_int_equal(set(2, 64), 0);
	assert_true(find(1, slots));
	assert_true(slots[0] == 1ull << 5);
	assert_true(slots[GROUPS_WORDS - 1] == 1ull << 63);
	/* What is there already stays. */
	uint8_t gid[16];

	make_gid(2, gid);
	assert_true(groups_find(table, gid, slots));
	assert_true(slots[0] == 1ull << 5 && slots[1] == 1);
	clear(1, 5);
	assert_true(has(1, LIMIT_SLOTS - 1));
	assert_false(has(1, 5));
	clear(1, LIMIT_SLOTS - 1);
	assert_false(find(1, slots));
	assert_true(has(2, 64));
}

/* The maximum number of groups, twice; the second time places are reused. */
static void all_groups(void **state)
{
	uint64_t slots[GROUPS_WORDS];

	(void)state;
	for (uint32_t round = 0; round < 8; round++) {
		uint32_t first = round * LIMIT_MCAST_GROUPS;

		for (uint32_t i = 0; i < LIMIT_MCAST_GROUPS; i++)
			assert_int_equal(set(first + i, i % LIMIT_SLOTS), 0);
		for (uint32_t i = 0; i < LIMIT_MCAST_GROUPS; i++) {
			assert_true(has(first + i, i % LIMIT_SLOTS));
			assert_false(find(first + i + LIMIT_MCAST_GROUPS, slots));
		}
		for (uint32_t i = 0; i < LIMIT_MCAST_GROUPS; i++)
			clear(first + i, i % LIMIT_SLOTS);
		for (uint32_t i = 0; i < LIMIT_MCAST_GROUPS; i += 7)
			assert_false(find(first + i, slots));
	}
}

/* A full bucket is reported, and its entries stay. */
static void too_many(void **state)
{
	uint32_t refused = 0;

	(void)state;
	for (uint32_t i = 0; i <= 2 * GROUPS_PLACES; i++)
		refused += set(i, 3) == -ENOMEM;
	assert_true(refused > GROUPS_PLACES);
	for (uint32_t i = 0; i <= LIMIT_MCAST_GROUPS; i++)
		assert_true(has(i, 3));
}

/* The host's own addresses: exactly those of the last call, and the number changes each time. */
static void own_addresses(void **state)
{
	static uint8_t gids[GROUPS_OWN + 1][16];

	(void)state;
	for (uint32_t i = 0; i <= GROUPS_OWN; i++)
		memcpy(gids[i], &(const uint32_t){i + 1}, sizeof(uint32_t));
	uint64_t before = table->addresses;

	assert_false(groups_is_own(table, gids[0]));
	groups_set_own(table, (const uint8_t(*)[16])gids, 3);
	assert_true(table->addresses != before);
	assert_true(groups_is_own(table, gids[0]) && groups_is_own(table, gids[2]));
	assert_false(groups_is_own(table, gids[3]));
	groups_set_own(table, (const uint8_t(*)[16])(gids + 1), 1);
	assert_false(groups_is_own(table, gids[0]) || groups_is_own(table, gids[2]));
	assert_true(groups_is_own(table, gids[1]));
	groups_set_own(table, (const uint8_t(*)[16])gids, GROUPS_OWN + 1);
	assert_true(groups_is_own(table, gids[GROUPS_OWN - 1]));
	assert_false(groups_is_own(table, gids[GROUPS_OWN]));
}

static _Atomic bool done;
static _Atomic uint32_t looks, missing, strange;

static void *look(void *arg)
{
	uint64_t slots[GROUPS_WORDS];

	(void)arg;
	while (!atomic_load(&done)) {
		/* One group stays throughout; another never exists. */
		missing += !has(1, 7);
		strange += find(3, slots);
		looks++;
	}
	return NULL;
}

static void read_while_written(void **state)
{
	pthread_t thread;

	(void)state;
	atomic_store(&done, false);
	assert_int_equal(set(1, 7), 0);
	assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
	for (uint32_t i = 10; i < 50000 || atomic_load(&looks) < 1000; i++) {
		assert_int_equal(set(i, i % LIMIT_SLOTS), 0);
		clear(i, i % LIMIT_SLOTS);
	}
	atomic_store(&done, true);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&missing), 0);
	assert_int_equal(atomic_load(&strange), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(slots_of_a_group, make_table, free_table),
		cmocka_unit_test_setup_teardown(all_groups, make_table, free_table),
		cmocka_unit_test_setup_teardown(own_addresses, make_table, free_table),
		cmocka_unit_test_setup_teardown(too_many, make_table, free_table),
		cmocka_unit_test_setup_teardown(read_while_written, make_table, free_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
