/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long the oldest datagram of a UD QP waits for its receiver, within the host: for room in the
 * link's ring, or while the receiver's queue is dry (datagram_inbox.h).
 *
 * The rule. A datagram waits for DATAGRAM_PATIENCE_NS at most, and then only if
 *   - all that is posted behind it goes to the same QP, and
 *   - that QP is of the same user, who could stop this process anyway.
 * and where it is the ring that is full, that time begins anew whenever the receiver takes
 * something off it: many QPs may wait for the same ring. Else it waits for DATAGRAM_SHARED_NS at
 * most, because others wait behind it, or because a stranger may want them to.
 *
 * The budget. The waits of a QP, together, take no longer than its budget, so a receiver that
 * always makes a little progress just in time can't hold the sender for most of the time. It is
 * full at first. Each datagram that was sent since adds DATAGRAM_EARNS_NS, several times what a
 * receiver needs for one, and the time that passes adds an eighth. When it is spent, what doesn't
 * find room, or finds the queue dry, is dropped at once.
 *
 * A receiver that this sender gave up isn't waited for again until it posts receives: its word
 * pub_qp.dry is the same as then.
 *
 * Of a QP, under qp.lock. No clock is read unless a datagram waits.
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
	bool shared;	      /* one of them, or the link, doesn't */
	uint32_t consumed;    /* of the ring, at the last look */
	uint32_t left_qpn;    /* the receiver that was given up last, and */
	uint32_t left_word;   /* its pub_qp.dry then */
};

/* The datagram `wqe`, at sq.next, can't go on `link` now; `dry` is its receiver's word, 0 if it is
 * the ring that is full. False: it has waited long enough, and is to be dropped. */
bool datagram_wait(struct qp *qp, const struct send_wqe *wqe, const struct link *link,
		   uint32_t dry);

/* It went, or was dropped. */
void datagram_wait_end_slow(struct qp *qp);

#endif
