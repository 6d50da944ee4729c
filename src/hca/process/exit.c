/* SPDX-License-Identifier: BSD-2-Clause */
/* See exit.h. No state. */
#include "hca/process/exit.h"

#include <time.h>

#include "base/sys.h"
#include "hca/engine/engine.h"
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

void exit_acknowledge(struct hca *hca)
{
	if (!take_patiently(&hca->engine))
		return;
	engine_acknowledge(hca);
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
	lock_give(&hca->engine);
}
