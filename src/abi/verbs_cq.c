/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues, completion channels and events: entry points of hca/verbs/completion.h. */
#include "abi/private.h"
#include "abi/verbs_abi.h"
#include "base/refused.h"
#include "hca/verbs/completion.h"
#include "hca/verbs/cq.h"

static struct ibv_cq *cq_created(struct ibv_context *context, struct ibv_cq *cq)
{
	if (cq)
		context_count(context, 1);
	return cq;
}

static struct ibv_cq *create_cq(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	if (attr->channel && kernel_context_of(attr->channel->context))
		return fail_null(refused(EINVAL, "ibv_create_cq: the completion channel is of "
						 "another device's context"));
	return cq_created(context, cq_create(context, attr));
}

EXPORT struct ibv_cq *verbena_create_cq_for_qp(struct ibv_context *context,
					       const struct ibv_cq_init_attr_ex *attr)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return fail_null(EOPNOTSUPP);
	return cq_created(context, cq_create_for_qp(context, attr));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_create_cq(kernel, cqe, cq_context, channel, comp_vector);
	if (cqe < 1 || comp_vector < 0)
		return fail_null(refused(EINVAL,
					 "ibv_create_cq: cqe is %d, which must be 1 at least; "
					 "comp_vector is %d, which must be 0 at least",
					 cqe, comp_vector));
	return create_cq(context, &(struct ibv_cq_init_attr_ex){
					  .cqe = cqe,
					  .cq_context = cq_context,
					  .channel = channel,
					  .comp_vector = comp_vector,
				  });
}

struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq *cq = create_cq(context, attr);

	if (!cq)
		return NULL;
	cq_of(cq)->extended = true;
	return &cq_of(cq)->ex;
}

int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	int bad = handle_check("ibv_modify_cq", cq->handle, cq_of(cq)->handle);

	return fail_errno(bad ? bad : cq_moderate(cq_of(cq), attr));
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct kernel_context *kernel = kernel_context_of(cq->context);

	if (kernel)
		return kernel_resize_cq(kernel, cq, cqe);
	int bad = handle_check("ibv_resize_cq", cq->handle, cq_of(cq)->handle);

	if (bad)
		return fail_errno(bad);
	return fail_errno(cq_resize(cq, cqe));
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct kernel_context *kernel = kernel_context_of(cq->context);

	if (kernel)
		return kernel_destroy_cq(kernel, cq);
	int bad = handle_check("ibv_destroy_cq", cq->handle, cq_of(cq)->handle);

	if (bad)
		return fail_errno(bad);
	struct ibv_context *context = cq->context;
	int err = cq_destroy(cq);

	if (!err)
		context_count(context, -1);
	return fail_errno(err);
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_create_channel(kernel);
	struct ibv_comp_channel *channel = channel_create(context);

	if (channel)
		context_count(context, 1);
	return channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (kernel_context_of(channel->context))
		return kernel_destroy_channel(channel);
	struct ibv_context *context = channel->context;
	int err = channel_destroy(channel);

	if (!err)
		context_count(context, -1);
	return fail_errno(err);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	if (kernel_context_of(channel->context))
		return kernel_get_cq_event(channel, cq, cq_context);
	return channel_get_event(channel, cq, cq_context);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (kernel_context_of(cq->context))
		kernel_ack_cq_events(cq, nevents);
	else
		cq_ack_events(cq, nevents);
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_get_async_event(kernel, event);
	return async_get_event(context, event);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (!kernel_ack_async_event(event))
		async_ack_event(event);
}
