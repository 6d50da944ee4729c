/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of rdma-core 59 to 65 (infiniband/later.h), on those of verbs.h, so that they are for any
 * device. What neither our device nor the private interface of the kernel's drivers has fails with
 * EOPNOTSUPP.
 *
 * Owns the buffers of ibv_alloc_buf(): pages of this process, with the protection domain that they
 * were asked for with; and DMA handles. No locks: a buffer doesn't change, and the program ends it
 * alone; a handle's count of regions is atomic.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/later.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/verbs_abi.h"
#include "base/export.h"
#include "base/log.h"
#include "base/refused.h"
#include "hca/mem/dm.h"
#include "hca/mem/mr.h"

/* ------------------------------------------------------------------ buffers */

/* Ordinary pages; a driver of the kernel's device may have others. */
EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **out)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel && kernel->ops.alloc_buf)
		return kernel_alloc_buf(kernel, pd, size, out);
	struct ibv_buf *buf = calloc(1, sizeof(*buf));

	if (!buf)
		return fail_null(ENOMEM);
	buf->pd = pd;
	buf->size = size;
	buf->dmabuf_fd = -1;
	int err = posix_memalign(&buf->addr, (size_t)sysconf(_SC_PAGESIZE), size);

	if (err) {
		free(buf);
		return fail_null(err);
	}
	*out = buf;
	return buf->addr;
}

EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
	struct kernel_context *kernel = kernel_context_of(buf->pd->context);

	if (kernel && kernel_free_buf(kernel, buf))
		return;
	free(buf->addr);
	free(buf);
}

EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	if (buf->dmabuf_fd >= 0)
		return fcntl(buf->dmabuf_fd, F_DUPFD_CLOEXEC, 0);
	errno = refused(ENODATA, "ibv_export_buf_dmabuf_fd: the buffer has no DMA buffer: only "
				 "some drivers' of the kernel's devices have");
	return -1;
}

/* ------------------------------------------------------------------ DMA handles */

struct dmah {
	struct ibv_dmah ibv;
	_Atomic uint32_t users; /* regions */
};

static struct dmah *dmah_of(struct ibv_dmah *ibv)
{
	return container_of(ibv, struct dmah, ibv);
}

/* Whether the calling thread may run on the processor: 0, EINVAL or EPERM. */
static int dmah_check_cpu(uint32_t cpu)
{
	cpu_set_t mine;

	if (cpu >= (uint32_t)sysconf(_SC_NPROCESSORS_CONF) || cpu >= CPU_SETSIZE)
		return refused(EINVAL, "ibv_alloc_dmah: there is no processor %u", cpu);
	if (sched_getaffinity(0, sizeof(mine), &mine) || CPU_ISSET(cpu, &mine))
		return 0;
	return refused(EPERM, "ibv_alloc_dmah: this thread may not run on processor %u", cpu);
}

/* As mlx5 and the kernel check them, in their order. 0 or a positive errno. */
static int dmah_check(const struct ibv_dmah_init_attr *attr)
{
	const uint32_t tag = IBV_DMAH_INIT_ATTR_MASK_CPU_ID | IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE;
	uint32_t mask = attr->comp_mask;

	if (mask & ~(tag | IBV_DMAH_INIT_ATTR_MASK_PH))
		return refused(EOPNOTSUPP, "ibv_alloc_dmah: comp_mask 0x%x has unknown bits", mask);
	if (!(mask & IBV_DMAH_INIT_ATTR_MASK_PH) || ((mask & tag) && (mask & tag) != tag))
		return refused(EINVAL,
			       "ibv_alloc_dmah: comp_mask is 0x%x, and needs "
			       "IBV_DMAH_INIT_ATTR_MASK_PH, and CPU_ID and TPH_MEM_TYPE both or "
			       "neither",
			       mask);
	int err = mask & tag ? dmah_check_cpu(attr->cpu_id) : 0;

	if (!err && (attr->ph > 3 || (mask & tag && attr->tph_mem_type > IBV_TPH_MEM_TYPE_PM)))
		err = refused(EINVAL,
			      "ibv_alloc_dmah: ph is %u, and 3 at most; tph_mem_type is %d, and %d "
			      "at most",
			      attr->ph, mask & tag ? (int)attr->tph_mem_type : 0,
			      (int)IBV_TPH_MEM_TYPE_PM);
	return err;
}

EXPORT struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_alloc_dmah(kernel, attr);
	int err = dmah_check(attr);
	struct dmah *dmah = err ? NULL : calloc(1, sizeof(*dmah));

	if (!dmah)
		return fail_null(err ? err : ENOMEM);
	dmah->ibv.context = context;
	context_count(context, 1);
	return &dmah->ibv;
}

EXPORT int ibv_dealloc_dmah(struct ibv_dmah *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel)
		return kernel_dealloc_dmah(kernel, ibv);
	const uint32_t users = atomic_load(&dmah_of(ibv)->users);

	if (users)
		return fail_errno(refused(EBUSY,
					  "ibv_dealloc_dmah: %u regions use the handle, and must "
					  "be deregistered first",
					  users));
	context_count(ibv->context, -1);
	free(dmah_of(ibv));
	return 0;
}

/* Notes that the region was registered with the handle. */
static struct ibv_mr *mr_with_dmah(struct ibv_mr *mr, struct ibv_dmah *dmah)
{
	if (!mr || !dmah)
		return mr;
	container_of(mr, struct mr, ibv)->dmah_users = &dmah_of(dmah)->users;
	atomic_fetch_add(&dmah_of(dmah)->users, 1);
	return mr;
}

static int mr_check_dmah(const struct ibv_pd *pd, const struct ibv_mr_init_attr *attr)
{
	if (!attr->dmah || attr->dmah->context != pd->context)
		return refused(EINVAL, "ibv_reg_mr_ex: dmah must be a handle of this context");
	return attr->access & IBV_ACCESS_ON_DEMAND
		       ? refused(EOPNOTSUPP, "ibv_reg_mr_ex: an on-demand region has no DMA handle")
		       : 0;
}

/* ------------------------------------------------------------------ registration */

/* Whether the region is a part of the buffer that it names. */
static bool mr_is_in_buffer(const struct ibv_pd *pd, const struct ibv_mr_init_attr *attr)
{
	const struct ibv_buf *buf = attr->buf;
	uintptr_t base = (uintptr_t)buf->addr, addr = (uintptr_t)attr->addr;

	return pd == buf->pd && addr >= base && addr - base <= buf->size &&
	       attr->length <= buf->size - (addr - base);
}

/* Which fields go together. 0 or a positive errno. */
static int mr_check_fields(const struct ibv_pd *pd, const struct ibv_mr_init_attr *attr)
{
	const uint64_t file = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
	const uint64_t known = file | IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR |
			       IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_DMAH;
	uint64_t mask = attr->comp_mask;

	if (mask & ~known) {
		log_warn("ibv_reg_mr_ex: no support for the fields 0x%llx of comp_mask",
			 (unsigned long long)(mask & ~known));
		return EOPNOTSUPP;
	}
	int err = mask & IBV_REG_MR_MASK_DMAH ? mr_check_dmah(pd, attr) : 0;

	if (err)
		return err;
	mask &= ~(uint64_t)IBV_REG_MR_MASK_DMAH;
	if (mask & file)
		return mask == (file | IBV_REG_MR_MASK_IOVA)
			       ? 0
			       : refused(EINVAL, "ibv_reg_mr_ex: fd, fd_offset and iova go "
						 "together, without addr and buf");
	if (!(mask & IBV_REG_MR_MASK_ADDR))
		return refused(EINVAL, "ibv_reg_mr_ex: comp_mask needs IBV_REG_MR_MASK_ADDR, or "
				       "those of a file");
	if (mask & IBV_REG_MR_MASK_BUF && !mr_is_in_buffer(pd, attr))
		return refused(EINVAL, "ibv_reg_mr_ex: the region must be within buf, which must "
				       "be of the same protection domain");
	return 0;
}

/* Whether the other calls can't say what the fields say: a DMA handle, or a driver's DMA buffer. */
static bool mr_is_by_fields(const struct ibv_mr_init_attr *attr)
{
	return attr->comp_mask & IBV_REG_MR_MASK_DMAH ||
	       (attr->comp_mask & IBV_REG_MR_MASK_BUF && attr->buf->dmabuf_fd >= 0);
}

/* By the kernel's driver. Pages that it pins mustn't move in a fork (verbs_fork.c). */
static struct ibv_mr *kernel_mr_by_fields(struct kernel_context *kernel, struct ibv_pd *pd,
					  struct ibv_mr_init_attr *attr)
{
	bool pinned =
		!(attr->comp_mask & IBV_REG_MR_MASK_FD) && !(attr->access & IBV_ACCESS_ON_DEMAND);
	int err = pinned ? fork_register(attr->addr, attr->length) : 0;

	if (err)
		return fail_null(err);
	struct ibv_mr *mr = kernel_reg_mr_ex(kernel, pd, attr);

	if (!mr && pinned) {
		err = errno;
		fork_unregister(attr->addr, attr->length);
		errno = err;
	}
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);
	int err = mr_check_fields(pd, attr);

	if (err)
		return fail_null(err);
	if (kernel && mr_is_by_fields(attr))
		return kernel_mr_by_fields(kernel, pd, attr);
	struct ibv_dmah *dmah = attr->comp_mask & IBV_REG_MR_MASK_DMAH ? attr->dmah : NULL;
	uint64_t iova = attr->comp_mask & IBV_REG_MR_MASK_IOVA ? attr->iova : (uintptr_t)attr->addr;

	if (attr->comp_mask & IBV_REG_MR_MASK_FD)
		return mr_with_dmah(ibv_reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova,
						      attr->fd, attr->access),
				    dmah);
	return mr_with_dmah(
		ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, (unsigned int)attr->access),
		dmah);
}

EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
				     size_t length, int access)
{
	struct ibv_mr_init_attr attr = {
		.length = length,
		.access = access,
		.comp_mask = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR,
		.addr = addr,
		.buf = buf,
	};

	return ibv_reg_mr_ex(pd, &attr);
}

EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	struct kernel_context *kernel = kernel_context_of(dm->context);

	if (kernel)
		return kernel_dm_export(kernel, dm);
	return fcntl(dm_of(dm)->fd, F_DUPFD_CLOEXEC, 0);
}

/* ------------------------------------------------------------------ ports */

/* A lane's rate in units of 100 Mb/s, by the bit of the port's active speed. */
static const uint16_t lane_rates[] = {25, 50, 100, 100, 140, 250, 500, 1000, 2000};
/* Lanes, by the bit of the port's active width. */
static const uint8_t lane_counts[] = {1, 4, 8, 12, 2};

/* The number of the only bit; a number beyond any table: none or several are set. */
static unsigned int only_bit(unsigned int bits)
{
	return bits && !(bits & (bits - 1)) ? (unsigned int)__builtin_ctz(bits) : 32;
}

EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num,
				uint64_t *port_speed)
{
	struct kernel_context *kernel = kernel_context_of(context);
	struct ibv_port_attr attr;

	if (kernel && kernel->ops.query_port_speed)
		return kernel_query_port_speed(kernel, port_num, port_speed);
	if (port_num > UINT8_MAX)
		return fail_errno(refused(EINVAL, "ibv_query_port_speed: the device has no port %u",
					  port_num));
	int err = ibv_query_port(context, (uint8_t)port_num, &attr);

	if (err)
		return fail_errno(err);
	unsigned int lane = only_bit(attr.active_speed_ex ? attr.active_speed_ex
							  : attr.active_speed),
		     lanes = only_bit(attr.active_width);

	if (lane >= sizeof(lane_rates) / sizeof(lane_rates[0]) || lanes >= sizeof(lane_counts))
		return fail_errno(refused(
			EOPNOTSUPP,
			"ibv_query_port_speed: port %u has an unknown speed (%u) "
			"or width (%u)",
			port_num, attr.active_speed_ex ? attr.active_speed_ex : attr.active_speed,
			attr.active_width));
	*port_speed = (uint64_t)lane_rates[lane] * lane_counts[lanes];
	return 0;
}

/* ------------------------------------------------------------------ completion counters */

EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
				     size_t caps_size)
{
	struct kernel_context *kernel = kernel_context_of(context);

	memset(caps, 0, caps_size);
	return kernel ? kernel_comp_cntr_caps(kernel, caps, caps_size) : fail_errno(EOPNOTSUPP);
}

EXPORT struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
						  struct ibv_comp_cntr_init_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(context);

	return kernel ? kernel_create_comp_cntr(kernel, attr)
		      : fail_null(refused(EOPNOTSUPP, "ibv_create_comp_cntr: this device has no "
						      "completion counters"));
}

EXPORT int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter)
{
	struct kernel_context *kernel = kernel_context_of(counter->context);

	return kernel ? kernel_destroy_comp_cntr(kernel, counter) : fail_errno(EOPNOTSUPP);
}

static int counter_change(struct ibv_comp_cntr *counter, enum counter_change change, uint64_t value)
{
	struct kernel_context *kernel = kernel_context_of(counter->context);

	return kernel ? kernel_change_comp_cntr(kernel, counter, change, value)
		      : fail_errno(EOPNOTSUPP);
}

EXPORT int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return counter_change(counter, COUNTER_SET, value);
}

EXPORT int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return counter_change(counter, COUNTER_SET_ERRORS, value);
}

EXPORT int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	return counter_change(counter, COUNTER_INCREASE, amount);
}

EXPORT int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	return counter_change(counter, COUNTER_INCREASE_ERRORS, amount);
}

static int counter_value(struct ibv_comp_cntr *counter, bool errors, uint64_t *value)
{
	struct kernel_context *kernel = kernel_context_of(counter->context);

	return kernel ? kernel_read_comp_cntr(kernel, counter, errors, value)
		      : fail_errno(EOPNOTSUPP);
}

EXPORT int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return counter_value(counter, false, value);
}

EXPORT int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return counter_value(counter, true, value);
}

EXPORT int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
				   struct ibv_qp_attach_comp_cntr_attr *attr)
{
	struct kernel_context *kernel = kernel_context_of(qp->context);

	return kernel ? kernel_attach_comp_cntr(kernel, qp, counter, attr)
		      : fail_errno(refused(EOPNOTSUPP, "ibv_qp_attach_comp_cntr: queue pairs of "
						       "this device have no completion counters"));
}
