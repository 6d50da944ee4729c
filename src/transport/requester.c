/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester (IBTA 9.7.2 to 9.7.7): cuts requests into packets, keeps them until they are
 * acknowledged, and repeats from the oldest one that isn't (go-back-N), or, where the peer keeps
 * what comes after that (early.h), only what is missing: that one alone; if that isn't enough, or
 * holes were large lately, as much as a burst holds. Meanwhile new packets go on.
 *
 *   first          cursor         begun          posted      requests
 *     |  answered in order |  to be sent |  no PSN yet |
 *     una ........... next ............ assigned               packets
 *
 * Going back moves `next` and `cursor` to `una` and `first`; they walk forward again, so no call
 * looks at more requests than it ends or sends.
 *
 * Two timers run while packets are under way: the transport timer of the program (its retry count
 * ends the QP), and the probe's, much shorter: it repeats the oldest packet alone and asks for an
 * acknowledgement. The answer says what is missing there: the end of a window that was lost costs
 * milliseconds and not the transport timer; and a peer that is merely slow isn't flooded.
 */
#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "transport/state.h"

enum {
	PROBES_MAX = 10, /* doublings */
	PROCESSOR_WAIT_NS = 12000000,
};

/* ------------------------------------------------------------------ what opcodes are */

static bool wants_answer(const struct tp_request *r)
{
	return r->opcode == IBV_WR_RDMA_READ || r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool wants_receive(const struct tp_request *r)
{
	return r->opcode == IBV_WR_SEND || r->opcode == IBV_WR_SEND_WITH_IMM ||
	       r->opcode == IBV_WR_SEND_WITH_INV || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static struct tp_request *request_at(const struct requester *q, uint32_t count)
{
	return &q->ring[count & q->mask];
}

/* What packets [from, to) of a request cost the window. */
static uint32_t bytes_between(const struct tp *tp, const struct tp_request *r, uint32_t from,
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
static uint32_t piece_end(const struct tp *tp, const struct tp_request *r, uint32_t psn)
{
	uint32_t packets = TP_READ_PIECE >> tp->mtu_shift;
	uint32_t end = r->first_psn + (psn - r->first_psn) / packets * packets + packets;

	return psn_before(r->last_psn, end) ? r->last_psn + 1 : end;
}

/* ------------------------------------------------------------------ states */

void requester_init(struct tp *tp, struct tp_request *ring, uint32_t places)
{
	tp->requester = (struct requester){
		.ring = ring,
		.mask = places ? places - 1 : 0,
		.timer_at = TP_NEVER,
		.probe_at = TP_NEVER,
		.rnr_until = TP_NEVER,
	};
}

/* 0 works as 1, as with a ConnectX: a request that can never begin helps nobody. */
void requester_limit_answers(struct tp *tp, const struct ibv_qp_attr *attr)
{
	tp->requester.max_answers = attr->max_rd_atomic ? attr->max_rd_atomic : 1;
}

void requester_start(struct tp *tp, const struct ibv_qp_attr *attr)
{
	struct requester *q = &tp->requester;

	q->una = q->next = q->top = q->assigned = attr->sq_psn & PSN_MASK;
	q->ssn = q->msn = 0;
	q->counted = q->limited = false;
	requester_limit_answers(tp, attr);
	q->timeout = attr->timeout & 31;
	q->retry_cnt = q->retries = attr->retry_cnt;
	q->rnr_retry = q->rnr_retries = attr->rnr_retry;
	q->repairs_failed = q->wide_holes = 0;
	q->was_near = q->widened = false;
	q->active = true;
	congestion_start(&tp->congestion);
	tp->pacer = (struct pacer){0};
}

static void timers_off(struct requester *q)
{
	q->timer_at = q->probe_at = q->rnr_until = TP_NEVER;
	q->probes = 0;
	q->probe_due = false;
}

void requester_stop(struct tp *tp)
{
	struct requester *q = &tp->requester;

	q->active = q->draining = q->broken = q->limited = q->probed = q->repairing = false;
	q->arrived = 0;
	q->first = q->cursor = q->begun = q->posted;
	q->una = q->next = q->top = q->assigned;
	q->flight = q->answers_owed = q->open = 0;
	timers_off(q);
}

/* The oldest request fails, and with it the rest. */
static void fail_first(struct tp *tp, enum ibv_wc_status status)
{
	uint32_t count = tp->requester.first;

	requester_stop(tp);
	tp->world->complete(tp->owner, count, status);
}

void requester_check_drained(struct tp *tp)
{
	struct requester *q = &tp->requester;

	if (!q->draining || q->drained_told || q->first != q->begun)
		return;
	q->drained_told = true;
	tp->world->drained(tp->owner);
}

/* The oldest request is over. False: the requester isn't there any more. */
static bool complete_first(struct tp *tp)
{
	struct requester *q = &tp->requester;
	uint32_t count = q->first++;

	if (wants_answer(request_at(q, count)))
		q->open--;
	tp->world->complete(tp->owner, count, IBV_WC_SUCCESS);
	if (q->active && q->broken && q->first == q->broken_at)
		fail_first(tp, q->broken_status);
	if (q->active)
		requester_check_drained(tp);
	return q->active;
}

/* ------------------------------------------------------------------ going back */

static void rewind_to_una(struct tp *tp, uint64_t now)
{
	struct requester *q = &tp->requester;

	q->next = q->una;
	q->cursor = q->first;
	q->flight = q->answers_owed = q->arrived = 0;
	q->asked = UINT32_MAX / 2; /* the next packet asks for an acknowledgement */
	q->timing = false;
	q->probe_at = TP_NEVER; /* from the next packet on */
	q->probe_due = q->probed = q->repairing = false;
	q->rewound = true;
	q->rewound_psn = q->una;
	q->rewound_at = now;
}

/* Whether news that packet `una` is missing is news: it may have been under way for `echo_ns` when
 * we went back the last time. */
static bool is_loss(const struct requester *q, uint64_t echo_ns, uint64_t now)
{
	if (q->next == q->una || q->rnr_until != TP_NEVER)
		return false;
	return !q->rewound || q->rewound_psn != q->una || now - q->rewound_at >= echo_ns;
}

static void go_back(struct tp *tp, uint64_t echo_ns, uint64_t now)
{
	if (!is_loss(&tp->requester, echo_ns, now))
		return;
	rewind_to_una(tp, now);
	congestion_loss(&tp->congestion, tp->path.mtu, true, now);
}

/* Packets of a burst. */
static uint32_t hole_max(const struct tp *tp)
{
	return (uint32_t)TP_BURST >> tp->mtu_shift;
}

/* `una`, and what follows it up to a burst's end if `wide`, goes out again next. */
static void repeat(struct tp *tp, bool wide)
{
	struct requester *q = &tp->requester;

	q->probe_due = true;
	q->probe_at = TP_NEVER; /* from when it is sent */
	q->again = q->una;
	q->again_of = q->first;
	q->again_end = q->una + (wide ? hole_max(tp) : 1);
}

/* Packet `una` is missing there. What is further ahead of it than the peer can keep has been
 * dropped or will be: it is sent again, from there on. */
static void send_unkept(struct tp *tp)
{
	struct requester *q = &tp->requester;
	uint32_t end = q->una + early_room(tp->path.mtu), count = q->first, bytes = 0;

	if (!psn_before(end, q->next) || q->open)
		return;
	for (uint32_t at = q->una; at != end;) {
		const struct tp_request *r = request_at(q, count);
		uint32_t to = psn_before(r->last_psn, end) ? r->last_psn + 1 : end;

		bytes += bytes_between(tp, r, at, to);
		count += to == r->last_psn + 1;
		at = to;
	}
	q->next = end;
	q->cursor = count;
	q->flight = bytes;
}

static void repeat_hole(struct tp *tp, bool wide, uint64_t now)
{
	struct requester *q = &tp->requester;

	send_unkept(tp);
	repeat(tp, wide);
	q->repairing = true;
	q->wide = wide;
	q->timing = false;
	q->rewound = true;
	q->rewound_psn = q->una;
	q->rewound_at = now;
}

/* Whether `una` belongs to what was repeated, or will be, but not first. */
static bool repeated_lately(const struct requester *q, uint64_t echo_ns, uint64_t now)
{
	return q->repairing && q->wide && psn_before(q->una, q->again_end) &&
	       now - q->rewound_at < echo_ns;
}

/* The peer has got later packets than `una`. If it keeps them, `una` is all that it needs: we
 * repeat that, go on with what is new, and see from the acknowledgement whether that was right
 * (repaired). Answers are found missing here, not there: for those we go back. */
static void repair(struct tp *tp, uint64_t echo_ns, uint64_t now)
{
	struct requester *q = &tp->requester;

	if (q->repairs_failed >= TP_REPAIRS_MAX || wants_answer(request_at(q, q->first))) {
		go_back(tp, echo_ns, now);
		return;
	}
	if (!is_loss(q, echo_ns, now) || repeated_lately(q, echo_ns, now))
		return;
	repeat_hole(tp, q->wide_holes, now);
	q->wide_holes -= q->wide;
	congestion_loss(&tp->congestion, (q->again_end - q->again) << tp->mtu_shift, false, now);
}

/* What the last hole lets expect of the next ones: as large, or many near to each other. */
static void expect_holes(struct tp *tp, bool widened)
{
	struct requester *q = &tp->requester;
	bool is_near = q->una - q->rewound_psn < hole_max(tp);

	if (widened)
		q->wide_holes = TP_WIDE_HOLES;
	else if (is_near && q->was_near && !q->wide_holes)
		q->wide_holes = 1;
	q->was_near = is_near;
}

/* What was missing has arrived; `probed`: because it was repeated, which hadn't happened yet else;
 * `alone`: and nothing after it had. That may be because more is missing: then that is repeated,
 * and the answer is true. */
static bool repaired(struct tp *tp, bool probed, bool alone, uint64_t now)
{
	struct requester *q = &tp->requester;
	bool was_wide = q->wide, was_widened = q->widened;

	if (probed && (q->probed || (alone && q->probe_due)))
		return q->probe_due; /* the rest of it is on its way, or to come */
	q->repairing = q->wide = q->widened = false;
	if (!probed)
		return false;
	if (alone && !was_wide && q->next != q->una && !wants_answer(request_at(q, q->first))) {
		repeat_hole(tp, true, now);
		q->widened = true;
		return true;
	}
	if (!alone) {
		q->repairs_failed = 0;
		expect_holes(tp, was_widened);
	} else if (q->repairs_failed < TP_REPAIRS_MAX) {
		q->repairs_failed++;
	}
	return false;
}

/* While a packet is missing there, the peer acknowledges the one before it again as others arrive:
 * those aren't under way any more, and as much that is new may be. Not more than it can keep. */
static void kept_there(struct tp *tp)
{
	struct requester *q = &tp->requester;

	if (!q->repairing || q->repairs_failed)
		return;
	q->arrived += q->ask_span;
	if (q->arrived > tp->congestion.window)
		q->arrived = tp->congestion.window;
}

static uint64_t timeout_ns(const struct requester *q)
{
	return 4096ull << q->timeout;
}

/* When the transport timer ends that begins now: between the program's time and four times that
 * (IBTA 9.7.6.1.3): the peer is a process, which at times waits for its processor longer than a
 * card ever would. */
static uint64_t timeout_at(const struct requester *q, uint64_t now)
{
	uint64_t ns = timeout_ns(q);

	if (!q->timeout)
		return TP_NEVER;
	return now + ns + (3 * ns < PROCESSOR_WAIT_NS ? 3 * ns : PROCESSOR_WAIT_NS);
}

/* A probe goes out before the transport timer ends: with few retries that ends the QP. */
static uint64_t probe_ns(const struct tp *tp)
{
	const struct requester *q = &tp->requester;
	uint64_t ns = congestion_patience_ns(&tp->congestion) << q->probes;

	return q->timeout && ns > timeout_ns(q) / 2 ? timeout_ns(q) / 2 : ns;
}

static void timers_arm(struct tp *tp, uint64_t now)
{
	struct requester *q = &tp->requester;

	if (q->timer_at == TP_NEVER)
		q->timer_at = timeout_at(q, now);
	if (q->probe_at == TP_NEVER)
		q->probe_at = now + probe_ns(tp);
}

/* ------------------------------------------------------------------ acknowledgements */

enum walk { WALK_REACHED, WALK_GAP, WALK_OVER };

/* The peer has everything before `end`. Completes what is complete with that, in order. GAP: a READ
 * or an atomic before it has no answer, which has been lost, then. OVER: the requester stopped. */
static enum walk acknowledge(struct tp *tp, uint32_t end)
{
	struct requester *q = &tp->requester;

	while (q->first != q->begun && psn_before(q->una, end)) {
		const struct tp_request *r = request_at(q, q->first);

		if (wants_answer(r))
			return WALK_GAP;
		uint32_t to = psn_before(r->last_psn, end) ? r->last_psn + 1 : end;
		uint32_t bytes = bytes_between(tp, r, q->una, to);

		q->flight = q->flight > bytes ? q->flight - bytes : 0;
		q->una = to;
		if (to == r->last_psn + 1 && !complete_first(tp))
			return WALK_OVER;
	}
	return WALK_REACHED;
}

/* After `una` moved: what depends on progress. `was`: una and flight before. */
static void progressed(struct tp *tp, uint32_t was_una, uint32_t was_flight, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t bytes = was_flight > q->flight ? was_flight - q->flight : 0;
	bool probed = q->probed, alone = probed && q->una == q->probed_end;

	if (q->una == was_una)
		return;
	q->delivered += bytes;
	q->arrived -= q->arrived < bytes ? q->arrived : bytes;
	q->probed = probed && psn_before(q->una, q->probed_end);
	bool repeating = unlikely(q->repairing) && repaired(tp, probed, alone, now);
	if (psn_before(q->next, q->una)) { /* it came after all, before it was repeated */
		q->next = q->una;
		q->cursor = q->first;
		q->flight = q->answers_owed = 0;
	}
	if (q->timing && psn_before(q->timed_psn, q->una)) {
		q->timing = false;
		/* `now` may be when the packet was taken in, and another thread have sent since. */
		if (now > q->timed_at)
			congestion_round_trip(&tp->congestion, now - q->timed_at,
					      q->delivered - q->timed_delivered);
	}
	congestion_acknowledged(&tp->congestion, bytes, was_flight >= tp->congestion.window / 2);
	q->retries = q->retry_cnt;
	q->rnr_retries = q->rnr_retry;
	q->limited = q->limited && !psn_before(q->limited_psn, q->una);
	timers_off(q);
	if (q->next == q->una)
		return;
	q->probe_due = repeating;
	/* Of all that is under way the peer had no more than what was repeated. */
	if (alone && !repeating)
		go_back(tp, 0, now);
	timers_arm(tp, now);
}

/* Everything before `end` is there; what isn't although it ought to be, is asked for again. */
static bool reach(struct tp *tp, uint32_t end, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t was_una = q->una, was_flight = q->flight;
	enum walk walk = acknowledge(tp, end);

	if (unlikely(walk == WALK_OVER))
		return false;
	progressed(tp, was_una, was_flight, now);
	/* A whole stream of answers may follow the one that is missing. */
	if (unlikely(walk == WALK_GAP))
		go_back(tp, congestion_echo_ns(&tp->congestion), now);
	return walk == WALK_REACHED;
}

/* The limit up to which messages may take receives (IBTA 9.7.7.2.5). */
static void credits_update(struct requester *q, const struct packet *p)
{
	uint8_t code = p->syndrome & AETH_VALUE;

	if (psn_diff(p->msn, q->msn) < 0)
		return;
	q->msn = p->msn;
	q->counted = code != AETH_NO_CREDITS;
	if (q->counted)
		q->lsn = psn_add(p->msn, credits_decode(code));
	if (!q->counted || psn_diff(q->ssn, q->lsn) <= 0)
		q->limited = false;
}

static void on_rnr_nak(struct tp *tp, uint8_t code, uint64_t now)
{
	struct requester *q = &tp->requester;

	tp->counters.rnr_naks++;
	if (q->rnr_until != TP_NEVER || q->next == q->una)
		return;
	if (q->rnr_retry != 7 && !q->rnr_retries) {
		fail_first(tp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	q->rnr_retries -= q->rnr_retry != 7;
	q->retries = q->retry_cnt; /* the peer is there: this isn't what that counts */
	rewind_to_una(tp, now);
	timers_off(q);
	q->rnr_until = now + tp_rnr_ns(code);
}

static void on_nak(struct tp *tp, const struct packet *p, uint64_t now)
{
	switch (p->syndrome & AETH_VALUE) {
	case NAK_SEQUENCE:
		tp->counters.sequence_naks++;
		/* One for each loss; sooner than in a round trip it is a copy of the last one. */
		repair(tp, tp->congestion.rtt_ns / 2, now);
		return;
	case NAK_INVALID_REQUEST:
		fail_first(tp, IBV_WC_REM_INV_REQ_ERR);
		return;
	case NAK_REMOTE_ACCESS:
		fail_first(tp, IBV_WC_REM_ACCESS_ERR);
		return;
	case NAK_REMOTE_OPERATION:
		fail_first(tp, IBV_WC_REM_OP_ERR);
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
		reach(tp, psn + 1, now);
		return;
	case AETH_RNR_NAK:
	case AETH_NAK:
		if (!reach(tp, psn, now) || q->una != psn)
			return;
		if ((p->syndrome & AETH_KIND) == AETH_NAK)
			on_nak(tp, p, now);
		else
			on_rnr_nak(tp, p->syndrome & AETH_VALUE, now);
		return;
	default:
		tp->counters.dropped++;
	}
}

/* ------------------------------------------------------------------ answers */

/* Whether the packet is what the answer to piece [.., end) has at `una`. */
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

static void answered(struct tp *tp, const struct tp_request *r, uint32_t end, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t was_una = q->una, was_flight = q->flight;
	uint32_t bytes = bytes_between(tp, r, was_una, was_una + 1);

	q->una++;
	q->flight = q->flight > bytes ? q->flight - bytes : 0;
	if (q->una == end && q->answers_owed)
		q->answers_owed--;
	if (q->una == r->last_psn + 1 && !complete_first(tp))
		return;
	progressed(tp, was_una, was_flight, now);
}

static void on_read_response(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	struct tp_request *r = request_at(q, q->first);

	if (q->first == q->begun || r->opcode != IBV_WR_RDMA_READ) {
		tp->counters.dropped++;
		return;
	}
	uint32_t end = piece_end(tp, r, q->una);

	if (unlikely(!right_read_response(tp, r, end, p))) {
		fail_first(tp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (unlikely(!tp->world->deliver(tp->owner, q->first, r->done, p->payload, p->length,
					 q->una == r->last_psn))) {
		if (q->active)
			fail_first(tp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (unlikely(!q->active))
		return;
	r->done += p->length;
	answered(tp, r, end, now);
}

static void on_atomic_acknowledge(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	const struct tp_request *r = request_at(q, q->first);
	uint8_t value[8];

	if (q->first == q->begun || !wants_answer(r) || r->opcode == IBV_WR_RDMA_READ) {
		tp->counters.dropped++;
		return;
	}
	memcpy(value, &p->original, sizeof(value));
	if (unlikely(!tp->world->deliver(tp->owner, q->first, 0, value, sizeof(value), true))) {
		if (q->active)
			fail_first(tp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (q->active)
		answered(tp, r, r->last_psn + 1, now);
}

void requester_packet(struct tp *tp, const struct packet *p, uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t psn = psn_widen(p->psn, q->una);
	uint8_t operation = packet_operation(p->opcode);

	if (unlikely(!q->active || !psn_before(psn, q->top) || psn_before(psn, q->una))) {
		/* Repeated, stale or made up; but the newest acknowledgement may come again
		 * because there are receives now. */
		if (q->active && psn + 1 == q->una && operation == OP_ACKNOWLEDGE &&
		    (p->syndrome & AETH_KIND) == AETH_ACK) {
			credits_update(q, p);
			kept_there(tp);
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
	/* An answer says that all before it was executed. */
	if (packet_layout(p->opcode) & HAS_AETH && (p->syndrome & AETH_KIND) == AETH_ACK)
		credits_update(q, p);
	if (!reach(tp, psn, now) || q->una != psn)
		return;
	if (operation == OP_ATOMIC_ACKNOWLEDGE)
		on_atomic_acknowledge(tp, p, now);
	else
		on_read_response(tp, p, now);
}

/* ------------------------------------------------------------------ time */

void requester_expire(struct tp *tp, uint64_t now)
{
	struct requester *q = &tp->requester;

	pacer_expire(&tp->pacer, &tp->congestion, now);
	if (q->rnr_until <= now)
		q->rnr_until = TP_NEVER;
	if (q->timer_at <= now) {
		tp->counters.timeouts++;
		if (!q->retries) {
			fail_first(tp, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		q->retries--;
		congestion_silence(&tp->congestion, now);
		q->timer_at = timeout_at(q, now);
		q->probe_at = now; /* repeats */
	}
	if (q->probe_at <= now) {
		repeat(tp, q->repairing && q->wide);
		q->probes += q->probes < PROBES_MAX;
	}
}

/* ------------------------------------------------------------------ sending */

static bool has_credit(const struct requester *q)
{
	if (!q->counted || q->first == q->begun)
		return true;
	/* One message more than there are receives, as far as its first packet. */
	return psn_diff(psn_add(q->ssn, 1), q->lsn) <= !q->limited;
}

/* Whether request `begun` may begin. */
static bool may_begin(const struct requester *q)
{
	if (q->begun == q->posted || q->draining)
		return false;
	const struct tp_request *r = request_at(q, q->begun);

	if ((r->flags & TP_FENCE) && q->open)
		return false;
	return !wants_receive(r) || has_credit(q);
}

static bool probe_pending(const struct requester *q)
{
	return q->probe_due && q->first != q->begun && q->next != q->una;
}

/* Whether the window has room: for a packet, or, after it was full, for a burst, or
 * acknowledgements would cut what follows into small ones. A quarter is enough, since an
 * acknowledgement is asked for with each (asks): so one is always on its way that opens it. */
static bool has_room(const struct tp *tp)
{
	const struct requester *q = &tp->requester;
	uint32_t window = tp->congestion.window;
	uint32_t burst = window / 4 < TP_BURST ? window / 4 : TP_BURST;

	return q->flight < window && !(q->closed && !q->arrived && q->flight + burst > window);
}

/* The window is full. While a packet is missing there: of others only. */
static bool may_go_on(const struct tp *tp)
{
	const struct requester *q = &tp->requester;

	return q->arrived && q->flight - tp->congestion.window < q->arrived &&
	       psn_before(q->next, q->una + early_room(tp->path.mtu));
}

/* Whether there is a packet that may go out now, but for the pacer. */
static bool may_go_out(const struct tp *tp)
{
	const struct requester *q = &tp->requester;

	if (tp->type == IBV_QPT_RC && !has_room(tp) && !may_go_on(tp))
		return false;
	if (q->cursor == q->begun && !may_begin(q))
		return false;
	if (unlikely(q->broken && q->cursor == q->broken_at))
		return false;
	if (unlikely(q->limited && psn_before(q->limited_psn, q->next)))
		return false;
	return !wants_answer(request_at(q, q->cursor)) || q->answers_owed < q->max_answers;
}

bool requester_may_send(const struct tp *tp, uint64_t now)
{
	const struct requester *q = &tp->requester;

	if (!q->active || (q->rnr_until != TP_NEVER && now < q->rnr_until))
		return false;
	if (unlikely(probe_pending(q)))
		return true;
	return may_go_out(tp) && likely(!pacer_holds(&tp->pacer, &tp->congestion, now));
}

uint64_t requester_deadline(const struct tp *tp)
{
	const struct requester *q = &tp->requester;
	uint64_t at = q->timer_at < q->probe_at ? q->timer_at : q->probe_at;

	if (q->rnr_until < at)
		at = q->rnr_until;
	/* While the pacer is what holds. */
	if (unlikely(pacer_holds(&tp->pacer, &tp->congestion, 0)) && tp->pacer.at < at &&
	    q->active && q->rnr_until == TP_NEVER && may_go_out(tp))
		at = tp->pacer.at;
	return at;
}

/* A READ is one packet, or a few. */
static uint32_t packets_to_send(const struct tp *tp, const struct tp_request *r)
{
	return wants_answer(r) ? 1 : packets_of(tp, r->length);
}

uint32_t requester_unsent(const struct tp *tp, uint32_t enough)
{
	const struct requester *q = &tp->requester;
	uint32_t n = 0, count = q->cursor;

	if (count != q->begun && !wants_answer(request_at(q, count)))
		n = request_at(q, count++)->last_psn + 1 - q->next;
	for (; count != q->posted && n < enough; count++)
		n += packets_to_send(tp, request_at(q, count));
	return n < enough ? n : enough;
}

/* Gives request `begun` its PSNs. */
static void begin(struct tp *tp)
{
	struct requester *q = &tp->requester;
	struct tp_request *r = request_at(q, q->begun++);
	uint32_t messages = 1;

	if (r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		r->length = 8;
	r->done = 0;
	r->first_psn = q->assigned;
	r->last_psn = q->assigned + packets_of(tp, r->length) - 1;
	q->assigned = r->last_psn + 1;
	q->open += wants_answer(r);
	if (r->opcode == IBV_WR_RDMA_READ && r->length)
		messages = (uint32_t)(((uint64_t)r->length + TP_READ_PIECE - 1) / TP_READ_PIECE);
	q->ssn = psn_add(q->ssn, messages);
	if (q->counted && wants_receive(r) && psn_diff(q->ssn, q->lsn) > 0) {
		q->limited = true;
		q->limited_psn = r->first_psn;
		tp->counters.credit_waits++;
	}
}

static uint8_t message_operation(const struct tp_request *r, bool is_first, bool is_last)
{
	bool is_write = r->opcode == IBV_WR_RDMA_WRITE || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool has_imm = r->opcode == IBV_WR_SEND_WITH_IMM || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t base = is_write ? OP_WRITE_FIRST : OP_SEND_FIRST;

	if (!is_last)
		return base + (is_first ? 0 : OP_SEND_MIDDLE);
	if (r->opcode == IBV_WR_SEND_WITH_INV)
		return is_first ? OP_SEND_ONLY_INVALIDATE : OP_SEND_LAST_INVALIDATE;
	return base + (is_first ? OP_SEND_ONLY : OP_SEND_LAST) + has_imm;
}

/* Packet `psn` of a SEND or a WRITE. 0: its payload can't be fetched. */
static uint32_t build_message(struct tp *tp, uint32_t count, uint32_t psn, struct packet *p,
			      uint8_t *to)
{
	const struct tp_request *r = request_at(&tp->requester, count);
	uint32_t offset = (psn - r->first_psn) << tp->mtu_shift;
	bool is_last = psn == r->last_psn;

	p->opcode = tp->transport | message_operation(r, psn == r->first_psn, is_last);
	p->length = is_last ? r->length - offset : tp->path.mtu;
	p->solicited = is_last && (r->flags & TP_SOLICITED);
	p->addr = r->remote_addr;
	p->rkey = r->rkey;
	p->dma_length = r->length;
	p->imm = r->imm;
	uint32_t headers = packet_encode(p, to);

	if (p->length && !tp->world->fetch(tp->owner, count, offset, to + headers, p->length))
		return 0;
	memset(to + headers + p->length, 0, packet_padding(p->length));
	return headers + p->length + packet_padding(p->length);
}

static uint32_t build_read(const struct tp *tp, const struct tp_request *r, uint32_t psn,
			   struct packet *p, uint8_t *to)
{
	uint32_t offset = (psn - r->first_psn) << tp->mtu_shift;
	uint64_t end = (uint64_t)(piece_end(tp, r, psn) - r->first_psn) << tp->mtu_shift;

	p->opcode = tp->transport | OP_READ_REQUEST;
	p->addr = r->remote_addr + offset;
	p->rkey = r->rkey;
	p->dma_length = (uint32_t)(end < r->length ? end : r->length) - offset;
	return packet_encode(p, to);
}

static uint32_t build_atomic(const struct tp *tp, const struct tp_request *r, struct packet *p,
			     uint8_t *to)
{
	bool is_swap = r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	p->opcode = tp->transport | (is_swap ? OP_COMPARE_SWAP : OP_FETCH_ADD);
	p->addr = r->remote_addr;
	p->rkey = r->rkey;
	p->swap_add = is_swap ? r->swap : r->compare_add;
	p->compare = is_swap ? r->compare_add : 0;
	return packet_encode(p, to);
}

/* Packet `psn`, of request `count`. *after: the PSN after what it stands for. */
static uint32_t build(struct tp *tp, uint32_t count, uint32_t psn, bool ask, uint8_t *to,
		      uint32_t *after)
{
	const struct tp_request *r = request_at(&tp->requester, count);
	struct packet p = {
		.pkey = tp->path.pkey,
		.dest_qpn = tp->path.remote_qpn,
		.psn = psn & PSN_MASK,
		.ack_request = ask,
	};

	*after = psn + 1;
	if (!wants_answer(r))
		return build_message(tp, count, psn, &p, to);
	p.ack_request = true;
	if (r->opcode != IBV_WR_RDMA_READ)
		return build_atomic(tp, r, &p, to);
	*after = piece_end(tp, r, psn);
	return build_read(tp, r, psn, &p, to);
}

/* The request's memory isn't there, or isn't right for it: it fails when it is the oldest. */
static uint32_t break_at(struct tp *tp, uint32_t count, enum ibv_wc_status status)
{
	struct requester *q = &tp->requester;

	if (!q->active)
		return 0;
	q->broken = true;
	q->broken_at = count;
	q->broken_status = status;
	if (count == q->first)
		fail_first(tp, status);
	return 0;
}

/* Whether packet `psn` asks for an acknowledgement: the last of a message; some on the way, so that
 * the window never stands still for want of one. */
static bool asks(const struct tp *tp, const struct tp_request *r, uint32_t psn)
{
	const struct requester *q = &tp->requester;

	return psn == r->last_psn || (q->limited && psn == q->limited_psn) ||
	       q->asked + tp->path.mtu >= tp->congestion.window / 4;
}

/* An acknowledgement is asked for again: how much goes between two of them? */
static void note_span(struct requester *q)
{
	if (q->asked > TP_WINDOW_MAX) /* the first one after going back says nothing */
		q->asked = q->ask_span;
	if (!q->ask_span)
		q->ask_span = q->asked;
	else
		q->ask_span += ((int32_t)q->asked - (int32_t)q->ask_span) / 8;
	q->asked = 0;
}

static void sent(struct tp *tp, const struct tp_request *r, uint32_t after, bool asked,
		 uint64_t now)
{
	struct requester *q = &tp->requester;
	uint32_t bytes = bytes_between(tp, r, q->next, after);

	q->flight += bytes;
	q->closed = q->flight >= tp->congestion.window;
	q->asked += bytes;
	if (asked)
		note_span(q);
	q->answers_owed += wants_answer(r);
	if (unlikely(pacer_runs(&tp->congestion)) && !wants_answer(r))
		pacer_sent(&tp->pacer, &tp->congestion, bytes, now);
	if (psn_before(q->next, q->top)) {
		tp->counters.resent++;
	} else if (asked && !q->timing && !q->repairing) {
		q->timing = true;
		q->timed_psn = q->next;
		q->timed_at = now;
		q->timed_delivered = q->delivered;
	}
	q->next = after;
	if (psn_before(q->top, after))
		q->top = after;
	if (after == r->last_psn + 1)
		q->cursor++;
	timers_arm(tp, now);
}

/* UC: nothing comes back, so what was handed out is over. */
static void sent_unacknowledged(struct tp *tp)
{
	struct requester *q = &tp->requester;

	q->una = q->next;
	q->flight = 0;
	timers_off(q);
	q->timing = false;
	if (q->cursor != q->first)
		complete_first(tp);
}

/* Whether nothing of [again, again_end) follows packet `again`. */
static bool is_last_again(const struct requester *q)
{
	uint32_t after = q->again + 1;

	if (after == q->again_end || !psn_before(after, q->next))
		return true;
	return after == request_at(q, q->again_of)->last_psn + 1 &&
	       wants_answer(request_at(q, q->again_of + 1));
}

static uint32_t send_probe(struct tp *tp, uint64_t now, uint8_t *to)
{
	struct requester *q = &tp->requester;

	if (psn_before(q->again, q->una)) {
		q->again = q->una;
		q->again_of = q->first;
	}
	bool last = wants_answer(request_at(q, q->again_of)) || is_last_again(q);
	uint32_t count = q->again_of;
	uint32_t size = build(tp, count, q->again, last, to, &q->again);

	if (!size || !q->active)
		return break_at(tp, count, IBV_WC_LOC_PROT_ERR);
	q->again_of += q->again == request_at(q, count)->last_psn + 1;
	q->probe_due = !last;
	q->probed = true;
	q->probed_end = q->again;
	tp->counters.resent++;
	timers_arm(tp, now);
	return size;
}

uint32_t requester_next(struct tp *tp, uint64_t now, uint8_t *to)
{
	struct requester *q = &tp->requester;
	uint32_t after;

	if (!requester_may_send(tp, now))
		return 0;
	q->rnr_until = TP_NEVER;
	if (unlikely(probe_pending(q)))
		return send_probe(tp, now, to);
	bool begins = q->cursor == q->begun;

	if (begins)
		begin(tp);
	const struct tp_request *r = request_at(q, q->cursor);

	/* What takes an answer isn't fetched, so nobody has looked at its memory yet. */
	if (begins && wants_answer(r)) {
		enum ibv_wc_status status = tp->world->check(tp->owner, q->cursor);

		if (unlikely(status != IBV_WC_SUCCESS))
			return break_at(tp, q->cursor, status);
	}
	bool ask = asks(tp, r, q->next) && tp->type == IBV_QPT_RC;
	uint32_t size = build(tp, q->cursor, q->next, ask, to, &after);

	if (unlikely(!size || !q->active))
		return break_at(tp, q->cursor, IBV_WC_LOC_PROT_ERR);
	sent(tp, r, after, ask || wants_answer(r), now);
	if (tp->type == IBV_QPT_UC)
		sent_unacknowledged(tp);
	return size;
}
