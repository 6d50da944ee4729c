/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that may wait for another process without bound, and where none is made: on a thread that
 * has said so (the engine thread), and while the calling thread holds a lock that such a thread, a
 * fast path or fork() may wait for.
 */
#ifndef VERBENA_BASE_BLOCKING_H
#define VERBENA_BASE_BLOCKING_H

#include <stdbool.h>

/* The calling thread makes no such call from now on. */
void blocking_forbid(void);

/*
 * Such a call is about to be made; `what` names it. False, with an error in the log: the thread
 * must not; the call is to fail with EDEADLK. In a build with VERBENA_LOCK_RANKS a forbidden call
 * aborts, also for the locks that the thread holds (rank_check_blocking()).
 */
bool blocking_allowed(const char *what);

#endif
