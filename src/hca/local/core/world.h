/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the local carrier's core needs of the rest: functions that are bound at link time. The soft
 * HCA links local_world.c (and inlines it, by link-time optimization); the simulator links its own,
 * and may switch to another process of the simulation in any of them that touches what is shared.
 *
 * Every access to memory that another process or thread may change at the same moment is a call of
 * its own here, so that an interleaving between any two of them can be tried. Calls marked [shared]
 * are such accesses.
 *
 * `lq` is the QP for which the call is made; its lock is held, and while records are handled its
 * process's engine lock, too.
 */
#ifndef VERBENA_HCA_LOCAL_CORE_WORLD_H
#define VERBENA_HCA_LOCAL_CORE_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "hca/exec/arrival.h"
#include "hca/local/core/local_qp.h"
#include "hca/mem/mr_view.h"
#include "shm/counters.h"
#include "shm/ring.h"

/* ------------------------------------------------------------------ the link */

enum world_link {
	WORLD_LINK_COMING, /* worth waiting for: world_ring_wait() */
	WORLD_LINK_UP,
	WORLD_LINK_DOWN /* the peer's process has ended, or was never there */
};
enum world_link world_link(const struct local_qp *lq); /* [shared] */
/* Whether copies from process to process are permitted between the two: one user, one namespace. */
bool world_link_copies(const struct local_qp *lq);
/* Whether they are, and the peer has the link as well, so that it waits for our hazards. [shared]
 */
bool world_link_guarded(struct local_qp *lq);
/* Whether a message of `length` bytes goes through the ring though it might be copied (way.h). */
bool world_link_prefers_ring(const struct local_qp *lq, uint32_t length);

/* ---- our ring */
/* Room for a record with `payload` bytes behind its header, or NULL: none now. What was reserved is
 * committed or abandoned before anything else of the link's ring is called. [shared] */
struct ring_header *world_ring_reserve(struct local_qp *lq, uint32_t payload);
/* The peer may read the record from now on. [shared] */
void world_ring_commit(struct local_qp *lq, struct ring_header *h, uint32_t payload);
/* The reserved record won't be: the peer reads nothing of it. */
void world_ring_abandon(struct local_qp *lq, uint32_t payload);
/* A small record that must go: into the ring, or behind it when that is full. Notifies. [shared] */
void world_ring_control(struct local_qp *lq, const struct ring_header *h, const void *payload,
			uint32_t size);
/* Wakes the peer's engine if it sleeps: after committing, before this QP waits. [shared] */
void world_ring_notify(struct local_qp *lq);
/* local_qp_resume() is to be called when the link is up or the ring has room. [shared] */
void world_ring_wait(struct local_qp *lq);

/* ------------------------------------------------------------------ published entries */

/* The peer QP's published state word (shm/pub.h: pub_qp_state() and so on); 0: there is no such QP,
 * or no link. What is read after it is at least as new; and it is read after this QP's own state
 * was published ([Q1] with [Q2]). [shared] */
uint64_t world_peer_word(struct local_qp *lq);
uint32_t world_peer_partner(struct local_qp *lq);  /* the QPN that it is connected to [shared] */
uint32_t world_peer_rq_psn(struct local_qp *lq);   /* the PSN that it begins with [shared] */
uint32_t world_peer_pd(struct local_qp *lq);	   /* its protection domain [shared] */
uint32_t world_peer_receives(struct local_qp *lq); /* receives posted since its RESET [shared] */
/* The peer's region with this rkey; false: there is none (any more), or it isn't shown. [shared] */
bool world_peer_region(struct local_qp *lq, uint32_t rkey, struct mr_view *view);
/* Whether the peer's process runs, and is only slow. */
bool world_peer_runs(const struct local_qp *lq);
/* How far the link's ring has been read; whether records that were in it then may still be unread.
 * The link is up. */
uint32_t world_ring_mark(const struct local_qp *lq);
bool world_ring_unread(const struct local_qp *lq, uint32_t mark);

/* ------------------------------------------------------------------ hazards */

/*
 * "I am about to touch this": what the peer's deregistration, or its QP's end, waits for. Set
 * before the entry is looked at, cleared after the copy.   [H1 with H2] [shared]
 */
typedef _Atomic uint64_t world_hazard;
/* The peer's region with this rkey. */
world_hazard *world_hazard_region(struct local_qp *lq, uint32_t rkey);
/* The peer's QP: the memory of its requests. */
world_hazard *world_hazard_qp(struct local_qp *lq);
/* The peer's region, by who holds the hazard of a QP: never waits for one that waits for this. */
world_hazard *world_hazard_region_inner(struct local_qp *lq, uint32_t rkey);
void world_hazard_clear(world_hazard *hazard);

/* ------------------------------------------------------------------ memory of this process */

/*
 * Regions of this process that are being copied to or from: what is resolved below is held, so that
 * deregistration here waits for it, until the block that declares WORLD_MEMORY() is left. Resolving
 * and copying happen within one block. Blocks nest.
 */
struct world_memory {
	struct local_qp *lq;
	uint32_t mark;
};
uint32_t world_memory_mark(struct local_qp *lq);
void world_memory_release(struct local_qp *lq, uint32_t mark); /* [shared] */
static inline void world_memory_end(struct world_memory *memory)
{
	world_memory_release(memory->lq, memory->mark);
}
#define WORLD_MEMORY(name, lq)                                                          \
	__attribute__((cleanup(world_memory_end), unused)) struct world_memory name = { \
		lq, world_memory_mark(lq)}

/* The memory of a request (`access` 0 or IBV_ACCESS_LOCAL_WRITE), or of a receive, as its keys
 * grant it now: the number of segments in `out` (LIMIT_SGE places), or -EFAULT. [shared] */
int world_request_segments(struct local_qp *lq, const struct send_wqe *wqe, uint32_t access,
			   struct iovec *out);
int world_receive_segments(struct local_qp *lq, const struct recv_wqe *wqe, struct iovec *out);
/* Flat bytes from (to) segments, `offset` bytes into them. False: not mapped. [shared] */
bool world_gather(struct local_qp *lq, void *to, const struct iovec *from, int count, size_t offset,
		  size_t length);
bool world_scatter(struct local_qp *lq, const struct iovec *to, int count, size_t offset,
		   const void *from, size_t length);
/* After a copy failed: whether these segments of ours are mapped. */
bool world_reachable(const struct iovec *local, int count);

/* Where [addr, addr + length) as the peer names it is here, or 0: the key, range, protection domain
 * or right is wrong. [shared] */
uint64_t world_own_region(struct local_qp *lq, uint64_t addr, uint32_t length, uint32_t rkey,
			  uint32_t access);
/* Bytes of the peer's WRITE to, or READ from, our address. `last`: its final byte goes last.
 * False: not mapped. [shared] */
bool world_own_write(struct local_qp *lq, uint64_t at, const uint8_t *from, uint32_t n, bool last);
bool world_own_read(struct local_qp *lq, uint64_t at, uint8_t *to, uint32_t n);
bool world_own_atomic(struct local_qp *lq, uint64_t at, const struct record_atomic *op,
		      uint64_t *old);

/* ------------------------------------------------------------------ memory of the peer */

/* A hazard is set for each of them. 0, -EFAULT (one side isn't mapped), -ESRCH, -EPERM. [shared] */
/* Our segments to the peer's address `there`, in the region `view` with this rkey; last byte last.
 */
int world_peer_put(struct local_qp *lq, uint32_t rkey, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length);
/* The other way round. */
int world_peer_get(struct local_qp *lq, uint32_t rkey, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length);
/* From the peer's segments to ours. */
int world_peer_fetch(struct local_qp *lq, const struct iovec *remote, int remote_count,
		     const struct iovec *local, int count, size_t length);

/* ------------------------------------------------------------------ receives */

/* The next receive, NULL: none. It stays where it is, or is copied to `room`, until the core's call
 * ends; world_receive_keep() makes it survive that. */
const struct recv_wqe *world_receive_take(struct local_qp *lq, struct receive *room);
/* The message that it was taken for won't come: it is the next one again. */
void world_receive_back(struct local_qp *lq, const struct recv_wqe *wqe);
/* The message will take a while: its place in the queue isn't free meanwhile. The core has a copy.
 */
void world_receive_keep(struct local_qp *lq);
/* The message is over. */
void world_receive_complete(struct local_qp *lq, const struct recv_wqe *wqe,
			    const struct arrival *arrival, enum ibv_wc_status status);
/* `waits`: local_qp_receive_posted() is to be called when one is posted. [shared: with those who
 * post; the core looks once more after it] */
void world_receive_wait(struct local_qp *lq, bool waits);

/* ------------------------------------------------------------------ completions and events */

/* The oldest request is over: advances sq.acked (and sq.next, if it wasn't sent). With an error the
 * QP fails: local_qp_stop() is called from inside, and the owner flushes. */
void world_complete(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status);
/* UC: the request at sq.next failed here, before anything of it was sent: SQE. */
void world_fail_request(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status);
/* The QP goes to ERR, and raises `event` unless it is negative. local_qp_stop() is called. */
void world_fail(struct local_qp *lq, int event);
void world_drained(struct local_qp *lq);     /* SQD: nothing is on its way any more */
void world_established(struct local_qp *lq); /* a request arrived; once, in RTR */

/* ------------------------------------------------------------------ storage */

/* Memory for a message that waits, with `size` bytes of payload; NULL: the bounds of its link or
 * its user are reached, or there is none. */
struct local_held *world_hold(struct local_qp *lq, uint32_t size);
void world_release(struct local_qp *lq, struct local_held *held);

/* ------------------------------------------------------------------ timers */

/* Requests are outstanding: local_qp_expire() is to be called soon, until it returns false. */
void world_watch(struct local_qp *lq);
/* A message waits for a receive, or for being asked for: local_qp_expire_receive(), likewise. */
void world_watch_receive(struct local_qp *lq);
/* lq->ack_pending was set: local_qp_flush_ack() at the end of the engine's pass. */
void world_owe_ack(struct local_qp *lq);

/* ------------------------------------------------------------------ for people */

bool world_captures(const struct local_qp *lq);
void world_capture_request(struct local_qp *lq, const struct send_wqe *wqe);
/* `msn`: how many requests the responder has executed then. */
void world_capture_answer(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn,
			  enum ibv_wc_status status);
void world_capture_rnr(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn);
void world_count(struct local_qp *lq, unsigned int counter); /* enum pub_counter */
void world_log(const struct local_qp *lq, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
