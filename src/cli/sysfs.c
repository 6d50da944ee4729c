/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices in /sys/class; see sysfs.h.
 *
 * A sysfs takes no new directories, so a tmpfs covers /sys/class and has the same names in it: each
 * class is bind-mounted from the host's, and the symbolic links of the host's own InfiniBand
 * devices are copied; they stay valid because they are at the same depth. A port's counters are
 * kept true by a process of ours (port_counters.h). A file whose contents only a kernel could keep
 * true (the number of a device node) is missing.
 *
 * One thread.
 */
#include "cli/sysfs.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cover.h"
#include "cli/ctl.h"
#include "cli/mirror.h"
#include "cli/port_counters.h"
#include "cli/space.h"
#include "proto/limits.h"

#define CLASS "/sys/class"

/* The ABI version of the node's interface, as the kernel's; see <rdma/ib_user_verbs.h>. */
#define VERBS_ABI_VERSION 6

/* ------------------------------------------------------------------ a port */

static void put_gid(struct place *place, const char *name, const uint8_t gid[16])
{
	place_put(place, name,
		  "%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x", gid[0],
		  gid[1], gid[2], gid[3], gid[4], gid[5], gid[6], gid[7], gid[8], gid[9], gid[10],
		  gid[11], gid[12], gid[13], gid[14], gid[15]);
}

/* Holes of the table are zero and have no type and no interface, where a kernel's files give
 * EINVAL. */
static void put_gids(struct place *port, const json_t *list)
{
	struct place gids = place_enter(port, "gids"), attrs = place_enter(port, "gid_attrs");
	struct place types = place_enter(&attrs, "types"), ndevs = place_enter(&attrs, "ndevs");
	bool used[LIMIT_GIDS] = {false};
	uint8_t gid[16] = {0};
	const json_t *entry;
	char name[16];
	size_t i;

	json_array_foreach(list, i, entry) {
		json_int_t index = ctl_integer(entry, "index");

		if (index < 0 || index >= LIMIT_GIDS || used[index] ||
		    inet_pton(AF_INET6, ctl_string(entry, "gid"), gid) != 1)
			continue;
		used[index] = true;
		snprintf(name, sizeof(name), "%d", (int)index);
		put_gid(&gids, name, gid);
		place_put(&types, name, "%s", ctl_string(entry, "type"));
		place_put(&ndevs, name, "%s", ctl_string(entry, "ifname"));
	}
	memset(gid, 0, sizeof(gid));
	for (i = 0; i < LIMIT_GIDS; i++) {
		snprintf(name, sizeof(name), "%zu", i);
		if (!used[i])
			put_gid(&gids, name, gid);
	}
	place_leave(&attrs, &ndevs);
	place_leave(&attrs, &types);
	place_leave(port, &attrs);
	place_leave(port, &gids);
}

static void put_port(struct place *ports, const json_t *device)
{
	bool up = !strcmp(ctl_string(device, "state"), "ACTIVE");
	char name[32];

	snprintf(name, sizeof(name), "%d", (int)ctl_integer(device, "port"));

	struct place port = place_enter(ports, name), pkeys = place_enter(&port, "pkeys");

	place_put(&port, "state", up ? "4: ACTIVE" : "1: DOWN");
	place_put(&port, "phys_state", up ? "5: LinkUp" : "3: Disabled");
	place_put(&port, "link_layer", "Ethernet");
	place_put(&port, "rate", "%s", ctl_string(device, "rate"));
	place_put(&port, "cap_mask", "0x%08x", (unsigned int)ctl_integer(device, "port_cap_flags"));
	/* RoCE has no subnet manager. */
	place_put(&port, "lid", "0x0");
	place_put(&port, "lid_mask_count", "0");
	place_put(&port, "sm_lid", "0x0");
	place_put(&port, "sm_sl", "0");
	place_put(&pkeys, "0", "0xffff");
	put_gids(&port, json_object_get(device, "gids"));
	place_leave(&port, &pkeys);
	place_leave(ports, &port);
}

/* ------------------------------------------------------------------ a device */

/* Whether /sys/class/net shows this network namespace's interface of that name. */
static bool is_in_sysfs(const char *ifname, unsigned int index)
{
	char path[PATH_MAX];
	unsigned int found = 0;

	snprintf(path, sizeof(path), CLASS "/net/%s/ifindex", ifname);
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	if (fscanf(file, "%u", &found) != 1)
		found = 0;
	fclose(file);
	return found == index;
}

/* Adds the device's parent directory with its interfaces, as a card has it. */
static void put_parent(struct place *device, const json_t *facts)
{
	struct place parent = place_enter(device, "device"), net = place_enter(&parent, "net");
	const json_t *name;
	size_t i;

	/* No NUMA node is preferred. */
	place_put(&parent, "numa_node", "-1");
	json_array_foreach(json_object_get(facts, "interfaces"), i, name) {
		const char *ifname = json_string_value(name);
		unsigned int index = ifname ? if_nametoindex(ifname) : 0;
		char target[IF_NAMESIZE + 64];

		if (!index || strchr(ifname, '/'))
			continue;
		if (is_in_sysfs(ifname, index)) {
			snprintf(target, sizeof(target), CLASS "/net/%s", ifname);
			place_link(&net, ifname, target);
			continue;
		}
		/* This sysfs is another network namespace's: the directory has only what lookups
		 * need. */
		struct place interface = place_enter(&net, ifname);

		place_put(&interface, "ifindex", "%u", index);
		place_leave(&net, &interface);
	}
	place_leave(&parent, &net);
	place_leave(device, &parent);
}

/* Adds one device. GUIDs are in groups of four digits, in sysfs as in the daemon's reply. */
static void put_device(struct place *class, const json_t *facts)
{
	struct place device = place_enter(class, ctl_string(facts, "name"));
	struct place ports = place_enter(&device, "ports");

	place_put(&device, "node_type", "1: CA");
	place_put(&device, "node_guid", "%s", ctl_string(facts, "guid"));
	place_put(&device, "sys_image_guid", "%s", ctl_string(facts, "guid"));
	place_put(&device, "node_desc", "%s", ctl_string(facts, "name"));
	place_put(&device, "fw_ver", "%s", ctl_string(facts, "fw_ver"));
	place_put(&device, "hw_rev", "%d", DEVICE_HW_VERSION);
	place_put(&device, "hca_type", "Verbena");
	put_port(&ports, facts);
	put_parent(&device, facts);
	place_leave(&device, &ports);
	place_leave(class, &device);
}

static void put_node(struct place *class, const json_t *facts)
{
	struct place node = place_enter(class, ctl_string(facts, "node"));
	char target[PATH_MAX];

	snprintf(target, sizeof(target), "../../infiniband/%s/device", ctl_string(facts, "name"));
	place_put(&node, "ibdev", "%s", ctl_string(facts, "name"));
	place_put(&node, "abi_version", "1");
	place_link(&node, "device", target);
	place_leave(class, &node);
}

/* ------------------------------------------------------------------ the rest of /sys/class */

bool sysfs_has_devices(const json_t *status)
{
	const json_t *device;
	char path[PATH_MAX];
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		snprintf(path, sizeof(path), CLASS "/infiniband/%s/node_guid",
			 ctl_string(device, "name"));
		if (access(path, R_OK) == 0)
			return true;
	}
	return false;
}

/* Makes an empty directory, unless it is there. */
static void put_empty(struct place *parent, const char *name)
{
	struct place directory = place_enter(parent, name);

	place_leave(parent, &directory);
}

/* Adds the counters of the device's port. */
static void put_counters(struct place *class, const json_t *facts)
{
	struct place device = place_enter(class, ctl_string(facts, "name"));
	struct place ports = place_enter(&device, "ports");
	char name[32];

	snprintf(name, sizeof(name), "%d", (int)ctl_integer(facts, "port"));

	struct place port = place_enter(&ports, name);

	port_counters_mount(&port);
	place_leave(&ports, &port);
	place_leave(&device, &ports);
	place_leave(class, &device);
}

/* One of the two classes: the daemon's devices, unless their names are taken, then the host's, if
 * there are any. */
static void put_class(struct place *root, int from, const char *name, const json_t *devices,
		      void (*put_one)(struct place *, const json_t *))
{
	struct place class = place_enter(root, name);
	int host = openat(from, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const json_t *device;
	size_t i;

	json_array_foreach(devices, i, device) {
		const char *entry = ctl_string(device, put_one == put_device ? "name" : "node");

		if (place_is_name(ctl_string(device, "name")) &&
		    place_is_name(ctl_string(device, "node")) &&
		    faccessat(class.fd, entry, F_OK, 0) < 0) {
			put_one(&class, device);
			/* Processes don't count for each device, so the first has the sum. */
			if (put_one == put_device && !i)
				put_counters(&class, device);
		}
	}
	if (!strcmp(name, "infiniband_verbs"))
		place_put(&class, "abi_version", "%d", VERBS_ABI_VERSION);
	if (host >= 0) {
		place_carry_over(&class, host);
		close(host);
	}
	place_leave(root, &class);
}

static void sysfs_fill(struct place *root, int from, const json_t *status)
{
	static const char *const classes[] = {"infiniband", "infiniband_verbs"};
	const json_t *devices = json_object_get(status, "devices");

	/* Verbena's classes are made before the host's are bound, but filled later: a device links
	 * to its interface in net. */
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		put_empty(root, classes[i]);
	place_carry_over(root, from);
	put_class(root, from, classes[0], devices, put_device);
	put_class(root, from, classes[1], devices, put_node);
}

static void sysfs_fill_fabric(struct place *root, int from, const json_t *status)
{
	struct place class = place_enter(root, "infiniband");

	put_empty(&class, MIRROR_DEVICE);
	place_leave(root, &class);
	put_empty(root, "infiniband_mad");
	sysfs_fill(root, from, status);
}

int sysfs_cover(const json_t *status)
{
	int error = space_detach("/sys");

	return error ? error : cover_directory(CLASS, sysfs_fill, status);
}

int sysfs_cover_fabric(const json_t *status)
{
	int error = space_detach("/sys");

	return error ? error : cover_directory(CLASS, sysfs_fill_fabric, status);
}

void sysfs_serve(void)
{
	port_counters_start(CLASS);
}
