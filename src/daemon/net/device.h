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
#include "daemon/net/reach.h"

#define DEVICE_NAME "verbena0" /* the first one's, without configuration */
#define DEVICE_NODE "uverbs0"  /* the first device's node */
#define DEVICE_PORT 1

/* The version of the daemon that plays the firmware; as a number, 16 bits a part. */
#define DEVICE_FIRMWARE VERBENA_VERSION ".0"
#define DEVICE_FIRMWARE_NUMBER \
	((uint64_t)VERBENA_VERSION_MAJOR << 32 | (uint64_t)VERBENA_VERSION_MINOR << 16)
#define DEVICE_RATE "100 Gb/sec (4X EDR)" /* in sysfs's form of width and speed */
#define DEVICE_PORT_CAPS (IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS)

struct server;

/*
 * A device has the addresses of the interfaces to which the configuration binds it; or, without
 * configuration, those of its base (reach.h) and of what lies above that; or it is *alone*: no
 * interface of the host reaches others, and it has all addresses there are.
 */
struct device {
	char name[CONFIG_DEVICE_NAME];
	char node[32];
	uint32_t index;
	const struct config_device *bound; /* NULL: not configured */
	enum reach reach;		   /* of its base; REACH_NONE: configured, or alone */
	uint8_t guid[8];		   /* in network order */
	/* The base, or the first configured interface, or "lo"; its index is 0 while there is none.
	 */
	char ifname[IF_NAMESIZE];
	uint32_t ifindex;
	uint8_t mac[6];
	/* Whether one of its interfaces exists, as device_notice() saw last. */
	bool present;
	struct host_port port;
	struct gids gids;
	struct watch listener; /* on its node; the first device's is server->uverbs */
	struct server *server;
};

/* Names the device; what follows binds it. */
void device_init(struct device *device, struct server *server, uint32_t index);
/* Each sets the interface and the GUID, which no other device of the server has. */
void device_bind(struct device *device, const struct config_device *bound);
void device_take(struct device *device, const char *base, enum reach reach);
void device_take_host(struct device *device);

bool device_is_alone(const struct device *device);
/* Whether any process has a context on the device. */
bool device_is_used(const struct device *device);
/* Whether the device has the addresses of this interface. An alone one has none of its own. */
bool device_has_interface(const struct device *device, const struct network *network,
			  const struct host_address *address);

/* Finds out whether the device has an interface. When it has lost the last one, its contexts end
 * with it, as when a card is removed. */
void device_notice(struct device *device, const struct network *network);

/* Updates GIDs and port, after device_notice() for all devices, and reports changes to the device's
 * contexts. */
void device_refresh(struct device *device, const struct network *network);

/* The port's MTU as enum ibv_mtu, from the interface's MTU. */
unsigned int device_mtu(const struct device *device);
/* enum ibv_device_cap_flags. */
uint32_t device_capabilities(void);

#endif
