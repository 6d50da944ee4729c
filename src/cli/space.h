/* SPDX-License-Identifier: BSD-2-Clause */
/* A mount namespace for the program that `verbena run` becomes. */
#ifndef VERBENA_CLI_SPACE_H
#define VERBENA_CLI_SPACE_H

#include <jansson.h>

/*
 * Moves this process into a mount namespace of its own in which it may mount. A user who may mount
 * gets a mount namespace only. Any other user's process also moves into a user namespace, in which
 * user and group keep their numbers: that of the user's other programs (`status`, the daemon's
 * answer, names them) or a new one.
 *
 * Returns 0, or -errno: -EPERM, -EACCES or -ENOSPC where the kernel or its administrator forbids
 * it. Whether a new user namespace can be had is tried by a child, so after such an error nothing
 * has changed.
 */
int space_enter(const json_t *status);

/*
 * The setting of the kernel by which users may not make user namespaces, as a path below /proc/sys
 * (Ubuntu: kernel/apparmor_restrict_unprivileged_userns); NULL if none does. `sys_dir` is
 * /proc/sys, except in tests.
 */
const char *space_forbidding_setting(const char *sys_dir);

/*
 * Makes mounts below `path`, which usually is the mount point of a system's file system, invisible
 * outside from now on. The caller has called space_enter() before. Returns 0 or -errno.
 */
int space_detach(const char *path);

#endif
