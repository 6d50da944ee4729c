/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices of this host; their ports and GIDs follow the host's interfaces. Without
 * configuration there is one device, for all interfaces.
 */
#ifndef VERBENA_DAEMON_NET_DEVICES_H
#define VERBENA_DAEMON_NET_DEVICES_H

#include "daemon/net/device.h"

struct devices {
	struct device device[CONFIG_DEVICES];
	uint32_t count;
	struct watch network;
	struct timer refresh;
	struct server *server; /* NULL: not made yet */
};

/* Makes the devices, reads the addresses, begins to watch them. */
void devices_init(struct devices *devices, struct server *server);
void devices_fini(struct devices *devices);

/* Whether any device has this address, or it is a loopback address. */
bool devices_have(const struct devices *devices, const uint8_t gid[16]);

/* The device that has this address, and its entry in that device's table. NULL: none. */
const struct device *devices_find(const struct devices *devices, const uint8_t gid[16],
				  const struct host_address **entry);

#endif
