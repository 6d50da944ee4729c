/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels and completion queues. The queues themselves are in the process. */
#include <errno.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/objects/context.h"
#include "proto/limits.h"

int command_create_channel(struct request *request, void *response)
{
	struct ib_uverbs_create_comp_channel_resp *resp = response;
	struct object *object;
	int err = object_make(request, OBJECT_CHANNEL, sizeof(struct channel), &object);

	if (!err)
		resp->fd = object->handle; /* a handle; the descriptor is made in the process */
	return err;
}

int command_destroy_channel(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_CHANNEL, body->handle);
}

static int cq_make(struct request *request, uint32_t cqe, uint32_t comp_vector,
		   struct channel *channel, struct cq **out)
{
	struct object *object;

	if (!cqe || cqe > LIMIT_CQE || comp_vector >= LIMIT_COMP_VECTORS)
		return -EINVAL;
	int err = object_make(request, OBJECT_CQ, sizeof(struct cq), &object);

	if (err)
		return err;
	struct cq *cq = (struct cq *)object;

	cq->cqe = cqe;
	cq->comp_vector = comp_vector;
	cq->channel = channel;
	if (channel)
		channel->object.users++;
	*out = cq;
	return 0;
}

int command_create_cq(struct request *request, void *response)
{
	const struct ib_uverbs_create_cq *body = request->body;
	struct ib_uverbs_create_cq_resp *resp = response;
	struct channel *channel = NULL;
	struct cq *cq;

	if (body->comp_channel >= 0) {
		channel = (struct channel *)object_find(request->conn->context, OBJECT_CHANNEL,
							(uint32_t)body->comp_channel);
		if (!channel)
			return -EINVAL;
	}
	int err = cq_make(request, body->cqe, body->comp_vector, channel, &cq);

	if (err)
		return err;
	resp->cq_handle = cq->object.handle;
	resp->cqe = cq->cqe;
	return 0;
}

int cq_make_with_channel(struct request *request, uint32_t cqe, uint32_t comp_vector,
			 struct proto_create_channel_cq_resp *resp, struct cq **out)
{
	struct object *channel;
	int err = object_make(request, OBJECT_CHANNEL, sizeof(struct channel), &channel);

	if (err)
		return err;
	err = cq_make(request, cqe, comp_vector, (struct channel *)channel, out);
	if (err) {
		object_free(channel);
		return err;
	}
	*resp = (struct proto_create_channel_cq_resp){channel->handle, (*out)->object.handle};
	return 0;
}

void cq_unmake_with_channel(struct cq *cq)
{
	struct channel *channel = cq->channel;

	object_destroy(&cq->object);
	object_destroy(&channel->object);
}

int command_create_channel_cq(struct request *request, void *response)
{
	const struct ib_uverbs_create_cq *body = request->body;
	struct cq *cq;

	return cq_make_with_channel(request, body->cqe, body->comp_vector, response, &cq);
}

int command_resize_cq(struct request *request, void *response)
{
	const struct ib_uverbs_resize_cq *body = request->body;
	struct ib_uverbs_resize_cq_resp *resp = response;
	struct cq *cq =
		(struct cq *)object_find(request->conn->context, OBJECT_CQ, body->cq_handle);

	if (!cq || !body->cqe || body->cqe > LIMIT_CQE)
		return -EINVAL;
	cq->cqe = body->cqe;
	resp->cqe = cq->cqe;
	return 0;
}

void cq_release(struct cq *cq)
{
	if (cq->channel)
		cq->channel->object.users--;
}

int command_destroy_cq(struct request *request, void *response)
{
	const struct ib_uverbs_destroy_cq *body = request->body;

	(void)response; /* the process counts the events */
	return object_destroy_handle(request->conn->context, OBJECT_CQ, body->cq_handle);
}
