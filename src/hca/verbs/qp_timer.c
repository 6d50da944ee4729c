/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers of QPs with requests that are not completed. There is no clock on the fast path: a scan
 * remembers how far each QP was, and a QP that made no progress between two scans began to stall at
 * the first. The carrier decides what a stall means (carrier.expire).
 *
 * A QP whose requests have completed stays on the list for LINGER_NS if it was used since the last
 * scan. Otherwise each request that follows a scan would wake the engine thread, whose scan finds
 * the QP without requests again: 3,000 wake-ups a second beside a program that polls. Time is
 * measured LINGER_NS less precisely for it. Only connected QPs stay, and only where no clock of a
 * fabric's or limit of a rate's needs the scan that follows the request.
 *
 * hca.active lists the QPs; qp.is_active says without a lock whether a QP is on it, or in the batch
 * of the scan that is under way.
 */
#include "hca/engine/engine.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/qp.h"

#define LINGER_NS 10000000ull

uint64_t qp_stalled_ns(struct qp *qp, uint64_t now)
{
	if (qp->sq.acked != qp->scan_acked || !qp->stalled_since) {
		qp->scan_acked = qp->sq.acked;
		qp->stalled_since = now;
	}
	return now - qp->stalled_since;
}

/* The next QP of the scan's batch, or NULL. */
static struct qp *qp_batch_next(struct hca *hca, struct list *batch)
{
	lock_take(&hca->active_lock);
	struct list *node = list_pop(batch);

	lock_give(&hca->active_lock);
	return node ? container_of(node, struct qp, active) : NULL;
}

/* Whether it is a connected QP that sends. */
static bool sends_connected(const struct qp *qp)
{
	return qp->type == IBV_QPT_RC || qp->type == IBV_QPT_UC || qp->type == IBV_QPT_XRC_SEND;
}

/* Whether a QP without requests stays on the list. */
static bool qp_lingers(struct qp *qp, uint64_t now, uint64_t *next) REQUIRES(qp->lock)
{
	bool used = qp->sq.head != qp->scan_posted;

	qp->scan_posted = qp->sq.head;
	if (!used || !sends_connected(qp) || qp->pace || qp->hca->membership)
		return false;
	if (now + LINGER_NS < *next)
		*next = now + LINGER_NS;
	return true;
}

/* Runs the QP's timer, and puts the QP back on the list if it must be run again. hca.engine is
 * held. */
static void scan_and_return(struct qp *qp, uint64_t now, uint64_t *next)
{
	struct hca *hca = qp->hca;

	lock_take(&qp->lock);
	bool held = pace_expire(qp, now, next);
	bool keep = qp->carrier->expire(qp, now, next);

	keep = keep || held || pace_is_late(qp);
	if (!keep) {
		qp->stalled_since = 0;
		keep = qp_lingers(qp, now, next);
	}
	lock_take(&hca->active_lock);
	/* Cleared under qp.lock: the next thread that posts enters the list again. */
	atomic_store(&qp->is_active, keep);
	if (keep)
		list_add_tail(&hca->active, &qp->active);
	lock_give(&hca->active_lock);
	lock_give(&qp->lock);
}

uint64_t qp_timers_scan(struct hca *hca, uint64_t now)
{
	struct list batch, *node;
	uint64_t next = UINT64_MAX;
	struct qp *qp;

	list_init(&batch);
	lock_take(&hca->active_lock);
	while ((node = list_pop(&hca->active)))
		list_add_tail(&batch, node);
	bool none = list_empty(&batch);

	lock_give(&hca->active_lock);
	if (none)
		return next;
	do {
		/* Ending a QP takes the engine's lock, too: no QP ends while it is on no list. */
		lock_take(&hca->engine);
		qp = qp_batch_next(hca, &batch);
		if (qp)
			scan_and_return(qp, now, &next);
		lock_give(&hca->engine);
	} while (qp);
	return next;
}

void qp_timer_stop(struct qp *qp)
{
	lock_take(&qp->hca->active_lock);
	list_del(&qp->active);
	atomic_store(&qp->is_active, false);
	lock_give(&qp->hca->active_lock);
	qp->stalled_since = 0;
}
