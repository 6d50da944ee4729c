/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fake kernel and a fake driver for the tests of src/kverbs: a directory that looks like sysfs, a
 * recorder in place of write() and ioctl(), and a driver that adds 8 bytes to each command. One
 * thread.
 */
#ifndef VERBENA_TESTS_KVERBS_FAKE_H
#define VERBENA_TESTS_KVERBS_FAKE_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include "kverbs/command.h"
#include "kverbs/kernel.h"
#include "kverbs/provider.h"
#include "kverbs/scan.h"
#include "tables.h"

enum {
	FAKE_BYTES = 32 * 1024 + 512,
	FAKE_ATTRS = 24,
	FAKE_VALUE = 1024,
	FAKE_DRIVER_ID = 77,
	FAKE_HANDLE = 0x777
};

/* What the kernel was asked last, and what it answers. */
struct fake_kernel {
	bool has_ioctl;
	unsigned int writes, ioctls;
	uint8_t message[FAKE_BYTES]; /* of write() */
	size_t message_size;
	struct ib_uverbs_ioctl_hdr header; /* of ioctl() */
	struct ib_uverbs_attr attrs[FAKE_ATTRS];
	uint8_t values[FAKE_ATTRS][FAKE_VALUE]; /* what those of more than 8 bytes point to */
	uint8_t core[FAKE_BYTES];		/* of the last INVOKE_WRITE */
	uint64_t command;			/* its number */
	uint8_t answer[FAKE_BYTES];		/* what the next response is filled with */
	uint32_t fail;				/* errno of the next commands */
	unsigned int fail_after; /* that many commands still succeed; those that post have an
				    answer also when they fail */
};
extern struct fake_kernel fake;

/* Makes the fake sysfs and nodes; returns the roots. fake_end() removes them. */
const struct scan_roots *fake_begin(void);
void fake_end(void);
/* Adds a device: a directory of sysfs with these attributes (NULL: none), and a node that is
 * /dev/null (number 1:3). */
void fake_device(const char *node, const char *name, const char *number, const char *modalias);
void fake_file(const char *path, const char *text); /* below sysfs */

/* Opens the device through the fake driver. */
struct kernel_context *fake_open(struct ibv_device *device);
extern const struct provider fake_provider;

/* Which release the driver is of, from the next fake_open() to its kernel_close(). It must have
 * been registered as such. */
extern enum driver_release fake_release;

/* fake_begin(), one device, and that opened; the list with the device. */
extern struct ibv_device **listed;
struct kernel_context *device_open(bool has_ioctl);
void device_close(struct kernel_context *kernel);

/* The attribute of the last ioctl; NULL: it had none such. */
const struct ib_uverbs_attr *fake_attr(uint16_t id);

/* The value of an attribute with data, or what it points to. */
const void *fake_value(uint16_t id);

/* The commands that drivers call; no header of src/ declares them. */
void verbs_register_driver_34(const struct provider *provider);
int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, void *request, size_t size,
		     struct ib_uverbs_alloc_pd_resp *response, size_t response_size);
int ibv_cmd_dealloc_pd(struct ibv_pd *pd);
int ibv_cmd_create_cq_ex(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
			 struct provider_cq *cq, void *request, size_t size,
			 struct ib_uverbs_ex_create_cq_resp *response, size_t response_size,
			 uint32_t flags);
int ibv_cmd_destroy_cq(struct ibv_cq *cq);
int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		      void *request, size_t size, struct ib_uverbs_create_qp_resp *response,
		      size_t response_size);
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, void *request,
		      size_t size);
int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init, void *request, size_t size);
int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
		   struct provider_mr *mr, void *request, size_t size,
		   struct ib_uverbs_reg_mr_resp *response, size_t response_size);
int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *response, size_t response_size);
int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr,
		       void *request, size_t size, struct ib_uverbs_create_srq_resp *response,
		       size_t response_size);
int ibv_cmd_create_srq_ex(struct ibv_context *context, struct provider_srq *srq,
			  struct ibv_srq_init_attr_ex *attr, void *request, size_t size,
			  struct ib_uverbs_create_srq_resp *response, size_t response_size);
int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
		      int vector, struct ibv_cq *cq, void *request, size_t size,
		      struct ib_uverbs_create_cq_resp *response, size_t response_size);
int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct provider_qp *qp,
			  struct ibv_qp_init_attr_ex *attr, void *request, size_t size,
			  struct ib_uverbs_ex_create_qp_resp *response, size_t response_size);
int ibv_cmd_open_qp(struct ibv_context *context, struct provider_qp *qp, int qp_size,
		    struct ibv_qp_open_attr *attr, void *request, size_t size,
		    struct ib_uverbs_create_qp_resp *response, size_t response_size);
int ibv_cmd_open_xrcd(struct ibv_context *context, struct provider_xrcd *xrcd, int xrcd_size,
		      struct ibv_xrcd_init_attr *attr, void *request, size_t size,
		      struct ib_uverbs_open_xrcd_resp *response, size_t response_size);
int ibv_cmd_close_xrcd(struct provider_xrcd *xrcd);
int ibv_cmd_query_mr(struct ibv_pd *pd, struct provider_mr *mr, uint32_t handle);
int ibv_cmd_query_device_any(struct ibv_context *context,
			     const struct ibv_query_device_ex_input *input,
			     struct ibv_device_attr_ex *attr, size_t attr_size,
			     struct ib_uverbs_ex_query_device_resp *response,
			     size_t *response_size);
int ibv_cmd_query_context(struct ibv_context *context, struct ibv_command_buffer *link);
int ibv_cmd_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr, struct ibv_wq *wq,
		      void *request, size_t size, struct ib_uverbs_ex_create_wq_resp *response,
		      size_t response_size);
int ibv_cmd_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr, void *request, size_t size);
int ibv_cmd_destroy_wq(struct ibv_wq *wq);
int ibv_cmd_create_rwq_ind_table(struct ibv_context *context,
				 struct ibv_rwq_ind_table_init_attr *attr,
				 struct ibv_rwq_ind_table *table,
				 struct ib_uverbs_ex_create_rwq_ind_table_resp *response,
				 size_t response_size);
int ibv_cmd_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);
int ibv_cmd_create_flow(struct ibv_qp *qp, struct ibv_flow *flow, struct ibv_flow_attr *attr,
			void *driver, size_t driver_size);
int ibv_cmd_destroy_flow(struct ibv_flow *flow);
int ibv_cmd_alloc_dm(struct ibv_context *context, const struct ibv_alloc_dm_attr *attr,
		     struct provider_dm *dm, struct ibv_command_buffer *link);
int ibv_cmd_free_dm(struct provider_dm *dm);
int ibv_cmd_reg_dm_mr(struct ibv_pd *pd, struct provider_dm *dm, uint64_t offset, size_t length,
		      unsigned int access, struct provider_mr *mr, struct ibv_command_buffer *link);
int ibv_cmd_create_counters(struct ibv_context *context, struct ibv_counters_init_attr *attr,
			    struct provider_counters *counters, struct ibv_command_buffer *link);
int ibv_cmd_destroy_counters(struct provider_counters *counters);
int ibv_cmd_read_counters(struct provider_counters *counters, uint64_t *values, uint32_t count,
			  uint32_t flags, struct ibv_command_buffer *link);
int ibv_cmd_create_flow_action_esp(struct ibv_context *context,
				   struct ibv_flow_action_esp_attr *attr,
				   struct provider_flow_action *action,
				   struct ibv_command_buffer *link);
int ibv_cmd_modify_flow_action_esp(struct provider_flow_action *action,
				   struct ibv_flow_action_esp_attr *attr,
				   struct ibv_command_buffer *link);
int ibv_cmd_destroy_flow_action(struct provider_flow_action *action);
int ibv_cmd_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int ibv_cmd_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int ibv_cmd_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int ibv_cmd_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		       void *request, size_t size);
int ibv_cmd_get_context(void *verbs, void *request, size_t size,
			struct ib_uverbs_get_context_resp *response, size_t response_size);
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
				    void *offset, uint32_t driver_id);
void verbs_uninit_context(void *verbs);
void verbs_set_ops(void *verbs, const void *table);

/* Those of later releases: what a node has under the name without the number. */
#define LATER_CALLS(node)                                                                          \
	void verbs_register_driver_##node(const struct provider *provider);                        \
	int ibv_cmd_get_context_##node(                                                            \
		void *verbs, void *request, size_t size, const void *descriptors,                  \
		struct ib_uverbs_get_context_resp *response, size_t response_size);                \
	void *_verbs_init_and_alloc_context_##node(struct ibv_device *device, int cmd_fd,          \
						   size_t size, void *offset, uint32_t driver_id); \
	void verbs_uninit_context_##node(void *verbs);                                             \
	void verbs_set_ops_##node(void *verbs, const void *table)

LATER_CALLS(57);
LATER_CALLS(59);
LATER_CALLS(64);
LATER_CALLS(65);

int ibv_cmd_create_cq_ex_59(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
			    const struct provider_cq_memory *memory, struct provider_cq *cq,
			    void *request, size_t size,
			    struct ib_uverbs_ex_create_cq_resp *response, size_t response_size,
			    uint32_t flags);
int ibv_cmd_create_qp_ex2_64(struct ibv_context *context, struct provider_qp *qp,
			     struct ibv_qp_init_attr_ex *attr, void *request, size_t size,
			     struct ib_uverbs_ex_create_qp_resp *response, size_t response_size,
			     struct ibv_command_buffer *link);
int ibv_cmd_alloc_dmah(struct ibv_context *context, struct provider_dmah *dmah,
		       struct ibv_dmah_init_attr *attr);
int ibv_cmd_free_dmah(struct provider_dmah *dmah);
int ibv_cmd_reg_mr_ex(struct ibv_pd *pd, struct provider_mr *mr, struct ibv_mr_init_attr *attr);
int ibv_cmd_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
int ibv_cmd_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);

#endif
