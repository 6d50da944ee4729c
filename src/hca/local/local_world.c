/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that the local carrier's core needs of the soft HCA (core/world.h): links, regions,
 * receives, completions, timers. Inlined into the core by link-time optimization, those of each
 * one-sided request by the keyword `inline`, which raises the optimizer's bound. No state of its
 * own, but for the count of bytes that wait for receives (link.held_bytes).
 *
 * While a thread that has seen a link UP under a QP's lock holds that lock, the link's memory stays
 * mapped (link.c). So only those calls check the link's state that the core makes first.
 */
#include "hca/local/core/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/execute.h"
#include "hca/exec/mcast.h"
#include "hca/exec/xrc_target.h"
#include "hca/fabric/path.h"
#include "hca/local/core/state.h"
#include "hca/local/link.h"
#include "hca/local/link_part.h"
#include "hca/local/local_conn.h"
#include "hca/local/peer.h"
#include "hca/local/way.h"
#include "hca/mem/atomic.h"
#include "hca/mem/copy.h"
#include "hca/mem/foreign.h"
#include "hca/mem/hazard.h"
#include "hca/mem/mapped.h"
#include "hca/mem/mr.h"
#include "hca/mem/streaming.h"
#include "hca/process/capture.h"
#include "hca/process/counters.h"
#include "hca/process/hca.h"
#include "hca/verbs/migrate.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/window.h"
#include "hca/verbs/xrc_follow.h"

/* On a fabric: its path. False: out of memory. */
static bool conn_find_way(struct local_conn *conn, const struct qp *qp) REQUIRES(qp->lock)
{
	struct membership *membership = qp->hca->membership;

	if (!membership)
		return true;
	conn->core.routed = true;
	conn->path = qp->type == IBV_QPT_XRC_SEND
			     ? path_new_xrc(membership, qp->ibv.qp_num, &qp->attr)
			     : path_new(membership, qp->ibv.qp_num, &qp->attr);
	return conn->path != NULL;
}

struct local_conn *local_conn_new(struct qp *qp, uint32_t slot) REQUIRES(qp->lock)
{
	struct local_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->qp = qp;
	conn->taken = qp->type == IBV_QPT_RC ? &qp->hca->pub->taken[qp->index] : &conn->untaken;
	atomic_store_explicit(conn->taken, 0, memory_order_relaxed);
	conn->link = link_take(qp->hca, slot);
	list_init(&conn->ack_node);
	list_init(&conn->rnr_node);
	if (conn->link) {
		local_qp_init(&conn->core, qp->type, qp->ibv.qp_num, (uint8_t)qp->epoch,
			      conn->link->self, &qp->sq, &qp->attr);
		if (conn_find_way(conn, qp))
			return conn;
	}
	local_conn_free(conn);
	return NULL;
}

void local_conn_free(struct local_conn *conn)
{
	if (conn->link)
		link_put(conn->link);
	path_free(conn->path);
	free(conn);
}

static inline struct qp *qp_of_local(const struct local_qp *lq)
{
	return local_conn_of(lq)->qp;
}

static inline struct link *link_from(const struct local_qp *lq)
{
	return local_conn_of(lq)->link;
}

/* ------------------------------------------------------------------ the link */

inline enum world_link world_link(const struct local_qp *lq)
{
	const struct link *link = link_from(lq);

	if (likely(link_is(link, LINK_UP)))
		return WORLD_LINK_UP;
	return link_pending(link) ? WORLD_LINK_COMING : WORLD_LINK_DOWN;
}

bool world_link_taken(const struct local_qp *lq)
{
	return link_peer_came(link_from(lq));
}

bool world_link_copies(const struct local_qp *lq)
{
	return atomic_load_explicit(&link_from(lq)->can_vm, memory_order_relaxed);
}

inline bool world_link_guarded(struct local_qp *lq)
{
	return link_direct(link_from(lq));
}

bool world_link_prefers_ring(const struct local_qp *lq, uint32_t length)
{
	return way_by_ring(qp_of_local(lq)->hca, length);
}

/* These three aren't analysed: the core knows no locks. It commits or abandons what it reserved. */
struct ring_header *world_ring_reserve(struct local_qp *lq,
				       uint32_t payload) NO_THREAD_SAFETY_ANALYSIS
{
	return link_begin(link_from(lq), payload);
}

/* Has the record carry the acknowledgement that another QP owes the peer's process. */
static inline void carry_owed(struct local_conn *conn, struct ring_header *h, uint32_t payload)
{
	struct local_conn *owing = atomic_load_explicit(&conn->link->owing, memory_order_acquire);

	if (likely(!owing || owing == conn || !local_qp_owes(&owing->core)) ||
	    ring_spare(payload) < sizeof(struct record_ack))
		return;
	const struct record_ack ack = local_qp_take_owed(&owing->core);

	record_carry(h, payload, ack);
	conn->carried_to = conn->carried_to ? LINK_ANY_QP : record_qpn(ack.dst);
}

void world_ring_commit(struct local_qp *lq, struct ring_header *h,
		       uint32_t payload) NO_THREAD_SAFETY_ANALYSIS
{
	carry_owed(local_conn_of(lq), h, payload);
	link_send(link_from(lq), h, payload);
}

void world_ring_abandon(struct local_qp *lq, uint32_t payload) NO_THREAD_SAFETY_ANALYSIS
{
	link_abandon(link_from(lq), payload);
}

void world_ring_control(struct local_qp *lq, const struct ring_header *h, const void *payload,
			uint32_t size)
{
	link_control(link_from(lq), h, payload, size);
}

void world_ring_notify(struct local_qp *lq)
{
	struct local_conn *conn = local_conn_of(lq);
	uint32_t qpn = lq->type == IBV_QPT_XRC_SEND ? lq->srqn : lq->attr->dest_qp_num;

	/* What a QP puts into the ring is for the QP that it is connected to, or for one SRQ:
	 * world_current() notifies before another one's turn. */
	link_notify_if(conn->link, qpn, true, unlikely(conn->carried_to) ? conn->carried_to : qpn);
	conn->carried_to = 0;
}

void world_ring_wait(struct local_qp *lq)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	link_wait(link_from(lq), qp);
}

/*
 * READs that wait for each other. A program that has got several completions by one poll is likely
 * to answer each by a READ (UCX's rendezvous does), so a READ waits as long as there may be more.
 * The QP is among the link's waiters, which the next poll of an empty CQ resumes, or the engine
 * thread's next look at the lease. So it happens only while some thread polls, and not if the
 * program may go to sleep instead: the send CQ isn't armed. engine_release() resumes the QP if the
 * CQ is armed, and end_lease() if no thread polls any more.
 */
inline bool world_may_gather(const struct local_qp *lq)
{
	(void)lq;
	return cq_unanswered != 0;
}

bool world_gathers(struct local_qp *lq)
{
	struct qp *qp = qp_of_local(lq);
	struct hca *hca = qp->hca;

	cq_unanswered--;
	if (engine_asleep(hca) || hca->watchdog < 0 || cq_owes_any(qp->send_cq))
		return false;
	lock_assert_held(&qp->lock);
	return link_await_poll(link_from(lq), qp);
}

/* ------------------------------------------------------------------ published entries */

/* The link was seen UP in this call of the core. */
static inline const struct pub_qp *peer_entry(const struct local_qp *lq)
{
	return &link_from(lq)->peer->qp[lq->attr->dest_qp_num & (LIMIT_QPS_PER_SLOT - 1)];
}

/* Of XRC_SEND: the target QP's entry, or NULL. */
static const struct xrc_target *target_entry(const struct local_qp *lq)
{
	return mcast_xrc_find(qp_of_local(lq)->hca, lq->attr->dest_qp_num);
}

static struct xrc_view target_view(const struct local_qp *lq)
{
	struct xrc_view view = {0};

	mcast_xrc_read(qp_of_local(lq)->hca, lq->attr->dest_qp_num, &view);
	return view;
}

/* Out of line, as world_peer_word() and world_peer_pd() are: inlined, these made a SEND by XRC 20
 * ns slower. */
static __attribute__((noinline)) uint64_t target_word(const struct local_qp *lq)
{
	const struct xrc_target *target = target_entry(lq);

	return target ? xrc_target_state(target, lq->attr->dest_qp_num) : 0;
}

uint64_t world_peer_word(struct local_qp *lq)
{
	if (unlikely(!link_is(link_from(lq), LINK_UP)))
		return 0;
	return unlikely(lq->type == IBV_QPT_XRC_SEND) ? target_word(lq)
						      : pub_qp_read_state(peer_entry(lq));
}

uint32_t world_peer_partner(struct local_qp *lq)
{
	if (unlikely(lq->type == IBV_QPT_XRC_SEND))
		return target_view(lq).peer;
	return (uint32_t)atomic_load_explicit(&peer_entry(lq)->peer, memory_order_relaxed);
}

uint32_t world_peer_rq_psn(struct local_qp *lq)
{
	if (unlikely(lq->type == IBV_QPT_XRC_SEND))
		return target_view(lq).rq_psn;
	return atomic_load_explicit(&peer_entry(lq)->rq_psn, memory_order_relaxed);
}

/* Of XRC_SEND: the entry of the SRQ that the current request names. */
static inline const struct pub_qp *srq_entry(const struct local_qp *lq)
{
	return &link_from(lq)->peer->qp[lq->srqn & (LIMIT_QPS_PER_SLOT - 1)];
}

uint32_t world_peer_pd(struct local_qp *lq)
{
	const struct pub_qp *e =
		unlikely(lq->type == IBV_QPT_XRC_SEND) ? srq_entry(lq) : peer_entry(lq);

	return atomic_load_explicit(&e->pd, memory_order_relaxed);
}

uint32_t world_peer_receives(struct local_qp *lq, uint32_t none)
{
	const struct pub_qp *e = peer_entry(lq);

	/* XRC: the entry at the target QP's number in the table of the SRQ's process is another
	 * QP's. */
	if (lq->type == IBV_QPT_XRC_SEND || !(pub_qp_access(pub_qp_read_state(e)) & PUB_QP_COUNTS))
		return none;
	return atomic_load_explicit(&e->receives, memory_order_relaxed);
}

/* The word for world_publish_taken(). */
static inline uint64_t taken_word(const struct local_qp *lq, uint32_t msn)
{
	return pub_taken(msn, lq->sender_epoch, lq->epoch);
}

inline void world_publish_taken(struct local_qp *lq, uint32_t msn)
{
	atomic_store_explicit(local_conn_of(lq)->taken, taken_word(lq, msn), memory_order_relaxed);
}

/* Also while the link is ending: link_reap() forgets the peer before it unmaps its tables. */
uint64_t world_peer_taken(struct local_qp *lq)
{
	const struct link *link = link_from(lq);

	if (link->self || !link_is_mapped(link) || peer_alive(&link->process))
		return 0;
	return atomic_load_explicit(
		&link->peer->taken[lq->attr->dest_qp_num & (LIMIT_QPS_PER_SLOT - 1)],
		memory_order_relaxed);
}

inline bool world_peer_region(struct local_qp *lq, uint32_t rkey, struct mr_view *view)
{
	const struct pub_regions *regions = link_from(lq)->regions;

	return likely(regions != NULL) && mr_read(regions, rkey, view);
}

uint32_t world_peer_window(struct local_qp *lq, uint32_t rkey, const struct mr_view *view)
{
	return mr_window_region(link_from(lq)->regions, rkey, view, world_peer_pd(lq),
				lq->attr->dest_qp_num);
}

bool world_peer_runs(const struct local_qp *lq)
{
	return peer_runs(&link_from(lq)->process);
}

bool world_peer_may_copy(const struct local_qp *lq)
{
	return world_link_copies(lq) && link_is_mapped(link_from(lq));
}

uint32_t world_ring_mark(const struct local_qp *lq)
{
	return link_from(lq)->rx.pos;
}

bool world_ring_unread(const struct local_qp *lq, uint32_t mark)
{
	return ring_unread_since(&link_from(lq)->rx, mark);
}

/* ------------------------------------------------------------------ XRC */

bool world_current(struct local_qp *lq, const struct send_wqe *wqe)
{
	if (wr_runs_here(wqe->opcode))
		return true;
	if (wqe->srqn >> LIMIT_QP_BITS != link_from(lq)->slot)
		return false;
	if (lq->srqn != wqe->srqn && lq->must_notify && local_link_up(lq)) {
		lq->must_notify = false;
		world_ring_notify(lq); /* for the SRQ before */
	}
	lq->srqn = wqe->srqn;
	return true;
}

bool world_peer_srq(struct local_qp *lq)
{
	const struct pub_qp *e = srq_entry(lq);
	uint32_t domain = (uint32_t)atomic_load_explicit(&e->peer, memory_order_relaxed);

	return pub_qp_type(pub_qp_read_state(e)) == PUB_XRC_SRQ && domain == target_view(lq).domain;
}

/* There is no process that could have the SRQ. The target QP's owners may destroy it, or connect it
 * anew, as soon as they have the event. */
static enum world_srq srq_refused(struct local_qp *lq)
{
	struct local_conn *conn = local_conn_of(lq);
	struct xrc_view view = target_view(lq);
	uint32_t epoch = pub_qp_epoch(view.state);

	if (view.peer != lq->qpn || !xrc_receives(pub_qp_state(view.state)) ||
	    (conn->reported && conn->reported_epoch != epoch))
		return conn->reported ? WORLD_SRQ_MISSING : WORLD_SRQ_THERE;
	if (!conn->reported) {
		conn->reported = true;
		conn->reported_epoch = epoch;
		xrc_report(conn->link->hca, lq->attr->dest_qp_num, epoch, IBV_EVENT_QP_ACCESS_ERR);
	}
	return WORLD_SRQ_LEAVING;
}

enum world_srq world_srq_look(struct local_qp *lq)
{
	const struct link *link = link_from(lq);

	if (likely(link_is(link, LINK_UP)))
		return peer_alive(&link->process) ? WORLD_SRQ_THERE : WORLD_SRQ_LEAVING;
	/* A link that is ending may be one that both processes gave up: link_end_living(). */
	return link_is(link, LINK_DOWN) ? srq_refused(lq) : WORLD_SRQ_LEAVING;
}

bool world_aim(struct local_qp *lq, uint32_t srqn)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return xrc_aim(qp, srqn) == XRC_HERE;
}

/* ------------------------------------------------------------------ hazards */

inline world_hazard *world_hazard_region(struct local_qp *lq, uint32_t rkey)
{
	return hazard_set(qp_of_local(lq)->hca, link_from(lq)->slot, rkey);
}

world_hazard *world_hazard_qp(struct local_qp *lq)
{
	return hazard_set(qp_of_local(lq)->hca, link_from(lq)->slot,
			  hazard_of_qp(lq->attr->dest_qp_num));
}

world_hazard *world_hazard_region_inner(struct local_qp *lq, uint32_t rkey)
{
	return hazard_set_inner(qp_of_local(lq)->hca, link_from(lq)->slot, rkey);
}

void world_hazard_clear(world_hazard *hazard)
{
	hazard_clear(hazard);
}

/* ------------------------------------------------------------------ memory of this process */

/* Regions that the core resolves are held (mem/hazard.h) from the mark until they are released. */
static inline struct hazard_scope scope_of(const struct local_qp *lq)
{
	return hazard_scope_begin(qp_of_local(lq)->hazards);
}

uint32_t world_memory_mark(struct local_qp *lq)
{
	return scope_of(lq).mark;
}

void world_memory_release(struct local_qp *lq, uint32_t mark)
{
	struct hazard_scope scope = {qp_of_local(lq)->hazards, mark};

	hazard_scope_end(&scope);
}

int world_request_segments(struct local_qp *lq, const struct send_wqe *wqe, uint32_t access,
			   struct iovec *out)
{
	const struct hazard_scope scope = scope_of(lq);

	return sq_segments(qp_of_local(lq), wqe, access, out, &scope);
}

int world_receive_segments(struct local_qp *lq, const struct recv_wqe *wqe, uint32_t length,
			   struct iovec *out)
{
	const struct hazard_scope scope = scope_of(lq);

	return receive_segments(qp_of_local(lq), wqe, length, out, &scope);
}

static __attribute__((noinline)) bool put_any_message(struct local_qp *lq,
						      const struct send_wqe *wqe, void *to)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_request_segments(lq, wqe, 0, local);

	return count >= 0 && copy_gather(to, local, count, 0, wqe->length);
}

/* Inline data and one segment go the short way, because nearly every message is such. */
bool world_put_message(struct local_qp *lq, const struct send_wqe *wqe, void *to)
{
	uint16_t flags = wqe->flags & (SEND_INLINE | SEND_BORROWED | SEND_OFFLOADED);

	if (flags == SEND_INLINE) {
		copy_own(to, wqe->data, wqe->length);
		return true;
	}
	if (unlikely(flags || wqe->num_sge != 1 || !wqe->length))
		return put_any_message(lq, wqe, to);
	const struct qp *qp = qp_of_local(lq);
	HAZARD_SCOPE(scope, qp);

	uint64_t at = mr_resolve_own(qp->hca, qp->pd_id, wqe->sge, 0, &scope);

	return likely(at) ? copy_piece(to, (void *)(uintptr_t)at, wqe->length)
			  : put_any_message(lq, wqe, to);
}

bool world_gather(struct local_qp *lq, void *to, const struct iovec *from, int count, size_t offset,
		  size_t length)
{
	(void)lq;
	return copy_gather(to, from, count, offset, length);
}

bool world_scatter(struct local_qp *lq, const struct iovec *to, int count, size_t offset,
		   const void *from, size_t length)
{
	(void)lq;
	return copy_scatter(to, count, offset, from, length);
}

bool world_reachable(const struct iovec *local, int count)
{
	return copy_reachable(local, count);
}

uint64_t world_own_region(struct local_qp *lq, uint64_t addr, uint32_t length, uint32_t rkey,
			  uint32_t access)
{
	struct qp *qp = qp_of_local(lq);
	const struct hazard_scope scope = scope_of(lq);

	lock_assert_held(&qp->lock);
	return remote_resolve(qp, addr, length, rkey, access, &scope);
}

bool world_is_imported(uint64_t at)
{
	return foreign_is((void *)(uintptr_t)at);
}

bool world_own_write(struct local_qp *lq, uint64_t at, const uint8_t *from, uint32_t n, bool last)
{
	(void)lq;
	return remote_write(at, from, n, last);
}

bool world_own_read(struct local_qp *lq, uint64_t at, uint8_t *to, uint32_t n)
{
	(void)lq;
	return remote_read(at, to, n);
}

bool world_own_atomic(struct local_qp *lq, uint64_t at, const struct record_atomic *op,
		      uint64_t *old)
{
	bool done = atomic_execute(at, op, old);

	if (lq->self) /* else a record asked for it */
		link_touched(link_from(lq));
	return done;
}

enum ibv_wc_status world_own_flush(struct local_qp *lq, const struct record_atomic *op)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return execute_flush(qp, op->addr, (uint32_t)op->compare_add, op->rkey, (uint8_t)op->swap);
}

void world_flush_fence(struct local_qp *lq)
{
	(void)lq;
	flush_fence();
}

/* ------------------------------------------------------------------ memory of the peer */

/* Where the peer's address `there` is mapped in this process, NULL, or MAPPED_GONE. */
static inline uint8_t *mapped_here(struct local_qp *lq, const struct mr_view *view, uint64_t there,
				   size_t length)
{
	return lq->self ? (uint8_t *)(uintptr_t)there
			: mapped_at(link_from(lq), view, there, length);
}

bool world_peer_mapped(struct local_qp *lq, const struct mr_view *view)
{
	return mapped_is(link_from(lq), view);
}

/* The result of a copy by a mapping, which reaches the file of a process that has ended as well: it
 * counts only if the peer is alive after it, see peer.h. */
static inline int mapped_result(const struct local_qp *lq, bool done)
{
	if (!lq->self && unlikely(!peer_alive(&link_from(lq)->process)))
		return -ESRCH;
	return likely(done) ? 0 : -EFAULT;
}

/* Copies to memory that a program on another core may have read. */
static inline bool put_far(uint8_t *here, const struct iovec *local, int count, size_t length)
{
	enum streaming_way way = streaming_choose(length);

	if (way == STREAMING_DO)
		return copy_gather_far(here, local, count, length);
	uint64_t began = unlikely(way == STREAMING_TRY) ? clock_ns() : 0;
	bool done = copy_gather_ordered(here, local, count, length);

	if (unlikely(way == STREAMING_TRY))
		streaming_tried(length, clock_ns() - began);
	return done;
}

int world_peer_put(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length)
{
	struct link *link = link_from(lq);
	uint8_t *here = mapped_here(lq, view, there, length);
	int err;

	if (unlikely(here == MAPPED_GONE))
		return mapped_result(lq, false);
	if (here) {
		err = mapped_result(lq, lq->self ? copy_gather_ordered(here, local, count, length)
						 : put_far(here, local, count, length));
	} else if (unlikely(view->access & PUB_MR_MOVING)) {
		return -EAGAIN;
	} else {
		err = copy_to_process(&link->process, there, local, count, length);
	}
	link_touched(link);
	return err;
}

int world_peer_get(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length)
{
	const uint8_t *here = mapped_here(lq, view, there, length);

	if (unlikely(here == MAPPED_GONE))
		return mapped_result(lq, false);
	if (unlikely(!here && view->access & PUB_MR_MOVING))
		return -EAGAIN;
	if (!here)
		return copy_from_process(&link_from(lq)->process, there, local, count, length);
	return mapped_result(lq, copy_scatter(local, count, 0, here, length));
}

int world_peer_get_several(struct local_qp *lq, const struct iovec *remote, int reads,
			   const struct iovec *local, int count, size_t length)
{
	return copy_lists_from_process(&link_from(lq)->process, remote, reads, local, count,
				       length);
}

int world_peer_atomic(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		      const struct record_atomic *op, uint64_t *old)
{
	struct link *link = link_from(lq);
	uint8_t *here = mapped_here(lq, view, there, sizeof(*old));

	if (unlikely(here == MAPPED_GONE))
		return mapped_result(lq, false);
	if (!here)
		return -EAGAIN;
	bool done = atomic_execute((uintptr_t)here, op, old);

	link_touched(link);
	return mapped_result(lq, done);
}

int world_peer_fetch(struct local_qp *lq, const struct mr_view *view, const struct iovec *remote,
		     int remote_count, const struct iovec *local, int count, size_t length)
{
	bool done = true;
	size_t at = 0;

	for (int i = 0; i < remote_count && done; at += remote[i++].iov_len) {
		size_t n = remote[i].iov_len;
		const uint8_t *here =
			mapped_here(lq, view, (uint64_t)(uintptr_t)remote[i].iov_base, n);

		/* Perhaps not any more: then all once more. */
		if (!here)
			return copy_lists_from_process(&link_from(lq)->process, remote,
						       remote_count, local, count, length);
		done = here != MAPPED_GONE && copy_scatter(local, count, at, here, n);
	}
	return mapped_result(lq, done);
}

/* ------------------------------------------------------------------ receives */

enum receive_outcome world_receive_message(struct local_qp *lq, const struct ring_header *h,
					   const uint8_t *payload, struct receive *room,
					   const struct recv_wqe **wqe)
{
	const struct arrival arrival = record_arrival(h);
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return receive_whole(qp, &arrival, payload, room, wqe, local_conn_of(lq)->taken,
			     taken_word(lq, lq->done_msn + 1));
}

const struct recv_wqe *world_receive_take(struct local_qp *lq, struct receive *room)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return receive_take(qp, room);
}

uint32_t world_head_bytes(const struct local_qp *lq)
{
	_Static_assert((int)LOCAL_HEAD_BYTES >= (int)TAG_HEAD,
		       "the core has room for what is asked for");
	return receive_head_bytes(qp_of_local(lq));
}

const struct recv_wqe *world_receive_take_for(struct local_qp *lq, struct receive *room,
					      const uint8_t *head, uint32_t length)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return receive_take_for(qp, room, head, length, true);
}

void world_receive_back(struct local_qp *lq, const struct recv_wqe *wqe)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	receive_give_back(qp, wqe);
}

void world_receive_keep(struct local_qp *lq)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	if (unlikely(qp->tagged != NULL))
		tagged_keep(qp);
}

void world_receive_complete(struct local_qp *lq, const struct recv_wqe *wqe,
			    const struct arrival *arrival, enum ibv_wc_status status)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	if (likely(status == IBV_WC_SUCCESS))
		world_publish_taken(lq, lq->done_msn + 1);
	receive_complete(qp, wqe, arrival, status);
}

void world_receive_wait(struct local_qp *lq, bool waits)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	receive_wait(qp, waits);
}

/* ------------------------------------------------------------------ completions and events */

void world_complete(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	sq_complete(qp, wqe, status);
}

enum ibv_wc_status world_execute_window(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return window_execute(qp, wqe);
}

bool world_invalidate(struct local_qp *lq, uint32_t rkey)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	return window_invalidate(qp, rkey);
}

void world_fail_request(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	sq_fail_local(qp, wqe, status);
	lq->state = qp->state;
}

void world_fail(struct local_qp *lq, int event)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	qp_fail(qp, event);
}

void world_drained(struct local_qp *lq)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	qp_drained(qp);
}

void world_established(struct local_qp *lq)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	execute_established(qp);
}

/* ------------------------------------------------------------------ storage */

struct local_held *world_hold(struct local_qp *lq, uint32_t size)
{
	struct link *link = link_from(lq);
	size_t bytes = sizeof(struct local_held) + size;

	lock_assert_held(&link->hca->engine);
	if (!link_hold_bytes(link, bytes))
		return NULL;
	struct local_held *held = malloc(bytes);

	if (!held)
		link_release_bytes(link, bytes);
	return held;
}

void world_release(struct local_qp *lq, struct local_held *held)
{
	link_release_bytes(link_from(lq), sizeof(*held) + held->size);
	free(held);
}

/* ------------------------------------------------------------------ timers */

void world_watch(struct local_qp *lq)
{
	engine_watch_qp(qp_of_local(lq));
}

void world_watch_receive(struct local_qp *lq)
{
	struct local_conn *conn = local_conn_of(lq);
	struct hca *hca = conn->qp->hca;

	lock_assert_held(&hca->engine);
	if (list_empty(&conn->rnr_node))
		list_add_tail(&hca->rnr, &conn->rnr_node);
	atomic_store(&hca->has_rnr, true);
	engine_kick(hca); /* sets the timer */
}

void world_owe_ack(struct local_qp *lq)
{
	struct local_conn *conn = local_conn_of(lq);
	struct hca *hca = conn->qp->hca;

	lock_assert_held(&hca->engine);
	if (atomic_load_explicit(&conn->link->owing, memory_order_relaxed) != conn)
		atomic_store_explicit(&conn->link->owing, conn, memory_order_release);
	if (list_empty(&conn->ack_node))
		list_add_tail(&hca->acks, &conn->ack_node);
}

/* ------------------------------------------------------------------ ways through a fabric */

enum world_way world_route_admits(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct path *path = local_conn_of(lq)->path;
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	if (path_admits(path, wqe->length))
		return WORLD_WAY_OPEN;
	/* The link was seen UP in this call of the core. */
	path_renew(path, link_from(lq)->peer);
	if (path->is_slow && !(wqe->flags & SEND_BEGUN) && pace_timed_hold(qp))
		return WORLD_WAY_HELD;
	return path_admits_slow(path, wqe->length) ? WORLD_WAY_OPEN : WORLD_WAY_LOST;
}

void world_route_lost(struct local_qp *lq, const struct send_wqe *wqe)
{
	path_count_lost(local_conn_of(lq)->path, wqe->opcode, wqe->length);
	/* The timer, which sends a reliable one again, may not look for long. */
	if (lq->type == IBV_QPT_RC)
		engine_kick(qp_of_local(lq)->hca);
}

void world_route_begins(struct local_qp *lq, const struct send_wqe *wqe)
{
	path_count_request(local_conn_of(lq)->path, wqe->opcode, wqe->length);
}

void world_route_withdraws(struct local_qp *lq, const struct send_wqe *wqe)
{
	path_uncount_request(local_conn_of(lq)->path, wqe->opcode, wqe->length);
}

void world_route_answered(struct local_qp *lq, const struct send_wqe *wqe,
			  enum ibv_wc_status status)
{
	path_count_answer(local_conn_of(lq)->path, wqe->opcode, wqe->length,
			  status == IBV_WC_SUCCESS);
}

bool world_route_migrates(struct local_qp *lq)
{
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	if (qp->attr.path_mig_state != IBV_MIG_ARMED)
		return false;
	migrate_go(qp);
	return true;
}

bool world_route_look(struct local_qp *lq)
{
	struct path *path = local_conn_of(lq)->path;
	struct qp *qp = qp_of_local(lq);

	lock_assert_held(&qp->lock);
	const struct pub *peer = link_from(lq)->peer;
	enum ibv_mig_state state = path_peer_state(path, peer);
	bool refuses = qp->attr.path_mig_state == IBV_MIG_ARMED && state == IBV_MIG_MIGRATED &&
		       !path_meets_alternate(path, peer, &qp->attr);
	bool tell = false;

	if (!refuses)
		tell = migrate_look(qp, state);
	else if (!path->has_refused)
		migrate_refuse(qp);
	path->has_refused = refuses;
	path_change(path, &qp->attr);
	return tell;
}

void world_route_explain(const struct local_qp *lq, char *text, size_t size)
{
	path_explain(local_conn_of(lq)->path, text, size);
}

/* ------------------------------------------------------------------ captures, counters, log */

bool world_captures(const struct local_qp *lq)
{
	return capture_on(qp_of_local(lq)->hca);
}

static struct capture_way capture_way_of(const struct local_qp *lq)
{
	const struct link *link = link_from(lq);

	return (struct capture_way){local_conn_of(lq)->path, link ? link->peer : NULL};
}

void world_capture_request(struct local_qp *lq, const struct send_wqe *wqe)
{
	capture_show_request(qp_of_local(lq), wqe, capture_way_of(lq));
}

void world_capture_answer(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn,
			  enum ibv_wc_status status)
{
	capture_show_answer(qp_of_local(lq), wqe, capture_way_of(lq), msn - SEND_QUEUE_START,
			    status, lq->peer_rnr_timer);
}

void world_capture_rnr(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn)
{
	capture_show_rnr(qp_of_local(lq), wqe, capture_way_of(lq), msn - SEND_QUEUE_START,
			 lq->peer_rnr_timer);
}

void world_count(struct local_qp *lq, unsigned int counter)
{
	counters_rare(qp_of_local(lq)->hca, counter);
}

void world_log(const struct local_qp *lq, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_info("QP 0x%x: %s", lq->qpn, text);
}
