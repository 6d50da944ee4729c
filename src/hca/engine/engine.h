/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: makes progress for all QPs of the process. See lease.c for the lease.
 *
 * A polling thread naps only after PATIENCE_NS of empty polls (lease.c): during all that time
 * there was no sign of work for it. Signs of work are:
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
#include <sys/epoll.h>

#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

struct cq;
struct link;

/* Starts the engine thread. 0 or -errno. */
int engine_start(struct hca *hca);

/* One round of the engine thread between two sleeps: does everything that is due. Returns when the
 * next round is due (ns of CLOCK_MONOTONIC; 0: at once; UINT64_MAX: when the thread is woken).
 * `seen` is the caller's memory of hca.polls, 0 at first. Called by the engine thread only, or by
 * the one thread that drives an HCA without engine thread. */
uint64_t engine_round(struct hca *hca, uint32_t *seen);

/* For a poll that found its CQ empty: makes progress unless another thread does, and periodically
 * yields the processor. `cq` is the CQ, or NULL for a thread that waits for something else. While
 * the CQ owes an event, its program is likely to block soon, so the poll takes no lease. */
void engine_poll(struct hca *hca, const struct cq *cq);

/* The caller is about to block, or has just armed a CQ: ends the lease, so peers ring the doorbell
 * from now on. */
void engine_release(struct hca *hca);

/* What this process has published as `asleep`. The load is relaxed; a caller that relies on peers
 * acting on the flag needs a fence of its own. */
static inline bool engine_asleep(const struct hca *hca)
{
	return atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed);
}

/* Whether work that no peer's doorbell announces needs a kick: no thread polls, or a CQ is armed,
 * whose event may depend on the work, and the polling thread may stop. Relaxed, as above. */
static inline bool engine_wants_kicks(const struct hca *hca)
{
	return engine_asleep(hca) ||
	       atomic_load_explicit(&hca->pub->header.armed_cqs, memory_order_relaxed);
}

/* Sends the acknowledgements that are owed within the host. No qp.lock is held. */
void engine_acknowledge(struct hca *hca) REQUIRES(hca->engine);

/* Releases hca.engine; sends the acknowledgements first that no other thread would send. */
void engine_leave(struct hca *hca) RELEASE(hca->engine);

/* Handles the daemon's events that came with the attachment, before the engine thread starts, so
 * that a capture which is under way sees the first packet. */
void engine_first_events(struct hca *hca);

/* The data of an event in hca.epoll that is known by its descriptor. All eight bytes are set, since
 * the upper four tell the other kinds of events: to write `.data.fd` leaves these as they were
 * (clang; GCC clears them). */
static inline epoll_data_t engine_descriptor(int fd)
{
	return (epoll_data_t){.u64 = (uint32_t)fd};
}

/* Has the epoll report once that there are packets in a socket of `roce` beside its own. False: it
 * can't. */
bool engine_await_packets(struct hca *hca, int fd);
/* Has the engine thread call roce_writable() with `socket`, the index of `fd` in the sender, once
 * the socket can be written to. False: it can't be arranged. Callable under any lock. */
bool engine_await_room(struct hca *hca, int fd, unsigned int socket);

/* Adds a bell (shm/bell.h) to what wakes the engine thread, which quiets it then. Engine thread
 * only. */
void engine_hear(struct hca *hca, int bell);
/* Has the engine thread call interface_heard() at each edge of this socket. False, with errno: it
 * can't be arranged. */
bool engine_hear_frames(struct hca *hca, int fd);
/* Has the engine thread look at the links that have ended (ENGINE_DEATHS) once `fd`, a pidfd, says
 * that its process has ended. Closing it ends that. False: it can't be arranged. Engine thread
 * only. */
bool engine_await_end(struct hca *hca, int fd);
/* Removes a bell. Called before the bell is closed: the peer still holds the timer open, so it
 * would stay in the epoll. */
void engine_unhear(struct hca *hca, int bell);

/* Handles the records that are in the link's ring now (bounded: a peer may go on writing). */
void engine_drain(struct hca *hca, struct link *link);

/* Handles the packets that other hosts have sent until now. */
void engine_take_in(struct hca *hca);

/* Wakes the engine thread, because there is work for it. Callable under any lock. */
void engine_kick(struct hca *hca);

/* Starts the QP's timer: it has requests outstanding. Cheap when the timer runs already. */
void engine_watch_qp_slow(struct qp *qp);
static inline void engine_watch_qp(struct qp *qp)
{
	if (__builtin_expect(!atomic_load_explicit(&qp->is_active, memory_order_relaxed), 0))
		engine_watch_qp_slow(qp);
}

uint64_t now_ns(void); /* CLOCK_MONOTONIC */

/* Watches the connection to verbena-fabric (fabric/membership.h) from now on. Any thread. */
void engine_hear_fabric(struct hca *hca);

#endif
