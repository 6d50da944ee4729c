/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps a node's files up to date; see follower.h.
 *
 * The follower has a copy of this process's memory and its mount namespace. While the program runs
 * it waits at the program's pidfd; after that it looks at times whether processes that the program
 * left behind still have the namespace. One thread.
 */
#include "cli/follower.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often it looks for processes that are left. */
#define LEFT_MS 5000

#define FD_PROGRAM 3
#define FD_NODE 4
#define FD_MIRROR 5
#define FD_OTHERS 6

/* Whether another process has this one's mount namespace. */
static bool space_is_in_use(void)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	struct stat own, other;
	bool found = false;
	char path[300];

	if (!proc)
		return false;
	if (stat("/proc/self/ns/mnt", &own) < 0)
		own.st_ino = 0;
	while (own.st_ino && !found && (entry = readdir(proc))) {
		if (!isdigit((unsigned char)*entry->d_name) || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/ns/mnt", entry->d_name);
		found = stat(path, &other) == 0 && other.st_ino == own.st_ino &&
			other.st_dev == own.st_dev;
	}
	closedir(proc);
	return found;
}

static void follower_refresh(struct mirror_node *node, const char *guid)
{
	struct node_facts facts;

	if (node_facts_ask(guid, &facts) != 0)
		return; /* the fabric may come back */
	mirror_node_refresh(node, &facts);
	node_facts_free(&facts);
}

static void follower_run(struct mirror_node *node)
{
	struct pollfd program = {.fd = FD_PROGRAM, .events = POLLIN};
	int wait_ms = MIRROR_REFRESH_MS;

	for (;;) {
		if (poll(&program, 1, wait_ms) > 0) {
			program.fd = -1;
			wait_ms = LEFT_MS;
		}
		if (program.fd < 0 && !space_is_in_use())
			return;
		follower_refresh(node, node->guid);
	}
}

/* Leaves everything that was the program's. Returns 0 or -errno. */
static int follower_detach(struct mirror_node *node, int program)
{
	int null = open("/dev/null", O_RDWR);

	/* Above the places that are filled now. */
	program = fcntl(program, F_DUPFD, FD_OTHERS);
	node->fd = fcntl(node->fd, F_DUPFD, FD_OTHERS);
	node->mirror = fcntl(node->mirror, F_DUPFD, FD_OTHERS);
	if (null < 0 || program < 0 || node->fd < 0 || node->mirror < 0)
		return -EMFILE;
	for (int fd = 0; fd < FD_PROGRAM; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	if (dup2(program, FD_PROGRAM) < 0 || dup2(node->fd, FD_NODE) < 0 ||
	    dup2(node->mirror, FD_MIRROR) < 0)
		return -errno;
	node->fd = FD_NODE;
	node->mirror = FD_MIRROR;
	if (syscall(SYS_close_range, FD_OTHERS, ~0u, 0) < 0)
		for (int fd = FD_OTHERS; fd < 1024; fd++)
			close(fd);
	prctl(PR_SET_NAME, "verbena-sysfs");
	return chdir("/") < 0 ? -errno : 0;
}

int follower_start(struct mirror_node *node)
{
	int program = (int)syscall(SYS_pidfd_open, getpid(), 0), status;
	pid_t between;

	if (program < 0)
		return -errno;
	/* Through a process that ends at once, so that the program has no child it doesn't know. */
	between = fork();
	if (!between) {
		setsid();
		between = fork();
		if (!between && !follower_detach(node, program))
			follower_run(node);
		_exit(between < 0);
	}
	close(program);
	if (between < 0)
		return -errno;
	while (waitpid(between, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EAGAIN;
}
