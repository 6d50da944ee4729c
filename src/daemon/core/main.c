/* SPDX-License-Identifier: BSD-2-Clause */
/* verbenad: reads the options, then serves. server.h describes the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/quantity.h"
#include "client/rundir.h"
#include "daemon/core/config.h"
#include "daemon/core/server.h"

enum { EXIT_USAGE = 2 };

static const char usage[] =
	"usage: verbenad [OPTION...]\n\n"
	"The daemon of user-space RDMA. Programs start it by themselves; see verbenad(8).\n\n"
	"      --system           serve all users of this machine in " RUNDIR_SYSTEM "\n"
	"      --config FILE      read FILE (default: " CONFIG_FILE " with --system,\n"
	"                         else ~/.config/" CONFIG_USER_FILE ")\n"
	"      --runtime-dir DIR  serve in DIR instead of the usual directory\n"
	"      --idle-ms N        end after N milliseconds without a client; never: don't\n"
	"      --foreground       never end for lack of clients\n"
	"      --memlock on|off   hold programs to their RLIMIT_MEMLOCK (default: on)\n"
	"      --wire on|off      speak RoCEv2 with other hosts (default: on)\n"
	"      --ready-fd FD      write a byte to FD when clients can connect\n"
	"  -h, --help             show this\n"
	"      --version          show the version\n";

static int option_reject(const char *what)
{
	fprintf(stderr, "verbenad: %s; try --help\n", what);
	return EXIT_USAGE;
}

/* The same for an option's value, which is in `optarg`. */
static int value_reject(const char *what)
{
	fprintf(stderr, "verbenad: %s, not `%s'; try --help\n", what, optarg);
	return EXIT_USAGE;
}

static const struct option names[] = {
	{"system", no_argument, NULL, 's'},
	{"config", required_argument, NULL, 'c'},
	{"runtime-dir", required_argument, NULL, 'd'},
	{"idle-ms", required_argument, NULL, 'i'},
	{"foreground", no_argument, NULL, 'f'},
	{"memlock", required_argument, NULL, 'm'},
	{"wire", required_argument, NULL, 'w'},
	{"ready-fd", required_argument, NULL, 'r'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'v'},
	{NULL, 0, NULL, 0},
};

static void idle_from_environment(struct config *config)
{
	const char *text = env_get("VERBENA_IDLE_MS");

	if (text && *text && !config_idle_parse(text, &config->idle_ms))
		log_warn("VERBENA_IDLE_MS=%s is not a number of milliseconds (or -1); taking %lld",
			 text, (long long)config->idle_ms);
}

/* Reads the options that choose the defaults and the file, which the other options then override.
 * Returns 0 or an exit code after a message. */
static int config_prepare(int argc, char **argv, struct config *config)
{
	const char *file = NULL;
	bool system = false;
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
		if (option == 's')
			system = true;
		else if (option == 'c')
			file = optarg;
	}
	opterr = optind = 1;
	if (config_load(config, system, file))
		return EXIT_USAGE;
	idle_from_environment(config);
	return 0;
}

static bool directory_take(const char *text, struct config *config)
{
	int n = snprintf(config->runtime_dir, sizeof(config->runtime_dir), "%s", text);

	return n > 0 && n < (int)sizeof(config->runtime_dir);
}

static bool switch_take(const char *text, bool *on)
{
	*on = strcmp(text, "off") != 0;
	return !*on || !strcmp(text, "on");
}

static bool ready_fd_take(const char *text, int *fd)
{
	uint32_t number;

	if (!quantity_number32(text, 0, INT32_MAX, &number) ||
	    fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0)
		return false;
	*fd = (int)number;
	return true;
}

/* Finds --ready-fd though other options may be wrong. -1: it isn't there. */
static int ready_fd_find(int argc, char **argv)
{
	int option, fd = -1;

	opterr = 0;
	optind = 1;
	while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1)
		if (option == 'r' && !ready_fd_take(optarg, &fd))
			fd = -1;
	return fd;
}

/* Returns 0 to go on, -1 when the program is done, else an exit code after a message. */
static int daemon_parse_options(int argc, char **argv, struct server_options *options)
{
	struct config *config = &options->config;
	int option;

	while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
		switch (option) {
		case 's':
		case 'c':
			break; /* read by config_prepare() */
		case 'd':
			if (!directory_take(optarg, config))
				return value_reject("--runtime-dir wants a directory");
			break;
		case 'i':
			if (!config_idle_parse(optarg, &config->idle_ms))
				return value_reject("--idle-ms wants milliseconds, a time such as "
						    "30s, or never");
			break;
		case 'f':
			config->idle_ms = -1;
			break;
		case 'm':
			if (!switch_take(optarg, &config->memlock))
				return value_reject("--memlock wants on or off");
			break;
		case 'w':
			if (!switch_take(optarg, &config->wire))
				return value_reject("--wire wants on or off");
			break;
		case 'r':
			if (!ready_fd_take(optarg, &options->ready_fd))
				return value_reject("--ready-fd wants an open descriptor");
			break;
		case 'h':
			fputs(usage, stdout);
			return -1;
		case 'v':
			puts("verbenad " VERBENA_VERSION);
			return -1;
		default:
			return EXIT_USAGE;
		}
	}
	return optind < argc ? option_reject("no arguments are expected") : 0;
}

int main(int argc, char **argv)
{
	struct server_options options = {.ready_fd = -1};
	int code;

	log_open(STDERR_FILENO, "verbenad");
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* exceeding RLIMIT_FSIZE is then an error of the write */
	code = config_prepare(argc, argv, &options.config);
	if (!code)
		code = daemon_parse_options(argc, argv, &options);
	if (code > 0)
		server_give_up(ready_fd_find(argc, argv));
	if (code)
		return code < 0 ? EXIT_SUCCESS : code;
	return server_run(&options) ? EXIT_FAILURE : EXIT_SUCCESS;
}
