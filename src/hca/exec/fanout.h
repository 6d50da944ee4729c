/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A datagram or frame to several processes of the host: a record goes into the ring of each, one
 * after the other, while there is room. qp.lock is held by the caller of each function.
 */
#ifndef VERBENA_HCA_EXEC_FANOUT_H
#define VERBENA_HCA_EXEC_FANOUT_H

#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"
#include "shm/groups.h"

/* The slots to which the request at sq.next is still to be sent. */
struct fanout {
	uint64_t left[GROUPS_WORDS];
};

/* The QP's fanout, made if there is none; NULL: no memory. */
struct fanout *fanout_get(struct qp *qp) REQUIRES(qp->lock);

/* Which of the processes get a request. */
struct audience {
	bool (*reaches)(const struct link *link, void *arg);
	void *arg;
};

/* Sends the request to the slots that are left, and in the audience (NULL: all are). Completes it,
 * or has the QP resumed later. */
enum step fanout_go_on(struct qp *qp, struct send_wqe *wqe, const struct iovec *local, int count,
		       const struct audience *audience) REQUIRES(qp->lock);

/* datagram_carrier.skip: the process that the request waits for doesn't take it; the QP goes on
 * with the others. */
void fanout_skip(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock);

#endif
