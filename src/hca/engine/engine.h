/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who makes progress, and when. See engine.c for the lease.
 *
 * A thread that polls naps only after it has polled in vain for PATIENCE_NS (engine.c): all that
 * time there was no sign of work for it. Signs of work are:
 *
 *   what                                 counted in           written by
 *   a record or packet was handled       hca.handled          the thread that drives the engine,
 *                                                             under hca.engine
 *   the thread polled a completion (of   cq_taken             the thread itself: thread-local
 *   a one-sided request of its own, to
 *   which no record belongs, as well)
 *   a peer wrote straight into this      link_memory.touched  the peer's threads, without a lock
 *   process's memory
 *
 * No count has a barrier: a sign that a poller misses costs at most one nap (NAP_MAX_NS), and no
 * data are passed by it. The first two are looked at each time the poller gives way. The third is
 * in one cache line for each peer, so a poller looks at it only when it would nap otherwise; then
 * it has seen every write that was counted since it last looked.
 */
#ifndef VERBENA_HCA_ENGINE_ENGINE_H
#define VERBENA_HCA_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

struct link;

int engine_start(struct hca *hca);

/*
 * What the engine thread does between two sleeps: everything that is due. Returns when it must look
 * again (ns; UINT64_MAX: when it is woken). `seen` is its memory of hca.polls, 0 at first. Only for
 * the engine thread, or who drives an engine that has none.
 */
uint64_t engine_round(struct hca *hca, uint32_t *seen);

/* An empty poll: makes progress if nobody else does, and yields the processor now and then. */
void engine_poll(struct hca *hca);

/* About to block or just armed a CQ: peers shall ring the doorbell from now on. */
void engine_release(struct hca *hca);

/* What this process has told its peers; only those who wait for them to act on it need a barrier.
 */
static inline bool engine_asleep(const struct hca *hca)
{
	return atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed);
}

/* Gives hca.engine back; acknowledgements that nobody else would send go first. */
void engine_leave(struct hca *hca) RELEASE(hca->engine);

/* The same, of what came with the attachment, before there is an engine thread: a capture that is
 * under way sees the first packet. */
void engine_first_events(struct hca *hca);

/* The engine thread calls roce_writable() with `socket`, the index of `fd` in the sender, once it
 * can be written to. False: it can't be arranged. Callable under any lock. */
bool engine_await_room(struct hca *hca, int fd, unsigned int socket);

/* The engine thread wakes up, and quiets it, when this bell rings (shm/bell.h). Engine thread. */
void engine_hear(struct hca *hca, int bell);
/* Before the bell is closed: the stranger who shares it would keep it in the epoll. */
void engine_unhear(struct hca *hca, int bell);

/* Handles what is in the ring of a link now (bounded: a peer may go on writing). */
void engine_drain(struct hca *hca, struct link *link);

/* What other hosts sent until now is taken in. */
void engine_take_in(struct hca *hca);

/* Wakes the engine thread: there is something for it to look at. Callable under any lock. */
void engine_kick(struct hca *hca);

/* A QP has requests outstanding: its timer runs. Cheap when it is known already. */
void engine_watch_qp_slow(struct qp *qp);
static inline void engine_watch_qp(struct qp *qp)
{
	if (__builtin_expect(!atomic_load_explicit(&qp->is_active, memory_order_relaxed), 0))
		engine_watch_qp_slow(qp);
}

uint64_t now_ns(void); /* CLOCK_MONOTONIC */

#endif
