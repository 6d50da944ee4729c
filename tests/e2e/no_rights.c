/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library to preload with which a user may make a user namespace, but has no right in it, as
 * where Ubuntu's AppArmor restricts them: the kernel then refuses to open the files of /proc that
 * map user and group (EACCES).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

static bool is_map(const char *path)
{
	static const char *const maps[] = {"/proc/self/setgroups", "/proc/self/uid_map",
					   "/proc/self/gid_map"};

	for (unsigned int i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
		if (!strcmp(path, maps[i]))
			return true;
	return false;
}

static int open_otherwise(const char *name, const char *path, int flags, va_list more)
{
	int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
	mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;

	if ((flags & O_ACCMODE) == O_RDONLY || !is_map(path))
		return next(path, flags, mode);
	errno = EACCES;
	return -1;
}

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
	va_list more;

	va_start(more, flags);
	int fd = open_otherwise("open", path, flags, more);

	va_end(more);
	return fd;
}

__attribute__((visibility("default"))) int open64(const char *path, int flags, ...)
{
	va_list more;

	va_start(more, flags);
	int fd = open_otherwise("open64", path, flags, more);

	va_end(more);
	return fd;
}
