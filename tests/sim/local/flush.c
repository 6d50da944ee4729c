/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FLUSH: programs ask for it over a range of a peer's region, or over the whole region, of one type
 * or of both; the simulated regions and queue pairs grant some types and not others. A FLUSH names
 * no memory of its own in the oracle: it takes effect in its turn, when all requests before it have
 * (oracle.c, `order`), so that what they wrote is there. One that asks for what isn't granted fails
 * with the status of what is wrong with it, and the queue pair's rights are checked first.
 *
 * The requester executes it where it may look into the peer's tables (world_flush_fence()), else
 * the responder does (world_own_flush(), modelled after src/hca/exec/execute.c).
 */
#include "sim_local.h"

#include "hca/mem/mr_view.h"
#include "wire/packet.h"

enum { TYPES = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT, BEYOND = 1u << 20 };

static uint32_t rights_of(uint32_t types)
{
	return mr_flush_of(0, 0, packet_feth(types, IBV_FLUSH_RANGE)).access;
}

uint32_t flush_some_rights(struct rng *rng, uint32_t none)
{
	return rng_chance(rng, none) ? 0 : rights_of(1 + rng_below(rng, TYPES));
}

/* ------------------------------------------------------------------ programs */

/* Types that both the region and the peer's QP grant, or, as a fault, any. */
static uint32_t some_types(uint32_t granted)
{
	uint32_t types = 1 + rng_below(&sim.rng, TYPES);

	if (!sim.plan.calm && rng_chance(&sim.rng, 120))
		return rng_below(&sim.rng, 5);
	while (types && (rights_of(types) & granted) != rights_of(types))
		types--;
	return types;
}

/* With what a FLUSH of these types, of this level, fails if the region and the range are right. */
static uint8_t refusal(const struct qp *peer, const struct entry *e, uint32_t types, uint32_t level)
{
	uint32_t needed = mr_flush_of(0, 0, packet_feth(types, level)).access;

	if (!needed || (sim.plan.pair[peer->pair].flush_rights & needed) != needed)
		return IBV_WC_REM_INV_REQ_ERR;
	return (e->access & needed) == needed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

/* A range of the region, or, as a fault, one that isn't within it, or another key. */
static void choose_range(struct request *r, struct send_wqe *wqe, const struct entry *e, bool whole)
{
	uint32_t at = rng_below(&sim.rng, (uint32_t)e->length);
	bool wrong_key = rng_chance(&sim.rng, sim.plan.bad_key);
	bool beyond = !wrong_key && rng_chance(&sim.rng, sim.plan.bad_key);

	wqe->rkey = e->rkey ^ (wrong_key ? 0x40 : 0);
	wqe->remote_addr = e->start + at + (beyond ? BEYOND : 0);
	wqe->atomic.compare_add = whole ? 0 : rng_below(&sim.rng, (uint32_t)e->length - at + 1);
	if (!r->wrong && (wrong_key || (beyond && !whole)))
		r->wrong = IBV_WC_REM_ACCESS_ERR;
}

static bool make_flush(const struct qp *qp, struct request *r, struct send_wqe *wqe)
{
	const struct qp *peer = qp_peer(qp);
	uint32_t place = rng_below(&sim.rng, TARGETS);
	const struct entry *e = &peer->process->entry[place];
	uint32_t level = rng_below(&sim.rng, 2) ? IBV_FLUSH_MR : IBV_FLUSH_RANGE;
	uint32_t types = some_types(e->access & sim.plan.pair[qp->pair].flush_rights);

	if (!types && sim.plan.calm)
		return false;
	if (!e->rkey || region_at(peer->process, place)->state != REGION_LIVE)
		return false;
	r->opcode = wqe->opcode = IBV_WR_FLUSH;
	r->target = peer->process->serial[place];
	r->wrong = refusal(peer, e, types, level);
	choose_range(r, wqe, e, level == IBV_FLUSH_MR);
	wqe->atomic.swap = packet_feth(types, level);
	r->bad = r->wrong != IBV_WC_SUCCESS;
	r->flush = (struct record_atomic){.addr = wqe->remote_addr,
					  .rkey = wqe->rkey,
					  .compare_add = wqe->atomic.compare_add,
					  .swap = wqe->atomic.swap};
	return true;
}

void flush_post(struct qp *qp)
{
	_Alignas(16) uint8_t space[256] = {0};
	struct send_wqe *wqe = (struct send_wqe *)space;
	struct request *r = oracle_request(qp);

	if (!r)
		return;
	r->peer = (uint8_t)qp_peer(qp)->process->number;
	wqe->wr_id = r->number;
	wqe->flags = SEND_SIGNALED | (rng_chance(&sim.rng, 100) ? SEND_FENCE : 0);
	if (make_flush(qp, r, wqe))
		qp_post(qp, wqe);
	else
		oracle_refused(qp, r->number);
}

/* ------------------------------------------------------------------ the core's interface */

enum ibv_wc_status world_own_flush(struct local_qp *lq, const struct record_atomic *op)
{
	struct qp *qp = qp_of(lq);
	struct mr_flush flush = mr_flush_of(op->addr, (uint32_t)op->compare_add, (uint8_t)op->swap);

	task_yield("world_own_flush");
	if (!flush.access || (qp->attr.qp_access_flags & flush.access) != flush.access)
		return IBV_WC_REM_INV_REQ_ERR;
	const struct entry *e = entry_find(qp->process, op->rkey);

	if (!e)
		return IBV_WC_REM_ACCESS_ERR;
	struct mr_view view = {
		.start = e->start, .length = e->length, .access = e->access, .pd = e->pd};

	view.pd &= ~PUB_MR_FOREIGN; /* an import is asked for like an own region */
	if (!mr_flush_granted(&view, qp->pd, &flush))
		return IBV_WC_REM_ACCESS_ERR;
	oracle_flushes(qp, op);
	totals.flushed_by_peer++;
	return IBV_WC_SUCCESS;
}

void world_flush_fence(struct local_qp *lq)
{
	struct qp *qp = qp_of(lq);
	struct request *r = oracle_get((uint32_t)sq_at(&qp->sq, qp->sq.next)->wr_id);

	task_yield("world_flush_fence");
	oracle_meets(r, lq->peer_epoch);
	oracle_flushed(r);
	totals.flushed_here++;
}
