/* SPDX-License-Identifier: BSD-2-Clause */
/* src/mad: long messages in both directions, over a cable that loses, doubles and reorders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire.h"

#include <errno.h>

#define SA 0x03
#define GET_TABLE 0x12
#define OFFSET 56 /* of the data in SA's MADs */
#define IN_ONE (MAD_BYTES - OFFSET)

static uint32_t client, server;

static int begin(void **state)
{
	(void)state;
	wire_begin();
	assert_int_equal(wire_register(LEFT, SA, 2, 1, 0, 0, &client), 0);
	assert_int_equal(wire_register(RIGHT, SA, 2, 1, 1ull << GET_TABLE, 0, &server), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	wire_end();
	for (int i = 0; i < ENDS; i++)
		for (int what = 0; what < MAD_HOLDINGS; what++)
			assert_int_equal(wire_ends[i].file.held[what], 0);
	return 0;
}

static uint8_t *message_make(size_t bytes, uint8_t method, uint32_t tid)
{
	uint8_t *mad = malloc(bytes);

	assert_non_null(mad);
	for (size_t i = 0; i < bytes; i++)
		mad[i] = (uint8_t)random();
	wire_header(mad, SA, 2, method, tid);
	memset(mad + 24, 0, 12);
	mad[24] = 1;
	mad[26] = 1; /* ACTIVE; the rest is the sender's */
	return mad;
}

static uint32_t get32(const uint8_t *mad, int offset)
{
	return (uint32_t)mad[offset] << 24 | (uint32_t)mad[offset + 1] << 16 |
	       (uint32_t)mad[offset + 2] << 8 | mad[offset + 3];
}

/* A message of `bytes` to the server, and one of `back` as its response. */
static void exchange(size_t bytes, size_t back, unsigned loss)
{
	uint8_t *request = message_make(bytes, GET_TABLE, 1);
	uint8_t *response = message_make(back, 0x80 | GET_TABLE, 1);
	struct message *got;

	wire_loss_percent = loss;
	assert_int_equal(wire_send(LEFT, client, request, bytes, 30000, 40), 0);
	wire_run(20000);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	got = &wire_ends[RIGHT].got[0];
	assert_int_equal(got->bytes, bytes);
	assert_memory_equal(got->mad + 36, request + 36, bytes - 36);
	assert_int_equal(got->mad[26] & 7, bytes - OFFSET <= IN_ONE ? 7 : 3);
	memcpy(response + 8, got->mad + 8, 8);
	assert_int_equal(wire_send(RIGHT, server, response, back, 0, 40), 0);
	wire_run(20000);
	assert_int_equal(wire_ends[LEFT].count, 1);
	got = &wire_ends[LEFT].got[0];
	assert_int_equal(got->header.status, 0);
	assert_int_equal(got->bytes, back);
	assert_memory_equal(got->mad + 36, response + 36, back - 36);
	free(request);
	free(response);
	/* Nothing is left after the time for which finished messages are remembered. */
	wire_loss_percent = 0;
	wire_run(60000);
	for (int i = 0; i < ENDS; i++)
		assert_true(mad_port_deadline(&wire_ends[i].port) == UINT64_MAX);
	assert_int_equal(wire_ends[LEFT].count + wire_ends[RIGHT].count, 2);
}

static void all_lengths_arrive(void **state)
{
	for (size_t bytes = OFFSET + 1; bytes < OFFSET + 3 * IN_ONE + 2; bytes += 7) {
		exchange(bytes, OFFSET + 3 * IN_ONE + 1 - (bytes - OFFSET - 1), 0);
		end(state);
		begin(state);
	}
	exchange(OFFSET + 1000 * IN_ONE, OFFSET + 5, 0);
	end(state);
	begin(state);
	exchange(MAD_MESSAGE_BYTES_MAX, OFFSET + 5, 0);
}

static void a_bad_cable_costs_time_only(void **state)
{
	for (int seed = 0; seed < 300; seed++) {
		srandom((unsigned)seed);
		exchange(OFFSET + 1 + (size_t)(random() % (20 * IN_ONE)),
			 OFFSET + 1 + (size_t)(random() % (200 * IN_ONE)),
			 1 + (unsigned)(random() % 12));
		end(state);
		begin(state);
	}
}

/* One retry is enough for a message that loses a segment now and then: each ACK renews it. */
static void progress_renews_the_retries(void **state)
{
	uint8_t *request = message_make(OFFSET + 1000 * IN_ONE, GET_TABLE, 1);

	(void)state;
	wire_loss_each = 50;
	assert_int_equal(wire_send(LEFT, client, request, OFFSET + 1000 * IN_ONE, 1000, 1), 0);
	wire_run(60000);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	assert_int_equal(wire_ends[RIGHT].got[0].bytes, OFFSET + 1000 * IN_ONE);
	free(request);
}

static void segments_are_as_specified(void **state)
{
	uint8_t *request = message_make(OFFSET + 450, GET_TABLE, 1);

	(void)state;
	assert_int_equal(wire_send(LEFT, client, request, OFFSET + 450, 1000, 0), 0);
	/* The first alone: type DATA, FIRST and ACTIVE, segment 1, the whole length. */
	assert_int_equal(wire_ends[LEFT].sent, 1);
	assert_memory_equal(wire_ends[LEFT].last_sent + 24, "\x01\x01\xfb\x00\0\0\0\x01", 8);
	assert_int_equal(get32(wire_ends[LEFT].last_sent, 32), 3 * 220 - 150);
	wire_run(0);
	/* The last: LAST and ACTIVE, segment 3, its own length. */
	assert_int_equal(wire_ends[LEFT].sent, 3);
	assert_memory_equal(wire_ends[LEFT].last_sent + 24, "\x01\x01\xfd\x00\0\0\0\x03", 8);
	assert_int_equal(get32(wire_ends[LEFT].last_sent, 32), 220 - 150);
	assert_memory_equal(wire_ends[LEFT].last_sent + OFFSET, request + OFFSET + 400, 50);
	/* The ACK: the method turned round, all three, a window of 64 more. */
	assert_int_equal(wire_ends[RIGHT].last_sent[3], 0x80 | GET_TABLE);
	assert_memory_equal(wire_ends[RIGHT].last_sent + 24, "\x01\x02\xf9\x00\0\0\0\x03\0\0\0\x41",
			    12);
	free(request);
}

static void a_silent_peer_is_a_timeout(void **state)
{
	uint8_t *request = message_make(OFFSET + 450, GET_TABLE, 1);

	(void)state;
	wire_loss_percent = 100;
	assert_int_equal(wire_send(LEFT, client, request, OFFSET + 450, 500, 2), 0);
	wire_run(1400);
	assert_int_equal(wire_ends[LEFT].count, 0);
	wire_run(200);
	assert_int_equal(wire_ends[LEFT].count, 1);
	assert_int_equal(wire_ends[LEFT].got[0].header.status, ETIMEDOUT);
	assert_int_equal(wire_ends[LEFT].sent, 3);
	free(request);
}

/* One segment of a peer, of the message that has the number `tid`. */
static void segment_from(const struct ib_mad_addr *from, uint32_t tid, uint32_t number,
			 uint8_t flags, uint32_t length)
{
	uint8_t mad[MAD_BYTES] = {0};

	wire_header(mad, SA, 2, GET_TABLE, tid);
	mad[24] = 1;
	mad[25] = 1;
	mad[26] = 1 | flags;
	for (int i = 0; i < 4; i++) {
		mad[28 + i] = (uint8_t)(number >> (24 - 8 * i));
		mad[32 + i] = (uint8_t)(length >> (24 - 8 * i));
	}
	mad_port_receive(&wire_ends[RIGHT].port, 1, from, mad, wire_now);
}

/* One segment of a hostile peer. */
static void segment(uint32_t number, uint8_t flags, uint32_t length)
{
	struct ib_mad_addr from = {.lid = htobe16(LID(LEFT))};

	segment_from(&from, 99, number, flags, length);
}

/* Forgets what the program got. */
static void got_drop(int end)
{
	for (int i = 0; i < wire_ends[end].count; i++)
		free(wire_ends[end].got[i].mad);
	wire_ends[end].count = 0;
}

static void wrong_segments_are_refused(void **state)
{
	(void)state;
	segment(0, 0, 0);
	assert_memory_equal(wire_ends[RIGHT].last_sent + 24, "\x01\x04\xf9\x78", 4);
	segment(2, 2, 0); /* FIRST, but isn't */
	assert_int_equal(wire_ends[RIGHT].sent, 2);
	segment(2, 4, 0); /* of no message */
	segment(1, 2, 1u << 31);
	segment(500, 0, 0); /* outside the window */
	assert_int_equal(wire_ends[RIGHT].count, 0);
	/* Segments behind the last one count for nothing, and a length that can't be is full. */
	segment(4, 0, 0);
	segment(3, 0, 0);
	segment(2, 4, 1u << 31);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	assert_int_equal(wire_ends[RIGHT].got[0].bytes, OFFSET + 2 * IN_ONE);
}

static void an_unfinished_message_ends(void **state)
{
	(void)state;
	segment(1, 2, 1000);
	assert_true(mad_port_deadline(&wire_ends[RIGHT].port) != UINT64_MAX);
	wire_run(41000);
	assert_memory_equal(wire_ends[RIGHT].last_sent + 24, "\x01\x04\xf9\x76", 4);
	assert_true(mad_port_deadline(&wire_ends[RIGHT].port) == UINT64_MAX);
}

static void random_segments_harm_nothing(void **state)
{
	(void)state;
	for (int seed = 0; seed < 200; seed++) {
		srandom((unsigned)seed);
		for (int i = 0; i < 300; i++)
			segment((uint32_t)(random() % 100), (uint8_t)(random() % 8),
				(uint32_t)(random() % 300));
		wire_run(50000);
		got_drop(RIGHT);
	}
}

/* Whether the last datagram of RIGHT was a STOP for want of room. */
static bool was_refused(uint16_t lid)
{
	const uint8_t *sent = wire_ends[RIGHT].last_sent;

	return !memcmp(sent + 24, "\x01\x03\xf9\x01", 4) && wire_ends[RIGHT].last_to == lid;
}

#define HOSTILE 500

static size_t held(enum mad_holding what)
{
	return wire_ends[RIGHT].file.held[what];
}

/* One message of LEFT, whole; it needs room for 1000 segments. */
static void honest_message(uint32_t tid)
{
	uint8_t *request = message_make(OFFSET + 1000 * IN_ONE, GET_TABLE, tid);

	assert_int_equal(wire_send(LEFT, client, request, OFFSET + 1000 * IN_ONE, 1000, 0), 0);
	wire_run(10);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	assert_int_equal(wire_ends[RIGHT].got[0].bytes, OFFSET + 1000 * IN_ONE);
	got_drop(RIGHT);
	free(request);
}

static void unfinished_messages_are_limited(void **state)
{
	struct ib_mad_addr hostile = {.lid = htobe16(HOSTILE)};

	(void)state;
	for (uint32_t tid = 0; tid < 3 * MAD_RECEIVES_MAX; tid++) {
		hostile.qpn = htobe32(tid % 5); /* one host, all the same */
		segment_from(&hostile, tid, 1, 2, 1000);
		assert_int_equal(was_refused(HOSTILE), tid >= MAD_RECEIVES_MAX);
	}
	assert_int_equal(held(MAD_HELD_MESSAGES), MAD_RECEIVES_MAX);
	/* Another host has its messages, one after the other and several at once. */
	honest_message(1);
	honest_message(2);
	hostile.lid = htobe16(HOSTILE + 1);
	for (uint32_t tid = 0; tid < 3 * MAD_RECEIVES_MAX; tid++) {
		segment_from(&hostile, tid, 1, 2, 1000);
		assert_int_equal(was_refused(HOSTILE + 1), tid >= MAD_RECEIVES_MAX / 2);
	}
	assert_int_equal(held(MAD_HELD_MESSAGES), MAD_RECEIVES_MAX);
	honest_message(3);
	/* The first host has kept the half. */
	hostile = (struct ib_mad_addr){.lid = htobe16(HOSTILE), .qpn = htobe32(125 % 5)};
	segment_from(&hostile, 125, 2, 4, 220);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	wire_run(41000);
	assert_int_equal(held(MAD_HELD_MESSAGES), 0);
}

static void memory_of_messages_is_limited(void **state)
{
	struct ib_mad_addr hostile = {.lid = htobe16(HOSTILE)};
	const uint32_t segments = 5000;
	bool refused = false;

	(void)state;
	for (uint32_t tid = 0; tid < 2 * MAD_RECEIVES_BYTES_MAX / (segments * IN_ONE); tid++) {
		for (uint32_t number = 1; number <= segments; number++)
			segment_from(&hostile, tid, number, number == 1 ? 2 : 0, 0);
		refused |= was_refused(HOSTILE);
		assert_true(held(MAD_HELD_BYTES) <= MAD_RECEIVES_BYTES_MAX);
	}
	assert_true(refused);
	assert_true(held(MAD_HELD_BYTES) > MAD_RECEIVES_BYTES_MAX / 2);
	/* Another host takes its share from this one; messages of a third one need little. */
	hostile.lid = htobe16(HOSTILE + 1);
	for (uint32_t tid = 0; tid < 4; tid++)
		for (uint32_t number = 1; number <= segments; number++)
			segment_from(&hostile, tid, number, number == 1 ? 2 : 0, 0);
	for (uint32_t tid = 1; tid < 40; tid++)
		honest_message(tid);
	assert_true(held(MAD_HELD_BYTES) <= MAD_RECEIVES_BYTES_MAX);
	/* No message is longer than one that can be sent. */
	hostile.lid = htobe16(HOSTILE + 2);
	for (uint32_t number = 1; number <= MAD_MESSAGE_BYTES_MAX / IN_ONE + 2; number++) {
		assert_false(was_refused(HOSTILE + 2));
		segment_from(&hostile, 1, number, number == 1 ? 2 : 0, 0);
	}
	assert_true(was_refused(HOSTILE + 2));
	assert_int_equal(wire_ends[RIGHT].count, 0);
}

static void remembered_messages_are_limited(void **state)
{
	struct ib_mad_addr from = {.lid = htobe16(HOSTILE)};

	(void)state;
	for (uint32_t tid = 0; tid < 3 * MAD_RECEIVES_MAX; tid++) {
		segment_from(&from, tid, 1, 6, 220);
		assert_int_equal(wire_ends[RIGHT].count, 1);
		got_drop(RIGHT);
	}
	assert_int_equal(held(MAD_HELD_MESSAGES), MAD_RECEIVES_MAX);
	/* The newest are. */
	segment_from(&from, 3 * MAD_RECEIVES_MAX - 1, 1, 6, 220);
	segment_from(&from, 2 * MAD_RECEIVES_MAX, 1, 6, 220);
	assert_int_equal(wire_ends[RIGHT].count, 0);
	/* Unfinished ones take their places. */
	for (uint32_t tid = 0; tid < MAD_RECEIVES_MAX; tid++)
		segment_from(&from, 10000 + tid, 1, 2, 1000);
	assert_int_equal(held(MAD_HELD_MESSAGES), MAD_RECEIVES_MAX);
	segment_from(&from, 20000, 1, 2, 1000);
	assert_true(was_refused(HOSTILE));
}

/* On RoCE no peer has a LID, and all may choose the same transaction. */
static void peers_without_lids_differ_by_gid(void **state)
{
	struct ib_mad_addr one = {.grh_present = 1, .gid = {1}}, other = {.grh_present = 1};

	(void)state;
	segment_from(&one, 7, 1, 2, 1000);
	segment_from(&other, 7, 1, 2, 1000);
	segment_from(&one, 7, 2, 4, 220);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	assert_memory_equal(wire_ends[RIGHT].got[0].header.addr.gid, one.gid, 16);
	segment_from(&other, 7, 2, 4, 220);
	assert_int_equal(wire_ends[RIGHT].count, 2);
	assert_memory_equal(wire_ends[RIGHT].got[1].header.addr.gid, other.gid, 16);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(all_lengths_arrive),
		TEST(a_bad_cable_costs_time_only),
		TEST(progress_renews_the_retries),
		TEST(segments_are_as_specified),
		TEST(a_silent_peer_is_a_timeout),
		TEST(wrong_segments_are_refused),
		TEST(an_unfinished_message_ends),
		TEST(random_segments_harm_nothing),
		TEST(unfinished_messages_are_limited),
		TEST(memory_of_messages_is_limited),
		TEST(remembered_messages_are_limited),
		TEST(peers_without_lids_differ_by_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
