/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that is left for the HCA's two threads: one word of bits for each of them.
 *
 *   bit               left by                                      taken by
 *   hca.control_work, before control_wake():
 *   CONTROL_LINKS     link_get() and its callers: a link is        link_ask_daemon()
 *                     WISHED, or one is to be given back
 *                     (hca.link_given_up); a return to a daemon
 *   CONTROL_MAPPINGS  an operation that found a peer's region      mapped_serve()
 *                     unmapped (link.wishes)
 *   CONTROL_WINDOWS   a request that ends a memory window while   windows_serve(), which leaves
 *                     copies go on (hca.windows_ending)           it again while they go on
 *   CONTROL_PREFETCH  ibv_advise_mr() (hca.prefetches)            prefetch_serve()
 *
 *   CONTROL_FABRIC    the engine thread: verbena-fabric has ended   control_rejoin()
 *   CONTROL_ALTERNATE the engine thread: PROTO_EVENT_ALTERNATE      migrate_serve()
 *
 *   hca.engine_work, before engine_kick():
 *   ENGINE_REFUSALS   the control thread: the daemon refused a     link_take_refusals()
 *                     link (link.refused)
 *   ENGINE_DEATHS     the thread that makes a link ENDING, whose   link_reap(), which leaves it
 *                     memory is to be given back; link_reap(),     again while the memory is
 *                     without a kick: the next round polls;        in use (not while only the
 *                     the engine, when a peer's process ends       peer has still to leave)
 *   ENGINE_OVERRUNS   the thread that overran a CQ (cq.overrun):   fail_overrun()
 *                     its QPs are to fail
 *
 * A bit says only that there may be such work; what is to be done is read from the objects. The
 * thread that leaves work changes the object, then sets the bit, then wakes the thread. The thread
 * that takes it clears the bit before it looks at the objects. So work that is left while it looks
 * sets the bit again, and none is missed. Any thread may leave work, under any lock.
 */
#ifndef VERBENA_HCA_PROCESS_WORK_H
#define VERBENA_HCA_PROCESS_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum control_work {
	CONTROL_LINKS = 1,
	CONTROL_MAPPINGS = 2,
	CONTROL_WINDOWS = 4,
	CONTROL_PREFETCH = 8,
	CONTROL_FABRIC = 16,
	CONTROL_ALTERNATE = 32
};
enum engine_work { ENGINE_REFUSALS = 1, ENGINE_DEATHS = 2, ENGINE_OVERRUNS = 4 };

struct work {
	_Atomic uint32_t left;
};

static inline void work_leave(struct work *work, uint32_t bit)
{
	atomic_fetch_or(&work->left, bit);
}

/* Whether there is such work; it stays. */
static inline bool work_is_left(const struct work *work, uint32_t bit)
{
	return atomic_load(&work->left) & bit;
}

static inline bool work_take(struct work *work, uint32_t bit)
{
	return work_is_left(work, bit) && (atomic_fetch_and(&work->left, ~bit) & bit);
}

/* In a forked child, which has neither of the threads. */
static inline void work_forget(struct work *work)
{
	atomic_store(&work->left, 0);
}

#endif
