/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long the oldest datagram of a UD QP waits for its receiver, within the host: for room in the
 * link's ring, or while the receiver's queue is dry (datagram_inbox.h).
 *
 * The rule. A datagram waits for DATAGRAM_PATIENCE_NS at most if
 *   - all that is posted behind it goes to the same QP, and
 *   - that QP is of the same user, who could stop this process anyway.
 * If it waits for room in the ring, that time begins anew whenever the receiver takes a record off
 * the ring: many QPs may wait for the same ring. In all other cases it waits for DATAGRAM_SHARED_NS
 * at most, because datagrams to other QPs wait behind it, or because a process of another user may
 * want them to wait.
 *
 * The budget. The waits of a QP, together, take no longer than its budget, so a receiver that
 * always makes a little progress just in time can't hold the sender for most of the time. The
 * budget is full at first. Each datagram that is sent adds DATAGRAM_EARNS_NS, several times what a
 * receiver needs for one, and the time that passes adds an eighth. When the budget is spent, a
 * datagram that finds no room, or a dry queue, is dropped at once.
 *
 * Once this sender has given a receiver up it doesn't wait for it again until that receiver posts
 * receives, which changes its word pub_qp.dry.
 *
 * The state belongs to a QP (qp.ud_wait), under qp.lock. No clock is read unless a datagram waits.
 *
 * Whether a datagram waits is `since`: 0, or when the wait began. A wait begins and ends here:
 *   begins   datagram_wait() at the first look: `since`, `scanned`, `shared` and the budget are set
 *   begins   datagram_wait(): `since` is set to now, if the receiver has taken a record and the
 *   anew     wait isn't shared
 *   ends     datagram_wait_end_slow(): the datagram was sent or dropped; the budget is charged
 * `shared` belongs to the wait and means nothing outside it. It is set once a request behind the
 * datagram goes elsewhere, or at the beginning for a link to another user's process, and stays set
 * until the wait ends. It isn't a state of its own: it only selects the limit.
 */
#ifndef VERBENA_HCA_LOCAL_DATAGRAM_WAIT_H
#define VERBENA_HCA_LOCAL_DATAGRAM_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#define DATAGRAM_SHARED_NS 20000000ull
#define DATAGRAM_EARNS_NS 50000ull

struct link;
struct qp;
struct send_wqe;

struct datagram_wait {
	uint64_t since;	      /* ns: the datagram at sq.next waits since then; 0: it doesn't */
	uint64_t deadline;    /* ns: when it is dropped; 0: none waits */
	uint64_t budget;      /* ns that the QP may still wait, at `counted_at` */
	uint64_t counted_at;  /* ns; 0: it has never waited */
	uint32_t counted_psn; /* qp.ud_psn then */
	uint32_t scanned;     /* requests below this go to the same QP as the waiting one */
	bool shared;	      /* some don't, or the link is to another user's process; see above */
	uint32_t consumed;    /* of the ring, at the last look */
	uint32_t left_qpn;    /* the receiver that was given up last, ... */
	uint32_t left_word;   /* ... and its pub_qp.dry then */
};

/* The datagram `wqe`, at sq.next, can't be sent by `link` now; `dry` is its receiver's word, or
 * 0 if the ring is full. True: it waits on. False: it has waited long enough, and is to be
 * dropped. */
bool datagram_wait(struct qp *qp, const struct send_wqe *wqe, const struct link *link,
		   uint32_t dry);

/* The wait is over: the datagram was sent or dropped. */
void datagram_wait_end_slow(struct qp *qp);

#endif
