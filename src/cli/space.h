/* SPDX-License-Identifier: BSD-2-Clause */
/* A mount namespace for the program that `verbena run` becomes. */
#ifndef VERBENA_CLI_SPACE_H
#define VERBENA_CLI_SPACE_H

#include <jansson.h>

/*
 * Moves this process into a mount namespace of its own in which it may mount. Who may mount anyway
 * gets no more than that; who may not also moves into a user namespace, where user and group keep
 * their numbers: that of the user's other programs (`status` is the daemon's answer, it names them)
 * or a new one.
 *
 * Returns 0, or -errno: -EPERM or -ENOSPC where the kernel or its administrator forbids it. Nothing
 * has changed then, or this process is in a user namespace without any use.
 */
int space_enter(const json_t *status);

/*
 * What is mounted below `path`, where a file system of the system's is mounted as a rule, doesn't
 * show outside from now on. space_enter() came before. Returns 0 or -errno.
 */
int space_detach(const char *path);

#endif
