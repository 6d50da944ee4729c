/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture under way: the rings of the captured processes, which the daemon announces on an event
 * socket (daemon/core/capture.h), and the loop that moves packets from them into the file, in order
 * of time. One thread. Captured processes aren't trusted: the contents of a ring are checked
 * (shm/tap.h).
 */
#ifndef VERBENA_CLI_CAPTURE_SESSION_H
#define VERBENA_CLI_CAPTURE_SESSION_H

#include <signal.h>

#include "cli/capture_file.h"

struct capture_source;

struct capture_session {
	struct capture_file *file;
	const char *only; /* the device to capture; NULL: all */
	int events;	  /* the daemon's event socket */
	int bells;	  /* epoll of all sources' bells; -1: none yet */
	int stream;	  /* of blocks that verbena-fabric makes; -1: none */
	/* Moves what the stream has into the file; it never blocks. Returns the number of packets,
	 * or -errno, which ends the capture. */
	int (*stream_take)(struct capture_session *session);
	struct capture_source *sources;
	size_t count, room;
	uint32_t processes; /* captured so far */
	uint64_t lost;	    /* packets of processes that have ended; capture_session_lost() adds the
			       others' */
	uint64_t left;	    /* packets that may still be written */
	uint64_t end_ns;    /* monotonic; UINT64_MAX: no limit */
	uint64_t asked_ns;  /* monotonic: of the last request for the addresses */
	bool progress;	    /* show a progress line on the terminal */
	uint64_t progress_ns; /* monotonic: of the next progress line */
};

enum capture_end {
	CAPTURE_DONE,	     /* a signal came, or the limit of packets or time is reached */
	CAPTURE_DAEMON_GONE, /* the daemon ended, so new processes would be missed */
	CAPTURE_FAILED,	     /* *err has the error */
};

/* Captures until an end of enum capture_end. `stop`: the signals that end it; the caller has
 * blocked them. capture_session_lost(): lost packets of all processes. */
enum capture_end capture_session_run(struct capture_session *session, const sigset_t *stop,
				     int *err);
uint64_t capture_session_lost(const struct capture_session *session);
void capture_session_free(struct capture_session *session);

/* What both kinds of captures begin with (capture.c). Each returns an exit code. */
/* Connects to the daemon, started if needed; the connection keeps it from leaving until the capture
 * has begun. */
int capture_find_daemon(int *connection);
/* Asks the daemon for a capture's event socket. */
int capture_ask_daemon(json_t *request, int *events);
/* Blocks the signals that end a capture. */
void capture_block_signals(sigset_t *stop);
/* For capture_session.end_ns; 0 seconds: no limit. */
uint64_t capture_deadline_ns(uint64_t seconds);

#endif
