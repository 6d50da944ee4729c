/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pcapng blocks, see pcapng.h. Each is: type, size, a body that depends on the type, options (code,
 * length, value padded to four bytes; an end mark), and the size once more.
 */
#include "wire/pcapng.h"

#include <stdbool.h>
#include <string.h>

enum {
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_STATISTICS = 5,
	BLOCK_PACKET = 6,
	BYTE_ORDER_MAGIC = 0x1a2b3c4d,
};

/* Option codes: the first two in every block, the others by the block's type. */
enum {
	OPTION_END = 0,
	OPTION_COMMENT = 1,
	SECTION_PROGRAM = 4,
	INTERFACE_NAME = 2,
	INTERFACE_DESCRIPTION = 3,
	INTERFACE_RESOLUTION = 9,
	PACKET_FLAGS = 2,
	PACKET_DROPPED = 4,
	STATISTICS_RECEIVED = 4,
	STATISTICS_DROPPED = 5,
};

enum { NANOSECONDS = 9 }; /* 10^-9 */

/* A block that is being written. Bytes that don't fit are counted, not written. */
struct block {
	uint8_t *begin;
	size_t room, size;
};

static void block_put(struct block *b, const void *bytes, size_t size)
{
	static const uint8_t zeros[4];
	size_t padding = -size & 3;

	if (b->size + size + padding <= b->room && size) {
		memcpy(b->begin + b->size, bytes, size);
		memcpy(b->begin + b->size + size, zeros, padding);
	}
	b->size += size + padding;
}

static void block_put32(struct block *b, uint32_t value)
{
	block_put(b, &value, sizeof(value));
}

static void block_put_option(struct block *b, uint16_t code, const void *value, uint16_t size)
{
	uint16_t head[2] = {code, size};

	block_put(b, head, sizeof(head));
	block_put(b, value, size);
}

/* UTF-8: a character that would be cut is left out as a whole. */
static void option_text(struct block *b, uint16_t code, const char *text)
{
	size_t length = text ? strnlen(text, PCAPNG_TEXT_MAX + 1) : 0;

	if (!length)
		return;
	if (length > PCAPNG_TEXT_MAX)
		for (length = PCAPNG_TEXT_MAX; length && (text[length] & 0xc0) == 0x80;)
			length--;
	block_put_option(b, code, text, length);
}

static void block_begin(struct block *b, uint8_t *to, size_t room, uint32_t type)
{
	*b = (struct block){to, room, 0};
	block_put32(b, type);
	block_put32(b, 0); /* the size is written here when it is known */
}

static size_t block_end(struct block *b)
{
	block_put_option(b, OPTION_END, NULL, 0);

	uint32_t size = b->size + sizeof(size);

	block_put32(b, size);
	if (b->size > b->room)
		return 0;
	memcpy(b->begin + sizeof(uint32_t), &size, sizeof(size));
	return size;
}

size_t pcapng_section(uint8_t *to, size_t room, const char *program)
{
	static const uint16_t version[2] = {1, 0};
	static const int64_t unknown_length = -1;
	struct block b;

	block_begin(&b, to, room, BLOCK_SECTION);
	block_put32(&b, BYTE_ORDER_MAGIC);
	block_put(&b, version, sizeof(version));
	block_put(&b, &unknown_length, sizeof(unknown_length));
	option_text(&b, SECTION_PROGRAM, program);
	return block_end(&b);
}

size_t pcapng_interface(uint8_t *to, size_t room, enum pcapng_link link, uint32_t snap,
			const char *name, const char *description)
{
	static const uint8_t resolution = NANOSECONDS;
	uint16_t head[2] = {link, 0};
	struct block b;

	block_begin(&b, to, room, BLOCK_INTERFACE);
	block_put(&b, head, sizeof(head));
	block_put32(&b, snap);
	option_text(&b, INTERFACE_NAME, name);
	option_text(&b, INTERFACE_DESCRIPTION, description);
	block_put_option(&b, INTERFACE_RESOLUTION, &resolution, sizeof(resolution));
	return block_end(&b);
}

size_t pcapng_packet(uint8_t *to, size_t room, const struct pcapng_packet *packet)
{
	uint32_t flags = packet->direction;
	struct block b;

	block_begin(&b, to, room, BLOCK_PACKET);
	block_put32(&b, packet->interface);
	block_put32(&b, packet->time_ns >> 32);
	block_put32(&b, packet->time_ns);
	block_put32(&b, packet->captured);
	block_put32(&b, packet->size);
	block_put(&b, packet->bytes, packet->captured);
	option_text(&b, OPTION_COMMENT, packet->comment);
	if (flags)
		block_put_option(&b, PACKET_FLAGS, &flags, sizeof(flags));
	if (packet->dropped)
		block_put_option(&b, PACKET_DROPPED, &packet->dropped, sizeof(packet->dropped));
	return block_end(&b);
}

size_t pcapng_statistics(uint8_t *to, size_t room, uint32_t interface, uint64_t time_ns,
			 uint64_t received, uint64_t dropped)
{
	struct block b;

	block_begin(&b, to, room, BLOCK_STATISTICS);
	block_put32(&b, interface);
	block_put32(&b, time_ns >> 32);
	block_put32(&b, time_ns);
	block_put_option(&b, STATISTICS_RECEIVED, &received, sizeof(received));
	block_put_option(&b, STATISTICS_DROPPED, &dropped, sizeof(dropped));
	return block_end(&b);
}

/* The time is in 2^-32 seconds, the first octet the lowest; the record's interfaces are the two
 * directions; losses are in the block. */
void pcapng_erf(uint8_t to[PCAPNG_ERF_BYTES], uint64_t time_ns, size_t bytes,
		enum pcapng_direction direction)
{
	enum { ERF_INFINIBAND = 21, ERF_VARYING = 4 };
	uint64_t time = (time_ns / 1000000000) << 32 | ((time_ns % 1000000000) << 32) / 1000000000;
	size_t whole = bytes + PCAPNG_ERF_BYTES;

	memset(to, 0, PCAPNG_ERF_BYTES);
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(time >> 8 * i);
	to[8] = ERF_INFINIBAND;
	to[9] = ERF_VARYING | (direction == PCAPNG_OUT);
	to[10] = (uint8_t)(whole >> 8);
	to[11] = (uint8_t)whole;
	to[14] = (uint8_t)(bytes >> 8);
	to[15] = (uint8_t)bytes;
}
