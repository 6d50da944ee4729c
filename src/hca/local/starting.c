/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's requester, first half: starting requests, in order.
 *
 * A request is started when all that must come before it has: sends and ring requests may follow
 * one another unacknowledged; an operation that is executed here (WRITE, READ on mapped or
 * reachable memory) waits until everything before it is acknowledged, because nothing may execute
 * after an error. Everything here runs under qp.lock.
 */
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/way.h"
#include "hca/mem/copy.h"
#include "hca/mem/mr.h"
#include "hca/process/capture.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

/* Payloads up to this go through the ring: two copies, but no system call. */
#define EAGER_MAX RING_PAYLOAD_MAX

#define BIT(opcode) (1u << (opcode))

/* ------------------------------------------------------------------ completing */

static void uncount(struct qp *qp, const struct send_wqe *wqe)
{
	qp->reads_out -= !!(wqe->flags & SEND_READS);
	qp->blocking_out -= !!(wqe->flags & SEND_BLOCKING);
	qp->settled_out -= !!(wqe->flags & SEND_SETTLED);
}

/* A local request begins: the packets that it would have been on a wire count, captured or not, so
 * that a capture that begins later shows the right PSNs. Before the peer can see anything of it, or
 * its answers would be captured earlier. */
static void begin(struct qp *qp, struct send_wqe *wqe)
{
	if (unlikely(wqe->flags & SEND_BEGUN))
		return;
	wqe->flags |= SEND_BEGUN;
	wqe->psn = qp->next_psn;
	qp->next_psn = (qp->next_psn + sq_packets(qp, wqe)) & 0xffffff;
	capture_request(qp, wqe);
}

/* Whether the request went as far as the responder. */
static bool was_sent(const struct qp *qp, enum ibv_wc_status status)
{
	return qp->link && (likely(status == IBV_WC_SUCCESS) ||
			    (status != IBV_WC_LOC_PROT_ERR && status != IBV_WC_LOC_LEN_ERR &&
			     status != IBV_WC_RETRY_EXC_ERR));
}

void local_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	bool sent = was_sent(qp, status);

	uncount(qp, wqe);
	if (qp->sq.next == qp->sq.acked && likely(sent))
		begin(qp, wqe); /* executed here, at once */
	if (unlikely(capture_on(qp->hca)) && sent)
		capture_show_answer(qp, wqe, qp->sq.acked + 1, status);
	sq_complete(qp, wqe, status);
}

/* ------------------------------------------------------------------ starting */

static bool opcode_is(const struct send_wqe *wqe, uint32_t set)
{
	return BIT(wqe->opcode) & set;
}

static bool outstanding(const struct qp *qp)
{
	return qp->sq.acked != qp->sq.next;
}

/* Something before may still fail, or wait for a receive. */
static bool unsettled(const struct qp *qp)
{
	return qp->sq.next - qp->sq.acked != qp->settled_out;
}

/* One of the peer's receives is taken by what is sent next. Whether it is there already: each
 * request takes one, and they are posted by nobody else's leave. */
static bool takes_receive(struct qp *qp)
{
	uint32_t used = qp->receives_used++;

	if (unlikely((int32_t)(qp->receives_seen - used) <= 0))
		qp->receives_seen =
			atomic_load_explicit(&qp->remote->receives, memory_order_relaxed);
	return (int32_t)(qp->receives_seen - used) > 0;
}

bool local_peer_ready(struct qp *qp)
{
	if (likely(qp->peer_ready))
		return true;
	local_find_remote(qp); /* the link may be up before the engine has woken its QPs */
	uint64_t word = pub_qp_read_state(qp->remote);
	uint32_t state = pub_qp_state(word);

	if ((state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD &&
	     state != IBV_QPS_SQE) ||
	    pub_qp_type(word) != qp->type ||
	    atomic_load_explicit(&qp->remote->peer, memory_order_relaxed) != qp->ibv.qp_num ||
	    atomic_load_explicit(&qp->remote->rq_psn, memory_order_relaxed) != qp->attr.sq_psn)
		return false;
	qp->remote_epoch = pub_qp_epoch(word);
	qp->peer_ready = true;
	return true;
}

/* Accounts for a request that is in the ring now. */
static void sent(struct qp *qp, struct send_wqe *wqe, uint16_t counted)
{
	wqe->msn = qp->next_msn++;
	wqe->flags |= counted;
	qp->reads_out += !!(counted & SEND_READS);
	qp->blocking_out += !!(counted & SEND_BLOCKING);
	qp->settled_out += !!(counted & SEND_SETTLED);
	qp->sq.next++;
	engine_watch_qp(qp);
}

static enum step wait_for_link(struct qp *qp)
{
	link_wait(qp->link, qp);
	engine_watch_qp(qp);
	return STEP_WAIT;
}

/* The peer's QP isn't ready, or its process hasn't got the link yet; the KICK that it then sends,
 * or the timer, ends this. */
static enum step wait_for_peer(struct qp *qp)
{
	engine_watch_qp(qp);
	return STEP_WAIT;
}

/* Errors of this side complete in their turn: not before what was sent earlier. */
static enum step fail_here(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (outstanding(qp))
		return STEP_WAIT;
	if (qp->type == IBV_QPT_RC)
		local_complete(qp, wqe, status);
	else
		sq_fail_local(qp, wqe, status);
	return STEP_FAILED;
}

static uint8_t message_flags(const struct qp *qp, const struct send_wqe *wqe)
{
	return (wqe->flags & SEND_SOLICITED ? REC_SOLICITED : 0) |
	       (opcode_is(wqe, BIT(IBV_WR_SEND_WITH_IMM) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
			? REC_IMM
			: 0) |
	       qp->attr.rnr_retry << REC_RNR_SHIFT;
}

static void request(struct qp *qp, struct ring_header *h, const struct send_wqe *wqe,
		    enum record_kind kind, uint8_t flags)
{
	local_record(qp, h, kind, flags);
	h->msn = qp->next_msn;
	h->imm = wqe->imm;
	h->length = wqe->length;
	qp->must_notify = true;
}

static void *body(struct ring_header *h)
{
	return (uint8_t *)h + RING_HEADER;
}

/* An unreliable message needs no answer once its bytes are out of the program's memory. */
static void sent_message(struct qp *qp, struct send_wqe *wqe, uint16_t counted, bool copied)
{
	bool alone = !outstanding(qp);

	sent(qp, wqe, counted);
	if (qp->type == IBV_QPT_UC && copied && alone)
		local_complete(qp, wqe, IBV_WC_SUCCESS);
}

/* The request's own memory isn't mapped any more: the record isn't sent, but the acknowledgement
 * that it was to carry is. */
static enum step fail_unmapped(struct qp *qp, struct send_wqe *wqe, const struct ring_header *h,
			       uint32_t payload)
{
	bool acks = h->flags & REC_ACKS;

	link_abandon(qp->link, payload);
	if (acks) {
		struct ring_header ack = {0};

		atomic_store_explicit(&qp->ack_pending, true, memory_order_relaxed);
		local_record(qp, &ack, REC_ACK, 0);
		link_control(qp->link, &ack, NULL, 0);
	}
	return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
}

static enum step start_send(struct qp *qp, struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];
	int count = sq_segments(qp, wqe, 0, local);

	if (unlikely(count < 0))
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	bool eager = wqe->length <= EAGER_MAX;
	uint32_t payload = eager ? wqe->length : count * sizeof(struct record_segment);
	struct ring_header *h = link_begin(qp->link, payload);

	if (unlikely(!h))
		return wait_for_link(qp);
	request(qp, h, wqe, eager ? REC_SEND : REC_SEND_REF, message_flags(qp, wqe));
	if (likely(eager)) {
		if (unlikely(!copy_gather(body(h), local, count, 0, wqe->length)))
			return fail_unmapped(qp, wqe, h, payload);
	} else {
		struct record_segment *to = body(h);

		for (int i = 0; i < count; i++)
			to[i] = (struct record_segment){(uintptr_t)local[i].iov_base,
							local[i].iov_len};
	}
	begin(qp, wqe);
	link_send(qp->link, h, payload);
	takes_receive(qp);
	sent_message(qp, wqe, SEND_BLOCKING, eager);
	return STEP_DONE;
}

/* The data is in the peer's memory; its receive is consumed by this record. */
static enum step start_write_imm(struct qp *qp, struct send_wqe *wqe)
{
	struct ring_header *h = link_begin(qp->link, 0);

	if (unlikely(!h))
		return wait_for_link(qp);
	request(qp, h, wqe, REC_WRITE_IMM, message_flags(qp, wqe));
	begin(qp, wqe);
	link_send(qp->link, h, 0);
	sent_message(qp, wqe, SEND_BLOCKING | (takes_receive(qp) ? SEND_SETTLED : 0), true);
	return STEP_DONE;
}

/* RDMA WRITE piece by piece through the ring. Nothing before it may still have to wait there. */
static enum step start_write_ring(struct qp *qp, struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];
	int count = sq_segments(qp, wqe, 0, local);

	if (qp->blocking_out)
		return STEP_WAIT;
	if (unlikely(count < 0))
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	do {
		uint32_t left = wqe->length - wqe->progress;
		uint32_t room = RING_PAYLOAD_MAX - sizeof(struct record_remote);
		uint32_t n = left < room ? left : room;
		struct ring_header *h = link_begin(qp->link, n + sizeof(struct record_remote));

		if (unlikely(!h))
			return wait_for_link(qp);
		request(qp, h, wqe, REC_WRITE_DATA,
			message_flags(qp, wqe) | (n == left ? REC_LAST : 0));
		struct record_remote *remote = body(h);

		*remote = (struct record_remote){wqe->remote_addr + wqe->progress, wqe->rkey, n};
		if (unlikely(!copy_gather(remote + 1, local, count, wqe->progress, n)))
			return fail_unmapped(qp, wqe, h, n + sizeof(*remote));
		begin(qp, wqe);
		link_send(qp->link, h, n + sizeof(*remote));
		wqe->progress += n;
	} while (wqe->progress < wqe->length);
	if (wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		takes_receive(qp);
	sent_message(qp, wqe, wqe->opcode == IBV_WR_RDMA_WRITE ? 0 : SEND_BLOCKING, true);
	return STEP_DONE;
}

/* Whether a WRITE needn't wait for those before it: none of them can fail any more, and neither can
 * this one, which completes with its notification. */
static bool may_follow(struct qp *qp, const struct send_wqe *wqe)
{
	return wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && qp->type == IBV_QPT_RC &&
	       !unsettled(qp) && onesided_may_write(qp, wqe);
}

/* Through the ring though the kernel could copy (way.h). Memory that is mapped here needs neither,
 * and what is borrowed can't wait. */
static bool goes_by_ring(const struct qp *qp, const struct send_wqe *wqe)
{
	return way_by_ring(qp->hca, wqe->length) && !qp->link->self &&
	       !(wqe->flags & SEND_BORROWED) && !onesided_is_mapped(qp, wqe);
}

static enum step start_write_direct(struct qp *qp, struct send_wqe *wqe)
{
	if (!wqe->progress && goes_by_ring(qp, wqe))
		wqe->flags |= SEND_BY_RING;
	if (unlikely(wqe->flags & SEND_BY_RING))
		return start_write_ring(qp, wqe);
	if (!wqe->progress) {
		if (outstanding(qp) && !may_follow(qp, wqe))
			return STEP_WAIT;
		begin(qp, wqe);
		enum ibv_wc_status status = onesided_write(qp, wqe);

		if (unlikely(status != IBV_WC_SUCCESS && outstanding(qp)))
			return STEP_WAIT; /* it fails in its turn */
		if (unlikely(status == ASK_PEER)) {
			if (wqe->flags & SEND_BORROWED)
				return STEP_WAIT;
			wqe->flags |= SEND_BY_RING;
			return start_write_ring(qp, wqe);
		}
		if (unlikely(status == IBV_WC_LOC_PROT_ERR))
			return fail_here(qp, wqe, status);
		if (unlikely(status == IBV_WC_RETRY_EXC_ERR && qp->type == IBV_QPT_RC)) {
			qp->peer_ready = false; /* it was; the timer decides */
			engine_watch_qp(qp);
			return STEP_WAIT;
		}
		if (unlikely(status != IBV_WC_SUCCESS && qp->type == IBV_QPT_RC)) {
			local_complete(qp, wqe, status);
			return STEP_FAILED;
		}
		if (status != IBV_WC_SUCCESS || wqe->opcode == IBV_WR_RDMA_WRITE) {
			local_complete(qp, wqe, IBV_WC_SUCCESS);
			return STEP_DONE;
		}
		wqe->progress = 1; /* written: what is left is the notification */
	}
	return start_write_imm(qp, wqe);
}

static enum step finish_direct(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (unlikely(status == IBV_WC_RETRY_EXC_ERR)) {
		qp->peer_ready = false;
		engine_watch_qp(qp);
		return STEP_WAIT;
	}
	local_complete(qp, wqe, status);
	return status == IBV_WC_SUCCESS ? STEP_DONE : STEP_FAILED;
}

static bool may_read(const struct qp *qp)
{
	uint32_t max = qp->attr.max_rd_atomic ? qp->attr.max_rd_atomic : 1;

	return qp->reads_out < max;
}

static enum step start_read(struct qp *qp, struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];
	bool by_ring = goes_by_ring(qp, wqe);

	if (likely(!by_ring && onesided_direct(qp))) {
		if (outstanding(qp))
			return STEP_WAIT;
		begin(qp, wqe);
		enum ibv_wc_status status = onesided_read(qp, wqe);

		if (likely(status != ASK_PEER))
			return finish_direct(qp, wqe, status);
	} else if (unlikely(!by_ring && qp->link->can_vm)) {
		return wait_for_peer(qp);
	}
	if (!may_read(qp))
		return STEP_WAIT;
	if (unlikely(sq_segments(qp, wqe, IBV_ACCESS_LOCAL_WRITE, local) < 0))
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	struct ring_header *h = link_begin(qp->link, sizeof(struct record_remote));

	if (unlikely(!h))
		return wait_for_link(qp);
	request(qp, h, wqe, REC_READ_REQ, message_flags(qp, wqe));
	*(struct record_remote *)body(h) =
		(struct record_remote){wqe->remote_addr, wqe->rkey, wqe->length};
	begin(qp, wqe);
	link_send(qp->link, h, sizeof(struct record_remote));
	sent(qp, wqe, SEND_READS | SEND_BLOCKING);
	return STEP_DONE;
}

static enum step start_atomic(struct qp *qp, struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];

	if (unlikely(wqe->length != 8))
		return fail_here(qp, wqe, IBV_WC_LOC_LEN_ERR);
	if (qp->link->self) {
		if (outstanding(qp))
			return STEP_WAIT;
		begin(qp, wqe);
		return finish_direct(qp, wqe, onesided_atomic(qp, wqe));
	}
	if (!may_read(qp))
		return STEP_WAIT;
	if (unlikely(sq_segments(qp, wqe, IBV_ACCESS_LOCAL_WRITE, local) < 0))
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	struct ring_header *h = link_begin(qp->link, sizeof(struct record_atomic));

	if (unlikely(!h))
		return wait_for_link(qp);
	request(qp, h, wqe, REC_ATOMIC_REQ, message_flags(qp, wqe));
	*(struct record_atomic *)body(h) = (struct record_atomic){
		.addr = wqe->remote_addr,
		.rkey = wqe->rkey,
		.is_swap = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
	};
	begin(qp, wqe);
	link_send(qp->link, h, sizeof(struct record_atomic));
	sent(qp, wqe, SEND_READS | SEND_BLOCKING);
	return STEP_DONE;
}

/* A request of a connected QP whose link isn't up or whose peer isn't ready. */
static enum step start_unconnected(struct qp *qp, struct send_wqe *wqe)
{
	if (link_pending(qp->link))
		return wait_for_link(qp);
	if (qp->type == IBV_QPT_UC && !outstanding(qp)) {
		local_complete(qp, wqe, IBV_WC_SUCCESS); /* sent; nobody heard it */
		return STEP_DONE;
	}
	return wait_for_peer(qp);
}

static enum step start_connected(struct qp *qp, struct send_wqe *wqe)
{
	if (unlikely(!link_is(qp->link, LINK_UP) || !local_peer_ready(qp)))
		return start_unconnected(qp, wqe);
	if (unlikely((wqe->flags & SEND_FENCE) && qp->reads_out))
		return STEP_WAIT;
	switch (wqe->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return start_send(qp, wqe);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (likely(onesided_direct(qp)))
			return start_write_direct(qp, wqe);
		if (wqe->flags & SEND_BORROWED)
			return STEP_WAIT;
		return unlikely(qp->link->can_vm) ? wait_for_peer(qp) : start_write_ring(qp, wqe);
	case IBV_WR_RDMA_READ:
		return start_read(qp, wqe);
	default:
		return start_atomic(qp, wqe);
	}
}

void local_post(struct qp *qp)
{
	enum step step = STEP_DONE;

	while (step == STEP_DONE && qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS)
		step = start_connected(qp, sq_at(&qp->sq, qp->sq.next));
	/* Also after a wait: part of a message may be in the ring already. What was executed here
	 * is none of the peer's engine's business: it may sleep on. */
	if (qp->must_notify) {
		qp->must_notify = false;
		if (link_is(qp->link, LINK_UP))
			link_notify(qp->link);
	}
}
