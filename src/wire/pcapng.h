/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of a pcapng file (IETF draft-ietf-opsawg-pcapng), which Wireshark and tcpdump read. Pure:
 * each function writes one block to the caller's memory; a file is a section, its interfaces
 * (numbered from 0 as they come), then packets, then statistics. In the byte order of this machine,
 * as the format allows.
 */
#ifndef VERBENA_WIRE_PCAPNG_H
#define VERBENA_WIRE_PCAPNG_H

#include <stddef.h>
#include <stdint.h>

enum pcapng_link {
	PCAPNG_ETHERNET = 1,
	PCAPNG_RAW = 101, /* IPv4 or IPv6, as its first byte says */
};

enum pcapng_direction { PCAPNG_UNKNOWN, PCAPNG_IN, PCAPNG_OUT };

/* Longer texts are cut to this, at a character's begin. */
#define PCAPNG_TEXT_MAX 255
/* More than any block needs beside the packet's bytes. */
#define PCAPNG_ROOM (128 + 2 * (PCAPNG_TEXT_MAX + 1))

struct pcapng_packet {
	uint32_t interface;
	uint64_t time_ns;	 /* since 1970 */
	const uint8_t *bytes;	 /* the packet's first `captured` ones */
	uint32_t captured, size; /* `size`: the whole packet's */
	enum pcapng_direction direction;
	uint64_t dropped;    /* packets that were lost to the capture before this one */
	const char *comment; /* NULL: none */
};

/* Each returns the block's size, or 0 and writes nothing when `room` is too small: PCAPNG_ROOM is
 * enough, for a packet PCAPNG_ROOM + captured. */

/* The file's begin. `program`: who writes it. */
size_t pcapng_section(uint8_t *to, size_t room, const char *program);

/* `snap`: the most bytes that are kept of a packet; 0: all. */
size_t pcapng_interface(uint8_t *to, size_t room, enum pcapng_link link, uint32_t snap,
			const char *name, const char *description);

/* What was lost of an interface's traffic, and how much was seen, up to `time_ns`. */
size_t pcapng_statistics(uint8_t *to, size_t room, uint32_t interface, uint64_t time_ns,
			 uint64_t received, uint64_t dropped);

size_t pcapng_packet(uint8_t *to, size_t room, const struct pcapng_packet *packet);

#endif
