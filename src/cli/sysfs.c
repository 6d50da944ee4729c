/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices as programs look for them in /sys/class; see sysfs.h.
 *
 * A sysfs takes no new directories, so a tmpfs lies over /sys/class, with the same names in it:
 * each class is bound to the host's, and the symbolic links of the host's own InfiniBand devices
 * are copied, which lead to the same places because they are as deep. Files that would need a
 * kernel to be true (counters, the number of a device node) aren't there.
 *
 * Everything is written through descriptors of the directory that it goes to. One thread.
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

#include "cli/ctl.h"
#include "proto/limits.h"

#define CLASS "/sys/class"

/* Of the node's interface, as the kernel's; see <rdma/ib_user_verbs.h>. */
#define VERBS_ABI_VERSION 6

/* ------------------------------------------------------------------ files and directories */

/* A directory that is being filled; an error stays, and what comes after it does nothing. */
struct place {
	int fd;
	int error;
};

static void place_fail(struct place *place)
{
	if (!place->error)
		place->error = -errno;
}

/* A new directory in `parent`, or one that is there. Ended by place_leave(). */
static struct place place_enter(struct place *parent, const char *name)
{
	struct place place = {.fd = -1, .error = parent->error};

	if (place.error)
		return place;
	if (mkdirat(parent->fd, name, 0755) < 0 && errno != EEXIST)
		place_fail(&place);
	place.fd = openat(parent->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.fd < 0)
		place_fail(&place);
	return place;
}

static void place_leave(struct place *parent, struct place *place)
{
	if (place->fd >= 0)
		close(place->fd);
	if (!parent->error)
		parent->error = place->error;
}

/* An attribute: a line of text. */
static void place_put(struct place *place, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void place_put(struct place *place, const char *name, const char *format, ...)
{
	char text[256];
	va_list args;
	int fd;

	if (place->error)
		return;
	va_start(args, format);
	int length = vsnprintf(text, sizeof(text) - 1, format, args);

	va_end(args);
	if (length < 0 || length >= (int)sizeof(text) - 1)
		length = sizeof(text) - 2;
	text[length++] = '\n';
	fd = openat(place->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0 || write(fd, text, (size_t)length) != length)
		place_fail(place);
	if (fd >= 0)
		close(fd);
}

static void put_link(struct place *place, const char *name, const char *target)
{
	if (!place->error && symlinkat(target, place->fd, name) < 0)
		place_fail(place);
}

/* ------------------------------------------------------------------ a port */

static void put_gid(struct place *place, const char *name, const uint8_t gid[16])
{
	place_put(place, name,
		  "%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x", gid[0],
		  gid[1], gid[2], gid[3], gid[4], gid[5], gid[6], gid[7], gid[8], gid[9], gid[10],
		  gid[11], gid[12], gid[13], gid[14], gid[15]);
}

/* The table's holes are zero; they have no type and no interface, where a kernel gives EINVAL. */
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

/* As a card's directory: its interfaces. */
static void put_parent(struct place *device, const json_t *facts)
{
	struct place parent = place_enter(device, "device"), net = place_enter(&parent, "net");
	const json_t *name;
	size_t i;

	/* No memory is nearer to it than another. */
	place_put(&parent, "numa_node", "-1");
	json_array_foreach(json_object_get(facts, "interfaces"), i, name) {
		const char *ifname = json_string_value(name);
		unsigned int index = ifname ? if_nametoindex(ifname) : 0;
		char target[IF_NAMESIZE + 64];

		if (!index || strchr(ifname, '/'))
			continue;
		if (is_in_sysfs(ifname, index)) {
			snprintf(target, sizeof(target), CLASS "/net/%s", ifname);
			put_link(&net, ifname, target);
			continue;
		}
		/* This sysfs is another network namespace's: just what is needed to find it. */
		struct place interface = place_enter(&net, ifname);

		place_put(&interface, "ifindex", "%u", index);
		place_leave(&net, &interface);
	}
	place_leave(&parent, &net);
	place_leave(device, &parent);
}

/* A GUID in sysfs is written by fours; the daemon says it so. */
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
	put_link(&node, "device", target);
	place_leave(class, &node);
}

/* ------------------------------------------------------------------ the rest of /sys/class */

static bool is_file_name(const char *name)
{
	return *name && *name != '.' && !strchr(name, '/');
}

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

/* The same directory here as there, under the same name. */
static void bind_directory(struct place *place, int from, const char *name)
{
	char source[PATH_MAX], target[PATH_MAX];

	if (mkdirat(place->fd, name, 0755) < 0) {
		place_fail(place);
		return;
	}
	snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", from, name);
	snprintf(target, sizeof(target), "/proc/self/fd/%d/%s", place->fd, name);
	if (mount(source, target, "", MS_BIND | MS_REC, NULL) < 0)
		place_fail(place);
}

static void copy_link(struct place *place, int from, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0) {
		place_fail(place);
		return;
	}
	target[n] = 0;
	put_link(place, name, target);
}

/* What the host has in a directory, except names that are here already. */
static void carry_over(struct place *place, int from)
{
	int fd = place->error ? -1 : openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!directory) {
		place_fail(place);
		if (fd >= 0)
			close(fd);
		return;
	}
	while (!place->error && (entry = readdir(directory))) {
		struct stat st;

		if (!is_file_name(entry->d_name) ||
		    fstatat(place->fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
		    fstatat(from, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISDIR(st.st_mode))
			bind_directory(place, from, entry->d_name);
		else if (S_ISLNK(st.st_mode))
			copy_link(place, from, entry->d_name);
	}
	closedir(directory);
}

/* One of our classes: our devices, then the host's, if it has any. */
static void put_class(struct place *root, int from, const char *name, const json_t *devices,
		      void (*put_one)(struct place *, const json_t *))
{
	struct place class = place_enter(root, name);
	int host = openat(from, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const json_t *device;
	size_t i;

	json_array_foreach(devices, i, device) {
		if (is_file_name(ctl_string(device, "name")) &&
		    is_file_name(ctl_string(device, "node")))
			put_one(&class, device);
	}
	if (!strcmp(name, "infiniband_verbs"))
		place_put(&class, "abi_version", "%d", VERBS_ABI_VERSION);
	if (host >= 0) {
		carry_over(&class, host);
		close(host);
	}
	place_leave(root, &class);
}

static int place_fill(int from, const json_t *status)
{
	static const char *const classes[] = {"infiniband", "infiniband_verbs"};
	const json_t *devices = json_object_get(status, "devices");
	struct place root = {.fd = open(CLASS, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};

	if (root.fd < 0)
		return -errno;
	/* Ours are there before the host's, but empty: a device leads to its interface in net. */
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		struct place class = place_enter(&root, classes[i]);

		place_leave(&root, &class);
	}
	carry_over(&root, from);
	put_class(&root, from, classes[0], devices, put_device);
	put_class(&root, from, classes[1], devices, put_node);
	close(root.fd);
	return root.error;
}

int sysfs_cover(const json_t *status)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	mode_t mask = umask(022);
	int error = 0, from = open(CLASS, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (from < 0 || mount("verbena", CLASS, "tmpfs", flags, "mode=755") < 0)
		error = -errno;
	if (!error) {
		error = place_fill(from, status);
		if (!error && mount(NULL, CLASS, "", MS_REMOUNT | MS_RDONLY | flags, "mode=755"))
			error = -errno;
		if (error)
			umount2(CLASS, MNT_DETACH);
	}
	if (from >= 0)
		close(from);
	umask(mask);
	return error;
}
