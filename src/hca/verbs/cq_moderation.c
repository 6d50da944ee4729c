/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moderation of completion events (ibv_modify_cq). An armed CQ raises its event when `count`
 * completions that satisfy the arming have come, or `period` after the first of them. Where one of
 * the two is 0, each completion raises its event, as on an adapter.
 *
 * The first completion whose event is held back puts the CQ on hca.moderated; the engine thread's
 * timers raise the event. The CQ leaves the list when the scan finds nothing held back. Threads
 * that add completions may hold any lock that ranks before hca.moderated_lock; that lock comes
 * before cq.lock, so the CQ enters the list after cq.lock was given back.
 */
#include <errno.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"

bool cq_hold_back(struct cq *cq, bool *first)
{
	if (++cq->held_back >= cq->moderate_count)
		return false;
	*first = cq->held_back == 1;
	if (*first)
		cq->held_until = now_ns() + cq->moderate_ns;
	return true;
}

void cq_moderation_begin(struct cq *cq)
{
	struct hca *hca = cq->context->hca;

	lock_take(&hca->moderated_lock);
	if (list_empty(&cq->moderated))
		list_add_tail(&hca->moderated, &cq->moderated);
	atomic_store(&hca->has_moderated, true);
	lock_give(&hca->moderated_lock);
	engine_kick(hca); /* sets the timer */
}

void cq_moderation_end(struct cq *cq)
{
	struct hca *hca = cq->context->hca;

	lock_take(&hca->moderated_lock);
	list_del(&cq->moderated);
	lock_give(&hca->moderated_lock);
}

int cq_moderate(struct cq *cq, const struct ibv_modify_cq_attr *attr)
{
	bool on = attr->moderate.cq_count && attr->moderate.cq_period;

	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE) {
		log_warn_few("ibv_modify_cq: attr_mask is 0x%x, and must be IBV_CQ_ATTR_MODERATE",
			     attr->attr_mask);
		return EINVAL;
	}
	lock_take(&cq->lock);
	cq->moderate_count = on ? attr->moderate.cq_count : 0;
	cq->moderate_ns = attr->moderate.cq_period * 1000ull;
	/* An event that the old values held back isn't held back any longer. */
	if (cq->held_back && cq_is_armed(cq))
		cq_raise(cq);
	cq->held_back = 0;
	lock_give(&cq->lock);
	return 0;
}

/* Raises the CQ's event if it is due. Returns when it is; UINT64_MAX: nothing is held back. */
static uint64_t moderated_look(struct cq *cq, uint64_t now)
{
	uint64_t due = UINT64_MAX;

	lock_take(&cq->lock);
	if (cq->held_back && cq_is_armed(cq))
		due = cq->held_until;
	if (due <= now) {
		cq_raise(cq);
		due = UINT64_MAX;
	}
	lock_give(&cq->lock);
	return due;
}

uint64_t cq_moderation_scan(struct hca *hca, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	if (likely(!atomic_load(&hca->has_moderated)))
		return next;
	lock_take(&hca->moderated_lock);
	list_for_each(node, &hca->moderated) {
		uint64_t due = moderated_look(container_of(node, struct cq, moderated), now);

		if (due == UINT64_MAX)
			list_del(node);
		else if (due < next)
			next = due;
	}
	atomic_store(&hca->has_moderated, !list_empty(&hca->moderated));
	lock_give(&hca->moderated_lock);
	return next;
}
