/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Send queues: posting, and starting what was posted, in order.
 *
 * A request is started when all that must come before it has: sends and ring requests may follow
 * one another unacknowledged; an operation that is executed here (WRITE, READ on mapped or
 * reachable memory) waits until everything before it is acknowledged, because nothing may execute
 * after an error. Everything here runs under qp.lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/local/link.h"
#include "hca/local/way.h"
#include "hca/mem/copy.h"
#include "hca/mem/mr.h"
#include "hca/process/capture.h"
#include "hca/process/counters.h"
#include "hca/roce/roce.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"

/* Payloads up to this go through the ring: two copies, but no system call. */
#define EAGER_MAX RING_PAYLOAD_MAX

#define BIT(opcode) (1u << (opcode))
#define ANY_SEND (BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM))
#define ANY_WRITE (BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define ANY_ATOMIC (BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD))

static const uint32_t opcodes_of[] = {
	[IBV_QPT_RC] = ANY_SEND | ANY_WRITE | BIT(IBV_WR_RDMA_READ) | ANY_ATOMIC,
	[IBV_QPT_UC] = ANY_SEND | ANY_WRITE,
	[IBV_QPT_UD] = ANY_SEND,
};

static const uint8_t wc_opcode_of[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
};

static bool opcode_is(const struct send_wqe *wqe, uint32_t set)
{
	return BIT(wqe->opcode) & set;
}

int sq_init(struct send_queue *sq, const struct ibv_qp_cap *cap)
{
	uint32_t places = 1;
	uint32_t body = cap->max_send_sge * sizeof(struct ibv_sge);

	while (places < cap->max_send_wr)
		places <<= 1;
	if (body < cap->max_inline_data)
		body = cap->max_inline_data;
	*sq = (struct send_queue){
		.stride = (sizeof(struct send_wqe) + body + 15) & ~15u,
		.mask = places - 1,
		.max_wr = cap->max_send_wr,
		.max_sge = cap->max_send_sge,
		.max_inline = cap->max_inline_data,
	};
	if (!cap->max_send_wr)
		return 0;
	void *p = mmap(NULL, (size_t)places * sq->stride, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return ENOMEM;
	sq->wqes = p;
	return 0;
}

/* ------------------------------------------------------------------ completing */

static void push_cqe(struct qp *qp, const struct send_wqe *wqe, enum ibv_wc_status status)
{
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = wc_opcode_of[wqe->opcode],
		.byte_len = opcode_is(wqe, ANY_ATOMIC) ? 8 : wqe->length,
		.qp_num = qp->ibv.qp_num,
	};

	cq_push(cq_of(qp->ibv.send_cq), &cqe, status != IBV_WC_SUCCESS);
}

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

static void count_failure(struct qp *qp, enum ibv_wc_status status)
{
	if (status == IBV_WC_RETRY_EXC_ERR)
		counters_rare(qp->hca, PUB_RETRY_EXCEEDED);
	else if (status == IBV_WC_RNR_RETRY_EXC_ERR)
		counters_rare(qp->hca, PUB_RNR_RETRY_EXCEEDED);
}

void sq_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	uncount(qp, wqe);
	if (qp->sq.next == qp->sq.acked) {
		qp->sq.next++; /* executed here, at once */
		if (likely(was_sent(qp, status)))
			begin(qp, wqe);
	}
	qp->sq.acked++;
	if (unlikely(capture_on(qp->hca)) && was_sent(qp, status))
		capture_show_answer(qp, wqe, qp->sq.acked, status);
	if (unlikely(status != IBV_WC_SUCCESS)) {
		count_failure(qp, status);
		push_cqe(qp, wqe, status);
		qp_fail(qp, -1);
	} else if (wqe->flags & SEND_SIGNALED) {
		push_cqe(qp, wqe, status);
	}
}

void sq_flush(struct qp *qp)
{
	for (; qp->sq.acked != qp->sq.head; qp->sq.acked++)
		push_cqe(qp, sq_at(&qp->sq, qp->sq.acked), IBV_WC_WR_FLUSH_ERR);
	qp->sq.next = qp->sq.head;
	qp->reads_out = qp->blocking_out = qp->settled_out = 0;
}

void sq_fail_local(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (qp->type == IBV_QPT_RC) {
		sq_complete(qp, wqe, status);
		return;
	}
	qp->sq.next++;
	qp->sq.acked++;
	push_cqe(qp, wqe, status);
	qp->state = qp->ibv.state = IBV_QPS_SQE; /* the receive queue goes on */
	qp_publish(qp);
	sq_flush(qp);
}

/* ------------------------------------------------------------------ starting */

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
			atomic_load_explicit(&qp->remote->receives, memory_order_acquire);
	return (int32_t)(qp->receives_seen - used) > 0;
}

int sq_segments(struct qp *qp, const struct send_wqe *wqe, uint32_t access, struct iovec *out)
{
	if (wqe->flags & SEND_INLINE && likely(!(wqe->flags & SEND_BORROWED))) {
		out[0] = (struct iovec){(void *)wqe->data, wqe->length};
		return wqe->length != 0;
	}
	if (unlikely(wqe->flags & SEND_BORROWED)) {
		for (uint32_t i = 0; i < wqe->num_sge; i++)
			out[i] = (struct iovec){(void *)(uintptr_t)wqe->sge[i].addr,
						wqe->sge[i].length};
		return wqe->num_sge;
	}
	return mr_resolve_list(qp->hca, qp->pd_id, wqe->sge, wqe->num_sge, access, out);
}

bool sq_peer_ready(struct qp *qp)
{
	if (likely(qp->peer_ready))
		return true;
	qp_find_remote(qp); /* the link may be up before the engine has woken its QPs */
	uint64_t word = atomic_load_explicit(&qp->remote->state, memory_order_acquire);
	uint32_t state = pub_qp_state(word);

	if ((state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD &&
	     state != IBV_QPS_SQE) ||
	    pub_qp_type(word) != qp->type || atomic_load(&qp->remote->peer) != qp->ibv.qp_num ||
	    atomic_load(&qp->remote->rq_psn) != qp->attr.sq_psn)
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
	qp_record(qp, h, kind, flags);
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
		sq_complete(qp, wqe, IBV_WC_SUCCESS);
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
		qp_record(qp, &ack, REC_ACK, 0);
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
			sq_complete(qp, wqe, status);
			return STEP_FAILED;
		}
		if (status != IBV_WC_SUCCESS || wqe->opcode == IBV_WR_RDMA_WRITE) {
			sq_complete(qp, wqe, IBV_WC_SUCCESS);
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
	sq_complete(qp, wqe, status);
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
		sq_complete(qp, wqe, IBV_WC_SUCCESS); /* sent; nobody heard it */
		return STEP_DONE;
	}
	return wait_for_peer(qp);
}

static enum step start_connected(struct qp *qp, struct send_wqe *wqe)
{
	if (unlikely(!link_is(qp->link, LINK_UP) || !sq_peer_ready(qp)))
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

static enum step drop_datagram(struct qp *qp, struct send_wqe *wqe)
{
	sq_complete(qp, wqe, IBV_WC_SUCCESS);
	return STEP_DONE;
}

static enum step start_roce_datagram(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
				     int count)
{
	if (!roce_datagram(qp, wqe, local, count))
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	sq_complete(qp, wqe, IBV_WC_SUCCESS);
	return STEP_DONE;
}

enum step sq_put_datagram(struct qp *qp, struct send_wqe *wqe, struct link *link,
			  const struct iovec *local, int count)
{
	uint32_t payload = sizeof(struct record_ud) + wqe->length;
	struct ring_header *h = link_is(link, LINK_UP) ? link_begin(link, payload) : NULL;

	if (unlikely(!h)) {
		link_wait(link, qp);
		engine_watch_qp(qp); /* a peer that never reads doesn't hold up the others */
		return STEP_WAIT;
	}
	struct record_ud *ud = body(h);

	h->kind = REC_UD;
	h->flags = message_flags(qp, wqe);
	h->dst = record_address(wqe->ud.remote_qpn, 0);
	h->src = record_address(qp->ibv.qp_num, 0);
	h->imm = wqe->imm;
	h->length = wqe->length;
	*ud = wqe->ud.to;
	/* The controlled Q_Key (top bit) stands for the QP's own: 10.2.5. */
	if (unlikely(ud->qkey & 0x80000000u))
		ud->qkey = qp->attr.qkey;
	if (unlikely(!copy_gather(ud + 1, local, count, 0, wqe->length))) {
		link_abandon(link, payload);
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	}
	if (capture_on(qp->hca) && !wqe->ud.group)
		capture_show_datagram(qp, wqe);
	link_send(link, h, payload);
	link_notify(link);
	return STEP_DONE;
}

static enum step start_datagram(struct qp *qp, struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];
	int count = sq_segments(qp, wqe, 0, local);

	if (unlikely(wqe->length > 4096))
		return fail_here(qp, wqe, IBV_WC_LOC_LEN_ERR);
	if (unlikely(count < 0))
		return fail_here(qp, wqe, IBV_WC_LOC_PROT_ERR);
	if (unlikely(wqe->ud.group))
		return mcast_send(qp, wqe, local, count);
	if (unlikely(wqe->ud.roce))
		return start_roce_datagram(qp, wqe, local, count);
	uint32_t slot = wqe->ud.remote_qpn >> LIMIT_QP_BITS;
	struct link *link = slot && slot < LIMIT_SLOTS ? link_get_datagram(qp->hca, slot) : NULL;

	if (unlikely(!link || link_is(link, LINK_DOWN)))
		return drop_datagram(qp, wqe);
	enum step step = sq_put_datagram(qp, wqe, link, local, count);

	if (likely(step == STEP_DONE)) {
		qp->ud_psn++;
		sq_complete(qp, wqe, IBV_WC_SUCCESS);
	}
	return step;
}

void sq_run(struct qp *qp)
{
	if (qp->sq.next == qp->sq.head || qp->state != IBV_QPS_RTS)
		return;
	if (qp->roce) {
		roce_post(qp);
		return;
	}
	enum step step = STEP_DONE;

	while (step == STEP_DONE && qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS) {
		struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.next);

		step = qp->type == IBV_QPT_UD ? start_datagram(qp, wqe) : start_connected(qp, wqe);
	}
	/* Also after a wait: part of a message may be in the ring already. What was executed here
	 * is none of the peer's engine's business: it may sleep on. */
	if (qp->must_notify) {
		qp->must_notify = false;
		if (link_is(qp->link, LINK_UP))
			link_notify(qp->link);
	}
}

/* ------------------------------------------------------------------ posting */

/* Payload by copy; 0 or EINVAL. */
static int fill_inline(const struct qp *qp, struct send_wqe *wqe, const struct ibv_sge *sge, int n)
{
	uint64_t length = 0;

	for (int i = 0; i < n; i++) {
		if (unlikely(length + sge[i].length > qp->sq.max_inline))
			return EINVAL;
		memcpy(wqe->data + length, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		length += sge[i].length;
	}
	wqe->length = length;
	return 0;
}

static int fill_segments(const struct qp *qp, struct send_wqe *wqe, const struct ibv_sge *sge,
			 int n)
{
	uint64_t length = 0;

	if (unlikely(n < 0 || (uint32_t)n > qp->sq.max_sge))
		return EINVAL;
	for (int i = 0; i < n; i++) {
		wqe->sge[i] = sge[i];
		length += sge[i].length;
	}
	if (unlikely(length > LIMIT_MSG_BYTES))
		return EINVAL;
	wqe->num_sge = n;
	wqe->length = length;
	return 0;
}

/*
 * Inline data beyond max_inline_data is taken if the request is executed before the call returns:
 * nothing is in the way, and the carrier copies straight to the peer. Programs that send from
 * memory which isn't registered save a copy by trying.
 */
static bool may_borrow(const struct qp *qp)
{
	return qp->type == IBV_QPT_RC && !qp->roce && qp->state == IBV_QPS_RTS &&
	       qp->sq.next == qp->sq.head && !unsettled(qp);
}

static int borrow(struct qp *qp, struct send_wqe *wqe, const struct ibv_send_wr *wr)
{
	if (wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM && wr->opcode != IBV_WR_RDMA_WRITE)
		return EINVAL;
	int err = fill_segments(qp, wqe, wr->sg_list, wr->num_sge);

	wqe->flags |= SEND_BORROWED;
	return err;
}

/* Runs what borrows; takes it back if it couldn't be executed. */
static int run_borrowed(struct qp *qp)
{
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head - 1);

	sq_run(qp);
	if (likely(qp->sq.next == qp->sq.head || wqe->progress))
		return 0; /* what is left of it is its notification */
	if (qp->state != IBV_QPS_RTS)
		return 0;
	if (wqe->flags & SEND_BEGUN)
		qp->next_psn = wqe->psn;
	qp->sq.head--;
	return EINVAL;
}

static int fill_remote(struct send_wqe *wqe, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->remote_addr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->atomic.compare_add = wr->wr.atomic.compare_add;
		wqe->atomic.swap = wr->wr.atomic.swap;
		return 0;
	default:
		return 0;
	}
}

/* One work request into the next place of the ring; it isn't posted before head moves. */
static int sq_fill(struct qp *qp, const struct ibv_send_wr *wr)
{
	if (unlikely(qp->sq.head - qp->sq.acked >= qp->sq.max_wr))
		return ENOMEM;
	if (unlikely((unsigned int)wr->opcode >= 32 || !(BIT(wr->opcode) & opcodes_of[qp->type])))
		return (unsigned int)wr->opcode < 32 ? EOPNOTSUPP : EINVAL;
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head);
	unsigned int flags = wr->send_flags;

	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = (flags & IBV_SEND_SIGNALED || qp->sq_sig_all ? SEND_SIGNALED : 0) |
		     (flags & IBV_SEND_SOLICITED ? SEND_SOLICITED : 0) |
		     (flags & IBV_SEND_INLINE ? SEND_INLINE : 0) |
		     (flags & IBV_SEND_FENCE ? SEND_FENCE : 0);
	wqe->imm = wr->imm_data;
	wqe->progress = 0;
	if (qp->type == IBV_QPT_UD) {
		if (unlikely(!wr->wr.ud.ah))
			return EINVAL;
		sq_address(wqe, ah_of(wr->wr.ud.ah), wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	} else {
		fill_remote(wqe, wr);
	}
	if (flags & IBV_SEND_INLINE) {
		if (unlikely(wr->opcode == IBV_WR_RDMA_READ || (BIT(wr->opcode) & ANY_ATOMIC)))
			return EINVAL;
		int err = fill_inline(qp, wqe, wr->sg_list, wr->num_sge);

		return unlikely(err) && may_borrow(qp) ? borrow(qp, wqe, wr) : err;
	}
	return fill_segments(qp, wqe, wr->sg_list, wr->num_sge);
}

int sq_post(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = qp_of(ibv);
	int err = 0;

	lock_take(&qp->lock);
	if (unlikely(qp->state < IBV_QPS_RTS))
		err = EINVAL;
	for (; !err && wr; wr = wr->next) {
		err = sq_fill(qp, wr);
		if (unlikely(err))
			break;
		struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head++);

		if (unlikely(wqe->flags & SEND_BORROWED))
			err = run_borrowed(qp);
		if (unlikely(err))
			break;
	}
	if (unlikely(err))
		*bad = wr;
	if (likely(qp->state == IBV_QPS_RTS))
		sq_run(qp);
	else if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		sq_flush(qp);
	lock_give(&qp->lock);
	return err;
}
