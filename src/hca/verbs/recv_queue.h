/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings of posted receives, of QPs and SRQs. */
#ifndef VERBENA_HCA_VERBS_RECV_QUEUE_H
#define VERBENA_HCA_VERBS_RECV_QUEUE_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "base/cpu.h"
#include "hca/verbs/queue_memory.h"
#include "hca/verbs/sge.h"
#include "proto/limits.h"

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length; /* bytes, all SGEs together */
	struct ibv_sge sge[];
};

/* Whether the receive has one segment, into which `length` bytes, at least one, fit. */
static inline bool recv_is_ordinary(const struct recv_wqe *wqe, uint32_t length)
{
	return wqe->num_sge == 1 && length <= wqe->length && length;
}

/* The part of an ordinary receive's segment that `length` bytes take. */
static inline struct ibv_sge recv_place(const struct recv_wqe *wqe, uint32_t length)
{
	return (struct ibv_sge){wqe->sge[0].addr, length, wqe->sge[0].lkey};
}

/* A receive with room for its segments. */
struct receive {
	struct recv_wqe wqe;
	struct ibv_sge sge[LIMIT_SGE];
};

/* The first count of a queue. Peers count a QP's receives from it, too: a change of it is one of
 * PUB_VERSION. */
#define RECV_QUEUE_START COUNTER_START(512)

/* A ring of receive WQEs, of a QP or an SRQ. Under its owner's lock. */
struct recv_queue {
	struct queue_memory memory; /* of wqes */
	uint8_t *wqes;
	uint32_t stride; /* bytes */
	uint32_t mask;	 /* places - 1 */
	uint32_t max_wr; /* as requested; no more places than these may be taken */
	uint32_t max_sge;
	uint32_t head, tail; /* posted, taken; free-running */
	bool used; /* a receive was posted since the queue was made, or since RESET */
	uint32_t room;	     /* receives up to this count find a free place (places.h) */
	uint32_t published;  /* the number of posted ones as last published (a QP's own queue) */
	bool said_full;	     /* in the log; for good, so that each queue says it once */
};

/* Allocates a ring, in the domain `pd`, for `max_wr` receives of `max_sge` segments. 0 or ENOMEM.
 */
int rq_init(struct recv_queue *rq, uint32_t max_wr, uint32_t max_sge, struct ibv_pd *pd,
	    enum queue_kind kind);
void rq_free(struct recv_queue *rq);
static inline struct recv_wqe *rq_at(const struct recv_queue *rq, uint32_t count)
{
	return (struct recv_wqe *)(rq->wqes + (size_t)(count & rq->mask) * rq->stride);
}

/* Finds out whether a place is free beyond rq.room, and moves that. */
typedef bool rq_more_room(struct recv_queue *rq);

/* Adds a receive: 0 or a positive errno. The owner's lock is held. */
static inline int rq_add_one(struct recv_queue *rq, const struct ibv_recv_wr *wr,
			     rq_more_room *more_room)
{
	if (unlikely(rq->head == rq->room && !more_room(rq)))
		return ENOMEM;
	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;
	struct recv_wqe *wqe = rq_at(rq, rq->head);
	uint64_t length = 0;

	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	if (likely(wr->num_sge == 1)) {
		sge_copy(&wqe->sge[0], &wr->sg_list[0]);
		wqe->length = wr->sg_list[0].length;
		rq->head++;
		return 0;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		wqe->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	wqe->length = length < UINT32_MAX ? length : UINT32_MAX;
	rq->head++;
	return 0;
}

/* Adds receives. 0 or a positive errno; *bad is then the first one that wasn't added. The owner's
 * lock is held. Inline, because a program posts a receive for each message. */
static inline int rq_add(struct recv_queue *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad,
			 rq_more_room *more_room)
{
	for (; wr; wr = wr->next) {
		int err = rq_add_one(rq, wr, more_room);

		if (unlikely(err)) {
			*bad = wr;
			return err;
		}
		rq->used = true;
	}
	return 0;
}

#endif
