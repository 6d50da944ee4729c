/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines in the log (warn) that say why a call was refused or a request failed, because an errno or
 * a status has many causes. One of each kind for a QP, and a few of each kind for a process. The
 * functions are called when something went wrong already, and read again what it was.
 *
 * What an ordinary end looks like isn't said: requests that are flushed.
 */
#ifndef VERBENA_HCA_VERBS_SAY_H
#define VERBENA_HCA_VERBS_SAY_H

#include "hca/verbs/qp.h"

/* What qp.said remembers. */
enum said { SAID_SEND = 1, SAID_RECEIVE = 2, SAID_FAILURE = 4 };

/* ibv_create_qp() fails because of its arguments. */
void say_no_qp(const struct ibv_qp_init_attr_ex *attr);
/* ibv_post_send() refuses this request, other than for want of room. */
void say_send_refused(struct qp *qp, const struct ibv_send_wr *wr, int err) REQUIRES(qp->lock);
/* ibv_wr_complete() refuses what was built, likewise. Takes qp.lock. */
void say_built_refused(struct qp *qp);
/* ibv_post_recv() refuses this receive, likewise. */
void say_receive_refused(struct qp *qp, const struct ibv_recv_wr *wr, int err) REQUIRES(qp->lock);
/* ibv_post_srq_recv() refuses this receive, likewise. */
void say_srq_refused(uint32_t max_sge, const struct ibv_recv_wr *wr, int err);
/* A request of the send queue, or a receive, completes with this status. */
void say_send_failed(struct qp *qp, uint64_t wr_id, enum ibv_wc_status status) REQUIRES(qp->lock);
void say_receive_failed(struct qp *qp, uint64_t wr_id, enum ibv_wc_status status)
	REQUIRES(qp->lock);
/* The QP goes to ERR with this event because of what its peer asked for. */
void say_peer_refused(struct qp *qp, int event) REQUIRES(qp->lock);

#endif
