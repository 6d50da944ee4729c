/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mutexes of static data that a forked child goes on using. fork() waits until each is free, so
 * that the child finds the data whole and nobody in it.
 *
 * Only for mutexes that are held briefly, and under which no other one is taken.
 */
#ifndef VERBENA_BASE_FORK_H
#define VERBENA_BASE_FORK_H

#include "base/mutex.h"

/* For constructors: `mutex` exists as long as the process. */
void fork_keep(struct mutex *mutex);

#define FORK_KEEP(mutex)                                                 \
	__attribute__((constructor)) static void fork_keep_##mutex(void) \
	{                                                                \
		fork_keep(&(mutex));                                     \
	}                                                                \
	_Static_assert(1, "takes the semicolon")

#endif
