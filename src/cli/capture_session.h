/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture under way: the rings of the captured processes, which the daemon announces on an event
 * socket (daemon/core/capture.h), and the loop that moves packets from them into the file, by time.
 * One thread. Captured processes are strangers: what a ring says is checked (shm/tap.h).
 */
#ifndef VERBENA_CLI_CAPTURE_SESSION_H
#define VERBENA_CLI_CAPTURE_SESSION_H

#include <signal.h>

#include "cli/capture_file.h"

struct capture_source;

struct capture_session {
	struct capture_file *file;
	const char *only; /* the device that is captured; NULL: all */
	int events;	  /* the daemon's event socket */
	int bells;	  /* epoll: those of all sources; -1: there was none yet */
	struct capture_source *sources;
	size_t count, room;
	uint32_t processes;   /* that were captured, altogether */
	uint64_t lost;	      /* packets of processes that ended; capture_session_lost() for all */
	uint64_t left;	      /* packets that may still be written */
	uint64_t end_ns;      /* monotonic; UINT64_MAX: no limit */
	uint64_t asked_ns;    /* monotonic: when the addresses were last asked for */
	bool progress;	      /* a line on the terminal */
	uint64_t progress_ns; /* monotonic: when it is due */
};

enum capture_end {
	CAPTURE_DONE,	     /* told to end, or the count or the time is reached */
	CAPTURE_DAEMON_GONE, /* nobody would say any more which processes there are */
	CAPTURE_FAILED,	     /* *err says why */
};

/* Captures until it is over. `stop`: the signals that end it; they are blocked. */
enum capture_end capture_session_run(struct capture_session *session, const sigset_t *stop,
				     int *err);
uint64_t capture_session_lost(const struct capture_session *session);
void capture_session_free(struct capture_session *session);

#endif
