/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of /proc/PID. See proc_file.h. */
#include "base/proc_file.h"

#include "base/sys.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool proc_file_read(pid_t pid, const char *name, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : sys_read(fd, text, size - 1);

	if (fd >= 0)
		sys_close(fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}
