/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies that may fault. A program may unmap memory that is registered; an adapter, which has the
 * pages pinned, would not notice, but an instruction here faults. So a thread that is about to
 * touch registered memory stores where to continue, and the handler of SIGSEGV and SIGBUS jumps
 * there. Faults anywhere else are the program's: its handler gets them, or the default action.
 *
 * guard_install() is called at each registration: if the program has installed a handler of its own
 * since, ours is put before it again, and calls it.
 *
 *	guard_place_t place;
 *
 *	if (GUARD_SET(place))
 *		return false;           // faulted; no place is stored any more
 *	guard_enter(place);
 *	copy(...);                      // a GUARDED function that doesn't use a guard itself
 *	guard_leave();
 *	return true;
 *
 * GUARDED keeps the function from being inlined: without a call the compiler sees no way back to
 * GUARD_SET(), and drops the code there.
 *
 * The signal mask must not block these two signals, or the kernel ends the process.
 */
#ifndef VERBENA_HCA_MEM_GUARD_H
#define VERBENA_HCA_MEM_GUARD_H

#include <stdatomic.h>

#ifdef __clang__ /* clones no functions, and doesn't know the attribute */
#define GUARDED __attribute__((noinline))
#else
#define GUARDED __attribute__((noinline, noclone))
#endif

/* The builtins take a few instructions. The thread sanitizer must see the jump out of the handler,
 * so there sigsetjmp() is used, which costs more. */
#ifdef __SANITIZE_THREAD__
#include <setjmp.h>
typedef sigjmp_buf guard_place_t;
#define GUARD_SET(place) sigsetjmp(place, 1)
#define GUARD_GO(place) siglongjmp(*(sigjmp_buf *)(place), 1)
#else
typedef void *guard_place_t[5]; /* as __builtin_setjmp() requires */
#define GUARD_SET(place) __builtin_setjmp(place)
#define GUARD_GO(place) __builtin_longjmp(place, 1)
#endif

extern _Thread_local void **guard_place __attribute__((tls_model("initial-exec")));

/* Installs the handler for both signals, unless it is installed already. */
void guard_install(void);

static inline void guard_enter(void *place)
{
	guard_place = place;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void guard_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	guard_place = (void **)0;
}

#endif
