/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding or starting verbenad.
 *
 * There is one daemon for each directory. A process that starts one holds an exclusive flock on
 * `lock` from before its last check of the socket until the new daemon reports that it listens; the
 * daemon takes the same lock for its decision to leave. Other processes wait for the lock, then
 * find the daemon.
 *
 * The program must not notice: the child that becomes the daemon is made without SIGCHLD (the
 * program's wait() doesn't see it, its handler isn't called), inherits no descriptor and no signal
 * state, and ends up as no child of the program. Between clone and exec there are only system
 * calls, because other threads may have held any lock at that moment.
 */
#include "client/start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/rundir.h"

/* READY_TIMEOUT_MS is long for machines with many programs and few processors. */
enum { READY_TIMEOUT_MS = 20000, LAUNCH_TRIES = 10 };

/* The daemon's descriptors: 0 and 1 are /dev/null, 2 is the log, READY_FD the ready pipe. */
enum { READY_FD = 3, FIRST_FREE_FD = 4 };
#define READY_FD_TEXT "3"

/* The byte on the ready pipe: READY; GAVE_UP, after the daemon has logged why; or EXEC_FAILED plus
 * the errno of exec. Without a byte the daemon was killed. */
enum { READY = '1', GAVE_UP = '0', EXEC_FAILED = 0x80 };

/* ------------------------------------------------------------------ connecting */

/* Moves a descriptor above the standard ones: a program that closed its own would otherwise print
 * into a socket that got number 1. */
static int above_standard(int fd)
{
	if (fd > STDERR_FILENO || fd < 0)
		return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int err = -errno;

	sys_close(fd);
	return moved < 0 ? err : moved;
}

static int try_connect(const char *dir, const char *node)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", dir, node ? node : "uverbs0");

	if (n < 0 || n >= (int)sizeof(a.sun_path))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	int err;

	do
		err = sys_connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
	while (err == -EINTR);
	if (err) {
		sys_close(fd);
		return err;
	}
	return above_standard(fd);
}

static bool socket_lacks_listener(int err)
{
	return err == -ENOENT || err == -ECONNREFUSED;
}

/* ------------------------------------------------------------------ starting */

/* Writes the path of the library or program that has this code. A program's name is what its caller
 * wrote, without a directory when PATH was searched, so the kernel is asked for it. */
static int own_file(char path[PATH_MAX])
{
	const struct link_map *map = NULL;
	Dl_info info;

	if (!dladdr1((void *)(uintptr_t)own_file, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return -ENOENT;
	return realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", path) ? 0 : -ENOENT;
}

/* Writes verbenad's path: $VERBENA_DAEMON, or its place relative to this library or program. */
static int daemon_find_program(char *path, size_t len)
{
	static const char *const places[] = {"../bin/verbenad", "../../libexec/verbena/verbenad",
					     "verbenad", "../libexec/verbena/verbenad"};
	const char *env = env_get("VERBENA_DAEMON");
	char self[PATH_MAX];

	if (env && *env) {
		if (!realpath(env, path))
			return -errno;
		return access(path, X_OK) == 0 ? 0 : -errno;
	}
	if (own_file(self))
		return -ENOENT;
	const char *dir = dirname(self);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int n = snprintf(path, len, "%s/%s", dir, places[i]);

		if (n > 0 && (size_t)n < len && access(path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

struct launch {
	char path[PATH_MAX];
	const char *dir;
	char **environment; /* the array is allocated here, the strings are the program's */
	int null_fd, log_fd, ready_fd, wait_fd; /* all above the daemon's descriptors */
};

/* Copies the program's environment without the variables that would load its preloaded libraries
 * into the daemon. */
static char **daemon_environment(void)
{
	size_t count = 0, kept = 0;

	while (environ && environ[count])
		count++;
	char **copy = calloc(count + 1, sizeof(*copy));

	for (size_t i = 0; copy && i < count; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "LD_AUDIT=", 9))
			copy[kept++] = environ[i];
	return copy;
}

/* Like fork(), but without SIGCHLD, without handlers, and with nothing to clean up in the child. */
static pid_t clone_quietly(void)
{
	return (pid_t)syscall(SYS_clone, 0L, NULL, NULL, NULL, 0L);
}

static void launch_close_inherited(void)
{
	if (close_range(FIRST_FREE_FD, ~0u, 0) == 0)
		return;
	for (int fd = FIRST_FREE_FD; fd < 65536; fd++)
		sys_close(fd);
}

/* Ends the process by a system call, past wrappers of _exit() (a sanitizer's would flush the
 * program's output once more). */
static _Noreturn void launch_leave(int status)
{
	for (;;)
		syscall(SYS_exit_group, status);
}

/* Runs in the grandchild: becomes the daemon. System calls only. */
static void exec_daemon(const struct launch *l)
{
	char *const argv[] = {(char *)"verbenad",   (char *)"--runtime-dir", (char *)l->dir,
			      (char *)"--ready-fd", (char *)READY_FD_TEXT,   NULL};
	sigset_t none;

	dup2(l->null_fd, STDIN_FILENO);
	dup2(l->null_fd, STDOUT_FILENO);
	dup2(l->log_fd, STDERR_FILENO);
	dup2(l->ready_fd, READY_FD);
	launch_close_inherited();
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(077);
	/* Sets all three ids, so that no other user may send the daemon signals. */
	gid_t group = getegid();
	uid_t user = geteuid();

	if (syscall(SYS_setresgid, group, group, group) < 0 ||
	    syscall(SYS_setresuid, user, user, user) < 0)
		goto failed;
	if (chdir("/") == 0)
		execve(l->path, argv, l->environment);
failed:;
	unsigned char failed = (unsigned char)(EXEC_FAILED | errno);

	if (sys_write(READY_FD, &failed, 1) < 0)
		launch_leave(126);
	launch_leave(127);
}

/* Signals stay blocked from before the first clone until exec_daemon() has reset their handlers. */
static int launch_spawn(const struct launch *l)
{
	sigset_t all, old;
	pid_t child;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	child = clone_quietly();
	if (child == 0) {
		setsid();
		if (clone_quietly() == 0)
			exec_daemon(l);
		launch_leave(0);
	}
	int err = child < 0 ? -errno : 0;

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (child > 0)
		while (sys_waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR)
			;
	return err;
}

/* Waits for the ready byte. -ENODEV: the daemon gave up; -ESRCH: it was killed. */
static int wait_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	unsigned char byte;
	ssize_t n;

	do
		n = sys_poll(&p, 1, READY_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ETIMEDOUT;
	do
		n = sys_read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		return -ESRCH;
	if (byte == GAVE_UP)
		return -ENODEV;
	return byte == READY ? 0 : -(byte & ~EXEC_FAILED);
}

/* Moves `fd` to a number that the daemon's descriptors don't use. Takes `fd` over. */
static int move_up(int fd)
{
	if (fd < 0)
		return -errno;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
	int err = -errno;

	sys_close(fd);
	return moved < 0 ? err : moved;
}

static void launch_close(struct launch *l)
{
	int *const fds[] = {&l->null_fd, &l->log_fd, &l->ready_fd, &l->wait_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (*fds[i] >= 0)
			sys_close(*fds[i]);
	free(l->environment);
}

/* Opens the log for appending. A daemon without a log (on a full disk) is better than none. */
static int open_log(const char *dir)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/log", dir), fd;

	if (n < 0 || n >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = move_up(sys_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (fd >= 0)
		return fd;
	log_warn("the daemon will have no log: can't open %s: %s", path, strerror(-fd));
	return move_up(sys_open("/dev/null", O_WRONLY | O_CLOEXEC));
}

static int launch_open(struct launch *l, const char *dir)
{
	int pair[2];

	l->dir = dir;
	l->null_fd = l->log_fd = l->ready_fd = l->wait_fd = -1;
	l->environment = daemon_environment();
	if (!l->environment)
		return -ENOMEM;
	l->null_fd = move_up(sys_open("/dev/null", O_RDWR | O_CLOEXEC));
	if (l->null_fd < 0)
		return l->null_fd;
	l->log_fd = open_log(dir);
	if (l->log_fd < 0)
		return l->log_fd;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	l->wait_fd = pair[0];
	l->ready_fd = move_up(pair[1]);
	return l->ready_fd < 0 ? l->ready_fd : 0;
}

static int launch_daemon(struct launch *l, const char *dir)
{
	int err = launch_open(l, dir);

	if (!err)
		err = launch_spawn(l);
	if (!err) {
		sys_close(l->ready_fd); /* or the pipe would never end */
		l->ready_fd = -1;
		err = wait_ready(l->wait_fd);
	}
	launch_close(l);
	return err;
}

/* Whether the file system of the directory is full: then the daemon can't log why it failed,
 * because its log is there as well. */
static bool is_full(const char *dir)
{
	struct statvfs fs;

	return statvfs(dir, &fs) == 0 &&
	       ((fs.f_blocks && !fs.f_bavail) || (fs.f_files && !fs.f_favail));
}

static void launch_explain(const struct launch *l, int err)
{
	if (err == -ESRCH)
		log_error("verbenad (%s) ended at once, %d times; %s/log may say why, else it was "
			  "killed",
			  l->path, LAUNCH_TRIES, l->dir);
	else if (err == -ENODEV && is_full(l->dir))
		log_error("verbenad (%s) ended at once: the file system of %s is full; make room "
			  "there or set VERBENA_RUNTIME_DIR",
			  l->path, l->dir);
	else if (err == -ENODEV)
		log_error("verbenad (%s) ended at once; %s/log says why", l->path, l->dir);
	else if (err == -ETIMEDOUT)
		log_error("verbenad (%s) isn't ready after %d s; see %s/log", l->path,
			  READY_TIMEOUT_MS / 1000, l->dir);
	else
		log_error("can't start verbenad (%s): %s", l->path, strerror(-err));
}

static bool daemon_listens(const char *dir)
{
	int fd = try_connect(dir, NULL);

	if (fd >= 0)
		sys_close(fd);
	return fd >= 0;
}

/* The caller holds the lock, and no daemon listened. Returns a connection or -errno. A daemon that
 * is killed before this process has connected is started again. */
static int start_and_connect(const char *dir, const char *node)
{
	struct launch l;
	int err = daemon_find_program(l.path, sizeof(l.path));

	if (err) {
		log_error("can't find verbenad (%s); set VERBENA_DAEMON to its path",
			  strerror(-err));
		return err == -ENOENT ? -ENODEV : err;
	}
	int fd = -ENODEV;

	/* It is connected to also after a failure: a daemon that was started by hand may listen by
	 * now. */
	for (int i = 0; i < LAUNCH_TRIES; i++) {
		err = launch_daemon(&l, dir);
		fd = try_connect(dir, node);
		if (!err && socket_lacks_listener(fd) && !daemon_listens(dir))
			err = -ESRCH; /* killed since it was ready */
		if (fd >= 0 || err != -ESRCH)
			break;
	}
	if (fd < 0 && err)
		launch_explain(&l, err);
	return fd < 0 && err ? err == -ESRCH ? -ENODEV : err : fd;
}

static int start_locked(const char *dir, const char *node)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/lock", dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int lock = sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (lock < 0) {
		int err = -errno;

		log_error("can't open %s: %s", path, strerror(-err));
		return err;
	}
	int err = 0;

	do
		err = flock(lock, LOCK_EX) < 0 ? -errno : 0;
	while (err == -EINTR);
	int fd = err ? err : try_connect(dir, node); /* one may listen by now */

	if (!err && socket_lacks_listener(fd))
		fd = start_and_connect(dir, node);
	sys_close(lock);
	return fd;
}

/* The directory that start_stay() fixed; NULL: none yet. */
static struct mutex kept_lock = MUTEX_INITIALIZER(RANK_DAEMON_KEPT);
static char *kept GUARDED_BY(kept_lock);
FORK_KEEP(kept_lock);

void start_stay(void)
{
	char dir[PATH_MAX];

	if (rundir_find(dir, sizeof(dir)))
		return;
	char *mine = strdup(dir);

	if (!mine)
		return;
	mutex_take(&kept_lock);
	char *before = kept;

	kept = mine;
	mutex_give(&kept_lock);
	free(before);
}

int start_directory(char *buf, size_t len)
{
	mutex_take(&kept_lock);
	int n = kept ? snprintf(buf, len, "%s", kept) : 0;

	mutex_give(&kept_lock);
	if (n)
		return (size_t)n < len ? 0 : -ENAMETOOLONG;
	return rundir_find(buf, len);
}

bool start_is_there(void)
{
	char dir[PATH_MAX];

	return !start_directory(dir, sizeof(dir)) && daemon_listens(dir);
}

/* Prints numbers, not names: looking names up would call the program's name service. */
static void explain_access(const char *dir, const char *node)
{
	char path[PATH_MAX + 64];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/%s", dir, node);

	if (n < 0 || n >= (int)sizeof(path) || stat(path, &st) < 0)
		log_error("no permission to open %s: ask the administrator of this machine for it",
			  path);
	else
		log_error(
			"no permission to open %s (mode %04o, user %u, group %u): join the group, "
			"or ask the administrator of this machine",
			path, (unsigned int)st.st_mode & 07777, (unsigned int)st.st_uid,
			(unsigned int)st.st_gid);
}

/* Whether this process may start a daemon for a directory without one: a directory of another user
 * is that user's to serve. */
static bool daemon_may_start(const char *dir)
{
	struct stat st;

	/* The daemon would be a child of the program's caller, which may send it signals and has
	 * chosen its limits, and would then serve all programs of this user. */
	if (env_is_callers()) {
		log_error("no daemon serves in %s, and this program has rights that its caller "
			  "doesn't have (set-user-ID, say), so it starts none: start verbenad, or "
			  "any ordinary program, as user %u first",
			  dir, (unsigned int)geteuid());
		return false;
	}

	if (geteuid() == 0 || stat(dir, &st) < 0 || st.st_uid == geteuid())
		return true;
	log_error("no daemon serves in %s, and only user %u can start one there: ask the "
		  "administrator of this machine, or set VERBENA_RUNTIME_DIR",
		  dir, (unsigned int)st.st_uid);
	return false;
}

static _Thread_local bool join_only;

void start_join_only(bool only)
{
	join_only = only;
}

int start_connect(const char *node)
{
	char dir[PATH_MAX];
	int err = start_directory(dir, sizeof(dir));

	if (!err) {
		err = rundir_check(dir);
		if (err == -ENOENT)
			err = rundir_make(dir);
	}
	if (err)
		return err;
	int fd = try_connect(dir, node);

	if (fd >= 0 && (err = rundir_netns_check(dir)) != 0) {
		sys_close(fd);
		return err;
	}
	if (fd == -EACCES)
		explain_access(dir, node ? node : "uverbs0");
	else if (fd == -ENAMETOOLONG)
		log_error("the run-time directory's name is too long for a socket: %s", dir);
	else if (socket_lacks_listener(fd) && !join_only)
		fd = daemon_may_start(dir) ? start_locked(dir, node)
		     : env_is_callers()	   ? -EPERM
					   : -ENODEV;
	return fd;
}

void start_pause(int tries)
{
	struct timespec pause = {0};

	if (tries < 2) /* it left because it was idle, say */
		return;
	pause.tv_nsec = 1000000l << (tries - 2);
	while (sys_nanosleep(&pause, &pause) < 0 && errno == EINTR)
		;
}

int start_one(void)
{
	int fd = start_connect(NULL);

	if (fd < 0)
		return fd;
	sys_close(fd);
	return 0;
}
