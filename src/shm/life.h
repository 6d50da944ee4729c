/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the process that owns a piece of shared memory still lives and has not called exec(). The
 * kernel writes the answer into that memory, so a reader needs no system call and no daemon.
 *
 * One thread of the owner that lives as long as its process (the engine thread) locks a robust
 * mutex here and never unlocks it. When that thread ends, because its process ends or calls exec(),
 * the kernel sets FUTEX_OWNER_DIED in the mutex's word, before the thread is gone. The process's
 * number is free for another process only after all its threads are gone, and exec() installs the
 * new address space only after all other threads are gone. So, with the kernel's store [E1] and a
 * reader's load [E2]:
 *
 *   If a reader finds no FUTEX_OWNER_DIED [E2] after a system call that took the process's number,
 *   then during the whole call the number named this very process, and its address space was the
 *   one in which this memory is mapped.
 *
 * written by   the owner's engine thread, once; then by the kernel [E1], once.
 * read by      peers, through read-only mappings, at any time [E2].
 * deaths       are what it reports. Before the engine thread has run the word is 0, which reads as
 *              alive: peers copy nothing until that thread has installed the link.
 */
#ifndef VERBENA_SHM_LIFE_H
#define VERBENA_SHM_LIFE_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process_life {
	_Alignas(64) pthread_mutex_t mutex;
};

_Static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0, "the futex is the first word");

/* Locks the mutex in the calling thread, whose end is then reported. 0 or -errno. */
int life_begin(struct process_life *life);

static inline bool life_goes_on(const struct process_life *life)
{
	/* [E2], pairs with the kernel's store */
	uint32_t word = atomic_load_explicit((const _Atomic uint32_t *)(const void *)life,
					     memory_order_acquire);

	return !(word & FUTEX_OWNER_DIED);
}

#endif
