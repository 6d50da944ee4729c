/* SPDX-License-Identifier: BSD-2-Clause */
/* See devices.h. Owns the netlink socket; only the daemon's thread calls it. */
#include "daemon/net/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "daemon/core/setup.h"
#include "daemon/net/mcast.h"

/* REFRESH_DELAY_MS: many changes come at once when an interface comes up. REREAD_MS: after the lack
 * of descriptors or memory. */
enum { REFRESH_DELAY_MS = 20, REREAD_MS = 1000 };

/* ------------------------------------------------------------------ the list's file */

#define LIST_FILE "devices"
#define ALONE "-"

static bool devices_configured(const struct devices *devices)
{
	return devices->server->config.device_count;
}

static void devices_remember(const struct devices *devices)
{
	int dir = devices->server->dir_fd;
	int fd = openat(dir, LIST_FILE ".new",
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (uint32_t i = 0; i < devices->count; i++)
		fprintf(file, "%s\n",
			device_is_alone(&devices->device[i]) ? ALONE : devices->device[i].ifname);
	bool written = !ferror(file);

	if (fclose(file) == 0 && written && renameat(dir, LIST_FILE ".new", dir, LIST_FILE) == 0)
		return;
	log_debug("the list of devices can't be kept for the next daemon");
}

/* Makes the devices that the last daemon had. */
static void devices_recall(struct devices *devices)
{
	int fd = openat(devices->server->dir_fd, LIST_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	char line[2 * IF_NAMESIZE];

	if (fd >= 0 && !file)
		close(fd);
	while (file && devices->count < CONFIG_DEVICES && fgets(line, sizeof(line), file)) {
		struct device *device = &devices->device[devices->count];

		line[strcspn(line, "\n")] = 0;
		if (!line[0] || strlen(line) >= IF_NAMESIZE)
			break;
		device_init(device, devices->server, devices->count++);
		if (strcmp(line, ALONE) != 0)
			device_take(device, line, REACH_GUESTS);
		else
			device_take_host(device);
	}
	if (file)
		fclose(file);
}

/* ------------------------------------------------------------------ the list */

/* Whether a program uses the daemon, or may return to it. */
static bool devices_in_use(const struct devices *devices)
{
	const struct server *server = devices->server;

	if (!list_empty(&server->conns))
		return true;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (server->slots.absent[slot])
			return true;
	return false;
}

bool devices_list_has(const struct devices *devices, const struct device *device)
{
	if (device->bound || (device->present && !device_is_alone(device)))
		return true;
	for (uint32_t i = 0; i < devices->count; i++)
		if (devices->device[i].present && !device_is_alone(&devices->device[i]))
			return false;
	return device->present;
}

bool devices_own(const struct devices *devices, const struct network *network,
		 const struct host_address *address)
{
	for (uint32_t i = 0; i < devices->count; i++)
		if (devices->device[i].present &&
		    device_has_interface(&devices->device[i], network, address))
			return true;
	return false;
}

bool devices_have_rest(const struct device *device)
{
	const struct devices *devices = &device->server->devices;
	uint32_t i = 0;

	while (i < devices->count && !devices_list_has(devices, &devices->device[i]))
		i++;
	return !device->bound && !device_is_alone(device) && device == &devices->device[i];
}

static struct device *device_of_base(struct devices *devices, const struct interface *base)
{
	for (uint32_t i = 0; i < devices->count; i++)
		if (!device_is_alone(&devices->device[i]) &&
		    !strcmp(devices->device[i].ifname, base->ifname))
			return &devices->device[i];
	return NULL;
}

/* A place for another device. The one that stands for the host alone gives way: it becomes the
 * first interface's. NULL: there is none. */
static struct device *place_for_device(struct devices *devices)
{
	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = &devices->device[i];

		if (device_is_alone(device))
			return device;
		if (!device->present && !device_is_used(device)) {
			device_init(device, devices->server, i);
			return device;
		}
	}
	if (devices->count == CONFIG_DEVICES)
		return NULL;
	device_init(&devices->device[devices->count], devices->server, devices->count);
	return &devices->device[devices->count++];
}

static void give_device(struct devices *devices, const struct interface *base, enum reach reach)
{
	struct device *device = place_for_device(devices);

	if (device)
		device_take(device, base->ifname, reach);
	else if (!devices->full_said)
		log_warn("more than %d interfaces reach other hosts; %s and others get no device "
			 "(verbenad.conf may choose which do)",
			 CONFIG_DEVICES, base->ifname);
	devices->full_said |= !device;
}

/* What the interfaces of the present devices lead to, at most. */
static enum reach present_reach(struct devices *devices, const struct network *network)
{
	enum reach best = REACH_NONE;

	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = &devices->device[i];
		const struct interface *base =
			device_is_alone(device) ? NULL : network_named(network, device->ifname);

		if (!device->present || !base)
			continue;
		/* One that is down leads nowhere now, but keeps its device. */
		enum reach now = network_reach(network, base);

		if (now != REACH_NONE)
			device->reach = now;
		best = device->reach > best ? device->reach : best;
	}
	return best;
}

static bool is_any_present(const struct devices *devices)
{
	for (uint32_t i = 0; i < devices->count; i++)
		if (devices->device[i].present)
			return true;
	return false;
}

/* Makes devices for the interfaces that have none, and the one for the host alone if there is no
 * other. */
static void devices_follow(struct devices *devices, const struct network *network)
{
	const struct interface *chosen[CONFIG_DEVICES + 1];
	enum reach least = present_reach(devices, network);
	unsigned int count = network_choose(network, least, chosen, CONFIG_DEVICES + 1);

	for (unsigned int i = 0; i < count; i++)
		if (!device_of_base(devices, chosen[i]))
			give_device(devices, chosen[i], network_reach(network, chosen[i]));
	if (!is_any_present(devices)) {
		if (!devices->count)
			device_init(&devices->device[devices->count++], devices->server, 0);
		device_take_host(&devices->device[0]);
	}
}

/* Only the first device's listener is the server's. One that can't be opened is tried again at the
 * next change. */
static int adjust_listeners(struct devices *devices)
{
	int err = 0;

	for (uint32_t i = 1; i < CONFIG_DEVICES && devices->listening; i++) {
		struct device *device = &devices->device[i];
		bool wanted = i < devices->count;

		if (wanted && device->listener.fd < 0)
			err = setup_listen_device(devices->server, device);
		else if (!wanted && device->listener.fd >= 0)
			setup_unlisten_device(devices->server, device);
		if (err)
			return err;
	}
	return 0;
}

int devices_listen(struct devices *devices)
{
	devices->listening = true;
	return adjust_listeners(devices);
}

static void note_up(struct devices *devices)
{
	for (uint32_t i = 0; i < devices->count; i++)
		if (!device_is_alone(&devices->device[i]))
			devices->seen_up |= host_port(devices->device[i].ifname).up;
}

static void devices_refresh(struct devices *devices)
{
	struct network network;

	int err = network_read(&network);

	if (err) {
		log_warn("the host's interfaces can't be read now: %s", strerror(-err));
		timer_set(&devices->server->loop, &devices->refresh, REREAD_MS);
		/* For want of a descriptor no program loses its device. */
		if (devices->count)
			return;
	}
	devices->default_ifindex = network.default_ifindex;
	devices->stale = devices_in_use(devices);
	if (!devices_configured(devices) && !devices->stale) {
		devices->count = 0;
		devices->seen_up = false;
	}
	for (uint32_t i = 0; i < devices->count; i++)
		device_notice(&devices->device[i], &network);
	if (!devices_configured(devices))
		devices_follow(devices, &network);
	note_up(devices);
	for (uint32_t i = 0; i < devices->count; i++)
		device_refresh(&devices->device[i], &network);
	adjust_listeners(devices);
	if (!devices_configured(devices))
		devices_remember(devices);
	mcast_publish_addresses(devices->server, network.addresses, network.address_count);
	network_free(&network);
	mcast_refresh(devices->server);
	cm_service_network_changed(devices->server);
}

/* ------------------------------------------------------------------ changes */

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
	for (uint32_t i = 0; i < CONFIG_DEVICES; i++)
		devices->device[i].listener.fd = -1;
	for (; devices->count < config->device_count; devices->count++) {
		struct device *device = &devices->device[devices->count];

		device_init(device, server, devices->count);
		device_bind(device, &config->device[devices->count]);
	}
	if (!config->device_count && devices_in_use(devices))
		devices_recall(devices);
	devices_watch(devices);
	devices_refresh(devices);
}

void devices_prepare(struct devices *devices)
{
	if (devices_configured(devices) || devices_in_use(devices))
		return;
	/* The default route isn't watched: it decides only which device is the first. */
	if (devices->stale || !list_empty(&devices->refresh.node) ||
	    interfaces_default() != devices->default_ifindex) {
		timer_cancel(&devices->refresh);
		devices_refresh(devices);
	}
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
		if (*entry && devices_list_has(devices, &devices->device[i]))
			return &devices->device[i];
	}
	return NULL;
}

bool devices_have(const struct devices *devices, const uint8_t gid[16])
{
	const struct host_address *entry;

	return device_gid_is_loopback(gid) || devices_find(devices, gid, &entry);
}
