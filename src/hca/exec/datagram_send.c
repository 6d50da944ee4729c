/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The carrier of UD QPs: each request goes the way that its address handle named when it was posted
 * (struct datagram_carrier). Requests start in order. One that must wait holds up those behind it
 * for a bounded time: UNRELIABLE_NS until its link is up; local/datagram_wait.h has the bounds for
 * room in a ring and for a receive.
 */
#include "hca/exec/datagram_send.h"

#include <errno.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/fabric/ways.h"
#include "hca/local/datagram_inbox.h"
#include "hca/local/link.h"
#include "hca/mem/hazard.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"

#define UNRELIABLE_NS 1000000000ull /* how long a datagram waits for its link */
#define TICK_NS 5000000ull
#define LINGER_NS 1000000000ull /* how long a UD QP's end waits for posted requests */

enum step datagram_fail(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
	REQUIRES(qp->lock)
{
	qp->ud_wait.since = qp->ud_wait.deadline = 0;
	sq_fail_local(qp, wqe, status);
	return STEP_FAILED;
}

enum step datagram_sent(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock)
{
	sq_complete(qp, wqe, IBV_WC_SUCCESS);
	return STEP_DONE;
}

/* A fabric's routes have MTUs of their own (ways.h). */
uint32_t datagram_room(const struct qp *qp)
{
	if (qp->type != IBV_QPT_UD)
		return LIMIT_FRAME;
	return qp->hca->membership ? DATAGRAM_BYTES
				   : mcast_datagram_bytes(qp->hca, qp->context->device_index);
}

static enum step datagram_start(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock)
{
	HAZARD_SCOPE(holds, qp);
	struct iovec local[LIMIT_SGE];
	int count = sq_segments(qp, wqe, 0, local, &holds);

	if (unlikely(wqe->opcode == WR_LACKED))
		return datagram_fail(qp, wqe, IBV_WC_LOC_QP_OP_ERR);
	if (unlikely(wqe->length > DATAGRAM_SHORT) && unlikely(wqe->length > datagram_room(qp)))
		return datagram_fail(qp, wqe, IBV_WC_LOC_LEN_ERR);
	if (unlikely(count < 0))
		return datagram_fail(qp, wqe, IBV_WC_LOC_PROT_ERR);
	return wqe->ud.carrier->send(qp, wqe, local, count);
}

static void datagram_post(struct qp *qp) REQUIRES(qp->lock)
{
	enum step step = STEP_DONE;

	while (step == STEP_DONE && qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS)
		step = datagram_start(qp, sq_at(&qp->sq, qp->sq.next));
}

static int datagram_connect(struct qp *qp, const struct route *route) REQUIRES(qp->lock)
{
	(void)route; /* a UD QP has no peer */
	if (qp->hca->membership) {
		qp->ways = ways_new(qp->hca->membership);
		if (!qp->ways)
			return ENOMEM;
	}
	if (qp->hca->roce)
		roce_hear_class(qp->hca->roce); /* receivers are told it, in the GRH */
	int err = datagram_inbox_make(qp);

	if (err) {
		ways_free(qp->ways);
		qp->ways = NULL;
	}
	return err;
}

static void datagram_send_ready(struct qp *qp, enum ibv_qp_state from) REQUIRES(qp->lock)
{
	if (from == IBV_QPS_RTR)
		qp->ud_psn = qp->attr.sq_psn;
	sq_run(qp);
}

static void datagram_drain(struct qp *qp) REQUIRES(qp->lock)
{
	if (qp->sq.acked == qp->sq.next)
		qp_drained(qp);
}

static void datagram_disconnect(struct qp *qp) REQUIRES(qp->lock)
{
	link_unwait(qp);
	roce_unwait(qp);
	datagram_inbox_free(qp);
	ways_free(qp->ways);
	qp->ways = NULL;
	qp->ud_psn = 0;
	qp->ud_wait = (struct datagram_wait){0};
}

/* Drops the oldest request: the process that it waits for is stopped, or hostile. */
static void drop_oldest(struct qp *qp) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.acked);

	log_info("QP 0x%x: a datagram to QP 0x%x is dropped, its process doesn't take it",
		 qp->ibv.qp_num, wqe->ud.remote_qpn);
	link_unwait(qp);
	wqe->ud.carrier->skip(qp, wqe);
	sq_run(qp);
}

static bool datagram_expire(struct qp *qp, uint64_t now, uint64_t *next) REQUIRES(qp->lock)
{
	/* In SQD requests that haven't started don't start. */
	if (qp->state != IBV_QPS_RTS || qp->sq.acked == qp->sq.head)
		return false;
	if (qp_stalled_ns(qp, now) >= UNRELIABLE_NS)
		drop_oldest(qp); /* the next scan looks at the request after it */
	else if (qp->ud_wait.deadline && now >= qp->ud_wait.deadline)
		sq_run(qp); /* drops it, unless its receiver takes it now */
	if (now + TICK_NS < *next)
		*next = now + TICK_NS;
	return true;
}

static bool datagrams_wait(struct qp *qp)
{
	lock_take(&qp->lock);
	bool yes = qp->state == IBV_QPS_RTS && (qp->sq.next != qp->sq.head || qp->sq.held) &&
		   qp->hca->conn.fd >= 0;

	lock_give(&qp->lock);
	return yes;
}

/* An adapter has sent by now what was posted; here a datagram may wait for a link, because it is
 * the first one to its process, while its program, which asked for no completion, ends the QP. */
static void datagram_linger(struct qp *qp)
{
	uint64_t until = now_ns() + LINGER_NS;

	while (datagrams_wait(qp) && now_ns() < until)
		engine_poll(qp->hca, NULL);
}

const struct carrier carrier_datagram = {
	.name = "datagram",
	.take_in_former = carrier_ignores_former,
	.connect = datagram_connect,
	.receive_ready = carrier_ignores,
	.send_ready = datagram_send_ready,
	.drain = datagram_drain,
	.change = carrier_ignores_change,
	.stop = datagram_inbox_clear,
	.disconnect = datagram_disconnect,
	.receive_posted = datagram_inbox_receive_posted,
	.resume = sq_run,
	.expire = datagram_expire,
	.post = datagram_post,
	.withdraw = carrier_ignores_request,
	.leave = datagram_inbox_leave,
	.take_in = carrier_ignores,
	.linger = datagram_linger,
	.settle = carrier_ignores_settling,
};
