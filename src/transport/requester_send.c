/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the requester sends, see requester.h: which packets may be sent, and when (the window, the
 * peer's credits, fences, the pacer); cutting requests into packets; what is noted about each
 * packet sent. Packets that repair.c wants repeated go first.
 *
 * Requests get their PSNs, and `next` advances, in this file.
 */
#include <string.h>

#include "base/cpu.h"
#include "transport/requester.h"

static bool wants_receive(const struct tp_request *r)
{
	return r->opcode == IBV_WR_SEND || r->opcode == IBV_WR_SEND_WITH_IMM ||
	       r->opcode == IBV_WR_SEND_WITH_INV || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* ------------------------------------------------------------------ what may go out */

static bool has_credit(const struct requester *q)
{
	if (q->credit == CREDIT_UNCOUNTED || q->first == q->begun)
		return true;
	/* One message more than there are receives may begin, but only its first packet. */
	return psn_diff(psn_add(q->ssn, 1), q->lsn) <= (q->credit != CREDIT_LIMITED);
}

/* Whether request `begun` may begin. */
static bool may_begin(const struct requester *q)
{
	if (q->begun == q->posted || q->state != REQUESTER_SENDS)
		return false;
	const struct tp_request *r = request_at(q, q->begun);

	if ((r->flags & TP_FENCE) && q->open)
		return false;
	return !wants_receive(r) || has_credit(q);
}

static bool probe_pending(const struct requester *q)
{
	return repeat_is_due(q) && q->first != q->begun && q->next != q->una;
}

/* Whether the window has room: for a packet, or, after the window was full, for a burst; otherwise
 * each acknowledgement would release one small burst. A quarter of the window is enough, since an
 * acknowledgement is requested for each quarter (request_asks_ack), so one that opens the window is
 * always in flight. */
static bool requester_has_room(const struct tp *tp)
{
	const struct requester *q = &tp->requester;
	uint32_t window = tp->congestion.window;
	uint32_t burst = window / 4 < TP_BURST ? window / 4 : TP_BURST;

	return q->flight < window && !(q->closed && !q->arrived && q->flight + burst > window);
}

/* The window is full. While a packet is missing, bytes that the peer is seen to keep make room for
 * new packets. */
static bool may_go_on(const struct tp *tp)
{
	const struct requester *q = &tp->requester;

	return q->arrived && q->flight - tp->congestion.window < q->arrived &&
	       psn_before(q->next, q->una + early_room(tp->path.mtu));
}

/* Whether a packet may be sent now, apart from the pacer. */
static bool may_go_out(const struct tp *tp)
{
	const struct requester *q = &tp->requester;

	if (tp->type != IBV_QPT_UC && !requester_has_room(tp) && !may_go_on(tp))
		return false;
	if (q->cursor == q->begun && !may_begin(q))
		return false;
	if (unlikely(q->state == REQUESTER_BREAKS && (int32_t)(q->cursor - q->broken_at) >= 0))
		return false;
	if (unlikely(q->credit == CREDIT_LIMITED && psn_before(q->limited_psn, q->next)))
		return false;
	return !wants_answer(request_at(q, q->cursor)) || q->answers_owed < q->max_answers;
}

bool requester_may_send(const struct tp *tp, uint64_t now)
{
	const struct requester *q = &tp->requester;

	if (q->state == REQUESTER_OFF || (q->rnr_until != TP_NEVER && now < q->rnr_until))
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
	/* The pacer alone delays the next packet. */
	if (unlikely(pacer_holds(&tp->pacer, &tp->congestion, 0)) && tp->pacer.at < at &&
	    q->state != REQUESTER_OFF && q->rnr_until == TP_NEVER && may_go_out(tp))
		at = tp->pacer.at;
	return at;
}

/* A READ counts as one packet or a few (one for each piece). */
static uint32_t packets_to_send(const struct tp *tp, const struct tp_request *r)
{
	return wants_answer(r) ? 1 : tp_packets_of(tp, r->length);
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

/* ------------------------------------------------------------------ packets */

/* Whether the request goes in pieces, see requester.h. */
static bool goes_in_pieces(const struct tp *tp, const struct tp_request *r)
{
	const struct accepted *a = &tp->requester.accepted;
	uint32_t packets = r->last_psn - r->first_psn + 1;

	return r->opcode == IBV_WR_RDMA_WRITE && tp->type == IBV_QPT_RC && packets > 1 &&
	       packets <= TP_PIECES_MAX && r->rkey == a->rkey && r->remote_addr >= a->from &&
	       r->remote_addr < a->to && r->length <= a->to - r->remote_addr;
}

/* Gives request `begun` its PSNs. */
static void request_begin(struct tp *tp)
{
	struct requester *q = &tp->requester;
	struct tp_request *r = request_at(q, q->begun++);
	uint32_t messages = 1;

	if (fetches_word(r) || r->opcode == IBV_WR_ATOMIC_WRITE)
		r->length = 8;
	r->done = 0;
	r->first_psn = q->assigned;
	r->last_psn = q->assigned + tp_packets_of(tp, r->length) - 1;
	q->assigned = r->last_psn + 1;
	q->open += wants_answer(r);
	if (r->opcode == IBV_WR_RDMA_READ && r->length)
		messages = (uint32_t)(((uint64_t)r->length + TP_READ_PIECE - 1) / TP_READ_PIECE);
	r->in_pieces = goes_in_pieces(tp, r);
	if (r->in_pieces)
		messages = r->last_psn - r->first_psn + 1;
	q->ssn = psn_add(q->ssn, messages);
	if (q->credit != CREDIT_UNCOUNTED && wants_receive(r) && psn_diff(q->ssn, q->lsn) > 0) {
		q->credit = CREDIT_LIMITED;
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

/* Builds packet `psn` of a SEND or a WRITE. 0: its payload can't be fetched. */
static uint32_t build_message(struct tp *tp, uint32_t count, uint32_t psn, struct packet *p,
			      uint8_t *to)
{
	const struct tp_request *r = request_at(&tp->requester, count);
	uint32_t offset = (psn - r->first_psn) << tp->mtu_shift;
	bool is_last = psn == r->last_psn;

	p->opcode = tp->transport | message_operation(r, psn == r->first_psn || r->in_pieces,
						      is_last || r->in_pieces);
	p->length = is_last ? r->length - offset : tp->path.mtu;
	p->solicited = is_last && (r->flags & TP_SOLICITED);
	p->addr = r->in_pieces ? r->remote_addr + offset : r->remote_addr;
	p->rkey = r->rkey;
	p->dma_length = r->in_pieces ? p->length : r->length;
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

static uint32_t build_flush(const struct tp *tp, const struct tp_request *r, struct packet *p,
			    uint8_t *to)
{
	p->opcode = tp->transport | OP_FLUSH;
	p->feth = (uint8_t)r->swap;
	p->addr = r->remote_addr;
	p->rkey = r->rkey;
	p->dma_length = (uint32_t)r->compare_add;
	return packet_encode(p, to);
}

/* 0: its payload can't be fetched. */
static uint32_t build_atomic_write(const struct tp *tp, uint32_t count, struct packet *p,
				   uint8_t *to)
{
	const struct tp_request *r = request_at(&tp->requester, count);

	p->opcode = tp->transport | OP_ATOMIC_WRITE;
	p->length = p->dma_length = 8;
	p->addr = r->remote_addr;
	p->rkey = r->rkey;
	uint32_t headers = packet_encode(p, to);

	return tp->world->fetch(tp->owner, count, 0, to + headers, 8) ? headers + 8 : 0;
}

/* Builds packet `psn` of request `count`. *after: the first PSN after those that it stands for. */
static uint32_t packets_build(struct tp *tp, uint32_t count, uint32_t psn, bool ask, uint8_t *to,
			      uint32_t *after)
{
	const struct tp_request *r = request_at(&tp->requester, count);
	struct packet p = {
		.pkey = tp->path.pkey,
		.dest_qpn = tp->path.remote_qpn,
		.psn = psn & PSN_MASK,
		.srqn = r->srqn,
		.ack_request = ask,
	};

	*after = psn + 1;
	if (!wants_answer(r))
		return build_message(tp, count, psn, &p, to);
	p.ack_request = true;
	switch (r->opcode) {
	case IBV_WR_RDMA_READ:
		*after = piece_end(tp, r, psn);
		return build_read(tp, r, psn, &p, to);
	case IBV_WR_FLUSH:
		return build_flush(tp, r, &p, to);
	case IBV_WR_ATOMIC_WRITE:
		return build_atomic_write(tp, count, &p, to);
	default:
		return build_atomic(tp, r, &p, to);
	}
}

/* ------------------------------------------------------------------ sending */

/* The request's memory is missing or lacks a right: the request fails when it is the oldest. */
static uint32_t break_at(struct tp *tp, uint32_t count, enum ibv_wc_status status)
{
	struct requester *q = &tp->requester;

	q->state = REQUESTER_BREAKS;
	q->broken_at = count;
	q->broken_status = status;
	if (count == q->first)
		requester_fail_first(tp, status);
	return 0;
}

/* Whether the message of one packet that is sent next needs no acknowledgement of its own, see
 * requester.h. */
static bool goes_unasked(const struct requester *q, const struct tp_request *r, uint64_t now)
{
	if (!(r->flags & TP_UNAWAITED) || r->first_psn != r->last_psn)
		return false;
	return q->unasked < q->unasked_max && now - q->message_at < TP_STREAM_NS &&
	       (q->next == q->una || now < q->ask_from) && q->next == q->top &&
	       q->hole == HOLE_NONE && q->repeat == REPEAT_NONE && !q->probes &&
	       q->state == REQUESTER_SENDS && q->cursor + 1 != q->ask_before;
}

/* Whether packet `psn` asks for an acknowledgement: the last of most messages does, and some in
 * between, so that the window never waits for an acknowledgement that wasn't requested. */
static bool request_asks_ack(const struct tp *tp, const struct tp_request *r, uint32_t psn,
			     uint64_t now)
{
	const struct requester *q = &tp->requester;

	return (psn == r->last_psn && !goes_unasked(q, r, now)) ||
	       (q->credit == CREDIT_LIMITED && psn == q->limited_psn) ||
	       q->asked + tp->path.mtu >= tp->congestion.window / 4;
}

/* Notes how many bytes are sent between two requests for an acknowledgement. */
static void note_span(struct requester *q)
{
	if (q->asked > TP_WINDOW_MAX) /* the first one after going back is no measurement */
		q->asked = q->ask_span;
	if (!q->ask_span)
		q->ask_span = q->asked;
	else
		q->ask_span += ((int32_t)q->asked - (int32_t)q->ask_span) / 8;
	q->asked = q->unasked = 0;
}

static void packets_sent(struct tp *tp, const struct tp_request *r, uint32_t after, bool asked,
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
	} else if (asked && q->timed_at == TP_NEVER && q->hole == HOLE_NONE) {
		q->timed_psn = q->next;
		q->timed_at = now;
		q->timed_delivered = q->delivered;
	}
	q->next = after;
	if (psn_before(q->top, after))
		q->top = after;
	if (after == r->last_psn + 1) {
		q->cursor++;
		q->unasked += !asked;
		q->message_at = now;
	}
	requester_timers_arm(tp, now);
}

/* UC has no acknowledgements: a packet that was sent is complete. */
static void sent_unacknowledged(struct tp *tp)
{
	struct requester *q = &tp->requester;

	q->una = q->next;
	q->flight = 0;
	requester_timers_off(q);
	q->timed_at = TP_NEVER;
	if (q->cursor != q->first)
		requester_complete_first(tp);
}

/* Whether packet `again` is the last of [again, again_end), or those after it aren't repeated. */
static bool is_last_again(const struct requester *q)
{
	uint32_t after = q->again + 1, following = q->again_of + 1;

	if (after == q->again_end || !psn_before(after, q->next))
		return true;
	return after == request_at(q, q->again_of)->last_psn + 1 &&
	       (wants_answer(request_at(q, following)) ||
		(q->state == REQUESTER_BREAKS && q->broken_at == following));
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
	uint32_t size = packets_build(tp, count, q->again, last, to, &q->again);

	if (!size) {
		repeat_cut(q); /* so what follows isn't repeated either */
		return break_at(tp, count, IBV_WC_LOC_PROT_ERR);
	}
	q->again_of += q->again == request_at(q, count)->last_psn + 1;
	q->repeat = last ? REPEAT_SENT : REPEAT_GOES_ON;
	q->repeated_end = q->again;
	tp->counters.resent++;
	requester_timers_arm(tp, now);
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
		request_begin(tp);
	const struct tp_request *r = request_at(q, q->cursor);

	if (begins && wants_answer(r)) {
		enum ibv_wc_status status = tp->world->check(tp->owner, q->cursor);

		if (unlikely(status != IBV_WC_SUCCESS))
			return break_at(tp, q->cursor, status);
	}
	bool ask = request_asks_ack(tp, r, q->next, now) && tp->type != IBV_QPT_UC;
	uint32_t size = packets_build(tp, q->cursor, q->next, ask, to, &after);

	if (unlikely(!size))
		return break_at(tp, q->cursor, IBV_WC_LOC_PROT_ERR);
	packets_sent(tp, r, after, ask || wants_answer(r), now);
	if (tp->type == IBV_QPT_UC)
		sent_unacknowledged(tp);
	return size;
}
