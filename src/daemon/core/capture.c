/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures. See capture.h. Captures are on server->captures. There is no list of captured
 * processes: every capture covers each attached process, under the number that tap_id() makes of
 * the two. */
#include "daemon/core/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/events.h"
#include "daemon/core/memory.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "shm/bell.h"
#include "shm/tap.h"

/* No process has slot 0; the daemon receives by its socket. */
enum { CAPTURES_MAX = 8, OWN_SLOT = 0 };

struct capture {
	struct server *server;
	struct list node;     /* on server->captures */
	struct events events; /* to the capturing program */
	struct timer over;    /* frees the capture after the callback that saw its program go */
	uint64_t id;
	uint32_t snap;
	uint32_t port;		  /* the row + 1 of a port of the fabric; 0: all traffic */
	struct tap_writer writer; /* of the daemon's own ring; memory NULL: there is none */
	int bell;		  /* that ring's */
};

/* The number of a capture for one process. */
static uint64_t tap_id(const struct capture *capture, uint32_t slot)
{
	return capture->id * LIMIT_SLOTS + slot;
}

static void tell_end(struct events *events, const struct capture *capture, uint32_t slot)
{
	const struct proto_event event = {
		.type = PROTO_EVENT_CAPTURE_END, .slot = slot, .link_id = tap_id(capture, slot)};

	events_capture(events, &event, NULL);
}

/* Hands the ring to the process and to the capturing program; if one of them can't get it, the
 * other gets CAPTURE_END. */
static int capture_introduce(struct capture *capture, struct process *process)
{
	const struct proto_event event = {
		.type = PROTO_EVENT_CAPTURE,
		.slot = process->slot,
		.link_id = tap_id(capture, process->slot),
		.pid = process->pid,
		.uid = process->user->uid,
		.value = capture->snap,
		.port = capture->port,
	};
	/* A bell for each process, so that no process can wake, or silence, the capturing program
	 * for another. */
	const int fds[2] = {memory_make("verbena-capture", TAP_SIZE), bell_make()};
	int err = fds[0] < 0 ? fds[0] : fds[1] < 0 ? fds[1] : 0;

	if (!err)
		err = events_capture(&process->events, &event, fds);
	if (!err) {
		err = events_capture(&capture->events, &event, fds);
		if (err)
			tell_end(&process->events, capture, process->slot);
	}
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return err;
}

/* ------------------------------------------------------------------ the daemon's own ring */

/* Maps a ring whose pages all exist from now on, so that writing to it can't fail for want of
 * memory. */
static struct tap_memory *own_ring_map(int fd)
{
	if (fallocate(fd, 0, 0, TAP_SIZE) < 0)
		return NULL;
	void *at = mmap(NULL, TAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Announces the ring to the capturing program, as a process's. Returns 0 or -errno. */
static int own_ring_announce(struct capture *capture, const int fds[2])
{
	const struct proto_event event = {
		.type = PROTO_EVENT_CAPTURE,
		.slot = OWN_SLOT,
		.link_id = tap_id(capture, OWN_SLOT),
		.pid = getpid(),
		.uid = geteuid(),
		.value = capture->snap,
	};

	return events_capture(&capture->events, &event, fds);
}

/* A capture without this ring lacks the connection manager's messages only. */
static void own_ring_make(struct capture *capture)
{
	const int fds[2] = {memory_make("verbena-capture", TAP_SIZE), bell_make()};
	struct tap_memory *memory = fds[0] < 0 || fds[1] < 0 ? NULL : own_ring_map(fds[0]);

	if (memory && own_ring_announce(capture, fds) < 0) {
		munmap(memory, TAP_SIZE);
		memory = NULL;
	}
	if (fds[0] >= 0)
		close(fds[0]);
	if (memory) {
		tap_writer_init(&capture->writer, memory, capture->snap);
		capture->bell = fds[1];
		return;
	}
	if (fds[1] >= 0)
		close(fds[1]);
	log_warn("the connection manager's messages aren't captured: no memory or descriptors");
}

static void own_ring_free(struct capture *capture)
{
	if (!capture->writer.memory)
		return;
	munmap(capture->writer.memory, TAP_SIZE);
	close(capture->bell);
	capture->writer.memory = NULL;
}

bool capture_is_on(const struct server *server)
{
	return !list_empty(&server->captures);
}

void capture_write(struct server *server, const struct tap_packet *packet)
{
	list_for_each(node, &server->captures) {
		struct capture *capture = container_of(node, struct capture, node);
		int err = 0;

		if (capture->writer.memory && tap_write(&capture->writer, packet))
			err = bell_ring(capture->bell);
		if (err)
			log_debug("capture's bell: %s", strerror(-err));
	}
}

/* ------------------------------------------------------------------ captures */

static void capture_begin_at(struct capture *capture, struct process *process)
{
	int err = capture_introduce(capture, process);

	if (err && err != -EPIPE)
		log_warn("process %d (%s) isn't captured: %s", process->pid, process->comm,
			 strerror(-err));
}

static void capture_free(struct capture *capture)
{
	struct server *server = capture->server;

	capture->events.gone = NULL;
	timer_cancel(&capture->over);
	own_ring_free(capture);
	events_close(&capture->events);
	list_del(&capture->node);
	server->capture_count--;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (server->slots.process[slot])
			tell_end(&server->slots.process[slot]->events, capture, slot);
	free(capture);
	server_left(server);
}

static void on_over(struct timer *timer)
{
	log_info("a capture is over");
	capture_free(container_of(timer, struct capture, over));
}

static void on_gone(struct events *events)
{
	struct capture *capture = container_of(events, struct capture, events);

	timer_set(&capture->server->loop, &capture->over, 0);
}

static struct capture *capture_new(struct server *server, uint32_t snap)
{
	struct capture *capture = calloc(1, sizeof(*capture));

	if (!capture)
		return NULL;
	capture->server = server;
	capture->snap = snap;
	timer_init(&capture->over, on_over);
	return capture;
}

int capture_open(struct server *server, uint32_t snap, uint32_t port, int *program_fd)
{
	if (server->capture_count >= CAPTURES_MAX)
		return -EBUSY;
	struct capture *capture = capture_new(server, snap);

	if (!capture)
		return -ENOMEM;
	int err = events_open(&capture->events, &server->loop, program_fd);

	if (err) {
		free(capture);
		return err;
	}
	capture->port = port;
	capture->events.gone = on_gone;
	capture->id = ++server->last_capture_id;
	list_add_tail(&server->captures, &capture->node);
	server->capture_count++;
	timer_cancel(&server->idle);
	if (!port) /* on a fabric the connection manager's messages are management datagrams */
		own_ring_make(capture);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (server->slots.process[slot])
			capture_begin_at(capture, server->slots.process[slot]);
	return 0;
}

void capture_attached(struct process *process)
{
	list_for_each(node, &process->server->captures)
		capture_begin_at(container_of(node, struct capture, node), process);
}

void capture_left(struct process *process)
{
	list_for_each(node, &process->server->captures) {
		struct capture *capture = container_of(node, struct capture, node);

		tell_end(&capture->events, capture, process->slot);
	}
}

void capture_close_all(struct server *server)
{
	while (!list_empty(&server->captures))
		capture_free(container_of(server->captures.next, struct capture, node));
}
