/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester's internals (IBTA 9.7.2 to 9.7.7), shared by its files. It keeps requests until
 * they are acknowledged.
 *
 *   requester.c            its states, the ends of requests, its timers
 *   requester_send.c       cuts requests into packets; decides which may be sent, and when
 *   requester_responses.c  handles acknowledgements, NAKs and answers
 *   repair.c               decides what is retransmitted after a loss
 *
 *   first          cursor         begun          posted      requests
 *     |  answered in order |  to be sent |  no PSN yet |
 *     una ........... next ............ assigned               packets
 *
 * Going back moves `next` and `cursor` to `una` and `first`; they walk forward again, so no call
 * visits more requests than it ends or sends.
 *
 * Messages that need no acknowledgement of their own. A message whose completion no program awaits
 * (TP_UNAWAITED) doesn't ask for one while such messages follow each other quickly; adapters do
 * likewise. Otherwise, where two programs answer each other, each message would travel with a
 * packet that completes something that no program waits for. One in TP_UNASKED_MAX asks, or in a
 * quarter of the places; also each that is sent after a quarter of the probe's time since the
 * oldest outstanding packet, and each while something is repeated or drained. So a stream never
 * waits for an acknowledgement that wasn't requested, and a lost message is found by the message
 * that follows it. After the last message of a stream the probe asks: it repeats the oldest packet,
 * whose payload the owner still has. Whatever waits for completions calls tp_ask() and doesn't wait
 * for the probe's time. A responder that ends acknowledges all that it has executed
 * (tp_acknowledge_all()).
 *
 * WRITEs in pieces. The first packet of a WRITE has one header more than the others, so it fits
 * into no burst of equal packets (net/sender.h) and takes a call to send of its own, which costs as
 * much as all packets of a 32 KiB message. So an RC WRITE of up to TP_PIECES_MAX packets is sent as
 * WRITEs of one packet each, like a long READ in pieces: to the peer they are messages of their own
 * (MSN), and to the program they are one request, which completes with the last of them. A WRITE
 * that the peer refuses must have no effect, whichever of its bytes is outside the region; of a
 * whole WRITE the peer checks the range before it writes the first byte. So only a WRITE to
 * addresses to which the peer has executed WRITEs under the same key goes in pieces (struct
 * accepted). The peer may deregister the region meanwhile; then the beginning of a WRITE has been
 * written, as it may have been if it was sent whole.
 *
 * Four state variables, each independent of the others:
 *
 *   state     meaning                                  left by
 *   OFF       before RTS, after an error or the end;   start: SENDS; UC: tp_resume: SENDS
 *             nothing is outstanding
 *   SENDS     RTS                                      tp_drain: DRAINS; a request that can't be
 *                                                      sent: BREAKS; stop, error: OFF
 *   DRAINS    SQD: no request begins; those that have  all are complete: DRAINED; tp_resume: SENDS;
 *             begun continue                           can't be sent: BREAKS; stop, error: OFF
 *   DRAINED   SQD: none is outstanding; the event      tp_resume: SENDS; tp_drain: DRAINS;
 *             DRAINED was made                         stop: OFF
 *   BREAKS    request `broken_at` can't be sent, nor   the requests before it are complete, and
 *             anything after it                        it fails: OFF; stop, error: OFF
 *
 *   hole      what is known to be missing at the peer  left by (all: going back, stop: NONE)
 *   NONE      nothing, or all from `una` on
 *   NARROW    packet `una`, which is repeated alone    it arrived: NONE; others are missing: WIDE
 *   WIDE      `una`, which is repeated with a burst    the burst arrived: NONE
 *
 *   repeat    of packets [again, again_end)            left by
 *   NONE      none is to be repeated
 *   DUE       the first of them is the next packet     sent: SENT or GOES_ON; progress: NONE
 *   GOES_ON   some were, the others are next           the last is sent: SENT; progress: SENT, NONE
 *   SENT      all were; the answer is awaited          it came: NONE; the timer: GOES_ON
 *
 *   credit    the peer's receives (IBTA 9.7.7.2)       left by
 *   UNCOUNTED the peer doesn't count them              an ACK with a count: COUNTED
 *   COUNTED   messages up to `lsn` may be sent         one more begins: LIMITED
 *   LIMITED   a message beyond `lsn` has begun; only   its packet is acknowledged, `lsn` is higher:
 *             its first packet may be sent             COUNTED
 *
 * All of them are fields of struct requester (state.h); the core's caller serialises access
 * (transport.h). Functions that every packet needs are inline here, or in the file that uses them.
 */
#ifndef VERBENA_TRANSPORT_REQUESTER_H
#define VERBENA_TRANSPORT_REQUESTER_H

#include "transport/state.h"

static inline bool fetches_word(const struct tp_request *r)
{
	return r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Whether the answer is a READ's response without bytes. */
static inline bool wants_empty_answer(const struct tp_request *r)
{
	return r->opcode == IBV_WR_ATOMIC_WRITE || r->opcode == IBV_WR_FLUSH;
}

static inline bool wants_answer(const struct tp_request *r)
{
	return r->opcode == IBV_WR_RDMA_READ || fetches_word(r) || wants_empty_answer(r);
}

static inline struct tp_request *request_at(const struct requester *q, uint32_t count)
{
	return &q->ring[count & q->mask];
}

/* The bytes by which packets [from, to) of a request count against the window. */
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

/* The first packet after the READ piece that contains `psn`. */
static inline uint32_t piece_end(const struct tp *tp, const struct tp_request *r, uint32_t psn)
{
	uint32_t packets = TP_READ_PIECE >> tp->mtu_shift;
	uint32_t end = r->first_psn + (psn - r->first_psn) / packets * packets + packets;

	return psn_before(r->last_psn, end) ? r->last_psn + 1 : end;
}

/* Whether packets are to be repeated, and whether some have been. */
static inline bool repeat_is_due(const struct requester *q)
{
	return q->repeat == REPEAT_DUE || q->repeat == REPEAT_GOES_ON;
}

static inline bool repeat_was_sent(const struct requester *q)
{
	return q->repeat == REPEAT_SENT || q->repeat == REPEAT_GOES_ON;
}

static inline void repeat_begin(struct requester *q)
{
	q->repeat = repeat_was_sent(q) ? REPEAT_GOES_ON : REPEAT_DUE;
}

/* Cancels the repetition of packets that haven't been repeated yet. */
static inline void repeat_cut(struct requester *q)
{
	q->repeat = repeat_was_sent(q) ? REPEAT_SENT : REPEAT_NONE;
}

/* Forgets the repeated packets: they have arrived, or their fate doesn't matter any more. */
static inline void repeat_forget_sent(struct requester *q)
{
	q->repeat = repeat_is_due(q) ? REPEAT_DUE : REPEAT_NONE;
}

static inline void requester_timers_off(struct requester *q)
{
	q->timer_at = q->probe_at = q->rnr_until = TP_NEVER;
	q->probes = 0;
	repeat_cut(q);
}

/* requester.c */
/* Fails the oldest request with `status` and stops the requester; the owner flushes the rest. */
void requester_fail_first(struct tp *tp, enum ibv_wc_status status);
/* Completes the oldest request. False: the requester has stopped. */
bool requester_complete_first(struct tp *tp);
/* Starts the timers that don't run; call when packets are in flight. */
void requester_timers_arm(struct tp *tp, uint64_t now);

#endif
