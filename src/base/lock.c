/* SPDX-License-Identifier: BSD-2-Clause */
/* The contended half of lock.h. */
#include "base/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/sys.h"

/* A microsecond or more: longer than any critical section of the fast path. */
#ifndef SPINS
#define SPINS 100
#endif
enum { LOCK_LOOK_NS = 1000000 }; /* without membarrier() */

_Atomic uint32_t lock_sleepers[LOCK_BUCKETS];

/* Executes a full barrier on each processor that runs a thread of this process. False: it can't. */
static bool barrier_everywhere(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
		return true;
	/* The process isn't registered yet. */
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
	       syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static const struct timespec look = {0, LOCK_LOOK_NS};

static void sleep_until_given(_Atomic uint32_t *word, const struct timespec *limit)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 1, limit, NULL, 0);
}

static void lock_sleep(struct lock *lock)
{
	_Atomic uint32_t *sleepers = lock_sleepers_of(lock);

	atomic_fetch_add_explicit(sleepers, 1, memory_order_seq_cst);
	const struct timespec *limit = barrier_everywhere() ? NULL : &look;

	/* [C3], pairs with [C1] */
	while (atomic_exchange_explicit(&lock->word, 1, memory_order_acquire) != 0)
		sleep_until_given(&lock->word, limit);
	atomic_fetch_sub_explicit(sleepers, 1, memory_order_relaxed);
}

void lock_wait(struct lock *lock)
{
	for (int i = 0; i < SPINS; i++) {
		cpu_relax();
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
		    lock_word_try(lock))
			return;
	}
	lock_sleep(lock);
}

void lock_forget_sleepers(void)
{
	for (unsigned int i = 0; i < LOCK_BUCKETS; i++)
		atomic_store_explicit(&lock_sleepers[i], 0, memory_order_relaxed);
}

void lock_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ------------------------------------------------------------------ bias */

static _Thread_local bool owns_none;

void lock_never_own(void)
{
	owns_none = true;
}

static bool owner_has_it(const struct lock *lock)
{
	/* [C4], pairs with [C1] */
	return atomic_load_explicit(&lock->mine, memory_order_acquire) != 0;
}

/* Where membarrier() is refused, which a filter may do that the program installed after the lock
 * got an owner: stores don't stay in a store buffer for so long. */
static void barrier_or_while(void)
{
	if (!barrier_everywhere())
		sys_nanosleep(&look, NULL);
}

static void await_owner(struct lock *lock)
{
	_Atomic uint32_t *sleepers = lock_sleepers_of(lock);

	for (int i = 0; i < SPINS; i++) {
		if (!owner_has_it(lock))
			return;
		cpu_relax();
	}
	atomic_fetch_add_explicit(sleepers, 1, memory_order_seq_cst);
	const struct timespec *limit = barrier_everywhere() ? NULL : &look;

	while (owner_has_it(lock))
		sleep_until_given(&lock->mine, limit);
	atomic_fetch_sub_explicit(sleepers, 1, memory_order_relaxed);
}

static void owner_store(struct lock *lock, uintptr_t owner)
{
	atomic_store_explicit(&lock->owner, owner, memory_order_relaxed);
}

/* A thread of which it is known that the lock has no other owner has taken it: it may be the next
 * one. */
static void count_taken(struct lock *lock, uintptr_t owner)
{
	uintptr_t self = thread_self();

	if (owner == self)
		return; /* lock_shared_try() has let the owner be */
	if (owner != (self | BIAS_OFF)) {
		lock->left = BIAS_AFTER;
		if (!lock->had_owner && !owns_none)
			owner_store(lock, self | BIAS_OFF);
		return;
	}
	if (--lock->left)
		return;
	lock->left = BIAS_AFTER;
	if (!lock->had_owner && !barrier_everywhere())
		return;
	lock->had_owner = true;
	owner_store(lock, self);
}

static bool has_other_owner(uintptr_t owner)
{
	return owner && !(owner & BIAS_OFF) && owner != thread_self();
}

void lock_shared(struct lock *lock)
{
	uintptr_t owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);

	if (unlikely(has_other_owner(owner))) {
		owner |= BIAS_OFF;
		owner_store(lock, owner);
		barrier_or_while();
		await_owner(lock);
	}
	count_taken(lock, owner);
}

bool lock_shared_try(struct lock *lock)
{
	uintptr_t owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);

	if (unlikely(has_other_owner(owner))) {
		bool there = owner_has_it(lock);

		if (!there) {
			owner_store(lock, owner | BIAS_OFF);
			barrier_or_while();
			there = owner_has_it(lock);
		}
		if (there) {
			owner_store(lock, owner);
			lock_give_word(lock, &lock->word);
			return false;
		}
		owner |= BIAS_OFF;
	}
	count_taken(lock, owner);
	return true;
}

void lock_mine_lost(struct lock *lock)
{
	lock_give_word(lock, &lock->mine);
}
