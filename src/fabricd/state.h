/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file with the fabric's tables, and its lock. The file is mapped, and what is stored there
 * stays when the process ends in any way. Errors are logged.
 */
#ifndef VERBENA_FABRICD_STATE_H
#define VERBENA_FABRICD_STATE_H

#include "fabricd/server.h"

#define STATE_FILE "fabric.state"
#define STATE_LOCK "fabric.lock"

/* Opens the directory and takes its lock, which the process keeps. -EBUSY: another process has it.
 */
int state_lock(struct server *server);

/* Makes the file from a topology's file; server->fabric is ready then. `slow`: of its links, see
 * fabric_header. */
int state_create(struct server *server, const char *topology, uint32_t slow);
/* Maps the file that another process left. `from`: a file that `save` made is copied first. */
int state_resume(struct server *server, const char *from);

/* Writes a copy. Returns 0 or -errno. */
int state_save(const struct server *server, const char *path);
/* Replaces the tables by those of a saved file of the same topology. -EINVAL: it isn't one. */
int state_load(struct server *server, const char *path);

#endif
