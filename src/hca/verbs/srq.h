/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues: the program's calls (0 or a positive errno) and the responder's. */
#ifndef VERBENA_HCA_VERBS_SRQ_H
#define VERBENA_HCA_VERBS_SRQ_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "client/daemon.h"
#include "hca/verbs/recv_queue.h"
#include "hca/verbs/tags.h"

struct cq;
struct places;
struct xrcd;

struct hazard_scope;
struct hca;

struct srq {
	struct ibv_srq ibv;
	uint32_t handle;
	struct lock lock;
	struct recv_queue rq GUARDED_BY(lock);
	/* struct srq_places: for each CQ that its receives may complete to, which of its places
	 * were freed by polling there; and those freed by CQs that aren't among them any more. */
	struct list places GUARDED_BY(lock);
	uint32_t freed_before GUARDED_BY(lock);
	struct places *own_places; /* if it has a CQ of its own: of that one; else NULL */
	struct list held;
	uint32_t limit GUARDED_BY(lock); /* 0: not armed */
	uint32_t pd_id;
	struct cq *cq; /* of an XRC or a tag-matching SRQ: where its receives complete; else NULL */
	struct tags *tags PT_GUARDED_BY(lock); /* of a tag-matching SRQ: its list; else NULL */
	/* XRC, set when it is made; else NULL and 0. */
	struct xrcd *xrcd;
	uint32_t number; /* by which requests name it: a number of this process's, like a QPN */
	uint32_t index;	 /* its lower bits */
	uint32_t async_reported;
	struct list waiters; /* struct qp.srq_wait: QPs with a message and no receive; under
				hca.engine */
	/* 0 or 1: `waiters` may not be empty. Set by receive_wait() and cleared by the posting
	 * thread before it takes the list, both under hca.engine; atomic, because each post reads
	 * it without that lock. */
	_Atomic uint32_t has_waiters;
};

static inline struct srq *srq_of(struct ibv_srq *ibv)
{
	return container_of(ibv, struct srq, ibv);
}

struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
/* An SRQ of the type XRC; the caller has checked that the attributes are there. */
struct ibv_srq *srq_create_xrc(struct ibv_srq_init_attr_ex *attr);
/* A tag-matching SRQ; the caller has checked that PD and CQ are this context's. */
struct ibv_srq *srq_create_tm(struct ibv_srq_init_attr_ex *attr);
/* Has the daemon make it; for a new one, and for a process that returns. 0 or -errno. */
int srq_register(struct daemon_conn *conn, struct srq *srq, uint32_t max_wr, uint32_t max_sge,
		 struct ib_uverbs_create_srq_resp *resp);
int srq_modify(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int srq_query(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int srq_destroy(struct ibv_srq *srq);
int srq_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* ibv_post_srq_ops(3): 0; EINVAL: the SRQ matches no tags, or an operation is malformed; ENOMEM:
 * the list is full. */
int srq_post_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

/* Whether the next receive has room for a message. */
enum receive_fit { RECEIVE_FITS, RECEIVE_TOO_SHORT, RECEIVE_NONE };

/*
 * Takes the next receive into `out` (room for LIMIT_SGE segments) if it has room for `length`
 * bytes; else it stays the next one (see receive_take_fitting). Raises the limit event. Takes
 * srq.lock.
 */
enum receive_fit srq_take(struct srq *srq, uint32_t length, struct recv_wqe *out);

/* Takes the next receive into `out`, if it has one segment, in memory of this process's own, into
 * which `length` bytes fit. Returns their address; else 0, and nothing has happened. The region is
 * held until `scope` ends. Raises the limit event. Takes srq.lock. */
uint64_t srq_take_ordinary(struct srq *srq, const struct hca *hca, uint32_t length,
			   const struct hazard_scope *scope, struct recv_wqe *out);

/* What a message takes from a tag-matching SRQ. */
struct srq_match {
	struct tag *tag; /* the buffer whose tag it matches; NULL: an ordinary receive */
	bool far;	 /* the program must report the messages that it has handled */
};

/* Takes what a message with this tag is received by, an ordinary receive into `out`. `tag` NULL: it
 * has none, and isn't counted. False: it matches no buffer, and there is no receive. Takes
 * srq.lock, as the next three do. */
bool srq_take_tagged(struct srq *srq, const uint64_t *tag, struct recv_wqe *out,
		     struct srq_match *match);
/* The buffer has completed; its message didn't come; nor did one that took an ordinary receive, so
 * that the program won't count it. */
void srq_free_tag(struct srq *srq, struct tag *tag);
void srq_put_back_tag(struct srq *srq, struct tag *tag);
void srq_uncount(struct srq *srq);

/* Puts a taken receive back as the next one. */
void srq_give_back(struct srq *srq, const struct recv_wqe *wqe);

/* What polling a completion in this CQ frees of the SRQ. One user more; NULL: there is no memory.
 */
struct places *srq_use_places(struct srq *srq, struct cq *cq);
/* The user ends, and no completion of the CQ is its any more. */
void srq_leave_places(struct srq *srq, struct places *places);

#endif
