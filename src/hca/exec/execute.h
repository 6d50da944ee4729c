/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The meaning of a request at its responder, for every carrier: taking a receive, filling and
 * completing it, resolving the memory that a key names, and the error with which it is refused.
 * The carriers (responder.c: rings; roce_world.c: packets) decide when and in which order.
 * The caller of each holds qp.lock, and hca.engine too unless it is said otherwise.
 */
#ifndef VERBENA_HCA_EXEC_EXECUTE_H
#define VERBENA_HCA_EXEC_EXECUTE_H

#include "hca/exec/arrival.h"
#include "hca/exec/xrc_target.h"
#include "hca/mem/atomic.h"
#include "hca/mem/copy.h"
#include "hca/mem/foreign.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/tagged.h"
#include "hca/verbs/window.h"

/* Whether the QP accepts requests in its state. */
static inline bool execute_receiving(const struct qp *qp) REQUIRES(qp->lock)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

/* Takes the next receive (of an SRQ: copied to `room`). NULL: there is none. */
const struct recv_wqe *receive_take(struct qp *qp, struct receive *room) REQUIRES(qp->lock);

/* The same for a SEND: `head` has its first bytes, at least receive_head_bytes() of them if it has
 * as many; `whole`: all of it is here. */
const struct recv_wqe *receive_take_for(struct qp *qp, struct receive *room, const uint8_t *head,
					uint32_t length, bool whole) REQUIRES(qp->lock);

/* How many bytes of a SEND must be known before a receive can be taken for it. */
static inline uint32_t receive_head_bytes(const struct qp *qp)
{
	return unlikely(qp->tagged != NULL) ? TAG_HEAD : 0;
}

/* The same for a message of an unreliable QP, which must not consume a receive that is too short
 * for its `length` bytes: such a receive stays the next one. */
enum receive_fit receive_take_fitting(struct qp *qp, struct receive *room, uint32_t length,
				      const struct recv_wqe **wqe) REQUIRES(qp->lock);

/* `waits`: a message waits for a receive, so the next one that is posted calls
 * carrier.receive_posted; else no message waits any more. */
void receive_wait(struct qp *qp, bool waits) REQUIRES(qp->lock);

/* Whether a receive was ever posted since RESET (to an SRQ: since it was made). */
bool receive_ever_posted(struct qp *qp) REQUIRES(qp->lock);

/* Gives a receive back whose message won't come: it becomes the next one. */
void receive_give_back(struct qp *qp, const struct recv_wqe *wqe) REQUIRES(qp->lock);

/* The protection domain of the queue that the QP's receives were posted to: an SRQ's own, which
 * need not be the QP's (10.2.9). */
static inline uint32_t receive_domain(const struct qp *qp)
{
	return qp->srq ? qp->srq->pd_id : qp->pd_id;
}

/* As receive_segments(), for bytes that don't all lie in the first segment. */
int receive_segments_of_several(const struct qp *qp, const struct recv_wqe *wqe, uint32_t length,
				struct iovec *out, const struct hazard_scope *scope);

/*
 * Resolves the first `length` bytes of the receive into an iovec; the number of segments, or
 * -EFAULT. What a message doesn't reach need not be memory (docs/behaviour.md): programs post
 * receives that are longer than the rest of their region. The regions are held until `scope` ends.
 */
static inline int receive_segments(const struct qp *qp, const struct recv_wqe *wqe, uint32_t length,
				   struct iovec *out, const struct hazard_scope *scope)
{
	if (unlikely(qp->tagged != NULL) && tagged_is_matched(qp))
		return tagged_segments(qp, out, scope);
	if (unlikely(!wqe->num_sge || length > wqe->sge[0].length))
		return receive_segments_of_several(qp, wqe, length, out, scope);
	const struct ibv_sge first = {wqe->sge[0].addr, length, wqe->sge[0].lkey};

	return mr_resolve_list(qp->hca, receive_domain(qp), &first, 1, IBV_ACCESS_LOCAL_WRITE, out,
			       scope);
}

/*
 * The short way of a SEND that is here as a whole: takes the next receive, fills it, and completes
 * it. RECEIVE_OTHERWISE: the message or the receive is none of the ordinary ones, or its key grants
 * nothing; nothing has happened then, and the functions above find out what it is. RECEIVE_FAULTED:
 * the memory of the receive *wqe, which was taken (of an SRQ: copied to `room`), isn't mapped.
 * `taken`, with `word`: what is published before the completion is added (shm/pub.h: pub_taken()).
 */
enum receive_outcome receive_whole(struct qp *qp, const struct arrival *arrival,
				   const uint8_t *payload, struct receive *room,
				   const struct recv_wqe **wqe, _Atomic uint64_t *taken,
				   uint64_t word) REQUIRES(qp->lock);

/* Completes the receive with `status`; `arrival` describes its message. */
void receive_complete(struct qp *qp, const struct recv_wqe *wqe, const struct arrival *arrival,
		      enum ibv_wc_status status) REQUIRES(qp->lock);

/* As remote_resolve(), for a key that isn't of one of this process's own regions: of a memory
 * window, or of an imported region. */
static inline uint64_t resolve_other(const struct qp *qp, uint64_t addr, uint32_t length,
				     uint32_t rkey, uint32_t access)
{
	uint64_t at = window_resolve(qp, addr, length, rkey, access);

	return at ? at : foreign_resolve(qp->hca, qp->pd_id, addr, length, rkey, access);
}

/* The address in this process (marked, if the region is foreign) of the memory that the peer names,
 * or 0. The region is held until `scope` ends. */
static inline uint64_t remote_resolve(const struct qp *qp, uint64_t addr, uint32_t length,
				      uint32_t rkey, uint32_t access,
				      const struct hazard_scope *scope) REQUIRES(qp->lock)
{
	if (unlikely(!(qp_remote_access(qp) & access) || !hazard_push(scope, rkey)))
		return 0;
	hazard_publish();
	uint64_t at = mr_resolve(qp->hca->regions, qp->pd_id, addr, length, rkey, access);

	return likely(at != 0) ? at : resolve_other(qp, addr, length, rkey, access);
}

/* Executes FLUSH: IBV_WC_SUCCESS, or the error of its request. What arrived before it was copied by
 * processors, so that it is visible as soon as their stores are. */
enum ibv_wc_status execute_flush(const struct qp *qp, uint64_t addr, uint32_t length, uint32_t rkey,
				 uint8_t feth) REQUIRES(qp->lock);

/* The errors with which an access that wasn't resolved is refused. */
struct refusal {
	enum ibv_wc_status status; /* the requester's */
	enum ibv_event_type event; /* here */
};

/* If the QP isn't set up for the operation the request is invalid (9.7.4.1.5); if the key doesn't
 * grant it, it is an access error. */
static inline struct refusal remote_refusal(const struct qp *qp, uint32_t access) REQUIRES(qp->lock)
{
	if (qp_remote_access(qp) & access)
		return (struct refusal){IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR};
	return (struct refusal){IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR};
}

/* Copies bytes of an RDMA WRITE to the address `at`. `last`: they end the message, and their final
 * byte is copied last. False: the memory isn't mapped. */
static inline bool remote_write(uint64_t at, const uint8_t *from, uint32_t n, bool last)
{
	struct iovec piece = {(void *)from, n};

	if (unlikely(foreign_is((void *)(uintptr_t)at)))
		return foreign_put((void *)(uintptr_t)at, from, n);
	return last ? copy_gather_ordered((void *)(uintptr_t)at, &piece, 1, n)
		    : copy_gather((void *)(uintptr_t)at, &piece, 1, 0, n);
}

/* Copies bytes of an RDMA READ's answer from `at`. False: the memory isn't mapped. */
static inline bool remote_read(uint64_t at, uint8_t *to, uint32_t n)
{
	struct iovec piece = {(void *)(uintptr_t)at, n};

	return copy_gather(to, &piece, 1, 0, n);
}

/* Raises IBV_EVENT_COMM_EST at the first message in RTR: the program learns that its peer is
 * ready. */
static inline void execute_established(struct qp *qp) REQUIRES(qp->lock)
{
	if (likely(qp->state != IBV_QPS_RTR || qp->comm_established))
		return;
	if (qp->type == IBV_QPT_XRC_RECV) {
		xrc_established(qp);
		return;
	}
	qp->comm_established = true;
	async_qp(qp, IBV_EVENT_COMM_EST);
}

enum datagram_fate {
	DATAGRAM_TAKEN,
	DATAGRAM_QKEY,
	DATAGRAM_PKEY,
	DATAGRAM_NO_RECEIVE,
	DATAGRAM_TOO_LONG, /* for the next receive, which stays */
	DATAGRAM_STATE,
};

/* Whether the QP takes such a datagram if it has a receive: DATAGRAM_TAKEN, _STATE, _PKEY or _QKEY.
 */
enum datagram_fate datagram_admit(const struct qp *qp, const struct record_ud *ud,
				  const struct arrival *arrival) REQUIRES(qp->lock);

/* Places a frame, which is for this raw packet QP or work queue, into the next receive
 * (frame.c). */
enum datagram_fate frame_execute(struct qp *qp, const struct arrival *arrival, const uint8_t *frame)
	REQUIRES(qp->lock);

/* Places a datagram into the next receive, 40 bytes of header and the payload, or drops it
 * (datagram.c). */
enum datagram_fate datagram_execute(struct qp *qp, const struct record_ud *ud,
				    const struct arrival *arrival, const uint8_t *payload)
	REQUIRES(qp->lock);

#endif
