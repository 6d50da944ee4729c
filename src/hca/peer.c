/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer's process, as /proc shows it. See peer.h. No state. */
#include "hca/peer.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a file of /proc; false when it can't be read. */
static bool read_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	bool ok = fgets(line, size, f) != NULL;

	fclose(f);
	return ok;
}

char peer_state(int32_t pid)
{
	char path[32], line[512];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	char *end = pid > 0 && read_line(path, line, sizeof(line)) ? strrchr(line, ')') : NULL;

	return end && end[1] ? end[2] : 0;
}

bool peer_ended(int32_t pid)
{
	char state = peer_state(pid);

	return state == 'Z' || state == 'X' ||
	       (!state && pid > 0 && kill(pid, 0) < 0 && errno == ESRCH);
}

bool peer_stopped_in_calls(int32_t pid)
{
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *tasks = opendir(path);
	struct dirent *task;
	bool all = tasks != NULL;

	while (all && (task = readdir(tasks))) {
		int tid = atoi(task->d_name);

		if (tid <= 0)
			continue;
		/* "-1 ..." is a thread that was stopped in its own code, "running" one that wasn't.
		 */
		snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
		all = read_line(path, line, sizeof(line)) && line[0] >= '0' && line[0] <= '9';
	}
	if (tasks)
		closedir(tasks);
	return all && peer_state(pid) == 'T';
}
