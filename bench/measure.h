/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs share that measure the machine: time, a core of one's own, and giving up. */
#ifndef VERBENA_BENCH_MEASURE_H
#define VERBENA_BENCH_MEASURE_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		give_up("can't pin to a core (sched_setaffinity)");
}

/* ns */
static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* For qsort. */
static inline int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#endif
