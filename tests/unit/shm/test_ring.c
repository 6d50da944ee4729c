/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring: order, laps, the end of its positions, full and empty, space notification, and corrupt
 * values from a hostile peer. Each test may begin where it likes (base/counter.h). */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/link.h"

uint32_t counter_lead = 4 * RING_SLOTS;

struct rig {
	struct link_memory *memory;
	struct ring_tx tx;
	struct ring_rx rx;
};

/* An empty ring, `lead` slots before the end of its positions. */
static void begin(struct rig *r, uint32_t lead)
{
	counter_lead = lead;
	memset(r->memory, 0, sizeof(*r->memory));
	ring_tx_init(&r->tx, r->memory->ring[0], &r->memory->ctl[0]);
	ring_rx_init(&r->rx, r->memory->ring[0], &r->memory->ctl[0]);
}

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->memory = aligned_alloc(4096, (sizeof(*r->memory) + 4095) & ~4095ul);
	begin(r, 4 * RING_SLOTS);
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

/* A payload whose bytes look like sequence numbers, to be mistaken for headers if that is
 * possible. */
static uint32_t payload_word(uint32_t number, uint32_t i)
{
	return number + i;
}

static uint32_t payload_size(uint32_t number)
{
	return (number * 2654435761u >> 8) % (RING_PAYLOAD_MAX / 4 + 1) * 4;
}

static bool put(struct rig *r, uint32_t number)
{
	uint32_t size = payload_size(number);
	struct ring_header *h = ring_reserve(&r->tx, size);

	if (!h)
		return false;
	h->kind = RING_KIND_FIRST;
	h->msn = number;
	h->length = size;
	for (uint32_t i = 0; i < size / 4; i++)
		((uint32_t *)((uint8_t *)h + RING_HEADER))[i] = payload_word(number, i);
	ring_commit(&r->tx, h, size);
	return true;
}

static bool get(struct rig *r, uint32_t number)
{
	struct ring_header h;
	uint32_t room;
	int error = 0;
	const uint8_t *payload = ring_peek(&r->rx, &h, &room, &error);

	assert_int_equal(error, 0);
	if (!payload)
		return false;
	assert_int_equal(h.msn, number);
	assert_int_equal(h.length, payload_size(number));
	assert_true(h.length <= room);
	for (uint32_t i = 0; i < h.length / 4; i++) {
		uint32_t word;

		memcpy(&word, payload + i * 4, 4);
		assert_int_equal(word, payload_word(number, i));
	}
	ring_pop(&r->rx, &h);
	return true;
}

static void exchange(struct rig *r, uint32_t records)
{
	uint32_t in = 0, out = 0;

	while (out < records) {
		for (int n = rand() % 20; n > 0 && in < records && put(r, in); n--)
			in++;
		for (int n = rand() % 20; n > 0 && get(r, out); n--) {
			out++;
			ring_publish_lazily(&r->rx);
		}
	}
	assert_false(ring_ready(&r->rx));
}

static void test_order_and_laps(void **state)
{
	srand(1);
	exchange(*state, 20000);
}

static void test_order_over_the_end(void **state)
{
	srand(2);
	for (uint32_t lead = 0; lead < 3 * RING_SLOTS; lead += 7) {
		begin(*state, lead);
		exchange(*state, 300);
	}
}

/* Whether a record of `size` bytes gets through, and the ring is seen to be empty behind it. The
 * payload's bytes are such that no header in them is valid. */
static void passes_alone(struct rig *r, uint32_t size)
{
	struct ring_header *h = ring_reserve(&r->tx, size), out;
	uint32_t room;
	int error = 0;

	assert_non_null(h);
	h->kind = RING_KIND_FIRST;
	h->length = size;
	memset((uint8_t *)h + RING_HEADER, 0xa5, size);
	ring_commit(&r->tx, h, size);
	assert_non_null(ring_peek(&r->rx, &out, &room, &error));
	assert_int_equal(out.length, size);
	ring_pop(&r->rx, &out);
	ring_publish(&r->rx);
	assert_null(ring_peek(&r->rx, &out, &room, &error));
	assert_int_equal(error, 0);
}

/* A lap of long records, then laps of short ones: the consumer waits at each position, the last one
 * of all as well, where payload was before. */
static void test_old_payload_at_each_position(void **state)
{
	struct rig *r = *state;

	begin(r, 2 * RING_SLOTS);
	for (uint32_t i = 0; i < 8; i++)
		passes_alone(r, RING_PAYLOAD_MAX);
	for (uint32_t i = 0; i < 2 * RING_SLOTS + 10; i++)
		passes_alone(r, 8);
}

/* A thread that waits beside a ring which was never full sees room wherever the consumer is. */
static void test_never_full_is_no_position(void **state)
{
	struct rig *r = *state;

	for (uint32_t lead = 0; lead < 4; lead++) {
		begin(r, lead);
		passes_alone(r, 8);
		assert_true(ring_consumed(&r->tx) != r->tx.full_at);
	}
}

/* The three values that the consumer may find at a position differ: nothing, the record of the lap
 * before, the record. */
static void test_marks_differ(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 1ull << 32; i += i % 4096 < 2050 ? 1 : 1000003) {
		const uint32_t pos = (uint32_t)i - 1030;

		assert_true(ring_seq(pos) != 0);
		assert_true(ring_seq(pos) != ring_seq(pos - RING_SLOTS));
	}
}

static void test_full_asks_for_space(void **state)
{
	struct rig *r = *state;
	uint32_t n = 0;

	while (put(r, n))
		n++;
	assert_true(n > 4);
	assert_int_equal(atomic_load(&r->memory->ctl[0].want_space), 1);
	for (uint32_t i = 0; i < n; i++)
		assert_true(get(r, i));
	assert_true(ring_publish(&r->rx)); /* the producer is to be notified */
	assert_true(put(r, n));
	/* One record found room; other producers' threads may still wait for more. */
	assert_int_equal(atomic_load(&r->memory->ctl[0].want_space), 1);
	ring_retry(&r->tx);
	assert_int_equal(atomic_load(&r->memory->ctl[0].want_space), 0);
	assert_true(get(r, n));
}

static void test_lying_consumer_changes_nothing(void **state)
{
	struct rig *r = *state;
	uint32_t n = 0;

	while (put(r, n))
		n++;
	atomic_store(&r->memory->ctl[0].consumed, r->tx.pos + 5000); /* beyond what was produced */
	assert_false(put(r, n));
	atomic_store(&r->memory->ctl[0].consumed, 0x80000000u);
	assert_false(put(r, n));
}

static void test_evil_header(void **state)
{
	struct rig *r = *state;
	const uint16_t lengths[] = {0, RING_SLOTS + 1, 0xffff};

	begin(r, 4 * RING_SLOTS); /* the first slot is the next */

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct ring_header *h = (struct ring_header *)r->memory->ring[0];
		struct ring_header out;
		uint32_t room;
		int error = 0;

		h->kind = RING_KIND_FIRST;
		h->slots = lengths[i];
		atomic_store(&h->seq, ring_seq(r->rx.pos));
		assert_null(ring_peek(&r->rx, &out, &room, &error));
		assert_int_equal(error, -EPROTO);
	}
}

enum { STREAM = 200000 };

static void *producer(void *arg)
{
	for (uint32_t i = 0; i < STREAM;)
		if (put(arg, i))
			i++;
		else
			sched_yield();
	return NULL;
}

static void test_two_threads(void **state)
{
	struct rig *r = *state;
	pthread_t thread;

	pthread_create(&thread, NULL, producer, r);
	for (uint32_t i = 0; i < STREAM;)
		if (get(r, i)) {
			i++;
			ring_publish_lazily(&r->rx);
		} else {
			sched_yield();
		}
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_order_and_laps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order_over_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_old_payload_at_each_position, setup, teardown),
		cmocka_unit_test_setup_teardown(test_never_full_is_no_position, setup, teardown),
		cmocka_unit_test(test_marks_differ),
		cmocka_unit_test_setup_teardown(test_full_asks_for_space, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lying_consumer_changes_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_evil_header, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_threads, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
