/* SPDX-License-Identifier: BSD-2-Clause */
/* Receive queues of QPs, and the ring that SRQs share. Under the owner's lock. */
#include <errno.h>
#include <string.h>

#include "hca/engine/engine.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

int rq_init(struct recv_queue *rq, uint32_t max_wr, uint32_t max_sge, struct ibv_pd *pd,
	    enum queue_kind kind)
{
	uint32_t places = power_of_two(max_wr ? max_wr : 1);

	rq->stride = sizeof(struct recv_wqe) + (max_sge ? max_sge : 1) * sizeof(struct ibv_sge);
	rq->mask = places - 1;
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	rq->head = rq->tail = rq->published = RECV_QUEUE_START;
	rq->held = 0;
	rq->used = false;
	rq->wqes = NULL;
	rq->memory = (struct queue_memory){0};
	if (!max_wr)
		return 0;
	int err = queue_memory_make(&rq->memory, pd, (size_t)places * rq->stride, kind);

	rq->wqes = rq->memory.at;
	return err;
}

void rq_free(struct recv_queue *rq)
{
	queue_memory_free(&rq->memory);
	rq->wqes = NULL;
}

void rq_flush(struct qp *qp)
{
	if (qp->srq || !qp->recv_cq)
		return;
	for (; qp->rq.tail != qp->rq.head; qp->rq.tail++) {
		struct cqe cqe = {
			.wr_id = rq_at(&qp->rq, qp->rq.tail)->wr_id,
			.status = IBV_WC_WR_FLUSH_ERR,
			.opcode = IBV_WC_RECV,
			.qp_num = qp->ibv.qp_num,
		};

		cq_push(qp->recv_cq, &cqe, true);
	}
}

/* Resumes messages that waited for a receive. The carrier needs the engine's lock, which ranks
 * before qp.lock. */
static void resume_inbound(struct qp *qp)
{
	lock_take(&qp->hca->engine);
	lock_take(&qp->lock);
	qp->carrier->receive_posted(qp);
	lock_give(&qp->lock);
	engine_leave(qp->hca);
}

/* Publishes the number of receives posted once per quarter queue, since the peer reads the entry's
 * cache line for each of its requests. */
static void tell_receives(struct qp *qp)
{
	struct recv_queue *rq = &qp->rq;

	if (rq->head - rq->published < (rq->max_wr + 3) / 4)
		return;
	rq->published = rq->head;
	/* Relaxed: it orders nothing, since a thread that takes such a receive holds qp.lock, as
	 * this one. */
	atomic_store_explicit(&qp->hca->pub->qp[qp->index].receives, rq->published,
			      memory_order_relaxed);
}

int rq_post(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = qp_of(ibv);
	bool waiting;
	int err;

	lock_take(&qp->lock);
	if (unlikely(qp->srq || qp->spread || !qp->recv_cq || qp->state == IBV_QPS_RESET)) {
		*bad = wr;
		err = EINVAL;
	} else {
		err = rq_add(&qp->rq, wr, bad);
		tell_receives(qp);
		if (unlikely(qp->state == IBV_QPS_ERR))
			rq_flush(qp);
	}
	waiting = qp->starved;
	lock_give(&qp->lock);
	if (unlikely(waiting))
		resume_inbound(qp);
	return err;
}
