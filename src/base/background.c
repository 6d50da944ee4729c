/* SPDX-License-Identifier: BSD-2-Clause */
/* Going on in the background. See background.h. */
#include "base/background.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

int background_enter(void)
{
	int ends[2];
	char word = 1;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid_t child = fork();

	if (child < 0) {
		int err = -errno;

		sys_close(ends[0]);
		sys_close(ends[1]);
		return err;
	}
	if (child) {
		sys_close(ends[1]);
		/* No byte: the child has ended, and has said why. */
		_exit(sys_read(ends[0], &word, 1) == 1 ? 0 : 1);
	}
	sys_close(ends[0]);
	setsid();
	return ends[1];
}

void background_settle(int parent, int log, const char *name)
{
	int nothing = sys_open("/dev/null", O_RDWR | O_CLOEXEC);

	if (nothing >= 0) {
		dup2(nothing, STDIN_FILENO);
		dup2(nothing, STDOUT_FILENO);
		dup2(log >= 0 ? log : nothing, STDERR_FILENO);
		if (nothing > STDERR_FILENO)
			sys_close(nothing);
	}
	if (sys_write(parent, "1", 1) != 1)
		log_warn("the process that started the %s has ended", name);
	sys_close(parent);
}
