/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Responder: what arriving requests mean. They are executed in order; one that can't be executed
 * yet (no receive, data on the way, ring full) is held with its QP, and those after it behind it,
 * so that other QPs of the link go on. hca.engine and qp.lock are held throughout.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wc_status.h"
#include "hca/engine/engine.h"
#include "hca/exec/execute.h"
#include "hca/exec/mcast.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/way.h"
#include "hca/mem/copy.h"
#include "hca/mem/foreign.h"
#include "hca/mem/mr.h"
#include "hca/process/counters.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "transport/transport.h"

enum { INBOUND_MAX = 2 * LIMIT_QP_WR }; /* no honest requester has more outstanding */

enum outcome { DONE, HOLD, DEAD /* refused, or nonsense: nothing more to do */ };

/* ------------------------------------------------------------------ answers */

static void answer(struct qp *qp, enum record_kind kind, uint32_t msn, uint32_t imm)
{
	struct ring_header h = {0};

	local_record(qp, &h, kind, 0);
	h.msn = msn;
	h.imm = imm;
	h.length = qp->attr.min_rnr_timer & 31;
	link_control(qp->link, &h, NULL, 0);
}

/* The last word on request `msn`: whatever follows it never executes. */
static void nak(struct qp *qp, uint32_t msn, enum ibv_wc_status status)
{
	qp->halted = true;
	answer(qp, REC_NAK, msn, status);
}

static enum outcome done(struct qp *qp)
{
	qp->done_msn++;
	local_owe_ack(qp);
	return DONE;
}

/* Refuses request `msn`; an unreliable QP says nothing, the request counts as done. */
static enum outcome refuse(struct qp *qp, uint32_t msn, enum ibv_wc_status status, int event)
{
	log_info("QP 0x%x: request refused: %s", qp->ibv.qp_num, wc_status_text(status));
	if (qp->type != IBV_QPT_RC)
		return done(qp);
	nak(qp, msn, status);
	qp_fail(qp, event);
	return DEAD;
}

/* ------------------------------------------------------------------ receives */

static struct arrival arrival_of(const struct ring_header *h)
{
	return (struct arrival){
		.length = h->length,
		.imm = h->imm,
		.src_qpn = record_qpn(h->src),
		.has_imm = h->flags & REC_IMM,
		.solicited = h->flags & REC_SOLICITED,
		.is_write = h->kind == REC_WRITE_IMM || h->kind == REC_WRITE_DATA,
	};
}

static void complete_receive(struct qp *qp, const struct recv_wqe *wqe, const struct ring_header *h,
			     enum ibv_wc_status status)
{
	struct arrival arrival = arrival_of(h);

	receive_complete(qp, wqe, &arrival, status);
}

/* A message met a receive that can't hold it. */
static enum outcome fail_receive(struct qp *qp, const struct recv_wqe *wqe,
				 const struct ring_header *h, enum ibv_wc_status here,
				 enum ibv_wc_status there)
{
	log_info("QP 0x%x: a message of %u bytes can't be received (%s; the receive has %u bytes)",
		 qp->ibv.qp_num, h->length, wc_status_text(here), wqe->length);
	complete_receive(qp, wqe, h, here);
	if (qp->type == IBV_QPT_RC)
		nak(qp, h->msn, there);
	else
		local_owe_ack(qp);
	qp_fail(qp, -1);
	return DEAD;
}

/* A message is longer than its receive. A connected, reliable one fails both QPs; an unreliable one
 * is dropped, and the receive stays for the next one (docs/behaviour.md). */
static enum outcome too_long(struct qp *qp, const struct recv_wqe *wqe, const struct ring_header *h)
{
	if (qp->type == IBV_QPT_RC)
		return fail_receive(qp, wqe, h, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	log_info("QP 0x%x: a message of %u bytes is longer than its receive (%u), dropped",
		 qp->ibv.qp_num, h->length, wqe->length);
	receive_give_back(qp, wqe);
	return done(qp);
}

/* ------------------------------------------------------------------ holding */

static struct inbound *hold(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			    uint32_t size)
{
	struct inbound *in = qp->inbound_count < INBOUND_MAX ? malloc(sizeof(*in) + size) : NULL;

	if (!in) {
		log_error("QP 0x%x: can't hold another message, the connection ends",
			  qp->ibv.qp_num);
		refuse(qp, h->msn, IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL);
		return NULL;
	}
	memcpy(&in->header, h, sizeof(*h));
	if (size)
		memcpy(in->payload, payload, size);
	in->size = size;
	in->rnr_deadline = 0;
	in->done = 0;
	in->taken = NULL;
	list_add_tail(&qp->inbound, &in->node);
	qp->inbound_count++;
	qp->starved = true;
	return in;
}

static void release(struct qp *qp, struct inbound *in)
{
	list_del(&in->node);
	qp->starved = --qp->inbound_count != 0;
	free(in->taken);
	free(in);
}

void responder_drop_inbound(struct qp *qp)
{
	while (!list_empty(&qp->inbound)) {
		struct inbound *in = container_of(qp->inbound.next, struct inbound, node);

		if (in->taken)
			receive_give_back(qp, in->taken);
		release(qp, in);
	}
}

/*
 * Whether the QP that sent what we hold is still there. What it held has been flushed otherwise:
 * its program has been told that the message isn't sent, and its memory may hold anything.
 */
static bool sender_there(struct qp *qp)
{
	if (!link_is(qp->link, LINK_UP))
		return false;
	local_find_remote(qp);
	uint64_t word = pub_qp_read_state(qp->remote);
	uint32_t state = pub_qp_state(word);

	return (uint8_t)pub_qp_epoch(word) == qp->remote_epoch &&
	       (state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

static uint64_t rnr_limit(const struct qp *qp, const struct ring_header *h)
{
	uint32_t retries = h->flags >> REC_RNR_SHIFT;

	if (retries == 7)
		return UINT64_MAX;
	return now_ns() + (uint64_t)retries * tp_rnr_ns(qp->attr.min_rnr_timer);
}

/* No receive for the message `h` (held already as `in`, or not yet). */
static enum outcome not_ready(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			      uint32_t size, struct inbound *in)
{
	if (qp->type != IBV_QPT_RC)
		return done(qp); /* lost, as an unreliable message may be */
	if (in && in->rnr_deadline)
		return HOLD; /* waits already */
	if (h->flags >> REC_RNR_SHIFT == 0) {
		nak(qp, h->msn, IBV_WC_RNR_RETRY_EXC_ERR);
		return DEAD;
	}
	if (!in)
		in = hold(qp, h, payload, size);
	if (!in)
		return DEAD;
	in->rnr_deadline = rnr_limit(qp, h);
	counters_rare(qp->hca, PUB_LOCAL_RNR_WAITS);
	answer(qp, REC_RNR, h->msn, 0);
	if (list_empty(&qp->rnr_node))
		list_add_tail(&qp->hca->rnr, &qp->rnr_node);
	atomic_store(&qp->hca->has_rnr, true);
	engine_kick(qp->hca); /* its timer */
	return HOLD;
}

/* Takes a receive, or enters the SRQ's list of those who wait and looks once more. */
static const struct recv_wqe *receive_for(struct qp *qp, struct receive *room)
{
	const struct recv_wqe *wqe = receive_take(qp, room);

	if (likely(wqe || !qp->srq || qp->type != IBV_QPT_RC))
		return wqe;
	if (list_empty(&qp->srq_wait))
		list_add_tail(&qp->srq->waiters, &qp->srq_wait);
	atomic_store(&qp->srq->has_waiters, 1);
	wqe = receive_take(qp, room);
	if (wqe)
		list_del(&qp->srq_wait);
	return wqe;
}

/* ------------------------------------------------------------------ two-sided */

static enum outcome do_send(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			    uint32_t room, struct inbound *in)
{
	struct receive buffer;
	struct iovec local[LIMIT_SGE];

	if (unlikely(h->length > room))
		return DEAD;
	const struct recv_wqe *wqe = receive_for(qp, &buffer);

	if (unlikely(!wqe))
		return not_ready(qp, h, payload, h->length, in);
	if (unlikely(h->length > wqe->length))
		return too_long(qp, wqe, h);
	int count = receive_segments(qp, wqe, local);

	if (unlikely(count < 0 || !copy_scatter(local, count, 0, payload, h->length)))
		return fail_receive(qp, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	complete_receive(qp, wqe, h, IBV_WC_SUCCESS);
	return done(qp);
}

/* The sender's segments, as a checked list: their number, or -1 when they aren't `length` bytes. */
static int read_segments(const uint8_t *payload, uint32_t room, uint32_t length, struct iovec *out)
{
	uint64_t total = 0;
	int n = 0;

	while (total < length) {
		struct record_segment s;

		if (n == LIMIT_SGE || (n + 1) * sizeof(s) > room)
			return -1;
		memcpy(&s, payload + n * sizeof(s), sizeof(s));
		if (!s.length || s.length > length - total)
			return -1;
		out[n++] = (struct iovec){(void *)(uintptr_t)s.addr, s.length};
		total += s.length;
	}
	return n;
}

static int pull(struct qp *qp, const struct iovec *remote, int remote_count,
		const struct iovec *local, int count, uint32_t length)
{
	if (!qp->link->self)
		return copy_lists_from_process(qp->link->pid, remote, remote_count, local, count,
					       length);
	size_t at = 0;

	for (int i = 0; i < remote_count; at += remote[i++].iov_len)
		if (!copy_scatter(local, count, at, remote[i].iov_base, remote[i].iov_len))
			return -EFAULT;
	return 0;
}

/* Asks for the data to be streamed; the receive stays taken meanwhile. */
static enum outcome ask_for_data(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
				 uint32_t size, struct inbound *in, const struct recv_wqe *wqe)
{
	size_t bytes = sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]);

	if (!in)
		in = hold(qp, h, payload, size);
	if (!in)
		return DEAD;
	in->taken = malloc(bytes);
	if (!in->taken)
		return fail_receive(qp, wqe, h, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR);
	memcpy(in->taken, wqe, bytes);
	qp->rq.held = 1;
	in->rnr_deadline = 0;
	answer(qp, REC_PULL, h->msn, 0);
	return HOLD;
}

/* A message's bytes couldn't be fetched, or not before its sender flushed it: whose fault? */
static enum outcome pull_failed(struct qp *qp, const struct ring_header *h,
				const struct recv_wqe *wqe, const struct iovec *local, int count,
				int err)
{
	bool gone = err == -ESRCH || !sender_there(qp);

	if (!gone && !copy_reachable(local, count))
		return fail_receive(qp, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	receive_give_back(qp, wqe);
	if (gone)
		return DEAD;
	log_info("QP 0x%x: the memory of a message from QP 0x%x isn't mapped there any more",
		 qp->ibv.qp_num, record_qpn(h->src));
	if (qp->type != IBV_QPT_RC)
		return done(qp);
	nak(qp, h->msn, IBV_WC_LOC_PROT_ERR);
	return DEAD;
}

/* Whether a message's bytes are fetched from the sender's memory, else it streams them. */
static bool fetches(const struct qp *qp, const struct ring_header *h)
{
	return qp->link->can_vm && !way_by_ring(qp->hca, h->length);
}

static enum outcome do_send_ref(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
				uint32_t room, struct inbound *in)
{
	struct receive buffer;
	struct iovec local[LIMIT_SGE], remote[LIMIT_SGE];

	if (in && in->taken)
		return HOLD; /* its data is on the way */
	int remote_count = read_segments(payload, room, h->length, remote);

	if (unlikely(remote_count < 0))
		return DEAD;
	const struct recv_wqe *wqe = receive_for(qp, &buffer);

	if (unlikely(!wqe))
		return not_ready(qp, h, payload, room, in);
	if (unlikely(h->length > wqe->length))
		return too_long(qp, wqe, h);
	int count = receive_segments(qp, wqe, local);

	if (unlikely(count < 0))
		return fail_receive(qp, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	if ((!qp->link->self && !fetches(qp, h)) || foreign_among(remote, remote_count))
		return ask_for_data(qp, h, payload, room, in, wqe);
	/* The sender doesn't end its QP, and so gives no memory back, while this names it. Nothing
	 * of what is there afterwards may get into the receive, not even of a message that fails.
	 */
	_Atomic uint64_t *hazard =
		hazard_set(qp->hca, qp->link->slot, hazard_of_qp(record_qpn(h->src)));
	int err =
		sender_there(qp) ? pull(qp, remote, remote_count, local, count, h->length) : -ESRCH;

	hazard_clear(hazard);

	if (unlikely(err || !sender_there(qp)))
		return pull_failed(qp, h, wqe, local, count, err);
	complete_receive(qp, wqe, h, IBV_WC_SUCCESS);
	return done(qp);
}

/* A piece of what ask_for_data asked for. */
static void on_send_data(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			 uint32_t room)
{
	struct iovec local[LIMIT_SGE];

	if (list_empty(&qp->inbound))
		return;
	struct inbound *in = container_of(qp->inbound.next, struct inbound, node);

	if (!in->taken || in->header.msn != h->msn || h->imm != in->done || h->length > room ||
	    h->length > in->header.length - in->done)
		return;
	int count = receive_segments(qp, in->taken, local);

	if (count < 0 || !copy_scatter(local, count, h->imm, payload, h->length)) {
		struct recv_wqe *taken = in->taken;

		in->taken = NULL; /* completes here */
		qp->rq.held = 0;
		fail_receive(qp, taken, &in->header, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		free(taken);
		return;
	}
	in->done += h->length;
	if (in->done < in->header.length)
		return;
	complete_receive(qp, in->taken, &in->header, IBV_WC_SUCCESS);
	qp->rq.held = 0;
	done(qp);
	release(qp, in);
	responder_resume(qp);
}

static enum outcome do_write_imm(struct qp *qp, const struct ring_header *h, struct inbound *in)
{
	struct receive buffer;
	const struct recv_wqe *wqe = receive_for(qp, &buffer);

	if (unlikely(!wqe))
		return not_ready(qp, h, NULL, 0, in);
	complete_receive(qp, wqe, h, IBV_WC_SUCCESS);
	return done(qp);
}

/* ------------------------------------------------------------------ one-sided, executed here */

/* Refuses what remote_resolve didn't resolve. */
static enum outcome refuse_access(struct qp *qp, const struct ring_header *h, uint32_t access)
{
	struct refusal refusal = remote_refusal(qp, access);

	return refuse(qp, h->msn, refusal.status, refusal.event);
}

/*
 * A piece of an RDMA WRITE. The first one is checked for the whole message, so that a refused one
 * leaves no trace; each is checked again, since the region may go meanwhile. The final byte of the
 * message is written last.
 */
static bool write_piece(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			uint32_t room)
{
	struct record_remote r;

	if (room < sizeof(r))
		return false;
	memcpy(&r, payload, sizeof(r));
	uint32_t n = r.reserved;

	if (n > room - sizeof(r) || n > h->length - qp->write_done)
		return false;
	if (!n)
		return qp_remote_access(qp) & IBV_ACCESS_REMOTE_WRITE;
	if (!qp->write_done &&
	    !remote_resolve(qp, r.addr, h->length, r.rkey, IBV_ACCESS_REMOTE_WRITE))
		return false;
	uint64_t to = remote_resolve(qp, r.addr, n, r.rkey, IBV_ACCESS_REMOTE_WRITE);

	if (!to)
		return false;
	qp->write_done += n;
	return remote_write(to, payload + sizeof(r), n, h->flags & REC_LAST);
}

/* A piece that others follow: no request of its own. */
static void do_write_part(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			  uint32_t room)
{
	if (qp->write_void || (list_empty(&qp->inbound) && write_piece(qp, h, payload, room)))
		return;
	if (qp->type == IBV_QPT_RC)
		refuse_access(qp, h, IBV_ACCESS_REMOTE_WRITE);
	else
		qp->write_void = true; /* lost, with all that follows */
}

static enum outcome do_write(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			     uint32_t room, struct inbound *in)
{
	bool written = !qp->write_void && write_piece(qp, h, payload, room);

	qp->write_done = 0;
	qp->write_void = false;
	if (!written)
		return refuse_access(qp, h, IBV_ACCESS_REMOTE_WRITE);
	if (!(h->flags & REC_IMM))
		return done(qp);
	struct ring_header imm = {.kind = REC_WRITE_IMM,
				  .flags = h->flags,
				  .src = h->src,
				  .dst = h->dst,
				  .msn = h->msn,
				  .imm = h->imm,
				  .length = h->length};

	if (in)
		in->header = imm; /* written: what is left is to wait for a receive */
	return do_write_imm(qp, &imm, in);
}

/* Streams the answer; from in->done on when the ring was full before. */
static enum outcome do_read(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			    uint32_t room, struct inbound *in)
{
	struct record_remote r;
	uint32_t at = in ? in->done : 0;

	if (room < sizeof(r))
		return DEAD;
	memcpy(&r, payload, sizeof(r));
	uint64_t from =
		h->length ? remote_resolve(qp, r.addr, h->length, r.rkey, IBV_ACCESS_REMOTE_READ)
			  : 0;

	if (h->length ? !from : !(qp_remote_access(qp) & IBV_ACCESS_REMOTE_READ))
		return refuse_access(qp, h, IBV_ACCESS_REMOTE_READ);
	do {
		uint32_t left = h->length - at;
		uint32_t n = left < RING_PAYLOAD_MAX ? left : RING_PAYLOAD_MAX;
		struct ring_header *out = link_begin(qp->link, n);

		if (!out) {
			if (!in)
				in = hold(qp, h, payload, sizeof(r));
			if (!in)
				return DEAD;
			in->done = at;
			link_wait(qp->link, qp);
			link_notify(qp->link);
			return HOLD;
		}
		local_record(qp, out, REC_READ_DATA, n == left ? REC_LAST : 0);
		out->msn = h->msn;
		out->imm = at;
		out->length = n;

		if (!remote_read(from + at, (uint8_t *)out + RING_HEADER, n)) {
			link_abandon(qp->link, n);
			return refuse_access(qp, h, IBV_ACCESS_REMOTE_READ);
		}
		link_send(qp->link, out, n);
		at += n;
	} while (at < h->length);
	link_notify(qp->link);
	qp->done_msn++;
	return DONE;
}

static enum outcome do_atomic(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			      uint32_t room)
{
	struct record_atomic op;
	struct ring_header out = {0};

	if (room < sizeof(op))
		return DEAD;
	memcpy(&op, payload, sizeof(op));
	uint64_t at = remote_resolve(qp, op.addr, 8, op.rkey, IBV_ACCESS_REMOTE_ATOMIC);

	if (!at)
		return refuse_access(qp, h, IBV_ACCESS_REMOTE_ATOMIC);
	if (at % 8)
		return refuse(qp, h->msn, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	uint64_t old;

	if (!atomic_execute(at, &op, &old))
		return refuse_access(qp, h, IBV_ACCESS_REMOTE_ATOMIC);
	qp->done_msn++;
	local_record(qp, &out, REC_ATOMIC_RESP, REC_LAST);
	out.msn = h->msn;
	out.length = sizeof(old);
	link_control(qp->link, &out, &old, sizeof(old));
	return DONE;
}

/* ------------------------------------------------------------------ order */

static enum outcome execute(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			    uint32_t room, struct inbound *in)
{
	switch (h->kind) {
	case REC_SEND:
		return do_send(qp, h, payload, room, in);
	case REC_SEND_REF:
		return do_send_ref(qp, h, payload, room, in);
	case REC_WRITE_IMM:
		return do_write_imm(qp, h, in);
	case REC_WRITE_DATA:
		return do_write(qp, h, payload, room, in);
	case REC_READ_REQ:
		return do_read(qp, h, payload, room, in);
	case REC_ATOMIC_REQ:
		return do_atomic(qp, h, payload, room);
	default:
		return DEAD;
	}
}

void responder_request(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
		       uint32_t room)
{
	if (unlikely(!execute_receiving(qp) || qp->halted))
		return;
	execute_established(qp);
	if (unlikely(h->kind == REC_SEND_DATA)) {
		on_send_data(qp, h, payload, room);
		return;
	}
	if (unlikely(h->msn != qp->arrived_msn))
		return;				 /* not the next one: no honest peer's */
	qp->remote_epoch = record_epoch(h->src); /* answers go to the QP that asked */
	if (h->kind == REC_WRITE_DATA && !(h->flags & REC_LAST)) {
		do_write_part(qp, h, payload, room);
		return;
	}
	qp->arrived_msn++;
	if (unlikely(!list_empty(&qp->inbound)))
		hold(qp, h, payload, room);
	else
		execute(qp, h, payload, room, NULL);
}

void responder_resume(struct qp *qp)
{
	if (unlikely(!list_empty(&qp->inbound) && !sender_there(qp)))
		responder_drop_inbound(qp);
	while (!list_empty(&qp->inbound)) {
		struct inbound *in = container_of(qp->inbound.next, struct inbound, node);
		enum outcome outcome = execute(qp, &in->header, in->payload, in->size, in);

		if (outcome == HOLD)
			return;
		if (outcome == DEAD) { /* the requester's QP ends; what came after it is void */
			responder_drop_inbound(qp);
			return;
		}
		release(qp, in);
	}
}

uint64_t responder_scan(struct hca *hca, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	list_for_each(node, &hca->rnr) {
		struct qp *qp = container_of(node, struct qp, rnr_node);

		lock_take(&qp->lock);
		struct inbound *in = list_empty(&qp->inbound)
					     ? NULL
					     : container_of(qp->inbound.next, struct inbound, node);

		if (in && in->rnr_deadline && in->rnr_deadline <= now) {
			nak(qp, in->header.msn, IBV_WC_RNR_RETRY_EXC_ERR);
			responder_drop_inbound(qp);
			in = NULL;
		}
		if (!in || !in->rnr_deadline)
			list_del(&qp->rnr_node);
		else if (in->rnr_deadline < next)
			next = in->rnr_deadline;
		lock_give(&qp->lock);
	}
	atomic_store(&hca->has_rnr, !list_empty(&hca->rnr));
	return next;
}

/* ------------------------------------------------------------------ datagrams */

/* What a record says. False: it is too short for it. */
static bool read_datagram(const struct ring_header *h, const uint8_t *payload, uint32_t room,
			  struct record_ud *ud)
{
	if (room < sizeof(*ud) || h->length > room - sizeof(*ud))
		return false;
	memcpy(ud, payload, sizeof(*ud));
	return true;
}

static void take_datagram(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			  const struct record_ud *ud)
{
	struct arrival arrival = arrival_of(h);
	enum datagram_fate fate = datagram_execute(qp, ud, &arrival, payload + sizeof(*ud));

	if (unlikely(fate == DATAGRAM_QKEY))
		counters_rare(qp->hca, PUB_LOCAL_QKEY);
	else if (unlikely(fate == DATAGRAM_NO_RECEIVE))
		counters_rare(qp->hca, PUB_LOCAL_NO_RECEIVE);
	else if (unlikely(fate == DATAGRAM_TOO_LONG))
		counters_rare(qp->hca, PUB_LOCAL_SHORT_RECEIVE);
}

/*
 * Whether the sender is who it says: its QP is in the process at the link's other end, its address
 * is one that this host has. Another process of the host may lie about both; on the wire the kernel
 * keeps it from that.
 */
static bool is_from_peer(struct link *link, const struct ring_header *h, const struct record_ud *ud)
{
	if (likely(record_qpn(h->src) >> LIMIT_QP_BITS == link->slot &&
		   mcast_is_own(link->hca, ud->sgid, &link->source)))
		return true;
	log_info("process %d sent a datagram as QP 0x%x, or from an address, that isn't its own: "
		 "dropped",
		 link->pid, record_qpn(h->src));
	return false;
}

void responder_ud(struct qp *qp, struct link *link, const struct ring_header *h,
		  const uint8_t *payload, uint32_t room)
{
	struct record_ud ud;

	if (record_qpn(h->dst) == qp->ibv.qp_num && read_datagram(h, payload, room, &ud) &&
	    is_from_peer(link, h, &ud))
		take_datagram(qp, h, payload, &ud);
}

struct to_group {
	const struct ring_header *h;
	const uint8_t *payload;
	struct record_ud ud;
};

static void take_one(struct qp *qp, void *arg)
{
	const struct to_group *to = arg;

	lock_take(&qp->lock);
	take_datagram(qp, to->h, to->payload, &to->ud);
	lock_give(&qp->lock);
}

void responder_group(struct link *link, const struct ring_header *h, const uint8_t *payload,
		     uint32_t room)
{
	struct to_group to = {.h = h, .payload = payload};

	if (read_datagram(h, payload, room, &to.ud) && is_from_peer(link, h, &to.ud))
		mcast_for_each(link->hca, to.ud.dgid, take_one, &to);
}
