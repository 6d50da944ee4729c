/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena run`: executes any program so that it loads Verbena's libibverbs.so.1 and
 * librdmacm.so.1.
 *
 * Sets the environment (launch.h), shows the devices in /sys/class/infiniband and /dev/infiniband
 * (space.h, sysfs.h, nodes.h), and becomes the program by exec. No process of `verbena run`
 * remains. One thread.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "cli/cli.h"
#include "cli/ctl.h"
#include "cli/launch.h"
#include "cli/nodes.h"
#include "cli/space.h"
#include "cli/sysfs.h"

/* Shows the devices to the program in /sys/class/infiniband and /dev/infiniband, or prints one
 * warning that it can't. */
static void run_devices_show(void)
{
	const char *wish = env_get(SYSFS_VARIABLE);
	/* Without a daemon the program's library prints the reason, if the program uses a device
	 * at all. */
	json_t *status = wish && !strcmp(wish, SYSFS_OFF) ? NULL : ctl_ask_starting("status");

	if (!status)
		return;
	int error = space_enter(status), attributes = error, nodes = error;

	if (!error) {
		attributes = sysfs_cover(status);
		nodes = nodes_cover(status);
	}
	/* Within another `verbena run` the program sees the outer one's. */
	if (sysfs_has_devices(status))
		attributes = 0;
	if (nodes_are_there(status))
		nodes = 0;
	if (attributes || nodes) {
		cli_error("warning: programs that look for devices in %s%s%s (UCX, pyverbs) find "
			  "none there: a private mount namespace for it can't be had: %s; "
			  "--no-sysfs or " SYSFS_VARIABLE "=" SYSFS_OFF " does without",
			  attributes ? "/sys/class/infiniband" : "",
			  attributes && nodes ? " or " : "", nodes ? "/dev/infiniband" : "",
			  strerror(attributes ? -attributes : -nodes));
		setenv(SYSFS_VARIABLE, SYSFS_OFF, 1);
	}
	json_decref(status);
}

static int run_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},
		{"no-sysfs", no_argument, NULL, 'n'},
		{"node", required_argument, NULL, 'N'},
		{NULL, 0, NULL, 0},
	};
	char path[PATH_MAX];
	bool sysfs = true;
	int option, code;

	/* "+": the options after the program's name are the program's. */
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (option == 'n')
			sysfs = false;
		else if (option != 'N')
			return option == 'h' ? cli_help(self) : cli_usage(self);
		else if (setenv(NODE_VARIABLE, optarg, 1))
			return CLI_FAILURE;
	}
	if (optind == argc) {
		cli_error("run what? Name a program");
		return cli_usage(self);
	}
	argv += optind;

	if (launch_environment() != 0)
		return CLI_FAILURE;
	code = launch_program(argv[0], path);
	if (code != CLI_OK)
		return code;
	if (sysfs)
		run_devices_show();
	execvp(argv[0], argv);
	return launch_failed(argv[0], errno);
}

const struct cli_command command_run = {
	.name = "run",
	.summary = "run a program on Verbena",
	.help = "usage: verbena run [--no-sysfs] [--node NODE] [--] PROGRAM [ARGUMENT...]\n\n"
		"Runs an unmodified verbs program with Verbena's libibverbs.so.1 and\n"
		"librdmacm.so.1 in place of the system's: their directory goes first in\n"
		"LD_LIBRARY_PATH. In /sys/class/infiniband and /dev/infiniband it sees the "
		"devices,\n"
		"in a mount namespace of its own. The daemon is started when there is none.\n\n"
		"      --no-sysfs   leave /sys/class and /dev as they are; no namespace\n"
		"      --node NODE  the fabric's node whose device libibumad has\n"
		"  -h, --help       show this\n\n"
		"Ends as PROGRAM does; 127 when there is no such program, 126 when it cannot be "
		"run.\n"
		"Example: verbena run ibv_devinfo -v\n",
	.run = run_run,
};
