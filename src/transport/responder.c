/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder (IBTA 9.7.4 to 9.7.8, UC: 9.8): takes the peer's requests in the order of their
 * PSNs, executes each once, and owes a response.
 *
 * A packet passes three steps: place (is it the expected one?), shape (does it continue the current
 * message, and has it the right length?), and only then has it effects: `execute` and the functions
 * that it calls return a verdict, and what a verdict means for RC and UC is written in one place
 * each.
 *
 * A READ isn't answered when it arrives, but packet by packet by responder_next; so what waits is a
 * struct answer (at most max_dest_rd_atomic of them), not data. The same entries serve duplicates:
 * a READ is read again, an atomic's result is kept; ATOMIC WRITE and FLUSH, which are answered as a
 * READ of no bytes, aren't executed again.
 *
 * RC keeps out-of-order packets (early.h); they are executed in their turn after the missing one.
 */
#include <string.h>

#include "base/cpu.h"
#include "transport/state.h"

enum verdict {
	DONE,
	NOT_READY,	  /* no receive; nothing was executed */
	BAD_REQUEST,	  /* NAK invalid request, and an event */
	BAD_ACCESS,	  /* NAK remote access: not granted, or granted and not mapped any more */
	TOO_LONG,	  /* for the receive. RC: it has completed with that; NAK invalid request */
	BAD_RECEIVE,	  /* completed with an error: NAK remote operational error */
	BAD_INVALIDATION, /* class J of IBTA 9.9.3: the receive has completed with an error, no NAK
			   */
	ELSEWHERE, /* XRC, a kept packet: another process executes it; nothing was executed */
};

/* ------------------------------------------------------------------ states */

void responder_start(struct tp *tp, const struct ibv_qp_attr *attr)
{
	struct responder *r = tp->responder;

	memset(r, 0, sizeof(*r));
	r->active = true;
	r->give = r->made = ANSWERS_START;
	r->expected = r->acknowledged = r->said = attr->rq_psn & PSN_MASK;
	r->answers_max = attr->max_dest_rd_atomic;
	r->rnr_timer = attr->min_rnr_timer & AETH_VALUE;
}

static struct answer *answer_at(struct responder *r, uint32_t count)
{
	return &r->answers[count % TP_ANSWERS_MAX];
}

void responder_stop(struct tp *tp, bool keep_answer)
{
	struct responder *r = tp->responder;

	r->active = r->taken = r->going_on = false;
	early_forget(&tp->early);
	r->kind = MESSAGE_NONE;
	if (keep_answer && r->faulted)
		return; /* earlier READs' answers and the NAK are still sent */
	r->faulted = r->nak_owed = r->ack_owed = false;
	r->give = r->made;
}

/* ------------------------------------------------------------------ receives */

static enum verdict take_receive(struct tp *tp, const struct tp_head *head)
{
	static const struct tp_message nothing;
	struct responder *r = tp->responder;

	switch (tp->world->receive_take(tp->owner, head, &r->room)) {
	case TP_TAKEN:
		r->taken = true;
		return DONE;
	case TP_NO_RECEIVE:
		return NOT_READY;
	default:
		event_received(&tp->events, &nothing, IBV_WC_LOC_PROT_ERR);
		return BAD_RECEIVE;
	}
}

static enum verdict tp_fail_receive(struct tp *tp, enum ibv_wc_status status)
{
	struct tp_message message = {.length = tp->responder->offset};

	tp->responder->taken = false;
	event_received(&tp->events, &message, status);
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return TOO_LONG;
	case IBV_WC_REM_INV_REQ_ERR:
		return BAD_INVALIDATION;
	default:
		return BAD_RECEIVE;
	}
}

/* UC drops the message and keeps the receive, as for any lost message. */
static enum verdict tp_receive_too_long(struct tp *tp)
{
	return tp->type == IBV_QPT_UC ? TOO_LONG : tp_fail_receive(tp, IBV_WC_LOC_LEN_ERR);
}

static void tp_give_back_receive(struct tp *tp)
{
	if (!tp->responder->taken)
		return;
	tp->responder->taken = false;
	tp->world->receive_back(tp->owner);
}

static void receive_done(struct tp *tp, const struct packet *p, bool is_write)
{
	uint16_t layout = packet_layout(p->opcode);
	struct tp_message message = {
		.length = tp->responder->offset,
		.imm = layout & HAS_IETH ? p->rkey : p->imm,
		.has_imm = layout & HAS_IMM,
		.has_invalidate = layout & HAS_IETH,
		.solicited = p->solicited,
		.is_write = is_write,
	};

	tp->responder->taken = false;
	event_received(&tp->events, &message, IBV_WC_SUCCESS);
}

/* ------------------------------------------------------------------ messages */

/* The position of a packet in its message. */
struct part {
	bool is_first, is_last, is_write;
};

static bool part_of(uint8_t operation, struct part *part)
{
	switch (operation) {
	case OP_SEND_FIRST:
		*part = (struct part){true, false, false};
		return true;
	case OP_SEND_MIDDLE:
		*part = (struct part){false, false, false};
		return true;
	case OP_SEND_LAST:
	case OP_SEND_LAST_IMM:
	case OP_SEND_LAST_INVALIDATE:
		*part = (struct part){false, true, false};
		return true;
	case OP_SEND_ONLY:
	case OP_SEND_ONLY_IMM:
	case OP_SEND_ONLY_INVALIDATE:
		*part = (struct part){true, true, false};
		return true;
	case OP_WRITE_FIRST:
		*part = (struct part){true, false, true};
		return true;
	case OP_WRITE_MIDDLE:
		*part = (struct part){false, false, true};
		return true;
	case OP_WRITE_LAST:
	case OP_WRITE_LAST_IMM:
		*part = (struct part){false, true, true};
		return true;
	case OP_WRITE_ONLY:
	case OP_WRITE_ONLY_IMM:
		*part = (struct part){true, true, true};
		return true;
	default:
		return false;
	}
}

/* Whether the packet continues the current message, and has the length that its position
 * requires. */
static bool shape_fits(const struct tp *tp, const struct packet *p, struct part part)
{
	const struct responder *r = tp->responder;
	enum message_kind kind = part.is_write ? MESSAGE_WRITE : MESSAGE_SEND;

	if (r->kind != (part.is_first ? MESSAGE_NONE : kind))
		return false;
	if (!part.is_last && p->length != tp->path.mtu)
		return false;
	if (p->length > tp->path.mtu || (!part.is_first && !p->length))
		return false;
	if (!part.is_write)
		return true;
	uint32_t left = part.is_first ? p->dma_length : r->left;

	if (left > TP_MESSAGE_MAX)
		return false;
	return part.is_last ? p->length == left : p->length < left;
}

static enum verdict tp_execute_send(struct tp *tp, const struct packet *p, struct part part)
{
	struct responder *r = tp->responder;

	if (part.is_first) {
		const struct tp_head head = {p->payload, p->length, part.is_last};
		enum verdict verdict = take_receive(tp, &head);

		if (unlikely(verdict != DONE))
			return verdict;
		r->offset = 0;
	}
	if (unlikely(p->length > r->room - r->offset))
		return tp_receive_too_long(tp);
	if (p->length && unlikely(!tp->world->receive_place(tp->owner, r->offset, p->payload,
							    p->length, part.is_last)))
		return tp_fail_receive(tp, IBV_WC_LOC_PROT_ERR);
	r->offset += p->length;
	r->kind = part.is_last ? MESSAGE_NONE : MESSAGE_SEND;
	if (!part.is_last)
		return DONE;
	if (packet_layout(p->opcode) & HAS_IETH &&
	    unlikely(!tp->world->invalidate(tp->owner, p->rkey)))
		return tp_fail_receive(tp, IBV_WC_REM_INV_REQ_ERR);
	receive_done(tp, p, false);
	return DONE;
}

static enum verdict verdict_of(enum tp_access access)
{
	return access == TP_ACCESS_OK	     ? DONE
	       : access == TP_ACCESS_REFUSED ? BAD_ACCESS
					     : BAD_REQUEST;
}

/* XRC: what is executed next is for this SRQ. */
static enum verdict aim_at(struct tp *tp, uint32_t srqn)
{
	if (likely(tp->type != IBV_QPT_XRC_RECV))
		return DONE;
	switch (tp->world->aim(tp->owner, srqn)) {
	case TP_ACCESS_OK:
		return DONE;
	case TP_ACCESS_ELSEWHERE:
		return ELSEWHERE;
	default:
		return BAD_ACCESS;
	}
}

static enum verdict ask_access(struct tp *tp, uint64_t addr, uint32_t length, uint32_t rkey,
			       uint32_t right)
{
	return verdict_of(tp->world->access(tp->owner, addr, length, rkey, right));
}

static enum verdict tp_execute_write(struct tp *tp, const struct packet *p, struct part part)
{
	struct responder *r = tp->responder;
	uint64_t addr = part.is_first ? p->addr : r->addr;
	uint32_t rkey = part.is_first ? p->rkey : r->rkey;
	/* The first packet's check covers the whole message, so a refused message has no effect. */
	uint32_t range = part.is_first ? p->dma_length : p->length;
	enum verdict verdict = ask_access(tp, addr, range, rkey, IBV_ACCESS_REMOTE_WRITE);
	bool has_imm = packet_layout(p->opcode) & HAS_IMM;

	if (likely(verdict == DONE) && has_imm)
		verdict = take_receive(tp, NULL);
	if (unlikely(verdict != DONE))
		return verdict;
	if (p->length &&
	    unlikely(!tp->world->write(tp->owner, addr, rkey, p->payload, p->length, part.is_last)))
		return BAD_ACCESS;
	if (part.is_first) {
		r->offset = 0;
		r->left = p->dma_length;
		r->rkey = rkey;
	}
	r->addr = addr + p->length;
	r->offset += p->length;
	r->left -= p->length;
	r->kind = part.is_last ? MESSAGE_NONE : MESSAGE_WRITE;
	if (has_imm)
		receive_done(tp, p, true);
	return DONE;
}

/* ------------------------------------------------------------------ requests with an answer */

/* How many answers are kept for a peer that may have so many outstanding. */
static uint32_t answers_kept(const struct responder *r)
{
	return r->answers_max < TP_ANSWERS_MAX ? r->answers_max : TP_ANSWERS_MAX;
}

/* Whether the peer has more outstanding than it may. A peer that sends a new request has received
 * the oldest answer, whose place is free then; but not if that wasn't sent completely yet. Answers
 * without bytes count only for the memory that they take: Linux's Soft-RoCE posts any number of
 * FLUSHes, though they are bounded as READs are. */
static bool answers_exceeded(struct responder *r, enum answer_kind kind)
{
	uint32_t max = answers_kept(r);

	if (!max || answer_at(r, r->made)->state == ANSWER_FRESH)
		return true;
	const struct answer *oldest = answer_at(r, r->made - max);

	return kind != ANSWER_EMPTY && oldest->state == ANSWER_FRESH &&
	       oldest->kind != ANSWER_EMPTY;
}

/* Returns the place for one more answer. NULL: the peer has more outstanding than it may. */
static struct answer *answer_new(struct responder *r, enum answer_kind kind)
{
	if (answers_exceeded(r, kind))
		return NULL;
	while (r->made - r->give >= answers_kept(r) && answer_at(r, r->give)->state != ANSWER_FRESH)
		r->give++;
	return answer_at(r, r->made);
}

static enum verdict tp_execute_read(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;

	if (r->kind != MESSAGE_NONE || p->dma_length > TP_MESSAGE_MAX)
		return BAD_REQUEST;
	enum verdict verdict =
		ask_access(tp, p->addr, p->dma_length, p->rkey, IBV_ACCESS_REMOTE_READ);
	struct answer *a = answer_new(r, ANSWER_DATA);

	if (verdict != DONE || !a)
		return verdict != DONE ? verdict : BAD_REQUEST;
	*a = (struct answer){
		.addr = p->addr,
		.srqn = p->srqn,
		.rkey = p->rkey,
		.length = p->dma_length,
		.psn = p->psn,
		.packets = tp_packets_of(tp, p->dma_length),
		.state = ANSWER_FRESH,
	};
	r->made++;
	return DONE;
}

static enum verdict tp_execute_atomic(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;
	bool is_swap = packet_operation(p->opcode) == OP_COMPARE_SWAP;
	uint64_t old;

	if (r->kind != MESSAGE_NONE)
		return BAD_REQUEST;
	enum verdict verdict = ask_access(tp, p->addr, 8, p->rkey, IBV_ACCESS_REMOTE_ATOMIC);
	struct answer *a = answer_new(r, ANSWER_WORD);

	if (verdict != DONE || !a)
		return verdict != DONE ? verdict : BAD_REQUEST;
	if (!tp->world->atomic(tp->owner, p->addr, p->rkey, is_swap,
			       is_swap ? p->compare : p->swap_add, p->swap_add, &old))
		return BAD_ACCESS;
	*a = (struct answer){
		.original = old,
		.srqn = p->srqn,
		.psn = p->psn,
		.packets = 1,
		.state = ANSWER_FRESH,
		.kind = ANSWER_WORD,
	};
	r->made++;
	return DONE;
}

/* ATOMIC WRITE or FLUSH was executed: its answer has no bytes. */
static enum verdict answer_empty(struct tp *tp, const struct packet *p, enum verdict verdict)
{
	struct responder *r = tp->responder;

	if (verdict != DONE)
		return verdict;
	*answer_at(r, r->made++) = (struct answer){
		.psn = p->psn,
		.packets = 1,
		.state = ANSWER_FRESH,
		.kind = ANSWER_EMPTY,
	};
	return DONE;
}

static enum verdict tp_execute_atomic_write(struct tp *tp, const struct packet *p)
{
	if (tp->responder->kind != MESSAGE_NONE || p->length != 8 || p->dma_length != 8)
		return BAD_REQUEST;
	enum verdict verdict = ask_access(tp, p->addr, 8, p->rkey, IBV_ACCESS_REMOTE_WRITE);

	if (verdict != DONE || !answer_new(tp->responder, ANSWER_EMPTY))
		return verdict != DONE ? verdict : BAD_REQUEST;
	return answer_empty(tp, p,
			    verdict_of(tp->world->store(tp->owner, p->addr, p->rkey, p->payload)));
}

static enum verdict tp_execute_flush(struct tp *tp, const struct packet *p)
{
	if (tp->responder->kind != MESSAGE_NONE || !answer_new(tp->responder, ANSWER_EMPTY))
		return BAD_REQUEST;
	if (p->icrc_doubled)
		tp->requester.flush_doubled = true;
	return answer_empty(
		tp, p,
		verdict_of(tp->world->flush(tp->owner, p->addr, p->dma_length, p->rkey, p->feth)));
}

/* ------------------------------------------------------------------ RC */

/* XRC: all packets of a message name the same SRQ, and it must exist. */
static enum verdict find_srq(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;

	if (r->kind != MESSAGE_NONE && p->srqn != r->srqn)
		return BAD_REQUEST;
	r->srqn = p->srqn;
	return aim_at(tp, p->srqn);
}

static enum verdict tp_execute(struct tp *tp, const struct packet *p)
{
	uint8_t operation = packet_operation(p->opcode);
	struct part part;
	enum verdict verdict = tp->type == IBV_QPT_XRC_RECV ? find_srq(tp, p) : DONE;

	if (unlikely(verdict != DONE))
		return verdict;

	if (likely(part_of(operation, &part))) {
		if (unlikely(!shape_fits(tp, p, part)))
			return BAD_REQUEST;
		return part.is_write ? tp_execute_write(tp, p, part) : tp_execute_send(tp, p, part);
	}
	if (operation == OP_READ_REQUEST)
		return tp_execute_read(tp, p);
	if (operation == OP_COMPARE_SWAP || operation == OP_FETCH_ADD)
		return tp_execute_atomic(tp, p);
	if (operation == OP_ATOMIC_WRITE)
		return tp_execute_atomic_write(tp, p);
	return operation == OP_FLUSH ? tp_execute_flush(tp, p) : BAD_REQUEST;
}

static void owe_nak(struct responder *r, uint8_t syndrome)
{
	r->nak = syndrome;
	r->nak_owed = r->nak_said = true;
}

/* The peer's request ends the QP: no more packets are taken. What is owed is still sent. */
static void tp_end(struct tp *tp, int event)
{
	tp_give_back_receive(tp);
	tp->responder->faulted = true;
	requester_stop(tp);
	responder_stop(tp, true);
	event_refused(&tp->events, event);
}

static void tp_refuse(struct tp *tp, uint8_t nak, int event)
{
	owe_nak(tp->responder, AETH_NAK | nak);
	tp_end(tp, event);
}

/* Without a NAK the peer's retries run out. Requests before this one were executed, and are
 * acknowledged. */
static void tp_end_silently(struct tp *tp)
{
	struct responder *r = tp->responder;

	r->nak = 0;
	r->nak_owed = false;
	responder_acknowledge_all(tp);
	tp_end(tp, -1);
}

static void refuse_for(struct tp *tp, enum verdict verdict)
{
	switch (verdict) {
	case BAD_REQUEST:
		tp_refuse(tp, NAK_INVALID_REQUEST, IBV_EVENT_QP_REQ_ERR);
		return;
	case BAD_ACCESS:
		tp_refuse(tp, NAK_REMOTE_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
		return;
	case TOO_LONG:
		tp_refuse(tp, NAK_INVALID_REQUEST, -1);
		return;
	case BAD_INVALIDATION:
		tp_end_silently(tp);
		return;
	default:
		tp_refuse(tp, NAK_REMOTE_OPERATION, -1);
	}
}

static bool ends_message(uint8_t operation)
{
	struct part part;

	return !part_of(operation, &part) || part.is_last;
}

/* Whether a request is acknowledged by its answer. */
static bool is_answered(uint8_t operation)
{
	return operation == OP_READ_REQUEST || operation == OP_COMPARE_SWAP ||
	       operation == OP_FETCH_ADD || operation == OP_ATOMIC_WRITE || operation == OP_FLUSH;
}

static enum answer_kind answer_kind_of(uint8_t operation)
{
	if (operation == OP_READ_REQUEST)
		return ANSWER_DATA;
	return operation == OP_ATOMIC_WRITE || operation == OP_FLUSH ? ANSWER_EMPTY : ANSWER_WORD;
}

/* After so many answers without another request, no PSN is left that an acknowledgement may have;
 * only repeated requests that are as old, and hints to the peer, go without. */
static void owe_ack(struct responder *r)
{
	if (psn_diff(r->expected, r->acknowledged) < TP_ANSWERED_MAX)
		r->ack_owed = true;
}

void responder_acknowledge_all(struct tp *tp)
{
	struct responder *r = tp->responder;

	if (r->active && tp->type != IBV_QPT_UC && r->said != r->acknowledged)
		owe_ack(r);
}

/* `expected` has passed so many packets of an answer. */
static void keep_acknowledged_near(struct responder *r, uint32_t packets)
{
	uint32_t was = psn_add(r->expected, -packets);

	if ((uint32_t)psn_diff(was, r->acknowledged) + packets > TP_ANSWERED_MAX)
		r->acknowledged = psn_add(r->expected, -(uint32_t)TP_ANSWERED_MAX);
}

static void tp_packet_executed(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;
	uint8_t operation = packet_operation(p->opcode);
	uint32_t packets = 1;

	if (operation == OP_READ_REQUEST)
		packets = tp_packets_of(tp, p->dma_length);
	r->expected = psn_add(r->expected, packets);
	if (ends_message(operation))
		r->msn = psn_add(r->msn, 1);
	/* A packet that was taken for lost arrived late, and nothing after it was dropped. */
	if (r->nak_owed && psn_diff(r->expected, r->too_early) > 0)
		r->nak_owed = false;
	if (is_answered(operation)) {
		keep_acknowledged_near(r, packets);
		return;
	}
	r->acknowledged = r->expected;
	if (p->ack_request)
		owe_ack(r);
}

static void repeat_answer(struct responder *r, uint32_t count, uint32_t from)
{
	struct answer *a = answer_at(r, count);

	if (a->state == ANSWER_GIVEN)
		a->state = ANSWER_AGAIN;
	a->from = a->at = from;
	if ((int32_t)(count - r->give) < 0)
		r->give = count;
}

/* The answer that has this PSN, if it is still kept; *from: which of its packets. */
static const struct answer *answer_find(struct responder *r, uint32_t psn, uint32_t *count,
					uint32_t *from)
{
	uint32_t all = TP_ANSWERS_MAX, with_bytes = 0; /* one that was never made has no packets */

	for (*count = r->made; all--;) {
		const struct answer *a = answer_at(r, --*count);

		with_bytes += a->kind != ANSWER_EMPTY;
		if (with_bytes > answers_kept(r))
			return NULL;
		*from = (uint32_t)psn_diff(psn, a->psn);
		if (*from < a->packets)
			return a;
	}
	return NULL;
}

/* A duplicate of a request that has an answer: answered again if its answer is still kept. */
static void duplicate_answer(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;
	enum answer_kind kind = answer_kind_of(packet_operation(p->opcode));
	uint32_t count, from;
	const struct answer *a = answer_find(r, p->psn, &count, &from);
	bool same = a && a->kind == kind;

	if (same && kind == ANSWER_DATA) {
		uint32_t offset = from << tp->mtu_shift;

		same = p->addr == a->addr + offset && p->rkey == a->rkey &&
		       p->dma_length == a->length - offset && p->srqn == a->srqn;
	}
	if (same)
		repeat_answer(r, count, from);
	else
		tp->counters.dropped++;
}

static void tp_duplicate(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;
	uint8_t operation = packet_operation(p->opcode);

	tp->counters.duplicates++;
	if (is_answered(operation))
		duplicate_answer(tp, p);
	else if (r->nak_said && r->nak == (AETH_NAK | NAK_SEQUENCE))
		r->nak_owed = true; /* the one before got lost; it acknowledges as well */
	else
		owe_ack(r);
}

/* Answers a packet that arrived before the missing one. One NAK is sent for each loss: until the
 * peer has gone back and the packet was lost again, which shows by PSNs before the missing one that
 * arrive again. Meanwhile each kept packet that asks for an acknowledgement gets the last one
 * again: a requester that goes back drops it as stale, any other learns from it that packets still
 * arrive. */
static void too_early(struct tp *tp, const struct packet *p, uint32_t ahead)
{
	struct responder *r = tp->responder;

	tp->counters.out_of_sequence++;
	bool kept = early_keep(&tp->early, p, ahead);
	bool missing_said = r->nak_said && r->nak == (AETH_NAK | NAK_SEQUENCE);

	if (!r->nak_said || (missing_said && psn_diff(p->psn, r->too_early) < 0))
		owe_nak(r, AETH_NAK | NAK_SEQUENCE);
	else if (missing_said && kept && p->ack_request)
		owe_ack(r);
	r->too_early = p->psn;
}

/* Executes the expected packet. False: it wasn't executed. */
static bool tp_take_packet(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;

	r->nak_said = false;
	enum verdict verdict = tp_execute(tp, p);

	if (likely(verdict == DONE)) {
		tp_packet_executed(tp, p);
		return true;
	}
	early_forget(&tp->early);
	if (verdict == NOT_READY) {
		owe_nak(r, AETH_RNR_NAK | r->rnr_timer);
		r->too_early = r->expected;
		tp->counters.rnr_naks_sent++;
	} else if (verdict == ELSEWHERE) {
		/* The packet comes again, and then its owner passes it on. */
		owe_nak(r, AETH_NAK | NAK_SEQUENCE);
		r->too_early = r->expected;
	} else {
		refuse_for(tp, verdict);
	}
	return false;
}

uint32_t responder_srq_of(const struct tp *tp, const struct packet *p)
{
	const struct responder *r = tp->responder;
	int32_t early = psn_diff(p->psn, r->expected);

	if (!r->active || early > 0)
		return 0;
	/* A READ that came again may have been answered by another process in between. */
	if (!early)
		return r->kind == MESSAGE_NONE ? p->srqn : r->srqn;
	return packet_operation(p->opcode) == OP_READ_REQUEST ? p->srqn : 0;
}

/* Called after a missing packet was executed: executes the kept packets after it, up to the next
 * gap, for which a NAK is sent at once. If no packet follows, the next one is missing, too, and may
 * be in flight. The owner pulls each packet's event before the next one is executed, because the
 * owner has one receive taken, and may stop the QP. */
void responder_go_on(struct tp *tp)
{
	struct responder *r = tp->responder;

	while (r->going_on && !tp->events.waiting) {
		const struct packet *p = early_take(&tp->early, r->expected);

		if (!p) {
			r->going_on = false;
			if (r->went_on && tp->early.count)
				owe_nak(r, AETH_NAK | NAK_SEQUENCE);
			return;
		}
		tp->counters.kept++;
		r->went_on = true;
		if (!tp_take_packet(tp, p))
			r->going_on = false;
	}
}

void responder_packet(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;
	int32_t early = psn_diff(p->psn, r->expected);

	if (unlikely(!r->active)) {
		/* The NAK may have been lost: the same request is refused again. */
		if (r->faulted && r->nak && !early)
			r->nak_owed = true;
		tp->counters.dropped++;
		return;
	}
	if (unlikely(early)) {
		if (early < 0) {
			tp_duplicate(tp, p);
			return;
		}
		too_early(tp, p, (uint32_t)early);
		return;
	}
	if (tp_take_packet(tp, p) && unlikely(tp->early.count)) {
		r->going_on = true;
		r->went_on = false;
		responder_go_on(tp);
	}
}

/* ------------------------------------------------------------------ UC */

static void drop_message(struct tp *tp)
{
	tp_give_back_receive(tp);
	tp->responder->kind = MESSAGE_NONE;
	tp->counters.dropped++;
}

/* UC sends no NAKs: what can't be executed is dropped, up to the next message's first packet. */
void responder_packet_uc(struct tp *tp, const struct packet *p)
{
	struct responder *r = tp->responder;
	struct part part;

	if (!r->active || !part_of(packet_operation(p->opcode), &part)) {
		tp->counters.dropped++;
		return;
	}
	if (part.is_first && r->kind != MESSAGE_NONE)
		drop_message(tp); /* the end of the current message is missing */
	if (!part.is_first && p->psn != r->expected) {
		tp->counters.out_of_sequence++;
		drop_message(tp);
		return;
	}
	r->expected = psn_add(p->psn, 1);
	enum verdict verdict = BAD_REQUEST;

	if (shape_fits(tp, p, part))
		verdict = part.is_write ? tp_execute_write(tp, p, part)
					: tp_execute_send(tp, p, part);
	if (likely(verdict == DONE))
		return;
	drop_message(tp);
	if (verdict != BAD_RECEIVE)
		return;
	r->active = false; /* the receive's memory isn't valid: that ends the QP */
	requester_stop(tp);
	event_refused(&tp->events, -1);
}

/* ------------------------------------------------------------------ answers */

bool responder_may_send(const struct responder *r)
{
	return r->give != r->made || r->nak_owed || r->ack_owed;
}

static uint8_t ack_syndrome(const struct tp *tp)
{
	uint32_t left = tp->responder->active ? tp->world->receives_left(tp->owner) : UINT32_MAX;

	/* A taken receive still counts until its message is complete. */
	if (left != UINT32_MAX)
		left += tp->responder->taken;
	return AETH_ACK | credits_encode(left);
}

static void begin_packet(const struct tp *tp, struct packet *p, uint8_t operation, uint32_t psn)
{
	*p = (struct packet){
		.opcode = tp->transport | operation,
		.pkey = tp->path.pkey,
		.dest_qpn = tp->path.remote_qpn,
		.psn = psn & PSN_MASK,
		.msn = tp->responder->msn,
	};
}

static uint32_t give_acknowledge(struct tp *tp, uint8_t *to)
{
	struct responder *r = tp->responder;
	struct packet p;

	if (r->nak_owed) {
		begin_packet(tp, &p, OP_ACKNOWLEDGE, r->expected);
		p.syndrome = r->nak;
		r->nak_owed = r->ack_owed = false; /* it also acknowledges everything before it */
	} else {
		begin_packet(tp, &p, OP_ACKNOWLEDGE, r->acknowledged - 1);
		p.syndrome = ack_syndrome(tp);
		r->ack_owed = false;
	}
	r->said = r->acknowledged;
	return packet_encode(&p, to);
}

static void answer_given(struct responder *r, struct answer *a)
{
	a->state = ANSWER_GIVEN;
	a->at = a->from = 0;
	r->give++;
}

static uint32_t give_atomic(struct tp *tp, struct answer *a, uint8_t *to)
{
	struct packet p;

	begin_packet(tp, &p, OP_ATOMIC_ACKNOWLEDGE, a->psn);
	p.syndrome = ack_syndrome(tp);
	p.original = a->original;
	answer_given(tp->responder, a);
	return packet_encode(&p, to);
}

static uint32_t give_empty(struct tp *tp, struct answer *a, uint8_t *to)
{
	struct packet p;

	begin_packet(tp, &p, OP_READ_RESPONSE_ONLY, a->psn);
	p.syndrome = ack_syndrome(tp);
	answer_given(tp->responder, a);
	return packet_encode(&p, to);
}

static uint8_t response_operation(const struct answer *a)
{
	bool is_last = a->at + 1 == a->packets;

	if (a->at == a->from)
		return is_last ? OP_READ_RESPONSE_ONLY : OP_READ_RESPONSE_FIRST;
	return is_last ? OP_READ_RESPONSE_LAST : OP_READ_RESPONSE_MIDDLE;
}

/* Access that was granted when the READ arrived has been withdrawn: a NAK replaces the rest of the
 * answer. */
static uint32_t refuse_response(struct tp *tp, uint32_t psn, enum verdict verdict)
{
	struct responder *r = tp->responder;

	r->give = r->made;
	r->expected = psn & PSN_MASK;
	if (r->active)
		refuse_for(tp, verdict);
	else
		owe_nak(r, AETH_NAK | NAK_REMOTE_ACCESS);
	return 0;
}

static uint32_t give_response(struct tp *tp, struct answer *a, uint8_t *to)
{
	struct responder *r = tp->responder;
	uint32_t offset = a->at << tp->mtu_shift;
	uint32_t left = a->length - offset, psn = a->psn + a->at;
	uint32_t n = left < tp->path.mtu ? left : tp->path.mtu;
	struct packet p;

	enum verdict verdict = aim_at(tp, a->srqn);

	if (likely(verdict == DONE))
		verdict = ask_access(tp, a->addr + offset, n, a->rkey, IBV_ACCESS_REMOTE_READ);
	if (unlikely(verdict != DONE))
		return refuse_response(tp, psn, verdict);
	uint8_t operation = response_operation(a);

	begin_packet(tp, &p, operation, psn);
	p.length = n;
	if (operation != OP_READ_RESPONSE_MIDDLE)
		p.syndrome = ack_syndrome(tp);
	uint32_t headers = packet_encode(&p, to);

	if (n && unlikely(!tp->world->read(tp->owner, a->addr + offset, a->rkey, to + headers, n)))
		return refuse_response(tp, psn, BAD_ACCESS);
	memset(to + headers + n, 0, packet_padding(n));
	if (++a->at == a->packets)
		answer_given(r, a);
	return headers + n + packet_padding(n);
}

/* Responses: the answers to READs and atomics, in PSN order, then the acknowledgement of the rest.
 */
uint32_t responder_next(struct tp *tp, uint8_t *to)
{
	struct responder *r = tp->responder;

	while (r->give != r->made) {
		struct answer *a = answer_at(r, r->give);

		if (a->state == ANSWER_GIVEN) {
			r->give++;
			continue;
		}
		uint32_t size = a->kind == ANSWER_WORD	  ? give_atomic(tp, a, to)
				: a->kind == ANSWER_EMPTY ? give_empty(tp, a, to)
							  : give_response(tp, a, to);

		if (likely(size))
			return size;
	}
	return r->nak_owed || r->ack_owed ? give_acknowledge(tp, to) : 0;
}
