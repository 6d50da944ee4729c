/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of InfiniBand's link layer, for captures: a local route header (IBTA volume 1, 7.7), a
 * global one if there is one, the transport's headers and payload, and the ICRC. No VCRC, which
 * each link makes anew. */
#ifndef VERBENA_WIRE_LRH_H
#define VERBENA_WIRE_LRH_H

#include "wire/grh.h"
#include "wire/packet.h"

enum { LRH_SIZE = 8, LRH_PACKET_MAX = LRH_SIZE + GRH_SIZE + WIRE_PACKET_MAX };

struct lrh_fields {
	uint16_t source, destination; /* LIDs */
	uint8_t vl, sl;
	const uint8_t *grh; /* 40 bytes; NULL: none. Version, length and next header are filled in
			     */
};

/* Writes the packet, whose transport part has `size` bytes: BTH to padding, at least WIRE_BTH, a
 * multiple of 4. Returns its bytes, which are LRH_SIZE + GRH_SIZE + WIRE_ICRC more at most. */
size_t lrh_wrap(uint8_t *to, const struct lrh_fields *fields, const uint8_t *transport,
		size_t size);

#endif
