/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of tags: order, masks, handles, the counts; and random use against a list that is
 * searched from its beginning. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hca/verbs/tags.h"

enum { TAGS = 8, ROUNDS = 20000, VALUES = 6 };

static int add(struct tags *tags, uint64_t tag, uint64_t mask, uint32_t *handle)
{
	struct ibv_ops_wr wr = {.tm.add = {.recv_wr_id = tag, .tag = tag, .mask = mask}};
	int err = tags_add(tags, &wr);

	*handle = wr.tm.handle;
	return err;
}

static void a_handle_never_names_another_buffer(void **state)
{
	struct tags *tags = tags_make(1, 1);
	uint32_t first, second;

	(void)state;
	assert_int_equal(tags_remove(tags, 0), EINVAL);
	assert_int_equal(add(tags, 1, ~0ull, &first), 0);
	assert_int_equal(add(tags, 1, ~0ull, &second), ENOMEM);
	assert_int_equal(tags_remove(tags, first), 0);
	assert_int_equal(tags_remove(tags, first), ENOENT);
	assert_int_equal(add(tags, 1, ~0ull, &second), 0);
	assert_int_not_equal(first, second);
	assert_int_equal(tags_remove(tags, first), ENOENT);
	assert_int_equal(tags_remove(tags, first + 2 * (second - first)), EINVAL);
	assert_int_equal(tags_remove(tags, 1), EINVAL);
	struct tag *tag = tags_match(tags, 1);

	assert_non_null(tag);
	assert_int_equal(tags_remove(tags, second), ENOENT); /* a message has it */
	tags_free(tags, tag);
	tags_end(tags);
}

static void what_is_put_back_has_its_old_place(void **state)
{
	struct tags *tags = tags_make(TAGS, 1);
	uint32_t handle;

	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(add(tags, i, ~0ull, &handle), 0);
	for (uint64_t i = 0; i < 4; i++)
		tags_put_back(tags, tags_match(tags, i));
	uint64_t i = 0;

	list_for_each(node, &tags->posted)
		assert_int_equal(container_of(node, struct tag, node)->tag, i++);
	assert_int_equal(i, 4);
	tags_end(tags);
}

static void a_message_that_never_came_isn_t_counted(void **state)
{
	struct tags *tags = tags_make(TAGS, 1);
	uint32_t handle;

	(void)state;
	tags_count(tags);
	assert_int_equal(add(tags, 1, ~0ull, &handle), 0);
	assert_null(tags_match(tags, 1));
	tags_uncount(tags);
	assert_non_null(tags_match(tags, 1));
	/* The counts are compared as adapters count, modulo 2^16. */
	tags_count(tags);
	tags_sync(tags, 0x10001);
	assert_true(tags_in_step(tags));
	tags_end(tags);
}

/* ------------------------------------------------------------------ against a model */

struct entry {
	bool held;
	uint32_t handle;
	uint64_t tag, mask;
};

struct model {
	struct entry list[TAGS];
	int count;
	uint32_t unexpected, handled;
};

static void model_drop(struct model *m, int at)
{
	m->count--;
	for (int i = at; i < m->count; i++)
		m->list[i] = m->list[i + 1];
}

static void model_sync(struct model *m)
{
	for (int i = 0; i < m->count && m->unexpected == m->handled; i++)
		m->list[i].held = false;
}

static void random_add(struct tags *tags, struct model *m)
{
	static const uint64_t masks[] = {~0ull, 3, 1, 0};
	uint64_t mask = masks[rand() % 4], tag = (uint64_t)(rand() % VALUES) & mask;
	uint32_t handle;

	assert_int_equal(add(tags, tag, mask, &handle), m->count == TAGS ? ENOMEM : 0);
	if (m->count < TAGS)
		m->list[m->count++] =
			(struct entry){m->unexpected != m->handled, handle, tag, mask};
}

static void random_message(struct tags *tags, struct model *m)
{
	uint64_t value = (uint64_t)(rand() % VALUES);
	struct tag *tag = tags_match(tags, value);
	int i = 0;

	while (i < m->count && (m->list[i].held || (value & m->list[i].mask) != m->list[i].tag))
		i++;
	if (i == m->count) {
		assert_null(tag);
		tags_count(tags);
		m->unexpected++;
		return;
	}
	assert_non_null(tag);
	assert_int_equal(tag->tag, m->list[i].tag);
	assert_int_equal(tag->mask, m->list[i].mask);
	if (rand() % 4 == 0) {
		tags_put_back(tags, tag);
		return;
	}
	assert_int_equal(tags_remove(tags, m->list[i].handle), ENOENT);
	tags_free(tags, tag);
	model_drop(m, i);
}

static void random_use(void **state)
{
	struct tags *tags = tags_make(TAGS, 1);
	struct model m = {0};

	(void)state;
	srand(7);
	for (int round = 0; round < ROUNDS; round++) {
		int choice = rand() % 8;

		if (choice < 3) {
			random_add(tags, &m);
		} else if (choice < 6) {
			random_message(tags, &m);
		} else if (choice == 6 && m.count) {
			int i = rand() % m.count;

			assert_int_equal(tags_remove(tags, m.list[i].handle), 0);
			model_drop(&m, i);
		} else {
			m.handled = rand() % 3 ? m.unexpected : m.unexpected - 1;
			tags_sync(tags, m.handled);
			model_sync(&m);
		}
	}
	tags_end(tags);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_handle_never_names_another_buffer),
		cmocka_unit_test(what_is_put_back_has_its_old_place),
		cmocka_unit_test(a_message_that_never_came_isn_t_counted),
		cmocka_unit_test(random_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
