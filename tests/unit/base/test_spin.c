/* SPDX-License-Identifier: BSD-2-Clause */
/* Which waits are waits awake: all while messages come in time, and each 256th in the end while
 * none does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/spin.h"

/* Waits until one of them is awake; how many were slept through before. */
static uint32_t slept(struct spin *spin, bool came)
{
	uint64_t until, before = clock_ns();
	uint32_t count = 0;

	while (!spin_begins(spin, &until))
		assert_true(++count < 100000);
	assert_in_range(until, before + SPIN_NS, clock_ns() + SPIN_NS);
	spin_ends(spin, came);
	return count;
}

static void test_misses(void **state)
{
	struct spin spin = {0};

	(void)state;
	for (uint32_t i = 0; i <= SPIN_MISSES_MAX; i++)
		assert_int_equal(slept(&spin, false), (1u << i) - 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(slept(&spin, false), (1u << SPIN_MISSES_MAX) - 1);
}

static void test_hits(void **state)
{
	struct spin spin = {0};

	(void)state;
	for (int i = 0; i < 20; i++)
		slept(&spin, false);
	slept(&spin, true);
	for (int i = 0; i < 100; i++)
		assert_int_equal(slept(&spin, true), 0);
	assert_int_equal(slept(&spin, false), 0);
	assert_int_equal(slept(&spin, false), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_misses),
		cmocka_unit_test(test_hits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
