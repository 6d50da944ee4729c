/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port's counters in sysfs; see port_counters.h. The names are those that the kernel has: of any
 * port, and of Soft-RoCE's. Each reading asks the daemon. One thread.
 */
#include "cli/port_counters.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/aside.h"
#include "cli/counters.h"
#include "cli/ctl.h"
#include "cli/live.h"

/* The sum of some of the daemon's counters (shm/counters.h), in units of so many. */
struct port_counter {
	const char *name;
	uint64_t unit;
	struct {
		const char *group, *name;
	} parts[4];
};

/* Four of the kernel's are always 0: they are faults of a physical link, which there isn't. */
static const struct port_counter of_port[] = {
	{"VL15_dropped", 1, {{0}}},
	{"link_error_recovery", 1, {{0}}},
	{"local_link_integrity_errors", 1, {{0}}},
	{"port_rcv_data", 4, {{"wire", "bytes_in"}}},
	{"port_rcv_errors",
	 1,
	 {{"wire", "bad_icrc"},
	  {"wire", "too_short"},
	  {"wire", "too_long"},
	  {"wire", "bad_version"}}},
	{"port_rcv_packets", 1, {{"wire", "packets_in"}}},
	{"port_xmit_data", 4, {{"wire", "bytes_out"}}},
	{"port_xmit_discards", 1, {{"wire", "refused"}, {"wire", "no_room"}}},
	{"port_xmit_packets", 1, {{"wire", "packets_out"}}},
	{"symbol_error", 1, {{0}}},
};

static const struct port_counter of_hardware[] = {
	{"duplicate_request", 1, {{"wire", "duplicates"}}},
	{"out_of_seq_request", 1, {{"wire", "out_of_sequence"}}},
	{"rcvd_pkts", 1, {{"wire", "packets_in"}}},
	{"rcvd_rnr_err", 1, {{"wire", "rnr_naks"}}},
	{"rcvd_seq_err", 1, {{"wire", "sequence_naks"}}},
	{"retry_exceeded_err", 1, {{"requests", "retry_exceeded"}}},
	{"retry_rnr_exceeded_err", 1, {{"requests", "rnr_retry_exceeded"}}},
	{"send_err", 1, {{"wire", "refused"}, {"wire", "no_room"}}},
	{"send_rnr_err", 1, {{"wire", "rnr_naks_sent"}}},
	{"sent_pkts", 1, {{"wire", "packets_out"}}},
};

/* What a file has said. */
struct said {
	uint64_t value;
	uint64_t offset; /* to be added to what the daemon says */
	bool ever;
};

static struct directory {
	const char *name;
	const struct port_counter *counters;
	size_t count;
	struct said said[LIVE_FILES];
	struct live live;
} directories[] = {
	{.name = "counters",
	 .counters = of_port,
	 .count = sizeof(of_port) / sizeof(of_port[0]),
	 .live.fd = -1},
	{.name = "hw_counters",
	 .counters = of_hardware,
	 .count = sizeof(of_hardware) / sizeof(of_hardware[0]),
	 .live.fd = -1},
};

enum { DIRECTORIES = sizeof(directories) / sizeof(directories[0]) };

/* ------------------------------------------------------------------ values */

static uint64_t value_of(const struct port_counter *counter, const json_t *counters)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(counter->parts) / sizeof(counter->parts[0]); i++)
		if (counter->parts[i].name)
			sum += counters_value(counters, counter->parts[i].group,
					      counter->parts[i].name);
	return sum / counter->unit;
}

/* A counter never decreases: it goes on from where it was when there is another daemon, and stays
 * as it was while there is none. */
static int counter_read(void *context, size_t file, char text[LIVE_TEXT_BYTES])
{
	struct directory *directory = context;
	struct said *said = &directory->said[file];
	json_t *reply = ctl_ask(json_pack("{s:s}", "op", "counters"));
	const json_t *counters = json_object_get(reply, "counters");

	if (counters) {
		uint64_t value = value_of(&directory->counters[file], counters);

		if (value + said->offset < said->value)
			said->offset = said->value - value;
		said->value = value + said->offset;
		said->ever = true;
	}
	json_decref(reply);
	return said->ever ? snprintf(text, LIVE_TEXT_BYTES, "%" PRIu64 "\n", said->value) : -EIO;
}

/* ------------------------------------------------------------------ directories */

static int directory_mount(struct directory *directory, const struct place *port)
{
	struct live *live = &directory->live;

	_Static_assert(sizeof(of_port) / sizeof(of_port[0]) <= LIVE_FILES &&
			       sizeof(of_hardware) / sizeof(of_hardware[0]) <= LIVE_FILES,
		       "a directory has room for them");
	for (live->count = 0; live->count < directory->count; live->count++)
		live->names[live->count] = directory->counters[live->count].name;
	live->read = counter_read;
	live->context = directory;
	return live_mount(live, port, directory->name);
}

/* Whether this process, and so the program, gets orphans as children: it may wait for them all. */
static bool orphans_are_adopted(void)
{
	int adopts = 0;

	return getpid() == 1 || (!prctl(PR_GET_CHILD_SUBREAPER, &adopts) && adopts);
}

void port_counters_mount(const struct place *port)
{
	if (orphans_are_adopted()) {
		log_info("no counters in /sys/class/infiniband: the process that serves them would "
			 "become a child of the program");
		return;
	}
	for (size_t i = 0; i < DIRECTORIES; i++) {
		int error = port->error ? 0 : directory_mount(&directories[i], port);

		if (error)
			log_info("no %s in /sys/class/infiniband: no FUSE file system can be had: "
				 "%s",
				 directories[i].name, strerror(-error));
	}
}

static void directories_serve(void *context)
{
	struct live *lives[DIRECTORIES];

	for (size_t i = 0; i < DIRECTORIES; i++)
		lives[i] = &directories[i].live;
	live_serve(lives, DIRECTORIES, context);
}

void port_counters_start(const char *path)
{
	int *fds[DIRECTORIES];
	size_t count = 0;
	int error;

	for (size_t i = 0; i < DIRECTORIES; i++)
		if (directories[i].live.fd >= 0)
			fds[count++] = &directories[i].live.fd;
	if (!count)
		return;
	error = aside_start("verbena-counts", fds, count, directories_serve,
			    (void *)(uintptr_t)path);
	if (error)
		log_info("no counters in /sys/class/infiniband: no process to serve them: %s",
			 strerror(-error));
	for (size_t i = 0; i < count; i++) {
		close(*fds[i]);
		*fds[i] = -1;
	}
}
