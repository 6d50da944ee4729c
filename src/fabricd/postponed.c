/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See postponed.h. The heap is an array whose root is due first; datagrams that are due at the same
 * time leave it in the order in which they came. It belongs to the server's one thread. What is in
 * it is lost with the process, as packets are on a link that goes down.
 */
#include "fabricd/postponed.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct postponed {
	uint64_t due_ns, order;
	struct fabric_datagram datagram;
};

static bool is_before(const struct postponed *a, const struct postponed *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void heap_swap(struct postponed **heap, size_t a, size_t b)
{
	struct postponed *one = heap[a];

	heap[a] = heap[b];
	heap[b] = one;
}

static void heap_rise(struct postponed **heap, size_t at)
{
	while (at && is_before(heap[at], heap[(at - 1) / 2])) {
		heap_swap(heap, at, (at - 1) / 2);
		at = (at - 1) / 2;
	}
}

static void heap_sink(struct postponed **heap, size_t count)
{
	size_t at = 0;

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= count)
			return;
		if (child + 1 < count && is_before(heap[child + 1], heap[child]))
			child++;
		if (!is_before(heap[child], heap[at]))
			return;
		heap_swap(heap, at, child);
		at = child;
	}
}

/* The timer rings when the first one is due; not at all without one. */
static void postponed_timer_set(struct server *server)
{
	struct itimerspec when = {0};
	uint64_t due = server->postponed_count ? server->postponed[0]->due_ns : 0;

	if (due == server->postponed_due_ns)
		return;
	server->postponed_due_ns = due;
	when.it_value.tv_sec = (time_t)(due / 1000000000);
	when.it_value.tv_nsec = (long)(due % 1000000000);
	timerfd_settime(server->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void postponed_ready(struct server *server, struct watched *watched, uint32_t events)
{
	uint64_t rings;
	uint64_t now = clock_ns();

	(void)events;
	if (read(watched->fd, &rings, sizeof rings) < 0)
		return;
	while (server->postponed_count && server->postponed[0]->due_ns <= now) {
		struct postponed *first = server->postponed[0];

		server->postponed[0] = server->postponed[--server->postponed_count];
		heap_sink(server->postponed, server->postponed_count);
		fabric_arrive(&server->fabric, &first->datagram, server_now_ms());
		free(first);
	}
	server->postponed_due_ns = 0; /* it has rung */
	postponed_timer_set(server);
}

static bool heap_grow(struct server *server)
{
	size_t room = server->postponed_room ? 2 * server->postponed_room : 64;
	struct postponed **grown;

	if (room > POSTPONED_MAX)
		return false;
	grown = realloc(server->postponed, room * sizeof *grown);
	if (!grown)
		return false;
	server->postponed = grown;
	server->postponed_room = room;
	return true;
}

void postponed_add(void *context, const struct fabric_datagram *datagram, uint64_t delay_ns)
{
	struct server *server = context;
	struct postponed *new = NULL;

	if (server->postponed_count < server->postponed_room || heap_grow(server))
		new = malloc(sizeof *new);
	if (!new) {
		server->fabric.header->mads_dropped++;
		return;
	}
	new->due_ns = clock_ns() + delay_ns;
	new->order = server->postponed_order++;
	new->datagram = *datagram;
	server->postponed[server->postponed_count] = new;
	heap_rise(server->postponed, server->postponed_count++);
	postponed_timer_set(server);
}

int postponed_open(struct server *server)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int result;

	server->timer = (struct watched){.fd = -1, .ready = postponed_ready};
	if (fd < 0)
		return -errno;
	result = server_watch(server, &server->timer, fd, EPOLLIN);
	if (result)
		close(fd);
	return result;
}

void postponed_close(struct server *server)
{
	server_unwatch(server, &server->timer);
	for (size_t i = 0; i < server->postponed_count; i++)
		free(server->postponed[i]);
	free(server->postponed);
}
