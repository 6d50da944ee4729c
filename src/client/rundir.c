/* SPDX-License-Identifier: BSD-2-Clause */
/* The run-time directory. See rundir.h. No state. */
#include "client/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/own_dir.h"
#include "base/sys.h"
#include "base/user_space.h"

/* The owner that stat() reports for users without an entry in the user namespace (the kernel's
 * default). */
#define OVERFLOW_UID 65534

#define SYSTEM_NODE RUNDIR_SYSTEM "/uverbs0"

static int path_format(char *buf, size_t len, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int path_format(char *buf, size_t len, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vsnprintf(buf, len, format, args);

	va_end(args);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/*
 * Whether a daemon listens at the system-wide socket in this network namespace: another namespace
 * is another host. /proc/net/unix lists the sockets of this namespace only.
 */
static bool system_daemon_serves(void)
{
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	/* A directory that this user may not search can have a daemon for other users. */
	if (access(SYSTEM_NODE, F_OK) != 0 && errno != EACCES)
		return false;
	FILE *sockets = fopen("/proc/self/net/unix", "rce");

	while (sockets && !found && getline(&line, &room, sockets) > 0) {
		char *path = strchr(line, '/');

		if (path)
			path[strcspn(path, "\n")] = 0;
		found = path && !strcmp(path, SYSTEM_NODE);
	}
	free(line);
	if (sockets)
		fclose(sockets);
	return found;
}

/* sudo leaves XDG_RUNTIME_DIR as it was; another user's directory must not be used. */
static bool is_own_directory(const char *path)
{
	struct stat st;

	return *path == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid() && (st.st_mode & S_IWUSR);
}

/* A relative path is made absolute, because the daemon changes its working directory. */
static int put_absolute(char *buf, size_t len, const char *path)
{
	char here[PATH_MAX];

	if (*path == '/')
		return path_format(buf, len, "%s", path);
	if (!getcwd(here, sizeof(here)))
		return -errno;
	return path_format(buf, len, "%s/%s", here, path);
}

int rundir_find(char *buf, size_t len)
{
	const char *env = env_get("VERBENA_RUNTIME_DIR");
	struct stat netns;
	char name[64];

	if (env && *env)
		return put_absolute(buf, len, env);
	if (system_daemon_serves())
		return path_format(buf, len, "%s", RUNDIR_SYSTEM);
	if (stat("/proc/self/ns/net", &netns) < 0)
		return -errno;
	unsigned long number = (unsigned long)netns.st_ino;

	env = env_get("XDG_RUNTIME_DIR");
	if (env && is_own_directory(env))
		return path_format(buf, len, "%s/verbena-%lu", env, number);
	path_format(name, sizeof(name), "verbena-%u-%lu", (unsigned int)geteuid(), number);
	return own_dir_find(buf, len, "/tmp", name);
}

/* In a user namespace, files of root appear as the overflow user's, like those of all users without
 * an entry. */
static bool is_vouched_for(const struct stat *st)
{
	const char *vouched = env_get(RUNDIR_VOUCHED);
	char text[RUNDIR_VOUCHED_BYTES];

	rundir_vouch(st, text);
	return vouched && !strcmp(vouched, text) && st->st_uid == OVERFLOW_UID &&
	       !user_space_is_first(getpid());
}

void rundir_vouch(const struct stat *st, char text[RUNDIR_VOUCHED_BYTES])
{
	snprintf(text, RUNDIR_VOUCHED_BYTES, "%llx:%llx", (unsigned long long)st->st_dev,
		 (unsigned long long)st->st_ino);
}

int rundir_check(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode)) {
		log_error("%s is not a directory; remove it or set VERBENA_RUNTIME_DIR", path);
		return -ENOTDIR;
	}
	if (st.st_uid != geteuid() && st.st_uid != 0 && strcmp(path, RUNDIR_SYSTEM) != 0 &&
	    !is_vouched_for(&st)) {
		log_error("%s belongs to user %u: whoever made it could pretend to be the daemon; "
			  "remove it or set VERBENA_RUNTIME_DIR",
			  path, (unsigned int)st.st_uid);
		return -EPERM;
	}
	if (st.st_mode & 022) {
		log_error("%s may be written by others (mode %04o): chmod go-w it or set "
			  "VERBENA_RUNTIME_DIR",
			  path, (unsigned int)st.st_mode & 07777);
		return -EPERM;
	}
	return 0;
}

int rundir_make(const char *path)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		int err = -errno;

		log_error("can't make the run-time directory %s: %s", path, strerror(-err));
		return err;
	}
	return rundir_check(path);
}

/* ------------------------------------------------------------------ network namespaces */

enum { NETNS_BYTES = 48 };

static bool netns_name(char text[NETNS_BYTES])
{
	struct stat st;

	if (stat("/proc/self/ns/net", &st) < 0)
		return false;
	snprintf(text, NETNS_BYTES, "%llx:%llx\n", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	return true;
}

int rundir_netns_write(int dir_fd)
{
	char text[NETNS_BYTES];

	if (!netns_name(text))
		return 0;
	/* The file is made new, so that no other process has an old one open, or has placed a link
	 * there. */
	if (unlinkat(dir_fd, RUNDIR_NETNS, 0) < 0 && errno != ENOENT)
		return -errno;
	int fd = sys_openat(dir_fd, RUNDIR_NETNS, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	ssize_t size = (ssize_t)strlen(text);
	int err = fchmod(fd, 0644) < 0 || sys_write(fd, text, (size_t)size) != size ? -EIO : 0;

	sys_close(fd);
	return err;
}

int rundir_netns_check(const char *path)
{
	char file[PATH_MAX], own[NETNS_BYTES], its[NETNS_BYTES] = {0};

	if (path_format(file, sizeof(file), "%s/" RUNDIR_NETNS, path) || !netns_name(own))
		return 0;
	int fd = sys_open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : sys_read(fd, its, sizeof(its) - 1);

	if (fd >= 0)
		sys_close(fd);
	if (n <= 0 || !strcmp(own, its))
		return 0;
	log_error("the daemon of %s serves another network namespace than this program's, that is "
		  "another host: unset VERBENA_RUNTIME_DIR, or give each namespace a directory of "
		  "its own",
		  path);
	return -EXDEV;
}
