/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of the kernel's devices. The kernel writes records to a descriptor for each completion
 * channel and one for each context; a record names the object by the address that its command gave.
 * Reading waits, holds no lock and is cancellable, as in rdma-core. No state.
 */
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "base/sys.h"
#include "kverbs/kernel.h"

/* What an event concerns. */
enum event_subject { SUBJECT_PORT, SUBJECT_CQ, SUBJECT_QP, SUBJECT_SRQ, SUBJECT_WQ };

static enum event_subject subject_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return SUBJECT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return SUBJECT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return SUBJECT_SRQ;
	case IBV_EVENT_WQ_FATAL:
		return SUBJECT_WQ;
	default:
		return SUBJECT_PORT;
	}
}

int kernel_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct ib_uverbs_comp_event_desc record;

	if (read(channel->fd, &record, sizeof(record)) != sizeof(record))
		return -1;
	*cq = (struct ibv_cq *)(uintptr_t)record.cq_handle;
	*cq_context = (*cq)->cq_context;
	struct kernel_context *kernel = kernel_of((*cq)->context);

	if (kernel->ops.cq_event)
		kernel->ops.cq_event(*cq);
	return 0;
}

void kernel_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

int kernel_get_async_event(struct kernel_context *kernel, struct ibv_async_event *event)
{
	struct ibv_context *context = &kernel->verbs->context;
	struct ib_uverbs_async_event_desc record;

	if (read(context->async_fd, &record, sizeof(record)) != sizeof(record))
		return -1;
	event->event_type = record.event_type;
	switch (subject_of(event->event_type)) {
	case SUBJECT_CQ:
		event->element.cq = (struct ibv_cq *)(uintptr_t)record.element;
		break;
	case SUBJECT_QP:
		event->element.qp = (struct ibv_qp *)(uintptr_t)record.element;
		break;
	case SUBJECT_SRQ:
		event->element.srq = (struct ibv_srq *)(uintptr_t)record.element;
		break;
	case SUBJECT_WQ:
		event->element.wq = (struct ibv_wq *)(uintptr_t)record.element;
		break;
	case SUBJECT_PORT:
		event->element.port_num = (int)record.element;
		break;
	}
	if (kernel->ops.async_event)
		kernel->ops.async_event(context, event);
	return 0;
}

static void event_count(uint32_t *completed, pthread_mutex_t *mutex, pthread_cond_t *cond)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

bool kernel_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;
	struct ibv_wq *wq = event->element.wq;

	switch (subject_of(event->event_type)) {
	case SUBJECT_CQ:
		if (!kernel_of(cq->context))
			return false;
		event_count(&cq->async_events_completed, &cq->mutex, &cq->cond);
		return true;
	case SUBJECT_QP:
		if (!kernel_of(qp->context))
			return false;
		event_count(&qp->events_completed, &qp->mutex, &qp->cond);
		return true;
	case SUBJECT_SRQ:
		if (!kernel_of(srq->context))
			return false;
		event_count(&srq->events_completed, &srq->mutex, &srq->cond);
		return true;
	case SUBJECT_WQ:
		if (!kernel_of(wq->context))
			return false;
		event_count(&wq->events_completed, &wq->mutex, &wq->cond);
		return true;
	default:
		return false; /* no object: Verbena's function does what there is to do */
	}
}
