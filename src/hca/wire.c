/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire carrier's engine: packets in, timers, who polls the socket. See wire.h. */
#include "hca/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "hca/counters.h"
#include "hca/engine.h"
#include "hca/mcast.h"

enum {
	COLD_AFTER = 2000,   /* looks in vain: about a millisecond of polling */
	ACK_DELAY_NS = 8000, /* two calls to send, on a quick machine; at least so long */
	ACK_DELAY_MAX_NS = 200000,
	TURNS = 64,	/* QPs that send in one pass */
	TAKE_IN = 1024, /* looks until a socket that has to be empty is taken for so */
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
	hca->wire_forced = forced();
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
	/* The sender first: what wire_free() ends must have begun. */
	int err = net_sender_init(&wire->tx);

	/* Members on this host get theirs by the local carrier, see mcast.h. */
	wire->tx.echo = hca->wire_forced;
	if (!err)
		err = net_receiver_init(&wire->rx, hca->wire_fd);
	if (err) {
		wire_free(wire);
		return err;
	}
	hca->wire = wire;
	counters_attach(hca);
	return 0;
}

void wire_unmake(struct hca *hca)
{
	if (hca->wire)
		wire_free(hca->wire);
	hca->wire = NULL;
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
	counters_leave(hca);
	wire->rx.fd = -1;
	wire->left = true;
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

/* How long an acknowledgement waits: a program's answer takes about as long as two calls to send.
 * Shorter, and it goes alone just before the answer: both ends pay for it. */
static uint64_t ack_delay(const struct wire *wire)
{
	uint64_t delay = 2 * (uint64_t)net_call_ns(&wire->tx);

	if (delay < ACK_DELAY_NS)
		return ACK_DELAY_NS;
	return delay < ACK_DELAY_MAX_NS ? delay : ACK_DELAY_MAX_NS;
}

void wire_ack_travels(struct wire_qp *w, bool acks, uint64_t now)
{
	/* Also when the last one would have, had it waited. */
	bool pays = acks || now - w->ack_sent_at < ack_delay(w->qp->hca->wire);

	w->ack_due = 0;
	w->ack_sent_at = 0;
	if (pays && w->patience < WIRE_PATIENCE)
		w->patience++;
}

/* Whether what there is to send goes now. */
static bool goes_now(struct wire_qp *w, enum tp_need need, uint64_t now)
{
	if (need == TP_SEND)
		return true;
	if (w->ack_due)
		return now >= w->ack_due;
	if (!w->patience)
		return true;
	w->ack_due = now + ack_delay(w->qp->hca->wire);
	return false;
}

/* list_lock held. Whether it wasn't in. */
static bool enter(struct list *list, struct wire_entry *entry)
{
	if (entry->in)
		return false;
	list_add_tail(list, &entry->node);
	entry->in = true;
	return true;
}

static void enter_lists(struct wire_qp *w, bool ready, bool timed)
{
	struct wire *wire = w->qp->hca->wire;

	lock_take(&wire->list_lock);
	if (ready && enter(&wire->ready, &w->ready))
		atomic_store(&wire->has_ready, 1);
	if (timed)
		enter(&wire->timed, &w->timed);
	lock_give(&wire->list_lock);
}

void wire_note(struct wire_qp *w, uint64_t now)
{
	struct wire *wire = w->qp->hca->wire;

	counters_transport(w);
	bool ready = tp_ready(wire_tp(w), now) && !wire_entered(&w->ready);
	uint64_t deadline = tp_deadline(wire_tp(w));
	bool timed = deadline != TP_NEVER && !wire_entered(&w->timed);

	if (ready || timed)
		enter_lists(w, ready, timed);
	if (deadline < atomic_load_explicit(&wire->deadline, memory_order_relaxed))
		schedule(wire, deadline);
}

/* The next one of a batch. A QP that ends takes itself off. */
static struct wire_entry *next_of(struct wire *wire, struct list *batch)
{
	lock_take(&wire->list_lock);
	struct list *node = list_pop(batch);
	struct wire_entry *entry = node ? container_of(node, struct wire_entry, node) : NULL;

	if (entry)
		entry->in = false;
	lock_give(&wire->list_lock);
	return entry;
}

/* One QP's turn. */
static void send_one(struct wire_qp *w, uint64_t now)
{
	enum tp_need need = tp_need(wire_tp(w), now);

	if (need != TP_NOTHING && goes_now(w, need, now)) {
		if (need == TP_ACKNOWLEDGE) {
			w->patience -= w->ack_due && w->patience; /* it waited in vain */
			w->ack_sent_at = now;
			w->ack_due = 0;
		}
		wire_transmit(w, now);
	}
	wire_note(w, now);
}

/* Engine held: no QP ends meanwhile. Each QP has one turn. */
static unsigned int send_ready(struct wire *wire, uint64_t now)
{
	struct list batch, *node;
	struct wire_entry *entry;
	unsigned int n = 0;

	list_init(&batch);
	lock_take(&wire->list_lock);
	while (n < TURNS && (node = list_pop(&wire->ready))) {
		list_add_tail(&batch, node);
		n++;
	}
	if (list_empty(&wire->ready))
		atomic_store(&wire->has_ready, 0);
	lock_give(&wire->list_lock);
	while ((entry = next_of(wire, &batch))) {
		struct wire_qp *w = container_of(entry, struct wire_qp, ready);

		lock_take(&w->qp->lock);
		send_one(w, now);
		lock_give(&w->qp->lock);
	}
	return n;
}

static void expire_one(struct wire_qp *w, uint64_t now)
{
	lock_take(&w->qp->lock);
	if (tp_deadline(wire_tp(w)) <= now) {
		tp_expire(wire_tp(w), now);
		if (tp_need(wire_tp(w), now) == TP_SEND)
			wire_transmit(w, now);
	}
	wire_note(w, now);
	lock_give(&w->qp->lock);
}

/* Engine held. Each QP enters the list again that still has a deadline. */
static void expire(struct wire *wire, uint64_t now)
{
	struct list batch, *node;
	struct wire_entry *entry;

	list_init(&batch);
	lock_take(&wire->list_lock);
	atomic_store(&wire->deadline, TP_NEVER);
	while ((node = list_pop(&wire->timed)))
		list_add_tail(&batch, node);
	lock_give(&wire->list_lock);
	while ((entry = next_of(wire, &batch)))
		expire_one(container_of(entry, struct wire_qp, timed), now);
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

/* ECN, the lower two bits of the traffic class: a queue on the way was long. */
static bool is_marked(const struct net_from *from)
{
	return (from->traffic_class & 3) == 3;
}

static bool fits_transport(const struct qp *qp, uint8_t opcode)
{
	uint8_t transport = packet_transport(opcode);

	return transport == (qp->type == IBV_QPT_RC ? PACKET_RC : PACKET_UC) ||
	       transport == PACKET_CNP;
}

/* A right packet from the peer. */
static enum wire_drop take_in(struct wire_qp *w, const struct packet *packet, uint64_t now)
{
	struct qp *qp = w->qp;
	uint64_t dropped = tp_counters(wire_tp(w))->dropped;

	if (unlikely(packet_transport(packet->opcode) == PACKET_CNP))
		tp_congested(wire_tp(w), now);
	else
		tp_packet(wire_tp(w), packet, now);
	if (unlikely(!qp->wire))
		return WIRE_TAKEN;
	wire_note(w, now);
	return likely(tp_counters(wire_tp(w))->dropped == dropped) ? WIRE_TAKEN : WIRE_DROP_STALE;
}

static enum wire_drop connected_packet(struct qp *qp, const struct packet *packet,
				       const struct net_from *from, uint64_t now)
{
	struct wire_qp *w = qp->wire;

	/* In ERR a request that was refused may come again: its answer was lost, and is repeated.
	 */
	if (unlikely(!w || !(execute_receiving(qp) || qp->state == IBV_QPS_ERR)))
		return WIRE_DROP_STATE;
	if (unlikely(!fits_transport(qp, packet->opcode)))
		return WIRE_DROP_TRANSPORT;
	if (unlikely(!from_peer(w, from)))
		return WIRE_DROP_HOST;
	if (unlikely(is_marked(from))) {
		counters_rare(qp->hca, PUB_MARKED);
		wire_notify(w, now);
	}
	return take_in(w, packet, now);
}

static enum wire_drop handle(struct wire *wire, struct qp *qp, const struct packet *packet,
			     const struct net_from *from)
{
	enum wire_drop drop;

	if (unlikely(!qp || qp->ibv.qp_num != packet->dest_qpn))
		return WIRE_DROP_QPN;
	if (unlikely(!pkey_fits(packet->pkey)))
		return WIRE_DROP_PKEY;
	lock_take(&qp->lock);
	if (qp->type != IBV_QPT_UD)
		drop = connected_packet(qp, packet, from, wire->now);
	else if (packet_transport(packet->opcode) == PACKET_UD)
		drop = wire_receive_datagram(qp, packet, from);
	else
		drop = WIRE_DROP_TRANSPORT;
	lock_give(&qp->lock);
	return drop;
}

static void count_drop(struct wire *wire, enum wire_drop drop)
{
	pub_count(&wire->hca->pub->counters, PUB_DROP_QPN + drop - WIRE_DROP_QPN, 1);
}

struct to_group {
	struct wire *wire;
	const struct packet *packet;
	const struct net_from *from;
	enum wire_drop drop; /* WIRE_TAKEN once anybody took it */
};

static void take_one(struct qp *qp, void *arg)
{
	struct to_group *to = arg;

	lock_take(&qp->lock);
	enum wire_drop drop = wire_receive_datagram(qp, to->packet, to->from);

	lock_give(&qp->lock);
	if (drop != WIRE_TAKEN)
		count_drop(to->wire, drop);
	if (to->drop != WIRE_TAKEN)
		to->drop = drop;
}

/* For each QP that is attached to it. */
static const char *on_group(struct wire *wire, const struct packet *packet,
			    const struct net_from *from)
{
	struct to_group to = {wire, packet, from, WIRE_DROP_QPN};

	if (!pkey_fits(packet->pkey))
		to.drop = WIRE_DROP_PKEY;
	else if (packet_transport(packet->opcode) != PACKET_UD)
		to.drop = WIRE_DROP_TRANSPORT;
	if (to.drop == WIRE_DROP_QPN)
		mcast_for_each(wire->hca, from->ip.destination, take_one, &to);
	/* Nobody was asked. */
	if (to.drop == WIRE_DROP_QPN || to.drop == WIRE_DROP_PKEY || to.drop == WIRE_DROP_TRANSPORT)
		count_drop(wire, to.drop);
	return drop_text[to.drop];
}

static const char *on_packet(void *arg, const struct packet *packet, const struct net_from *from)
{
	struct wire *wire = arg;
	if (unlikely(packet->dest_qpn == WIRE_MULTICAST_QPN))
		return on_group(wire, packet, from);
	struct qp *qp = wire->hca->qps[packet->dest_qpn & (LIMIT_QPS_PER_SLOT - 1)];

	enum wire_drop drop = handle(wire, qp, packet, from);

	if (likely(drop == WIRE_TAKEN))
		return NULL;
	count_drop(wire, drop);
	return drop_text[drop];
}

/* Takes in what is in the socket: not for ever, others may fill it as quickly. */
static void empty_socket(struct wire *wire)
{
	for (unsigned int i = 0; i < TAKE_IN && net_receive(&wire->rx, on_packet, wire); i++)
		;
}

/* Deadlines that have passed, once what is in the socket has been looked at: after a while without
 * a processor the answer is there, and nothing was lost. */
static void expire_due(struct wire *wire)
{
	if (likely(atomic_load_explicit(&wire->deadline, memory_order_relaxed) > wire->now))
		return;
	empty_socket(wire);
	expire(wire, wire->now);
}

unsigned int wire_pass(struct wire *wire)
{
	unsigned int n = 0, packets = 0;

	wire->now = now_ns();
	if (wire_ready(wire))
		n += send_ready(wire, wire->now);
	if (likely(atomic_load_explicit(&wire->hot, memory_order_relaxed))) {
		packets = net_receive(&wire->rx, on_packet, wire);
		uint32_t vain =
			packets ? 0 : atomic_load_explicit(&wire->vain, memory_order_relaxed) + 1;

		atomic_store_explicit(&wire->vain, vain, memory_order_relaxed);
		if (packets)
			wire->heard = wire->now;
		if (packets >= WIRE_BULK)
			wire->bulk = wire->now;
		if (unlikely(vain > COLD_AFTER)) {
			wire_arm(wire);
			engine_kick(wire->hca); /* the timers are the engine thread's now */
		}
	}
	expire_due(wire);
	return n + packets;
}

void wire_take_in(struct wire *wire)
{
	wire->now = now_ns();
	empty_socket(wire);
	send_ready(wire, wire->now);
}

/* Until when the engine thread sleeps. schedule() writes the deadline and reads this, here it is
 * the other way round: one of the two sees the other. */
static uint64_t scheduled(struct wire *wire)
{
	uint64_t next;

	do {
		next = atomic_load(&wire->deadline);
		atomic_store(&wire->scheduled, next);
	} while (atomic_load(&wire->deadline) < next);
	return next;
}

uint64_t wire_scan(struct wire *wire, uint64_t now)
{
	/* Who has the lease sees to the timers as well, and needs nobody to hold the engine's lock.
	 */
	bool polled = !atomic_load(&wire->hca->pub->header.asleep) && atomic_load(&wire->hot);

	if (polled) {
		atomic_store(&wire->scheduled, 0);
		return TP_NEVER;
	}
	if (atomic_load(&wire->deadline) <= now) {
		lock_take(&wire->hca->engine);
		wire->now = now;
		expire_due(wire);
		lock_give(&wire->hca->engine);
	}
	/* What was taken in, or expired, may have opened a window. Whoever posts kicks this thread;
	 * this thread goes on by itself. */
	if (wire_ready(wire) && atomic_load(&wire->hca->pub->header.asleep))
		return 0;
	return scheduled(wire);
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
	atomic_store_explicit(&wire->vain, 0, memory_order_relaxed);
	atomic_store(&wire->hot, true);
}
