/* SPDX-License-Identifier: BSD-2-Clause */
/* See lrh.h. No state. */
#include "wire/lrh.h"

#include <string.h>

#include "wire/crc32.h"

enum { NEXT_IS_BTH = 2, NEXT_IS_GRH = 3, NEXT_HEADER_IBA = 0x1b };

static void lrh_put16(uint8_t *to, size_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

/* What switches and routers change counts as ones. */
static void lrh_icrc_put(uint8_t *packet, size_t bytes, size_t grh_bytes)
{
	uint8_t head[LRH_SIZE + GRH_SIZE + WIRE_BTH];
	size_t head_bytes = LRH_SIZE + grh_bytes + WIRE_BTH;

	memcpy(head, packet, head_bytes);
	head[0] |= 0xf0; /* VL */
	if (grh_bytes) {
		memset(head, 0xff, LRH_SIZE);
		head[LRH_SIZE] |= 0x0f; /* class and flow label */
		memset(head + LRH_SIZE + 1, 0xff, 3);
		head[LRH_SIZE + 7] = 0xff; /* hop limit */
	}
	head[LRH_SIZE + grh_bytes + 4] = 0xff; /* reserved, for congestion */
	uint32_t crc = crc32_update(0, head, head_bytes);

	crc = crc32_update(crc, packet + head_bytes, bytes - head_bytes);
	for (int i = 0; i < WIRE_ICRC; i++)
		packet[bytes + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

size_t lrh_wrap(uint8_t *to, const struct lrh_fields *fields, const uint8_t *transport, size_t size)
{
	size_t grh_bytes = fields->grh ? GRH_SIZE : 0;
	size_t bytes = LRH_SIZE + grh_bytes + size;
	uint8_t *grh = to + LRH_SIZE;

	to[0] = (uint8_t)(fields->vl << 4);
	to[1] = (uint8_t)(fields->sl << 4 | (grh_bytes ? NEXT_IS_GRH : NEXT_IS_BTH));
	lrh_put16(to + 2, fields->destination);
	lrh_put16(to + 4, (bytes + WIRE_ICRC) / 4);
	lrh_put16(to + 6, fields->source);
	if (grh_bytes) {
		memcpy(grh, fields->grh, GRH_SIZE);
		grh[0] = (uint8_t)(6 << 4 | (grh[0] & 0x0f));
		lrh_put16(grh + 4, size + WIRE_ICRC);
		grh[6] = NEXT_HEADER_IBA;
	}
	memcpy(to + LRH_SIZE + grh_bytes, transport, size);
	lrh_icrc_put(to, bytes, grh_bytes);
	return bytes + WIRE_ICRC;
}
