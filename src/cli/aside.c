/* SPDX-License-Identifier: BSD-2-Clause */
/* A process beside the program; see aside.h. One thread. */
#include "cli/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Leaves everything that was the program's. Returns 0 or -errno. */
static int aside_detach(const char *name, int null, int *const fds[], size_t count)
{
	int first = STDERR_FILENO + 1, above = first + (int)count;

	/* Above the places that are filled now. */
	for (size_t i = 0; i < count; i++) {
		*fds[i] = fcntl(*fds[i], F_DUPFD, above);
		if (*fds[i] < 0)
			return -errno;
	}
	for (int fd = 0; fd < first; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	for (size_t i = 0; i < count; i++) {
		if (dup2(*fds[i], first + (int)i) < 0)
			return -errno;
		*fds[i] = first + (int)i;
	}
	if (syscall(SYS_close_range, above, ~0u, 0) < 0)
		for (int fd = above; fd < 1024; fd++)
			close(fd);
	prctl(PR_SET_NAME, name);
	return chdir("/") < 0 ? -errno : 0;
}

int aside_start(const char *name, int *const fds[], size_t count, void (*run)(void *context),
		void *context)
{
	/* Before the program may change what is there. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), status;
	pid_t between;

	if (null < 0)
		return -errno;
	between = fork();
	/* Through a process that ends at once, so that the program has no child it doesn't know. */
	if (!between) {
		setsid();
		/* Not fork(), in which the run time of a sanitizer that is preloaded starts a
		 * thread: what `run` unshares, that thread would keep. */
		between = _Fork();
		if (!between && !aside_detach(name, null, fds, count))
			run(context);
		_exit(between < 0);
	}
	close(null);
	if (between < 0)
		return -EAGAIN;
	while (waitpid(between, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EAGAIN;
}
