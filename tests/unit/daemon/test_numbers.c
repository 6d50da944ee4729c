/* SPDX-License-Identifier: BSD-2-Clause */
/* verbenad's numbers: that they age, that keys change on reuse, that handles name one object. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/core/ids.h"
#include "daemon/core/memory.h"
#include "daemon/core/table.h"
#include "daemon/core/text.h"
#include "daemon/net/gids.h"
#include "daemon/objects/keys.h"
#include "proto/limits.h"

/* ------------------------------------------------------------------ ids */

static void ids_are_unique_and_end(void **state)
{
	struct ids ids;
	uint32_t n, seen = 0;

	(void)state;
	ids_init(&ids, 5, 100, 10, 42);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ids_take(&ids, &n), 0);
		assert_in_range(n, 5, 104);
		seen += n;
	}
	assert_int_equal(seen, (5 + 104) * 100 / 2);
	assert_int_equal(ids_take(&ids, &n), -ENOSPC);
	ids_give(&ids, 77);
	assert_int_equal(ids_take(&ids, &n), 0);
	assert_int_equal(n, 77);
	ids_fini(&ids);
}

static void ids_come_back_last(void **state)
{
	struct ids ids;
	uint32_t n, last[1000] = {0};

	(void)state;
	ids_init(&ids, 1, 1000, 100, 0);
	for (uint32_t round = 1; round <= 5000; round++) {
		assert_int_equal(ids_take(&ids, &n), 0);
		if (last[n - 1])
			assert_true(round - last[n - 1] > 100);
		last[n - 1] = round;
		ids_give(&ids, n);
	}
	/* Only as many as aging needs were ever touched. */
	assert_int_equal(ids.fresh, 101);
	ids_fini(&ids);
}

static void ids_of_a_successor_start_where_the_last_ended(void **state)
{
	struct ids first, second;
	uint32_t a, b;

	(void)state;
	ids_init(&first, 1, 10, 10, 8);
	assert_int_equal(ids_take(&first, &a), 0);
	assert_int_equal(a, 9);
	assert_int_equal(ids_take(&first, &a), 0);
	assert_int_equal(a, 10);
	assert_int_equal(ids_take(&first, &a), 0);
	assert_int_equal(a, 1); /* around */
	ids_init(&second, 1, 10, 10, ids_mark(&first));
	assert_int_equal(ids_take(&second, &b), 0);
	assert_int_equal(b, 2);
	ids_fini(&first);
	ids_fini(&second);
}

static void ids_survive_random_use(void **state)
{
	enum { COUNT = 300, ROUNDS = 100000 };
	static uint8_t taken[COUNT];
	uint32_t held[COUNT], count = 0, n;
	struct ids ids;

	(void)state;
	srand(1);
	ids_init(&ids, 0, COUNT, 20, 7);
	for (int i = 0; i < ROUNDS; i++) {
		if (count && (rand() & 1)) {
			uint32_t at = (uint32_t)rand() % count;

			n = held[at];
			held[at] = held[--count];
			taken[n] = 0;
			ids_give(&ids, n);
			continue;
		}
		int err = ids_take(&ids, &n);

		assert_int_equal(err, count == COUNT ? -ENOSPC : 0);
		if (err)
			continue;
		assert_in_range(n, 0, COUNT - 1);
		assert_false(taken[n]);
		taken[n] = 1;
		held[count++] = n;
	}
	ids_fini(&ids);
}

/* ------------------------------------------------------------------ keys */

static void keys_differ_and_change(void **state)
{
	uint32_t key, old = 0;
	struct keys keys;

	(void)state;
	keys_init(&keys, 0, 0xab);
	for (int i = 0; i < 20000; i++) {
		assert_int_equal(keys_take(&keys, &key), 0);
		assert_int_not_equal(key >> LIMIT_KEY_TAG_BITS, 0);
		assert_true(key >> LIMIT_KEY_TAG_BITS < LIMIT_MRS_PER_SLOT);
		assert_int_not_equal(key, old);
		old = key;
		keys_give(&keys, key);
	}
	keys_fini(&keys);
}

static void keys_of_one_index_use_all_tags(void **state)
{
	static uint8_t seen[1u << LIMIT_KEY_TAG_BITS];
	uint32_t key, index = 0;
	struct keys keys;
	int reuses = 0;

	(void)state;
	keys_init(&keys, LIMIT_MRS_PER_SLOT - 2, 0);
	for (int i = 0; i < 4100 * 260 && reuses < 256; i++) {
		assert_int_equal(keys_take(&keys, &key), 0);
		if (!index)
			index = key >> LIMIT_KEY_TAG_BITS;
		if (key >> LIMIT_KEY_TAG_BITS == index) {
			assert_false(seen[key & 0xff]);
			seen[key & 0xff] = 1;
			reuses++;
		}
		keys_give(&keys, key);
	}
	assert_int_equal(reuses, 256);
	keys_fini(&keys);
}

/* ------------------------------------------------------------------ handles */

static void handles_name_one_object(void **state)
{
	enum { COUNT = 5000 };
	static uint32_t handle[COUNT];
	static char object[COUNT];
	struct table table;

	(void)state;
	table_init(&table);
	assert_null(table_find(&table, 0));
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(table_add(&table, &object[i], &handle[i]), 0);
		assert_int_not_equal(handle[i], 0);
		assert_int_equal(handle[i] >> 31, 0);
	}
	for (int i = 0; i < COUNT; i++)
		assert_ptr_equal(table_find(&table, handle[i]), &object[i]);
	for (int i = 0; i < COUNT; i += 2) {
		table_remove(&table, handle[i]);
		assert_null(table_find(&table, handle[i]));
	}
	for (int i = 0; i < COUNT; i += 2) {
		uint32_t h;

		assert_int_equal(table_add(&table, &object[i], &h), 0);
		assert_ptr_equal(table_find(&table, h), &object[i]);
		assert_true(h == handle[i] || !table_find(&table, handle[i]));
	}
	table_fini(&table);
}

static void handles_are_stale_for_long(void **state)
{
	uint32_t first, h, rounds = 0;
	struct table table;
	char object;

	(void)state;
	table_init(&table);
	assert_int_equal(table_add(&table, &object, &first), 0);
	table_remove(&table, first);
	do {
		assert_int_equal(table_add(&table, &object, &h), 0);
		table_remove(&table, h);
		rounds++;
	} while (h != first && rounds < 1000000);
	assert_true(rounds > 10000);
	table_fini(&table);
}

static void handles_nobody_gave(void **state)
{
	struct table table;
	uint32_t handle;
	char object;

	(void)state;
	table_init(&table);
	assert_int_equal(table_add(&table, &object, &handle), 0);
	for (uint32_t h = 0; h < 100000; h++)
		if (h != handle)
			assert_null(table_find(&table, h));
	assert_null(table_find(&table, handle | 1u << 31));
	assert_null(table_find(&table, UINT32_MAX));
	table_fini(&table);
}

/* ------------------------------------------------------------------ GIDs */

static struct host_address address(uint8_t last)
{
	struct host_address a = {.ifindex = last};

	a.gid[0] = 0xfd;
	a.gid[15] = last;
	return a;
}

static void gids_keep_their_places(void **state)
{
	static struct gids gids;
	const struct host_address first = address(100);
	struct host_address list[] = {address(1), address(2), address(3)};

	(void)state;
	assert_true(gids_update(&gids, &first, list, 3));
	assert_false(gids_update(&gids, &first, list, 3));
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(gids_get(&gids, i + 1)->gid[15], i + 1);
	assert_null(gids_get(&gids, 4));
	/* The second goes: a hole. */
	list[1] = address(3);
	assert_true(gids_update(&gids, &first, list, 2));
	assert_null(gids_get(&gids, 2));
	assert_int_equal(gids_get(&gids, 3)->gid[15], 3);
	/* A new one takes the hole. */
	list[2] = address(9);
	assert_true(gids_update(&gids, &first, list, 3));
	assert_int_equal(gids_get(&gids, 2)->gid[15], 9);
	/* All go, the first stays. */
	assert_true(gids_update(&gids, &first, NULL, 0));
	assert_int_equal(gids_get(&gids, 0)->gid[15], 100);
	assert_null(gids_get(&gids, 1));
	assert_null(gids_get(&gids, LIMIT_GIDS));
}

static void gids_end_with_the_table(void **state)
{
	static struct gids gids;
	static struct host_address list[LIMIT_GIDS + 10];
	const struct host_address first = {.gid = {0xfe, 0x80}};

	(void)state;
	for (unsigned int i = 0; i < LIMIT_GIDS + 10; i++) {
		list[i].gid[0] = 0xfd;
		list[i].gid[14] = (uint8_t)(i >> 8);
		list[i].gid[15] = (uint8_t)i;
	}
	assert_true(gids_update(&gids, &first, list, LIMIT_GIDS + 10));
	assert_non_null(gids_get(&gids, LIMIT_GIDS - 1));
	assert_false(gids_update(&gids, &first, list, LIMIT_GIDS + 10));
	/* None of them is behind it. */
	assert_null(gids_get(&gids, LIMIT_GIDS));
}

static void gids_behind_the_table(void **state)
{
	static struct gids gids;
	const struct host_address first = address(1), own = address(2);
	const struct host_address list[] = {address(7), address(8)};

	(void)state;
	gids_update(&gids, &first, &own, 1);
	assert_true(gids_update_hidden(&gids, list, 2));
	assert_false(gids_update_hidden(&gids, list, 2));
	assert_int_equal(gids_get(&gids, LIMIT_GIDS + 1)->gid[15], 8);
	assert_ptr_equal(gids_find(&gids, list[0].gid), gids_get(&gids, LIMIT_GIDS));
	/* The table doesn't see them. */
	assert_false(gids_update(&gids, &first, &own, 1));
	assert_int_equal(gids_get(&gids, LIMIT_GIDS)->gid[15], 7);
	assert_true(gids_update_hidden(&gids, list + 1, 1));
	assert_null(gids_get(&gids, LIMIT_GIDS));
	assert_null(gids_find(&gids, list[0].gid));
	assert_null(gids_get(&gids, LIMIT_GID_INDICES));
}

/* A copy at index 0 stands for the link-local address, and gives way to it. */
static void gids_first_is_replaced(void **state)
{
	static struct gids gids;
	const struct host_address list[] = {address(1), address(2)}, usual = address(9);

	(void)state;
	gids_update(&gids, &list[0], list, 2);
	assert_int_equal(gids_get(&gids, 1)->gid[15], 1);
	assert_true(gids_update(&gids, &usual, list, 2));
	assert_int_equal(gids_get(&gids, 0)->gid[15], 9);
	assert_int_equal(gids_get(&gids, 1)->gid[15], 1);
	assert_int_equal(gids_get(&gids, 2)->gid[15], 2);
	assert_null(gids_get(&gids, 3));
}

/* ------------------------------------------------------------------ JSON */

static void json_is_escaped(void **state)
{
	struct text text = {0};

	(void)state;
	json_open(&text, NULL, '{');
	json_flag(&text, "ok", true);
	json_words(&text, "s", "a\"b\\c\n\xff");
	json_open(&text, "list", '[');
	json_number(&text, NULL, 1);
	json_number(&text, NULL, UINT64_MAX);
	json_close(&text, ']');
	json_close(&text, '}');
	assert_string_equal(text.data, "{\"ok\":true,\"s\":\"a\\\"b\\\\c\\u000a\\u00ff\","
				       "\"list\":[1,18446744073709551615]}");
	text_free(&text);
}

static int sealed(unsigned int flags, size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd >= 0) {
		assert_int_equal(ftruncate(fd, (off_t)size), 0);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	}
	return fd;
}

static bool is_sound(int fd, size_t size)
{
	bool sound = memory_is_sound(fd, size);

	if (fd >= 0)
		close(fd);
	return sound;
}

/* Huge pages have the size and the seals, too, but a hole in them can't be read without the pool.
 */
static void only_sealed_memory_of_small_pages_is_sound(void **state)
{
	enum { SIZE = 4 << 20 };
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

	(void)state;
	assert_true(is_sound(sealed(0, SIZE, seals), SIZE));
	assert_false(is_sound(sealed(0, SIZE, seals), SIZE + 1));
	assert_false(is_sound(sealed(0, SIZE, seals & ~F_SEAL_SHRINK), SIZE));
	assert_false(is_sound(sealed(0, SIZE, seals & ~F_SEAL_FUTURE_WRITE), SIZE));
	assert_false(is_sound(open("/dev/null", O_RDONLY | O_CLOEXEC), SIZE));
	assert_false(is_sound(-1, SIZE));
	int huge = sealed(MFD_HUGETLB, SIZE, seals);

	if (huge >= 0) /* the kernel has them */
		assert_false(is_sound(huge, SIZE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_unique_and_end),
		cmocka_unit_test(ids_come_back_last),
		cmocka_unit_test(ids_of_a_successor_start_where_the_last_ended),
		cmocka_unit_test(ids_survive_random_use),
		cmocka_unit_test(keys_differ_and_change),
		cmocka_unit_test(keys_of_one_index_use_all_tags),
		cmocka_unit_test(handles_name_one_object),
		cmocka_unit_test(handles_are_stale_for_long),
		cmocka_unit_test(handles_nobody_gave),
		cmocka_unit_test(gids_keep_their_places),
		cmocka_unit_test(gids_end_with_the_table),
		cmocka_unit_test(gids_behind_the_table),
		cmocka_unit_test(gids_first_is_replaced),
		cmocka_unit_test(json_is_escaped),
		cmocka_unit_test(only_sealed_memory_of_small_pages_is_sound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
