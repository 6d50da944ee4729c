/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mount namespace for `verbena run`; see space.h.
 *
 * The kernel lets a process access another's memory (process_vm_readv) only if both are in one user
 * namespace, and Verbena's programs on one host copy that way. So all programs of a user that
 * `verbena run` starts for one daemon share a user namespace, as long as one of them lives. It is
 * found by the processes that the daemon serves, or by the program that was started last, whose pid
 * is in the file `space` of the run-time directory. A process that looks for one or makes one holds
 * that file's lock. One thread.
 */
#include "cli/space.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/proc_file.h"
#include "cli/ctl.h"
#include "client/rundir.h"

/* The file's contents: pids of programs in Verbena's user namespaces, the oldest first. */
enum { RECORD_PIDS = 256, RECORD_BYTES = (RECORD_PIDS + 1) * 12 };
struct record {
	unsigned int count;
	pid_t pid[RECORD_PIDS];
};

/* Whether two descriptors refer to one namespace. */
static bool space_is_same(int one, int two)
{
	struct stat a, b;

	return fstat(one, &a) == 0 && fstat(two, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

/* Whether a map of the process's user namespace has just one user (or group), which keeps its
 * number, as user_space_new() writes it. */
static bool is_identity(pid_t pid, const char *file, unsigned int id)
{
	char text[128];
	unsigned int inside, outside, count, more;

	return proc_file_read(pid, file, text, sizeof(text)) &&
	       sscanf(text, "%u %u %u %u", &inside, &outside, &count, &more) == 3 && inside == id &&
	       outside == id && count == 1;
}

/* Whether `space` is a user namespace of this user, and a child of `own`, this process's. */
static bool space_is_ours(int space, int own)
{
	uid_t owner;
	int parent;

	if (space_is_same(space, own) || ioctl(space, NS_GET_OWNER_UID, &owner) < 0 ||
	    owner != geteuid())
		return false;
	parent = ioctl(space, NS_GET_PARENT);
	if (parent < 0)
		return false;

	bool child = space_is_same(parent, own);

	close(parent);
	return child;
}

/* Enters the user namespace of a process, if user_space_new() could have made it. */
static int space_join(pid_t pid)
{
	char path[64];
	int own, space, error = -ESRCH;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	space = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	own = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	if (space >= 0 && own >= 0 && space_is_ours(space, own) &&
	    is_identity(pid, "uid_map", geteuid()) && is_identity(pid, "gid_map", getegid()))
		error = setns(space, CLONE_NEWUSER) < 0 ? -errno : 0;
	if (space >= 0)
		close(space);
	if (own >= 0)
		close(own);
	return error;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		error = -errno;
	close(fd);
	return error;
}

static int user_space_make(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char text[64];

	if (unshare(CLONE_NEWUSER) < 0)
		return -errno;
	int error = write_file("/proc/self/setgroups", "deny");

	if (error)
		return error;
	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	error = write_file("/proc/self/uid_map", text);
	if (error)
		return error;
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return write_file("/proc/self/gid_map", text);
}

/* In the child: the answer is 0 or -errno. */
static void user_space_answer(int answer_fd)
{
	int error = user_space_make();

	if (!error && unshare(CLONE_NEWNS) < 0)
		error = -errno;
	_exit(write(answer_fd, &error, sizeof(error)) != sizeof(error));
}

/*
 * Whether this process may make a user namespace and mount in it, which a child tries first:
 * Ubuntu's AppArmor lets any user make one, but without a right in it. The process could neither go
 * back nor map its user, and the program would run as nobody.
 */
static int user_space_try(void)
{
	int answer[2], error = -EPERM;

	if (pipe2(answer, O_CLOEXEC) < 0)
		return -errno;
	pid_t child = fork();

	if (child == 0)
		user_space_answer(answer[1]);
	close(answer[1]);
	if (child < 0)
		error = -errno;
	else if (read(answer[0], &error, sizeof(error)) != sizeof(error))
		error = -EPERM;
	close(answer[0]);
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return error;
}

static int user_space_new(void)
{
	int error = user_space_try();

	return error ? error : user_space_make();
}

/* Opens and locks the file with the pids; -1: impossible (the directory is another user's). Then
 * two programs that start at once don't find each other. */
static int record_open(const json_t *status)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/space", ctl_string(status, "runtime_dir")) >=
	    (int)sizeof(path))
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	while (fd >= 0 && flock(fd, LOCK_EX) < 0)
		if (errno != EINTR) {
			close(fd);
			fd = -1;
		}
	return fd;
}

static void record_read(int fd, struct record *record)
{
	char text[RECORD_BYTES];
	ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text) - 1, 0);
	char *next = text;

	text[n > 0 ? n : 0] = 0;
	record->count = 0;
	for (char *line; record->count < RECORD_PIDS && (line = strsep(&next, "\n"));)
		if (atoi(line) > 0)
			record->pid[record->count++] = atoi(line);
}

/* Writes the pids that live, and this process's; of too many the oldest are dropped. */
static void record_write(int fd, const struct record *record)
{
	char text[RECORD_BYTES];
	size_t length = 0;

	for (unsigned int i = record->count == RECORD_PIDS; i < record->count; i++)
		if (kill(record->pid[i], 0) == 0)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%d\n",
						   record->pid[i]);
	length += (size_t)snprintf(text + length, sizeof(text) - length, "%d\n", getpid());
	/* A failure is ignored: the next program then looks at the daemon's clients only. */
	if (fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, text, length, 0) != (ssize_t)length)
		return;
}

/* Joins the first suitable user namespace of a recorded or connected process. A reused pid does no
 * harm, because space_join() checks the namespace. */
static int join_any(const struct record *record, const json_t *status)
{
	const json_t *client;
	int error = -ESRCH;
	size_t i;

	for (i = 0; error && i < record->count; i++)
		error = space_join(record->pid[i]);
	json_array_foreach(json_object_get(status, "clients"), i, client) {
		if (!error)
			break;
		error = space_join((pid_t)ctl_integer(client, "pid"));
	}
	return error;
}

/* Vouches for the run-time directory, which was checked when the daemon was asked. */
static int directory_vouch(const char *path)
{
	char text[RUNDIR_VOUCHED_BYTES];
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	rundir_vouch(&st, text);
	return setenv(RUNDIR_VOUCHED, text, 1) ? -errno : 0;
}

static int user_space_enter(const json_t *status)
{
	int fd = record_open(status);
	struct record record;

	record_read(fd, &record);

	int error = join_any(&record, status);

	if (error)
		error = user_space_new();
	if (!error)
		error = directory_vouch(ctl_string(status, "runtime_dir"));
	if (!error)
		record_write(fd, &record);
	if (fd >= 0)
		close(fd);
	return error;
}

/* Whether no mount shows outside, as in the mount namespace of a new user namespace. */
static bool is_detached;

/*
 * Otherwise mounts still show outside, as they should for the program's own mounts, but not for
 * those of `verbena run`.
 */
int space_detach(const char *path)
{
	if (is_detached || mount(NULL, path, "", MS_SLAVE, NULL) == 0)
		return 0;
	return mount(NULL, "/", "", MS_SLAVE | MS_REC, NULL) < 0 ? -errno : 0;
}

int space_enter(const json_t *status)
{
	int error;

	/* A process with different real and effective ids stays as it is. */
	if (geteuid() != getuid() || getegid() != getgid())
		return -EPERM;
	if (unshare(CLONE_NEWNS) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	/* Root without the privilege to mount would have fewer rights in a user namespace. */
	if (geteuid() == 0)
		return -EPERM;
	error = user_space_enter(status);
	if (error)
		return error;
	if (unshare(CLONE_NEWNS) < 0)
		return -errno;
	is_detached = true;
	return 0;
}

/* What an administrator sets where users may not make namespaces. */
static const struct {
	const char *file, *forbids;
} settings[] = {
	{"kernel/apparmor_restrict_unprivileged_userns", "1"}, /* Ubuntu since 23.10 */
	{"kernel/unprivileged_userns_clone", "0"},	       /* Debian */
	{"user/max_user_namespaces", "0"},
};

static bool setting_forbids(const char *path, const char *value)
{
	char text[16];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return !strcmp(text, value);
}

const char *space_forbidding_setting(const char *sys_dir)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", sys_dir, settings[i].file);
		if (setting_forbids(path, settings[i].forbids))
			return settings[i].file;
	}
	return NULL;
}
