/* SPDX-License-Identifier: BSD-2-Clause */
/* The manager's files: the LIDs that it gave, in the run-time directory, and partitions. */
#ifndef VERBENA_SMD_FILES_H
#define VERBENA_SMD_FILES_H

#include "sm/sm.h"

/* Gives the manager the LIDs of a file; one that isn't there has none. 0, or a negative errno after
 * a line in the log. */
int lids_read(struct sm *sm, const char *path);
/* Writes them if they have changed. */
void lids_write(struct sm *sm, const char *path);

/*
 * Reads partitions. A line is a P_Key, and members: port GUIDs, `ALL`, each with `=limited` or
 * `=full` (that is the default); `#` begins a comment.
 *
 *   0x8001 0x100001 0x100003=limited
 */
int partitions_read(struct sm *sm, const char *path);

#endif
