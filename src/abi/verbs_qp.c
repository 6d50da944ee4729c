/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs and shared receive queues: entry points of hca/verbs/qp.h and hca/verbs/srq.h. */
#include <string.h>

#include "abi/verbs_abi.h"
#include "base/refused.h"
#include "hca/mem/pd.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/xrcd.h"

/* Whether a part of a queue pair is the kernel's, so that it can't be one of Verbena's. */
static bool is_foreign(struct ibv_context *part)
{
	return kernel_context_of(part) != NULL;
}

/* Checks that the QP's parts are Verbena's and that their handles are valid: 0, EINVAL or ENOENT.
 * qp_create() checks for missing parts. */
static int check_parts(const struct ibv_qp_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_qp";
	const struct ibv_pd *pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
	int bad = 0;

	if ((pd && is_foreign(attr->pd->context)) ||
	    (attr->send_cq && is_foreign(attr->send_cq->context)) ||
	    (attr->recv_cq && is_foreign(attr->recv_cq->context)) ||
	    (attr->srq && is_foreign(attr->srq->context)))
		return EINVAL;
	if (pd)
		bad = handle_check(call, pd->handle, pd_of(attr->pd)->shown);
	if (!bad && attr->send_cq)
		bad = handle_check(call, attr->send_cq->handle, cq_of(attr->send_cq)->handle);
	if (!bad && attr->recv_cq)
		bad = handle_check(call, attr->recv_cq->handle, cq_of(attr->recv_cq)->handle);
	if (!bad && attr->srq)
		bad = handle_check(call, attr->srq->handle, srq_of(attr->srq)->handle);
	return bad;
}

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	int bad = check_parts(attr);

	if (bad)
		return fail_null(bad);
	struct ibv_qp *qp = qp_create(context, attr);

	if (qp)
		context_count(context, 1);
	return qp;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel)
		return kernel_create_qp(kernel, pd, attr);
	struct ibv_qp_init_attr_ex full = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = verbs_create_qp_ex(pd->context, &full);

	if (qp)
		attr->cap = full.cap; /* the actual capacities */
	return qp;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return kernel_context_of(qp->context) ? kernel_qp_extended(qp) : qp_to_ex(qp);
}

/*
 * `state` in struct ibv_qp is what the program last learned: only these two calls write it, and
 * only when they concern the state. A QP that fails meanwhile doesn't change it.
 */
static void state_note(struct ibv_qp *qp, enum ibv_qp_state state)
{
	__atomic_store_n(&qp->state, state, __ATOMIC_RELAXED);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_modify_qp(kernel, qp, attr, attr_mask);
	int bad = handle_check("ibv_modify_qp", qp->handle, qp_of(qp)->handle);

	if (bad)
		return fail_errno(bad);
	int err = qp_modify(qp, attr, attr_mask);

	if (!err && (attr_mask & IBV_QP_STATE))
		state_note(qp, attr->qp_state);
	return fail_errno(err);
}

int verbs_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	int bad = handle_check("ibv_modify_qp_rate_limit", qp->handle, qp_of(qp)->handle);

	return fail_errno(bad ? bad : qp_limit_rate(qp, attr));
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
			struct ibv_qp_init_attr *init_attr)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_query_qp(kernel, qp, attr, attr_mask, init_attr);
	int bad = handle_check("ibv_query_qp", qp->handle, qp_of(qp)->handle);

	if (bad)
		return fail_errno(bad);
	int err = qp_query(qp, attr, attr_mask, init_attr);

	if (!err && (attr_mask & IBV_QP_STATE))
		state_note(qp, attr->qp_state);
	return fail_errno(err);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_destroy_qp(kernel, qp);
	int bad = handle_check("ibv_destroy_qp", qp->handle, qp_of(qp)->handle);

	if (bad)
		return fail_errno(bad);
	struct ibv_context *context = qp->context;
	int err = qp_destroy(qp);

	if (!err)
		context_count(context, -1);
	return fail_errno(err);
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel)
		return kernel_create_srq(kernel, pd, attr);
	if (handle_check("ibv_create_srq", pd->handle, pd_of(pd)->shown))
		return fail_null(ENOENT);
	struct ibv_srq *srq = srq_create(pd, attr);

	if (srq)
		context_count(pd->context, 1);
	return srq;
}

/* The PD has been checked. */
static struct ibv_srq *create_srq_xrc(struct ibv_context *context,
				      struct ibv_srq_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_srq_ex";

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd ||
	    attr->xrcd->context != context || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) ||
	    !attr->cq || attr->cq->context != context)
		return fail_null(refused(EINVAL,
					 "%s: an XRC SRQ needs xrcd and cq, of this "
					 "context, in comp_mask as well",
					 call));
	if (handle_check(call, attr->pd->handle, pd_of(attr->pd)->shown) ||
	    handle_check(call, attr->cq->handle, cq_of(attr->cq)->handle))
		return fail_null(ENOENT);
	struct ibv_srq *srq = srq_create_xrc(attr);

	if (srq)
		context_count(context, 1);
	return srq;
}

/* EOPNOTSUPP: the SRQ has no number, since it isn't of the type XRC. */
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	if (!srq_of(srq)->xrcd)
		return fail_errno(refused(
			EOPNOTSUPP, "ibv_get_srq_num: only an XRC domain's SRQ has a number"));
	*number = srq_of(srq)->number;
	return 0;
}

struct ibv_xrcd *verbs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct ibv_xrcd *xrcd = xrcd_open(context, attr);

	if (xrcd)
		context_count(context, 1);
	return xrcd;
}

int verbs_close_xrcd(struct ibv_xrcd *xrcd)
{
	struct ibv_context *context = xrcd->context;
	int err = xrcd_close(xrcd);

	if (!err)
		context_count(context, -1);
	return fail_errno(err);
}

struct ibv_qp *verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	struct ibv_qp *qp = target_open(context, attr);

	if (qp)
		context_count(context, 1);
	return qp;
}

static struct ibv_srq *create_srq_tm(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_srq_ex";

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq || attr->cq->context != context)
		return fail_null(refused(EINVAL,
					 "%s: a tag-matching SRQ needs cq, of this "
					 "context, in comp_mask as well",
					 call));
	if (handle_check(call, attr->pd->handle, pd_of(attr->pd)->shown) ||
	    handle_check(call, attr->cq->handle, cq_of(attr->cq)->handle))
		return fail_null(ENOENT);
	struct ibv_srq *srq = srq_create_tm(attr);

	if (srq)
		context_count(context, 1);
	return srq;
}

/* What doesn't depend on the type. 0 or a positive errno. */
static int check_srq_ex(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr,
			enum ibv_srq_type type)
{
	if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		return refused(EINVAL, "ibv_create_srq_ex: comp_mask 0x%x has unknown bits",
			       attr->comp_mask);
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC && type != IBV_SRQT_TM)
		return refused(EOPNOTSUPP, "ibv_create_srq_ex: srq_type %d isn't supported",
			       (int)type);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return refused(EINVAL, "ibv_create_srq_ex: an SRQ needs a protection domain of "
				       "this context (pd, and IBV_SRQ_INIT_ATTR_PD in comp_mask)");
	return 0;
}

struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	enum ibv_srq_type type =
		attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;

	int bad = check_srq_ex(context, attr, type);

	if (bad)
		return fail_null(bad);
	if (type == IBV_SRQT_XRC)
		return create_srq_xrc(context, attr);
	if (type == IBV_SRQT_TM)
		return create_srq_tm(context, attr);
	struct ibv_srq_init_attr plain = {.srq_context = attr->srq_context, .attr = attr->attr};
	struct ibv_srq *srq = ibv_create_srq(attr->pd, &plain);

	if (srq)
		attr->attr = plain.attr;
	return srq;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int attr_mask)
{
	struct kernel_context *kernel = kernel_context_of(srq->context);

	if (kernel)
		return kernel_modify_srq(kernel, srq, attr, attr_mask);
	int bad = handle_check("ibv_modify_srq", srq->handle, srq_of(srq)->handle);

	if (bad)
		return fail_errno(bad);
	return fail_errno(srq_modify(srq, attr, attr_mask));
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(srq->context);

	if (kernel)
		return kernel_query_srq(kernel, srq, attr);
	int bad = handle_check("ibv_query_srq", srq->handle, srq_of(srq)->handle);

	if (bad)
		return fail_errno(bad);
	return fail_errno(srq_query(srq, attr));
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct kernel_context *kernel = kernel_context_of(srq->context);

	if (kernel)
		return kernel_destroy_srq(kernel, srq);
	int bad = handle_check("ibv_destroy_srq", srq->handle, srq_of(srq)->handle);

	if (bad)
		return fail_errno(bad);
	struct ibv_context *context = srq->context;
	int err = srq_destroy(srq);

	if (!err)
		context_count(context, -1);
	return fail_errno(err);
}
