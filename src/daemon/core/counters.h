/* SPDX-License-Identifier: BSD-2-Clause */
/* What processes count (shm/counters.h), shown: each process's own, and the sum, in which those
 * that have ended still count. */
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

/* A member "counters" of the object that is open. */
void counters_show_process(const struct process *process, struct text *out);
void counters_show_sum(const struct server *server, const struct show_for *who, struct text *out);

/* The process is about to end: what it counted is kept in the sum. */
void counters_keep(struct process *process);

#endif
