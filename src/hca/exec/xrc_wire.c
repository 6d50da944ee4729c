/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_wire.h. Owns the mapping of what processes share, and the packets that wait. */
#include "hca/exec/xrc_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/local/link.h"
#include "hca/process/books.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/route.h"
#include "hca/verbs/xrcd.h"
#include "shm/xrc_shared.h"

_Static_assert((int)TP_RESPONDER_BYTES <= (int)XRC_SHARED_RESPONDER, "it has room");

enum { KEPT_MAX = 1024 };

/* A packet that waits. */
struct kept {
	struct list node;
	struct packet packet;
	uint8_t payload[];
};

/* ------------------------------------------------------------------ what processes share */

int xrc_wire_begin(struct hca *hca)
{
	struct xrc_here *here = hca->xrc;
	int fd;

	if (!hca->roce || here->shared)
		return 0;
	books_enter(hca);
	int err = daemon_xrc_memory(&hca->conn, &fd);

	books_leave(hca);
	if (err)
		return -err;
	void *p = mmap(NULL, XRC_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		       fd, 0);
	bool first = false;

	if (p == MAP_FAILED) {
		err = errno;
		sys_close(fd);
		return err;
	}
	lock_take(&hca->engine); /* another thread may open a domain as well */
	if (!here->shared) {
		here->shared = p;
		here->shared_fd = fd;
		first = true;
	}
	lock_give(&hca->engine);
	if (!first) {
		munmap(p, XRC_SHARED_BYTES);
		sys_close(fd);
	}
	return 0;
}

int xrc_wire_again(struct hca *hca, struct daemon_conn *conn)
{
	int fd = hca->xrc->shared_fd;

	return fd < 0 ? 0 : daemon_xrc_memory_returns(conn, fd);
}

void xrc_wire_unmake(struct hca *hca)
{
	struct xrc_here *here = hca->xrc;

	if (here->shared)
		munmap(here->shared, XRC_SHARED_BYTES);
	if (here->shared_fd >= 0)
		sys_close(here->shared_fd);
	here->shared = NULL;
	here->shared_fd = -1;
}

void xrc_wire_leave(struct hca *hca)
{
	xrc_wire_unmake(hca);
	list_init(&hca->xrc->on_wire);
}

static bool is_holder(const struct stand_in *si)
{
	/* [Y4], pairs with [Y3] */
	return atomic_load_explicit(&si->shared->holder, memory_order_acquire) == si->qp.hca->slot;
}

/* This process is the holder: its core works with the responder. */
static void responder_take(struct stand_in *si) REQUIRES(si->qp.lock)
{
	struct qp *qp = &si->qp;

	tp_responder_at(roce_tp(qp->roce), si->shared->responder);
	tp_change(roce_tp(qp->roce), &qp->attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC);
	si->holds = true;
}

/* The holder has died. False: another process has taken the responder meanwhile. */
static bool responder_inherit(struct stand_in *si, uint32_t from) REQUIRES(si->qp.lock)
{
	uint32_t slot = si->qp.hca->slot;

	/* [Y3], pairs with [Y4]: and as an acquire with the [Y3] of the process that made the dead
	 * one the holder */
	if (!atomic_compare_exchange_strong(&si->shared->holder, &from, slot))
		return false;
	log_info("XRC QP 0x%x: this process executes now, the one at slot %u has ended", si->target,
		 from);
	return true;
}

/* ------------------------------------------------------------------ stand-ins */

static struct stand_in *on_wire_find(const struct hca *hca, uint32_t qpn)
{
	list_for_each(node, &hca->xrc->on_wire) {
		struct stand_in *si = container_of(node, struct stand_in, node);

		if (si->target == qpn)
			return si;
	}
	return NULL;
}

bool xrc_wire_known(const struct hca *hca, uint32_t qpn)
{
	return on_wire_find(hca, qpn);
}

struct qp *xrc_wire_qp(const struct hca *hca, uint32_t qpn)
{
	struct stand_in *si = on_wire_find(hca, qpn);

	return si ? &si->qp : NULL;
}

/* The first dispatcher of a connection begins its responder. */
static void responder_begin(struct stand_in *si, const struct proto_xrc_state *is)
	REQUIRES(si->qp.lock)
{
	struct xrc_shared *shared = si->shared;

	shared->is = *is;
	tp_share(roce_tp(si->qp.roce), shared->responder);
	si->holds = true;
	atomic_store_explicit(&shared->holder, si->qp.hca->slot, memory_order_relaxed);
	/* [Y1], pairs with [Y2] */
	atomic_store_explicit(&shared->epoch, is->epoch, memory_order_release);
}

static bool responder_has_begun(const struct xrc_shared *shared, uint32_t epoch)
{
	/* [Y2], pairs with [Y1] */
	return atomic_load_explicit(&shared->epoch, memory_order_acquire) == epoch;
}

/* Connects the stand-in. 0 or a positive errno. */
static int on_wire_connect(struct stand_in *si, const struct proto_xrc_state *is)
{
	const struct xrc_attr with = xrc_attr_get(is);
	const struct route route = {.at = with.at, .roce = true};

	lock_take(&si->qp.lock);
	si->qp.attr = with.attr;
	si->qp.state = (uint8_t)is->state;
	memcpy(si->qp.sgid, route.at.sgid, sizeof(si->qp.sgid));
	int err = carrier_roce.connect(&si->qp, &route);

	if (!err) {
		si->qp.carrier = &carrier_roce;
		if (responder_has_begun(si->shared, is->epoch))
			tp_responder_at(roce_tp(si->qp.roce), NULL);
		else
			responder_begin(si, is);
	}
	lock_give(&si->qp.lock);
	return err;
}

static struct stand_in *on_wire_make(struct hca *hca, uint32_t qpn,
				     const struct proto_xrc_state *is)
{
	struct stand_in *si = NULL;
	int err = ENOMEM;

	if (hca->xrc->shared && is->place < XRC_SHARED_PLACES)
		si = stand_in_new(hca, qpn, is->peer, is->epoch);
	if (si) {
		si->shared = &hca->xrc->shared[is->place];
		err = on_wire_connect(si, is);
	}
	if (err) {
		log_warn("XRC QP 0x%x can't receive packets: %s", qpn, strerror(err));
		if (si)
			stand_in_free(si);
		return NULL;
	}
	list_add_tail(&hca->xrc->on_wire, &si->node);
	return si;
}

void xrc_wire_drop(struct stand_in *si)
{
	struct list *node;

	while ((node = list_pop(&si->kept)))
		free(container_of(node, struct kept, node));
	si->kept_count = 0;
	/* The queue pair may live on, and its place may be another's. */
	if (si->shared && si->qp.roce)
		tp_responder_at(roce_tp(si->qp.roce), NULL);
	link_unwait(&si->qp);
	if (si->to)
		link_put(si->to);
	si->to = NULL;
}

/* No queue pair of another slot's is left here that gets packets by that slot's socket. */
static void leave_socket(struct hca *hca, uint32_t slot)
{
	if (slot == hca->slot || !hca->roce)
		return;
	list_for_each(node, &hca->xrc->on_wire)
		if (container_of(node, struct stand_in, node)->target >> LIMIT_QP_BITS == slot)
			return;
	roce_disinherit(hca->roce, slot);
}

void xrc_wire_ended(struct hca *hca, uint32_t qpn)
{
	struct stand_in *si = on_wire_find(hca, qpn);

	if (si)
		stand_in_end(si);
	leave_socket(hca, qpn >> LIMIT_QP_BITS);
}

/* Makes the stand-in of the process that gets the packets. */
static struct stand_in *dispatcher_make(struct hca *hca, uint32_t qpn,
					const struct proto_xrc_state *is)
{
	carrier_roce.take_in_former(hca);
	struct stand_in *si = on_wire_make(hca, qpn, is);

	if (si && qpn >> LIMIT_QP_BITS == hca->slot)
		hca->qps[qpn & (LIMIT_QPS_PER_SLOT - 1)] = &si->qp;
	return si;
}

/* Whether the queue pair has changed since the daemon said this: answers to two threads of this
 * process may be handled in either order. The process is told of the later change, too. */
static bool is_outdated(const struct hca *hca, uint32_t qpn, const struct proto_xrc_state *is)
{
	struct xrc_view view;

	return !mcast_xrc_read(hca, qpn, &view) || pub_qp_epoch(view.state) != is->epoch ||
	       pub_qp_state(view.state) != is->state;
}

void xrc_wire_follow(struct hca *hca, uint32_t qpn, const struct proto_xrc_state *is)
{
	if (is_outdated(hca, qpn, is))
		return;
	const struct xrc_attr with = xrc_attr_get(is);
	struct stand_in *si = on_wire_find(hca, qpn);
	bool receives = xrc_receives(is->state);

	if (si && (si->epoch != is->epoch || is->state < IBV_QPS_RTR)) {
		stand_in_end(si);
		si = NULL;
	}
	if (!si && receives && with.roce && hca->roce && is->dispatcher == hca->slot)
		si = dispatcher_make(hca, qpn, is);
	if (!si)
		return;
	struct qp *qp = &si->qp;

	lock_take(&qp->lock);
	if (!receives) {
		stand_in_stop(qp);
	} else if (qp->state != IBV_QPS_ERR) {
		qp->state = (uint8_t)is->state;
		qp->attr = with.attr;
		if (si->holds)
			tp_change(roce_tp(qp->roce), &qp->attr, IBV_QP_MIN_RNR_TIMER);
	}
	lock_give(&qp->lock);
}

/* ------------------------------------------------------------------ passing packets on */

/* What becomes of a packet. LOST: the process that it is for has ended. */
enum way { DEALT_WITH, WAITS, LOST };

/* The link to the process at `slot`, UP, and held until the next one is. NULL: `*way` says why. */
static struct link *pass_link(struct stand_in *si, uint32_t slot, enum way *way)
	REQUIRES(si->qp.lock)
{
	struct link *link = si->to && si->to->slot == slot && link_is(si->to, LINK_UP)
				    ? si->to
				    : link_get_datagram(si->qp.hca, slot);

	*way = link && (link_pending(link) || link_is(link, LINK_UP)) ? WAITS : LOST;
	if (*way == LOST)
		return NULL;
	if (!link_is(link, LINK_UP) || (si->to != link && !link_hold(link))) {
		link_wait(link, &si->qp);
		return NULL;
	}
	if (si->to != link && si->to)
		link_put(si->to);
	si->to = link;
	return link;
}

static void send_packet(struct stand_in *si, struct link *link, struct ring_header *h,
			const struct packet *p, uint32_t size) RELEASE(link->tx_lock)
	REQUIRES(si->qp.lock)
{
	uint8_t *to = (uint8_t *)h + RING_HEADER;

	h->kind = REC_XRC_PACKET;
	h->flags = 0;
	h->dst = si->target;
	h->src = 0;
	h->msn = si->epoch;
	h->ack = 0;
	h->imm = (uint32_t)(si->shared - si->qp.hca->xrc->shared);
	h->length = size;
	uint32_t headers = packet_encode(p, to);

	memcpy(to + headers, p->payload, p->length);
	memset(to + headers + p->length, 0, packet_padding(p->length) + WIRE_ICRC);
	link_send(link, h, size);
	link_notify(link);
}

/* Sends the packet to the process at `slot`; with the responder, if this process has it. */
static enum way pass_to(struct stand_in *si, uint32_t slot, const struct packet *p)
	REQUIRES(si->qp.lock)
{
	uint32_t size =
		packet_headers_size(p->opcode) + p->length + packet_padding(p->length) + WIRE_ICRC;
	enum way way;
	struct link *link = pass_link(si, slot, &way);

	if (!link)
		return way;
	struct ring_header *h = link_begin(link, size);

	if (!h) {
		link_wait(link, &si->qp);
		return WAITS;
	}
	if (si->holds) {
		si->holds = false;
		tp_responder_at(roce_tp(si->qp.roce), NULL);
		/* [Y3], pairs with [Y4] */
		atomic_store_explicit(&si->shared->holder, slot, memory_order_release);
	}
	send_packet(si, link, h, p, size);
	return DEALT_WITH;
}

/* Whether the process at the other end has the SRQ, of this domain. */
static bool peer_has_srq(const struct link *link, uint32_t domain, uint32_t srqn)
{
	const struct pub_qp *e = &link->peer->qp[srqn & (LIMIT_QPS_PER_SLOT - 1)];
	uint64_t word = pub_qp_read_state(e);

	return pub_qp_type(word) == PUB_XRC_SRQ && pub_qp_state(word) == IBV_QPS_RTR &&
	       atomic_load_explicit(&e->peer, memory_order_relaxed) == domain;
}

/* Whether the packet is for the SRQ of another process: DEALT_WITH: it is, and the process has it;
 * LOST: no other process has the SRQ, so that this one takes or refuses the packet. */
static enum way seek_srq(struct stand_in *si, uint32_t srqn) REQUIRES(si->qp.lock)
{
	const struct xrc_target *target = mcast_xrc_find(si->qp.hca, si->target);
	uint32_t slot = srqn >> LIMIT_QP_BITS;
	enum way way;

	if (!srqn || slot == si->qp.hca->slot || !slot || slot >= LIMIT_SLOTS || !target)
		return LOST;
	struct link *link = pass_link(si, slot, &way);

	if (!link)
		return way;
	return peer_has_srq(link, xrc_target_domain(target), srqn) ? DEALT_WITH : LOST;
}

bool xrc_wire_elsewhere(struct qp *qp, uint32_t srqn)
{
	struct stand_in *si = stand_in_of(qp);

	lock_assert_held(&si->qp.lock); /* is qp->lock */
	return si->shared && seek_srq(si, srqn) != LOST;
}

/* This process is the holder. */
static enum way hold_packet(struct stand_in *si, const struct packet *p) REQUIRES(si->qp.lock)
{
	struct tp *tp = roce_tp(si->qp.roce);
	uint32_t srqn = tp_srq_of(tp, p);
	enum way way;

	if (likely(!srqn || srqn >> LIMIT_QP_BITS == si->qp.hca->slot))
		return LOST;
	way = seek_srq(si, srqn);
	if (way != DEALT_WITH)
		return way;
	return tp_owes(tp) ? WAITS : pass_to(si, srqn >> LIMIT_QP_BITS, p);
}

/* Passes the packet on, or takes it. False: it waits. */
static bool take_or_pass(struct stand_in *si, const struct packet *p, enum roce_drop *drop)
	REQUIRES(si->qp.lock)
{
	struct roce_qp *w = si->qp.roce;

	lock_assert_held(&w->qp->lock); /* is si->qp.lock */
	*drop = ROCE_TAKEN;
	while (!is_holder(si)) {
		uint32_t holder = atomic_load_explicit(&si->shared->holder, memory_order_relaxed);
		enum way way = pass_to(si, holder % LIMIT_SLOTS, p);

		if (way != LOST)
			return way == DEALT_WITH;
		responder_inherit(si, holder);
	}
	if (unlikely(!si->holds))
		responder_take(si);
	enum way way = hold_packet(si, p);

	if (likely(way == LOST))
		*drop = roce_take_packet(w, p);
	return way != WAITS;
}

/* The packet waits for its turn. */
static enum roce_drop keep_packet(struct stand_in *si, const struct packet *p) REQUIRES(si->qp.lock)
{
	struct kept *kept = si->kept_count < KEPT_MAX ? malloc(sizeof(*kept) + p->length) : NULL;

	if (!kept)
		return ROCE_DROP_STALE;
	kept->packet = *p;
	kept->packet.payload = kept->payload;
	if (p->length)
		memcpy(kept->payload, p->payload, p->length);
	list_add_tail(&si->kept, &kept->node);
	si->kept_count++;
	return ROCE_TAKEN;
}

enum roce_drop xrc_wire_packet(struct qp *qp, const struct packet *packet)
{
	struct stand_in *si = stand_in_of(qp);
	enum roce_drop drop;

	lock_assert_held(&si->qp.lock); /* is qp->lock */
	xrc_wire_go_on(qp);
	if (unlikely(!list_empty(&si->kept)) || unlikely(!take_or_pass(si, packet, &drop)))
		return keep_packet(si, packet);
	return drop;
}

void xrc_wire_go_on(struct qp *qp)
{
	struct stand_in *si = stand_in_of(qp);
	enum roce_drop drop;

	lock_assert_held(&si->qp.lock); /* is qp->lock */
	if (si->going_on)
		return; /* called from within */
	si->going_on = true;
	while (unlikely(!list_empty(&si->kept))) {
		struct kept *kept = container_of(si->kept.next, struct kept, node);

		if (!take_or_pass(si, &kept->packet, &drop))
			break;
		list_del(&kept->node);
		si->kept_count--;
		free(kept);
	}
	si->going_on = false;
}

/* ------------------------------------------------------------------ packets by links */

/* The stand-in for a packet that another process has passed on. NULL: the queue pair isn't known
 * here. */
static struct stand_in *on_wire_for(struct hca *hca, const struct ring_header *h)
{
	struct stand_in *si = on_wire_find(hca, h->dst);
	struct xrc_view view;

	if (likely(si && si->epoch == h->msn))
		return si;
	if (!hca->xrc->shared || !hca->roce || h->imm >= XRC_SHARED_PLACES ||
	    !mcast_xrc_read(hca, h->dst, &view) || pub_qp_epoch(view.state) != h->msn ||
	    !responder_has_begun(&hca->xrc->shared[h->imm], h->msn))
		return NULL;
	if (si)
		stand_in_end(si);
	struct proto_xrc_state is = hca->xrc->shared[h->imm].is;
	struct xrc_attr with = xrc_attr_get(&is);

	/* What may have changed since it was connected. */
	is.state = pub_qp_state(view.state);
	with.attr.qp_access_flags = pub_qp_access(view.state) & PUB_QP_ACCESS;
	with.attr.min_rnr_timer = view.rnr_timer;
	memcpy(is.attr, &with, sizeof(with));
	is.place = h->imm;
	is.epoch = h->msn;
	return xrc_receives(is.state) ? on_wire_make(hca, h->dst, &is) : NULL;
}

static void packet_came(struct hca *hca, struct link *link, const struct ring_header *h,
			const uint8_t *payload, uint32_t room)
{
	uint8_t *bytes = hca->xrc->packet;
	struct packet packet;

	/* Only processes of this user may speak for the peer. */
	if (link->hear >= 0 || h->length > room || h->length > sizeof(hca->xrc->packet))
		return;
	struct stand_in *si = on_wire_for(hca, h);

	if (!si) {
		const struct ring_header answer = {
			.kind = REC_XRC_STRANGER, .dst = h->dst, .msn = h->msn};

		link_control(link, &answer, NULL, 0);
		return;
	}
	memcpy(bytes, payload, h->length);
	if (packet_decode(bytes, h->length, &packet) || packet.dest_qpn != h->dst ||
	    packet_transport(packet.opcode) != PACKET_XRC)
		return;
	hca->roce->now = now_ns();
	lock_take(&si->qp.lock);
	xrc_wire_packet(&si->qp, &packet);
	lock_give(&si->qp.lock);
}

/* The process that this one took for the holder is another one, at the same slot. */
static void stranger_answered(struct hca *hca, const struct link *link, const struct ring_header *h)
{
	struct stand_in *si = on_wire_find(hca, h->dst);

	if (!si || si->epoch != h->msn)
		return;
	lock_take(&si->qp.lock);
	responder_inherit(si, link->slot);
	lock_give(&si->qp.lock);
}

void xrc_wire_record(struct hca *hca, struct link *link, const struct ring_header *h,
		     const uint8_t *payload, uint32_t room)
{
	if (h->kind == REC_XRC_PACKET)
		packet_came(hca, link, h, payload, room);
	else if (link->hear < 0)
		stranger_answered(hca, link, h);
}
