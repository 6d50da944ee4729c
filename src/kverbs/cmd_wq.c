/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for work queues and their indirection tables (RSS), which driver libraries call. Each
 * returns 0 or a positive errno. The count of events as in cmd_cq.c.
 */
#include <rdma/ib_user_ioctl_cmds.h>
#include <stdlib.h>

#include "base/sys.h"
#include "kverbs/commands.h"

/* ------------------------------------------------------------------ work queues */

static int wq_flags(const struct ibv_wq_init_attr *attr, uint32_t *flags)
{
	*flags = 0;
	if (attr->comp_mask >= IBV_WQ_INIT_ATTR_RESERVED)
		return EINVAL;
	if (!(attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS))
		return 0;
	if (attr->create_flags >= IBV_WQ_FLAGS_RESERVED)
		return EOPNOTSUPP;
	*flags = attr->create_flags;
	return 0;
}

/* Takes over what the kernel says of the new queue. */
static void wq_fill(struct ibv_wq *wq, struct ibv_context *context, struct ibv_wq_init_attr *attr,
		    const struct ib_uverbs_ex_create_wq_resp *from)
{
	wq->context = context;
	wq->cq = attr->cq;
	wq->pd = attr->pd;
	wq->wq_type = attr->wq_type;
	wq->handle = from->wq_handle;
	wq->wq_num = from->wqn;
	attr->max_wr = from->max_wr;
	attr->max_sge = from->max_sge;
}

static int create_wq_command(struct ibv_context *context, const struct ibv_wq_init_attr *attr,
			     uint32_t flags, struct ibv_wq *wq, void *request, size_t size,
			     struct ib_uverbs_ex_create_wq_resp *response, size_t response_size)
{
	struct ib_uverbs_ex_create_wq core = {
		.wq_type = attr->wq_type,
		.user_handle = (uintptr_t)wq,
		.pd_handle = attr->pd->handle,
		.cq_handle = attr->cq->handle,
		.max_wr = attr->max_wr,
		.max_sge = attr->max_sge,
		.create_flags = flags,
	};

	return COMMAND_EXTENDED(context, CREATE_WQ, core, size, response);
}

/* For an imported context, see context_is_imported(). */
static int create_wq_method(struct ibv_context *context, const struct ibv_wq_init_attr *attr,
			    uint32_t flags, struct ibv_wq *wq, const struct driver_data *driver,
			    struct ib_uverbs_ex_create_wq_resp *response)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE);
	method_object(&method, UVERBS_ATTR_CREATE_WQ_HANDLE, 0);
	method_object(&method, UVERBS_ATTR_CREATE_WQ_PD_HANDLE, attr->pd->handle);
	method_object(&method, UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, attr->cq->handle);
	method_in_u64(&method, UVERBS_ATTR_CREATE_WQ_USER_HANDLE, (uintptr_t)wq);
	method_in_u64(&method, UVERBS_ATTR_CREATE_WQ_TYPE, attr->wq_type);
	method_object(&method, UVERBS_ATTR_CREATE_WQ_EVENT_FD, (uint64_t)context->async_fd);
	method_in_u32(&method, UVERBS_ATTR_CREATE_WQ_MAX_WR, attr->max_wr);
	method_in_u32(&method, UVERBS_ATTR_CREATE_WQ_MAX_SGE, attr->max_sge);
	method_in_u32(&method, UVERBS_ATTR_CREATE_WQ_FLAGS, flags);
	method_out(&method, UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, &response->max_wr, 4);
	method_out(&method, UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, &response->max_sge, 4);
	method_out(&method, UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, &response->wqn, 4);
	method_driver(&method, driver);
	int err = method_run(kernel_of(context), &method);

	response->wq_handle = (uint32_t)method_result(&method, UVERBS_ATTR_CREATE_WQ_HANDLE);
	return err;
}

EXPORT int ibv_cmd_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr,
			     struct ibv_wq *wq, void *request, size_t size,
			     struct ib_uverbs_ex_create_wq_resp *response, size_t response_size)
{
	struct driver_data driver = driver_data_of(
		request, COMMAND_HEADER_EXTENDED + sizeof(struct ib_uverbs_ex_create_wq), size,
		response, sizeof(*response), response_size);
	uint32_t flags;
	int err = wq_flags(attr, &flags);

	if (err)
		return err;
	if (context_is_imported(context))
		err = create_wq_method(context, attr, flags, wq, &driver, response);
	else
		err = create_wq_command(context, attr, flags, wq, request, size, response,
					response_size);
	if (!err)
		wq_fill(wq, context, attr, response);
	return err;
}
EXPORT_SINCE_34(ibv_cmd_create_wq, ibv_cmd_create_wq);

EXPORT int ibv_cmd_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr, void *request,
			     size_t size)
{
	struct ib_uverbs_ex_modify_wq core = {
		.attr_mask = attr->attr_mask,
		.wq_handle = wq->handle,
		.wq_state = attr->wq_state,
		.curr_wq_state = attr->curr_wq_state,
	};
	struct driver_data driver =
		driver_data_of(request, COMMAND_HEADER_EXTENDED + sizeof(core), size, NULL, 0, 0);

	if (attr->attr_mask >= IBV_WQ_ATTR_RESERVED)
		return EINVAL;
	if (attr->attr_mask & IBV_WQ_ATTR_FLAGS) {
		if (attr->flags_mask >= IBV_WQ_FLAGS_RESERVED)
			return EOPNOTSUPP;
		core.flags = attr->flags;
		core.flags_mask = attr->flags_mask;
	}
	int err = command_run(kernel_of(wq->context),
			      &(struct command){
				      .number = IB_USER_VERBS_EX_CMD_MODIFY_WQ,
				      .extended = true,
				      .core = &core,
				      .core_size = sizeof(core),
				      .driver = driver,
			      });

	if (!err && attr->attr_mask & IBV_WQ_ATTR_STATE)
		wq->state = attr->wq_state;
	return err;
}
EXPORT_SINCE_34(ibv_cmd_modify_wq, ibv_cmd_modify_wq);

static void wq_events_await(struct ibv_wq *wq, uint32_t reported)
{
	pthread_mutex_lock(&wq->mutex);
	while (wq->events_completed != reported)
		sys_cond_wait(&wq->cond, &wq->mutex);
	pthread_mutex_unlock(&wq->mutex);
}

EXPORT int ibv_cmd_destroy_wq(struct ibv_wq *wq)
{
	struct ib_uverbs_ex_destroy_wq core = {.wq_handle = wq->handle};
	struct ib_uverbs_ex_destroy_wq_resp reported;
	int err = command_run(kernel_of(wq->context),
			      &(struct command){
				      .number = IB_USER_VERBS_EX_CMD_DESTROY_WQ,
				      .extended = true,
				      .core = &core,
				      .core_size = sizeof(core),
				      .answer = &reported,
				      .answer_size = sizeof(reported),
			      });

	if (!err)
		wq_events_await(wq, reported.events_reported);
	return destroy_result(err);
}
EXPORT_SINCE_34(ibv_cmd_destroy_wq, ibv_cmd_destroy_wq);

/* ------------------------------------------------------------------ indirection tables */

enum { TABLE_LOG_MAX = 13 }; /* the kernel's limit */

/* The request has no part of the driver's. */
EXPORT int ibv_cmd_create_rwq_ind_table(struct ibv_context *context,
					struct ibv_rwq_ind_table_init_attr *attr,
					struct ibv_rwq_ind_table *table,
					struct ib_uverbs_ex_create_rwq_ind_table_resp *response,
					size_t response_size)
{
	if (attr->comp_mask >= IBV_CREATE_IND_TABLE_RESERVED ||
	    attr->log_ind_tbl_size > TABLE_LOG_MAX)
		return EINVAL;
	size_t count = (size_t)1 << attr->log_ind_tbl_size;
	struct ib_uverbs_ex_create_rwq_ind_table *core;
	/* A whole number of the command's words. */
	size_t size = (sizeof(*core) + count * sizeof(core->wq_handles[0]) + 7) & ~(size_t)7;

	core = calloc(1, size);
	if (!core)
		return ENOMEM;
	core->log_ind_tbl_size = attr->log_ind_tbl_size;
	for (size_t i = 0; i < count; i++)
		core->wq_handles[i] = attr->ind_tbl[i]->handle;
	int err = command_run(kernel_of(context),
			      &(struct command){
				      .number = IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
				      .extended = true,
				      .core = core,
				      .core_size = size,
				      .answer = response,
				      .answer_size = sizeof(*response),
				      .driver = driver_data_of(NULL, 0, 0, response,
							       sizeof(*response), response_size),
			      });

	free(core);
	if (err)
		return err;
	table->ind_tbl_handle = (int)response->ind_tbl_handle;
	table->ind_tbl_num = (int)response->ind_tbl_num;
	table->context = context;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_rwq_ind_table, ibv_cmd_create_rwq_ind_table);

EXPORT int ibv_cmd_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	struct ib_uverbs_ex_destroy_rwq_ind_table core = {
		.ind_tbl_handle = (uint32_t)table->ind_tbl_handle,
	};

	return destroy_result(COMMAND_PLAIN_EXTENDED(table->context, DESTROY_RWQ_IND_TBL, core));
}
EXPORT_SINCE_34(ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_rwq_ind_table);
