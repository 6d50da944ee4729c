/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes a requester may have under way: a window that grows while acknowledgements come
 * and shrinks when packets are lost. RC repeats everything after a lost packet (go-back-N), so all
 * that is under way beyond what the path holds is paid for twice.
 *
 *   slow start   the window grows by what is acknowledged, up to `threshold`
 *   avoidance    it grows by CONGESTION_STEP a round trip
 *   loss         at most once a round trip it shrinks by an eighth; when nothing comes back at
 *                all, by half
 *
 * It never falls below CONGESTION_FLOOR: the path is never given up here, that is the transport
 * timer's office. Pure arithmetic, no state but its own.
 */
#ifndef VERBENA_TRANSPORT_CONGESTION_H
#define VERBENA_TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

enum {
	CONGESTION_FLOOR = 1 << 15,
	CONGESTION_FIRST = 1 << 18,
	CONGESTION_STEP = 1 << 16,
};

struct congestion {
	uint32_t window, threshold; /* bytes */
	uint32_t rtt_ns;	    /* smoothed; 0: not measured yet */
	uint32_t deviation_ns;
	uint64_t cut_ns; /* when the window shrank last */
};

void congestion_start(struct congestion *c);
/* `bytes` are acknowledged; `filled`: the window was what held the sender back. */
void congestion_acknowledged(struct congestion *c, uint32_t bytes, bool filled);
void congestion_round_trip(struct congestion *c, uint64_t ns);
/* A packet is missing there, though others come through. */
void congestion_loss(struct congestion *c, uint64_t now);
/* Nothing came back for a while. */
void congestion_silence(struct congestion *c, uint64_t now);
/* For how long after a repetition the news of the same loss may still arrive. */
uint64_t congestion_echo_ns(const struct congestion *c);
/* How long to wait for an answer before asking again. */
uint64_t congestion_patience_ns(const struct congestion *c);

#endif
