/* SPDX-License-Identifier: BSD-2-Clause */
/* Which queue pairs stay on the list of timers when they have no requests (qp_timer.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hca/engine/engine.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/qp.h"

static struct hca *hca;
static struct qp *qp;
static unsigned int kicks;

bool pace_expire(struct qp *one, uint64_t now, uint64_t *next)
{
	(void)one, (void)now, (void)next;
	return false;
}

/* As engine.c: the first queue pair of the list wakes the engine thread. */
void engine_watch_qp_slow(struct qp *one)
{
	kicks++;
	list_add_tail(&hca->active, &one->active);
	atomic_store(&one->is_active, true);
}

/* All requests have completed. */
static bool nothing_outstanding(struct qp *one, uint64_t now, uint64_t *next)
{
	(void)one, (void)now, (void)next;
	return false;
}

static const struct carrier carrier = {.expire = nothing_outstanding};

static int begin(void **state)
{
	(void)state;
	hca = calloc(1, sizeof(*hca));
	qp = calloc(1, sizeof(*qp));
	assert_true(hca && qp);
	hca_init_locks(hca);
	list_init(&hca->active);
	lock_init(&qp->lock, RANK_QP);
	list_init(&qp->active);
	qp->hca = hca;
	qp->type = IBV_QPT_RC;
	qp->carrier = &carrier;
	kicks = 0;
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(qp);
	free(hca);
	return 0;
}

/* One request, which completes at once. */
static void use(void)
{
	qp->sq.head++;
	engine_watch_qp(qp);
}

static void a_qp_in_use_wakes_the_engine_thread_once(void **state)
{
	uint64_t now = 1000000000, next;

	(void)state;
	for (int i = 0; i < 100; i++) {
		use();
		next = qp_timers_scan(hca, now);
		assert_true(next > now && next != UINT64_MAX);
		now += 1000; /* the engine thread may be woken for other reasons at any time */
	}
	assert_int_equal(kicks, 1);
}

static void a_qp_that_isn_t_used_leaves_the_list(void **state)
{
	uint64_t now = 1000000000;

	(void)state;
	use();
	now = qp_timers_scan(hca, now);
	assert_true(qp->is_active);
	assert_int_equal(qp_timers_scan(hca, now), UINT64_MAX);
	assert_false(qp->is_active);
	assert_true(list_empty(&hca->active));
	use();
	assert_int_equal(kicks, 2);
}

/* The timer of datagrams bounds how long one waits for its receiver. */
static void datagrams_need_the_scan(void **state)
{
	(void)state;
	qp->type = IBV_QPT_UD;
	use();
	assert_int_equal(qp_timers_scan(hca, 1000000000), UINT64_MAX);
	assert_false(qp->is_active);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_qp_in_use_wakes_the_engine_thread_once, begin,
						end),
		cmocka_unit_test_setup_teardown(a_qp_that_isn_t_used_leaves_the_list, begin, end),
		cmocka_unit_test_setup_teardown(datagrams_need_the_scan, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
