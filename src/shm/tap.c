/* SPDX-License-Identifier: BSD-2-Clause */
/* A captured process's ring. See tap.h. */
#include "shm/tap.h"

#include <errno.h>
#include <string.h>

#include "base/cpu.h"

_Static_assert((TAP_BYTES & (TAP_BYTES - 1)) == 0, "positions are masked");
_Static_assert(TAP_COMMENT_MAX <= UINT8_MAX, "a record's length of a comment");

static uint32_t tap_whole_size(uint32_t captured, uint32_t comment)
{
	return (uint32_t)(sizeof(struct tap_record) + captured + comment + 7) & ~7u;
}

/* ------------------------------------------------------------------ the process's side */

void tap_writer_init(struct tap_writer *writer, struct tap_memory *memory, uint32_t snap)
{
	*writer = (struct tap_writer){
		.memory = memory,
		.snap = snap && snap < TAP_PACKET_MAX ? snap : TAP_PACKET_MAX,
	};
}

static uint8_t *writer_place(const struct tap_writer *writer)
{
	return writer->memory->data + (writer->at & (TAP_BYTES - 1));
}

/* Makes room for `bytes` in one piece at the writer's position; writes a pad first if need be. */
static bool tap_make_room(struct tap_writer *writer, uint32_t bytes)
{
	/* [T6], pairs with [T5] */
	uint64_t used =
		writer->at - atomic_load_explicit(&writer->memory->read, memory_order_acquire);
	uint32_t to_end = TAP_BYTES - (writer->at & (TAP_BYTES - 1));
	uint32_t pad = to_end < bytes ? to_end : 0;

	if (used > TAP_BYTES || bytes + pad > TAP_BYTES - used)
		return false; /* full, or the reader published an impossible position */
	if (pad) {
		const struct tap_record head = {.bytes = pad, .kind = TAP_PAD};

		/* A lap's end may have room for a record's first words only. */
		memcpy(writer_place(writer), &head, pad < sizeof(head) ? pad : sizeof(head));
		writer->at += pad;
	}
	return true;
}

static void tap_lose(struct tap_writer *writer)
{
	writer->lost++;
	writer->unsaid++;
	atomic_store_explicit(&writer->memory->lost, writer->lost, memory_order_relaxed);
}

bool tap_write(struct tap_writer *writer, const struct tap_packet *packet)
{
	struct tap_memory *memory = writer->memory;
	uint32_t captured = packet->captured < writer->snap ? packet->captured : writer->snap;
	size_t comment = packet->comment ? strnlen(packet->comment, TAP_COMMENT_MAX) : 0;
	const struct tap_record head = {
		.bytes = tap_whole_size(captured, (uint32_t)comment),
		.captured = (uint16_t)captured,
		.size = (uint16_t)packet->size,
		.kind = packet->kind ? packet->kind : TAP_PACKET,
		.direction = packet->direction,
		.comment = (uint8_t)comment,
		.device = packet->device,
		.lost = writer->unsaid,
		.time_ns = packet->time_ns,
	};

	if (unlikely(!tap_make_room(writer, head.bytes))) {
		tap_lose(writer);
	} else {
		uint8_t *at = writer_place(writer);

		memcpy(at, &head, sizeof(head));
		memcpy(at + sizeof(head), packet->bytes, captured);
		if (comment)
			memcpy(at + sizeof(head) + captured, packet->comment, comment);
		writer->at += head.bytes;
		writer->unsaid = 0;
		/* [T3], pairs with [T4] */
		atomic_store_explicit(&memory->written, writer->at, memory_order_release);
	}
	atomic_thread_fence(memory_order_seq_cst); /* [T1], pairs with [T2] */
	return unlikely(atomic_load_explicit(&memory->asleep, memory_order_relaxed)) &&
	       atomic_exchange_explicit(&memory->asleep, 0, memory_order_relaxed);
}

/* ------------------------------------------------------------------ the reader's side */

void tap_reader_init(struct tap_reader *reader, struct tap_memory *memory)
{
	*reader = (struct tap_reader){.memory = memory};
}

static bool head_is_sound(const struct tap_record *head, uint64_t there, uint32_t to_end)
{
	if (head->bytes % 8 || !head->bytes || head->bytes > there || head->bytes > to_end)
		return false;
	if (head->kind == TAP_PAD)
		return true;
	return head->kind <= TAP_LINK && head->captured <= TAP_PACKET_MAX &&
	       head->captured <= head->size && head->comment <= TAP_COMMENT_MAX &&
	       (head->direction == TAP_IN || head->direction == TAP_OUT) &&
	       head->bytes == tap_whole_size(head->captured, head->comment);
}

int tap_peek(struct tap_reader *reader, struct tap_record *head, const uint8_t **bytes)
{
	for (;;) {
		/* [T4], pairs with [T3] */
		uint64_t there =
			atomic_load_explicit(&reader->memory->written, memory_order_acquire) -
			reader->at;
		uint32_t at = reader->at & (TAP_BYTES - 1), to_end = TAP_BYTES - at;
		uint32_t size = to_end < sizeof(*head) ? to_end : sizeof(*head);

		if (!there)
			return 0;
		if (there > TAP_BYTES || there % 8)
			return -EPROTO;
		memset(head, 0, sizeof(*head));
		memcpy(head, reader->memory->data + at, size);
		if (!head_is_sound(head, there, to_end))
			return -EPROTO;
		if (head->kind != TAP_PAD) {
			*bytes = reader->memory->data + at + sizeof(*head);
			return 1;
		}
		tap_pop(reader, head);
	}
}

void tap_pop(struct tap_reader *reader, const struct tap_record *head)
{
	reader->at += head->bytes;
	/* [T5], pairs with [T6] */
	atomic_store_explicit(&reader->memory->read, reader->at, memory_order_release);
}

bool tap_sleep(struct tap_reader *reader)
{
	atomic_store_explicit(&reader->memory->asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* [T2], pairs with [T1] */
	return atomic_load_explicit(&reader->memory->written, memory_order_relaxed) == reader->at;
}

void tap_wake(struct tap_reader *reader)
{
	atomic_store_explicit(&reader->memory->asleep, 0, memory_order_relaxed);
}

uint64_t tap_lost(const struct tap_reader *reader)
{
	return atomic_load_explicit(&reader->memory->lost, memory_order_relaxed);
}
