/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list of the kernel's devices. A device is made when a scan first finds it, and lives while
 * the last scan had it, or a list or a context holds it, so that pointers to one device compare
 * equal.
 *
 * Owns the list `known` and all devices; both guarded by known_lock. known_lock isn't held while
 * driver libraries are loaded, because their constructors may call anything; a driver's
 * alloc_device() and uninit_device() are called under it.
 */
#include "kverbs/device.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "kverbs/drivers.h"
#include "kverbs/scan.h"

static struct mutex known_lock = MUTEX_INITIALIZER(RANK_KERNEL_DEVICES);
static struct list known GUARDED_BY(known_lock) = {&known, &known};

static void known_mend(void) NO_THREAD_SAFETY_ANALYSIS
{
	list_mend(&known);
}

FORK_MEND(known_lock, known_mend);
/* Whether `known` ever had a device; lets kernel_device_of() skip the lock. */
static atomic_bool any_known;

/* ------------------------------------------------------------------ making and ending */

static enum ibv_transport_type transport_of(enum ibv_node_type type)
{
	switch (type) {
	case IBV_NODE_CA:
	case IBV_NODE_SWITCH:
	case IBV_NODE_ROUTER:
		return IBV_TRANSPORT_IB;
	case IBV_NODE_RNIC:
		return IBV_TRANSPORT_IWARP;
	case IBV_NODE_USNIC:
		return IBV_TRANSPORT_USNIC;
	case IBV_NODE_USNIC_UDP:
		return IBV_TRANSPORT_USNIC_UDP;
	case IBV_NODE_UNSPECIFIED:
		return IBV_TRANSPORT_UNSPECIFIED;
	default:
		return IBV_TRANSPORT_UNKNOWN;
	}
}

static void kernel_device_describe(struct ibv_device *ibv, const struct found_device *found)
{
	ibv->node_type = found->node_type;
	ibv->transport_type = transport_of(found->node_type);
	strcpy(ibv->name, found->name);
	strcpy(ibv->dev_name, found->node_name);
	strcpy(ibv->ibdev_path, found->sysfs_path);
	snprintf(ibv->dev_path, sizeof(ibv->dev_path), "%.160s/class/infiniband_verbs/%.63s",
		 scan_default_roots()->sysfs, found->node_name);
}

/* Owns `found` from then on. NULL: no driver takes the device, or there is no memory. */
static struct kernel_device *device_make(struct found_device *found)
{
	enum driver_release release = RELEASE_UNKNOWN;
	const struct provider *provider = drivers_match(found, &release);
	struct kernel_device *device = provider ? calloc(1, sizeof(*device)) : NULL;

	if (!provider)
		log_info("no driver library takes the kernel's device %s", found->name);
	if (!device)
		goto out_found;
	device->provided = provider->alloc_device(found);
	if (!device->provided)
		goto out_device;
	device->found = found;
	device->release = release;
	device->provided->provider = provider;
	device->provided->found = found;
	kernel_device_describe(&device->provided->ibv, found);
	return device;

out_device:
	free(device);
out_found:
	free(found);
	return NULL;
}

static void device_free(struct kernel_device *device)
{
	struct found_device *found = device->found;

	if (device->provided->provider->uninit_device)
		device->provided->provider->uninit_device(device->provided);
	free(found);
	free(device);
}

static void put_locked(struct kernel_device *device) REQUIRES(known_lock)
{
	if (--device->refs)
		return;
	list_del_whole(&device->node);
	device_free(device);
}

void kernel_device_hold(struct kernel_device *device)
{
	mutex_take(&known_lock);
	device->refs++;
	mutex_give(&known_lock);
}

void kernel_device_put(struct kernel_device *device)
{
	mutex_take(&known_lock);
	put_locked(device);
	mutex_give(&known_lock);
}

/* ------------------------------------------------------------------ scanning */

static bool device_is(const struct kernel_device *device, const struct found_device *found)
{
	const struct found_device *own = device->found;

	return own->node_number == found->node_number && !strcmp(own->name, found->name) &&
	       !strcmp(own->node_name, found->node_name) &&
	       own->created.tv_sec == found->created.tv_sec &&
	       own->created.tv_nsec == found->created.tv_nsec;
}

static struct kernel_device *device_known(const struct found_device *found) REQUIRES(known_lock)
{
	list_for_each(node, &known) {
		struct kernel_device *device = container_of(node, struct kernel_device, node);

		if (device_is(device, found))
			return device;
	}
	return NULL;
}

/* The scan's own reference to each device that it finds stands for "present". */
static void device_present(struct found_device *found) REQUIRES(known_lock)
{
	struct kernel_device *device = device_known(found);

	if (device) {
		free(found);
	} else {
		device = device_make(found);
		if (!device)
			return;
		list_add_tail_whole(&known, &device->node);
		atomic_store(&any_known, true);
	}
	device->seen = true;
	if (!device->present)
		device->refs++;
	device->present = true;
}

static void kernel_devices_refresh(struct list *found) REQUIRES(known_lock)
{
	struct list *node;

	list_for_each(each, &known)
		container_of(each, struct kernel_device, node)->seen = false;
	while ((node = list_pop(found)))
		device_present(container_of(node, struct found_device, node));
	list_for_each(each, &known) {
		struct kernel_device *device = container_of(each, struct kernel_device, node);

		if (device->seen || !device->present)
			continue;
		device->present = false;
		put_locked(device);
	}
}

/* Appends the present devices. Returns the new list or NULL. */
static struct ibv_device **devices_append(struct ibv_device **list, int *count,
					  const struct device_choice *choice) REQUIRES(known_lock)
{
	size_t more = 0;

	list_for_each(node, &known)
		more++;
	list = reallocarray(list, (size_t)*count + more + 1, sizeof(struct ibv_device *));
	if (!list)
		return NULL;
	list_for_each(node, &known) {
		struct kernel_device *device = container_of(node, struct kernel_device, node);

		if (!device->present || !device_choice_has(choice, device->found->name))
			continue;
		device->refs++;
		list[(*count)++] = &device->provided->ibv;
	}
	list[*count] = NULL;
	return list;
}

struct ibv_device **kernel_list_append(struct ibv_device **list, int *count,
				       const struct device_choice *choice)
{
	const struct scan_roots *roots = scan_default_roots();
	struct list found;

	if (!choice->kernel || !scan_worthwhile(roots))
		return list;
	list_init(&found);
	int err = scan_devices(roots, &found);

	if (err)
		log_warn("the kernel's RDMA devices can't be listed: %s", strerror(-err));
	if (!list_empty(&found))
		drivers_load();
	scan_add_netlink(&found);
	mutex_take(&known_lock);
	kernel_devices_refresh(&found);
	struct ibv_device **longer = devices_append(list, count, choice);

	mutex_give(&known_lock);
	return longer;
}

/* ------------------------------------------------------------------ one device */

struct kernel_device *kernel_device_of(const struct ibv_device *ibv)
{
	struct kernel_device *found = NULL;

	if (!atomic_load(&any_known))
		return NULL;
	mutex_take(&known_lock);
	list_for_each(node, &known) {
		struct kernel_device *device = container_of(node, struct kernel_device, node);

		if (&device->provided->ibv == ibv)
			found = device;
	}
	mutex_give(&known_lock);
	return found;
}

struct kernel_device *kernel_device_find(dev_t number)
{
	struct device_choice choice = device_choice_get();
	struct ibv_device **list = calloc(1, sizeof(struct ibv_device *)), **longer;
	struct kernel_device *found = NULL;
	int count = 0;

	longer = list ? kernel_list_append(list, &count, &choice) : NULL;
	for (int i = 0; longer && i < count; i++) {
		struct kernel_device *device = kernel_device_of(longer[i]);

		if (!found && device->found->node_number == number)
			found = device; /* keeps the list's reference */
		else
			kernel_device_put(device);
	}
	free(longer ? longer : list);
	return found;
}

__be64 kernel_device_guid(struct kernel_device *device)
{
	return htobe64(device->found->guid);
}

int kernel_device_index(struct kernel_device *device)
{
	return device->found->index;
}

int kernel_node_open(const struct kernel_device *device)
{
	char path[PATH_MAX];
	struct stat node;

	snprintf(path, sizeof(path), "%s/%s", scan_default_roots()->nodes,
		 device->found->node_name);
	int fd = sys_open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &node) && S_ISCHR(node.st_mode) &&
	    node.st_rdev == device->found->node_number)
		return fd;
	sys_close(fd);
	return -ENODEV; /* the node is another device's by now */
}

/* A file in the directory of a device in sysfs, which drivers read. */
EXPORT int ibv_read_ibdev_sysfs_file(char *value, size_t size, struct found_device *found,
				     const char *format, ...) __attribute__((format(printf, 4, 5)));
EXPORT int ibv_read_ibdev_sysfs_file(char *value, size_t size, struct found_device *found,
				     const char *format, ...)
{
	char file[PATH_MAX];
	va_list arguments;

	if (!found || !size) {
		errno = EINVAL;
		return -1;
	}
	va_start(arguments, format);
	int length = vsnprintf(file, sizeof(file), format, arguments);

	va_end(arguments);
	if (length < 0 || length >= (int)sizeof(file)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return scan_read(found->sysfs_path, file, value, size);
}
EXPORT_SINCE_34(ibv_read_ibdev_sysfs_file, ibv_read_ibdev_sysfs_file);
