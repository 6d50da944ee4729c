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

enum {
	SPINS = 100,		/* a microsecond or more: longer than any critical section of the
				   fast path */
	LOCK_LOOK_NS = 1000000, /* without membarrier() */
};

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

static void lock_sleep(struct lock *lock)
{
	_Atomic uint32_t *sleepers = lock_sleepers_of(lock);

	atomic_fetch_add_explicit(sleepers, 1, memory_order_seq_cst);
	const struct timespec look = {0, LOCK_LOOK_NS},
			      *limit = barrier_everywhere() ? NULL : &look;

	while (atomic_exchange_explicit(&lock->word, 1, memory_order_acquire) != 0)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 1, limit, NULL, 0);
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

void lock_wake(struct lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
