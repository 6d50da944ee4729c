/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mutexes of static data that a forked child continues to use. fork() waits until each is free, so
 * that the child finds the data consistent and the mutex unlocked.
 *
 * Only for mutexes that are held briefly, and under which no other mutex is taken.
 */
#ifndef VERBENA_BASE_FORK_H
#define VERBENA_BASE_FORK_H

#include "base/mutex.h"

/* Called by constructors; `mutex` must exist as long as the process. */
void fork_keep(struct mutex *mutex);

#define FORK_KEEP(mutex)                                                 \
	__attribute__((constructor)) static void fork_keep_##mutex(void) \
	{                                                                \
		fork_keep(&(mutex));                                     \
	}                                                                \
	_Static_assert(1, "takes the semicolon")

#endif
