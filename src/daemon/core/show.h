/* SPDX-License-Identifier: BSD-2-Clause */
/* What `verbena status`, `verbena resources` and a port's files of sysfs show, as JSON. */
#ifndef VERBENA_DAEMON_CORE_SHOW_H
#define VERBENA_DAEMON_CORE_SHOW_H

#include <stdbool.h>
#include <sys/types.h>

struct attachment;
struct object;
struct process;
struct qp;
struct server;
struct text;

/* The asking user: it sees its own programs, or all. */
struct show_for {
	uid_t uid;
	bool all;
};

void show_status(const struct server *server, const struct show_for *who, struct text *out);
/* The sum of all users' counters, which everybody may see, as those of a card. */
void show_sum(const struct server *server, struct text *out);

/* Parts of `verbena resources` (resources.h). */

/* Whether there is a process, which `who` may see. */
bool show_may_see(const struct show_for *who, const struct process *process);
/* Each adds elements to the array that is open: the pinned bytes of a process, of each user; a
 * process's contexts; an object; a group to which a queue pair is attached. */
void show_process(const struct process *process, struct text *out);
void show_users(const struct server *server, const struct show_for *who, struct text *out);
void show_contexts(const struct process *process, struct text *out);
void show_object(const struct object *object, struct text *out);
void show_attachment(const struct qp *qp, const struct attachment *a, struct text *out);

#endif
