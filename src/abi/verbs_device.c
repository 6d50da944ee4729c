/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices and contexts: listing, opening, closing. Owns the list of known devices, which is guarded
 * by devices_lock; a device lives while a list that the program holds or an open context refers to
 * it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/private.h"
#include "abi/verbs_abi.h"
#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/fabric/node.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"

#undef ibv_get_device_list
#undef ibv_query_port

enum { DEVICES_MAX = 16 };

static struct mutex devices_lock = MUTEX_INITIALIZER(RANK_DEVICES);
static struct list devices = {&devices, &devices};

static void devices_mend(void)
{
	list_mend(&devices);
}

FORK_MEND(devices_lock, devices_mend);

/* ------------------------------------------------------------------ devices */

static struct device *device_find(const struct proto_device *info)
{
	list_for_each(node, &devices) {
		struct device *device = container_of(node, struct device, node);

		if (device->guid == info->node_guid && device->index == info->index &&
		    !strncmp(device->ibv.name, info->name, sizeof(info->name)) &&
		    !strncmp(device->ibv.dev_name, info->node, sizeof(info->node)))
			return device;
	}
	return NULL;
}

/* Returns the device with one more reference. The caller holds devices_lock. */
static struct device *device_get(const struct proto_device *info)
{
	struct device *device = device_find(info);

	if (!device) {
		device = calloc(1, sizeof(*device));
		if (!device)
			return NULL;
		struct ibv_device *ibv = &device->ibv;

		ibv->node_type = IBV_NODE_CA;
		ibv->transport_type = IBV_TRANSPORT_IB;
		snprintf(ibv->name, sizeof(ibv->name), "%.*s", (int)sizeof(info->name), info->name);
		snprintf(ibv->dev_name, sizeof(ibv->dev_name), "%.*s", (int)sizeof(info->node),
			 info->node);
		snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/%.63s",
			 ibv->dev_name);
		snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/%.63s",
			 ibv->name);
		device->guid = info->node_guid;
		device->index = info->index;
		device->ports = info->ports;
		list_add_tail_whole(&devices, &device->node);
	}
	device->refs++;
	return device;
}

static void device_put_locked(struct device *device)
{
	if (--device->refs)
		return;
	list_del_whole(&device->node);
	free(device);
}

static void device_put(struct device *device)
{
	mutex_take(&devices_lock);
	device_put_locked(device);
	mutex_give(&devices_lock);
}

/* RDMAV_FORK_SAFE and IBV_FORK_SAFE are read once, when the program first asks for devices. */
static void evaluate_environment(void)
{
	const char *safe = env_get("RDMAV_FORK_SAFE");

	if (!safe)
		safe = env_get("IBV_FORK_SAFE");
	if (!safe || !strcmp(safe, "0"))
		return;
	int err = ibv_fork_init();

	if (err)
		log_warn("fork support was asked for (RDMAV_FORK_SAFE) but can't be had: %s",
			 strerror(err));
}

/* The daemon's devices that the program gets, each with a reference; *count is their number, and
 * may be 0. NULL with ENOMEM. */
static struct ibv_device **list_of_daemon(const struct proto_device *info, int n, int *count,
					  const struct device_choice *choice)
{
	struct ibv_device **list = calloc((size_t)n + 1, sizeof(struct ibv_device *));

	if (!list)
		return fail_null(ENOMEM);
	mutex_take(&devices_lock);
	for (int i = 0; i < n; i++) {
		struct device *device = device_get(&info[i]);

		if (!device)
			goto out_memory;
		if (device_choice_has(choice, device->ibv.name))
			list[(*count)++] = &device->ibv;
		else
			device_put_locked(device);
	}
	mutex_give(&devices_lock);
	return list;

out_memory:
	mutex_give(&devices_lock);
	ibv_free_device_list(list);
	return fail_null(ENOMEM);
}

/* The device of the node of a fabric that this process is on: the adapter, which is served by the
 * daemon's first device. Their number, or a negative errno. */
static int node_devices(struct proto_device *info)
{
	const struct node *node = node_get();

	if (!node)
		return errno == ENODEV ? 0 : -errno;
	*info = (struct proto_device){
		.name = "verbena0",
		.node = "uverbs0",
		.node_guid = htobe64(node_own(node)->guid),
		.ports = node->ports,
	};
	return 1;
}

static int own_devices(struct proto_device info[DEVICES_MAX])
{
	return node_is_named() ? node_devices(info) : daemon_list_devices(info, DEVICES_MAX);
}

/* Verbena's devices come first. Without a daemon the kernel's are listed nevertheless, if there are
 * any. */
EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct device_choice choice = device_choice_get();
	struct proto_device info[DEVICES_MAX] = {0};
	int count = 0;

	if (num_devices)
		*num_devices = 0;
	pthread_once(&once, evaluate_environment);
	int n = choice.verbena ? own_devices(info) : 0;
	struct ibv_device **own = list_of_daemon(info, n < 0 ? 0 : n, &count, &choice);
	struct ibv_device **list = own ? kernel_list_append(own, &count, &choice) : NULL;

	if (!list || (n < 0 && !count)) {
		ibv_free_device_list(list ? list : own);
		return fail_null(list ? -n : ENOMEM);
	}
	if (num_devices)
		*num_devices = count;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	if (!list)
		return;
	for (unsigned int i = 0; list[i]; i++) {
		struct kernel_device *kernel = kernel_device_of(list[i]);

		if (kernel)
			kernel_device_put(kernel);
		else
			device_put(device_from_ibv(list[i]));
	}
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct kernel_device *kernel = kernel_device_of(device);

	return kernel ? kernel_device_guid(kernel) : device_from_ibv(device)->guid;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	struct kernel_device *kernel = kernel_device_of(device);

	return kernel ? kernel_device_index(kernel) : (int)device_from_ibv(device)->index;
}

/* ------------------------------------------------------------------ contexts */

static void context_init(struct context *context, struct hca *hca, struct ibv_device *device,
			 uint32_t vectors, int cmd_fd)
{
	struct ibv_context *ibv = &context->verbs.context;

	context->hca = hca;
	context->device_index = device_from_ibv(device)->index;
	ibv->device = device;
	ibv->cmd_fd = context->cmd_fd = cmd_fd;
	ibv->async_fd = context->async.fd;
	ibv->num_comp_vectors = (int)vectors;
	ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->verbs.sz = sizeof(context->verbs);
	pthread_mutex_init(&ibv->mutex, NULL);
	verbs_ops_fill(&context->verbs);
	for (unsigned int kind = 0; kind < HELD_KINDS; kind++)
		list_init(&context->held[kind]);
	mutex_take(&hca->lock);
	lock_take(&hca->contexts_lock);
	list_add_tail_whole(&hca->contexts, &context->node);
	lock_give(&hca->contexts_lock);
	mutex_give(&hca->lock);
}

struct ibv_context *context_open(struct ibv_device *device, int cmd_fd, const uint64_t token[2])
{
	struct hca *hca = hca_get();
	uint32_t vectors;

	if (!hca)
		return NULL;
	struct open_context *open = calloc(1, sizeof(*open));

	if (!open)
		return fail_null(ENOMEM);
	struct context *context = &open->context;

	memcpy(context->token, token, sizeof(context->token));
	int err = event_queue_init(&context->async);

	if (err)
		goto out_free;
	books_enter(hca);
	err = books_open_context(hca, context, device->dev_name, &vectors);
	if (!err)
		context_init(context, hca, device, vectors, cmd_fd);
	books_leave(hca);
	if (err)
		goto out_queue;
	mutex_take(&devices_lock);
	device_from_ibv(device)->refs++;
	mutex_give(&devices_lock);
	return &context->verbs.context;

out_queue:
	event_queue_destroy(&context->async);
out_free:
	free(open);
	return fail_null(-err);
}

struct ibv_context *context_with_old_slots(struct ibv_context *ibv)
{
	if (ibv) { /* as in verbs_ops_fill() */
		ibv->ops._compat_query_device = ibv_query_device;
		ibv->ops._compat_query_port = ibv_query_port;
	}
	return ibv;
}

EXPORT int verbena_context_removed(struct ibv_context *context)
{
	return !kernel_context_of(context) && context_removed(context_of(context));
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct kernel_device *kernel = kernel_device_of(device);

	if (kernel)
		return context_with_old_slots(kernel_open(kernel));
	uint64_t token[2];
	int fd = share_file_make(device->dev_name, token);

	if (fd < 0)
		return fail_null(-fd);
	struct ibv_context *ibv = context_open(device, fd, token);

	if (!ibv) {
		int err = errno;

		sys_close(fd);
		errno = err;
	}
	return ibv;
}

/* Returns the next QP of a context, from *index on. */
static struct qp *next_qp(struct context *context, uint32_t *index)
{
	struct hca *hca = context->hca;
	struct qp *found = NULL;

	lock_take(&hca->engine);
	while (!found && *index < LIMIT_QPS_PER_SLOT) {
		struct qp *qp = hca->qps[(*index)++];

		if (qp && qp->context == context)
			found = qp;
	}
	lock_give(&hca->engine);
	return found;
}

/* QPs that the program left behind are reset, so that their peers lose the connections. */
static void reset_qps(struct context *context)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	uint32_t index = 0;
	struct qp *qp;

	while ((qp = next_qp(context, &index)))
		qp_modify(&qp->ibv, &attr, IBV_QP_STATE);
}

EXPORT int ibv_close_device(struct ibv_context *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv);

	if (kernel)
		return kernel_close(kernel);
	struct context *context = context_of(ibv);
	struct open_context *open = container_of(context, struct open_context, context);
	struct device *device = device_from_ibv(ibv->device);
	unsigned int objects = atomic_load(&open->objects);

	if (objects)
		reset_qps(context);
	books_enter(context->hca);
	mutex_take(&context->hca->lock);
	lock_take(&context->hca->contexts_lock);
	list_del_whole(&context->node);
	lock_give(&context->hca->contexts_lock);
	mutex_give(&context->hca->lock);
	daemon_close(&context->conn);
	sys_close(context->cmd_fd);
	books_leave(context->hca);
	if (objects) {
		/* The objects still point to the context, and the program may hold pointers to it,
		 * too. */
		log_info("a context was closed with %u of its objects in existence: their memory "
			 "stays until the program ends",
			 objects);
		return 0;
	}
	event_queue_destroy(&context->async);
	pthread_mutex_destroy(&ibv->mutex);
	free(open);
	device_put(device);
	return 0;
}
