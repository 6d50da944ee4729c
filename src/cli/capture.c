/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena capture`: writes a device's traffic into a pcapng file. This file has the options and
 * messages; capture_session.c and capture_file.c do the work. Starts a daemon when none runs, so
 * that programs which start later are captured from their first packet on.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/capture_session.h"
#include "cli/cli.h"
#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/format.h"
#include "client/start.h"

struct wish {
	const char *path, *device;
	char *port; /* of the fabric; NULL: devices of this host are captured */
	uint64_t count, seconds;
	uint32_t snap;
};

enum { SECONDS_OPTION = 256 };

/* Takes one option. False: it is wrong. */
static bool take_option(struct wish *wish, int option)
{
	uint64_t value = 0;

	switch (option) {
	case 'w':
		wish->path = optarg;
		return true;
	case 'p':
		wish->port = optarg;
		return true;
	case 'd':
		wish->device = optarg;
		return true;
	case 'c':
		return cli_number("--count", 1, UINT64_MAX - 1, &wish->count);
	case 's':
		if (!cli_size("--snaplen", 1, UINT32_MAX, &value))
			return false;
		wish->snap = (uint32_t)value;
		return true;
	case SECONDS_OPTION:
		return cli_number("--seconds", 1, 1000000000, &wish->seconds);
	default:
		return false;
	}
}

static bool wish_is_whole(const struct wish *wish, int argc)
{
	if (optind < argc)
		cli_error("capture takes no arguments but options");
	else if (wish->port && (wish->device || wish->snap))
		cli_error("--port is for whole packets of a virtual fabric: no --device, no "
			  "--snaplen");
	else if (!wish->path)
		cli_error("capture where to? Give a file: -w FILE (`-w -`: standard output)");
	else if (!strcmp(wish->path, "-") && isatty(STDOUT_FILENO))
		cli_error("a capture isn't for a terminal: give a file, or a pipe");
	else
		return true;
	return false;
}

/* ------------------------------------------------------------------ beginning */

static int learn_devices(struct capture_file *file, const struct wish *wish)
{
	json_t *reply;
	int code = ctl_request(json_pack("{s:s}", "op", "status"), false, &reply);

	if (code != CLI_OK)
		return code;
	if (capture_file_devices(file, json_object_get(reply, "devices"), wish->device)) {
		cli_error("there is no device %s; `verbena status` lists them", wish->device);
		code = CLI_FAILURE;
	}
	json_decref(reply);
	return code;
}

int capture_ask_daemon(json_t *request, int *events)
{
	json_t *reply;
	int code = ctl_request_fd(request, &reply, events);

	if (code != CLI_OK)
		return code;
	json_decref(reply);
	if (*events >= 0)
		return CLI_OK;
	cli_error("the daemon sent no event socket; are `verbena` and verbenad of one version?");
	return CLI_FAILURE;
}

static int begin_file(struct capture_file *file, const struct wish *wish)
{
	int err = capture_file_begin(file, wish->snap);

	if (!err)
		return CLI_OK;
	cli_error("cannot write %s: %s", wish->path, strerror(-err));
	return CLI_FAILURE;
}

int capture_find_daemon(int *connection)
{
	*connection = start_connect(NULL);
	if (*connection >= 0)
		return CLI_OK;
	cli_error("no daemon can be reached or started: %s", strerror(-*connection));
	return CLI_FAILURE;
}

static int capture_session_begin(struct capture_session *session, const struct wish *wish)
{
	int connection, code = capture_find_daemon(&connection);

	if (code != CLI_OK)
		return code;
	code = learn_devices(session->file, wish);
	if (code == CLI_OK)
		code = capture_ask_daemon(
			json_pack("{s:s, s:I}", "op", "capture", "snap", (json_int_t)wish->snap),
			&session->events);
	if (code == CLI_OK)
		code = begin_file(session->file, wish);
	close(connection);
	return code;
}

/* ------------------------------------------------------------------ the capture */

static int say_end(const struct capture_session *session, const struct wish *wish,
		   enum capture_end end, int err)
{
	uint64_t lost = capture_session_lost(session);

	if (end == CAPTURE_FAILED)
		cli_error("cannot write %s: %s", wish->path, strerror(-err));
	else if (end == CAPTURE_DAEMON_GONE)
		cli_error("the daemon ended, and the capture with it");
	fprintf(stderr, "%" PRIu64 " packets of %" PRIu32 " programs captured\n",
		session->file->packets, session->processes);
	if (lost)
		fprintf(stderr,
			"%" PRIu64 " packets were lost: they came faster than they could be "
			"written\n",
			lost);
	return end == CAPTURE_DONE ? CLI_OK : CLI_FAILURE;
}

uint64_t capture_deadline_ns(uint64_t seconds)
{
	return seconds ? clock_ns() + seconds * 1000000000ull : UINT64_MAX;
}

void capture_block_signals(sigset_t *stop)
{
	sigemptyset(stop);
	sigaddset(stop, SIGINT);
	sigaddset(stop, SIGTERM);
	sigaddset(stop, SIGHUP);
	sigprocmask(SIG_BLOCK, stop, NULL);
}

static int capture_write_file(struct capture_file *file, const struct wish *wish)
{
	struct capture_session session = {
		.file = file,
		.only = wish->device,
		.events = -1,
		.bells = -1,
		.stream = -1,
		.left = wish->count ? wish->count : UINT64_MAX,
		.progress = isatty(STDERR_FILENO),
	};
	sigset_t stop;
	int err, code;

	capture_block_signals(&stop);
	code = capture_session_begin(&session, wish);
	if (code == CLI_OK) {
		fprintf(stderr, "capturing %s into %s\n",
			wish->device ? wish->device : "all devices",
			file->is_stdout ? "standard output" : wish->path);
		session.end_ns = capture_deadline_ns(wish->seconds);
		enum capture_end end = capture_session_run(&session, &stop, &err);

		code = say_end(&session, wish, end, err);
	}
	capture_session_free(&session);
	return code;
}

static int capture_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"write", required_argument, NULL, 'w'},
		{"device", required_argument, NULL, 'd'},
		{"port", required_argument, NULL, 'p'},
		{"count", required_argument, NULL, 'c'},
		{"snaplen", required_argument, NULL, 's'},
		{"seconds", required_argument, NULL, SECONDS_OPTION},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct capture_file file;
	struct wish wish = {0};
	int option, err;

	while ((option = getopt_long(argc, argv, "w:d:p:c:s:h", options, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (!take_option(&wish, option))
			return cli_usage(self);
	}
	if (!wish_is_whole(&wish, argc))
		return cli_usage(self);
	if (wish.port)
		return fabric_capture_run(&(struct fabric_capture){
			.path = wish.path,
			.port = wish.port,
			.count = wish.count,
			.seconds = wish.seconds,
		});
	err = capture_file_open(&file, wish.path);
	if (err) {
		cli_error("cannot open %s: %s", wish.path, strerror(-err));
		return CLI_FAILURE;
	}
	int code = capture_write_file(&file, &wish);

	capture_file_close(&file);
	return code;
}

const struct cli_command command_capture = {
	.name = "capture",
	.summary = "write the traffic into a file for Wireshark",
	.help = "usage: verbena capture -w FILE [-d DEVICE] [-c COUNT] [--seconds N] [-s "
		"SNAPLEN]\n"
		"       verbena capture -w FILE --port NODE/PORT [-c COUNT] [--seconds N]\n\n"
		"Writes the packets of all programs into a pcapng file: those of the wire as they "
		"are,\n"
		"traffic within this host as the RoCEv2 packets that it would have been (comment\n"
		"`local'), frames of raw packets on an interface of their own. Ends with ^C, "
		"SIGTERM, or what is asked for:\n\n"
		"  -w, --write FILE      the file; `-' for standard output\n"
		"  -d, --device DEVICE   of this device only\n"
		"  -p, --port NODE/PORT  instead, what crosses a port of the virtual fabric, data "
		"and\n"
		"                        management, as packets of InfiniBand's link layer\n"
		"  -c, --count COUNT     so many packets\n"
		"      --seconds N       so long\n"
		"  -s, --snaplen SNAPLEN keep the first SNAPLEN bytes of a packet\n"
		"  -h, --help            show this\n\n"
		"A program never waits for a capture: packets that come faster than they can be "
		"written\n"
		"are lost to it, and counted. Example: verbena capture -w - | wireshark -k -i -\n",
	.run = capture_run,
};
