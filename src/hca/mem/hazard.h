/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hazards: which regions are being copied to or from at this moment, and the wait for them.
 *
 * The rule: when ibv_dereg_mr(), ibv_rereg_mr() or ibv_unimport_mr() has returned success, no copy
 * by any thread of any process reaches the region's old memory. A copying thread names the region
 * in a hazard, then looks the key up, then copies, then clears the hazard. The thread that ends the
 * region clears the key's entry first and then waits until no hazard names the key. Either the
 * copying thread sees the cleared entry, or the ending thread sees the hazard.
 *
 * There are two kinds of hazards, for the two kinds of threads that copy.
 *
 * 1. Peers' hazards: struct pub_hazard, PUB_HAZARDS places in the regions' file of the copying
 *    process. Each names the target's slot and the target's rkey, or the QP whose message is being
 *    fetched.
 *
 *      written by   threads of the copying process that hold a QP's lock. A place is taken with a
 *                   compare-and-swap and given back with a release store.
 *      read by      threads of the target process, in hazard_wait_*(), through their read-only
 *                   mapping.
 *      pairs        [H1] the compare-and-swap (seq_cst) that takes the place, then
 *                   [H2] the lookup of the key (seq_cst);
 *                   [H3] the store (seq_cst) of 0 to pub_mr.rkey_access, then
 *                   [H4] the loads (seq_cst) of the hazards.
 *                   [H5] the release store that clears the place, after the copy, pairs with [H4]:
 *                        what was copied happened before the wait's end.
 *      lists        A hazard may stay set from one request of a list to the next (core/onesided.c):
 *                   each looks the key up again, so a request after the entry was cleared copies
 *                   nothing.
 *      deaths       The copying process may be killed at any instruction; its hazard then stays
 *                   set. The target asks the kernel whether the process has ended (peer_ended()):
 *                   a process that has ended copies nothing. The target may be killed as well: no
 *                   process waits for it.
 *
 * 2. Own hazards: struct own_hazards, one for each QP of this process, in private memory. They
 *    name the keys of this process's regions that a thread of this process is copying to or from:
 *    a posting thread, the engine that places what arrives or executes a request, the RoCE carrier
 *    that fetches payload, a capture. Every such copy is made under the QP's lock, so the QP's own
 *    hazards have one writer at a time, and the fast path needs plain stores only.
 *
 *      written by   the thread that holds qp.lock. A stack: nested copies (a capture within a
 *                   request, a foreign region within a list) push on top and pop back to where they
 *                   began. HAZARD_SCOPE pops when its block is left.
 *      read by      threads of this process, in hazard_wait_region().
 *      pairs        [O1] stores of key and count, then a compiler barrier, then the lookup of the
 *                        key;
 *                   [O2] after the store [H3], membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED), then
 *                        the loads of count and keys. membarrier() executes a full barrier on every
 *                        processor that runs a thread of this process, at some instruction between
 *                        the store and the loads. If the copying thread is past [O1]'s stores then,
 *                        the loads see them; else its lookup comes after the barrier and sees 0.
 *                        Where membarrier() is refused, `hazard_fences` is true and [O1] has a full
 *                        fence.
 *                   [O3] the pop is a release store and pairs with the loads of [O2].
 *      deaths       A thread that ends within a copy would leave the QP locked as well. A copy that
 *                   faults (guard.h) jumps to the copying function itself, which returns false; the
 *                   scope ends as always. fork(): the child has none of the copying threads;
 *                   hazard_leave() empties all. No signal handler ends a region within a scope:
 *                   ibv_dereg_mr() isn't async-signal-safe.
 *
 * The thread sanitizer knows [H5] and [O3], which order a copy before the program's use of the
 * memory; the others decide only whether a copy begins.
 *
 * A peer's thread that is stopped (SIGSTOP) can't clear its hazard. If it is stopped at the end of
 * process_vm_readv() or process_vm_writev(), its copy is over, because a copy makes one such call,
 * unless the hazard says PUB_HAZARD_SEVERAL. (Under a QP's hazard there may be one for each key of
 * the message: before each of them the thread looks at the QP's state.) Stopped anywhere else, in
 * its own code or in a call that a signal handler makes, it may be about to copy.
 *
 * The wait has a bound, HAZARD_PATIENCE_NS (HAZARD_STOPPED_NS for a stopped peer), since a peer's
 * hazard may stay set by a fault of that process. It holds no lock: a link that is looked at is
 * counted in link.watchers, which keeps its tables mapped. When the bound is reached the wait names
 * the culprit (log, `verbena status`), breaks the link to it, and gives -EBUSY, with which
 * ibv_dereg_mr() fails:
 *
 *   - What holds: the region's entry stays cleared, so no new copy begins. The region stays
 *     registered, so the library and the daemon never give its key or its locked memory to another
 *     region. The link's tables stay mapped, and no new link to that process is made, as long as
 *     its hazards name this process and it lives; a later ibv_dereg_mr() of the region looks again,
 *     and succeeds once the hazard is clear or the culprit has ended.
 *   - What doesn't: no call takes back from a running process of the same user its right to use
 *     process_vm_writev(), or its mapping of a memory file. A program that ignores the error and
 *     uses the memory for something else may find it overwritten.
 */
#ifndef VERBENA_HCA_MEM_HAZARD_H
#define VERBENA_HCA_MEM_HAZARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "proto/limits.h"

struct hca;
struct link;

#define HAZARD_PATIENCE_NS 10000000000ull
#define HAZARD_STOPPED_NS 1000000000ull /* for a peer that is stopped */

/* ------------------------------------------------------------------ own hazards */

/* Nested lists of segments (a request, a capture within it), and keys that a peer names. */
enum { OWN_HAZARDS_MAX = 4 * LIMIT_SGE + 15 };

struct own_hazards {
	_Alignas(64) _Atomic uint32_t count;
	_Atomic uint32_t key[OWN_HAZARDS_MAX]; /* rkeys; those below count are held */
};

/* A part of the stack of a QP's own hazards: the keys that were pushed since the scope began. */
struct hazard_scope {
	struct own_hazards *own;
	uint32_t mark;
};

/* Whether own hazards need a full fence. Written before the first QP is made, and constant then. */
extern bool hazard_fences;

static inline struct hazard_scope hazard_scope_begin(struct own_hazards *own)
{
	return (struct hazard_scope){own, atomic_load_explicit(&own->count, memory_order_relaxed)};
}

static inline void hazard_scope_end(struct hazard_scope *scope)
{
	atomic_store_explicit(&scope->own->count, scope->mark,
			      memory_order_release); /* [O3], pairs with [O4] */
}

/*
 * Declares a scope: the keys that are resolved with it are held until the end of the block that
 * declares it, so resolving and copying must happen within the block. The caller holds qp.lock.
 */
#define HAZARD_SCOPE(name, qp)                                                        \
	__attribute__((cleanup(hazard_scope_end), unused)) struct hazard_scope name = \
		hazard_scope_begin((qp)->hazards)

/* Pushes one more key; hazard_publish() must follow before the key is looked up. False: the stack
 * is full, which no well-formed request causes. */
static inline bool hazard_push(const struct hazard_scope *scope, uint32_t rkey)
{
	uint32_t n = atomic_load_explicit(&scope->own->count, memory_order_relaxed);

	if (unlikely(n == OWN_HAZARDS_MAX))
		return false;
	atomic_store_explicit(&scope->own->key[n], rkey, memory_order_relaxed);
	atomic_store_explicit(&scope->own->count, n + 1, memory_order_relaxed);
	return true;
}

static inline void hazard_publish(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(hazard_fences))
		atomic_thread_fence(memory_order_seq_cst); /* [O1], pairs with [O2] */
}

/* The program's QPs, and as many stand-ins of XRC target queue pairs (exec/xrc_target.h). */
#define HAZARD_OWN_MAX (2 * LIMIT_QPS_PER_SLOT)

/* Reserves own hazards for all QPs of an HCA (pages exist once they are written), and finds out
 * whether membarrier() may be used. 0 or -ENOMEM. */
int hazard_make(struct hca *hca);
void hazard_unmake(struct hca *hca);
/* The own hazards of a QP that is being made: the ones that were given back last, if any were. So a
 * program that makes and destroys QPs for years uses, and each hazard_wait_region() reads, no more
 * of them than it had QPs at once, although QP numbers rotate. hca.engine is held. */
struct own_hazards *hazard_own(struct hca *hca);
/* Gives back the own hazards of a QP that is being destroyed: no scope holds any key of them, and
 * none will begin. hca.engine is held. */
void hazard_disown(struct hca *hca, struct own_hazards *own);
/* In a forked child: empties all own hazards. */
void hazard_leave(struct hca *hca);

/* ------------------------------------------------------------------ peers' hazards */

/* Sets a hazard for a region of the process at `slot`. Waits while all places are taken. The caller
 * gives the place back with hazard_clear(). */
_Atomic uint64_t *hazard_set(struct hca *hca, uint32_t slot, uint32_t rkey);
/* The same within a copy that has set a hazard already. It uses places of its own, so it never
 * waits for a thread that waits for this copy's end. */
_Atomic uint64_t *hazard_set_inner(struct hca *hca, uint32_t slot, uint32_t rkey);

/*
 * The copy that the calling thread is about to make takes several system calls. A copy that doesn't
 * announce that makes one call at most: an owner that finds the thread stopped at the end of it
 * takes the copy for finished, though the hazard is still set.
 */
void hazard_takes_several(void);

static inline void hazard_clear(_Atomic uint64_t *hazard)
{
	atomic_store_explicit(hazard, 0, memory_order_release); /* [H5], pairs with [H4] */
}

/*
 * Whether all copies to or from the process at `slot` that threads of this process had begun when
 * *passed was 0 have ended. False: call again, with the same *passed, which has the hazards that
 * were seen to be set for no such copy. Copies that begin meanwhile don't count, so a busy link
 * doesn't hold the caller up for ever.
 */
bool hazards_pass(const struct hca *hca, uint32_t slot, uint64_t *passed);

/* The key that names a QP whose message is being fetched. No rkey has the bit. */
#define HAZARD_OF_QP 0x80000000u
_Static_assert(LIMIT_MR_BITS + LIMIT_KEY_TAG_BITS < 32, "no rkey has HAZARD_OF_QP");

static inline uint32_t hazard_of_qp(uint32_t qpn)
{
	return HAZARD_OF_QP | (qpn & (LIMIT_QPS_PER_SLOT - 1));
}

/* Whether the process at the link's other end lives and has a hazard set that names this process.
 * The link is mapped. */
bool hazard_from_peer(const struct link *link);

/* ------------------------------------------------------------------ waiting */

/*
 * Waits until no thread of this process and no peer copies to or from the region, whose entry the
 * caller has cleared. The caller holds no locks. 0, or -EBUSY if the bound was reached.
 */
int hazard_wait_region(struct hca *hca, uint32_t rkey);

/* The same for all keys of the rkey's index. */
int hazard_wait_index(struct hca *hca, uint32_t rkey);

/*
 * hazard_wait_region() without waiting, for a caller that looks again: `since` (ns) is when the
 * entry was cleared, from which the bound counts. The caller holds no locks.
 */
enum hazard_look {
	HAZARD_NONE,  /* nothing copies to or from the region any more */
	HAZARD_SET,   /* look again */
	HAZARD_STUCK, /* the bound is reached */
};
enum hazard_look hazard_look_region(struct hca *hca, uint32_t rkey, uint64_t since);

/* Whether no hazard of the link's process names the region, whose entry the caller has cleared. The
 * link's tables stay mapped during the call. */
bool hazard_link_idle(const struct link *link, uint32_t rkey);

/*
 * Waits until the process at `slot` fetches no message of this process's QP `qpn` any more. The
 * QP's published state already says that it sends none. If the bound is reached the link is broken.
 * The caller holds no locks.
 */
void hazard_wait_qp(struct hca *hca, uint32_t slot, uint32_t qpn);

#endif
