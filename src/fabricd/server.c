/* SPDX-License-Identifier: BSD-2-Clause */
/* The loop of verbena-fabric, and its sockets. */
#include "fabricd/server.h"
#include "fabricd/postponed.h"
#include "fabricd/tap.h"

#include "base/clock.h"
#include "base/log.h"
#include "proto/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

uint64_t server_now_ms(void)
{
	return clock_ns() / 1000000;
}

/* Watches -------------------------------------------------------------------------------------- */

int server_watch(struct server *server, struct watched *watched, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watched};

	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	watched->fd = fd;
	return 0;
}

void server_watch_change(struct server *server, struct watched *watched, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watched};

	if (watched->fd >= 0)
		epoll_ctl(server->epoll, EPOLL_CTL_MOD, watched->fd, &event);
}

void server_unwatch(struct server *server, struct watched *watched)
{
	if (watched->fd < 0)
		return;
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, watched->fd, NULL);
	close(watched->fd);
	watched->fd = -1;
}

/* Sockets -------------------------------------------------------------------------------------- */

static int socket_listen(const struct server *server, const char *name, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, length;

	length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s",
			  server->directory_path, name);
	if (length < 0 || (size_t)length >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	/* The lock says that the process that made an old one has ended. */
	unlink(address.sun_path);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 256) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

static int socket_accept(const struct watched *watched)
{
	return accept4(watched->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void listener_ready(struct server *server, struct watched *watched, uint32_t events)
{
	int fd = socket_accept(watched);

	(void)events;
	if (fd >= 0)
		connection_accept(server, fd);
}

static void control_ready(struct server *server, struct watched *watched, uint32_t events)
{
	int fd = socket_accept(watched);

	(void)events;
	if (fd >= 0)
		control_accept(server, fd);
}

static int socket_serve(struct server *server, struct watched *watched, const char *name, int type)
{
	int fd = socket_listen(server, name, type);
	int result = fd < 0 ? fd : server_watch(server, watched, fd, EPOLLIN);

	if (result)
		log_error("cannot listen at %s/%s: %s", server->directory_path, name,
			  strerror(-result));
	return result;
}

int server_open(struct server *server)
{
	int result;

	server->listener = (struct watched){.fd = -1, .ready = listener_ready};
	server->control = (struct watched){.fd = -1, .ready = control_ready};
	server->files.fd = server->timer.fd = -1;
	list_init(&server->connections);
	list_init(&server->controls);
	list_init(&server->taps);
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll < 0)
		return -errno;
	result = issm_open(server);
	if (!result)
		result = postponed_open(server);
	if (!result)
		result = socket_serve(server, &server->listener, PROTO_FABRIC_SOCKET,
				      SOCK_SEQPACKET);
	if (!result)
		result = socket_serve(server, &server->control, PROTO_FABRIC_CONTROL, SOCK_STREAM);
	return result;
}

void server_close(struct server *server)
{
	connections_close(server);
	controls_close(server);
	taps_close(server);
	unlinkat(server->directory, PROTO_FABRIC_SOCKET, 0);
	unlinkat(server->directory, PROTO_FABRIC_CONTROL, 0);
	server_unwatch(server, &server->listener);
	server_unwatch(server, &server->control);
	server_unwatch(server, &server->files);
	postponed_close(server);
	for (uint32_t row = 0; row < server->fabric.header->ports; row++) {
		if (server->ports[row])
			server_unwatch(server, &server->ports[row]->issm);
		free(server->ports[row]);
	}
	free(server->ports);
	free(server->outgoing);
	free(server->rates);
	close(server->tables);
	close(server->epoll);
}

/* Running -------------------------------------------------------------------------------------- */

static int wait_ms(const struct server *server)
{
	uint64_t deadline = server_deadline(server);
	uint64_t now = server_now_ms();

	if (deadline == UINT64_MAX)
		return -1;
	if (deadline <= now)
		return 0;
	return deadline - now < 60000 ? (int)(deadline - now) : 60000;
}

/* A wait for one event. One at a time: a handler may free what another event is about. */
struct event_wait {
	int epoll;
	struct epoll_event *event;
	const sigset_t *signals;
};

static ssize_t event_look(void *arg)
{
	const struct event_wait *wait = arg;

	return epoll_pwait(wait->epoll, wait->event, 1, 0, wait->signals);
}

/* Waits for one event, for a moment without sleeping while they come quickly. As epoll_pwait(). */
static int event_await(struct server *server, struct epoll_event *event, const sigset_t *signals)
{
	struct event_wait wait = {server->epoll, event, signals};
	const int ms = wait_ms(server);
	ssize_t count = ms ? spin_look(&server->spin, event_look, &wait, 0) : 0;

	return count ? (int)count : epoll_pwait(server->epoll, event, 1, ms, signals);
}

int server_serve(struct server *server)
{
	sigset_t none;

	sigemptyset(&none);
	while (!server->is_over) {
		struct epoll_event event;
		int count = event_await(server, &event, &none);

		if (count < 0 && errno != EINTR)
			return -errno;
		if (count > 0) {
			struct watched *watched = event.data.ptr;

			watched->ready(server, watched, event.events);
		}
		server_expire(server, server_now_ms());
		server_pump(server);
	}
	return 0;
}

/* Names ---------------------------------------------------------------------------------------- */

uint32_t server_node_find(const struct server *server, const char *name)
{
	const struct fabric *fabric = &server->fabric;
	char *end = NULL;
	uint64_t guid = 0;

	if (!*name)
		return fabric->header->first_node;
	for (uint32_t i = 0; i < fabric->header->nodes; i++)
		if (!strcmp(fabric_node_name(fabric, i), name))
			return i;
	if (!strncmp(name, "0x", 2))
		guid = strtoull(name, &end, 16);
	if (!guid || *end)
		return FABRIC_NONE;
	for (uint32_t i = 0; i < fabric->header->nodes; i++)
		if (fabric->nodes[i].guid == guid)
			return i;
	return FABRIC_NONE;
}
