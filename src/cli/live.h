/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory of files whose texts are made when they are read, as those of a sysfs: a FUSE file
 * system that this program serves itself.
 *
 * A process mounts the directory, and starts another one that calls live_serve(). Both have one
 * thread. Where a system has no FUSE, or doesn't let the user mount one, there is no directory.
 */
#ifndef VERBENA_CLI_LIVE_H
#define VERBENA_CLI_LIVE_H

#include <stddef.h>

#include "cli/cover.h"

enum { LIVE_FILES = 24, LIVE_TEXT_BYTES = 32 };

struct live_handle;

struct live {
	int fd; /* of /dev/fuse; -1: not mounted */
	const char *names[LIVE_FILES];
	size_t count;
	/* Writes the file's text, and returns its length or -errno. */
	int (*read)(void *context, size_t file, char text[LIVE_TEXT_BYTES]);
	void *context;
	struct live_handle *handles; /* of the open files */
	size_t handle_count;
};

/*
 * Makes the directory `name` and mounts `live` there, read-only, if that is possible. Until
 * live_serve() runs, whatever looks into the directory waits. Returns 0 or -errno: there is no such
 * directory.
 */
int live_mount(struct live *live, const struct place *parent, const char *name);

/*
 * Answers, until no mount namespace has the directories any more. To learn that, the process
 * leaves its own mount namespace, and detaches `path` in the new one: a mount point that the
 * directories are below. -1 as a descriptor: that one is left out.
 */
void live_serve(struct live *const lives[], size_t count, const char *path);

#endif
