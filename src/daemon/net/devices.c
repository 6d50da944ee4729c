/* SPDX-License-Identifier: BSD-2-Clause */
/* See devices.h. Owns the netlink socket; only the daemon's thread calls it. */
#include "daemon/net/devices.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "daemon/net/mcast.h"

/* Many changes come at once when an interface comes up. */
enum { REFRESH_DELAY_MS = 20 };

static void devices_refresh(struct devices *devices)
{
	struct host_address *list = NULL;
	int count = host_addresses(&list);

	if (count < 0) {
		log_warn("the host's addresses can't be read: %s", strerror(-count));
		count = 0;
	}
	for (uint32_t i = 0; i < devices->count; i++)
		device_refresh(&devices->device[i], list, (unsigned int)count);
	mcast_publish_addresses(devices->server, list, (unsigned int)count);
	free(list);
	mcast_refresh(devices->server);
	cm_service_network_changed(devices->server);
}

static void on_refresh(struct timer *timer)
{
	devices_refresh(container_of(timer, struct devices, refresh));
}

static void on_network(struct watch *watch, uint32_t events)
{
	struct devices *devices = container_of(watch, struct devices, network);

	(void)events;
	host_watch_drain(watch->fd);
	timer_set(&devices->server->loop, &devices->refresh, REFRESH_DELAY_MS);
}

/* To be called before the interfaces are read, so that no change is missed. */
static void devices_watch(struct devices *devices)
{
	int fd = host_watch_open();
	int err = fd < 0 ? fd : loop_add(&devices->server->loop, &devices->network, fd, EPOLLIN);

	if (err)
		log_warn("changes of the host's interfaces can't be watched (%s): ports and GIDs "
			 "stay as they are now",
			 strerror(-err));
	if (err && fd >= 0)
		close(fd);
}

void devices_init(struct devices *devices, struct server *server)
{
	const struct config *config = &server->config;

	*devices = (struct devices){.server = server, .network = {.fd = -1, .ready = on_network}};
	timer_init(&devices->refresh, on_refresh);
	devices->count = config->device_count ? config->device_count : 1;
	for (uint32_t i = 0; i < devices->count; i++)
		device_init(&devices->device[i], server, i,
			    config->device_count ? &config->device[i] : NULL);
	devices_watch(devices);
	devices_refresh(devices);
}

void devices_fini(struct devices *devices)
{
	int fd = devices->network.fd;

	timer_cancel(&devices->refresh);
	loop_remove(&devices->server->loop, &devices->network);
	if (fd >= 0)
		close(fd);
}

static bool device_gid_is_loopback(const uint8_t gid[16])
{
	const struct in6_addr *address = (const struct in6_addr *)gid;

	return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && gid[12] == 127);
}

const struct device *devices_find(const struct devices *devices, const uint8_t gid[16],
				  const struct host_address **entry)
{
	for (uint32_t i = 0; i < devices->count; i++) {
		*entry = gids_find(&devices->device[i].gids, gid);
		if (*entry)
			return &devices->device[i];
	}
	return NULL;
}

bool devices_have(const struct devices *devices, const uint8_t gid[16])
{
	const struct host_address *entry;

	return device_gid_is_loopback(gid) || devices_find(devices, gid, &entry);
}
