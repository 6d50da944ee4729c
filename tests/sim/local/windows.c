/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows of type 2, modelled after src/hca/verbs/window.c: binding, invalidation here and
 * by the peer, and the end of access, which the engine's thread waits for instead of a control
 * thread. Each binding has a serial number like a region's registration, which the addresses that
 * the core gets from its key contain: so an access through a window whose invalidation has
 * completed shows (memory.c).
 *
 * Programs know all windows: a requester reaches a target by the key of a window that its peer's QP
 * has bound over it, or invalidates that window by a message. Without faults no window is
 * invalidated while a request that needs it can still be executed, so all requests must succeed.
 * With wrong keys a request may name a window of another QP: then its hazard may stand in the way
 * of the message by which the window's own peer invalidates it, and that message is refused.
 */
#include "sim_local.h"

enum { NO_WINDOW = WINDOWS };

static struct window *window_at(struct process *p, uint32_t rkey)
{
	uint32_t place = (rkey >> LIMIT_KEY_TAG_BITS) - 1;

	return place >= REGIONS && place < ENTRIES ? &p->window[place - REGIONS] : NULL;
}

static struct entry *entry_of(struct process *p, const struct window *w)
{
	return &p->entry[REGIONS + (w - p->window)];
}

bool windows_bound_to(const struct process *p, uint32_t place)
{
	for (uint32_t i = 0; i < WINDOWS; i++)
		if (p->window[i].state != WINDOW_FREE && p->window[i].region == place)
			return true;
	return false;
}

/* ------------------------------------------------------------------ the end of access */

static bool copied_through(const struct process *p, const struct window *w)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		if (hazard_names(&sim.process[i], p, w->rkey))
			return true;
	return false;
}

static void window_clear(struct process *p, struct window *w)
{
	w->state = WINDOW_ENDING;
	binding_state(w->serial, REGION_ENDING);
	entry_of(p, w)->rkey = 0; /* [H3] */
	task_yield("a window is cleared");
}

static void window_ended(struct window *w)
{
	w->state = WINDOW_FREE;
	binding_state(w->serial, REGION_ENDED);
	trace("window 0x%x is free", w->rkey);
}

bool windows_due(const struct process *p)
{
	for (uint32_t i = 0; i < WINDOWS; i++)
		if (p->window[i].state == WINDOW_ENDING && p->window[i].served &&
		    !copied_through(p, &p->window[i]))
			return true;
	return false;
}

static void run_waiter(struct process *p, uint32_t index)
{
	struct qp *qp = &p->qp[index];

	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	if (qp->connected && qp->state == IBV_QPS_RTS)
		local_qp_post(&qp->lq);
	mutex_give(&qp->lock);
	engine_leave(p);
}

void windows_serve(struct process *p)
{
	for (uint32_t i = 0; i < WINDOWS; i++) {
		struct window *w = &p->window[i];
		uint32_t waiter = 0;

		mutex_take(&p->windows);
		if (w->state == WINDOW_ENDING && w->served && !copied_through(p, w)) {
			w->served = false;
			window_ended(w);
			waiter = w->waiter;
			w->waiter = 0;
		}
		mutex_give(&p->windows);
		if (waiter)
			run_waiter(p, waiter - 1);
	}
}

/* ibv_modify_qp() to RESET, and ibv_destroy_qp(): without locks. */
void windows_leave_qp(struct qp *qp)
{
	struct process *p = qp->process;

	if (sim.in_child)
		return;
	for (uint32_t i = 0; i < WINDOWS; i++) {
		struct window *w = &p->window[i];

		if (w->state == WINDOW_FREE || w->qpn != qp->qpn)
			continue;
		binding_hurt(w->serial);
		mutex_take(&p->windows);
		if (w->state == WINDOW_BOUND)
			window_clear(p, w);
		w->served = false;
		w->waiter = 0;
		mutex_give(&p->windows);
		hazards_wait(p, w->rkey);
		if (w->state == WINDOW_ENDING)
			window_ended(w);
	}
}

/* ------------------------------------------------------------------ requests, when they are next
 */

static enum ibv_wc_status bind(struct qp *qp, const struct send_wqe *wqe, const struct request *r)
{
	struct process *p = qp->process;
	struct window *w = &p->window[wqe->imm];
	const struct entry *region = entry_find(p, wqe->bind.region);

	/* A request that was made wrong is wrong although the peer has freed its window since. */
	if (w->state != WINDOW_FREE || !region || r->bad)
		return IBV_WC_MW_BIND_ERR;
	w->state = WINDOW_BOUND;
	w->rkey = wqe->rkey;
	w->qpn = qp->qpn;
	w->serial = r->target;
	w->region = (wqe->bind.region >> LIMIT_KEY_TAG_BITS) - 1;
	*entry_of(p, w) = (struct entry){
		.rkey = wqe->rkey,
		.access = wqe->bind.access,
		.pd = region->pd | PUB_MR_WINDOW,
		.window_qpn = qp->qpn,
		.window_region = wqe->bind.region,
		.file_serial = region->file_serial,
		.start = wqe->remote_addr,
		.length = wqe->bind.length,
		.offset = binding_offset(w->serial),
	};
	binding_state(w->serial, REGION_LIVE);
	totals.binds++;
	return IBV_WC_SUCCESS;
}

/* NULL: the QP may not invalidate the key. */
static struct window *invalidable(const struct qp *qp, uint32_t rkey)
{
	struct window *w = window_at(qp->process, rkey);

	return w && w->rkey == rkey && w->qpn == qp->qpn ? w : NULL;
}

static enum ibv_wc_status invalidate(struct qp *qp, uint32_t rkey)
{
	struct process *p = qp->process;
	struct window *w = invalidable(qp, rkey);

	if (!w)
		return IBV_WC_MW_BIND_ERR;
	if (w->state == WINDOW_BOUND) {
		window_clear(p, w);
		/* Copies by this process for the peer are made under qp->lock. */
		if (!hazard_names(qp_peer(qp)->process, p, rkey))
			window_ended(w);
	}
	if (w->state == WINDOW_FREE)
		return IBV_WC_SUCCESS;
	totals.windows_later += !w->waiter;
	w->waiter = qp->index + 1;
	w->served = true;
	engine_kick(p);
	return WQE_LATER;
}

enum ibv_wc_status world_execute_window(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct qp *qp = qp_of(lq);
	struct process *p = qp->process;

	if (sim.in_child)
		return IBV_WC_MW_BIND_ERR;
	struct request *r = oracle_get((uint32_t)wqe->wr_id);

	mutex_take(&p->windows);
	enum ibv_wc_status status =
		wqe->opcode == IBV_WR_BIND_MW ? bind(qp, wqe, r) : invalidate(qp, wqe->rkey);

	mutex_give(&p->windows);
	if (status == IBV_WC_SUCCESS)
		oracle_executed_here(r);
	return status;
}

bool world_invalidate(struct local_qp *lq, uint32_t rkey)
{
	struct qp *qp = qp_of(lq);
	struct process *p = qp->process;

	mutex_take(&p->windows);
	struct window *w = invalidable(qp, rkey);

	if (w && w->state == WINDOW_BOUND) {
		window_clear(p, w);
		if (!hazard_names(qp_peer(qp)->process, p, rkey))
			window_ended(w);
		else if (!sim.plan.hostile && !sim.plan.bad_key)
			fail("window 0x%x is invalidated by its peer, which still copies", rkey);
	}
	bool may = w && w->state == WINDOW_FREE;

	if (w && !may) {
		w->served = true;
		engine_kick(p);
	}
	mutex_give(&p->windows);
	totals.invalidated_by_peer += may;
	return may;
}

uint32_t world_peer_window(struct local_qp *lq, uint32_t rkey, const struct mr_view *view)
{
	const struct qp *qp = qp_of(lq);

	task_yield("world_peer_window");
	const struct entry *e = entry_find(qp->link->peer, rkey);

	bool granted = view->pd == (qp_peer(qp)->pd | PUB_MR_WINDOW) &&
		       view->window_qpn == qp->attr.dest_qp_num && e && e->offset == view->offset;

	return granted ? e->window_region : 0;
}

uint64_t window_resolve(const struct qp *qp, uint64_t addr, uint64_t length, uint32_t rkey,
			uint32_t access)
{
	const struct entry *e = entry_find(qp->process, rkey);

	if (!e || e->pd != (qp->pd | PUB_MR_WINDOW) || e->window_qpn != qp->qpn ||
	    (e->access & access) != access || addr < e->start || length > e->length ||
	    addr - e->start > e->length - length)
		return 0;
	return addr + e->offset;
}

/* ------------------------------------------------------------------ programs */

/* Returns a window of the process in this state, which no request is about to change, and that is
 * bound by the QP, if it is bound. */
static uint32_t choose(const struct process *p, enum window_state state, uint32_t qpn)
{
	uint32_t first = rng_below(&sim.rng, WINDOWS);

	for (uint32_t k = 0; k < WINDOWS; k++) {
		uint32_t i = (first + k) % WINDOWS;
		const struct window *w = &p->window[i];

		if (w->state == state && !w->pending && (w->qpn == qpn || state == WINDOW_FREE))
			return i;
	}
	return NO_WINDOW;
}

static bool wrongly(void)
{
	return rng_chance(&sim.rng, sim.plan.bad_key);
}

static bool make_bind(struct qp *qp, struct request *r, struct send_wqe *wqe)
{
	struct process *p = qp->process;
	uint32_t place = rng_below(&sim.rng, TARGETS), part = rng_below(&sim.rng, REGION_BLOCKS);
	bool wrong = wrongly();
	uint32_t i = choose(p, wrong ? WINDOW_BOUND : WINDOW_FREE, qp->qpn);

	if (i == NO_WINDOW || region_at(p, place)->state != REGION_LIVE ||
	    region_at(p, place)->imported)
		return false;
	uint32_t serial = binding_make(p, place, part, REGION_BLOCKS - part);

	if (!serial)
		return false;
	struct window *w = &p->window[i];

	r->opcode = wqe->opcode = IBV_WR_BIND_MW;
	r->bad = wrong;
	r->region = p->serial[place];
	r->target = serial;
	r->window = wrong ? 0 : i + 1;
	w->pending = !wrong;
	wqe->imm = i;
	wqe->rkey = (REGIONS + i + 1) << LIMIT_KEY_TAG_BITS | ++w->tag;
	wqe->remote_addr = block_iova(p, &p->block[place * REGION_BLOCKS + part]);
	wqe->bind.length = (uint64_t)(REGION_BLOCKS - part) * BLOCK;
	wqe->bind.region = p->entry[place].rkey;
	wqe->bind.access =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return true;
}

/* A window of the QP that a request of its peer is using at this moment. */
static uint32_t in_use(const struct qp *qp)
{
	const struct process *p = qp->process;

	for (uint32_t i = 0; i < WINDOWS; i++)
		if (p->window[i].state == WINDOW_BOUND && p->window[i].qpn == qp->qpn &&
		    !p->window[i].pending && binding_uses(p->window[i].serial))
			return i;
	return NO_WINDOW;
}

bool windows_race(const struct qp *qp)
{
	return sim.plan.windows && !sim.plan.calm && in_use(qp) != NO_WINDOW &&
	       rng_chance(&sim.rng, 700);
}

static bool make_invalidate(struct qp *qp, struct request *r, struct send_wqe *wqe)
{
	struct process *p = qp->process;
	bool wrong = wrongly();
	uint32_t i = in_use(qp);

	if (i == NO_WINDOW)
		i = choose(p, WINDOW_BOUND, qp->qpn);

	if (i == NO_WINDOW)
		return false;
	struct window *w = &p->window[i];

	if (sim.plan.calm && (w->closing || binding_uses(w->serial)))
		return false;
	r->opcode = wqe->opcode = IBV_WR_LOCAL_INV;
	r->bad = wrong;
	wqe->rkey = wrong ? w->rkey ^ 0x40 : w->rkey;
	if (wrong)
		return true;
	r->window = i + 1;
	w->pending = w->closing = true;
	binding_hurt(w->serial);
	return true;
}

void windows_post(struct qp *qp)
{
	_Alignas(16) uint8_t space[256] = {0};
	struct send_wqe *wqe = (struct send_wqe *)space;
	struct request *r = oracle_request(qp);

	if (!r)
		return;
	bool made = in_use(qp) == NO_WINDOW && rng_chance(&sim.rng, 500)
			    ? make_bind(qp, r, wqe)
			    : make_invalidate(qp, r, wqe);

	r->peer = (uint8_t)qp_peer(qp)->process->number;
	wqe->wr_id = r->number;
	wqe->flags = SEND_SIGNALED | (rng_chance(&sim.rng, 100) ? SEND_FENCE : 0);
	if (made)
		qp_post(qp, wqe);
	else
		oracle_refused(qp, r->number);
}

/* A window that the peer's QP has bound, and that covers the block (NULL: any). */
static struct window *window_of_peer(const struct qp *qp, const struct block *block)
{
	const struct qp *peer = qp_peer(qp);
	struct process *p = peer->process;

	for (uint32_t i = 0; i < WINDOWS; i++) {
		struct window *w = &p->window[i];

		if (w->state == WINDOW_BOUND && w->qpn == peer->qpn && w->announced &&
		    !w->closing && (!block || binding_covers(w->serial, block_index(p, block))))
			return w;
	}
	return NULL;
}

struct block *windows_target(const struct qp *qp)
{
	struct process *p = qp_peer(qp)->process;
	const struct window *w = sim.plan.windows ? window_of_peer(qp, NULL) : NULL;
	bool within = w && rng_chance(&sim.rng, 700);

	for (uint32_t i = within ? binding_first(w->serial) : 0;
	     within && binding_covers(w->serial, i); i++)
		if (block_take_this(p, &p->block[i], BLOCK_TARGET))
			return &p->block[i];
	return block_take(p, BLOCK_TARGET);
}

/* The request names a window over the target that another QP has bound. */
static void reach_wrongly(const struct qp *qp, struct request *r, struct send_wqe *wqe,
			  const struct block *target)
{
	const struct qp *peer = qp_peer(qp);
	const struct process *p = peer->process;

	for (uint32_t i = 0; i < WINDOWS && wqe->length; i++) {
		const struct window *w = &p->window[i];

		if (w->state != WINDOW_BOUND || w->qpn == peer->qpn ||
		    !binding_covers(w->serial, block_index(p, target)))
			continue;
		wqe->rkey = w->rkey;
		r->bad = true;
		totals.wrong_windows++;
	}
}

void windows_reach(struct qp *qp, struct request *r, struct send_wqe *wqe,
		   const struct block *target)
{
	const struct window *w =
		sim.plan.windows && rng_chance(&sim.rng, 800) ? window_of_peer(qp, target) : NULL;

	if (rng_chance(&sim.rng, 5 * sim.plan.bad_key))
		reach_wrongly(qp, r, wqe, target);
	if (!w || r->bad)
		return;
	r->target = w->serial;
	wqe->rkey = w->rkey;
	binding_use(w->serial, 1);
	totals.through_windows++;
}

bool windows_may_invalidate(const struct qp *qp)
{
	return qp->type == IBV_QPT_RC && sim.plan.windows &&
	       rng_chance(&sim.rng, sim.plan.windows) && window_of_peer(qp, NULL);
}

void windows_invalidate(struct qp *qp, struct request *r, struct send_wqe *wqe)
{
	struct window *w = window_of_peer(qp, NULL);

	r->bad = rng_chance(&sim.rng, 8 * sim.plan.bad_key);
	r->target = w->serial;
	r->key = wqe->imm = wqe->rkey = r->bad ? w->rkey ^ 0x40 : w->rkey;
	if (r->bad)
		return;
	w->closing = true;
	binding_closes(w->serial, r->life, r->seq);
}

void windows_request_over(const struct request *r, enum ibv_wc_status status)
{
	struct window *w = r->window ? &sim.process[r->process].window[r->window - 1] : NULL;

	if (r->target_block != UINT32_MAX && binding_is(r->target))
		binding_use(r->target, -1);
	if (!w)
		return;
	w->pending = false;
	if (r->opcode == IBV_WR_BIND_MW && status == IBV_WC_SUCCESS) {
		w->announced = true;
		w->closing = false;
	}
}
