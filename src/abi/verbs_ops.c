/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables of functions in a context, through which the inline functions of <infiniband/verbs.h>
 * call this library, and the calls whose features Verbena doesn't have. Where a slot is NULL the
 * inline function returns EOPNOTSUPP; slots that are called without a check get functions that
 * return the same.
 */
#include "abi/verbs_abi.h"
#include "base/refused.h"
#include "hca/exec/mcast.h"
#include "hca/mem/pd.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/window.h"

#undef ibv_query_port

static struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	int err = handle_check("ibv_alloc_mw", pd->handle, pd_of(pd)->shown);

	if (err)
		return fail_null(err);
	struct ibv_mw *mw = window_alloc(pd, type);

	if (mw)
		context_count(pd->context, 1);
	return mw;
}

static int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	if (kernel_context_of(mw->context) ||
	    (bind->bind_info.mr && kernel_context_of(bind->bind_info.mr->context)))
		return fail_errno(refused(EINVAL, "ibv_bind_mw: the window or the region is of "
						  "another device's context"));
	return fail_errno(sq_bind_mw(qp, mw, bind));
}

static int verbs_dealloc_mw(struct ibv_mw *mw)
{
	struct ibv_context *context = mw->context;
	int err = handle_check("ibv_dealloc_mw", mw->handle, mw_of(mw)->handle);

	if (!err)
		err = window_dealloc(mw);
	if (err)
		return fail_errno(err);
	context_count(context, -1);
	return 0;
}

void verbs_ops_fill(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->_compat_query_device = ibv_query_device; /* for programs from before 2011 */
	ops->_compat_query_port = ibv_query_port;
	ops->alloc_mw = verbs_alloc_mw;
	ops->bind_mw = verbs_bind_mw;
	ops->dealloc_mw = verbs_dealloc_mw;
	ops->poll_cq = cq_poll;
	ops->req_notify_cq = cq_req_notify;
	ops->post_srq_recv = srq_post;
	ops->post_send = sq_post;
	ops->post_recv = rq_post;

	verbs->query_port = verbs_query_port;
	verbs->query_device_ex = verbs_query_device_ex;
	verbs->query_rt_values = verbs_query_rt_values;
	verbs->alloc_td = verbs_alloc_td;
	verbs->dealloc_td = verbs_dealloc_td;
	verbs->alloc_parent_domain = verbs_alloc_parent_domain;
	verbs->modify_cq = verbs_modify_cq;
	verbs->modify_qp_rate_limit = verbs_modify_qp_rate_limit;
	verbs->advise_mr = verbs_advise_mr;
	verbs->alloc_null_mr = verbs_alloc_null_mr;
	verbs->alloc_dm = verbs_alloc_dm;
	verbs->free_dm = verbs_free_dm;
	verbs->reg_dm_mr = verbs_reg_dm_mr;
	verbs->create_cq_ex = verbs_create_cq_ex;
	verbs->create_qp_ex = verbs_create_qp_ex;
	verbs->create_srq_ex = verbs_create_srq_ex;
	verbs->post_srq_ops = srq_post_ops;
	verbs->get_srq_num = verbs_get_srq_num;
	verbs->open_xrcd = verbs_open_xrcd;
	verbs->close_xrcd = verbs_close_xrcd;
	verbs->open_qp = verbs_open_qp;
	verbs->create_counters = verbs_create_counters;
	verbs->destroy_counters = verbs_destroy_counters;
	verbs->attach_counters_point_flow = verbs_attach_counters;
	verbs->read_counters = verbs_read_counters;
	verbs->ibv_create_flow = verbs_create_flow;
	verbs->ibv_destroy_flow = verbs_destroy_flow;
	verbs->create_wq = verbs_create_wq;
	verbs->modify_wq = verbs_modify_wq;
	verbs->destroy_wq = verbs_destroy_wq;
	verbs->create_rwq_ind_table = verbs_create_rwq_ind_table;
	verbs->destroy_rwq_ind_table = verbs_destroy_rwq_ind_table;
}

/* ------------------------------------------------------------------ other features of QPs */

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_attach_mcast(kernel, qp, gid, lid);
	return fail_errno(mcast_attach(qp, gid, lid));
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_detach_mcast(kernel, qp, gid, lid);
	return fail_errno(mcast_detach(qp, gid, lid));
}

/* Enhanced connection establishment is a negotiation of what two queue pairs of one vendor can do
 * beyond the specification. Verbena's do nothing beyond it, so no option is ever accepted. */
static const struct ibv_ece own_ece = {.vendor_id = DEVICE_VENDOR_ID};

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_set_ece(kernel, qp, ece);
	/* Options of another vendor's queue pairs mean nothing here. */
	if (ece->comp_mask || (ece->vendor_id && ece->vendor_id != DEVICE_VENDOR_ID))
		return fail_errno(refused(EINVAL,
					  "ibv_set_ece: comp_mask is 0x%x, and must be 0; "
					  "vendor_id is 0x%x, and must be 0 or 0x%x",
					  ece->comp_mask, ece->vendor_id,
					  (unsigned int)DEVICE_VENDOR_ID));
	*ece = own_ece;
	return 0;
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	if (kernel)
		return kernel_query_ece(kernel, qp, ece);
	*ece = own_ece;
	return 0;
}

/* Only the last byte of a message is guaranteed to arrive last; the caller asks for more than
 * that. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	return kernel ? kernel_data_in_order(kernel, qp, op, flags) : 0;
}
