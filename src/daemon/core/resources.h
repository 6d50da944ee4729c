/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `verbena resources` shows: all processes, users, contexts, objects, attachments to groups
 * and identifiers of the CM that the asking user may see, as JSON. That may be a million entries,
 * so it is written step by step, in turns of the loop, and as the client reads it (ctl.c): no
 * question delays another client's command by more than a slice, nor takes memory for the whole
 * answer.
 *
 * So it isn't a snapshot: an object that is made or ends meanwhile may be in it or not. Each object
 * is in it once at most, because the place is remembered by numbers that only grow (the serial
 * numbers of contexts and connections) and places of their tables.
 */
#ifndef VERBENA_DAEMON_CORE_RESOURCES_H
#define VERBENA_DAEMON_CORE_RESOURCES_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct show_for;
struct text;

/* All zero: nothing is written yet. */
struct resources {
	uint32_t part;	 /* of the answer's arrays, the one under way (resources.c) */
	bool open;	 /* it is begun */
	uint32_t slot;	 /* the process under way, */
	uint64_t serial; /* its context, or the client of the CM: this one, or the next */
	uint32_t index;	 /* the next place of its table, */
	uint32_t nth;	 /* and of that queue pair's attachments */
};

/* Writes the next step. False: the answer is complete. */
bool resources_write(const struct server *server, const struct show_for *who, struct resources *at,
		     struct text *out);

#endif
