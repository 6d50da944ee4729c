/* SPDX-License-Identifier: BSD-2-Clause */
/* Rate limits of QPs. See pace.h. The state is in struct qp. */
#include "hca/verbs/pace.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/engine/engine.h"

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

static void release_until(struct qp *qp, uint64_t now) REQUIRES(qp->lock)
{
	struct pace *pace = qp->pace;

	while (qp->sq.held && pace->next <= now) {
		const struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head++);
		uint64_t earliest = now > pace->burst_ns ? now - pace->burst_ns : 0;

		qp->sq.held--;
		if (pace->next < earliest)
			pace->next = earliest;
		pace->next += bytes_take_ns(pace, wqe->length);
	}
}

int pace_set(struct qp *qp, uint32_t kbps, uint32_t burst)
{
	if (!kbps) {
		release_all(qp);
		free(qp->pace);
		qp->pace = NULL;
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

void pace_release(struct qp *qp)
{
	if (!qp->sq.held)
		return;
	release_until(qp, now_ns());
	if (!qp->sq.held)
		return;
	engine_watch_qp(qp);
	engine_kick(qp->hca); /* the timer may be set to a later time */
}

bool pace_expire(struct qp *qp, uint64_t now, uint64_t *next)
{
	if (likely(!qp->sq.held))
		return false;
	release_until(qp, now);
	sq_run(qp);
	if (!qp->sq.held)
		return false;
	if (qp->pace->next < *next)
		*next = qp->pace->next;
	return true;
}
