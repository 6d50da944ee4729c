/* SPDX-License-Identifier: BSD-2-Clause */
/* The device: who it is, what it can do, its port and GIDs. */
#ifndef VERBENA_DAEMON_DEVICE_H
#define VERBENA_DAEMON_DEVICE_H

#include <stdint.h>

#include "daemon/gids.h"
#include "daemon/loop.h"

#define DEVICE_NAME "verbena0"
#define DEVICE_NODE "uverbs0"
#define DEVICE_PORT 1
#define DEVICE_MTU_BYTES 4096

struct server;

struct device {
	uint8_t guid[8];	   /* as on the wire */
	struct host_address first; /* GID 0 */
	struct gids gids;
	struct watch network;
	struct timer refresh;
	struct server *server;
};

/* Makes the GUID, reads the addresses, begins to watch them. */
void device_init(struct device *device, struct server *server);
void device_fini(struct device *device);

#endif
