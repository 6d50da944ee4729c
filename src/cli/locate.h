/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where our library and daemon are, and what may be wrong with a program that shall use them.
 */
#ifndef VERBENA_CLI_LOCATE_H
#define VERBENA_CLI_LOCATE_H

#include <limits.h>
#include <stdbool.h>

struct location {
	char library_dir[PATH_MAX]; /* holds libibverbs.so.1 */
	char daemon[PATH_MAX];	    /* verbenad */
};

/*
 * Finds library and daemon by the place of a `verbena` command: an installation
 * (PREFIX/bin, PREFIX/lib/verbena, PREFIX/libexec/verbena) or a build tree (bin, lib).
 * `bin_dir` is the directory that holds the command; NULL means this process's own.
 * Returns 0, -ENOENT when neither is there, or another negative errno.
 */
int location_find(const char *bin_dir, struct location *location);

/* Finds a program as execvp() would. Returns 0 and the path, or -ENOENT or -EACCES. */
int program_find(const char *name, char path[PATH_MAX]);

/* Why LD_LIBRARY_PATH has no effect on a program. */
enum program_obstacle {
	PROGRAM_FINE,
	PROGRAM_STATIC,	    /* no dynamic loader */
	PROGRAM_PRIVILEGED, /* set-user-ID, set-group-ID or file capabilities: the loader ignores it
			     */
	PROGRAM_FOREIGN,    /* another word size or machine than our library's */
};

/* PROGRAM_FINE also for what is not ELF (a script) or cannot be read. */
enum program_obstacle program_examine(const char *path);

#endif
