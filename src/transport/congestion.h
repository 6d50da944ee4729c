/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes a requester may have under way: a window that grows while acknowledgements come
 * and shrinks when packets are lost. To most peers RC repeats everything after a lost packet
 * (go-back-N), so all that is under way beyond what the path holds is paid for twice: such a loss
 * is "costly"; to those that keep what comes after it (early.h) only that packet.
 *
 *   slow start   the window grows by what is acknowledged, up to `threshold`
 *   avoidance    it grows by `step` a round trip, which begins small where a queue overflowed and
 *                doubles every few round trips
 *   loss         at most once a round trip the window shrinks: by an eighth if the round trip had
 *                grown by half (a queue is full somewhere) or the last loss was less than a window
 *                ago, by a 16th if it wasn't costly; else, since packets get lost without
 *                anybody's fault, by a 64th; so, too, if it wasn't costly and losses are rare (less
 *                than one in CONGESTION_RARE). Never below what the path is seen to carry (rate
 *                times its own round trip): less would only be slower. If the loss wasn't costly,
 *                half of what the round trip has grown by counts for the path's own: ends that wait
 *                for their processors look like a queue, too; all of it if losses are rare
 *   mark         the network tells of a long queue (a CNP, or BECN): by an eighth, at most once a
 *                round trip, and without that lower limit: it is the path that is full
 *   silence      when the transport timer ends, by half
 *
 * It never falls below CONGESTION_FLOOR: the path is given up by the transport timer's retries, not
 * here. Pure arithmetic, no state but its own.
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
	CONGESTION_ROUNDS = 4,	/* until the step doubles */
	CONGESTION_MEMORY = 16, /* windows, in which losses are counted */
	CONGESTION_RARE = 50,	/* one lost in more than so many is rare */
};

struct congestion {
	uint32_t window, threshold;   /* bytes */
	uint32_t step;		      /* bytes a round trip */
	uint32_t rounds, round_bytes; /* round trips with this step; acknowledged in this one */
	uint32_t rtt_ns;	      /* smoothed; 0: not measured yet */
	uint32_t deviation_ns;
	uint32_t peak_rtt_ns;  /* the longest since the window shrank */
	uint32_t own_rtt_ns;   /* the shortest, which slowly grows */
	uint64_t rate;	       /* the highest lately, bytes a millisecond */
	uint64_t cut_ns;       /* when the window shrank last */
	uint64_t since_cut;    /* bytes acknowledged */
	uint64_t passed, lost; /* bytes lately */
};

void congestion_start(struct congestion *c);
/* `bytes` are acknowledged; `filled`: the window was what held the sender back. */
void congestion_acknowledged(struct congestion *c, uint32_t bytes, bool filled);
/* An answer came after `ns`, and meanwhile `bytes` were acknowledged. */
void congestion_round_trip(struct congestion *c, uint64_t ns, uint64_t bytes);
/* `bytes` are missing there, though others come through; `costly`: those are repeated, too. */
void congestion_loss(struct congestion *c, uint32_t bytes, bool costly, uint64_t now);
/* The network says that a queue is long; nothing is lost yet. */
void congestion_marked(struct congestion *c, uint64_t now);
/* Nothing came back for long. */
void congestion_silence(struct congestion *c, uint64_t now);
/* For how long after a repetition answers may still arrive that were under way before it. */
uint64_t congestion_echo_ns(const struct congestion *c);
/* How long to wait for an answer before asking again. */
uint64_t congestion_patience_ns(const struct congestion *c);

#endif
