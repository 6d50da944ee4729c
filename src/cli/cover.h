/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory of the system's that shows more than there is: a tmpfs over it, in this mount
 * namespace, with what was there before and what the caller adds.
 *
 * Everything is written through descriptors of the directory that it goes to.
 */
#ifndef VERBENA_CLI_COVER_H
#define VERBENA_CLI_COVER_H

#include <jansson.h>
#include <stdbool.h>

/* A directory that is being filled; an error stays, and what comes after it does nothing. */
struct place {
	int fd;
	int error; /* 0 or -errno */
};

/* A new directory in `parent`, or one that is there. Ended by place_leave(). */
struct place place_enter(struct place *parent, const char *name);
void place_leave(struct place *parent, struct place *place);

/* An attribute: a file with a line of text. */
void place_put(struct place *place, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void place_link(struct place *place, const char *name, const char *target);
/* A file or directory that is `source` itself, under another name. */
void place_bind(struct place *place, const char *name, const char *source, bool is_directory);
/* What is in the directory `from`, except names that are in `place` already: symbolic links are
 * copied, everything else is bound. */
void place_carry_over(struct place *place, int from);

/* Whether `name` can be an entry that is put into a directory. */
bool place_is_name(const char *name);

/*
 * Covers the directory `path` with what `fill` puts into `root`; `from` is the directory that is
 * covered. It is read-only afterwards. Returns 0, or -errno and everything is as it was.
 */
typedef void cover_fill(struct place *root, int from, const json_t *status);
int cover_directory(const char *path, cover_fill *fill, const json_t *status);

#endif
