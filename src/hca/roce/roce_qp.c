/* SPDX-License-Identifier: BSD-2-Clause */
/* A connected QP on RoCE: its path, its requests, and sending. See roce.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/process/counters.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/route.h"
#include "hca/verbs/window.h"

/* ------------------------------------------------------------------ sending */

static uint8_t request_flags(const struct send_wqe *wqe)
{
	/* Its payload is in the queue. */
	bool whole = wqe->flags & SEND_INLINE || !wqe->length;
	bool unawaited = whole && !(wqe->flags & SEND_SIGNALED);

	return (wqe->flags & SEND_SOLICITED ? TP_SOLICITED : 0) |
	       (wqe->flags & SEND_FENCE ? TP_FENCE : 0) | (unawaited ? TP_UNAWAITED : 0);
}

static void tp_request_fill(struct tp_request *r, const struct send_wqe *wqe)
{
	*r = (struct tp_request){
		.remote_addr = wqe->remote_addr,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
		.rkey = wqe->rkey,
		.length = wqe->length,
		.imm = wqe->imm,
		.opcode = wqe->opcode,
		.flags = request_flags(wqe),
	};
}

typedef uint32_t next_packet(struct tp *tp, uint64_t now, uint8_t *to);

static uint32_t next_answer(struct tp *tp, uint64_t now, uint8_t *to)
{
	(void)now;
	return tp_next_response(tp, to);
}

/* For the last answers of a QP that ends: all are sent, and the sender keeps them if its socket is
 * full. */
#define NO_QUOTA UINT32_MAX

/* Whether a burst may begin after `sent` bytes. */
static bool burst_may_begin(struct roce_qp *w, uint32_t sent, uint32_t quota, uint32_t least)
	REQUIRES(w->qp->lock)
{
	struct net_sender *tx = &w->qp->hca->roce->tx;

	net_end(tx); /* sends the burst before, which may find the socket full */
	return sent < quota && (quota == NO_QUOTA || likely(!net_blocked(tx, &w->path))) &&
	       (!least || tp_unsent(roce_tp(w), least) >= least);
}

static void send_packets(struct roce_qp *w, uint64_t now, uint32_t quota, uint32_t least,
			 next_packet *next) REQUIRES(w->qp->lock)
{
	struct net_sender *tx = &w->qp->hca->roce->tx;
	uint32_t size, sent = 0;

	for (;;) {
		if (net_between(tx) && !burst_may_begin(w, sent, quota, least))
			return;
		size = next(roce_tp(w), now, net_room(tx));
		if (!size)
			return;
		net_add(tx, size);
		sent += size;
	}
}

/* Sends the packets that `next` gives, until there are no more, the socket is full, or `quota`
 * bytes are reached and the burst is full. A burst begins only if there are at least `least`
 * packets. tx_lock is held. */
static void send_from(struct roce_qp *w, uint64_t now, uint32_t quota, uint32_t least,
		      next_packet *next) REQUIRES(w->qp->lock)
{
	HAZARD_SCOPE(holds, w->qp);
	struct roce_source source;

	source.holds = &holds;
	source.segments = -1;
	w->source = &source;
	send_packets(w, now, quota, least, next);
	w->source = NULL;
}

/* True: send_end() must follow, and roce_pull_events(). False: nothing can be sent from here.
 * Not analysed inside: the lock stays taken on one of two ways out. */
static bool send_begin(struct roce_qp *w)
	TRY_ACQUIRE(true, w->qp->hca->roce->tx_lock) NO_THREAD_SAFETY_ANALYSIS
{
	struct roce *roce = w->qp->hca->roce;

	if (unlikely(roce_has_left(roce)))
		return false;
	lock_take(&roce->tx_lock);
	w->path.flush_doubled = tp_flush_doubled(roce_tp(w));
	net_begin(&roce->tx, &w->path);
	return true;
}

static void send_end(struct roce_qp *w) RELEASE(w->qp->hca->roce->tx_lock)
{
	net_end(&w->qp->hca->roce->tx);
	lock_give(&w->qp->hca->roce->tx_lock);
}

/* The least number of packets worth a burst. If so much is under way that the peer is busy until
 * the next post or poll, and some thread polls, a burst waits until it is full, since a call to
 * send costs about as much as copying 32 KiB. */
static uint32_t least_burst(struct roce_qp *w) REQUIRES(w->qp->lock)
{
	enum { BUSY = 256 * 1024 };

	if (tp_under_way(roce_tp(w)) <= BUSY || engine_wants_kicks(w->qp->hca))
		return 0;
	return net_burst((128u << w->qp->attr.path_mtu) + WIRE_BTH);
}

/* Sends requests, then, if `answers`, what is owed to the peer. */
static void roce_qp_burst(struct roce_qp *w, uint64_t now, bool answers) REQUIRES(w->qp->lock)
{
	if (!send_begin(w))
		return;
	send_from(w, now, ROCE_QUOTA, answers ? 0 : least_burst(w), tp_next_request);
	if (answers)
		send_from(w, now, NO_QUOTA - 1, 0, next_answer);
	send_end(w);
	roce_pull_events(w);
}

void roce_answer(struct roce_qp *w)
{
	uint64_t now = now_ns();

	tp_acknowledge_all(roce_tp(w));
	if (!send_begin(w))
		return;
	send_from(w, now, NO_QUOTA, 0, next_answer);
	send_end(w);
}

void roce_transmit(struct roce_qp *w, uint64_t now)
{
	if (!send_begin(w))
		return;
	send_from(w, now, ROCE_QUOTA, 0, tp_next);
	send_end(w);
	roce_pull_events(w);
}

static uint32_t encode_cnp(const struct roce_qp *w, uint8_t *to) REQUIRES(w->qp->lock)
{
	const struct qp *qp = w->qp;
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

void roce_notify(struct roce_qp *w, uint64_t now)
{
	enum { PAUSE_NS = 50000 }; /* as adapters do */
	struct net_sender *tx = &w->qp->hca->roce->tx;

	if ((w->told_at && now - w->told_at < PAUSE_NS) || net_blocked(tx, &w->path) ||
	    !send_begin(w))
		return;
	w->told_at = now;
	net_add(tx, encode_cnp(w, net_room(tx)));
	send_end(w);
	counters_rare(w->qp->hca, PUB_CNPS_OUT);
}

/* Leaves the rest to the engine; kicks the engine thread if it sleeps and no poller has the
 * socket. */
static void note_and_kick(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock)
{
	struct hca *hca = w->qp->hca;

	roce_note(w, now);
	if (unlikely(roce_entered(&w->ready) && !net_blocked(&hca->roce->tx, &w->path) &&
		     engine_wants_kicks(hca) && (engine_asleep(hca) || !roce_hot(hca->roce))))
		engine_kick(hca);
}

static bool next_runs_here(const struct qp *qp) REQUIRES(qp->lock)
{
	return wr_runs_here(sq_at(&qp->sq, qp->sq.next)->opcode);
}

/* Whether the next request needs no peer and can be tried: all before it have
 * completed. */
static bool may_run_here(const struct qp *qp) REQUIRES(qp->lock)
{
	return qp->state == IBV_QPS_RTS && qp->sq.next != qp->sq.head &&
	       qp->sq.next == qp->sq.acked && next_runs_here(qp);
}

/* Executes the requests without a peer that are next. The core doesn't see them; its counts
 * continue after them. False: one waits (window.h). */
static bool run_here(struct qp *qp) REQUIRES(qp->lock)
{
	while (may_run_here(qp)) {
		struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.next);
		enum ibv_wc_status status = window_execute(qp, wqe);

		if (status == WQE_LATER)
			return false;
		if (status != IBV_WC_SUCCESS) {
			sq_fail_local(qp, wqe, status);
			return false;
		}
		sq_complete(qp, wqe, status);
		tp_realign(roce_tp(qp->roce), qp->sq.next);
	}
	return true;
}

/*
 * Sends the requests, and in the same burst the acknowledgement that waited for them (roce_note). A
 * long answer to a READ is left to the engine.
 */
static void post_to_core(struct qp *qp) REQUIRES(qp->lock)
{
	struct roce_qp *w = qp->roce;
	struct tp *tp = roce_tp(w);

	while (qp->sq.next != qp->sq.head && qp->state == IBV_QPS_RTS &&
	       likely(!next_runs_here(qp))) {
		struct tp_request *r = &w->requests[qp->sq.next & qp->sq.mask];
		const struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.next);

		tp_request_fill(r, wqe);
		if (unlikely(qp->type == IBV_QPT_XRC_SEND))
			r->srqn = wqe->srqn;
		qp->sq.next++;
		tp_post(tp);
	}
	uint64_t now = now_ns();
	bool acks = tp_acknowledges(tp);
	_Atomic uint32_t *polls = &qp->hca->polls;

	/* Sending counts as polling: it may take longer than the watchdog's period. */
	atomic_store_explicit(polls, atomic_load_explicit(polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);

	lock_assert_held(&w->qp->lock); /* is qp->lock */
	roce_ack_travels(w, acks, now);
	roce_qp_burst(w, now, acks);
	if (unlikely(qp->sq.next != qp->sq.head)) /* a request on memory windows waits for them */
		tp_ask(tp);
	note_and_kick(w, now);
}

/* A request on memory windows waits until all before it have completed, and what follows it waits
 * for it: roce_continue() goes on. */
static void roce_post(struct qp *qp) REQUIRES(qp->lock)
{
	do {
		if (unlikely(!run_here(qp)))
			return;
		post_to_core(qp);
	} while (unlikely(may_run_here(qp)));
}

/* ------------------------------------------------------------------ connecting */

/* Bytes of the mapping for packets that come too early, and for requests. */
static size_t rings_size(const struct qp *qp) REQUIRES(qp->lock)
{
	return TP_EARLY_BYTES + (size_t)(qp->sq.mask + 1) * sizeof(struct tp_request);
}

static struct roce_qp *roce_qp_new(struct qp *qp) REQUIRES(qp->lock)
{
	struct roce_qp *w = calloc(1, sizeof(*w) + tp_size());

	if (!w)
		return NULL;
	w->qp = qp;
	w->patience = ROCE_PATIENCE;
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

static void roce_qp_free(struct roce_qp *w) REQUIRES(w->qp->lock)
{
	munmap(w->early, rings_size(w->qp));
	free(w);
}

static int roce_qp_set_path(struct roce_qp *w, const struct proto_route_resp *route)
	REQUIRES(w->qp->lock)
{
	struct qp *qp = w->qp;
	struct roce *roce = qp->hca->roce;
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;

	memcpy(w->path.ip.source, route->sgid, 16);
	memcpy(w->path.ip.destination, grh->dgid.raw, 16);
	w->path.ifindex = route->ifindex;
	w->path.hop_limit = grh->hop_limit;
	w->path.traffic_class = grh->traffic_class;
	w->path.socket = -1;
	w->path.near = route->flags & PROTO_ROUTE_LOCAL;
	lock_take(&roce->tx_lock);
	int err = net_path_bind(&roce->tx, &w->path, grh->flow_label, qp->ibv.qp_num,
				qp->attr.dest_qp_num);

	lock_give(&roce->tx_lock);
	if (err)
		log_warn("QP 0x%x: no UDP socket for its path: %s", qp->ibv.qp_num, strerror(-err));
	return -err;
}

static int roce_connect(struct qp *qp, const struct route *route) REQUIRES(qp->lock)
{
	struct roce_qp *w = roce_qp_new(qp);

	if (!w)
		return ENOMEM;
	lock_assert_held(&w->qp->lock); /* is qp->lock */
	int err = roce_qp_set_path(w, &route->at);

	if (err) {
		roce_qp_free(w);
		return err;
	}
	const struct tp_path path = {
		.mtu = 128u << qp->attr.path_mtu,
		.local_qpn = qp->ibv.qp_num,
		.remote_qpn = qp->attr.dest_qp_num,
		.pkey = WIRE_PKEY,
	};

	/* Between an address and itself there is no router. */
	if (memcmp(w->path.ip.source, w->path.ip.destination, sizeof(w->path.ip.source)) != 0)
		roce_hear_class(qp->hca->roce);
	tp_init(roce_tp(w), qp->type, &roce_world, w, w->requests, qp->sq.mask + 1);
	tp_realign(roce_tp(w), qp->sq.next);
	tp_keep_early(roce_tp(w), w->early);
	tp_receive_ready(roce_tp(w), &path, &qp->attr);
	qp->roce = w;
	return 0;
}

static void roce_send_ready(struct qp *qp, enum ibv_qp_state from) REQUIRES(qp->lock)
{
	if (from == IBV_QPS_SQE)
		tp_realign(roce_tp(qp->roce), qp->sq.next);
	if (from == IBV_QPS_SQD || from == IBV_QPS_SQE)
		tp_resume(roce_tp(qp->roce));
	else
		tp_send_ready(roce_tp(qp->roce), &qp->attr);
	roce_post(qp);
}

static void roce_drain(struct qp *qp) REQUIRES(qp->roce->qp->lock)
{
	tp_drain(roce_tp(qp->roce));
	roce_pull_events(qp->roce);
	note_and_kick(qp->roce, now_ns()); /* the core may ask the peer first */
}

static void roce_change(struct qp *qp, int mask) REQUIRES(qp->lock)
{
	tp_change(roce_tp(qp->roce), &qp->attr, mask);
}

/* Gives up the receive that a message was coming into, so that it is flushed with the others. */
static void drop_receive(struct roce_qp *w) REQUIRES(w->qp->lock)
{
	if (!w->taken)
		return;
	roce_give_back(w);
}

static void roce_stop(struct qp *qp) REQUIRES(qp->lock)
{
	struct roce_qp *w = qp->roce;

	lock_assert_held(&w->qp->lock); /* is qp->lock */
	/* An adapter has acknowledged long before what its program has seen arrive. */
	roce_answer(w);
	tp_stop(roce_tp(w), true);
	drop_receive(w);
	note_and_kick(w, now_ns());
}

static void roce_disconnect(struct qp *qp) REQUIRES(qp->lock)
{
	struct roce_qp *w = qp->roce;
	struct roce *roce = qp->hca->roce;

	lock_assert_held(&w->qp->lock); /* is qp->lock */
	/* An adapter has acknowledged long before what arrived. */
	roce_answer(w);
	tp_stop(roce_tp(w), false);
	drop_receive(w);
	lock_take(&roce->list_lock);
	list_del(&w->ready.node);
	list_del(&w->timed.node);
	lock_give(&roce->list_lock);
	if (atomic_load_explicit(&roce->ack_waits, memory_order_relaxed) == qp)
		atomic_store_explicit(&roce->ack_waits, NULL, memory_order_relaxed);
	counters_transport(w);
	qp->roce = NULL;
	lock_assert_held(&w->qp->lock); /* is qp->lock */
	roce_qp_free(w);
}

static void roce_take_in_former(struct hca *hca)
{
	/* An adapter has dropped it long before; here it is still in the socket, and would be
	 * accepted if the new connection has similar PSNs. */
	roce_take_in(hca->roce);
}

static void roce_take_in_arrived(struct qp *qp)
{
	engine_take_in(qp->hca);
}

/* The core has its own timers, and no request waits for a link: there is no timer of the QP's
 * list. */
static bool roce_expire(struct qp *qp, uint64_t now, uint64_t *next)
{
	(void)qp, (void)now, (void)next;
	return false;
}

static void roce_resume(struct qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->type == IBV_QPT_XRC_RECV)
		xrc_wire_go_on(qp);
	else
		sq_run(qp);
}

const struct carrier carrier_roce = {
	.name = "roce",
	.take_in_former = roce_take_in_former,
	.connect = roce_connect,
	.receive_ready = carrier_ignores,
	.send_ready = roce_send_ready,
	.drain = roce_drain,
	.change = roce_change,
	.stop = roce_stop,
	.disconnect = roce_disconnect,
	.receive_posted = carrier_ignores,
	.resume = roce_resume,
	.expire = roce_expire,
	.post = roce_post,
	.withdraw = carrier_ignores_request,
	.leave = carrier_ignores,
	.take_in = roce_take_in_arrived,
	.linger = carrier_ignores,
	.settle = carrier_ignores_settling,
};
