/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester (IBTA 9.7.2 to 9.7.7) inside: what its files have in common. It keeps packets until
 * they are acknowledged.
 *
 *   requester.c            its states, the ends of requests, its timers
 *   requester_send.c       cuts requests into packets; which may go out, and when
 *   requester_responses.c  what comes back: acknowledgements, NAKs, answers
 *   repair.c               what got lost: what goes out again
 *
 *   first          cursor         begun          posted      requests
 *     |  answered in order |  to be sent |  no PSN yet |
 *     una ........... next ............ assigned               packets
 *
 * Going back moves `next` and `cursor` to `una` and `first`; they walk forward again, so no call
 * looks at more requests than it ends or sends.
 *
 * All of them work on the one struct requester (state.h), and whoever calls the core serialises
 * that (transport.h). What every packet needs is inline here, or in the file that handles it.
 */
#ifndef VERBENA_TRANSPORT_REQUESTER_H
#define VERBENA_TRANSPORT_REQUESTER_H

#include "transport/state.h"

static inline bool wants_answer(const struct tp_request *r)
{
	return r->opcode == IBV_WR_RDMA_READ || r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline struct tp_request *request_at(const struct requester *q, uint32_t count)
{
	return &q->ring[count & q->mask];
}

/* What packets [from, to) of a request cost the window. */
static inline uint32_t bytes_between(const struct tp *tp, const struct tp_request *r, uint32_t from,
				     uint32_t to)
{
	uint64_t begin = (uint64_t)(from - r->first_psn) << tp->mtu_shift;
	uint64_t end = (uint64_t)(to - r->first_psn) << tp->mtu_shift;

	if (begin > r->length)
		begin = r->length;
	if (end > r->length)
		end = r->length;
	return (uint32_t)(end - begin) + (to - from) * TP_PACKET_COST;
}

/* The packet after the piece of a READ that `psn` is in. */
static inline uint32_t piece_end(const struct tp *tp, const struct tp_request *r, uint32_t psn)
{
	uint32_t packets = TP_READ_PIECE >> tp->mtu_shift;
	uint32_t end = r->first_psn + (psn - r->first_psn) / packets * packets + packets;

	return psn_before(r->last_psn, end) ? r->last_psn + 1 : end;
}

static inline void requester_timers_off(struct requester *q)
{
	q->timer_at = q->probe_at = q->rnr_until = TP_NEVER;
	q->probes = 0;
	q->probe_due = false;
}

/* requester.c */
/* The oldest request fails with `status`, and with it the rest: the requester has stopped. */
void requester_fail_first(struct tp *tp, enum ibv_wc_status status);
/* The oldest request is over. False: the requester isn't there any more. */
bool requester_complete_first(struct tp *tp);
/* Packets are under way: the timers that don't run begin. */
void requester_timers_arm(struct tp *tp, uint64_t now);

#endif
