/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The binary interface of the driver libraries (lib*-rdmav34.so to -rdmav65.so) of rdma-core 44 to
 * 65: the layouts behind the symbols of the nodes IBVERBS_PRIVATE_34 to _65. Sizes and the order of
 * the members are facts that a compiled driver depends on, and the static assertions pin them;
 * tests/unit/kverbs checks more of them against a driver. What differs between releases is in
 * release.h.
 *
 * A driver registers a `struct provider`. Memory of devices, contexts and objects is the driver's;
 * each begins with one of the structures below, which both sides fill. Layout only: no state.
 */
#ifndef VERBENA_KVERBS_PROVIDER_H
#define VERBENA_KVERBS_PROVIDER_H

#include <infiniband/later.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/list.h"

/* ------------------------------------------------------------------ matching */

enum provider_match_kind {
	PROVIDER_MATCH_END = 0,
	PROVIDER_MATCH_PCI = 1,
	PROVIDER_MATCH_MODALIAS = 2,
	PROVIDER_MATCH_DRIVER_ID = 3,
};

/* One way to recognise a device. A table of them ends with PROVIDER_MATCH_END. */
struct provider_match {
	void *driver_data;
	union {
		const char *modalias; /* a pattern for fnmatch() */
		uint64_t driver_id;   /* enum rdma_driver_id */
	};
	uint16_t vendor;
	uint16_t device;
	uint8_t kind;
};

enum { FOUND_MODALIAS_READ = 1, FOUND_GUID_READ = 2 };

/* A device of the kernel, as the scan found it. */
struct found_device {
	struct list node;
	void *provider_data;
	const struct provider_match *match;
	unsigned int flags;
	char node_name[IBV_SYSFS_NAME_MAX]; /* uverbs0 */
	dev_t node_number;
	char name[IBV_SYSFS_NAME_MAX];	     /* mlx5_0 */
	char sysfs_path[IBV_SYSFS_PATH_MAX]; /* /sys/class/infiniband/mlx5_0 */
	char modalias[512];
	uint64_t guid; /* host order */
	uint32_t driver_id;
	enum ibv_node_type node_type;
	int index;
	uint32_t ports; /* 0: unknown */
	uint32_t abi_version;
	struct timespec created;
};

struct provider_device;

struct provider {
	const char *name;
	uint32_t abi_min, abi_max;
	const struct provider_match *matches; /* may be NULL */
	const struct provider **static_providers;
	bool (*match_device)(struct found_device *found);
	/* Both return the driver's pointer to the `struct verbs_context` of its release. */
	void *(*alloc_context)(struct ibv_device *device, int cmd_fd, void *data);
	void *(*import_context)(struct ibv_device *device, int cmd_fd);
	struct provider_device *(*alloc_device)(struct found_device *found);
	void (*uninit_device)(struct provider_device *device);
};

/* The beginning of a driver's device. */
struct provider_device {
	struct ibv_device ibv;
	const struct provider *provider;
	int refs; /* unused: struct kernel_device counts */
	struct list node;
	struct found_device *found;
	uint64_t core_support; /* bits IB_UVERBS_CORE_SUPPORT_* */
};

/* ------------------------------------------------------------------ objects */

struct provider_xrcd {
	struct ibv_xrcd ibv;
	uint32_t comp_mask;
	uint32_t handle;
};
enum { PROVIDER_XRCD_HANDLE = 1 };

struct provider_srq {
	struct ibv_srq ibv;
	enum ibv_srq_type type;
	struct provider_xrcd *xrcd;
	struct ibv_cq *cq;
	uint32_t number;
};

enum provider_mr_type {
	PROVIDER_MR,
	PROVIDER_MR_NULL,
	PROVIDER_MR_IMPORTED,
	PROVIDER_MR_DMABUF,
};

struct provider_mr {
	struct ibv_mr ibv;
	enum provider_mr_type type;
	int access;
};

/* A queue pair of a driver of rdma-core 45 and later. That of 44 has one function less in `ex`, and
 * what follows lies 8 bytes before. A driver's calls don't tell which of the two it has, so
 * creating a queue pair writes nothing behind `ex`: drivers allocate it as zeroes, and none reads
 * `xrcd`. */
struct provider_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	uint32_t comp_mask;
	struct provider_xrcd *xrcd;
};
enum { PROVIDER_QP_XRCD = 1, PROVIDER_QP_EX = 2 };

struct provider_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
};

struct provider_dm {
	struct ibv_dm ibv;
	uint32_t handle;
};

enum provider_flow_action_type { PROVIDER_FLOW_ACTION_NONE, PROVIDER_FLOW_ACTION_ESP };

struct provider_flow_action {
	struct ibv_flow_action ibv;
	uint32_t handle;
	enum provider_flow_action_type type;
};

struct provider_counters {
	struct ibv_counters ibv;
	uint32_t handle;
};

struct provider_dmah {
	struct ibv_dmah ibv;
	uint32_t handle;
};

/* A buffer that a driver's alloc_buf() makes (since 64), and ours of ibv_alloc_buf(). */
struct ibv_buf {
	void *addr;
	size_t size;
	struct ibv_pd *pd;
	int dmabuf_fd; /* -1: ordinary memory */
};

/* Where the kernel is to put a CQ's entries (since 59), with one of the flags. */
struct provider_cq_memory {
	uint64_t length;
	union {
		uint8_t *addr;
		struct {
			uint64_t offset;
			int fd;
		} dmabuf;
	};
};
enum { PROVIDER_CQ_MEMORY = 1 << 1, PROVIDER_CQ_DMABUF = 1 << 2 };

/* ------------------------------------------------------------------ commands by attributes */

/*
 * A command that a driver builds: attributes from header.attrs[] to next_attr; more of them are in
 * the buffers behind `next`. In the first buffer there is room for all of them.
 */
struct ibv_command_buffer {
	struct ibv_command_buffer *next;
	struct ib_uverbs_attr *next_attr, *last_attr;
	uint8_t driver_in, driver_out;		     /* used by rdma-core only */
	uint8_t driver_in_before, driver_out_before; /* the same */
	uint8_t error : 1;			     /* an attribute was too large */
	uint8_t needs_extended : 1;
	uint8_t needs_ioctl : 1;
	struct ib_uverbs_ioctl_hdr header;
};

/* ------------------------------------------------------------------ a driver's functions */

/* That of 65. A driver's own table lacks what came after its release: release_ops_read(). */
struct provider_ops {
	int (*advise_mr)(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
			 struct ibv_sge *list, uint32_t count);
	void *(*alloc_buf)(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
	struct ibv_dmah *(*alloc_dmah)(struct ibv_context *context,
				       struct ibv_dmah_init_attr *attr);
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *pd);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *context,
					      struct ibv_parent_domain_init_attr *attr);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	struct ibv_td *(*alloc_td)(struct ibv_context *context, struct ibv_td_init_attr *attr);
	void (*async_event)(struct ibv_context *context, struct ibv_async_event *event);
	int (*attach_counters_point_flow)(struct ibv_counters *counters,
					  struct ibv_counter_attach_attr *attr,
					  struct ibv_flow *flow);
	int (*attach_mcast)(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
	int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
	int (*close_xrcd)(struct ibv_xrcd *xrcd);
	void (*cq_event)(struct ibv_cq *cq);
	struct ibv_ah *(*create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr);
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *context,
						  struct ibv_comp_cntr_init_attr *attr);
	struct ibv_counters *(*create_counters)(struct ibv_context *context,
						struct ibv_counters_init_attr *attr);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    struct ibv_comp_channel *channel, int comp_vector);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *context,
					  struct ibv_cq_init_attr_ex *attr);
	struct ibv_flow *(*create_flow)(struct ibv_qp *qp, struct ibv_flow_attr *attr);
	struct ibv_flow_action *(*create_flow_action_esp)(struct ibv_context *context,
							  struct ibv_flow_action_esp_attr *attr);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *attr);
	struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *context,
							  struct ibv_rwq_ind_table_init_attr *attr);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *context,
					 struct ibv_srq_init_attr_ex *attr);
	struct ibv_wq *(*create_wq)(struct ibv_context *context, struct ibv_wq_init_attr *attr);
	int (*dealloc_dmah)(struct ibv_dmah *dmah);
	int (*dealloc_mw)(struct ibv_mw *mw);
	int (*dealloc_pd)(struct ibv_pd *pd);
	int (*dealloc_td)(struct ibv_td *td);
	int (*dereg_mr)(struct provider_mr *mr);
	int (*destroy_ah)(struct ibv_ah *ah);
	int (*destroy_comp_cntr)(struct ibv_comp_cntr *counter);
	int (*destroy_counters)(struct ibv_counters *counters);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*destroy_flow)(struct ibv_flow *flow);
	int (*destroy_flow_action)(struct ibv_flow_action *action);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *table);
	int (*destroy_srq)(struct ibv_srq *srq);
	int (*destroy_wq)(struct ibv_wq *wq);
	int (*detach_mcast)(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
	int (*dm_export_dmabuf_fd)(struct ibv_dm *dm);
	void (*free_buf)(struct ibv_buf *buf);
	void (*free_context)(struct ibv_context *context);
	int (*free_dm)(struct ibv_dm *dm);
	int (*get_srq_num)(struct ibv_srq *srq, uint32_t *number);
	struct ibv_dm *(*import_dm)(struct ibv_context *context, uint32_t handle);
	struct ibv_mr *(*import_mr)(struct ibv_pd *pd, uint32_t handle);
	struct ibv_pd *(*import_pd)(struct ibv_context *context, uint32_t handle);
	int (*inc_comp_cntr)(struct ibv_comp_cntr *counter, uint64_t amount);
	int (*inc_err_comp_cntr)(struct ibv_comp_cntr *counter, uint64_t amount);
	int (*modify_cq)(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
	int (*modify_flow_action_esp)(struct ibv_flow_action *action,
				      struct ibv_flow_action_esp_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*modify_qp_rate_limit)(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
	int (*modify_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
	int (*modify_wq)(struct ibv_wq *wq, struct ibv_wq_attr *attr);
	struct ibv_qp *(*open_qp)(struct ibv_context *context, struct ibv_qp_open_attr *attr);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
	int (*poll_cq)(struct ibv_cq *cq, int count, struct ibv_wc *wc);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*post_srq_ops)(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad);
	int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	int (*qp_attach_comp_cntr)(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
				   struct ibv_qp_attach_comp_cntr_attr *attr);
	int (*query_comp_cntr_caps)(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
				    size_t size);
	int (*query_device_ex)(struct ibv_context *context,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size);
	int (*query_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
	int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	int (*query_port_speed)(struct ibv_context *context, uint32_t port, uint64_t *speed);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init);
	int (*query_qp_data_in_order)(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
	int (*query_rt_values)(struct ibv_context *context, struct ibv_values_ex *values);
	int (*query_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr);
	int (*read_comp_cntr)(struct ibv_comp_cntr *counter, uint64_t *value);
	int (*read_counters)(struct ibv_counters *counters, uint64_t *values, uint32_t count,
			     uint32_t flags);
	int (*read_err_comp_cntr)(struct ibv_comp_cntr *counter, uint64_t *value);
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				    size_t length, unsigned int access);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access);
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*rereg_mr)(struct provider_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access);
	int (*resize_cq)(struct ibv_cq *cq, int cqe);
	int (*set_comp_cntr)(struct ibv_comp_cntr *counter, uint64_t value);
	int (*set_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
	int (*set_err_comp_cntr)(struct ibv_comp_cntr *counter, uint64_t value);
	void (*unimport_dm)(struct ibv_dm *dm);
	void (*unimport_mr)(struct ibv_mr *mr);
	void (*unimport_pd)(struct ibv_pd *pd);
};

enum { PROVIDER_OPS = sizeof(struct provider_ops) / sizeof(void (*)(void)) };

_Static_assert(PROVIDER_OPS == 93, "a table of 65 has 93 functions");
_Static_assert(offsetof(struct ibv_command_buffer, header) == 32, "cmd_ioctl.h");
_Static_assert(sizeof(struct provider_cq_memory) == 24, "driver.h");
_Static_assert(sizeof(struct ibv_buf) == 32, "driver.h");
_Static_assert(sizeof(struct provider_match) == 24, "driver.h");
_Static_assert(sizeof(struct provider_flow_action) == 16, "driver.h");

#endif
