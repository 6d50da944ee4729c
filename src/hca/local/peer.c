/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer's process, as /proc shows it. See peer.h. No state. */
#include "hca/local/peer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
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

bool peer_stopped_in_call(int32_t pid, uint32_t thread)
{
	char path[64], line[256];

	/* "-1 ..." is a thread that was stopped in its own code, "running" one that wasn't. */
	snprintf(path, sizeof(path), "task/%u/syscall", thread);
	return thread && proc_file_read(pid, path, line, sizeof(line)) && line[0] >= '0' &&
	       line[0] <= '9' && peer_state(pid) == 'T';
}
