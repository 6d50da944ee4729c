/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire carrier's engine: packets in, timers, who polls the socket. See wire.h. */
#include "hca/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "hca/engine.h"

enum {
	COLD_AFTER = 2000,  /* looks in vain: about a millisecond of polling */
	QUOTA = 128 * 1024, /* bytes that a QP sends before others have their turn */
	TURNS = 64,	    /* QPs that send in one pass */
	TAKE_IN = 64,	    /* receives at most before a QP stops */
};

/* ------------------------------------------------------------------ making, leaving */

static bool forced(void)
{
	const char *text = getenv("VERBENA_CARRIER");

	return text && !strcmp(text, "wire");
}

static void wire_free(struct wire *wire)
{
	net_receiver_fini(&wire->rx);
	net_sender_fini(&wire->tx);
	free(wire);
}

int wire_make(struct hca *hca)
{
	if (hca->wire_fd < 0)
		return 0;
	struct wire *wire = calloc(1, sizeof(*wire));

	if (!wire)
		return -ENOMEM;
	wire->hca = hca;
	lock_init(&wire->tx_lock);
	lock_init(&wire->list_lock);
	list_init(&wire->ready);
	list_init(&wire->timed);
	atomic_store(&wire->deadline, TP_NEVER);
	atomic_store(&wire->scheduled, TP_NEVER);
	int err = net_receiver_init(&wire->rx, hca->wire_fd);

	if (!err)
		err = net_sender_init(&wire->tx);
	if (err) {
		wire_free(wire);
		return err;
	}
	hca->wire = wire;
	hca->wire_forced = forced();
	return 0;
}

void wire_leave(struct hca *hca)
{
	struct wire *wire = hca->wire;

	if (!wire)
		return;
	lock_init(&wire->tx_lock);
	lock_init(&wire->list_lock);
	list_init(&wire->ready);
	list_init(&wire->timed);
	net_sender_leave(&wire->tx);
	wire->rx.fd = -1;
	atomic_store(&wire->hot, false);
	atomic_store(&wire->has_ready, 0);
}

/* ------------------------------------------------------------------ what is to be sent, and when
 */

/* The engine thread sleeps past this instant: wakes it. Not for each step: what it looks at later
 * by itself is soon enough. */
static void schedule(struct wire *wire, uint64_t deadline)
{
	uint64_t known = atomic_load_explicit(&wire->deadline, memory_order_relaxed);

	while (deadline < known && !atomic_compare_exchange_weak(&wire->deadline, &known, deadline))
		;
	if (unlikely(deadline < atomic_load(&wire->scheduled))) {
		atomic_store(&wire->scheduled, deadline);
		engine_kick(wire->hca);
	}
}

void wire_note(struct wire_qp *w, uint64_t now)
{
	struct wire *wire = w->qp->hca->wire;
	bool ready = tp_ready(wire_tp(w), now);
	uint64_t deadline = tp_deadline(wire_tp(w));

	if ((ready && list_empty(&w->ready)) || (deadline != TP_NEVER && list_empty(&w->timed))) {
		lock_take(&wire->list_lock);
		if (ready && list_empty(&w->ready)) {
			list_add_tail(&wire->ready, &w->ready);
			atomic_store(&wire->has_ready, 1);
		}
		if (deadline != TP_NEVER && list_empty(&w->timed))
			list_add_tail(&wire->timed, &w->timed);
		lock_give(&wire->list_lock);
	}
	if (deadline < atomic_load_explicit(&wire->deadline, memory_order_relaxed))
		schedule(wire, deadline);
}

static struct wire_qp *next_ready(struct wire *wire)
{
	lock_take(&wire->list_lock);
	struct list *node = list_pop(&wire->ready);

	if (!node || list_empty(&wire->ready))
		atomic_store(&wire->has_ready, 0);
	lock_give(&wire->list_lock);
	return node ? container_of(node, struct wire_qp, ready) : NULL;
}

/* Engine held: no QP ends meanwhile. */
static unsigned int send_ready(struct wire *wire)
{
	unsigned int n = 0;
	uint64_t now = now_ns();

	while (n < TURNS && atomic_load_explicit(&wire->has_ready, memory_order_relaxed)) {
		struct wire_qp *w = next_ready(wire);

		if (!w)
			break;
		struct qp *qp = w->qp;

		lock_take(&qp->lock);
		wire_transmit(w, now, QUOTA);
		wire_note(w, now);
		lock_give(&qp->lock);
		n++;
	}
	return n;
}

static struct wire_qp *next_timed(struct wire *wire, struct list *batch)
{
	lock_take(&wire->list_lock);
	struct list *node = list_pop(batch);

	lock_give(&wire->list_lock);
	return node ? container_of(node, struct wire_qp, timed) : NULL;
}

/* One QP: false when it has no deadline any more. */
static void expire(struct wire *wire, struct wire_qp *w, uint64_t now)
{
	struct qp *qp = w->qp;

	lock_take(&qp->lock);
	if (tp_deadline(wire_tp(w)) <= now)
		tp_expire(wire_tp(w), now);
	wire_transmit(w, now, QUOTA);
	wire_note(w, now);
	lock_give(&qp->lock);
	(void)wire;
}

uint64_t wire_scan(struct wire *wire, uint64_t now)
{
	struct list batch, *node;
	struct wire_qp *w;

	if (atomic_load(&wire->deadline) <= now) {
		list_init(&batch);
		/* Ending a QP takes the engine's lock too: none ends while it is on no list. */
		lock_take(&wire->hca->engine);
		lock_take(&wire->list_lock);
		atomic_store(&wire->deadline, TP_NEVER);
		while ((node = list_pop(&wire->timed)))
			list_add_tail(&batch, node);
		lock_give(&wire->list_lock);
		while ((w = next_timed(wire, &batch)))
			expire(wire, w, now);
		lock_give(&wire->hca->engine);
	}
	uint64_t next = atomic_load(&wire->deadline);

	atomic_store(&wire->scheduled, next);
	return next;
}

/* ------------------------------------------------------------------ packets in */

static const char *const drop_text[WIRE_DROPS] = {
	[WIRE_DROP_QPN] = "no QP has this number",
	[WIRE_DROP_HOST] = "from another host than the QP is connected to",
	[WIRE_DROP_PKEY] = "another P_Key",
	[WIRE_DROP_QKEY] = "another Q_Key",
	[WIRE_DROP_TRANSPORT] = "of another transport than the QP",
	[WIRE_DROP_STATE] = "the QP isn't in a state to receive",
	[WIRE_DROP_STALE] = "fits no state of the connection: stale, forged or malformed",
	[WIRE_DROP_NO_RECEIVE] = "no receive is posted",
};

static bool from_peer(const struct wire_qp *w, const struct net_from *from)
{
	return !memcmp(w->path.ip.destination, from->ip.source, 16) &&
	       !memcmp(w->path.ip.source, from->ip.destination, 16);
}

static bool pkey_fits(uint16_t pkey)
{
	return (pkey & 0x7fff) == (WIRE_PKEY & 0x7fff);
}

static enum wire_drop connected_packet(struct qp *qp, const struct packet *packet,
				       const struct net_from *from, uint64_t now)
{
	struct wire_qp *w = qp->wire;
	uint8_t transport = qp->type == IBV_QPT_RC ? PACKET_RC : PACKET_UC;

	if (unlikely(!w || !execute_receiving(qp)))
		return WIRE_DROP_STATE;
	if (unlikely(packet_transport(packet->opcode) != transport))
		return WIRE_DROP_TRANSPORT;
	if (unlikely(!from_peer(w, from)))
		return WIRE_DROP_HOST;
	uint64_t dropped = tp_counters(wire_tp(w))->dropped;

	tp_packet(wire_tp(w), packet, now);
	if (unlikely(!qp->wire))
		return WIRE_TAKEN;
	wire_note(w, now);
	return likely(tp_counters(wire_tp(w))->dropped == dropped) ? WIRE_TAKEN : WIRE_DROP_STALE;
}

static enum wire_drop handle(struct qp *qp, const struct packet *packet,
			     const struct net_from *from)
{
	enum wire_drop drop;

	if (unlikely(!qp || qp->ibv.qp_num != packet->dest_qpn))
		return WIRE_DROP_QPN;
	if (unlikely(!pkey_fits(packet->pkey)))
		return WIRE_DROP_PKEY;
	lock_take(&qp->lock);
	if (qp->type != IBV_QPT_UD)
		drop = connected_packet(qp, packet, from, now_ns());
	else if (packet_transport(packet->opcode) == PACKET_UD)
		drop = wire_receive_datagram(qp, packet, from);
	else
		drop = WIRE_DROP_TRANSPORT;
	lock_give(&qp->lock);
	return drop;
}

static const char *on_packet(void *arg, const struct packet *packet, const struct net_from *from)
{
	struct wire *wire = arg;
	struct qp *qp = wire->hca->qps[packet->dest_qpn & (LIMIT_QPS_PER_SLOT - 1)];

	enum wire_drop drop = handle(qp, packet, from);

	if (likely(drop == WIRE_TAKEN))
		return NULL;
	wire->dropped[drop]++;
	return drop_text[drop];
}

unsigned int wire_pass(struct wire *wire)
{
	unsigned int n = 0;

	if (atomic_load_explicit(&wire->has_ready, memory_order_relaxed))
		n += send_ready(wire);
	if (!atomic_load_explicit(&wire->hot, memory_order_relaxed))
		return n;
	unsigned int packets = net_receive(&wire->rx, on_packet, wire);

	if (packets) {
		wire->vain = 0;
		return n + packets;
	}
	if (unlikely(++wire->vain > COLD_AFTER))
		wire_arm(wire);
	return n;
}

void wire_take_in(struct wire *wire)
{
	for (unsigned int i = 0; i < TAKE_IN && net_receive(&wire->rx, on_packet, wire); i++)
		send_ready(wire);
	send_ready(wire);
}

/* ------------------------------------------------------------------ the socket's lease */

void wire_arm(struct wire *wire)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = wire->rx.fd};

	atomic_store(&wire->hot, false);
	/* What is in the socket already counts: EPOLLIN is a level. */
	if (epoll_ctl(wire->hca->epoll, EPOLL_CTL_MOD, wire->rx.fd, &e) < 0 &&
	    epoll_ctl(wire->hca->epoll, EPOLL_CTL_ADD, wire->rx.fd, &e) < 0)
		log_error("wire: epoll: %s", strerror(errno));
}

void wire_woken(struct wire *wire)
{
	wire->vain = 0;
	atomic_store(&wire->hot, true);
}
