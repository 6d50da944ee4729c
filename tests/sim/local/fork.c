/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork(): at any step a thread makes a copy of its process, in which it is the only thread. The
 * child gives up what belongs to its parent, as after_fork_in_child() in src/hca/process/hca.c
 * does, and then uses and ends the queue pairs that it sees. The child must not touch a ring, a
 * hazard, memory or storage of the parent, and none of its requests may be executed.
 *
 * No other thread runs while the child does, and its actions aren't reported to the oracle.
 */
#include <string.h>

#include "sim_local.h"

enum { STRIDE = 256 };

static struct process child;
static uint8_t child_space[QPS][DEPTH * STRIDE];

/* ------------------------------------------------------------------ what fork() makes */

/* The structures keep their addresses, in an address space of their own. */
static void qp_move(struct qp *qp, uint32_t index)
{
	struct process *parent = qp->process;

	qp->process = &child;
	qp->rq = qp->rq == &parent->srq ? &child.srq : &qp->own_rq;
	if (qp->sq_space)
		memcpy(child_space[index], qp->sq_space, sizeof(child_space[index]));
	qp->sq_space = child_space[index];
	qp->sq.wqes = child_space[index];
	if (qp->link)
		qp->link = &child.link[qp->link->peer->number];
	qp->lq.sq = &qp->sq;
	qp->lq.attr = &qp->attr;
	qp->life = NULL;
}

static void process_copy(const struct process *parent)
{
	memcpy(&child, parent, sizeof(child));
	for (uint32_t i = 0; i < QPS; i++)
		qp_move(&child.qp[i], i);
}

/* ------------------------------------------------------------------ what the child leaves */

static void leave_link(struct link *link)
{
	link->process = &child;
	link->tx_lock = (struct mutex){0};
	list_init(&link->backlog);
	link->backlog_count = 0;
	memset(link->waits, 0, sizeof(link->waits));
	link->has_waiters = link->broken = link->copies = false;
	if (link->state != SIM_LINK_NONE)
		link->state = SIM_LINK_DOWN;
	link->shared = NULL;
}

static void leave_qp(struct qp *qp)
{
	qp->lock = (struct mutex){0};
	qp->own_rq.lock = (struct mutex){0};
	qp->watched = qp->watched_receive = false;
	qp->own_count = qp->held_bytes = qp->held_count = 0;
	if (qp->connected)
		local_qp_leave(&qp->lq);
}

static void leave_process(void)
{
	child.engine = child.srq.lock = child.windows = (struct mutex){0};
	memset(child.srq.waiters, 0, sizeof(child.srq.waiters));
	memset(child.acks, 0, sizeof(child.acks));
	for (uint32_t i = 0; i < HAZARDS; i++)
		atomic_store(&child.hazard[i], 0);
	for (uint32_t i = 0; i < PROCESSES; i++)
		leave_link(&child.link[i]);
	for (uint32_t i = 0; i < QPS; i++)
		leave_qp(&child.qp[i]);
}

/* ------------------------------------------------------------------ what its program does */

static void child_posts(struct qp *qp)
{
	_Alignas(16) uint8_t space[STRIDE] = {0};
	struct send_wqe *wqe = (struct send_wqe *)space;

	wqe->opcode = rng_chance(&sim.rng, 500) ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
	wqe->length = 8;
	wqe->flags = SEND_SIGNALED | SEND_INLINE;
	mutex_take(&qp->lock);
	qp_post(qp, wqe);
	mutex_give(&qp->lock);
}

static void child_acts(struct qp *qp)
{
	struct ibv_sge sge = {0, 100, 0};

	switch (rng_below(&sim.rng, 8)) {
	case 0:
		qp_to_error(qp);
		break;
	case 1:
		qp_rts(qp);
		break;
	case 2:
		qp_drain(qp);
		break;
	case 3:
	case 4:
		qp_post_receive(qp, &sge, 0);
		break;
	default:
		child_posts(qp);
	}
}

static void child_lives(void)
{
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &child.qp[i];

		for (uint32_t n = rng_below(&sim.rng, 4); n && qp->exists && qp->connected; n--)
			child_acts(qp);
		if (qp->exists && rng_chance(&sim.rng, 500))
			qp_to_reset(qp);
		if (qp->exists && rng_chance(&sim.rng, 800))
			qp_destroy(qp);
	}
}

void process_fork(struct process *parent)
{
	uint32_t disturbed = sim.disturbed;
	uint64_t last_fault = sim.last_fault;
	struct totals before = totals;

	trace("forks");
	process_copy(parent);
	sim.in_child = true;
	leave_process();
	child_lives();
	sim.in_child = false;
	trace("its child has ended");
	sim.disturbed = disturbed;
	sim.last_fault = last_fault;
	before.forks++;
	before.child_requests = totals.child_requests;
	totals = before;
}
