/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex for fast paths: one uncontended atomic operation to take it, a plain store to release it,
 * both inline. A waiting thread spins briefly (the holder usually releases it soon), then sleeps in
 * a futex. glibc's mutex costs several times as much uncontended, which is more than a small
 * message. Not recursive, not shared between processes, not fair. Releasing is no barrier between
 * the holder's stores and its later loads, and neither is taking it by its owner (see below).
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
 *
 * Bias. An atomic operation waits until the processor's earlier stores have left its store buffer,
 * which is a quarter of the time that a small message takes. A lock that lock_bias() has prepared
 * gives itself to a thread that has taken it BIAS_AFTER times in succession: its *owner*, which
 * from then on takes it by plain stores and loads. An owner is a thread pointer, whose lowest bit
 * is 0; with the bit set, it is a thread that isn't the owner now, but may become it.
 *   - The owner stores mine := 1, then loads `owner`. If that is still itself, it has the lock.
 *     Otherwise it stores mine := 0, and takes the lock by `word` as any thread.
 *   - Another thread takes `word` first. Then it sets the bit in `owner`, calls membarrier(), and
 *     waits until mine = 0. After membarrier(), either the owner sees the bit, or the other thread
 *     sees mine = 1.
 *   - `owner` changes only while `word` is taken.
 *   - A lock has one owner in its life. If there were a second one, the first one could have loaded
 *     `owner` before it lost the lock, and could store to `mine` when it runs again.
 * Only the owner stores to `mine`.
 */
#ifndef VERBENA_BASE_LOCK_H
#define VERBENA_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock_rank.h"
#include "base/thread_self.h"

struct CAPABILITY("lock") lock {
	_Atomic uint32_t word;
	_Atomic uint32_t mine;
	_Atomic uintptr_t owner; /* 0: no thread has taken it yet, or it never has an owner */
	/* How often its next owner must take it until it is; 0: it never has an owner. Changes
	 * while `word` is taken. */
	uint16_t left;
	bool had_owner;
	LOCK_RANK_MEMBER
};

enum { LOCK_BUCKETS = 64, BIAS_OFF = 1 };
#ifndef BIAS_AFTER
#define BIAS_AFTER 1024
#endif
/* How many threads sleep, by their lock's address. */
extern _Atomic uint32_t lock_sleepers[LOCK_BUCKETS];

static inline _Atomic uint32_t *lock_sleepers_of(const struct lock *lock)
{
	return &lock_sleepers[((uintptr_t)lock >> 6) % LOCK_BUCKETS];
}

void lock_wait(struct lock *lock); /* out of line: another thread holds it */
void lock_wake(_Atomic uint32_t *word);
/* Out of line: `word` of a lock that may have an owner was taken. lock_shared_try() returns false
 * if the owner has the lock; then the caller doesn't have `word` any more. */
void lock_shared(struct lock *lock);
bool lock_shared_try(struct lock *lock);
void lock_mine_lost(struct lock *lock); /* out of line: the owner has lost it */
/* In a forked child: the threads that slept are the parent's. */
void lock_forget_sleepers(void);

/* Initialises the lock of a new object. No other thread knows the object yet, so the analysis
 * counts the lock as held for the rest of the calling function. */
static inline void lock_init(struct lock *lock, enum lock_rank rank) ASSERT_HELD(*lock);
static inline void lock_init(struct lock *lock, enum lock_rank rank)
{
	atomic_init(&lock->word, 0);
	atomic_init(&lock->mine, 0);
	atomic_init(&lock->owner, 0);
	lock->left = 0;
	lock->had_owner = false;
	rank_forget(lock);
#ifdef VERBENA_LOCK_RANKS
	lock->rank = (uint8_t)rank;
#else
	(void)rank;
#endif
}

/* The calling thread becomes no owner: it takes locks for the program's threads, which may do so by
 * themselves at any time. */
void lock_never_own(void);

/* After lock_init(): the lock may have an owner. For locks that one thread mostly takes. */
static inline void lock_bias(struct lock *lock)
{
	lock->left = BIAS_AFTER;
}

static inline bool lock_is_owner(const struct lock *lock)
{
	return atomic_load_explicit(&lock->owner, memory_order_relaxed) == thread_self();
}

/* Whether it is the calling thread that is, was or may become the owner. */
static inline bool lock_may_own(const struct lock *lock)
{
	uintptr_t owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);

	return (owner & ~(uintptr_t)BIAS_OFF) == thread_self();
}

/* Takes the lock if the calling thread is its owner. */
static inline bool lock_mine_try(struct lock *lock)
{
	if (!lock_is_owner(lock))
		return false;
	atomic_store_explicit(&lock->mine, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* of the compiler only; see above */
	if (__builtin_expect(lock_is_owner(lock), 1)) {
		atomic_signal_fence(memory_order_seq_cst);
		return true;
	}
	lock_mine_lost(lock);
	return false;
}

/* `word`: lock.word or lock.mine. */
static inline void lock_give_word(const struct lock *lock, _Atomic uint32_t *word)
{
	const _Atomic uint32_t *sleepers = lock_sleepers_of(lock);

	/* [C1], pairs with [C2], [C3] and [C4] */
	atomic_store_explicit(word, 0, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst); /* of the compiler only; see above */
	if (__builtin_expect(atomic_load_explicit(sleepers, memory_order_relaxed) != 0, 0))
		lock_wake(word);
}

static inline bool lock_word_try(struct lock *lock)
{
	uint32_t free = 0;

	/* [C2], pairs with [C1] */
	return atomic_compare_exchange_strong_explicit(&lock->word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

/* These functions implement the lock, so their bodies aren't analysed. */
static inline bool lock_try(struct lock *lock) TRY_ACQUIRE(true, *lock) NO_THREAD_SAFETY_ANALYSIS;
static inline bool lock_try(struct lock *lock)
{
	/* Its owner may have it (exit() in a signal handler): by `mine`; or by `word`, if it took
	 * the lock as any thread and became the owner then. If `word` is another thread's, the lock
	 * is being taken from the owner. */
	if (lock_is_owner(lock) && (atomic_load_explicit(&lock->mine, memory_order_relaxed) ||
				    atomic_load_explicit(&lock->word, memory_order_relaxed)))
		return false;
	bool taken = lock_mine_try(lock) ||
		     (lock_word_try(lock) && (!lock->left || lock_shared_try(lock)));

	if (taken)
		rank_taken(lock, (enum lock_rank)lock->rank);
	return taken;
}

static inline void lock_take(struct lock *lock) ACQUIRE(*lock) NO_THREAD_SAFETY_ANALYSIS;
static inline void lock_take(struct lock *lock)
{
	rank_check(lock, (enum lock_rank)lock->rank);
	if (!lock_mine_try(lock)) {
		if (__builtin_expect(!lock_word_try(lock), 0))
			lock_wait(lock);
		if (lock->left)
			lock_shared(lock);
	}
	rank_taken(lock, (enum lock_rank)lock->rank);
}

/* Takes a lock (without an owner) that threads take only while they hold `outer`, as the caller
 * does: no other thread can have it, so a plain store takes it. (Functions that are for objects of
 * its kind require the lock, and other objects of that kind have no such outer lock.) */
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
	/* Another thread may see mine = 1 for a moment, too. */
	bool mine = atomic_load_explicit(&lock->mine, memory_order_relaxed) && lock_may_own(lock);

	lock_give_word(lock, mine ? &lock->mine : &lock->word);
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
