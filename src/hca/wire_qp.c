/* SPDX-License-Identifier: BSD-2-Clause */
/* A connected QP on the wire: its path, its requests, and sending. See wire.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "hca/counters.h"
#include "hca/engine.h"
#include "hca/wire.h"

/* ------------------------------------------------------------------ sending */

static void fill(struct tp_request *r, const struct send_wqe *wqe)
{
	*r = (struct tp_request){
		.remote_addr = wqe->remote_addr,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
		.rkey = wqe->rkey,
		.length = wqe->length,
		.imm = wqe->imm,
		.opcode = wqe->opcode,
		.flags = (wqe->flags & SEND_SOLICITED ? TP_SOLICITED : 0) |
			 (wqe->flags & SEND_FENCE ? TP_FENCE : 0),
	};
}

typedef uint32_t next_packet(struct tp *tp, uint64_t now, uint8_t *to);

static uint32_t next_answer(struct tp *tp, uint64_t now, uint8_t *to)
{
	(void)now;
	return tp_next_response(tp, to);
}

/* What `next` gives, until there is no more or `quota` bytes are reached and the burst is full. No
 * burst begins for which there are less than `least` packets. tx_lock held. */
static void send_from(struct wire_qp *w, uint64_t now, uint32_t quota, uint32_t least,
		      next_packet *next)
{
	struct net_sender *tx = &w->qp->hca->wire->tx;
	uint32_t size, sent = 0;

	for (;;) {
		if (net_between(tx) &&
		    (sent >= quota || (least && tp_unsent(wire_tp(w), least) < least)))
			return;
		size = next(wire_tp(w), now, net_room(tx));
		if (!size)
			return;
		net_add(tx, size);
		sent += size;
	}
}

/* False: nothing is sent from here. Else send_end() follows. */
static bool send_begin(struct wire_qp *w)
{
	struct wire *wire = w->qp->hca->wire;

	if (unlikely(wire->left))
		return false;
	lock_take(&wire->tx_lock);
	net_begin(&wire->tx, &w->path);
	return true;
}

static void send_end(struct wire_qp *w)
{
	struct wire *wire = w->qp->hca->wire;

	net_end(&wire->tx);
	lock_give(&wire->tx_lock);
}

/* How many packets are worth a burst. So much may be under way that the peer is busy for longer
 * than it takes until the next post or poll, and somebody polls: then a burst waits until it is
 * full, since a call to send costs about as much as copying 32 KiB. */
static uint32_t least_burst(struct wire_qp *w)
{
	enum { BUSY = 256 * 1024 };

	if (tp_under_way(wire_tp(w)) <= BUSY ||
	    atomic_load_explicit(&w->qp->hca->pub->header.asleep, memory_order_relaxed))
		return 0;
	return net_burst((128u << w->qp->attr.path_mtu) + WIRE_BTH);
}

/* Requests, then what is owed to the peer if `answers`. */
static void burst(struct wire_qp *w, uint64_t now, bool answers)
{
	if (!send_begin(w))
		return;
	send_from(w, now, WIRE_QUOTA, answers ? 0 : least_burst(w), tp_next_request);
	if (answers)
		send_from(w, now, UINT32_MAX, 0, next_answer);
	send_end(w);
}

/* What is owed to the peer. */
static void answer(struct wire_qp *w, uint64_t now)
{
	if (!send_begin(w))
		return;
	send_from(w, now, UINT32_MAX, 0, next_answer);
	send_end(w);
}

void wire_transmit(struct wire_qp *w, uint64_t now)
{
	if (!send_begin(w))
		return;
	send_from(w, now, WIRE_QUOTA, 0, tp_next);
	send_end(w);
}

static uint32_t encode_cnp(const struct qp *qp, uint8_t *to)
{
	const struct packet cnp = {
		.opcode = PACKET_CNP | OP_CNP,
		.becn = true,
		.pkey = WIRE_PKEY,
		.dest_qpn = qp->attr.dest_qp_num,
		.length = WIRE_CNP_PAYLOAD,
	};
	uint32_t headers = packet_encode(&cnp, to);

	memset(to + headers, 0, WIRE_CNP_PAYLOAD);
	return headers + WIRE_CNP_PAYLOAD;
}

void wire_notify(struct wire_qp *w, uint64_t now)
{
	enum { PAUSE_NS = 50000 }; /* what cards do */
	struct net_sender *tx = &w->qp->hca->wire->tx;

	if ((w->told_at && now - w->told_at < PAUSE_NS) || !send_begin(w))
		return;
	w->told_at = now;
	net_add(tx, encode_cnp(w->qp, net_room(tx)));
	send_end(w);
	counters_rare(w->qp->hca, PUB_CNPS_OUT);
}

/* What is left is the engine's, which must know if it sleeps. */
static void note_and_kick(struct wire_qp *w, uint64_t now)
{
	struct hca *hca = w->qp->hca;

	wire_note(w, now);
	if (unlikely(wire_entered(&w->ready) &&
		     atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed)))
		engine_kick(hca);
}

/*
 * Sends the requests, and in the same burst the acknowledgement that waited for them (wire_note). A
 * long answer to a READ is left to the engine.
 */
void wire_post(struct qp *qp)
{
	struct wire_qp *w = qp->wire;
	struct tp *tp = wire_tp(w);

	while (qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS) {
		fill(&w->requests[qp->sq.next & qp->sq.mask], sq_at(&qp->sq, qp->sq.next));
		qp->sq.next++;
		tp_post(tp);
	}
	uint64_t now = now_ns();
	bool acks = tp_acknowledges(tp);
	_Atomic uint32_t *polls = &qp->hca->polls;

	/* Who sends may be at it for longer than the engine thread waits for a poll. */
	atomic_store_explicit(polls, atomic_load_explicit(polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);

	wire_ack_travels(w, acks, now);
	burst(w, now, acks);
	note_and_kick(w, now);
}

/* ------------------------------------------------------------------ connecting */

/* Packets that come too early, and requests. */
static size_t rings_size(const struct qp *qp)
{
	return TP_EARLY_BYTES + (size_t)(qp->sq.mask + 1) * sizeof(struct tp_request);
}

static struct wire_qp *wire_qp_new(struct qp *qp)
{
	struct wire_qp *w = calloc(1, sizeof(*w) + tp_size());

	if (!w)
		return NULL;
	w->qp = qp;
	w->patience = WIRE_PATIENCE;
	list_init(&w->ready.node);
	list_init(&w->timed.node);
	/* Anonymous memory: pages exist once they are used. */
	void *p = mmap(NULL, rings_size(qp), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		free(w);
		return NULL;
	}
	w->early = p;
	w->requests = (struct tp_request *)((char *)p + TP_EARLY_BYTES);
	return w;
}

static void wire_qp_free(struct wire_qp *w)
{
	munmap(w->early, rings_size(w->qp));
	free(w);
}

static int set_path(struct wire_qp *w, const struct proto_route_resp *route)
{
	struct qp *qp = w->qp;
	struct wire *wire = qp->hca->wire;
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;

	memcpy(w->path.ip.source, route->sgid, 16);
	memcpy(w->path.ip.destination, grh->dgid.raw, 16);
	w->path.ifindex = route->ifindex;
	w->path.hop_limit = grh->hop_limit;
	w->path.traffic_class = grh->traffic_class;
	w->path.socket = -1;
	lock_take(&wire->tx_lock);
	int err = net_path_bind(&wire->tx, &w->path, grh->flow_label, qp->ibv.qp_num,
				qp->attr.dest_qp_num);

	lock_give(&wire->tx_lock);
	if (err)
		log_warn("QP 0x%x: no UDP socket for its path: %s", qp->ibv.qp_num, strerror(-err));
	return -err;
}

int wire_connect(struct qp *qp, const struct proto_route_resp *route)
{
	struct wire_qp *w = wire_qp_new(qp);

	if (!w)
		return ENOMEM;
	int err = set_path(w, route);

	if (err) {
		wire_qp_free(w);
		return err;
	}
	const struct tp_path path = {
		.mtu = 128u << qp->attr.path_mtu,
		.local_qpn = qp->ibv.qp_num,
		.remote_qpn = qp->attr.dest_qp_num,
		.pkey = WIRE_PKEY,
	};

	tp_init(wire_tp(w), qp->type, &wire_world, w, w->requests, qp->sq.mask + 1);
	tp_keep_early(wire_tp(w), w->early);
	tp_receive_ready(wire_tp(w), &path, &qp->attr);
	qp->wire = w;
	return 0;
}

void wire_send_ready(struct qp *qp, enum ibv_qp_state from)
{
	if (from == IBV_QPS_SQE)
		tp_realign(wire_tp(qp->wire), qp->sq.next);
	if (from == IBV_QPS_SQD || from == IBV_QPS_SQE)
		tp_resume(wire_tp(qp->wire));
	else
		tp_send_ready(wire_tp(qp->wire), &qp->attr);
	wire_post(qp);
}

void wire_drain(struct qp *qp)
{
	tp_drain(wire_tp(qp->wire));
}

void wire_change(struct qp *qp, int mask)
{
	tp_change(wire_tp(qp->wire), &qp->attr, mask);
}

/* A receive that a message was coming into is flushed with the others. */
static void drop_receive(struct qp *qp)
{
	struct wire_qp *w = qp->wire;

	if (!w->taken)
		return;
	w->taken = false;
	receive_give_back(qp, &w->receive.wqe);
}

void wire_stop(struct qp *qp)
{
	tp_stop(wire_tp(qp->wire), true);
	drop_receive(qp);
	note_and_kick(qp->wire, now_ns());
}

void wire_disconnect(struct qp *qp)
{
	struct wire_qp *w = qp->wire;
	struct wire *wire = qp->hca->wire;

	if (!w)
		return;
	/* What arrived has been acknowledged by a card long since. */
	answer(w, now_ns());
	tp_stop(wire_tp(w), false);
	drop_receive(qp);
	lock_take(&wire->list_lock);
	list_del(&w->ready.node);
	list_del(&w->timed.node);
	lock_give(&wire->list_lock);
	counters_transport(w);
	qp->wire = NULL;
	wire_qp_free(w);
}
