/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbena-sm: the subnet manager (src/sm) on a port of libibumad. One thread waits for datagrams
 * and deadlines. When the device goes away (verbena-fabric ended), the program tries for some
 * seconds to open it again, since `verbena fabric up --resume` brings it back.
 */
#include "base/background.h"
#include "base/log.h"
#include "base/quantity.h"
#include "client/rundir.h"
#include "smd/files.h"
#include "smd/help.h"
#include "smd/port.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
	"usage: verbena-sm [OPTION...]\n\n"
	"A subnet manager for InfiniBand: gives LIDs, writes forwarding tables, answers "
	"queries.\n\n" SMD_HELP "  -h, --help             show this\n"
	"      --version          show the version\n";

struct wishes {
	struct sm_options options;
	const char *device, *partitions, *policy;
	int port;
	bool is_once, detaches, is_quiet, has_random_key;
};

struct program {
	struct wishes wishes;
	struct smd_port port;
	struct sm *sm;
	char lids[PATH_MAX], key[PATH_MAX];
	int parent;	/* the end of a pipe on which the process that detached waits; -1: none */
	bool has_begun; /* the subnet was up, or another manager is the master */
};

static volatile sig_atomic_t is_over;

#define REOPEN_MS 200
#define REOPEN_TRIES 25

/* Options -------------------------------------------------------------------------------------- */

enum option_kind {
	OPTION_DEVICE = 256,
	OPTION_PORT,
	OPTION_PRIORITY,
	OPTION_ROUTING,
	OPTION_LMC,
	OPTION_WINDOW,
	OPTION_TIMEOUT,
	OPTION_RETRIES,
	OPTION_SWEEP,
	OPTION_POLL,
	OPTION_QOS,
	OPTION_POLICY,
	OPTION_PARTITIONS,
	OPTION_ENFORCE,
	OPTION_KEY,
	OPTION_KEY_LEASE,
	OPTION_KEY_PROTECT,
	OPTION_ONCE,
	OPTION_DETACH,
	OPTION_QUIET,
	OPTION_VERSION,
};

static const struct option long_options[] = {
	{"device", required_argument, NULL, OPTION_DEVICE},
	{"port", required_argument, NULL, OPTION_PORT},
	{"priority", required_argument, NULL, OPTION_PRIORITY},
	{"routing", required_argument, NULL, OPTION_ROUTING},
	{"lmc", required_argument, NULL, OPTION_LMC},
	{"window", required_argument, NULL, OPTION_WINDOW},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"retries", required_argument, NULL, OPTION_RETRIES},
	{"sweep", required_argument, NULL, OPTION_SWEEP},
	{"poll", required_argument, NULL, OPTION_POLL},
	{"qos", no_argument, NULL, OPTION_QOS},
	{"policy", required_argument, NULL, OPTION_POLICY},
	{"partitions", required_argument, NULL, OPTION_PARTITIONS},
	{"enforce", required_argument, NULL, OPTION_ENFORCE},
	{"m-key", required_argument, NULL, OPTION_KEY},
	{"m-key-lease", required_argument, NULL, OPTION_KEY_LEASE},
	{"m-key-protect", required_argument, NULL, OPTION_KEY_PROTECT},
	{"once", no_argument, NULL, OPTION_ONCE},
	{"detach", no_argument, NULL, OPTION_DETACH},
	{"quiet", no_argument, NULL, OPTION_QUIET},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

/* A number within bounds; false: it is none. */
static bool number_read(uint32_t *number, uint32_t least, uint32_t most)
{
	if (quantity_number32(optarg, least, most, number))
		return true;
	fprintf(stderr, "verbena-sm: `%s' isn't a number from %u to %u\n", optarg, least, most);
	return false;
}

static bool routing_read(struct sm_options *options)
{
	options->routing = !strcmp(optarg, "updown") ? SM_UP_DOWN : SM_MIN_HOP;
	if (options->routing == SM_UP_DOWN || !strcmp(optarg, "minhop"))
		return true;
	fprintf(stderr, "verbena-sm: `%s' is no routing: minhop or updown\n", optarg);
	return false;
}

static bool enforcement_read(struct sm_options *options)
{
	static const char *const words[] = {
		[0] = "off",
		[SM_ENFORCE_IN] = "in",
		[SM_ENFORCE_OUT] = "out",
		[SM_ENFORCE_IN | SM_ENFORCE_OUT] = "both",
	};

	for (unsigned int i = 0; i < sizeof words / sizeof words[0]; i++)
		if (words[i] && !strcmp(words[i], optarg)) {
			options->enforce = (uint8_t)i;
			return true;
		}
	fprintf(stderr,
		"verbena-sm: partitions are enforced `both', `in', `out' or `off', not `%s'\n",
		optarg);
	return false;
}

static bool key_option_read(struct wishes *wishes)
{
	wishes->has_random_key = !strcmp(optarg, "random");
	if (wishes->has_random_key ||
	    quantity_number(optarg, 1, UINT64_MAX, &wishes->options.m_key))
		return true;
	fprintf(stderr, "verbena-sm: `%s' is no M_Key: a number such as 0x1234, or `random'\n",
		optarg);
	return false;
}

/* Options that protect the subnet. */
static bool guard_option_take(int option, struct wishes *wishes)
{
	uint32_t number = 0;
	bool is_good = true;

	switch (option) {
	case OPTION_POLICY:
		wishes->policy = optarg;
		break;
	case OPTION_PARTITIONS:
		wishes->partitions = optarg;
		break;
	case OPTION_ENFORCE:
		return enforcement_read(&wishes->options);
	case OPTION_KEY:
		return key_option_read(wishes);
	case OPTION_KEY_LEASE:
		is_good = number_read(&number, 0, 65535);
		wishes->options.m_key_lease_s = (uint16_t)number;
		break;
	case OPTION_KEY_PROTECT:
		is_good = number_read(&number, 0, 3);
		wishes->options.m_key_protect = (uint8_t)number;
		break;
	default:
		is_good = false;
	}
	return is_good;
}

/* Whether the option's value can be. */
static bool option_take(int option, struct wishes *wishes)
{
	struct sm_options *options = &wishes->options;
	uint32_t number = 0;
	bool is_good = true;

	switch (option) {
	case OPTION_DEVICE:
		wishes->device = optarg;
		break;
	case OPTION_PORT:
		is_good = number_read(&number, 0, 254);
		wishes->port = (int)number;
		break;
	case OPTION_PRIORITY:
		is_good = number_read(&number, 0, 15);
		options->priority = (uint8_t)number;
		break;
	case OPTION_ROUTING:
		is_good = routing_read(options);
		break;
	case OPTION_LMC:
		is_good = number_read(&number, 0, 7);
		options->lmc = (uint8_t)number;
		break;
	case OPTION_WINDOW:
		is_good = number_read(&options->window, 1, SM_WINDOW_MAX);
		break;
	case OPTION_TIMEOUT:
		is_good = number_read(&options->timeout_ms, 1, 60000);
		break;
	case OPTION_RETRIES:
		is_good = number_read(&options->retries, 0, 100);
		break;
	case OPTION_SWEEP:
		is_good = number_read(&options->sweep_ms, 1, 86400000);
		break;
	case OPTION_POLL:
		is_good = number_read(&options->poll_ms, 1, 86400000);
		break;
	case OPTION_QOS:
		options->has_qos = true;
		break;
	case OPTION_ONCE:
		wishes->is_once = true;
		break;
	case OPTION_DETACH:
		wishes->detaches = true;
		break;
	case OPTION_QUIET:
		wishes->is_quiet = true;
		break;
	default:
		is_good = guard_option_take(option, wishes);
	}
	return is_good;
}

/* 0: go on; else the exit code + 1. */
static int wishes_read(int argc, char **argv, struct wishes *wishes)
{
	int option;

	wishes->options.retries = 3;
	wishes->options.m_key_protect = 1;
	wishes->options.enforce = SM_ENFORCE_IN | SM_ENFORCE_OUT;
	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage, stdout);
			return 1;
		}
		if (option == OPTION_VERSION) {
			puts("verbena-sm " VERBENA_VERSION);
			return 1;
		}
		if (!option_take(option, wishes)) {
			fputs("`verbena-sm --help' lists the options\n", stderr);
			return 3;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "verbena-sm: `%s' is too much\n", argv[optind]);
		return 3;
	}
	return 0;
}

/* The manager's functions ---------------------------------------------------------------------- */

static void manager_send(void *context, const struct sm_peer *to, const uint8_t *mad, size_t bytes,
			 uint32_t timeout_ms)
{
	struct program *program = context;

	smd_port_send(&program->port, to, mad, bytes, timeout_ms);
}

static void manager_say(void *context, const char *text)
{
	const struct program *program = context;
	struct timespec now;
	struct tm parts;

	if (program->wishes.is_quiet)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &parts);
	fprintf(stderr, "%02d:%02d:%02d.%03ld %s\n", parts.tm_hour, parts.tm_min, parts.tm_sec,
		now.tv_nsec / 1000000, text);
}

static const struct sm_functions manager_functions = {manager_send, manager_say};

static uint64_t now_get(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Beginning ------------------------------------------------------------------------------------ */

static int directory_use(struct program *program, char *log_path, size_t size)
{
	char directory[PATH_MAX - 64];
	int result = rundir_find(directory, sizeof directory);

	if (!result)
		result = rundir_make(directory);
	if (result) {
		log_error("cannot use the run-time directory: %s", strerror(-result));
		return result;
	}
	snprintf(program->lids, sizeof program->lids, "%s/sm-%016llx.lids", directory,
		 (unsigned long long)program->port.guid);
	snprintf(program->key, sizeof program->key, "%s/sm-%016llx.mkey", directory,
		 (unsigned long long)program->port.guid);
	snprintf(log_path, size, "%s/sm-%016llx.log", directory,
		 (unsigned long long)program->port.guid);
	return 0;
}

static int manager_begin(struct program *program)
{
	int result = 0;

	if (program->wishes.has_random_key)
		result = m_key_make(program->key, &program->wishes.options.m_key);
	if (result)
		return result;
	program->sm = sm_create(&manager_functions, program, &program->wishes.options);
	if (!program->sm)
		return -ENOMEM;
	result = lids_read(program->sm, program->lids);
	if (!result && program->wishes.policy)
		result = policy_read(program->sm, program->wishes.policy);
	if (!result && program->wishes.partitions)
		result = partitions_read(program->sm, program->wishes.partitions);
	if (result)
		return result;
	result = smd_port_open(&program->port);
	if (result)
		log_error("cannot open %s port %d: %s", program->port.device, program->port.number,
			  strerror(-result));
	return result;
}

/* The terminal is left alone from now on. */
static void terminal_leave(struct program *program, const char *log_path)
{
	int file = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	background_settle(program->parent, file, "manager");
	if (file >= 0)
		close(file);
	program->parent = -1;
}

/* Running -------------------------------------------------------------------------------------- */

static void signal_take(int number)
{
	(void)number;
	is_over = 1;
}

static int device_reopen(struct program *program)
{
	smd_port_close(&program->port);
	log_warn("the device is gone; it is tried again for %d s", REOPEN_TRIES * REOPEN_MS / 1000);
	for (int i = 0; i < REOPEN_TRIES && !is_over; i++) {
		poll(NULL, 0, REOPEN_MS);
		if (!smd_port_open(&program->port)) {
			sm_sweep_request(program->sm, now_get());
			return 0;
		}
	}
	return -ENODEV;
}

/* Takes all that has come; false: the device is gone. */
static bool messages_take(struct program *program)
{
	struct sm_peer from;
	const uint8_t *mad;
	ssize_t bytes;

	while ((bytes = smd_port_receive(&program->port, &from, &mad)) >= 0)
		if (bytes)
			sm_receive(program->sm, &from, mad, (size_t)bytes, now_get());
	return bytes == -EAGAIN;
}

/* Waits for what comes first; false: the device is gone. */
static bool program_wait_event(struct program *program)
{
	struct pollfd entry = {.fd = program->port.fd, .events = POLLIN};
	uint64_t due = sm_deadline(program->sm), now = now_get();
	int wait = due == UINT64_MAX ? -1
		   : due <= now	     ? 0
				     : (int)(due - now < 60000 ? due - now : 60000);

	if (poll(&entry, 1, wait) < 0)
		return errno == EINTR;
	return !(entry.revents & (POLLERR | POLLHUP | POLLNVAL)) || (entry.revents & POLLIN);
}

static void progress_note(struct program *program, const char *log_path)
{
	bool has_begun = sm_state_get(program->sm) == SM_STANDBY || sm_is_settled(program->sm);

	if (program->has_begun || !has_begun)
		return;
	program->has_begun = true;
	if (program->parent >= 0)
		terminal_leave(program, log_path);
	if (program->wishes.is_once)
		is_over = 1;
}

static int program_run(struct program *program, const char *log_path)
{
	sm_start(program->sm, now_get());
	while (!is_over) {
		bool is_there = program_wait_event(program) && messages_take(program);

		if (!is_there && !is_over && device_reopen(program))
			return 1;
		sm_expire(program->sm, now_get());
		lids_write(program->sm, program->lids);
		progress_note(program, log_path);
	}
	return program->wishes.is_once && !program->has_begun;
}

int main(int argc, char **argv)
{
	static struct program program;
	struct sigaction action = {.sa_handler = signal_take};
	char log_path[PATH_MAX];
	int result = wishes_read(argc, argv, &program.wishes);

	if (result)
		return result - 1;
	log_open(STDERR_FILENO, "verbena-sm");
	program.parent = -1;
	if (program.wishes.detaches) {
		program.parent = background_enter();
		if (program.parent < 0) {
			log_error("cannot go on in the background: %s", strerror(-program.parent));
			return 1;
		}
	}
	umask(077);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (smd_port_find(&program.port, program.wishes.device, program.wishes.port) ||
	    directory_use(&program, log_path, sizeof log_path) || manager_begin(&program))
		return 1;
	result = program_run(&program, log_path);
	smd_port_free(&program.port);
	sm_free(program.sm);
	return result;
}
