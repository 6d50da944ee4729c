/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the return of converted memory (convert.h) needs of the system, kept from the conversion
 * on: a fork must not fail because the program has used up its descriptors, its mappings
 * (vm.max_map_count) or its RLIMIT_DATA meanwhile. Two descriptors and a few mappings of nothing
 * are held, and let go for the time of a return.
 *
 * State: the caller's struct reserve; the caller serialises (convert_lock).
 */
#ifndef VERBENA_HCA_MEM_RESERVE_H
#define VERBENA_HCA_MEM_RESERVE_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { RESERVE_FILES = 2 };

struct reserve {
	int fd[RESERVE_FILES]; /* -1: none */
	void *mappings;	       /* NULL: none */
	struct rlimit data;    /* RLIMIT_DATA before reserve_use() */
	bool lifted;	       /* reserve_use() has changed it */
};

#define RESERVE_INITIALIZER      \
	{                        \
		.fd = { -1, -1 } \
	}

/* Takes what is missing: more descriptors of the open file `fd`, and mappings. False: not all of it
 * can be had. Ends what reserve_use() began. */
bool reserve_keep(struct reserve *reserve, int fd);

/* Lets go of it. `file` is the status of reserve_keep()'s file: a descriptor that the program has
 * closed, and that is another file's by now, stays open. */
void reserve_drop(struct reserve *reserve, const struct stat *file);

/* The same for a return, which reserve_keep() ends. */
void reserve_use(struct reserve *reserve, const struct stat *file);

#endif
