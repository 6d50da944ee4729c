/* SPDX-License-Identifier: BSD-2-Clause */
/* The run-time directory. See rundir.h. No state. */
#include "client/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define SYSTEM_DIR "/run/verbena"

static int put(char *buf, size_t len, int n)
{
	(void)buf;
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int rundir_find(char *buf, size_t len)
{
	const char *env = getenv("VERBENA_RUNTIME_DIR");
	struct stat netns;

	if (env && *env)
		return put(buf, len, snprintf(buf, len, "%s", env));
	if (access(SYSTEM_DIR "/uverbs0", R_OK | W_OK) == 0)
		return put(buf, len, snprintf(buf, len, "%s", SYSTEM_DIR));
	if (stat("/proc/self/ns/net", &netns) < 0)
		return -errno;
	env = getenv("XDG_RUNTIME_DIR");
	if (env && *env == '/' && access(env, W_OK | X_OK) == 0)
		return put(buf, len,
			   snprintf(buf, len, "%s/verbena-%lu", env, (unsigned long)netns.st_ino));
	return put(buf, len,
		   snprintf(buf, len, "/tmp/verbena-%u-%lu", (unsigned int)geteuid(),
			    (unsigned long)netns.st_ino));
}

int rundir_make(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		int err = -errno;

		log_error("can't make the run-time directory %s: %m", path);
		return err;
	}
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
		log_error("%s is not a directory of ours that only we can write; "
			  "remove it or set VERBENA_RUNTIME_DIR",
			  path);
		return -EPERM;
	}
	return 0;
}
