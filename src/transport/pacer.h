/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a round trip is long, a window that leaves at once (after a pause, or when one
 * acknowledgement opens much of it) is more than a short queue on the way holds. So it is spread
 * over the round trip, in bursts: PACER_BURST bytes, or what PACER_SLACK_NS of the rate are, if
 * that is less; so the kernel still gets batches, and a timer seldom fires.
 *
 * Only where the path's own round trip (the shortest seen) is PACER_RTT_NS or more. Local paths
 * stay below that even when all processors are busy (up to 1.2 ms were measured with a full window
 * and three processes on two processors): for them nothing changes, and no timer runs. Shorter ones
 * hold less than the queue of a network card, and timers would cost more than they bring.
 *
 * The rate is a 16th more than the window in a round trip (in slow start twice the window): it is
 * the window that limits, the pacer only spreads. What a late timer missed is made up for, up to
 * PACER_SLACK_NS. READs aren't paced: they are one small packet each. Pure arithmetic.
 */
#ifndef VERBENA_TRANSPORT_PACER_H
#define VERBENA_TRANSPORT_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/congestion.h"

enum {
	PACER_RTT_NS = 2000000,
	PACER_SLACK_NS = 1000000,
	PACER_BURST = 1 << 16,
};

struct pacer {
	uint64_t at;   /* when the next burst may begin */
	uint32_t left; /* bytes of this one */
};

static inline bool pacer_runs(const struct congestion *c)
{
	return c->own_rtt_ns >= PACER_RTT_NS;
}

/* Whether the next packet has to wait until p->at. */
static inline bool pacer_holds(const struct pacer *p, const struct congestion *c, uint64_t now)
{
	return pacer_runs(c) && !p->left && now < p->at;
}

/* If its time has come, the next burst begins. */
void pacer_expire(struct pacer *p, const struct congestion *c, uint64_t now);
/* `bytes` were sent; only if it runs. */
void pacer_sent(struct pacer *p, const struct congestion *c, uint32_t bytes, uint64_t now);

#endif
