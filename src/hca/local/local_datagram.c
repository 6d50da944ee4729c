/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams to processes of this host, each one record of a link. No state. */
#include "hca/local/local_datagram.h"

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/datagram_fabric.h"
#include "hca/exec/datagram_send.h"
#include "hca/exec/execute.h"
#include "hca/exec/mcast.h"
#include "hca/fabric/membership.h"
#include "hca/local/datagram_inbox.h"
#include "hca/local/link.h"
#include "hca/mem/copy.h"
#include "hca/process/capture.h"
#include "hca/process/context.h"
#include "hca/process/counters.h"
#include "hca/verbs/qp.h"
#include "wire/ether.h"
#include "wire/packet.h"

/* ------------------------------------------------------------------ sending */
/* The published word pub_qp.dry of the QP that the datagram is for. */
static const _Atomic uint32_t *dry_word(const struct send_wqe *wqe, const struct link *link)
{
	return &link->peer->qp[wqe->ud.remote_qpn & (LIMIT_QPS_PER_SLOT - 1)].dry;
}

/* The word, or 0 if the QP's queue isn't dry. */
static uint32_t read_dry(const _Atomic uint32_t *word)
{
	uint32_t dry = atomic_load_explicit(word, memory_order_relaxed);

	return unlikely((dry & PUB_QP_DRY_MASK) == PUB_QP_DRY) ? dry : 0;
}

static void datagram_wait_for_link(struct qp *qp, struct link *link) REQUIRES(qp->lock)
{
	link_wait(link, qp);
	engine_watch_qp(qp); /* its timer bounds the wait */
}

/* Whether the link is sealed for being idle (link_idle.h): it ends, and the next one is up soon. A
 * process of another user may delay that, so its sealed link is treated as a ring without room. */
static bool comes_again(struct link *link)
{
	lock_take(&link->tx_lock);
	bool sealed = link->idle.leave != LEAVE_NONE;

	lock_give(&link->tx_lock);
	return sealed && link->regions;
}

/* `dry`: the receiver's word, or 0 if the datagram waits for room in the ring. */
static enum put wait_for_receiver(struct qp *qp, const struct send_wqe *wqe, struct link *link,
				  uint32_t dry) REQUIRES(qp->lock)
{
	if (!dry && comes_again(link)) {
		datagram_wait_for_link(qp, link);
		return PUT_WAIT;
	}
	if (!datagram_wait(qp, wqe, link, dry)) {
		counters_rare(qp->hca, PUB_LOCAL_NOT_TAKEN);
		return PUT_DROPPED;
	}
	datagram_wait_for_link(qp, link);
	/* The receiver may have posted, and this process's engine have looked for waiting QPs,
	 * before this one was among them. As in link_wait(), after its fence [A1]. */
	if (dry && read_dry(dry_word(wqe, link)) != dry && engine_wants_kicks(qp->hca))
		engine_kick(qp->hca);
	return PUT_WAIT;
}

static bool is_frame(const struct send_wqe *wqe)
{
	return wqe->ud.carrier == &datagram_segment;
}

/* Whether the request is for one QP, whose receives the sender waits for. */
static bool has_one_receiver(const struct send_wqe *wqe)
{
	if (unlikely(is_frame(wqe)))
		return wqe->ud.remote_qpn;
	return likely((wqe->ud.remote_qpn & 0xffffff) != WIRE_MULTICAST_QPN);
}

/* Writes the record: header and payload. False: the request's memory can't be read. */
static bool frame_write(struct qp *qp, const struct send_wqe *wqe, struct ring_header *h,
			const struct iovec *local, int count)
{
	uint8_t *frame = (uint8_t *)h + RING_HEADER;

	h->kind = REC_FRAME;
	h->flags = 0;
	h->dst = 0;
	h->src = record_address(qp_number(qp), 0);
	h->imm = qp->context->device_index | (qp->blocks_self ? FRAME_BLOCKS_SELF : 0);
	h->length = wqe->length;
	if (!copy_gather(frame, local, count, 0, wqe->length))
		return false;
	if (wqe->flags & SEND_CHECKSUMS)
		ether_checksums_fill(frame, wqe->length);
	return true;
}

static bool datagram_write(struct qp *qp, const struct send_wqe *wqe, struct ring_header *h,
			   const struct iovec *local, int count) REQUIRES(qp->lock)
{
	struct record_ud *ud = (struct record_ud *)((uint8_t *)h + RING_HEADER);

	h->kind = REC_UD;
	h->flags = (wqe->flags & SEND_SOLICITED ? REC_SOLICITED : 0) |
		   (wqe->opcode == IBV_WR_SEND_WITH_IMM ? REC_IMM : 0);
	h->dst = record_address(wqe->ud.remote_qpn, 0);
	h->src = record_address(qp->source_qpn, 0);
	h->imm = wqe->imm;
	h->length = wqe->length;
	*ud = wqe->ud.to;
	/* The controlled Q_Key (top bit) stands for the QP's own: 10.2.5. */
	if (unlikely(ud->qkey & 0x80000000u))
		ud->qkey = qp->attr.qkey;
	return copy_gather(ud + 1, local, count, 0, wqe->length);
}

enum put local_datagram_put(struct qp *qp, struct send_wqe *wqe, struct link *link,
			    const struct iovec *local, int count)
{
	bool frame = is_frame(wqe);
	uint32_t payload = wqe->length + (frame ? 0 : (uint32_t)sizeof(struct record_ud));

	if (unlikely(!link_is(link, LINK_UP))) {
		datagram_wait_for_link(qp, link);
		return PUT_WAIT;
	}
	if (has_one_receiver(wqe)) {
		uint32_t dry = read_dry(dry_word(wqe, link));

		if (unlikely(dry))
			return wait_for_receiver(qp, wqe, link, dry);
	}
	struct ring_header *h = link_begin(link, payload);

	if (unlikely(!h))
		return wait_for_receiver(qp, wqe, link, 0);
	if (unlikely(qp->ud_wait.since))
		datagram_wait_end_slow(qp);
	bool written = unlikely(frame) ? frame_write(qp, wqe, h, local, count)
				       : datagram_write(qp, wqe, h, local, count);

	if (unlikely(!written)) {
		link_abandon(link, payload);
		datagram_fail(qp, wqe, IBV_WC_LOC_PROT_ERR);
		return PUT_FAILED;
	}
	if (capture_on(qp->hca) && !frame && has_one_receiver(wqe))
		capture_show_datagram(qp, wqe);
	link_send(link, h, payload);
	uint32_t qpn = frame && !wqe->ud.remote_qpn ? LINK_ANY_QP : record_qpn(wqe->ud.remote_qpn);

	link_notify_if(link, qpn, wqe->flags & SEND_SOLICITED, qpn);
	return PUT_SENT;
}

/* Drops a datagram, and ends its wait if its link went down meanwhile. */
static enum step local_drop(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock)
{
	if (unlikely(qp->ud_wait.since))
		datagram_wait_end_slow(qp);
	return datagram_sent(qp, wqe);
}

static enum step local_send(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			    int count) REQUIRES(qp->lock)
{
	uint32_t slot = wqe->ud.remote_qpn >> LIMIT_QP_BITS;
	struct link *link = slot && slot < LIMIT_SLOTS ? link_get_datagram(qp->hca, slot) : NULL;

	if (unlikely(!link || link_is_gone(link))) {
		counters_rare(qp->hca, PUB_LOCAL_NO_QP); /* there is no such process */
		return local_drop(qp, wqe);
	}
	return local_datagram_send(qp, wqe, link, local, count);
}

enum step local_datagram_send(struct qp *qp, struct send_wqe *wqe, struct link *link,
			      const struct iovec *local, int count)
{
	switch (local_datagram_put(qp, wqe, link, local, count)) {
	case PUT_SENT:
		qp->ud_psn++;
		return datagram_sent(qp, wqe);
	case PUT_DROPPED:
		return datagram_sent(qp, wqe);
	case PUT_FAILED:
		return STEP_FAILED;
	default:
		return STEP_WAIT;
	}
}

void local_datagram_skip(struct qp *qp, struct send_wqe *wqe)
{
	counters_rare(qp->hca, PUB_LOCAL_NOT_TAKEN);
	local_drop(qp, wqe);
}

const struct datagram_carrier datagram_local = {
	.name = "local",
	.send = local_send,
	.skip = local_datagram_skip,
};

/* ------------------------------------------------------------------ receiving */

/* Decodes a record's datagram. False: the record is too short for it. */
static bool read_datagram(const struct ring_header *h, const uint8_t *payload, uint32_t room,
			  struct record_ud *ud)
{
	if (room < sizeof(*ud) || h->length > room - sizeof(*ud))
		return false;
	memcpy(ud, payload, sizeof(*ud));
	return true;
}

static void take_datagram(struct qp *qp, struct link *link, const struct ring_header *h,
			  const uint8_t *payload, const struct record_ud *ud) REQUIRES(qp->lock)
{
	const struct arrival arrival = record_arrival(h);
	enum datagram_fate fate =
		datagram_inbox_take(qp, link, ud, &arrival, payload + sizeof(*ud));

	if (likely(fate == DATAGRAM_TAKEN))
		return;
	datagram_count_fate(qp->hca, fate);
	if (qp->hca->membership && (fate == DATAGRAM_QKEY || fate == DATAGRAM_PKEY))
		datagram_report(qp, ud, &arrival, fate == DATAGRAM_PKEY);
}

/*
 * Whether the sender's QPN and address are its own: the QP is in the process at the link's other
 * end, the address is one of this host's. Another process of the host may forge both; for packets
 * the kernel prevents that.
 */
static bool is_from_peer(struct link *link, const struct ring_header *h, const struct record_ud *ud)
{
	const struct membership *membership = link->hca->membership;
	bool is_near = membership ? link->peer->header.fabric == membership->node->fabric
				  : mcast_is_own(link->hca, ud->sgid, &link->source);

	if (likely(record_qpn(h->src) >> LIMIT_QP_BITS == link->slot && is_near))
		return true;
	log_info("process %d sent a datagram as QP 0x%x, or from an address, that isn't its own: "
		 "dropped",
		 link->pid, record_qpn(h->src));
	return false;
}

void local_datagram_take(struct qp *qp, struct link *link, const struct ring_header *h,
			 const uint8_t *payload, uint32_t room) REQUIRES(qp->lock)
{
	struct record_ud ud;

	if (record_qpn(h->dst) == qp->ibv.qp_num && read_datagram(h, payload, room, &ud) &&
	    is_from_peer(link, h, &ud))
		take_datagram(qp, link, h, payload, &ud);
}

struct to_group {
	struct link *link;
	const struct ring_header *h;
	const uint8_t *payload;
	struct record_ud ud;
};

static void local_datagram_take_one(struct qp *qp, void *arg)
{
	const struct to_group *to = arg;

	/* QPNs are the host's. */
	if (unlikely(qp->blocks_self) && record_qpn(to->h->src) == qp->source_qpn)
		return;
	lock_take(&qp->lock);
	take_datagram(qp, to->link, to->h, to->payload, &to->ud);
	lock_give(&qp->lock);
}

void local_datagram_take_group(struct link *link, const struct ring_header *h,
			       const uint8_t *payload, uint32_t room)
{
	struct to_group to = {.link = link, .h = h, .payload = payload};

	if (read_datagram(h, payload, room, &to.ud) && is_from_peer(link, h, &to.ud))
		mcast_for_each(link->hca, to.ud.dgid, local_datagram_take_one, &to);
}
