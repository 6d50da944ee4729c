/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The short way of nearly each SEND at its responder: a message that is whole, the next one, and
 * meets a receive of one segment. What isn't such goes the general way (receiving.c), which finds
 * out what it is. Inlined into local_qp_record(): a call costs as much as the checks.
 */
#ifndef VERBENA_HCA_LOCAL_CORE_MESSAGE_H
#define VERBENA_HCA_LOCAL_CORE_MESSAGE_H

#include "hca/local/core/responder.h"
#include "hca/local/core/state.h"

/* Whether the QP accepts requests, and the first one was reported if it had to be. */
static inline bool has_met(const struct local_qp *lq)
{
	return lq->state == IBV_QPS_RTS ||
	       (lq->state == IBV_QPS_RTR && lq->arrived_msn != RECORD_MSN);
}

/* Whether the request is a SEND that nothing precedes, of the life of the peer's QP that earlier
 * requests came from, and the whole message is here. */
static inline bool is_ready_message(const struct local_qp *lq, const struct ring_header *h,
				    uint32_t room)
{
	return h->kind == REC_SEND && !(h->flags & REC_INVALIDATE) && h->length <= room &&
	       h->msn == (uint32_t)lq->arrived_msn && record_epoch(h->src) == lq->sender_epoch &&
	       has_met(lq) && lq->responder == LOCAL_OPEN && lq->flow == LOCAL_TAKES &&
	       list_empty(&lq->held);
}

/* Executes the record if it is such a SEND. False: nothing has happened. */
static inline __attribute__((always_inline)) bool local_take_message(struct local_qp *lq,
								     const struct ring_header *h,
								     const uint8_t *payload,
								     uint32_t room)
{
	const struct recv_wqe *wqe;
	struct receive buffer;

	if (unlikely(!is_ready_message(lq, h, room)))
		return false;
	if (unlikely(lq->type == IBV_QPT_XRC_RECV) && !world_aim(lq, record_qpn(h->dst)))
		return false;
	enum receive_outcome outcome = world_receive_message(lq, h, payload, &buffer, &wqe);

	if (unlikely(outcome == RECEIVE_OTHERWISE))
		return false;
	lq->arrived_msn++;
	if (likely(outcome == RECEIVE_COMPLETED))
		local_request_done(lq);
	else
		local_fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	return true;
}

#endif
