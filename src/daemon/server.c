/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server: its sockets, its life. It leaves when nobody has been connected for idle_ms. The
 * decision is taken under the directory's `lock`, with the socket's queue looked at once more, so
 * that a program either reaches this daemon or finds none and starts the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "client/rundir.h"
#include "daemon/daemon.h"

struct server server;

uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void path_of(char *out, size_t len, const char *name)
{
	snprintf(out, len, "%.90s/%s", server.dir, name);
}

static int listen_on(const char *name, int type)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	path_of(a.sun_path, sizeof(a.sun_path), name);
	unlink(a.sun_path); /* a leftover: we hold the lock, nobody listens there */
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, SOMAXCONN) < 0) {
		int err = -errno;

		log_error("can't listen on %s: %m", a.sun_path);
		close(fd);
		return err;
	}
	return fd;
}

/* Accepts all that wait. Returns their number. */
static int accept_all(void)
{
	int n = 0, fd;

	while ((fd = accept4(server.uverbs.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		conn_accept(fd);
		n++;
	}
	if (errno == EMFILE || errno == ENFILE)
		log_error("no free descriptors: a program can't be served (%u connections)",
			  server.conn_count);
	return n;
}

static void on_uverbs(struct source *source, uint32_t events)
{
	(void)source;
	(void)events;
	accept_all();
}

static void on_signal(struct source *source, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	if (read(source->fd, &info, sizeof(info)) == sizeof(info))
		server.stop = true;
}

static int open_sockets(void)
{
	sigset_t set;

	server.uverbs =
		(struct source){.ready = on_uverbs, .fd = listen_on("uverbs0", SOCK_SEQPACKET)};
	server.ctl = (struct source){.ready = ctl_accept, .fd = listen_on("ctl", SOCK_STREAM)};
	if (server.uverbs.fd < 0 || server.ctl.fd < 0)
		return -EADDRINUSE;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	server.signals = (struct source){.ready = on_signal,
					 .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
	int err = loop_add(&server.uverbs, EPOLLIN);

	if (!err)
		err = loop_add(&server.ctl, EPOLLIN);
	if (!err)
		err = loop_add(&server.signals, EPOLLIN);
	return err;
}

static void raise_limits(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static void write_pid(void)
{
	char path[128];

	path_of(path, sizeof(path), "verbenad.pid");
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		log_warn("can't write %s: %m", path);
	if (fd >= 0)
		close(fd);
}

static void unlink_all(void)
{
	static const char *const names[] = {"uverbs0", "ctl", "verbenad.pid"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		path_of(path, sizeof(path), names[i]);
		unlink(path);
	}
}

/* Nobody was here for a while: true when we may go. Takes the starters' lock; if one of them holds
 * it, a program is about to come. */
static bool may_leave(void)
{
	char path[128];

	path_of(path, sizeof(path), "lock");
	int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) {
		if (lock >= 0)
			close(lock);
		return false;
	}
	/* Whoever connected before this point is in the queue. */
	bool leave = accept_all() == 0;

	if (leave)
		unlink_all();
	if (leave && accept_all()) {
		/* Connected between our look and the unlink: they found us, so they are served. */
		close(server.uverbs.fd);
		close(server.ctl.fd);
		leave = open_sockets() != 0;
		write_pid();
	}
	close(lock);
	return leave;
}

static void serve(void)
{
	uint64_t idle_since = clock_ns();

	while (!server.stop) {
		uint64_t idle_ms = (clock_ns() - idle_since) / 1000000;
		int timeout = -1;

		if (!server.conn_count && server.idle_ms >= 0)
			timeout = idle_ms < (uint64_t)server.idle_ms
					  ? server.idle_ms - (int)idle_ms + 1
					  : 0;
		if (loop_round(timeout) < 0)
			return;
		if (server.conn_count)
			idle_since = clock_ns();
		else if (server.idle_ms >= 0 &&
			 clock_ns() - idle_since >= (uint64_t)server.idle_ms * 1000000 &&
			 may_leave())
			return;
	}
	unlink_all();
}

int server_run(const char *dir, int idle_ms, int ready_fd)
{
	snprintf(server.dir, sizeof(server.dir), "%s", dir);
	server.idle_ms = idle_ms;
	server.started_ns = clock_ns();
	server.next_link_id = 1;
	list_init(&server.conns);
	list_init(&server.processes);
	numbers_init(&server.slot_numbers, 1, LIMIT_SLOTS, LIMIT_SLOTS / 2);
	raise_limits();
	int err = loop_init();

	if (!err)
		err = rundir_make(dir);
	if (!err)
		err = open_sockets();
	if (!err)
		err = device_init(&server.device);
	if (err)
		return err;
	write_pid();
	if (ready_fd >= 0) {
		if (write(ready_fd, "1", 1) != 1)
			log_warn("whoever started us has gone");
		close(ready_fd);
	}
	serve();
	return 0;
}
