/* SPDX-License-Identifier: BSD-2-Clause */
/* verbenad: reads the options and serves. See server.h for how it works. */
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

#include "base/log.h"
#include "daemon/server.h"

enum { EXIT_USAGE = 2, IDLE_MS = 10000 };

static const char usage[] =
	"usage: verbenad [OPTION...]\n\n"
	"The daemon of user-space RDMA. Programs start it by themselves; see verbenad(8).\n\n"
	"      --runtime-dir DIR  serve in DIR instead of the usual directory\n"
	"      --idle-ms N        end after N milliseconds without a client; -1: never\n"
	"      --foreground       never end for lack of clients\n"
	"      --memlock on|off   hold programs to their RLIMIT_MEMLOCK (default: on)\n"
	"      --ready-fd FD      write a byte to FD when clients can connect\n"
	"  -h, --help             show this\n"
	"      --version          show the version\n";

/* A number of at least `min`. Returns whether `text` is one. */
static bool number_parse(const char *text, int64_t min, int64_t max, int64_t *number)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max)
		return false;
	*number = value;
	return true;
}

static int64_t idle_from_environment(void)
{
	const char *text = getenv("VERBENA_IDLE_MS");
	int64_t ms = IDLE_MS;

	if (text && *text && !number_parse(text, -1, INT32_MAX, &ms))
		log_warn("VERBENA_IDLE_MS=%s is not a number of milliseconds (or -1); taking %d",
			 text, IDLE_MS);
	return ms;
}

static int wrong(const char *what)
{
	fprintf(stderr, "verbenad: %s; try --help\n", what);
	return EXIT_USAGE;
}

/* 0 to go on, -1 when all is done, else an exit code after a message. */
static int options_parse(int argc, char **argv, struct server_options *options)
{
	static const struct option names[] = {
		{"runtime-dir", required_argument, NULL, 'd'},
		{"idle-ms", required_argument, NULL, 'i'},
		{"foreground", no_argument, NULL, 'f'},
		{"memlock", required_argument, NULL, 'm'},
		{"ready-fd", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	int64_t number;
	int option;

	while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
		switch (option) {
		case 'd':
			options->runtime_dir = optarg;
			break;
		case 'i':
			if (!number_parse(optarg, -1, INT32_MAX, &options->idle_ms))
				return wrong("--idle-ms wants milliseconds, or -1");
			break;
		case 'f':
			options->idle_ms = -1;
			break;
		case 'm':
			options->memlock = strcmp(optarg, "off") != 0;
			if (options->memlock && strcmp(optarg, "on") != 0)
				return wrong("--memlock wants on or off");
			break;
		case 'r':
			if (!number_parse(optarg, 0, INT32_MAX, &number) ||
			    fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0)
				return wrong("--ready-fd wants an open descriptor");
			options->ready_fd = (int)number;
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
	return optind < argc ? wrong("no arguments are expected") : 0;
}

int main(int argc, char **argv)
{
	struct server_options options = {.ready_fd = -1, .memlock = true};
	int code;

	log_open(STDERR_FILENO, "verbenad");
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of that call */
	options.idle_ms = idle_from_environment();
	code = options_parse(argc, argv, &options);
	if (code)
		return code < 0 ? EXIT_SUCCESS : code;
	return server_run(&options) ? EXIT_FAILURE : EXIT_SUCCESS;
}
