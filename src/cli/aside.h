/* SPDX-License-Identifier: BSD-2-Clause */
/* A process beside the program that `verbena run` becomes. */
#ifndef VERBENA_CLI_ASIDE_H
#define VERBENA_CLI_ASIDE_H

#include <stddef.h>

/*
 * Starts a process in the background that calls `run` with `context`, and ends. It has a copy of
 * this process's memory, is not this process's child, belongs to no terminal, and holds none of
 * this process's descriptors but those in `fds`, whose numbers are other ones there. `name` (at
 * most 15 bytes) is what ps(1) shows. Returns 0 or -errno.
 */
int aside_start(const char *name, int *const fds[], size_t count, void (*run)(void *context),
		void *context);

#endif
