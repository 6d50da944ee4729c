/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting awake for a moment before sleeping, for two processes that exchange short messages. To
 * wake a processor that idles costs the sender some microseconds, and more in a virtual machine,
 * whose host has to do it; the sleeper as much again. While messages follow one another closely,
 * each side stays awake until the next one comes, and neither pays for that.
 *
 * A process that waits awake for SPIN_NS, and gets no message meanwhile, has spent that time for
 * nothing. After n such waits in a row it sleeps through 2^n - 1 others (2^SPIN_MISSES_MAX - 1 at
 * most), so that a side whose messages come slowly, or that has no processor of its own, spends
 * SPIN_NS for each 256th of them. Messages that come in time take that back, one miss each.
 *
 * Callers use spin_look(), which is made of spin_begins() and spin_ends(). What is there at the
 * first look says nothing about waiting: on one core for both sides, that is all that ever comes.
 *
 * Several threads may use one struct spin: a lost update costs one spin more or less.
 */
#ifndef VERBENA_BASE_SPIN_H
#define VERBENA_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

enum { SPIN_NS = 50000, SPIN_MISSES_MAX = 8 };

struct spin {
	/* Waits awake for which nothing came, less those for which something did. */
	_Atomic uint32_t misses;
	_Atomic uint32_t skip; /* waits to be slept through */
};

/* Whether to wait awake; *until: how long (clock_ns()). */
static inline bool spin_begins(struct spin *spin, uint64_t *until)
{
	uint32_t skip = atomic_load_explicit(&spin->skip, memory_order_relaxed);

	if (skip) {
		atomic_store_explicit(&spin->skip, skip - 1, memory_order_relaxed);
		return false;
	}
	*until = clock_ns() + SPIN_NS;
	return true;
}

/* The end of a wait awake, which the first look didn't end. `came`: what was waited for has come.
 */
static inline void spin_ends(struct spin *spin, bool came)
{
	uint32_t misses = atomic_load_explicit(&spin->misses, memory_order_relaxed);

	if (came) {
		misses -= misses > 0;
	} else {
		misses += misses < SPIN_MISSES_MAX;
		atomic_store_explicit(&spin->skip, (1u << misses) - 1, memory_order_relaxed);
	}
	atomic_store_explicit(&spin->misses, misses, memory_order_relaxed);
}

/* Looks, again and again for a moment if it is time to wait awake, until look(arg) gives something
 * else than `none`. Returns that, or `none`: the caller sleeps then. */
static inline ssize_t spin_look(struct spin *spin, ssize_t (*look)(void *arg), void *arg,
				ssize_t none)
{
	uint64_t until;

	if (!spin_begins(spin, &until))
		return none;
	ssize_t got = look(arg);

	if (got != none)
		return got;
	do
		got = look(arg);
	while (got == none && clock_ns() < until);
	spin_ends(spin, got != none);
	return got;
}

#endif
