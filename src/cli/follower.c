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
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/aside.h"

/* How often it looks for processes that are left. */
#define LEFT_MS 5000

struct follower {
	struct mirror_node *node;
	int program; /* the program's pidfd */
};

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

static void follower_run(void *context)
{
	const struct follower *follower = context;
	struct mirror_node *node = follower->node;
	struct pollfd program = {.fd = follower->program, .events = POLLIN};
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

int follower_start(struct mirror_node *node)
{
	struct follower follower = {.node = node,
				    .program = (int)syscall(SYS_pidfd_open, getpid(), 0)};
	int *const fds[] = {&follower.program, &node->fd, &node->mirror};
	int error;

	if (follower.program < 0)
		return -errno;
	error = aside_start("verbena-sysfs", fds, sizeof(fds) / sizeof(fds[0]), follower_run,
			    &follower);
	close(follower.program);
	return error;
}
