/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for what comes soon: some microseconds are looked before the thread sleeps.
 *
 * A processor on which nobody runs any more stops, and in a virtual machine it takes an interrupt
 * from another one, through the hypervisor, to start it again. A round trip on a Unix socket whose
 * two ends sleep takes 11 us if both run on one processor, but 70 us on two; if the one that asks
 * looks for the answer meanwhile, 20 us. Who looks gives way each time: the other end may need this
 * processor. If somebody did, one more look is enough: a sleeper is woken sooner than one who has
 * given way has his turn.
 */
#ifndef VERBENA_BASE_SOON_H
#define VERBENA_BASE_SOON_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* About as long as it would take to fall asleep and be woken. */
#define SOON_NS 50000
/* To give way takes less when nobody else wants the processor. */
#define SOON_ALONE_NS 3000

struct soon {
	uint64_t end; /* 0: not begun */
	bool shared;  /* somebody else ran here */
};

static inline uint64_t soon_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Between two looks: false when it is time to sleep. */
static inline bool soon(struct soon *soon)
{
	uint64_t now = soon_now_ns();

	if (!soon->end)
		soon->end = now + SOON_NS;
	else if (now >= soon->end || soon->shared)
		return false;
	sched_yield();
	soon->shared = soon_now_ns() - now > SOON_ALONE_NS;
	return true;
}

#endif
