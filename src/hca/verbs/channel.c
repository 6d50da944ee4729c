/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels, and reading and acknowledging events. An object counts its events that the
 * program has read (under the lock of the queue that they came from) and those that the program has
 * acknowledged (under the object's public mutex); destroying it waits until both are equal.
 * A channel's refcnt is the number of its CQs, under the context's public mutex.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/refused.h"
#include "hca/engine/engine.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/verbs/channel.h"
#include "hca/verbs/completion.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/wq.h"

static struct channel *channel_of(struct ibv_comp_channel *ibv)
{
	return container_of(ibv, struct channel, ibv);
}

struct ibv_comp_channel *channel_create(struct ibv_context *ibv)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	struct context *context = context_of(ibv);
	int err = channel ? event_queue_init(&channel->queue) : -ENOMEM;

	if (err) {
		free(channel);
		errno = -err;
		return NULL;
	}
	mutex_init(&channel->first, RANK_CHANNEL_FIRST);
	channel->ibv.context = ibv;
	channel->ibv.fd = channel->queue.fd;
	books_enter(context->hca);
	books_add(context, HELD_CHANNEL, &channel->held);
	books_leave(context->hca);
	return &channel->ibv;
}

int channel_destroy(struct ibv_comp_channel *ibv)
{
	struct channel *channel = channel_of(ibv);

	pthread_mutex_lock(&ibv->context->mutex);
	bool busy = ibv->refcnt != 0;

	pthread_mutex_unlock(&ibv->context->mutex);
	if (busy)
		return refused(EBUSY, "ibv_destroy_comp_channel: CQs use the channel, and must be "
				      "destroyed first");
	struct context *context = context_of(ibv->context);

	books_enter(context->hca);
	if (channel->registered)
		daemon_destroy_channel(&context->conn, channel->handle);
	books_drop(context, &channel->held);
	books_leave(context->hca);
	event_queue_destroy(&channel->queue);
	free(channel);
	return 0;
}

int channel_get_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **cq_context)
{
	struct event event;

	engine_release(context_of(ibv->context)->hca); /* this thread is about to block */
	if (event_queue_read(&channel_of(ibv)->queue, &event) < 0)
		return -1;
	*cq = &((struct cq *)event.object)->ibv;
	*cq_context = (*cq)->cq_context;
	return 0;
}

int async_get_event(struct ibv_context *context, struct ibv_async_event *out)
{
	struct event event;

	if (event_queue_read(&context_of(context)->async, &event) < 0)
		return -1;
	*out = event.async;
	return 0;
}

/* Counts one acknowledged event, and wakes the thread that destroys the object, if there is one. */
static void events_acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(mutex);
}

void async_ack_event(const struct ibv_async_event *event)
{
	struct ibv_qp *qp = event->element.qp;
	struct ibv_cq *cq = event->element.cq;
	struct ibv_srq *srq = event->element.srq;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		events_acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case IBV_EVENT_WQ_FATAL:
		qp = &wq_of(event->element.wq)->qp->ibv;
		++event->element.wq->events_completed;
		events_acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case IBV_EVENT_CQ_ERR:
		events_acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		events_acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	default: /* events of a port or of the device have no object that could be destroyed */
		break;
	}
}
