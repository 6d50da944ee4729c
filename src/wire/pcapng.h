/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of a pcapng file (IETF draft-ietf-opsawg-pcapng), which Wireshark and tcpdump read. Pure:
 * each function writes one block to the caller's memory. A file is a section, its interfaces
 * (numbered from 0 in their order), then packets, then statistics. Integers are in this machine's
 * byte order, as the format allows.
 */
#ifndef VERBENA_WIRE_PCAPNG_H
#define VERBENA_WIRE_PCAPNG_H

#include <stddef.h>
#include <stdint.h>

enum pcapng_link {
	PCAPNG_ETHERNET = 1,
	PCAPNG_RAW = 101, /* IPv4 or IPv6; the first byte tells which */
	PCAPNG_ERF = 197, /* Endace's records, of InfiniBand for instance */
};

enum pcapng_direction { PCAPNG_UNKNOWN, PCAPNG_IN, PCAPNG_OUT };

/* Longer texts are cut to so many bytes, at a character's boundary. */
#define PCAPNG_TEXT_MAX 255
/* At least as many bytes as any block needs beside the packet's bytes. */
#define PCAPNG_ROOM (128 + 2 * (PCAPNG_TEXT_MAX + 1))

struct pcapng_packet {
	uint32_t interface;
	uint64_t time_ns;	 /* since 1970 */
	const uint8_t *bytes;	 /* the first `captured` bytes of the packet */
	uint32_t captured, size; /* `size`: of the whole packet */
	enum pcapng_direction direction;
	uint64_t dropped;    /* packets before this one that the capture lost */
	const char *comment; /* NULL: none */
};

/* Each returns the block's size in bytes, or 0 and writes nothing when `room` is too small.
 * PCAPNG_ROOM is enough, for a packet PCAPNG_ROOM + captured. */

/* The file's first block. `program`: the name of the program that writes the file. */
size_t pcapng_section(uint8_t *to, size_t room, const char *program);

/* `snap`: at most so many bytes of a packet are kept; 0: all. */
size_t pcapng_interface(uint8_t *to, size_t room, enum pcapng_link link, uint32_t snap,
			const char *name, const char *description);

/* How many packets of an interface were lost, and how many were seen, up to `time_ns`. */
size_t pcapng_statistics(uint8_t *to, size_t room, uint32_t interface, uint64_t time_ns,
			 uint64_t received, uint64_t dropped);

size_t pcapng_packet(uint8_t *to, size_t room, const struct pcapng_packet *packet);

/* Writes the header of Endace's record before a packet of InfiniBand's link layer with so many
 * bytes: tshark has no dissector for link type 247, InfiniBand alone. */
enum { PCAPNG_ERF_BYTES = 16 };
void pcapng_erf(uint8_t to[PCAPNG_ERF_BYTES], uint64_t time_ns, size_t bytes,
		enum pcapng_direction direction);

#endif
