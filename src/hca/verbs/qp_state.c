/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The QP state machine as one table: which transitions exist, and which attributes each needs and
 * allows, by QP type (InfiniBand Architecture Specification 1, 10.3 and 11.2.5.2). No state.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "hca/verbs/qp.h"

enum column { RC, UC, UD, RAW, XRC_SEND, XRC_RECV, COLUMNS };

#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define MIGRATE (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RATE IBV_QP_RATE_LIMIT
#define ADDRESSING (IBV_QP_PKEY_INDEX | IBV_QP_PORT)

struct transition {
	enum ibv_qp_state from, to;
	int required[COLUMNS], optional[COLUMNS];
	bool not_rc; /* SQE doesn't exist for RC and XRC */
};

/* Transitions to RESET and ERR aren't listed: every state has them, with no attribute but the
 * state. */
static const struct transition transitions[] = {
	{.from = IBV_QPS_RESET,
	 .to = IBV_QPS_INIT,
	 .required = {[RC] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [UC] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [UD] = ADDRESSING | IBV_QP_QKEY,
		      [XRC_SEND] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [XRC_RECV] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [RAW] = IBV_QP_PORT}},
	{.from = IBV_QPS_INIT,
	 .to = IBV_QPS_INIT,
	 .optional = {[RC] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [UC] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [UD] = ADDRESSING | IBV_QP_QKEY,
		      [XRC_SEND] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [XRC_RECV] = ADDRESSING | IBV_QP_ACCESS_FLAGS,
		      [RAW] = IBV_QP_PORT}},
	{.from = IBV_QPS_INIT,
	 .to = IBV_QPS_RTR,
	 .required = {[RC] = PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		      [UC] = PATH,
		      [XRC_SEND] = PATH,
		      [XRC_RECV] = PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
	 .optional = {[RC] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		      [UC] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		      [UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
		      [XRC_SEND] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		      [XRC_RECV] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
	{.from = IBV_QPS_RTR,
	 .to = IBV_QPS_RTS,
	 .required = {[RC] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC,
		      [UC] = IBV_QP_SQ_PSN,
		      [UD] = IBV_QP_SQ_PSN,
		      [XRC_SEND] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		      [XRC_RECV] = IBV_QP_TIMEOUT | IBV_QP_SQ_PSN},
	 .optional = {[RC] = RATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS |
			     IBV_QP_MIN_RNR_TIMER,
		      [UC] = RATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS,
		      [UD] = RATE | IBV_QP_CUR_STATE | IBV_QP_QKEY,
		      [XRC_SEND] = IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS,
		      [XRC_RECV] = IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS |
				   IBV_QP_MIN_RNR_TIMER,
		      [RAW] = RATE}},
	{.from = IBV_QPS_RTS,
	 .to = IBV_QPS_RTS,
	 .optional = {[RC] = RATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS |
			     IBV_QP_MIN_RNR_TIMER,
		      [UC] = RATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS,
		      [UD] = RATE | IBV_QP_CUR_STATE | IBV_QP_QKEY,
		      [XRC_SEND] = IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS,
		      [XRC_RECV] = IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS |
				   IBV_QP_MIN_RNR_TIMER,
		      [RAW] = RATE}},
	{.from = IBV_QPS_RTS,
	 .to = IBV_QPS_SQD,
	 .optional = {[RC] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [UC] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [UD] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [XRC_SEND] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [XRC_RECV] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [RAW] = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	{.from = IBV_QPS_SQD,
	 .to = IBV_QPS_RTS,
	 .optional = {[RC] = RATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS |
			     IBV_QP_MIN_RNR_TIMER,
		      [UC] = RATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS,
		      [UD] = RATE | IBV_QP_CUR_STATE | IBV_QP_QKEY,
		      [XRC_SEND] = IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS,
		      [XRC_RECV] = IBV_QP_CUR_STATE | MIGRATE | IBV_QP_ACCESS_FLAGS |
				   IBV_QP_MIN_RNR_TIMER,
		      [RAW] = RATE}},
	{.from = IBV_QPS_SQD,
	 .to = IBV_QPS_SQD,
	 .optional = {[RC] = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
			     IBV_QP_MAX_DEST_RD_ATOMIC | MIGRATE | IBV_QP_ACCESS_FLAGS |
			     IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER,
		      [UC] = IBV_QP_AV | MIGRATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		      [UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
		      [XRC_SEND] = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | MIGRATE |
				   IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		      [XRC_RECV] = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT |
				   IBV_QP_MAX_DEST_RD_ATOMIC | MIGRATE | IBV_QP_ACCESS_FLAGS |
				   IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER}},
	{.from = IBV_QPS_SQE,
	 .to = IBV_QPS_RTS,
	 .optional = {[UC] = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS,
		      [UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY},
	 .not_rc = true},
};

static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
_Static_assert(sizeof(names) / sizeof(names[0]) == IBV_QPS_ERR + 1, "a name for each state");

const char *qp_state_name(enum ibv_qp_state state)
{
	return (unsigned int)state <= IBV_QPS_ERR ? names[state] : "unknown";
}

static const struct transition *transition_find(enum ibv_qp_state from, enum ibv_qp_state to)
{
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++)
		if (transitions[i].from == from && transitions[i].to == to)
			return &transitions[i];
	return NULL;
}

static enum column column_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return RC;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_RAW_PACKET:
		return RAW;
	case IBV_QPT_XRC_SEND:
		return XRC_SEND;
	case IBV_QPT_XRC_RECV:
		return XRC_RECV;
	default:
		return UD;
	}
}

int qp_state_mask(enum ibv_qp_type type, int mask)
{
	if (type == IBV_QPT_XRC_SEND)
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

int qp_state_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	enum column c = column_of(type);
	int required = 0, optional = 0;

	if (to != IBV_QPS_RESET && to != IBV_QPS_ERR) {
		const struct transition *t = transition_find(from, to);

		if (!t || (t->not_rc && c != UC && c != UD)) {
			log_warn("ibv_modify_qp: no transition from %s to %s", qp_state_name(from),
				 qp_state_name(to));
			return EINVAL;
		}
		required = t->required[c];
		optional = t->optional[c];
	}
	if ((mask & required) != required) {
		log_warn("ibv_modify_qp: %s to %s lacks attributes 0x%x", qp_state_name(from),
			 qp_state_name(to), required & ~mask);
		return EINVAL;
	}
	int extra = mask & ~(required | optional | IBV_QP_STATE | IBV_QP_CUR_STATE);

	if (extra) {
		log_warn("ibv_modify_qp: %s to %s doesn't take attributes 0x%x",
			 qp_state_name(from), qp_state_name(to), extra);
		return EINVAL;
	}
	return 0;
}
