/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device nodes in /dev/infiniband; see nodes.h.
 *
 * A program that asks whether it may use a device (UCX) looks for a character device that it may
 * read and write. Verbena's libraries never open one: the daemon's sockets are the devices. So each
 * node is /dev/full under another name, which needs no privilege. It can be opened, and a command
 * that is written to it, past the libraries, fails with ENOSPC (an ioctl: ENOTTY); /dev/null would
 * report success.
 *
 * Without /dev/infiniband all of /dev is covered, and every entry bind-mounted into the cover,
 * because the directory can't be made on the host: an ordinary user may not, and root must not
 * change the host. No nodes for MADs (umadN, issmN) are shown: Verbena's libibumad opens sockets of
 * the fabric instead. One thread.
 */
#include "cli/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cover.h"
#include "cli/ctl.h"
#include "cli/space.h"

#define DEV "/dev"
#define DIRECTORY "infiniband"

static bool node_is_usable(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISCHR(st.st_mode) && access(path, R_OK | W_OK) == 0;
}

const char *node_inert_device(void)
{
	static const char *const candidates[] = {DEV "/full", DEV "/null"};

	for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++)
		if (node_is_usable(candidates[i]))
			return candidates[i];
	return NULL;
}

bool nodes_are_there(const json_t *status)
{
	const json_t *device;
	char path[64];
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		snprintf(path, sizeof(path), DEV "/" DIRECTORY "/%s", ctl_string(device, "node"));
		if (!node_is_usable(path))
			return false;
	}
	return true;
}

static void nodes_put(struct place *directory, const json_t *status)
{
	const char *inert = node_inert_device();
	const json_t *device;
	size_t i;

	if (!inert) {
		directory->error = -ENODEV;
		return;
	}
	json_array_foreach(json_object_get(status, "devices"), i, device) {
		const char *name = ctl_string(device, "node");

		if (place_is_name(name))
			place_bind(directory, name, inert, false);
	}
	place_bind(directory, "rdma_cm", inert, false);
}

/* As in /sys/class, a node of Verbena's hides one of the host's with the same name. */
static void nodes_fill_directory(struct place *root, int from, const json_t *status)
{
	nodes_put(root, status);
	place_carry_over(root, from);
}

static void nodes_fill_dev(struct place *root, int from, const json_t *status)
{
	place_carry_over(root, from);

	struct place directory = place_enter(root, DIRECTORY);

	if (!directory.error)
		nodes_put(&directory, status);
	place_leave(root, &directory);
}

int nodes_cover(const json_t *status)
{
	struct stat st;
	int error = space_detach(DEV);

	if (error)
		return error;
	if (stat(DEV "/" DIRECTORY, &st) == 0)
		return cover_directory(DEV "/" DIRECTORY, nodes_fill_directory, status);
	return cover_directory(DEV, nodes_fill_dev, status);
}
