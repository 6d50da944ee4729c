/* SPDX-License-Identifier: BSD-2-Clause */
/* verbenad's command line. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "client/rundir.h"
#include "daemon/daemon.h"

enum { IDLE_MS_DEFAULT = 10000 };

static const char help[] =
	"usage: verbenad [--runtime-dir DIR] [--idle-ms N] [--foreground]\n"
	"\n"
	"The kernel's part of Verbena: keeps who holds which RDMA object, hands out numbers and\n"
	"keys, introduces processes to one another. Programs start it by themselves.\n"
	"\n"
	"  --runtime-dir DIR  where its sockets are (default: see verbena(7))\n"
	"  --idle-ms N        leave after so long without a client; -1: never (default 10000)\n"
	"  --foreground       never leave because of idleness; log to standard error\n"
	"  --ready-fd FD      write a byte there when ready (used by the library)\n"
	"  --help, --version\n";

static int number(const char *text, const char *option)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (!*text || *end || n < -1 || n > 1 << 30) {
		fprintf(stderr, "verbenad: %s needs a number, not '%s'\n", option, text);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"runtime-dir", required_argument, NULL, 'd'},
		{"idle-ms", required_argument, NULL, 'i'},
		{"foreground", no_argument, NULL, 'f'},
		{"ready-fd", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{0},
	};
	char dir[RUNDIR_MAX] = "";
	const char *env = getenv("VERBENA_IDLE_MS");
	int idle = env && *env ? number(env, "VERBENA_IDLE_MS") : IDLE_MS_DEFAULT, ready = -1, c;

	log_open(STDERR_FILENO, "verbenad");
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			if (strlen(optarg) >= sizeof(dir)) {
				fprintf(stderr, "verbenad: the directory's path is too long\n");
				return 2;
			}
			strcpy(dir, optarg);
			break;
		case 'i':
			idle = number(optarg, "--idle-ms");
			break;
		case 'f':
			idle = -1;
			break;
		case 'r':
			ready = number(optarg, "--ready-fd");
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'v':
			puts("verbenad " VERBENA_VERSION);
			return 0;
		default:
			fputs("Try 'verbenad --help'.\n", stderr);
			return 2;
		}
	}
	signal(SIGPIPE, SIG_IGN);
	int err = *dir ? 0 : rundir_find(dir, sizeof(dir));

	if (!err)
		err = server_run(dir, idle, ready);
	if (err)
		log_error("can't serve in %s: %s", dir, strerror(-err));
	return err ? 1 : 0;
}
