/* SPDX-License-Identifier: BSD-2-Clause */
/* The contended half of lock.h. */
#include "base/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"

enum { SPINS = 100 }; /* about a microsecond: longer than any critical section of the fast path */

void lock_wait(struct lock *lock)
{
	for (int i = 0; i < SPINS; i++) {
		cpu_relax();
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
		    lock_word_try(lock))
			return;
	}
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void lock_wake(struct lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
