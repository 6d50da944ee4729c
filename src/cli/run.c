/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena run`: executes any program so that it loads Verbena's libibverbs.so.1 and
 * librdmacm.so.1.
 *
 * Sets the environment (launch.h), shows the devices in /sys/class/infiniband and /dev/infiniband
 * (devices.h), and becomes the program by exec. Of `verbena run` only the processes remain that
 * keep files of /sys/class up to date: a port's counters (port_counters.h), and for a node of a
 * fabric all of them (follower.h). One thread.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "cli/cli.h"
#include "cli/devices.h"
#include "cli/fabric.h"
#include "cli/fabric_pattern.h"
#include "cli/follower.h"
#include "cli/launch.h"
#include "cli/mirror.h"

/* Says that a node isn't there, with names near to it. */
static void absent_node_say(const char *name)
{
	json_t *topology = fabric_ask_silently(json_pack("{s:s}", "op", "topology"));

	node_absent_say(json_object_get(topology, "nodes"), name);
	json_decref(topology);
}

/* Shows a node's files to the program, and keeps them up to date. */
static void node_show(int mirror, const struct node_facts *facts)
{
	struct mirror_node node;
	int error = mirror_node_make(&node, mirror, 0, facts);

	if (!error)
		error = mirror_node_show(&node);
	if (error) {
		cli_error("warning: cannot show the node in /sys/class/infiniband: %s",
			  strerror(-error));
		return;
	}
	error = follower_start(&node);
	if (error)
		cli_error("warning: /sys/class/infiniband stays as it is now: %s",
			  strerror(-error));
}

/* Puts the program on its node. Returns an exit code. */
static int run_on_node(const char *name)
{
	struct node_facts facts;
	int mirror, error = node_facts_ask(name, &facts);

	if (error == -ENOENT) {
		absent_node_say(name);
		return CLI_FAILURE;
	}
	/* Without a fabric libibumad says so, if the program uses it at all. */
	devices_show(error ? NULL : &mirror);
	if (error)
		return CLI_OK;
	if (mirror >= 0)
		node_show(mirror, &facts);
	node_facts_free(&facts);
	return CLI_OK;
}

/* Takes --node. False, after a message: another one was named before. */
static bool node_option_take(const char **node)
{
	if (*node && strcmp(*node, optarg) != 0) {
		cli_error("a program is on one node, not on `%s` and `%s`: start one `verbena run` "
			  "for each, or use `verbena fabric exec`",
			  *node, optarg);
		return false;
	}
	*node = optarg;
	return true;
}

static int run_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},
		{"fast-memory", no_argument, NULL, 'f'},
		{"no-sysfs", no_argument, NULL, 'n'},
		{"node", required_argument, NULL, 'N'},
		{NULL, 0, NULL, 0},
	};
	char path[PATH_MAX];
	const char *node = NULL;
	bool sysfs = true;
	int option, code;

	/* "+": the options after the program's name are the program's. */
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (option == 'n')
			sysfs = false;
		else if (option == 'N' && !node_option_take(&node))
			return cli_usage(self);
		/* VERBENA_MEMORY=private of the caller's counts more. */
		else if (option == 'f' && setenv("VERBENA_MEMORY", "shared", 0))
			return CLI_FAILURE;
		else if (!strchr("nNf", option))
			return option == 'h' ? cli_help(self) : cli_usage(self);
	}
	if (node && setenv(NODE_VARIABLE, node, 1))
		return CLI_FAILURE;
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
	node = env_get(NODE_VARIABLE);
	if (sysfs && node)
		code = run_on_node(node);
	else if (sysfs)
		devices_show(NULL);
	if (code != CLI_OK)
		return code;
	execvp(argv[0], argv);
	return launch_failed(argv[0], errno);
}

const struct cli_command command_run = {
	.name = "run",
	.summary = "run a program on Verbena",
	.help = "usage: verbena run [--fast-memory] [--no-sysfs] [--node NODE] [--] PROGRAM "
		"[ARGUMENT...]\n\n"
		"Runs an unmodified verbs program with Verbena's libibverbs.so.1 and\n"
		"librdmacm.so.1 in place of the system's: their directory goes first in\n"
		"LD_LIBRARY_PATH. In /sys/class/infiniband and /dev/infiniband it sees the "
		"devices,\n"
		"in a mount namespace of its own. The daemon is started when there is none.\n\n"
		"      --fast-memory  make private memory shareable at its registration, where\n"
		"                   that is safe: see VERBENA_MEMORY in verbena(7)\n"
		"      --no-sysfs   leave /sys/class and /dev as they are; no namespace\n"
		"      --node NODE  the node of the fabric (see `verbena fabric') that it is on\n"
		"  -h, --help       show this\n\n"
		"Ends as PROGRAM does; 127 when there is no such program, 126 when it cannot be "
		"run.\n"
		"Example: verbena run ibv_devinfo -v\n",
	.run = run_run,
};
