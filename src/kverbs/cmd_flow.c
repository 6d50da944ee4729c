/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for flow steering, which driver libraries call: 0 or a positive errno. No state; any
 * thread.
 */
#include <stdlib.h>
#include <string.h>

#include "kverbs/commands.h"
#include "kverbs/flow_specs.h"

static int action_number(void *arg, const struct ibv_flow_action *action, uint32_t *handle)
{
	(void)arg;
	*handle = container_of(action, const struct provider_flow_action, ibv)->handle;
	return 0;
}

static int counters_number(void *arg, struct ibv_counters *counters, uint32_t *handle)
{
	(void)arg;
	*handle = container_of(counters, const struct provider_counters, ibv)->handle;
	return 0;
}

/* `driver` and `driver_size`: what the driver appends. */
EXPORT int ibv_cmd_create_flow(struct ibv_qp *qp, struct ibv_flow *flow, struct ibv_flow_attr *attr,
			       void *driver, size_t driver_size)
{
	struct ib_uverbs_create_flow_resp answer;
	struct ib_uverbs_create_flow *core =
		calloc(1, sizeof(*core) + attr->num_of_specs * (size_t)FLOW_SPEC_MAX);
	const struct flow_handles handles = {.counters = counters_number, .action = action_number};
	size_t size;

	if (!core)
		return ENOMEM;
	core->qp_handle = qp->handle;
	core->flow_attr.type = attr->type;
	core->flow_attr.priority = attr->priority;
	core->flow_attr.num_of_specs = attr->num_of_specs;
	core->flow_attr.port = attr->port;
	core->flow_attr.flags = attr->flags;
	int err = flow_specs_encode((uint8_t *)(core + 1), attr, &handles, &size);

	core->flow_attr.size = (uint16_t)size;
	if (!err)
		err = command_run(kernel_of(qp->context),
				  &(struct command){
					  .number = IB_USER_VERBS_EX_CMD_CREATE_FLOW,
					  .extended = true,
					  .core = core,
					  .core_size = sizeof(*core) + size,
					  .answer = &answer,
					  .answer_size = sizeof(answer),
					  .driver = driver_data_of(
						  driver, 0, driver ? driver_size : 0, NULL, 0, 0),
				  });
	free(core);
	if (err) {
		errno = err;
		return err;
	}
	flow->context = qp->context;
	flow->handle = answer.flow_handle;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_flow, ibv_cmd_create_flow);

EXPORT int ibv_cmd_destroy_flow(struct ibv_flow *flow)
{
	struct ib_uverbs_destroy_flow core = {.flow_handle = flow->handle};

	return destroy_result(COMMAND_PLAIN_EXTENDED(flow->context, DESTROY_FLOW, core));
}
EXPORT_SINCE_34(ibv_cmd_destroy_flow, ibv_cmd_destroy_flow);
