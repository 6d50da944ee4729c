/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The run-time directory, where the daemon's sockets are. One per user and network namespace:
 * $VERBENA_RUNTIME_DIR; else /run/verbena when a system-wide daemon serves there; else
 * $XDG_RUNTIME_DIR/verbena-<netns>; else /tmp/verbena-<uid>-<netns>.
 */
#ifndef VERBENA_CLIENT_RUNDIR_H
#define VERBENA_CLIENT_RUNDIR_H

#include <stddef.h>

#define RUNDIR_MAX 96 /* bytes: a socket's path must fit into struct sockaddr_un */

/* Writes the directory's path (it need not exist). 0; -ENAMETOOLONG; -errno of /proc. */
int rundir_find(char *buf, size_t len);

/* Makes sure that it exists, is ours and is nobody else's to write. 0, -EPERM (said why), -errno. */
int rundir_make(const char *path);

#endif
