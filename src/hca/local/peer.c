/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer's process, as /proc shows it. See peer.h. No state. */
#include "hca/local/peer.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/proc_file.h"

char peer_state(int32_t pid)
{
	char line[512];
	char *end = pid > 0 && proc_file_read(pid, "stat", line, sizeof(line)) ? strrchr(line, ')')
									       : NULL;

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
		snprintf(path, sizeof(path), "task/%d/syscall", tid);
		all = proc_file_read(pid, path, line, sizeof(line)) && line[0] >= '0' &&
		      line[0] <= '9';
	}
	if (tasks)
		closedir(tasks);
	return all && peer_state(pid) == 'T';
}
