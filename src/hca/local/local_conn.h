/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the local carrier remembers of a connected QP, from RTR to RESET: the core's state machine
 * (core/local_qp.h) and its places in this process's lists. Changes under qp.lock; where another
 * lock is needed it is named beside the field.
 */
#ifndef VERBENA_HCA_LOCAL_LOCAL_CONN_H
#define VERBENA_HCA_LOCAL_LOCAL_CONN_H

#include "hca/local/core/local_qp.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"

struct path;

struct local_conn {
	struct qp *qp;
	struct path *path;	 /* of a QP on a fabric, else NULL: fabric/path.h */
	struct link *link;	 /* to the peer's process */
	struct local_conn *next; /* of the same XRC initiator: xrc_carrier.h */
	struct list ack_node;	 /* on hca.acks: an acknowledgement is owed; under engine */
	/* The peer's QP to which a record has carried an acknowledgement since the peer was last
	 * notified; 0: none; LINK_ANY_QP: several. */
	uint32_t carried_to;
	/* Where the count of what this QP has taken is published: of RC its place in the published
	 * memory, of other types `untaken`, which nothing reads. Set once. */
	_Atomic uint64_t *taken;
	_Atomic uint64_t untaken;
	struct list rnr_node; /* on hca.rnr: a responder's timer runs; under engine */
	/* Of an XRC initiator: this side has reported that life of the target QP, because the
	 * process with the SRQ is gone. The request that was refused is the last one, so it is
	 * never cleared. */
	bool reported;
	uint32_t reported_epoch;
	struct local_qp core;
};

static inline struct local_conn *local_conn_of(const struct local_qp *lq)
{
	return container_of(lq, struct local_conn, core);
}

/* A connection to the process at `slot`, with its link, and on a fabric its path. NULL: out of
 * memory. */
struct local_conn *local_conn_new(struct qp *qp, uint32_t slot);
void local_conn_free(struct local_conn *conn);

/* The link of a QP that has this carrier, else NULL. */
static inline struct link *local_link_of(const struct qp *qp) REQUIRES(qp->lock)
{
	return qp->local ? qp->local->link : NULL;
}

#endif
