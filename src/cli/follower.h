/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps the files of one node up to date while its program runs. */
#ifndef VERBENA_CLI_FOLLOWER_H
#define VERBENA_CLI_FOLLOWER_H

#include "cli/mirror.h"

/*
 * Starts a process in the background that refreshes `node` once a second, as long as this process,
 * whatever program it becomes, or another one in its mount namespace lives. The new process is
 * not this process's child, belongs to no terminal, and holds none of this process's descriptors
 * but those of the mirror. Returns 0, or -errno: the files stay as they are now.
 */
int follower_start(struct mirror_node *node);

#endif
