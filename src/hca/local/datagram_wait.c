/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a UD QP's sender waits. See datagram_wait.h. No state but the QP's. */
#include "hca/local/datagram_wait.h"

#include "hca/engine/engine.h"
#include "hca/local/datagram_inbox.h"
#include "hca/local/link.h"
#include "hca/verbs/qp.h"

static uint64_t ns_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Begins a wait: adds to the budget what the QP has earned since its last one. */
static void wait_begin(struct qp *qp, const struct link *link, uint64_t now) REQUIRES(qp->lock)
{
	struct datagram_wait *w = &qp->ud_wait;
	uint64_t sent = (qp->ud_psn - w->counted_psn) & 0xffffff;
	uint64_t earned = sent * DATAGRAM_EARNS_NS + (now - w->counted_at) / 8;

	w->budget = w->counted_at ? ns_min(w->budget + earned, DATAGRAM_PATIENCE_NS)
				  : DATAGRAM_PATIENCE_NS;
	w->counted_at = w->since = now;
	w->counted_psn = qp->ud_psn;
	w->scanned = qp->sq.next;
	w->shared = !link->regions; /* of another user */
}

void datagram_wait_end_slow(struct qp *qp)
{
	struct datagram_wait *w = &qp->ud_wait;
	uint64_t waited = now_ns() - w->since;

	w->budget -= ns_min(waited, w->budget);
	w->since = w->deadline = 0;
}

bool datagram_wait(struct qp *qp, const struct send_wqe *wqe, const struct link *link, uint32_t dry)
	REQUIRES(qp->lock)
{
	struct datagram_wait *w = &qp->ud_wait;
	uint64_t now = now_ns();

	if (!w->since) {
		if (dry && w->left_qpn == wqe->ud.remote_qpn && w->left_word == dry)
			return false;
		wait_begin(qp, link, now);
	}
	for (; !w->shared && w->scanned != qp->sq.head; w->scanned++) {
		const struct send_wqe *behind = sq_at(&qp->sq, w->scanned);

		w->shared = behind->ud.remote_qpn != wqe->ud.remote_qpn ||
			    behind->ud.carrier != wqe->ud.carrier;
	}
	uint32_t consumed = ring_consumed(&link->tx);

	if (!dry && !w->shared && consumed != w->consumed)
		w->since = now;
	w->consumed = consumed;
	uint64_t limit = w->shared ? DATAGRAM_SHARED_NS : DATAGRAM_PATIENCE_NS;

	w->deadline = w->since + ns_min(limit, w->budget);
	if (now < w->deadline)
		return true;
	w->left_qpn = dry ? wqe->ud.remote_qpn : 0;
	w->left_word = dry;
	datagram_wait_end_slow(qp);
	return false;
}
