/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locates Verbena's library and daemon, and tells whether a program can load the library.
 */
#ifndef VERBENA_CLI_LOCATE_H
#define VERBENA_CLI_LOCATE_H

#include <limits.h>
#include <stdbool.h>

struct location {
	char library_dir[PATH_MAX]; /* the directory of libibverbs.so.1 */
	char daemon[PATH_MAX];	    /* verbenad */
	char program_dir[PATH_MAX]; /* our rdma(8)'s directory; empty: there is none */
};

/*
 * Finds library and daemon by the place of a `verbena` command: in an installation (PREFIX/bin,
 * PREFIX/lib/verbena or lib64, PREFIX/libexec/verbena) or a build tree (bin, lib, libexec). `bin_dir` is the
 * directory of the command; NULL: this process's own. Returns 0, -ENOENT when neither layout is
 * there, or another negative errno.
 */
int location_find(const char *bin_dir, struct location *location);

/* Finds a program as execvp() would. Returns 0 with the path, or -ENOENT or -EACCES. */
int program_find(const char *name, char path[PATH_MAX]);

/*
 * Finds the program of that name which this process stands in for: the first in PATH, behind this
 * process's own file if that is in PATH, too. So no two stand-ins find each other. Returns 0 with
 * the path, or -ENOENT.
 */
int program_find_next(const char *name, char path[PATH_MAX]);

/* The reason why LD_LIBRARY_PATH has no effect on a program. */
enum program_obstacle {
	PROGRAM_FINE,
	PROGRAM_STATIC,	    /* no dynamic loader */
	PROGRAM_PRIVILEGED, /* set-user-ID, set-group-ID or file capabilities: the loader ignores it
			     */
	PROGRAM_FOREIGN,    /* another word size or machine than Verbena's library */
};

/* PROGRAM_FINE also for a file that is not ELF (a script) or cannot be read. */
enum program_obstacle program_examine(const char *path);

#endif
