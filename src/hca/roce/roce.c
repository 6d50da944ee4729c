/* SPDX-License-Identifier: BSD-2-Clause */
/* The RoCE carrier's engine: packets in, timers, the socket's lease. See roce.h. */
#include "hca/roce/roce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/exec/xrc_wire.h"
#include "hca/process/counters.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"

enum {
	COLD_AFTER = 2000,   /* consecutive empty receives: about a millisecond of polling */
	ACK_DELAY_NS = 8000, /* at least; two calls to send on a quick machine */
	ACK_DELAY_MAX_NS = 200000,
	TURNS = 64,	/* QPs that send in one pass */
	TAKE_IN = 1024, /* receives after which a socket counts as emptied */
};

/* ------------------------------------------------------------------ making, leaving */

bool roce_is_forced(void)
{
	const char *text = env_get("VERBENA_CARRIER");

	return text && !strcmp(text, "wire");
}

/* net_sender.wait */
static bool await_room(void *owner, unsigned int socket)
{
	struct roce *roce = owner;

	return engine_await_room(roce->hca, roce->tx.socket[socket].socket.fd, socket);
}

static void roce_free(struct roce *roce)
{
	for (uint32_t i = 0; i < roce->heir_count; i++)
		sys_close(roce->heirs[i].fd);
	net_receiver_fini(&roce->rx);
	net_sender_fini(&roce->tx);
	roce_origin_unmake(roce);
	free(roce);
}

int roce_make(struct hca *hca, int fd)
{
	struct roce *roce = calloc(1, sizeof(*roce));

	if (!roce)
		return -ENOMEM;
	roce->hca = hca;
	roce->source_fd = -1;
	lock_init(&roce->tx_lock, RANK_ROCE_TX);
	lock_init(&roce->list_lock, RANK_ROCE_LIST);
	lock_bias(&roce->tx_lock);
	lock_bias(&roce->list_lock);
	list_init(&roce->ready);
	list_init(&roce->parked);
	list_init(&roce->waiters);
	list_init(&roce->held);
	list_init(&roce->timed);
	atomic_store(&roce->deadline, TP_NEVER);
	atomic_store(&roce->scheduled, TP_NEVER);
	/* The sender first: roce_free() ends the sender in any case. */
	int err = net_sender_init(&roce->tx);

	roce->tx.wait = await_room;
	roce->tx.owner = roce;
	/* Members on this host get their copies by the local carrier, see mcast.h. */
	roce->tx.echo = hca->roce_forced;
	if (!err)
		err = net_receiver_init(&roce->rx, -1);
	if (err) {
		roce_free(roce);
		return err;
	}
	hca->roce = roce;
	counters_attach(hca);
	if (fd >= 0)
		roce_open(roce, fd);
	return 0;
}

void roce_open(struct roce *roce, int fd)
{
	struct hca *hca = roce->hca;

	roce_origin_make(roce);
	lock_take(&hca->engine);
	roce->rx.fd = fd;
	lock_give(&hca->engine);
	lock_take(&roce->list_lock);
	net_receiver_class(fd, roce->hears_class);
	atomic_store_explicit(&hca->roce_fd, fd, memory_order_release);
	lock_give(&roce->list_lock);
}

void roce_hear_class(struct roce *roce)
{
	if (likely(atomic_load_explicit(&roce->hears_class, memory_order_relaxed)))
		return;
	lock_take(&roce->list_lock);
	atomic_store_explicit(&roce->hears_class, true, memory_order_relaxed);
	if (hca_has_wire(roce->hca))
		net_receiver_class(roce->hca->roce_fd, true);
	lock_give(&roce->list_lock);
}

void roce_unmake(struct hca *hca)
{
	if (hca->roce)
		roce_free(hca->roce);
	hca->roce = NULL;
}

void roce_leave(struct hca *hca)
{
	struct roce *roce = hca->roce;

	if (!roce)
		return;
	lock_init(&roce->tx_lock, RANK_ROCE_TX);
	lock_init(&roce->list_lock, RANK_ROCE_LIST);
	list_init(&roce->ready);
	list_init(&roce->parked);
	list_init(&roce->waiters);
	list_init(&roce->held);
	list_init(&roce->timed);
	net_sender_leave(&roce->tx);
	roce_origin_unmake(roce);
	counters_leave(hca);
	roce->rx.fd = -1;
	for (uint32_t i = 0; i < roce->heir_count; i++)
		sys_close(roce->heirs[i].fd);
	atomic_store_explicit(&roce->heir_count, 0, memory_order_relaxed);
	atomic_store(&roce->socket, ROCE_LEFT);
	atomic_store(&roce->has_ready, 0);
	atomic_store_explicit(&roce->ack_waits, NULL, memory_order_relaxed);
}

/* ------------------------------------------------------------------ sending, and when */

/* Wakes the engine thread if it would sleep past `deadline` (ns). Not if the engine thread will
 * look before that by itself. */
static void roce_schedule(struct roce *roce, uint64_t deadline)
{
	uint64_t known = atomic_load_explicit(&roce->deadline, memory_order_relaxed);

	while (deadline < known && !atomic_compare_exchange_weak(&roce->deadline, &known, deadline))
		;
	if (unlikely(deadline < atomic_load(&roce->scheduled))) {
		atomic_store(&roce->scheduled, deadline);
		engine_kick(roce->hca);
	}
}

/* How long (ns) an acknowledgement waits: a program's answer takes about as long as two calls to
 * send. If the wait were shorter, the acknowledgement would often go alone just before the answer,
 * at a cost for both ends. */
static uint64_t ack_delay(const struct roce *roce)
{
	uint64_t delay = 2 * (uint64_t)net_call_ns(&roce->tx);

	if (delay < ACK_DELAY_NS)
		return ACK_DELAY_NS;
	return delay < ACK_DELAY_MAX_NS ? delay : ACK_DELAY_MAX_NS;
}

void roce_ack_travels(struct roce_qp *w, bool acks, uint64_t now)
{
	/* Also if the last acknowledgement, which went alone, would have met these requests. */
	bool pays = acks || now - w->ack_sent_at < ack_delay(w->qp->hca->roce);

	w->ack_due = 0;
	w->ack_sent_at = 0;
	if (pays && w->patience < ROCE_PATIENCE)
		w->patience++;
}

/* Whether what the core has to send is sent now. */
static bool goes_now(struct roce_qp *w, enum tp_need need, uint64_t now) REQUIRES(w->qp->lock)
{
	if (need == TP_SEND)
		return true;
	if (w->ack_due)
		return now >= w->ack_due;
	if (!w->patience)
		return true;
	w->ack_due = now + ack_delay(w->qp->hca->roce);
	return false;
}

/* Enters a list. False: the entry is in one already. list_lock is held. */
static bool roce_entry_enter(struct list *list, struct roce_entry *entry)
{
	if (entry->in)
		return false;
	list_add_tail(list, &entry->node);
	entry->in = true;
	return true;
}

static void enter_lists(struct roce_qp *w, bool ready, bool timed) REQUIRES(w->qp->lock)
{
	struct roce *roce = w->qp->hca->roce;

	lock_take(&roce->list_lock);
	if (ready && net_blocked(&roce->tx, &w->path))
		roce_entry_enter(&roce->parked, &w->ready);
	else if (ready && roce_entry_enter(&roce->ready, &w->ready))
		atomic_store(&roce->has_ready, 1);
	if (timed)
		roce_entry_enter(&roce->timed, &w->timed);
	lock_give(&roce->list_lock);
}

/* roce_note(); `ready`: the QP has something to send. */
static void note_if(struct roce_qp *w, bool ready) REQUIRES(w->qp->lock)
{
	struct roce *roce = w->qp->hca->roce;

	ready = ready && !roce_entered(&w->ready);
	uint64_t deadline = tp_deadline(roce_tp(w));
	bool timed = deadline != TP_NEVER && !roce_entered(&w->timed);

	if (ready || timed)
		enter_lists(w, ready, timed);
	if (deadline < atomic_load_explicit(&roce->deadline, memory_order_relaxed))
		roce_schedule(roce, deadline);
}

void roce_note(struct roce_qp *w, uint64_t now)
{
	counters_transport(w);
	note_if(w, tp_ready(roce_tp(w), now));
}

/* The same after packets have come. hca.engine is held. */
static void note_received(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock)
{
	struct roce *roce = w->qp->hca->roce;
	enum tp_need need = tp_need(roce_tp(w), now);

	counters_transport(w);
	if (need == TP_ACKNOWLEDGE && w->patience &&
	    !atomic_load_explicit(&roce->ack_waits, memory_order_relaxed)) {
		atomic_store_explicit(&roce->ack_waits, w->qp, memory_order_relaxed);
		need = TP_NOTHING;
	}
	note_if(w, need != TP_NOTHING);
}

/* The next QP of a batch. A QP that ends takes itself off the batch. */
static struct roce_entry *roce_batch_next(struct roce *roce, struct list *batch)
{
	lock_take(&roce->list_lock);
	struct list *node = list_pop(batch);
	struct roce_entry *entry = node ? container_of(node, struct roce_entry, node) : NULL;

	if (entry)
		entry->in = false;
	lock_give(&roce->list_lock);
	return entry;
}

/* Sends what a QP needs to send (goes_now()), within its quota. */
static void send_needed(struct roce_qp *w, enum tp_need need, uint64_t now) REQUIRES(w->qp->lock)
{
	if (need == TP_ACKNOWLEDGE) {
		w->patience -= w->ack_due && w->patience; /* its wait expired */
		w->ack_sent_at = now;
		w->ack_due = 0;
	}
	roce_transmit(w, now);
	roce_continue(w);
}

/* Sends for one QP. */
static void send_one(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock)
{
	enum tp_need need = tp_need(roce_tp(w), now);

	if (need != TP_NOTHING && goes_now(w, need, now))
		send_needed(w, need, now);
	roce_note(w, now);
}

/* Sends the acknowledgement that waits, if it has waited long enough. Returns how many QPs were
 * done with. hca.engine is held, so the QP doesn't end meanwhile. */
static unsigned int send_waiting(struct roce *roce, struct qp *qp, uint64_t now)
{
	lock_take(&qp->lock);
	struct roce_qp *w = qp->roce;
	bool waits = false;

	if (likely(w)) {
		lock_assert_held(&w->qp->lock); /* is qp->lock */
		enum tp_need need = tp_need(roce_tp(w), now);

		waits = need == TP_ACKNOWLEDGE && !goes_now(w, need, now);
		if (!waits && need != TP_NOTHING) {
			send_needed(w, need, now);
			roce_note(w, now);
		}
	}
	if (!waits)
		atomic_store_explicit(&roce->ack_waits, NULL, memory_order_relaxed);
	lock_give(&qp->lock);
	return !waits;
}

/* Sends for each QP on `ready` once, and what was held. hca.engine is held. */
static unsigned int send_listed(struct roce *roce, uint64_t now)
{
	struct list batch, *node;
	struct roce_entry *entry;
	unsigned int n = 0;

	list_init(&batch);
	lock_take(&roce->list_lock);
	while (n < TURNS && (node = list_pop(&roce->ready))) {
		list_add_tail(&batch, node);
		n++;
	}
	if (list_empty(&roce->ready))
		atomic_store(&roce->has_ready, 0);
	lock_give(&roce->list_lock);
	while ((entry = roce_batch_next(roce, &batch))) {
		struct roce_qp *w = container_of(entry, struct roce_qp, ready);

		lock_take(&w->qp->lock);
		send_one(w, now);
		lock_give(&w->qp->lock);
	}
	return n + roce_resume_datagrams(roce, true);
}

/* Sends for each ready QP once. hca.engine is held, so no QP ends meanwhile. */
static unsigned int send_ready(struct roce *roce, uint64_t now)
{
	struct qp *waiting = atomic_load_explicit(&roce->ack_waits, memory_order_relaxed);
	unsigned int done = waiting ? send_waiting(roce, waiting, now) : 0;

	return atomic_load_explicit(&roce->has_ready, memory_order_relaxed)
		       ? done + send_listed(roce, now)
		       : done;
}

static void expire_one(struct roce_qp *w, uint64_t now)
{
	lock_take(&w->qp->lock);
	if (tp_deadline(roce_tp(w)) <= now) {
		tp_expire(roce_tp(w), now);
		roce_pull_events(w);
		if (tp_need(roce_tp(w), now) == TP_SEND)
			roce_transmit(w, now);
		roce_continue(w);
	}
	roce_note(w, now);
	lock_give(&w->qp->lock);
}

/* Runs the deadlines that have passed. Each QP that still has a deadline enters the list again.
 * hca.engine is held. */
static void roce_expire_timers(struct roce *roce, uint64_t now)
{
	struct list batch, *node;
	struct roce_entry *entry;

	list_init(&batch);
	lock_take(&roce->list_lock);
	atomic_store(&roce->deadline, TP_NEVER);
	while ((node = list_pop(&roce->timed)))
		list_add_tail(&batch, node);
	lock_give(&roce->list_lock);
	while ((entry = roce_batch_next(roce, &batch)))
		expire_one(container_of(entry, struct roce_qp, timed), now);
}

/* ------------------------------------------------------------------ full sockets */

void roce_writable(struct roce *roce, unsigned int socket)
{
	struct list *node;

	lock_take(&roce->tx_lock);
	bool open = net_resume(&roce->tx, socket);

	lock_give(&roce->tx_lock);
	if (!open)
		return;
	lock_take(&roce->list_lock);
	while ((node = list_pop(&roce->parked))) {
		list_add_tail(&roce->ready, node);
		atomic_store(&roce->has_ready, 1);
	}
	bool waiters = !list_empty(&roce->waiters);

	lock_give(&roce->list_lock);
	if (!waiters)
		return;
	lock_take(&roce->hca->engine);
	roce_resume_datagrams(roce, false);
	engine_leave(roce->hca);
}

/* ------------------------------------------------------------------ packets in */

static const char *const drop_text[ROCE_DROPS] = {
	[ROCE_DROP_QPN] = "no QP has this number",
	[ROCE_DROP_HOST] = "from another host than the QP is connected to",
	[ROCE_DROP_ORIGIN] = "not from the process that it names, of this host",
	[ROCE_DROP_PKEY] = "another P_Key",
	[ROCE_DROP_QKEY] = "another Q_Key",
	[ROCE_DROP_TRANSPORT] = "of another transport than the QP",
	[ROCE_DROP_STATE] = "the QP isn't in a state to receive",
	[ROCE_DROP_STALE] = "fits no state of the connection: stale, forged or malformed",
	[ROCE_DROP_NO_RECEIVE] = "no receive is posted",
	[ROCE_DROP_SHORT_RECEIVE] = "longer than the next receive",
};

static bool from_peer(const struct roce_qp *w, const struct net_from *from) REQUIRES(w->qp->lock)
{
	return !memcmp(w->path.ip.destination, from->ip.source, 16) &&
	       !memcmp(w->path.ip.source, from->ip.destination, 16);
}

/* Whether the packet was sent by the peer's process, if that is one of this host. An XRC target
 * queue pair answers from whichever process executes the request (exec/xrc_wire.h). */
static bool from_peers_process(const struct roce_qp *w, const struct net_from *from)
	REQUIRES(w->qp->lock)
{
	const struct roce *roce = w->qp->hca->roce;
	uint16_t port = from->ip.source_port;

	return likely(!w->path.near) ||
	       likely(roce_is_slots_port(roce, w->qp->attr.dest_qp_num, port)) ||
	       (w->qp->type == IBV_QPT_XRC_SEND && roce_is_some_slots_port(roce, port));
}

static bool pkey_fits(uint16_t pkey)
{
	return (pkey & 0x7fff) == (WIRE_PKEY & 0x7fff);
}

/* Whether the packet carries ECN's mark (the lower two bits of the traffic class): a queue on its
 * way was long. */
static bool is_marked(const struct net_from *from)
{
	return (from->traffic_class & 3) == 3;
}

static bool fits_transport(const struct qp *qp, uint8_t opcode)
{
	uint8_t transport = packet_transport(opcode);
	uint8_t mine = qp->type == IBV_QPT_RC	? PACKET_RC
		       : qp->type == IBV_QPT_UC ? PACKET_UC
						: PACKET_XRC;

	return transport == mine || transport == PACKET_CNP;
}

/* Hands a packet to the core. roce_note() must follow. */
static enum roce_drop take_without_note(struct roce_qp *w, const struct packet *packet)
	REQUIRES(w->qp->lock)
{
	uint64_t dropped = tp_counters(roce_tp(w))->dropped, now = w->qp->hca->roce->now;

	if (unlikely(packet_transport(packet->opcode) == PACKET_CNP))
		tp_congested(roce_tp(w), now);
	else
		tp_packet(roce_tp(w), packet, now);
	roce_pull_events(w);
	roce_continue(w);
	return likely(tp_counters(roce_tp(w))->dropped == dropped) ? ROCE_TAKEN : ROCE_DROP_STALE;
}

enum roce_drop roce_take_packet(struct roce_qp *w, const struct packet *packet)
{
	enum roce_drop drop = take_without_note(w, packet);

	roce_note(w, w->qp->hca->roce->now);
	return drop;
}

static enum roce_drop connected_packet(struct qp *qp, const struct packet *packet,
				       const struct net_from *from, uint64_t now) REQUIRES(qp->lock)
{
	struct roce_qp *w = qp->roce;

	/* In ERR, too: a request that was refused may come again because its answer was lost; the
	 * answer is repeated. */
	if (unlikely(!w || !(execute_receiving(qp) || qp->state == IBV_QPS_ERR)))
		return ROCE_DROP_STATE;
	lock_assert_held(&w->qp->lock); /* is qp->lock */
	if (unlikely(!fits_transport(qp, packet->opcode)))
		return ROCE_DROP_TRANSPORT;
	if (unlikely(!from_peer(w, from)))
		return ROCE_DROP_HOST;
	if (unlikely(!from_peers_process(w, from)))
		return ROCE_DROP_ORIGIN;
	if (unlikely(is_marked(from))) {
		counters_rare(qp->hca, PUB_MARKED);
		roce_notify(w, now);
	}
	if (unlikely(qp->type == IBV_QPT_XRC_RECV))
		return xrc_wire_packet(qp, packet);
	return take_without_note(w, packet);
}

static enum roce_drop roce_handle(struct roce *roce, struct qp *qp, const struct packet *packet,
				  const struct net_from *from) REQUIRES(qp->lock)
{
	if (unlikely(!pkey_fits(packet->pkey)))
		return ROCE_DROP_PKEY;
	if (qp->type != IBV_QPT_UD)
		return connected_packet(qp, packet, from, roce->now);
	if (packet_transport(packet->opcode) != PACKET_UD)
		return ROCE_DROP_TRANSPORT;
	if (unlikely(!roce_is_honest(roce, packet, from)))
		return ROCE_DROP_ORIGIN;
	return roce_receive_datagram(qp, packet, from);
}

static void count_drop(struct roce *roce, enum roce_drop drop)
{
	pub_count(&roce->hca->pub->counters, PUB_DROP_QPN + drop - ROCE_DROP_QPN, 1);
}

struct to_group {
	struct roce *roce;
	const struct packet *packet;
	const struct net_from *from;
	enum roce_drop drop; /* ROCE_TAKEN once some QP has taken it */
};

/* Whether the QP has sent the packet itself. QPNs are the host's. */
static bool is_own_datagram(const struct to_group *to, const struct qp *qp)
{
	struct groups_known none = {0};

	return to->packet->src_qpn == qp->source_qpn &&
	       mcast_is_own(qp->hca, to->from->ip.source, &none);
}

static void roce_take_one(struct qp *qp, void *arg)
{
	struct to_group *to = arg;

	if (unlikely(qp->blocks_self) && is_own_datagram(to, qp)) {
		to->drop = ROCE_TAKEN; /* no receiver misses it */
		return;
	}
	lock_take(&qp->lock);
	enum roce_drop drop = roce_receive_datagram(qp, to->packet, to->from);

	lock_give(&qp->lock);
	if (drop != ROCE_TAKEN)
		count_drop(to->roce, drop);
	if (to->drop != ROCE_TAKEN)
		to->drop = drop;
}

/* Delivers a group's datagram to each QP that is attached to the group. */
static const char *on_group(struct roce *roce, const struct packet *packet,
			    const struct net_from *from)
{
	struct to_group to = {roce, packet, from, ROCE_DROP_QPN};

	if (!pkey_fits(packet->pkey))
		to.drop = ROCE_DROP_PKEY;
	else if (packet_transport(packet->opcode) != PACKET_UD)
		to.drop = ROCE_DROP_TRANSPORT;
	else if (!roce_is_honest(roce, packet, from))
		to.drop = ROCE_DROP_ORIGIN;
	const enum roce_drop before = to.drop;

	if (before == ROCE_DROP_QPN)
		mcast_for_each(roce->hca, from->ip.destination, roce_take_one, &to);
	/* The packet was dropped before any QP was asked, so no QP has counted the drop. */
	if (before != ROCE_DROP_QPN || to.drop == ROCE_DROP_QPN)
		count_drop(roce, to.drop);
	return drop_text[to.drop];
}

static void roce_drop(struct roce *roce, struct net_packet *p, enum roce_drop drop)
{
	if (likely(drop == ROCE_TAKEN))
		return;
	count_drop(roce, drop);
	p->dropped = drop_text[drop];
}

/* Handles packets to one QP. The lock is taken once for all of them: to give it back waits for all
 * stores before, which are those of a payload each time. */
static void roce_handle_run(struct roce *roce, struct net_packet *run, unsigned int count,
			    const struct net_from *from)
{
	uint32_t qpn = run->packet.dest_qpn;
	struct qp *qp = roce->hca->qps[qpn & (LIMIT_QPS_PER_SLOT - 1)];

	if (unlikely(qpn >> LIMIT_QP_BITS != roce->hca->slot))
		qp = xrc_wire_qp(roce->hca, qpn);
	if (unlikely(!qp || qp->ibv.qp_num != qpn)) {
		for (unsigned int i = 0; i < count; i++)
			roce_drop(roce, &run[i], ROCE_DROP_QPN);
		return;
	}
	lock_take(&qp->lock);
	for (unsigned int i = 0; i < count; i++)
		roce_drop(roce, &run[i], roce_handle(roce, qp, &run[i].packet, from));
	struct roce_qp *w = qp->roce;

	if (likely(w && qp->type != IBV_QPT_XRC_RECV)) {
		lock_assert_held(&w->qp->lock); /* is qp->lock */
		note_received(w, roce->now);
	}
	lock_give(&qp->lock);
}

/* How many of the packets, from the first one on, are to the same QP. */
static unsigned int same_qp(const struct net_packet *run, unsigned int count)
{
	unsigned int n = 1;

	while (n < count && run[n].packet.dest_qpn == run->packet.dest_qpn)
		n++;
	return n;
}

static void roce_take_run(void *arg, struct net_packet *run, unsigned int count,
			  const struct net_from *from)
{
	struct roce *roce = arg;

	for (unsigned int n; count; run += n, count -= n) {
		n = 1;
		if (unlikely(run->packet.dest_qpn == WIRE_MULTICAST_QPN)) {
			run->dropped = on_group(roce, &run->packet, from);
			continue;
		}
		n = same_qp(run, count);
		roce_handle_run(roce, run, n, from);
	}
}

/* Receives once from each socket: the own one, and those of other slots. */
static unsigned int receive_once(struct roce *roce)
{
	unsigned int n = likely(roce->rx.fd >= 0) ? net_receive(&roce->rx, roce_take_run, roce) : 0;
	uint32_t heirs = atomic_load_explicit(&roce->heir_count, memory_order_relaxed);

	for (uint32_t i = 0; unlikely(i < heirs); i++) {
		int own = roce->rx.fd;

		roce->rx.fd = roce->heirs[i].fd;
		n += net_receive(&roce->rx, roce_take_run, roce);
		roce->rx.fd = own;
	}
	return n;
}

/* Takes in what is in the sockets; bounded, since peers may fill it as quickly. */
static void empty_socket(struct roce *roce)
{
	for (unsigned int i = 0; i < TAKE_IN && receive_once(roce); i++)
		;
}

/* Runs the deadlines that have passed, after taking in what is in the socket: if this process had
 * no processor for a while, the answer may be there, and nothing was lost. */
static void expire_due(struct roce *roce)
{
	if (likely(atomic_load_explicit(&roce->deadline, memory_order_relaxed) > roce->now))
		return;
	empty_socket(roce);
	roce_expire_timers(roce, roce->now);
}

unsigned int roce_pass(struct roce *roce)
{
	unsigned int n = 0, packets = 0;

	roce->now = now_ns();
	if (roce_ready(roce))
		n += send_ready(roce, roce->now);
	if (likely(roce_hot(roce))) {
		packets = receive_once(roce);
		uint32_t empty = packets ? 0
					 : atomic_load_explicit(&roce->empty_receives,
								memory_order_relaxed) +
						   1;

		atomic_store_explicit(&roce->empty_receives, empty, memory_order_relaxed);
		if (packets)
			roce->heard = roce->now;
		if (packets >= ROCE_BULK)
			roce->bulk = roce->now;
		if (unlikely(empty > COLD_AFTER) && roce_arm(roce))
			engine_kick(roce->hca); /* which handles the timers from now on */
	}
	expire_due(roce);
	return n + packets;
}

void roce_take_in(struct roce *roce)
{
	roce->now = now_ns();
	empty_socket(roce);
	send_ready(roce, roce->now);
}

/* Until when the engine thread sleeps (ns). roce_schedule() writes the deadline and then reads
 * this; this function writes it and then reads the deadline: one of the two sees the other's
 * store. */
static uint64_t roce_scheduled(struct roce *roce)
{
	uint64_t next;

	do {
		next = atomic_load(&roce->deadline);
		atomic_store(&roce->scheduled, next);
	} while (atomic_load(&roce->deadline) < next);
	return next;
}

uint64_t roce_scan(struct roce *roce, uint64_t now)
{
	/* The holder of the lease handles the timers, too, so the engine's lock isn't taken
	 * here. `scheduled` before the look at the socket's state: see roce_arm(). */
	atomic_store(&roce->scheduled, 0);
	if (!engine_asleep(roce->hca) && atomic_load(&roce->socket) == ROCE_HOT)
		return TP_NEVER;
	if (atomic_load(&roce->deadline) <= now) {
		lock_take(&roce->hca->engine);
		roce->now = now;
		expire_due(roce);
		lock_give(&roce->hca->engine);
	}
	/* A packet taken in, or an expired deadline, may have opened a window. A posting thread
	 * kicks this thread; for its own work this thread continues by itself. */
	if (roce_ready(roce) && engine_wants_kicks(roce->hca))
		return 0;
	return roce_scheduled(roce);
}

/* ------------------------------------------------------------------ the socket's lease */

/* Packets that are in the socket already are reported as well: EPOLLIN is level-triggered. */
static int roce_epoll(const struct roce *roce, int epoll, int change)
{
	int fd = roce->hca->roce_fd;
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data = engine_descriptor(fd)};

	return epoll_ctl(epoll, change, fd, &e) < 0 ? -errno : 0;
}

static void arm_heirs(struct roce *roce)
{
	lock_take(&roce->list_lock);
	for (uint32_t i = 0; i < roce->heir_count; i++)
		engine_await_packets(roce->hca, roce->heirs[i].fd);
	lock_give(&roce->list_lock);
}

/* list_lock is held: there is one writer, and arming the socket reads it without the lock. */
static void set_heir_count(struct roce *roce, uint32_t count)
{
	atomic_store_explicit(&roce->heir_count, count, memory_order_relaxed);
}

/* The place of a slot's socket; UINT32_MAX: there is none. list_lock is held. */
static uint32_t heir_of(const struct roce *roce, uint32_t slot)
{
	for (uint32_t i = 0; i < roce->heir_count; i++)
		if (roce->heirs[i].slot == slot)
			return i;
	return UINT32_MAX;
}

bool roce_inherits(struct roce *roce, uint32_t slot)
{
	lock_take(&roce->list_lock);
	bool has = heir_of(roce, slot) != UINT32_MAX;

	lock_give(&roce->list_lock);
	return has;
}

int roce_inherit(struct roce *roce, uint32_t slot, int fd)
{
	int err = 0, epoll_err = 0;

	lock_take(&roce->hca->engine);
	lock_take(&roce->list_lock);
	uint32_t count = roce->heir_count;

	if (count == ROCE_HEIRS) {
		err = -ENOSPC;
	} else if (heir_of(roce, slot) != UINT32_MAX) {
		err = -EALREADY;
	} else {
		roce->heirs[count] = (struct roce_heir){slot, fd};
		set_heir_count(roce, count + 1);
		/* With the lock, as in arm_heirs(): otherwise both would add the descriptor, and
		 * roce_disinherit() could close it before. */
		if (!engine_await_packets(roce->hca, fd))
			epoll_err = errno;
	}
	lock_give(&roce->list_lock);
	lock_give(&roce->hca->engine);
	if (err)
		sys_close(fd);
	else if (epoll_err)
		log_error("wire: epoll: %s", strerror(epoll_err));
	return err;
}

void roce_disinherit(struct roce *roce, uint32_t slot)
{
	int fd = -1;

	lock_take(&roce->list_lock);
	uint32_t i = heir_of(roce, slot);

	if (i != UINT32_MAX) {
		fd = roce->heirs[i].fd;
		uint32_t last = roce->heir_count - 1;

		roce->heirs[i] = roce->heirs[last];
		set_heir_count(roce, last);
	}
	lock_give(&roce->list_lock);
	if (fd >= 0)
		sys_close(fd);
}

int roce_join(struct roce *roce, int epoll)
{
	enum roce_socket apart = ROCE_APART;
	int err = hca_has_wire(roce->hca) ? roce_epoll(roce, epoll, EPOLL_CTL_ADD) : 0;

	/* The engine thread may have been woken by it already. */
	if (!err && hca_has_wire(roce->hca))
		atomic_compare_exchange_strong(&roce->socket, &apart, ROCE_COLD);
	return err;
}

/* The socket goes to the engine thread's epoll. */
static void arm_socket(struct roce *roce)
{
	atomic_store(&roce->socket, ROCE_COLD);
	int err = roce_epoll(roce, roce->hca->epoll, EPOLL_CTL_MOD);

	if (err)
		log_error("wire: epoll: %s", strerror(-err));
}

bool roce_arm(struct roce *roce)
{
	if (roce_has_left(roce))
		return false; /* the socket and the epoll descriptor are the parent's */
	if (likely(atomic_load_explicit(&roce->socket, memory_order_relaxed) != ROCE_APART))
		arm_socket(roce);
	if (unlikely(atomic_load_explicit(&roce->heir_count, memory_order_relaxed)))
		arm_heirs(roce);
	/* This function stores COLD, then reads `scheduled`; roce_scan() writes `scheduled`, then
	 * reads the socket's state: roce_scan() finds the socket cold, or this function that the
	 * timers were left to pollers. */
	return !atomic_load(&roce->scheduled);
}

void roce_woken(struct roce *roce)
{
	atomic_store_explicit(&roce->empty_receives, 0, memory_order_relaxed);
	atomic_store(&roce->socket, ROCE_HOT);
}
