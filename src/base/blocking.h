/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that may wait for another process without bound. They are forbidden on a thread that has
 * called blocking_forbid() (the engine thread), and while the calling thread holds a lock that such
 * a thread, a fast path or fork() may wait for.
 */
#ifndef VERBENA_BASE_BLOCKING_H
#define VERBENA_BASE_BLOCKING_H

#include <stdbool.h>

/* Forbids such calls on the calling thread from now on. */
void blocking_forbid(void);

/*
 * Called before such a call; `what` names it. False, with an error in the log: it is forbidden, and
 * must fail with EDEADLK. In a build with VERBENA_LOCK_RANKS a forbidden call aborts, and the locks
 * that the thread holds are checked as well (rank_check_blocking()).
 */
bool blocking_allowed(const char *what);

#endif
