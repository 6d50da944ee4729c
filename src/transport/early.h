/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's store of out-of-order packets: those that arrive while an earlier one is missing.
 * IBTA lets a responder drop them, since the requester repeats everything from the missing packet
 * on (go-back-N). This responder keeps them; when the missing packet arrives, they are executed at
 * once, as if they had arrived just then. A Verbena requester detects such a peer and repeats only
 * the missing packet (repair.h). Other requesters see only that the acknowledgement comes sooner,
 * and that some acknowledgements are repeated: while a packet is missing, each kept packet that
 * asks for an acknowledgement gets the last one once more, which the requester counts in order to
 * keep sending. A requester that goes back drops those repeated acknowledgements as stale.
 *
 * Invariants:
 *   - a packet is kept only if its PSN lies less than `places` after the expected one, at the place
 *     of its PSN's lower bits; so no two packets that may still be taken have the same place
 *   - a kept packet that isn't taken in its turn (a READ request stands for several PSNs, and a
 *     peer may send nonsense) is recognised by its PSN as old, and dropped then
 *   - all kept packets are forgotten when the responder starts or stops, and when a request isn't
 *     executed (RNR, refused), because the peer sends everything after it again
 * `used` says which places hold a packet, so the memory isn't touched before the first loss. The
 * caller owns the memory; the copies in it were checked (ICRC, addresses) when they arrived.
 */
#ifndef VERBENA_TRANSPORT_EARLY_H
#define VERBENA_TRANSPORT_EARLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"

enum {
	EARLY_PAYLOAD = 1 << 19, /* bytes */
	EARLY_MAX = 512,	 /* packets; fewer where EARLY_PAYLOAD is reached first */
};
#define EARLY_BYTES (EARLY_PAYLOAD + EARLY_MAX * sizeof(struct packet))

struct early {
	uint8_t *memory; /* EARLY_BYTES, aligned as a struct packet; NULL: no packet is kept */
	uint32_t mtu, places, count;
	uint64_t used[EARLY_MAX / 64];
};

/* Forgets all packets for a new connection. `mtu` is a power of two, 256 to WIRE_MTU_MAX. */
void early_start(struct early *early, uint32_t mtu);
void early_forget(struct early *early);
/* How many packets after the missing one can be kept. */
static inline uint32_t early_room(uint32_t mtu)
{
	uint32_t places = EARLY_PAYLOAD / mtu;

	return places < EARLY_MAX ? places : EARLY_MAX;
}
/* Keeps a packet whose PSN lies `ahead` (1 or more) after the expected one. False: it isn't
 * kept. */
bool early_keep(struct early *early, const struct packet *p, uint32_t ahead);
/* Takes out the packet with this PSN, which is the expected one now. Its payload is valid until the
 * next early_keep(). NULL: it isn't here. */
const struct packet *early_take(struct early *early, uint32_t psn);

#endif
