/* SPDX-License-Identifier: BSD-2-Clause */
/* A captured process's ring: order, laps, full, what is kept, sleeping, and what either side may
 * claim. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/tap.h"

struct rig {
	struct tap_memory *memory;
	struct tap_writer writer;
	struct tap_reader reader;
};

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->memory = aligned_alloc(4096, (TAP_SIZE + 4095) & ~4095ul);
	memset(r->memory, 0, TAP_SIZE);
	tap_writer_init(&r->writer, r->memory, 0);
	tap_reader_init(&r->reader, r->memory);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	free(r->memory);
	free(r);
	return 0;
}

static uint8_t bytes_of_packet[TAP_PACKET_MAX];

static bool put(struct rig *r, uint32_t size, uint64_t time_ns, const char *comment)
{
	memset(bytes_of_packet, (int)(time_ns & 0xff), size);
	return tap_write(&r->writer, &(struct tap_packet){.time_ns = time_ns,
							  .bytes = bytes_of_packet,
							  .captured = size,
							  .size = size,
							  .direction = TAP_OUT,
							  .comment = comment});
}

static void expect(struct rig *r, uint32_t size, uint64_t time_ns, const char *comment)
{
	struct tap_record head;
	const uint8_t *bytes;

	assert_int_equal(tap_peek(&r->reader, &head, &bytes), 1);
	assert_int_equal(head.captured, size);
	assert_int_equal(head.time_ns, time_ns);
	assert_int_equal(head.direction, TAP_OUT);
	for (uint32_t i = 0; i < size; i++)
		assert_int_equal(bytes[i], time_ns & 0xff);
	assert_int_equal(head.comment, comment ? strlen(comment) : 0);
	if (comment)
		assert_memory_equal(bytes + size, comment, strlen(comment));
	tap_pop(&r->reader, &head);
}

static void expect_nothing(struct rig *r)
{
	struct tap_record head;
	const uint8_t *bytes;

	assert_int_equal(tap_peek(&r->reader, &head, &bytes), 0);
}

/* Sizes that end a lap with every multiple of 8 bytes left, smaller than a record's head too. */
static void test_laps(void **state)
{
	struct rig *r = *state;
	uint64_t t = 0;

	while (r->writer.at < 40ull * TAP_BYTES) {
		uint32_t size = 1 + (uint32_t)(t * 7919 % TAP_PACKET_MAX);
		const char *comment = t % 3 ? NULL : "why it was dropped";

		put(r, size, t, comment);
		expect(r, size, t, comment);
		t++;
	}
	expect_nothing(r);
	assert_int_equal(tap_lost(&r->reader), 0);
}

static void test_full(void **state)
{
	struct rig *r = *state;
	struct tap_record head;
	const uint8_t *bytes;
	uint64_t taken = 0, lost;

	for (uint64_t t = 0; t < 5000; t++)
		put(r, 4000, t, NULL);
	lost = tap_lost(&r->reader);
	while (tap_peek(&r->reader, &head, &bytes) == 1) {
		assert_int_equal(head.time_ns, taken++);
		assert_int_equal(head.lost, 0);
		tap_pop(&r->reader, &head);
	}
	assert_true(taken > 1000);
	assert_int_equal(taken + lost, 5000);
	/* The next record that finds room carries the number of those that didn't. */
	put(r, 100, 5000, NULL);
	assert_int_equal(tap_peek(&r->reader, &head, &bytes), 1);
	assert_int_equal(head.lost, lost);
	tap_pop(&r->reader, &head);
	put(r, 100, 5001, NULL);
	assert_int_equal(tap_peek(&r->reader, &head, &bytes), 1);
	assert_int_equal(head.lost, 0);
}

static void test_snap(void **state)
{
	struct rig *r = *state;
	struct tap_record head;
	const uint8_t *bytes;

	tap_writer_init(&r->writer, r->memory, 64);
	put(r, 1000, 1, "x");
	assert_int_equal(tap_peek(&r->reader, &head, &bytes), 1);
	assert_int_equal(head.captured, 64);
	assert_int_equal(head.size, 1000);
	assert_int_equal(bytes[64], 'x');
}

static void test_sleep(void **state)
{
	struct rig *r = *state;

	assert_false(put(r, 10, 1, NULL)); /* the reader doesn't sleep */
	assert_false(tap_sleep(&r->reader));
	expect(r, 10, 1, NULL);
	assert_true(tap_sleep(&r->reader));
	assert_true(put(r, 10, 2, NULL));
	assert_false(put(r, 10, 3, NULL)); /* one ring is enough */
	tap_wake(&r->reader);
	expect(r, 10, 2, NULL);
}

/* Whatever position the reader claims, the writer stays in the ring and drops records without
 * room. */
static void test_reader_lies(void **state)
{
	struct rig *r = *state;

	for (uint64_t t = 0; t < 20000; t++) {
		atomic_store(&r->memory->read, t * 0x123456789abcdefull);
		put(r, 4000, t, NULL);
	}
	atomic_store(&r->memory->read, r->writer.at + 8);
	uint64_t at = r->writer.at;

	put(r, 100, 0, NULL);
	assert_int_equal(r->writer.at, at);
}

/* Each field of a record's head is corrupted: the reader reports an error, or gets bytes of the
 * ring. */
static void test_writer_lies(void **state)
{
	struct rig *r = *state;
	struct tap_record head;
	const uint8_t *bytes;
	uint32_t refused = 0;

	for (unsigned int byte = 0; byte < sizeof(head); byte++) {
		for (unsigned int value = 0; value < 256; value++) {
			memset(r->memory, 0, 65536);
			tap_writer_init(&r->writer, r->memory, 0);
			tap_reader_init(&r->reader, r->memory);
			put(r, 100, 1, NULL);
			r->memory->data[byte] = (uint8_t)value;
			int got = tap_peek(&r->reader, &head, &bytes);

			refused += got == -EPROTO;
			if (got != 1)
				continue;
			assert_true(head.captured + head.comment + sizeof(head) <= head.bytes);
			assert_true(head.bytes <= r->writer.at);
		}
	}
	assert_true(refused > 1500);
	atomic_store(&r->memory->written, TAP_BYTES + 8);
	tap_reader_init(&r->reader, r->memory);
	assert_int_equal(tap_peek(&r->reader, &head, &bytes), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_laps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_snap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sleep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reader_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_writer_lies, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
