/* SPDX-License-Identifier: BSD-2-Clause */
/* Shows the processes' counters (shm/counters.h): those of each process, and a sum that includes
 * the processes that have ended. */
#ifndef VERBENA_DAEMON_CORE_COUNTERS_H
#define VERBENA_DAEMON_CORE_COUNTERS_H

#include <stdint.h>

#include "shm/counters.h"

struct process;
struct server;
struct show_for;
struct text;

/* Plain numbers, as read from a process's table. */
struct counters {
	uint64_t value[PUB_COUNTERS];
};

/* Both add a member "counters" to the open JSON object; the sum counts what `who` may see. */
void counters_show_process(const struct process *process, struct text *out);
void counters_show_sum(const struct server *server, const struct show_for *who, struct text *out);

/* The process is about to end: adds its counters to server->ended. */
void counters_keep(struct process *process);

#endif
