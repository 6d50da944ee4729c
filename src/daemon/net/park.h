/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The park: where the sockets of the wire (wire.h) wait for the next daemon.
 *
 * It is a pair of Unix sockets. The sockets of all places, in order, lie as messages in the queue
 * of one end, `out`, and nobody takes them out: whoever comes next only looks (MSG_PEEK). Processes
 * keep `out` open, and so, while one of them lives, all sockets stay open and their places stay
 * theirs. The first message is the other end, so that the next daemon puts what it adds behind what
 * is there: a park stays the same for all daemons of a group, and each holder has all of it.
 */
#ifndef VERBENA_DAEMON_NET_PARK_H
#define VERBENA_DAEMON_NET_PARK_H

#include <stdint.h>

struct park {
	int in, out;	 /* -1: none */
	uint32_t parked; /* so many places are in it */
};

void park_init(struct park *park);
void park_close(struct park *park);

/* A new, empty one. 0 or -errno. */
int park_make(struct park *park);
/* Empties it, for whoever has it: it is filled anew or of no use any more. */
void park_clear(struct park *park);
/* Puts places from park->parked to `count` in. 0, or -errno: what went in stays. */
int park_put(struct park *park, const int *fds, uint32_t count);
/*
 * Somebody brought `out`: fills `fds` (room for `max`) with what is in it, each the caller's to
 * check and close. On success the park is made of it, and `out` taken over. Returns their number;
 * -EINVAL it isn't a park; -errno.
 */
int park_take(struct park *park, int out, int *fds, uint32_t max);

#endif
