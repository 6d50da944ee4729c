/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: the program's calls (each returns 0 or a positive errno as the manual pages say),
 * and the functions that requester, responder and engine call on one another.
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
#include "hca/verbs/recv_queue.h"
#include "hca/verbs/send_queue.h"

struct carrier;
struct context;
struct datagram_inbox;
struct fanout;
struct hazard_scope;
struct hca;
struct link;
struct local_conn;
struct own_hazards;
struct roce_qp;
struct srq;

struct qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	struct lock lock;
	struct hca *hca;
	struct context *context;
	struct srq *srq;
	uint32_t pd_id;
	uint32_t index; /* in hca.qps and in the published table */
	uint32_t handle;
	struct list held;
	uint8_t type;  /* enum ibv_qp_type */
	uint8_t state; /* enum ibv_qp_state; ibv.state changes by the program's calls only */
	bool sq_sig_all;
	bool has_ex;
	bool sqd_notify;	 /* SQD: the program asked for an event when it is drained */
	bool comm_established;	 /* IBV_EVENT_COMM_EST was raised */
	struct ibv_qp_attr attr; /* as last set by ibv_modify_qp */
	struct ibv_qp_cap cap;
	uint32_t epoch; /* low 8 bits travel in records */

	struct own_hazards *hazards; /* its regions that are being copied (mem/hazard.h) */
	struct send_queue sq GUARDED_BY(lock);
	struct recv_queue rq GUARDED_BY(lock);

	struct list groups;    /* struct member: groups it is attached to; under engine (mcast.c) */
	struct fanout *fanout; /* of a datagram to a group; NULL: it has sent none */

	const struct carrier *carrier; /* never NULL: carrier.h */
	bool starved GUARDED_BY(lock); /* a message waits for a receive: carrier.receive_posted */
	struct local_conn *local;      /* what carrier_self and carrier_local remember, else NULL */
	struct roce_qp *roce;	       /* what carrier_roce remembers, else NULL: roce.h */
	uint32_t ud_psn;	       /* of the next datagram */
	struct datagram_wait ud_wait;  /* how long the datagram at sq.next has waited */
	struct datagram_inbox *inbox;  /* UD: datagrams that wait here for a receive, else NULL */
	uint8_t sgid[16];	       /* RC and UC: of its path */

	struct list srq_wait; /* on srq.waiters: a message waits for a receive; under engine */

	/* ---- for carriers that wait for links, or have requests that may stall (qp_timer.c) */
	struct list room_wait;	/* on roce.waiters: the socket is full; under roce.list_lock */
	struct list tx_wait;	/* on link.waiters: ring full or link not up; under link.tx_lock */
	struct link *wait_link; /* the link that it waits, or last waited, for */
	struct list active;	/* on hca.active; under hca.active_lock */
	_Atomic bool is_active;
	uint32_t scan_acked;	/* sq.acked at the last scan */
	uint64_t stalled_since; /* ns when progress stopped; 0: it didn't */

	/* ibv_wr_* being built */
	uint32_t wr_head;
	int wr_error;
	struct send_wqe *wr_current;

	uint32_t async_reported;
};

static inline struct qp *qp_of(struct ibv_qp *ibv)
{
	return container_of(ibv, struct qp, ibv);
}

/* ---- the program's calls */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int qp_destroy(struct ibv_qp *qp);
struct ibv_qp_ex *qp_to_ex(struct ibv_qp *qp);
int sq_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int rq_post(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The command by which the daemon makes this QP. */
struct ib_uverbs_create_qp qp_create_command(const struct qp *qp);

/* ---- states (qp_state.c): the table of the specification, 10.3 and 11.2.5.2 */
/* Whether `mask` may take a QP of `type` from `from` to `to`: 0 or EINVAL (and why, in the log). */
int qp_state_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask);
const char *qp_state_name(enum ibv_qp_state state);

/* ---- inside the HCA; qp.lock is held by the caller of each */

/* The rights that this QP grants its peer. Without resources for READs and atomics it grants
 * neither. */
static inline uint32_t qp_remote_access(const struct qp *qp)
{
	return qp->attr.max_dest_rd_atomic
		       ? qp->attr.qp_access_flags
		       : qp->attr.qp_access_flags & (unsigned int)IBV_ACCESS_REMOTE_WRITE;
}
/* Writes the QP's published entry. */
void qp_publish(struct qp *qp) REQUIRES(qp->lock);
/* Moves the QP to the error state: flushes both queues; raises `event` unless it is negative. */
void qp_fail(struct qp *qp, int event) REQUIRES(qp->lock);
/* SQD: the last request under way has completed. Raises the event that the program asked for,
 * once. */
void qp_drained(struct qp *qp);

/* ---- timers (qp_timer.c) */
/* For how long (ns) the QP has made no progress; 0 at the first look after progress. */
uint64_t qp_stalled_ns(struct qp *qp, uint64_t now) REQUIRES(qp->lock);
/* The QP needs no timer any more. hca.engine is held, too. */
void qp_timer_stop(struct qp *qp);
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
/* Starts the requests that may start, in order, and rings the peer. */
void sq_run(struct qp *qp) REQUIRES(qp->lock);
/* Completes the oldest WQE with success (or an error, which fails the QP). */
void sq_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status) REQUIRES(qp->lock);
/* Completes all requests of the queue with IBV_WC_WR_FLUSH_ERR. */
void sq_flush(struct qp *qp) REQUIRES(qp->lock);
/* The WQE at sq.next failed on this side before any of it was sent: ERR, or SQE for UC and UD. */
void sq_fail_local(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
	REQUIRES(qp->lock);
/* The path MTU as a shift; the number of packets of a request, or of a READ's answer. */
static inline uint32_t sq_mtu_shift(const struct qp *qp)
{
	return 7 + qp->attr.path_mtu;
}
static inline uint32_t sq_packets(const struct qp *qp, const struct send_wqe *wqe)
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
