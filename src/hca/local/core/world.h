/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the local carrier's core needs of its surroundings: functions that are bound at link time.
 * The soft HCA links local_world.c (and inlines it, by link-time optimization); the simulator links
 * its own, which may switch to another simulated process in any call that touches shared memory.
 *
 * Every access to memory that another process or thread may change at the same moment is a call of
 * its own here, so that the simulator can interleave between any two of them. Calls marked [shared]
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
	WORLD_LINK_COMING, /* it is being made: world_ring_wait() */
	WORLD_LINK_UP,
	WORLD_LINK_DOWN /* the peer's process has ended, or never existed */
};
enum world_link world_link(const struct local_qp *lq); /* [shared] */
/* Whether the peer has come to the link, which is up here: it may be told of it later, or by
 * another daemon. [shared] */
bool world_link_taken(const struct local_qp *lq);
/* Whether the two processes may copy from one to the other: one user, one namespace. */
bool world_link_copies(const struct local_qp *lq);
/* The same, and the peer has the link as well and hasn't left it, so that it waits for our hazards.
 * [shared] */
bool world_link_guarded(struct local_qp *lq);
/* Whether a message of `length` bytes goes through the ring although it could be copied (way.h). */
bool world_link_prefers_ring(const struct local_qp *lq, uint32_t length);

/* ---- our ring */
/* Reserves room for a record with `payload` bytes behind its header; NULL: there is none now. The
 * core commits or abandons it before it calls anything else of the link's ring. [shared] */
struct ring_header *world_ring_reserve(struct local_qp *lq, uint32_t payload);
/* Publishes the record: the peer may read it from now on. [shared] */
void world_ring_commit(struct local_qp *lq, struct ring_header *h, uint32_t payload);
/* Gives the reserved record up: the peer reads nothing of it. */
void world_ring_abandon(struct local_qp *lq, uint32_t payload);
/* Sends a small record that must not be lost: by the ring, or behind it when it is full. Notifies
 * the peer. [shared] */
void world_ring_control(struct local_qp *lq, const struct ring_header *h, const void *payload,
			uint32_t size);
/* Wakes the peer's engine if it sleeps. Called after committing, before this QP waits. [shared] */
void world_ring_notify(struct local_qp *lq);
/* Has local_qp_resume() called when the link is up or the ring has room. [shared] */
void world_ring_wait(struct local_qp *lq);

/* ------------------------------------------------------------------ published entries */

/* The peer QP's published state word (shm/pub.h: pub_qp_state() and so on; of XRC_SEND the target
 * QP's, shm/xrc.h); 0: there is no such QP, or no link. Later reads are at least as new, and this
 * read comes after this QP's own state was published ([Q1] with [Q2]). [shared] */
uint64_t world_peer_word(struct local_qp *lq);
uint32_t world_peer_partner(struct local_qp *lq); /* the QPN that it is connected to [shared] */
uint32_t world_peer_rq_psn(struct local_qp *lq);  /* the PSN that it begins with [shared] */
uint32_t world_peer_pd(struct local_qp *lq);	  /* its, or the SRQ's, domain [shared] */
/* The count of the receives posted since its RESET, from RECV_QUEUE_START on; `none` if they aren't
 * counted, because they come from an SRQ. [shared] */
uint32_t world_peer_receives(struct local_qp *lq, uint32_t none);
/* Publishes that all requests below `msn` are executed (shm/pub.h: pub_taken()). The world does
 * that itself for a receive that it completes with success, before it does: up to done_msn + 1.
 * [shared] */
void world_publish_taken(struct local_qp *lq, uint32_t msn);
/* What the peer's QP has published so; 0 as long as its process lives, and if there is no such
 * word. [shared] */
uint64_t world_peer_taken(struct local_qp *lq);
/* Reads the entry of the peer's region with this rkey; false: there is none (any more), or the
 * peer's regions' file isn't mapped. [shared] */
bool world_peer_region(struct local_qp *lq, uint32_t rkey, struct mr_view *view);
/* Whether a memory window's entry, read as above, may be reached by this QP's peer QP: then the
 * rkey of the window's region, for view.region, else 0. Reads the entry again. [shared] */
uint32_t world_peer_window(struct local_qp *lq, uint32_t rkey, const struct mr_view *view);
/* Whether the peer's process is alive and not stopped, so that it is only slow. */
bool world_peer_runs(const struct local_qp *lq);
/* Whether a thread of the peer's process may still copy from this process's memory: until the peer
 * has left the link (link_part.h), also if the link isn't up here any more. [shared] */
bool world_peer_may_copy(const struct local_qp *lq);
/* Whether the program, which posts a READ, is likely to post more before it polls again. */
bool world_may_gather(const struct local_qp *lq);
/* It is to wait for them: has local_qp_resume() called when the program polls, or soon if it
 * doesn't. False: that can't be. */
bool world_gathers(struct local_qp *lq);
/* The position up to which the link's ring has been read. The link is up, here and below. */
uint32_t world_ring_mark(const struct local_qp *lq);
/* Whether records that were in the ring at `mark` may still be unread. */
bool world_ring_unread(const struct local_qp *lq, uint32_t mark);

/* ------------------------------------------------------------------ XRC */

/* XRC_SEND: whether the request is for the process that this struct local_qp leads to. Sets
 * lq->srqn if so. */
bool world_current(struct local_qp *lq, const struct send_wqe *wqe);
/* XRC_SEND: whether the SRQ lq->srqn exists in the peer's process and in the target QP's domain.
 * The link is up. [shared] */
bool world_peer_srq(struct local_qp *lq);
enum world_srq {
	WORLD_SRQ_THERE,   /* as far as is known; or the target QP doesn't receive from this QP */
	WORLD_SRQ_LEAVING, /* the process that has the SRQ has ended: MISSING will follow */
	/* All that the process has sent has been read, and the target QP has failed: its owners
	 * learn of the refusal even if this process ends as soon as it learns of it. */
	WORLD_SRQ_MISSING,
};
/* XRC_SEND: what has become of the process that has the SRQ which the oldest request names. Has the
 * target QP fail if it is gone. */
enum world_srq world_srq_look(struct local_qp *lq);
/* XRC_RECV: receives, keys and completions are the SRQ's with this number from now on. False: there
 * is no such SRQ in the target QP's domain. */
bool world_aim(struct local_qp *lq, uint32_t srqn);

/* ------------------------------------------------------------------ hazards */

/*
 * "I am about to touch this": the peer's deregistration, or the end of its QP, waits for it. Set
 * before the entry is read, cleared after the copy.   [H1 with H2] [shared]
 */
typedef _Atomic uint64_t world_hazard;
/* The peer's region with this rkey. */
world_hazard *world_hazard_region(struct local_qp *lq, uint32_t rkey);
/* The peer's QP: the memory of its requests. */
world_hazard *world_hazard_qp(struct local_qp *lq);
/* The peer's region, set while a hazard of a QP is held: never waits for a thread that waits for
 * this one's hazard. */
world_hazard *world_hazard_region_inner(struct local_qp *lq, uint32_t rkey);
void world_hazard_clear(world_hazard *hazard);

/* ------------------------------------------------------------------ memory of this process */

/*
 * Regions of this process that are being copied to or from: regions that are resolved below are
 * held, so that their deregistration waits, until the block that declares WORLD_MEMORY() is left.
 * Resolving and copying happen within one block. Blocks nest.
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

/* Resolves the memory of a request (`access` 0 or IBV_ACCESS_LOCAL_WRITE), or of the first `length`
 * bytes of a receive, as its keys grant it now. The number of segments in `out` (LIMIT_SGE places),
 * or -EFAULT. [shared] */
int world_request_segments(struct local_qp *lq, const struct send_wqe *wqe, uint32_t access,
			   struct iovec *out);
int world_receive_segments(struct local_qp *lq, const struct recv_wqe *wqe, uint32_t length,
			   struct iovec *out);
/* Copies the payload of a request to `to`. False: a key, range or right is wrong, or memory isn't
 * mapped; part may have been copied. [shared] */
bool world_put_message(struct local_qp *lq, const struct send_wqe *wqe, void *to);
/* Copies flat bytes from (to) segments, beginning `offset` bytes into them. False: not mapped.
 * [shared] */
bool world_gather(struct local_qp *lq, void *to, const struct iovec *from, int count, size_t offset,
		  size_t length);
bool world_scatter(struct local_qp *lq, const struct iovec *to, int count, size_t offset,
		   const void *from, size_t length);
/* After a copy failed: whether these segments of this process are mapped. */
bool world_reachable(const struct iovec *local, int count);

/* The address here of [addr, addr + length) as the peer names it, or 0: the key, range, protection
 * domain or right is wrong. [shared] */
uint64_t world_own_region(struct local_qp *lq, uint64_t addr, uint32_t length, uint32_t rkey,
			  uint32_t access);
/* Whether an address that world_own_region() returned is in another process's memory, which this
 * one imported. */
bool world_is_imported(uint64_t at);
/* Copies bytes of the peer's WRITE to, or READ from, our address. `last`: they end the message, and
 * their final byte is copied last. False: not mapped. [shared] */
bool world_own_write(struct local_qp *lq, uint64_t at, const uint8_t *from, uint32_t n, bool last);
bool world_own_read(struct local_qp *lq, uint64_t at, uint8_t *to, uint32_t n);
bool world_own_atomic(struct local_qp *lq, uint64_t at, const struct record_atomic *op,
		      uint64_t *old);
/* Executes the peer's FLUSH: IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR or IBV_WC_REM_INV_REQ_ERR.
 * [shared] */
enum ibv_wc_status world_own_flush(struct local_qp *lq, const struct record_atomic *op);
/* Makes what this process has written to the peer's memory visible to all. */
void world_flush_fence(struct local_qp *lq);

/* ------------------------------------------------------------------ memory of the peer */

/* The caller has set a hazard for each. 0; -EFAULT: one side isn't mapped; -ESRCH: the peer has
 * ended; -EPERM. [shared] */
/* Copies our segments to the peer's address `there`, in the region or window `view`; the last byte
 * last. */
int world_peer_put(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length);
/* Copies from there to our segments. */
int world_peer_get(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length);
/* Executes the next READs by one call: the first one's bytes are remote[0], and so on; `local` has
 * the segments of all, one request's after the other's. */
int world_peer_get_several(struct local_qp *lq, const struct iovec *remote, int reads,
			   const struct iovec *local, int count, size_t length);
/* Executes an atomic on the 8 bytes at `there`, which are aligned. -EAGAIN: they aren't mapped
 * here, and only the peer can execute it. */
int world_peer_atomic(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		      const struct record_atomic *op, uint64_t *old);
/* Whether the region is likely to be mapped here; if it may be later, asks for that. [shared] */
bool world_peer_mapped(struct local_qp *lq, const struct mr_view *view);
/* Copies from the peer's segments, all of the region `view`, to ours. */
int world_peer_fetch(struct local_qp *lq, const struct mr_view *view, const struct iovec *remote,
		     int remote_count, const struct iovec *local, int count, size_t length);

/* ------------------------------------------------------------------ receives */

/* The short way of a SEND: takes the next receive, fills it with the message `h`, and completes it.
 * RECEIVE_OTHERWISE: the message or the receive is none of the ordinary ones, or its key grants
 * nothing. Nothing has happened then, and the calls below find out what it is. RECEIVE_FAULTED: the
 * memory of the receive *wqe, which was taken, isn't mapped. [shared] */
enum receive_outcome world_receive_message(struct local_qp *lq, const struct ring_header *h,
					   const uint8_t *payload, struct receive *room,
					   const struct recv_wqe **wqe);
/* Takes the next receive; NULL: there is none. It stays where it is, or is copied to `room`, until
 * the core's call ends; world_receive_keep() makes it valid beyond that. */
const struct recv_wqe *world_receive_take(struct local_qp *lq, struct receive *room);
enum { LOCAL_HEAD_BYTES = 32 };
/* How many bytes of a SEND must be known before a receive can be taken for it: 0, or
 * LOCAL_HEAD_BYTES if its tag chooses the receive. */
uint32_t world_head_bytes(const struct local_qp *lq);
/* As world_receive_take(), for a SEND whose first bytes are in `head`: world_head_bytes(), or as
 * many as it has. */
const struct recv_wqe *world_receive_take_for(struct local_qp *lq, struct receive *room,
					      const uint8_t *head, uint32_t length);
/* Gives the receive back: the message that it was taken for won't come. It becomes the next one. */
void world_receive_back(struct local_qp *lq, const struct recv_wqe *wqe);
/* The message takes longer than this call: its place in the queue stays taken. The core has a
 * copy. */
void world_receive_keep(struct local_qp *lq);
/* Completes the receive. */
void world_receive_complete(struct local_qp *lq, const struct recv_wqe *wqe,
			    const struct arrival *arrival, enum ibv_wc_status status);
/* Sets (`waits`) or clears the request to call local_qp_receive_posted() when a receive is posted.
 * [shared: with posting threads; the core looks for a receive once more after it] */
void world_receive_wait(struct local_qp *lq, bool waits);

/* ------------------------------------------------------------------ completions and events */

/* Completes the oldest request: advances sq.acked (and sq.next, if it wasn't sent). With an error
 * the QP fails: local_qp_stop() is called from inside, and the owner flushes. */
void world_complete(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status);
/* Executes a request on this process's memory windows, before which all have completed. Its status,
 * or WQE_LATER: local_qp_post() is called when it can be tried again. */
enum ibv_wc_status world_execute_window(struct local_qp *lq, const struct send_wqe *wqe);
/* The peer invalidates the memory window with this key. False: it may not. */
bool world_invalidate(struct local_qp *lq, uint32_t rkey);
/* The request at sq.next failed on this side, a UC WRITE perhaps between its pieces. The QP goes to
 * SQE. */
void world_fail_request(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status);
/* Moves the QP to ERR, and raises `event` unless it is negative. Calls local_qp_stop(). */
void world_fail(struct local_qp *lq, int event);
void world_drained(struct local_qp *lq);     /* SQD: no request is under way any more */
void world_established(struct local_qp *lq); /* a request arrived; once, in RTR */

/* ------------------------------------------------------------------ storage */

/* Memory for a message that waits, with `size` bytes of payload; NULL: the bound of its link or its
 * user is reached, or memory is exhausted. */
struct local_held *world_hold(struct local_qp *lq, uint32_t size);
void world_release(struct local_qp *lq, struct local_held *held);

/* ------------------------------------------------------------------ timers */

/* Requests are outstanding: has local_qp_expire() called periodically until it returns false. */
void world_watch(struct local_qp *lq);
/* A message waits for a receive, or for AGAIN: the same with local_qp_expire_receive(). */
void world_watch_receive(struct local_qp *lq);
/* lq->owed_msn was set: has local_qp_flush_ack() called at the end of the engine's pass. A record
 * of another QP to the same process may carry it before (local_qp_take_owed()); then
 * world_ring_notify() for that record counts for the peer's QP as well. */
void world_owe_ack(struct local_qp *lq);

/* ------------------------------------------------------------------ ways through a fabric */

/* Only for a QP with lq->routed, whose peer was seen ready in the same call of the core. */

/* Whether the request may start now: the fabric's tables lead to the peer and back, and no fault
 * drops it (OPEN); it is a packet that was lost; or it, and those behind it, aren't in front of
 * sq->head any more, since they need time on their way, and will be there again. [shared] */
enum world_way { WORLD_WAY_OPEN, WORLD_WAY_LOST, WORLD_WAY_HELD };
enum world_way world_route_admits(struct local_qp *lq, const struct send_wqe *wqe);
/* Count its packets where they passed: it was lost; it begins; it is taken back; it was answered.
 */
void world_route_lost(struct local_qp *lq, const struct send_wqe *wqe);
void world_route_begins(struct local_qp *lq, const struct send_wqe *wqe);
void world_route_withdraws(struct local_qp *lq, const struct send_wqe *wqe);
void world_route_answered(struct local_qp *lq, const struct send_wqe *wqe,
			  enum ibv_wc_status status);
/* A request is lost after its last retry. Whether the QP goes over to another path now, by which
 * the request is sent again. */
bool world_route_migrates(struct local_qp *lq);
/* The peer's QP may be in another state of migration. Whether it is to look at this QP's. */
bool world_route_look(struct local_qp *lq);
/* Why requests are lost, for the log. */
void world_route_explain(const struct local_qp *lq, char *text, size_t size);

/* ------------------------------------------------------------------ captures, counters, log */

bool world_captures(const struct local_qp *lq);
void world_capture_request(struct local_qp *lq, const struct send_wqe *wqe);
/* `msn`: the number of requests that the responder has executed by then. */
void world_capture_answer(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn,
			  enum ibv_wc_status status);
void world_capture_rnr(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn);
void world_count(struct local_qp *lq, unsigned int counter); /* enum pub_counter */
void world_log(const struct local_qp *lq, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
