/* SPDX-License-Identifier: BSD-2-Clause */
/* Which user namespace a process is in. See user_space.h. No state; any thread. */
#include "base/user_space.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

bool user_space_is_first(pid_t pid)
{
	char path[64], text[64];
	unsigned int inside, outside, count;

	/* Everybody may read it. Only the first contains every user. */
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
	       outside == 0 && count == UINT32_MAX;
}
