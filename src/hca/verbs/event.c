/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queues of events behind a descriptor, and raising asynchronous events.
 *
 * The descriptor is an eventfd in semaphore mode: a read takes one count and blocks (or fails with
 * EAGAIN) when there is none. Invariant, whenever the queue's lock is free:
 *
 *	count of the eventfd + readers that took a count and not yet an event == events on the list
 *
 * so the descriptor is readable only while there is an event for its reader.
 *   - Adding appends and counts up within one hold of the lock.
 *   - Reading takes a count first (this is where it may block), then an event under the lock.
 *   - Forgetting takes k events off the list and up to k counts back. If it finds fewer counts,
 *     readers hold the missing ones; the left side may then exceed the right, and that many readers
 *     find the list empty and go back to read().
 * Taking counts back must not block, whatever mode the program has given the descriptor: it is done
 * with RWF_NOWAIT.
 *
 * An event must not be lost because memory is short at that moment (a program under RLIMIT_DATA, a
 * full control group): its program would wait for ever. So a queue has SPARES from the beginning,
 * and keeps as many of those that are read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/wq.h"

enum { SPARES = 8 };

/* Takes an event that isn't used any more. */
static void event_put(struct event_queue *queue, struct event *event) REQUIRES(queue->lock)
{
	if (queue->spare == SPARES) {
		free(event);
		return;
	}
	list_add_tail(&queue->spares, &event->node);
	queue->spare++;
}

/* NULL: there is no memory. */
static struct event *event_obtain(struct event_queue *queue) REQUIRES(queue->lock)
{
	struct list *node = list_pop(&queue->spares);

	if (!node)
		return malloc(sizeof(struct event));
	queue->spare--;
	return container_of(node, struct event, node);
}

static void events_free(struct list *list)
{
	struct list *node;

	while ((node = list_pop(list)))
		free(container_of(node, struct event, node));
}

int event_queue_init(struct event_queue *queue)
{
	queue->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (queue->fd < 0)
		return -errno;
	lock_init(&queue->lock, RANK_EVENT_QUEUE);
	list_init(&queue->events);
	list_init(&queue->spares);
	queue->spare = 0;
	for (struct event *event; queue->spare < SPARES; event_put(queue, event)) {
		event = malloc(sizeof(*event));
		if (!event) {
			event_queue_destroy(queue);
			return -ENOMEM;
		}
	}
	return 0;
}

void event_queue_destroy(struct event_queue *queue)
{
	lock_take(&queue->lock);
	events_free(&queue->events);
	events_free(&queue->spares);
	lock_give(&queue->lock);
	sys_close(queue->fd);
	queue->fd = -1;
}

void event_queue_push(struct event_queue *queue, void *object, const struct ibv_async_event *async,
		      uint32_t *reported)
{
	uint64_t one = 1;

	lock_take(&queue->lock);
	struct event *event = event_obtain(queue);

	if (unlikely(!event)) {
		lock_give(&queue->lock);
		log_error("out of memory: an event of the program's is lost");
		return;
	}
	*event = (struct event){.object = object, .reported = reported};
	if (async)
		event->async = *async;
	list_add_tail(&queue->events, &event->node);
	if (sys_write(queue->fd, &one, sizeof(one)) < 0)
		log_error(
			"descriptor %d of an event queue can't be written to (%s): did the program "
			"close it?",
			queue->fd, strerror(errno));
	lock_give(&queue->lock);
}

int event_queue_read(struct event_queue *queue, struct event *out)
{
	uint64_t count;

	for (;;) {
		if (read(queue->fd, &count, sizeof(count)) < 0)
			return -1;
		lock_take(&queue->lock);
		struct list *node = list_pop(&queue->events);

		if (node) {
			struct event *event = container_of(node, struct event, node);

			if (event->reported)
				++*event->reported;
			*out = *event;
			event_put(queue, event);
			lock_give(&queue->lock);
			return 0;
		}
		lock_give(&queue->lock); /* the event was forgotten: waits for the next one */
	}
}

/* Takes one count back without blocking; false: there is none. */
static bool take_count(const struct event_queue *queue)
{
	uint64_t count;
	struct iovec iov = {&count, sizeof(count)};

	return sys_preadv2(queue->fd, &iov, 1, -1, RWF_NOWAIT) == sizeof(count);
}

void event_queue_forget(struct event_queue *queue, void *object)
{
	bool counts = true;

	lock_take(&queue->lock);
	list_for_each(node, &queue->events) {
		struct event *event = container_of(node, struct event, node);

		if (event->object != object)
			continue;
		list_del(node);
		event_put(queue, event);
		counts = counts && take_count(queue);
	}
	lock_give(&queue->lock);
}

/* ------------------------------------------------------------------ asynchronous events */

void async_qp(struct qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event async = {.element.qp = &qp->ibv, .event_type = type};

	/* The program knows the work queue, not the QP inside it. */
	if (qp->wq)
		async = (struct ibv_async_event){.element.wq = &qp->wq->ibv,
						 .event_type = IBV_EVENT_WQ_FATAL};
	event_queue_push(&qp->context->async, qp, &async, &qp->async_reported);
}

void async_cq(struct cq *cq, enum ibv_event_type type)
{
	struct ibv_async_event async = {.element.cq = &cq->ibv, .event_type = type};

	event_queue_push(&cq->context->async, cq, &async, &cq->async_reported);
}

void async_srq(struct srq *srq, enum ibv_event_type type)
{
	struct ibv_async_event async = {.element.srq = &srq->ibv, .event_type = type};

	event_queue_push(&context_of(srq->ibv.context)->async, srq, &async, &srq->async_reported);
}

void async_remove_device(struct hca *hca, uint32_t device)
{
	lock_take(&hca->contexts_lock);
	list_for_each(node, &hca->contexts) {
		struct context *context = container_of(node, struct context, node);

		if (context->device_index == device)
			atomic_store_explicit(&context->removed, true, memory_order_relaxed);
	}
	lock_give(&hca->contexts_lock);
}

void async_device(struct hca *hca, enum ibv_event_type type, uint32_t device, int port)
{
	struct ibv_async_event async = {.element.port_num = port, .event_type = type};

	lock_take(&hca->contexts_lock);
	list_for_each(node, &hca->contexts) {
		struct context *context = container_of(node, struct context, node);

		if (context->device_index == device)
			event_queue_push(&context->async, NULL, &async, NULL);
	}
	lock_give(&hca->contexts_lock);
}
