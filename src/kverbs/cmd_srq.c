/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for shared receive queues and XRC domains, which driver libraries call. Each returns 0
 * or a positive errno. The counts of events as in cmd_cq.c.
 */
#include <rdma/ib_user_ioctl_cmds.h>

#include "base/sys.h"
#include "kverbs/commands.h"

static void srq_begin(struct ibv_srq *srq, struct ibv_context *context)
{
	srq->context = context;
	srq->events_completed = 0;
	pthread_mutex_init(&srq->mutex, NULL);
	pthread_cond_init(&srq->cond, NULL);
}

/* Takes over what the kernel says of the queue. */
static void srq_fill(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		     const struct ib_uverbs_create_srq_resp *from)
{
	srq->handle = from->srq_handle;
	attr->max_wr = from->max_wr;
	attr->max_sge = from->max_sge;
}

/* The fields that a type of queue needs beyond those of all: 0 or a positive errno. */
static int srq_type_fill(struct ib_uverbs_create_xsrq *core,
			 const struct ibv_srq_init_attr_ex *attr, enum ibv_srq_type type)
{
	bool has_cq = attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ;

	core->srq_type = type;
	if (has_cq)
		core->cq_handle = attr->cq->handle;
	switch (type) {
	case IBV_SRQT_BASIC:
		return 0;
	case IBV_SRQT_XRC:
		if (!has_cq || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD))
			return EINVAL;
		core->xrcd_handle = container_of(attr->xrcd, struct provider_xrcd, ibv)->handle;
		return 0;
	case IBV_SRQT_TM:
		if (!has_cq || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TM) ||
		    !attr->tm_cap.max_num_tags)
			return EINVAL;
		core->max_num_tags = attr->tm_cap.max_num_tags;
		return 0;
	default:
		return EINVAL;
	}
}

static void srq_extended_fill(struct provider_srq *srq, const struct ibv_srq_init_attr_ex *attr,
			      enum ibv_srq_type type, uint32_t number)
{
	srq->type = type;
	if (type == IBV_SRQT_XRC) {
		srq->xrcd = container_of(attr->xrcd, struct provider_xrcd, ibv);
		srq->number = number;
	}
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		srq->cq = attr->cq;
}

/* For an imported context, see context_is_imported(). `core` is what the command would have. */
static int create_srq_method(struct ibv_srq *srq, const struct ib_uverbs_create_xsrq *core,
			     const struct driver_data *driver,
			     struct ib_uverbs_create_srq_resp *response)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
	method_object(&method, UVERBS_ATTR_CREATE_SRQ_HANDLE, 0);
	method_object(&method, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, core->pd_handle);
	if (core->srq_type == IBV_SRQT_XRC)
		method_object(&method, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, core->xrcd_handle);
	if (core->srq_type != IBV_SRQT_BASIC)
		method_object(&method, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, core->cq_handle);
	method_in_u64(&method, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, core->user_handle);
	method_in_u32(&method, UVERBS_ATTR_CREATE_SRQ_MAX_WR, core->max_wr);
	method_in_u32(&method, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, core->max_sge);
	method_in_u32(&method, UVERBS_ATTR_CREATE_SRQ_LIMIT, core->srq_limit);
	if (core->srq_type == IBV_SRQT_TM)
		method_in_u32(&method, UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, core->max_num_tags);
	method_in_u64(&method, UVERBS_ATTR_CREATE_SRQ_TYPE, core->srq_type);
	method_object(&method, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, (uint64_t)srq->context->async_fd);
	method_out(&method, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &response->max_wr, 4);
	method_out(&method, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &response->max_sge, 4);
	if (core->srq_type == IBV_SRQT_XRC)
		method_out(&method, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &response->srqn, 4);
	method_driver(&method, driver);
	int err = method_run(kernel_of(srq->context), &method);

	response->srq_handle = (uint32_t)method_result(&method, UVERBS_ATTR_CREATE_SRQ_HANDLE);
	return err;
}

EXPORT int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq,
			      struct ibv_srq_init_attr *attr, void *request, size_t size,
			      struct ib_uverbs_create_srq_resp *response, size_t response_size)
{
	struct ib_uverbs_create_srq core = {
		.user_handle = (uintptr_t)srq,
		.pd_handle = pd->handle,
		.max_wr = attr->attr.max_wr,
		.max_sge = attr->attr.max_sge,
		.srq_limit = attr->attr.srq_limit,
	};
	const struct ib_uverbs_create_xsrq basic = {
		.user_handle = core.user_handle,
		.srq_type = IBV_SRQT_BASIC,
		.pd_handle = core.pd_handle,
		.max_wr = core.max_wr,
		.max_sge = core.max_sge,
		.srq_limit = core.srq_limit,
	};
	struct driver_data driver = driver_data_of(request, COMMAND_HEADER + sizeof(core), size,
						   response, sizeof(*response), response_size);

	srq_begin(srq, pd->context);
	int err = context_is_imported(pd->context)
			  ? create_srq_method(srq, &basic, &driver, response)
			  : COMMAND(pd->context, CREATE_SRQ, core, size, response);

	if (!err)
		srq_fill(srq, &attr->attr, response);
	return err;
}
EXPORT_SINCE_34(ibv_cmd_create_srq, ibv_cmd_create_srq);

/* The response of both commands has the same layout, and so has the driver's part behind it. */
EXPORT int ibv_cmd_create_srq_ex(struct ibv_context *context, struct provider_srq *srq,
				 struct ibv_srq_init_attr_ex *attr, void *request, size_t size,
				 struct ib_uverbs_create_srq_resp *response, size_t response_size)
{
	enum ibv_srq_type type =
		attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	struct ib_uverbs_create_xsrq core = {.user_handle = (uintptr_t)srq};

	if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		return EINVAL;
	int err = srq_type_fill(&core, attr, type);

	if (err)
		return err;
	core.pd_handle = attr->pd->handle;
	core.max_wr = attr->attr.max_wr;
	core.max_sge = attr->attr.max_sge;
	core.srq_limit = attr->attr.srq_limit;
	srq_begin(&srq->ibv, context);
	struct driver_data driver = driver_data_of(request, COMMAND_HEADER + sizeof(core), size,
						   response, sizeof(*response), response_size);

	err = context_is_imported(context) ? create_srq_method(&srq->ibv, &core, &driver, response)
					   : COMMAND(context, CREATE_XSRQ, core, size, response);
	if (err)
		return err;
	srq_fill(&srq->ibv, &attr->attr, response);
	srq_extended_fill(srq, attr, type, response->srqn);
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_srq_ex, ibv_cmd_create_srq_ex);

EXPORT int ibv_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask,
			      void *request, size_t size)
{
	struct ib_uverbs_modify_srq core = {
		.srq_handle = srq->handle,
		.attr_mask = (uint32_t)mask,
		.max_wr = attr->max_wr,
		.srq_limit = attr->srq_limit,
	};

	return command_run(kernel_of(srq->context),
			   &(struct command){
				   .number = IB_USER_VERBS_CMD_MODIFY_SRQ,
				   .core = &core,
				   .core_size = sizeof(core),
				   .driver = driver_data_of(request, COMMAND_HEADER + sizeof(core),
							    size, NULL, 0, 0),
			   });
}
EXPORT_SINCE_34(ibv_cmd_modify_srq, ibv_cmd_modify_srq);

EXPORT int ibv_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, void *request,
			     size_t size)
{
	struct ib_uverbs_query_srq core = {.srq_handle = srq->handle};
	struct ib_uverbs_query_srq_resp answer, *response = &answer;
	size_t response_size = sizeof(answer);
	int err = COMMAND(srq->context, QUERY_SRQ, core, size, response);

	if (err)
		return err;
	attr->max_wr = answer.max_wr;
	attr->max_sge = answer.max_sge;
	attr->srq_limit = answer.srq_limit;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_query_srq, ibv_cmd_query_srq);

static void srq_events_await(struct ibv_srq *srq, uint32_t reported)
{
	pthread_mutex_lock(&srq->mutex);
	while (srq->events_completed != reported)
		sys_cond_wait(&srq->cond, &srq->mutex);
	pthread_mutex_unlock(&srq->mutex);
}

EXPORT int ibv_cmd_destroy_srq(struct ibv_srq *srq)
{
	struct ib_uverbs_destroy_srq core = {.srq_handle = srq->handle};
	struct ib_uverbs_destroy_srq_resp reported;
	int err = COMMAND_ANSWERED(srq->context, DESTROY_SRQ, core, reported);

	if (!err)
		srq_events_await(srq, reported.events_reported);
	return destroy_result(err);
}
EXPORT_SINCE_34(ibv_cmd_destroy_srq, ibv_cmd_destroy_srq);

/* ------------------------------------------------------------------ XRC domains */

/* `xrcd_size`: older drivers have a shorter structure. */
EXPORT int ibv_cmd_open_xrcd(struct ibv_context *context, struct provider_xrcd *xrcd, int xrcd_size,
			     struct ibv_xrcd_init_attr *attr, void *request, size_t size,
			     struct ib_uverbs_open_xrcd_resp *response, size_t response_size)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct ib_uverbs_open_xrcd core = {
		.fd = (uint32_t)attr->fd,
		.oflags = (uint32_t)attr->oflags,
	};

	if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed)
		return EINVAL;
	int err = COMMAND(context, OPEN_XRCD, core, size, response);

	if (err)
		return err;
	xrcd->ibv.context = context;
	xrcd->comp_mask = 0;
	if (xrcd_size >= (int)(offsetof(struct provider_xrcd, handle) + sizeof(xrcd->handle))) {
		xrcd->comp_mask = PROVIDER_XRCD_HANDLE;
		xrcd->handle = response->xrcd_handle;
	}
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_open_xrcd, ibv_cmd_open_xrcd);

EXPORT int ibv_cmd_close_xrcd(struct provider_xrcd *xrcd)
{
	struct ib_uverbs_close_xrcd core = {.xrcd_handle = xrcd->handle};

	return destroy_result(COMMAND_PLAIN(xrcd->ibv.context, CLOSE_XRCD, core));
}
EXPORT_SINCE_34(ibv_cmd_close_xrcd, ibv_cmd_close_xrcd);
