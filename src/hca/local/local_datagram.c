/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams to processes of this host: one record of their link each. No state. */
#include "hca/local/local_datagram.h"

#include "hca/engine/engine.h"
#include "hca/exec/datagram_send.h"
#include "hca/local/link.h"
#include "hca/mem/copy.h"
#include "hca/process/capture.h"
#include "hca/verbs/qp.h"

enum step local_datagram_put(struct qp *qp, struct send_wqe *wqe, struct link *link,
			     const struct iovec *local, int count)
{
	uint32_t payload = sizeof(struct record_ud) + wqe->length;
	struct ring_header *h = link_is(link, LINK_UP) ? link_begin(link, payload) : NULL;

	if (unlikely(!h)) {
		link_wait(link, qp);
		engine_watch_qp(qp); /* a peer that never reads doesn't hold up the others */
		return STEP_WAIT;
	}
	struct record_ud *ud = (struct record_ud *)((uint8_t *)h + RING_HEADER);

	h->kind = REC_UD;
	h->flags = (wqe->flags & SEND_SOLICITED ? REC_SOLICITED : 0) |
		   (wqe->opcode == IBV_WR_SEND_WITH_IMM ? REC_IMM : 0);
	h->dst = record_address(wqe->ud.remote_qpn, 0);
	h->src = record_address(qp->ibv.qp_num, 0);
	h->imm = wqe->imm;
	h->length = wqe->length;
	*ud = wqe->ud.to;
	/* The controlled Q_Key (top bit) stands for the QP's own: 10.2.5. */
	if (unlikely(ud->qkey & 0x80000000u))
		ud->qkey = qp->attr.qkey;
	if (unlikely(!copy_gather(ud + 1, local, count, 0, wqe->length))) {
		link_abandon(link, payload);
		return datagram_fail(qp, wqe, IBV_WC_LOC_PROT_ERR);
	}
	if (capture_on(qp->hca) && wqe->ud.carrier == &datagram_local)
		capture_show_datagram(qp, wqe);
	link_send(link, h, payload);
	link_notify(link);
	return STEP_DONE;
}

static enum step local_send(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			    int count)
{
	uint32_t slot = wqe->ud.remote_qpn >> LIMIT_QP_BITS;
	struct link *link = slot && slot < LIMIT_SLOTS ? link_get_datagram(qp->hca, slot) : NULL;

	if (unlikely(!link || link_is(link, LINK_DOWN)))
		return datagram_sent(qp, wqe); /* dropped: there is no such process */
	enum step step = local_datagram_put(qp, wqe, link, local, count);

	if (likely(step == STEP_DONE)) {
		qp->ud_psn++;
		datagram_sent(qp, wqe);
	}
	return step;
}

static void local_skip(struct qp *qp, struct send_wqe *wqe)
{
	datagram_sent(qp, wqe);
}

const struct datagram_carrier datagram_local = {
	.name = "local",
	.send = local_send,
	.skip = local_skip,
};
