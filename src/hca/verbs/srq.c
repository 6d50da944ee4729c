/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues. srq.lock guards the ring and the limit; hca.engine guards the list of QPs
 * that wait for a receive. */
#include "hca/verbs/srq.h"
#include "base/sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "hca/engine/engine.h"
#include "hca/exec/xrc_target.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/xrcd.h"

int srq_register(struct daemon_conn *conn, struct srq *srq, uint32_t max_wr, uint32_t max_sge,
		 struct ib_uverbs_create_srq_resp *resp)
{
	if (!srq->xrcd)
		return daemon_create_srq(conn, pd_of(srq->ibv.pd)->handle, max_wr, max_sge,
					 &resp->srq_handle);
	const struct ib_uverbs_create_xsrq body = {
		.srq_type = IBV_SRQT_XRC,
		.pd_handle = pd_of(srq->ibv.pd)->handle,
		.max_wr = max_wr,
		.max_sge = max_sge,
		.xrcd_handle = srq->xrcd->handle,
		.cq_handle = srq->cq->handle,
	};

	return daemon_create_xsrq(conn, &body, resp);
}

static int register_srq(struct srq *srq, struct context *context) REQUIRES(srq->lock)
{
	struct ib_uverbs_create_srq_resp resp = {0};

	books_enter(context->hca);
	int err = srq_register(&context->conn, srq, srq->rq.max_wr, srq->rq.max_sge, &resp);

	if (!err)
		books_add(context, HELD_SRQ, &srq->held);
	books_leave(context->hca);
	srq->ibv.handle = srq->handle = resp.srq_handle;
	srq->number = resp.srqn;
	srq->index = resp.srqn & (LIMIT_QPS_PER_SLOT - 1);
	if (!err && srq->xrcd)
		atomic_store(&context->hca->last_qp_index, srq->index);
	return -err;
}

static struct ibv_srq *srq_make(struct ibv_pd *pd, const struct ibv_srq_init_attr *init,
				struct xrcd *xrcd, struct cq *cq)
{
	struct context *context = context_of(pd->context);
	uint32_t max_wr = init->attr.max_wr, max_sge = init->attr.max_sge;
	int err;

	if (!max_wr || max_wr > LIMIT_SRQ_WR || max_sge > LIMIT_SGE) {
		errno = EINVAL;
		return NULL;
	}
	struct srq *srq = calloc(1, sizeof(*srq));

	if (!srq) {
		errno = ENOMEM;
		return NULL;
	}
	lock_init(&srq->lock, RANK_SRQ);
	srq->ibv.pd = pd;
	srq->xrcd = xrcd;
	srq->cq = cq;
	err = rq_init(&srq->rq, max_wr, max_sge ? max_sge : 1, pd, QUEUE_SRQ);
	if (!err)
		err = register_srq(srq, context);
	if (err) {
		rq_free(&srq->rq);
		free(srq);
		errno = err;
		return NULL;
	}
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = init->srq_context;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	srq->pd_id = pd_of(pd)->id;
	pd_use(pd, 1);
	list_init(&srq->waiters);
	return &srq->ibv;
}

struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	return srq_make(pd, init, NULL, NULL);
}

struct ibv_srq *srq_create_xrc(struct ibv_srq_init_attr_ex *init)
{
	const struct ibv_srq_init_attr plain = {.srq_context = init->srq_context,
						.attr = init->attr};
	struct cq *cq = cq_of(init->cq);
	struct ibv_srq *ibv = srq_make(init->pd, &plain, hca_xrcd_of(init->xrcd), cq);
	int err;

	if (!ibv)
		return NULL;
	atomic_fetch_add(&cq->users, 1);
	err = xrc_srq_begins(srq_of(ibv));
	if (!err)
		return ibv;
	srq_destroy(ibv);
	errno = err;
	return NULL;
}

/* Moves the posted receives into *ring, which becomes the SRQ's; *ring becomes the old one. EINVAL:
 * they don't fit. */
static int srq_swap(struct srq *srq, struct recv_queue *ring) REQUIRES(srq->lock)
{
	if (srq->rq.head - srq->rq.tail > ring->max_wr)
		return EINVAL;
	for (; srq->rq.tail != srq->rq.head; srq->rq.tail++)
		memcpy(rq_at(ring, ring->head++), rq_at(&srq->rq, srq->rq.tail), srq->rq.stride);
	struct recv_queue old = srq->rq;

	srq->rq = *ring;
	*ring = old;
	return 0;
}

static uint32_t srq_max_sge(struct srq *srq)
{
	lock_take(&srq->lock);
	uint32_t max_sge = srq->rq.max_sge;

	lock_give(&srq->lock);
	return max_sge;
}

static int srq_set_limit(struct srq *srq, uint32_t limit) REQUIRES(srq->lock)
{
	if (limit > srq->rq.max_wr)
		return EINVAL;
	srq->limit = limit;
	return 0;
}

int srq_modify(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct srq *srq = srq_of(ibv);
	struct context *context = context_of(ibv->context);
	bool resizes = mask & IBV_SRQ_MAX_WR;
	struct recv_queue ring = {0};
	int err = 0;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) ||
	    (resizes && (!attr->max_wr || attr->max_wr > LIMIT_SRQ_WR)))
		return EINVAL;
	if (resizes)
		err = rq_init(&ring, attr->max_wr, srq_max_sge(srq), ibv->pd, QUEUE_SRQ);
	if (err)
		return err;
	books_enter(context->hca);
	if (resizes)
		err = -daemon_modify_srq(&context->conn, srq->handle, attr->max_wr);
	lock_take(&srq->lock);
	if (!err && resizes)
		err = srq_swap(srq, &ring);
	if (!err && (mask & IBV_SRQ_LIMIT))
		err = srq_set_limit(srq, attr->srq_limit);
	lock_give(&srq->lock);
	books_leave(context->hca);
	rq_free(&ring);
	return err;
}

int srq_query(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct srq *srq = srq_of(ibv);

	lock_take(&srq->lock);
	*attr = (struct ibv_srq_attr){
		.max_wr = srq->rq.max_wr, .max_sge = srq->rq.max_sge, .srq_limit = srq->limit};
	lock_give(&srq->lock);
	return 0;
}

int srq_destroy(struct ibv_srq *ibv)
{
	struct srq *srq = srq_of(ibv);
	struct context *context = context_of(ibv->context);

	if (srq->xrcd)
		xrc_srq_ends(srq);
	books_enter(context->hca);
	int err = -daemon_destroy_srq(&context->conn, srq->handle);

	if (err == EIO) /* the daemon is gone, and the SRQ's handle with it */
		err = 0;
	if (!err)
		books_drop(context, &srq->held);
	books_leave(context->hca);
	if (err)
		return err;
	if (srq->cq)
		atomic_fetch_sub(&srq->cq->users, 1);
	event_queue_forget(&context->async, srq);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != srq->async_reported)
		sys_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	lock_assume_alone(&srq->lock);
	rq_free(&srq->rq);
	pd_use(ibv->pd, -1);
	free(srq);
	return 0;
}

static void resume_waiters(struct srq *srq)
{
	struct hca *hca = context_of(srq->ibv.context)->hca;
	struct list batch, *node;

	lock_take(&hca->engine);
	atomic_store(&srq->has_waiters, 0);
	list_init(&batch);
	while ((node = list_pop(&srq->waiters)))
		list_add_tail(&batch, node);
	while ((node = list_pop(&batch))) {
		struct qp *qp = container_of(node, struct qp, srq_wait);

		lock_take(&qp->lock);
		qp->carrier->receive_posted(qp); /* enters the list again if the SRQ is empty */
		lock_give(&qp->lock);
	}
	engine_leave(hca);
}

int srq_post(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *srq = srq_of(ibv);

	lock_take(&srq->lock);
	int err = rq_add(&srq->rq, wr, bad);

	lock_give(&srq->lock);
	if (unlikely(atomic_load(&srq->has_waiters)))
		resume_waiters(srq);
	return err;
}

enum receive_fit srq_take(struct srq *srq, uint32_t length, struct recv_wqe *out)
{
	enum receive_fit fit = RECEIVE_NONE;
	bool event = false;

	lock_take(&srq->lock);
	const struct recv_wqe *wqe = rq_at(&srq->rq, srq->rq.tail);

	if (likely(srq->rq.tail != srq->rq.head))
		fit = wqe->length < length ? RECEIVE_TOO_SHORT : RECEIVE_FITS;
	if (likely(fit == RECEIVE_FITS)) {
		memcpy(out, wqe, sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]));
		srq->rq.tail++;
		event = srq->limit && srq->rq.head - srq->rq.tail < srq->limit;
		if (event)
			srq->limit = 0; /* one event for each arming */
	}
	lock_give(&srq->lock);
	if (event)
		async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	return fit;
}

bool srq_give_back(struct srq *srq, const struct recv_wqe *wqe)
{
	lock_take(&srq->lock);
	bool room = srq->rq.head - srq->rq.tail <= srq->rq.mask;

	if (room)
		memcpy(rq_at(&srq->rq, --srq->rq.tail), wqe,
		       sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]));
	lock_give(&srq->lock);
	return room;
}
