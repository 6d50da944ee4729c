/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the files of verbs entry points (verbs_*.c). These check arguments, call the daemon or
 * the soft HCA, and convert results to what each call's manual page promises: NULL with errno, -1
 * with errno, or a positive errno.
 */
#ifndef VERBENA_ABI_VERBS_ABI_H
#define VERBENA_ABI_VERBS_ABI_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/types.h>

#include "base/cpu.h"
#include "base/export.h"
#include "base/log.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "kverbs/kernel.h"

/* A device as the program sees it: one structure per device for as long as a list or a context
 * refers to it, so that pointers to one device compare equal. */
struct device {
	struct ibv_device ibv;
	struct list node;  /* in the list of known devices; guarded by devices_lock */
	unsigned int refs; /* lists and contexts that refer to it; same lock */
	uint64_t guid;	   /* network order */
	uint32_t index;
	uint32_t ports;
};

static inline struct device *device_from_ibv(struct ibv_device *ibv)
{
	return container_of(ibv, struct device, ibv);
}

/* A context that ibv_open_device() returns. */
struct open_context {
	struct context context;
	_Atomic unsigned int objects;  /* objects that the program has created and not destroyed */
	_Atomic unsigned int released; /* of these, PDs with struct pd.released */
	/* The daemon's first answer, for a forked child, which has no daemon. Written by the thread
	 * that moves `queried` from 0 to QUERY_WRITES, before it moves it to QUERY_DONE. */
	struct ib_uverbs_query_device_resp device;
	_Atomic int queried;
};

enum { QUERY_WRITES = 1, QUERY_DONE = 2 };

/* Ends the PDs that the program has given back and that no object uses any more (verbs_share.c). */
void share_end_released(struct open_context *open);
struct pd;
/* The program has given the PD back, which objects still use. */
void pd_end_later(struct pd *pd);

/* Counts the objects that keep a pointer to their context, so that ibv_close_device() knows whether
 * it may free the context. */
static inline void context_count(struct ibv_context *ibv, int change)
{
	struct open_context *open = container_of(context_of(ibv), struct open_context, context);

	atomic_fetch_add(&open->objects, (unsigned int)change);
	if (change < 0 && atomic_load(&open->released))
		share_end_released(open);
}

static inline struct daemon_conn *conn_of(struct ibv_context *ibv)
{
	return &context_of(ibv)->conn;
}

/*
 * The kernel's context, if this is one; NULL: it is Verbena's, and context_of() may be called. Each
 * entry point asks first: a context of the kernel's never gets to Verbena's objects.
 */
static inline struct kernel_context *kernel_context_of(struct ibv_context *ibv)
{
	struct kernel_context *kernel = kernel_of(ibv);

	return unlikely(kernel) ? kernel : NULL;
}

/* For calls that return a positive errno: also sets errno, which old programs read. */
static inline int fail_errno(int err)
{
	if (err)
		errno = err;
	return err;
}

/* For calls that return NULL. */
static inline void *fail_null(int err)
{
	errno = err;
	return NULL;
}

/*
 * libibverbs passes the field `handle` of the program's objects to the kernel, which returns ENOENT
 * for a number that names no object. A program that has overwritten the field gets the same here,
 * even if the number names another object (docs/behaviour.md). 0 or ENOENT.
 */
static inline int handle_check(const char *call, uint32_t shown, uint32_t handle)
{
	if (likely(shown == handle))
		return 0;
	log_warn("%s: the object's handle is %u, not %u: the program has overwritten it", call,
		 handle, shown);
	return ENOENT;
}

/*
 * The memory file behind a context's cmd_fd, which holds the token and the device (verbs_share.c).
 * Made for a new token: returns the descriptor or -errno. Read: 0; -EBADF, -EINVAL: it is no such
 * file.
 */
enum { SHARE_NODE_SIZE = 64 };
int share_file_make(const char *node, uint64_t token[2]);
int share_file_read(int fd, char node[SHARE_NODE_SIZE], uint64_t token[2]);

/* Opens a context of the device with this token, which owns cmd_fd from then on. NULL with
 * errno. */
struct ibv_context *context_open(struct ibv_device *device, int cmd_fd, const uint64_t token[2]);

/* Fills the functions that programs from before 2011 call in a kernel's context (verbs_device.c);
 * NULL stays NULL. */
struct ibv_context *context_with_old_slots(struct ibv_context *ibv);

/* Fills a context's tables of calls (verbs_ops.c). */
void verbs_ops_fill(struct verbs_context *verbs);

/* The functions in the tables (verbs_query.c, verbs_cq.c, verbs_qp.c): 0 or a positive errno. */
int verbs_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t attr_size);
int verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		     size_t attr_size);
struct ibv_mr *verbs_alloc_null_mr(struct ibv_pd *pd);
struct ibv_td *verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int verbs_dealloc_td(struct ibv_td *td);
struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr);
int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int verbs_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
int verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		    struct ibv_sge *list, uint32_t count);
struct ibv_dm *verbs_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int verbs_free_dm(struct ibv_dm *dm);
struct ibv_mr *verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			       unsigned int access);
struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_flow *verbs_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int verbs_destroy_flow(struct ibv_flow *flow);
struct ibv_counters *verbs_create_counters(struct ibv_context *context,
					   struct ibv_counters_init_attr *attr);
int verbs_destroy_counters(struct ibv_counters *counters);
int verbs_attach_counters(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
			  struct ibv_flow *flow);
int verbs_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t count,
			uint32_t flags);
struct ibv_wq *verbs_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int verbs_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int verbs_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *verbs_create_rwq_ind_table(struct ibv_context *context,
						     struct ibv_rwq_ind_table_init_attr *attr);
int verbs_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_xrcd *verbs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int verbs_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

/*
 * Registered memory and fork (verbs_fork.c): called for each region that is registered or
 * deregistered. Before ibv_fork_init() fork_register() only makes a later one fail (with
 * RDMAV_USE_MADVISE). 0 or a positive errno.
 */
int fork_register(void *addr, size_t length);
void fork_unregister(void *addr, size_t length);

/* Historical names that are exported but in no public header. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

#endif
