/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives, as every carrier takes and completes them. See execute.h. No state of its own. */
#include "hca/exec/execute.h"

#include "hca/mem/foreign.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"
#include "hca/verbs/srq.h"

enum receive_fit receive_take_fitting(struct qp *qp, struct receive *room, uint32_t length,
				      const struct recv_wqe **wqe)
{
	if (qp->srq) {
		*wqe = &room->wqe;
		return srq_take(qp->srq, length, &room->wqe);
	}
	if (unlikely(qp->rq.tail == qp->rq.head))
		return RECEIVE_NONE;
	*wqe = rq_at(&qp->rq, qp->rq.tail); /* not overwritten while qp.lock is held */
	if (unlikely((*wqe)->length < length))
		return RECEIVE_TOO_SHORT;
	qp->rq.tail++;
	return RECEIVE_FITS;
}

const struct recv_wqe *receive_take(struct qp *qp, struct receive *room)
{
	const struct recv_wqe *wqe;

	return likely(receive_take_fitting(qp, room, 0, &wqe) == RECEIVE_FITS) ? wqe : NULL;
}

const struct recv_wqe *receive_take_for(struct qp *qp, struct receive *room, const uint8_t *head,
					uint32_t length, bool whole)
{
	return unlikely(qp->tagged != NULL) ? tagged_take(qp, room, head, length, whole)
					    : receive_take(qp, room);
}

void receive_wait(struct qp *qp, bool waits)
{
	qp->starved = waits;
	if (!qp->srq)
		return;
	if (!waits) {
		list_del(&qp->srq_wait);
		return;
	}
	if (list_empty(&qp->srq_wait))
		list_add_tail(&qp->srq->waiters, &qp->srq_wait);
	atomic_store(&qp->srq->has_waiters, 1);
}

bool receive_ever_posted(struct qp *qp)
{
	if (!qp->srq)
		return qp->rq.used;
	lock_take(&qp->srq->lock);
	bool posted = qp->srq->rq.used;

	lock_give(&qp->srq->lock);
	return posted;
}

void receive_give_back(struct qp *qp, const struct recv_wqe *wqe)
{
	if (unlikely(qp->tagged != NULL)) {
		tagged_give_back(qp, wqe);
	} else if (!qp->srq) {
		qp->rq.tail--; /* it was the last one taken, since messages come in order */
	} else {
		srq_give_back(qp->srq, wqe);
	}
}

int receive_segments_of_several(const struct qp *qp, const struct recv_wqe *wqe, uint32_t length,
				struct iovec *out, const struct hazard_scope *scope)
{
	struct ibv_sge reached[LIMIT_SGE];
	uint32_t count = 0;

	for (; length && count < wqe->num_sge; count++) {
		reached[count] = wqe->sge[count];
		if (length < reached[count].length)
			reached[count].length = length;
		length -= reached[count].length;
	}
	return mr_resolve_list(qp->hca, receive_domain(qp), reached, count, IBV_ACCESS_LOCAL_WRITE,
			       out, scope);
}

/* The same for a region that this process imported, as long as its owner has it. */
static bool flush_granted_to_import(const struct qp *qp, const struct mr_view *view, uint32_t rkey,
				    const struct mr_flush *flush)
{
	uint64_t addr = flush->whole ? view->start : flush->addr;

	return foreign_resolve(qp->hca, qp->pd_id, addr, flush->whole ? 0 : flush->length, rkey,
			       flush->access);
}

enum ibv_wc_status execute_flush(const struct qp *qp, uint64_t addr, uint32_t length, uint32_t rkey,
				 uint8_t feth)
{
	struct mr_flush flush = mr_flush_of(addr, length, feth);
	struct mr_view view;

	if (!flush.access || (qp_remote_access(qp) & flush.access) != flush.access)
		return IBV_WC_REM_INV_REQ_ERR;
	if (!mr_read_range(qp->hca->regions, rkey, &view))
		return IBV_WC_REM_ACCESS_ERR;
	if (!mr_flush_granted(&view, qp->pd_id, &flush) &&
	    !flush_granted_to_import(qp, &view, rkey, &flush))
		return IBV_WC_REM_ACCESS_ERR;
	flush_fence();
	return IBV_WC_SUCCESS;
}

static inline uint8_t flags_of_arrival(const struct arrival *arrival)
{
	if (arrival->has_imm)
		return IBV_WC_WITH_IMM;
	return arrival->invalidates ? IBV_WC_WITH_INV : 0;
}

/* Takes the next receive if it is an ordinary one for `length` bytes: *wqe. Returns its address. 0:
 * it isn't, and stays the next one. */
static inline uint64_t take_ordinary(struct qp *qp, uint32_t length,
				     const struct hazard_scope *scope, struct receive *room,
				     const struct recv_wqe **wqe) REQUIRES(qp->lock)
{
	if (unlikely(qp->srq)) {
		*wqe = &room->wqe;
		return unlikely(qp->tagged != NULL)
			       ? 0
			       : srq_take_ordinary(qp->srq, qp->hca, length, scope, &room->wqe);
	}
	*wqe = rq_at(&qp->rq, qp->rq.tail); /* not overwritten while qp.lock is held */
	if (unlikely(qp->rq.tail == qp->rq.head || !recv_is_ordinary(*wqe, length)))
		return 0;
	const struct ibv_sge place = recv_place(*wqe, length);
	uint64_t at = mr_resolve_own(qp->hca, qp->pd_id, &place, IBV_ACCESS_LOCAL_WRITE, scope);

	qp->rq.tail += at != 0;
	return at;
}

enum receive_outcome receive_whole(struct qp *qp, const struct arrival *arrival,
				   const uint8_t *payload, struct receive *room,
				   const struct recv_wqe **wqe, _Atomic uint64_t *taken,
				   uint64_t word)
{
	uint32_t length = arrival->length;
	HAZARD_SCOPE(scope, qp);
	uint64_t at = take_ordinary(qp, length, &scope, room, wqe);

	if (unlikely(!at))
		return RECEIVE_OTHERWISE;
	if (unlikely(!copy_piece((void *)(uintptr_t)at, payload, length)))
		return RECEIVE_FAULTED;
	const struct cqe cqe = {
		.wr_id = (*wqe)->wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = length,
		.imm = arrival->imm,
		.qp_num = qp->ibv.qp_num,
		.src_qp = arrival->src_qpn,
		.wc_flags = flags_of_arrival(arrival),
		.places = qp->receives,
	};

	atomic_store_explicit(taken, word, memory_order_relaxed);
	cq_add(qp->recv_cq, &cqe, arrival->solicited);
	return RECEIVE_COMPLETED;
}

void receive_complete(struct qp *qp, const struct recv_wqe *wqe, const struct arrival *arrival,
		      enum ibv_wc_status status)
{
	if (unlikely(qp->tagged != NULL) && qp->tagged->way != TAGGED_NONE) {
		tagged_complete(qp, wqe, arrival, status);
		return;
	}
	if (unlikely(status != IBV_WC_SUCCESS))
		say_receive_failed(qp, wqe->wr_id, status);
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = arrival->is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = arrival->length,
		.imm = arrival->imm,
		.qp_num = qp->ibv.qp_num,
		.src_qp = arrival->src_qpn,
		.wc_flags = flags_of_arrival(arrival),
		.places = qp->receives,
	};

	struct cq *cq = unlikely(qp->tagged != NULL) ? tagged_cq(qp) : qp->recv_cq;

	cq_push(cq, &cqe, arrival->solicited || status != IBV_WC_SUCCESS);
}
