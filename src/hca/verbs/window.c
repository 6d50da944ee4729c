/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows. See window.h. Owns the windows by index (hca.windows) and the number of windows
 * that are bound to each region, both under hca.windows_lock.
 */
#include "hca/verbs/window.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/refused.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/local_conn.h"
#include "hca/mem/hazard.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/control.h"
#include "hca/verbs/qp.h"

#define REMOTE_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
/* A window's IBV_ACCESS_LOCAL_WRITE has no meaning, but programs give it. */
#define BIND_ACCESS (REMOTE_RIGHTS | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)

enum { INVALIDATE_LOOKS = 64 };

/* What belongs to an index of the key table. */
struct window_place {
	struct mw *mw;	/* the window that has the index; NULL: it isn't a window's */
	uint32_t bound; /* windows that are bound to the region that has the index */
};

/* ------------------------------------------------------------------ states */

enum window_event { EVENT_BIND, EVENT_UNBIND, EVENT_INVALIDATE, EVENTS };
enum window_step {
	REFUSE,
	GRANT,	/* the window may be bound, or is already what the request asks for */
	REVOKE, /* its access is ended first */
	WAIT,
};

static const uint8_t steps[][WINDOW_STATES][EVENTS] = {
	[IBV_MW_TYPE_1] = {[WINDOW_INVALID] = {GRANT, GRANT, REFUSE},
			   [WINDOW_VALID] = {REVOKE, REVOKE, REFUSE},
			   [WINDOW_ENDING] = {WAIT, WAIT, REFUSE}},
	[IBV_MW_TYPE_2] = {[WINDOW_FREE] = {GRANT, REFUSE, GRANT},
			   [WINDOW_VALID] = {REFUSE, REFUSE, REVOKE},
			   [WINDOW_ENDING] = {REFUSE, REFUSE, WAIT}},
};

static enum window_step window_step(const struct mw *mw, enum window_event event)
{
	return steps[mw->type][mw->state][event];
}

static struct window_place *window_place(const struct hca *hca, uint32_t rkey)
	REQUIRES(hca->windows_lock)
{
	uint32_t index = rkey >> LIMIT_KEY_TAG_BITS;

	return hca->windows && index < LIMIT_MRS_PER_SLOT ? &hca->windows[index] : NULL;
}

/* The window that has the key's index, whatever the tag. */
static struct mw *window_at(const struct hca *hca, uint32_t rkey) REQUIRES(hca->windows_lock)
{
	const struct window_place *place = window_place(hca, rkey);

	return place ? place->mw : NULL;
}

static struct pub_mr *window_entry(const struct mw *mw)
{
	return &mw->hca->regions->mr[mw->first_key >> LIMIT_KEY_TAG_BITS];
}

/* VALID -> ENDING. */
static void window_clear(struct mw *mw)
{
	mr_entry_clear(window_entry(mw));
	mw->state = WINDOW_ENDING;
	mw->since = now_ns();
}

/* ENDING, STUCK -> INVALID, FREE: no copy uses the key any more. */
static void window_ended(struct hca *hca, struct mw *mw) REQUIRES(hca->windows_lock)
{
	window_place(hca, mw->region)->bound--;
	mw->region = 0;
	mw->state = mw->type == IBV_MW_TYPE_1 ? WINDOW_INVALID : WINDOW_FREE;
	list_del(&mw->by_qp);
	list_del(&mw->ending);
}

/* Leaves the wait to the control thread. `waiter`: the QP whose request waits, or NULL. */
static void window_leave_wait(struct hca *hca, struct mw *mw, struct qp *waiter)
	REQUIRES(hca->windows_lock)
{
	if (waiter) {
		list_del(&waiter->window_wait);
		list_add_tail(&mw->waiters, &waiter->window_wait);
	}
	if (!list_empty(&mw->ending))
		return;
	list_add_tail(&hca->windows_ending, &mw->ending);
	work_leave(&hca->control_work, CONTROL_WINDOWS);
	control_wake(hca);
}

/* ------------------------------------------------------------------ allocating */

static int windows_make(struct hca *hca)
{
	lock_take(&hca->windows_lock);
	bool made = hca->windows != NULL;

	lock_give(&hca->windows_lock);
	if (made)
		return 0;
	/* Anonymous memory: pages exist once they are used. */
	void *at = mmap(NULL, LIMIT_MRS_PER_SLOT * sizeof(struct window_place),
			PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	lock_take(&hca->windows_lock);
	bool first = !hca->windows;

	if (first)
		hca->windows = at;
	lock_give(&hca->windows_lock);
	if (!first)
		munmap(at, LIMIT_MRS_PER_SLOT * sizeof(struct window_place));
	return 0;
}

/* Has the daemon give the window its key. 0 or a negative errno. */
static int window_register(struct mw *mw, struct context *context)
{
	struct ib_uverbs_alloc_mw_resp resp;

	books_enter(context->hca);
	int err = daemon_alloc_mw(&context->conn, pd_of(mw->ibv.pd)->handle, mw->type, &resp);

	if (!err && (resp.rkey >> LIMIT_KEY_TAG_BITS >= LIMIT_MRS_PER_SLOT)) {
		daemon_dealloc_mw(&context->conn, resp.mw_handle);
		err = -EINVAL;
	}
	if (!err) {
		mw->handle = mw->ibv.handle = resp.mw_handle;
		mw->first_key = mw->rkey = mw->ibv.rkey = resp.rkey;
		books_add(context, HELD_MW, &mw->held);
		atomic_store(&context->hca->last_key_index, resp.rkey >> LIMIT_KEY_TAG_BITS);
	}
	books_leave(context->hca);
	return err;
}

static struct mw *window_new(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct mw *mw = calloc(1, sizeof(*mw));

	if (!mw)
		return NULL;
	mw->ibv.context = pd->context;
	mw->ibv.pd = pd;
	mw->ibv.type = type;
	mw->hca = context_of(pd->context)->hca;
	mw->pd_id = pd_of(pd)->id;
	mw->type = (uint8_t)type;
	mw->state = type == IBV_MW_TYPE_1 ? WINDOW_INVALID : WINDOW_FREE;
	list_init(&mw->by_qp);
	list_init(&mw->ending);
	list_init(&mw->waiters);
	return mw;
}

static void window_enter_table(struct hca *hca, struct mw *mw)
{
	lock_take(&hca->windows_lock);
	window_place(hca, mw->first_key)->mw = mw;
	lock_give(&hca->windows_lock);
}

struct ibv_mw *window_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct context *context = context_of(pd->context);

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		log_warn("ibv_alloc_mw: there is no window of type %d", (int)type);
		errno = EINVAL;
		return NULL;
	}
	struct mw *mw = window_new(pd, type);
	int err = mw ? windows_make(context->hca) : -ENOMEM;

	if (!err)
		err = window_register(mw, context);
	if (err) {
		free(mw);
		errno = -err;
		return NULL;
	}
	window_enter_table(mw->hca, mw);
	pd_use(pd, 1);
	return &mw->ibv;
}

/* ------------------------------------------------------------------ requests */

int window_fill_bind(struct send_wqe *wqe, struct ibv_mw *ibv, enum ibv_mw_type type, uint32_t rkey,
		     const struct ibv_mw_bind_info *info)
{
	const struct mr *region = info->mr ? container_of(info->mr, struct mr, ibv) : NULL;

	if (!ibv || ibv->type != type || info->mw_access_flags & ~(unsigned int)BIND_ACCESS ||
	    (!region && (info->addr || info->length)) || (region && region->null_region))
		return refused(EINVAL,
			       "a bind request needs a window of type %d "
			       "(IBV_WR_BIND_MW takes type 2, ibv_bind_mw() type 1), "
			       "access flags within 0x%x (they are 0x%x), and a region, "
			       "which isn't a null region, unless the length is 0",
			       (int)type, (unsigned int)BIND_ACCESS, info->mw_access_flags);
	if (region && region->foreign) {
		log_warn("a memory window can't be bound to a region of another process");
		return EOPNOTSUPP;
	}
	const uint32_t tag = (1u << LIMIT_KEY_TAG_BITS) - 1;

	wqe->imm = mw_of(ibv)->first_key;
	wqe->rkey = (wqe->imm & ~tag) | (rkey & tag);
	wqe->remote_addr = info->addr;
	wqe->bind.length = info->length;
	wqe->bind.region = region ? region->key : 0;
	wqe->bind.access = info->mw_access_flags;
	wqe->length = wqe->num_sge = 0;
	return 0;
}

/* Why the part of the region can't be bound, in words; NULL: it can. */
static const char *region_refusal(const struct mw *mw, const struct send_wqe *wqe,
				  struct mr_view *view)
{
	uint32_t access = wqe->bind.access;

	if (!mr_read(mw->hca->regions, wqe->bind.region, view))
		return "there is no such region (any more)";
	if (view->pd != mw->pd_id)
		return "the region belongs to another protection domain than the window";
	if (!(view->access & IBV_ACCESS_MW_BIND))
		return "the region wasn't registered with IBV_ACCESS_MW_BIND";
	if (view->access & IBV_ACCESS_ZERO_BASED)
		return "the region is zero-based";
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(view->access & IBV_ACCESS_LOCAL_WRITE))
		return "a window for writing needs a region with IBV_ACCESS_LOCAL_WRITE";
	if (!mr_covers(view, wqe->remote_addr, wqe->bind.length))
		return "it isn't within the region";
	return NULL;
}

/* The same for the window itself. `mw` is NULL if it has ended. */
static const char *bind_refusal(const struct qp *qp, const struct mw *mw,
				const struct send_wqe *wqe)
{
	if (!mw || mw->first_key != wqe->imm)
		return "there is no such window (any more)";
	if (mw->pd_id != qp->pd_id)
		return "the window belongs to another protection domain than the queue pair";
	if (mw->type == IBV_MW_TYPE_2 && !wqe->bind.length)
		return "a window of type 2 can't be bound to 0 bytes";
	if (mw->type == IBV_MW_TYPE_1 && wqe->bind.access & IBV_ACCESS_ZERO_BASED)
		return "a window of type 1 can't be zero-based";
	return NULL;
}

static void window_publish(struct hca *hca, const struct mw *mw, const struct send_wqe *wqe,
			   const struct mr_view *region) REQUIRES(hca->windows_lock)
{
	struct pub_mr *e = window_entry(mw);
	bool zero_based = wqe->bind.access & IBV_ACCESS_ZERO_BASED;
	uint64_t start = zero_based ? 0 : wqe->remote_addr;

	atomic_thread_fence(memory_order_release); /* [B1], pairs with [B2] */
	atomic_store_explicit(&e->start, start, memory_order_relaxed);
	atomic_store_explicit(&e->length, wqe->bind.length, memory_order_relaxed);
	atomic_store_explicit(&e->offset, wqe->remote_addr + region->offset - start,
			      memory_order_relaxed);
	atomic_store_explicit(&e->file_serial, region->file_serial, memory_order_relaxed);
	atomic_store_explicit(&e->window_region, mw->region, memory_order_relaxed);
	atomic_store_explicit(&e->window_qpn, mw->qpn, memory_order_relaxed);
	atomic_store_explicit(&e->pd, mw->pd_id | PUB_MR_WINDOW, memory_order_relaxed);
	uint32_t binding = ++hca->bindings % PUB_MR_BINDINGS;

	mr_entry_open(e, (wqe->bind.access & REMOTE_RIGHTS) | binding << PUB_MR_BINDING_SHIFT,
		      mw->rkey);
}

/* INVALID, FREE -> VALID. */
static void window_bind(struct mw *mw, struct qp *qp, const struct send_wqe *wqe,
			const struct mr_view *region) REQUIRES(qp->hca->windows_lock)
{
	mw->rkey = wqe->rkey;
	mw->region = wqe->bind.region;
	mw->qpn = mw->type == IBV_MW_TYPE_2 ? qp_number(qp) : 0;
	if (mw->qpn)
		list_add_tail(&qp->windows, &mw->by_qp);
	window_place(qp->hca, mw->region)->bound++;
	mw->state = WINDOW_VALID;
	window_publish(qp->hca, mw, wqe, region);
}

static enum ibv_wc_status window_refuse(const struct qp *qp, const char *what, uint32_t rkey,
					const char *why)
{
	log_info("QP 0x%x: memory window 0x%x can't be %s: %s", qp_number(qp), rkey, what, why);
	return IBV_WC_MW_BIND_ERR;
}

static enum ibv_wc_status execute_bind(struct qp *qp, const struct send_wqe *wqe)
	REQUIRES(qp->hca->windows_lock)
{
	struct mw *mw = window_at(qp->hca, wqe->imm);
	enum window_event event = wqe->bind.length ? EVENT_BIND : EVENT_UNBIND;
	const char *why = bind_refusal(qp, mw, wqe);
	struct mr_view view = {0};

	if (why)
		return window_refuse(qp, "bound", wqe->rkey, why);
	enum window_step step = window_step(mw, event);

	if (step != REFUSE && event == EVENT_BIND)
		why = region_refusal(mw, wqe, &view);
	if (why || step == REFUSE)
		return window_refuse(qp, "bound", wqe->rkey, why ? why : "it isn't free");
	if (step == REVOKE)
		window_clear(mw);
	if (step != GRANT) {
		window_leave_wait(qp->hca, mw, qp);
		return WQE_LATER;
	}
	if (event == EVENT_BIND)
		window_bind(mw, qp, wqe, &view);
	else
		mw->rkey = wqe->rkey;
	return IBV_WC_SUCCESS;
}

/* Why the QP may not invalidate the key; NULL: it may. */
static const char *invalidate_refusal(const struct qp *qp, const struct mw *mw, uint32_t rkey)
	REQUIRES(qp->hca->windows_lock)
{
	if (!mw || mw->rkey != rkey)
		return "no window has this key";
	if (mw->pd_id != qp->pd_id)
		return "it belongs to another protection domain than the queue pair";
	if (mw->qpn && mw->qpn != qp_number(qp))
		return "it is bound to another queue pair";
	return window_step(mw, EVENT_INVALIDATE) == REFUSE ? "its type or state doesn't allow it"
							   : NULL;
}

/* Whether no process can be copying through a type 2 window whose entry is cleared: see window.h.
 * False: it isn't known. */
static bool window_is_idle(struct qp *qp, const struct mw *mw) REQUIRES(qp->lock)
{
	const struct link *link = local_link_of(qp);

	if (!link)
		return qp->roce != NULL;
	/* A link that is UP stays mapped while qp.lock is held. */
	return (link->self || link_is(link, LINK_UP)) && hazard_link_idle(link, mw->rkey);
}

static enum ibv_wc_status execute_invalidate(struct qp *qp, uint32_t rkey) REQUIRES(qp->lock)
	REQUIRES(qp->hca->windows_lock)
{
	struct mw *mw = window_at(qp->hca, rkey);
	const char *why = invalidate_refusal(qp, mw, rkey);

	if (why)
		return window_refuse(qp, "invalidated", rkey, why);
	enum window_step step = window_step(mw, EVENT_INVALIDATE);

	if (step == REVOKE) {
		window_clear(mw);
		if (window_is_idle(qp, mw)) {
			window_ended(qp->hca, mw);
			return IBV_WC_SUCCESS;
		}
	}
	if (step == GRANT)
		return IBV_WC_SUCCESS;
	window_leave_wait(qp->hca, mw, qp);
	return WQE_LATER;
}

enum ibv_wc_status window_execute(struct qp *qp, const struct send_wqe *wqe)
{
	if (unlikely(wqe->opcode == WR_LACKED))
		return IBV_WC_LOC_QP_OP_ERR;
	lock_take(&qp->hca->windows_lock);
	enum ibv_wc_status status = wqe->opcode == IBV_WR_BIND_MW
					    ? execute_bind(qp, wqe)
					    : execute_invalidate(qp, wqe->rkey);

	lock_give(&qp->hca->windows_lock);
	return status;
}

/* ------------------------------------------------------------------ the peer's requests */

bool window_invalidate(struct qp *qp, uint32_t rkey)
{
	lock_take(&qp->hca->windows_lock);
	struct mw *mw = window_at(qp->hca, rkey);
	/* The window must be the QP's own: a window that was never bound has no QP. */
	const char *why = mw && !mw->qpn ? "it isn't bound to a queue pair"
					 : invalidate_refusal(qp, mw, rkey);

	if (!why && mw->state == WINDOW_VALID) {
		window_clear(mw);
		bool idle = false;

		for (int i = 0; i < INVALIDATE_LOOKS && !idle; i++)
			idle = window_is_idle(qp, mw);
		if (idle)
			window_ended(qp->hca, mw);
	}
	if (!why && mw->state == WINDOW_ENDING) {
		why = "its sender still copies to or from it";
		window_leave_wait(qp->hca, mw, NULL);
	}
	lock_give(&qp->hca->windows_lock);
	if (why)
		window_refuse(qp, "invalidated by the peer", rkey, why);
	return !why;
}

uint64_t window_resolve(const struct qp *qp, uint64_t addr, uint64_t length, uint32_t rkey,
			uint32_t access)
{
	struct mr_view view;

	if (!mr_read(qp->hca->regions, rkey, &view) ||
	    !mr_window_region(qp->hca->regions, rkey, &view, qp->pd_id, qp_number(qp)) ||
	    (view.access & access) != access || !mr_covers(&view, addr, length))
		return 0;
	return addr + view.offset;
}

/* ------------------------------------------------------------------ the end of access */

int window_region_ends(struct hca *hca, const struct mr *mr)
{
	lock_take(&hca->windows_lock);
	const struct window_place *place = window_place(hca, mr->key);
	uint32_t bound = place ? place->bound : 0;

	if (!bound)
		mr_entry_clear(&hca->regions->mr[mr->key >> LIMIT_KEY_TAG_BITS]);
	lock_give(&hca->windows_lock);
	if (bound)
		log_warn("region 0x%x can't end or change while memory windows are bound to it "
			 "(%u)",
			 mr->key, bound);
	return bound ? -EBUSY : 0;
}

static void waiter_run(struct hca *hca, uint32_t qpn)
{
	lock_take(&hca->engine);
	struct qp *qp = hca->qps[qpn & (LIMIT_QPS_PER_SLOT - 1)];

	if (qp) {
		lock_take(&qp->lock);
		sq_run(qp);
		lock_give(&qp->lock);
	}
	engine_leave(hca);
}

/* Runs the QPs whose requests waited for a window. No lock is held. A QP that is reset or destroyed
 * meanwhile leaves the list. */
static void waiters_run(struct hca *hca, struct list *waiters)
{
	const struct list *node;

	do {
		uint32_t qpn = 0;

		lock_take(&hca->windows_lock);
		node = list_pop(waiters);
		if (node)
			qpn = qp_number(container_of(node, struct qp, window_wait));
		lock_give(&hca->windows_lock);
		if (node)
			waiter_run(hca, qpn);
	} while (node);
}

/* An end of access to a window: which key, and since when its entry is cleared. */
struct ending {
	uint32_t rkey;
	uint64_t since;
};

static struct ending window_ending(const struct mw *mw)
{
	return (struct ending){mw->rkey, mw->since};
}

/* The window whose access ends so, if it hasn't ended, nor been bound anew, meanwhile. */
static struct mw *window_of_ending(const struct hca *hca, const struct ending *ending)
	REQUIRES(hca->windows_lock)
{
	struct mw *mw = window_at(hca, ending->rkey);
	bool same = mw && mw->rkey == ending->rkey && mw->since == ending->since &&
		    (mw->state == WINDOW_ENDING || mw->state == WINDOW_STUCK);

	return same ? mw : NULL;
}

/* ENDED or HELD UP. Moves the QPs whose requests waited to `waiters`, for waiters_run(). */
static void window_settle(struct hca *hca, struct mw *mw, bool held_up, struct list *waiters)
	REQUIRES(hca->windows_lock)
{
	struct list *node;

	if (held_up) {
		mw->state = WINDOW_STUCK;
		list_del(&mw->ending);
	} else {
		window_ended(hca, mw);
	}
	while ((node = list_pop(&mw->waiters)))
		list_add_tail(waiters, node);
}

/* Waits until no copy uses the key, and ends the window that has it. 0 or -EBUSY. No lock is held.
 */
static int window_wait(struct hca *hca, struct ending ending)
{
	int err = hazard_wait_region(hca, ending.rkey);
	struct list waiters;

	list_init(&waiters);
	lock_take(&hca->windows_lock);
	struct mw *mw = window_of_ending(hca, &ending);

	if (mw)
		window_settle(hca, mw, err != 0, &waiters);
	lock_give(&hca->windows_lock);
	waiters_run(hca, &waiters);
	return err;
}

/* Clears the entry and takes the window from the control thread. Whether window_wait() must
 * follow. */
static bool window_begin_end(struct mw *mw)
{
	if (mw->state == WINDOW_VALID)
		window_clear(mw);
	list_del(&mw->ending);
	list_del(&mw->by_qp);
	return mw->state == WINDOW_ENDING || mw->state == WINDOW_STUCK;
}

/* Ends all access by the window and takes it off the table, so that no request binds it again. The
 * next owner of the index may get a key that the window once had, so no copy may be under way that
 * began with any of them. 0 or -EBUSY. */
static int window_end(struct hca *hca, struct mw *mw)
{
	lock_take(&hca->windows_lock);
	while (window_begin_end(mw)) {
		struct ending ending = window_ending(mw);

		lock_give(&hca->windows_lock);
		int err = window_wait(hca, ending);

		if (err)
			return err;
		lock_take(&hca->windows_lock);
	}
	window_place(hca, mw->first_key)->mw = NULL;
	lock_give(&hca->windows_lock);
	int err = hazard_wait_index(hca, mw->first_key);

	if (err)
		window_enter_table(hca, mw);
	return err;
}

int window_dealloc(struct ibv_mw *ibv)
{
	struct mw *mw = mw_of(ibv);
	struct context *context = context_of(ibv->context);

	int err = -window_end(mw->hca, mw);

	if (err)
		return err;
	books_enter(context->hca);
	err = -daemon_dealloc_mw(&context->conn, mw->handle);
	if (err == EIO) /* without a daemon there is no object to end */
		err = 0;
	if (!err)
		books_drop(context, &mw->held);
	books_leave(context->hca);
	if (err) {
		window_enter_table(mw->hca, mw);
		return err;
	}
	pd_use(ibv->pd, -1);
	free(mw);
	return 0;
}

void window_leave_qp(struct qp *qp)
{
	struct hca *hca = qp->hca;
	struct list *node;

	lock_take(&hca->windows_lock);
	list_del(&qp->window_wait);
	while ((node = list_pop(&qp->windows))) {
		struct mw *mw = container_of(node, struct mw, by_qp);

		window_begin_end(mw);
		struct ending ending = window_ending(mw);

		lock_give(&hca->windows_lock);
		(void)!window_wait(hca, ending); /* on failure the window is STUCK */
		lock_take(&hca->windows_lock);
	}
	lock_give(&hca->windows_lock);
}

/* ------------------------------------------------------------------ the control thread */

/* Looks whether copies still hold the window's end up. */
static void window_look(struct hca *hca, const struct ending *ending)
{
	enum hazard_look look = hazard_look_region(hca, ending->rkey, ending->since);
	struct list waiters;

	list_init(&waiters);
	lock_take(&hca->windows_lock);
	struct mw *mw = window_of_ending(hca, ending);

	/* A window that isn't listed is waited for by window_wait(). */
	if (mw && look != HAZARD_SET && !list_empty(&mw->ending))
		window_settle(hca, mw, look == HAZARD_STUCK, &waiters);
	lock_give(&hca->windows_lock);
	waiters_run(hca, &waiters);
}

bool windows_serve(struct hca *hca)
{
	enum { AT_ONCE = 64 };
	struct ending endings[AT_ONCE];
	struct list looked, *node;
	unsigned int n = 0;

	list_init(&looked);
	if (!work_take(&hca->control_work, CONTROL_WINDOWS))
		return false;
	lock_take(&hca->windows_lock);
	while (n < AT_ONCE && (node = list_pop(&hca->windows_ending))) {
		endings[n++] = window_ending(container_of(node, struct mw, ending));
		list_add_tail(&looked, node);
	}
	while ((node = list_pop(&looked))) /* next time it is the others' turn */
		list_add_tail(&hca->windows_ending, node);
	lock_give(&hca->windows_lock);
	for (unsigned int i = 0; i < n; i++)
		window_look(hca, &endings[i]);
	lock_take(&hca->windows_lock);
	bool more = !list_empty(&hca->windows_ending);

	lock_give(&hca->windows_lock);
	if (more)
		work_leave(&hca->control_work, CONTROL_WINDOWS);
	return more;
}
