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
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/local_conn.h"
#include "hca/mem/hazard.h"
#include "hca/process/books.h"
#include "hca/process/control.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/route.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/xrcd.h"
#include "shm/xrc.h"

/* What the control thread is to tell the daemon, or, if `query`, to ask it about. */
struct xrc_report {
	struct list node;
	bool query;
	struct proto_xrc_report body;
};

int xrc_here_make(struct hca *hca)
{
	struct xrc_here *here = calloc(1, sizeof(*here));

	if (!here)
		return -ENOMEM;
	list_init(&here->handles);
	here->shared_fd = -1;
	list_init(&here->on_wire);
	list_init(&here->reports);
	for (unsigned int i = 0; i < STAND_IN_BUCKETS; i++)
		list_init(&here->stand_ins[i]);
	lock_init(&here->lock, RANK_XRC);
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
	lock_init(&here->lock, RANK_XRC);
	lock_assume_alone(&here->lock); /* of a child that has one thread */
	list_init(&here->reports);
	here->srqs = NULL; /* the parent's copy stays: nothing of it is used */
}

/* ------------------------------------------------------------------ SRQs */

void xrc_srq_publish(struct srq *srq)
{
	struct pub_qp *e = &srq->cq->context->hca->pub->qp[srq->index];
	uint64_t word = IBV_QPS_RTR | PUB_XRC_SRQ << 8 |
			(uint64_t)(pub_qp_epoch(pub_qp_read_state(e)) + 1) << 32;

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
	return qp->srq == srq && qp->local && local_qp_waits(&qp->local->core);
}

/* The SRQ ends. A message that waits for a receive of it, or is coming into one, is refused. */
static void let_go_of_srq(struct qp *qp, struct srq *srq)
{
	lock_take(&qp->lock);
	if (is_busy_with(qp, srq) && qp->state != IBV_QPS_ERR) {
		if (qp->local)
			local_qp_refuse_waiting(&qp->local->core, IBV_WC_REM_ACCESS_ERR,
						IBV_EVENT_QP_ACCESS_ERR);
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
	pub_qp_write_state(e, (uint64_t)(pub_qp_epoch(pub_qp_read_state(e)) + 1) << 32);
	for (unsigned int i = 0; i < STAND_IN_BUCKETS; i++)
		list_for_each(node, &here->stand_ins[i])
			let_go_of_srq(&container_of(node, struct stand_in, node)->qp, srq);
	list_for_each(node, &here->on_wire)
		let_go_of_srq(&container_of(node, struct stand_in, node)->qp, srq);
	engine_leave(hca);
}

enum xrc_place xrc_aim(struct qp *qp, uint32_t srqn)
{
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
	qp->srq = srq;
	qp->pd_id = srq->pd_id;
	qp->recv_cq = srq->cq;
	return XRC_HERE;
}

/* ------------------------------------------------------------------ stand-ins */

static struct list *stand_in_bucket(const struct hca *hca, uint32_t initiator)
{
	return &hca->xrc->stand_ins[(initiator ^ initiator >> LIMIT_QP_BITS) &
				    (STAND_IN_BUCKETS - 1)];
}

struct stand_in *stand_in_new(struct hca *hca, uint32_t target, uint32_t initiator,
			      uint32_t epoch)
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
	lock_assume_alone(&qp->lock); /* nobody else knows it yet */
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
	struct qp *qp = &si->qp;
	struct hca *hca = qp->hca;
	uint32_t index = si->target & (LIMIT_QPS_PER_SLOT - 1);

	if (hca->qps[index] == qp)
		hca->qps[index] = NULL;
	list_del(&si->node);
	lock_take(&qp->lock);
	xrc_wire_drop(si);
	qp->carrier->disconnect(qp);
	qp->carrier = &carrier_none;
	lock_give(&qp->lock);
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

/* ------------------------------------------------------------------ within the host */

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
	    !mcast_xrc_read(hca, qpn, &view) || view.peer != initiator || !xrc_receives(pub_qp_state(view.state)))
		return NULL;
	struct stand_in *si = stand_in_new(hca, qpn, initiator, pub_qp_epoch(view.state));

	if (!si)
		return NULL;
	struct qp *qp = &si->qp;

	lock_take(&qp->lock);
	qp->attr.qp_access_flags = pub_qp_access(view.state);
	qp->attr.max_dest_rd_atomic = 1; /* what it allows is in the rights already */
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
	struct stand_in *si = stand_in_find(hca, initiator);

	if (unlikely(initiator >> LIMIT_QP_BITS != link->slot))
		return NULL;
	const struct xrc_target *target = si ? mcast_xrc_find(hca, si->target) : NULL;
	uint64_t word = target ? xrc_target_state(target, si->target) : 0;

	if (likely(si && pub_qp_epoch(word) == si->epoch))
		return xrc_receives(pub_qp_state(word)) ? si : NULL;
	if (si)
		stand_in_end(si);
	return stand_in_make(hca, link, initiator);
}

void xrc_take_record(struct hca *hca, struct link *link, const struct ring_header *h,
		     const uint8_t *payload, uint32_t room)
{
	if (unlikely(h->kind == REC_XRC_PACKET || h->kind == REC_XRC_STRANGER)) {
		xrc_wire_record(hca, link, h, payload, room);
		return;
	}
	struct stand_in *si = stand_in_for(hca, link, record_qpn(h->src));

	if (unlikely(!si))
		return;
	struct ring_header inner = *h;
	struct qp *qp = &si->qp;

	inner.kind &= (uint8_t)~REC_XRC;
	lock_take(&qp->lock);
	if (likely(qp->state != IBV_QPS_ERR && local_link_of(qp) == link && inner.kind < REC_KINDS))
		local_qp_record(&qp->local->core, &inner, payload, room);
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

/* ------------------------------------------------------------------ following the daemon */

/* Ends, or stops, the stand-ins within the host of a target queue pair that has changed. */
static void local_follow(struct hca *hca, uint32_t qpn)
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

/* Raises the event on each handle of the queue pair here. Whether there are any. */
static bool tell_handles(struct hca *hca, uint32_t qpn, uint32_t event)
{
	bool any = false;

	list_for_each(node, &hca->xrc->handles) {
		struct qp *qp = container_of(node, struct xrc_handle, node)->qp;

		if (qp->ibv.qp_num != qpn)
			continue;
		any = true;
		if (event != PROTO_XRC_NO_EVENT)
			async_qp(qp, (enum ibv_event_type)event);
	}
	return any;
}

static void report_queue(struct hca *hca, const struct proto_xrc_report *body, bool query)
{
	struct xrc_report *report = malloc(sizeof(*report));

	if (!report) {
		log_error("out of memory: verbenad doesn't learn of an error of XRC QP 0x%x",
			  body->qpn);
		return;
	}
	*report = (struct xrc_report){.query = query, .body = *body};
	lock_take(&hca->xrc->lock);
	list_add_tail(&hca->xrc->reports, &report->node);
	lock_give(&hca->xrc->lock);
	control_wake(hca);
}

void xrc_report(struct hca *hca, uint32_t qpn, uint32_t epoch, uint32_t event)
{
	const struct proto_xrc_report body = {.qpn = qpn, .epoch = epoch, .event = event};

	report_queue(hca, &body, false);
}

void xrc_event(struct hca *hca, uint32_t qpn, uint32_t dispatcher, uint32_t event)
{
	const struct proto_xrc_report body = {.qpn = qpn};

	lock_take(&hca->engine);
	local_follow(hca, qpn);
	bool any = tell_handles(hca, qpn, event);

	if (!mcast_xrc_find(hca, qpn))
		xrc_wire_ended(hca, qpn);
	bool known = xrc_wire_known(hca, qpn);

	engine_leave(hca);
	if (any || known || dispatcher == hca->slot)
		report_queue(hca, &body, true);
}

void xrc_follow(struct hca *hca, uint32_t qpn, const struct proto_xrc_state *is)
{
	lock_take(&hca->engine);
	list_for_each(node, &hca->xrc->handles) {
		struct xrc_handle *handle = container_of(node, struct xrc_handle, node);

		if (handle->qp->ibv.qp_num == qpn &&
		    (int32_t)(is->version - handle->is.version) >= 0)
			handle->is = *is;
	}
	local_follow(hca, qpn);
	xrc_wire_follow(hca, qpn, is);
	engine_leave(hca);
}

/* This process gets the packets of another slot's queue pairs from now on: takes that slot's
 * socket, unless it has it. */
static void take_socket(struct hca *hca, uint32_t slot)
{
	int fd;

	if (!hca->roce || roce_inherits(hca->roce, slot))
		return;
	books_enter(hca);
	int err = daemon_xrc_socket(&hca->conn, slot, &fd);

	books_leave(hca);
	if (!err)
		err = roce_inherit(hca->roce, slot, fd);
	if (err)
		log_warn("this process doesn't get the packets for XRC queue pairs of slot %u: %s",
			 slot, strerror(-err));
}

static struct xrc_report *report_next(struct hca *hca)
{
	lock_take(&hca->xrc->lock);
	struct list *node = list_pop(&hca->xrc->reports);

	lock_give(&hca->xrc->lock);
	return node ? container_of(node, struct xrc_report, node) : NULL;
}

void xrc_serve(struct hca *hca)
{
	struct proto_xrc_state state;
	struct xrc_report *report;

	while ((report = report_next(hca))) {
		uint32_t qpn = report->body.qpn;

		books_enter(hca);
		int err = report->query ? daemon_xrc_query(&hca->conn, 0, qpn, &state)
					: daemon_xrc_report(&hca->conn, &report->body);

		books_leave(hca);
		if (err == -EIO) { /* goes on with the next daemon, which wakes this thread */
			lock_take(&hca->xrc->lock);
			list_add_tail(&hca->xrc->reports, &report->node);
			lock_give(&hca->xrc->lock);
			return;
		}
		if (!err && report->query) {
			xrc_follow(hca, qpn, &state);
			if (state.dispatcher == hca->slot && qpn >> LIMIT_QP_BITS != hca->slot)
				take_socket(hca, qpn >> LIMIT_QP_BITS);
		}
		free(report);
	}
}
