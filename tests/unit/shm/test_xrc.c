/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of XRC target queue pairs: what is set is found as it was set, until it is cleared. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/xrc.h"

static struct xrc_table *table;

static int table_begin(void **state)
{
	(void)state;
	table = aligned_alloc(64, sizeof(*table));
	if (!table)
		return -1;
	memset(table, 0, sizeof(*table));
	return 0;
}

static int table_end(void **state)
{
	(void)state;
	free(table);
	return 0;
}

static struct xrc_view view_of(uint32_t qpn)
{
	return (struct xrc_view){.state = (uint64_t)qpn << 32 | 3,
				 .domain = qpn % 7 + 1,
				 .peer = qpn ^ 0xffffff,
				 .rq_psn = qpn / 3,
				 .rnr_timer = qpn % 32};
}

static void assert_view(uint32_t qpn)
{
	struct xrc_view is, should = view_of(qpn);

	assert_true(xrc_table_read(table, qpn, &is));
	assert_int_equal(is.state, should.state);
	assert_int_equal(is.domain, should.domain);
	assert_int_equal(is.peer, should.peer);
	assert_int_equal(is.rq_psn, should.rq_psn);
	assert_int_equal(is.rnr_timer, should.rnr_timer);
}

static void set_read_clear(void **state)
{
	struct xrc_view view = view_of(0x1234);

	(void)state;
	assert_null(xrc_table_find(table, 0x1234));
	assert_false(xrc_table_read(table, 0x1234, &view));
	assert_int_equal(xrc_table_set(table, 0x1234, &view), 0);
	assert_view(0x1234);
	const struct xrc_target *at = xrc_table_find(table, 0x1234);

	assert_int_equal(xrc_target_domain(at), view.domain);
	assert_int_equal(xrc_target_state(at, 0x1234), view.state);
	assert_int_equal(xrc_target_state(at, 0x1235), 0);
	view.state = 6;
	assert_int_equal(xrc_table_set(table, 0x1234, &view), 0); /* the same place */
	assert_ptr_equal(xrc_table_find(table, 0x1234), at);
	assert_int_equal(xrc_target_state(at, 0x1234), 6);
	xrc_table_clear(table, 0x1234);
	assert_null(xrc_table_find(table, 0x1234));
	assert_int_equal(xrc_target_state(at, 0x1234), 0);
	xrc_table_clear(table, 0x1234);
}

/* As many as there may be find places: numbers of a few processes, which lie close together, and
 * numbers of many. */
static void all_find_places(void **state)
{
	static const uint32_t strides[] = {1, 3, 64, 1 << 10, (1 << 14) + 1};

	(void)state;
	for (unsigned int s = 0; s < sizeof(strides) / sizeof(strides[0]); s++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < LIMIT_XRC_TARGETS; i++) {
			uint32_t qpn = (0x4001 + i * strides[s]) & 0xffffff;
			struct xrc_view view = view_of(qpn);

			n += xrc_table_set(table, qpn, &view) == 0;
		}
		assert_int_equal(n, LIMIT_XRC_TARGETS);
		for (uint32_t i = 0; i < LIMIT_XRC_TARGETS; i++) {
			uint32_t qpn = (0x4001 + i * strides[s]) & 0xffffff;

			assert_view(qpn);
			xrc_table_clear(table, qpn);
		}
	}
}

/* A full bucket refuses, and takes again once one has ended. */
static void full_bucket(void **state)
{
	uint32_t qpn = 1, refused = 0, n = 0;
	struct xrc_view view = view_of(1);

	(void)state;
	for (; !refused; qpn++)
		if (xrc_table_set(table, qpn, &view))
			refused = qpn;
		else
			n++;
	assert_true(n > LIMIT_XRC_TARGETS);
	assert_int_equal(xrc_table_set(table, refused, &view), -ENOMEM);
	for (qpn = 1; xrc_table_set(table, refused, &view); qpn++)
		xrc_table_clear(table, qpn);
	assert_non_null(xrc_table_find(table, refused));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(set_read_clear, table_begin, table_end),
		cmocka_unit_test_setup_teardown(all_find_places, table_begin, table_end),
		cmocka_unit_test_setup_teardown(full_bucket, table_begin, table_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
