/* SPDX-License-Identifier: BSD-2-Clause */
/* The limit of open files: some tests have thousands open, as the daemon may. */
#ifndef VERBENA_TESTS_DAEMON_FILES_H
#define VERBENA_TESTS_DAEMON_FILES_H

#include <stdbool.h>
#include <sys/resource.h>

/* Raises this process's limit as far as it may. Returns whether it is now `count` or more. */
static inline bool files_may_be(rlim_t count)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return false;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

#endif
