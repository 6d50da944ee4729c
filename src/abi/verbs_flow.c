/* SPDX-License-Identifier: BSD-2-Clause */
/* Flow rules, counters, work queues: entry points of hca/verbs/flow.h and hca/verbs/wq.h. The
 * kernel's contexts have tables of their own, so only Verbena's objects get here. */
#include <string.h>

#include "abi/verbs_abi.h"
#include "base/refused.h"
#include "hca/mem/pd.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/flow.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/wq.h"
#include "kverbs/flow_specs.h"

/* The most specifications that fit a request. */
enum { SPECS = PROTO_FLOW_BYTES / 8 };

/* Notes the rule's counters; their number is of no use to the daemon. */
static int note_counters(void *arg, struct ibv_counters *counters, uint32_t *handle)
{
	struct ibv_counters **place = arg;

	if (!counters || kernel_context_of(counters->context))
		return refused(EINVAL, "ibv_create_flow: an ACTION_COUNT needs counters of this "
				       "device (ibv_create_counters)");
	*place = counters;
	*handle = 1;
	return 0;
}

static int flow_encode(const struct ibv_flow_attr *attr, struct proto_create_flow *request,
		       struct ibv_counters **counters)
{
	uint8_t specs[SPECS * FLOW_SPEC_MAX];
	const struct flow_handles handles = {.counters = note_counters, .arg = counters};
	size_t size;

	if (attr->comp_mask || attr->num_of_specs > SPECS)
		return refused(EINVAL,
			       "ibv_create_flow: comp_mask is 0x%x, and must be 0; num_of_specs is "
			       "%u, and %d at most",
			       attr->comp_mask, attr->num_of_specs, (int)SPECS);
	int err = flow_specs_encode(specs, attr, &handles, &size);

	if (!err && size > sizeof(request->specs))
		err = EINVAL;
	if (err) {
		log_warn("ibv_create_flow: %s",
			 err == EOPNOTSUPP
				 ? "flow actions (ACTION_HANDLE) aren't supported"
				 : "the specifications are too long, or one is of an unknown kind");
		return err;
	}
	request->type = attr->type;
	request->flags = attr->flags;
	request->priority = attr->priority;
	request->port = attr->port;
	request->count = attr->num_of_specs;
	request->size = (uint16_t)size;
	memcpy(request->specs, specs, size);
	return 0;
}

struct ibv_flow *verbs_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct proto_create_flow request = {0};
	struct ibv_counters *counters = NULL;
	int err = handle_check("ibv_create_flow", qp->handle, qp_of(qp)->handle);

	if (!err)
		err = flow_encode(attr, &request, &counters);
	if (err)
		return fail_null(err);
	struct ibv_flow *flow = flow_create(qp, &request, counters);

	if (flow)
		context_count(flow->context, 1);
	return flow;
}

/* The result of ending an object of the context. */
static int context_uncount(struct ibv_context *context, int err)
{
	if (!err)
		context_count(context, -1);
	return fail_errno(err);
}

int verbs_destroy_flow(struct ibv_flow *flow)
{
	struct ibv_context *context = flow->context;

	return context_uncount(context, flow_destroy(flow));
}

struct ibv_counters *verbs_create_counters(struct ibv_context *context,
					   struct ibv_counters_init_attr *attr)
{
	struct ibv_counters *counters = flow_counters_create(context, attr);

	if (counters)
		context_count(context, 1);
	return counters;
}

int verbs_destroy_counters(struct ibv_counters *counters)
{
	struct ibv_context *context = counters->context;

	return context_uncount(context, flow_counters_destroy(counters));
}

int verbs_attach_counters(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
			  struct ibv_flow *flow)
{
	return fail_errno(flow_counters_attach(counters, attr, flow));
}

int verbs_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t count,
			uint32_t flags)
{
	return fail_errno(flow_counters_read(counters, values, count, flags));
}

struct ibv_wq *verbs_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	if ((attr->pd && kernel_context_of(attr->pd->context)) ||
	    (attr->cq && kernel_context_of(attr->cq->context)))
		return fail_null(refused(EINVAL,
					 "ibv_create_wq: the protection domain or the CQ is "
					 "of another device's context"));
	if ((attr->pd && handle_check("ibv_create_wq", attr->pd->handle, pd_of(attr->pd)->shown)) ||
	    (attr->cq && handle_check("ibv_create_wq", attr->cq->handle, cq_of(attr->cq)->handle)))
		return fail_null(ENOENT);
	struct ibv_wq *wq = wq_create(context, attr);

	if (wq)
		context_count(context, 1);
	return wq;
}

int verbs_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	return fail_errno(wq_modify(wq, attr));
}

int verbs_destroy_wq(struct ibv_wq *wq)
{
	struct ibv_context *context = wq->context;

	return context_uncount(context, wq_destroy(wq));
}

struct ibv_rwq_ind_table *verbs_create_rwq_ind_table(struct ibv_context *context,
						     struct ibv_rwq_ind_table_init_attr *attr)
{
	struct ibv_rwq_ind_table *table = wq_table_create(context, attr);

	if (table)
		context_count(context, 1);
	return table;
}

int verbs_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	struct ibv_context *context = table->context;

	return context_uncount(context, wq_table_destroy(table));
}
