/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that the transport core needs of the HCA (struct tp_world): a QP's segments and
 * receives, memory by rkey. roce_events.c handles the core's events.
 *
 * Threads: each function is called with qp.lock held; those of the responder with hca.engine held
 * too, except `read`, which a posting thread may also call when it sends. Memory is copied under
 * the QP's own hazards.
 */
#include "hca/roce/roce.h"

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/mem/atomic.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/window.h"

/* ------------------------------------------------------------------ requester */

static struct qp *roce_owner_qp(void *owner)
{
	return ((struct roce_qp *)owner)->qp;
}

/* Resolves the request's segments. False: they aren't accessible. */
static bool source_resolve(struct qp *qp, struct roce_source *source, uint32_t count)
	REQUIRES(qp->lock)
{
	hazard_scope_end(source->holds); /* those of the request before */
	source->request = count;
	source->segments = sq_segments(qp, sq_at(&qp->sq, count), 0, source->local, source->holds);
	return source->segments >= 0;
}

static bool roce_fetch(void *owner, uint32_t count, uint32_t offset, uint8_t *to, uint32_t n)
{
	struct roce_qp *w = owner;
	struct roce_source *source = w->source;

	lock_assert_held(&w->qp->lock);
	if ((source->segments < 0 || source->request != count) &&
	    unlikely(!source_resolve(w->qp, source, count)))
		return false;
	return copy_gather_cached(to, source->local, source->segments, offset, n);
}

static enum ibv_wc_status roce_check(void *owner, uint32_t count)
{
	struct qp *qp = roce_owner_qp(owner);
	lock_assert_held(&qp->lock);
	const struct send_wqe *wqe = sq_at(&qp->sq, count);
	bool any_length = wqe->opcode == IBV_WR_RDMA_READ || wqe->opcode == IBV_WR_FLUSH;

	return likely(any_length || wqe->length == 8) ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

static bool roce_deliver(void *owner, uint32_t count, uint32_t offset, const uint8_t *from,
			 uint32_t n, bool last)
{
	struct qp *qp = roce_owner_qp(owner);
	HAZARD_SCOPE(holds, qp);
	struct iovec local[LIMIT_SGE];
	lock_assert_held(&qp->lock);
	int segments =
		sq_segments(qp, sq_at(&qp->sq, count), IBV_ACCESS_LOCAL_WRITE, local, &holds);

	(void)last; /* a READ's completion reports its end, so no byte has to be last */
	return segments >= 0 && copy_scatter_cached(local, segments, offset, from, n);
}

/* ------------------------------------------------------------------ receives */

static enum tp_take roce_take(void *owner, const struct tp_head *head, uint32_t *room)
{
	struct roce_qp *w = owner;

	lock_assert_held(&w->qp->lock);
	const struct recv_wqe *wqe =
		head ? receive_take_for(w->qp, &w->receive, head->bytes, head->length, head->whole)
		     : receive_take(w->qp, &w->receive);

	if (!wqe)
		return TP_NO_RECEIVE;
	if (!w->qp->srq)
		memcpy(&w->receive, wqe, sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]));
	w->taken = true;
	w->taken_from = w->qp->srq;
	*room = w->receive.wqe.length;
	return TP_TAKEN;
}

static bool roce_place(void *owner, uint32_t offset, const uint8_t *from, uint32_t n, bool last)
{
	struct roce_qp *w = owner;
	HAZARD_SCOPE(holds, w->qp);
	struct iovec local[LIMIT_SGE];

	int count = receive_segments(w->qp, &w->receive.wqe, offset + n, local, &holds);

	(void)last;
	return count >= 0 && copy_scatter_cached(local, count, offset, from, n);
}

void roce_give_back(void *owner)
{
	struct roce_qp *w = owner;

	lock_assert_held(&w->qp->lock);
	if (!w->taken)
		return; /* XRC: the process that had taken it has ended */
	w->taken = false;
	if (w->qp->type == IBV_QPT_XRC_RECV)
		w->qp->srq = w->taken_from;
	receive_give_back(w->qp, &w->receive.wqe);
}

static uint32_t roce_left(void *owner)
{
	struct qp *qp = roce_owner_qp(owner);

	lock_assert_held(&qp->lock);
	return qp->srq || qp->type == IBV_QPT_XRC_RECV ? UINT32_MAX : qp->rq.head - qp->rq.tail;
}

/* ------------------------------------------------------------------ memory by rkey */

static enum tp_access roce_may_access(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				      uint32_t right)
{
	struct qp *qp = roce_owner_qp(owner);
	HAZARD_SCOPE(holds, qp);

	lock_assert_held(&qp->lock);
	if (!(qp_remote_access(qp) & right))
		return TP_ACCESS_INVALID;
	if (!length)
		return TP_ACCESS_OK; /* for no bytes no key is looked up */
	uint64_t at = remote_resolve(qp, addr, length, rkey, right, &holds);

	/* The key is checked before the alignment, and it is the memory's address that must be
	 * aligned. */
	if (likely(at))
		return right == IBV_ACCESS_REMOTE_ATOMIC && at % 8 ? TP_ACCESS_INVALID
								   : TP_ACCESS_OK;
	log_info("QP 0x%x: remote access to 0x%llx, %u bytes, rkey 0x%x refused", qp->ibv.qp_num,
		 (unsigned long long)addr, length, rkey);
	return TP_ACCESS_REFUSED;
}

/* remote_resolve() within a call of the transport core. */
static uint64_t roce_resolve(struct qp *qp, uint64_t addr, uint32_t n, uint32_t rkey,
			     uint32_t right, const struct hazard_scope *holds)
{
	lock_assert_held(&qp->lock);
	return remote_resolve(qp, addr, n, rkey, right, holds);
}

/* Bytes of a WRITE; `last`: they end it, and their final byte is copied last. */
static bool write_in(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from, uint32_t n,
		     bool last)
{
	enum { LONG = 512 }; /* a second copy, of the last byte, doesn't count */
	struct qp *qp = roce_owner_qp(owner);
	HAZARD_SCOPE(holds, qp);
	uint64_t at = roce_resolve(qp, addr, n, rkey, IBV_ACCESS_REMOTE_WRITE, &holds);
	uint32_t body = n - last;
	struct iovec piece = {(void *)from, body};

	if (!at)
		return false;
	if (n < LONG || unlikely(foreign_is((void *)(uintptr_t)at)))
		return remote_write(at, from, n, last);
	return copy_gather_cached((void *)(uintptr_t)at, &piece, 1, 0, body) &&
	       (!last || remote_write(at + body, from + body, 1, true));
}

static bool read_out(void *owner, uint64_t addr, uint32_t rkey, uint8_t *to, uint32_t n)
{
	struct qp *qp = roce_owner_qp(owner);
	HAZARD_SCOPE(holds, qp);
	uint64_t at = roce_resolve(qp, addr, n, rkey, IBV_ACCESS_REMOTE_READ, &holds);
	struct iovec piece = {(void *)(uintptr_t)at, n};

	return at && copy_gather_cached(to, &piece, 1, 0, n);
}

static bool roce_atomic(void *owner, uint64_t addr, uint32_t rkey, bool is_swap,
			uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	struct qp *qp = roce_owner_qp(owner);
	HAZARD_SCOPE(holds, qp);
	const struct record_atomic op = {.addr = addr,
					 .rkey = rkey,
					 .operation = is_swap ? RECORD_SWAP : RECORD_ADD,
					 .compare_add = compare_add,
					 .swap = swap};
	uint64_t at = roce_resolve(qp, addr, 8, rkey, IBV_ACCESS_REMOTE_ATOMIC, &holds);

	return at && atomic_execute(at, &op, old);
}

static enum tp_access roce_store(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from)
{
	struct qp *qp = roce_owner_qp(owner);
	HAZARD_SCOPE(holds, qp);
	struct record_atomic op = {.operation = RECORD_STORE};
	uint64_t old, at = roce_resolve(qp, addr, 8, rkey, IBV_ACCESS_REMOTE_WRITE, &holds);

	if (!at || foreign_is((void *)(uintptr_t)at))
		return TP_ACCESS_REFUSED;
	if (at % 8)
		return TP_ACCESS_INVALID;
	memcpy(&op.swap, from, sizeof(op.swap));
	return atomic_execute(at, &op, &old) ? TP_ACCESS_OK : TP_ACCESS_REFUSED;
}

static enum tp_access roce_flush(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				 uint8_t feth)
{
	struct qp *qp = roce_owner_qp(owner);

	lock_assert_held(&qp->lock);
	switch (execute_flush(qp, addr, length, rkey, feth)) {
	case IBV_WC_SUCCESS:
		return TP_ACCESS_OK;
	case IBV_WC_REM_ACCESS_ERR:
		log_info("QP 0x%x: FLUSH of 0x%llx, %u bytes, rkey 0x%x refused", qp->ibv.qp_num,
			 (unsigned long long)addr, length, rkey);
		return TP_ACCESS_REFUSED;
	default:
		return TP_ACCESS_INVALID;
	}
}

static enum tp_access roce_aim(void *owner, uint32_t srqn)
{
	struct qp *qp = roce_owner_qp(owner);

	lock_assert_held(&qp->lock);
	switch (xrc_aim(qp, srqn)) {
	case XRC_HERE:
		return TP_ACCESS_OK;
	case XRC_ELSEWHERE:
		return TP_ACCESS_ELSEWHERE;
	default:
		return TP_ACCESS_REFUSED;
	}
}

static bool roce_invalidate(void *owner, uint32_t rkey)
{
	struct qp *qp = roce_owner_qp(owner);

	lock_assert_held(&qp->lock);
	return window_invalidate(qp, rkey);
}

const struct tp_world roce_world = {
	.fetch = roce_fetch,
	.check = roce_check,
	.deliver = roce_deliver,
	.aim = roce_aim,
	.receive_take = roce_take,
	.receive_place = roce_place,
	.receive_back = roce_give_back,
	.receives_left = roce_left,
	.access = roce_may_access,
	.write = write_in,
	.read = read_out,
	.atomic = roce_atomic,
	.store = roce_store,
	.flush = roce_flush,
	.invalidate = roce_invalidate,
};
