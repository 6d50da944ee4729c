/* SPDX-License-Identifier: BSD-2-Clause */
/* Pinned memory. See pinned.h. The counts are in struct process and struct user. */
#include "daemon/objects/pinned.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/proc_file.h"
#include "base/user_space.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"

#define PAGE 4096ull

enum { MAY_LOCK_MS = 100 };

uint64_t pinned_bytes(uint64_t start, uint64_t length)
{
	return ((start + length + PAGE - 1) & ~(PAGE - 1)) - (start & ~(PAGE - 1));
}

/* The text after `label` in a file of /proc/PID; false when there is none. */
static bool proc_find(pid_t pid, const char *file, const char *label, char *value, size_t size)
{
	char text[4096];

	proc_file_read(pid, file, text, sizeof(text));
	char *line = strstr(text, label);

	if (!line)
		return false;
	line += strlen(label);
	line += strspn(line, " \t");
	snprintf(value, size, "%.*s", (int)strcspn(line, " \t\n"), line);
	return true;
}

uint64_t pinned_limit(const struct process *process)
{
	struct rlimit limit;
	char value[32];

	if (process->pid <= 0)
		return UINT64_MAX;
	if (prlimit(process->pid, RLIMIT_MEMLOCK, NULL, &limit) == 0)
		return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
	/* The process is another user's, and the daemon isn't root: prlimit() is refused, but this
	 * file is readable for all users. */
	if (!proc_find(process->pid, "limits", "Max locked memory", value, sizeof(value)) ||
	    !strcmp(value, "unlimited"))
		return UINT64_MAX;
	return strtoull(value, NULL, 10);
}

/* Whether the process has CAP_IPC_LOCK. A yes is cached for a moment, because reading the file
 * takes longer than the rest of a registration. */
static bool may_lock(struct process *process)
{
	char value[32];
	uint64_t now = now_ms();

	if (now < process->may_lock_until_ms)
		return true;
	if (!proc_find(process->pid, "status", "CapEff:", value, sizeof(value)) ||
	    !(strtoull(value, NULL, 16) >> CAP_IPC_LOCK & 1) || !user_space_is_first(process->pid))
		return false;
	process->may_lock_until_ms = now + MAY_LOCK_MS;
	return true;
}

static bool is_enforced(const struct process *process)
{
	return process->server->config.memlock && !process->no_memlock && !process->returning;
}

int pinned_add(struct process *process, uint64_t bytes)
{
	uint64_t limit = is_enforced(process) ? pinned_limit(process) : UINT64_MAX;

	/* Capabilities are read only when the limit is exceeded, because that means reading a
	 * file. */
	if (limit != UINT64_MAX && process->pinned + bytes > (limit & ~(PAGE - 1)) &&
	    !may_lock(process)) {
		complain(process->user,
			 "process %d (%s) may not register %llu KiB more: it has %llu KiB, its "
			 "RLIMIT_MEMLOCK is %llu KiB",
			 process->pid, process->comm, (unsigned long long)bytes >> 10,
			 (unsigned long long)process->pinned >> 10,
			 (unsigned long long)limit >> 10);
		return -ENOMEM;
	}
	process->pinned += bytes;
	process->user->pinned += bytes;
	return 0;
}

void pinned_sub(struct process *process, uint64_t bytes)
{
	process->pinned -= bytes;
	process->user->pinned -= bytes;
}
