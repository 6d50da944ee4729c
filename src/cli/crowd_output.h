/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Outputs of many programs merged into one, line by line.
 *
 * A stream is a program's end of a pipe, a sink where lines of many streams go: standard output,
 * standard error. Nothing blocks and memory is bounded: a stream keeps one line of LINE_BYTES, a
 * sink SINK_BYTES; while a sink is full, streams aren't read, and so their programs wait. One
 * thread; an epoll tells what is ready, by pointers to struct watch.
 *
 * A stream's state    leaves it by
 * STREAM_CLOSED       stream_begin()
 * STREAM_READING      stream_ready(), stream_finish(): closed, waiting or reading again
 * STREAM_WAITING      sink_ready() of its sink: likewise
 */
#ifndef VERBENA_CLI_CROWD_OUTPUT_H
#define VERBENA_CLI_CROWD_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Longer lines are cut into several. */
#define LINE_BYTES 8192
#define SINK_BYTES 65536
/* A prefix is at most a name, its colours, and a colon. */
#define PREFIX_BYTES 256

enum watch_kind { WATCH_SIGNALS, WATCH_STREAM, WATCH_SINK };

/* The first member of everything that the epoll watches. */
struct watch {
	enum watch_kind kind;
};

struct stream;

struct sink {
	struct watch watch;
	int epoll, fd;
	bool is_pollable; /* else writing doesn't wait for a reader: a file */
	bool is_armed;	  /* the epoll watches it */
	bool is_broken;	  /* nothing can be written any more: what comes is dropped */
	int error;	  /* why, where that is a failure */
	size_t start, end;
	struct stream *first, *last; /* that wait for room */
	char data[SINK_BYTES];
};

enum stream_state { STREAM_CLOSED, STREAM_READING, STREAM_WAITING };

struct stream {
	struct watch watch;
	enum stream_state state;
	int fd;
	struct sink *sink;
	const char *prefix; /* of each line; the caller's */
	char *data;	    /* LINE_BYTES, once there is something */
	size_t start, end;
	bool is_last;	/* its program has ended: only `left` bytes are still read */
	bool is_at_end; /* nothing comes any more */
	size_t left;
	struct stream *next; /* in the sink's queue */
};

/* A sink on a descriptor that stays the caller's. Returns 0 or -errno. */
int sink_open(struct sink *sink, int epoll, int fd);
/* The epoll says that it can be written. */
void sink_ready(struct sink *sink);
/* Nothing more is written; streams that wait for room are closed. */
void sink_abandon(struct sink *sink);
/* Whether all was written, or never will be. */
bool sink_is_empty(const struct sink *sink);

/* Begins to read a non-blocking descriptor, which becomes the stream's. Returns 0 or -errno. */
int stream_begin(struct stream *stream, struct sink *sink, int fd, const char *prefix);
/* The epoll says that it can be read. */
void stream_ready(struct stream *stream);
/* The program has ended: what it wrote so far is read, then the stream closes. What programs that
 * it left behind write later isn't waited for. */
void stream_finish(struct stream *stream);

#endif
