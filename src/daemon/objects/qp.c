/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: the daemon gives the number, and keeps what a queue pair uses alive. The state
 * machine is in the process, as it is on the card with an adapter.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/mcast.h"
#include "daemon/objects/context.h"
#include "daemon/objects/share.h"
#include "daemon/objects/xrc.h"
#include "proto/limits.h"
#include "wire/packet.h"

/* The objects that the command's handles name. */
struct parts {
	struct pd *pd;
	struct cq *send_cq, *recv_cq;
	struct srq *srq;
};

static int find_parts(struct context *context, const struct ib_uverbs_create_qp *body,
		      struct parts *parts)
{
	bool receives = body->qp_type != IB_UVERBS_QPT_XRC_INI;

	*parts = (struct parts){
		.pd = pd_find(context, body->pd_handle),
		.send_cq = (struct cq *)object_find(context, OBJECT_CQ, body->send_cq_handle),
	};
	if (receives)
		parts->recv_cq = (struct cq *)object_find(context, OBJECT_CQ, body->recv_cq_handle);
	if (body->is_srq)
		parts->srq = (struct srq *)object_find(context, OBJECT_SRQ, body->srq_handle);
	if (!parts->pd || !parts->send_cq || (receives && !parts->recv_cq) ||
	    (body->is_srq && (!parts->srq || parts->srq->xrcd || !receives)))
		return -EINVAL;
	return 0;
}

static int check_type(uint8_t type)
{
	switch (type) {
	case IB_UVERBS_QPT_RC:
	case IB_UVERBS_QPT_UC:
	case IB_UVERBS_QPT_UD:
	case IB_UVERBS_QPT_XRC_INI:
	case IB_UVERBS_QPT_RAW_PACKET:
	case PROTO_QPT_WQ:
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int qp_check_request_caps(const struct ib_uverbs_create_qp *body)
{
	if (body->max_send_wr > LIMIT_QP_WR || body->max_recv_wr > LIMIT_QP_WR ||
	    body->max_send_sge > LIMIT_SGE || body->max_recv_sge > LIMIT_SGE ||
	    body->max_inline_data > LIMIT_INLINE)
		return -EINVAL;
	return 0;
}

int qpn_take(struct request *request, uint32_t *qpn)
{
	struct process *process = request->conn->context->process;
	const struct proto_return *old = request->old;
	uint32_t index;

	if (old) {
		*qpn = old->number;
		return *qpn >> LIMIT_QP_BITS != process->slot || *qpn == WIRE_MULTICAST_QPN
			       ? -EINVAL
			       : ids_claim(&process->qpns, *qpn & (LIMIT_QPS_PER_SLOT - 1));
	}
	do { /* A number that is reserved for multicast, or has become a target's, stays taken. */
		if (ids_take(&process->qpns, &index))
			return request_may_wait(request) ? -EAGAIN : -ENOMEM;
		*qpn = process->slot << LIMIT_QP_BITS | index;
	} while (*qpn == WIRE_MULTICAST_QPN || xrc_takes_number(process->server, *qpn));
	return 0;
}

static void qp_fill(struct qp *qp, const struct parts *parts, uint8_t type)
{
	qp->type = type;
	list_init(&qp->groups);
	qp->pd = parts->pd;
	qp->send_cq = parts->send_cq;
	qp->recv_cq = parts->recv_cq;
	qp->srq = parts->srq;
	domain_pd_use(qp->pd);
	qp->send_cq->object.users++;
	if (qp->recv_cq)
		qp->recv_cq->object.users++;
	if (qp->srq)
		qp->srq->object.users++;
}

static int qp_create_for(struct request *request, const struct ib_uverbs_create_qp *body,
			 struct ib_uverbs_create_qp_resp *resp)
{
	struct context *context = request->conn->context;
	struct object *object;
	struct parts parts;
	int err = check_type(body->qp_type);

	if (!err)
		err = qp_check_request_caps(body);
	if (!err)
		err = find_parts(context, body, &parts);
	if (!err)
		err = object_make(request, OBJECT_QP, sizeof(struct qp), &object);
	if (err)
		return err;
	struct qp *qp = (struct qp *)object;

	err = qpn_take(request, &qp->qpn);
	if (err) {
		object_free(object);
		return err;
	}
	qp_fill(qp, &parts, body->qp_type);
	*resp = (struct ib_uverbs_create_qp_resp){
		.qp_handle = object->handle,
		.qpn = qp->qpn,
		.max_send_wr = body->max_send_wr,
		.max_recv_wr = body->max_recv_wr,
		.max_send_sge = body->max_send_sge,
		.max_recv_sge = body->max_recv_sge,
		.max_inline_data = body->max_inline_data,
	};
	return 0;
}

/* Makes an XRC target queue pair and its first handle; `pd_handle` is the domain's, as in the
 * kernel. A process that returns brings it by PROTO_XRC_RETURNS. */
static int target_create_for(struct request *request, const struct ib_uverbs_create_qp *body,
			     struct ib_uverbs_create_qp_resp *resp)
{
	struct process *process = request->conn->context->process;
	struct object *xrcd = object_find(request->conn->context, OBJECT_XRCD, body->pd_handle);
	struct target *target;
	struct object *object;
	uint32_t qpn;

	if (!xrcd || request->old)
		return -EINVAL;
	int err = object_make(request, OBJECT_QP, sizeof(struct qp), &object);

	if (err)
		return err;
	err = qpn_take(request, &qpn);
	if (!err) {
		err = xrc_make_target(((struct xrcd *)xrcd)->member->domain, qpn, &target);
		if (err)
			ids_give(&process->qpns, qpn & (LIMIT_QPS_PER_SLOT - 1));
	}
	if (err) {
		object_free(object);
		return err == -ENOMEM && request_may_wait(request) ? -EAGAIN : err;
	}
	struct qp *qp = (struct qp *)object;

	qp->type = body->qp_type;
	qp->qpn = qpn;
	qp->xrcd = (struct xrcd *)xrcd;
	xrcd->users++;
	list_init(&qp->groups);
	xrc_join(target, qp);
	*resp = (struct ib_uverbs_create_qp_resp){.qp_handle = object->handle, .qpn = qpn};
	return 0;
}

int command_create_qp(struct request *request, void *response)
{
	const struct ib_uverbs_create_qp *body = request->body;

	if (body->qp_type == IB_UVERBS_QPT_XRC_TGT)
		return target_create_for(request, body, response);
	return qp_create_for(request, body, response);
}

/* Makes one of the QP's CQs in *cq, if the request wants it. */
static int make_own_cq(struct request *request, const struct proto_new_cq *wanted, struct cq **cq,
		       struct proto_create_channel_cq_resp *resp, uint32_t *handle)
{
	if (!wanted->cqe)
		return 0;
	int err = cq_make_with_channel(request, wanted->cqe, wanted->comp_vector, resp, cq);

	if (!err)
		*handle = resp->cq;
	return err;
}

int command_create_qp_cqs(struct request *request, void *response)
{
	const struct proto_create_qp_cqs *body = request->body;
	struct proto_create_qp_cqs_resp *resp = response;
	struct ib_uverbs_create_qp qp = body->qp;
	struct cq *send = NULL, *recv = NULL;
	int err = make_own_cq(request, &body->send, &send, &resp->send, &qp.send_cq_handle);

	if (!err)
		err = make_own_cq(request, &body->recv, &recv, &resp->recv, &qp.recv_cq_handle);
	if (!err)
		err = qp_create_for(request, &qp, &resp->qp);
	if (!err)
		return 0;
	if (recv)
		cq_unmake_with_channel(recv);
	if (send)
		cq_unmake_with_channel(send);
	return err;
}

void qp_release(struct qp *qp)
{
	if (qp->target) {
		xrc_leave(qp);
		qp->xrcd->object.users--;
		return;
	}
	while (mcast_detach_one(qp))
		;
	ids_give(&qp->object.context->process->qpns, qp->qpn & (LIMIT_QPS_PER_SLOT - 1));
	if (qp->srq)
		qp->srq->object.users--;
	if (qp->recv_cq)
		qp->recv_cq->object.users--;
	qp->send_cq->object.users--;
	domain_pd_unuse(qp->pd);
}

int command_destroy_qp(struct request *request, void *response)
{
	const struct ib_uverbs_destroy_qp *body = request->body;

	(void)response; /* the process counts the events */
	return object_destroy_handle(request->conn->context, OBJECT_QP, body->qp_handle);
}
