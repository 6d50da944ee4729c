/* SPDX-License-Identifier: BSD-2-Clause */
/* See flow.h. */
#include "hca/verbs/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/refused.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"
#include "wire/steer.h"

enum { POINTS_MAX = 1024 };

static struct flow_counters *flow_counters_of(struct ibv_counters *ibv)
{
	return container_of(ibv, struct flow_counters, ibv);
}

/* ------------------------------------------------------------------ rules */

static int flow_refuse(const char *why, int err)
{
	log_warn("ibv_create_flow: %s", why);
	return err;
}

static int flow_check(const struct qp *qp, const struct proto_create_flow *request)
{
	struct steer_actions actions;
	const char *why;

	if (qp->type != IBV_QPT_RAW_PACKET)
		return flow_refuse("only raw packet queue pairs take flow rules",
				   qp->type == IBV_QPT_UD ? EOPNOTSUPP : EINVAL);
	if (request->type > IBV_FLOW_ATTR_SNIFFER)
		return flow_refuse("the rule's type is unknown", EINVAL);
	if (request->port != 1)
		return flow_refuse("the device's only port is 1", EINVAL);
	if (request->flags &
	    ~(uint32_t)(IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS))
		return flow_refuse("a flag is unknown: there are DONT_TRAP and EGRESS", EINVAL);
	int err = -steer_check(request->specs, request->size, request->count, &actions, &why);

	if (err)
		return flow_refuse(why, err);
	bool passes = request->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;

	if (request->type != IBV_FLOW_ATTR_NORMAL && (actions.describes || request->flags))
		return flow_refuse("only normal rules describe frames, or have flags", EINVAL);
	return passes && actions.drops
		       ? flow_refuse("a rule can't both drop frames and let them pass", EINVAL)
		       : 0;
}

static void flow_counters_use(struct flow_counters *counters, int change)
{
	if (!counters)
		return;
	lock_take(&counters->lock);
	counters->users += (uint32_t)change;
	lock_give(&counters->lock);
}

static int flow_register(struct flow *flow)
{
	struct context *context = flow->qp->context;

	books_enter(context->hca);
	int err = -daemon_create_flow(&context->conn, &flow->request, &flow->handle);

	if (!err) {
		flow->ibv.handle = flow->handle;
		books_add(context, HELD_FLOW, &flow->held);
		lock_take(&context->hca->engine);
		list_add_tail(&flow->qp->flows, &flow->by_qp);
		lock_give(&context->hca->engine);
	}
	books_leave(context->hca);
	return err;
}

struct ibv_flow *flow_create(struct ibv_qp *ibv, const struct proto_create_flow *request,
			     struct ibv_counters *counters)
{
	struct qp *qp = qp_of(ibv);
	int err = flow_check(qp, request);
	struct flow *flow = err ? NULL : calloc(1, sizeof(*flow));

	if (!flow) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	flow->ibv.context = ibv->context;
	flow->qp = qp;
	flow->counters = counters ? flow_counters_of(counters) : NULL;
	flow->request = *request;
	flow->request.qp = qp->handle;
	flow_counters_use(flow->counters, 1);
	err = flow_register(flow);
	if (!err)
		return &flow->ibv;
	flow_counters_use(flow->counters, -1);
	free(flow);
	errno = err == EEXIST
			? flow_refuse("another rule of this priority is for the same frames, and "
				      "either drops them or not as this one doesn't, or gives them "
				      "another tag",
				      err)
			: err;
	return NULL;
}

int flow_destroy(struct ibv_flow *ibv)
{
	struct flow *flow = container_of(ibv, struct flow, ibv);
	struct context *context = flow->qp->context;

	books_enter(context->hca);
	int err = -daemon_destroy_flow(&context->conn, flow->handle);

	/* Without a daemon the rule ends here only; it isn't handed to the next one. */
	if (!err || err == EIO) {
		books_drop(context, &flow->held);
		lock_take(&context->hca->engine);
		list_del(&flow->by_qp);
		lock_give(&context->hca->engine);
		err = 0;
	}
	books_leave(context->hca);
	if (err)
		return err;
	flow_counters_use(flow->counters, -1);
	free(flow);
	return 0;
}

void flow_rule_count(const struct qp *qp, uint32_t handle, uint32_t bytes)
{
	list_for_each(node, &qp->flows) {
		const struct flow *flow = container_of(node, struct flow, by_qp);

		if (flow->handle != handle || !flow->counters)
			continue;
		atomic_fetch_add_explicit(&flow->counters->value[IBV_COUNTER_PACKETS], 1,
					  memory_order_relaxed);
		atomic_fetch_add_explicit(&flow->counters->value[IBV_COUNTER_BYTES], bytes,
					  memory_order_relaxed);
	}
}

/* ------------------------------------------------------------------ counters */

struct ibv_counters *flow_counters_create(struct ibv_context *context,
					  const struct ibv_counters_init_attr *attr)
{
	struct flow_counters *counters = attr->comp_mask ? NULL : calloc(1, sizeof(*counters));

	if (!counters) {
		errno = !attr->comp_mask
				? ENOMEM
				: refused(EINVAL,
					  "ibv_create_counters: comp_mask is 0x%x, and must "
					  "be 0",
					  attr->comp_mask);
		return NULL;
	}
	lock_init(&counters->lock, RANK_COUNTERS);
	list_init(&counters->points);
	counters->ibv.context = context;
	return &counters->ibv;
}

int flow_counters_destroy(struct ibv_counters *ibv)
{
	struct flow_counters *counters = flow_counters_of(ibv);
	struct list *node;

	lock_take(&counters->lock);
	bool busy = counters->users;

	while (!busy && (node = list_pop(&counters->points)))
		free(container_of(node, struct flow_counters_point, node));
	lock_give(&counters->lock);
	if (busy)
		return refused(EBUSY, "ibv_destroy_counters: flow rules use the counters, and must "
				      "be destroyed first");
	free(counters);
	return 0;
}

int flow_counters_attach(struct ibv_counters *ibv, const struct ibv_counter_attach_attr *attr,
			 const struct ibv_flow *flow)
{
	struct flow_counters *counters = flow_counters_of(ibv);

	if (attr->comp_mask)
		return refused(EINVAL,
			       "ibv_attach_counters_point_flow: comp_mask is 0x%x, and "
			       "must be 0",
			       attr->comp_mask);
	if (flow) {
		log_warn(
			"ibv_attach_counters_point_flow: counters aren't attached to a flow that "
			"exists: pass NULL, and name them in an ACTION_COUNT of ibv_create_flow()");
		return EOPNOTSUPP;
	}
	if (attr->counter_desc > IBV_COUNTER_BYTES)
		return refused(EOPNOTSUPP,
			       "ibv_attach_counters_point_flow: there is no counter %d; "
			       "packets and bytes are counted",
			       (int)attr->counter_desc);
	struct flow_counters_point *point = calloc(1, sizeof(*point));

	if (!point)
		return ENOMEM;
	point->index = attr->index;
	point->what = attr->counter_desc;
	lock_take(&counters->lock);
	int err = counters->users ? EBUSY : counters->point_count >= POINTS_MAX ? ENOMEM : 0;

	if (!err) {
		list_add_tail(&counters->points, &point->node);
		counters->point_count++;
	}
	lock_give(&counters->lock);
	if (err) {
		log_warn_few("ibv_attach_counters_point_flow: %s",
			     err == EBUSY ? "flow rules use the counters, which no longer change"
					  : "the counters have all the points that they can have");
		free(point);
	}
	return err;
}

int flow_counters_read(struct ibv_counters *ibv, uint64_t *values, uint32_t count, uint32_t flags)
{
	struct flow_counters *counters = flow_counters_of(ibv);

	if (flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED)
		return refused(EINVAL,
			       "ibv_read_counters: flags is 0x%x, and may have "
			       "IBV_READ_COUNTERS_ATTR_PREFER_CACHED only",
			       flags);
	memset(values, 0, count * sizeof(values[0]));
	lock_take(&counters->lock);
	list_for_each(node, &counters->points) {
		const struct flow_counters_point *point =
			container_of(node, struct flow_counters_point, node);

		if (point->index < count)
			values[point->index] += atomic_load_explicit(&counters->value[point->what],
								     memory_order_relaxed);
	}
	lock_give(&counters->lock);
	return 0;
}
