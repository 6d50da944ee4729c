/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Send queues: posting and completing. The QP's carrier starts the requests. Everything here runs
 * under qp.lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/send_direct.h"
#include "hca/mem/mr.h"
#include "hca/process/counters.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"
#include "hca/verbs/sge.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/tagged.h"
#include "hca/verbs/window.h"

#define BIT(opcode) (1u << (opcode))
#define ANY_WINDOW (BIT(IBV_WR_BIND_MW) | BIT(IBV_WR_LOCAL_INV))
#define ANY_SEND (BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM))
#define ANY_WRITE (BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define ANY_ATOMIC (BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD))
#define ANY_RELIABLE                                                              \
	(ANY_SEND | ANY_WRITE | BIT(IBV_WR_RDMA_READ) | ANY_ATOMIC | ANY_WINDOW | \
	 BIT(IBV_WR_SEND_WITH_INV) | BIT(IBV_WR_ATOMIC_WRITE))

/* The opcodes that a program may post to any queue, as with adapters; where the QP's type lacks
 * them they complete with an error (WR_LACKED). */
#define ANY_OPCODE (ANY_RELIABLE | BIT(IBV_WR_TSO) | BIT(IBV_WR_DRIVER1))

static const uint32_t opcodes_of[] = {
	[IBV_QPT_RC] = ANY_RELIABLE, [IBV_QPT_UC] = ANY_SEND | ANY_WRITE | ANY_WINDOW,
	[IBV_QPT_UD] = ANY_SEND,     [IBV_QPT_XRC_SEND] = ANY_RELIABLE,
	[IBV_QPT_XRC_RECV] = 0,	     [IBV_QPT_RAW_PACKET] = BIT(IBV_WR_SEND),
};

static const uint8_t wc_opcode_of[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
	[IBV_WR_FLUSH] = IBV_WC_FLUSH,
	[WR_LACKED] = IBV_WC_DRIVER1,
};

static bool opcode_is(const struct send_wqe *wqe, uint32_t set)
{
	return BIT(wqe->opcode) & set;
}

int sq_init(struct send_queue *sq, const struct ibv_qp_cap *cap, struct ibv_pd *pd)
{
	uint32_t places = queue_places(cap->max_send_wr);
	uint32_t body = cap->max_send_sge * sizeof(struct ibv_sge);

	if (body < 8)
		body = 8; /* of ibv_wr_atomic_write(), whatever the QP's limits */
	if (body < cap->max_inline_data)
		body = cap->max_inline_data;
	*sq = (struct send_queue){
		.stride = (sizeof(struct send_wqe) + body + 15) & ~15u,
		.mask = places - 1,
		.max_wr = cap->max_send_wr,
		.max_sge = cap->max_send_sge,
		.max_inline = cap->max_inline_data,
		.head = SEND_QUEUE_START,
		.next = SEND_QUEUE_START,
		.acked = SEND_QUEUE_START,
		.room = SEND_QUEUE_START + cap->max_send_wr,
	};
	if (!cap->max_send_wr)
		return 0;
	int err = queue_memory_make(&sq->memory, pd, (size_t)places * sq->stride, QUEUE_SEND);

	sq->wqes = sq->memory.at;
	return err;
}

void sq_free(struct send_queue *sq)
{
	queue_memory_free(&sq->memory);
	sq->wqes = NULL;
}

/* ------------------------------------------------------------------ completing */

/* The request is the oldest one, and sq.acked has passed it. */
static __attribute__((noinline)) void push_cqe(struct qp *qp, const struct send_wqe *wqe,
					       enum ibv_wc_status status) REQUIRES(qp->lock)
{
	if (unlikely(wqe->flags & SEND_OFFLOADED)) {
		tagged_request_done(qp, wqe, status);
		return;
	}
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = wc_opcode_of[wqe->opcode],
		.byte_len = opcode_is(wqe, ANY_ATOMIC) ? 8 : wqe->length,
		.qp_num = qp->ibv.qp_num,
		.places = &qp->freed.sends,
		.places_end = (uint16_t)qp->sq.acked,
	};

	if (unlikely(qp->pace != NULL && qp->pace->transit)) {
		const struct cqe copy = cqe; /* as in cq_add() */

		pace_timed_complete(qp, wqe, &copy, status != IBV_WC_SUCCESS);
	} else {
		cq_add(qp->send_cq, &cqe, status != IBV_WC_SUCCESS);
	}
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
	if (qp->sq.next == qp->sq.acked)
		qp->sq.next++; /* it was executed within the call that started it */
	qp->sq.acked++;
	if (unlikely(status != IBV_WC_SUCCESS)) {
		count_failure(qp, status);
		say_send_failed(qp, wqe->wr_id, status);
		push_cqe(qp, wqe, status);
		qp_fail(qp, -1);
	} else if (wqe->flags & SEND_SIGNALED) {
		push_cqe(qp, wqe, status);
	}
}

void sq_flush(struct qp *qp)
{
	qp->sq.head = sq_end(&qp->sq);
	qp->sq.held = 0;
	if (unlikely(qp->pace != NULL))
		pace_forget(qp);
	while (qp->sq.acked != qp->sq.head)
		push_cqe(qp, sq_at(&qp->sq, qp->sq.acked++), IBV_WC_WR_FLUSH_ERR);
	qp->sq.next = qp->sq.head;
}

void sq_fail_local(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (qp_is_reliable(qp)) {
		sq_complete(qp, wqe, status);
		return;
	}
	say_send_failed(qp, wqe->wr_id, status);
	qp->sq.next++;
	qp->sq.acked++;
	push_cqe(qp, wqe, status);
	qp->state = IBV_QPS_SQE; /* the receive queue goes on */
	qp_publish(qp);
	sq_flush(qp);
}

int sq_segments(struct qp *qp, const struct send_wqe *wqe, uint32_t access, struct iovec *out,
		const struct hazard_scope *scope)
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
	uint32_t pd_id = unlikely(wqe->flags & SEND_OFFLOADED) ? qp->srq->pd_id : qp->pd_id;

	return mr_resolve_list(qp->hca, pd_id, wqe->sge, wqe->num_sge, access, out, scope);
}

void sq_start_posted(struct qp *qp)
{
	if (unlikely(qp->pace != NULL))
		pace_release(qp);
	sq_go_on(qp);
}

void sq_run(struct qp *qp)
{
	if (qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS)
		qp->carrier->post(qp);
}

/* ------------------------------------------------------------------ posting */

static bool any_signalled(const struct send_queue *sq)
{
	for (uint32_t i = sq_end(sq) - sq->max_wr; i != sq_end(sq); i++)
		if (sq_at(sq, i)->flags & SEND_SIGNALED)
			return true;
	return false;
}

static void say_full(struct qp *qp, uint32_t taken) REQUIRES(qp->lock)
{
	const struct send_queue *sq = &qp->sq;

	if (!sq->max_wr)
		log_warn("ibv_post_send: QP 0x%x was made with max_send_wr 0, so it takes none",
			 qp->ibv.qp_num);
	else if (taken == sq->max_wr && !any_signalled(sq))
		log_warn("ibv_post_send: QP 0x%x: %u of %u places are taken, and none of these "
			 "requests is signalled (a place is free once the completion of its "
			 "request, or of a later one, was polled)",
			 qp->ibv.qp_num, taken, sq->max_wr);
	else
		log_warn("ibv_post_send: QP 0x%x: %u of %u places are taken; %u requests are under "
			 "way, %u completions wait in CQ %u (a place is free once the completion "
			 "of its request, or of a later one, was polled)",
			 qp->ibv.qp_num, taken, sq->max_wr, sq_end(sq) - sq->acked,
			 cq_count_for(qp->send_cq, &qp->freed.sends), qp->send_cq->handle);
}

bool sq_find_room(struct qp *qp, uint32_t count)
{
	struct send_queue *sq = &qp->sq;
	uint32_t taken = places_taken_by_sends(&qp->freed.sends, sq_end(sq));

	if (places_suffice(taken, sq->max_wr, count)) {
		sq->room = sq_end(sq) + sq->max_wr - taken;
		return true;
	}
	if (!sq->said_full)
		say_full(qp, taken);
	sq->said_full = true;
	return false;
}

/* Copies the payload into the WQE. 0 or ENOMEM. */
static int fill_inline(const struct qp *qp, struct send_wqe *wqe, const struct ibv_sge *sge, int n)
	REQUIRES(qp->lock)
{
	uint64_t length = 0;

	for (int i = 0; i < n; i++) {
		if (unlikely(length + sge[i].length > qp->sq.max_inline))
			return ENOMEM;
		if (sge[i].length) /* an empty segment's address may be 0: UCX */
			memcpy(wqe->data + length, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		length += sge[i].length;
	}
	wqe->length = length;
	return 0;
}

static int fill_segments(const struct qp *qp, struct send_wqe *wqe, const struct ibv_sge *sge,
			 int n) REQUIRES(qp->lock)
{
	uint64_t length = 0;

	if (unlikely(n < 0 || (uint32_t)n > qp->sq.max_sge))
		return ENOMEM;
	for (int i = 0; i < n; i++) {
		sge_copy(&wqe->sge[i], &sge[i]);
		length += sge[i].length;
	}
	if (unlikely(length > LIMIT_MSG_BYTES))
		return EINVAL;
	wqe->num_sge = n;
	wqe->length = length;
	return 0;
}

void sq_trim(struct send_wqe *wqe, uint32_t bytes)
{
	uint32_t left = bytes, n = 0;

	for (; n < wqe->num_sge && left; n++) {
		if (wqe->sge[n].length > left)
			wqe->sge[n].length = left;
		left -= wqe->sge[n].length;
	}
	wqe->num_sge = n;
	wqe->length = bytes;
}

/* An atomic's answer has eight bytes, however many its segments have: as by mlx5's driver, a
 * shorter segment is made that long (docs/behaviour.md). */
static void fit_answer(struct send_wqe *wqe)
{
	if (wqe->length >= 8) {
		sq_trim(wqe, 8);
		return;
	}
	const struct ibv_sge *first = wqe->sge;

	while (!first->length)
		first++;
	wqe->sge[0] = *first;
	wqe->sge[0].length = wqe->length = 8;
	wqe->num_sge = 1;
}

/*
 * With SEND_DIRECT inline data beyond max_inline_data is accepted if the request is executed before
 * the call returns: no request is in its way, and the carrier copies straight to the peer. So
 * rsockets, which send from memory that isn't registered, save a copy.
 */
static bool may_borrow(struct qp *qp) REQUIRES(qp->lock)
{
	if (qp->type != IBV_QPT_RC || !qp->carrier->executes_at_post || qp->state != IBV_QPS_RTS ||
	    qp->pace)
		return false;
	if (qp->sq.next != qp->sq.head) { /* perhaps by READs that wait for further ones */
		cq_unanswered = 0;
		sq_run(qp);
	}
	return qp->sq.next == qp->sq.head && qp->state == IBV_QPS_RTS;
}

static int wqe_borrow(struct qp *qp, struct send_wqe *wqe, const struct ibv_send_wr *wr)
	REQUIRES(qp->lock)
{
	if (wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM && wr->opcode != IBV_WR_RDMA_WRITE)
		return ENOMEM;
	int err = fill_segments(qp, wqe, wr->sg_list, wr->num_sge);

	wqe->flags |= SEND_BORROWED;
	return err;
}

/* Starts a request whose data is borrowed; takes the request back if it couldn't be executed. */
static int run_borrowed(struct qp *qp) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head - 1);

	sq_run(qp);
	if (unlikely(qp->sq.held)) {
		qp->sq.held = 0; /* its way has become slow: pace_timed_hold() */
		return EINVAL;
	}
	if (likely(qp->sq.next == qp->sq.head || wqe->progress))
		return 0; /* executed, or only its notification is left */
	if (qp->state != IBV_QPS_RTS)
		return 0;
	qp->carrier->withdraw(qp, wqe);
	qp->sq.head--;
	return EINVAL;
}

static int fill_remote(struct send_wqe *wqe, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		return 0;
	case IBV_WR_SEND_WITH_INV:
		wqe->rkey = wr->invalidate_rkey;
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

void sq_lack(struct send_wqe *wqe)
{
	wqe->opcode = WR_LACKED;
	wqe->flags &= (uint16_t)~SEND_INLINE;
	wqe->length = wqe->num_sge = 0;
	memset(&wqe->ud, 0, sizeof(wqe->ud)); /* it goes nowhere */
}

void sq_to_segment(struct send_wqe *wqe, unsigned int flags)
{
	memset(&wqe->ud, 0, sizeof(wqe->ud));
	wqe->ud.carrier = &datagram_segment;
	if (flags & IBV_SEND_IP_CSUM)
		wqe->flags |= SEND_CHECKSUMS;
}

/* A request that is executed here, without payload: see window.h. `type`: of a window to bind. */
static int fill_window(struct send_wqe *wqe, const struct ibv_send_wr *wr, enum ibv_mw_type type)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		return EINVAL;
	if (wr->opcode == IBV_WR_BIND_MW)
		return window_fill_bind(wqe, wr->bind_mw.mw, type, wr->bind_mw.rkey,
					&wr->bind_mw.bind_info);
	wqe->rkey = wr->invalidate_rkey;
	wqe->length = wqe->num_sge = 0;
	return 0;
}

/* Begins the ring's next place, with what all requests have. */
static inline __attribute__((always_inline)) struct send_wqe *
fill_common(const struct qp *qp, const struct ibv_send_wr *wr) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = sq_at(&qp->sq, sq_end(&qp->sq));
	unsigned int flags = wr->send_flags;

	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = (flags & IBV_SEND_SIGNALED || qp->sq_sig_all ? SEND_SIGNALED : 0) |
		     (flags & IBV_SEND_SOLICITED ? SEND_SOLICITED : 0) |
		     (flags & IBV_SEND_INLINE ? SEND_INLINE : 0) |
		     (flags & IBV_SEND_FENCE ? SEND_FENCE : 0);
	wqe->imm = wr->imm_data;
	wqe->progress = 0;
	return wqe;
}

/* A request that the QP's type lacks, or that can't be inline. 0; EINVAL: the number is no opcode.
 */
static __attribute__((noinline)) int fill_lacked(const struct qp *qp, const struct ibv_send_wr *wr)
	REQUIRES(qp->lock)
{
	if ((unsigned int)wr->opcode >= 32 || !(BIT(wr->opcode) & ANY_OPCODE))
		return EINVAL;
	sq_lack(fill_common(qp, wr));
	return 0;
}

/*
 * Writes one work request into the ring's next place; it isn't posted before head moves. Inlined,
 * because a call of its own for each request costs 30 instructions.
 */
static inline __attribute__((always_inline)) int
sq_fill(struct qp *qp, const struct ibv_send_wr *wr, enum ibv_mw_type type) REQUIRES(qp->lock)
{
	if (unlikely(!sq_has_room(qp, 1)))
		return ENOMEM;
	if (unlikely((unsigned int)wr->opcode >= 32 || !(BIT(wr->opcode) & opcodes_of[qp->type])))
		return fill_lacked(qp, wr);
	struct send_wqe *wqe = fill_common(qp, wr);
	unsigned int flags = wr->send_flags;

	if (unlikely(BIT(wr->opcode) & ANY_WINDOW))
		return fill_window(wqe, wr, type);
	if (qp->type == IBV_QPT_UD) {
		if (unlikely(!wr->wr.ud.ah))
			return EINVAL;
		sq_address(wqe, ah_of(wr->wr.ud.ah), wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	} else if (unlikely(qp->type == IBV_QPT_RAW_PACKET)) {
		sq_to_segment(wqe, flags);
	} else {
		fill_remote(wqe, wr);
		if (unlikely(qp->type == IBV_QPT_XRC_SEND))
			wqe->srqn = wr->qp_type.xrc.remote_srqn & 0xffffff;
	}
	if (flags & IBV_SEND_INLINE) {
		if (unlikely(wr->opcode == IBV_WR_RDMA_READ || (BIT(wr->opcode) & ANY_ATOMIC)))
			return fill_lacked(qp, wr);
		int err = fill_inline(qp, wqe, wr->sg_list, wr->num_sge);

		return unlikely(err) && flags & SEND_DIRECT && may_borrow(qp)
			       ? wqe_borrow(qp, wqe, wr)
			       : err;
	}
	int err = fill_segments(qp, wqe, wr->sg_list, wr->num_sge);

	if (unlikely(BIT(wr->opcode) & ANY_ATOMIC) && wqe->length)
		fit_answer(wqe);
	return err;
}

int sq_post(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = qp_of(ibv);
	int err = 0;

	lock_take(&qp->lock);
	if (unlikely(qp->state == IBV_QPS_RESET))
		err = EINVAL;
	for (; !err && wr; wr = wr->next) {
		err = sq_fill(qp, wr, IBV_MW_TYPE_2);
		if (unlikely(err))
			break;
		const struct send_wqe *wqe = sq_at(&qp->sq, sq_end(&qp->sq));

		sq_grow(qp, 1);
		if (unlikely(wqe->flags & SEND_BORROWED))
			err = run_borrowed(qp);
		if (unlikely(err))
			break;
	}
	if (unlikely(err)) {
		*bad = wr;
		say_send_refused(qp, wr, err);
	}
	sq_start_posted(qp);
	lock_give(&qp->lock);
	return err;
}

int sq_bind_mw(struct ibv_qp *ibv, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info},
	};
	struct qp *qp = qp_of(ibv);

	if (mw->type != IBV_MW_TYPE_1 || bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL;
	lock_take(&qp->lock);
	int err = qp->state == IBV_QPS_RESET ? EINVAL : sq_fill(qp, &wr, IBV_MW_TYPE_1);

	if (!err) {
		sq_grow(qp, 1);
		mw->rkey = wr.bind_mw.rkey;
		sq_start_posted(qp);
	}
	lock_give(&qp->lock);
	return err;
}
