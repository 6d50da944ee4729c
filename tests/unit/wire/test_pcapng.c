/* SPDX-License-Identifier: BSD-2-Clause */
/* pcapng blocks: their layout, insufficient room, texts that are too long. capture.py tests whether
 * other programs can read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/pcapng.h"

static uint32_t word(const uint8_t *block, size_t at)
{
	uint32_t value;

	memcpy(&value, block + at, sizeof(value));
	return value;
}

/* The value of an option, its size in *size; NULL: not there. `at`: where options begin. */
static const uint8_t *find_option(const uint8_t *block, size_t at, uint16_t code, uint16_t *size)
{
	for (;;) {
		uint16_t head[2];

		assert_true(at + 8 <= word(block, 4));
		memcpy(head, block + at, sizeof(head));
		if (head[0] == code) {
			*size = head[1];
			return block + at + 4;
		}
		if (!head[0])
			return NULL;
		at += 4 + ((head[1] + 3) & ~3);
	}
}

static void check_shape(const uint8_t *block, size_t size, uint32_t type)
{
	assert_int_not_equal(size, 0);
	assert_int_equal(size % 4, 0);
	assert_int_equal(word(block, 0), type);
	assert_int_equal(word(block, 4), size);
	assert_int_equal(word(block, size - 4), size);
}

static void test_section(void **state)
{
	uint8_t block[PCAPNG_ROOM];
	uint16_t length;
	size_t size = pcapng_section(block, sizeof(block), "verbena");

	(void)state;
	check_shape(block, size, 0x0a0d0d0a);
	assert_int_equal(word(block, 8), 0x1a2b3c4d);
	assert_int_equal(block[12], 1);
	assert_memory_equal(find_option(block, 24, 4, &length), "verbena", 7);
	assert_int_equal(length, 7);
}

static void test_interface(void **state)
{
	uint8_t block[PCAPNG_ROOM];
	uint16_t length;
	size_t size = pcapng_interface(block, sizeof(block), PCAPNG_RAW, 128, "verbena0", NULL);

	(void)state;
	check_shape(block, size, 1);
	assert_int_equal(word(block, 8), 101);
	assert_int_equal(word(block, 12), 128);
	assert_memory_equal(find_option(block, 16, 2, &length), "verbena0", 8);
	assert_null(find_option(block, 16, 3, &length));
	assert_int_equal(*find_option(block, 16, 9, &length), 9);
	assert_int_equal(length, 1);
}

static void test_packet(void **state)
{
	static const uint8_t bytes[5] = {1, 2, 3, 4, 5};
	struct pcapng_packet packet = {.interface = 2,
				       .time_ns = 0x0123456789abcdef,
				       .bytes = bytes,
				       .captured = sizeof(bytes),
				       .size = 900,
				       .direction = PCAPNG_OUT,
				       .dropped = 7,
				       .comment = "why"};
	uint8_t block[PCAPNG_ROOM + sizeof(bytes)];
	uint16_t length;
	size_t size = pcapng_packet(block, sizeof(block), &packet);

	(void)state;
	check_shape(block, size, 6);
	assert_int_equal(word(block, 8), 2);
	assert_int_equal(word(block, 12), 0x01234567);
	assert_int_equal(word(block, 16), 0x89abcdef);
	assert_int_equal(word(block, 20), 5);
	assert_int_equal(word(block, 24), 900);
	assert_memory_equal(block + 28, "\1\2\3\4\5\0\0\0", 8);
	assert_memory_equal(find_option(block, 36, 1, &length), "why", 3);
	assert_int_equal(*find_option(block, 36, 2, &length), 2);
	assert_int_equal(length, 4);
	assert_int_equal(*find_option(block, 36, 4, &length), 7);
	assert_int_equal(length, 8);

	packet.direction = PCAPNG_UNKNOWN;
	packet.comment = NULL;
	packet.dropped = 0;
	assert_int_equal(pcapng_packet(block, sizeof(block), &packet), 28 + 8 + 4 + 4);
}

/* Every insufficient room: 0, and no byte is written beyond it. */
static void test_no_room(void **state)
{
	uint8_t bytes[100] = {0};
	const struct pcapng_packet packet = {.bytes = bytes,
					     .captured = sizeof(bytes),
					     .size = sizeof(bytes),
					     .direction = PCAPNG_IN,
					     .comment = "a comment"};
	uint8_t whole[PCAPNG_ROOM + sizeof(bytes)];
	size_t size = pcapng_packet(whole, sizeof(whole), &packet);

	(void)state;
	for (size_t room = 0; room <= size; room++) {
		uint8_t *block = malloc(size);

		memset(block, 0xa5, size);
		assert_int_equal(pcapng_packet(block, room, &packet), room < size ? 0 : size);
		for (size_t i = room; i < size; i++)
			assert_int_equal(block[i], 0xa5);
		free(block);
	}
}

static void test_long_texts(void **state)
{
	char text[1000];
	uint8_t block[PCAPNG_ROOM];
	uint16_t length;

	(void)state;
	memset(text, 'x', sizeof(text));
	text[999] = 0;
	check_shape(block, pcapng_interface(block, sizeof(block), PCAPNG_RAW, 0, text, text), 1);
	assert_non_null(find_option(block, 16, 3, &length));
	assert_int_equal(length, PCAPNG_TEXT_MAX);
	memcpy(text + 253, "\xe2\x86\x92", 3); /* an arrow, across the limit */
	check_shape(block, pcapng_section(block, sizeof(block), text), 0x0a0d0d0a);
	assert_non_null(find_option(block, 24, 4, &length));
	assert_int_equal(length, 253);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_section),	   cmocka_unit_test(test_interface),
		cmocka_unit_test(test_packet),	   cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_long_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
