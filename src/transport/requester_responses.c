/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the requester handles responses, see requester.h: what an acknowledgement, a NAK, a READ
 * response or an atomic acknowledgement means for the outstanding requests. Each also acknowledges
 * everything before it; a READ or an atomic before it that has no answer yet has lost it.
 *
 * `una` advances here (on UC, which has no responses, it follows `next`), and the peer's credits
 * are noted. repair.c decides what to do about missing packets.
 */
#include <string.h>

#include "base/cpu.h"
#include "transport/repair.h"
#include "transport/requester.h"

/* ------------------------------------------------------------------ acknowledgements */

enum walk { WALK_REACHED, WALK_GAP, WALK_OVER };

/* The peer has everything before `end`: completes the requests that are complete with that, in
 * order. GAP: a READ or an atomic before `end` has no answer, so the answer was lost. OVER: the
 * requester stopped. */
static enum walk requests_acknowledge(struct tp *tp, uint32_t end)
{
	struct requester *q = &tp->requester;

	while (q->first != q->begun && psn_before(q->una, end)) {
		const struct tp_request *r = request_at(q, q->first);

		if (wants_answer(r))
			return WALK_GAP;
		uint32_t to = psn_before(r->last_psn, end) ? r->last_psn + 1 : end;
		uint32_t bytes = bytes_between(tp, r, q->una, to);

		q->flight = q->flight > bytes ? q->flight - bytes : 0;
		q->una = q->acked = to;
		if (to == r->last_psn + 1 && !requester_complete_first(tp))
			return WALK_OVER;
	}
	return WALK_REACHED;
}

/* Updates what depends on progress after `una` moved. `was_una`, `was_flight`: values before
 * that. */
static void requester_progressed(struct tp *tp, uint32_t was_una, uint32_t was_flight, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t bytes = was_flight > q->flight ? was_flight - q->flight : 0;
	bool repeated = repeat_was_sent(q), alone = repeated && q->una == q->repeated_end;

	if (q->una == was_una)
		return;
	q->delivered += bytes;
	q->arrived -= q->arrived < bytes ? q->arrived : bytes;
	if (unlikely(repeated) && !psn_before(q->una, q->repeated_end))
		repeat_forget_sent(q);
	bool repeating = unlikely(q->hole != HOLE_NONE) && repair_arrived(tp, repeated, alone, now);
	if (psn_before(q->next, q->una)) { /* the packet arrived before it was repeated */
		q->next = q->una;
		q->cursor = q->first;
		q->flight = q->answers_owed = 0;
	}
	if (q->timed_at != TP_NEVER && psn_before(q->timed_psn, q->una)) {
		/* `now` may be when the packet was received; another thread may have sent since. */
		if (now > q->timed_at)
			congestion_round_trip(&tp->congestion, now - q->timed_at,
					      q->delivered - q->timed_delivered);
		q->timed_at = TP_NEVER;
	}
	congestion_acknowledged(&tp->congestion, bytes, was_flight >= tp->congestion.window / 2);
	q->retries = q->retry_cnt;
	q->rnr_retries = q->rnr_retry;
	if (q->credit == CREDIT_LIMITED && psn_before(q->limited_psn, q->una))
		q->credit = CREDIT_COUNTED;
	requester_timers_off(q);
	if (q->next == q->una)
		return;
	if (repeating)
		repeat_begin(q);
	/* The peer had received nothing in flight but what was repeated. */
	if (alone && !repeating)
		repair_go_back(tp, 0, now);
	requester_timers_arm(tp, now);
}

/* The peer has everything before `end`. Answers that are missing although they are due are
 * requested again. */
static bool requester_reach(struct tp *tp, uint32_t end, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t was_una = q->una, was_flight = q->flight;
	enum walk walk = requests_acknowledge(tp, end);

	if (unlikely(walk == WALK_OVER))
		return false;
	requester_progressed(tp, was_una, was_flight, now);
	/* Many more answers may follow the missing one. */
	if (unlikely(walk == WALK_GAP))
		repair_go_back(tp, congestion_echo_ns(&tp->congestion), now);
	return walk == WALK_REACHED;
}

/* Updates the limit up to which messages may take receives (IBTA 9.7.7.2.5). */
static void credits_update(struct requester *q, const struct packet *p)
{
	uint8_t code = p->syndrome & AETH_VALUE;

	if (psn_diff(p->msn, q->msn) < 0)
		return;
	q->msn = p->msn;
	if (code == AETH_NO_CREDITS) {
		q->credit = CREDIT_UNCOUNTED;
		return;
	}
	q->lsn = psn_add(p->msn, credits_decode(code));
	if (q->credit == CREDIT_UNCOUNTED || psn_diff(q->ssn, q->lsn) <= 0)
		q->credit = CREDIT_COUNTED;
}

static void on_rnr_nak(struct tp *tp, uint8_t code, uint64_t now)
{
	struct requester *q = &tp->requester;

	tp->counters.rnr_naks++;
	if (q->rnr_until != TP_NEVER || q->next == q->una)
		return;
	if (q->rnr_retry != 7 && !q->rnr_retries) {
		requester_fail_first(tp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	q->rnr_retries -= q->rnr_retry != 7;
	q->retries = q->retry_cnt; /* the peer is alive; the count is for silent peers */
	repair_rewind(tp, now);
	requester_timers_off(q);
	q->rnr_until = now + tp_rnr_ns(code);
}

static void requester_on_nak(struct tp *tp, const struct packet *p, uint64_t now)
{
	switch (p->syndrome & AETH_VALUE) {
	case NAK_SEQUENCE:
		tp->counters.sequence_naks++;
		/* One NAK for each loss; a second one within a round trip is a copy of the
		 * first. */
		repair_missing(tp, tp->congestion.rtt_ns / 2, now);
		return;
	case NAK_INVALID_REQUEST:
		requester_fail_first(tp, IBV_WC_REM_INV_REQ_ERR);
		return;
	case NAK_REMOTE_ACCESS:
		requester_fail_first(tp, IBV_WC_REM_ACCESS_ERR);
		return;
	case NAK_REMOTE_OPERATION:
		requester_fail_first(tp, IBV_WC_REM_OP_ERR);
		return;
	default:
		tp->counters.dropped++;
	}
}

static void on_acknowledge(struct tp *tp, const struct packet *p, uint32_t psn, uint64_t now)
{
	struct requester *q = &tp->requester;

	switch (p->syndrome & AETH_KIND) {
	case AETH_ACK:
		credits_update(q, p);
		requester_reach(tp, psn + 1, now);
		return;
	case AETH_RNR_NAK:
	case AETH_NAK:
		if (!requester_reach(tp, psn, now) || q->una != psn)
			return;
		if ((p->syndrome & AETH_KIND) == AETH_NAK)
			requester_on_nak(tp, p, now);
		else
			on_rnr_nak(tp, p->syndrome & AETH_VALUE, now);
		return;
	default:
		tp->counters.dropped++;
	}
}

/* ------------------------------------------------------------------ answers */

/* Whether the packet is the response that READ piece [.., end) expects at `una`. */
static bool right_read_response(const struct tp *tp, const struct tp_request *r, uint32_t end,
				const struct packet *p)
{
	const struct requester *q = &tp->requester;
	uint8_t operation = packet_operation(p->opcode);
	bool is_end = operation == OP_READ_RESPONSE_LAST || operation == OP_READ_RESPONSE_ONLY;
	uint32_t left = r->length - r->done;

	if (is_end != (q->una + 1 == end))
		return false;
	return p->length == (left < tp->path.mtu ? left : tp->path.mtu);
}

static void requester_answered(struct tp *tp, const struct tp_request *r, uint32_t end,
			       uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t was_una = q->una, was_flight = q->flight;
	uint32_t bytes = bytes_between(tp, r, was_una, was_una + 1);

	q->una++;
	q->flight = q->flight > bytes ? q->flight - bytes : 0;
	if (q->una == end && q->answers_owed)
		q->answers_owed--;
	if (q->una == r->last_psn + 1 && !requester_complete_first(tp))
		return;
	requester_progressed(tp, was_una, was_flight, now);
}

/* A response without bytes, to ATOMIC WRITE or FLUSH. */
static void on_empty_response(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	const struct tp_request *r = request_at(q, q->first);

	if (packet_operation(p->opcode) == OP_READ_RESPONSE_ONLY && !p->length)
		requester_answered(tp, r, r->last_psn + 1, now);
	else
		requester_fail_first(tp, IBV_WC_BAD_RESP_ERR);
}

static void on_read_response(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	struct tp_request *r = request_at(q, q->first);

	if (q->first != q->begun && wants_empty_answer(r)) {
		on_empty_response(tp, p, now);
		return;
	}
	if (q->first == q->begun || r->opcode != IBV_WR_RDMA_READ) {
		tp->counters.dropped++;
		return;
	}
	uint32_t end = piece_end(tp, r, q->una);

	if (unlikely(!right_read_response(tp, r, end, p))) {
		requester_fail_first(tp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (unlikely(!tp->world->deliver(tp->owner, q->first, r->done, p->payload, p->length,
					 q->una == r->last_psn))) {
		requester_fail_first(tp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	r->done += p->length;
	requester_answered(tp, r, end, now);
}

static void on_atomic_acknowledge(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	const struct tp_request *r = request_at(q, q->first);
	uint8_t value[8];

	if (q->first == q->begun || !fetches_word(r)) {
		tp->counters.dropped++;
		return;
	}
	memcpy(value, &p->original, sizeof(value));
	if (unlikely(!tp->world->deliver(tp->owner, q->first, 0, value, sizeof(value), true))) {
		requester_fail_first(tp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	requester_answered(tp, r, r->last_psn + 1, now);
}

void requester_packet(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t psn = psn_widen(p->psn, q->una);
	uint8_t operation = packet_operation(p->opcode);

	bool active = q->state != REQUESTER_OFF;

	if (unlikely(!active || !psn_before(psn, q->top) || psn_before(psn, q->una))) {
		/* A repeated, stale or forged packet. An exception: the newest acknowledgement may
		 * be repeated because receives were posted. Some peers give it the PSN of the
		 * newest answer. */
		bool is_newest = psn + 1 == q->una || psn + 1 == q->acked;

		if (active && is_newest && operation == OP_ACKNOWLEDGE &&
		    (p->syndrome & AETH_KIND) == AETH_ACK) {
			credits_update(q, p);
			repair_kept(tp);
		} else {
			tp->counters.dropped++;
		}
		return;
	}
	if (p->becn)
		congestion_marked(&tp->congestion, now);
	if (operation == OP_ACKNOWLEDGE) {
		on_acknowledge(tp, p, psn, now);
		return;
	}
	/* An answer acknowledges everything before it. */
	if (packet_layout(p->opcode) & HAS_AETH && (p->syndrome & AETH_KIND) == AETH_ACK)
		credits_update(q, p);
	if (!requester_reach(tp, psn, now) || q->una != psn)
		return;
	if (operation == OP_ATOMIC_ACKNOWLEDGE)
		on_atomic_acknowledge(tp, p, now);
	else
		on_read_response(tp, p, now);
}
