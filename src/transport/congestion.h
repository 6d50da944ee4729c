/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The congestion window: how many bytes a requester may have in flight. The window grows while
 * acknowledgements arrive and shrinks when packets are lost. To most peers RC repeats everything
 * after a lost packet (go-back-N), so every byte in flight beyond the path's capacity is sent
 * twice: such a loss is "costly". To a peer that keeps out-of-order packets (early.h) only the lost
 * packet is repeated.
 *
 *   slow start   the window grows by the acknowledged bytes, up to `threshold`
 *   avoidance    the window grows by `step` per round trip; the step begins small after a queue
 *                overflow and doubles every few round trips
 *   loss         at most once per round trip the window shrinks:
 *                - by an eighth (a 16th if this loss wasn't costly) if the round trip had grown by
 *                  half (some queue is full), or if the last loss was less than a window ago
 *                - otherwise by a 64th, because some packets are lost without congestion; this
 *                  also applies to a loss that wasn't costly while losses are rare (less than one
 *                  in CONGESTION_RARE)
 *                The window never falls below what the path is seen to carry (rate times the
 *                path's own round trip), because less would only be slower. After a loss that
 *                wasn't costly, half of the round trip's growth counts as the path's own, because
 *                hosts that wait for their processors look like a queue, too; all of it if losses
 *                are rare
 *   mark         the network reports a long queue (a CNP, or BECN): the window shrinks by an
 *                eighth, at most once per round trip, and without that lower limit, because the
 *                path itself is full
 *   silence      when the transport timer expires, the window is halved
 *
 * It never falls below CONGESTION_FLOOR: the transport timer's retries give a path up, this file
 * doesn't. Pure arithmetic without further state.
 */
#ifndef VERBENA_TRANSPORT_CONGESTION_H
#define VERBENA_TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

enum {
	CONGESTION_FLOOR = 1 << 15,
	CONGESTION_FIRST = 1 << 18,
	CONGESTION_STEP_MIN = 1 << 11,
	CONGESTION_STEP_MAX = 1 << 16,
	CONGESTION_ROUNDS = 4,	/* round trips until the step doubles */
	CONGESTION_MEMORY = 16, /* losses are counted over so many windows */
	CONGESTION_RARE = 50,	/* losses are rare below one in so many */
};

struct congestion {
	uint32_t window, threshold;   /* bytes */
	uint32_t step;		      /* bytes per round trip */
	uint32_t rounds, round_bytes; /* round trips with this step; bytes in the current one */
	uint32_t rtt_ns;	      /* smoothed; 0: not measured yet */
	uint32_t deviation_ns;
	uint32_t peak_rtt_ns;  /* the longest since the window last shrank */
	uint32_t own_rtt_ns;   /* the shortest, raised slowly since paths change */
	uint64_t rate;	       /* the highest recent one, bytes per millisecond */
	uint64_t cut_ns;       /* when the window shrank last */
	uint64_t since_cut;    /* bytes acknowledged since cut_ns */
	uint64_t passed, lost; /* recent bytes, decayed */
};

void congestion_start(struct congestion *c);
/* Call when `bytes` were acknowledged. `filled`: the window, not the program, limited the
 * sender. */
void congestion_acknowledged(struct congestion *c, uint32_t bytes, bool filled);
/* Call with each measured round trip of `ns`, during which `bytes` were acknowledged. */
void congestion_round_trip(struct congestion *c, uint64_t ns, uint64_t bytes);
/* Call when `bytes` are known to be missing at the peer. `costly`: the peer drops what follows a
 * missing packet, so later packets are repeated as well. */
void congestion_loss(struct congestion *c, uint32_t bytes, bool costly, uint64_t now);
/* Call when the network reports a long queue (CNP, BECN); no packet is lost yet. */
void congestion_marked(struct congestion *c, uint64_t now);
/* Call when the transport timer expired without an answer. */
void congestion_silence(struct congestion *c, uint64_t now);
/* How long after a repetition an answer may still arrive that was sent before it. */
uint64_t congestion_echo_ns(const struct congestion *c);
/* How long to wait for an answer before probing. */
uint64_t congestion_patience_ns(const struct congestion *c);

#endif
