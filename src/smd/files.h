/* SPDX-License-Identifier: BSD-2-Clause */
/* The manager's files: LIDs and the M_Key, in the run-time directory; partitions and the policy of
 * service levels, which people write. */
#ifndef VERBENA_SMD_FILES_H
#define VERBENA_SMD_FILES_H

#include "sm/sm.h"

/* Gives the manager the LIDs of a file; one that isn't there has none. 0, or a negative errno after
 * a line in the log. */
int lids_read(struct sm *sm, const char *path);
/* Writes them if they have changed. */
void lids_write(struct sm *sm, const char *path);

/* The M_Key of a file, which is made with a random one when there is none. As lids_read(). */
int m_key_make(const char *path, uint64_t *key);

/* Partitions, as OpenSM's partitions.conf has them (partitions.c). As lids_read(). */
int partitions_read(struct sm *sm, const char *path);
/* Service levels, lanes, and which paths get which (policy.c). As lids_read(). */
int policy_read(struct sm *sm, const char *path);

#endif
