/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of rdma-core 59 to 65 on objects of the kernel's devices: each goes to the driver. A
 * driver of an older release lacks them: EOPNOTSUPP. No state.
 */
#include <errno.h>
#include <infiniband/later.h>

#include "kverbs/device.h"

static int later_result(int err)
{
	if (err > 0)
		errno = err;
	return err;
}

static void *later_null(int err)
{
	errno = err;
	return NULL;
}

/* Calls the driver's function, which returns 0 or a positive errno. */
#define LATER_CALL(kernel, name, ...) \
	later_result((kernel)->ops.name ? (kernel)->ops.name(__VA_ARGS__) : EOPNOTSUPP)
/* One that returns a pointer, or NULL with errno. */
#define LATER_MAKE(kernel, name, ...) \
	((kernel)->ops.name ? (kernel)->ops.name(__VA_ARGS__) : later_null(EOPNOTSUPP))

/* ------------------------------------------------------------------ memory */

struct ibv_dmah *kernel_alloc_dmah(struct kernel_context *kernel, struct ibv_dmah_init_attr *attr)
{
	struct ibv_dmah *dmah = LATER_MAKE(kernel, alloc_dmah, &kernel->verbs->context, attr);

	if (dmah)
		dmah->context = &kernel->verbs->context;
	return dmah;
}

int kernel_dealloc_dmah(struct kernel_context *kernel, struct ibv_dmah *dmah)
{
	return LATER_CALL(kernel, dealloc_dmah, dmah);
}

struct ibv_mr *kernel_reg_mr_ex(struct kernel_context *kernel, struct ibv_pd *pd,
				struct ibv_mr_init_attr *attr)
{
	struct ibv_mr *mr = LATER_MAKE(kernel, reg_mr_ex, pd, attr);

	if (!mr)
		return NULL;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = attr->comp_mask & IBV_REG_MR_MASK_FD ? (void *)(uintptr_t)attr->fd_offset
							: attr->addr;
	mr->length = attr->length;
	return mr;
}

int kernel_dm_export(struct kernel_context *kernel, struct ibv_dm *dm)
{
	if (kernel->ops.dm_export_dmabuf_fd)
		return kernel->ops.dm_export_dmabuf_fd(dm);
	errno = EOPNOTSUPP;
	return -1;
}

void *kernel_alloc_buf(struct kernel_context *kernel, struct ibv_pd *pd, size_t size,
		       struct ibv_buf **buf)
{
	return LATER_MAKE(kernel, alloc_buf, pd, size, buf);
}

bool kernel_free_buf(struct kernel_context *kernel, struct ibv_buf *buf)
{
	if (!kernel->ops.free_buf)
		return false;
	kernel->ops.free_buf(buf);
	return true;
}

int kernel_query_port_speed(struct kernel_context *kernel, uint32_t port, uint64_t *speed)
{
	return LATER_CALL(kernel, query_port_speed, &kernel->verbs->context, port, speed);
}

/* ------------------------------------------------------------------ completion counters */

int kernel_comp_cntr_caps(struct kernel_context *kernel, struct ibv_comp_cntr_caps *caps,
			  size_t size)
{
	return LATER_CALL(kernel, query_comp_cntr_caps, &kernel->verbs->context, caps, size);
}

struct ibv_comp_cntr *kernel_create_comp_cntr(struct kernel_context *kernel,
					      struct ibv_comp_cntr_init_attr *attr)
{
	return LATER_MAKE(kernel, create_comp_cntr, &kernel->verbs->context, attr);
}

int kernel_destroy_comp_cntr(struct kernel_context *kernel, struct ibv_comp_cntr *counter)
{
	return LATER_CALL(kernel, destroy_comp_cntr, counter);
}

int kernel_change_comp_cntr(struct kernel_context *kernel, struct ibv_comp_cntr *counter,
			    enum counter_change change, uint64_t value)
{
	switch (change) {
	case COUNTER_SET:
		return LATER_CALL(kernel, set_comp_cntr, counter, value);
	case COUNTER_SET_ERRORS:
		return LATER_CALL(kernel, set_err_comp_cntr, counter, value);
	case COUNTER_INCREASE:
		return LATER_CALL(kernel, inc_comp_cntr, counter, value);
	case COUNTER_INCREASE_ERRORS:
		return LATER_CALL(kernel, inc_err_comp_cntr, counter, value);
	}
	return later_result(EINVAL);
}

int kernel_read_comp_cntr(struct kernel_context *kernel, struct ibv_comp_cntr *counter, bool errors,
			  uint64_t *value)
{
	return errors ? LATER_CALL(kernel, read_err_comp_cntr, counter, value)
		      : LATER_CALL(kernel, read_comp_cntr, counter, value);
}

int kernel_attach_comp_cntr(struct kernel_context *kernel, struct ibv_qp *qp,
			    struct ibv_comp_cntr *counter,
			    struct ibv_qp_attach_comp_cntr_attr *attr)
{
	if (counter->context != qp->context)
		return later_result(EINVAL);
	return LATER_CALL(kernel, qp_attach_comp_cntr, qp, counter, attr);
}
