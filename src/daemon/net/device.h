/* SPDX-License-Identifier: BSD-2-Clause */
/* One device: its identity, its capabilities, its port and GIDs. devices.h has all of them. */
#ifndef VERBENA_DAEMON_NET_DEVICE_H
#define VERBENA_DAEMON_NET_DEVICE_H

#include <rdma/ib_user_ioctl_verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/config.h"
#include "daemon/core/loop.h"
#include "daemon/net/gids.h"

#define DEVICE_NAME "verbena0" /* without configuration */
#define DEVICE_NODE "uverbs0"  /* the first device's node */
#define DEVICE_PORT 1

/* The version of the daemon that plays the firmware; as a number, 16 bits a part. */
#define DEVICE_FIRMWARE VERBENA_VERSION ".0"
#define DEVICE_FIRMWARE_NUMBER \
	((uint64_t)VERBENA_VERSION_MAJOR << 32 | (uint64_t)VERBENA_VERSION_MINOR << 16)
#define DEVICE_RATE "100 Gb/sec (4X EDR)" /* in sysfs's form of width and speed */
#define DEVICE_PORT_CAPS (IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS)

struct server;

struct device {
	char name[CONFIG_DEVICE_NAME];
	char node[32];
	uint32_t index;
	const struct config_device *bound; /* its interfaces; NULL: all of the host's */
	uint8_t guid[8];		   /* in network order */
	struct host_address first;	   /* GID 0, and the interface whose state is the port's */
	/* Both are facts about the host's interfaces, updated by device_refresh(); the daemon is
	 * one thread, so no lock guards them. */
	bool seen_up; /* its interface has been up, and the port follows it; never cleared */
	bool present; /* one of its interfaces exists */
	struct host_port port;
	struct gids gids;
	struct watch listener; /* on its node; the first device's is server->uverbs */
	struct server *server;
};

/* Sets the name, node and GUID. `bound`: NULL for all interfaces. device_refresh() sets GIDs and
 * port. */
void device_init(struct device *device, struct server *server, uint32_t index,
		 const struct config_device *bound);

/* Updates GIDs and port from `list` (of host_addresses()), and reports changes to the device's
 * contexts. */
void device_refresh(struct device *device, const struct host_address *list, unsigned int count);

/* The port's MTU as enum ibv_mtu, from the interface's MTU. */
unsigned int device_mtu(const struct device *device);
/* enum ibv_device_cap_flags. */
uint32_t device_capabilities(void);

#endif
