/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant CRC at a RoCEv2 packet's end (IBTA volume 1, 7.8.1 and A17): CRC-32 over eight
 * bytes of ones, the IP header, the UDP header and everything up to the ICRC itself, where fields
 * that routers change count as ones.
 *
 * A UDP socket doesn't see its packets' IP headers. All of them is known from addresses and sizes,
 * but IPv4's identification: what is sent from an unconnected socket with IP_PMTUDISC_DO has 0 (and
 * 0, 1, 2, ... in the segments that the kernel cuts a UDP_SEGMENT send into; without that option
 * the kernel numbers packets, although it sets DF); what comes from others may have any.
 * icrc_matches() takes every identification that explains the ICRC, which leaves 16 of its 32 bits
 * as a check there (and UDP's checksum on top); with identification 0 all 32 hold.
 */
#ifndef VERBENA_WIRE_ICRC_H
#define VERBENA_WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Both ends of a packet as GIDs are: IPv4 addresses mapped (::ffff:a.b.c.d). */
struct icrc_path {
	uint8_t source[16], destination[16];
	uint16_t source_port; /* host order */
	uint16_t destination_port;
};

/* The part of the CRC that only depends on the path and the packet's size: kept by whoever sends
 * many packets of one size. `size`: bytes from BTH to the ICRC's end. `id`: IPv4's identification.
 */
uint32_t icrc_begin(const struct icrc_path *path, size_t size, uint16_t id);

/* The ICRC, as it stands in the packet's last four bytes (little endian there), of a packet of
 * `size` bytes, its own four included. The packet itself isn't changed. */
uint32_t icrc_packet(uint32_t begun, const uint8_t *packet, size_t size);

/* Writes it there. */
void icrc_write(uint32_t begun, uint8_t *packet, size_t size);

/* Whether the packet's ICRC is right for one of the identifications; *id says for which. IPv6: for
 * the only one there is (*id is 0). `size` at least WIRE_BTH + WIRE_ICRC. */
bool icrc_matches(const struct icrc_path *path, const uint8_t *packet, size_t size, uint16_t *id);

/* The same for who has icrc_begin() of identification 0 already. */
bool icrc_matches_begun(const struct icrc_path *path, uint32_t begun, const uint8_t *packet,
			size_t size, uint16_t *id);

#endif
