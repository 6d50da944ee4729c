/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A four-byte mutex for fast paths: one uncontended atomic operation to take it, one to release it,
 * both inline. A waiting thread spins briefly (the holder usually releases it soon), then sleeps in
 * a futex. glibc's mutex costs about three times as much uncontended, which is more than a small
 * message. Not recursive, not shared between processes, not fair.
 *
 * word: 0 free, 1 held, 2 held and a thread sleeps (or may sleep). Ranks: lock_rank.h.
 */
#ifndef VERBENA_BASE_LOCK_H
#define VERBENA_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock_rank.h"

struct CAPABILITY("lock") lock {
	_Atomic uint32_t word;
	LOCK_RANK_MEMBER
};

void lock_wait(struct lock *lock); /* out of line: another thread holds it */
void lock_wake(struct lock *lock);

/* Initialises the lock of a new object. No other thread knows the object yet, so the analysis
 * counts the lock as held for the rest of the calling function. */
static inline void lock_init(struct lock *lock, enum lock_rank rank) ASSERT_HELD(*lock);
static inline void lock_init(struct lock *lock, enum lock_rank rank)
{
	atomic_init(&lock->word, 0);
	rank_forget(lock);
#ifdef VERBENA_LOCK_RANKS
	lock->rank = (uint8_t)rank;
#else
	(void)rank;
#endif
}

static inline bool lock_word_try(struct lock *lock)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong_explicit(&lock->word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

/* These functions implement the lock, so their bodies aren't analysed. */
static inline bool lock_try(struct lock *lock) TRY_ACQUIRE(true, *lock) NO_THREAD_SAFETY_ANALYSIS;
static inline bool lock_try(struct lock *lock)
{
	bool taken = lock_word_try(lock);

	if (taken)
		rank_taken(lock, (enum lock_rank)lock->rank);
	return taken;
}

static inline void lock_take(struct lock *lock) ACQUIRE(*lock) NO_THREAD_SAFETY_ANALYSIS;
static inline void lock_take(struct lock *lock)
{
	rank_check(lock, (enum lock_rank)lock->rank);
	if (__builtin_expect(!lock_word_try(lock), 0))
		lock_wait(lock);
	rank_taken(lock, (enum lock_rank)lock->rank);
}

static inline void lock_give(struct lock *lock) RELEASE(*lock) NO_THREAD_SAFETY_ANALYSIS;
static inline void lock_give(struct lock *lock)
{
	rank_given(lock);
	if (__builtin_expect(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2,
			     0))
		lock_wake(lock);
}

/* For an object that no other thread knows (yet, or any more): the analysis counts its lock as
 * held. There is no check at run time. */
static inline void lock_assume_alone(struct lock *lock) ASSERT_HELD(*lock);
static inline void lock_assume_alone(struct lock *lock)
{
	(void)lock;
}

/* For code that the analysis can't follow: the caller holds the lock. */
static inline void lock_assert_held(struct lock *lock) ASSERT_HELD(*lock);
static inline void lock_assert_held(struct lock *lock)
{
	rank_must_hold(lock, (enum lock_rank)lock->rank);
}

#endif
