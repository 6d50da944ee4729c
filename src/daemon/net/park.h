/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The park: where the sockets of the wire (udp_slots.h) wait for the next daemon.
 *
 * It is a pair of Unix sockets. The sockets of all places, in order, are in messages in the queue
 * of one end, `out`. No process takes them out: the next daemon only peeks (MSG_PEEK). Processes
 * keep `out` open, so that, while one of them lives, all sockets stay open and keep their places.
 * The first message is the other end, so that the next daemon can add messages behind the existing
 * ones: a park stays the same for all daemons of a group, and each holder has all of it.
 *
 * A daemon may be killed at any instant, so the queue always has a whole set of sockets. When a
 * place gets another socket, the new set is put behind the old one, then a message that makes it
 * valid, and only then the old set is taken out (park_replace()). The messages, in their order:
 *
 *   message    descriptors        meaning
 *   BEGIN      the other end      a set begins; all before it are what is left of an older set
 *   REPLACE    the other end      a set begins that doesn't count until its VALID
 *   places     1 to BATCH         the next places of the set
 *   VALID      none               the set since REPLACE counts, the one before it doesn't
 */
#ifndef VERBENA_DAEMON_NET_PARK_H
#define VERBENA_DAEMON_NET_PARK_H

#include <stdbool.h>
#include <stdint.h>

struct park {
	int in, out;	   /* -1: none */
	uint32_t parked;   /* places that are in it */
	uint32_t messages; /* in the queue */
	bool unfinished; /* the queue has parts of another set: park_replace() before park_put() */
};

void park_init(struct park *park);
void park_close(struct park *park);

/* Makes an empty park. Returns 0 or -errno. */
int park_make(struct park *park);
/* Empties the park, for all its holders: it has become useless. */
void park_clear(struct park *park);
/* Adds the places from park->parked to `count`. Returns 0, or -errno: what was added stays. */
int park_put(struct park *park, const int *fds, uint32_t count);
/* Replaces all sockets by these. Returns 0, or -errno: the park still has the former ones. */
int park_replace(struct park *park, const int *fds, uint32_t count);
/*
 * Takes over a park that a process brought: fills `fds` (room for `max`) with its sockets, each the
 * caller's to check and close. On success the park owns `out`. Returns their number; -EINVAL: it
 * isn't a park; -errno.
 */
int park_take(struct park *park, int out, int *fds, uint32_t max);

#endif
