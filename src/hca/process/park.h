/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parking the library's two threads: while they are parked they neither read nor write memory of
 * the program, nor anything but their own stacks and struct hca, and hold no lock. A parked thread
 * that is woken waits for park_end().
 *
 * Each thread holds a mutex of its own while it works, and releases it to sleep. The mutexes are
 * static, and struct hca has pages of its own (hca_make()), so that no memory which is converted
 * (mem/convert.h) has words that a parked thread changes.
 */
#ifndef VERBENA_HCA_PROCESS_PARK_H
#define VERBENA_HCA_PROCESS_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/mutex.h"

enum park_thread { PARK_CONTROL, PARK_ENGINE, PARK_THREADS };

extern struct mutex park_working[PARK_THREADS];

/* For the thread itself, before all else: it is one that can be parked. */
void park_join(enum park_thread thread);

/* Whether the thread of this process is one of them. */
bool park_has(pid_t thread);

/* For the thread itself: it works from now on; it is about to sleep. */
static inline void park_work(enum park_thread thread) ACQUIRE(park_working[thread])
{
	mutex_take(&park_working[thread]);
}

static inline void park_rest(enum park_thread thread) RELEASE(park_working[thread])
{
	mutex_give(&park_working[thread]);
}

/* Waits, for a bounded time, until both threads sleep, and keeps them parked. False: one works on,
 * and none is parked. For any other thread. */
bool park_begin(void);
void park_end(void);

/* In a forked child, which has neither thread. */
void park_leave(void);

#endif
