/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting to the daemon, and starting one when none runs. */
#ifndef VERBENA_CLIENT_START_H
#define VERBENA_CLIENT_START_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Connects to `node` (for example "uverbs0"; NULL: the first node) of the run-time directory.
 * Starts verbenad when no daemon listens: exactly one, however many programs try at once. Returns
 * the descriptor (close-on-exec) or -errno, with a log line that says what to do.
 */
int start_connect(const char *node);

/* While `only` is set, start_connect() on this thread starts no daemon: -ECONNREFUSED or -ENOENT
 * when none runs. */
void start_join_only(bool only);

/* From now on this process keeps to the run-time directory that it uses now. */
void start_stay(void);
/* Writes the run-time directory in use. Returns 0 or as rundir_find(). */
int start_directory(char *buf, size_t len);
/* Whether a daemon listens now. Starts none. */
bool start_is_there(void);
/* Starts a daemon when none listens. Returns 0: a daemon listens; -errno as start_connect(). Takes
 * seconds, so the caller holds no lock. */
int start_one(void);

/*
 * How often a process tries to reach a daemon that hangs up before it has answered, and the pause
 * before each try (from 0): a daemon that was killed accepts connections until the kernel has
 * closed its sockets, which takes a moment. All pauses together are one second.
 */
enum { START_TRIES = 12 };
void start_pause(int tries);

#endif
