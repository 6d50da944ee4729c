/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pacer spreads a window over the round trip. Where a round trip is long, a window that is sent
 * at once (after a pause, or when one acknowledgement opens much of it) exceeds what a short queue
 * on the path holds. So packets leave in bursts of PACER_BURST bytes, or of PACER_SLACK_NS at the
 * rate if that is less: the kernel still gets batches, and a timer seldom fires.
 *
 * The pacer runs only where the path's own round trip (the shortest seen) is PACER_RTT_NS or more.
 * Local paths stay below that even when all processors are busy (up to 1.2 ms were measured with a
 * full window and three processes on two processors), so nothing changes for them and no timer
 * runs. On shorter paths the window fits a network card's queue, and timers would cost more than
 * they gain.
 *
 * The rate is a 16th above one window per round trip (in slow start two windows), so that the
 * window stays the limit. What a late timer missed is sent additionally, up to PACER_SLACK_NS. READ
 * requests aren't paced: each is one small packet. Pure arithmetic.
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
	uint64_t at;   /* when the next burst may begin, ns */
	uint32_t left; /* bytes left in the current burst */
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

/* Begins the next burst if its time has come. */
void pacer_expire(struct pacer *p, const struct congestion *c, uint64_t now);
/* Counts `bytes` that were sent. Call only while the pacer runs. */
void pacer_sent(struct pacer *p, const struct congestion *c, uint32_t bytes, uint64_t now);

#endif
