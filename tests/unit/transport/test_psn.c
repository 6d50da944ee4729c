/* SPDX-License-Identifier: BSD-2-Clause */
/* PSN arithmetic, the RNR timer's table, and the codes of end-to-end credits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/state.h"

static void differences(void **state)
{
	static const struct {
		uint32_t a, b;
		int32_t diff;
	} cases[] = {
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{5, 0xfffffb, 10},
		{0xfffffb, 5, -10},
		{0x7fffff, 0, 0x7fffff},
		{0x800000, 0, -0x800000},
		{0, 0x800000, -0x800000},
		{0x800001, 0, -0x7fffff},
		{0x400000, 0xc00000, -0x800000},
		{0x3fffff, 0xc00000, 0x7fffff},
		{0xff000010, 0x10, 0}, /* only 24 bits count */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(psn_diff(cases[i].a, cases[i].b), cases[i].diff);
}

static void sums_wrap(void **state)
{
	(void)state;
	assert_int_equal(psn_add(0xffffff, 1), 0);
	assert_int_equal(psn_add(0xfffff0, 0x20), 0x10);
	assert_int_equal(psn_add(0, (uint32_t)-1), 0xffffff);
}

static void widening(void **state)
{
	static const struct {
		uint32_t wire, near, wide;
	} cases[] = {
		{5, 5, 5},
		{0, 0xffffff, 0x1000000},
		{0xffffff, 0x1000000, 0xffffff},
		{0x10, 0xabfffff0, 0xac000010},
		{0xfffff0, 0xac000010, 0xabfffff0},
		{0, 0xffffffff, 0}, /* of 32 bits, too */
		{0xffffff, 0, 0xffffffff},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(psn_widen(cases[i].wire, cases[i].near), cases[i].wide);
	assert_true(psn_before(0xffffffff, 0));
	assert_false(psn_before(0, 0xffffffff));
	assert_false(psn_before(7, 7));
}

static void rnr_timers(void **state)
{
	(void)state;
	assert_int_equal(tp_rnr_ns(0), 655360000);
	assert_int_equal(tp_rnr_ns(1), 10000);
	assert_int_equal(tp_rnr_ns(5), 60000);
	assert_int_equal(tp_rnr_ns(12), 640000);
	assert_int_equal(tp_rnr_ns(18), 5120000);
	assert_int_equal(tp_rnr_ns(25), 61440000);
	assert_int_equal(tp_rnr_ns(30), 327680000);
	assert_int_equal(tp_rnr_ns(31), 491520000);
	/* From code 4 on each doubles what was two before. */
	for (uint8_t code = 6; code < 32; code++)
		assert_int_equal(tp_rnr_ns(code), 2 * tp_rnr_ns(code - 2));
}

static void credits(void **state)
{
	static const uint32_t counts[] = {0,  1,  2,  3,   4,	6,   8,	  12,  16,  24,	 32,
					  48, 64, 96, 128, 192, 256, 384, 512, 768, 1024};

	(void)state;
	for (uint8_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		assert_int_equal(credits_decode(i), counts[i]);
		assert_int_equal(credits_encode(counts[i]), i);
	}
	assert_int_equal(credits_decode(30), 32768);
	/* Never more than there are. */
	for (uint32_t n = 0; n < 70000; n++) {
		assert_true(credits_decode(credits_encode(n)) <= n);
		assert_true(credits_encode(n) <= 30);
		assert_true(n >= 32768 || credits_decode(credits_encode(n) + 1) > n);
	}
	assert_int_equal(credits_encode(UINT32_MAX), 31);
	assert_int_equal(credits_encode(UINT32_MAX - 1), 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(differences), cmocka_unit_test(sums_wrap),
		cmocka_unit_test(widening),    cmocka_unit_test(rnr_timers),
		cmocka_unit_test(credits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
