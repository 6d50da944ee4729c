/* SPDX-License-Identifier: BSD-2-Clause */
/* Each process's engine thread, and its pass over the rings, which polling threads make, too.
 * Modelled after src/hca/engine/engine.c, without leases. */
#include "sim_local.h"

enum { BATCH = 16, ROUNDS = 64 };

void engine_kick(struct process *process)
{
	process->doorbell = true;
}

/* ------------------------------------------------------------------ records */

static struct qp *qp_at(struct process *p, uint32_t address)
{
	uint32_t index = record_qpn(address) & (LIMIT_QPS_PER_SLOT - 1);
	struct qp *qp = index < QPS ? &p->qp[index] : NULL;

	return qp && qp->exists ? qp : NULL;
}

static void take_ack(struct process *p, const struct link *link, struct record_ack ack)
{
	struct qp *qp = qp_at(p, ack.dst);

	if (!qp)
		return;
	mutex_take(&qp->lock);
	if (qp->connected && qp->link == link)
		local_qp_acknowledged(&qp->lq, ack);
	mutex_give(&qp->lock);
}

static void take_record(struct process *p, struct link *link, const struct ring_header *h,
			const uint8_t *payload, uint32_t room)
{
	struct qp *qp = qp_at(p, h->dst);

	if (!qp || h->kind >= REC_KINDS || h->kind == REC_UD)
		return;
	mutex_take(&qp->lock);
	if (qp->connected && qp->link == link) {
		const struct request *refused = oracle_refusal(qp, h);
		uint32_t pieces = qp->lq.pieces;

		local_qp_record(&qp->lq, h, payload, room);
		/* A piece that follows a lost one isn't taken. */
		if (h->kind == REC_READ_DATA && qp->lq.pieces != pieces)
			oracle_moves(qp);
		if (refused)
			oracle_answered(refused, h->imm);
		oracle_handled(qp, h);
	}
	mutex_give(&qp->lock);
}

static uint32_t drain(struct process *p, struct link *link)
{
	struct ring_header h;
	const uint8_t *payload;
	uint32_t room, n = 0;
	int error = 0;

	while (n < BATCH && (payload = ring_peek(&link->rx, &h, &room, &error))) {
		trace("from process %u: kind %u flags 0x%x dst 0x%x src 0x%x msn %u ack %u imm %u "
		      "length %u",
		      link->peer->number, h.kind, h.flags, h.dst, h.src, h.msn, h.ack, h.imm,
		      h.length);
		if (h.kind & REC_CARRIES) {
			const struct record_ack ack = record_carried(payload, room);

			h.kind &= (uint8_t)~REC_CARRIES;
			trace("it carries: dst 0x%x src 0x%x ack %u", ack.dst, ack.src, ack.ack);
			take_ack(p, link, ack);
		}
		take_record(p, link, &h, payload, room);
		ring_pop(&link->rx, &h);
		n++;
	}
	if (error)
		link_break(link);
	task_yield("publishes what was read");
	if (n && ring_publish_lazily(&link->rx))
		link_notify(link);
	return n;
}

void engine_drain(struct process *p, struct link *link)
{
	mutex_take(&p->engine);
	for (uint32_t n = 0; n < RING_SLOTS && link->state == SIM_LINK_UP && ring_ready(&link->rx);)
		n += drain(p, link);
	engine_leave(p);
}

/* ------------------------------------------------------------------ a pass */

static void flush_acks(struct process *p)
{
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &p->qp[i];

		if (!p->acks[i])
			continue;
		p->acks[i] = false;
		mutex_take(&qp->lock);
		if (qp->connected)
			local_qp_flush_ack(&qp->lq);
		mutex_give(&qp->lock);
	}
}

static void wake_waiters(struct link *link)
{
	bool batch[QPS];

	link->has_waiters = false;
	if (link->state == SIM_LINK_COMING ||
	    (link->state == SIM_LINK_UP && !link_flush_backlog(link))) {
		link->has_waiters = true;
		return;
	}
	mutex_take(&link->tx_lock);
	for (uint32_t i = 0; i < QPS; i++) {
		batch[i] = link->waits[i];
		link->waits[i] = false;
	}
	mutex_give(&link->tx_lock);
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &link->process->qp[i];

		if (!batch[i])
			continue;
		mutex_take(&qp->lock);
		if (qp->connected && qp->link == link)
			local_qp_resume(&qp->lq);
		mutex_give(&qp->lock);
	}
}

static void fail_broken(struct link *link)
{
	link->broken = false;
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &link->process->qp[i];

		mutex_take(&qp->lock);
		if (qp->connected && qp->link == link && qp->state != IBV_QPS_ERR)
			qp_fail(qp);
		mutex_give(&qp->lock);
	}
}

static uint32_t pass(struct process *p)
{
	uint32_t n = 0;

	flush_acks(p);
	for (uint32_t i = 0; i < sim.plan.processes; i++) {
		struct link *link = &p->link[i];

		if (link->has_waiters)
			wake_waiters(link);
		if (link->broken)
			fail_broken(link);
		if (link->state == SIM_LINK_UP && ring_ready(&link->rx))
			n += drain(p, link);
	}
	return n;
}

void engine_pass(struct process *p)
{
	pass(p);
}

/* Sends acknowledgements that are owed, because the engine thread may be asleep, and releases the
 * engine's lock. */
void engine_leave(struct process *p)
{
	flush_acks(p);
	mutex_give(&p->engine);
}

/* ------------------------------------------------------------------ timers */

static void scan(struct process *p)
{
	uint64_t next = UINT64_MAX;

	p->timer_at = UINT64_MAX;
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &p->qp[i];

		if (!qp->watched && !qp->watched_receive)
			continue;
		mutex_take(&p->engine);
		mutex_take(&qp->lock);
		if (qp->watched && qp->connected)
			qp->watched = local_qp_expire(&qp->lq, sim.now, &next);
		if (qp->watched_receive && qp->connected)
			qp->watched_receive = local_qp_expire_receive(&qp->lq, sim.now, &next);
		mutex_give(&qp->lock);
		flush_acks(p);
		mutex_give(&p->engine);
	}
	if (next < p->timer_at)
		p->timer_at = next;
}

/* ------------------------------------------------------------------ the thread */

static bool has_work(void *arg)
{
	struct process *p = arg;

	return p->doorbell || link_has_events(p) || p->timer_at <= sim.now || windows_due(p);
}

static bool owes_acks(const struct process *p)
{
	for (uint32_t i = 0; i < QPS; i++)
		if (p->acks[i])
			return true;
	return false;
}

void engine_body(struct task *task)
{
	struct process *p = task->process;

	for (;;) {
		p->doorbell = false;
		link_take_events(p);
		for (uint32_t round = 0; round < ROUNDS; round++) {
			mutex_take(&p->engine);
			uint32_t n = pass(p);
			bool more = n || owes_acks(p);

			mutex_give(&p->engine);
			if (!more)
				break;
			if (round == ROUNDS - 1)
				p->doorbell = true;
		}
		if (p->timer_at <= sim.now)
			scan(p);
		windows_serve(p);
		p->sleeps = true;
		while (!has_work(p))
			task_wait(has_work, p, p->timer_at, "the engine sleeps");
		p->sleeps = false;
	}
}
