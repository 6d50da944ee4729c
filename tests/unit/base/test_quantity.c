/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers, sizes and times as people write them: what is taken, what is refused (base/quantity.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/quantity.h"

/* What a function must leave alone when it refuses. */
#define UNTOUCHED 0x5eed5eed5eedull

struct sample {
	const char *text;
	uint64_t value; /* UNTOUCHED: the text is refused */
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_numbers(void **state)
{
	static const struct sample samples[] = {
		{"0", UNTOUCHED},
		{"1", 1},
		{"100", 100},
		{"101", UNTOUCHED},
		{"0x10", 16},
		{"0X1f", 31},
		{"0x", UNTOUCHED},
		{"", UNTOUCHED},
		{"010", 10},
		{" 1", UNTOUCHED},
		{"1 ", UNTOUCHED},
		{"+1", UNTOUCHED},
		{"-1", UNTOUCHED},
		{"1.5", UNTOUCHED},
		{"1K", UNTOUCHED},
		{"ten", UNTOUCHED},
		{"4096junk", UNTOUCHED},
		{"1e1", UNTOUCHED},
		{"0b1", UNTOUCHED},
		{"1\n", UNTOUCHED},
		{"18446744073709551617", UNTOUCHED},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(samples); i++) {
		uint64_t value = UNTOUCHED;

		assert_int_equal(quantity_number(samples[i].text, 1, 100, &value),
				 samples[i].value != UNTOUCHED);
		assert_int_equal(value, samples[i].value);
	}
}

static void test_numbers_of_all_bits(void **state)
{
	uint64_t value = 0;
	uint32_t word = 7;

	(void)state;
	assert_true(quantity_number("18446744073709551615", 0, UINT64_MAX, &value));
	assert_int_equal(value, UINT64_MAX);
	assert_true(quantity_number("0xffffffffffffffff", 0, UINT64_MAX, &value));
	assert_false(quantity_number("0x10000000000000000", 0, UINT64_MAX, &value));
	assert_false(quantity_number32("4294967296", 0, UINT32_MAX, &word));
	assert_int_equal(word, 7);
	assert_true(quantity_number32("4294967295", 0, UINT32_MAX, &word));
	assert_int_equal(word, UINT32_MAX);
	assert_true(quantity_octal("0660", 0777, &value));
	assert_int_equal(value, 0660);
	assert_false(quantity_octal("0668", 0777, &value));
	assert_false(quantity_octal("1000", 0777, &value));
	assert_false(quantity_octal("", 0777, &value));
}

static void test_sizes(void **state)
{
	static const struct sample samples[] = {
		{"0", 0},
		{"512", 512},
		{"64K", 65536},
		{"64k", 65536},
		{"64KiB", 65536},
		{"1M", 1 << 20},
		{"2GiB", 2ull << 30},
		{"1T", 1ull << 40},
		{"2T", UNTOUCHED},
		{"K", UNTOUCHED},
		{"1KB", UNTOUCHED},
		{"1Ki", UNTOUCHED},
		{"1.5K", UNTOUCHED},
		{"64 K", UNTOUCHED},
		{"64KK", UNTOUCHED},
		{"-1", UNTOUCHED},
		{"16777216T", UNTOUCHED}, /* 2^64 */
		{"4096junk", UNTOUCHED},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(samples); i++) {
		uint64_t value = UNTOUCHED;

		assert_int_equal(quantity_size(samples[i].text, 0, 1ull << 40, &value),
				 samples[i].value != UNTOUCHED);
		assert_int_equal(value, samples[i].value);
	}
}

static void test_times(void **state)
{
	static const struct sample samples[] = {
		{"0", 0},
		{"30", 30 * QUANTITY_S},
		{"0.5", QUANTITY_S / 2},
		{"200ns", 200},
		{"1.5us", 1500},
		{"0.1234567s", 123456700},
		{"0.4ns", 0},
		{"0.5ns", 1},
		{"2min", 120 * QUANTITY_S},
		{"1h", 3600 * QUANTITY_S},
		{"2h", UNTOUCHED},
		{"1.", UNTOUCHED},
		{".5", UNTOUCHED},
		{"1 s", UNTOUCHED},
		{"1ss", UNTOUCHED},
		{"1m", UNTOUCHED},
		{"", UNTOUCHED},
		{"s", UNTOUCHED},
		{"-1s", UNTOUCHED},
		{"inf", UNTOUCHED},
		{"nan", UNTOUCHED},
		{"1e3", UNTOUCHED},
		{"0x10", UNTOUCHED},
		{"1d", UNTOUCHED},
		{"18446744073709551615h", UNTOUCHED},
		{"18446744073709551615.9ns", UNTOUCHED},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(samples); i++) {
		uint64_t value = UNTOUCHED;

		assert_int_equal(quantity_time(samples[i].text, strlen(samples[i].text), QUANTITY_S,
					       3600 * QUANTITY_S, &value),
				 samples[i].value != UNTOUCHED);
		assert_int_equal(value, samples[i].value);
	}
}

/* A file's text has no end of its own; a time without unit is one only where there is a usual unit.
 */
static void test_time_within_a_text(void **state)
{
	uint64_t ns = 0;

	(void)state;
	assert_true(quantity_time("200ns,next", 5, 0, QUANTITY_S, &ns));
	assert_int_equal(ns, 200);
	assert_false(quantity_time("200", 3, 0, QUANTITY_S, &ns));
	assert_false(quantity_time("200ns", 4, 0, QUANTITY_S, &ns));
}

static void test_fractions(void **state)
{
	static const char *const refused[] = {"100.1", "-1", "1e1", "nan", "inf", "0x1",
					      "1.",    ".5", "",    "1%",  " 1"};
	double value = -1;

	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++)
		assert_false(quantity_fraction(refused[i], 100, &value));
	assert_true(value == -1);
	assert_true(quantity_fraction("0.5", 100, &value) && value == 0.5);
	assert_true(quantity_fraction("100", 100, &value) && value == 100);
}

static void test_dimensions(void **state)
{
	static const char *const refused[] = {"",    "4x",  "x4",      "4x0", "4x4x4x4", "4x4x",
					      "4*4", "4X4", "4x4junk", "4x9", "-4x4",	 "4 x4"};
	uint32_t sizes[3] = {7, 7, 7};

	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++)
		assert_int_equal(quantity_dimensions(refused[i], 1, 8, sizes, 3), 0);
	assert_int_equal(sizes[0], 7);
	assert_int_equal(quantity_dimensions("4x5x6", 1, 8, sizes, 3), 3);
	assert_int_equal(sizes[0] * 100 + sizes[1] * 10 + sizes[2], 456);
	assert_int_equal(quantity_dimensions("8", 1, 8, sizes, 3), 1);
	assert_int_equal(sizes[0], 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),	   cmocka_unit_test(test_numbers_of_all_bits),
		cmocka_unit_test(test_sizes),	   cmocka_unit_test(test_times),
		cmocka_unit_test(test_fractions),  cmocka_unit_test(test_time_within_a_text),
		cmocka_unit_test(test_dimensions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
