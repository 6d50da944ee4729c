/* SPDX-License-Identifier: BSD-2-Clause */
/* The local carrier's core: a QP's life, and the records that arrive for it. See local_qp.h. */
#include "hca/local/core/local_qp.h"

#include <string.h>

#include "hca/local/core/message.h"
#include "hca/local/core/state.h"

void local_qp_init(struct local_qp *lq, enum ibv_qp_type type, uint32_t qpn, uint8_t epoch,
		   bool self, struct send_queue *sq, const struct ibv_qp_attr *attr)
{
	memset(lq, 0, sizeof(*lq));
	lq->sq = sq;
	lq->attr = attr;
	lq->qpn = qpn;
	lq->type = type;
	lq->state = IBV_QPS_INIT;
	lq->epoch = epoch;
	lq->self = self;
	lq->cut = type == IBV_QPT_UC;
	lq->next_msn = lq->arrived_msn = RECORD_MSN;
	lq->link_msn = lq->acked_msn = lq->done_msn = RECORD_MSN;
	atomic_store_explicit(&lq->owed_msn, RECORD_MSN, memory_order_relaxed);
	local_told(lq, RECORD_MSN);
	lq->receives_used = lq->receives_seen = RECV_QUEUE_START;
	list_init(&lq->held);
}

void local_qp_stop(struct local_qp *lq)
{
	lq->reads_out = lq->blocking_out = lq->settled_out = 0;
	lq->wait = LOCAL_RUNS;
	lq->unrouted = false;
	local_drop_held(lq);
}

void local_qp_close(struct local_qp *lq)
{
	/* An adapter has acknowledged long before what arrived and was executed. */
	local_qp_flush_ack(lq);
	local_qp_stop(lq);
}

void local_qp_leave(struct local_qp *lq)
{
	list_init(&lq->held);
	lq->hazard = NULL; /* another thread of the parent was posting */
	lq->responder = LOCAL_HALTED;
	lq->flow = LOCAL_TAKES;
	local_told(lq, atomic_load_explicit(&lq->owed_msn, memory_order_relaxed));
}

void local_qp_relink(struct local_qp *lq)
{
	lq->peer = LOCAL_PEER_UNTOLD;
	lq->link_msn = (uint32_t)lq->next_msn;
	/* Messages that the peer held are lost with the link by which they came. */
	if (lq->wait == LOCAL_RNR)
		lq->wait = LOCAL_RUNS;
	if (lq->type != IBV_QPT_UC)
		return;
	/* The peer drops what it has of an unreliable message. A message that is streamed is lost
	 * so; a WRITE is sent from its beginning. */
	struct send_wqe *wqe = local_being_sent(lq);

	if (wqe)
		wqe->progress = 0;
	if (lq->wait == LOCAL_STREAMS)
		lq->wait = LOCAL_RUNS;
}

void local_qp_untaken(struct local_qp *lq)
{
	/* A peer that wasn't seen ready was sent nothing. */
	if (local_reliable(lq) && lq->peer == LOCAL_PEER_READY) {
		/* Its pieces are sent again; they have no number of their own yet. */
		struct send_wqe *wqe = local_being_sent(lq);

		if (wqe)
			wqe->progress = 0;
		local_take_back_from(lq, lq->link_msn);
	}
	local_qp_relink(lq);
}

void local_qp_announce(struct local_qp *lq)
{
	uint8_t peer = lq->peer;

	if (lq->type == IBV_QPT_UC)
		local_lose_stream(lq);
	local_kick(lq);
	if (peer == LOCAL_PEER_READY)
		lq->peer = LOCAL_PEER_READY;
}

void local_qp_resume(struct local_qp *lq)
{
	if (local_link_up(lq)) {
		if (lq->peer == LOCAL_PEER_UNTOLD)
			local_kick(lq);
		if (lq->wait == LOCAL_STREAMS)
			local_stream(lq);
		local_execute_held(lq);
	}
	local_run(lq);
}

/* Has the peer look, which is as ready as before. */
static void kick_again(struct local_qp *lq)
{
	uint8_t peer = lq->peer;

	local_kick(lq);
	if (peer == LOCAL_PEER_READY)
		lq->peer = LOCAL_PEER_READY;
}

void local_qp_migration(struct local_qp *lq)
{
	if (!local_link_up(lq))
		return;
	world_route_look(lq);
	kick_again(lq);
}

void local_qp_flush_ack(struct local_qp *lq)
{
	struct ring_header h = {0};

	if (!local_qp_owes(lq))
		return;
	local_fill_record(lq, &h, REC_ACK, 0, lq->sender_epoch);
	world_ring_control(lq, &h, NULL, 0);
}

struct record_ack local_qp_take_owed(struct local_qp *lq)
{
	/* Acquire: the addresses were set before the first acknowledgement was owed. */
	uint32_t owed = atomic_load_explicit(&lq->owed_msn, memory_order_acquire);

	local_told(lq, owed);
	return (struct record_ack){
		.dst = record_address(lq->attr->dest_qp_num, lq->sender_epoch),
		.src = record_address(lq->qpn, lq->epoch),
		.ack = owed,
	};
}

void local_qp_acknowledged(struct local_qp *lq, struct record_ack ack)
{
	if (likely(record_qpn(ack.src) == lq->attr->dest_qp_num &&
		   record_epoch(ack.dst) == lq->epoch))
		local_take_ack(lq, ack.ack);
}

void local_qp_record(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
		     uint32_t room)
{
	if (unlikely(record_qpn(h->src) != lq->attr->dest_qp_num)) {
		world_log(lq, "record from QP 0x%x, which it isn't connected to, dropped",
			  record_qpn(h->src));
	} else if (unlikely(h->kind == REC_KICK)) {
		if (lq->routed && local_link_up(lq) && world_route_look(lq))
			kick_again(lq);
		local_qp_resume(lq);
	} else if (likely(record_epoch(h->dst) == lq->epoch)) {
		if (h->flags & REC_ACKS)
			local_take_ack(lq, h->ack);
		if (likely(local_take_message(lq, h, payload, room)))
			return;
		if (h->kind >= REC_ACK)
			local_take_response(lq, h, payload, room);
		else
			local_take_request(lq, h, payload, room);
	}
}
