/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: what the program calls (each returns 0 or a positive errno as the manual pages say),
 * and what requester, responder and engine call on one another.
 */
#ifndef VERBENA_HCA_VERBS_QP_H
#define VERBENA_HCA_VERBS_QP_H

#include <sys/uio.h>

#include "hca/local/record.h"
#include "hca/process/hca.h"

/* ---- the program's calls */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int qp_destroy(struct ibv_qp *qp);
struct ibv_qp_ex *qp_to_ex(struct ibv_qp *qp);
int sq_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int rq_post(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* What the daemon is asked for. */
struct ib_uverbs_create_qp qp_create_command(const struct qp *qp);

/* ---- states (qp_state.c): the table of the specification, 11.2.5 and C10-..; */
/* Whether `mask` may take a QP of `type` from `from` to `to`: 0 or EINVAL (and why, in the log). */
int qp_state_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask);
const char *qp_state_name(enum ibv_qp_state state);

/* ---- inside the HCA; qp.lock is held by the caller of each */

/* What the peer may do by this QP. Without resources for READs and atomics it may do none. */
static inline uint32_t qp_remote_access(const struct qp *qp)
{
	return qp->attr.max_dest_rd_atomic
		       ? qp->attr.qp_access_flags
		       : qp->attr.qp_access_flags & (unsigned int)IBV_ACCESS_REMOTE_WRITE;
}
/* Learns where the peer QP's published entry is; the link is up. */
static inline void qp_find_remote(struct qp *qp)
{
	uint32_t index = qp->attr.dest_qp_num & (LIMIT_QPS_PER_SLOT - 1);

	if (!qp->remote)
		qp->remote = (struct pub_qp *)&qp->link->peer->qp[index];
}
/* Writes the QP's published entry. */
void qp_publish(struct qp *qp);
/* To the error state: flushes both queues; raises `event` unless it is negative. */
void qp_fail(struct qp *qp, int event);
/* The link is up, or has room, or the peer became ready: goes on with what waited. Engine held. */
void qp_wake(struct qp *qp);
/* Fills what every record of a QP carries, with the pending acknowledgement. */
static inline void qp_record(struct qp *qp, struct ring_header *h, enum record_kind kind,
			     uint8_t flags)
{
	bool acks = atomic_load_explicit(&qp->ack_pending, memory_order_relaxed);

	h->kind = kind;
	h->flags = flags | (acks ? REC_ACKS : 0);
	h->dst = record_address(qp->attr.dest_qp_num, qp->remote_epoch);
	h->src = record_address(qp->ibv.qp_num, qp->epoch);
	h->ack = qp->done_msn;
	if (acks)
		atomic_store_explicit(&qp->ack_pending, false, memory_order_relaxed);
}

/* ---- send queue (sq.c) */
enum step { STEP_DONE, STEP_WAIT, STEP_FAILED };
int sq_init(struct send_queue *sq, const struct ibv_qp_cap *cap);
static inline struct send_wqe *sq_at(const struct send_queue *sq, uint32_t count)
{
	return (struct send_wqe *)(sq->wqes + (size_t)(count & sq->mask) * sq->stride);
}
/* Where a datagram goes: a copy of the handle, which may end before it is sent. */
static inline void sq_address(struct send_wqe *wqe, const struct ah *ah, uint32_t qpn,
			      uint32_t qkey)
{
	wqe->ud.to = ah->to;
	wqe->ud.to.qkey = qkey;
	wqe->ud.remote_qpn = qpn;
	wqe->ud.roce = ah->roce;
	wqe->ud.group = ah->group;
	wqe->ud.ifindex = ah->ifindex;
}
/* Starts what may start, in order. Rings the peer. */
void sq_run(struct qp *qp);
/* Puts a datagram into a link's ring: STEP_WAIT when it isn't up or has no room, the QP is woken
 * then; STEP_FAILED: its memory isn't there, it has failed. */
enum step sq_put_datagram(struct qp *qp, struct send_wqe *wqe, struct link *link,
			  const struct iovec *local, int count);
/* Completes the oldest WQE with success (or an error, which fails the QP). */
void sq_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);
void sq_flush(struct qp *qp);
/* The WQE at sq.next failed here before anything was sent: ERR, or SQE for UC and UD. */
void sq_fail_local(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);
/* True once the peer's QP was seen ready for us. The link is up. */
bool sq_peer_ready(struct qp *qp);
/* How many packets a request, or a READ's answer, is on a wire. */
static inline uint32_t sq_mtu_shift(const struct qp *qp)
{
	return 7 + qp->attr.path_mtu;
}
static inline uint32_t sq_packets(const struct qp *qp, const struct send_wqe *wqe)
{
	uint32_t shift = sq_mtu_shift(qp);

	return likely(wqe->length >> shift == 0)
		       ? 1
		       : (uint32_t)(((uint64_t)wqe->length + (1u << shift) - 1) >> shift);
}
int sq_segments(struct qp *qp, const struct send_wqe *wqe, uint32_t access, struct iovec *out);

/* ---- one-sided operations executed here (onesided.c) */
/* A status that no completion has: the peer imported the region, and must execute it itself. */
#define ASK_PEER ((enum ibv_wc_status)0x7fff)
bool onesided_direct(const struct qp *qp);
/* Whether the region that the request names is in a memory file, so that it can be mapped here. */
bool onesided_is_mapped(const struct qp *qp, const struct send_wqe *wqe);
/* Whether nothing speaks against the WRITE; tells nobody. */
bool onesided_may_write(struct qp *qp, const struct send_wqe *wqe);
enum ibv_wc_status onesided_write(struct qp *qp, const struct send_wqe *wqe);
enum ibv_wc_status onesided_read(struct qp *qp, const struct send_wqe *wqe);
enum ibv_wc_status onesided_atomic(struct qp *qp, const struct send_wqe *wqe);
/* The operation itself, on memory of this process that is granted. False: it isn't mapped. */
bool atomic_execute(uint64_t addr, const struct record_atomic *op, uint64_t *old);

/* ---- requester (requester.c): responses that arrive; engine and qp.lock held */
void requester_ack(struct qp *qp, uint32_t ack);
void requester_response(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			uint32_t room);
/* Timers of all QPs with outstanding requests. Returns when to look again (ns; UINT64_MAX: never).
 */
uint64_t requester_scan(struct hca *hca, uint64_t now);

/* ---- responder (responder.c): requests that arrive; engine and qp.lock held */
void responder_request(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
		       uint32_t room);
void responder_ud(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
		  uint32_t room);
/* A datagram for a group. qp.lock isn't held. */
void responder_group(struct hca *hca, const struct ring_header *h, const uint8_t *payload,
		     uint32_t room);
/* Goes on with messages that waited (a receive was posted, the ring has room). */
void responder_resume(struct qp *qp);
void responder_drop_inbound(struct qp *qp);
uint64_t responder_scan(struct hca *hca, uint64_t now);

/* ---- engine (engine.c) */
void engine_owe_ack(struct qp *qp); /* engine held */

/* ---- receive queues (rq.c) */
int rq_init(struct recv_queue *rq, uint32_t max_wr, uint32_t max_sge);
void rq_free(struct recv_queue *rq);
/* Adds receives; on failure *bad is the one that wasn't taken. Owner's lock held. */
int rq_add(struct recv_queue *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static inline struct recv_wqe *rq_at(const struct recv_queue *rq, uint32_t count)
{
	return (struct recv_wqe *)(rq->wqes + (size_t)(count & rq->mask) * rq->stride);
}
void rq_flush(struct qp *qp);

#endif
