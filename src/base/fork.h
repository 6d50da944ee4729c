/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a forked child needs of this library's static data. fork() takes no lock of the library's:
 * it is called by handlers of signals, in threads that have one, and between the program's own
 * handlers of pthread_atfork(), which may wait for threads that wait for one. So the child may find
 * data in the middle of a change, and each change is made so that the child can go on from any
 * point of it:
 *
 *   - The kernel copies memory as if it stopped every thread between two of its stores; and a
 *     signal handler runs between two. So what a child has is what a thread had stored until some
 *     point, in the order of the program, if the compiler keeps it: FORK_POINT() says where.
 *   - A pointer is stored after what it leads to. What it led to before is freed, unmapped or
 * closed after that. The child may so lose what it never uses, and never uses what is gone.
 *   - Lists of which a child needs the nodes: list_add_tail_whole() and its neighbours.
 *   - Locks are initialised anew in the child, because the threads that had them don't exist there.
 */
#ifndef VERBENA_BASE_FORK_H
#define VERBENA_BASE_FORK_H

#include <stdatomic.h>

#include "base/mutex.h"

/* The compiler moves no store across it. */
#define FORK_POINT() atomic_signal_fence(memory_order_seq_cst)

/* Called by constructors; `mutex` must exist as long as the process. In a child, `mend` (or NULL)
 * is called if a thread had the mutex at the fork. */
void fork_keep(struct mutex *mutex, void (*mend)(void));

/* A mutex of static data that a child continues to use; what it guards needs mending, or doesn't.
 */
#define FORK_MEND(mutex, mend)                                           \
	__attribute__((constructor)) static void fork_keep_##mutex(void) \
	{                                                                \
		fork_keep(&(mutex), mend);                               \
	}                                                                \
	_Static_assert(1, "takes the semicolon")
#define FORK_KEEP(mutex) FORK_MEND(mutex, NULL)

#endif
