/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a request means at its responder, whatever carried it here: taking a receive, filling and
 * completing it, reaching the memory that a key names, and what it is called when that is refused.
 * The carriers (responder.c: rings; roce_world.c: packets) decide when and in which order.
 * qp.lock is held by the caller of each; hca.engine too unless it is said otherwise.
 */
#ifndef VERBENA_HCA_EXEC_EXECUTE_H
#define VERBENA_HCA_EXEC_EXECUTE_H

#include "hca/exec/arrival.h"
#include "hca/mem/copy.h"
#include "hca/mem/foreign.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"

/* What may be sent to a QP is taken in. */
static inline bool execute_receiving(const struct qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

/* The next receive (of the SRQ: copied to `room`), NULL when there is none. */
const struct recv_wqe *receive_take(struct qp *qp, struct receive *room) REQUIRES(qp->lock);

/* The same for a message of an unreliable QP, which must not use a receive up that is too short
 * for its `length` bytes: that one stays the next one. */
enum receive_fit receive_take_fitting(struct qp *qp, struct receive *room, uint32_t length,
				      const struct recv_wqe **wqe) REQUIRES(qp->lock);

/* A message waits for a receive, or none does any more: the next one that is posted calls
 * carrier.receive_posted. */
void receive_wait(struct qp *qp, bool waits) REQUIRES(qp->lock);

/* Whether the queue had a receive since RESET (the SRQ: ever). */
bool receive_ever_posted(struct qp *qp) REQUIRES(qp->lock);

/* The message that this receive was taken for won't come: the next one may have it. */
void receive_give_back(struct qp *qp, const struct recv_wqe *wqe) REQUIRES(qp->lock);

/*
 * The receive's memory: its segments as an iovec, or -EFAULT. Their local keys belong to the
 * protection domain of the queue that they were posted to: an SRQ's own, which need not be the QP's
 * (10.2.9). They are held until `scope` ends.
 */
static inline int receive_segments(const struct qp *qp, const struct recv_wqe *wqe,
				   struct iovec *out, const struct hazard_scope *scope)
{
	return mr_resolve_list(qp->hca, qp->srq ? qp->srq->pd_id : qp->pd_id, wqe->sge,
			       wqe->num_sge, IBV_ACCESS_LOCAL_WRITE, out, scope);
}

void receive_complete(struct qp *qp, const struct recv_wqe *wqe, const struct arrival *arrival,
		      enum ibv_wc_status status);

/* Our address (marked, if the region is foreign) of what the peer names, or 0. The region is held
 * until `scope` ends. */
static inline uint64_t remote_resolve(const struct qp *qp, uint64_t addr, uint32_t length,
				      uint32_t rkey, uint32_t access,
				      const struct hazard_scope *scope)
{
	if (unlikely(!(qp_remote_access(qp) & access) || !hazard_push(scope, rkey)))
		return 0;
	hazard_publish();
	uint64_t at = mr_resolve(qp->hca->regions, qp->pd_id, addr, length, rkey, access);

	return likely(at != 0) ? at
			       : foreign_resolve(qp->hca, qp->pd_id, addr, length, rkey, access);
}

/* How an access that wasn't resolved is refused. */
struct refusal {
	enum ibv_wc_status status; /* the requester's */
	enum ibv_event_type event; /* here */
};

/* A QP that isn't set up for the operation calls the request invalid (9.7.4.1.5), a key that
 * doesn't grant it is an access error. */
static inline struct refusal remote_refusal(const struct qp *qp, uint32_t access)
{
	if (qp_remote_access(qp) & access)
		return (struct refusal){IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR};
	return (struct refusal){IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR};
}

/* Bytes of an RDMA WRITE to our address `at`; the message's final byte goes last. False: the memory
 * isn't mapped. */
static inline bool remote_write(uint64_t at, const uint8_t *from, uint32_t n, bool last)
{
	struct iovec piece = {(void *)from, n};

	if (unlikely(foreign_is((void *)(uintptr_t)at)))
		return foreign_put((void *)(uintptr_t)at, from, n);
	return last ? copy_gather_ordered((void *)(uintptr_t)at, &piece, 1, n)
		    : copy_gather((void *)(uintptr_t)at, &piece, 1, 0, n);
}

/* Bytes of an RDMA READ's answer, likewise. */
static inline bool remote_read(uint64_t at, uint8_t *to, uint32_t n)
{
	struct iovec piece = {(void *)(uintptr_t)at, n};

	return copy_gather(to, &piece, 1, 0, n);
}

/* The first message in RTR: the program learns that its peer is ready. */
static inline void execute_established(struct qp *qp)
{
	if (likely(qp->state != IBV_QPS_RTR || qp->comm_established))
		return;
	qp->comm_established = true;
	async_qp(qp, IBV_EVENT_COMM_EST);
}

enum datagram_fate {
	DATAGRAM_TAKEN,
	DATAGRAM_QKEY,
	DATAGRAM_NO_RECEIVE,
	DATAGRAM_TOO_LONG, /* for the next receive, which stays */
	DATAGRAM_STATE,
};

/* Whether the QP takes such a datagram if it has a receive: DATAGRAM_TAKEN, _STATE or _QKEY. */
enum datagram_fate datagram_admit(const struct qp *qp, const struct record_ud *ud,
				  const struct arrival *arrival);

/* A datagram: header of 40 bytes and payload into the next receive, or dropped (datagram.c). */
enum datagram_fate datagram_execute(struct qp *qp, const struct record_ud *ud,
				    const struct arrival *arrival, const uint8_t *payload)
	REQUIRES(qp->lock);

#endif
