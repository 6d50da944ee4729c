/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading sysfs attributes. See sysfs.h.
 *
 * Reads real files of the host: Verbena creates none, but programs read their network card's
 * through these functions. Owns the chosen root, set once under pthread_once(); any thread.
 */
#include "abi/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "base/env.h"
#include "base/export.h"
#include "base/log.h"
#include "base/sys.h"

static char sysfs_root[IBV_SYSFS_PATH_MAX] = "/sys";
static pthread_once_t sysfs_root_once = PTHREAD_ONCE_INIT;

/* A set-uid program must not read files that its caller chooses. */
static void sysfs_root_choose(void)
{
	const char *env = env_get("SYSFS_PATH");
	size_t len = env ? strlen(env) : 0;

	while (len && env[len - 1] == '/')
		len--;
	if (!len || len >= sizeof(sysfs_root))
		return;
	memcpy(sysfs_root, env, len);
	sysfs_root[len] = '\0';
}

EXPORT const char *ibv_get_sysfs_path(void)
{
	pthread_once(&sysfs_root_once, sysfs_root_choose);
	return sysfs_root;
}

/* Reads until the end or until the buffer is full: bytes read, or -1. */
static ssize_t file_read(int fd, char *value, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = sys_read(fd, value + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/*
 * rdma-core's librdmacm first reads the version of the kernel's connection manager here. Verbena's
 * doesn't, so this program has loaded the wrong library, whose own error ("no such file or
 * directory") doesn't say what to do.
 */
static void explain_other_cm(const char *file)
{
	static atomic_flag explained = ATOMIC_FLAG_INIT;

	if (strcmp(file, "class/misc/rdma_cm/abi_version") || atomic_flag_test_and_set(&explained))
		return;
	log_warn("this program has loaded a librdmacm.so.1 that isn't Verbena's, which needs the "
		 "kernel's connection manager: rdma_* calls fail; start it with `verbena run`, or "
		 "put the directory of Verbena's libraries first in LD_LIBRARY_PATH");
}

EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *value, size_t size)
{
	char path[PATH_MAX];

	explain_other_cm(file);

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t len = file_read(fd, value, size);
	int err = errno;

	sys_close(fd);
	errno = err;
	if (len < 0)
		return -1;
	if (len > 0 && value[len - 1] == '\n')
		len--;
	if ((size_t)len >= size) {
		errno = EOVERFLOW;
		return -1;
	}
	value[len] = '\0';
	return (int)len;
}
