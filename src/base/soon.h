/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for what comes soon: some microseconds are looked before the thread sleeps.
 *
 * A processor on which nobody runs any more stops, and in a virtual machine it takes an interrupt
 * from another one, through the hypervisor, to start it again. A round trip on a Unix socket whose
 * two ends sleep takes 11 us if both run on one processor, but 70 us on two; if the one that asks
 * looks for the answer meanwhile, 20 us. Who looks gives way each time: the other end may need this
 * processor. If somebody did, one more look is enough, and for some time it is better not to look
 * at all: a sleeper is woken sooner than one who has given way has his turn.
 */
#ifndef VERBENA_BASE_SOON_H
#define VERBENA_BASE_SOON_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* About as long as it would take to fall asleep and be woken. */
#define SOON_NS 50000
/* To give way takes less when nobody else wants the processor; so long it isn't looked when
 * somebody did. */
#define SOON_ALONE_NS 3000
#define SOON_SHARED_NS 100000000

/* When it is looked again; of a thread, or of several that find the same. */
typedef _Atomic uint64_t soon_pause_t;

struct soon {
	uint64_t end; /* 0: not begun */
};

static inline uint64_t soon_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Between two looks: false when it is time to sleep. */
static inline bool soon(struct soon *soon, soon_pause_t *pause)
{
	uint64_t now = soon_now_ns();

	if (now < atomic_load_explicit(pause, memory_order_relaxed))
		return false;
	if (!soon->end)
		soon->end = now + SOON_NS;
	else if (now >= soon->end)
		return false;
	sched_yield();
	uint64_t after = soon_now_ns();

	if (after - now > SOON_ALONE_NS)
		atomic_store_explicit(pause, after + SOON_SHARED_NS, memory_order_relaxed);
	return true;
}

#endif
