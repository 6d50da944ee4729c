/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices, which all ids of the process share. See rdmacm.h. A device is opened when the first of
 * its addresses is used, and stays open, as rdma_get_devices(3) says, since programs keep
 * id->verbs.
 *
 * Owns the list of open devices, its lock, and their default protection domains.
 */
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "rdmacm/rdmacm.h"

#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct mutex devices_lock = MUTEX_INITIALIZER(RANK_RDMACM_DEVICES);
static struct device *devices GUARDED_BY(devices_lock); /* devices are added, and never end */
FORK_KEEP(devices_lock);

static uint8_t depth_from_int(int value)
{
	return value < UINT8_MAX ? (uint8_t)value : UINT8_MAX;
}

static struct device *open_locked(struct ibv_device *ibv, __be64 guid) REQUIRES(devices_lock)
{
	struct ibv_device_attr attr;
	struct device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	device->guid = guid;
	device->verbs = ibv_open_device(ibv);
	if (!device->verbs)
		goto out_free;
	int err = ibv_query_device(device->verbs, &attr);

	if (err) {
		errno = err;
		goto out_close;
	}
	device->max_initiator_depth = depth_from_int(attr.max_qp_init_rd_atom);
	device->max_responder_resources = depth_from_int(attr.max_qp_rd_atom);
	device->next = devices;
	FORK_POINT();
	devices = device;
	return device;

out_close:
	ibv_close_device(device->verbs);
out_free:
	free(device);
	return NULL;
}

/* The open device with this GUID, or NULL. One whose interface is gone stays open for those that
 * have it, and is opened anew for others. */
static struct device *known_locked(__be64 guid) REQUIRES(devices_lock)
{
	for (struct device *d = devices; d; d = d->next)
		if (d->guid == guid && !private_context_removed(d->verbs))
			return d;
	return NULL;
}

static struct device *device_get_locked(struct ibv_device *ibv) REQUIRES(devices_lock)
{
	__be64 guid = ibv_get_device_guid(ibv);

	struct device *known = known_locked(guid);

	return known ? known : open_locked(ibv, guid);
}

static struct device *find_locked(__be64 guid) REQUIRES(devices_lock)
{
	struct device *known = known_locked(guid);

	if (known)
		return known;

	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct device *found = NULL;

	if (!list) {
		if (errno == ENOSYS) /* rdma-core's libibverbs, and a kernel without RDMA */
			errno = ENODEV;
		return NULL;
	}
	errno = ENODEV;
	for (int i = 0; i < count && !found; i++)
		if (ibv_get_device_guid(list[i]) == guid)
			found = open_locked(list[i], guid);
	if (!found)
		log_warn_few("rdma_cm: the device with the GUID 0x%016llx, which the address is "
			     "of, can't be opened: %s",
			     (unsigned long long)be64toh(guid), strerror(errno));
	ibv_free_device_list(list);
	return found;
}

struct device *device_of_guid(__be64 guid)
{
	mutex_take(&devices_lock);
	struct device *device = find_locked(guid);

	mutex_give(&devices_lock);
	return device;
}

struct ibv_pd *device_pd(struct device *device)
{
	mutex_take(&devices_lock);
	if (!device->pd)
		device->pd = ibv_alloc_pd(device->verbs);
	struct ibv_pd *pd = device->pd;

	mutex_give(&devices_lock);
	return pd;
}

struct ibv_xrcd *device_xrcd(struct device *device)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	mutex_take(&devices_lock);
	if (!device->xrcd)
		device->xrcd = ibv_open_xrcd(device->verbs, &attr);
	struct ibv_xrcd *xrcd = device->xrcd;

	mutex_give(&devices_lock);
	return xrcd;
}

EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	int count, opened = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (num_devices)
		*num_devices = 0;
	if (!list)
		return NULL;
	struct ibv_context **contexts = calloc((size_t)count + 1, sizeof(struct ibv_context *));

	mutex_take(&devices_lock);
	for (int i = 0; contexts && i < count; i++) {
		struct device *device = device_get_locked(list[i]);

		if (device)
			contexts[opened++] = device->verbs;
	}
	mutex_give(&devices_lock);
	ibv_free_device_list(list);
	if (!contexts || (count && !opened)) {
		free(contexts);
		return NULL;
	}
	if (num_devices)
		*num_devices = opened;
	return contexts;
}

EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
