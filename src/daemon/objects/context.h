/* SPDX-License-Identifier: BSD-2-Clause */
/* A context: the daemon's side of an ibv_open_device(). It has one connection and belongs to a
 * process. */
#ifndef VERBENA_DAEMON_OBJECTS_CONTEXT_H
#define VERBENA_DAEMON_OBJECTS_CONTEXT_H

#include <stdbool.h>

#include "base/list.h"
#include "daemon/core/table.h"
#include "daemon/objects/objects.h"

struct conn;
struct process;

struct context {
	struct conn *conn;
	struct process *process;
	/* The last interface of its device is gone: it makes no objects any more. Set by
	 * process_lose_device(), never cleared: the program opens the device again. */
	bool removed;
	bool ended;	  /* its connection has: see ending.h. Never cleared */
	struct list node; /* on process->contexts, in the order of `serial` */
	uint64_t serial;  /* no other context of this daemon has or had it; not 0 */
	struct table table;
	struct list objects[OBJECT_KINDS];
	uint64_t token[2];	/* see share.h; 0, 0: none */
	struct list same_token; /* in a bucket of server->share */
};

/* Makes a context. Returns 0; -ENOMEM: no memory, or the process has too many (logged). */
int context_make(struct process *process, struct conn *conn, const uint64_t token[2],
		 struct context **out);
/* It, or its process, has ended: what was made over it can't be used by others. */
bool context_has_ended(const struct context *context);
/* The three parts of a context's end (ending.h): that of conn_close(); a step of freeing its
 * objects, with which it returns whether there was one; the rest, when there was none. */
void context_end(struct context *context);
bool context_free_some(struct context *context);
void context_free(struct context *context);

#endif
