/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_carrier.h. Owns each initiator's struct xrc_conns and the connections in it. */
#include "hca/local/xrc_carrier.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/local_conn.h"
#include "hca/mem/hazard.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"

/* ------------------------------------------------------------------ turning */

/* The slot of the process that the request is for. One that needs no peer stays with the current
 * connection. */
static uint32_t slot_of(const struct qp *qp, const struct send_wqe *wqe) REQUIRES(qp->lock)
{
	if (likely(!wr_runs_here(wqe->opcode)))
		return wqe->srqn >> LIMIT_QP_BITS;
	return qp->local ? qp->local->link->slot : qp->hca->slot;
}

static struct local_conn *conn_to(struct qp *qp, uint32_t slot) REQUIRES(qp->lock)
{
	struct local_conn *conn = qp->xrc->first;

	while (conn && conn->link->slot != slot)
		conn = conn->next;
	if (conn)
		return conn;
	conn = local_conn_new(qp, slot);
	if (!conn)
		return NULL;
	conn->core.next_psn = qp->attr.sq_psn;
	conn->next = qp->xrc->first;
	qp->xrc->first = conn;
	return conn;
}

/* Makes the connection to the process at `slot` the current one. False: out of memory. */
static bool turn_to(struct qp *qp, uint32_t slot) REQUIRES(qp->lock)
{
	struct local_conn *from = qp->local, *to = conn_to(qp, slot);

	if (!to)
		return false;
	if (from)
		to->core.next_psn = from->core.next_psn;
	to->core.state = qp->state;
	local_qp_relink(&to->core);
	qp->local = to;
	return true;
}

/* Whether the next request is for the current connection. If it is for another one and nothing is
 * outstanding, that becomes the current one. */
static bool is_current(struct qp *qp) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.next);
	uint32_t slot = slot_of(qp, wqe);

	if (likely(qp->local && qp->local->link->slot == slot))
		return true;
	if (qp->sq.acked != qp->sq.next)
		return false;
	if (turn_to(qp, slot))
		return true;
	sq_complete(qp, wqe, IBV_WC_GENERAL_ERR);
	return false;
}

static bool has_next(const struct qp *qp) REQUIRES(qp->lock)
{
	return qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS;
}

/* Starts requests, turning from connection to connection. */
static void xrc_post(struct qp *qp) REQUIRES(qp->lock)
{
	struct local_conn *conn;

	do {
		if (!has_next(qp) || !is_current(qp))
			return;
		conn = qp->local;
		local_qp_post(&conn->core);
	} while (unlikely(has_next(qp) && qp->sq.acked == qp->sq.next &&
			  slot_of(qp, sq_at(&qp->sq, qp->sq.next)) != conn->link->slot));
}

void xrc_go_on(struct qp *qp)
{
	if (unlikely(has_next(qp) && qp->sq.acked == qp->sq.next))
		xrc_post(qp);
}

/* ------------------------------------------------------------------ the carrier */

static int xrc_connect(struct qp *qp, const struct route *route) REQUIRES(qp->lock)
{
	(void)route;
	qp->xrc = calloc(1, sizeof(*qp->xrc));
	return qp->xrc ? 0 : ENOMEM;
}

static void set_state(struct qp *qp) REQUIRES(qp->lock)
{
	if (qp->local)
		qp->local->core.state = qp->state;
}

static void xrc_resume(struct qp *qp) REQUIRES(qp->lock)
{
	set_state(qp);
	if (qp->local)
		local_qp_resume(&qp->local->core);
	xrc_go_on(qp);
}

static void xrc_send_ready(struct qp *qp, enum ibv_qp_state from) REQUIRES(qp->lock)
{
	(void)from;
	xrc_resume(qp);
}

static void xrc_drain(struct qp *qp) REQUIRES(qp->lock)
{
	set_state(qp);
	if (qp->local)
		local_qp_drain(&qp->local->core);
	else
		qp_drained(qp);
}

static void xrc_stop(struct qp *qp) REQUIRES(qp->lock)
{
	set_state(qp);
	if (qp->local)
		local_qp_stop(&qp->local->core);
}

static void xrc_disconnect(struct qp *qp) REQUIRES(qp->lock)
{
	struct local_conn *conn = qp->xrc->first, *next;

	link_unwait(qp);
	qp->local = NULL;
	for (; conn; conn = next) {
		next = conn->next;
		local_qp_stop(&conn->core);
		list_del(&conn->ack_node);
		lock_assert_held(&conn->link->hca->engine);
		link_forget_owing(conn->link, conn);
		list_del(&conn->rnr_node);
		local_conn_free(conn);
	}
	free(qp->xrc);
	qp->xrc = NULL;
}

static bool xrc_expire(struct qp *qp, uint64_t now, uint64_t *next) REQUIRES(qp->lock)
{
	set_state(qp);
	bool runs = qp->local && local_qp_expire(&qp->local->core, now, next);

	xrc_go_on(qp);
	return runs || (qp->sq.acked != qp->sq.head && qp->state == IBV_QPS_RTS);
}

static void initiator_leave(struct qp *qp) REQUIRES(qp->lock)
{
	/* Another thread of the parent was disconnecting it: fork() waits for no QP's lock. */
	if (!qp->xrc) {
		qp->carrier = &carrier_none;
		return;
	}
	for (struct local_conn *conn = qp->xrc->first; conn; conn = conn->next) {
		list_init(&conn->ack_node);
		list_init(&conn->rnr_node);
		local_qp_leave(&conn->core);
	}
}

static void xrc_take_in(struct qp *qp)
{
	lock_take(&qp->lock);
	struct link *link = local_link_of(qp);

	lock_give(&qp->lock);
	if (link && link_is(link, LINK_UP))
		engine_drain(qp->hca, link);
}

/* The QP's connections are gone by now, so all links are looked at. */
static void xrc_conns_settle(struct hca *hca, uint32_t qpn, uint32_t peer_qpn, bool ends)
{
	(void)peer_qpn;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (!link || link->self)
			continue;
		if (ends)
			link_send_last(link);
		hazard_wait_qp(hca, slot, qpn);
	}
}

const struct carrier carrier_xrc = {
	.name = "xrc",
	.executes_at_post = true,
	.take_in_former = carrier_ignores_former,
	.connect = xrc_connect,
	.receive_ready = carrier_ignores,
	.send_ready = xrc_send_ready,
	.drain = xrc_drain,
	.change = carrier_ignores_change,
	.stop = xrc_stop,
	.disconnect = xrc_disconnect,
	.receive_posted = carrier_ignores,
	.resume = xrc_resume,
	.expire = xrc_expire,
	.post = xrc_post,
	.withdraw = carrier_ignores_request,
	.leave = initiator_leave,
	.take_in = xrc_take_in,
	.linger = carrier_ignores,
	.settle = xrc_conns_settle,
};
