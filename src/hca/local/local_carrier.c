/* SPDX-License-Identifier: BSD-2-Clause */
/* The local carrier's operations, and the dispatch of a link's records to their QPs. See
 * local_carrier.h. Owns each QP's struct local_conn. */
#include "hca/local/local_carrier.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/engine/engine.h"
#include "hca/exec/segment.h"
#include "hca/fabric/path.h"
#include "hca/local/datagram_inbox.h"
#include "hca/local/link.h"
#include "hca/local/local_conn.h"
#include "hca/local/local_datagram.h"
#include "hca/local/xrc_records.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"
#include "wire/packet.h"

/* Records for one QP that are taken in a row under its lock: another thread that wants to post
 * waits no longer than these take. */
enum { RUN_RECORDS = 8 };

/* ------------------------------------------------------------------ records */

static void take_ack(const struct hca *hca, const struct link *link, struct record_ack ack)
{
	struct qp *qp = hca->qps[record_qpn(ack.dst) & (LIMIT_QPS_PER_SLOT - 1)];

	if (unlikely(!qp))
		return;
	lock_take(&qp->lock);
	if (likely(local_link_of(qp) == link)) {
		local_qp_acknowledged(&qp->local->core, ack);
		if (qp->type == IBV_QPT_XRC_SEND)
			xrc_go_on(qp);
	}
	lock_give(&qp->lock);
}

/* The QP that the record is for, if it is one whose records go the short way. */
static inline struct qp *qp_of_record(const struct hca *hca, const struct ring_header *h)
{
	if (unlikely(h->kind >= REC_KINDS || h->kind == REC_UD))
		return NULL;
	return hca->qps[record_qpn(h->dst) & (LIMIT_QPS_PER_SLOT - 1)];
}

static inline void take_for_qp(const struct link *link, struct qp *qp, const struct ring_header *h,
			       const uint8_t *payload, uint32_t room) REQUIRES(qp->lock)
{
	if (likely(local_link_of(qp) == link))
		local_qp_record(&qp->local->core, h, payload, room);
	if (unlikely(qp->type == IBV_QPT_XRC_SEND) && qp->xrc)
		xrc_go_on(qp);
}

/* A record that isn't for a connected QP, or carries an acknowledgement besides. */
static __attribute__((noinline)) void take_other_record(struct hca *hca, struct link *link,
							struct ring_header *h,
							const uint8_t *payload, uint32_t room)
	REQUIRES(hca->engine)
{
	if (h->kind & REC_CARRIES) {
		take_ack(hca, link, record_carried(payload, room));
		h->kind &= (uint8_t)~REC_CARRIES;
	}
	struct qp *qp = hca->qps[record_qpn(h->dst) & (LIMIT_QPS_PER_SLOT - 1)];

	if (unlikely(h->kind & REC_XRC)) {
		xrc_take_record(hca, link, h, payload, room);
	} else if (unlikely(h->kind == REC_UD && record_qpn(h->dst) == WIRE_MULTICAST_QPN)) {
		local_datagram_take_group(link, h, payload, room);
	} else if (unlikely(h->kind == REC_FRAME)) {
		segment_take(hca, link, h, payload, room);
	} else if (likely(qp && h->kind < REC_KINDS)) {
		lock_take(&qp->lock);
		if (h->kind == REC_UD)
			local_datagram_take(qp, link, h, payload, room);
		else
			take_for_qp(link, qp, h, payload, room);
		lock_give(&qp->lock);
	} else {
		if (h->kind == REC_UD)
			datagram_count_fate(hca, DATAGRAM_STATE);
		/* A record of the link itself; or the QP has ended, and the peer's timer fails its
		 * requests. */
		link_idle_record(link, h);
	}
}

/* Not analysed for thread safety: qp.lock stays held from one record to the next. */
unsigned int local_take_records(struct hca *hca, struct link *link, unsigned int most,
				int *error) NO_THREAD_SAFETY_ANALYSIS
{
	struct qp *held = NULL; /* its lock is held */
	struct ring_header h;
	const uint8_t *payload;
	unsigned int n = 0;
	uint32_t room;

	for (; n < most && (payload = ring_peek(&link->rx, &h, &room, error)); n++) {
		struct qp *qp = qp_of_record(hca, &h);

		if (held && (held != qp || !(n % RUN_RECORDS))) {
			lock_give(&held->lock);
			held = NULL;
		}
		if (unlikely(!qp)) {
			take_other_record(hca, link, &h, payload, room);
		} else {
			if (!held)
				lock_take(&qp->lock);
			held = qp;
			take_for_qp(link, qp, &h, payload, room);
		}
		ring_pop(&link->rx, &h);
		if (link->deep)
			ring_fetch_ahead(&link->rx);
	}
	if (held)
		lock_give(&held->lock);
	return n;
}

void local_flush_acks(struct hca *hca) REQUIRES(hca->engine)
{
	struct list *node;

	while ((node = list_pop(&hca->acks))) {
		struct local_conn *conn = container_of(node, struct local_conn, ack_node);
		struct qp *qp = conn->qp;

		if (likely(!local_qp_owes(&conn->core)))
			continue; /* a record has carried it */
		lock_take(&qp->lock);
		local_qp_flush_ack(&conn->core);
		lock_give(&qp->lock);
	}
}

/* Not analysed: the lock is taken by a function that the caller has named. */
void local_flush_acks_by(struct hca *hca, bool (*take)(struct lock *lock)) NO_THREAD_SAFETY_ANALYSIS
{
	struct list *node;

	while ((node = list_pop(&hca->acks))) {
		struct local_conn *conn = container_of(node, struct local_conn, ack_node);

		if (!local_qp_owes(&conn->core) || !take(&conn->qp->lock))
			continue;
		local_qp_flush_ack(&conn->core);
		lock_give(&conn->qp->lock);
	}
}

uint64_t local_scan_receivers(struct hca *hca, uint64_t now) REQUIRES(hca->engine)
{
	uint64_t next = UINT64_MAX;

	list_for_each(node, &hca->rnr) {
		struct local_conn *conn = container_of(node, struct local_conn, rnr_node);
		struct qp *qp = conn->qp;

		lock_take(&qp->lock);
		if (!local_qp_expire_receive(&conn->core, now, &next))
			list_del(&conn->rnr_node);
		lock_give(&qp->lock);
	}
	uint64_t dry = datagram_inbox_scan(hca, now);

	/* A message whose receive has come was executed. The engine thread may sleep next. */
	local_flush_acks(hca);
	atomic_store(&hca->has_rnr, !list_empty(&hca->rnr) || !list_empty(&hca->dry));
	return dry < next ? dry : next;
}

/* ------------------------------------------------------------------ the carrier */

static int local_connect(struct qp *qp, const struct route *route) REQUIRES(qp->lock)
{
	struct local_conn *conn = local_conn_new(qp, qp->attr.dest_qp_num >> LIMIT_QP_BITS);

	(void)route;
	if (!conn)
		return ENOMEM;
	qp->local = conn;
	link_wait(conn->link, qp);
	return 0;
}

static void local_resume(struct qp *qp) REQUIRES(qp->lock)
{
	qp->local->core.state = qp->state;
	local_qp_resume(&qp->local->core);
}

static void local_send_ready(struct qp *qp, enum ibv_qp_state from) REQUIRES(qp->lock)
{
	if (from == IBV_QPS_RTR)
		qp->local->core.next_psn = qp->attr.sq_psn;
	local_resume(qp);
}

static void local_drain(struct qp *qp) REQUIRES(qp->lock)
{
	qp->local->core.state = qp->state;
	local_qp_drain(&qp->local->core);
}

static void local_stop(struct qp *qp) REQUIRES(qp->lock)
{
	qp->local->core.state = qp->state;
	local_qp_stop(&qp->local->core);
}

static void local_disconnect(struct qp *qp) REQUIRES(qp->lock)
{
	struct local_conn *conn = qp->local;

	local_qp_close(&conn->core);
	list_del(&conn->ack_node);
	lock_assert_held(&conn->link->hca->engine);
	link_forget_owing(conn->link, conn);
	list_del(&conn->rnr_node);
	list_del(&qp->srq_wait);
	link_unwait(qp);
	qp->local = NULL;
	local_conn_free(conn);
}

void local_relink(struct qp *qp)
{
	local_qp_relink(&qp->local->core);
	local_qp_peer_ended(&qp->local->core);
}

void local_untaken(struct qp *qp)
{
	local_qp_untaken(&qp->local->core);
}

void local_announce(struct qp *qp)
{
	local_qp_announce(&qp->local->core);
}

static void local_receive_posted(struct qp *qp) REQUIRES(qp->lock)
{
	local_qp_receive_posted(&qp->local->core);
}

static bool local_expire(struct qp *qp, uint64_t now, uint64_t *next) REQUIRES(qp->lock)
{
	qp->local->core.state = qp->state;
	return local_qp_expire(&qp->local->core, now, next);
}

static void local_post(struct qp *qp) REQUIRES(qp->lock)
{
	local_qp_post(&qp->local->core);
}

static void local_withdraw(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock)
{
	local_qp_withdraw(&qp->local->core, wqe);
}

/* The address vector, which P_Key, or the state of migration, of which the peer is told. */
static void local_change(struct qp *qp, int mask) REQUIRES(qp->lock)
{
	const int migrates = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

	if (!qp->local->path)
		return;
	if (mask & (IBV_QP_AV | IBV_QP_PKEY_INDEX | migrates))
		path_change(qp->local->path, &qp->attr);
	if (mask & migrates)
		local_qp_migration(&qp->local->core);
}

static void local_leave(struct qp *qp) REQUIRES(qp->lock)
{
	struct local_conn *conn = qp->local;

	/* Another thread of the parent was disconnecting it: fork() waits for no QP's lock. */
	if (!conn) {
		qp->carrier = &carrier_none;
		return;
	}
	list_init(&conn->ack_node);
	list_init(&conn->rnr_node);
	local_qp_leave(&conn->core);
}

/* An adapter takes messages in when they arrive, whatever the program does; here they may still be
 * in the ring. They are handled before a QP stops receiving, or the peer would miss its
 * acknowledgement. */
static void local_take_in(struct qp *qp)
{
	lock_take(&qp->lock);
	struct link *link = local_link_of(qp);

	lock_give(&qp->lock);
	if (link && link_is(link, LINK_UP))
		engine_drain(qp->hca, link);
}

static void local_settle(struct hca *hca, uint32_t qpn, uint32_t peer_qpn, bool ends)
{
	uint32_t slot = peer_qpn >> LIMIT_QP_BITS;
	struct link *link = atomic_load(&hca->link_by_slot[slot]);

	if (ends && link)
		link_send_last(link);
	hazard_wait_qp(hca, slot, qpn);
}

#define LOCAL_OPERATIONS                                                                         \
	.executes_at_post = true, .take_in_former = carrier_ignores_former,                      \
	.connect = local_connect, .receive_ready = local_resume, .send_ready = local_send_ready, \
	.drain = local_drain, .change = local_change, .stop = local_stop,                        \
	.disconnect = local_disconnect, .receive_posted = local_receive_posted,                  \
	.resume = local_resume, .expire = local_expire, .post = local_post,                      \
	.withdraw = local_withdraw, .leave = local_leave, .take_in = local_take_in,              \
	.linger = carrier_ignores, .settle = local_settle

const struct carrier carrier_self = {.name = "self", LOCAL_OPERATIONS};
const struct carrier carrier_local = {.name = "local", LOCAL_OPERATIONS};
