/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena stop`: ends the daemon and waits until its process has ended.
 *
 * The command opens a pidfd of the daemon before it asks it to stop, so that another daemon that
 * starts in between can't mislead the wait. One thread.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/ctl.h"

#define EXIT_TIMEOUT_MS 10000

/* Returns 0 when the process behind `pidfd` has ended, or when there is no pidfd. */
static int exit_wait(int pidfd)
{
	struct pollfd entry = {.fd = pidfd, .events = POLLIN};
	int n;

	if (pidfd < 0)
		return 0;
	do
		n = poll(&entry, 1, EXIT_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : -ETIMEDOUT;
}

static int stop_ask(int pidfd, bool force, bool json)
{
	json_t *request = json_pack("{s:s}", "op", "stop");
	json_int_t clients;
	json_t *reply;
	int code;

	if (force && request)
		json_object_set_new(request, "force", json_true());
	code = ctl_request(request, json, &reply);
	if (code != CLI_OK) {
		if (!force && code == CLI_FAILURE)
			fputs("`verbena status` shows who uses it; `verbena stop --force` takes "
			      "the "
			      "device away from them.\n",
			      stderr);
		return code;
	}
	clients = ctl_integer(reply, "clients");
	if (exit_wait(pidfd) != 0) {
		cli_error("the daemon agreed to stop but is still there after %d s",
			  EXIT_TIMEOUT_MS / 1000);
		code = CLI_FAILURE;
	} else if (json) {
		code = ctl_print_json(reply);
	} else if (clients) {
		printf("stopped; %" JSON_INTEGER_FORMAT " program%s lost the device\n", clients,
		       clients == 1 ? "" : "s");
	} else {
		puts("stopped");
	}
	json_decref(reply);
	return cli_finish(code);
}

static int stop_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"force", no_argument, NULL, 'f'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool force = false, json = false;
	json_t *status;
	int option, code, pidfd = -1;
	pid_t pid;

	while ((option = getopt_long(argc, argv, "fjh", options, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (option != 'f' && option != 'j')
			return cli_usage(self);
		force |= option == 'f';
		json |= option == 'j';
	}
	if (optind < argc) {
		cli_error("stop takes no arguments");
		return cli_usage(self);
	}

	code = ctl_request(json_pack("{s:s}", "op", "status"), json, &status);
	if (code != CLI_OK)
		return code;
	pid = (pid_t)ctl_integer(status, "pid");
	json_decref(status);
	if (pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	code = stop_ask(pidfd, force, json);
	if (pidfd >= 0)
		close(pidfd);
	return code;
}

const struct cli_command command_stop = {
	.name = "stop",
	.summary = "end the daemon",
	.help = "usage: verbena stop [--force] [--json]\n\n"
		"Ends the daemon of this user and network namespace and waits until it is gone.\n"
		"There is no need to: it ends by itself a while after its last client. It refuses\n"
		"while programs use it, unless forced.\n\n"
		"  -f, --force  stop although programs use it; they see their device fail\n"
		"  -j, --json   for scripts: the daemon's answer\n"
		"  -h, --help   show this\n",
	.run = stop_run,
};
