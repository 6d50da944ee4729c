/* SPDX-License-Identifier: BSD-2-Clause */
/* Outputs of many programs merged line by line; see crowd_output.h. One thread. */
#include "cli/crowd_output.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

static void stream_service(struct stream *stream);

/* Sinks ---------------------------------------------------------------------------------------- */

/* Once: an event disarms it. */
static int watch_arm(int epoll, int operation, int fd, unsigned int events, struct watch *watch)
{
	struct epoll_event event = {.events = events | EPOLLONESHOT, .data.ptr = watch};

	return epoll_ctl(epoll, operation, fd, &event) < 0 ? -errno : 0;
}

int sink_open(struct sink *sink, int epoll, int fd)
{
	int error;

	*sink = (struct sink){.watch = {WATCH_SINK}, .epoll = epoll, .fd = fd};
	error = watch_arm(epoll, EPOLL_CTL_ADD, fd, 0, &sink->watch);
	sink->is_pollable = !error;
	return error == -EPERM ? 0 : error; /* -EPERM: a file, which needs no waiting */
}

bool sink_is_empty(const struct sink *sink)
{
	return sink->start == sink->end;
}

static void sink_break(struct sink *sink, int error)
{
	sink->is_broken = true;
	sink->start = sink->end = 0;
	/* A reader that has seen enough is no failure, as for any program in a pipe. */
	if (error == EPIPE)
		return;
	sink->error = error;
	cli_error("cannot write the output: %s", strerror(error));
}

/* Writes up to `most` bytes of what is there. */
static void sink_write(struct sink *sink, size_t most)
{
	size_t length = sink->end - sink->start;
	ssize_t done = write(sink->fd, sink->data + sink->start, length < most ? length : most);

	if (done >= 0)
		sink->start += (size_t)done;
	else if (errno != EINTR && errno != EAGAIN)
		sink_break(sink, errno);
}

/* Lets the epoll tell when it can be written, or writes at once where there is no waiting. */
static void sink_push(struct sink *sink)
{
	while (!sink->is_pollable && !sink_is_empty(sink))
		sink_write(sink, SINK_BYTES);
	if (sink->is_armed || sink_is_empty(sink))
		return;
	sink->is_armed = true;
	watch_arm(sink->epoll, EPOLL_CTL_MOD, sink->fd, EPOLLOUT, &sink->watch);
}

/* Whether `bytes` fit, which are at most half of the room. */
static bool sink_has_room(struct sink *sink, size_t bytes)
{
	if (sink->end + bytes <= SINK_BYTES)
		return true;
	if (!sink->is_pollable)
		sink_push(sink);
	memmove(sink->data, sink->data + sink->start, sink->end - sink->start);
	sink->end -= sink->start;
	sink->start = 0;
	return sink->end + bytes <= SINK_BYTES;
}

static void sink_put(struct sink *sink, const char *data, size_t bytes)
{
	if (sink->is_broken)
		return;
	memcpy(sink->data + sink->end, data, bytes);
	sink->end += bytes;
}

static void sink_queue(struct sink *sink, struct stream *stream)
{
	stream->state = STREAM_WAITING;
	stream->next = NULL;
	if (sink->last)
		sink->last->next = stream;
	else
		sink->first = stream;
	sink->last = stream;
}

/* Lets the streams that wait go on; those for which there is no room wait again. */
static void sink_serve(struct sink *sink)
{
	struct stream *waiting = sink->first;

	sink->first = sink->last = NULL;
	while (waiting) {
		struct stream *stream = waiting;

		waiting = stream->next;
		stream_service(stream);
	}
}

void sink_ready(struct sink *sink)
{
	sink->is_armed = false;
	/* No more than a pipe takes without blocking, if it takes anything. */
	if (!sink_is_empty(sink))
		sink_write(sink, PIPE_BUF);
	if (sink->end - sink->start <= SINK_BYTES / 2)
		sink_serve(sink);
	sink_push(sink);
}

void sink_abandon(struct sink *sink)
{
	sink_break(sink, EPIPE);
	sink_serve(sink);
}

/* Streams -------------------------------------------------------------------------------------- */

int stream_begin(struct stream *stream, struct sink *sink, int fd, const char *prefix)
{
	*stream =
		(struct stream){.watch = {WATCH_STREAM}, .fd = fd, .sink = sink, .prefix = prefix};
	stream->state = STREAM_READING;
	return watch_arm(sink->epoll, EPOLL_CTL_ADD, fd, EPOLLIN, &stream->watch);
}

static void stream_close(struct stream *stream)
{
	/* A process that was just forked may still have the descriptor, so closing isn't enough. */
	epoll_ctl(stream->sink->epoll, EPOLL_CTL_DEL, stream->fd, NULL);
	close(stream->fd);
	free(stream->data);
	stream->data = NULL;
	stream->state = STREAM_CLOSED;
}

/* The next line's length; 0: there is no whole one. What can't become longer counts as a line. */
static size_t line_length(const struct stream *stream)
{
	size_t there = stream->end - stream->start;
	const char *newline = there ? memchr(stream->data + stream->start, '\n', there) : NULL;

	if (newline)
		return (size_t)(newline - stream->data) - stream->start + 1;
	return there == LINE_BYTES || stream->is_at_end ? there : 0;
}

/* Moves all whole lines to the sink. False: it is full. */
static bool lines_emit(struct stream *stream)
{
	struct sink *sink = stream->sink;
	size_t prefix = strlen(stream->prefix), length;

	while ((length = line_length(stream))) {
		const char *line = stream->data + stream->start;

		if (!sink_has_room(sink, prefix + length + 1))
			return false;
		sink_put(sink, stream->prefix, prefix);
		sink_put(sink, line, length);
		if (line[length - 1] != '\n')
			sink_put(sink, "\n", 1);
		stream->start += length;
	}
	if (stream->start && stream->end > stream->start)
		memmove(stream->data, stream->data + stream->start, stream->end - stream->start);
	stream->end -= stream->start;
	stream->start = 0;
	return true;
}

/* Reads once. False: there is nothing to read now. */
static bool stream_fill(struct stream *stream)
{
	size_t room = LINE_BYTES - stream->end;
	ssize_t got;

	if (!stream->data)
		stream->data = malloc(LINE_BYTES);
	if (!stream->data) {
		stream->is_at_end = true;
		return true;
	}
	if (stream->is_last && stream->left < room)
		room = stream->left;
	got = room ? read(stream->fd, stream->data + stream->end, room) : 0;
	if (got > 0) {
		stream->end += (size_t)got;
		stream->left -= stream->is_last ? (size_t)got : 0;
		return true;
	}
	if (got < 0 && (errno == EAGAIN || errno == EINTR) && !stream->is_last)
		return false;
	stream->is_at_end = true;
	return true;
}

/*
 * Reads and emits: once, as others must have their turn; all that there is when the program has
 * ended.
 */
static void stream_service(struct stream *stream)
{
	struct sink *sink = stream->sink;
	bool has_read = false;

	for (;;) {
		if (sink->is_broken) {
			stream_close(stream); /* the program learns it by SIGPIPE */
			return;
		}
		if (!lines_emit(stream)) {
			sink_queue(sink, stream);
			return;
		}
		if (stream->is_at_end) {
			stream_close(stream);
			return;
		}
		if ((has_read && !stream->is_last) || !stream_fill(stream)) {
			stream->state = STREAM_READING;
			watch_arm(sink->epoll, EPOLL_CTL_MOD, stream->fd, EPOLLIN, &stream->watch);
			return;
		}
		has_read = true;
	}
}

void stream_ready(struct stream *stream)
{
	if (stream->state != STREAM_READING)
		return;
	stream_service(stream);
	sink_push(stream->sink);
}

void stream_finish(struct stream *stream)
{
	int there = 0;

	if (stream->state == STREAM_CLOSED)
		return;
	ioctl(stream->fd, FIONREAD, &there);
	stream->is_last = true;
	stream->left = there > 0 ? (size_t)there : 0;
	stream_ready(stream);
}
