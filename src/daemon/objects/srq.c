/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues. The queues themselves are in the process. */
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/objects/context.h"
#include "daemon/objects/share.h"
#include "proto/limits.h"

/* enum ibv_srq_attr_mask */
enum { SRQ_MAX_WR = 1, SRQ_LIMIT = 2 };

static int srq_create_for(struct request *request, const struct ib_uverbs_create_srq *body,
			  struct ib_uverbs_create_srq_resp *resp, struct srq **out)
{
	struct context *context = request->conn->context;
	struct pd *pd = pd_find(context, body->pd_handle);
	struct object *object;

	if (!pd || !body->max_wr || body->max_wr > LIMIT_SRQ_WR || body->max_sge > LIMIT_SGE ||
	    body->srq_limit > body->max_wr)
		return -EINVAL;
	int err = object_make(request, OBJECT_SRQ, sizeof(struct srq), &object);

	if (err)
		return err;
	struct srq *srq = (struct srq *)object;

	srq->pd = pd;
	domain_pd_use(pd);
	srq->max_wr = body->max_wr;
	srq->max_sge = body->max_sge;
	resp->srq_handle = object->handle;
	resp->max_wr = srq->max_wr;
	resp->max_sge = srq->max_sge;
	*out = srq;
	return 0;
}

int command_create_srq(struct request *request, void *response)
{
	struct srq *srq;

	return srq_create_for(request, request->body, response, &srq);
}

static int create_xrc(struct request *request, const struct ib_uverbs_create_srq *plain,
		      struct object *xrcd, struct ib_uverbs_create_srq_resp *resp, struct srq **srq)
{
	struct process *process = request->conn->context->process;
	uint32_t srqn;

	if (!xrcd)
		return -EINVAL;
	int err = qpn_take(request, &srqn);

	if (err)
		return err;
	err = srq_create_for(request, plain, resp, srq);
	if (err) {
		ids_give(&process->qpns, srqn & (LIMIT_QPS_PER_SLOT - 1));
		return err;
	}
	(*srq)->xrcd = (struct xrcd *)xrcd;
	(*srq)->srqn = resp->srqn = srqn;
	xrcd->users++;
	return 0;
}

static int create_tagged(struct request *request, const struct ib_uverbs_create_srq *plain,
			 uint32_t max_tags, struct ib_uverbs_create_srq_resp *resp,
			 struct srq **srq)
{
	if (!max_tags || max_tags > LIMIT_TAGS)
		return -EINVAL;
	int err = srq_create_for(request, plain, resp, srq);

	if (!err)
		(*srq)->max_tags = max_tags;
	return err;
}

/* An XRC or a tag-matching SRQ; those of the type BASIC are made by CREATE_SRQ. */
int command_create_xsrq(struct request *request, void *response)
{
	const struct ib_uverbs_create_xsrq *body = request->body;
	struct context *context = request->conn->context;
	const struct ib_uverbs_create_srq plain = {
		.pd_handle = body->pd_handle,
		.max_wr = body->max_wr,
		.max_sge = body->max_sge,
		.srq_limit = body->srq_limit,
	};
	struct object *cq = object_find(context, OBJECT_CQ, body->cq_handle);
	struct srq *srq;
	int err;

	if (body->srq_type != IB_UVERBS_SRQT_XRC && body->srq_type != IB_UVERBS_SRQT_TM)
		return -EOPNOTSUPP;
	if (!cq)
		return -EINVAL;
	if (body->srq_type == IB_UVERBS_SRQT_XRC)
		err = create_xrc(request, &plain,
				 object_find(context, OBJECT_XRCD, body->xrcd_handle), response,
				 &srq);
	else
		err = create_tagged(request, &plain, body->max_num_tags, response, &srq);
	if (err)
		return err;
	srq->cq = (struct cq *)cq;
	cq->users++;
	return 0;
}

int command_modify_srq(struct request *request, void *response)
{
	const struct ib_uverbs_modify_srq *body = request->body;
	struct srq *srq =
		(struct srq *)object_find(request->conn->context, OBJECT_SRQ, body->srq_handle);
	uint32_t max_wr;

	(void)response;
	if (!srq || (body->attr_mask & ~(uint32_t)(SRQ_MAX_WR | SRQ_LIMIT)))
		return -EINVAL;
	max_wr = body->attr_mask & SRQ_MAX_WR ? body->max_wr : srq->max_wr;
	if (!max_wr || max_wr > LIMIT_SRQ_WR)
		return -EINVAL;
	if ((body->attr_mask & SRQ_LIMIT) && body->srq_limit > max_wr)
		return -EINVAL;
	srq->max_wr = max_wr;
	return 0;
}

void srq_release(struct srq *srq)
{
	if (srq->cq)
		srq->cq->object.users--;
	if (srq->xrcd) {
		ids_give(&srq->object.context->process->qpns, srq->srqn & (LIMIT_QPS_PER_SLOT - 1));
		srq->xrcd->object.users--;
	}
	domain_pd_unuse(srq->pd);
}

int command_destroy_srq(struct request *request, void *response)
{
	const struct ib_uverbs_destroy_srq *body = request->body;

	(void)response; /* the process counts the events */
	return object_destroy_handle(request->conn->context, OBJECT_SRQ, body->srq_handle);
}
