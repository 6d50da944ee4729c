/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cable with faults: two TAP devices in given network namespaces, and frames carried between
 * them. Stands in for `tc netem` where a kernel lacks it.
 *
 *   relay [OPTION...] SPACE:NAME SPACE:NAME      (see --help, tap.h and cable.h)
 *
 * Prints "ready" when both devices exist; the starting program sets their addresses, MTU and state.
 * Takes commands on standard input, one a line, each answered by a line: the names of the options
 * without "--" ("loss 0.01"; "from-a.loss 0.01" for one direction), "down" and "up" (the cable:
 * both interfaces lose and get their carrier), "silent" and "heard" (all frames are lost without
 * notice), "counters". Ends at the end of standard input, or at SIGTERM; prints its counters.
 *
 * Owns both descriptors and both paths. One thread: it sleeps in ppoll() until there is a frame or
 * a command, or until a waiting frame is due.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cable.h"
#include "tap.h"

enum {
	FRAME_BYTES = 1 << 17, /* more than the largest frame */
	BATCH = 64,	       /* frames of one direction before the other direction is served */
	EXIT_USAGE = 2,
	EXIT_CANNOT = 77, /* no permission to make the devices: a test is skipped */
};
enum { FROM_A, FROM_B, DIRECTIONS };

struct relay {
	int fd[DIRECTIONS];
	struct path path[DIRECTIONS]; /* FROM_A: what A sends, B gets */
	uint64_t refused;	      /* frames that a device did not take because it is down */
	int signals;
	char command[256]; /* the command line received so far */
	size_t command_length;
	bool ended;
	_Alignas(8) uint8_t frame[FRAME_BYTES];
};

/* Settings ----------------------------------------------------------------------------------- */

enum kind { SHARE, TIME, BYTES };
static const struct setting {
	const char *name;
	enum kind kind;
	size_t offset;
	const char *help;
} settings[] = {
#define SETTING(name, kind, field, help)                              \
	{                                                             \
		name, kind, offsetof(struct path_faults, field), help \
	}
	SETTING("loss", SHARE, loss, "each frame is lost with this probability (0.01, or 1%)"),
	SETTING("burst", SHARE, burst, "a burst of losses begins with this probability"),
	SETTING("burst-for", TIME, burst_ns, "and takes so long"),
	SETTING("duplicate", SHARE, duplicate, "a frame comes twice"),
	SETTING("reorder", SHARE, reorder, "a frame is held back, so that later ones overtake it"),
	SETTING("reorder-by", TIME, reorder_ns, "for so long (200us, 5ms, 1s)"),
	SETTING("corrupt", SHARE, corrupt, "one bit of the UDP payload is wrong"),
	SETTING("bare", SHARE, bare, "the UDP checksum is left out (with --no-offloads)"),
	SETTING("mark", SHARE, mark, "a mark says that a queue was long, if it may (ECN, IPv4)"),
	SETTING("delay", TIME, delay_ns, "every frame takes so long"),
	SETTING("jitter", TIME, jitter_ns, "and up to so much longer, the order kept"),
	SETTING("rate", BYTES, bytes_per_s, "so many bytes a second at most (100M, 1G)"),
	SETTING("queue", BYTES, queue_bytes, "so many bytes wait for that, more are dropped"),
#undef SETTING
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static const struct unit {
	const char *name;
	double factor;
} units[] = {
	{"%", 0.01}, {"ns", 1},	 {"us", 1e3}, {"ms", 1e6},
	{"s", 1e9},  {"k", 1e3}, {"M", 1e6},  {"G", 1e9},
};

/* Reads a number with a unit of its kind. False: it isn't one. */
static bool value_read(const char *text, enum kind kind, double *value)
{
	static const char *const fitting[] = {
		[SHARE] = "%", [TIME] = "ns us ms s", [BYTES] = "k M G"};
	char *end;

	*value = strtod(text, &end);
	if (end == text || *value < 0)
		return false;
	if (*end == '\0')
		return kind != TIME || *value == 0;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].name) != 0 || !strstr(fitting[kind], end))
			continue;
		*value *= units[i].factor;
		return true;
	}
	return false;
}

static bool setting_store(struct path_faults *faults, const struct setting *setting,
			  const char *text)
{
	char *at = (char *)faults + setting->offset;
	double value;

	if (!value_read(text, setting->kind, &value) || (setting->kind == SHARE && value > 1))
		return false;
	if (setting->kind == SHARE)
		*(double *)at = value;
	else
		*(uint64_t *)at = (uint64_t)value;
	return true;
}

/* Applies "loss", "from-a.loss", "from-b.loss" and so on. False: unknown name or value. */
static bool setting_apply(struct relay *relay, const char *name, const char *text)
{
	static const char *const prefixes[DIRECTIONS] = {"from-a.", "from-b."};
	bool wanted[DIRECTIONS] = {true, true};

	for (int i = 0; i < DIRECTIONS; i++) {
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) != 0)
			continue;
		wanted[!i] = false;
		name += strlen(prefixes[i]);
		break;
	}
	for (size_t i = 0; i < SETTINGS; i++) {
		if (strcmp(name, settings[i].name) != 0)
			continue;
		for (int j = 0; j < DIRECTIONS; j++)
			if (wanted[j] && !setting_store(&relay->path[j].faults, &settings[i], text))
				return false;
		return true;
	}
	return false;
}

/* Frames ------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void frame_write(struct relay *relay, int direction, const uint8_t *frame, size_t length)
{
	if (write(relay->fd[!direction], frame, length) < 0)
		relay->refused++;
}

static void frames_due(struct relay *relay, int direction, uint64_t now)
{
	struct path_frame *frame;

	while ((frame = path_due(&relay->path[direction], now))) {
		frame_write(relay, direction, frame->bytes, frame->length);
		free(frame);
	}
}

/* Carries some frames of one direction. False: its device is gone. */
static bool frames_carry(struct relay *relay, int direction)
{
	for (int i = 0; i < BATCH; i++) {
		ssize_t length = read(relay->fd[direction], relay->frame, sizeof(relay->frame));
		uint64_t now;

		if (length < 0)
			return errno == EAGAIN || errno == EINTR || errno == EIO;
		now = now_ns();
		if (path_take(&relay->path[direction], relay->frame, (size_t)length, now))
			frame_write(relay, direction, relay->frame, (size_t)length);
		frames_due(relay, direction, now);
	}
	return true;
}

/* Commands ----------------------------------------------------------------------------------- */

static void counters_print(const struct relay *relay)
{
	static const char *const names[DIRECTIONS] = {"from-a", "from-b"};

	printf("{\"refused\":%" PRIu64, relay->refused);
	for (int i = 0; i < DIRECTIONS; i++) {
		const struct path_counters *c = &relay->path[i].counters;

		printf(",\"%s\":{\"frames\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"roce\":%" PRIu64
		       ",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64 ",\"reordered\":%" PRIu64
		       ",\"corrupted\":%" PRIu64 ",\"marked\":%" PRIu64 ",\"bared\":%" PRIu64
		       ",\"overflowed\":%" PRIu64 ",\"silenced\":%" PRIu64 ",\"delivered\":%" PRIu64
		       ",\"waiting\":%zu}",
		       names[i], c->frames, c->bytes, c->roce, c->lost, c->duplicated, c->reordered,
		       c->corrupted, c->marked, c->bared, c->overflowed, c->silenced, c->delivered,
		       relay->path[i].waiting);
	}
	puts("}");
}

static bool cable_plug(struct relay *relay, bool in)
{
	bool fine = true;

	for (int i = 0; i < DIRECTIONS; i++) {
		fine &= tap_plug(relay->fd[i], in) == 0;
		/* The kernel continues to send for a moment. */
		relay->path[i].silent = !in;
		if (!in)
			path_forget(&relay->path[i]);
	}
	return fine;
}

static void command_run(struct relay *relay, char *line)
{
	char *value = strchr(line, ' ');
	bool fine = true;

	if (value)
		*value++ = '\0';
	if (strcmp(line, "counters") == 0) {
		counters_print(relay);
		return;
	}
	if (strcmp(line, "down") == 0 || strcmp(line, "up") == 0)
		fine = cable_plug(relay, line[0] == 'u');
	else if (strcmp(line, "silent") == 0 || strcmp(line, "heard") == 0)
		relay->path[FROM_A].silent = relay->path[FROM_B].silent = line[0] == 's';
	else
		fine = value && setting_apply(relay, line, value);
	puts(fine ? "ok" : "refused");
}

/* Reads commands; the relay ends at the end of standard input. */
static void commands_take(struct relay *relay)
{
	char *at = relay->command + relay->command_length, *end;
	ssize_t got = read(STDIN_FILENO, at, sizeof(relay->command) - 1 - relay->command_length);

	if (got <= 0) {
		relay->ended = true;
		return;
	}
	relay->command_length += (size_t)got;
	relay->command[relay->command_length] = '\0';
	while ((end = strchr(relay->command, '\n'))) {
		*end = '\0';
		command_run(relay, relay->command);
		relay->command_length -= (size_t)(end + 1 - relay->command);
		memmove(relay->command, end + 1, relay->command_length + 1);
	}
	fflush(stdout);
	/* A line longer than any command ends the relay. */
	relay->ended |= relay->command_length == sizeof(relay->command) - 1;
}

/* Running ------------------------------------------------------------------------------------ */

/* Sleeps until there is work; the ready descriptors are in `ready`. */
static bool relay_sleep(const struct relay *relay, struct pollfd ready[DIRECTIONS + 2])
{
	uint64_t next = path_next_ns(&relay->path[FROM_A]), now = now_ns();
	struct timespec left = {0};

	if (path_next_ns(&relay->path[FROM_B]) < next)
		next = path_next_ns(&relay->path[FROM_B]);
	if (next > now) {
		left.tv_sec = (time_t)((next - now) / 1000000000u);
		left.tv_nsec = (long)((next - now) % 1000000000u);
	}
	for (int i = 0; i < DIRECTIONS; i++)
		ready[i] = (struct pollfd){.fd = relay->fd[i], .events = POLLIN};
	ready[DIRECTIONS] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	ready[DIRECTIONS + 1] = (struct pollfd){.fd = relay->signals, .events = POLLIN};
	return ppoll(ready, DIRECTIONS + 2, next == UINT64_MAX ? NULL : &left, NULL) >= 0 ||
	       errno == EINTR;
}

static void relay_run(struct relay *relay)
{
	struct pollfd ready[DIRECTIONS + 2];

	while (!relay->ended && relay_sleep(relay, ready)) {
		for (int i = 0; i < DIRECTIONS; i++) {
			frames_due(relay, i, now_ns());
			if (ready[i].revents && !frames_carry(relay, i))
				relay->ended = true;
		}
		if (ready[DIRECTIONS].revents)
			commands_take(relay);
		relay->ended |= ready[DIRECTIONS + 1].revents != 0;
	}
}

static _Noreturn void usage(const char *name, int status)
{
	FILE *out = status ? stderr : stdout;

	fprintf(out,
		"usage: %s [OPTION...] SPACE:NAME SPACE:NAME\n"
		"SPACE is a process's number or a network namespace's file. Options:\n"
		"  --seed N          faults are drawn from it (1)\n"
		"  --no-offloads     the kernel cuts large packets before they get here\n"
		"  --all             faults hit every frame, not RoCEv2 only\n",
		name);
	for (size_t i = 0; i < SETTINGS; i++)
		fprintf(out, "  --%-15s %s\n", settings[i].name, settings[i].help);
	fprintf(out, "Each of these also for one direction: --from-a.loss, --from-b.loss, ...\n");
	exit(status);
}

/* Reads the options; returns the index of the devices' names. */
static int options_read(struct relay *relay, int argc, char **argv, bool *offloads)
{
	uint64_t seed = 1;
	bool all = false;
	int at = 1;

	/* The seed first, because paths are made with it. */
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 0);
	for (int i = 0; i < DIRECTIONS; i++)
		path_open(&relay->path[i], seed * DIRECTIONS + (uint64_t)i);
	for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
		const char *name = argv[at] + 2;

		if (strcmp(name, "help") == 0)
			usage(argv[0], 0);
		else if (strcmp(name, "no-offloads") == 0)
			*offloads = false;
		else if (strcmp(name, "all") == 0)
			all = true;
		else if (++at >= argc ||
			 (strcmp(name, "seed") != 0 && !setting_apply(relay, name, argv[at])))
			usage(argv[0], EXIT_USAGE);
	}
	for (int i = 0; i < DIRECTIONS; i++)
		relay->path[i].faults.all = all;
	return at;
}

/* SIGTERM and SIGINT end the loop by a descriptor, like other events. */
static int signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static struct relay relay;

int main(int argc, char **argv)
{
	bool offloads = true;
	int at = options_read(&relay, argc, argv, &offloads);
	const char *what;

	if (argc - at != DIRECTIONS)
		usage(argv[0], EXIT_USAGE);
	for (int i = 0; i < DIRECTIONS; i++) {
		relay.fd[i] = tap_open(argv[at + i], offloads, &what);
		if (relay.fd[i] >= 0)
			continue;
		fprintf(stderr, "relay: no TAP device %s: %s: %s\n", argv[at + i], what,
			strerror(errno));
		return errno == EPERM || errno == EACCES || errno == ENOENT ? EXIT_CANNOT : 1;
	}
	relay.signals = signals_open();
	/* Frames are due to the microsecond. */
	prctl(PR_SET_TIMERSLACK, 1);
	puts("ready");
	fflush(stdout);
	relay_run(&relay);
	counters_print(&relay);
	for (int i = 0; i < DIRECTIONS; i++)
		path_close(&relay.path[i]);
	return 0;
}
