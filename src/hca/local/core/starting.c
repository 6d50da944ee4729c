/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's requester, first half: starting requests, in order.
 *
 * A request starts when all that must come before it has been done: sends and ring requests may
 * follow one another unacknowledged; an operation that is executed here (WRITE, READ on mapped or
 * reachable memory) waits until everything before it is acknowledged, because nothing may execute
 * after an error.
 */
#include "hca/local/core/state.h"

/* Payloads up to this go through the ring: two copies, but no system call. */
#define EAGER_MAX RING_PAYLOAD_MAX

#define BIT(opcode) (1u << (opcode))
#define WITH_IMM (BIT(IBV_WR_SEND_WITH_IMM) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))

/* ------------------------------------------------------------------ completing */

void local_uncount(struct local_qp *lq, const struct send_wqe *wqe)
{
	lq->reads_out -= !!(wqe->flags & SEND_READS);
	lq->blocking_out -= !!(wqe->flags & SEND_BLOCKING);
	lq->settled_out -= !!(wqe->flags & SEND_SETTLED);
}

/* The number of packets that a request, or a READ's answer, would have been. */
static uint32_t packets_of(const struct local_qp *lq, const struct send_wqe *wqe)
{
	uint32_t shift = 7 + lq->attr->path_mtu;

	return likely(wqe->length >> shift == 0)
		       ? 1
		       : (uint32_t)(((uint64_t)wqe->length + (1u << shift) - 1) >> shift);
}

/* A request begins: its PSN is counted as if it were sent as packets, captured or not, so that a
 * capture which begins later shows the right PSNs. This comes before the peer can see any of the
 * request, or a capture would show its answers first. */
static inline __attribute__((always_inline)) void request_begins(struct local_qp *lq,
								 struct send_wqe *wqe)
{
	if (unlikely(wqe->flags & SEND_BEGUN))
		return;
	wqe->flags |= SEND_BEGUN;
	wqe->psn = lq->next_psn;
	lq->next_psn = (lq->next_psn + packets_of(lq, wqe)) & 0xffffff;
	if (unlikely(lq->routed))
		world_route_begins(lq, wqe);
	if (unlikely(world_captures(lq)))
		world_capture_request(lq, wqe);
}

/* Whether a request with this status has reached the responder. */
static bool was_sent(enum ibv_wc_status status)
{
	return likely(status == IBV_WC_SUCCESS) ||
	       (status != IBV_WC_LOC_PROT_ERR && status != IBV_WC_LOC_LEN_ERR &&
		status != IBV_WC_RETRY_EXC_ERR);
}

void local_complete(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	bool sent = was_sent(status);

	local_uncount(lq, wqe);
	if (lq->sq->next == lq->sq->acked && likely(sent)) {
		request_begins(lq, wqe); /* it was executed within this call */
		lq->acted_here = true;
	}
	if (unlikely(lq->routed) && sent && lq->type != IBV_QPT_UC)
		world_route_answered(lq, wqe, status);
	if (unlikely(world_captures(lq)) && sent)
		world_capture_answer(lq, wqe, lq->sq->acked + 1, status);
	world_complete(lq, wqe, status);
	local_check_drained(lq);
}

/* ------------------------------------------------------------------ conditions to start */

static bool local_has_outstanding(const struct local_qp *lq)
{
	return lq->sq->acked != lq->sq->next;
}

/* Whether some earlier request may still fail, or wait for a receive. */
static bool local_has_unsettled(const struct local_qp *lq)
{
	return lq->sq->next - lq->sq->acked != lq->settled_out;
}

/*
 * Counts one of the peer's receives, which the next record takes. Whether the peer has posted it
 * already: each record of these kinds takes one, in order. The two counts are no further apart than
 * a receive queue is long, so their difference says which is ahead, also where they come round. The
 * receives of an SRQ aren't the connection's and aren't counted: then there are none to be seen.
 */
static inline bool takes_receive(struct local_qp *lq)
{
	uint32_t used = lq->receives_used++;

	if (unlikely((int32_t)(lq->receives_seen - used) <= 0))
		lq->receives_seen = world_peer_receives(lq, used);
	return (int32_t)(lq->receives_seen - used) > 0;
}

static bool peer_receives(uint32_t state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE;
}

/* Whether a life of the peer's QP has seen a request of this connection: one before the next, or
 * the next one, which that life asked for again. */
static bool has_met_peer(const struct local_qp *lq)
{
	const struct send_queue *sq = lq->sq;

	if (lq->next_msn != RECORD_MSN || (lq->acted_here && lq->type == IBV_QPT_RC))
		return true;
	return sq->next != sq->head && sq_at(sq, sq->next)->flags & SEND_BEGUN;
}

/* Whether the peer's published entry says that its QP is ready for this one. The link is up. */
static bool peer_ready(struct local_qp *lq)
{
	if (likely(lq->peer == LOCAL_PEER_READY))
		return true;
	if (lq->peer == LOCAL_PEER_UNTOLD)
		local_kick(lq); /* the link is up, but the engine hasn't resumed this QP yet */
	uint64_t word = world_peer_word(lq);

	if (!peer_receives(pub_qp_state(word)) || pub_qp_type(word) != local_peer_type(lq) ||
	    world_peer_partner(lq) != lq->qpn || world_peer_rq_psn(lq) != lq->attr->sq_psn)
		return false;
	/* A WRITE of RC doesn't go on by another link: pieces may be lost with the first. */
	if (local_reliable(lq) && local_being_sent(lq))
		return false;
	/* A connection doesn't go on with another life of the peer's QP than it began with. */
	if (has_met_peer(lq) && pub_qp_epoch(word) != lq->peer_epoch)
		return false;
	lq->peer_epoch = pub_qp_epoch(word);
	lq->peer = LOCAL_PEER_READY;
	return true;
}

static enum step wait_for_link(struct local_qp *lq)
{
	world_ring_wait(lq);
	world_watch(lq);
	return STEP_WAIT;
}

/* The peer's QP isn't ready, or its process doesn't have the link yet; the KICK that it sends then,
 * or the timer, ends the wait. */
static enum step local_wait_for_peer(struct local_qp *lq)
{
	world_watch(lq);
	return STEP_WAIT;
}

/* The peer's QP was ready, and isn't any more: the timer decides when the request fails. */
static enum step wait_for_lost_peer(struct local_qp *lq)
{
	lq->peer = LOCAL_PEER_TOLD;
	return local_wait_for_peer(lq);
}

/* Fails a request for an error of this side, but not before earlier requests have completed. */
static enum step fail_in_turn(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (local_has_outstanding(lq))
		return STEP_WAIT;
	if (local_reliable(lq)) {
		local_complete(lq, wqe, status);
		return STEP_FAILED;
	}
	local_cut_write(lq);
	world_fail_request(lq, wqe, status);
	return STEP_FAILED;
}

/* ------------------------------------------------------------------ records */

static uint8_t message_flags(const struct local_qp *lq, const struct send_wqe *wqe)
{
	return (wqe->flags & SEND_SOLICITED ? REC_SOLICITED : 0) |
	       (BIT(wqe->opcode) & WITH_IMM ? REC_IMM : 0) |
	       (wqe->opcode == IBV_WR_SEND_WITH_INV ? REC_INVALIDATE : 0) |
	       lq->attr->rnr_retry << REC_RNR_SHIFT;
}

static inline void fill_request(struct local_qp *lq, struct ring_header *h,
				const struct send_wqe *wqe, enum record_kind kind, uint8_t flags)
{
	local_fill_record(lq, h, kind, flags, (uint8_t)lq->peer_epoch);
	h->msn = (uint32_t)lq->next_msn;
	h->imm = wqe->imm;
	h->length = wqe->length;
	lq->must_notify = true;
}

/* Counts a request whose record is in the ring now. */
static inline __attribute__((always_inline)) void
request_sent(struct local_qp *lq, struct send_wqe *wqe, uint16_t counted)
{
	wqe->msn = (uint32_t)lq->next_msn++;
	wqe->flags |= counted;
	lq->reads_out += !!(counted & SEND_READS);
	lq->blocking_out += !!(counted & SEND_BLOCKING);
	lq->settled_out += !!(counted & SEND_SETTLED);
	lq->sq->next++;
	world_watch(lq);
}

/* A message is in the ring. An unreliable one completes at once if its bytes are copied: it needs
 * no answer. */
static inline __attribute__((always_inline)) void
message_sent(struct local_qp *lq, struct send_wqe *wqe, uint16_t counted, bool copied)
{
	bool alone = !local_has_outstanding(lq);

	request_sent(lq, wqe, counted);
	if (lq->type == IBV_QPT_UC && copied && alone)
		local_complete(lq, wqe, IBV_WC_SUCCESS);
}

/* The request's own memory isn't as its keys say, or isn't mapped any more: the record isn't sent,
 * but the acknowledgement that it was to carry is sent separately. */
static enum step fail_unmapped(struct local_qp *lq, struct send_wqe *wqe,
			       const struct ring_header *h, uint32_t payload)
{
	bool acks = h->flags & REC_ACKS;

	world_ring_abandon(lq, payload);
	if (acks) {
		local_told(lq, atomic_load_explicit(&lq->owed_msn, memory_order_relaxed) - 1);
		local_qp_flush_ack(lq);
	}
	return fail_in_turn(lq, wqe, IBV_WC_LOC_PROT_ERR);
}

/* ------------------------------------------------------------------ SEND */

/* Writes the names of the request's segments into the record. The receiver looks their keys up when
 * it copies, or asks for the bytes by PULL. */
static uint32_t put_segments(struct record_segment *to, const struct send_wqe *wqe)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < wqe->num_sge; i++)
		if (wqe->sge[i].length)
			to[n++] = (struct record_segment){wqe->sge[i].addr, wqe->sge[i].length,
							  wqe->sge[i].lkey};
	return n;
}

static enum step start_send_by_reference(struct local_qp *lq, struct send_wqe *wqe)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_request_segments(lq, wqe, 0, local);

	if (unlikely(count < 0))
		return fail_in_turn(lq, wqe, IBV_WC_LOC_PROT_ERR);
	uint32_t payload = count * sizeof(struct record_segment);
	struct ring_header *h = world_ring_reserve(lq, payload);

	if (unlikely(!h))
		return wait_for_link(lq);
	fill_request(lq, h, wqe, REC_SEND_REF, message_flags(lq, wqe));
	put_segments(local_body(h), wqe);
	request_begins(lq, wqe);
	world_ring_commit(lq, h, payload);
	takes_receive(lq);
	message_sent(lq, wqe, SEND_BLOCKING, false);
	return STEP_DONE;
}

static enum step start_send(struct local_qp *lq, struct send_wqe *wqe)
{
	uint32_t length = wqe->length;

	if (unlikely(length > EAGER_MAX))
		return start_send_by_reference(lq, wqe);
	struct ring_header *h = world_ring_reserve(lq, length);

	if (unlikely(!h))
		return wait_for_link(lq);
	fill_request(lq, h, wqe, REC_SEND, message_flags(lq, wqe));
	if (unlikely(!world_put_message(lq, wqe, local_body(h))))
		return fail_unmapped(lq, wqe, h, length);
	request_begins(lq, wqe);
	world_ring_commit(lq, h, length);
	takes_receive(lq);
	message_sent(lq, wqe, SEND_BLOCKING, true);
	return STEP_DONE;
}

/* ------------------------------------------------------------------ RDMA WRITE */

/* The data is in the peer's memory; sends the record that consumes the peer's receive. */
static enum step start_write_imm(struct local_qp *lq, struct send_wqe *wqe)
{
	struct ring_header *h = world_ring_reserve(lq, 0);

	if (unlikely(!h))
		return wait_for_link(lq);
	fill_request(lq, h, wqe, REC_WRITE_IMM, message_flags(lq, wqe));
	request_begins(lq, wqe);
	world_ring_commit(lq, h, 0);
	message_sent(lq, wqe, SEND_BLOCKING | (takes_receive(lq) ? SEND_SETTLED : 0), true);
	return STEP_DONE;
}

/* Sends an RDMA WRITE piece by piece through the ring. No request before it may have to wait at the
 * peer. */
static enum step start_write_by_ring(struct local_qp *lq, struct send_wqe *wqe)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_request_segments(lq, wqe, 0, local);

	if (lq->blocking_out)
		return STEP_WAIT;
	if (unlikely(count < 0))
		return fail_in_turn(lq, wqe, IBV_WC_LOC_PROT_ERR);
	do {
		uint32_t left = wqe->length - wqe->progress;
		uint32_t room = RING_PAYLOAD_MAX - sizeof(struct record_remote);
		uint32_t n = left < room ? left : room;
		struct ring_header *h = world_ring_reserve(lq, n + sizeof(struct record_remote));

		if (unlikely(!h))
			return wait_for_link(lq);
		fill_request(lq, h, wqe, REC_WRITE_DATA,
			     message_flags(lq, wqe) | (n == left ? REC_LAST : 0));
		struct record_remote *remote = local_body(h);

		*remote = (struct record_remote){wqe->remote_addr + wqe->progress, wqe->rkey, n};
		if (unlikely(!world_gather(lq, remote + 1, local, count, wqe->progress, n)))
			return fail_unmapped(lq, wqe, h, n + sizeof(*remote));
		request_begins(lq, wqe);
		wqe->flags |= SEND_BY_RING; /* its other pieces follow the same way */
		world_ring_commit(lq, h, n + sizeof(*remote));
		wqe->progress += n;
		lq->pieces++;
	} while (wqe->progress < wqe->length);
	if (wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		takes_receive(lq);
	message_sent(lq, wqe, wqe->opcode == IBV_WR_RDMA_WRITE ? 0 : SEND_BLOCKING, true);
	return STEP_DONE;
}

/* Whether a WRITE may start before earlier requests are acknowledged: none of them can fail any
 * more, and neither can this one, which completes with its notification. */
static bool may_follow(struct local_qp *lq, const struct send_wqe *wqe)
{
	return wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && local_reliable(lq) &&
	       !local_has_unsettled(lq) && local_may_write(lq, wqe);
}

/* Whether a WRITE goes through the ring although the kernel could copy (way.h). Not if the target
 * is mapped here, which needs neither, nor if its memory is borrowed, which can't wait. */
static bool goes_by_ring(struct local_qp *lq, const struct send_wqe *wqe)
{
	return unlikely(world_link_prefers_ring(lq, wqe->length)) && !lq->self &&
	       !(wqe->flags & SEND_BORROWED) && !local_region_is_mapped(lq, wqe);
}

/* Whether the peer has to refuse the request, so that its QP fails first. A peer that doesn't run
 * can't, and only gets a record: a refusal doesn't wait for a stopped process, since an adapter
 * wouldn't. Nor can that of an XRC initiator, whose target is served by several processes. */
static bool peer_refuses(struct local_qp *lq, enum ibv_wc_status status)
{
	if (!local_reliable(lq) ||
	    (status != IBV_WC_REM_ACCESS_ERR && status != IBV_WC_REM_INV_REQ_ERR))
		return false;
	if (lq->self || (lq->type == IBV_QPT_RC && world_peer_runs(lq)))
		return true;
	local_report_refused(lq, status);
	return false;
}

/* Has the peer refuse the request with this status; its answer completes the request. */
static enum step start_refused(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	const struct record_atomic op = {.operation = RECORD_REFUSED, .compare_add = status};
	struct ring_header *h = world_ring_reserve(lq, sizeof(op));

	if (unlikely(!h))
		return wait_for_link(lq);
	fill_request(lq, h, wqe, REC_ATOMIC_REQ, message_flags(lq, wqe));
	__builtin_memcpy(local_body(h), &op, sizeof(op));
	request_begins(lq, wqe);
	world_ring_commit(lq, h, sizeof(op));
	request_sent(lq, wqe, SEND_BLOCKING);
	return STEP_DONE;
}

/* Handles the result of a WRITE that was executed here. STEP_DONE with *placed: only its
 * notification is left to send. */
static enum step finish_write(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status,
			      bool *placed)
{
	if (unlikely(status != IBV_WC_SUCCESS && local_has_outstanding(lq)))
		return STEP_WAIT; /* it fails after those before it */
	if (unlikely(status == LOCAL_ASK_PEER)) {
		if (wqe->flags & SEND_BORROWED)
			return STEP_WAIT;
		wqe->flags |= SEND_BY_RING;
		return start_write_by_ring(lq, wqe);
	}
	if (unlikely(status == IBV_WC_LOC_PROT_ERR))
		return fail_in_turn(lq, wqe, status);
	if (unlikely(status == IBV_WC_RETRY_EXC_ERR && local_reliable(lq)))
		return wait_for_lost_peer(lq);
	if (unlikely(peer_refuses(lq, status)))
		return start_refused(lq, wqe, status);
	if (unlikely(status != IBV_WC_SUCCESS && local_reliable(lq))) {
		local_complete(lq, wqe, status);
		return STEP_FAILED;
	}
	*placed = status == IBV_WC_SUCCESS && wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	if (!*placed)
		local_complete(lq, wqe, IBV_WC_SUCCESS);
	return STEP_DONE;
}

/* Whether an operation executed here would overtake earlier requests: unreliable ones complete when
 * they are in the ring, and the peer may not have executed them yet. */
static bool would_overtake(const struct local_qp *lq)
{
	return unlikely(lq->type == IBV_QPT_UC) && (uint32_t)lq->next_msn != lq->acked_msn;
}

static enum step start_write_direct(struct local_qp *lq, struct send_wqe *wqe)
{
	if (!wqe->progress && (goes_by_ring(lq, wqe) || would_overtake(lq)))
		wqe->flags |= SEND_BY_RING;
	if (unlikely(wqe->flags & SEND_BY_RING))
		return start_write_by_ring(lq, wqe);
	if (!wqe->progress) {
		bool placed = false;

		if (local_has_outstanding(lq) && !may_follow(lq, wqe))
			return STEP_WAIT;
		request_begins(lq, wqe);
		enum step step = finish_write(lq, wqe, local_write_to_peer(lq, wqe), &placed);

		if (!placed)
			return step;
		wqe->progress = 1; /* written: only the notification is left */
	}
	return start_write_imm(lq, wqe);
}

static enum step start_write(struct local_qp *lq, struct send_wqe *wqe)
{
	if (likely(lq->self || world_link_guarded(lq)))
		return start_write_direct(lq, wqe);
	if (wqe->flags & SEND_BORROWED)
		return STEP_WAIT;
	return unlikely(world_link_copies(lq)) ? local_wait_for_peer(lq)
					       : start_write_by_ring(lq, wqe);
}

/* ------------------------------------------------------------------ READ and atomics */

static enum step finish_direct(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (unlikely(status == IBV_WC_RETRY_EXC_ERR))
		return wait_for_lost_peer(lq);
	if (unlikely(peer_refuses(lq, status)))
		return start_refused(lq, wqe, status);
	local_complete(lq, wqe, status);
	return status == IBV_WC_SUCCESS ? STEP_DONE : STEP_FAILED;
}

static bool may_read(const struct local_qp *lq)
{
	uint32_t max = lq->attr->max_rd_atomic ? lq->attr->max_rd_atomic : 1;

	return lq->reads_out < max;
}

/* Has the peer's engine execute the request and answer. `body`: the payload of the record of this
 * kind. The request's segments are looked at when the answer comes. */
static enum step start_by_peer(struct local_qp *lq, struct send_wqe *wqe, enum record_kind kind,
			       const void *body, uint32_t size)
{
	if (!may_read(lq))
		return STEP_WAIT;
	struct ring_header *h = world_ring_reserve(lq, size);

	if (unlikely(!h))
		return wait_for_link(lq);
	fill_request(lq, h, wqe, kind, message_flags(lq, wqe));
	__builtin_memcpy(local_body(h), body, size);
	request_begins(lq, wqe);
	world_ring_commit(lq, h, size);
	request_sent(lq, wqe, SEND_READS | SEND_BLOCKING);
	return STEP_DONE;
}

/* The largest READ that waits for others: for a larger one they save too little. */
enum { GATHERED_BYTES = 128 << 10 };

/* Whether the READ at the queue's head, behind which there are only READs, waits for further ones,
 * with which it is executed by one call. */
static bool read_gathers(struct local_qp *lq, const struct send_wqe *wqe)
{
	const struct send_wqe *newest = sq_at(lq->sq, lq->sq->head - 1);

	return lq->sq->head - lq->sq->next < LOCAL_RUN && newest->opcode == IBV_WR_RDMA_READ &&
	       newest->rkey == wqe->rkey && newest->length <= GATHERED_BYTES &&
	       local_has_runs(lq) && !local_region_is_mapped(lq, wqe) && world_gathers(lq);
}

/* Executes the READ at the queue's head with those behind it. False: it is to be executed by
 * itself. */
static bool read_several(struct local_qp *lq)
{
	uint32_t count = local_read_run(lq);

	for (uint32_t i = 0; i < count; i++)
		local_complete(lq, sq_at(lq->sq, lq->sq->next), IBV_WC_SUCCESS);
	return count;
}

static enum step start_read(struct local_qp *lq, struct send_wqe *wqe)
{
	const struct record_remote remote = {wqe->remote_addr, wqe->rkey, wqe->length};
	bool by_ring = goes_by_ring(lq, wqe);

	if (likely(!by_ring && (lq->self || world_link_guarded(lq)))) {
		if (local_has_outstanding(lq))
			return STEP_WAIT;
		if (unlikely(world_may_gather(lq)) && read_gathers(lq, wqe))
			return STEP_WAIT;
		if (read_several(lq))
			return STEP_DONE;
		request_begins(lq, wqe);
		enum ibv_wc_status status = local_read_from_peer(lq, wqe);

		if (likely(status != LOCAL_ASK_PEER))
			return finish_direct(lq, wqe, status);
	} else if (unlikely(!by_ring && world_link_copies(lq))) {
		return local_wait_for_peer(lq);
	}
	return start_by_peer(lq, wqe, REC_READ_REQ, &remote, sizeof(remote));
}

/* Executes an atomic, or ATOMIC WRITE, if the memory is this process's or mapped here. False: the
 * peer's engine has to. */
static bool atomic_here(struct local_qp *lq, struct send_wqe *wqe, const struct record_atomic *op,
			enum step *step)
{
	if (!lq->self && !(world_link_guarded(lq) && local_region_is_mapped(lq, wqe)))
		return false;
	*step = STEP_WAIT;
	if (local_has_outstanding(lq))
		return true;
	request_begins(lq, wqe);
	enum ibv_wc_status status = local_atomic_here(lq, wqe, op);

	if (unlikely(status == LOCAL_ASK_PEER))
		return false;
	*step = finish_direct(lq, wqe, status);
	return true;
}

static enum step start_atomic(struct local_qp *lq, struct send_wqe *wqe)
{
	const struct record_atomic op = {
		.addr = wqe->remote_addr,
		.rkey = wqe->rkey,
		.operation = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? RECORD_SWAP : RECORD_ADD,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
	};

	if (unlikely(wqe->length != 8))
		return fail_in_turn(lq, wqe, IBV_WC_LOC_LEN_ERR);
	enum step step;

	if (atomic_here(lq, wqe, &op, &step))
		return step;
	return start_by_peer(lq, wqe, REC_ATOMIC_REQ, &op, sizeof(op));
}

/* Has the peer's engine execute a request that ACK answers. It counts as a READ that has its
 * data. */
static enum step start_acknowledged(struct local_qp *lq, struct send_wqe *wqe,
				    const struct record_atomic *op)
{
	if (!may_read(lq))
		return STEP_WAIT;
	struct ring_header *h = world_ring_reserve(lq, sizeof(*op));

	if (unlikely(!h))
		return wait_for_link(lq);
	fill_request(lq, h, wqe, REC_ATOMIC_REQ, message_flags(lq, wqe));
	__builtin_memcpy(local_body(h), op, sizeof(*op));
	request_begins(lq, wqe);
	world_ring_commit(lq, h, sizeof(*op));
	request_sent(lq, wqe, SEND_READS | SEND_ANSWERED | SEND_BLOCKING);
	return STEP_DONE;
}

static enum step start_atomic_write(struct local_qp *lq, struct send_wqe *wqe)
{
	struct record_atomic op = {
		.addr = wqe->remote_addr, .rkey = wqe->rkey, .operation = RECORD_STORE};
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];

	if (unlikely(wqe->length != sizeof(op.swap)))
		return fail_in_turn(lq, wqe, IBV_WC_LOC_LEN_ERR);
	int count = world_request_segments(lq, wqe, 0, local);

	if (unlikely(count < 0 || !world_gather(lq, &op.swap, local, count, 0, sizeof(op.swap))))
		return fail_in_turn(lq, wqe, IBV_WC_LOC_PROT_ERR);
	enum step step;

	return atomic_here(lq, wqe, &op, &step) ? step : start_acknowledged(lq, wqe, &op);
}

static enum step start_flush(struct local_qp *lq, struct send_wqe *wqe)
{
	const struct record_atomic op = {
		.addr = wqe->remote_addr,
		.rkey = wqe->rkey,
		.operation = RECORD_FLUSH,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
	};

	if (!lq->self && !world_link_guarded(lq))
		return start_acknowledged(lq, wqe, &op);
	if (local_has_outstanding(lq))
		return STEP_WAIT;
	request_begins(lq, wqe);
	enum ibv_wc_status status = local_flush_at_peer(lq, wqe);

	return likely(status != LOCAL_ASK_PEER) ? finish_direct(lq, wqe, status)
						: start_acknowledged(lq, wqe, &op);
}

/* ------------------------------------------------------------------ memory windows */

/* Executes a request that needs no peer, nor a link: it has no PSN and no message number. */
static enum step start_here(struct local_qp *lq, struct send_wqe *wqe)
{
	if (local_has_outstanding(lq))
		return STEP_WAIT;
	enum ibv_wc_status status = world_execute_window(lq, wqe);

	if (status == WQE_LATER)
		return STEP_WAIT;
	/* Not local_complete(), which counts a PSN and shows the request to a capture. */
	if (likely(status == IBV_WC_SUCCESS) || local_reliable(lq))
		world_complete(lq, wqe, status);
	else
		world_fail_request(lq, wqe, status);
	return likely(status == IBV_WC_SUCCESS) ? STEP_DONE : STEP_FAILED;
}

bool local_waits_here(const struct local_qp *lq)
{
	return !local_has_outstanding(lq) && lq->sq->next != lq->sq->head &&
	       wr_runs_here(sq_at(lq->sq, lq->sq->next)->opcode);
}

/* ------------------------------------------------------------------ all of them */

/* The link isn't up, or the peer isn't ready: waits, or completes an unreliable request. */
static enum step start_unconnected(struct local_qp *lq, struct send_wqe *wqe, enum world_link link)
{
	if (wr_runs_here(wqe->opcode))
		return start_here(lq, wqe);
	if (link == WORLD_LINK_COMING)
		return wait_for_link(lq);
	if (lq->type == IBV_QPT_UC && !local_has_outstanding(lq)) {
		local_cut_write(lq);
		local_complete(lq, wqe, IBV_WC_SUCCESS); /* sent, to no receiver */
		return STEP_DONE;
	}
	return local_refuse_missing(lq, link) ? STEP_FAILED : local_wait_for_peer(lq);
}

/* The fabric has no way for the request: it is lost. A reliable one is sent again by the timer, an
 * unreliable one completes in its turn. */
static enum step start_lost(struct local_qp *lq, struct send_wqe *wqe)
{
	if (lq->type == IBV_QPT_UC && local_has_outstanding(lq))
		return STEP_WAIT;
	world_route_lost(lq, wqe);
	if (lq->type == IBV_QPT_UC) {
		local_cut_write(lq);
		world_complete(lq, wqe, IBV_WC_SUCCESS);
		local_check_drained(lq);
		return STEP_DONE;
	}
	lq->unrouted = true;
	return local_wait_for_peer(lq);
}

/* Whether a request of a QP on a fabric may start. One that was lost waits for the timer. */
static enum world_way request_way(struct local_qp *lq, struct send_wqe *wqe)
{
	if (wr_runs_here(wqe->opcode))
		return WORLD_WAY_OPEN;
	return lq->unrouted ? WORLD_WAY_HELD : world_route_admits(lq, wqe);
}

static enum step start_request(struct local_qp *lq, struct send_wqe *wqe)
{
	enum world_link link = world_link(lq);

	if (unlikely(lq->type == IBV_QPT_XRC_SEND) && !world_current(lq, wqe))
		return STEP_WAIT;
	if (unlikely(link != WORLD_LINK_UP || !peer_ready(lq)))
		return start_unconnected(lq, wqe, link);
	enum world_way way = unlikely(lq->routed) ? request_way(lq, wqe) : WORLD_WAY_OPEN;

	if (unlikely(way != WORLD_WAY_OPEN))
		return way == WORLD_WAY_HELD ? STEP_WAIT : start_lost(lq, wqe);
	if (unlikely((wqe->flags & SEND_FENCE) && lq->reads_out))
		return STEP_WAIT;
	switch (wqe->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return start_send(lq, wqe);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return start_write(lq, wqe);
	case IBV_WR_RDMA_READ:
		return start_read(lq, wqe);
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
	case WR_LACKED:
		return start_here(lq, wqe);
	case IBV_WR_ATOMIC_WRITE:
		return start_atomic_write(lq, wqe);
	case IBV_WR_FLUSH:
		return start_flush(lq, wqe);
	default:
		return start_atomic(lq, wqe);
	}
}

/* In SQD only a request that had begun before goes on: its other pieces, or one that the peer asked
 * for again. */
static bool may_start(const struct local_qp *lq)
{
	if (lq->sq->next == lq->sq->head)
		return false;
	return likely(lq->state == IBV_QPS_RTS) ||
	       (lq->state == IBV_QPS_SQD && (int32_t)(lq->resend_until - lq->sq->next) > 0);
}

void local_qp_post(struct local_qp *lq)
{
	enum step step = STEP_DONE;

	while (step == STEP_DONE && may_start(lq))
		step = start_request(lq, sq_at(lq->sq, lq->sq->next));
	local_hazard_clear(lq);
	/* Also after a wait: part of a message may be in the ring already. For operations executed
	 * here only, the peer's engine isn't woken. */
	if (lq->must_notify) {
		lq->must_notify = false;
		if (local_link_up(lq))
			world_ring_notify(lq);
	}
}

void local_qp_withdraw(struct local_qp *lq, struct send_wqe *wqe)
{
	lq->unrouted = false;
	if (!(wqe->flags & SEND_BEGUN))
		return;
	lq->next_psn = wqe->psn;
	if (unlikely(lq->routed))
		world_route_withdraws(lq, wqe);
}

void local_run(struct local_qp *lq)
{
	if (unlikely(may_start(lq)))
		local_qp_post(lq);
}
