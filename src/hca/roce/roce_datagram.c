/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams by RoCE: one packet each, no state but the QP's next PSN. Consecutive requests of a
 * send queue, as after a list was posted, that go to the same QP are one burst: one call to send
 * carries up to 64 KiB of them (net/sender.h).
 *
 * A program that sends a long message posts its datagrams one by one, and then polls. So while some
 * thread polls, a datagram that is posted after another one, without a poll in between, waits for
 * more (qp.sq.next stays at it) until they are worth a call to send, or until the next pass of the
 * engine: the next poll, ibv_req_notify_cq(), or the engine thread's own when the thread that polls
 * has stopped.
 */
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/datagram_send.h"
#include "hca/exec/mcast.h"
#include "hca/mem/copy.h"
#include "hca/mem/hazard.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/qp.h"
#include "wire/flow.h"

/* ------------------------------------------------------------------ datagrams that wait */

static struct qp *next_waiter(struct roce *roce, struct list *batch)
{
	lock_take(&roce->list_lock);
	struct list *node = list_pop(batch);

	lock_give(&roce->list_lock);
	return node ? container_of(node, struct qp, room_wait) : NULL;
}

unsigned int roce_resume_datagrams(struct roce *roce, bool held)
{
	struct list batch, *node;
	struct qp *qp;
	unsigned int n = 0;

	list_init(&batch);
	lock_take(&roce->list_lock);
	while ((node = list_pop(held ? &roce->held : &roce->waiters)))
		list_add_tail(&batch, node);
	lock_give(&roce->list_lock);
	for (; (qp = next_waiter(roce, &batch)); n++) {
		lock_take(&qp->lock);
		qp->ud_goes = true;
		qp->carrier->resume(qp);
		qp->ud_goes = false;
		lock_give(&qp->lock);
	}
	return n;
}

/* Enters the QP into `held`: the next pass resumes it. False: no thread polls, so it may be late.
 */
static bool datagrams_hold(struct qp *qp)
{
	struct roce *roce = qp->hca->roce;

	lock_take(&roce->list_lock);
	if (list_empty(&qp->room_wait))
		list_add_tail(&roce->held, &qp->room_wait);
	/* Before the look at `asleep`; engine_release() sets that before its last pass. */
	atomic_store(&roce->has_ready, 1);
	lock_give(&roce->list_lock);
	return !engine_asleep(qp->hca);
}

/* For a QP that has found this path's socket full: true: it will be resumed when there is room;
 * false: there is room by now. */
static bool datagrams_wait_for_room(struct qp *qp, const struct net_path *path)
{
	struct roce *roce = qp->hca->roce;

	lock_take(&roce->list_lock);
	bool full = net_blocked(&roce->tx, path);

	if (full && list_empty(&qp->room_wait))
		list_add_tail(&roce->waiters, &qp->room_wait);
	lock_give(&roce->list_lock);
	if (full)
		engine_watch_qp(qp); /* its timer bounds the wait */
	return full;
}

void roce_unwait(struct qp *qp)
{
	struct roce *roce = qp->hca->roce;

	if (!roce)
		return;
	lock_take(&roce->list_lock);
	list_del(&qp->room_wait);
	lock_give(&roce->list_lock);
}

/* ------------------------------------------------------------------ sending and receiving */

/* Whether the destination is on this host. tx_lock is held. */
static bool datagram_is_near(struct roce *roce, const uint8_t gid[16])
{
	return groups_is_loopback(gid) || mcast_is_own(roce->hca, gid, &roce->sent_to);
}

static int datagram_path(struct roce *roce, const struct qp *qp, const struct send_wqe *wqe,
			 struct net_path *path)
{
	const struct record_ud *to = &wqe->ud.to;

	*path = (struct net_path){
		.ifindex = wqe->ud.ifindex,
		.hop_limit = to->hop_limit,
		.traffic_class = to->traffic_class,
		.socket = -1,
	};
	memcpy(path->ip.source, to->sgid, 16);
	memcpy(path->ip.destination, to->dgid, 16);
	/* Of a group's datagrams a copy comes back. */
	path->near = roce->tx.near_port &&
		     (flow_is_multicast(to->dgid) || datagram_is_near(roce, to->dgid));
	return net_path_bind(&roce->tx, path, to->flow_label, qp->ibv.qp_num, wqe->ud.remote_qpn);
}

struct packet roce_datagram_packet(const struct qp *qp, const struct send_wqe *wqe)
{
	bool has_imm = wqe->opcode == IBV_WR_SEND_WITH_IMM;
	uint32_t qkey = wqe->ud.to.qkey;

	return (struct packet){
		.opcode = PACKET_UD | (has_imm ? OP_SEND_ONLY_IMM : OP_SEND_ONLY),
		.solicited = wqe->flags & SEND_SOLICITED,
		.pkey = WIRE_PKEY,
		.dest_qpn = wqe->ud.remote_qpn & 0xffffff,
		.psn = qp->ud_psn & 0xffffff,
		/* The controlled Q_Key (top bit) stands for the QP's own: 10.2.5. */
		.qkey = qkey & 0x80000000u ? qp->attr.qkey : qkey,
		.src_qpn = qp->source_qpn,
		.imm = wqe->imm,
		.length = wqe->length,
	};
}

/* Adds a packet to the burst. False: its memory can't be read. tx_lock is held. */
static bool add_packet(struct net_sender *tx, const struct packet *packet,
		       const struct iovec *local, int count)
{
	uint8_t *at = net_room(tx);
	uint32_t headers = packet_encode(packet, at);
	uint32_t padding = packet_padding(packet->length);
	bool ok = copy_gather_cached(at + headers, local, count, 0, packet->length);

	if (ok) {
		memset(at + headers + packet->length, 0, padding);
		net_add(tx, headers + packet->length + padding);
	}
	return ok;
}

/* Whether `next` may be sent in the burst of `first`. */
static bool goes_along(const struct qp *qp, const struct send_wqe *first,
		       const struct send_wqe *next) REQUIRES(qp->lock)
{
	return next->ud.carrier == first->ud.carrier &&
	       next->ud.remote_qpn == first->ud.remote_qpn &&
	       next->ud.ifindex == first->ud.ifindex && next->length <= datagram_room(qp) &&
	       !memcmp(&next->ud.to, &first->ud.to, sizeof(first->ud.to));
}

/* Adds the requests behind `first`, at sq.next, that fit its burst. Returns their number. A request
 * whose memory can't be read ends the burst, and fails in its turn. tx_lock is held. */
static uint32_t add_followers(struct qp *qp, const struct send_wqe *first, struct net_sender *tx)
	REQUIRES(qp->lock)
{
	enum { FOLLOWERS = 63 }; /* bounds what a full socket keeps, and the time under the lock */
	uint32_t n = 0;

	while (n < FOLLOWERS && qp->sq.next + 1 + n != qp->sq.head) {
		HAZARD_SCOPE(holds, qp);
		const struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.next + 1 + n);
		struct iovec local[LIMIT_SGE];

		if (!goes_along(qp, first, wqe))
			break;
		int count = sq_segments(qp, wqe, 0, local, &holds);
		struct packet packet = roce_datagram_packet(qp, wqe);

		packet.psn = (qp->ud_psn + 1 + n) & 0xffffff;
		if (unlikely(count < 0 || !add_packet(tx, &packet, local, count)))
			break;
		n++;
	}
	return n;
}

/* `followers`: NULL, or becomes the number of requests behind this one that were sent with it. */
static enum step send_run(struct qp *qp, const struct send_wqe *wqe, const struct iovec *local,
			  int count, uint32_t *followers) REQUIRES(qp->lock)
{
	struct roce *roce = qp->hca->roce;

	/* Dropped, as unreliable messages may be: RoCE is forced without a socket, or this is a
	 * forked child. */
	if (unlikely(!roce || roce_has_left(roce)))
		return STEP_DONE;
	const struct packet packet = roce_datagram_packet(qp, wqe);
	struct net_path path;
	bool ok = true, full;

	do {
		lock_take(&roce->tx_lock);
		int err = datagram_path(roce, qp, wqe, &path);

		full = !err && net_blocked(&roce->tx, &path);
		if (likely(!err && !full)) {
			net_begin(&roce->tx, &path);
			ok = add_packet(&roce->tx, &packet, local, count);
			if (likely(ok && followers))
				*followers = add_followers(qp, wqe, &roce->tx);
			net_end(&roce->tx);
		}
		lock_give(&roce->tx_lock);
	} while (unlikely(full) && !datagrams_wait_for_room(qp, &path));
	if (unlikely(full))
		return STEP_WAIT;
	qp->ud_psn++;
	return likely(ok) ? STEP_DONE : STEP_FAILED;
}

enum step roce_datagram(struct qp *qp, const struct send_wqe *wqe, const struct iovec *local,
			int count)
{
	return send_run(qp, wqe, local, count, NULL);
}

enum roce_drop roce_receive_datagram(struct qp *qp, const struct packet *packet,
				     const struct net_from *from)
{
	bool has_imm = packet_operation(packet->opcode) == OP_SEND_ONLY_IMM;
	struct record_ud ud = {
		.qkey = packet->qkey,
		.hop_limit = from->hop_limit,
		.traffic_class = from->traffic_class,
	};
	const struct arrival arrival = {
		.length = packet->length,
		.imm = packet->imm,
		.src_qpn = packet->src_qpn,
		.has_imm = has_imm,
		.solicited = packet->solicited,
	};

	memcpy(ud.sgid, from->ip.source, 16);
	memcpy(ud.dgid, from->ip.destination, 16);
	switch (datagram_execute(qp, &ud, &arrival, packet->payload)) {
	case DATAGRAM_TAKEN:
		return ROCE_TAKEN;
	case DATAGRAM_QKEY:
		return ROCE_DROP_QKEY;
	case DATAGRAM_NO_RECEIVE:
		return ROCE_DROP_NO_RECEIVE;
	case DATAGRAM_TOO_LONG:
		return ROCE_DROP_SHORT_RECEIVE;
	default:
		return ROCE_DROP_STATE;
	}
}

/* Whether the datagrams from sq.next on wait for more. The next pass then resumes the QP. */
static bool waits_for_more(struct qp *qp, const struct send_wqe *wqe) REQUIRES(qp->lock)
{
	enum { WORTH_PACKETS = 32, WORTH_BYTES = 32 * 1024 }; /* such a copy costs a call's time */
	const struct roce *roce = qp->hca->roce;
	uint32_t polls = atomic_load_explicit(&qp->hca->polls, memory_order_relaxed);
	uint32_t count = qp->sq.head - qp->sq.next;
	bool first = qp->ud_polls != polls;

	qp->ud_polls = polls;
	if (first || qp->ud_goes || engine_asleep(qp->hca) || !roce || roce_has_left(roce) ||
	    count >= WORTH_PACKETS || count * (wqe->length + WIRE_BTH) >= WORTH_BYTES)
		return false;
	return datagrams_hold(qp);
}

static enum step roce_send(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			   int count) REQUIRES(qp->lock)
{
	uint32_t followers = 0;

	if (waits_for_more(qp, wqe))
		return STEP_WAIT;
	enum step step = send_run(qp, wqe, local, count, &followers);

	if (unlikely(step == STEP_FAILED))
		return datagram_fail(qp, wqe, IBV_WC_LOC_PROT_ERR);
	if (unlikely(step == STEP_WAIT))
		return step;
	datagram_sent(qp, wqe);
	qp->ud_psn += followers;
	while (followers--)
		datagram_sent(qp, sq_at(&qp->sq, qp->sq.next));
	return STEP_DONE;
}

static void roce_skip(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock)
{
	datagram_sent(qp, wqe);
}

const struct datagram_carrier datagram_roce = {
	.name = "roce",
	.send = roce_send,
	.skip = roce_skip,
};
