/* SPDX-License-Identifier: BSD-2-Clause */
/* The local carrier's operations, and the records of a link to their QPs. See local_carrier.h. */
#include "hca/local/local_carrier.h"

#include <errno.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"
#include "wire/packet.h"

/* ------------------------------------------------------------------ records */

/* A record for a connected QP. */
static void take_connected(struct qp *qp, struct link *link, const struct ring_header *h,
			   const uint8_t *payload, uint32_t room)
{
	if (unlikely(qp->link != link || record_qpn(h->src) != qp->attr.dest_qp_num)) {
		log_debug("QP 0x%x: record from a QP it isn't connected to, dropped",
			  qp->ibv.qp_num);
	} else if (unlikely(h->kind == REC_KICK)) {
		qp->carrier->resume(qp);
	} else if (likely(record_epoch(h->dst) == (uint8_t)qp->epoch)) {
		if (h->flags & REC_ACKS)
			requester_ack(qp, h->ack);
		if (h->kind >= REC_ACK)
			requester_response(qp, h, payload, room);
		else
			responder_request(qp, h, payload, room);
	}
}

void local_take_record(struct hca *hca, struct link *link, const struct ring_header *h,
		       const uint8_t *payload, uint32_t room)
{
	uint32_t index = record_qpn(h->dst) & (LIMIT_QPS_PER_SLOT - 1);
	struct qp *qp = hca->qps[index];

	if (unlikely(h->kind == REC_UD && record_qpn(h->dst) == WIRE_MULTICAST_QPN)) {
		responder_group(link, h, payload, room);
		return;
	}
	if (unlikely(!qp || h->kind >= REC_KINDS))
		return; /* it has ended; the peer's timer tells its program */
	lock_take(&qp->lock);
	if (h->kind == REC_UD)
		responder_ud(qp, link, h, payload, room);
	else
		take_connected(qp, link, h, payload, room);
	lock_give(&qp->lock);
}

void local_find_remote(struct qp *qp)
{
	uint32_t index = qp->attr.dest_qp_num & (LIMIT_QPS_PER_SLOT - 1);

	if (!qp->remote)
		qp->remote = (struct pub_qp *)&qp->link->peer->qp[index];
}

void local_record(struct qp *qp, struct ring_header *h, enum record_kind kind, uint8_t flags)
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

void local_owe_ack(struct qp *qp)
{
	atomic_store_explicit(&qp->ack_pending, true, memory_order_relaxed);
	if (list_empty(&qp->ack_node))
		list_add_tail(&qp->hca->acks, &qp->ack_node);
}

static void send_ack(struct qp *qp)
{
	struct ring_header h = {0};

	if (!qp->ack_pending || !qp->link)
		return;
	local_record(qp, &h, REC_ACK, 0);
	link_control(qp->link, &h, NULL, 0);
}

void local_flush_acks(struct hca *hca)
{
	struct list *node;

	while ((node = list_pop(&hca->acks))) {
		struct qp *qp = container_of(node, struct qp, ack_node);

		if (likely(!atomic_load_explicit(&qp->ack_pending, memory_order_relaxed)))
			continue; /* it went with a record */
		lock_take(&qp->lock);
		send_ack(qp);
		lock_give(&qp->lock);
	}
}

/* ------------------------------------------------------------------ the carrier */

static int local_connect(struct qp *qp, const struct route *route)
{
	struct link *link = link_get(qp->hca, qp->attr.dest_qp_num >> LIMIT_QP_BITS);

	(void)route;
	if (!link)
		return ENOMEM;
	qp->link = link;
	qp->kick_pending = true;
	link_wait(link, qp);
	return 0;
}

static void local_resume(struct qp *qp)
{
	if (qp->link && link_is(qp->link, LINK_UP)) {
		requester_resume(qp);
		responder_resume(qp);
	}
	sq_run(qp);
}

static void local_send_ready(struct qp *qp, enum ibv_qp_state from)
{
	if (from == IBV_QPS_RTR)
		qp->next_psn = qp->attr.sq_psn;
	local_resume(qp);
}

static void local_drain(struct qp *qp)
{
	if (qp->sq.acked == qp->sq.next)
		qp_drained(qp);
}

static void local_stop(struct qp *qp)
{
	qp->reads_out = qp->blocking_out = qp->settled_out = 0;
	responder_drop_inbound(qp);
}

/* What arrived and was executed has been acknowledged by a card long since. */
static void local_disconnect(struct qp *qp)
{
	send_ack(qp);
	list_del(&qp->ack_node);
	list_del(&qp->srq_wait);
	list_del(&qp->rnr_node);
	responder_drop_inbound(qp);
	link_unwait(qp);
	qp_timer_stop(qp);
	qp->reads_out = qp->blocking_out = qp->settled_out = 0;
	qp->receives_used = qp->receives_seen = 0;
	qp->next_msn = qp->arrived_msn = qp->done_msn = 0;
	qp->link = NULL;
	qp->remote = NULL;
	qp->peer_ready = qp->kick_pending = qp->pulled = qp->rnr_waiting = false;
	qp->halted = false;
	atomic_store_explicit(&qp->ack_pending, false, memory_order_relaxed);
	qp->write_void = false;
	qp->write_done = 0;
	qp->next_psn = 0;
}

/* A card takes messages in when they arrive, whatever the program does; here they may still be in
 * the ring. Before a QP stops to receive they are taken in, or the peer would miss its
 * acknowledgement. */
static void local_take_in(struct qp *qp)
{
	struct link *link = qp->link;

	if (link && link_is(link, LINK_UP))
		engine_drain(qp->hca, link);
}

static void local_settle(struct hca *hca, uint32_t qpn, uint32_t peer_qpn, bool ends)
{
	uint32_t slot = peer_qpn >> LIMIT_QP_BITS;
	struct link *link = atomic_load(&hca->link_by_slot[slot]);

	if (ends && link)
		link_send_last(link);
	hazard_wait_qp(hca, slot, qpn);
}

#define LOCAL_OPERATIONS                                                                         \
	.executes_at_post = true, .take_in_former = carrier_ignores_former,                      \
	.connect = local_connect, .receive_ready = local_resume, .send_ready = local_send_ready, \
	.drain = local_drain, .change = carrier_ignores_change, .stop = local_stop,              \
	.disconnect = local_disconnect, .receive_posted = responder_resume,                      \
	.resume = local_resume, .expire = local_expire, .post = local_post,                      \
	.take_in = local_take_in, .linger = carrier_ignores, .settle = local_settle

const struct carrier carrier_self = {.name = "self", LOCAL_OPERATIONS};
const struct carrier carrier_local = {.name = "local", LOCAL_OPERATIONS};
