/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A four-byte mutex for fast paths: one uncontended atomic operation to take it, a plain store to
 * release it, both inline. A waiting thread spins briefly (the holder usually releases it soon),
 * then sleeps in a futex. glibc's mutex costs several times as much uncontended, which is more than
 * a small message. Not recursive, not shared between processes, not fair. Releasing is no barrier
 * between the holder's stores and its later loads.
 *
 * word: 0 free, 1 held. Ranks: lock_rank.h.
 *
 * A releasing thread must see that another one sleeps, or the latter that the lock is free:
 *   - The releasing thread stores word := 0, then loads lock_sleepers of the lock's bucket, and
 *     wakes a thread if it isn't 0. No barrier is between; the compiler keeps the order.
 *   - The sleeping thread raises lock_sleepers, then calls membarrier(PRIVATE_EXPEDITED), then
 *     tries the lock once more. membarrier() executes a full barrier on every processor that runs
 *     a thread of this process: a thread that has loaded lock_sleepers before it, has stored
 *     word := 0 before it, too.
 * Where membarrier() is refused, a sleeping thread looks again each LOCK_LOOK_NS instead.
 * lock_sleepers is apart from the locks: the thread that takes a lock next may free it.
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

enum { LOCK_BUCKETS = 64 };
/* How many threads sleep, by their lock's address. */
extern _Atomic uint32_t lock_sleepers[LOCK_BUCKETS];

static inline _Atomic uint32_t *lock_sleepers_of(const struct lock *lock)
{
	return &lock_sleepers[((uintptr_t)lock >> 6) % LOCK_BUCKETS];
}

void lock_wait(struct lock *lock); /* out of line: another thread holds it */
void lock_wake(struct lock *lock);
/* In a forked child: the threads that slept are the parent's. */
void lock_forget_sleepers(void);

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

/* Takes a lock that threads take only while they hold `outer`, as the caller does: no other thread
 * can have it, so a plain store takes it. (Functions that are for objects of its kind require the
 * lock, and other objects of that kind have no such outer lock.) */
static inline void lock_take_within(struct lock *lock, const struct lock *outer) ACQUIRE(*lock)
	REQUIRES(*outer) NO_THREAD_SAFETY_ANALYSIS;
static inline void lock_take_within(struct lock *lock, const struct lock *outer)
{
	rank_must_hold(outer, (enum lock_rank)outer->rank);
	rank_check(lock, (enum lock_rank)lock->rank);
	rank_must_be_free(&lock->word, (enum lock_rank)lock->rank);
	atomic_store_explicit(&lock->word, 1, memory_order_relaxed);
	rank_taken(lock, (enum lock_rank)lock->rank);
}

static inline void lock_give(struct lock *lock) RELEASE(*lock) NO_THREAD_SAFETY_ANALYSIS;
static inline void lock_give(struct lock *lock)
{
	rank_given(lock);
	const _Atomic uint32_t *sleepers = lock_sleepers_of(lock);

	atomic_store_explicit(&lock->word, 0, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst); /* of the compiler only; see above */
	if (__builtin_expect(atomic_load_explicit(sleepers, memory_order_relaxed) != 0, 0))
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
