/* SPDX-License-Identifier: BSD-2-Clause */
/* See packet.h. No state. */
#include "fabricd/packet.h"

#include "fabric/octets.h"

#include <string.h>

enum { LRH_BYTES = 8, GRH_BYTES = 40, BTH_BYTES = 12, DETH_BYTES = 8, ICRC_BYTES = 4 };
enum { NEXT_IS_BTH = 2, NEXT_IS_GRH = 3 };
enum { OPCODE_UD_SEND_ONLY = 0x64, MIGRATED = 0x40, NEXT_HEADER_IBA = 0x1b };

static uint32_t crc32_add(uint32_t crc, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return crc;
}

/* The invariant CRC: what switches and routers change counts as ones. */
static void icrc_put(uint8_t *packet, size_t bytes, size_t grh_bytes)
{
	uint8_t head[LRH_BYTES + GRH_BYTES + BTH_BYTES];
	size_t head_bytes = LRH_BYTES + grh_bytes + BTH_BYTES;
	uint32_t crc;

	memcpy(head, packet, head_bytes);
	head[0] |= 0xf0; /* VL */
	if (grh_bytes) {
		memset(head, 0xff, LRH_BYTES);
		head[LRH_BYTES] |= 0x0f; /* class and flow label */
		memset(head + LRH_BYTES + 1, 0xff, 3);
		head[LRH_BYTES + 7] = 0xff; /* hop limit */
	}
	head[LRH_BYTES + grh_bytes + 4] = 0xff; /* reserved, for congestion */
	crc = crc32_add(UINT32_MAX, head, head_bytes);
	crc = ~crc32_add(crc, packet + head_bytes, bytes - head_bytes);
	for (int i = 0; i < ICRC_BYTES; i++)
		packet[bytes + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

size_t packet_make(const struct fabric_datagram *datagram, uint8_t vl,
		   uint8_t packet[PACKET_BYTES_MAX])
{
	const struct fabric_address *address = &datagram->address;
	size_t grh_bytes = address->has_grh ? GRH_BYTES : 0;
	size_t rest = BTH_BYTES + DETH_BYTES + FABRIC_MAD_BYTES + ICRC_BYTES;
	size_t bytes = LRH_BYTES + grh_bytes + rest;
	uint8_t *at = packet + LRH_BYTES;

	memset(packet, 0, bytes);
	packet[0] = (uint8_t)(vl << 4);
	packet[1] = (uint8_t)((vl == 15 ? 0 : address->sl << 4) |
			      (grh_bytes ? NEXT_IS_GRH : NEXT_IS_BTH));
	octets_put16(packet + 2, address->destination);
	octets_put16(packet + 4, (uint16_t)(bytes / 4));
	octets_put16(packet + 6, address->source);
	if (grh_bytes) {
		memcpy(at, address->grh, GRH_BYTES);
		at[0] = (uint8_t)(6 << 4 | (at[0] & 0x0f));
		octets_put16(at + 4, (uint16_t)rest);
		at[6] = NEXT_HEADER_IBA;
		at += GRH_BYTES;
	}
	at[0] = OPCODE_UD_SEND_ONLY;
	at[1] = MIGRATED;
	octets_put16(at + 2, address->destination_qp ? datagram->pkey : 0xffff);
	octets_put32(at + 4, address->destination_qp & 0xffffff);
	at += BTH_BYTES;
	octets_put32(at, address->destination_qp ? address->qkey : 0);
	octets_put32(at + 4, address->source_qp & 0xffffff);
	memcpy(at + DETH_BYTES, datagram->mad, FABRIC_MAD_BYTES);
	icrc_put(packet, bytes - ICRC_BYTES, grh_bytes);
	return bytes;
}
