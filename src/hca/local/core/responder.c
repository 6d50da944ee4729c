/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's responder: executing requests that arrive. They are executed in order; one
 * that can't be executed yet (no receive, data under way, ring full) waits with its QP, and later
 * ones wait behind it, so that other QPs of the link go on. See the states in local_qp.h. This file
 * keeps the order and the timers, and sends the answers; waiting.c holds waiting messages;
 * receiving.c executes requests that consume a receive, fetching.c a SEND by reference, serving.c
 * one-sided requests.
 *
 * Order. A message that is lost with its sender (its QP ended, its process died, its memory can't
 * be read) halts the responder: nothing that the same sender sent after it is executed.
 */
#include "hca/local/core/responder.h"
#include "base/wc_status.h"
#include "transport/transport.h"

/* How long a refused request waits at its sender at most until AGAIN asks for it, unless it is
 * known earlier that there is room. */
#define ASK_NS 5000000ull

/* ------------------------------------------------------------------ answers */

void local_answer(struct local_qp *lq, enum record_kind kind, uint32_t msn, uint32_t imm)
{
	struct ring_header h = {0};

	local_fill_record(lq, &h, kind, 0, lq->sender_epoch);
	h.msn = msn;
	h.imm = imm;
	h.length = lq->attr->min_rnr_timer & 31;
	world_ring_control(lq, &h, NULL, 0);
}

/* The final answer to request `msn`: no later request ever executes. */
void local_send_nak(struct local_qp *lq, uint32_t msn, enum ibv_wc_status status)
{
	lq->responder = LOCAL_HALTED;
	local_answer(lq, REC_NAK, msn, status);
}

/* The QP fails, and only then the peer gets the final answer to request `msn`: when the peer's
 * program has polled it, this QP is in ERR. */
void local_fail_with_nak(struct local_qp *lq, uint32_t msn, enum ibv_wc_status status, int event)
{
	lq->responder = LOCAL_HALTED;
	world_fail(lq, event);
	local_send_nak(lq, msn, status);
}

/* Refuses request `msn`. An unreliable QP sends no answer, and the request counts as done. */
enum local_outcome local_refuse_request(struct local_qp *lq, uint32_t msn,
					enum ibv_wc_status status, int event)
{
	world_log(lq, "request refused: %s", wc_status_text(status));
	if (!local_reliable(lq))
		return local_request_done(lq);
	local_fail_with_nak(lq, msn, status, event);
	return LOCAL_REQUEST_REFUSED;
}

/* Refuses an access that world_own_region() didn't resolve. If the QP isn't set up for the
 * operation the request is invalid (9.7.4.1.5); if the key doesn't grant it, it is an access
 * error. */
enum local_outcome local_refuse_access(struct local_qp *lq, const struct ring_header *h,
				       uint32_t access)
{
	if (local_qp_rights(lq) & access)
		return local_refuse_request(lq, h->msn, IBV_WC_REM_ACCESS_ERR,
					    IBV_EVENT_QP_ACCESS_ERR);
	return local_refuse_request(lq, h->msn, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

/* ------------------------------------------------------------------ order */

static enum local_outcome local_execute(struct local_qp *lq, const struct ring_header *h,
					const uint8_t *payload, uint32_t room,
					struct local_held *held)
{
	if (unlikely(lq->type == IBV_QPT_XRC_RECV) && !world_aim(lq, record_qpn(h->dst)))
		return local_refuse_request(lq, h->msn, IBV_WC_REM_ACCESS_ERR,
					    IBV_EVENT_QP_ACCESS_ERR);
	switch (h->kind) {
	case REC_SEND:
		return local_execute_send(lq, h, payload, room, held);
	case REC_SEND_REF:
		return local_execute_send_by_reference(lq, h, payload, room, held);
	case REC_WRITE_IMM:
		return local_execute_write_imm(lq, h, held);
	case REC_WRITE_DATA:
		return local_execute_write(lq, h, payload, room, held);
	case REC_READ_REQ:
		return local_execute_read(lq, h, payload, room, held);
	case REC_ATOMIC_REQ:
		return local_execute_atomic(lq, h, payload, room);
	default:
		return LOCAL_REQUEST_REFUSED;
	}
}

/* How many bytes of a request's payload must be kept to execute it later: no more than the record
 * has, whatever its header claims. */
static uint32_t size_to_keep(const struct ring_header *h, uint32_t room)
{
	uint32_t size = room;

	switch (h->kind) {
	case REC_SEND:
		size = h->length;
		break;
	case REC_WRITE_IMM:
		size = 0;
		break;
	case REC_READ_REQ:
		size = sizeof(struct record_remote);
		break;
	case REC_ATOMIC_REQ:
		size = sizeof(struct record_atomic);
		break;
	default:
		break;
	}
	return size < room ? size : room;
}

/* Executes request arrived_msn, or holds it behind those that wait. */
static void take_next(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
		      uint32_t room)
{
	lq->arrived_msn++;
	if (unlikely(lq->flow != LOCAL_TAKES || !list_empty(&lq->held))) {
		if (lq->flow != LOCAL_TAKES)
			local_keep_out(lq);
		else
			local_hold(lq, h, payload, size_to_keep(h, room));
		return;
	}
	enum local_outcome outcome = local_execute(lq, h, payload, room, NULL);

	if (unlikely(outcome != LOCAL_REQUEST_HOLD && local_responder_waits(lq)))
		local_wait_ends(lq); /* its sender had kept it */
}

/* An unreliable WRITE of which only the first pieces come (local_cut_write()) is lost. */
static void lose_cut_write(struct local_qp *lq, const struct ring_header *next)
{
	struct ring_header h = *next;

	h.kind = REC_WRITE_DATA;
	h.flags = REC_LAST;
	h.msn = (uint32_t)lq->arrived_msn;
	h.length = 0;
	lq->write = LOCAL_WRITE_VOID;
	take_next(lq, &h, NULL, 0);
}

/* An unreliable request that isn't the next one: those between may be lost. */
static void close_gap(struct local_qp *lq, const struct ring_header *h)
{
	uint32_t ahead = h->msn - (uint32_t)lq->arrived_msn;
	bool waits = !list_empty(&lq->held) || lq->flow != LOCAL_TAKES;

	if (lq->cut && !waits && (int32_t)ahead > 0 &&
	    (!local_qp_has_begun(lq) || record_epoch(h->src) == lq->sender_epoch)) {
		lq->sender_epoch = record_epoch(h->src);
		lq->arrived_msn += ahead;
		local_lose_stream(lq); /* all before it is lost, or executed */
		lq->cut = false;
	} else if (ahead == 1 && lq->write != LOCAL_WRITE_NONE) {
		lose_cut_write(lq, h);
	}
}

void local_take_request(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			uint32_t room)
{
	if (unlikely(!local_receiving(lq) || lq->responder == LOCAL_HALTED))
		return;
	if (unlikely(lq->state == IBV_QPS_RTR))
		world_established(lq);
	if (unlikely(h->kind == REC_SEND_DATA)) {
		local_take_send_data(lq, h, payload, room);
		return;
	}
	if (unlikely(h->msn != (uint32_t)lq->arrived_msn) && lq->type == IBV_QPT_UC)
		close_gap(lq, h);
	if (unlikely(h->msn != (uint32_t)lq->arrived_msn))
		return; /* not the next one: it follows a refused one, or the peer is faulty */
	if (unlikely(record_epoch(h->src) != lq->sender_epoch)) {
		if (local_qp_has_begun(lq))
			return; /* of another life of the peer's QP than earlier requests */
		lq->sender_epoch = record_epoch(h->src); /* answers go to the QP that asked */
	}
	if (h->kind == REC_WRITE_DATA && !(h->flags & REC_LAST))
		local_take_write_part(lq, h, payload, room);
	else
		take_next(lq, h, payload, room);
}

/* No message is held any more: counts those lost behind it as done, asks for those refused. */
static void local_reopen(struct local_qp *lq)
{
	if (lq->flow == LOCAL_LOSES) {
		lq->done_msn += lq->lost;
		lq->lost = 0;
		lq->flow = LOCAL_TAKES;
		local_owe_ack(lq);
	} else if (lq->flow == LOCAL_REFUSES) {
		lq->flow = LOCAL_TAKES;
		local_answer(lq, REC_AGAIN, (uint32_t)lq->arrived_msn, 0);
	}
}

void local_execute_held(struct local_qp *lq)
{
	struct local_held *held;

	if (unlikely((!list_empty(&lq->held) || lq->flow != LOCAL_TAKES) &&
		     !local_sender_there(lq)))
		local_lose_held(lq);
	while ((held = local_oldest_held(lq))) {
		enum local_outcome outcome =
			local_execute(lq, &held->header, held->payload, held->size, held);

		if (outcome == LOCAL_REQUEST_HOLD)
			return;
		if (outcome == LOCAL_REQUEST_REFUSED) {
			local_drop_held(lq);
			return;
		}
		local_wait_ends(lq);
		local_release_held(lq, held);
	}
	local_reopen(lq);
}

void local_qp_receive_posted(struct local_qp *lq)
{
	/* The message that waits for the receive is at its sender: its time ends here, however late
	 * it comes after AGAIN. */
	if (lq->responder == LOCAL_WAIT_RECEIVE && list_empty(&lq->held))
		local_wait_ends(lq);
	local_execute_held(lq);
}

bool local_qp_waits(const struct local_qp *lq)
{
	return local_responder_waits(lq) || !list_empty(&lq->held);
}

void local_qp_refuse_waiting(struct local_qp *lq, enum ibv_wc_status status, int event)
{
	const struct local_held *held = local_oldest_held(lq);
	uint32_t msn = held ? held->header.msn : (uint32_t)lq->arrived_msn;

	local_drop_held(lq); /* a receive that was taken is given back */
	local_refuse_request(lq, msn, status, event);
}

/* ------------------------------------------------------------------ timers */

static bool has_receive(struct local_qp *lq)
{
	struct receive buffer;
	const struct recv_wqe *wqe = world_receive_take(lq, &buffer);

	if (wqe)
		world_receive_back(lq, wqe);
	return wqe;
}

static bool rnr_expires(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	const struct local_held *held = local_oldest_held(lq);
	uint32_t flags = held ? held->header.flags : lq->first.held.header.flags;
	uint64_t retries = flags >> REC_RNR_SHIFT;

	if (!lq->rnr_deadline)
		lq->rnr_deadline = retries == 7
					   ? UINT64_MAX
					   : now + retries * tp_rnr_ns(lq->attr->min_rnr_timer);
	if (lq->rnr_deadline <= now && has_receive(lq)) {
		local_qp_receive_posted(lq); /* the thread that posted it is late */
		return lq->responder == LOCAL_WAIT_RECEIVE;
	}
	if (lq->rnr_deadline <= now) {
		local_send_nak(lq, held ? held->header.msn : (uint32_t)lq->arrived_msn,
			       IBV_WC_RNR_RETRY_EXC_ERR);
		local_drop_held(lq);
		return false;
	}
	if (lq->rnr_deadline < *next)
		*next = lq->rnr_deadline;
	return lq->rnr_deadline != UINT64_MAX;
}

/* Asks for refused requests periodically, even if no change is known: storage of the link's or the
 * user's bound may be free again. */
static bool asks_again(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	if (lq->ask_at && lq->ask_at <= now) {
		lq->ask_at = 0;
		if (list_empty(&lq->held))
			local_execute_held(lq);
		return lq->flow == LOCAL_REFUSES;
	}
	if (!lq->ask_at)
		lq->ask_at = now + ASK_NS;
	if (lq->ask_at < *next)
		*next = lq->ask_at;
	return true;
}

bool local_qp_expire_receive(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	bool runs = lq->responder == LOCAL_WAIT_RECEIVE && rnr_expires(lq, now, next);

	/* In WAIT_RECEIVE posting a receive asks for them. */
	if (lq->flow == LOCAL_REFUSES && lq->responder != LOCAL_WAIT_RECEIVE &&
	    list_empty(&lq->held) && asks_again(lq, now, next))
		runs = true;
	return runs;
}
