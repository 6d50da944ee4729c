/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding or starting verbenad.
 *
 * One daemon a directory: whoever starts one holds an exclusive flock on `lock` from before its
 * last look at the socket until the new daemon says that it listens; the daemon takes the same lock
 * for its decision to leave. The child between fork and exec uses async-signal-safe calls only.
 */
#include "client/start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "client/rundir.h"

enum { READY_TIMEOUT_MS = 10000 };

static int try_connect(const char *dir, const char *node)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", dir, node ? node : "uverbs0");

	if (n < 0 || n >= (int)sizeof(a.sun_path))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static bool nobody_there(int err)
{
	return err == -ENOENT || err == -ECONNREFUSED;
}

/* verbenad's path: $VERBENA_DAEMON, or where it is relative to this library or program. */
static int find_daemon(char *path, size_t len)
{
	static const char *const places[] = { "../bin/verbenad", "../../libexec/verbena/verbenad",
					      "verbenad", "../libexec/verbena/verbenad" };
	const char *env = getenv("VERBENA_DAEMON");
	char self[PATH_MAX];
	Dl_info info;

	if (env && *env) {
		snprintf(path, len, "%s", env);
		return access(path, X_OK) == 0 ? 0 : -errno;
	}
	if (!dladdr((void *)find_daemon, &info) || !info.dli_fname || !realpath(info.dli_fname, self))
		return -ENOENT;
	char *dir = dirname(self);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int n = snprintf(path, len, "%s/%s", dir, places[i]);

		if (n > 0 && (size_t)n < len && access(path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

/* In the child: become a daemon process. Only async-signal-safe calls. */
static void exec_daemon(const char *path, const char *dir, int log_fd, int ready_fd)
{
	char ready[2] = { '0' + ready_fd, 0 };
	char *const argv[] = { (char *)"verbenad", (char *)"--runtime-dir", (char *)dir,
			       (char *)"--ready-fd", ready, NULL };
	sigset_t none;

	setsid();
	if (fork() != 0)
		_exit(0); /* the daemon is nobody's child */
	int null = open("/dev/null", O_RDWR);

	/* 0, 1: null; 2: log; 3: ready. The order keeps a source from being overwritten. */
	int moved_log = fcntl(log_fd, F_DUPFD, 10), moved_ready = fcntl(ready_fd, F_DUPFD, 10);

	ready[0] = '3';
	dup2(null, 0);
	dup2(null, 1);
	dup2(moved_log, 2);
	dup2(moved_ready, 3);
	close_range(4, ~0u, 0);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir("/") == 0)
		execv(path, argv);
	_exit(127);
}

/* Waits until the daemon writes its byte; the pipe's end means that it failed. */
static int wait_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;
	int n;

	do
		n = poll(&p, 1, READY_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ETIMEDOUT;
	return read(fd, &byte, 1) == 1 ? 0 : -ECHILD;
}

static int launch(const char *dir)
{
	char path[PATH_MAX], log_path[RUNDIR_MAX + 16];
	int ready[2], err = find_daemon(path, sizeof(path));

	if (err) {
		log_error("can't find verbenad (%s); set VERBENA_DAEMON to its path",
			  strerror(-err));
		return err;
	}
	snprintf(log_path, sizeof(log_path), "%.*s/log", RUNDIR_MAX, dir);
	int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (log_fd < 0 || pipe2(ready, O_CLOEXEC) < 0) {
		err = -errno;
		log_error("can't start verbenad in %s: %m", dir);
		if (log_fd >= 0)
			close(log_fd);
		return err;
	}
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid_t child = fork();

	if (child == 0)
		exec_daemon(path, dir, log_fd, ready[1]);
	err = child < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	close(ready[1]);
	close(log_fd);
	if (child > 0)
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	if (!err)
		err = wait_ready(ready[0]);
	close(ready[0]);
	if (err)
		log_error("verbenad (%s) didn't start: %s; see %s", path, strerror(-err), log_path);
	return err;
}

static int start_locked(const char *dir, const char *node)
{
	char path[RUNDIR_MAX + 16];

	snprintf(path, sizeof(path), "%.*s/lock", RUNDIR_MAX, dir);
	int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (lock < 0)
		return -errno;
	int err = 0;

	while (flock(lock, LOCK_EX) < 0 && !err)
		err = errno == EINTR ? 0 : -errno;
	int fd = err ? err : try_connect(dir, node); /* somebody else was quicker? */

	if (!err && nobody_there(fd)) {
		err = launch(dir);
		fd = err ? err : try_connect(dir, node);
	}
	close(lock);
	return fd;
}

int start_connect(const char *node)
{
	char dir[RUNDIR_MAX];
	int err = rundir_find(dir, sizeof(dir));

	if (err)
		return err;
	int fd = try_connect(dir, node);

	if (nobody_there(fd)) {
		err = rundir_make(dir);
		fd = err ? err : start_locked(dir, node);
	}
	if (fd == -EACCES)
		log_error("no permission to open %s/%s: ask its administrator for the group", dir,
			  node ? node : "uverbs0");
	return fd;
}
