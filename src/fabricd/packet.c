/* SPDX-License-Identifier: BSD-2-Clause */
/* See packet.h. No state. */
#include "fabricd/packet.h"

#include "fabric/octets.h"
#include "wire/lrh.h"

#include <string.h>

enum { DETH_BYTES = 8, OPCODE_UD_SEND_ONLY = 0x64, MIGRATED = 0x40 };

_Static_assert(PACKET_BYTES_MAX ==
		       LRH_SIZE + GRH_SIZE + WIRE_BTH + DETH_BYTES + FABRIC_MAD_BYTES + WIRE_ICRC,
	       "room for each datagram");

size_t packet_make(const struct fabric_datagram *datagram, uint8_t vl,
		   uint8_t packet[PACKET_BYTES_MAX])
{
	const struct fabric_address *address = &datagram->address;
	const struct lrh_fields fields = {
		.source = address->source,
		.destination = address->destination,
		.vl = vl,
		.sl = vl == 15 ? 0 : address->sl,
		.grh = address->has_grh ? address->grh : NULL,
	};
	uint8_t part[WIRE_BTH + DETH_BYTES + FABRIC_MAD_BYTES] = {OPCODE_UD_SEND_ONLY, MIGRATED};
	uint8_t *deth = part + WIRE_BTH;

	octets_put16(part + 2, address->destination_qp ? datagram->pkey : 0xffff);
	octets_put32(part + 4, address->destination_qp & 0xffffff);
	octets_put32(deth, address->destination_qp ? address->qkey : 0);
	octets_put32(deth + 4, address->source_qp & 0xffffff);
	memcpy(deth + DETH_BYTES, datagram->mad, FABRIC_MAD_BYTES);
	return lrh_wrap(packet, &fields, part, sizeof(part));
}
