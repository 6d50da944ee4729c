/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: the program's calls (each returns 0 or a positive errno as the manual pages say),
 * and the functions that requester, responder and engine call on one another.
 *
 * The states of a QP are InfiniBand's (qp.state; qp_state.c has their transitions). Flags beside
 * them:
 *   flag              set by                             cleared by
 *   sqd_notify        RTS -> SQD, if the program asked   qp_drained(), which raises the event;
 *                     for an event (qp_enter())          RESET
 *   comm_established  execute_established(): the first   RESET
 *                     message in RTR; raises the event
 *   starved           receive_wait(): a message waits    receive_wait(); qp_fail(), RESET, the end;
 *                     for a receive                      leave_qp(), after fork()
 *   is_active         engine_watch_qp(): a request       scan_and_return(), when the carrier's
 *                     was started                        timer has ended and the QP wasn't used
 *                                                        lately; qp_timer_stop(); leave_qp()
 * The first three change under qp.lock, and each is a fact within one or more of the states: an
 * event that is owed, an event that was raised, work for the thread that posts receives.
 * `is_active` says that the QP is on hca.active, or in the batch of the scan that is under way. It
 * changes under qp.lock and hca.active_lock together; it is atomic because each post reads it under
 * qp.lock only, in the middle of a fast path.
 */
#ifndef VERBENA_HCA_VERBS_QP_H
#define VERBENA_HCA_VERBS_QP_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/cpu.h"
#include "base/list.h"
#include "base/lock.h"
#include "client/daemon.h"
#include "hca/local/datagram_wait.h"
#include "hca/local/record.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/places.h"
#include "hca/verbs/recv_queue.h"
#include "hca/verbs/send_queue.h"
#include "shm/pub.h"

struct carrier;
struct context;
struct cq;
struct datagram_inbox;
struct fanout;
struct hazard_scope;
struct hca;
struct link;
struct local_conn;
struct own_hazards;
struct pace;
struct roce_qp;
struct route;
struct spread;
struct srq;
struct ways;
struct wq;
struct xrc_conns;
struct xrc_handle;

/*
 * What a program builds between ibv_wr_start() and ibv_wr_complete(), apart from the send queue.
 * Meanwhile it may make any other call, those included that wait for the daemon, so qp.lock isn't
 * held; `turn` keeps other builders out. Order: turn before every other lock.
 */
struct wr_builder {
	struct lock turn;
	/* Requests [0, built.head); of the size that the QP's send queue has. No memory if the QP
	 * wasn't created for ibv_wr_*. */
	struct send_queue built GUARDED_BY(turn);
	int error GUARDED_BY(turn);		   /* of the first wrong call, else 0 */
	struct send_wqe *current GUARDED_BY(turn); /* what ibv_wr_set_* describe; NULL: nothing */
	/* What ibv_wr_set_xrc_srqn() describes: requests without a payload as well. */
	struct send_wqe *addressed GUARDED_BY(turn);
};

struct qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	struct lock lock;
	struct hca *hca;
	struct context *context;
	struct srq *srq;
	/* The CQs that it completes to; NULL: none. Set by qp_new(); of a stand-in (xrc_target.h),
	 * like `srq` and `pd_id`, by xrc_aim(), under qp.lock. */
	struct cq *send_cq, *recv_cq;
	struct tagged *tagged; /* if its SRQ matches tags (verbs/tagged.h), else NULL */
	uint32_t pd_id;
	uint32_t index; /* in hca.qps and in the published table */
	uint32_t handle;
	struct list held;
	uint8_t type; /* enum ibv_qp_type */
	/* enum ibv_qp_state; ibv.state changes by the program's calls only */
	uint8_t state GUARDED_BY(lock);
	/* Set by qp_create() before any other thread knows the QP, and never changed, so no lock
	 * guards them: each request completes with a completion; the program asked for ibv_wr_*. */
	bool sq_sig_all;
	bool has_ex;
	/* SQD: the program asked for an event when it is drained. */
	bool sqd_notify GUARDED_BY(lock);
	bool comm_established GUARDED_BY(lock);	  /* IBV_EVENT_COMM_EST was raised */
	uint8_t said GUARDED_BY(lock);		  /* enum said: what the log has of it */
	struct ibv_qp_attr attr GUARDED_BY(lock); /* as last set by ibv_modify_qp */
	struct ibv_qp_cap cap;
	uint32_t epoch GUARDED_BY(lock); /* low 8 bits travel in records */

	struct pace *pace GUARDED_BY(lock); /* its rate limit; NULL: none (pace.h) */
	/* UD; set by qp_create() before any other thread knows the QP, and never changed, so no
	 * lock guards them: the number that its datagrams carry as their source; what it sends to a
	 * group isn't delivered to itself. */
	uint32_t source_qpn;
	bool blocks_self;
	/* Raw packets; likewise: a QP that has no queues, but spreads its frames over work queues;
	 * or the work queue that this QP is the inside of. NULL: neither. */
	struct spread *spread;
	struct wq *wq;
	/* Raw packets: VLAN tags are taken out of received frames. Atomic: ibv_modify_wq() changes
	 * it. */
	_Atomic bool strips_tag;

	struct own_hazards *hazards; /* its regions that are being copied (mem/hazard.h) */
	struct send_queue sq GUARDED_BY(lock);
	struct recv_queue rq GUARDED_BY(lock);

	struct list windows;	 /* struct mw.by_qp: type 2 windows; under hca.windows_lock */
	struct list window_wait; /* on mw.waiters; under hca.windows_lock */
	/* struct member: groups it is attached to; under hca.engine (mcast.c) */
	struct list groups;
	struct list flows; /* struct flow.by_qp; under hca.engine */
	/* Of a datagram to a group; NULL: it has sent none. */
	struct fanout *fanout GUARDED_BY(lock);

	const struct carrier *carrier GUARDED_BY(lock); /* never NULL: carrier.h */
	bool starved GUARDED_BY(lock); /* a message waits for a receive: carrier.receive_posted */
	/* What carrier_self and carrier_local remember, else NULL. */
	struct local_conn *local GUARDED_BY(lock);
	struct roce_qp *roce GUARDED_BY(lock); /* what carrier_roce remembers, else NULL: roce.h */
	/* What carrier_xrc remembers, else NULL: `local` is then its current one, or NULL. */
	struct xrc_conns *xrc GUARDED_BY(lock);
	/* Of a handle of an XRC target queue pair, else NULL. Set when it is made. */
	struct xrc_handle *target;
	uint32_t ud_psn GUARDED_BY(lock); /* of the next datagram */
	/* RoCE: hca.polls when a datagram was last about to be sent; whether those that waited for
	 * more are sent now (roce_datagram.c). */
	uint32_t ud_polls GUARDED_BY(lock);
	bool ud_goes GUARDED_BY(lock);
	/* How long the datagram at sq.next has waited. */
	struct datagram_wait ud_wait GUARDED_BY(lock);
	struct ways *ways GUARDED_BY(lock); /* UD on a fabric, else NULL: fabric/ways.h */
	/* UD: datagrams that wait here for a receive, else NULL. */
	struct datagram_inbox *inbox GUARDED_BY(lock);
	uint8_t sgid[16] GUARDED_BY(lock); /* RC and UC: of its path */

	struct list srq_wait; /* on srq.waiters: a message waits for a receive; under hca.engine */

	/* (Places in lists aren't annotated, here and above: qp_new() initialises them without the
	 * lists' locks. The lists themselves are.) */

	/* ---- for carriers that wait for links, or have requests that may stall (qp_timer.c) */
	/* On roce.waiters: the socket is full; or on roce.held: datagrams wait for more. Under
	 * roce.list_lock. */
	struct list room_wait;
	struct list
		tx_wait; /* on link.waiters: ring full or link not up; under wait_link.tx_lock */
	struct link *wait_link GUARDED_BY(lock); /* the link that it waits, or last waited, for */
	struct list active;			 /* on hca.active; under hca.active_lock */
	_Atomic bool is_active;			 /* on that list, or in a scan's batch */
	uint32_t scan_acked GUARDED_BY(lock);	 /* sq.acked at the last scan */
	uint32_t scan_posted GUARDED_BY(lock);	 /* sq.head at the last scan without requests */
	uint64_t stalled_since GUARDED_BY(lock); /* ns when progress stopped; 0: it didn't */

	struct wr_builder builder;

	/* What polling has freed of its queues. By threads that poll: hence these lines hold
	 * nothing that others use. */
	struct {
		uint8_t before[CACHE_LINE];
		struct places sends, receives;
		uint8_t behind[CACHE_LINE];
	} freed;
	/* What polling a receive's completion frees: freed.receives, or a place of its SRQ. Set as
	 * recv_cq is. */
	struct places *receives;

	uint32_t async_reported;
};

static inline struct qp *qp_of(struct ibv_qp *ibv)
{
	return container_of(ibv, struct qp, ibv);
}

/* ---- the program's calls */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* The QP inside a work queue, which must be known before the engine finds it. `attr`: of type
 * RAW_PACKET. */
struct ibv_qp *qp_create_for_wq(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				struct wq *wq);
int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
/* ibv_modify_qp_rate_limit(3): 0; EINVAL: not in RTR, RTS or SQD; ENOMEM. */
int qp_limit_rate(struct ibv_qp *qp, const struct ibv_qp_rate_limit_attr *limit);
int qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int qp_destroy(struct ibv_qp *qp);
struct ibv_qp_ex *qp_to_ex(struct ibv_qp *qp);
int sq_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int sq_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int rq_post(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The command by which the daemon makes this QP. */
void qp_create_command(const struct qp *qp, struct ib_uverbs_create_qp *cmd);

/* ---- states (qp_state.c): the table of the specification, 10.3 and 11.2.5.2 */
/* Whether `mask` may take a QP of `type` from `from` to `to`: 0 or EINVAL (and why, in the log). */
int qp_state_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask);
/* `mask` without the attributes that an end of XRC doesn't have: the kernel ignores them, since
 * programs give both ends the same. */
int qp_state_mask(enum ibv_qp_type type, int mask);
const char *qp_state_name(enum ibv_qp_state state);

/* Checks the values of the attributes in `mask`; finds the way to the peer if an address is among
 * them. 0 or a positive errno. */
int qp_check_values(struct qp *qp, const struct ibv_qp_attr *attr, int mask, struct route *route);
/* Copies the attributes in `mask`. */
void qp_copy_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *attr, int mask);

/* Whether its messages are acknowledged. */
static inline bool qp_is_reliable(const struct qp *qp)
{
	return qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND ||
	       qp->type == IBV_QPT_XRC_RECV;
}

/* ---- inside the HCA; qp.lock is held by the caller of each */

/* The rights that a QP with these attributes grants its peer. Without resources for READs and
 * atomics it grants neither. */
static inline uint32_t attr_remote_access(const struct ibv_qp_attr *attr)
{
	return attr->max_dest_rd_atomic
		       ? attr->qp_access_flags
		       : attr->qp_access_flags & (unsigned int)IBV_ACCESS_REMOTE_WRITE;
}

/* The same, as it is published (shm/pub.h). */
static inline uint32_t attr_published_rights(const struct ibv_qp_attr *attr)
{
	return (attr_remote_access(attr) & PUB_QP_ACCESS) |
	       (attr->max_dest_rd_atomic ? PUB_QP_ANSWERS : 0);
}

static inline uint32_t qp_remote_access(const struct qp *qp) REQUIRES(qp->lock)
{
	return attr_remote_access(&qp->attr);
}

/* The QP's number, which the program can't change as it can ibv.qp_num. */
uint32_t qp_number(const struct qp *qp);
/* Writes the QP's published entry. */
void qp_publish(struct qp *qp) REQUIRES(qp->lock);
/* Moves the QP to the error state: flushes both queues; raises `event` unless it is negative. */
void qp_fail(struct qp *qp, int event) REQUIRES(qp->lock);
/* The QP's connection ends: takes the QP off every list, and its carrier from it. hca.engine is
 * held. */
void qp_disconnect(struct qp *qp) REQUIRES(qp->lock);
/* SQD: the last request under way has completed. Raises the event that the program asked for,
 * once. */
void qp_drained(struct qp *qp) REQUIRES(qp->lock);

/* ---- timers (qp_timer.c) */
/* For how long (ns) the QP has made no progress; 0 at the first look after progress. */
uint64_t qp_stalled_ns(struct qp *qp, uint64_t now) REQUIRES(qp->lock);
/* The QP needs no timer any more. hca.engine is held, too. */
void qp_timer_stop(struct qp *qp) REQUIRES(qp->lock);
/* Runs the timers of all QPs with requests that aren't completed. `now` in ns; returns when to look
 * again (ns; UINT64_MAX: never). No lock is held. */
uint64_t qp_timers_scan(struct hca *hca, uint64_t now);

/* ---- send queue (sq.c) */
/* Sets the destination of a datagram: a copy of the AH's fields, since the AH may end before it is
 * sent. */
static inline void sq_address(struct send_wqe *wqe, const struct ah *ah, uint32_t qpn,
			      uint32_t qkey)
{
	wqe->ud.to = ah->to;
	wqe->ud.to.qkey = qkey;
	wqe->ud.remote_qpn = qpn;
	wqe->ud.carrier = ah->carrier;
	wqe->ud.beyond = ah->beyond;
	wqe->ud.ifindex = ah->ifindex;
}
/* The same for a frame, which has its destination in it. `flags`: enum ibv_send_flags. */
void sq_to_segment(struct send_wqe *wqe, unsigned int flags);
/* Makes it a request that its QP lacks (WR_LACKED). */
void sq_lack(struct send_wqe *wqe);
/* Shortens the request's segments, which have more, to the first `bytes`. */
void sq_trim(struct send_wqe *wqe, uint32_t bytes);
/* Starts the requests that may start, in order, and rings the peer. */
void sq_run(struct qp *qp) REQUIRES(qp->lock);
/* The same after requests were posted, or flushes them. */
void sq_start_posted(struct qp *qp) REQUIRES(qp->lock);
/* Whether `count` more of them are free, if sq.room doesn't know it. Says in the log why not. */
bool sq_find_room(struct qp *qp, uint32_t count) REQUIRES(qp->lock);
/* Whether the program may post `count` more requests. */
static inline bool sq_has_room(struct qp *qp, uint32_t count) REQUIRES(qp->lock)
{
	return likely(qp->sq.room - sq_end(&qp->sq) >= count) || sq_find_room(qp, count);
}
/* `count` more requests have been written behind sq_end(). */
static inline void sq_grow(struct qp *qp, uint32_t count) REQUIRES(qp->lock)
{
	if (unlikely(qp->pace != NULL))
		qp->sq.held += count;
	else
		qp->sq.head += count;
}
/* Completes the oldest WQE with success (or an error, which fails the QP). */
void sq_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status) REQUIRES(qp->lock);
/* Completes all requests of the queue with IBV_WC_WR_FLUSH_ERR. */
void sq_flush(struct qp *qp) REQUIRES(qp->lock);
/* Starts what was posted, or flushes it. */
static inline void sq_go_on(struct qp *qp) REQUIRES(qp->lock)
{
	if (likely(qp->state == IBV_QPS_RTS))
		sq_run(qp);
	else if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		sq_flush(qp);
}
/* The WQE at sq.next failed on this side before any of it was sent: ERR, or SQE for UC and UD. */
void sq_fail_local(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
	REQUIRES(qp->lock);
/* The path MTU as a shift; the number of packets of a request, or of a READ's answer. */
static inline uint32_t sq_mtu_shift(const struct qp *qp) REQUIRES(qp->lock)
{
	return 7 + qp->attr.path_mtu;
}
static inline uint32_t sq_packets(const struct qp *qp, const struct send_wqe *wqe)
	REQUIRES(qp->lock)
{
	uint32_t shift = sq_mtu_shift(qp);

	return likely(wqe->length >> shift == 0)
		       ? 1
		       : (uint32_t)(((uint64_t)wqe->length + (1u << shift) - 1) >> shift);
}
/* Resolves the segments of a request's own memory, or of its inline data. Result as of
 * mr_resolve_list(). */
int sq_segments(struct qp *qp, const struct send_wqe *wqe, uint32_t access, struct iovec *out,
		const struct hazard_scope *scope);

/* ---- receive queue (rq.c) */
/* Completes all receives of the QP's own queue, if it has one, with IBV_WC_WR_FLUSH_ERR. */
void rq_flush(struct qp *qp) REQUIRES(qp->lock);

#endif
