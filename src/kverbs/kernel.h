/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices of the kernel, which rdma-core's driver libraries serve: what src/abi calls for them.
 *
 * kernel_of() and kernel_device_of() tell a kernel's context or device from Verbena's: NULL means
 * that it is Verbena's. All other functions take the checked types, so no handle of Verbena's gets
 * here; and each entry point of src/abi asks before it takes an object for Verbena's.
 *
 * Results follow the calls of the same name: NULL with errno, -1 with errno, or a positive errno. A
 * call that the driver doesn't have fails with EOPNOTSUPP. Any thread.
 */
#ifndef VERBENA_KVERBS_KERNEL_H
#define VERBENA_KVERBS_KERNEL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cpu.h"
#include "base/list.h"
#include "kverbs/provider.h"

/* ------------------------------------------------------------------ devices */

/* Which devices the program gets: VERBENA_DEVICES. */
struct device_choice {
	bool verbena, kernel;
	const char *names; /* the list, if only these; NULL: all of the kinds above */
};

struct device_choice device_choice_get(void);
bool device_choice_has(const struct device_choice *choice, const char *name);

struct kernel_device;

/*
 * Adds the kernel's devices to `list`, which ends with NULL and is allocated with malloc(), and
 * their number to *count; each is held. Returns the new list, or NULL with ENOMEM (`list` is then
 * as it was). Without kernel devices that costs one access().
 */
struct ibv_device **kernel_list_append(struct ibv_device **list, int *count,
				       const struct device_choice *choice);

/* NULL: not a device of the kernel. A list or a context holds the device. */
struct kernel_device *kernel_device_of(const struct ibv_device *device);
void kernel_device_hold(struct kernel_device *device);
void kernel_device_put(struct kernel_device *device);
__be64 kernel_device_guid(struct kernel_device *device);
int kernel_device_index(struct kernel_device *device);
struct ibv_context *kernel_open(struct kernel_device *device);

/* ------------------------------------------------------------------ contexts */

/* What verbs_context.priv points to in a kernel's context; in Verbena's it is NULL. */
struct kernel_context {
	struct verbs_context *verbs;
	struct kernel_device *device;
	struct provider_ops ops; /* set while the context is opened, then constant */
	uint32_t driver_id;
	bool ioctl;    /* the kernel takes ioctls; else only write() */
	bool imported; /* by kernel_import(); set before the context is the program's */
};

static inline struct kernel_context *kernel_of(struct ibv_context *context)
{
	struct verbs_context *verbs = container_of(context, struct verbs_context, context);

	return (struct kernel_context *)(void *)verbs->priv;
}

static inline int kernel_fd(const struct kernel_context *kernel)
{
	return kernel->verbs->context.cmd_fd;
}

int kernel_close(struct kernel_context *kernel);

/* A context over the descriptor of another one, which is a device's node; owns `cmd_fd` if it
 * succeeds. */
struct ibv_context *kernel_import(int cmd_fd);

/* ------------------------------------------------------------------ queries */

int kernel_query_device(struct kernel_context *kernel, struct ibv_device_attr *attr);
int kernel_query_port(struct kernel_context *kernel, uint8_t port, struct ibv_port_attr *attr,
		      size_t size);
/* ENODATA: the entry is empty. */
int kernel_query_gid(struct kernel_context *kernel, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *entry);
ssize_t kernel_query_gid_table(struct kernel_context *kernel, struct ibv_gid_entry *entries,
			       size_t max, uint32_t flags, size_t entry_size);
int kernel_query_pkey(struct kernel_context *kernel, uint8_t port, int index, __be16 *pkey);

/* ------------------------------------------------------------------ objects */

struct ibv_pd *kernel_alloc_pd(struct kernel_context *kernel);
int kernel_dealloc_pd(struct kernel_context *kernel, struct ibv_pd *pd);

struct ibv_mr *kernel_reg_mr(struct kernel_context *kernel, struct ibv_pd *pd, void *addr,
			     size_t length, uint64_t iova, unsigned int access);
struct ibv_mr *kernel_reg_dmabuf_mr(struct kernel_context *kernel, struct ibv_pd *pd,
				    uint64_t offset, size_t length, uint64_t iova, int fd,
				    int access);
/* 0 or a positive errno; the caller converts. */
int kernel_rereg_mr(struct kernel_context *kernel, struct ibv_mr *mr, int flags, struct ibv_pd *pd,
		    void *addr, size_t length, int access);
/* Whether the region's pages are registered with fork_register(). */
bool kernel_mr_is_pinned(const struct ibv_mr *mr);
int kernel_dereg_mr(struct kernel_context *kernel, struct ibv_mr *mr);

/* Objects of a context with the same descriptor, by their handles. */
struct ibv_pd *kernel_import_pd(struct kernel_context *kernel, uint32_t handle);
void kernel_unimport_pd(struct kernel_context *kernel, struct ibv_pd *pd);
struct ibv_mr *kernel_import_mr(struct kernel_context *kernel, struct ibv_pd *pd, uint32_t handle);
void kernel_unimport_mr(struct kernel_context *kernel, struct ibv_mr *mr);
struct ibv_dm *kernel_import_dm(struct kernel_context *kernel, uint32_t handle);
void kernel_unimport_dm(struct kernel_context *kernel, struct ibv_dm *dm);

struct ibv_comp_channel *kernel_create_channel(struct kernel_context *kernel);
int kernel_destroy_channel(struct ibv_comp_channel *channel);
struct ibv_cq *kernel_create_cq(struct kernel_context *kernel, int cqe, void *cq_context,
				struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *kernel_create_cq_ex(struct kernel_context *kernel,
				      struct ibv_cq_init_attr_ex *attr);
int kernel_resize_cq(struct kernel_context *kernel, struct ibv_cq *cq, int cqe);
int kernel_destroy_cq(struct kernel_context *kernel, struct ibv_cq *cq);

struct ibv_srq *kernel_create_srq(struct kernel_context *kernel, struct ibv_pd *pd,
				  struct ibv_srq_init_attr *attr);
struct ibv_srq *kernel_create_srq_ex(struct kernel_context *kernel,
				     struct ibv_srq_init_attr_ex *attr);
int kernel_modify_srq(struct kernel_context *kernel, struct ibv_srq *srq, struct ibv_srq_attr *attr,
		      int mask);
int kernel_query_srq(struct kernel_context *kernel, struct ibv_srq *srq, struct ibv_srq_attr *attr);
int kernel_destroy_srq(struct kernel_context *kernel, struct ibv_srq *srq);

struct ibv_qp *kernel_create_qp(struct kernel_context *kernel, struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr);
struct ibv_qp *kernel_create_qp_ex(struct kernel_context *kernel, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp_ex *kernel_qp_extended(struct ibv_qp *qp);
int kernel_modify_qp(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		     int mask);
int kernel_query_qp(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		    int mask, struct ibv_qp_init_attr *init);
int kernel_destroy_qp(struct kernel_context *kernel, struct ibv_qp *qp);
int kernel_attach_mcast(struct kernel_context *kernel, struct ibv_qp *qp, const union ibv_gid *gid,
			uint16_t lid);
int kernel_detach_mcast(struct kernel_context *kernel, struct ibv_qp *qp, const union ibv_gid *gid,
			uint16_t lid);
int kernel_set_ece(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_ece *ece);
int kernel_query_ece(struct kernel_context *kernel, struct ibv_qp *qp, struct ibv_ece *ece);
int kernel_data_in_order(struct kernel_context *kernel, struct ibv_qp *qp, enum ibv_wr_opcode op,
			 uint32_t flags);

struct ibv_ah *kernel_create_ah(struct kernel_context *kernel, struct ibv_pd *pd,
				struct ibv_ah_attr *attr);
int kernel_destroy_ah(struct kernel_context *kernel, struct ibv_ah *ah);

/* ------------------------------------------------------------------ calls since 59 */

struct ibv_dmah *kernel_alloc_dmah(struct kernel_context *kernel, struct ibv_dmah_init_attr *attr);
int kernel_dealloc_dmah(struct kernel_context *kernel, struct ibv_dmah *dmah);
/* The driver's own registration by fields. The caller has checked them. */
struct ibv_mr *kernel_reg_mr_ex(struct kernel_context *kernel, struct ibv_pd *pd,
				struct ibv_mr_init_attr *attr);
int kernel_dm_export(struct kernel_context *kernel, struct ibv_dm *dm);
void *kernel_alloc_buf(struct kernel_context *kernel, struct ibv_pd *pd, size_t size,
		       struct ibv_buf **buf);
/* False: the driver has no buffers of its own, so it is the library's. */
bool kernel_free_buf(struct kernel_context *kernel, struct ibv_buf *buf);
int kernel_query_port_speed(struct kernel_context *kernel, uint32_t port, uint64_t *speed);

enum counter_change { COUNTER_SET, COUNTER_SET_ERRORS, COUNTER_INCREASE, COUNTER_INCREASE_ERRORS };

int kernel_comp_cntr_caps(struct kernel_context *kernel, struct ibv_comp_cntr_caps *caps,
			  size_t size);
struct ibv_comp_cntr *kernel_create_comp_cntr(struct kernel_context *kernel,
					      struct ibv_comp_cntr_init_attr *attr);
int kernel_destroy_comp_cntr(struct kernel_context *kernel, struct ibv_comp_cntr *counter);
int kernel_change_comp_cntr(struct kernel_context *kernel, struct ibv_comp_cntr *counter,
			    enum counter_change change, uint64_t value);
int kernel_read_comp_cntr(struct kernel_context *kernel, struct ibv_comp_cntr *counter, bool errors,
			  uint64_t *value);
/* EINVAL: the counter is another context's. */
int kernel_attach_comp_cntr(struct kernel_context *kernel, struct ibv_qp *qp,
			    struct ibv_comp_cntr *counter,
			    struct ibv_qp_attach_comp_cntr_attr *attr);

/* ------------------------------------------------------------------ events */

int kernel_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void kernel_ack_cq_events(struct ibv_cq *cq, unsigned int count);
int kernel_get_async_event(struct kernel_context *kernel, struct ibv_async_event *event);
/* True: the event is of an object of the kernel, or of no object, and is acknowledged. */
bool kernel_ack_async_event(struct ibv_async_event *event);

#endif
