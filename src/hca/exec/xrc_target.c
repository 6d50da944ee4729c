/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_target.h. Owns struct xrc_here, the stand-ins, and the queue of reports. */
#include "hca/exec/xrc_target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/exec/xrc_wire.h"
#include "hca/local/xrc_records.h"
#include "hca/mem/hazard.h"
#include "hca/process/context.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/xrc_follow.h"
#include "hca/verbs/xrcd.h"
#include "shm/xrc.h"

static void reports_init(struct xrc_here *here)
{
	lock_init(&here->lock, RANK_XRC);
	lock_assume_alone(&here->lock); /* no other thread knows it yet, or a child has no other */
	list_init(&here->reports);
}

int xrc_here_make(struct hca *hca)
{
	struct xrc_here *here = calloc(1, sizeof(*here));

	if (!here)
		return -ENOMEM;
	list_init(&here->handles);
	here->shared_fd = -1;
	list_init(&here->on_wire);
	for (unsigned int i = 0; i < STAND_IN_BUCKETS; i++)
		list_init(&here->stand_ins[i]);
	reports_init(here);
	hca->xrc = here;
	return 0;
}

void xrc_here_unmake(struct hca *hca)
{
	if (hca->xrc)
		xrc_wire_unmake(hca);
	free(hca->xrc);
	hca->xrc = NULL;
}

void xrc_here_leave(struct hca *hca)
{
	struct xrc_here *here = hca->xrc;

	xrc_wire_leave(hca);
	list_init(&here->handles);
	for (unsigned int i = 0; i < STAND_IN_BUCKETS; i++)
		list_init(&here->stand_ins[i]);
	reports_init(here);
	here->srqs = NULL; /* the parent's copy stays: nothing of it is used */
}

/* ------------------------------------------------------------------ SRQs */

void xrc_srq_publish(struct srq *srq)
{
	struct pub_qp *e = &srq->cq->context->hca->pub->qp[srq->index];
	uint64_t word = IBV_QPS_RTR | PUB_XRC_SRQ << 8 |
			pub_qp_epoch_bits(pub_qp_epoch(pub_qp_read_state(e)) + 1);

	atomic_store_explicit(&e->peer, xrcd_number(srq->xrcd), memory_order_relaxed);
	atomic_store_explicit(&e->pd, srq->pd_id, memory_order_relaxed);
	atomic_store_explicit(&e->receives, 0, memory_order_relaxed);
	atomic_store_explicit(&e->arm_groups,
			      srq->cq->arm_group | (uint32_t)srq->cq->arm_group << 8,
			      memory_order_relaxed);
	pub_qp_write_state(e, word);
}

int xrc_srq_begins(struct srq *srq)
{
	struct hca *hca = srq->cq->context->hca;
	struct xrc_here *here = hca->xrc;

	lock_take(&hca->engine);
	if (!here->srqs)
		here->srqs = calloc(LIMIT_QPS_PER_SLOT, sizeof(*here->srqs));
	bool room = here->srqs;

	if (room) {
		here->srqs[srq->index] = srq;
		xrc_srq_publish(srq);
	}
	lock_give(&hca->engine);
	return room ? 0 : ENOMEM;
}

/* Whether the stand-in executes for the SRQ: has a message for it that isn't complete. */
static bool is_busy_with(const struct qp *qp, const struct srq *srq) REQUIRES(qp->lock)
{
	if (qp->roce)
		return qp->roce->taken && qp->roce->taken_from == srq;
	return qp->srq == srq && xrc_local_waits(qp);
}

/* The SRQ ends. A message that waits for a receive of it, or is coming into one, is refused. */
static void let_go_of_srq(struct qp *qp, struct srq *srq)
{
	lock_take(&qp->lock);
	if (is_busy_with(qp, srq) && qp->state != IBV_QPS_ERR) {
		if (qp->local)
			xrc_local_refuse(qp);
		else
			qp_fail(qp, IBV_EVENT_QP_ACCESS_ERR);
	}
	list_del(&qp->srq_wait);
	if (qp->srq == srq)
		qp->srq = NULL;
	lock_give(&qp->lock);
}

void xrc_srq_ends(struct srq *srq)
{
	struct hca *hca = srq->cq->context->hca;
	struct xrc_here *here = hca->xrc;
	struct pub_qp *e = &hca->pub->qp[srq->index];

	lock_take(&hca->engine);
	here->srqs[srq->index] = NULL;
	pub_qp_write_state(e, pub_qp_epoch_bits(pub_qp_epoch(pub_qp_read_state(e)) + 1));
	for (unsigned int i = 0; i < STAND_IN_BUCKETS; i++)
		list_for_each(node, &here->stand_ins[i])
			let_go_of_srq(&container_of(node, struct stand_in, node)->qp, srq);
	list_for_each(node, &here->on_wire)
		let_go_of_srq(&container_of(node, struct stand_in, node)->qp, srq);
	engine_leave(hca);
}

enum xrc_place xrc_aim(struct qp *qp, uint32_t srqn)
{
	/* The stand-in was aimed at it before, so it is of the target's domain. (Between hosts the
	 * SRQ of a message that was taken before may be back in qp->srq, without the rest.) */
	if (likely(stand_in_of(qp)->srqn == srqn && qp->srq && qp->local))
		return XRC_HERE;
	const struct hca *hca = qp->hca;
	struct srq **srqs = hca->xrc->srqs;
	struct srq *srq = srqs && srqn >> LIMIT_QP_BITS == hca->slot
				  ? srqs[srqn & (LIMIT_QPS_PER_SLOT - 1)]
				  : NULL;
	const struct xrc_target *target = mcast_xrc_find(hca, stand_in_of(qp)->target);

	if (unlikely(!srq && xrc_wire_elsewhere(qp, srqn)))
		return XRC_ELSEWHERE;
	if (unlikely(!srq || !target || xrc_target_domain(target) != xrcd_number(srq->xrcd))) {
		log_info("XRC QP 0x%x: no SRQ of its domain has the number 0x%x",
			 stand_in_of(qp)->target, srqn);
		return XRC_NOWHERE;
	}
	stand_in_of(qp)->srqn = srqn;
	qp->srq = srq;
	qp->pd_id = srq->pd_id;
	qp->recv_cq = srq->cq;
	qp->receives = srq->own_places;
	return XRC_HERE;
}

/* ------------------------------------------------------------------ stand-ins */

struct list *stand_in_bucket(const struct hca *hca, uint32_t initiator)
{
	return &hca->xrc->stand_ins[(initiator ^ initiator >> LIMIT_QP_BITS) &
				    (STAND_IN_BUCKETS - 1)];
}

struct stand_in *stand_in_new(struct hca *hca, uint32_t target, uint32_t initiator, uint32_t epoch)
{
	/* Hazards are for twice as many QPs as a process may have. */
	struct stand_in *si = hca->xrc->count < LIMIT_QPS_PER_SLOT ? calloc(1, sizeof(*si)) : NULL;

	if (!si)
		return NULL;
	si->target = target;
	si->initiator = initiator;
	si->epoch = epoch;
	struct qp *qp = &si->qp;

	lock_init(&qp->lock, RANK_QP);
	lock_assume_alone(&qp->lock); /* no other thread knows it yet */
	qp->hca = hca;
	qp->type = IBV_QPT_XRC_RECV;
	qp->ibv.qp_num = target;
	qp->ibv.qp_type = IBV_QPT_XRC_RECV;
	qp->carrier = &carrier_none;
	qp->epoch = epoch;
	qp->attr.dest_qp_num = initiator;
	list_init(&qp->room_wait);
	list_init(&qp->tx_wait);
	list_init(&qp->active);
	list_init(&qp->srq_wait);
	list_init(&qp->groups);
	list_init(&qp->windows);
	list_init(&qp->window_wait);
	list_init(&si->kept);
	qp->hazards = hazard_own(hca);
	hca->xrc->count++;
	return si;
}

void stand_in_free(struct stand_in *si)
{
	struct hca *hca = si->qp.hca;

	hazard_disown(hca, si->qp.hazards);
	hca->xrc->count--;
	free(si);
}

void stand_in_end(struct stand_in *si)
{
	struct hca *hca = si->qp.hca;
	uint32_t index = si->target & (LIMIT_QPS_PER_SLOT - 1);

	if (hca->qps[index] == &si->qp)
		hca->qps[index] = NULL;
	list_del(&si->node);
	lock_take(&si->qp.lock);
	xrc_wire_drop(si);
	qp_disconnect(&si->qp);
	lock_give(&si->qp.lock);
	stand_in_free(si);
}

void stand_in_stop(struct qp *qp)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	qp->carrier->stop(qp);
	qp->starved = false;
	list_del(&qp->srq_wait);
}

void xrc_stand_in_fail(struct qp *qp, int event)
{
	const struct stand_in *si = stand_in_of(qp);

	if (qp->state == IBV_QPS_ERR)
		return;
	stand_in_stop(qp);
	xrc_report(qp->hca, si->target, si->epoch,
		   event < 0 ? PROTO_XRC_NO_EVENT : (uint32_t)event);
}

void xrc_established(struct qp *qp)
{
	const struct stand_in *si = stand_in_of(qp);

	if (qp->comm_established)
		return;
	qp->comm_established = true;
	xrc_report(qp->hca, si->target, si->epoch, IBV_EVENT_COMM_EST);
}

bool xrc_receives(uint32_t state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}
