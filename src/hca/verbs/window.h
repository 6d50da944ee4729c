/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: keys for parts of a region, with rights of their own, that a work request gives
 * and takes away (IBTA volume 1, 10.6.7).
 *
 * Where a window's key lives. A window has an index of the process's key table like a region
 * (struct pub_mr in the regions' file, shm/pub.h), and peers look its rkey up there. The entry of a
 * bound window holds the range, the rights and the translation; `pd` is the number of the
 * protection domain with PUB_MR_WINDOW set, and `window_qpn` is the QPN that a type 2 window is
 * bound to, 0 for type 1. The bit makes `pd` equal to no domain's number, so every lookup that
 * knows no windows refuses the entry: local segments, imports, a SEND's segments that a peer
 * fetches. Remote accesses look at windows where the comparison of domains has failed
 * (remote_resolve(), check_region() in local/core/onesided.c), so programs without windows pay
 * nothing. `window_region` and `file_serial` are the region's: a peer that has the region mapped
 * reaches the window by that mapping (mem/mapped.h).
 *
 * Keys. A key is the index and a tag of eight bits. ibv_bind_mw() gives a type 1 window the next
 * tag; a type 2 window gets the tag of the key that the program names in its BIND, of which the
 * other bits are ignored. A window's key is no lkey.
 *
 * States (struct mw.state), under hca.windows_lock:
 *
 *   INVALID  type 1: not bound
 *   FREE     type 2: not bound
 *   VALID    bound; the entry is published
 *   ENDING   the entry is cleared, but copies that began before may go on
 *   STUCK    such a copy didn't end within the bound (hazard.h)
 *
 *               INVALID    FREE      VALID          ENDING         STUCK
 *   BIND        VALID      VALID     1: ENDING      1: waits       refused
 *                                    2: refused     2: refused
 *   UNBIND      INVALID    -         ENDING         waits          refused
 *   INVALIDATE  refused    FREE      1: refused     2: waits       refused
 *                                    2: ENDING
 *   ENDED       -          -         -              INVALID, FREE  INVALID, FREE
 *   HELD UP     -          -         -              STUCK          STUCK
 *
 * BIND is a bind of more than 0 bytes; UNBIND is a type 1 bind of 0 bytes. INVALIDATE is
 * IBV_WR_LOCAL_INV, or the peer's IBV_WR_SEND_WITH_INV. ENDED: no copy uses the key any more; HELD
 * UP: the bound is reached. A request that waits is tried again when the window has left ENDING. So
 * a request needs no state of its own: each try looks at the window's.
 *
 * What BIND and INVALIDATE require is in window.c, at bind_refusal() and invalidate_refusal(). A
 * refused one completes with IBV_WC_MW_BIND_ERR ("memory management operation error"), which the
 * specification has for both.
 *
 * Order among a QP's requests. BIND and LOCAL_INV are executed here, by no peer. One begins when
 * all earlier requests of its QP have completed, as with a fence: after an error nothing later may
 * be executed. Later requests wait for it. Neither takes a PSN, and a capture shows none of it.
 *
 * The end of access is what it is for regions (hazard.h): the entry is cleared [H3], then hazards
 * are looked at [H4]; when the request completes (or ibv_dealloc_mw() returns 0), no copy through
 * the key is under way. Nothing waits under qp.lock, and the engine never waits:
 *
 * - INVALIDATE of a type 2 window: only the QP that the window is bound to can be used to reach it.
 *   Copies by this process for a peer are made under that QP's lock, which the caller holds, so all
 *   of them have ended. The hazards of the QP's peer (of this process, if the QP's carrier is self)
 *   are looked at once; if none names the key the window is FREE at once. This is the usual case.
 * - Otherwise the window stays ENDING on hca.windows_ending, and the control thread looks again
 *   until it is ENDED or HELD UP; then it runs the QPs whose requests wait (mw.waiters), of which a
 *   type 1 window may have several. The bound is the one of ibv_dereg_mr().
 * - SEND_WITH_INV arrives behind all that its sender did with the window, so a hazard of the sender
 *   for this key means that it breaks the rules: the message is refused (remote access error), and
 *   the window is ENDING as above.
 * - ibv_dealloc_mw(), RESET and ibv_destroy_qp() wait themselves, without locks, as ibv_dereg_mr()
 *   does.
 *
 * A type 2 window that was bound to a QP is FREE after the QP's RESET or end, because another
 * connection with that QPN must not inherit it. In ERR it stays bound: the peer can't reach it, and
 * the QP can't come back but by RESET.
 *
 * Regions. A region with bound windows (VALID, ENDING, STUCK) can't be deregistered or
 * reregistered: EBUSY. window_region_ends() looks and clears the region's entry under the same lock
 * under which BIND looks at the entry, so no window is bound to a region that has ended.
 *
 * Processes. All of this is written by the owner's process, in its private memory, but for the
 * entries, which peers read. The daemon knows only the key and the domain (daemon/objects/mw.c); it
 * frees them when the process ends. A peer may die at any instruction: as in hazard.h.
 *
 *   [B1] a release fence before the fields of an entry are written for a new binding, after the
 *   entry was cleared, pairs with [B2] the acquire fence after the fields were read: a reader that
 *   reads a field of the new binding then sees that the word that it read first has changed. The
 *   word has the number of the binding, because the program may name the same tag again. It matters
 *   to a reader whose hazard names the old key and was not waited for: it uses a QP that the window
 *   was not bound to then.
 */
#ifndef VERBENA_HCA_VERBS_WINDOW_H
#define VERBENA_HCA_VERBS_WINDOW_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

struct mr;

enum window_state {
	WINDOW_INVALID,
	WINDOW_FREE,
	WINDOW_VALID,
	WINDOW_ENDING,
	WINDOW_STUCK,
	WINDOW_STATES
};

struct mw {
	struct ibv_mw ibv;
	struct hca *hca;
	uint32_t handle;    /* ibv.handle as it was made */
	uint32_t first_key; /* ibv.rkey as it was made, and as the daemon knows it */
	uint32_t pd_id;
	uint8_t type; /* enum ibv_mw_type */
	struct list held;

	/* ---- under hca.windows_lock */
	uint8_t state;	     /* enum window_state */
	uint32_t rkey;	     /* of the last binding */
	uint32_t qpn;	     /* type 2: of the last binding */
	uint32_t region;     /* VALID, ENDING, STUCK: the region's rkey */
	struct list by_qp;   /* on qp.windows: type 2 that isn't FREE */
	struct list ending;  /* on hca.windows_ending: the control thread looks */
	uint64_t since;	     /* ns: when it became ENDING */
	struct list waiters; /* struct qp.window_wait: QPs whose next request waits */
};

static inline struct mw *mw_of(struct ibv_mw *ibv)
{
	return container_of(ibv, struct mw, ibv);
}

/* ---- the program's calls; 0 or a positive errno, and NULL with errno */
struct ibv_mw *window_alloc(struct ibv_pd *pd, enum ibv_mw_type type);
/* EBUSY: a copy through the window doesn't end within the bound; no new one begins. */
int window_dealloc(struct ibv_mw *mw);

/* ---- posting; the caller has the WQE: by qp.lock, or by the builder's turn */
/*
 * Fills the WQE of a BIND to a window of `type`: programs bind those of type 1 by ibv_bind_mw()
 * only. 0; EINVAL: an argument is wrong by itself, or the window is of the other type; EOPNOTSUPP:
 * the region is another process's. What depends on states or objects is decided when the request is
 * executed.
 */
int window_fill_bind(struct send_wqe *wqe, struct ibv_mw *mw, enum ibv_mw_type type, uint32_t rkey,
		     const struct ibv_mw_bind_info *info);

/* ---- executing; qp.lock is held */
/* Executes the QP's oldest request, a BIND or LOCAL_INV. Its status, or WQE_LATER: the request
 * waits, and sq_run() follows. */
enum ibv_wc_status window_execute(struct qp *qp, const struct send_wqe *wqe) REQUIRES(qp->lock);
/* The peer's SEND_WITH_INV names `rkey`. False: it may not. hca.engine is held, too. */
bool window_invalidate(struct qp *qp, uint32_t rkey) REQUIRES(qp->lock);
/* As mr_resolve(), for a peer's access to a window; 0: `rkey` names none that grants it. The key is
 * held already. */
uint64_t window_resolve(const struct qp *qp, uint64_t addr, uint64_t length, uint32_t rkey,
			uint32_t access);

/* ---- without locks */
/* Clears the region's entry, so that no window can be bound to it any more. -EBUSY: there are bound
 * windows, and the region stays as it is. */
int window_region_ends(struct hca *hca, const struct mr *mr);
/* The QP is in RESET or has left the table: ends all access by its type 2 windows. */
void window_leave_qp(struct qp *qp);
/* Looks at the windows that are ENDING. Control thread. True: it must be called again soon. */
bool windows_serve(struct hca *hca);

#endif
