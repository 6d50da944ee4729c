/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex of four bytes for fast paths: one uncontended atomic to take, one to give back, both
 * inline; a waiter spins briefly (the holder is usually about to leave), then sleeps in a futex.
 * glibc's mutex costs about three times as much uncontended, which is more than a small message.
 * Not recursive, not shared between processes, not fair.
 *
 * word: 0 free, 1 held, 2 held and somebody sleeps (or may).
 */
#ifndef VERBENA_BASE_LOCK_H
#define VERBENA_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
	_Atomic uint32_t word;
};

void lock_wait(struct lock *lock); /* out of line: taken by somebody else */
void lock_wake(struct lock *lock);

static inline void lock_init(struct lock *lock)
{
	atomic_init(&lock->word, 0);
}

static inline bool lock_try(struct lock *lock)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong_explicit(&lock->word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void lock_take(struct lock *lock)
{
	if (__builtin_expect(!lock_try(lock), 0))
		lock_wait(lock);
}

static inline void lock_give(struct lock *lock)
{
	if (__builtin_expect(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2,
			     0))
		lock_wake(lock);
}

#endif
