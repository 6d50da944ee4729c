/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that child processes use. See preload.h and verbena-rsocket(7): with
 * RDMAV_FORK_SAFE=1 at both ends.
 *
 * A queue pair can't be handed to a child, so a connection begins as a TCP connection. At the first
 * use of an accepted connection, the server or its child listens as an rsocket at the same port,
 * announces that by four zero bytes over TCP, accepts, and continues with the rsocket. The client
 * waits for these bytes at its own first use, and connects. Upstream's library does the same.
 *
 * Only one process of a host listens like that at a time: the lock is on a file, so the kernel
 * releases it when its holder dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/own_dir.h"
#include "rspreload/preload.h"

/* How long the server waits for the client's rsocket connection after its announcement. */
enum { CLIENT_CONNECT_TIMEOUT_MS = 10000 };

bool fork_wanted(void)
{
	static _Atomic int known = -1;
	int wanted = atomic_load_explicit(&known, memory_order_relaxed);

	if (wanted < 0) {
		const char *text = env_get("RDMAV_FORK_SAFE");

		wanted = text && atoi(text) != 0;
		atomic_store_explicit(&known, wanted, memory_order_relaxed);
	}
	return wanted > 0;
}

static struct mutex change_lock = MUTEX_INITIALIZER(RANK_PRELOAD_FORKED);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

FORK_KEEP(change_lock);

/* Makes the number stand for the rsocket; closes its former socket. */
static void socket_become_rs(int fd, int rs)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int flags = real.fcntl(fd, F_GETFL, 0);

	options_to_rsocket(fd, rs);
	RS(rfcntl(rs, F_SETFL, (long)(flags & O_NONBLOCK)));
	real.shutdown(fd, SHUT_RDWR);
	if (null >= 0) {
		real.dup2(null, fd);
		real.close(null);
	}
	table_enter(fd, rs);
}

/* Whether only this user can create or open files in the directory. */
static bool is_private(const char *path)
{
	struct stat st;

	return *path == '/' && lstat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid() && !(st.st_mode & 077);
}

/* Finds the directory for the lock file that the user's programs share. In a directory that all
 * users may write to, another user may have taken the name: then there is none, and the connection
 * stays a TCP connection. */
static bool socket_path_find(char *path, size_t size)
{
	char name[64];
	const char *run = env_get("XDG_RUNTIME_DIR");

	if (run && is_private(run))
		return snprintf(path, size, "%s", run) < (int)size;
	snprintf(name, sizeof(name), "verbena-rsocket-%u", geteuid());
	if (!own_dir_find(path, size, "/tmp", name) &&
	    (mkdir(path, 0700) == 0 || errno == EEXIST) && is_private(path))
		return true;
	log_warn("%s isn't a directory of user %u alone (mode 0700): connections for children "
		 "can't be made; remove it, or set XDG_RUNTIME_DIR",
		 path, geteuid());
	return false;
}

static int take_host_lock(void)
{
	char place[PATH_MAX - 32], name[PATH_MAX];

	if (!socket_path_find(place, sizeof(place)))
		return -1;
	snprintf(name, sizeof(name), "%s/verbena-rsocket-fork", place);
	int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	while (fd >= 0 && flock(fd, LOCK_EX) < 0) {
		if (errno == EINTR)
			continue;
		real.close(fd);
		fd = -1;
	}
	return fd;
}

/* Makes an rsocket that listens at the port of the connection. -1: failed. */
static int listen_again(int fd)
{
	struct sockaddr_storage name = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&name;
	socklen_t size = sizeof(name);
	int on = 1;

	if (real.getsockname(fd, (struct sockaddr *)&name, &size))
		return -1;
	if (name.ss_family == AF_INET)
		in->sin_addr.s_addr = htonl(INADDR_ANY);
	else
		((struct sockaddr_in6 *)&name)->sin6_addr = in6addr_any;
	int rs = RS(rsocket(name.ss_family, SOCK_STREAM, 0));

	if (rs < 0)
		return -1;
	RS(rsetsockopt(rs, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	if (RS(rbind(rs, (struct sockaddr *)&name, size)) || RS(rlisten(rs, 1))) {
		RS(rclose(rs));
		return -1;
	}
	return rs;
}

/* Tells the client to connect, and accepts its rsocket. -1: failed. */
static int accept_again(int fd)
{
	uint32_t here = 0;
	int rs = -1, lock = take_host_lock(), listener = lock < 0 ? -1 : listen_again(fd);
	struct pollfd request = {.fd = listener, .events = POLLIN};

	if (listener >= 0 && real.send(fd, &here, sizeof(here), MSG_NOSIGNAL) == sizeof(here) &&
	    RS(rpoll(&request, 1, CLIENT_CONNECT_TIMEOUT_MS)) > 0)
		rs = RS(raccept(listener, NULL, NULL));
	if (listener >= 0)
		RS(rclose(listener));
	if (lock >= 0)
		real.close(lock);
	return rs;
}

/* Waits for the server's announcement, and connects. -1: it stays a TCP connection. */
static int connect_again(int fd)
{
	struct pollfd announcement = {.fd = fd, .events = POLLIN};
	struct sockaddr_storage name;
	socklen_t size = sizeof(name);
	uint32_t here = 1;

	/* Blocks until the server uses the connection, even if the program's socket is nonblocking,
	 * as upstream does. */
	while (real.poll(&announcement, 1, -1) < 0 && errno == EINTR)
		;
	if (real.recv(fd, &here, sizeof(here), MSG_PEEK) != sizeof(here) || here ||
	    real.getpeername(fd, (struct sockaddr *)&name, &size))
		return -1;
	int rs = RS(rsocket(name.ss_family, SOCK_STREAM, 0));

	if (rs >= 0 && RS(rconnect(rs, (struct sockaddr *)&name, size))) {
		RS(rclose(rs));
		rs = -1;
	}
	return rs;
}

static bool is_connected(int fd)
{
	struct sockaddr_storage name;
	socklen_t size = sizeof(name);

	return !real.getpeername(fd, (struct sockaddr *)&name, &size);
}

/* Turns the number's connection into an rsocket, once. */
static int socket_change(int fd)
{
	int error = errno;

	mutex_take(&change_lock);
	while (later_of(fd) == LATER_CHANGING)
		mutex_wait(&change_lock, &changed);
	enum later later = later_of(fd);
	bool mine = later == LATER_ACCEPTED || (later == LATER_CONNECTED && is_connected(fd));

	if (mine)
		later_set(fd, LATER_CHANGING);
	mutex_give(&change_lock);
	if (mine) {
		/* Without the lock: this waits for the peer, which may wait for another connection
		 * of this process. */
		int rs = later == LATER_ACCEPTED ? accept_again(fd) : connect_again(fd);

		if (rs >= 0)
			socket_become_rs(fd, rs);
		mutex_take(&change_lock);
		later_set(fd, LATER_NONE);
		pthread_cond_broadcast(&changed);
		mutex_give(&change_lock);
	}
	errno = error;
	return rs_of(fd);
}

int rs_used(int fd)
{
	int rs = rs_of(fd);

	return __builtin_expect(rs < 0 && later_of(fd) >= LATER_CONNECTED, 0) ? socket_change(fd)
									      : rs;
}

/* A client that waits for readability expects its server to send first. */
int rs_awaited(int fd, short events)
{
	int rs = rs_of(fd);

	if (__builtin_expect(rs >= 0 || later_of(fd) < LATER_CONNECTED, 1))
		return rs;
	return later_of(fd) == LATER_ACCEPTED || events & POLLIN ? socket_change(fd) : rs;
}
