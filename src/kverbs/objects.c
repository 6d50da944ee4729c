/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of programs on objects of the kernel's devices: each goes to the driver, and fills what
 * libibverbs and not the driver fills. All parts of an object must be of one context: a part of
 * Verbena's, or of another device, is refused with EINVAL before a driver sees it. No state.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "base/sys.h"
#include "kverbs/command.h"
#include "kverbs/device.h"

static int report_error(int err)
{
	if (err)
		errno = err;
	return err;
}

static void *report_null(int err)
{
	errno = err;
	return NULL;
}

/* For calls that a driver may lack. */
#define UNLESS_PROVIDED(kernel, name) \
	if (!(kernel)->ops.name)      \
	return report_error(EOPNOTSUPP)
#define NULL_UNLESS_PROVIDED(kernel, name) \
	if (!(kernel)->ops.name)           \
	return report_null(EOPNOTSUPP)

static bool part_belongs(const struct kernel_context *kernel, const struct ibv_context *context)
{
	return context == &kernel->verbs->context;
}

/* ------------------------------------------------------------------ protection domains */

struct ibv_pd *kernel_alloc_pd(struct kernel_context *kernel)
{
	NULL_UNLESS_PROVIDED(kernel, alloc_pd);
	struct ibv_pd *pd = kernel->ops.alloc_pd(&kernel->verbs->context);

	if (pd)
		pd->context = &kernel->verbs->context;
	return pd;
}

int kernel_dealloc_pd(struct kernel_context *kernel, struct ibv_pd *pd)
{
	UNLESS_PROVIDED(kernel, dealloc_pd);
	return report_error(kernel->ops.dealloc_pd(pd));
}

struct ibv_pd *kernel_import_pd(struct kernel_context *kernel, uint32_t handle)
{
	NULL_UNLESS_PROVIDED(kernel, import_pd);
	return kernel->ops.import_pd(&kernel->verbs->context, handle);
}

void kernel_unimport_pd(struct kernel_context *kernel, struct ibv_pd *pd)
{
	if (kernel->ops.unimport_pd)
		kernel->ops.unimport_pd(pd);
}

/* ------------------------------------------------------------------ device memory */

struct ibv_dm *kernel_import_dm(struct kernel_context *kernel, uint32_t handle)
{
	NULL_UNLESS_PROVIDED(kernel, import_dm);
	return kernel->ops.import_dm(&kernel->verbs->context, handle);
}

void kernel_unimport_dm(struct kernel_context *kernel, struct ibv_dm *dm)
{
	if (kernel->ops.unimport_dm)
		kernel->ops.unimport_dm(dm);
}

/* ------------------------------------------------------------------ memory regions */

struct ibv_mr *kernel_reg_mr(struct kernel_context *kernel, struct ibv_pd *pd, void *addr,
			     size_t length, uint64_t iova, unsigned int access)
{
	uint64_t support = kernel->device->provided->core_support;

	NULL_UNLESS_PROVIDED(kernel, reg_mr);
	if (!(support & IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS))
		access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	struct ibv_mr *mr = kernel->ops.reg_mr(pd, addr, length, iova, (int)access);

	if (!mr)
		return NULL;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	return mr;
}

struct ibv_mr *kernel_reg_dmabuf_mr(struct kernel_context *kernel, struct ibv_pd *pd,
				    uint64_t offset, size_t length, uint64_t iova, int fd,
				    int access)
{
	NULL_UNLESS_PROVIDED(kernel, reg_dmabuf_mr);
	struct ibv_mr *mr = kernel->ops.reg_dmabuf_mr(pd, offset, length, iova, fd, access);

	if (!mr)
		return NULL;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = (void *)(uintptr_t)offset;
	mr->length = length;
	return mr;
}

static struct provider_mr *provider_mr_of(struct ibv_mr *mr)
{
	return container_of(mr, struct provider_mr, ibv);
}

/* A region of device memory has no address. */
bool kernel_mr_is_pinned(const struct ibv_mr *mr)
{
	const struct provider_mr *provided = container_of(mr, const struct provider_mr, ibv);

	return provided->type == PROVIDER_MR && mr->addr &&
	       !(provided->access & IBV_ACCESS_ON_DEMAND);
}

int kernel_rereg_mr(struct kernel_context *kernel, struct ibv_mr *mr, int flags, struct ibv_pd *pd,
		    void *addr, size_t length, int access)
{
	const int known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
			  IBV_REREG_MR_CHANGE_ACCESS;

	UNLESS_PROVIDED(kernel, rereg_mr);
	if (provider_mr_of(mr)->type != PROVIDER_MR || flags & ~known)
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!length || !addr))
		return EINVAL;
	if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD && (!pd || !part_belongs(kernel, pd->context)))
		return EINVAL;
	int err = kernel->ops.rereg_mr(provider_mr_of(mr), flags, pd, addr, length, access);

	if (err)
		return err;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	return 0;
}

int kernel_dereg_mr(struct kernel_context *kernel, struct ibv_mr *mr)
{
	UNLESS_PROVIDED(kernel, dereg_mr);
	return report_error(kernel->ops.dereg_mr(provider_mr_of(mr)));
}

struct ibv_mr *kernel_import_mr(struct kernel_context *kernel, struct ibv_pd *pd, uint32_t handle)
{
	NULL_UNLESS_PROVIDED(kernel, import_mr);
	return kernel->ops.import_mr(pd, handle);
}

void kernel_unimport_mr(struct kernel_context *kernel, struct ibv_mr *mr)
{
	if (kernel->ops.unimport_mr)
		kernel->ops.unimport_mr(mr);
}

/* ------------------------------------------------------------------ completion queues */

struct ibv_comp_channel *kernel_create_channel(struct kernel_context *kernel)
{
	struct ib_uverbs_create_comp_channel core = {0};
	struct ib_uverbs_create_comp_channel_resp answer;
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return report_null(ENOMEM);
	int err = command_run(kernel, &(struct command){
					      .number = IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
					      .core = &core,
					      .core_size = sizeof(core),
					      .answer = &answer,
					      .answer_size = sizeof(answer),
				      });

	if (err) {
		free(channel);
		return report_null(err);
	}
	channel->context = &kernel->verbs->context;
	channel->fd = (int)answer.fd;
	return channel;
}

int kernel_destroy_channel(struct ibv_comp_channel *channel)
{
	struct ibv_context *context = channel->context;

	pthread_mutex_lock(&context->mutex);
	bool busy = channel->refcnt != 0;

	pthread_mutex_unlock(&context->mutex);
	if (busy)
		return report_error(EBUSY);
	sys_close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *kernel_create_cq(struct kernel_context *kernel, int cqe, void *cq_context,
				struct ibv_comp_channel *channel, int vector)
{
	struct ibv_context *context = &kernel->verbs->context;

	NULL_UNLESS_PROVIDED(kernel, create_cq);
	if (channel && !part_belongs(kernel, channel->context))
		return report_null(EINVAL);
	struct ibv_cq *cq = kernel->ops.create_cq(context, cqe, channel, vector);

	if (cq)
		verbs_init_cq(cq, context, channel, cq_context);
	return cq;
}

struct ibv_cq_ex *kernel_create_cq_ex(struct kernel_context *kernel,
				      struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_context *context = &kernel->verbs->context;

	NULL_UNLESS_PROVIDED(kernel, create_cq_ex);
	if (attr->wc_flags & ~(uint64_t)IBV_CREATE_CQ_SUP_WC_FLAGS)
		return report_null(EOPNOTSUPP);
	if ((attr->channel && !part_belongs(kernel, attr->channel->context)) ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
	     !part_belongs(kernel, attr->parent_domain->context)))
		return report_null(EINVAL);
	struct ibv_cq_ex *cq = kernel->ops.create_cq_ex(context, attr);

	if (cq)
		verbs_init_cq(ibv_cq_ex_to_cq(cq), context, attr->channel, attr->cq_context);
	return cq;
}

int kernel_resize_cq(struct kernel_context *kernel, struct ibv_cq *cq, int cqe)
{
	UNLESS_PROVIDED(kernel, resize_cq);
	return report_error(kernel->ops.resize_cq(cq, cqe));
}

int kernel_destroy_cq(struct kernel_context *kernel, struct ibv_cq *cq)
{
	struct ibv_comp_channel *channel = cq->channel;

	UNLESS_PROVIDED(kernel, destroy_cq);
	int err = kernel->ops.destroy_cq(cq);

	if (!err && channel) {
		pthread_mutex_lock(&channel->context->mutex);
		channel->refcnt--;
		pthread_mutex_unlock(&channel->context->mutex);
	}
	return report_error(err);
}

/* ------------------------------------------------------------------ shared receive queues */

struct ibv_srq *kernel_create_srq(struct kernel_context *kernel, struct ibv_pd *pd,
				  struct ibv_srq_init_attr *attr)
{
	NULL_UNLESS_PROVIDED(kernel, create_srq);
	struct ibv_srq *srq = kernel->ops.create_srq(pd, attr);

	if (!srq)
		return NULL;
	srq->context = pd->context;
	srq->srq_context = attr->srq_context;
	srq->pd = pd;
	return srq;
}

struct ibv_srq *kernel_create_srq_ex(struct kernel_context *kernel,
				     struct ibv_srq_init_attr_ex *attr)
{
	NULL_UNLESS_PROVIDED(kernel, create_srq_ex);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD && !part_belongs(kernel, attr->pd->context)) ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ && attr->cq &&
	     !part_belongs(kernel, attr->cq->context)) ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD && attr->xrcd &&
	     !part_belongs(kernel, attr->xrcd->context)))
		return report_null(EINVAL);
	return kernel->ops.create_srq_ex(&kernel->verbs->context, attr);
}

int kernel_modify_srq(struct kernel_context *kernel, struct ibv_srq *srq, struct ibv_srq_attr *attr,
		      int mask)
{
	UNLESS_PROVIDED(kernel, modify_srq);
	return report_error(kernel->ops.modify_srq(srq, attr, mask));
}

int kernel_query_srq(struct kernel_context *kernel, struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	UNLESS_PROVIDED(kernel, query_srq);
	return report_error(kernel->ops.query_srq(srq, attr));
}

int kernel_destroy_srq(struct kernel_context *kernel, struct ibv_srq *srq)
{
	UNLESS_PROVIDED(kernel, destroy_srq);
	return report_error(kernel->ops.destroy_srq(srq));
}

/* ------------------------------------------------------------------ queue pairs */

/* Whether the parts that there are belong to the context. */
static bool queues_belong(const struct kernel_context *kernel, const struct ibv_cq *send_cq,
			  const struct ibv_cq *recv_cq, const struct ibv_srq *srq)
{
	return (!send_cq || part_belongs(kernel, send_cq->context)) &&
	       (!recv_cq || part_belongs(kernel, recv_cq->context)) &&
	       (!srq || part_belongs(kernel, srq->context));
}

struct ibv_qp *kernel_create_qp(struct kernel_context *kernel, struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr)
{
	NULL_UNLESS_PROVIDED(kernel, create_qp);
	if (!queues_belong(kernel, attr->send_cq, attr->recv_cq, attr->srq))
		return report_null(EINVAL);
	return kernel->ops.create_qp(pd, attr);
}

struct ibv_qp *kernel_create_qp_ex(struct kernel_context *kernel, struct ibv_qp_init_attr_ex *attr)
{
	NULL_UNLESS_PROVIDED(kernel, create_qp_ex);
	if (!queues_belong(kernel, attr->send_cq, attr->recv_cq, attr->srq) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_PD && !part_belongs(kernel, attr->pd->context)) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD &&
	     !part_belongs(kernel, attr->xrcd->context)) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE &&
	     !part_belongs(kernel, attr->rwq_ind_tbl->context)))
		return report_null(EINVAL);
	return kernel->ops.create_qp_ex(&kernel->verbs->context, attr);
}

/* A driver library of rdma-core 44 doesn't know the last function, and has `comp_mask` where that
 * is: with a small number, which no function's address is. */
static uint64_t qp_mask_of_44(const struct provider_qp *provided)
{
	uint64_t there;

	memcpy(&there, &provided->ex.wr_flush, sizeof(there));
	return there <= (PROVIDER_QP_XRCD | PROVIDER_QP_EX) ? there : 0;
}

struct ibv_qp_ex *kernel_qp_extended(struct ibv_qp *qp)
{
	struct provider_qp *provided = container_of(qp, struct provider_qp, ibv);
	uint64_t mask = qp_mask_of_44(provided);

	if (!mask)
		mask = provided->comp_mask;
	return mask & PROVIDER_QP_EX ? &provided->ex : NULL;
}

int kernel_modify_qp(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		     int mask)
{
	UNLESS_PROVIDED(kernel, modify_qp);
	int err = kernel->ops.modify_qp(qp, attr, mask);

	if (!err && mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return report_error(err);
}

int kernel_query_qp(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		    int mask, struct ibv_qp_init_attr *init)
{
	UNLESS_PROVIDED(kernel, query_qp);
	int err = kernel->ops.query_qp(qp, attr, mask, init);

	if (!err && mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return report_error(err);
}

int kernel_destroy_qp(struct kernel_context *kernel, struct ibv_qp *qp)
{
	UNLESS_PROVIDED(kernel, destroy_qp);
	return report_error(kernel->ops.destroy_qp(qp));
}

int kernel_attach_mcast(struct kernel_context *kernel, struct ibv_qp *qp, const union ibv_gid *gid,
			uint16_t lid)
{
	UNLESS_PROVIDED(kernel, attach_mcast);
	return report_error(kernel->ops.attach_mcast(qp, gid, lid));
}

int kernel_detach_mcast(struct kernel_context *kernel, struct ibv_qp *qp, const union ibv_gid *gid,
			uint16_t lid)
{
	UNLESS_PROVIDED(kernel, detach_mcast);
	return report_error(kernel->ops.detach_mcast(qp, gid, lid));
}

int kernel_set_ece(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_ece *ece)
{
	UNLESS_PROVIDED(kernel, set_ece);
	return report_error(kernel->ops.set_ece(qp, ece));
}

int kernel_query_ece(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_ece *ece)
{
	UNLESS_PROVIDED(kernel, query_ece);
	return report_error(kernel->ops.query_ece(qp, ece));
}

int kernel_data_in_order(struct kernel_context *kernel, struct ibv_qp *qp, enum ibv_wr_opcode op,
			 uint32_t flags)
{
	return kernel->ops.query_qp_data_in_order
		       ? kernel->ops.query_qp_data_in_order(qp, op, flags)
		       : 0;
}

/* ------------------------------------------------------------------ address handles */

struct ibv_ah *kernel_create_ah(struct kernel_context *kernel, struct ibv_pd *pd,
				struct ibv_ah_attr *attr)
{
	NULL_UNLESS_PROVIDED(kernel, create_ah);
	struct ibv_ah *ah = kernel->ops.create_ah(pd, attr);

	if (!ah)
		return NULL;
	ah->context = pd->context;
	ah->pd = pd;
	return ah;
}

int kernel_destroy_ah(struct kernel_context *kernel, struct ibv_ah *ah)
{
	UNLESS_PROVIDED(kernel, destroy_ah);
	return report_error(kernel->ops.destroy_ah(ah));
}
