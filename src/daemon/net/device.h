/* SPDX-License-Identifier: BSD-2-Clause */
/* One device: who it is, what it can do, its port and GIDs. All of them are in devices.h. */
#ifndef VERBENA_DAEMON_NET_DEVICE_H
#define VERBENA_DAEMON_NET_DEVICE_H

#include <rdma/ib_user_ioctl_verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/config.h"
#include "daemon/core/loop.h"
#include "daemon/net/gids.h"

#define DEVICE_NAME "verbena0" /* without configuration */
#define DEVICE_NODE "uverbs0"  /* of the first */
#define DEVICE_PORT 1

#define DEVICE_FIRMWARE "0.1.0"
#define DEVICE_RATE "100 Gb/sec (4X EDR)" /* as sysfs writes width and speed */
#define DEVICE_PORT_CAPS (IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS)

struct server;

struct device {
	char name[CONFIG_DEVICE_NAME];
	char node[32];
	uint32_t index;
	const struct config_device *bound; /* to these interfaces; NULL: to all of the host's */
	uint8_t guid[8];		   /* as on the wire */
	struct host_address first;	   /* GID 0, and the interface that is the port's */
	bool seen_up;			   /* its interface was up before; see device_refresh() */
	bool present;			   /* there is one of its interfaces */
	struct host_port port;
	struct gids gids;
	struct watch listener; /* of its node; the first's is server->uverbs */
	struct server *server;
};

/* Makes the GUID. `bound`: NULL for all interfaces. The gids and the port come by
 * device_refresh(). */
void device_init(struct device *device, struct server *server, uint32_t index,
		 const struct config_device *bound);

/* Takes what there is now, and tells the device's contexts what changed. `list`: as
 * host_addresses() gives it. */
void device_refresh(struct device *device, const struct host_address *list, unsigned int count);

/* enum ibv_mtu, from the interface's MTU. */
unsigned int device_mtu(const struct device *device);

#endif
