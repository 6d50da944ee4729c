/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that the files of the local carrier's core call on one another. See local_qp.h. */
#ifndef VERBENA_HCA_LOCAL_CORE_STATE_H
#define VERBENA_HCA_LOCAL_CORE_STATE_H

#include "base/cpu.h"
#include "hca/local/core/local_qp.h"
#include "hca/local/core/world.h"

/* ---- starting.c: requests */
/* Completes the oldest request. An error fails the QP. */
void local_complete(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status);
/* Takes a request out of the counts of outstanding requests. */
void local_uncount(struct local_qp *lq, const struct send_wqe *wqe);
/* Starts what may be started in this state. */
void local_run(struct local_qp *lq);

/* Whether the next request to start needs no peer. */
bool local_waits_here(const struct local_qp *lq);

/* ---- responses.c: the requester's other half */
/* Completes all outstanding requests with numbers below `ack`, in posting order. */
void local_take_ack(struct local_qp *lq, uint32_t ack);
/* Puts the outstanding requests from number `msn` on back into the state before they were sent. */
void local_take_back_from(struct local_qp *lq, uint32_t msn);
/* Handles a response. `payload` is shared memory, at most `room` bytes. */
void local_take_response(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			 uint32_t room);
/* Announces to the peer, once, that this QP is ready. The link is up. */
void local_kick(struct local_qp *lq);
/* XRC_SEND, with a request that isn't completed: completes the oldest one if the target QP refuses
 * it because its SRQ's process has ended. */
bool local_refuse_missing(struct local_qp *lq, enum world_link link);
/* STREAMS: puts further pieces into the ring. */
void local_stream(struct local_qp *lq);

/* ---- responder.c, waiting.c */
/* Handles a request: executes it, holds it, or drops it if it isn't the next one. */
void local_take_request(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			uint32_t room);
/* GONE: the sender doesn't have the message any more whose data was asked for. */
void local_take_gone(struct local_qp *lq, const struct ring_header *h);
/* Goes on with the messages that wait. */
void local_execute_held(struct local_qp *lq);
/* Drops the messages that wait; nothing after them is executed. */
void local_drop_held(struct local_qp *lq);
/* UC: drops the messages that wait, and pieces of one; the next message that comes is executed,
 * whatever its number. */
void local_lose_stream(struct local_qp *lq);

/* ---- onesided.c: one-sided operations that are executed here */
/* A status that no completion has: the peer imported the region, and must execute the request
 * itself. */
#define LOCAL_ASK_PEER ((enum ibv_wc_status)0x7fff)
/* Whether the region that the request names is mapped here (a guess: it may just have ended). */
bool local_region_is_mapped(struct local_qp *lq, const struct send_wqe *wqe);
/* Has the peer's QP fail: this side has refused a request for it with this status. */
void local_report_refused(struct local_qp *lq, enum ibv_wc_status status);
/* Whether the WRITE would be granted; no side effects. */
bool local_may_write(struct local_qp *lq, const struct send_wqe *wqe);
/* Execute the request. The status of its completion, or LOCAL_ASK_PEER. */
enum ibv_wc_status local_write_to_peer(struct local_qp *lq, const struct send_wqe *wqe);
enum ibv_wc_status local_read_from_peer(struct local_qp *lq, const struct send_wqe *wqe);
/* Executes the READ at the queue's head and those behind it by one call, LOCAL_RUN at most. How
 * many were executed, all with success; 0: the first is to be executed by itself. */
enum { LOCAL_RUN = 16 };
uint32_t local_read_run(struct local_qp *lq);
/* Whether the QP's READs may be executed so. */
bool local_has_runs(const struct local_qp *lq);
/* An atomic, or ATOMIC WRITE, on memory that is mapped in this process: `op` has what its record
 * would have. On this process's own memory never LOCAL_ASK_PEER. */
enum ibv_wc_status local_atomic_here(struct local_qp *lq, const struct send_wqe *wqe,
				     const struct record_atomic *op);
/* Clears the hazard that a request has kept for the next one, if any. */
static inline void local_hazard_clear(struct local_qp *lq)
{
	if (!lq->hazard)
		return;
	world_hazard_clear(lq->hazard);
	lq->hazard = NULL;
}
enum ibv_wc_status local_flush_at_peer(struct local_qp *lq, const struct send_wqe *wqe);

/* Whether messages are acknowledged: all but UC's. */
static inline bool local_reliable(const struct local_qp *lq)
{
	return lq->type != IBV_QPT_UC;
}

/* The type that the peer's QP must have. */
static inline uint32_t local_peer_type(const struct local_qp *lq)
{
	return lq->type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : lq->type;
}

/* ---- records */
static inline bool local_link_up(const struct local_qp *lq)
{
	return likely(world_link(lq) == WORLD_LINK_UP);
}

/* Whether the QP accepts requests in its state. */
static inline bool local_receiving(const struct local_qp *lq)
{
	return lq->state == IBV_QPS_RTS || lq->state == IBV_QPS_RTR || lq->state == IBV_QPS_SQD ||
	       lq->state == IBV_QPS_SQE;
}

/* The RDMA WRITE of which pieces are in the ring, but not the last one, so that it isn't
 * outstanding. NULL: there is none. */
static inline struct send_wqe *local_being_sent(const struct local_qp *lq)
{
	if (lq->sq->next == lq->sq->head)
		return NULL;
	struct send_wqe *wqe = sq_at(lq->sq, lq->sq->next);

	return wqe->flags & SEND_BY_RING && wqe->progress ? wqe : NULL;
}

/*
 * The unreliable request that is to be sent next ends. If pieces of it are in the ring already, its
 * number is used up: by the next number the responder knows that no other piece follows, and
 * would_overtake() that these pieces may not have been placed yet.
 */
static inline void local_cut_write(struct local_qp *lq)
{
	lq->next_msn += local_being_sent(lq) != NULL;
}

/* SQD: reports when the request that completed was the last one that had been started. */
static inline void local_check_drained(struct local_qp *lq)
{
	if (unlikely(lq->state == IBV_QPS_SQD) && lq->sq->acked == lq->resend_until)
		world_drained(lq);
}

static inline void *local_body(struct ring_header *h)
{
	return (uint8_t *)h + RING_HEADER;
}

/* The peer is told that all requests below `msn` are executed. */
static inline void local_told(struct local_qp *lq, uint32_t msn)
{
	atomic_store_explicit(&lq->told_msn, msn, memory_order_relaxed);
}

/*
 * Fills in what every record of a QP carries, and the pending acknowledgement. `to` is the epoch of
 * the peer's life that the record is for; an acknowledgement is for the life that sent the
 * requests.
 */
static inline void local_fill_record(struct local_qp *lq, struct ring_header *h,
				     enum record_kind kind, uint8_t flags, uint8_t to)
{
	bool acks = local_qp_owes(lq) && to == lq->sender_epoch;
	bool xrc = unlikely(lq->type == IBV_QPT_XRC_SEND);

	h->kind = xrc ? kind | REC_XRC : kind;
	h->flags = flags | (acks ? REC_ACKS : 0);
	h->dst = record_address(xrc ? lq->srqn : lq->attr->dest_qp_num, to);
	h->src = record_address(lq->qpn, lq->epoch);
	h->ack = lq->done_msn;
	if (acks)
		local_told(lq, atomic_load_explicit(&lq->owed_msn, memory_order_relaxed));
}

/* Requests were executed: the next record to the peer says so. */
static inline void local_owe_ack(struct local_qp *lq)
{
	atomic_store_explicit(&lq->owed_msn, lq->done_msn, memory_order_release);
	world_owe_ack(lq);
}

#endif
