/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester's states, the completion of requests, and its timers; see requester.h.
 *
 * Two timers run while packets are in flight. The program's transport timer has a retry count that
 * ends the QP. The probe timer is much shorter: it repeats the oldest packet alone and asks for an
 * acknowledgement, which says what is missing. So the loss of a window's end costs milliseconds
 * instead of the transport timer, and a peer that is merely slow isn't flooded.
 *
 * Requests are completed, and the owner's events of that are made, only in this file.
 */
#include "transport/requester.h"

#include "base/cpu.h"
#include "transport/repair.h"

enum {
	PROBES_MAX = 10, /* doublings */
	PROCESSOR_WAIT_NS = 12000000,
};

/* ------------------------------------------------------------------ states */

void requester_init(struct tp *tp, struct tp_request *ring, uint32_t places)
{
	tp->requester = (struct requester){
		.ring = ring,
		.mask = places ? places - 1 : 0,
		.unasked_max = places / 4 < TP_UNASKED_MAX ? places / 4 : TP_UNASKED_MAX,
		.timer_at = TP_NEVER,
		.probe_at = TP_NEVER,
		.rnr_until = TP_NEVER,
		.timed_at = TP_NEVER,
		.rewound_at = TP_NEVER,
	};
}

/* 0 acts as 1, as on a ConnectX: otherwise a READ could never begin. */
void requester_limit_answers(struct tp *tp, const struct ibv_qp_attr *attr)
{
	tp->requester.max_answers = attr->max_rd_atomic ? attr->max_rd_atomic : 1;
}

void requester_start(struct tp *tp, const struct ibv_qp_attr *attr)
{
	struct requester *q = &tp->requester;

	q->una = q->next = q->top = q->assigned = attr->sq_psn & PSN_MASK;
	q->ssn = q->msn = 0;
	q->credit = CREDIT_UNCOUNTED;
	requester_limit_answers(tp, attr);
	q->timeout = attr->timeout & 31;
	q->retry_cnt = q->retries = attr->retry_cnt;
	q->rnr_retry = q->rnr_retries = attr->rnr_retry;
	q->repairs_failed = q->wide_holes = 0;
	q->was_near = q->widened = q->flush_doubled = false;
	q->state = REQUESTER_SENDS;
	congestion_start(&tp->congestion);
	tp->pacer = (struct pacer){0};
}

void requester_stop(struct tp *tp)
{
	struct requester *q = &tp->requester;

	q->state = REQUESTER_OFF;
	q->credit = CREDIT_UNCOUNTED;
	q->hole = HOLE_NONE;
	q->repeat = REPEAT_NONE;
	q->arrived = 0;
	q->first = q->cursor = q->begun = q->posted;
	q->una = q->next = q->top = q->assigned;
	q->flight = q->answers_owed = q->open = 0;
	requester_timers_off(q);
}

/* ------------------------------------------------------------------ ends of requests */

void requester_fail_first(struct tp *tp, enum ibv_wc_status status)
{
	event_failed(&tp->events, tp->requester.first, status);
	requester_stop(tp);
	if (tp->type != IBV_QPT_UC) /* UC continues to receive */
		responder_stop(tp, true);
}

static void requester_check_drained(struct tp *tp)
{
	struct requester *q = &tp->requester;

	if (q->state != REQUESTER_DRAINS || q->first != q->begun)
		return;
	q->state = REQUESTER_DRAINED;
	event_drained(&tp->events);
}

void requester_drain(struct tp *tp)
{
	struct requester *q = &tp->requester;

	if (q->state == REQUESTER_OFF || q->state == REQUESTER_BREAKS)
		return;
	q->state = REQUESTER_DRAINS;
	requester_ask(tp);
	requester_check_drained(tp);
}

/* Adds the range of a WRITE that the peer has executed, if it continues or overlaps the known one;
 * otherwise the known range is replaced. Short WRITEs change nothing, since they need no pieces. */
static void accepted_note(struct accepted *a, const struct tp_request *r)
{
	uint64_t from = r->remote_addr, to = from + r->length;

	if (to < from)
		return;
	if (a->rkey != r->rkey || from > a->to || to < a->from)
		*a = (struct accepted){from, to, r->rkey};
	if (from < a->from)
		a->from = from;
	if (to > a->to)
		a->to = to;
}

bool requester_complete_first(struct tp *tp)
{
	struct requester *q = &tp->requester;
	uint32_t count = q->first++;
	const struct tp_request *r = request_at(q, count);

	if (wants_answer(r))
		q->open--;
	if (r->opcode == IBV_WR_RDMA_WRITE && r->first_psn != r->last_psn)
		accepted_note(&q->accepted, r);
	event_completed(&tp->events, count);
	if (unlikely(q->state == REQUESTER_BREAKS) && q->first == q->broken_at)
		requester_fail_first(tp, q->broken_status);
	requester_check_drained(tp);
	return q->state != REQUESTER_OFF;
}

/* ------------------------------------------------------------------ time */

static uint64_t requester_timeout_ns(const struct requester *q)
{
	return 4096ull << q->timeout;
}

/* When the transport timer expires that is started now: between the program's time and four times
 * that (IBTA 9.7.6.1.3). The peer is a process, which at times waits for its processor longer than
 * an adapter would. */
static uint64_t timeout_at(const struct requester *q, uint64_t now)
{
	uint64_t ns = requester_timeout_ns(q);

	if (!q->timeout)
		return TP_NEVER;
	return now + ns + (3 * ns < PROCESSOR_WAIT_NS ? 3 * ns : PROCESSOR_WAIT_NS);
}

/* A probe is sent before the transport timer expires, because that timer ends the QP when few
 * retries are configured. */
static uint64_t probe_ns(const struct tp *tp)
{
	const struct requester *q = &tp->requester;
	uint64_t ns = congestion_patience_ns(&tp->congestion) << q->probes;

	return q->timeout && ns > requester_timeout_ns(q) / 2 ? requester_timeout_ns(q) / 2 : ns;
}

void requester_timers_arm(struct tp *tp, uint64_t now)
{
	struct requester *q = &tp->requester;

	if (q->timer_at == TP_NEVER)
		q->timer_at = timeout_at(q, now);
	if (q->probe_at == TP_NEVER) {
		uint64_t ns = probe_ns(tp);

		q->probe_at = now + ns;
		q->ask_from = now + ns / 4;
	}
}

void requester_ask(struct tp *tp)
{
	struct requester *q = &tp->requester;

	q->ask_before = q->posted;
	/* The messages are sent, and neither a probe nor a loss has packets repeated already. */
	if (q->unasked && q->next != q->una && q->cursor == q->begun && q->repeat == REPEAT_NONE &&
	    q->probe_at != TP_NEVER)
		q->probe_at = q->message_at; /* now or before */
}

void requester_expire(struct tp *tp, uint64_t now)
{
	struct requester *q = &tp->requester;

	pacer_expire(&tp->pacer, &tp->congestion, now);
	if (q->rnr_until <= now)
		q->rnr_until = TP_NEVER;
	if (q->timer_at <= now) {
		tp->counters.timeouts++;
		if (!q->retries) {
			requester_fail_first(tp, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		q->retries--;
		congestion_silence(&tp->congestion, now);
		q->timer_at = timeout_at(q, now);
		q->probe_at = now; /* repeats */
	}
	if (q->probe_at <= now) {
		repair_probe(tp);
		q->probes += q->probes < PROBES_MAX;
	}
}
