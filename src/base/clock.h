/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock for what takes how long. */
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

#endif
