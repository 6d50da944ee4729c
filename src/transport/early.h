/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a responder keeps of packets that came too early: one before them is missing. IBTA lets a
 * responder drop them, since the requester repeats everything from the missing one on (go-back-N);
 * but they are here, and when the missing one comes, they can be executed at once, as if they had
 * arrived just then. A requester that finds its peer to be like that repeats only what is missing
 * (repair.h); others see nothing of it but an acknowledgement that comes sooner, and some that
 * come again: while a packet is missing, each one that is kept and asks for an acknowledgement gets
 * the last one once more, which the requester counts, to go on meanwhile. Whoever goes back drops
 * them as stale.
 *
 * Invariants:
 *   - a packet is kept only if its PSN lies less than `places` after the expected one, at the place
 *     of its PSN's lower bits; so no two packets that may still be taken have the same place
 *   - what isn't taken in its turn (a READ's request stands for several PSNs, and a peer may say
 *     nonsense) is found by its PSN to be old, and dropped then
 *   - everything is forgotten when the responder starts or stops, and when a request isn't executed
 *     (RNR, refused): the peer sends all that follows again
 * `used` says which places hold anything, so the memory isn't touched before the first loss. It is
 * the caller's; the copies in it are what was checked (ICRC, addresses) when they came.
 */
#ifndef VERBENA_TRANSPORT_EARLY_H
#define VERBENA_TRANSPORT_EARLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"

enum {
	EARLY_PAYLOAD = 1 << 19, /* bytes */
	EARLY_MAX = 512,	 /* packets; fewer where so much payload is reached */
};
#define EARLY_BYTES (EARLY_PAYLOAD + EARLY_MAX * sizeof(struct packet))

struct early {
	uint8_t *memory; /* EARLY_BYTES, aligned as a struct packet; NULL: nothing is kept */
	uint32_t mtu, places, count;
	uint64_t used[EARLY_MAX / 64];
};

/* A connection begins; `mtu` is a power of two, 256 to WIRE_MTU_MAX. */
void early_start(struct early *early, uint32_t mtu);
void early_forget(struct early *early);
/* How far ahead of the missing packet others may be. */
static inline uint32_t early_room(uint32_t mtu)
{
	uint32_t places = EARLY_PAYLOAD / mtu;

	return places < EARLY_MAX ? places : EARLY_MAX;
}
/* `ahead`: how far its PSN lies after the expected one, from 1. False: it isn't kept. */
bool early_keep(struct early *early, const struct packet *p, uint32_t ahead);
/* The packet with this PSN, which is the expected one now; its payload stays until early_keep is
 * called. NULL: it isn't here. */
const struct packet *early_take(struct early *early, uint32_t psn);

#endif
