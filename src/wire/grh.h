/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The 40 bytes before a datagram's payload in its receive (ibv_post_recv(3), UD): in RoCE v2 they
 * hold the packet's IP header. IPv6's header fills them; IPv4's is in the last 20, and the first 20
 * are 0.
 */
#ifndef VERBENA_WIRE_GRH_H
#define VERBENA_WIRE_GRH_H

#include "wire/ip.h"

enum { GRH_SIZE = 40 };

/* Writes the 40 bytes. `size`: bytes of the packet, BTH to ICRC. */
void grh_write(uint8_t to[GRH_SIZE], const struct ip_fields *ip, size_t size);

#endif
