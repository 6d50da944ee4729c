/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings: records arrive whole and in order, old payload is never taken for a header, and a producer
 * that waits for room is woken. Thread 0 is the producer, thread 1 the consumer.
 */
#include "scenarios.h"
#include "shm/ring.c"

enum { SEQ_BYTES = 4, OLD = 0x01010101, BELL = 0 };

static struct {
	struct ring_ctl ctl;
	_Alignas(64) uint8_t slots[RING_BYTES];
} memory;
static struct ring_tx tx;
static struct ring_rx rx;
static unsigned int got;

static struct ring_header *header_at(uint32_t pos)
{
	return (struct ring_header *)ring_at(memory.slots, pos);
}

/* The word at the beginning of each of a payload's slots but the first, for the payload `value`. */
static uint32_t *payload_word(uint8_t *payload, uint32_t slot)
{
	return (uint32_t *)(payload + slot * RING_SLOT - (slot ? RING_HEADER : 0));
}

static bool produce(uint32_t slots, uint32_t number)
{
	uint32_t bytes = slots * RING_SLOT - RING_HEADER;
	struct ring_header *h = ring_reserve(&tx, bytes);

	if (!h)
		return false;
	h->kind = RING_KIND_FIRST;
	h->dst = h->msn = number;
	for (uint32_t i = 0; i < slots; i++)
		*payload_word((uint8_t *)h + RING_HEADER, i) = number;
	ring_commit(&tx, h, bytes);
	return true;
}

/* True: a record was there, and its number is `number`. */
static bool consume(uint32_t number)
{
	struct ring_header h;
	uint32_t room;
	int error = 0;
	const uint8_t *payload = ring_peek(&rx, &h, &room, &error);

	if (error)
		model_fail("the consumer was shown nonsense");
	if (!payload)
		return false;
	if (h.dst != number || h.msn != number || h.kind != RING_KIND_FIRST)
		model_fail("the header of %u is that of %u", number, h.dst);
	for (uint32_t i = 0; i < h.slots; i++)
		if (*payload_word((uint8_t *)payload, i) != number)
			model_fail("the payload of %u isn't whole", number);
	ring_pop(&rx, &h);
	got++;
	return true;
}

static void begin(uint32_t pos)
{
	memset(&memory, 0, sizeof(memory));
	ring_tx_init(&tx, memory.slots, &memory.ctl);
	ring_rx_init(&rx, memory.slots, &memory.ctl);
	tx.pos = rx.pos = rx.published = pos;
	tx.limit = pos + RING_SLOTS;
	atomic_store(&memory.ctl.consumed, pos - RING_START);
	got = 0;
}

static void share(void)
{
	model_word(&memory.ctl.consumed, SEQ_BYTES, "consumed");
	model_word(&memory.ctl.want_space, SEQ_BYTES, "want_space");
	model_memory(memory.slots, RING_BYTES);
}

/* ------------------------------------------------------------------ records where payload was */

/* Two slots, then one, over old payload that resembles the expected headers. */
static void pass_from(uint32_t pos)
{
	begin(pos);
	for (uint32_t i = 1; i < 8; i++) {
		tx.stale[(pos + i) & (RING_SLOTS - 1)] = true;
		atomic_store(&header_at(pos + i)->seq, ring_seq(pos + i));
		header_at(pos + i)->kind = RING_KIND_FIRST;
		header_at(pos + i)->slots = 1;
	}
	share();
	model_word(&header_at(pos)->seq, SEQ_BYTES, "first seq");
	model_word(&header_at(pos + 2)->seq, SEQ_BYTES, "second seq");
	model_word(&header_at(pos + 3)->seq, SEQ_BYTES, "third seq");
}

static void pass_setup(void)
{
	pass_from(RING_SLOTS + 4);
}

/* The consumer comes to the last position of all, behind both records, where old payload was. */
static void end_setup(void)
{
	pass_from(UINT32_MAX - 3);
}

static void pass_producer(void)
{
	produce(2, 1);
	produce(1, 2);
}

static void pass_consumer(void)
{
	for (unsigned int i = 0; i < 4; i++)
		consume(got + 1);
}

/* ------------------------------------------------------------------ full, wrapping */

/* Eight records fill the ring up to its last slot; the next needs a pad there, and begins at the
 * first record's place. */
static void full_setup(void)
{
	begin(0u - RING_SLOTS); /* the pad is at the last position */
	for (uint32_t i = 0; i < 8; i++)
		produce(i < 7 ? 128 : 127, i + 1);
	share();
	model_word(&header_at(0)->seq, SEQ_BYTES, "seq[0]");
	model_word(&header_at(RING_SLOTS - 1)->seq, SEQ_BYTES, "seq[1023]");
}

static void full_producer(void)
{
	while (!produce(2, 9))
		model_event_wait(BELL);
}

static void full_consumer(void)
{
	if (!consume(1))
		model_fail("what was there before isn't seen");
	if (ring_publish(&rx))
		model_event_set(BELL);
}

/* The same, but the producer only polls: it never asks to be woken. */
static void look_producer(void)
{
	produce(2, 9);
	produce(2, 10);
}

const struct model_scenario ring_scenarios[] = {
	{"ring.pass", pass_setup, {pass_producer, pass_consumer}, NULL},
	{"ring.end", end_setup, {pass_producer, pass_consumer}, NULL},
	{"ring.full", full_setup, {full_producer, full_consumer}, NULL},
	{"ring.look", full_setup, {look_producer, full_consumer}, NULL},
	{0},
};
