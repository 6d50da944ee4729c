/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock for measuring durations. */
#ifndef VERBENA_BASE_CLOCK_H
#define VERBENA_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC, in ns. */
static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Measures trial(arg), in ns: the shortest of several runs, since disturbances only lengthen a
 * run. */
static inline uint64_t clock_shortest(void (*trial)(void *), void *arg)
{
	enum { TRIALS = 4 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < TRIALS; i++) {
		uint64_t begin = clock_ns();

		trial(arg);
		uint64_t took = clock_ns() - begin;

		least = took < least ? took : least;
	}
	return least;
}

#endif
