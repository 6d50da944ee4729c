/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_records.h. No state of its own: the stand-ins are in struct xrc_here. */
#include "hca/local/xrc_records.h"

#include "hca/exec/mcast.h"
#include "hca/exec/xrc_wire.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/local_conn.h"
#include "hca/verbs/carrier.h"
#include "shm/xrc.h"

static struct stand_in *stand_in_find(const struct hca *hca, uint32_t initiator)
{
	list_for_each(node, stand_in_bucket(hca, initiator)) {
		struct stand_in *si = container_of(node, struct stand_in, node);

		if (si->initiator == initiator)
			return si;
	}
	return NULL;
}

/* Makes the stand-in for an initiator's first record. NULL: the target queue pair that the
 * initiator is connected to doesn't exist, isn't connected to it, or doesn't receive. */
static struct stand_in *stand_in_make(struct hca *hca, struct link *link, uint32_t initiator)
{
	const struct pub_qp *from = &link->peer->qp[initiator & (LIMIT_QPS_PER_SLOT - 1)];
	uint32_t qpn = (uint32_t)atomic_load_explicit(&from->peer, memory_order_relaxed);
	struct xrc_view view;

	if (pub_qp_type(pub_qp_read_state(from)) != IBV_QPT_XRC_SEND ||
	    !mcast_xrc_read(hca, qpn, &view) || view.peer != initiator ||
	    !xrc_receives(pub_qp_state(view.state)))
		return NULL;
	struct stand_in *si = stand_in_new(hca, qpn, initiator, pub_qp_epoch(view.state));

	if (!si)
		return NULL;
	struct qp *qp = &si->qp;

	lock_take(&qp->lock);
	qp->attr.qp_access_flags = pub_qp_access(view.state) & PUB_QP_ACCESS;
	qp->attr.max_dest_rd_atomic = pub_qp_access(view.state) & PUB_QP_ANSWERS ? 1 : 0;
	qp->attr.min_rnr_timer = view.rnr_timer;
	qp->attr.rq_psn = view.rq_psn;
	qp->state = (uint8_t)pub_qp_state(view.state);
	const struct carrier *carrier =
		initiator >> LIMIT_QP_BITS == hca->slot ? &carrier_self : &carrier_local;
	int err = carrier->connect(qp, NULL);

	if (!err) {
		qp->carrier = carrier;
		carrier->receive_ready(qp);
	}
	lock_give(&qp->lock);
	if (err) {
		stand_in_free(si);
		return NULL;
	}
	list_add_tail(stand_in_bucket(hca, initiator), &si->node);
	return si;
}

/* The stand-in for a record; it is made, or made anew, if need be. NULL: the record is dropped. */
static struct stand_in *stand_in_for(struct hca *hca, struct link *link, uint32_t initiator)
{
	if (unlikely(initiator >> LIMIT_QP_BITS != link->slot))
		return NULL;
	struct stand_in *si = stand_in_find(hca, initiator);
	uint64_t word = si ? mcast_xrc_state(hca, si->target, &si->found) : 0;

	if (likely(si && pub_qp_epoch(word) == si->epoch))
		return xrc_receives(pub_qp_state(word)) ? si : NULL;
	if (si)
		stand_in_end(si);
	return stand_in_make(hca, link, initiator);
}

void xrc_take_record(struct hca *hca, struct link *link, struct ring_header *h,
		     const uint8_t *payload, uint32_t room) REQUIRES(hca->engine)
{
	if (unlikely(h->kind == REC_XRC_PACKET || h->kind == REC_XRC_STRANGER)) {
		xrc_wire_record(hca, link, h, payload, room);
		return;
	}
	struct stand_in *si = stand_in_for(hca, link, record_qpn(h->src));

	if (unlikely(!si))
		return;
	struct qp *qp = &si->qp;

	h->kind &= (uint8_t)~REC_XRC;
	lock_take_within(&qp->lock, &hca->engine);
	if (likely(qp->state != IBV_QPS_ERR && local_link_of(qp) == link && h->kind < REC_KINDS))
		local_qp_record(&qp->local->core, h, payload, room);
	lock_give(&qp->lock);
}

void xrc_for_each_of_link(struct hca *hca, const struct link *link, void (*what)(struct qp *qp))
{
	for (unsigned int i = 0; hca->xrc->count && i < STAND_IN_BUCKETS; i++)
		list_for_each(node, &hca->xrc->stand_ins[i]) {
			struct qp *qp = &container_of(node, struct stand_in, node)->qp;

			lock_take(&qp->lock);
			if (local_link_of(qp) == link && qp->state != IBV_QPS_ERR)
				what(qp);
			lock_give(&qp->lock);
		}
}

void xrc_local_follow(struct hca *hca, uint32_t qpn)
{
	const struct xrc_target *target = mcast_xrc_find(hca, qpn);
	uint64_t word = target ? xrc_target_state(target, qpn) : 0;

	for (unsigned int i = 0; hca->xrc->count && i < STAND_IN_BUCKETS; i++)
		list_for_each(node, &hca->xrc->stand_ins[i]) {
			struct stand_in *si = container_of(node, struct stand_in, node);

			if (si->target != qpn)
				continue;
			if (pub_qp_epoch(word) != si->epoch) {
				stand_in_end(si);
				continue;
			}
			lock_take(&si->qp.lock);
			if (!xrc_receives(pub_qp_state(word)))
				stand_in_stop(&si->qp);
			lock_give(&si->qp.lock);
		}
}

bool xrc_local_waits(const struct qp *qp)
{
	return qp->local && local_qp_waits(&qp->local->core);
}

void xrc_local_refuse(struct qp *qp)
{
	local_qp_refuse_waiting(&qp->local->core, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}
