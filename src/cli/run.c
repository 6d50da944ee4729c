/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena run`: executes any program so that it loads Verbena's libibverbs.so.1 and
 * librdmacm.so.1.
 *
 * Puts the library's directory in front of LD_LIBRARY_PATH and that of our rdma(8) in front of
 * PATH, names the daemon in VERBENA_DAEMON,
 * shows the devices in /sys/class/infiniband and /dev/infiniband (space.h, sysfs.h, nodes.h), and
 * becomes the program by exec. No process of `verbena run` remains. One thread.
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
#include "cli/locate.h"
#include "cli/nodes.h"
#include "cli/space.h"
#include "cli/sysfs.h"

/* VERBENA_SYSFS=off has the effect of --no-sysfs. */
#define SYSFS_VARIABLE "VERBENA_SYSFS"
#define SYSFS_OFF "off"

/* Puts `directory` in front of the list `variable`, unless it is first already, or, with
 * `anywhere`, is in the list at all. `absent`: the list of a variable that isn't set; NULL: none.
 * Returns 0 or -errno. */
static int list_prepend(const char *variable, const char *directory, bool anywhere,
			const char *absent)
{
	const char *old = env_get(variable);
	size_t length = strlen(directory);
	char *list;
	int result;

	if (!old || (!*old && absent))
		old = absent ? absent : "";
	for (const char *at = old; *at;) {
		size_t n = strcspn(at, ":");

		if (n == length && !strncmp(at, directory, n))
			return 0;
		if (!anywhere)
			break;
		at += n + (at[n] == ':');
	}
	if (asprintf(&list, *old ? "%s:%s" : "%s", directory, old) < 0)
		return -ENOMEM;
	result = setenv(variable, list, 1) ? -errno : 0;
	free(list);
	return result;
}

/* The node of a fabric (verbena-fabric) whose adapter the program's libibumad sees. */
#define NODE_VARIABLE "VERBENA_NODE"

/* Where execvp() looks without PATH. */
#define PATH_DEFAULT "/bin:/usr/bin"

static int environment_prepare(void)
{
	struct location location;
	int error = location_find(NULL, &location);

	if (error) {
		cli_error("cannot find libibverbs.so.1 and verbenad beside this command: %s; is "
			  "the build or "
			  "the installation complete?",
			  strerror(-error));
		return error;
	}
	/* The dynamic loader has no way to quote these two. */
	if (strpbrk(location.library_dir, ":;")) {
		cli_error("our library is in %s, but a directory with `:` or `;` in its name "
			  "cannot be "
			  "in LD_LIBRARY_PATH; move it",
			  location.library_dir);
		return -EINVAL;
	}
	error = list_prepend("LD_LIBRARY_PATH", location.library_dir, false, NULL);
	/* A directory whose name PATH can't contain, or that isn't there, is left out: only rdma(8)
	 * is missed then. */
	if (!error && location.program_dir[0] && !strchr(location.program_dir, ':'))
		error = list_prepend("PATH", location.program_dir, true, PATH_DEFAULT);
	/*
	 * Many programs (UCX, and MPI over it) register tens of megabytes at their start, more than
	 * an ordinary user may lock by default. Verbena locks no memory, so by default the limit
	 * isn't enforced; a user who wants an adapter's behaviour sets the variable.
	 */
	if (!error && (setenv("VERBENA_DAEMON", location.daemon, 0) != 0 ||
		       setenv("VERBENA_MEMLOCK", "off", 0) != 0))
		error = -errno;
	if (error)
		cli_error("cannot set the environment: %s", strerror(-error));
	return error;
}

static void obstacle_warn(const char *path)
{
	switch (program_examine(path)) {
	case PROGRAM_STATIC:
		cli_error("warning: %s is statically linked, so it keeps the verbs library that it "
			  "was "
			  "built with, if any",
			  path);
		break;
	case PROGRAM_PRIVILEGED:
		cli_error("warning: %s gains privileges when it starts (set-ID bit or file "
			  "capabilities), so the loader ignores LD_LIBRARY_PATH and it will not "
			  "use Verbena",
			  path);
		break;
	case PROGRAM_FOREIGN:
		cli_error("warning: %s is for another kind of processor than our library, so it "
			  "cannot "
			  "load it",
			  path);
		break;
	case PROGRAM_FINE:
		break;
	}
}

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

static int exec_failed(const char *name, int error)
{
	if (error == ENOENT) {
		cli_error("cannot run %s: there is no such program", name);
		return CLI_NOT_FOUND;
	}
	cli_error("cannot run %s: %s", name,
		  error == EACCES ? "it is not an executable file" : strerror(error));
	return CLI_NOT_EXECUTABLE;
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
	int option, error;

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

	if (environment_prepare() != 0)
		return CLI_FAILURE;
	error = program_find(argv[0], path);
	if (error)
		return exec_failed(argv[0], -error);
	obstacle_warn(path);
	if (sysfs)
		run_devices_show();
	execvp(argv[0], argv);
	return exec_failed(argv[0], errno);
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
