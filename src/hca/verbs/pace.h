/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What holds a QP's requests back: its rate limit (ibv_modify_qp_rate_limit, IBV_QP_RATE_LIMIT), on
 * every carrier, and on a fabric the time that its messages need, if links or faults take time
 * (pace_timed.c).
 *
 * Such a QP's requests enter its send queue held back: they lie behind sq.head, and sq.held
 * counts them. Carriers see requests up to head only. pace_release() moves head as the time allows:
 * a request may begin when those before it have had as long as their bytes take at the limit (and
 * `burst` bytes are in advance). So the limit is kept over requests; one request's packets leave as
 * fast as ever. The timers release what the program's posts don't: those of the engine thread, and,
 * so that a thread which polls needn't be woken for that, those of any poller that finds its CQ
 * empty (pace_poll()).
 *
 * When to look again, without a lock:
 *   hca.pace_at    ns; the earliest request that is held back may be released. UINT64_MAX: there is
 *                  none, so that a poller of a process without such QPs reads one word
 *   hca.awake_at   ns; when the engine thread wakes by itself
 * A thread that finds a QP's next release lowers pace_at, and then kicks the engine thread if that
 * would sleep longer; the engine thread stores awake_at, and then looks at pace_at. One of the two
 * sees the other's store, since both are sequentially consistent.
 *
 * Everything else is under qp.lock.
 */
#ifndef VERBENA_HCA_VERBS_PACE_H
#define VERBENA_HCA_VERBS_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"

struct transit;
struct transit_times;
struct late;

struct pace {
	uint32_t kbps;	   /* kilobits per second, of payload; 0: no limit */
	uint64_t burst_ns; /* what `burst` bytes take */
	uint64_t next;	   /* when the next request may begin, ns */

	/* ---- pace_timed.c */
	struct transit *transit;     /* NULL: messages need no time */
	struct transit_times *times; /* by place in the queue */
	struct late *late;	     /* completions that wait for acknowledgements: a ring */
	uint32_t late_first, late_count;
	uint32_t entered;
	bool is_busy; /* something is still to be sent */
};

/* Limits the QP; 0 ends that. 0 or ENOMEM. */
int pace_set(struct qp *qp, uint32_t kbps, uint32_t burst) REQUIRES(qp->lock);
/* Releases the requests that may begin. The caller calls sq_go_on() then. */
void pace_release(struct qp *qp) REQUIRES(qp->lock);
/* The same from a timer, and starts them. Lowers *next to when it is to be called again. False:
 * nothing is held back. */
bool pace_expire(struct qp *qp, uint64_t now, uint64_t *next) REQUIRES(qp->lock);
/* Requests have been held back: has the timers release them as soon as they may. */
void pace_hold(struct qp *qp) REQUIRES(qp->lock);
/* All that was held back has been flushed: sq.held is 0. */
void pace_forget(struct qp *qp) REQUIRES(qp->lock);

/* A request of so many bytes begins: when the next one may. */
void pace_charge(struct pace *pace, uint64_t now, uint64_t bytes);

/* Releases what is due in this process. No lock is held. */
void pace_poll_slow(struct hca *hca);
static inline void pace_poll(struct hca *hca)
{
	if (unlikely(atomic_load_explicit(&hca->pace_at, memory_order_relaxed) != UINT64_MAX))
		pace_poll_slow(hca);
}
/* The timers are to look at a QP at this time (ns), or before. */
void pace_note(struct hca *hca, uint64_t at);
/* A thread is about to look at all QPs' timers. */
void pace_look(struct hca *hca, uint64_t now);
/* The engine thread is about to sleep until `next` (ns): the time until which it may. */
uint64_t pace_sleep(struct hca *hca, uint64_t next);

/* ---- pace_timed.c */
/* A new QP, which no other thread knows: makes qp.pace if its messages need time. 0 or ENOMEM. */
int pace_timed_make(struct qp *qp);
/* A request is about to start by a way on which a fault takes time. True: it and those behind it
 * are held back from now on, and the timers release them. False: that was the case before, so that
 * its time has passed; or memory is missing. */
bool pace_timed_hold(struct qp *qp) REQUIRES(qp->lock);
/* Ends that if nothing is held back and no way takes time any more. */
void pace_timed_end(struct qp *qp) REQUIRES(qp->lock);
/* A request's completion, which comes when its acknowledgement, and those before it, are back. */
void pace_timed_complete(struct qp *qp, const struct send_wqe *wqe, const struct cqe *cqe,
			 bool solicited) REQUIRES(qp->lock);
/* Whether a completion waits. */
static inline bool pace_is_late(const struct qp *qp) REQUIRES(qp->lock)
{
	return unlikely(qp->pace != NULL) && qp->pace->late_count;
}
/* The queue pair goes back to RESET: completions that wait are dropped. */
void pace_timed_drop(struct qp *qp) REQUIRES(qp->lock);
/* NULL is allowed. */
void pace_free(struct pace *pace);
void pace_timed_release(struct qp *qp, uint64_t now) REQUIRES(qp->lock);
/* When a piece may be sent next; when pace_timed_release() is to be called next, for a piece or a
 * request that is due. UINT64_MAX: never. */
uint64_t pace_timed_next(const struct qp *qp) REQUIRES(qp->lock);
uint64_t pace_timed_due(const struct qp *qp) REQUIRES(qp->lock);

#endif
