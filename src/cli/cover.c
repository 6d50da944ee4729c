/* SPDX-License-Identifier: BSD-2-Clause */
/* Covers a directory of the system; see cover.h. One thread. */
#include "cli/cover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static void place_fail(struct place *place)
{
	if (!place->error)
		place->error = -errno;
}

struct place place_enter(struct place *parent, const char *name)
{
	struct place place = {.fd = -1, .error = parent->error};

	if (place.error)
		return place;
	if (mkdirat(parent->fd, name, 0755) < 0 && errno != EEXIST)
		place_fail(&place);
	place.fd = openat(parent->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place.fd < 0)
		place_fail(&place);
	return place;
}

void place_leave(struct place *parent, struct place *place)
{
	if (place->fd >= 0)
		close(place->fd);
	if (!parent->error)
		parent->error = place->error;
}

void place_put(struct place *place, const char *name, const char *format, ...)
{
	char text[256];
	va_list args;
	int fd;

	if (place->error)
		return;
	va_start(args, format);
	int length = vsnprintf(text, sizeof(text) - 1, format, args);

	va_end(args);
	if (length < 0 || length >= (int)sizeof(text) - 1)
		length = sizeof(text) - 2;
	text[length++] = '\n';
	fd = openat(place->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0 || write(fd, text, (size_t)length) != length)
		place_fail(place);
	if (fd >= 0)
		close(fd);
}

void place_link(struct place *place, const char *name, const char *target)
{
	if (!place->error && symlinkat(target, place->fd, name) < 0)
		place_fail(place);
}

/* Makes a mount point: a mount needs an object of the same kind to be mounted on. */
static bool place_mount_point(const struct place *place, const char *name, bool is_directory)
{
	int fd;

	if (is_directory)
		return mkdirat(place->fd, name, 0755) == 0;
	fd = openat(place->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void place_bind(struct place *place, const char *name, const char *source, bool is_directory)
{
	char target[PATH_MAX];

	if (place->error)
		return;
	snprintf(target, sizeof(target), "/proc/self/fd/%d/%s", place->fd, name);
	if (!place_mount_point(place, name, is_directory) ||
	    mount(source, target, "", MS_BIND | MS_REC, NULL) < 0)
		place_fail(place);
}

static void place_copy_link(struct place *place, int from, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0) {
		place_fail(place);
		return;
	}
	target[n] = 0;
	place_link(place, name, target);
}

static void place_carry_over_one(struct place *place, int from, const char *name)
{
	char source[PATH_MAX];
	struct stat st;

	if (!strcmp(name, ".") || !strcmp(name, "..") ||
	    fstatat(place->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
	    fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (S_ISLNK(st.st_mode)) {
		place_copy_link(place, from, name);
		return;
	}
	snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", from, name);
	place_bind(place, name, source, S_ISDIR(st.st_mode));
}

void place_carry_over(struct place *place, int from)
{
	int fd = place->error ? -1 : openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!directory) {
		place_fail(place);
		if (fd >= 0)
			close(fd);
		return;
	}
	while (!place->error && (entry = readdir(directory)))
		place_carry_over_one(place, from, entry->d_name);
	closedir(directory);
}

bool place_is_name(const char *name)
{
	return *name && *name != '.' && !strchr(name, '/');
}

int cover_directory(const char *path, cover_fill *fill, const json_t *status)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	struct place root = {.fd = -1};
	mode_t mask = umask(022);
	int from = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (from < 0 || mount("verbena", path, "tmpfs", flags, "mode=755") < 0) {
		place_fail(&root);
	} else {
		root.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (root.fd < 0)
			place_fail(&root);
		else
			fill(&root, from, status);
		if (!root.error &&
		    mount(NULL, path, "", MS_REMOUNT | MS_RDONLY | flags, "mode=755") < 0)
			place_fail(&root);
		if (root.error)
			umount2(path, MNT_DETACH);
	}
	if (root.fd >= 0)
		close(root.fd);
	if (from >= 0)
		close(from);
	umask(mask);
	return root.error;
}
