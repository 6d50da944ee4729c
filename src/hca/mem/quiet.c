/* SPDX-License-Identifier: BSD-2-Clause */
/* What could touch or hold private memory. See quiet.h. No state.
 *
 * While threads are stopped, nothing here may allocate memory (warden.h): files and folders are
 * read by base/lines.h. */
#include "hca/mem/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/kcmp.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/proc_file.h"
#include "base/proc_maps.h"
#include "base/sys.h"
#include "hca/mem/warden.h"
#include "hca/process/park.h"

static bool text_begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* ------------------------------------------------------------------ threads and processes */

/* Whether some thread's child has this process's memory (CLONE_VM), but for the warden. Children
 * that can't be listed count. */
static bool thread_shares(const char *thread)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/children", thread);
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : sys_read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		sys_close(fd);
	if (n < 0 || n == sizeof(text) - 1)
		return true;
	text[n] = 0;
	for (char *next = text, *end;; next = end) {
		long child = strtol(next, &end, 10), differ;

		if (end == next)
			return false;
		if (warden_is((pid_t)child))
			continue;
		differ = syscall(SYS_kcmp, getpid(), child, KCMP_VM, 0, 0);
		if (differ == 0 || (differ < 0 && errno != ESRCH))
			return true;
	}
}

static bool has_children(void)
{
	siginfo_t info;

	return !sys_wait_any(&info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL) ||
	       errno != ECHILD;
}

const char *quiet_shared_with(void)
{
	bool children = has_children(), shared = false, run = false;
	struct names threads;
	const char *name;

	if (!names_open(&threads, "/proc/self/task"))
		return "its threads can't be counted";
	while ((name = names_next(&threads))) {
		pid_t thread = (pid_t)strtol(name, NULL, 10);

		run = run || (thread != gettid() && !park_has(thread) && !warden_has(thread));
		shared = shared || (children && thread_shares(name));
	}
	names_close(&threads);
	return threads.failed ? "its threads can't be counted"
	       : run	      ? QUIET_THREADS
	       : shared	      ? "a child may share its memory"
			      : NULL;
}

/* ------------------------------------------------------------------ descriptors and mappings */

/* Not one whose messages hold the program's pages (MSG_ZEROCOPY), or a kind that may. */
static bool socket_is_harmless(int fd)
{
	int domain = -1, zero_copy = 0;
	socklen_t size = sizeof(int);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0)
		return false;
	size = sizeof(int);
	if (getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &zero_copy, &size) < 0)
		zero_copy = 0; /* this kind of sockets has no such thing */
	return !zero_copy && (domain == AF_UNIX || domain == AF_INET || domain == AF_INET6 ||
			      domain == AF_NETLINK);
}

/* A pipe may have been given the program's pages (vmsplice()). */
static bool pipe_is_harmless(int fd)
{
	int flags = fcntl(fd, F_GETFL), bytes = 1;

	return flags >= 0 &&
	       ((flags & O_ACCMODE) == O_RDONLY || (!ioctl(fd, FIONREAD, &bytes) && !bytes));
}

static bool character_device_is_harmless(dev_t device)
{
	enum { MEMORY = 1, OF_MEMORY = 1, TTY = 4, TTY_AUX = 5, PTS_FIRST = 136, PTS_LAST = 143 };
	unsigned int number = major(device);

	/* /dev/null, zero, full, random; not /dev/mem */
	return (number == MEMORY && minor(device) > OF_MEMORY) || number == TTY ||
	       number == TTY_AUX || (number >= PTS_FIRST && number <= PTS_LAST);
}

static bool anonymous_is_harmless(const char *name)
{
	static const char *const harmless[] = {
		"anon_inode:[eventfd]",	 "anon_inode:[eventpoll]", "anon_inode:[timerfd]",
		"anon_inode:[signalfd]", "anon_inode:[pidfd]",	   "anon_inode:inotify",
	};

	for (unsigned int i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (!strcmp(name, harmless[i]))
			return true;
	return false;
}

#define HOLDS                                                                                      \
	"a descriptor may be of something that holds its memory (io_uring, a device, a pipe with " \
	"data, ...)"

/* By its name in /proc, not by its number, because a thread of the library's may close it
 * meanwhile: the thread sanitizer would report that in a program that it watches. */
static const char *file_held(int dir, const char *number, const char *name)
{
	int fd = (int)strtol(number, NULL, 10);
	struct stat status;
	bool harmless;

	if (fstatat(dir, number, &status, 0) < 0)
		return errno == ENOENT ? NULL : HOLDS;
	if (text_begins(name, "anon_inode:"))
		return anonymous_is_harmless(name) ? NULL : HOLDS;
	switch (status.st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
		return NULL;
	case S_IFSOCK:
		harmless = socket_is_harmless(fd);
		break;
	case S_IFIFO:
		return pipe_is_harmless(fd) ? NULL : QUIET_PIPE;
	case S_IFCHR:
		harmless = character_device_is_harmless(status.st_rdev);
		break;
	default:
		harmless = text_begins(name, "pidfd:"); /* newer kernels' */
	}
	return harmless ? NULL : HOLDS;
}

/* Unless the process is quiet, other threads may close the descriptor meanwhile, and open another
 * file as the same one: then it is looked at again, a few times. */
static const char *descriptor_held(int dir, const char *number)
{
	enum { LOOKS = 8 };
	char name[64] = "", last[64];
	const char *held = HOLDS;

	for (int i = 0; i < LOOKS && held; i++) {
		memcpy(last, name, sizeof(last));
		memset(name, 0, sizeof(name));
		if (readlinkat(dir, number, name, sizeof(name) - 1) < 0)
			return errno == ENOENT ? NULL : HOLDS;
		if (i && !strcmp(name, last))
			return held;
		held = file_held(dir, number, name);
	}
	return held;
}

/* QUIET_PIPE only if nothing else is in the way. */
static const char *descriptors_held(void)
{
	const char *name, *held = NULL, *one;
	struct names names;

	if (!names_open(&names, "/proc/self/fd"))
		return HOLDS;
	while ((!held || !strcmp(held, QUIET_PIPE)) && (name = names_next(&names))) {
		one = descriptor_held(names.fd, name);
		held = one ? one : held;
	}
	held = names.failed ? HOLDS : held;
	names_close(&names);
	return held;
}

/* Whether the thread has a ring without a descriptor (IORING_REGISTER_RING_FDS). */
static bool has_ring(void)
{
	enum { RINGS = 16 };

	for (unsigned int i = 0; i < RINGS; i++)
		if (syscall(SYS_io_uring_enter, i, 0, 0, IORING_ENTER_REGISTERED_RING, NULL, 0) >=
		    0)
			return true;
	return false;
}

static bool mapping_is_harmless(const char *name)
{
	if (text_begins(name, "/dev/"))
		return text_begins(name, "/dev/shm/") || text_begins(name, "/dev/zero");
	return !text_begins(name, "/[aio]") && !text_begins(name, "[aio]") &&
	       !text_begins(name, "anon_inode:");
}

static bool mappings_are_harmless(void)
{
	struct proc_mapping mapping = {.end = 0};
	struct proc_maps maps;
	bool harmless = true;
	int err = proc_maps_open(&maps, 0);

	if (err)
		return false;
	while (harmless && !(err = proc_maps_next(&maps, mapping.end, &mapping)))
		harmless = mapping_is_harmless(mapping.name);
	proc_maps_close(&maps);
	return harmless && err == -ENOENT;
}

const char *quiet_held_by(void)
{
	const char *held = descriptors_held();

	if (held && strcmp(held, QUIET_PIPE) != 0)
		return held;
	if (has_ring() || !mappings_are_harmless())
		return "a device, io_uring or AIO is mapped";
	return held;
}

/* ------------------------------------------------------------------ plain memory */

/* The marks among the flags, as in smaps; -1: there are others than those that all memory may have
 * and quiet.h names: of mlock(), pkey_mprotect(), other advice of madvise(), ... */
static int flags_marks(const char *flags)
{
	static const struct {
		char flag[3];
		uint8_t mark;
	} known[] = {
		{"rd", 0},	     {"wr", 0},
		{"mr", 0},	     {"mw", 0},
		{"me", 0},	     {"ac", 0},
		{"sd", 0},	     {"hg", QUIET_HUGE},
		{"nh", QUIET_SMALL}, {"dd", QUIET_UNDUMPED},
	};
	enum { KNOWN = sizeof(known) / sizeof(known[0]) };
	int marks = 0;

	for (flags += strspn(flags, " "); *flags; flags += strspn(flags, " ")) {
		unsigned int i = 0;

		while (i < KNOWN && strncmp(flags, known[i].flag, 2))
			i++;
		if (i == KNOWN)
			return -1;
		marks |= known[i].mark;
		flags += strcspn(flags, " ");
	}
	return marks;
}

static bool name_is_plain(const char *name)
{
	return !*name || !strcmp(name, "[heap]") || text_begins(name, "[anon:");
}

/* The kernel can't have more nodes. */
struct policy {
	int mode;
	unsigned long nodes[1024 / (8 * sizeof(long))];
};

/* False: the kernel has none. `at` NULL: the thread's. */
static bool policy_get(struct policy *policy, const void *at)
{
	memset(policy, 0, sizeof(*policy));
	return !syscall(SYS_get_mempolicy, &policy->mode, policy->nodes, sizeof(policy->nodes) * 8,
			at, at ? MPOL_F_ADDR : 0);
}

/* Whether the mapping at the address has no policy of mbind(). */
static bool policy_is_plain(uintptr_t at)
{
	struct policy own, its;

	return !policy_get(&own, NULL) || !policy_get(&its, (const void *)at) ||
	       (own.mode == its.mode && !memcmp(own.nodes, its.nodes, sizeof(own.nodes)));
}

/* What is known of the mappings from `at` on. */
struct plain_walk {
	uintptr_t at, end; /* what is plain ends at `at` */
	bool within;	   /* the current mapping is the one at `at` */
	bool plain;
	int marks; /* of what is plain; -1: none was seen yet */
	uintptr_t mapping_end;
};

/* A mapping's first line in smaps begins with its address; others, of which there are two dozen,
 * with a word that has a capital. */
static void walk_mapping(struct plain_walk *walk, const char *line)
{
	unsigned long start, end, offset, inode;
	char rights[5] = "";
	int name = 0;

	if (*line >= 'A' && *line <= 'Z')
		return;
	if (sscanf(line, "%lx-%lx %4s %lx %*x:%*x %lu %n", &start, &end, rights, &offset, &inode,
		   &name) < 5)
		return;
	walk->within = start <= walk->at && walk->at < end;
	walk->mapping_end = end;
	walk->plain = !strcmp(rights, "rw-p") && !inode && name && name_is_plain(line + name);
}

/* The flags of the mapping at walk->at: whether it is plain, with the marks of those before it. */
static bool walk_flags(struct plain_walk *walk, const char *flags)
{
	int marks = walk->plain ? flags_marks(flags) : -1;

	if (marks < 0 || (walk->marks >= 0 && marks != walk->marks) || !policy_is_plain(walk->at))
		return false;
	walk->marks = marks;
	walk->at = walk->mapping_end;
	return true;
}

static bool lines_open(struct lines *lines, const char *path)
{
	lines_begin(lines, sys_open(path, O_RDONLY | O_CLOEXEC));
	return !lines->failed;
}

static void lines_close(struct lines *lines)
{
	if (lines->fd >= 0)
		sys_close(lines->fd);
}

bool quiet_is_plain(uintptr_t start, uintptr_t end, unsigned int *marks)
{
	struct plain_walk walk = {.at = start, .end = end, .marks = -1};
	struct lines smaps;
	char line[512];

	lines_open(&smaps, "/proc/self/smaps");
	while (walk.at < walk.end && lines_next(&smaps, line, sizeof(line))) {
		if (!text_begins(line, "VmFlags:"))
			walk_mapping(&walk, line);
		else if (walk.within && !walk_flags(&walk, line + strlen("VmFlags:")))
			break;
	}
	lines_close(&smaps);
	*marks = walk.marks > 0 ? (unsigned int)walk.marks : 0;
	return walk.at >= walk.end;
}

/* ------------------------------------------------------------------ marks */

/* Whether the process has locked any memory. */
static bool locks_memory(void)
{
	struct lines status;
	unsigned long kib = 0;
	char line[128];

	lines_open(&status, "/proc/self/status");
	while (lines_next(&status, line, sizeof(line)))
		if (sscanf(line, "VmLck: %lu", &kib) == 1)
			break;
	lines_close(&status);
	return kib;
}

/* Those among the flags of a mapping's line in smaps. */
static unsigned int marks_read(const char *flags)
{
	return (strstr(flags, " lo") ? QUIET_LOCKED : 0) | (strstr(flags, " hg") ? QUIET_HUGE : 0) |
	       (strstr(flags, " nh") ? QUIET_SMALL : 0) |
	       (strstr(flags, " dd") ? QUIET_UNDUMPED : 0);
}

unsigned int quiet_marks(uintptr_t at, bool any)
{
	struct plain_walk walk = {.at = at, .end = at + 1};
	struct lines smaps;
	unsigned int marks = 0;
	char line[512];

	if (!any && !locks_memory())
		return 0;
	lines_open(&smaps, "/proc/self/smaps");
	while (lines_next(&smaps, line, sizeof(line))) {
		if (!text_begins(line, "VmFlags:")) {
			walk_mapping(&walk, line);
		} else if (walk.within) {
			marks = marks_read(line + strlen("VmFlags:"));
			break;
		}
	}
	lines_close(&smaps);
	return marks;
}
