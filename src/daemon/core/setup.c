/* SPDX-License-Identifier: BSD-2-Clause */
/* See setup.h. */
#include "daemon/core/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#include "daemon/cm/cm_service.h"
#include "daemon/core/activation.h"
#include "daemon/core/attach.h"
#include "daemon/core/closer.h"
#include "daemon/core/return.h"
#include "daemon/core/server.h"
#include "daemon/net/mcast.h"
#include "daemon/net/slot_source.h"
#include "proto/cm.h"

#define PID_FILE "verbenad.pid"

/* PREDECESSOR_S: so long this daemon waits for a predecessor that is leaving. */
enum { PREDECESSOR_S = 5, BACKLOG = 4096, FILES_A_CONNECTION = 8 };

int setup_open_lock(struct server *server)
{
	int fd = openat(server->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? -errno : fd;
}

/* ------------------------------------------------------------------ one daemon a directory */

/* Chooses the configured directory, that of the sockets that were handed in, or the usual one. */
static int choose_directory(struct server *server, const struct activation *given)
{
	const char *wanted = server->config.runtime_dir;

	if (given->dir[0] && wanted[0] && strcmp(given->dir, wanted) != 0) {
		log_error(
			"the sockets that were handed in are in %s, but the run-time directory is "
			"%s: change runtime-dir or verbenad.socket",
			given->dir, wanted);
		return -EINVAL;
	}
	if (given->dir[0])
		wanted = given->dir;
	if (!wanted[0])
		return rundir_find(server->dir, sizeof(server->dir));
	strcpy(server->dir, wanted);
	return 0;
}

/* Makes a directory that other users may enter; rundir_make() checks the owner of an existing
 * one. */
static int directory_make_shared(const char *path)
{
	mode_t mask = umask(022);
	int err = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;

	umask(mask);
	return err;
}

static int open_directory(struct server *server, const struct activation *given)
{
	bool shared = config_is_shared(&server->config);
	struct stat st;
	int err = choose_directory(server, given);

	if (!err && shared)
		err = directory_make_shared(server->dir);
	if (!err)
		err = rundir_make(server->dir);
	if (err)
		return err;
	server->dir_fd = open(server->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (server->dir_fd < 0)
		return -errno;
	if (shared && fstat(server->dir_fd, &st) == 0 && !(st.st_mode & 011))
		log_warn(
			"others may not enter %s (mode %04o), whatever the mode of the nodes says: "
			"chmod 0755 it",
			server->dir, (unsigned int)st.st_mode & 07777);
	return 0;
}

static int lock_file_wait(int fd)
{
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Started by hand: holds `lock` until the socket is there, as a starter in the library does. */
static int lock_start(struct server *server)
{
	server->lock_fd = setup_open_lock(server);
	return server->lock_fd < 0 ? server->lock_fd : lock_file_wait(server->lock_fd);
}

static bool node_has_listener(const struct server *server)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/" DEVICE_NODE, server->dir);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes = fd >= 0 && n > 0 && n < (int)sizeof(a.sun_path) &&
		   connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

	if (fd >= 0)
		close(fd);
	return yes;
}

static void on_alarm(int signal)
{
	(void)signal; /* interrupts flock() */
}

/* Takes the lock for the daemon's lifetime. A predecessor that was told to stop may still hold it
 * for a moment. */
static int lock_life(struct server *server)
{
	const struct sigaction action = {.sa_handler = on_alarm};
	int fd = openat(server->dir_fd, PID_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	int err = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;

	if (err == -EWOULDBLOCK && (server->keep_uverbs || !node_has_listener(server))) {
		sigaction(SIGALRM, &action, NULL);
		alarm(PREDECESSOR_S);
		err = flock(fd, LOCK_EX) < 0 ? -EWOULDBLOCK : 0;
		alarm(0);
	}
	if (err) {
		close(fd);
		return err == -EWOULDBLOCK ? -EEXIST : err;
	}
	server->pid_fd = fd;
	char text[32];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	/* The pid is for people to read only, so a full disk doesn't matter. */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
		log_warn("%s/" PID_FILE " can't be written: %s", server->dir, strerror(errno));
	return 0;
}

static int take_directory(struct server *server, const struct server_options *options,
			  const struct activation *given)
{
	int err = open_directory(server, given);

	if (!err && options->ready_fd < 0)
		err = lock_start(server);
	if (!err)
		err = lock_life(server);
	if (err == -EEXIST)
		log_error("a daemon serves %s already", server->dir);
	else if (err)
		log_error("can't serve in %s: %s", server->dir, strerror(-err));
	return err;
}

/* ------------------------------------------------------------------ sockets */

/* Sets the owner before the mode: the mode then never applies to the old owner and group. */
static int apply_rule(const struct server *server, const char *name, const struct node_rule *rule)
{
	bool given = rule->owner != (uid_t)-1 || rule->group != (gid_t)-1;

	if (given &&
	    fchownat(server->dir_fd, name, rule->owner, rule->group, AT_SYMLINK_NOFOLLOW) < 0) {
		int err = -errno;

		log_error(
			"can't give %s/%s to user %d, group %d: %s (only root, or a member of the "
			"group, can)",
			server->dir, name, (int)rule->owner, (int)rule->group, strerror(-err));
		return err;
	}
	return fchmodat(server->dir_fd, name, rule->mode, 0) < 0 ? -errno : 0;
}

static int bind_socket(const struct server *server, const char *name, int type,
		       const struct node_rule *rule)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", server->dir, name);

	if (n < 0 || n >= (int)sizeof(a.sun_path))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	/* Removes the socket of a daemon that was killed; this daemon holds `verbenad.pid`, so it
	 * isn't in use. */
	if (unlinkat(server->dir_fd, name, 0) < 0 && errno != ENOENT)
		log_warn("can't remove the old %s/%s: %s", server->dir, name, strerror(errno));
	mode_t mask = umask(0177);
	int err = bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;

	umask(mask);
	if (!err)
		err = apply_rule(server, name, rule);
	if (!err && listen(fd, BACKLOG) < 0)
		err = -errno;
	if (err)
		close(fd);
	return err ? err : fd;
}

/* Listens at `given`, the socket that was handed in, or at a new one if that is -1. Takes `given`
 * over. */
static int listen_at(struct server *server, struct watch *watch, const char *name, int type,
		     const struct node_rule *rule, int *given)
{
	int fd = *given >= 0 ? *given : bind_socket(server, name, type, rule);

	*given = -1;
	int err = fd < 0 ? fd : loop_add(&server->loop, watch, fd, EPOLLIN);

	if (err && fd >= 0)
		close(fd);
	if (err == -ENAMETOOLONG)
		log_error("the run-time directory's name is too long for a socket: %s",
			  server->dir);
	else if (err)
		log_error("can't listen at %s/%s: %s", server->dir, name, strerror(-err));
	return err;
}

/* ------------------------------------------------------------------ the process itself */

static int watch_signals(struct server *server)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);

	return fd < 0 ? -errno : loop_add(&server->loop, &server->signals, fd, EPOLLIN);
}

/* Raises the limits that the program which happened to start the daemon had set for itself. */
static void raise_limits(struct server *server)
{
	static const int kinds[] = {RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE,
				    RLIMIT_NOFILE};
	struct rlimit limit = {0};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (getrlimit(kinds[i], &limit) < 0 || limit.rlim_cur == limit.rlim_max)
			continue;
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(kinds[i], &limit) < 0)
			log_warn("can't raise a limit of resources: %s", strerror(errno));
	}
	/* Each attached process costs several descriptors. */
	getrlimit(RLIMIT_NOFILE, &limit);
	rlim_t max = limit.rlim_cur / FILES_A_CONNECTION;

	server->connections_max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
	server->pools.files = server->connections_max;
}

/* The first link's number: the time, so that no number of an earlier daemon is used again. */
static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t namespace_number(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static void server_init(struct server *server, const struct server_options *options)
{
	server->loop.epoll = -1;
	server->dir_fd = server->lock_fd = server->pid_fd = -1;
	server->uverbs.fd = server->rdma_cm.fd = -1;
	server->ctl.fd = server->signals.fd = -1;
	server->roster.fd = server->routes.fd = -1;
	server->last_link_id = realtime_ns();
	server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	server->config = options->config;
	server->started_ms = now_ms();
	server->pid_ns = namespace_number("/proc/self/ns/pid");
	server->net_ns = namespace_number("/proc/self/ns/net");
	list_init(&server->conns);
	list_init(&server->ctls);
	list_init(&server->users);
	list_init(&server->captures);
	ending_init(server);
	share_init(&server->share);
	attach_init(server);
	slot_sources_init(server);
	udp_slots_init(&server->wire, !server->config.wire, options->ready_fd < 0);
	raise_limits(server);
}

/* A daemon that a program started reports to that program, not to the program's service manager. */
static void say_ready(int fd)
{
	if (fd < 0) {
		activation_tell("READY=1");
		return;
	}
	if (write(fd, "1", 1) < 0)
		log_debug("the program that started this daemon doesn't wait for it any more");
	close(fd);
}

void server_give_up(int ready_fd)
{
	if (ready_fd >= 0 && write(ready_fd, "0", 1) < 0)
		log_debug("the program that started this daemon doesn't wait for it any more");
}

int setup_listen_device(struct server *server, struct device *device)
{
	int none = -1;

	device->listener = (struct watch){.fd = -1, .stranger = true, .ready = server->node_ready};
	return listen_at(server, &device->listener, device->node, SOCK_SEQPACKET,
			 &server->config.node, &none);
}

static int listen_at_all(struct server *server, struct activation *given)
{
	const struct config *config = &server->config;
	int err = rundir_netns_write(server->dir_fd);

	if (err)
		log_warn("%s/" RUNDIR_NETNS " can't be written (%s): programs of other network "
			 "namespaces won't be told that they are wrong here",
			 server->dir, strerror(-err));
	err = listen_at(server, &server->ctl, "ctl", SOCK_STREAM, &config->ctl, &given->ctl);

	if (!err)
		err = devices_listen(&server->devices);
	if (!err)
		err = listen_at(server, &server->rdma_cm, PROTO_CM_NODE, SOCK_SEQPACKET,
				&config->node, &given->rdma_cm);
	/* The first device's node comes last: a client that finds it finds the others, too. */
	return err ? err
		   : listen_at(server, &server->uverbs, DEVICE_NODE, SOCK_SEQPACKET, &config->node,
			       &given->uverbs);
}

int server_setup(struct server *server, const struct server_options *options)
{
	struct activation given;

	server_init(server, options);
	int err = activation_take(&given);

	server->keep_uverbs = given.uverbs >= 0;
	server->keep_rdma_cm = given.rdma_cm >= 0;
	server->keep_ctl = given.ctl >= 0;
	if (!err)
		err = take_directory(server, options, &given);
	if (!err)
		err = loop_init(&server->loop);
	if (err)
		goto out_undo;
	err = watch_signals(server);
	if (err) {
		log_error("can't watch for signals: %s", strerror(-err));
		goto out_undo;
	}
	err = returns_open(server);
	if (err) {
		log_error("can't keep the places of programs that are running: %s", strerror(-err));
		goto out_undo;
	}
	err = mcast_open(server);
	if (err) {
		log_error("can't make the table of multicast groups: %s", strerror(-err));
		goto out_undo;
	}
	err = xrc_init(&server->xrc);
	if (err) {
		log_error("no memory for XRC domains");
		goto out_undo;
	}
	route_cache_open(&server->routes);
	devices_init(&server->devices, server);
	err = cm_service_open(server);
	if (err) {
		log_error("no memory for the connection manager");
		goto out_undo;
	}
	if (given.park >= 0 && udp_slots_adopt(&server->wire, given.park) == 0)
		given.park = -1;
	err = listen_at_all(server, &given);
	if (err)
		goto out_undo;
	activation_close(&given); /* the sockets that weren't used */
	say_ready(options->ready_fd);
	if (server->lock_fd >= 0)
		close(server->lock_fd);
	server->lock_fd = -1;
	return 0;

out_undo:
	server_give_up(options->ready_fd);
	activation_close(&given);
	setup_undo(server);
	return err;
}

static void close_watch(struct server *server, struct watch *watch, const char *name)
{
	int fd = watch->fd;

	if (fd < 0)
		return;
	loop_remove(&server->loop, watch);
	if (name)
		unlinkat(server->dir_fd, name, 0);
	if (watch->stranger) /* a listener */
		closer_close(geteuid(), &fd, 1);
	else
		close(fd);
}

void setup_unlisten_device(struct server *server, struct device *device)
{
	close_watch(server, &device->listener, device->node);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void setup_undo(struct server *server)
{
	close_watch(server, &server->uverbs, server->keep_uverbs ? NULL : DEVICE_NODE);
	close_watch(server, &server->rdma_cm, server->keep_rdma_cm ? NULL : PROTO_CM_NODE);
	close_watch(server, &server->ctl, server->keep_ctl ? NULL : "ctl");
	cm_service_close(server);
	slot_sources_close(server);
	mcast_close(server);
	xrc_fini(&server->xrc);
	for (uint32_t i = 1; server->devices.server && i < server->devices.count; i++)
		setup_unlisten_device(server, &server->devices.device[i]);
	route_cache_close(&server->routes);
	if (server->devices.server)
		devices_fini(&server->devices);
	close_watch(server, &server->signals, NULL);
	timer_cancel(&server->idle);
	timer_cancel(&server->accept_again);
	timer_cancel(&server->resume);
	returns_close(server);
	slots_fini(&server->slots);
	udp_slots_close(&server->wire);
	loop_fini(&server->loop);
	if (server->pid_fd >= 0) /* otherwise the directory is another daemon's */
		unlinkat(server->dir_fd, RUNDIR_NETNS, 0);
	if (server->pid_fd >= 0 && ftruncate(server->pid_fd, 0) < 0)
		log_debug("%s/" PID_FILE " can't be emptied: %s", server->dir, strerror(errno));
	close_fd(&server->spare_fd);
	close_fd(&server->pid_fd);
	close_fd(&server->lock_fd);
	close_fd(&server->dir_fd);
}
