/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures: packets arrive whole, no packet waits unseen while the reader sleeps, and none is
 * overwritten while it is read. Thread 0 is the captured process, thread 1 the reader. */
#include "scenarios.h"

#include "shm/tap.c"

enum { BELL, PACKET = 16, RECORD = sizeof(struct tap_record) + PACKET };

static struct tap_memory memory;
static struct tap_writer writer;
static struct tap_reader reader;
static unsigned int got;

static void begin(uint64_t written, uint64_t read)
{
	atomic_store(&memory.written, written);
	atomic_store(&memory.read, read);
	atomic_store(&memory.asleep, 0);
	tap_writer_init(&writer, &memory, 0);
	tap_reader_init(&reader, &memory);
	writer.at = written;
	reader.at = read;
	got = 0;
	model_word(&memory.written, 8, "written");
	model_word(&memory.read, 8, "read");
	model_word(&memory.asleep, 4, "asleep");
}

/* Room for one record and a pad before the lap's end. */
static void lap_setup(void)
{
	uint64_t at = TAP_BYTES - RECORD - 8;

	begin(at, at);
	model_memory(memory.data + at, RECORD + 8);
	model_memory(memory.data, 2 * RECORD);
}

static void write_one(uint8_t value)
{
	uint8_t bytes[PACKET];
	const struct tap_packet packet = {
		.bytes = bytes, .captured = PACKET, .size = PACKET, .direction = TAP_OUT};

	memset(bytes, value, sizeof(bytes));
	if (tap_write(&writer, &packet))
		model_event_set(BELL);
}

static void write_two(void)
{
	write_one(1);
	write_one(2);
}

static bool read_one(void)
{
	struct tap_record head;
	const uint8_t *bytes;
	int found = tap_peek(&reader, &head, &bytes);

	if (found < 0)
		model_fail("the reader was shown nonsense");
	if (found <= 0)
		return false;
	got++;
	if (head.captured != PACKET || bytes[0] != got || bytes[PACKET - 1] != got)
		model_fail("packet %u isn't whole", got);
	tap_pop(&reader, &head);
	return true;
}

static void read_two(void)
{
	for (;;) {
		while (read_one())
			;
		if (got == 2)
			return;
		if (tap_sleep(&reader))
			model_event_wait(BELL);
		tap_wake(&reader);
	}
}

/* The ring is full; the oldest record, at the beginning, has number 1. */
static void full_setup(void)
{
	const struct tap_record head = {.bytes = RECORD,
					.kind = TAP_PACKET,
					.direction = TAP_OUT,
					.captured = PACKET,
					.size = PACKET};

	memcpy(memory.data, &head, sizeof(head));
	memset(memory.data + sizeof(head), 1, PACKET);
	begin(TAP_BYTES, 0);
	model_memory(memory.data, RECORD);
}

static void write_where_it_was(void)
{
	write_one(2);
}

static void read_first(void)
{
	if (!read_one())
		model_fail("what was there before isn't seen");
}

const struct model_scenario tap_scenarios[] = {
	{"tap.lap", lap_setup, {write_two, read_two}, NULL},
	{"tap.full", full_setup, {write_where_it_was, read_first}, NULL},
	{0},
};
