/* SPDX-License-Identifier: BSD-2-Clause */
/* See capture_session.h. */
#include "cli/capture_session.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/ctl.h"
#include "cli/format.h"
#include "client/daemon.h"
#include "shm/bell.h"

enum { TURN = 2048 /* packets between checks of signals and events */ };
#define SECOND_NS 1000000000ull
#define PROGRESS_NS (SECOND_NS / 5)

struct capture_source {
	struct tap_reader reader;
	uint64_t id;
	int pid;
	int bell;	/* the process rings it; shm/bell.h */
	bool ended;	/* the process has ended: the ring gets no more packets */
	uint64_t until; /* packets from this position on aren't written */
	int there;	/* nonzero: `head` and `bytes` are its next packet */
	struct tap_record head;
	const uint8_t *bytes;
};

/* ------------------------------------------------------------------ sources */

static struct tap_memory *capture_ring_map(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size != (off_t)TAP_SIZE)
		return NULL;
	void *at = mmap(NULL, TAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static bool session_make_room(struct capture_session *session)
{
	size_t room = session->room ? session->room * 2 : 16;

	if (session->count < session->room)
		return true;
	void *p = realloc(session->sources, room * sizeof(*session->sources));

	if (!p)
		return false;
	session->sources = p;
	session->room = room;
	return true;
}

/* Adds the bell to the session's epoll. Returns 0 or -1 with errno. */
static int bell_hear(struct capture_session *session, int bell)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = bell};

	if (!bell_is_one(bell)) {
		errno = EBADF;
		return -1;
	}
	if (session->bells < 0)
		session->bells = epoll_create1(EPOLL_CLOEXEC);
	return session->bells < 0 ? -1 : epoll_ctl(session->bells, EPOLL_CTL_ADD, bell, &e);
}

static void source_add(struct capture_session *session, const struct proto_event *event, int *fds)
{
	struct tap_memory *memory = session_make_room(session) ? capture_ring_map(fds[0]) : NULL;

	if (memory && bell_hear(session, fds[1]) < 0) {
		munmap(memory, TAP_SIZE);
		memory = NULL;
	}
	if (!memory) {
		cli_error("process %d isn't captured: %s", event->pid,
			  fds[0] < 0 ? "no descriptors are left (see ulimit -n)" : strerror(errno));
	} else {
		struct capture_source *source = &session->sources[session->count++];

		*source = (struct capture_source){
			.id = event->link_id,
			.pid = event->pid,
			.bell = fds[1],
			.until = UINT64_MAX,
		};
		fds[1] = -1;
		tap_reader_init(&source->reader, memory);
		session->processes += event->slot != 0; /* slot 0 is the daemon's */
	}
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void source_drop(struct capture_session *session, size_t i)
{
	session->lost += tap_lost(&session->sources[i].reader);
	munmap(session->sources[i].reader.memory, TAP_SIZE);
	/* Closing a bell that its process holds open doesn't remove it from the epoll. */
	epoll_ctl(session->bells, EPOLL_CTL_DEL, session->sources[i].bell, NULL);
	close(session->sources[i].bell);
	session->sources[i] = session->sources[--session->count];
}

/* Handles the daemon's events. False: the daemon has ended. */
static bool session_take_events(struct capture_session *session)
{
	struct proto_event event;
	int fds[PROTO_MAX_FDS], err;

	while ((err = daemon_event_next(session->events, &event, fds)) == 0) {
		if (event.type == PROTO_EVENT_CAPTURE)
			source_add(session, &event, fds);
		for (size_t i = 0; event.type == PROTO_EVENT_CAPTURE_END && i < session->count; i++)
			if (session->sources[i].id == event.link_id)
				session->sources[i].ended = true;
	}
	return err == -EAGAIN;
}

/* ------------------------------------------------------------------ packets */

/* Reads the header of the source's next packet; a source with invalid contents is given up. */
static void session_look(struct capture_session *session, size_t i)
{
	struct capture_source *source = &session->sources[i];

	source->there = 0;
	if (source->reader.at < source->until)
		source->there = tap_peek(&source->reader, &source->head, &source->bytes);
	if (source->there >= 0)
		return;
	cli_error("process %d wrote nonsense into its ring; it isn't captured any more",
		  source->pid);
	source->there = 0;
	source->until = 0;
}

/* The source with the earliest packet; NULL: no packet. */
static struct capture_source *session_earliest(struct capture_session *session)
{
	struct capture_source *best = NULL;

	for (size_t i = 0; i < session->count; i++) {
		struct capture_source *source = &session->sources[i];

		if (source->there && (!best || source->head.time_ns < best->head.time_ns))
			best = source;
	}
	return best;
}

/* Updates the devices' addresses, at most once a second, because they may have changed. */
static void learn_again(struct capture_session *session)
{
	uint64_t now = clock_ns();
	json_t *reply;

	if (now - session->asked_ns < SECOND_NS)
		return;
	session->asked_ns = now;
	if (ctl_request(json_pack("{s:s}", "op", "status"), false, &reply) != CLI_OK)
		return;
	capture_file_devices(session->file, json_object_get(reply, "devices"), session->only);
	json_decref(reply);
}

static int write_one(struct capture_session *session, const struct capture_source *source)
{
	struct capture_file *file = session->file;

	if (source->head.kind == TAP_LINK) {
		session->left--;
		return capture_file_link(file, &source->head, source->bytes);
	}
	int device = capture_file_device(file, &source->head, source->bytes);

	if (device < 0) {
		learn_again(session);
		device = capture_file_device(file, &source->head, source->bytes);
	}
	if (device < 0)
		device = 0; /* the address is gone, or the kept bytes are too few */
	if (!file->device[device].wanted)
		return 0;
	session->left--;
	return capture_file_packet(file, device, &source->head, source->bytes);
}

/* Moves packets to the file, TURN at most. Returns their number, or -errno. */
static int session_move_packet(struct capture_session *session)
{
	struct capture_source *source;
	int n = 0;

	for (size_t i = 0; i < session->count; i++)
		session_look(session, i);
	while (n < TURN && session->left && (source = session_earliest(session))) {
		int err = write_one(session, source);

		if (err)
			return err;
		tap_pop(&source->reader, &source->head);
		session_look(session, (size_t)(source - session->sources));
		n++;
	}
	for (size_t i = session->count; i-- > 0;)
		if (session->sources[i].ended && !session->sources[i].there)
			source_drop(session, i);
	return n;
}

/* The same, and what the stream has. */
static int session_move(struct capture_session *session)
{
	int packets = session_move_packet(session);
	int more = packets < 0 || session->stream < 0 ? 0 : session->stream_take(session);

	return more < 0 ? more : packets < 0 ? packets : packets + more;
}

/* Moves all packets that have been written so far, and no later ones. */
static int move_rest(struct capture_session *session)
{
	int n;

	for (size_t i = 0; i < session->count; i++) {
		struct capture_source *source = &session->sources[i];
		uint64_t written = atomic_load(&source->reader.memory->written);

		source->until = written < source->until ? written : source->until;
	}
	do
		n = session_move(session);
	while (n > 0 && session->left);
	return n < 0 ? n : 0;
}

/* ------------------------------------------------------------------ the loop */

static void show_progress(struct capture_session *session, uint64_t now)
{
	char size[FORMAT_BYTES];

	if (!session->progress || now < session->progress_ns)
		return;
	session->progress_ns = now + PROGRESS_NS;
	fprintf(stderr, "\r%" PRIu64 " packets, %s, %" PRIu64 " lost \033[K",
		session->file->packets, format_size(size, session->file->bytes),
		capture_session_lost(session));
}

/* The time limit of a wait in ms; -1: none. */
static int session_timeout_ms(const struct capture_session *session, uint64_t now)
{
	uint64_t until = session->end_ns;

	if (session->progress && session->progress_ns < until)
		until = session->progress_ns;
	if (until == UINT64_MAX)
		return -1;
	uint64_t ms = until <= now ? 0 : (until - now + 999999) / 1000000;

	return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* Silences the bells that have rung; the caller reads the rings next. */
static void quiet_bells(const struct capture_session *session)
{
	struct epoll_event ringing[64];
	int n = epoll_wait(session->bells, ringing, 64, 0);

	for (int i = 0; i < n; i++)
		bell_quiet(ringing[i].data.fd);
}

/* Waits for a process, the daemon, a signal or the time limit. Returns whether a signal came. */
static bool wait_for_calls(struct capture_session *session, int signals)
{
	struct pollfd fds[4] = {{.fd = signals, .events = POLLIN},
				{.fd = session->events, .events = POLLIN},
				{.fd = session->bells, .events = POLLIN},
				{.fd = session->stream, .events = POLLIN}};
	bool quiet = true;

	for (size_t i = 0; i < session->count; i++)
		quiet &= session->sources[i].until == 0 || tap_sleep(&session->sources[i].reader);
	int n = poll(fds, 4, quiet ? session_timeout_ms(session, clock_ns()) : 0);

	for (size_t i = 0; i < session->count; i++)
		tap_wake(&session->sources[i].reader);
	if (n > 0 && fds[2].revents)
		quiet_bells(session);
	return n > 0 && fds[0].revents;
}

static bool is_over(const struct capture_session *session, bool told)
{
	return told || !session->left || clock_ns() >= session->end_ns;
}

/* Runs until the capture ends. Returns whether the daemon lives, and sets *err. */
static bool session_loop(struct capture_session *session, int signals, int *err)
{
	struct pollfd signal_fd = {.fd = signals, .events = POLLIN};
	bool told = false, alive = true;

	while (alive && !is_over(session, told)) {
		alive = session_take_events(session);
		int n = session_move(session);

		*err = n < 0 ? n : 0;
		if (!n)
			*err = capture_file_flush(session->file);
		if (*err)
			break;
		show_progress(session, clock_ns());
		if (n)
			told = poll(&signal_fd, 1, 0) > 0;
		else if (alive)
			told = wait_for_calls(session, signals);
	}
	return alive;
}

enum capture_end capture_session_run(struct capture_session *session, const sigset_t *stop,
				     int *err)
{
	int signals = signalfd(-1, stop, SFD_CLOEXEC);

	*err = 0;
	if (signals < 0) {
		*err = -errno;
		return CAPTURE_FAILED;
	}
	bool alive = session_loop(session, signals, err);

	close(signals);
	/* Adds processes that the daemon has announced meanwhile. */
	if (alive)
		alive = session_take_events(session);
	if (!*err)
		*err = move_rest(session);
	if (!*err)
		*err = capture_file_end(session->file, capture_session_lost(session));
	if (session->progress)
		fputs("\r\033[K", stderr);
	return *err ? CAPTURE_FAILED : alive ? CAPTURE_DONE : CAPTURE_DAEMON_GONE;
}

uint64_t capture_session_lost(const struct capture_session *session)
{
	uint64_t lost = session->lost;

	for (size_t i = 0; i < session->count; i++)
		lost += tap_lost(&session->sources[i].reader);
	return lost;
}

void capture_session_free(struct capture_session *session)
{
	while (session->count)
		source_drop(session, 0);
	free(session->sources);
	if (session->bells >= 0)
		close(session->bells);
	if (session->events >= 0)
		close(session->events);
}
