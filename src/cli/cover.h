/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Covers a directory of the system, in this mount namespace, by a tmpfs with the directory's own
 * entries and those that the caller adds.
 *
 * Everything is written through descriptors of the directory that it goes to.
 */
#ifndef VERBENA_CLI_COVER_H
#define VERBENA_CLI_COVER_H

#include <jansson.h>
#include <stdbool.h>

/* A directory that is being filled. An error is kept, and later calls then do nothing. */
struct place {
	int fd;
	int error; /* 0 or -errno */
};

/* Opens a directory in `parent`, which is made if needed. Ended by place_leave(). */
struct place place_enter(struct place *parent, const char *name);
/* Closes `place`; its error becomes the parent's, unless that has one. */
void place_leave(struct place *parent, struct place *place);

/* Writes an attribute: a file with a line of text. */
void place_put(struct place *place, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds a symbolic link. */
void place_link(struct place *place, const char *name, const char *target);
/* Bind-mounts the file or directory `source` under another name. */
void place_bind(struct place *place, const char *name, const char *source, bool is_directory);
/* Adds the entries of the directory `from`, except names that are in `place` already: symbolic
 * links are copied, other entries are bind-mounted. */
void place_carry_over(struct place *place, int from);

/* Whether `name` can be the name of an entry. */
bool place_is_name(const char *name);

/*
 * Covers the directory `path` with what `fill` puts into `root`; `from` is the covered directory.
 * The cover is read-only afterwards. Returns 0, or -errno with everything unchanged.
 */
typedef void cover_fill(struct place *root, int from, const json_t *status);
int cover_directory(const char *path, cover_fill *fill, const json_t *status);

#endif
