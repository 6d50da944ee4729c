/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow rules of this process, and counters of the frames that they take.
 *
 * The daemon checks a rule and publishes it; the process keeps what it needs to hand the rule to
 * the next daemon, and the counters. A rule is on its QP's list, which changes under hca.engine;
 * the engine counts there. Counters are two numbers that the engine adds to, atomic because the
 * program reads them at any time.
 */
#ifndef VERBENA_HCA_VERBS_FLOW_H
#define VERBENA_HCA_VERBS_FLOW_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "proto/proto.h"

struct qp;

/* What a program reads at an index. */
struct flow_counters_point {
	struct list node;
	uint32_t index;
	enum ibv_counter_description what;
};

struct flow_counters {
	struct ibv_counters ibv;
	_Atomic uint64_t value[IBV_COUNTER_BYTES + 1]; /* by enum ibv_counter_description */
	struct lock lock;
	struct list points GUARDED_BY(lock);
	uint32_t point_count GUARDED_BY(lock);
	uint32_t users GUARDED_BY(lock); /* flow rules */
};

struct flow {
	struct ibv_flow ibv;
	struct qp *qp;
	struct flow_counters *counters; /* NULL: it has none */
	uint32_t handle;
	struct list held;
	struct list by_qp; /* on qp.flows; under hca.engine */
	struct proto_create_flow request;
};

/* ---- the program's calls; NULL with errno, or a positive errno */
/* `request`: the rule, without the QP. */
struct ibv_flow *flow_create(struct ibv_qp *qp, const struct proto_create_flow *request,
			     struct ibv_counters *counters);
int flow_destroy(struct ibv_flow *flow);
struct ibv_counters *flow_counters_create(struct ibv_context *context,
					  const struct ibv_counters_init_attr *attr);
int flow_counters_destroy(struct ibv_counters *counters); /* EBUSY: a rule counts with it */
/* EBUSY: a rule counts with it already. `flow`: NULL, else EOPNOTSUPP. */
int flow_counters_attach(struct ibv_counters *counters, const struct ibv_counter_attach_attr *attr,
			 const struct ibv_flow *flow);
int flow_counters_read(struct ibv_counters *counters, uint64_t *values, uint32_t count,
		       uint32_t flags);

/* ---- inside the HCA */
/* Counts a frame of `bytes` that the QP's rule has taken. hca.engine is held. */
void flow_rule_count(const struct qp *qp, uint32_t handle, uint32_t bytes);

#endif
