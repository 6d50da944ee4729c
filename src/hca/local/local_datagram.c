/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams to processes of this host: one record of their link each. No state. */
#include "hca/local/local_datagram.h"

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/datagram_send.h"
#include "hca/exec/execute.h"
#include "hca/exec/mcast.h"
#include "hca/local/link.h"
#include "hca/mem/copy.h"
#include "hca/process/capture.h"
#include "hca/process/counters.h"
#include "hca/verbs/qp.h"

/* ------------------------------------------------------------------ sending */
static enum step wait_for_room(struct qp *qp, struct link *link)
{
	link_wait(link, qp);
	engine_watch_qp(qp); /* a peer that never reads doesn't hold up the others */
	return STEP_WAIT;
}

enum step local_datagram_put(struct qp *qp, struct send_wqe *wqe, struct link *link,
			     const struct iovec *local, int count)
{
	uint32_t payload = sizeof(struct record_ud) + wqe->length;

	if (unlikely(!link_is(link, LINK_UP)))
		return wait_for_room(qp, link);
	struct ring_header *h = link_begin(link, payload);

	if (unlikely(!h))
		return wait_for_room(qp, link);
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

	if (unlikely(!link || link_is_gone(link)))
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

/* ------------------------------------------------------------------ receiving */

/* What a record says. False: it is too short for it. */
static bool read_datagram(const struct ring_header *h, const uint8_t *payload, uint32_t room,
			  struct record_ud *ud)
{
	if (room < sizeof(*ud) || h->length > room - sizeof(*ud))
		return false;
	memcpy(ud, payload, sizeof(*ud));
	return true;
}

static void take_datagram(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			  const struct record_ud *ud)
{
	const struct arrival arrival = {
		.length = h->length,
		.imm = h->imm,
		.src_qpn = record_qpn(h->src),
		.has_imm = h->flags & REC_IMM,
		.solicited = h->flags & REC_SOLICITED,
	};
	enum datagram_fate fate = datagram_execute(qp, ud, &arrival, payload + sizeof(*ud));

	if (unlikely(fate == DATAGRAM_QKEY))
		counters_rare(qp->hca, PUB_LOCAL_QKEY);
	else if (unlikely(fate == DATAGRAM_NO_RECEIVE))
		counters_rare(qp->hca, PUB_LOCAL_NO_RECEIVE);
	else if (unlikely(fate == DATAGRAM_TOO_LONG))
		counters_rare(qp->hca, PUB_LOCAL_SHORT_RECEIVE);
}

/*
 * Whether the sender is who it says: its QP is in the process at the link's other end, its address
 * is one that this host has. Another process of the host may lie about both; on the wire the kernel
 * keeps it from that.
 */
static bool is_from_peer(struct link *link, const struct ring_header *h, const struct record_ud *ud)
{
	if (likely(record_qpn(h->src) >> LIMIT_QP_BITS == link->slot &&
		   mcast_is_own(link->hca, ud->sgid, &link->source)))
		return true;
	log_info("process %d sent a datagram as QP 0x%x, or from an address, that isn't its own: "
		 "dropped",
		 link->pid, record_qpn(h->src));
	return false;
}

void local_datagram_take(struct qp *qp, struct link *link, const struct ring_header *h,
			 const uint8_t *payload, uint32_t room)
{
	struct record_ud ud;

	if (record_qpn(h->dst) == qp->ibv.qp_num && read_datagram(h, payload, room, &ud) &&
	    is_from_peer(link, h, &ud))
		take_datagram(qp, h, payload, &ud);
}

struct to_group {
	const struct ring_header *h;
	const uint8_t *payload;
	struct record_ud ud;
};

static void local_datagram_take_one(struct qp *qp, void *arg)
{
	const struct to_group *to = arg;

	lock_take(&qp->lock);
	take_datagram(qp, to->h, to->payload, &to->ud);
	lock_give(&qp->lock);
}

void local_datagram_take_group(struct link *link, const struct ring_header *h,
			       const uint8_t *payload, uint32_t room)
{
	struct to_group to = {.h = h, .payload = payload};

	if (read_datagram(h, payload, room, &to.ud) && is_from_peer(link, h, &to.ud))
		mcast_for_each(link->hca, to.ud.dgid, local_datagram_take_one, &to);
}
