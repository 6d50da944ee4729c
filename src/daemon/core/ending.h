/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ended clients leave: freed bit by bit.
 *
 * The invariant: no turn of the loop frees more than a slice of what ended clients held
 * (SLICE_NS; one step is never divided), however many objects they had. So no client's end makes
 * another client wait much longer than a slice.
 *
 * A connection ends in two parts:
 * - conn_close() *ends* it at once: no request comes from it any more, and nothing that was made
 *   over it can be used by another process. A process has no links, its peers know that; its slot
 *   names no process; its rules get no frames; packets for its XRC target queue pairs get to their
 *   heir. A context's handles are found by none of those that share its token. A client of the CM
 *   has no port and no listener, and gets no event. `ended` in struct process, context and
 *   cm_client says that; whatever follows a pointer from something shared to one user's object
 *   (struct target.handles, domain.pds, cm_binding.ids) skips those that have ended.
 * - What it held is freed in steps: an object, an attachment to a group. A connection that has just
 *   ended is first, so that one with few objects is freed at once whatever others have left; the
 *   turns after that take the connections by turns. Until it is freed it counts against its user's
 * shares, and its numbers (slot, QPNs, keys) are given to nobody.
 *
 * A request that a share or a range of numbers refuses while its user's ended connections still
 * hold something is answered when they don't (ending_may_help(), struct request.later): a program
 * that is started again at once gets what the one before it had.
 *
 * When the daemon leaves, ending_finish() frees everything.
 */
#ifndef VERBENA_DAEMON_CORE_ENDING_H
#define VERBENA_DAEMON_CORE_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct conn;
struct server;
struct user;

struct ending {
	struct list conns;  /* struct conn.node */
	uint64_t used_ns;   /* in this turn of the loop */
	uint32_t steps;	    /* likewise */
	uint32_t steps_max; /* 0: no limit. Tests whose clock stands still set it */
	uint32_t waiting;   /* postponed requests: struct conn.waits */
	bool running;	    /* a slice is under way: what it ends is only added to the list */
};

void ending_init(struct server *server);
/* Adds a connection that has just ended; frees as much as this turn's slice allows. */
void ending_add(struct conn *conn);
/* Something else is to be done bit by bit (xrc_tell_some()): begins with what the slice allows. */
void ending_begin(struct server *server);
/* Frees everything at once. */
void ending_finish(struct server *server);

/* The request of `conn` is to be refused because its user (or `anybody`) has too much. Returns
 * whether something of that user is still to be freed: then the request is to be postponed, and is
 * retried when more is freed. */
bool ending_may_help(struct conn *conn, bool anybody);

#endif
