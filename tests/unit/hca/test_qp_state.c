/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of QP transitions: what a program needs, what it may add, what doesn't exist. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "hca/verbs/qp.h"

#define S IBV_QP_STATE
#define RC_INIT (S | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RC_RTR                                                               \
	(S | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_RTS                                                                      \
	(S | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

struct row {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int mask, want;
};

static const struct row rows[] = {
	{IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, RC_INIT, 0},
	{IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, RC_INIT & ~IBV_QP_PORT, EINVAL},
	{IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, RC_INIT | IBV_QP_QKEY, EINVAL},
	{IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, S | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
	 0},
	{IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, RC_RTR, EINVAL},
	{IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, 0},
	{IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR & ~IBV_QP_AV, EINVAL},
	{IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, EINVAL},
	{IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, S, 0},
	{IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, 0},
	{IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS | IBV_QP_MIN_RNR_TIMER, 0},
	{IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS & ~IBV_QP_TIMEOUT, EINVAL},
	{IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, S | IBV_QP_EN_SQD_ASYNC_NOTIFY, 0},
	{IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, S | IBV_QP_CUR_STATE, 0},
	{IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, S, EINVAL},
	{IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, S, 0},
	{IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, S, EINVAL},
	{IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RESET, S, 0},
	{IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RESET, S, 0},
	{IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_ERR, S, 0},
	{IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_INIT, RC_INIT, EINVAL},
};

static void test_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		int got = qp_state_check(r->type, r->from, r->to, r->mask);

		if (got != r->want)
			fail_msg("row %zu: %s to %s gave %d", i, qp_state_name(r->from),
				 qp_state_name(r->to), got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
