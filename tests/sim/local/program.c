/* SPDX-License-Identifier: BSD-2-Clause */
/* The programs: each thread has the QPs of some pairs, and performs a number of actions; then it
 * posts receives until all requests are complete. */
#include <string.h>

#include "sim_local.h"

enum { STRIDE = 256, PAUSE_NS = 50000, PAUSE_MAX_NS = 200000000 };

union space {
	struct send_wqe wqe;
	uint8_t bytes[STRIDE];
};

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static void pause_for(uint64_t ns)
{
	task_wait(never, NULL, sim.now + ns, "the program sleeps");
}

static bool mine(const struct task *task, const struct qp *qp)
{
	const struct pair_plan *pair = &sim.plan.pair[qp->pair];

	return qp->pair < sim.plan.pairs && pair->process[qp->side] == task->process->number &&
	       qp->pair % sim.plan.programs == task->number - 1;
}

/* Returns one of the thread's QPs; NULL: it has none. */
static struct qp *some_qp(const struct task *task)
{
	struct qp *list[QPS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < QPS; i++)
		if (mine(task, &task->process->qp[i]))
			list[n++] = &task->process->qp[i];
	return n ? list[rng_below(&sim.rng, n)] : NULL;
}

/* ------------------------------------------------------------------ requests */

static uint32_t random_length(void)
{
	uint32_t max = sim.plan.max_length;

	switch (rng_below(&sim.rng, 6)) {
	case 0:
		return 0;
	case 1:
		return 8 + rng_below(&sim.rng, INLINE_MAX - 8);
	case 2:
	case 3:
		return 8 + rng_below(&sim.rng, RING_PAYLOAD_MAX - 8);
	case 4:
		return max;
	default:
		return 8 + rng_below(&sim.rng, max - 8);
	}
}

/* One or two segments. */
static void set_segments(struct send_wqe *wqe, const struct process *p, const struct block *block)
{
	uint32_t first = wqe->length > 1 && rng_chance(&sim.rng, 300)
				 ? 1 + rng_below(&sim.rng, wqe->length - 1)
				 : wqe->length;
	uint32_t lkey = block_region(p, block)->lkey;

	wqe->num_sge = first == wqe->length ? 1 : 2;
	wqe->sge[0] = (struct ibv_sge){block_iova(p, block), first, lkey};
	wqe->sge[1] = (struct ibv_sge){block_iova(p, block) + first, wqe->length - first, lkey};
}

static bool needs_target(const struct send_wqe *wqe)
{
	return !is_send(wqe->opcode);
}

static bool writes_here(const struct send_wqe *wqe)
{
	return wqe->opcode == IBV_WR_RDMA_READ || is_atomic(wqe->opcode);
}

/* Memory that a thread lends for the duration of a call; it isn't registered. */
static uint8_t *lent_memory(void)
{
	static uint8_t lent[PROCESSES][THREADS][BLOCK];
	const struct task *task = task_self();

	return lent[task->process->number][task->number];
}

static uint8_t random_opcode(const struct qp *qp)
{
	static const uint8_t rc[] = {
		IBV_WR_SEND,	     IBV_WR_SEND,	IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_READ,    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND,	     IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_WRITE,
	};
	static const uint8_t uc[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				     IBV_WR_RDMA_WRITE_WITH_IMM};

	if (qp->type == IBV_QPT_RC && sim.plan.reads && rng_chance(&sim.rng, sim.plan.reads))
		return IBV_WR_RDMA_READ;
	return qp->type == IBV_QPT_RC ? rc[rng_below(&sim.rng, sizeof(rc))]
				      : uc[rng_below(&sim.rng, sizeof(uc))];
}

/* Chooses the peer's memory that the request names. */
static void set_target(struct qp *qp, struct request *r, struct send_wqe *wqe, struct block *target)
{
	struct process *peer = qp_peer(qp)->process;

	target->request = r->number;
	r->target_block = block_index(peer, target);
	r->target = region_serial(peer, target);
	wqe->remote_addr = block_iova(peer, target);
	wqe->rkey = block_region(peer, target)->lkey;
	if (r->opcode == IBV_WR_RDMA_READ)
		oracle_fill(r->number, 0, block_bytes(peer, target), r->length);
	if (is_on_word(wqe->opcode) && region_imported(r->target))
		r->bad = true;
	windows_reach(qp, r, wqe, target);
	if (wqe->length && !r->bad && rng_chance(&sim.rng, sim.plan.bad_key)) {
		r->bad = true;
		/* The next key of a place has the next tag: a wrong one is far from both. */
		wqe->rkey ^= rng_chance(&sim.rng, 500) && !binding_is(r->target) ? 0x80 : 0x40;
	}
}

static bool borrows(const struct qp *qp, const struct send_wqe *wqe)
{
	return (wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) &&
	       wqe->length > INLINE_MAX && qp_may_borrow(qp) &&
	       rng_chance(&sim.rng, sim.plan.borrow);
}

static void set_memory(struct qp *qp, struct request *r, struct send_wqe *wqe, struct block *block)
{
	struct process *p = qp->process;

	if (borrows(qp, wqe)) {
		wqe->flags |= SEND_INLINE | SEND_BORROWED;
		oracle_fill(r->number, 0, lent_memory(), wqe->length);
		wqe->num_sge = 1;
		wqe->sge[0] = (struct ibv_sge){(uintptr_t)lent_memory(), wqe->length, 0};
		block->use = BLOCK_FREE;
		return;
	}

	if (!writes_here(wqe) && wqe->length <= INLINE_MAX && rng_chance(&sim.rng, 300)) {
		wqe->flags |= SEND_INLINE;
		oracle_fill(r->number, 0, wqe->data, wqe->length);
		block->use = BLOCK_FREE;
		return;
	}
	block->request = r->number;
	r->block = block_index(p, block);
	r->region = region_serial(p, block);
	if (!writes_here(wqe))
		oracle_fill(r->number, 0, block_bytes(p, block), wqe->length);
	set_segments(wqe, p, block);
}

static void post_request(struct qp *qp)
{
	union space space = {0};
	struct send_wqe *wqe = &space.wqe;
	struct process *p = qp->process, *peer = qp_peer(qp)->process;
	struct block *block = NULL, *target = NULL;
	struct request *r = NULL;

	mutex_take(&qp->lock);
	if (!qp->exists || !qp->connected || qp->state < IBV_QPS_RTS || qp_is_full(qp))
		goto out;
	if (rng_chance(&sim.rng, sim.plan.windows) || windows_race(qp)) {
		windows_post(qp);
		goto out;
	}
	if (qp->type == IBV_QPT_RC && rng_chance(&sim.rng, sim.plan.flushes)) {
		flush_post(qp);
		goto out;
	}
	wqe->opcode = random_opcode(qp);
	wqe->length = is_on_word(wqe->opcode) ? 8 : random_length();
	if (!wqe->length && wqe->opcode == IBV_WR_SEND)
		wqe->opcode = IBV_WR_SEND_WITH_IMM;
	if (wqe->opcode == IBV_WR_SEND && windows_may_invalidate(qp))
		wqe->opcode = IBV_WR_SEND_WITH_INV;
	wqe->flags = SEND_SIGNALED | (rng_chance(&sim.rng, 100) ? SEND_FENCE : 0);
	block = block_take(p, BLOCK_SEND);
	if (needs_target(wqe))
		target = windows_target(qp);
	if (block && (target || !needs_target(wqe)))
		r = oracle_request(qp);
	if (!r)
		goto out;
	r->opcode = wqe->opcode;
	r->length = (uint16_t)wqe->length;
	r->peer = (uint8_t)peer->number;
	wqe->wr_id = r->number;
	wqe->imm = r->number;
	if (r->opcode == IBV_WR_SEND_WITH_INV)
		windows_invalidate(qp, r, wqe);
	set_memory(qp, r, wqe, block);
	if (target)
		set_target(qp, r, wqe, target);
	bool taken = qp_post(qp, wqe), lent = wqe->flags & SEND_BORROWED;

	if (lent) {
		memset(lent_memory(), 0xdb, BLOCK);
		totals.lent += taken;
		totals.not_lent += !taken;
	}
	if (lent && !taken)
		oracle_refused(qp, r->number);
	block = target = NULL;
out:
	if (block)
		block->use = BLOCK_FREE;
	if (target)
		target->use = BLOCK_FREE;
	mutex_give(&qp->lock);
}

/* ------------------------------------------------------------------ receives */

static void post_receive(struct qp *qp)
{
	uint32_t length = MESSAGE_MAX;

	if (qp->exists && qp->connected && sim.plan.pair[qp->pair].tags)
		qp_tag_posted(qp);
	if (!qp->exists || !qp->connected ||
	    (sim.plan.pair[qp->pair].starves && !oracle_others_quiet(qp->pair)) ||
	    receives_are_full(qp->rq))
		return;
	struct block *block = block_take(qp->process, BLOCK_RECEIVE);

	if (!block)
		return;
	if (rng_chance(&sim.rng, sim.plan.long_sends))
		length = 8 + rng_below(&sim.rng, MESSAGE_MAX - 8);
	else if (sim.plan.long_receives && rng_chance(&sim.rng, sim.plan.long_receives))
		length = REGION_BLOCKS * BLOCK + 1; /* beyond its region; no message is as long */
	uint32_t number = oracle_receive(qp, block, length);
	/* The region may be deregistered before the receive is posted. */
	struct ibv_sge sge = {block_iova(qp->process, block), length,
			      block_region(qp->process, block)->lkey};

	if (!number)
		block->use = BLOCK_FREE;
	else if (!qp_post_receive(qp, &sge, number))
		oracle_receive_gone(number);
}

/* ------------------------------------------------------------------ trouble */

static void reconnect(struct qp *qp)
{
	uint32_t peer = qp_peer(qp)->generation;

	if (qp->generation > 5)
		return;
	if (!qp->exists)
		qp_create(qp);
	else if (qp->state != IBV_QPS_RESET)
		qp_to_reset(qp);
	qp->generation = peer > qp->generation ? peer : qp->generation + 1;
	qp_connect(qp, true);
}

static bool in_use(const struct process *p, uint32_t place)
{
	for (uint32_t i = 0; i < REGION_BLOCKS; i++)
		if (p->block[place * REGION_BLOCKS + i].use != BLOCK_FREE)
			return true;
	return false;
}

/* Prefers a region that is in use. */
static void end_region(struct process *p)
{
	uint32_t place = rng_below(&sim.rng, REGIONS);

	for (uint32_t i = 0; i < REGIONS && !in_use(p, place); i++)
		place = (place + 1) % REGIONS;
	if (region_at(p, place)->state != REGION_LIVE)
		return;
	if (!region_deregister(p, place))
		return;
	if (rng_chance(&sim.rng, 300))
		pause_for(rng_below(&sim.rng, PAUSE_NS));
	region_register(p, place);
}

static void unmap(struct process *p)
{
	uint32_t block = rng_below(&sim.rng, BLOCKS);

	p->block[block].unmapped = true;
	block_region(p, &p->block[block])->hurt = true;
	p->regions_hurt++;
	trace("block %u isn't mapped any more", block);
}

static bool trouble(struct qp *qp, uint32_t dice)
{
	const struct plan *plan = &sim.plan;
	uint32_t at = 0;
	bool alive = qp->exists && qp->connected;

	if (dice < (at += plan->err)) {
		if (alive && qp->state != IBV_QPS_ERR)
			qp_to_error(qp);
	} else if (dice < (at += plan->reset)) {
		if (alive)
			qp_to_reset(qp);
	} else if (dice < (at += plan->destroy)) {
		if (qp->exists)
			qp_destroy(qp);
	} else if (dice < (at += plan->reconnect)) {
		reconnect(qp);
	} else if (dice < (at += plan->dereg)) {
		end_region(qp->process);
	} else if (dice < (at += plan->unmap)) {
		unmap(qp->process);
	} else if (dice < (at += plan->drain)) {
		if (alive)
			qp_drain(qp);
	} else if (dice < (at += plan->fork)) {
		process_fork(qp->process);
	} else {
		return false;
	}
	return true;
}

/* ------------------------------------------------------------------ the thread */

static void poll_once(struct process *p)
{
	if (!mutex_try(&p->engine))
		return;
	engine_pass(p);
	engine_leave(p);
}

/* One of the thread's QPs whose peer is copying through a window at this moment. */
static struct qp *raced_qp(const struct task *task)
{
	for (uint32_t i = 0; sim.plan.windows && i < QPS; i++)
		if (mine(task, &task->process->qp[i]) && windows_race(&task->process->qp[i]))
			return &task->process->qp[i];
	return NULL;
}

/* Something else of the process, a datagram for example, needs the link to the QP's peer. */
static void want_link(struct qp *qp)
{
	struct process *p = qp->process;

	mutex_take(&p->engine);
	link_get(p, qp_peer(qp)->process);
	engine_leave(p);
}

static void poll_some(const struct task *task)
{
	for (uint32_t i = 0; i < QPS; i++)
		if (mine(task, &task->process->qp[i]))
			qp_poll(&task->process->qp[i]);
}

static void act(struct task *task)
{
	struct qp *qp = raced_qp(task);

	if (rng_chance(&sim.rng, 400))
		poll_some(task);
	if (qp) {
		post_request(qp);
		return;
	}
	qp = some_qp(task);
	uint32_t dice = rng_below(&sim.rng, 1000);

	if (!qp) {
		pause_for(PAUSE_NS);
		return;
	}
	if (trouble(qp, dice))
		return;
	if ((sim.plan.cut_at[0] || sim.plan.halves) && rng_chance(&sim.rng, 150))
		want_link(qp);
	if ((qp->state == IBV_QPS_SQE || qp->state == IBV_QPS_SQD) && rng_chance(&sim.rng, 300))
		qp_rts(qp);
	dice = rng_below(&sim.rng, 1000);
	if (dice < sim.plan.receives)
		post_receive(qp);
	else if (dice < 850)
		post_request(qp);
	else if (dice < 930)
		poll_once(task->process);
	else
		pause_for(rng_below(&sim.rng, PAUSE_NS));
}

static void begin(struct task *task)
{
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &task->process->qp[i];

		if (!mine(task, qp))
			continue;
		qp_create(qp);
		for (uint32_t k = rng_below(&sim.rng, 4); k; k--)
			post_receive(qp);
		qp_connect(qp, true);
	}
}

static void map_again(struct process *p)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		if (p->block[i].use == BLOCK_FREE)
			p->block[i].unmapped = false;
}

static bool some_act(void)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 1; k <= sim.plan.programs; k++)
			if (!sim.process[i].dead && !sim.process[i].task[k].finishes)
				return true;
	return false;
}

/* Posts receives for the peers that still send, until all requests are complete. */
static void finish(struct task *task)
{
	uint64_t pause = PAUSE_NS;

	task->finishes = true;
	while (some_act() || !oracle_quiet()) {
		for (uint32_t i = 0; i < QPS; i++) {
			struct qp *qp = &task->process->qp[i];

			if (!mine(task, qp))
				continue;
			if (qp->state == IBV_QPS_SQE ||
			    (qp->state == IBV_QPS_SQD && qp->life && qp->life->drain == DRAIN_DONE))
				qp_rts(qp);
			if (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS ||
			    qp->state == IBV_QPS_SQD)
				for (uint32_t k = 0; k < 3; k++)
					post_receive(qp);
		}
		poll_some(task);
		map_again(task->process);
		pause_for(pause);
		pause = pause * 2 < PAUSE_MAX_NS ? pause * 2 : PAUSE_MAX_NS;
	}
}

void program_body(struct task *task)
{
	begin(task);
	for (uint32_t i = 0; i < sim.plan.actions; i++)
		act(task);
	finish(task);
}
