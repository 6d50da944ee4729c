/* SPDX-License-Identifier: BSD-2-Clause */
/* A management datagram as the packet that a link carries: LRH, GRH, BTH, DETH, MAD, ICRC. */
#ifndef VERBENA_FABRICD_PACKET_H
#define VERBENA_FABRICD_PACKET_H

#include "fabric/fabric.h"

#include <stddef.h>
#include <stdint.h>

#define PACKET_BYTES_MAX (8u + 40u + 12u + 8u + FABRIC_MAD_BYTES + 4u)

/* Returns the packet's bytes. It has no VCRC, which each link makes anew. */
size_t packet_make(const struct fabric_datagram *datagram, uint8_t vl,
		   uint8_t packet[PACKET_BYTES_MAX]);

#endif
