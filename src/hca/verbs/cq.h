/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues, completion channels and asynchronous events. */
#ifndef VERBENA_HCA_VERBS_CQ_H
#define VERBENA_HCA_VERBS_CQ_H

#include "hca/process/hca.h"

/*
 * Adds a completion; `solicited` says whether it satisfies a solicited-only arming (errors always
 * do). Takes cq.lock; callers may hold engine, qp.lock, srq.lock. On overrun the completion is
 * lost, the CQ is in error for good, IBV_EVENT_CQ_ERR is raised once; returns false then.
 */
bool cq_push(struct cq *cq, const struct cqe *cqe, bool solicited);

int cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc); /* ops.poll_cq */
int cq_req_notify(struct ibv_cq *cq, int solicited_only);     /* ops.req_notify_cq */

/* Takes the completions of a QP off (ibv_destroy_qp, RESET): they'd name a QP that is no more. */
void cq_forget_qp(struct cq *cq, uint32_t qp_num);

/* The daemon knows it and its channel now, since it knows the QP. Within an entry (books.h). */
void cq_came(struct cq *cq, const struct proto_create_channel_cq_resp *resp);

/* ---- events */
int event_queue_init(struct event_queue *queue);
void event_queue_destroy(struct event_queue *queue);
/* Appends an event about `object`; `reported` (may be NULL) is counted up when it is read. */
void event_queue_push(struct event_queue *queue, void *object, const struct ibv_async_event *async,
		      uint32_t *reported);
/* Reads one as the descriptor's mode says: 0, or -1 with errno (EAGAIN, EINTR). */
int event_queue_read(struct event_queue *queue, struct event *out);
/* Drops the unread events of an object that ends. */
void event_queue_forget(struct event_queue *queue, void *object);

/* Raises an asynchronous event of a QP, CQ, SRQ or port on its context. Any locks may be held
 * above channel.lock. */
void async_qp(struct qp *qp, enum ibv_event_type type);
void async_cq(struct cq *cq, enum ibv_event_type type);
void async_srq(struct srq *srq, enum ibv_event_type type);
/* On each context of one device (device and port events). Takes hca.lock. */
void async_device(struct hca *hca, enum ibv_event_type type, uint32_t device, int port);

#endif
