/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections to the daemon, idling, ending. See server.h; setting up is in setup.c. */
#include "daemon/core/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cm/cm_service.h"
#include "daemon/core/capture.h"
#include "daemon/core/closer.h"
#include "daemon/core/conn.h"
#include "daemon/core/ctl.h"
#include "daemon/core/setup.h"
#include "daemon/core/user.h"

/* ACCEPTS_A_TURN: connections accepted before the loop serves other watches; LEAVE_RETRY_MS: when a
 * starter holds `lock`. */
enum { ACCEPTS_A_TURN = 2, LEAVE_RETRY_MS = 100, ACCEPT_PAUSE_MS = 100, COMPLAIN_MS = 1000 };

/* ------------------------------------------------------------------ coming */

bool server_closes_in_time(const struct server *server, const struct user *user)
{
	return user->uid == geteuid() || closer_pending(user->uid) <= server->connections_max;
}

int server_admit(struct server *server, uid_t uid, struct user **out)
{
	struct user *user = user_get(&server->users, uid);

	if (!user)
		return -ENOMEM;
	uint32_t taken = user->connections + closer_pending(uid);

	if (uid != geteuid() && taken > server->connections_max) {
		complain(user,
			 "user %u has %u connections already, or descriptors that aren't closed "
			 "yet; another connection is refused",
			 uid, server->connections_max);
		user_put(user);
		return -EMFILE;
	}
	timer_cancel(&server->idle);
	*out = user;
	return 0;
}

static void listen_for(struct server *server, uint32_t events)
{
	loop_change(&server->loop, &server->uverbs, events);
	for (uint32_t i = 1; i < server->devices.count; i++)
		loop_change(&server->loop, &server->devices.device[i].listener, events);
	loop_change(&server->loop, &server->rdma_cm, events);
	loop_change(&server->loop, &server->ctl, events);
}

static void on_accept_again(struct timer *timer)
{
	struct server *server = container_of(timer, struct server, accept_again);

	if (server->spare_fd < 0)
		server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	listen_for(server, EPOLLIN);
}

/* No descriptor is left: the spare one is closed, the connection is accepted in its place and
 * closed. Otherwise the connection would stay at the head of the queue and wake the loop for ever.
 * False: even that failed (the limit was lowered, or the whole system has no descriptor left). */
static bool refuse_one(struct server *server, int listener)
{
	uint64_t now = now_ms();

	if (now - server->accept_said_ms > COMPLAIN_MS) {
		log_error("no descriptors are left for a new connection; it is refused "
			  "(raise the hard limit of open files, see prlimit(1))");
		server->accept_said_ms = now;
	}
	if (server->spare_fd >= 0)
		close(server->spare_fd);
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	bool lacking = fd < 0 && (errno == EMFILE || errno == ENFILE);

	if (fd >= 0)
		closer_close_accepted(fd);
	server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return !lacking;
}

/* Takes an accepted connection over; `device`: the device of a uverbs node, else NULL. */
typedef int opener(struct server *server, int fd, struct device *device);

static int open_ctl(struct server *server, int fd, struct device *device)
{
	(void)device;
	return ctl_open(server, fd);
}

static int open_cm(struct server *server, int fd, struct device *device)
{
	(void)device;
	return conn_open_cm(server, fd);
}

static void accept_some(struct server *server, int listener, opener *open, struct device *device)
{
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			if (refuse_one(server, listener))
				continue;
			listen_for(server, 0);
			timer_set(&server->loop, &server->accept_again, ACCEPT_PAUSE_MS);
			return;
		}
		if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
			return;
		if (fd >= 0 && open(server, fd, device))
			closer_close_accepted(fd);
	}
}

static void on_uverbs(struct watch *watch, uint32_t events)
{
	(void)events;
	struct server *server = container_of(watch, struct server, uverbs);

	devices_prepare(&server->devices);
	accept_some(server, watch->fd, conn_open, &server->devices.device[0]);
}

static void on_node(struct watch *watch, uint32_t events)
{
	struct device *device = container_of(watch, struct device, listener);

	(void)events;
	devices_prepare(&device->server->devices);
	accept_some(device->server, watch->fd, conn_open, device);
}

static void on_rdma_cm(struct watch *watch, uint32_t events)
{
	struct server *server = container_of(watch, struct server, rdma_cm);

	(void)events;
	devices_prepare(&server->devices);
	accept_some(server, watch->fd, open_cm, NULL);
}

static void on_ctl(struct watch *watch, uint32_t events)
{
	struct server *server = container_of(watch, struct server, ctl);

	(void)events;
	devices_prepare(&server->devices);
	accept_some(server, watch->fd, open_ctl, NULL);
}

/* ------------------------------------------------------------------ going */

static bool is_idle(const struct server *server)
{
	return list_empty(&server->conns) && list_empty(&server->ctls) &&
	       list_empty(&server->captures) && list_empty(&server->ending.conns);
}

void server_left(struct server *server)
{
	if (is_idle(server) && server->config.idle_ms >= 0)
		timer_set(&server->loop, &server->idle, (uint64_t)server->config.idle_ms);
}

void server_stop(struct server *server)
{
	server->loop.stop = true;
}

/*
 * The daemon has been idle for its idle time. It stays while its connection manager owes peers on
 * other hosts an answer: after the daemon's end no process answers them. While it holds `lock`, no
 * starter is between checking the socket and using it; a client that connects without the lock,
 * after the last check below, loses its connection and tries again (client/daemon.c).
 */
static void on_idle(struct timer *timer)
{
	struct server *server = container_of(timer, struct server, idle);
	uint64_t needed_ms = cm_service_needed_ms(server->cm);

	if (needed_ms) {
		timer_set(&server->loop, timer, needed_ms);
		return;
	}
	int lock = setup_open_lock(server);

	/* The directory was deleted: no client can connect any more. */
	if (lock == -ENOENT) {
		log_info("%s is gone: leaving", server->dir);
		server_stop(server);
		return;
	}
	if (lock < 0) {
		timer_set(&server->loop, timer, LEAVE_RETRY_MS);
		return;
	}
	if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		close(lock);
		timer_set(&server->loop, timer, LEAVE_RETRY_MS);
		return;
	}
	accept_some(server, server->uverbs.fd, conn_open, &server->devices.device[0]);
	for (uint32_t i = 1; i < server->devices.count; i++)
		accept_some(server, server->devices.device[i].listener.fd, conn_open,
			    &server->devices.device[i]);
	accept_some(server, server->rdma_cm.fd, open_cm, NULL);
	accept_some(server, server->ctl.fd, open_ctl, NULL);
	if (!is_idle(server)) {
		close(lock);
		return;
	}
	log_info("no clients for %lld ms: leaving", (long long)server->config.idle_ms);
	server->lock_fd = lock;
	server_stop(server);
}

static void on_signal(struct watch *watch, uint32_t events)
{
	struct server *server = container_of(watch, struct server, signals);
	struct signalfd_siginfo info;

	(void)events;
	if (read(watch->fd, &info, sizeof(info)) != sizeof(info))
		return;
	log_info("signal %u: leaving", info.ssi_signo);
	server_stop(server);
}

static void cut_all(struct server *server)
{
	udp_slots_leave(&server->wire);
	while (!list_empty(&server->conns))
		conn_close(container_of(server->conns.next, struct conn, node));
	ending_finish(server);
	ctl_close_all(server);
	capture_close_all(server);
}

int server_run(const struct server_options *options)
{
	/* Static: too large for a stack that may be small. */
	static struct server server;

	server.uverbs.ready = on_uverbs;
	server.rdma_cm.ready = on_rdma_cm;
	server.ctl.ready = on_ctl;
	server.node_ready = on_node;
	server.uverbs.stranger = server.rdma_cm.stranger = server.ctl.stranger = true;
	server.signals.ready = on_signal;
	timer_init(&server.idle, on_idle);
	timer_init(&server.accept_again, on_accept_again);
	int err = server_setup(&server, options);

	if (err)
		return err;
	server_left(&server);
	log_info("serving in %s", server.dir);
	err = loop_run(&server.loop);
	if (err)
		log_error("waiting for events failed: %s", strerror(-err));
	cut_all(&server);
	setup_undo(&server);
	return err;
}
