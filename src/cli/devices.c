/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices in /sys/class and /dev; see devices.h. The namespace is space.h's, what is in it is
 * sysfs.h's, nodes.h's and mirror.h's. One thread.
 */
#include "cli/devices.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "cli/cli.h"
#include "cli/ctl.h"
#include "cli/launch.h"
#include "cli/mirror.h"
#include "cli/nodes.h"
#include "cli/space.h"
#include "cli/sysfs.h"
#include "client/rundir.h"

/* What the daemon says. Without one the program's library prints the reason, if the program uses a
 * device at all; a fabric's nodes need only the directory. */
static json_t *status_ask(bool has_fabric)
{
	json_t *status = ctl_ask_starting("status");
	char directory[RUNDIR_MAX];

	if (!status && has_fabric && !rundir_find(directory, sizeof(directory)))
		status = json_pack("{s:s}", "runtime_dir", directory);
	return status;
}

/* Covers /sys/class, with the mirror if that is wanted. Returns 0 or -errno. */
static int classes_cover(const json_t *status, int *mirror)
{
	int error = mirror ? sysfs_cover_fabric(status) : sysfs_cover(status);

	if (error || !mirror)
		return error;
	*mirror = mirror_mount();
	return *mirror < 0 ? *mirror : 0;
}

void devices_show(int *mirror)
{
	const char *wish = env_get(SYSFS_VARIABLE);
	json_t *status;

	if (mirror)
		*mirror = -1;
	status = wish && !strcmp(wish, SYSFS_OFF) ? NULL : status_ask(mirror);
	if (!status)
		return;
	int error = space_enter(status), attributes = error, nodes = error;

	if (!error) {
		attributes = classes_cover(status, mirror);
		nodes = nodes_cover(status);
		if (!attributes)
			sysfs_serve();
	}
	/* Within another `verbena run` the program sees the outer one's. */
	if (sysfs_has_devices(status))
		attributes = 0;
	if (nodes_are_there(status))
		nodes = 0;
	if (attributes || nodes) {
		const char *setting = geteuid() ? space_forbidding_setting("/proc/sys") : NULL;

		cli_error("warning: programs that look for devices in %s%s%s (%s) find none there: "
			  "a private mount namespace for it can't be had: %s%s%s%s; "
			  "--no-sysfs or " SYSFS_VARIABLE "=" SYSFS_OFF " does without",
			  attributes ? "/sys/class/infiniband" : "",
			  attributes && nodes ? " or " : "", nodes ? "/dev/infiniband" : "",
			  mirror ? "ibstatus, UCX" : "UCX, pyverbs",
			  strerror(attributes ? -attributes : -nodes),
			  setting ? " (/proc/sys/" : "", setting ? setting : "",
			  setting ? " forbids it to users)" : "");
		setenv(SYSFS_VARIABLE, SYSFS_OFF, 1);
	}
	json_decref(status);
}
