/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs, modelled after src/hca/verbs/qp.c, sq.c and rq.c: the same steps under the same
 * locks, with a possible switch of threads between any two that other threads or processes can see.
 */
#include <string.h>

#include "sim_local.h"

enum { STRIDE = 256, PD = 7 };

static uint8_t space[PROCESSES][QPS][DEPTH * STRIDE];

struct qp *qp_peer(const struct qp *qp)
{
	const struct pair_plan *pair = &sim.plan.pair[qp->pair];

	return &sim.process[pair->process[!qp->side]].qp[qp->pair * 2 + !qp->side];
}

/* ------------------------------------------------------------------ what peers see */

static uint64_t word_of(const struct qp *qp)
{
	uint32_t rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC | sim.plan.pair[qp->pair].flush_rights |
			  (qp->attr.max_dest_rd_atomic ? PUB_QP_ANSWERS : 0) |
			  (qp->rq->shared ? 0 : PUB_QP_COUNTS);

	return qp->state | (uint64_t)qp->type << 8 | (uint64_t)rights << 16 |
	       pub_qp_epoch_bits(qp->epoch);
}

void qp_publish(struct qp *qp)
{
	qp->partner = qp->attr.dest_qp_num;
	qp->pd = PD;
	qp->rq_psn = qp->attr.rq_psn;
	/* Means nothing with an SRQ: whoever believes it takes each message for settled. */
	qp->receives = qp->rq->shared ? qp->told + REQUESTS : qp->told;
	task_yield("publishes a QP's state");
	qp->word = word_of(qp);
	trace("QP 0x%x: state %u, epoch %u", qp->qpn, qp->state, qp->epoch);
	task_yield("published");
}

void qp_create(struct qp *qp)
{
	const struct pair_plan *pair = &sim.plan.pair[qp->pair];
	struct process *p = qp->process;

	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	qp->exists = true;
	qp->connected = false;
	qp->type = (uint8_t)pair->type;
	qp->epoch++;
	qp->state = IBV_QPS_RESET;
	qp->sq_space = space[p->number][qp->index];
	qp->sq = (struct send_queue){.wqes = qp->sq_space,
				     .stride = STRIDE,
				     .mask = DEPTH - 1,
				     .max_wr = DEPTH,
				     .max_sge = 2,
				     .max_inline = INLINE_MAX,
				     .head = SEND_QUEUE_START,
				     .next = SEND_QUEUE_START,
				     .acked = SEND_QUEUE_START};
	qp->own_rq = (struct receive_queue){
		.head = RECV_QUEUE_START, .tail = RECV_QUEUE_START, .done = RECV_QUEUE_START,
		.freed = RECV_QUEUE_START, .limit = RECV_DEPTH};
	qp->rq = pair->srq ? &p->srq : &qp->own_rq;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->told = RECV_QUEUE_START;
	qp->freed = SEND_QUEUE_START;
	qp->receive_waits = false;
	qp_publish(qp);
	mutex_give(&qp->lock);
	engine_leave(p);
}

/* ------------------------------------------------------------------ places */

bool qp_is_full(const struct qp *qp)
{
	return qp->sq.head - qp->freed >= DEPTH;
}

bool receives_are_full(const struct receive_queue *rq)
{
	return rq->head - rq->freed >= RECV_DEPTH;
}

void qp_poll(struct qp *qp)
{
	uint32_t count = rng_below(&sim.rng, qp->sq.acked - qp->freed + 1);

	qp->freed += count;
	oracle_polled(qp, count);
	qp->rq->freed += rng_below(&sim.rng, qp->rq->done - qp->rq->freed + 1);
}

/* ------------------------------------------------------------------ receives */

static struct receive *receive_at(struct receive_queue *rq, uint32_t count)
{
	return &rq->at[count % RECV_DEPTH];
}

static void flush_receives(struct qp *qp)
{
	if (qp->rq->shared)
		return;
	while (qp->rq->tail != qp->rq->head) {
		uint32_t number = (uint32_t)receive_at(qp->rq, qp->rq->tail++)->wqe.wr_id;

		qp->rq->done++;
		oracle_received(qp, number, NULL, IBV_WC_WR_FLUSH_ERR);
	}
}

static void fill_receive(struct receive *to, const struct ibv_sge *sge, uint32_t number)
{
	to->wqe = (struct recv_wqe){.wr_id = number, .num_sge = 1, .length = sge->length};
	to->sge[0] = *sge;
}

static void tell_waiting(struct process *p, struct qp *qp)
{
	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	if (qp->connected)
		local_qp_receive_posted(&qp->lq);
	mutex_give(&qp->lock);
	engine_leave(p);
}

static bool post_shared(struct qp *qp, const struct ibv_sge *sge, uint32_t number)
{
	struct receive_queue *rq = qp->rq;
	bool waiters[QPS];

	mutex_take(&rq->lock);
	if (receives_are_full(rq)) {
		mutex_give(&rq->lock);
		return false;
	}
	fill_receive(receive_at(rq, rq->head++), sge, number);
	memcpy(waiters, rq->waiters, sizeof(waiters));
	memset(rq->waiters, 0, sizeof(rq->waiters));
	mutex_give(&rq->lock);
	for (uint32_t i = 0; i < QPS; i++)
		if (waiters[i])
			tell_waiting(qp->process, &qp->process->qp[i]);
	return true;
}

bool qp_post_receive(struct qp *qp, const struct ibv_sge *sge, uint32_t number)
{
	struct receive_queue *rq = qp->rq;
	bool waits;

	if (rq->shared)
		return post_shared(qp, sge, number);
	mutex_take(&qp->lock);
	if (qp->state == IBV_QPS_RESET || !qp->exists || receives_are_full(rq)) {
		mutex_give(&qp->lock);
		return false;
	}
	fill_receive(receive_at(rq, rq->head++), sge, number);
	trace("QP 0x%x: receive %u of %u bytes", qp->qpn, number, sge->length);
	if (rq->head - qp->told >= RECV_DEPTH / 4)
		qp->receives = qp->told = rq->head;
	if (qp->state == IBV_QPS_ERR)
		flush_receives(qp);
	waits = qp->receive_waits;
	mutex_give(&qp->lock);
	if (waits)
		tell_waiting(qp->process, qp);
	return true;
}

void qp_tag_posted(struct qp *qp)
{
	struct receive_queue *rq = qp->rq;
	bool waits;

	if (rq->shared) {
		mutex_take(&rq->lock);
		waits = rq->waiters[qp->index];
		rq->waiters[qp->index] = false;
		mutex_give(&rq->lock);
	} else {
		mutex_take(&qp->lock);
		waits = qp->receive_waits;
		mutex_give(&qp->lock);
	}
	if (waits)
		tell_waiting(qp->process, qp);
}

/* ------------------------------------------------------------------ requests */

void qp_flush_requests(struct qp *qp)
{
	for (; qp->sq.acked != qp->sq.head; qp->sq.acked++)
		oracle_completed(qp, (uint32_t)sq_at(&qp->sq, qp->sq.acked)->wr_id,
				 IBV_WC_WR_FLUSH_ERR);
	qp->sq.next = qp->sq.head;
}

void qp_fail(struct qp *qp)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = qp->lq.state = IBV_QPS_ERR;
	if (qp->life)
		qp->life->drain = DRAIN_NOT;
	qp_publish(qp);
	qp_flush_requests(qp);
	if (qp->connected)
		local_qp_stop(&qp->lq); /* this may give a receive back, which is flushed then */
	qp->receive_waits = false;
	flush_receives(qp);
	sim.disturbed |= 1u << qp->pair;
	sim.last_fault = sim.now;
}

void qp_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (qp->sq.next == qp->sq.acked)
		qp->sq.next++;
	qp->sq.acked++;
	oracle_completed(qp, (uint32_t)wqe->wr_id, status);
	if (status != IBV_WC_SUCCESS)
		qp_fail(qp);
}

bool qp_may_borrow(const struct qp *qp)
{
	return qp->type == IBV_QPT_RC && qp->state == IBV_QPS_RTS && qp->sq.next == qp->sq.head;
}

/* Executes a request that borrows the program's memory. False: it couldn't be executed, and is
 * taken back. */
static bool run_borrowed(struct qp *qp)
{
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.head - 1);

	local_qp_post(&qp->lq);
	if (qp->sq.next == qp->sq.head || wqe->progress || qp->state != IBV_QPS_RTS)
		return true;
	local_qp_withdraw(&qp->lq, wqe);
	qp->sq.head--;
	return false;
}

bool qp_post(struct qp *qp, const struct send_wqe *wqe)
{
	bool posted = false;

	if (qp->state >= IBV_QPS_RTS && !qp_is_full(qp) && qp->exists) {
		struct send_wqe *to = sq_at(&qp->sq, qp->sq.head);

		memcpy(to, wqe, STRIDE);
		qp->sq.head++;
		posted = true;
		trace("QP 0x%x: posts request %u, opcode %u, %u bytes", qp->qpn,
		      (uint32_t)wqe->wr_id, wqe->opcode, wqe->length);
		if (wqe->flags & SEND_BORROWED)
			posted = run_borrowed(qp);
		if (qp->state == IBV_QPS_RTS)
			local_qp_post(&qp->lq);
		else if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
			qp_flush_requests(qp);
	}
	return posted;
}

/* ------------------------------------------------------------------ states */

static uint32_t psn_of(const struct qp *qp, uint32_t side)
{
	bool same = sim.plan.pair[qp->pair].same_psn;

	return (qp->pair * 64 + side + (same ? 0 : qp->generation * 1000)) & 0xffffff;
}

static void set_attributes(struct qp *qp)
{
	const struct pair_plan *pair = &sim.plan.pair[qp->pair];

	qp->attr = (struct ibv_qp_attr){
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp_peer(qp)->qpn,
		.rq_psn = psn_of(qp, !qp->side),
		.sq_psn = psn_of(qp, qp->side),
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC | pair->flush_rights,
		.max_rd_atomic = pair->max_rd_atomic,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = pair->min_rnr_timer,
		.timeout = pair->timeout,
		.retry_cnt = pair->retry_cnt,
		.rnr_retry = pair->rnr_retry,
	};
}

void qp_connect(struct qp *qp, bool rts)
{
	struct process *p = qp->process;

	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	set_attributes(qp);
	local_qp_init(&qp->lq, qp->type, qp->qpn, (uint8_t)qp->epoch, qp_peer(qp)->process == p,
		      &qp->sq, &qp->attr);
	qp->lq.routed = sim.plan.routed;
	qp->link = link_get(p, qp_peer(qp)->process);
	link_wait(qp->link, qp->index);
	qp->connected = true;
	qp->life = oracle_life(qp);
	qp->state = qp->lq.state = IBV_QPS_RTR;
	qp_publish(qp);
	local_qp_resume(&qp->lq);
	mutex_give(&qp->lock);
	engine_leave(p);
	if (rts)
		qp_rts(qp);
}

/* From RTR, SQE or SQD. */
void qp_rts(struct qp *qp)
{
	struct process *p = qp->process;

	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	if (qp->connected &&
	    (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_SQE || qp->state == IBV_QPS_SQD)) {
		if (qp->life)
			qp->life->drain = DRAIN_NOT;
		qp->state = qp->lq.state = IBV_QPS_RTS;
		qp_publish(qp);
		local_qp_resume(&qp->lq);
	}
	mutex_give(&qp->lock);
	engine_leave(p);
}

void qp_drain(struct qp *qp)
{
	struct process *p = qp->process;

	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	if (qp->connected && qp->state == IBV_QPS_RTS) {
		qp->state = qp->lq.state = IBV_QPS_SQD;
		oracle_drains(qp);
		qp_publish(qp);
		local_qp_drain(&qp->lq);
		totals.drained_late += qp->life && qp->life->drain == DRAIN_UNDER_WAY;
	}
	mutex_give(&qp->lock);
	engine_leave(p);
}

static void take_in(struct qp *qp)
{
	if (qp->connected && qp->link->state == SIM_LINK_UP)
		engine_drain(qp->process, qp->link);
}

static void settle(struct qp *qp)
{
	hazard_wait_qp(qp->process, qp_peer(qp)->process, qp->qpn);
}

/* Gives the memory of the requests back to the program. */
static void give_back(struct qp *qp)
{
	const struct life *life = qp->life;

	for (uint32_t i = 0; life && i < life->posted; i++) {
		struct request *r = oracle_get(life->request[i]);

		if (r->block != UINT32_MAX && qp->process->block[r->block].request == r->number &&
		    qp->process->block[r->block].use == BLOCK_FREE)
			qp->process->block[r->block].returned = true;
	}
}

void qp_to_error(struct qp *qp)
{
	struct process *p = qp->process;

	totals.errors++;
	take_in(qp);
	mutex_take(&p->engine);
	mutex_take(&qp->lock);
	qp_fail(qp);
	mutex_give(&qp->lock);
	engine_leave(p);
	settle(qp);
	give_back(qp);
}

static void disconnect(struct qp *qp)
{
	if (!qp->connected)
		return;
	local_qp_close(&qp->lq);
	qp->process->acks[qp->index] = false;
	mutex_take(&qp->link->tx_lock);
	qp->link->waits[qp->index] = false;
	if (qp->link->owing == qp)
		qp->link->owing = NULL;
	mutex_give(&qp->link->tx_lock);
	qp->watched = qp->watched_receive = false;
	if (qp->rq->shared)
		qp->rq->waiters[qp->index] = false;
	qp->connected = false;
	if (qp->held_bytes || qp->held_count)
		fail("QP 0x%x has ended and holds %u bytes", qp->qpn, qp->held_bytes);
}

/* Discards requests and receives without completions. */
static void forget_queues(struct qp *qp)
{
	for (; qp->sq.acked != qp->sq.head; qp->sq.acked++)
		oracle_completed(qp, (uint32_t)sq_at(&qp->sq, qp->sq.acked)->wr_id,
				 IBV_WC_GENERAL_ERR);
	qp->sq.head = qp->sq.next = qp->sq.acked = qp->freed = SEND_QUEUE_START;
	if (!qp->rq->shared) {
		while (qp->rq->tail != qp->rq->head)
			oracle_receive_gone(
				(uint32_t)receive_at(qp->rq, qp->rq->tail++)->wqe.wr_id);
		qp->rq->head = qp->rq->tail = qp->rq->done = qp->rq->freed = RECV_QUEUE_START;
	}
	qp->told = RECV_QUEUE_START;
	qp->receive_waits = false;
}

/* The first steps of RESET and of the QP's end; both locks are held afterwards. */
static void begin_end(struct qp *qp)
{
	take_in(qp);
	mutex_take(&qp->process->engine);
	mutex_take(&qp->lock);
	disconnect(qp);
	if (qp->life)
		qp->life->over = true;
}

/* Their last steps, without locks. */
static void finish_end(struct qp *qp)
{
	settle(qp);
	windows_leave_qp(qp);
	forget_queues(qp);
	give_back(qp);
	qp->life = NULL;
}

void qp_to_reset(struct qp *qp)
{
	struct process *p = qp->process;

	totals.resets++;
	begin_end(qp);
	qp->epoch++;
	qp->attr = (struct ibv_qp_attr){0};
	qp->state = IBV_QPS_RESET;
	qp_publish(qp);
	mutex_give(&qp->lock);
	engine_leave(p);
	finish_end(qp);
	sim.disturbed |= 1u << qp->pair;
	sim.last_fault = sim.now;
}

static bool backlog_gone(void *arg)
{
	struct link *link = arg;

	return list_empty(&link->backlog) || link->state != SIM_LINK_UP;
}

void qp_destroy(struct qp *qp)
{
	struct process *p = qp->process;

	totals.destroys++;
	begin_end(qp);
	qp->exists = false;
	qp->epoch++;
	task_yield("unpublishes a QP");
	qp->word = pub_qp_epoch_bits(qp->epoch);
	mutex_give(&qp->lock);
	mutex_give(&p->engine);
	if (qp->link)
		task_wait(backlog_gone, qp->link, sim.now + 20000000, "sends its last records");
	finish_end(qp);
	qp->link = NULL;
	sim.disturbed |= 1u << qp->pair;
	sim.last_fault = sim.now;
}
