/* SPDX-License-Identifier: BSD-2-Clause */
/* See exit.h. No state. */
#include "hca/process/exit.h"

#include <time.h>

#include "base/sys.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/qp.h"

enum { TRIES = 100, NAP_NS = 1000000 };

/* lock_take(), but gives up after TRIES naps. Not analysed inside: the lock stays taken on one of
 * two ways out. */
static bool take_patiently(struct lock *lock) TRY_ACQUIRE(true, *lock) NO_THREAD_SAFETY_ANALYSIS
{
	const struct timespec nap = {0, NAP_NS};

	for (int i = 0; i < TRIES; i++) {
		if (lock_try(lock))
			return true;
		sys_nanosleep(&nap, NULL);
	}
	return false;
}

static bool is_given(struct lock *lock)
{
	bool taken = take_patiently(lock);

	if (taken)
		lock_give(lock);
	return taken;
}

/* Whether the calling thread has none of the locks that are taken to acknowledge: a signal handler
 * may have called exit() while this thread was in a call of the library's. Other threads give
 * theirs back; but not one that waits, with a QP's lock, for a CQ's lock that this thread has. So a
 * QP's lock is never waited for without end here. The others that are taken come after a CQ's. */
static bool has_no_lock(struct hca *hca) REQUIRES(hca->engine)
{
	list_for_each(node, &hca->links)
		if (!is_given(&container_of(node, struct link, node)->tx_lock))
			return false;
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++)
		if (hca->qps[i] && !is_given(&hca->qps[i]->lock))
			return false;
	return !hca->roce || is_given(&hca->roce->tx_lock);
}

static void acknowledge_to_hosts(struct hca *hca) REQUIRES(hca->engine)
{
	for (uint32_t i = 0; hca->roce && i < LIMIT_QPS_PER_SLOT; i++) {
		struct qp *qp = hca->qps[i];

		if (!qp || !take_patiently(&qp->lock))
			continue;
		struct roce_qp *w = qp->roce;

		if (w) {
			lock_assert_held(&w->qp->lock); /* is qp->lock */
			roce_answer(w);
		}
		lock_give(&qp->lock);
	}
}

void exit_acknowledge(struct hca *hca)
{
	if (!take_patiently(&hca->engine))
		return;
	if (has_no_lock(hca)) {
		local_flush_acks_by(hca, take_patiently);
		acknowledge_to_hosts(hca);
	}
	lock_give(&hca->engine);
}
