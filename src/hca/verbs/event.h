/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues of events, and raising asynchronous events. */
#ifndef VERBENA_HCA_VERBS_EVENT_H
#define VERBENA_HCA_VERBS_EVENT_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"

/*
 * A queue of events with a descriptor: an eventfd in semaphore mode, whose count is the number of
 * events. So a read blocks exactly while there is none, and poll(), epoll and O_NONBLOCK behave as
 * on a kernel's descriptor.
 */
struct event_queue {
	int fd;
	struct lock lock;
	struct list events GUARDED_BY(lock); /* struct event */
	struct list spares GUARDED_BY(lock); /* the same, unused: for when there is no memory */
	unsigned int spare GUARDED_BY(lock); /* how many */
};

struct event {
	struct list node;
	void *object; /* struct ibv_cq* for a completion channel */
	struct ibv_async_event async;
	uint32_t *reported; /* the object's count of events read; under the queue's lock */
};

struct cq;
struct hca;
struct qp;
struct srq;

/* 0 or -errno. */
int event_queue_init(struct event_queue *queue);
void event_queue_destroy(struct event_queue *queue);
/* Appends an event about `object`; *reported (if not NULL) is incremented when the event is
 * read. */
void event_queue_push(struct event_queue *queue, void *object, const struct ibv_async_event *async,
		      uint32_t *reported);
/* Reads an event, blocking as the descriptor's mode says: 0, or -1 with errno (EAGAIN, EINTR). */
int event_queue_read(struct event_queue *queue, struct event *out);
/* Drops the unread events of an object that is being ended. */
void event_queue_forget(struct event_queue *queue, void *object);

/* Raise an asynchronous event of a QP, CQ or SRQ on its context. Any locks that rank before
 * channel.lock may be held. */
void async_qp(struct qp *qp, enum ibv_event_type type);
void async_cq(struct cq *cq, enum ibv_event_type type);
void async_srq(struct srq *srq, enum ibv_event_type type);
/* Raises a device or port event on each context of the device. Takes hca.lock. */
/* Marks the contexts of a device that is gone. */
void async_remove_device(struct hca *hca, uint32_t device);
void async_device(struct hca *hca, enum ibv_event_type type, uint32_t device, int port);

#endif
