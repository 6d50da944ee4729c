/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of libibverbs that came with rdma-core 59 to 65. Our <infiniband/verbs.h> is that of 44, so
 * they stand here; in rdma-core they are in verbs.h, and a program that was compiled with that one
 * runs on this library without this header (docs/abi.md).
 *
 * Calls that return int return 0 or a positive errno, unless they say otherwise; those that return
 * a pointer return NULL with errno. Some fail with EOPNOTSUPP always, as rdma-core's do on a device
 * that hasn't what they are for: DMA buffers of device memory, completion counters.
 */
#ifndef INFINIBAND_LATER_H
#define INFINIBAND_LATER_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For ibv_alloc_parent_domain(): memory that a confidential guest doesn't protect may be given out.
 * The device needs none, so ibv_alloc_buf() gives ordinary memory in any case. */
enum { IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2 };

struct ibv_buf;

struct ibv_dmah {
	struct ibv_context *context;
};

/* ------------------------------------------------------------------ memory */

enum ibv_mr_init_attr_mask {
	IBV_REG_MR_MASK_IOVA = 1 << 0,
	IBV_REG_MR_MASK_ADDR = 1 << 1,
	IBV_REG_MR_MASK_FD = 1 << 2,
	IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
	IBV_REG_MR_MASK_DMAH = 1 << 4,
	IBV_REG_MR_MASK_BUF = 1 << 5,
};

struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask; /* enum ibv_mr_init_attr_mask: which of the fields below are set */
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf;
};

/* Registers memory at `addr`, as ibv_reg_mr_iova2(), or, with FD, FD_OFFSET and IOVA, that of a
 * file, as ibv_reg_dmabuf_mr(). With BUF, `addr` is in a buffer of ibv_alloc_buf(). EINVAL: fields
 * that don't go together, or a range outside the buffer, or a buffer of another protection domain,
 * or a DMA handle of another context. EOPNOTSUPP: a field that isn't known, or a DMA handle for
 * memory on demand. */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);

/* Pages for data. `pd` must live until ibv_free_buf(). */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
/* -1 with ENODATA: the buffer is ordinary memory, as all buffers are here. */
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);

/* -1 with EOPNOTSUPP. */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);

/* Of which kind the memory of a region is (PCIe's TLP processing hints). */
enum ibv_tph_mem_type {
	IBV_TPH_MEM_TYPE_VM,
	IBV_TPH_MEM_TYPE_PM,
};

enum ibv_dmah_init_attr_mask {
	IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0,
	IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1,
	IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2,
};

struct ibv_dmah_init_attr {
	uint32_t comp_mask; /* enum ibv_dmah_init_attr_mask: PH, and both or none of the others */
	uint32_t cpu_id;    /* a processor on which the calling thread may run */
	uint8_t ph;	    /* 0 to 3 */
	uint8_t tph_mem_type;
};

/* A hint for regions: which processor's cache data is for. A software device's data comes by the
 * cache of the processor that copies it, so the hint is checked, and has no effect. EINVAL: fields
 * that don't go together, or a wrong value. EPERM: not a processor of this thread. EOPNOTSUPP: an
 * unknown field, or a device of the kernel. */
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
/* EBUSY: regions were registered with it. */
int ibv_dealloc_dmah(struct ibv_dmah *dmah);

/* ------------------------------------------------------------------ ports */

/* The port's bandwidth in units of 100 Mb/s. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

/* ------------------------------------------------------------------ completion counters */

struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

/* What is counted. */
enum ibv_comp_cntr_type {
	IBV_COMP_CNTR_TYPE_WRS,
	IBV_COMP_CNTR_TYPE_BYTES,
};

struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask;
	enum ibv_comp_cntr_type type;
	uint32_t flags;
};

/* Which operations of a QP count. */
enum ibv_qp_attach_comp_cntr_op {
	IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0,
	IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5,
};

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask;
	uint32_t op_mask; /* enum ibv_qp_attach_comp_cntr_op */
};

struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters;
	uint32_t supported_qp_attach_ops; /* enum ibv_qp_attach_comp_cntr_op */
};

/* Fills `caps` with zeros: there are none. */
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
			      size_t caps_size);

static inline int ibv_query_comp_cntr_caps(struct ibv_context *context,
					   struct ibv_comp_cntr_caps *caps)
{
	return _ibv_query_comp_cntr_caps(context, caps, sizeof(*caps));
}

struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
			    struct ibv_qp_attach_comp_cntr_attr *attr);

#ifdef __cplusplus
}
#endif

#endif
