/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a captured process and the capturing program share: a one-way ring of packets. The daemon
 * makes and seals the memory, one ring for each process and capture.
 *
 *   The process writes records (struct tap_record, the packet's bytes, its comment), never waits,
 *   and counts packets that find no room. Its caller serialises its calls.
 *   The capturing program reads them. It stores `asleep` before it sleeps on the ring's bell
 *   (shm/bell.h), then looks once more; the process stores its position, then looks at `asleep`,
 *   each with a full fence between, so no record waits unseen.                     [T1 with T2]
 *   A record's bytes come before the position that shows them [T3 with T4], and are read before the
 *   position that gives their place back [T5 with T6].
 *
 * Positions are free-running counts of bytes, records are multiples of 8 bytes and never wrap: a
 * record without a packet (TAP_PAD) fills the end of a lap. Neither side trusts the other: the
 * writer keeps its own position privately and stays inside the ring whatever the reader claims; the
 * reader copies a record's head once, then checks it.
 */
#ifndef VERBENA_SHM_TAP_H
#define VERBENA_SHM_TAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAP_BYTES (4u << 20)
#define TAP_PACKET_MAX 8192u /* more than a whole IP packet has, or a frame */
#define TAP_COMMENT_MAX 200u

enum tap_kind {
	TAP_PAD,
	TAP_PACKET, /* of IP; its address tells the device */
	TAP_FRAME,  /* of Ethernet, on the segment of `device` or its interface */
	TAP_LINK,   /* of InfiniBand's link layer, at the port of a fabric that is captured */
};
enum tap_direction { TAP_IN = 1, TAP_OUT = 2 }; /* as PCAPNG_IN, PCAPNG_OUT */

struct tap_record {
	uint32_t bytes;	   /* of the whole record, this head included */
	uint16_t captured; /* bytes of the packet that follow */
	uint16_t size;	   /* of the packet as it was on its way */
	uint8_t kind;	   /* enum tap_kind */
	uint8_t direction; /* enum tap_direction */
	uint8_t comment;   /* bytes of text after the packet, not terminated */
	uint8_t device;	   /* the number of a frame's device; else 0 */
	uint32_t lost;	   /* packets that found no room since the last record */
	uint64_t time_ns;  /* since 1970 */
};
_Static_assert(sizeof(struct tap_record) == 24, "a multiple of 8");

struct tap_memory {
	_Alignas(64) _Atomic uint64_t written; /* the process's */
	_Atomic uint64_t lost;		       /* the process's: number of packets without room */
	_Alignas(64) _Atomic uint64_t read;    /* the reader's */
	_Atomic uint32_t asleep;	       /* the reader's: its bell is to be rung */
	_Alignas(4096) uint8_t data[TAP_BYTES];
};
#define TAP_SIZE sizeof(struct tap_memory)

/* The process's side. */
struct tap_writer {
	struct tap_memory *memory;
	uint64_t at;
	uint64_t lost;
	uint32_t unsaid; /* those of `lost` that no record has reported yet */
	uint32_t snap;	 /* bytes that are kept of a packet */
};

/* The reader's side. */
struct tap_reader {
	struct tap_memory *memory;
	uint64_t at;
};

/* A packet that is to be written. `comment` may be NULL. */
struct tap_packet {
	uint64_t time_ns;
	const uint8_t *bytes;
	uint32_t captured, size;
	enum tap_direction direction;
	const char *comment;
	enum tap_kind kind; /* TAP_PAD: TAP_PACKET */
	uint8_t device;	    /* a frame's */
};

/* `snap`: how many bytes to keep of each packet; 0: all. */
void tap_writer_init(struct tap_writer *writer, struct tap_memory *memory, uint32_t snap);
/* Writes the packet, or counts it as lost. True: the reader sleeps, and its bell is to be rung. */
bool tap_write(struct tap_writer *writer, const struct tap_packet *packet);

void tap_reader_init(struct tap_reader *reader, struct tap_memory *memory);
/*
 * The next record. 1: *head is its checked head, *bytes its bytes (packet, then comment), which are
 * shared memory: the caller copies them once and uses the copy. 0: there is none. -EPROTO: the
 * process wrote an invalid record, and the ring can't be read any further.
 */
int tap_peek(struct tap_reader *reader, struct tap_record *head, const uint8_t **bytes);
/* Gives back the place of the record that tap_peek() returned. */
void tap_pop(struct tap_reader *reader, const struct tap_record *head);
/* Called before the reader sleeps. True: there is nothing to read, and the bell will be rung. */
bool tap_sleep(struct tap_reader *reader);
/* Called after the reader has slept: its bell needn't be rung any more. */
void tap_wake(struct tap_reader *reader);
/* The number of packets that found no room, in all. */
uint64_t tap_lost(const struct tap_reader *reader);

#endif
