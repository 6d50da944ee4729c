/* SPDX-License-Identifier: BSD-2-Clause */
/* verbena-fabric: options, becoming a daemon, and the process's life. */
#include "base/background.h"
#include "base/log.h"
#include "base/quantity.h"
#include "client/rundir.h"
#include "fabricd/server.h"
#include "fabricd/state.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
	"usage: verbena-fabric [--detach] [--timing[=SLOW]] TOPOLOGY\n"
	"       verbena-fabric [--detach] --resume\n"
	"       verbena-fabric [--detach] --restore FILE\n\n"
	"Plays the switches and channel adapters of an InfiniBand subnet, until `verbena fabric\n"
	"down` or a signal ends it. TOPOLOGY is a file in ibsim's format, or what ibnetdiscover\n"
	"prints.\n\n"
	"      --detach         return when it serves; it goes on in the background\n"
	"      --resume         go on with the state that the last one left, whatever ended it\n"
	"      --restore FILE   begin with a state that `verbena fabric save` wrote\n"
	"      --timing[=SLOW]  data takes the time that links need for it, SLOW (1) times as\n"
	"                       long as with adapters\n"
	"  -h, --help           show this\n"
	"      --version        show the version\n";

struct wishes {
	const char *topology, *restore;
	bool detaches, resumes;
	uint32_t slow;
};

/* 0: it isn't one, which has been said. */
static uint32_t slow_read(const char *text)
{
	uint32_t slow = 1;

	if (!text || quantity_number32(text, 1, CLOCKS_SLOW_MAX, &slow))
		return slow;
	fprintf(stderr, "verbena-fabric: --timing=%s: give a number from 1 to %u\n", text,
		CLOCKS_SLOW_MAX);
	return 0;
}

/* 0: go on; else the process's exit code + 1. */
static int options_read(int argc, char **argv, struct wishes *wishes)
{
	static const struct option options[] = {
		{"detach", no_argument, NULL, 'd'},
		{"resume", no_argument, NULL, 'r'},
		{"restore", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{"timing", optional_argument, NULL, 't'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'd':
			wishes->detaches = true;
			break;
		case 'r':
			wishes->resumes = true;
			break;
		case 's':
			wishes->restore = optarg;
			break;
		case 't':
			wishes->slow = slow_read(optarg);
			if (!wishes->slow)
				return 3;
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		case 'v':
			puts("verbena-fabric " VERBENA_VERSION);
			return 1;
		default:
			fputs(usage, stderr);
			return 3;
		}
	}
	wishes->topology = argv[optind];
	if (argc - optind + wishes->resumes + (wishes->restore != NULL) == 1 &&
	    (!wishes->slow || wishes->topology))
		return 0;
	fputs(usage, stderr);
	return 3;
}

/* Becoming a daemon ---------------------------------------------------------------------------- */

/* From now on messages go to a file, and the terminal is left alone. */
static void process_settle(const struct server *server, int parent)
{
	int log = openat(server->directory, "fabric.log",
			 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (log >= 0)
		log_open(log, "verbena-fabric");
	background_settle(parent, -1, "fabric");
}

/* The process's life --------------------------------------------------------------------------- */

static struct server *running;

static void signal_end(int number)
{
	(void)number;
	running->is_over = true;
}

/* The signals come only while server_serve() waits, and is_over is looked at after each wait. */
static void signals_take(struct server *server)
{
	struct sigaction action = {.sa_handler = signal_end};
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);

	running = server;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}

static int directory_prepare(struct server *server)
{
	int result = rundir_find(server->directory_path, sizeof server->directory_path);

	if (!result)
		result = rundir_make(server->directory_path);
	if (result)
		log_error("cannot use the run-time directory: %s", strerror(-result));
	return result ? result : state_lock(server);
}

static int server_begin(struct server *server, const struct wishes *wishes)
{
	int result = directory_prepare(server);

	if (!result)
		result = wishes->topology ? state_create(server, wishes->topology, wishes->slow)
					  : state_resume(server, wishes->restore);
	if (result)
		return result;
	server_agents_init(server);
	return server_open(server);
}

int main(int argc, char **argv)
{
	static struct server server;
	struct wishes wishes = {0};
	int parent = -1;
	int stop = options_read(argc, argv, &wishes);

	if (stop)
		return stop - 1;
	log_open(STDERR_FILENO, "verbena-fabric");
	if (wishes.detaches) {
		parent = background_enter();
		if (parent < 0) {
			log_error("cannot go on in the background: %s", strerror(-parent));
			return 1;
		}
	}
	if (getrandom(&server.random, sizeof server.random, 0) != sizeof server.random)
		server.random = server_now_ms();
	server.random |= 1;
	umask(077);
	if (server_begin(&server, &wishes))
		return 1;
	signals_take(&server);
	if (parent >= 0)
		process_settle(&server, parent);
	if (server_serve(&server))
		return 1;
	server_close(&server);
	return 0;
}
