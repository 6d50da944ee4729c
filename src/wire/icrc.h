/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant CRC at a RoCEv2 packet's end (IBTA volume 1, 7.8.1 and A17): CRC-32 over eight
 * bytes of ones, the IP header, the UDP header and everything up to the ICRC itself; fields that
 * routers change count as ones.
 *
 * A UDP socket doesn't see its packets' IP headers. Every covered field follows from addresses and
 * sizes, except IPv4's identification. A packet sent from an unconnected socket with IP_PMTUDISC_DO
 * has identification 0 (and 0, 1, 2, ... in the segments that the kernel cuts a UDP_SEGMENT send
 * into; without that option the kernel numbers packets, although it sets DF). Packets of other
 * senders may have any. icrc_matches() accepts every identification that explains the ICRC, which
 * leaves 16 of its 32 bits as a check (and UDP's checksum in addition); with identification 0 all
 * 32 count.
 */
#ifndef VERBENA_WIRE_ICRC_H
#define VERBENA_WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The two ends of a packet, as GIDs: IPv4 addresses are mapped (::ffff:a.b.c.d). */
struct icrc_path {
	uint8_t source[16], destination[16];
	uint16_t source_port; /* host order */
	uint16_t destination_port;
};

/* The part of the CRC that depends only on the path and the packet's size; a caller that sends many
 * packets of one size computes it once. `size`: bytes from BTH to the ICRC's end. `id`: IPv4's
 * identification. */
uint32_t icrc_begin(const struct icrc_path *path, size_t size, uint16_t id);

/* Returns the ICRC, as it is stored (little endian) in the packet's last four bytes. `size`: bytes
 * of the packet, including these four. The packet isn't changed. `begun`: of icrc_begin(). */
uint32_t icrc_packet(uint32_t begun, const uint8_t *packet, size_t size);

/* Writes the ICRC into the packet's last four bytes. */
void icrc_write(uint32_t begun, uint8_t *packet, size_t size);

/* Whether the packet's ICRC is right for some IPv4 identification, which is returned in *id. IPv6
 * has none (*id is 0). `size` is at least WIRE_BTH + WIRE_ICRC. */
bool icrc_matches(const struct icrc_path *path, const uint8_t *packet, size_t size, uint16_t *id);

/* As icrc_matches(), with `begun` = icrc_begin() for identification 0. */
bool icrc_matches_begun(const struct icrc_path *path, uint32_t begun, const uint8_t *packet,
			size_t size, uint16_t *id);

/*
 * Linux's Soft-RoCE, from 6.2 to at least 6.12, gives FLUSH of RC an ICRC that covers the transport
 * headers twice, the second time with BTH's byte 4 as it is (its table of opcodes lacks the offset
 * of FLUSH's payload), and takes no other one from its peers.
 */
/* Changes the right ICRC in the packet's last four bytes into that one. */
void icrc_double(uint8_t *packet, size_t size);
/* As icrc_matches(), for a packet with that one. */
bool icrc_matches_doubled(const struct icrc_path *path, const uint8_t *packet, size_t size,
			  uint16_t *id);

#endif
