/* SPDX-License-Identifier: BSD-2-Clause */
/* Kills the daemon of VERBENA_RUNTIME_DIR, for programs that go on without it. */
#ifndef VERBENA_TESTS_E2E_DAEMON_KILL_H
#define VERBENA_TESTS_E2E_DAEMON_KILL_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns when the daemon is dead. False: there is none, or it can't be killed. */
static inline bool daemon_kill(void)
{
	char path[512], line[32] = "";

	snprintf(path, sizeof(path), "%s/verbenad.pid", getenv("VERBENA_RUNTIME_DIR"));
	int fd = open(path, O_RDONLY);
	bool found = fd >= 0 && read(fd, line, sizeof(line) - 1) > 0;

	if (fd >= 0)
		close(fd);
	if (!found)
		return false;
	struct pollfd pidfd = {.fd = (int)syscall(SYS_pidfd_open, atoi(line), 0), .events = POLLIN};
	bool dead = pidfd.fd >= 0 && !kill(atoi(line), SIGKILL) && poll(&pidfd, 1, -1) == 1;

	if (pidfd.fd >= 0)
		close(pidfd.fd);
	return dead;
}

#endif
