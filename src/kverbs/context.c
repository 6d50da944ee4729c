/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts of the kernel's devices: opened by a driver, which allocates them with
 * _verbs_init_and_alloc_context() and gives its functions to verbs_set_ops(). Each has a struct
 * kernel_context, which lives from then until verbs_uninit_context().
 *
 * No other state. A context is used by one thread until it is open, then by any.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/env.h"
#include "base/log.h"
#include "base/sys.h"
#include "kverbs/command.h"
#include "kverbs/device.h"

/* ------------------------------------------------------------------ functions of a context */

/* In place of what inline functions call without a check. */

static int no_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	(void)cq, (void)count, (void)wc;
	errno = EOPNOTSUPP;
	return -EOPNOTSUPP;
}

static int no_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq, (void)solicited_only;
	return EOPNOTSUPP;
}

static int no_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	*bad = wr;
	return EOPNOTSUPP;
}

static int no_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	*bad = wr;
	return EOPNOTSUPP;
}

static int no_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = wr;
	return EOPNOTSUPP;
}

static int no_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)qp, (void)mw, (void)bind;
	return EOPNOTSUPP;
}

static int no_dealloc_mw(struct ibv_mw *mw)
{
	(void)mw;
	return EOPNOTSUPP;
}

static int no_xrcd_close(struct ibv_xrcd *xrcd)
{
	(void)xrcd;
	return EOPNOTSUPP;
}

static const struct provider_ops ops_of_none = {
	.bind_mw = no_bind_mw,
	.close_xrcd = no_xrcd_close,
	.dealloc_mw = no_dealloc_mw,
	.poll_cq = no_poll_cq,
	.post_recv = no_post_recv,
	.post_send = no_post_send,
	.post_srq_recv = no_post_srq_recv,
	.req_notify_cq = no_notify_cq,
};

/* The slots of ibv_context, which programs of any age call. */
static void slots_basic(struct ibv_context_ops *slots, const struct provider_ops *ops)
{
	slots->alloc_mw = ops->alloc_mw;
	slots->bind_mw = ops->bind_mw;
	slots->dealloc_mw = ops->dealloc_mw;
	slots->poll_cq = ops->poll_cq;
	slots->req_notify_cq = ops->req_notify_cq;
	slots->post_srq_recv = ops->post_srq_recv;
	slots->post_send = ops->post_send;
	slots->post_recv = ops->post_recv;
}

/* Those of verbs_context. A NULL is EOPNOTSUPP. What isn't here is slots_own()'s. */
static void slots_extended(struct verbs_context *verbs, const struct provider_ops *ops)
{
	verbs->advise_mr = ops->advise_mr;
	verbs->alloc_null_mr = ops->alloc_null_mr;
	verbs->read_counters = ops->read_counters;
	verbs->attach_counters_point_flow = ops->attach_counters_point_flow;
	verbs->create_counters = ops->create_counters;
	verbs->destroy_counters = ops->destroy_counters;
	verbs->reg_dm_mr = ops->reg_dm_mr;
	verbs->alloc_dm = ops->alloc_dm;
	verbs->free_dm = ops->free_dm;
	verbs->modify_flow_action_esp = ops->modify_flow_action_esp;
	verbs->destroy_flow_action = ops->destroy_flow_action;
	verbs->create_flow_action_esp = ops->create_flow_action_esp;
	verbs->modify_qp_rate_limit = ops->modify_qp_rate_limit;
	verbs->alloc_parent_domain = ops->alloc_parent_domain;
	verbs->dealloc_td = ops->dealloc_td;
	verbs->alloc_td = ops->alloc_td;
	verbs->modify_cq = ops->modify_cq;
	verbs->post_srq_ops = ops->post_srq_ops;
	verbs->destroy_rwq_ind_table = ops->destroy_rwq_ind_table;
	verbs->create_rwq_ind_table = ops->create_rwq_ind_table;
	verbs->destroy_wq = ops->destroy_wq;
	verbs->modify_wq = ops->modify_wq;
	verbs->create_wq = ops->create_wq;
	verbs->query_rt_values = ops->query_rt_values;
	verbs->query_device_ex = ops->query_device_ex;
	verbs->ibv_destroy_flow = ops->destroy_flow;
	verbs->ibv_create_flow = ops->create_flow;
	verbs->ABI_placeholder2 = (void (*)(void))ops->destroy_flow;
	verbs->ABI_placeholder1 = (void (*)(void))ops->create_flow;
	verbs->open_qp = ops->open_qp;
	verbs->get_srq_num = ops->get_srq_num;
	verbs->open_xrcd = ops->open_xrcd;
	verbs->close_xrcd = ops->close_xrcd;
}

/* A table has NULL for what a driver doesn't change. */
static void ops_merge(struct provider_ops *to, const struct provider_ops *from)
{
	typedef void (*function)(void);
	function new[PROVIDER_OPS], all[PROVIDER_OPS];

	memcpy(new, from, sizeof(new));
	memcpy(all, to, sizeof(all));
	for (unsigned int i = 0; i < PROVIDER_OPS; i++)
		if (new[i])
			all[i] = new[i];
	memcpy(to, all, sizeof(all));
}

static void context_set_ops(struct verbs_context *verbs, const struct provider_ops *ops)
{
	struct kernel_context *kernel = kernel_of(&verbs->context);

	ops_merge(&kernel->ops, ops);
	slots_basic(&verbs->context.ops, &kernel->ops);
	slots_extended(verbs, &kernel->ops);
}

/* ------------------------------------------------------------------ slots of our own */

static int slot_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
			   size_t size)
{
	return kernel_query_port(kernel_of(context), port, attr, size);
}

static struct ibv_cq_ex *slot_create_cq_ex(struct ibv_context *context,
					   struct ibv_cq_init_attr_ex *attr)
{
	struct kernel_context *kernel = kernel_of(context);

	return kernel_create_cq_ex(kernel, attr);
}

static struct ibv_qp *slot_create_qp_ex(struct ibv_context *context,
					struct ibv_qp_init_attr_ex *attr)
{
	return kernel_create_qp_ex(kernel_of(context), attr);
}

static struct ibv_srq *slot_create_srq_ex(struct ibv_context *context,
					  struct ibv_srq_init_attr_ex *attr)
{
	return kernel_create_srq_ex(kernel_of(context), attr);
}

static void slots_own(struct verbs_context *verbs)
{
	verbs->create_qp_ex = slot_create_qp_ex;
	verbs->create_srq_ex = slot_create_srq_ex;
	verbs->query_port = slot_query_port;
	verbs->create_cq_ex = slot_create_cq_ex;
}

/* ------------------------------------------------------------------ life of a context */

/* VERBENA_UVERBS=write: commands go by write() though the kernel has the ioctl. */
static bool ioctl_allowed(void)
{
	const char *text = env_get("VERBENA_UVERBS");

	return !text || strcmp(text, "write") != 0;
}

/* Owns cmd_fd from then on, also when it fails. */
static bool context_prepare(struct verbs_context *verbs, struct ibv_device *ibv, int cmd_fd,
			    uint32_t driver_id)
{
	struct kernel_device *device = kernel_device_of(ibv);
	struct kernel_context *kernel = device ? calloc(1, sizeof(*kernel)) : NULL;

	if (!kernel) {
		if (cmd_fd >= 0)
			sys_close(cmd_fd);
		errno = device ? ENOMEM : EOPNOTSUPP; /* a device that a driver made up itself */
		return false;
	}
	kernel_device_hold(device);
	kernel->verbs = verbs;
	kernel->device = device;
	kernel->driver_id = driver_id;
	verbs->priv = (struct verbs_ex_private *)(void *)kernel;
	/* An older driver's structure begins later than ours: what would lie before is not there.
	 */
	verbs->sz =
		sizeof(*verbs) -
		(size_t)(release_shift(device->release) < 0 ? -release_shift(device->release) : 0);
	verbs->context.device = ibv;
	verbs->context.cmd_fd = cmd_fd;
	verbs->context.async_fd = -1;
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&verbs->context.mutex, NULL);
	context_set_ops(verbs, &ops_of_none);
	kernel->ioctl = ioctl_allowed() && command_ioctl_works(kernel);
	return true;
}

/* Allocates a driver's structure of `size` bytes, in which the context lies at `offset`. */
static void *context_alloc(struct ibv_device *device, int cmd_fd, size_t size, void *offset,
			   uint32_t driver_id, enum driver_release release)
{
	char *memory = release == RELEASE_UNKNOWN ? NULL : calloc(1, size);

	if (!memory) {
		if (cmd_fd >= 0)
			sys_close(cmd_fd);
		errno = release == RELEASE_UNKNOWN ? EOPNOTSUPP : ENOMEM;
		return NULL;
	}
	if (context_prepare(verbs_from_driver(memory + (uintptr_t)offset, release), device, cmd_fd,
			    driver_id))
		return memory;
	free(memory);
	return NULL;
}

static void context_uninit(struct verbs_context *verbs)
{
	struct kernel_context *kernel = kernel_of(&verbs->context);

	if (verbs->context.cmd_fd >= 0)
		sys_close(verbs->context.cmd_fd);
	if (verbs->context.async_fd >= 0)
		sys_close(verbs->context.async_fd);
	verbs->priv = NULL;
	kernel_device_put(kernel->device);
	free(kernel);
}

int kernel_close(struct kernel_context *kernel)
{
	kernel->ops.free_context(&kernel->verbs->context);
	return 0;
}

/* Makes the descriptor of asynchronous events, where GET_CONTEXT hasn't. */
static int async_open(struct kernel_context *kernel)
{
	struct method method;

	method_begin(&method, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	method_object(&method, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0);
	int err = method_run(kernel, &method);

	if (!err)
		kernel->verbs->context.async_fd =
			(int)method_result(&method, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
	return err;
}

/* What is left to do when the driver has made the context. NULL with errno: it is closed again. */
static struct ibv_context *context_complete(struct verbs_context *verbs)
{
	struct kernel_context *kernel = kernel_of(&verbs->context);

	slots_own(verbs);
	int err = verbs->context.async_fd < 0 ? async_open(kernel) : 0;

	if (!err)
		return &verbs->context;
	kernel_close(kernel);
	errno = err;
	return NULL;
}

/* For drivers that open a device with data of their own (mlx5dv_open_device). NULL with errno. */
EXPORT struct ibv_context *verbs_open_device(struct ibv_device *ibv, void *data);
EXPORT struct ibv_context *verbs_open_device(struct ibv_device *ibv, void *data)
{
	struct kernel_device *device = kernel_device_of(ibv);
	int fd = device ? kernel_node_open(device) : -EOPNOTSUPP;

	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	void *verbs = device->provided->provider->alloc_context(ibv, fd, data);

	return verbs ? context_complete(verbs_from_driver(verbs, device->release)) : NULL;
}
EXPORT_SINCE_34(verbs_open_device, verbs_open_device);

struct ibv_context *kernel_open(struct kernel_device *device)
{
	return verbs_open_device(&device->provided->ibv, NULL);
}

/* If another device has the node's number by now, the driver's first command fails. */
struct ibv_context *kernel_import(int cmd_fd)
{
	struct verbs_context *verbs = NULL;
	struct kernel_device *device;
	struct stat node;
	void *made = NULL;

	if (fstat(cmd_fd, &node) || !S_ISCHR(node.st_mode)) {
		errno = EINVAL;
		return NULL;
	}
	device = kernel_device_find(node.st_rdev);
	errno = device ? EOPNOTSUPP : ENODEV;
	if (device && device->provided->provider->import_context)
		made = device->provided->provider->import_context(&device->provided->ibv, cmd_fd);
	if (made)
		verbs = verbs_from_driver(made, device->release);
	if (device) { /* a context has its own reference */
		int err = errno;

		kernel_device_put(device);
		errno = err;
	}
	if (!verbs)
		return NULL;
	kernel_of(&verbs->context)->imported = true;
	return context_complete(verbs);
}

/* ------------------------------------------------------------------ the context's command */

/* What a driver has the kernel take over with a context (struct ibv_fd_arr). */
struct descriptors {
	int *list;
	uint32_t count;
};

/* <rdma/ib_user_ioctl_cmds.h> of later kernels. */
enum { LATER_GET_CONTEXT_FD_ARR = 2 };

static int context_by_method(struct kernel_context *kernel, const struct driver_data *driver,
			     const struct descriptors *descriptors)
{
	uint32_t vectors = 0;
	uint64_t support = 0;
	struct method method;

	method_begin(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	method_out(&method, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	method_out(&method, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support, sizeof(support));
	if (descriptors)
		method_in(&method, LATER_GET_CONTEXT_FD_ARR, descriptors->list,
			  descriptors->count * sizeof(int));
	method_driver(&method, driver);
	int err = method_run(kernel, &method);

	if (err)
		return err;
	kernel->verbs->context.num_comp_vectors = (int)vectors;
	kernel->device->provided->core_support = support;
	return 0;
}

static int context_by_command(struct kernel_context *kernel, const struct driver_data *driver)
{
	struct ib_uverbs_get_context core = {0};
	struct ib_uverbs_get_context_resp answer;
	int err = command_run(kernel, &(struct command){
					      .number = IB_USER_VERBS_CMD_GET_CONTEXT,
					      .core = &core,
					      .core_size = sizeof(core),
					      .answer = &answer,
					      .answer_size = sizeof(answer),
					      .driver = *driver,
				      });

	if (err)
		return err;
	kernel->verbs->context.num_comp_vectors = (int)answer.num_comp_vectors;
	kernel->verbs->context.async_fd = (int)answer.async_fd;
	return 0;
}

/* `descriptors` is of 57 and later, and for the method only; NULL: none. */
static int context_get(struct verbs_context *verbs, void *request, size_t size,
		       const struct descriptors *descriptors,
		       struct ib_uverbs_get_context_resp *response, size_t response_size)
{
	struct kernel_context *kernel = kernel_of(&verbs->context);
	struct driver_data driver =
		driver_data_of(request, COMMAND_HEADER + sizeof(struct ib_uverbs_get_context), size,
			       response, sizeof(*response), response_size);
	int err = context_by_method(kernel, &driver, descriptors);

	return err == EOPNOTSUPP && !descriptors ? context_by_command(kernel, &driver) : err;
}

EXPORT int ibv_cmd_query_context(struct ibv_context *context, struct ibv_command_buffer *link);
EXPORT int ibv_cmd_query_context(struct ibv_context *context, struct ibv_command_buffer *link)
{
	struct kernel_context *kernel = kernel_of(context);
	uint32_t vectors = 0;
	uint64_t support = 0;
	struct method method;

	method_begin(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
	method_out(&method, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
	method_out(&method, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &support, sizeof(support));
	method_append(&method, link);
	int err = method_run(kernel, &method);

	if (err)
		return err;
	method_return(&method, link);
	context->num_comp_vectors = (int)vectors;
	kernel->device->provided->core_support = support;
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_query_context, ibv_cmd_query_context);

/* ------------------------------------------------------------------ calls by release */

/*
 * The calls that take a driver's pointer to a context, for the node `node` with drivers of
 * `release`: `offset` is where the context lies in the driver's structure, written as a pointer.
 */
#define CONTEXT_CALLS(node, release)                                                              \
	EXPORT void *_verbs_init_and_alloc_context_##node(struct ibv_device *device, int cmd_fd,  \
							  size_t size, void *offset,              \
							  uint32_t driver_id);                    \
	EXPORT void *_verbs_init_and_alloc_context_##node(struct ibv_device *device, int cmd_fd,  \
							  size_t size, void *offset,              \
							  uint32_t driver_id)                     \
	{                                                                                         \
		return context_alloc(device, cmd_fd, size, offset, driver_id, release);           \
	}                                                                                         \
	EXPORT void verbs_set_ops_##node(void *verbs, const void *table);                         \
	EXPORT void verbs_set_ops_##node(void *verbs, const void *table)                          \
	{                                                                                         \
		struct provider_ops ops;                                                          \
                                                                                                  \
		release_ops_read(release, table, &ops);                                           \
		context_set_ops(verbs_from_driver(verbs, release), &ops);                         \
	}                                                                                         \
	EXPORT void verbs_uninit_context_##node(void *verbs);                                     \
	EXPORT void verbs_uninit_context_##node(void *verbs)                                      \
	{                                                                                         \
		context_uninit(verbs_from_driver(verbs, release));                                \
	}                                                                                         \
	EXPORT int ibv_cmd_get_context_##node(                                                    \
		void *verbs, void *request, size_t size, const struct descriptors *descriptors,   \
		struct ib_uverbs_get_context_resp *response, size_t response_size);               \
	EXPORT int ibv_cmd_get_context_##node(                                                    \
		void *verbs, void *request, size_t size, const struct descriptors *descriptors,   \
		struct ib_uverbs_get_context_resp *response, size_t response_size)                \
	{                                                                                         \
		return context_get(verbs_from_driver(verbs, release), request, size, descriptors, \
				   response, response_size);                                      \
	}                                                                                         \
	EXPORT_OLD(_verbs_init_and_alloc_context_##node, _verbs_init_and_alloc_context,           \
		   "IBVERBS_PRIVATE_" #node);                                                     \
	EXPORT_OLD(verbs_set_ops_##node, verbs_set_ops, "IBVERBS_PRIVATE_" #node);                \
	EXPORT_OLD(verbs_uninit_context_##node, verbs_uninit_context, "IBVERBS_PRIVATE_" #node);  \
	EXPORT_OLD(ibv_cmd_get_context_##node, ibv_cmd_get_context, "IBVERBS_PRIVATE_" #node)

CONTEXT_CALLS(57, RELEASE_57);
CONTEXT_CALLS(59, release_of_node_59());
CONTEXT_CALLS(64, RELEASE_64);
CONTEXT_CALLS(65, RELEASE_65);

EXPORT void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
					   void *offset, uint32_t driver_id);
EXPORT void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
					   void *offset, uint32_t driver_id)
{
	return context_alloc(device, cmd_fd, size, offset, driver_id, RELEASE_44);
}
EXPORT_34(_verbs_init_and_alloc_context, _verbs_init_and_alloc_context);

EXPORT void verbs_set_ops(void *verbs, const void *table);
EXPORT void verbs_set_ops(void *verbs, const void *table)
{
	struct provider_ops ops;

	release_ops_read(RELEASE_44, table, &ops);
	context_set_ops(verbs_from_driver(verbs, RELEASE_44), &ops);
}
EXPORT_34(verbs_set_ops, verbs_set_ops);

EXPORT void verbs_uninit_context(void *verbs);
EXPORT void verbs_uninit_context(void *verbs)
{
	context_uninit(verbs_from_driver(verbs, RELEASE_44));
}
EXPORT_34(verbs_uninit_context, verbs_uninit_context);

EXPORT int ibv_cmd_get_context(void *verbs, void *request, size_t size,
			       struct ib_uverbs_get_context_resp *response, size_t response_size);
EXPORT int ibv_cmd_get_context(void *verbs, void *request, size_t size,
			       struct ib_uverbs_get_context_resp *response, size_t response_size)
{
	return context_get(verbs_from_driver(verbs, RELEASE_44), request, size, NULL, response,
			   response_size);
}
EXPORT_34(ibv_cmd_get_context, ibv_cmd_get_context);

/* ------------------------------------------------------------------ drivers' log lines */

EXPORT void __verbs_log(struct verbs_context *verbs, uint32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
EXPORT void __verbs_log(struct verbs_context *verbs, uint32_t level, const char *format, ...)
{
	enum { LEVEL_ERROR = 1, LEVEL_WARN, LEVEL_INFO };
	char text[512];
	va_list arguments;

	(void)verbs;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	text[strcspn(text, "\n")] = '\0';
	if (level == LEVEL_ERROR || level == LEVEL_WARN)
		log_info("driver library: %s", text); /* a driver warns of what it then handles */
	else
		log_debug("driver library: %s", text);
}
EXPORT_SINCE_34(__verbs_log, __verbs_log);
