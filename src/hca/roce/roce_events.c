/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles the transport core's events (tp_next_event): completions, receives, errors that end the
 * QP. roce_pull_events() is called after each input to the core, and after each burst that was
 * taken from it. execute.h has the meaning of an operation, as for every carrier.
 *
 * The caller holds qp.lock, and neither the sender's lock nor the lists': an event may take the QP
 * to its error state, which flushes its queues into their CQs.
 */
#include "base/log.h"
#include "base/wc_status.h"
#include "hca/roce/roce.h"

static void roce_completed(struct qp *qp, uint32_t count, enum ibv_wc_status status)
	REQUIRES(qp->lock)
{
	if (unlikely(count != qp->sq.acked || count == qp->sq.next))
		return; /* it was flushed meanwhile */
	if (unlikely(status != IBV_WC_SUCCESS && !qp_is_reliable(qp))) {
		qp->sq.next = count;
		sq_fail_local(qp, sq_at(&qp->sq, count), status);
		return;
	}
	sq_complete(qp, sq_at(&qp->sq, count), status);
}

static void roce_received(struct roce_qp *w, const struct tp_message *message,
			  enum ibv_wc_status status) REQUIRES(w->qp->lock)
{
	const struct arrival arrival = {
		.length = message->length,
		.imm = message->imm,
		.src_qpn = w->qp->attr.dest_qp_num,
		.has_imm = message->has_imm,
		.invalidates = message->has_invalidate,
		.solicited = message->solicited,
		.is_write = message->is_write,
	};

	w->taken = false;
	if (unlikely(status != IBV_WC_SUCCESS))
		log_info("QP 0x%x: a message of %u bytes can't be received (%s; the receive has %u "
			 "bytes)",
			 w->qp->ibv.qp_num, message->length, wc_status_text(status),
			 w->receive.wqe.length);
	receive_complete(w->qp, &w->receive.wqe, &arrival, status);
}

static void roce_refused(struct qp *qp, int event) REQUIRES(qp->lock)
{
	log_info("QP 0x%x: a request from QP 0x%x was refused", qp->ibv.qp_num,
		 qp->attr.dest_qp_num);
	qp_fail(qp, event);
}

static void on_event(struct roce_qp *w, const struct tp_event *event) REQUIRES(w->qp->lock)
{
	switch (event->kind) {
	case TP_ESTABLISHED:
		execute_established(w->qp);
		return;
	case TP_COMPLETED:
		roce_completed(w->qp, event->count, event->status);
		return;
	case TP_DRAINED:
		qp_drained(w->qp);
		return;
	case TP_RECEIVED:
		roce_received(w, &event->message, event->status);
		return;
	case TP_REFUSED:
		roce_refused(w->qp, event->async);
	}
}

void roce_pull_events(struct roce_qp *w)
{
	struct tp_event event;

	while (tp_next_event(roce_tp(w), &event))
		on_event(w, &event);
}
