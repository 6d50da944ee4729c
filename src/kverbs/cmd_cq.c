/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for completion queues, which driver libraries call: 0 or a positive errno, but for
 * ibv_cmd_poll_cq(). The kernel's counts of events that it has reported are compared with those
 * that the program has acknowledged, under the queue's own mutex, which is part of the public
 * structure.
 */
#include <rdma/ib_user_ioctl_cmds.h>
#include <stdlib.h>

#include "base/sys.h"
#include "kverbs/commands.h"

EXPORT void verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context,
			  struct ibv_comp_channel *channel, void *cq_context)
{
	cq->context = context;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->comp_events_completed = 0;
	cq->async_events_completed = 0;
	pthread_mutex_init(&cq->mutex, NULL);
	pthread_cond_init(&cq->cond, NULL);
	if (!channel)
		return;
	pthread_mutex_lock(&context->mutex);
	channel->refcnt++;
	pthread_mutex_unlock(&context->mutex);
}
EXPORT_SINCE_34(verbs_init_cq, verbs_init_cq);

/* The kernel's flags for what the program asks for; false: it asks for something unknown. */
static bool cq_flags(const struct ibv_cq_init_attr_ex *attr, uint32_t *flags)
{
	const uint64_t stamps =
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

	*flags = 0;
	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return false;
	if (attr->wc_flags & stamps)
		*flags |= IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	    (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		*flags |= IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	return true;
}

static int create_cq_extended(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
			      uint32_t flags, struct provider_cq *cq, void *request, size_t size,
			      struct ib_uverbs_ex_create_cq_resp *response, size_t response_size)
{
	struct ib_uverbs_ex_create_cq core = {
		.user_handle = (uintptr_t)cq,
		.cqe = attr->cqe,
		.comp_vector = attr->comp_vector,
		.comp_channel = attr->channel ? attr->channel->fd : -1,
		.flags = flags,
	};
	int err = COMMAND_EXTENDED(context, CREATE_CQ, core, size, response);

	if (err)
		return err;
	cq->ibv.handle = response->base.cq_handle;
	cq->ibv.cqe = (int)response->base.cqe;
	cq->ibv.context = context;
	return 0;
}

/* <rdma/ib_user_ioctl_cmds.h> of later kernels. */
enum {
	LATER_CREATE_CQ_BUFFER_VA = 8,
	LATER_CREATE_CQ_BUFFER_LENGTH,
	LATER_CREATE_CQ_BUFFER_FD,
	LATER_CREATE_CQ_BUFFER_OFFSET,
};

/* The memory that the driver has chosen for the entries. */
struct cq_memory {
	uint32_t kind; /* PROVIDER_CQ_MEMORY, PROVIDER_CQ_DMABUF or 0: the driver's own data say it
			*/
	const struct provider_cq_memory *memory;
};

static void cq_method_memory(struct method *method, const struct cq_memory *where)
{
	const struct provider_cq_memory *memory = where->memory;

	if (!where->kind)
		return;
	if (where->kind & PROVIDER_CQ_MEMORY) {
		method_in_u64(method, LATER_CREATE_CQ_BUFFER_VA, (uintptr_t)memory->addr);
	} else {
		method_object(method, LATER_CREATE_CQ_BUFFER_FD, (uint64_t)memory->dmabuf.fd);
		method_in_u64(method, LATER_CREATE_CQ_BUFFER_OFFSET, memory->dmabuf.offset);
	}
	method_in_u64(method, LATER_CREATE_CQ_BUFFER_LENGTH, memory->length);
}

/* For a driver's own attributes, for memory that it has chosen, and for imported contexts. */
static int create_cq_method(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
			    uint32_t flags, struct provider_cq *cq,
			    const struct driver_data *driver, const struct cq_memory *where,
			    struct ibv_command_buffer *link)
{
	struct method method;
	uint32_t cqe = 0;

	method_begin(&method, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	method_object(&method, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
	method_out(&method, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, sizeof(cqe));
	method_in_u32(&method, UVERBS_ATTR_CREATE_CQ_CQE, attr->cqe);
	method_in_u64(&method, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, (uintptr_t)cq);
	if (attr->channel)
		method_object(&method, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL,
			      (uint64_t)attr->channel->fd);
	method_in_u32(&method, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, attr->comp_vector);
	method_object(&method, UVERBS_ATTR_CREATE_CQ_EVENT_FD, (uint64_t)context->async_fd);
	if (flags)
		method_in_u32(&method, UVERBS_ATTR_CREATE_CQ_FLAGS, flags);
	cq_method_memory(&method, where);
	method_driver(&method, driver);
	method_append(&method, link);
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	method_return(&method, link);
	cq->ibv.handle = (uint32_t)method_result(&method, UVERBS_ATTR_CREATE_CQ_HANDLE);
	cq->ibv.cqe = (int)cqe;
	cq->ibv.context = context;
	return 0;
}

EXPORT int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
			     int vector, struct ibv_cq *cq, void *request, size_t size,
			     struct ib_uverbs_create_cq_resp *response, size_t response_size)
{
	const struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)cqe, .channel = channel, .comp_vector = (uint32_t)vector};
	struct ib_uverbs_create_cq core = {
		.user_handle = (uintptr_t)cq,
		.cqe = (uint32_t)cqe,
		.comp_vector = (uint32_t)vector,
		.comp_channel = channel ? channel->fd : -1,
	};
	struct driver_data driver = driver_data_of(request, COMMAND_HEADER + sizeof(core), size,
						   response, sizeof(*response), response_size);

	if (context_is_imported(context))
		return create_cq_method(context, &attr, 0,
					container_of(cq, struct provider_cq, ibv), &driver,
					&(struct cq_memory){0}, NULL);
	int err = COMMAND(context, CREATE_CQ, core, size, response);

	if (err)
		return err;
	cq->handle = response->cq_handle;
	cq->cqe = (int)response->cqe;
	cq->context = context;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_cq, ibv_cmd_create_cq);

/* `command_flags` says whether `memory` is there; its other flags concern kernels that have no
 * extended commands. EINVAL: flags and memory don't go together. */
EXPORT int ibv_cmd_create_cq_ex2_59(struct ibv_context *context,
				    const struct ibv_cq_init_attr_ex *attr,
				    const struct provider_cq_memory *memory, struct provider_cq *cq,
				    void *request, size_t size,
				    struct ib_uverbs_ex_create_cq_resp *response,
				    size_t response_size, uint32_t command_flags,
				    struct ibv_command_buffer *link)
{
	const uint32_t both = PROVIDER_CQ_MEMORY | PROVIDER_CQ_DMABUF;
	struct cq_memory where = {.kind = command_flags & both, .memory = memory};
	uint32_t flags;

	if (!where.kind != !memory || where.kind == both)
		return EINVAL;
	if (!cq_flags(attr, &flags))
		return EOPNOTSUPP;
	if (!link && !where.kind && !context_is_imported(context))
		return create_cq_extended(context, attr, flags, cq, request, size, response,
					  response_size);
	struct driver_data driver = driver_data_of(
		request, COMMAND_HEADER_EXTENDED + sizeof(struct ib_uverbs_ex_create_cq), size,
		response, sizeof(*response), response_size);

	return create_cq_method(context, attr, flags, cq, &driver, &where, link);
}
EXPORT_SINCE_59(ibv_cmd_create_cq_ex2_59, ibv_cmd_create_cq_ex2);

EXPORT int ibv_cmd_create_cq_ex_59(struct ibv_context *context,
				   const struct ibv_cq_init_attr_ex *attr,
				   const struct provider_cq_memory *memory, struct provider_cq *cq,
				   void *request, size_t size,
				   struct ib_uverbs_ex_create_cq_resp *response,
				   size_t response_size, uint32_t command_flags)
{
	return ibv_cmd_create_cq_ex2_59(context, attr, memory, cq, request, size, response,
					response_size, command_flags, NULL);
}
EXPORT_SINCE_59(ibv_cmd_create_cq_ex_59, ibv_cmd_create_cq_ex);

/* Those of rdma-core 53 to 58, whose drivers leave the memory to their own data. */
EXPORT int ibv_cmd_create_cq_ex2(struct ibv_context *context,
				 const struct ibv_cq_init_attr_ex *attr, struct provider_cq *cq,
				 void *request, size_t size,
				 struct ib_uverbs_ex_create_cq_resp *response, size_t response_size,
				 uint32_t command_flags, struct ibv_command_buffer *link)
{
	(void)command_flags;
	return ibv_cmd_create_cq_ex2_59(context, attr, NULL, cq, request, size, response,
					response_size, 0, link);
}
EXPORT_34(ibv_cmd_create_cq_ex2, ibv_cmd_create_cq_ex2);
EXPORT_PRIVATE(ibv_cmd_create_cq_ex2, ibv_cmd_create_cq_ex2, 57);

EXPORT int ibv_cmd_create_cq_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
				struct provider_cq *cq, void *request, size_t size,
				struct ib_uverbs_ex_create_cq_resp *response, size_t response_size,
				uint32_t command_flags)
{
	return ibv_cmd_create_cq_ex2(context, attr, cq, request, size, response, response_size,
				     command_flags, NULL);
}
EXPORT_34(ibv_cmd_create_cq_ex, ibv_cmd_create_cq_ex);
EXPORT_PRIVATE(ibv_cmd_create_cq_ex, ibv_cmd_create_cq_ex, 57);

EXPORT int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, void *request, size_t size,
			     struct ib_uverbs_resize_cq_resp *response, size_t response_size)
{
	struct ib_uverbs_resize_cq core = {.cq_handle = cq->handle, .cqe = (uint32_t)cqe};
	int err = COMMAND(cq->context, RESIZE_CQ, core, size, response);

	if (!err)
		cq->cqe = (int)response->cqe;
	return err;
}
EXPORT_SINCE_34(ibv_cmd_resize_cq, ibv_cmd_resize_cq);

EXPORT int ibv_cmd_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct ib_uverbs_req_notify_cq core = {
		.cq_handle = cq->handle,
		.solicited_only = solicited_only != 0,
	};

	return COMMAND_PLAIN(cq->context, REQ_NOTIFY_CQ, core);
}
EXPORT_SINCE_34(ibv_cmd_req_notify_cq, ibv_cmd_req_notify_cq);

EXPORT int ibv_cmd_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr, void *request,
			     size_t size)
{
	struct ib_uverbs_ex_modify_cq core = {
		.cq_handle = cq->handle,
		.attr_mask = attr->attr_mask,
		.attr.cq_count = attr->moderate.cq_count,
		.attr.cq_period = attr->moderate.cq_period,
	};

	if (attr->attr_mask >= IBV_CQ_ATTR_RESERVED)
		return EOPNOTSUPP;
	return command_run(
		kernel_of(cq->context),
		&(struct command){
			.number = IB_USER_VERBS_EX_CMD_MODIFY_CQ,
			.extended = true,
			.core = &core,
			.core_size = sizeof(core),
			.driver = driver_data_of(request, COMMAND_HEADER_EXTENDED + sizeof(core),
						 size, NULL, 0, 0),
		});
}
EXPORT_SINCE_34(ibv_cmd_modify_cq, ibv_cmd_modify_cq);

/* Waits until the program has acknowledged all events that the kernel has reported. */
static void cq_events_await(struct ibv_cq *cq, const struct ib_uverbs_destroy_cq_resp *reported)
{
	pthread_mutex_lock(&cq->mutex);
	while (cq->comp_events_completed != reported->comp_events_reported ||
	       cq->async_events_completed != reported->async_events_reported)
		sys_cond_wait(&cq->cond, &cq->mutex);
	pthread_mutex_unlock(&cq->mutex);
}

EXPORT int ibv_cmd_destroy_cq(struct ibv_cq *cq)
{
	struct ib_uverbs_destroy_cq core = {.cq_handle = cq->handle};
	struct ib_uverbs_destroy_cq_resp reported;
	int err = COMMAND_ANSWERED(cq->context, DESTROY_CQ, core, reported);

	if (!err)
		cq_events_await(cq, &reported);
	return destroy_result(err);
}
EXPORT_SINCE_34(ibv_cmd_destroy_cq, ibv_cmd_destroy_cq);

/* ------------------------------------------------------------------ polling by the kernel */

static void completion_fill(struct ibv_wc *wc, const struct ib_uverbs_wc *from)
{
	*wc = (struct ibv_wc){
		.wr_id = from->wr_id,
		.status = from->status,
		.opcode = from->opcode,
		.vendor_err = from->vendor_err,
		.byte_len = from->byte_len,
		.imm_data = from->ex.imm_data,
		.qp_num = from->qp_num,
		.src_qp = from->src_qp,
		.wc_flags = from->wc_flags,
		.pkey_index = from->pkey_index,
		.slid = from->slid,
		.sl = from->sl,
		.dlid_path_bits = from->dlid_path_bits,
	};
}

/* Returns the number of completions, or -1. */
EXPORT int ibv_cmd_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	struct ib_uverbs_poll_cq core = {.cq_handle = cq->handle, .ne = (uint32_t)count};
	size_t size = sizeof(struct ib_uverbs_poll_cq_resp) +
		      (size_t)(count > 0 ? count : 0) * sizeof(struct ib_uverbs_wc);
	struct ib_uverbs_poll_cq_resp *answer = calloc(1, size);
	int got = -1;

	if (!answer)
		return -1;
	if (!command_run(kernel_of(cq->context), &(struct command){
							 .number = IB_USER_VERBS_CMD_POLL_CQ,
							 .core = &core,
							 .core_size = sizeof(core),
							 .answer = answer,
							 .answer_size = size,
						 }))
		got = (int)answer->count < count ? (int)answer->count : count;
	for (int i = 0; i < got; i++)
		completion_fill(&wc[i], &answer->wc[i]);
	free(answer);
	return got;
}
EXPORT_SINCE_34(ibv_cmd_poll_cq, ibv_cmd_poll_cq);
