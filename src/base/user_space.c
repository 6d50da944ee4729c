/* SPDX-License-Identifier: BSD-2-Clause */
/* The user namespace of a process. See user_space.h. No state; any thread. */
#include "base/user_space.h"

#include <stdint.h>
#include <stdio.h>

#include "base/proc_file.h"

bool user_space_is_first(pid_t pid)
{
	char text[64];
	unsigned int inside, outside, count;

	/* Every process may read uid_map. Only the initial namespace maps all users. */
	return proc_file_read(pid, "uid_map", text, sizeof(text)) &&
	       sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
	       outside == 0 && count == UINT32_MAX;
}
