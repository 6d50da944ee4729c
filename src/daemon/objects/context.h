/* SPDX-License-Identifier: BSD-2-Clause */
/* A context: what a program got from ibv_open_device(). One connection each; belongs to a process.
 */
#ifndef VERBENA_DAEMON_OBJECTS_CONTEXT_H
#define VERBENA_DAEMON_OBJECTS_CONTEXT_H

#include "base/list.h"
#include "daemon/core/table.h"
#include "daemon/objects/objects.h"

struct conn;
struct process;

struct context {
	struct conn *conn;
	struct process *process;
	struct list node; /* on process->contexts */
	struct table table;
	struct list objects[OBJECT_KINDS];
	uint64_t token[2];	/* see share.h; 0, 0: none */
	struct list same_token; /* in a bucket of server->share */
};

/* 0; -ENOMEM no memory or the process has too many (said in the log). */
int context_make(struct process *process, struct conn *conn, const uint64_t token[2],
		 struct context **out);
/* Frees it with all that it holds; its connection stays, the caller closes it. */
void context_free(struct context *context);

#endif
