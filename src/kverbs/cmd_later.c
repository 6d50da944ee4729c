/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands that came with rdma-core 59 to 65, which driver libraries call: DMA handles, regions
 * with a list of fields, DMA buffers of a device's memory, a port's speed, completion counters.
 * Kernels have them as methods only, and older ones haven't them: EOPNOTSUPP. Each returns 0 or a
 * positive errno, unless it says otherwise; no state, any thread.
 *
 * Compiled against headers of any kernel since 5.8, so what later ones number stands here.
 */
#include <rdma/ib_user_ioctl_cmds.h>

#include "kverbs/commands.h"

/* <rdma/ib_user_ioctl_cmds.h> of Linux 6.17 and later. */
enum { LATER_OBJECT_DMAH = 17, LATER_OBJECT_DMABUF, LATER_OBJECT_COMP_CNTR };
enum { LATER_METHOD_QUERY_PORT_SPEED = 7, LATER_METHOD_QUERY_COMP_CNTR_CAPS };
enum { LATER_METHOD_REG_MR = 5 };
enum { LATER_METHOD_QP_ATTACH_COMP_CNTR = 2 };
enum { DMAH_ALLOC, DMAH_FREE };
enum { DMAH_HANDLE, DMAH_CPU_ID, DMAH_MEM_TYPE, DMAH_PH };
enum { DMABUF_ALLOC };
enum { DMABUF_HANDLE, DMABUF_PAGE_OFFSET };
enum { PORT_SPEED_PORT, PORT_SPEED_RESPONSE };
enum {
	REG_MR_HANDLE,
	REG_MR_PD,
	REG_MR_DMAH,
	REG_MR_IOVA,
	REG_MR_ADDR,
	REG_MR_LENGTH,
	REG_MR_ACCESS,
	REG_MR_FD,
	REG_MR_FD_OFFSET,
	REG_MR_LKEY,
	REG_MR_RKEY,
};
enum { COUNTER_CREATE, COUNTER_DESTROY, COUNTER_MODIFY, COUNTER_READ };
/* Of these methods; the handle comes first in all. */
enum { COUNTER_HANDLE, COUNTER_ENTRY, COUNTER_OP, COUNTER_VALUE, COUNTER_RESPONSE = 2 };
enum { ENTRY_COMPLETIONS, ENTRY_ERRORS };
enum { OP_SET, OP_INCREASE };
enum { ATTACH_QP, ATTACH_COUNTER, ATTACH_OPS };
enum { CAPS_COUNTERS, CAPS_VALUE, CAPS_OPS };

static int later_end(struct ibv_context *context, uint16_t object, uint16_t number, uint32_t handle)
{
	struct method method;

	method_begin(&method, object, number);
	method_object(&method, 0, handle);
	return destroy_result(method_run(kernel_of(context), &method));
}

/* ------------------------------------------------------------------ DMA handles */

EXPORT int ibv_cmd_alloc_dmah(struct ibv_context *context, struct provider_dmah *dmah,
			      struct ibv_dmah_init_attr *attr)
{
	struct method method;

	method_begin(&method, LATER_OBJECT_DMAH, DMAH_ALLOC);
	method_object(&method, DMAH_HANDLE, 0);
	if (attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_CPU_ID)
		method_in_u32(&method, DMAH_CPU_ID, attr->cpu_id);
	if (attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE) {
		method_in(&method, DMAH_MEM_TYPE, "", 0);
		if (!method.invalid)
			method.attrs[method.count - 1].attr_data.enum_data.elem_id =
				attr->tph_mem_type;
	}
	if (attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_PH)
		method_in(&method, DMAH_PH, &attr->ph, sizeof(attr->ph));
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	dmah->handle = (uint32_t)method_result(&method, DMAH_HANDLE);
	dmah->ibv.context = context;
	return 0;
}
EXPORT_SINCE_59(ibv_cmd_alloc_dmah, ibv_cmd_alloc_dmah);

EXPORT int ibv_cmd_free_dmah(struct provider_dmah *dmah)
{
	return later_end(dmah->ibv.context, LATER_OBJECT_DMAH, DMAH_FREE, dmah->handle);
}
EXPORT_SINCE_59(ibv_cmd_free_dmah, ibv_cmd_free_dmah);

/* ------------------------------------------------------------------ memory */

/* Whether the fields go together: memory has an address, a DMA buffer has an offset and an IOVA. */
static bool reg_mr_fields_fit(const struct ibv_mr_init_attr *attr)
{
	const uint64_t file = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
	uint64_t mask = attr->comp_mask;

	if (!(mask & IBV_REG_MR_MASK_FD))
		return (mask & IBV_REG_MR_MASK_ADDR) && !(mask & file);
	return (mask & file) == file && (mask & IBV_REG_MR_MASK_IOVA) &&
	       !(mask & IBV_REG_MR_MASK_ADDR);
}

static int reg_mr_method(struct ibv_pd *pd, struct provider_mr *mr,
			 const struct ibv_mr_init_attr *attr)
{
	uint64_t mask = attr->comp_mask;
	uint32_t lkey = 0, rkey = 0;
	struct method method;

	method_begin(&method, UVERBS_OBJECT_MR, LATER_METHOD_REG_MR);
	method_object(&method, REG_MR_HANDLE, 0);
	method_object(&method, REG_MR_PD, pd->handle);
	if (mask & IBV_REG_MR_MASK_FD) {
		method_object(&method, REG_MR_FD, (uint64_t)attr->fd);
		method_in_u64(&method, REG_MR_FD_OFFSET, attr->fd_offset);
	} else {
		method_in_u64(&method, REG_MR_ADDR, (uintptr_t)attr->addr);
	}
	method_in_u64(&method, REG_MR_IOVA,
		      mask & IBV_REG_MR_MASK_IOVA ? attr->iova : (uintptr_t)attr->addr);
	method_in_u64(&method, REG_MR_LENGTH, attr->length);
	method_in_u32(&method, REG_MR_ACCESS, (uint32_t)attr->access);
	if (mask & IBV_REG_MR_MASK_DMAH)
		method_object(&method, REG_MR_DMAH,
			      container_of(attr->dmah, struct provider_dmah, ibv)->handle);
	method_out(&method, REG_MR_LKEY, &lkey, sizeof(lkey));
	method_out(&method, REG_MR_RKEY, &rkey, sizeof(rkey));
	int err = method_run(kernel_of(pd->context), &method);

	if (err)
		return err;
	mr->ibv.handle = (uint32_t)method_result(&method, REG_MR_HANDLE);
	mr->ibv.context = pd->context;
	mr->ibv.lkey = lkey;
	mr->ibv.rkey = rkey;
	mr->type = mask & IBV_REG_MR_MASK_FD ? PROVIDER_MR_DMABUF : PROVIDER_MR;
	mr->access = attr->access;
	return 0;
}

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
		   struct provider_mr *mr, void *request, size_t size,
		   struct ib_uverbs_reg_mr_resp *response, size_t response_size);

/* A kernel without the method registers memory by address as ever. */
EXPORT int ibv_cmd_reg_mr_ex(struct ibv_pd *pd, struct provider_mr *mr,
			     struct ibv_mr_init_attr *attr)
{
	const uint64_t method_only = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_DMAH;
	struct ib_uverbs_reg_mr_resp response;

	if (!reg_mr_fields_fit(attr))
		return EINVAL;
	if ((attr->access & IBV_ACCESS_ON_DEMAND) && attr->length == SIZE_MAX && attr->addr)
		return EINVAL;
	int err = reg_mr_method(pd, mr, attr);

	if (err != EOPNOTSUPP || attr->comp_mask & method_only)
		return err;
	return ibv_cmd_reg_mr(pd, attr->addr, attr->length,
			      attr->comp_mask & IBV_REG_MR_MASK_IOVA ? attr->iova
								     : (uintptr_t)attr->addr,
			      attr->access, mr, NULL, 0, &response, sizeof(response));
}
EXPORT_SINCE_59(ibv_cmd_reg_mr_ex, ibv_cmd_reg_mr_ex);

/* A descriptor, or -1 with errno. */
EXPORT int ibv_cmd_export_dmabuf_fd(struct ibv_context *context, off_t page_offset)
{
	struct method method;

	method_begin(&method, LATER_OBJECT_DMABUF, DMABUF_ALLOC);
	method_object(&method, DMABUF_HANDLE, 0);
	method_in_u64(&method, DMABUF_PAGE_OFFSET, (uint64_t)page_offset);
	int err = method_run(kernel_of(context), &method);

	if (!err)
		return (int)method_result(&method, DMABUF_HANDLE);
	errno = err;
	return -1;
}
EXPORT_SINCE_59(ibv_cmd_export_dmabuf_fd, ibv_cmd_export_dmabuf_fd);

/*
 * Memory that a confidential guest doesn't protect, from the kernel's heap for it. There is none
 * here, and drivers then refuse a parent domain that asks for it: NULL with EOPNOTSUPP.
 */
EXPORT void *ibv_dmabuf_heap_cc_shared_init(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}
EXPORT_SINCE_64(ibv_dmabuf_heap_cc_shared_init, ibv_dmabuf_heap_cc_shared_init);

EXPORT void ibv_dmabuf_heap_destroy(void *heap)
{
	(void)heap;
}
EXPORT_SINCE_64(ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_destroy);

EXPORT void *ibv_dmabuf_heap_alloc(void *heap, size_t size, int *fd)
{
	(void)heap, (void)size, (void)fd;
	errno = EOPNOTSUPP;
	return NULL;
}
EXPORT_SINCE_64(ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_alloc);

EXPORT void ibv_dmabuf_heap_free(void *memory, size_t size, int fd)
{
	(void)memory, (void)size, (void)fd;
}
EXPORT_SINCE_64(ibv_dmabuf_heap_free, ibv_dmabuf_heap_free);

/* ------------------------------------------------------------------ ports */

EXPORT int ibv_cmd_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_DEVICE, LATER_METHOD_QUERY_PORT_SPEED);
	method_in_u64(&method, PORT_SPEED_PORT, port);
	method_out(&method, PORT_SPEED_RESPONSE, speed, sizeof(*speed));
	return method_run(kernel_of(context), &method);
}
EXPORT_SINCE_59(ibv_cmd_query_port_speed, ibv_cmd_query_port_speed);

/* ------------------------------------------------------------------ completion counters */

EXPORT int ibv_cmd_query_comp_cntr_caps(struct ibv_context *context,
					struct ibv_comp_cntr_caps *caps, size_t size)
{
	struct ibv_comp_cntr_caps all = {0};
	struct method method;

	method_begin(&method, UVERBS_OBJECT_DEVICE, LATER_METHOD_QUERY_COMP_CNTR_CAPS);
	method_out(&method, CAPS_COUNTERS, &all.max_counters, sizeof(all.max_counters));
	method_out(&method, CAPS_VALUE, &all.max_value, sizeof(all.max_value));
	method_out(&method, CAPS_OPS, &all.supported_qp_attach_ops,
		   sizeof(all.supported_qp_attach_ops));
	int err = method_run(kernel_of(context), &method);

	if (!err)
		memcpy(caps, &all, size < sizeof(all) ? size : sizeof(all));
	return err;
}
EXPORT_SINCE_65(ibv_cmd_query_comp_cntr_caps, ibv_cmd_query_comp_cntr_caps);

EXPORT int ibv_cmd_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr *counter,
				    struct ibv_command_buffer *link)
{
	struct method method;

	counter->context = context;
	method_begin(&method, LATER_OBJECT_COMP_CNTR, COUNTER_CREATE);
	method_object(&method, COUNTER_HANDLE, 0);
	method_append(&method, link);
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	method_return(&method, link);
	counter->handle = (uint32_t)method_result(&method, COUNTER_HANDLE);
	return 0;
}
EXPORT_SINCE_65(ibv_cmd_create_comp_cntr, ibv_cmd_create_comp_cntr);

EXPORT int ibv_cmd_destroy_comp_cntr(struct ibv_comp_cntr *counter)
{
	return later_end(counter->context, LATER_OBJECT_COMP_CNTR, COUNTER_DESTROY,
			 counter->handle);
}
EXPORT_SINCE_65(ibv_cmd_destroy_comp_cntr, ibv_cmd_destroy_comp_cntr);

static int comp_cntr_modify(struct ibv_comp_cntr *counter, uint64_t entry, uint64_t op,
			    uint64_t value)
{
	struct method method;

	method_begin(&method, LATER_OBJECT_COMP_CNTR, COUNTER_MODIFY);
	method_object(&method, COUNTER_HANDLE, counter->handle);
	method_in_u64(&method, COUNTER_ENTRY, entry);
	method_in_u64(&method, COUNTER_OP, op);
	method_in_u64(&method, COUNTER_VALUE, value);
	return method_run(kernel_of(counter->context), &method);
}

static int comp_cntr_read(struct ibv_comp_cntr *counter, uint64_t entry, uint64_t *value)
{
	struct method method;

	method_begin(&method, LATER_OBJECT_COMP_CNTR, COUNTER_READ);
	method_object(&method, COUNTER_HANDLE, counter->handle);
	method_in_u64(&method, COUNTER_ENTRY, entry);
	method_out(&method, COUNTER_RESPONSE, value, sizeof(*value));
	return method_run(kernel_of(counter->context), &method);
}

EXPORT int ibv_cmd_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return comp_cntr_modify(counter, ENTRY_COMPLETIONS, OP_SET, value);
}
EXPORT_SINCE_65(ibv_cmd_set_comp_cntr, ibv_cmd_set_comp_cntr);

EXPORT int ibv_cmd_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return comp_cntr_modify(counter, ENTRY_ERRORS, OP_SET, value);
}
EXPORT_SINCE_65(ibv_cmd_set_err_comp_cntr, ibv_cmd_set_err_comp_cntr);

EXPORT int ibv_cmd_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	return comp_cntr_modify(counter, ENTRY_COMPLETIONS, OP_INCREASE, amount);
}
EXPORT_SINCE_65(ibv_cmd_inc_comp_cntr, ibv_cmd_inc_comp_cntr);

EXPORT int ibv_cmd_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	return comp_cntr_modify(counter, ENTRY_ERRORS, OP_INCREASE, amount);
}
EXPORT_SINCE_65(ibv_cmd_inc_err_comp_cntr, ibv_cmd_inc_err_comp_cntr);

EXPORT int ibv_cmd_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return comp_cntr_read(counter, ENTRY_COMPLETIONS, value);
}
EXPORT_SINCE_65(ibv_cmd_read_comp_cntr, ibv_cmd_read_comp_cntr);

EXPORT int ibv_cmd_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return comp_cntr_read(counter, ENTRY_ERRORS, value);
}
EXPORT_SINCE_65(ibv_cmd_read_err_comp_cntr, ibv_cmd_read_err_comp_cntr);

EXPORT int ibv_cmd_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
				       struct ibv_qp_attach_comp_cntr_attr *attr)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_QP, LATER_METHOD_QP_ATTACH_COMP_CNTR);
	method_object(&method, ATTACH_QP, qp->handle);
	method_object(&method, ATTACH_COUNTER, counter->handle);
	method_in_u32(&method, ATTACH_OPS, attr->op_mask);
	return method_run(kernel_of(qp->context), &method);
}
EXPORT_SINCE_65(ibv_cmd_qp_attach_comp_cntr, ibv_cmd_qp_attach_comp_cntr);
