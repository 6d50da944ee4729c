/* SPDX-License-Identifier: BSD-2-Clause */
/* See own_dir.h. No state. */
#include "base/own_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/log.h"

static bool belongs_to_another(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_uid != 0 && st.st_uid != geteuid();
}

/* Whether it is a directory in which only this user can make files. */
static bool is_this_users(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 022);
}

static int own_dir_format(char *path, size_t size, const char *place, const char *name,
			  const char *end)
{
	int n = snprintf(path, size, "%s/%s%s", place, name, end);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* Finds the first by name, which is the oldest, of those whose names end with a time. False: there
 * is none. */
static bool oldest_find(char *path, size_t size, const char *place, const char *name)
{
	char oldest[NAME_MAX + 1] = "";
	size_t length = strlen(name);
	struct names names;
	const char *at;

	if (!names_open(&names, place))
		return false;
	while ((at = names_next(&names))) {
		if (strncmp(at, name, length) != 0 || at[length] != '.' ||
		    (*oldest && strcmp(at, oldest) >= 0) ||
		    own_dir_format(path, size, place, at, "") || !is_this_users(path))
			continue;
		snprintf(oldest, sizeof(oldest), "%s", at);
	}
	names_close(&names);
	return *oldest && !own_dir_format(path, size, place, oldest, "");
}

static int own_dir_make(char *path, size_t size, const char *place, const char *name)
{
	struct timespec now;
	char end[24];

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(end, sizeof(end), ".%016llx",
		 (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec);
	int err = own_dir_format(path, size, place, name, end);

	return !err && mkdir(path, 0700) < 0 ? -errno : err;
}

int own_dir_find(char *path, size_t size, const char *place, const char *name)
{
	char made[PATH_MAX];
	int err = own_dir_format(path, size, place, name, "");

	if (err || !belongs_to_another(path) || oldest_find(path, size, place, name))
		return err;
	do
		err = own_dir_make(made, sizeof(made), place, name);
	while (err == -EEXIST);
	if (err)
		return err;
	/* Another program may have been quicker. */
	if (!oldest_find(path, size, place, name))
		return -ENAMETOOLONG;
	if (strcmp(path, made) != 0)
		rmdir(made);
	else
		log_info("%s/%s belongs to another user: %s is used instead", place, name, path);
	return 0;
}
