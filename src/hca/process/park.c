/* SPDX-License-Identifier: BSD-2-Clause */
/* Parking the library's threads. See park.h. No state but the mutexes and the threads' numbers. */
#include "hca/process/park.h"

#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "hca/engine/engine.h"

/* A thread that works waits for the daemon at worst, and both may wait for a processor: on a busy
 * machine (load 30) 100 ms weren't always enough. */
#define PARK_PATIENCE_NS 1000000000ull
#define PARK_NAP_NS 20000

struct mutex park_working[PARK_THREADS] = {
	[PARK_CONTROL] = MUTEX_INITIALIZER(RANK_PARK_CONTROL),
	[PARK_ENGINE] = MUTEX_INITIALIZER(RANK_PARK_ENGINE),
};

/* The threads' numbers; 0: it doesn't run. */
static _Atomic pid_t park_number[PARK_THREADS];

void park_join(enum park_thread thread)
{
	atomic_store_explicit(&park_number[thread], gettid(), memory_order_relaxed);
}

bool park_has(pid_t thread)
{
	bool has = false;

	/* relaxed: a thread whose number isn't seen yet counts as one of the program's */
	for (unsigned int i = 0; i < PARK_THREADS; i++)
		has = has || atomic_load_explicit(&park_number[i], memory_order_relaxed) == thread;
	return has;
}

/* Not analysed, as the functions below: whether a mutex is held depends on the result. */
static bool park_one(enum park_thread thread, uint64_t until) NO_THREAD_SAFETY_ANALYSIS
{
	while (!mutex_try(&park_working[thread])) {
		if (now_ns() > until)
			return false;
		sys_nanosleep(&(struct timespec){.tv_nsec = PARK_NAP_NS}, NULL);
	}
	return true;
}

bool park_begin(void) NO_THREAD_SAFETY_ANALYSIS
{
	uint64_t until = now_ns() + PARK_PATIENCE_NS;

	if (!park_one(PARK_CONTROL, until))
		return false;
	if (park_one(PARK_ENGINE, until))
		return true;
	mutex_give(&park_working[PARK_CONTROL]);
	return false;
}

void park_end(void) NO_THREAD_SAFETY_ANALYSIS
{
	mutex_give(&park_working[PARK_ENGINE]);
	mutex_give(&park_working[PARK_CONTROL]);
}

void park_leave(void)
{
	for (unsigned int i = 0; i < PARK_THREADS; i++)
		atomic_store_explicit(&park_number[i], 0, memory_order_relaxed);
	mutex_init(&park_working[PARK_CONTROL], RANK_PARK_CONTROL);
	mutex_init(&park_working[PARK_ENGINE], RANK_PARK_ENGINE);
}
