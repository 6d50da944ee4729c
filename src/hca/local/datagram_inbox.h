/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams within a host: back-pressure from a receiver to its senders.
 *
 * The rule. A datagram to a QP of this host that fits it (Q_Key, length, state) is dropped for want
 * of a receive, or of room in the link's ring, only
 *   - when the receiver's QP never had a receive since RESET, or
 *   - when its receiver made no progress for DATAGRAM_PATIENCE_NS, or its sender's wait ended
 *     (datagram_wait.h), or
 *   - when the datagrams that are kept here reach their bounds in bytes.
 * The process that drops a datagram counts it (shm/counters.h), so that
 *   sends completed = receives completed + what both processes count as dropped.
 *
 * The receiver's side, this file. A UD QP from RTR to RESET has an inbox, in one of these states:
 *
 *   state   arriving datagram               changes to
 *   OPEN    takes a receive; if the queue   DRY   no receive is left, though there had been one
 *           never had one: dropped
 *   DRY     is kept behind the others       OPEN  receives were posted, none is kept any more
 *                                           LEFT  no kept one found a receive for
 *                                                 DATAGRAM_PATIENCE_NS: all of them are dropped
 *   LEFT    dropped                         OPEN  a receive was posted
 *
 * The state is published (struct pub_qp.dry). A sender that reads DRY lets its datagram wait; a
 * sender that reads OPEN or LEFT sends it. The kept datagrams are those that were in the rings when
 * the queue ran dry; they leave the rings, so other QPs of the link go on.
 *
 * Which process writes what. The inbox: this process, under hca.engine and qp.lock. pub_qp.dry: the
 * same, read by any peer at any time. It is advice: a sender that reads an old value sends a
 * datagram which is kept, or waits until the next look. No sender sleeps through a change: it is on
 * its link's list of waiting QPs before [A1], and reads pub_qp.dry once more after it; this process
 * changes the word before [S1] and rings the peers that sent datagrams. If this process dies, the
 * link goes down, and its senders go on.
 */
#ifndef VERBENA_HCA_LOCAL_DATAGRAM_INBOX_H
#define VERBENA_HCA_LOCAL_DATAGRAM_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "hca/exec/execute.h"

struct link;

/* How long a receiver may make no progress before its kept datagrams are dropped. */
#define DATAGRAM_PATIENCE_NS 200000000ull

struct datagram_inbox {
	struct qp *qp;
	struct list node; /* on hca.dry, in state DRY; under hca.engine */
	struct list kept; /* struct kept, oldest first */
	uint32_t bytes;	  /* of `kept` */
	uint8_t state;	  /* enum pub_qp_dry */
	uint64_t since;	  /* ns: when the state became DRY, or of the last progress */
};

/* Makes qp->inbox, at RTR. 0 or ENOMEM. hca.engine and qp.lock are held, here and below. */
int datagram_inbox_make(struct qp *qp) REQUIRES(qp->lock);
/* RESET, or the QP's end: drops the kept datagrams and frees the inbox. */
void datagram_inbox_free(struct qp *qp) REQUIRES(qp->lock);
/* ERR: drops the kept datagrams. */
void datagram_inbox_clear(struct qp *qp) REQUIRES(qp->lock);
/* In a forked child, without locks: frees the kept datagrams, which are the parent's. */
void datagram_inbox_leave(struct qp *qp) REQUIRES(qp->lock);

/* A datagram came by `link`: places or keeps it (both DATAGRAM_TAKEN), or says why it was
 * dropped. */
enum datagram_fate datagram_inbox_take(struct qp *qp, struct link *link, const struct record_ud *ud,
				       const struct arrival *arrival, const uint8_t *payload)
	REQUIRES(qp->lock);

/* Receives were posted: places the kept datagrams into them. */
void datagram_inbox_receive_posted(struct qp *qp) REQUIRES(qp->lock);

/* Ends inboxes that were DRY for too long. Returns when to look again (ns; UINT64_MAX: never).
 * hca.engine is held, and no other lock. */
uint64_t datagram_inbox_scan(struct hca *hca, uint64_t now) REQUIRES(hca->engine);

/* Counts a datagram that was dropped here. */
void datagram_count_fate(struct hca *hca, enum datagram_fate fate);

#endif
