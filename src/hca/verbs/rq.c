/* SPDX-License-Identifier: BSD-2-Clause */
/* Receive queues of QPs, and the ring that SRQs share. Under the owner's lock. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"

int rq_init(struct recv_queue *rq, uint32_t max_wr, uint32_t max_sge, struct ibv_pd *pd,
	    enum queue_kind kind)
{
	uint32_t places = queue_places(max_wr);

	rq->stride = sizeof(struct recv_wqe) + (max_sge ? max_sge : 1) * sizeof(struct ibv_sge);
	rq->mask = places - 1;
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	rq->head = rq->tail = rq->published = RECV_QUEUE_START;
	rq->used = false;
	rq->room = RECV_QUEUE_START + max_wr;
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
			.places = qp->receives,
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

static void rq_say_full(struct qp *qp, const struct recv_queue *rq) REQUIRES(qp->lock)
{
	if (!rq->max_wr)
		log_warn("ibv_post_recv: QP 0x%x was made with max_recv_wr 0, so it takes none",
			 qp->ibv.qp_num);
	else
		log_warn("ibv_post_recv: QP 0x%x: %u of %u places are taken; %u receives wait for "
			 "messages, %u completions wait in CQ %u (a place is free once its "
			 "completion was polled)",
			 qp->ibv.qp_num, rq->max_wr, rq->max_wr, rq->head - rq->tail,
			 cq_count_for(qp->recv_cq, qp->receives), qp->recv_cq->handle);
}

static bool rq_find_room(struct recv_queue *rq)
{
	struct qp *qp = container_of(rq, struct qp, rq);
	uint32_t freed = places_freed(qp->receives);

	lock_assert_held(&qp->lock);
	if (places_suffice(rq->head - freed, rq->max_wr, 1)) {
		rq->room = freed + rq->max_wr;
		return true;
	}
	if (!rq->said_full)
		rq_say_full(qp, rq);
	rq->said_full = true;
	return false;
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
		err = rq_add(&qp->rq, wr, bad, rq_find_room);
		tell_receives(qp);
		if (unlikely(qp->state == IBV_QPS_ERR))
			rq_flush(qp);
	}
	if (unlikely(err))
		say_receive_refused(qp, *bad, err);
	waiting = qp->starved;
	lock_give(&qp->lock);
	if (unlikely(waiting))
		resume_inbound(qp);
	return err;
}
