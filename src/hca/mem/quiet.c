/* SPDX-License-Identifier: BSD-2-Clause */
/* What could touch or hold private memory. See quiet.h. No state. */
#include "hca/mem/quiet.h"

#include <dirent.h>
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

#include "base/proc_maps.h"
#include "base/sys.h"

static bool text_begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* ------------------------------------------------------------------ threads and processes */

/* Whether some thread's child has this process's memory (CLONE_VM). Children that can't be listed
 * count. */
static bool thread_shares(const char *thread)
{
	char path[64];
	long child, differ = 1;
	int n;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/children", thread);
	FILE *children = fopen(path, "rce");

	if (!children)
		return true;
	while ((n = fscanf(children, "%ld", &child)) == 1) {
		differ = syscall(SYS_kcmp, getpid(), child, KCMP_VM, 0, 0);
		if (differ == 0 || (differ < 0 && errno != ESRCH))
			break;
	}
	fclose(children);
	return n == 1;
}

static bool has_children(void)
{
	siginfo_t info;

	return !sys_wait_any(&info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL) ||
	       errno != ECHILD;
}

const char *quiet_shared_with(unsigned int own)
{
	DIR *dir = opendir("/proc/self/task");
	bool children = has_children(), shared = false;
	const struct dirent *entry;
	unsigned int threads = 0;

	if (!dir)
		return "its threads can't be counted";
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		threads++;
		shared = shared || (children && thread_shares(entry->d_name));
	}
	closedir(dir);
	return threads != own + 1 ? "the process has several threads"
	       : shared		  ? "a child may share its memory"
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

/* By its name in /proc, not by its number, because a thread of the library's may close it
 * meanwhile: the thread sanitizer would report that in a program that it watches. */
static bool file_is_harmless(int dir, const char *number, const char *name)
{
	int fd = (int)strtol(number, NULL, 10);
	struct stat status;

	if (fstatat(dir, number, &status, 0) < 0)
		return errno == ENOENT;
	if (text_begins(name, "anon_inode:"))
		return anonymous_is_harmless(name);
	switch (status.st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
		return true;
	case S_IFSOCK:
		return socket_is_harmless(fd);
	case S_IFIFO:
		return pipe_is_harmless(fd);
	case S_IFCHR:
		return character_device_is_harmless(status.st_rdev);
	default:
		return text_begins(name, "pidfd:"); /* newer kernels' */
	}
}

/* Unless the process is quiet, other threads may close the descriptor meanwhile, and open another
 * file as the same one: then it is looked at again, a few times. */
static bool descriptor_is_harmless(int dir, const char *number)
{
	enum { LOOKS = 8 };
	char name[64] = "", last[64];

	for (int i = 0; i < LOOKS; i++) {
		memcpy(last, name, sizeof(last));
		memset(name, 0, sizeof(name));
		if (readlinkat(dir, number, name, sizeof(name) - 1) < 0)
			return errno == ENOENT;
		if (i && !strcmp(name, last))
			return false;
		if (file_is_harmless(dir, number, name))
			return true;
	}
	return false;
}

static bool descriptors_are_harmless(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	bool harmless = dir;

	while (dir && harmless && (entry = readdir(dir)))
		harmless = entry->d_name[0] == '.' ||
			   descriptor_is_harmless(dirfd(dir), entry->d_name);
	if (dir)
		closedir(dir);
	return harmless;
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
	if (!descriptors_are_harmless())
		return "a descriptor may be of something that holds its memory (io_uring, a "
		       "device, "
		       "a pipe with data, ...)";
	if (has_ring() || !mappings_are_harmless())
		return "a device, io_uring or AIO is mapped";
	return NULL;
}

/* ------------------------------------------------------------------ plain memory */

/* Whether the flags, as in smaps, are only those that all memory may have, and none of mlock(),
 * madvise(), pkey_mprotect(), ... */
static bool flags_are_plain(const char *flags)
{
	for (; *flags; flags += strcspn(flags, " ")) {
		flags += strspn(flags, " \n");
		if (*flags &&
		    !strstr(" rd wr mr mw me ac sd ", (char[]){' ', flags[0], flags[1], ' ', 0}))
			return false;
	}
	return true;
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
	       !memcmp(&own, &its, sizeof(own));
}

/* What is known of the mappings from `at` on. */
struct plain_walk {
	uintptr_t at, end; /* what is plain ends at `at` */
	bool within;	   /* the current mapping is the one at `at` */
	bool plain;
	uintptr_t mapping_end;
};

/* A mapping's first line in smaps. */
static void walk_mapping(struct plain_walk *walk, const char *line)
{
	unsigned long start, end, offset, inode;
	char rights[5] = "";
	int name = 0;

	if (sscanf(line, "%lx-%lx %4s %lx %*x:%*x %lu %n", &start, &end, rights, &offset, &inode,
		   &name) < 5)
		return;
	walk->within = start <= walk->at && walk->at < end;
	walk->mapping_end = end;
	walk->plain = !strcmp(rights, "rw-p") && !inode && name && name_is_plain(line + name);
}

bool quiet_is_plain(uintptr_t start, uintptr_t end)
{
	struct plain_walk walk = {.at = start, .end = end};
	FILE *smaps = fopen("/proc/self/smaps", "rce");
	char line[512];

	while (smaps && walk.at < walk.end && fgets(line, sizeof(line), smaps)) {
		line[strcspn(line, "\n")] = 0;
		if (!text_begins(line, "VmFlags:")) {
			walk_mapping(&walk, line);
		} else if (walk.within) {
			if (!walk.plain || !flags_are_plain(line + strlen("VmFlags:")) ||
			    !policy_is_plain(walk.at))
				break;
			walk.at = walk.mapping_end;
		}
	}
	if (smaps)
		fclose(smaps);
	return walk.at >= walk.end;
}

/* ------------------------------------------------------------------ locked memory */

/* Whether the process has locked any memory: what follows is slow. */
static bool locks_memory(void)
{
	FILE *status = fopen("/proc/self/status", "rce");
	unsigned long kib = 0;
	char line[128];

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "VmLck: %lu", &kib) == 1)
			break;
	if (status)
		fclose(status);
	return kib;
}

bool quiet_is_locked(uintptr_t at)
{
	struct plain_walk walk = {.at = at, .end = at + 1};
	FILE *smaps = locks_memory() ? fopen("/proc/self/smaps", "rce") : NULL;
	bool locked = false;
	char line[512];

	while (smaps && walk.mapping_end <= at && fgets(line, sizeof(line), smaps))
		walk_mapping(&walk, line);
	while (smaps && walk.within && fgets(line, sizeof(line), smaps)) {
		if (!text_begins(line, "VmFlags:"))
			continue;
		locked = strstr(line, " lo ");
		walk.within = false;
	}
	if (smaps)
		fclose(smaps);
	return locked;
}
