/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues, completion channels and asynchronous events.
 *
 * Whether a CQ owes its channel an event is an enum (cq.armed, under cq.lock). Flags:
 *   flag             set by                                  cleared by
 *   single_threaded  object_init(), before any other thread  never, so no lock guards them
 *   timestamps       knows the CQ; extended: the call
 *   extended         that makes it
 *   overrun          make_room(), under cq.lock: a           never: the CQ is unusable
 *                    completion found no room
 *   registered       cq_registered(), within an entry        never
 *                    (books.h): the daemon has the CQ
 * `overrun` is independent of the arming: completions from before it are still polled.
 */
#ifndef VERBENA_HCA_VERBS_CQ_H
#define VERBENA_HCA_VERBS_CQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/thread_safety.h"
#include "client/daemon.h"
#include "hca/verbs/places.h"
#include "hca/verbs/queue_memory.h"
#include "proto/limits.h"

struct context;
struct hca;

struct cqe {
	uint64_t wr_id;
	struct places *places; /* polling frees places there (places.h); NULL: nowhere */
	uint32_t byte_len;
	uint32_t imm; /* immediate (network order) or invalidated rkey; a frame's flow tag */
	uint32_t qp_num;
	uint32_t src_qp; /* a frame's VLAN tag, if it was taken out */
	uint8_t status;	 /* enum ibv_wc_status */
	uint8_t opcode;	 /* enum ibv_wc_opcode */
	/* Of a request: the count of the place behind its own, up to which polling frees them. A
	 * receive frees one place. */
	uint16_t places_end;
	uint16_t vendor_err; /* enum reason: why, for messages */
	uint16_t slid;	     /* of a packet of a fabric */
	uint8_t wc_flags;
	uint8_t sl;	    /* UD's receives: the packet's type, or its SL (exec/datagram.c) */
	uint8_t path_bits;  /* of the destination LID */
	bool is_frame;	    /* of a raw packet QP or a work queue */
	uint32_t tag_priv;  /* of a message that matched a tag: its ibv_tmh.app_ctx; else 0 */
	uint64_t timestamp; /* ns, only kept when the CQ asks for it */
	uint64_t tag;	    /* of a message that matched a tag; else 0 */
};

_Static_assert(sizeof(struct cqe) == 64, "a completion is a cache line");
_Static_assert(LIMIT_QP_WR < 1 << 16, "cqe.places_end says which place it is");

/* Whether the completion concerns a tag-matching SRQ: its list, a posted tag, or the count of
 * messages that matched none. */
static inline bool cqe_is_tagged(const struct cqe *cqe)
{
	return cqe->opcode >= IBV_WC_TM_ADD && cqe->opcode <= IBV_WC_TM_NO_TAG;
}

#define CQ_START COUNTER_START(512) /* the first count of a CQ */

enum cq_arm { CQ_UNARMED, CQ_ARMED_SOLICITED, CQ_ARMED };

struct cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	struct lock lock;
	bool single_threaded; /* one thread only polls it: `turn` isn't taken (completion.h) */
	bool timestamps;      /* cqe.timestamp is kept */
	bool extended;	      /* made by ibv_create_cq_ex() */
	/* For good. Changes under lock; atomic, because the engine thread looks for it without the
	 * lock. */
	_Atomic bool overrun;
	/* enum cq_arm. Changes under lock; atomic, because a poller reads it without the lock. */
	_Atomic uint32_t armed;
	/* ---- moderation of events (ibv_modify_cq): cq_moderation.c */
	/* How many completions raise one event, and within which time; 0: each raises one. */
	uint32_t moderate_count GUARDED_BY(lock);
	uint64_t moderate_ns GUARDED_BY(lock);
	/* Completions since the arming whose event is held back, and when it is raised all the same
	 * (ns). */
	uint32_t held_back GUARDED_BY(lock);
	uint64_t held_until GUARDED_BY(lock);
	struct list moderated; /* on hca.moderated; under hca.moderated_lock */
	uint8_t arm_group;     /* of the published counts of armed CQs (shm/pub.h) */
	struct queue_memory memory GUARDED_BY(lock); /* of `ring` */
	struct cqe *ring GUARDED_BY(lock);
	/* The ring's entries - 1, which is how many completions the CQ may hold: ibv.cqe. */
	uint32_t mask GUARDED_BY(lock);
	/* Produced, consumed; free-running. They change under lock; atomic, because a poller
	 * compares them without the lock. */
	_Atomic uint32_t head, tail;
	uint32_t handle;
	uint32_t comp_vector;
	_Atomic uint32_t users; /* send and receive sides of QPs that complete to it */
	/* At the daemon; else it will be with its QP (cq_create_for_qp()). Written within an entry;
	 * read within entries, and by a return, which keeps entries out. */
	bool registered;
	struct list held;
	uint32_t comp_reported;	 /* events given out, under the channel's queue lock */
	uint32_t async_reported; /* under the context's async queue lock */
	struct context *context;
	struct ibv_pd *domain; /* the parent domain that it was made with; NULL: none */
};

static inline struct cq *cq_of(struct ibv_cq *ibv)
{
	return container_of(ibv, struct cq, ibv);
}

/* Whether the CQ owes its channel an event. The answer may be old unless cq.lock is held. */
static inline bool cq_is_armed(const struct cq *cq)
{
	return atomic_load_explicit(&cq->armed, memory_order_relaxed) != CQ_UNARMED;
}

/* Whether it owes one for the next completion, whichever that is; as above. */
static inline bool cq_owes_any(const struct cq *cq)
{
	return atomic_load_explicit(&cq->armed, memory_order_relaxed) == CQ_ARMED;
}

/* How many completions the CQ may hold. Takes cq.lock. */
static inline uint32_t cq_depth(struct cq *cq)
{
	lock_take(&cq->lock);
	uint32_t depth = cq->mask;

	lock_give(&cq->lock);
	return depth;
}

/*
 * Adds a completion; `solicited` says whether it satisfies a solicited-only arming (errors always
 * do). Takes cq.lock; callers may hold engine, qp.lock, srq.lock. False: the CQ has overrun. The
 * completion is lost then, the CQ stays in error, and IBV_EVENT_CQ_ERR is raised once.
 */
bool cq_push(struct cq *cq, const struct cqe *cqe, bool solicited);

/* Parts of cq_add(). The CQ keeps timestamps. The CQ is full, or has overrun: the result of
 * cq_push(). The CQ is armed, and a completion was added: what that means for the event. The last
 * two release cq.lock. */
void cq_stamp(struct cqe *cqe);
bool cq_add_full(struct cq *cq, const struct cqe *cqe, bool solicited) RELEASE(cq->lock);
void cq_add_armed(struct cq *cq, bool satisfies) RELEASE(cq->lock);

/* As cq_push(), for the paths that each small message takes: inlined always, because then the
 * compiler builds the completion at its place. A copy of what was just built in narrow pieces would
 * wait until these have left the processor's store buffer. */
static inline __attribute__((always_inline)) bool cq_add(struct cq *cq, const struct cqe *cqe,
							 bool solicited)
{
	lock_take(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t used = head - atomic_load_explicit(&cq->tail, memory_order_relaxed);

	if (unlikely(cq->overrun || used >= cq->mask)) {
		const struct cqe copy = *cqe; /* `cqe` itself needs no memory then */

		return cq_add_full(cq, &copy, solicited);
	}
	struct cqe *place = &cq->ring[head & cq->mask];

	*place = *cqe;
	if (unlikely(cq->timestamps))
		cq_stamp(place);
	atomic_store_explicit(&cq->head, head + 1, memory_order_release);
	if (unlikely(cq_is_armed(cq)))
		cq_add_armed(cq, solicited || cqe->status != IBV_WC_SUCCESS);
	else
		lock_give(&cq->lock);
	return true;
}

/* Counts the completions that the calling thread has polled: a sign of work (engine.h). */
extern _Thread_local uint32_t cq_taken
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
/* Of the completions that the calling thread got by its last poll, how many it is still likely to
 * answer by a READ each, one after another (local_world.c): all but the first, and one less for
 * each READ that has waited since. 0 while the thread polls. */
extern _Thread_local uint32_t cq_unanswered
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* ---- moderation (cq_moderation.c) */
/* 0 or EINVAL, as ibv_modify_cq(3) says. */
int cq_moderate(struct cq *cq, const struct ibv_modify_cq_attr *attr);
/* A completion would raise the event that the CQ owes: whether that is held back. *first: the first
 * one; cq_moderation_begin() follows, without cq.lock. */
bool cq_hold_back(struct cq *cq, bool *first) REQUIRES(cq->lock);
void cq_moderation_begin(struct cq *cq);
/* The CQ ends. */
void cq_moderation_end(struct cq *cq);
/* Raises the events that are due; returns when the next one is (ns; UINT64_MAX: none). Engine
 * thread. */
uint64_t cq_moderation_scan(struct hca *hca, uint64_t now);
/* Raises the event that the CQ owes, which isn't any more then. */
void cq_raise(struct cq *cq) REQUIRES(cq->lock);

int cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc); /* ops.poll_cq */
int cq_req_notify(struct ibv_cq *cq, int solicited_only);     /* ops.req_notify_cq */

/* Removes the completions of a QP (ibv_destroy_qp, RESET), so that none names a QP that has ended;
 * but for those that concern a tag-matching SRQ, whose tags and counts outlive the QP. The places
 * of an SRQ that they have are free. */
void cq_forget_qp(struct cq *cq, uint32_t qp_num);

/* What the CQ's completions free there ends: they free nothing any more. */
void cq_forget_places(struct cq *cq, const struct places *places);
/* How many of the CQ's completions free places there. Takes cq.lock; callers may hold qp.lock and
 * srq.lock. */
uint32_t cq_count_for(struct cq *cq, const struct places *places);

/* The daemon has made the CQ and its channel together with their QP: stores their handles. Within
 * an entry (books.h). */
void cq_came(struct cq *cq, const struct proto_create_channel_cq_resp *resp);

#endif
