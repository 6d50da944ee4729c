/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for protection domains, address handles, memory regions and memory windows, which driver
 * libraries call. Each returns 0 or a positive errno. `request` and `response` are the driver's,
 * with its data behind the command's own; no other state, any thread.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <string.h>

#include "kverbs/command.h"
#include "kverbs/commands.h"
#include "kverbs/kernel.h"

/* ------------------------------------------------------------------ protection domains */

EXPORT int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, void *request,
			    size_t size, struct ib_uverbs_alloc_pd_resp *response,
			    size_t response_size)
{
	struct ib_uverbs_alloc_pd core = {0};
	int err = COMMAND(context, ALLOC_PD, core, size, response);

	if (err)
		return err;
	pd->handle = response->pd_handle;
	pd->context = context;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_alloc_pd, ibv_cmd_alloc_pd);

EXPORT int ibv_cmd_dealloc_pd(struct ibv_pd *pd)
{
	struct ib_uverbs_dealloc_pd core = {.pd_handle = pd->handle};

	return destroy_result(COMMAND_PLAIN(pd->context, DEALLOC_PD, core));
}
EXPORT_SINCE_34(ibv_cmd_dealloc_pd, ibv_cmd_dealloc_pd);

/* ------------------------------------------------------------------ address handles */

/* Some drivers pass no response. */
EXPORT int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr,
			     struct ib_uverbs_create_ah_resp *response, size_t response_size)
{
	struct ib_uverbs_create_ah core = {
		.user_handle = (uintptr_t)ah,
		.pd_handle = pd->handle,
		.attr.dlid = attr->dlid,
		.attr.sl = attr->sl,
		.attr.src_path_bits = attr->src_path_bits,
		.attr.static_rate = attr->static_rate,
		.attr.is_global = attr->is_global,
		.attr.port_num = attr->port_num,
		.attr.grh.flow_label = attr->grh.flow_label,
		.attr.grh.sgid_index = attr->grh.sgid_index,
		.attr.grh.hop_limit = attr->grh.hop_limit,
		.attr.grh.traffic_class = attr->grh.traffic_class,
	};
	struct ib_uverbs_create_ah_resp own;
	void *request = NULL;
	size_t size = 0;

	memcpy(core.attr.grh.dgid, attr->grh.dgid.raw, sizeof(core.attr.grh.dgid));
	if (!response) {
		response = &own;
		response_size = sizeof(own);
	}
	int err = COMMAND(pd->context, CREATE_AH, core, size, response);

	if (err)
		return err;
	ah->handle = response->ah_handle;
	ah->context = pd->context;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_create_ah, ibv_cmd_create_ah);

EXPORT int ibv_cmd_destroy_ah(struct ibv_ah *ah)
{
	struct ib_uverbs_destroy_ah core = {.ah_handle = ah->handle};

	return destroy_result(COMMAND_PLAIN(ah->context, DESTROY_AH, core));
}
EXPORT_SINCE_34(ibv_cmd_destroy_ah, ibv_cmd_destroy_ah);

/* ------------------------------------------------------------------ memory regions */

EXPORT int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
			  struct provider_mr *mr, void *request, size_t size,
			  struct ib_uverbs_reg_mr_resp *response, size_t response_size)
{
	struct ib_uverbs_reg_mr core = {
		.start = (uintptr_t)addr,
		.length = length,
		.hca_va = iova,
		.pd_handle = pd->handle,
		.access_flags = (uint32_t)access,
	};
	bool whole = (access & IBV_ACCESS_ON_DEMAND) && length == SIZE_MAX;

	if (whole && addr)
		return EINVAL;
	if (whole) /* the whole address space; differs from SIZE_MAX on 32 bits only */
		core.length = UINT64_MAX;
	int err = COMMAND(pd->context, REG_MR, core, size, response);

	if (err)
		return err;
	mr->ibv.handle = response->mr_handle;
	mr->ibv.lkey = response->lkey;
	mr->ibv.rkey = response->rkey;
	mr->ibv.context = pd->context;
	mr->type = PROVIDER_MR;
	mr->access = access;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_reg_mr, ibv_cmd_reg_mr);

EXPORT int ibv_cmd_rereg_mr(struct provider_mr *mr, uint32_t flags, void *addr, size_t length,
			    uint64_t iova, int access, struct ibv_pd *pd, void *request,
			    size_t size, struct ib_uverbs_rereg_mr_resp *response,
			    size_t response_size)
{
	struct ib_uverbs_rereg_mr core = {
		.mr_handle = mr->ibv.handle,
		.flags = flags,
		.start = (uintptr_t)addr,
		.length = length,
		.hca_va = iova,
		.pd_handle = flags & IBV_REREG_MR_CHANGE_PD ? pd->handle : 0,
		.access_flags = (uint32_t)access,
	};
	int err = COMMAND(mr->ibv.context, REREG_MR, core, size, response);

	if (err)
		return err;
	mr->ibv.lkey = response->lkey;
	mr->ibv.rkey = response->rkey;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_rereg_mr, ibv_cmd_rereg_mr);

EXPORT int ibv_cmd_dereg_mr(struct provider_mr *mr)
{
	struct ib_uverbs_dereg_mr core = {.mr_handle = mr->ibv.handle};

	return destroy_result(COMMAND_PLAIN(mr->ibv.context, DEREG_MR, core));
}
EXPORT_SINCE_34(ibv_cmd_dereg_mr, ibv_cmd_dereg_mr);

EXPORT int ibv_cmd_query_mr(struct ibv_pd *pd, struct provider_mr *mr, uint32_t handle)
{
	struct method method;
	uint32_t lkey = 0, rkey = 0;
	uint64_t length = 0;

	method_begin(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
	method_object(&method, UVERBS_ATTR_QUERY_MR_HANDLE, handle);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_LKEY, &lkey, sizeof(lkey));
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_RKEY, &rkey, sizeof(rkey));
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &length, sizeof(length));
	int err = method_run(kernel_of(pd->context), &method);

	if (err)
		return err;
	mr->ibv.handle = handle;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.length = length;
	mr->ibv.lkey = lkey;
	mr->ibv.rkey = rkey;
	mr->type = PROVIDER_MR_IMPORTED;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_query_mr, ibv_cmd_query_mr);

EXPORT int ibv_cmd_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
			     struct ibv_sge *list, uint32_t count)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
	method_object(&method, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle);
	method_in_u64(&method, UVERBS_ATTR_ADVISE_MR_ADVICE, advice);
	method_in_u32(&method, UVERBS_ATTR_ADVISE_MR_FLAGS, flags);
	method_in(&method, UVERBS_ATTR_ADVISE_MR_SGE_LIST, list, count * sizeof(*list));
	return method_run(kernel_of(pd->context), &method);
}
EXPORT_SINCE_34(ibv_cmd_advise_mr, ibv_cmd_advise_mr);

/* Since 57 with attributes of the driver. */
EXPORT int ibv_cmd_reg_dmabuf_mr_57(struct ibv_pd *pd, uint64_t offset, size_t length,
				    uint64_t iova, int fd, int access, struct provider_mr *mr,
				    struct ibv_command_buffer *link)
{
	struct method method;
	uint32_t lkey = 0, rkey = 0;

	method_begin(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
	method_object(&method, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0);
	method_object(&method, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle);
	method_in_u64(&method, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset);
	method_in_u64(&method, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length);
	method_in_u64(&method, UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova);
	method_in_u32(&method, UVERBS_ATTR_REG_DMABUF_MR_FD, (uint32_t)fd);
	method_in_u32(&method, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, (uint32_t)access);
	method_out(&method, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey, sizeof(lkey));
	method_out(&method, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey, sizeof(rkey));
	method_append(&method, link);
	int err = method_run(kernel_of(pd->context), &method);

	if (err)
		return err;
	method_return(&method, link);
	mr->ibv.handle = (uint32_t)method_result(&method, UVERBS_ATTR_REG_DMABUF_MR_HANDLE);
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.lkey = lkey;
	mr->ibv.rkey = rkey;
	mr->type = PROVIDER_MR_DMABUF;
	return 0;
}
EXPORT_SINCE_57(ibv_cmd_reg_dmabuf_mr_57, ibv_cmd_reg_dmabuf_mr);

/* In the node of 34 some releases have the attributes and others don't; a call doesn't tell which
 * it is of, so there none are sent. */
EXPORT int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access, struct provider_mr *mr)
{
	return ibv_cmd_reg_dmabuf_mr_57(pd, offset, length, iova, fd, access, mr, NULL);
}
EXPORT_34(ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_dmabuf_mr);

/* ------------------------------------------------------------------ memory windows */

EXPORT int ibv_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw,
			    void *request, size_t size, struct ib_uverbs_alloc_mw_resp *response,
			    size_t response_size)
{
	struct ib_uverbs_alloc_mw core = {.pd_handle = pd->handle, .mw_type = (uint8_t)type};
	int err = COMMAND(pd->context, ALLOC_MW, core, size, response);

	if (err)
		return err;
	mw->context = pd->context;
	mw->pd = pd;
	mw->rkey = response->rkey;
	mw->handle = response->mw_handle;
	mw->type = type;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_alloc_mw, ibv_cmd_alloc_mw);

EXPORT int ibv_cmd_dealloc_mw(struct ibv_mw *mw)
{
	struct ib_uverbs_dealloc_mw core = {.mw_handle = mw->handle};

	return destroy_result(COMMAND_PLAIN(mw->context, DEALLOC_MW, core));
}
EXPORT_SINCE_34(ibv_cmd_dealloc_mw, ibv_cmd_dealloc_mw);
