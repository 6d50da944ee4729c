/* SPDX-License-Identifier: BSD-2-Clause */
/* Rate limits of QPs, and when to look at what is held back. See pace.h. The state is in struct qp.
 */
#include "hca/verbs/pace.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/engine/engine.h"
#include "hca/fabric/transit.h"

/* 8 bits of a byte at 1000 bits a second per unit, in ns. */
static uint64_t bytes_take_ns(const struct pace *pace, uint64_t bytes)
{
	return bytes * 8000000ull / pace->kbps;
}

static void release_all(struct qp *qp) REQUIRES(qp->lock)
{
	qp->sq.head += qp->sq.held;
	qp->sq.held = 0;
}

void pace_charge(struct pace *pace, uint64_t now, uint64_t bytes)
{
	uint64_t earliest = now > pace->burst_ns ? now - pace->burst_ns : 0;

	if (pace->next < earliest)
		pace->next = earliest;
	pace->next += bytes_take_ns(pace, bytes);
}

static void release_until(struct qp *qp, uint64_t now) REQUIRES(qp->lock)
{
	struct pace *pace = qp->pace;

	if (pace->transit) {
		pace_timed_release(qp, now);
		return;
	}
	while (qp->sq.held && pace->next <= now) {
		const struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head++);

		qp->sq.held--;
		pace_charge(pace, now, wqe->length);
	}
}

static void limit_end(struct qp *qp) REQUIRES(qp->lock)
{
	if (qp->pace && qp->pace->transit) {
		qp->pace->kbps = 0;
		return;
	}
	release_all(qp);
	free(qp->pace);
	qp->pace = NULL;
}

int pace_set(struct qp *qp, uint32_t kbps, uint32_t burst)
{
	if (!kbps) {
		limit_end(qp);
		return 0;
	}
	if (!qp->pace)
		qp->pace = calloc(1, sizeof(*qp->pace));
	if (!qp->pace)
		return ENOMEM;
	qp->pace->kbps = kbps;
	qp->pace->burst_ns = bytes_take_ns(qp->pace, burst);
	return 0;
}

/* ------------------------------------------------------------------ when to look again */

/* The load of awake_at comes after the store: pace.h. */
void pace_note(struct hca *hca, uint64_t at)
{
	uint64_t was = atomic_load_explicit(&hca->pace_at, memory_order_relaxed);

	while (at < was && !atomic_compare_exchange_weak(&hca->pace_at, &was, at))
		;
	if (at < atomic_load(&hca->awake_at))
		engine_kick(hca);
}

uint64_t pace_sleep(struct hca *hca, uint64_t next)
{
	/* The load comes after the store: pace.h. */
	atomic_store(&hca->awake_at, next);
	uint64_t at = atomic_load(&hca->pace_at);

	return at < next ? at : next;
}

void pace_look(struct hca *hca, uint64_t now)
{
	/* Each QP that is looked at notes its time again. */
	if (atomic_load_explicit(&hca->pace_at, memory_order_relaxed) <= now)
		atomic_store(&hca->pace_at, UINT64_MAX);
}

void pace_poll_slow(struct hca *hca)
{
	uint64_t now = now_ns();

	if (now < atomic_load_explicit(&hca->pace_at, memory_order_relaxed))
		return;
	pace_look(hca, now);
	uint64_t next = qp_timers_scan(hca, now);

	if (next != UINT64_MAX)
		pace_note(hca, next);
}

static uint64_t pace_next(const struct qp *qp) REQUIRES(qp->lock)
{
	return qp->pace->transit ? pace_timed_due(qp) : qp->pace->next;
}

void pace_hold(struct qp *qp)
{
	engine_watch_qp(qp);
	pace_note(qp->hca, now_ns());
}

void pace_release(struct qp *qp)
{
	if (!qp->sq.held)
		return;
	release_until(qp, now_ns());
	if (!qp->sq.held) {
		if (qp->pace->transit)
			pace_timed_end(qp);
		return;
	}
	engine_watch_qp(qp);
	pace_note(qp->hca, pace_next(qp));
}

bool pace_expire(struct qp *qp, uint64_t now, uint64_t *next)
{
	if (likely(!qp->sq.held && !pace_is_late(qp)))
		return false;
	release_until(qp, now);
	sq_run(qp);
	if (!qp->sq.held && !pace_is_late(qp))
		return false;
	uint64_t at = pace_next(qp);

	pace_note(qp->hca, at);
	if (at < *next)
		*next = at;
	return true;
}
