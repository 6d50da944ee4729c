/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices of this host; their ports and GIDs follow the host's interfaces. The configuration
 * lists them, or there is one for each interface that reaches other hosts (reach.h).
 *
 * Without configuration the list follows the interfaces as a kernel's does: a device keeps its name
 * and its interface while the interface exists; one that comes later gets the next name. While no
 * program uses the daemon the list is made anew at each change, so that verbena0 is what a program
 * that takes the first device should have. The file `devices` of the run-time directory keeps it
 * for the next daemon, to which running programs return.
 */
#ifndef VERBENA_DAEMON_NET_DEVICES_H
#define VERBENA_DAEMON_NET_DEVICES_H

#include "daemon/net/device.h"

struct devices {
	struct device device[CONFIG_DEVICES];
	uint32_t count;
	/* Facts about the host's interfaces, updated by devices_refresh(); the daemon is one
	 * thread, so no lock guards them. */
	bool seen_up;		  /* one of the bases has been up since the list was made */
	bool full_said;		  /* the message that there are too many was logged */
	bool stale;		  /* changed while programs had the devices: made anew after that */
	bool listening;		  /* devices_listen() was called: new devices get a listener */
	uint32_t default_ifindex; /* the default route's interface, as it was read last */
	struct watch network;
	struct timer refresh;
	struct server *server; /* NULL: not made yet */
};

/* Makes the devices, reads the addresses, begins to watch them. */
void devices_init(struct devices *devices, struct server *server);
void devices_fini(struct devices *devices);

/* Opens the nodes of all devices but the first; from now on a new device's follows. Returns 0 or
 * -errno after a line in the log. */
int devices_listen(struct devices *devices);

/* Before a program is served: if no other is, the list is what the network is now. */
void devices_prepare(struct devices *devices);

/* Whether programs see the device. */
bool devices_list_has(const struct devices *devices, const struct device *device);
/* Whether the address is one of a device's interfaces. */
bool devices_own(const struct devices *devices, const struct network *network,
		 const struct host_address *address);
/* Whether this device has the addresses that are no device's, behind its table (gids.h). */
bool devices_have_rest(const struct device *device);

/* Whether any device has this address, or it is a loopback address. */
bool devices_have(const struct devices *devices, const uint8_t gid[16]);

/* The device that has this address, and its entry in that device's table. NULL: none. */
const struct device *devices_find(const struct devices *devices, const uint8_t gid[16],
				  const struct host_address **entry);

#endif
