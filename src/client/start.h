/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting to the daemon, starting it when there is none. */
#ifndef VERBENA_CLIENT_START_H
#define VERBENA_CLIENT_START_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A connected socket to `node` (for example "uverbs0"; NULL: the first node) of the run-time
 * directory. Starts verbenad when nobody listens, exactly one however many programs try at once.
 * Returns the descriptor (close-on-exec) or -errno, with a log line that says what to do.
 */
int start_connect(const char *node);

/* While it is set, start_connect() on this thread only joins a daemon that is there: -ECONNREFUSED
 * or -ENOENT when there is none. */
void start_join_only(bool only);

/* From now on the daemon of this process is that of the directory that it uses now. */
void start_stay(void);
/* The run-time directory that is used. 0 or as rundir_find(). */
int start_directory(char *buf, size_t len);
/* Whether a daemon listens now. Starts none. */
bool start_is_there(void);
/* Starts a daemon when none listens. 0: one does. -errno as start_connect(). Takes seconds: no lock
 * may be held. */
int start_one(void);

#endif
