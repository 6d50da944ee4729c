/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's one-sided requests: READ, WRITE and atomics that the initiator can't execute
 * itself (onesided.c), and that this engine therefore executes on this process's memory.
 */
#include <string.h>

#include "hca/local/core/responder.h"

/*
 * Writes a piece of an RDMA WRITE. With the first piece the access is checked for the whole
 * message, so that a refused message leaves no trace; each piece is checked again, since the region
 * may be deregistered meanwhile. The final byte of the message is written last.
 */
static bool write_piece(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			uint32_t room)
{
	WORLD_MEMORY(memory, lq);
	struct record_remote r;

	if (room < sizeof(r))
		return false;
	memcpy(&r, payload, sizeof(r));
	uint32_t n = r.reserved;

	if (n > room - sizeof(r) || n > h->length - lq->write_done)
		return false;
	if (!n)
		return local_qp_rights(lq) & IBV_ACCESS_REMOTE_WRITE;
	if (!lq->write_done &&
	    !world_own_region(lq, r.addr, h->length, r.rkey, IBV_ACCESS_REMOTE_WRITE))
		return false;
	uint64_t to = world_own_region(lq, r.addr, n, r.rkey, IBV_ACCESS_REMOTE_WRITE);

	if (!to)
		return false;
	lq->write = LOCAL_WRITE_PLACING;
	lq->write_done += n;
	return world_own_write(lq, to, payload + sizeof(r), n, h->flags & REC_LAST);
}

/* A piece of a WRITE that isn't the last one: no request of its own. */
void local_take_write_part(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			   uint32_t room)
{
	if (lq->write == LOCAL_WRITE_VOID)
		return;
	if (list_empty(&lq->held) &&
	    (likely(lq->type != IBV_QPT_XRC_RECV) || world_aim(lq, record_qpn(h->dst))) &&
	    write_piece(lq, h, payload, room))
		return;
	if (local_reliable(lq))
		local_refuse_access(lq, h, IBV_ACCESS_REMOTE_WRITE);
	else
		lq->write = LOCAL_WRITE_VOID; /* lost, with its other pieces */
}

enum local_outcome local_execute_write(struct local_qp *lq, const struct ring_header *h,
				       const uint8_t *payload, uint32_t room,
				       struct local_held *held)
{
	bool written = lq->write != LOCAL_WRITE_VOID && write_piece(lq, h, payload, room);
	struct ring_header imm = *h;

	lq->write_done = 0;
	lq->write = LOCAL_WRITE_NONE;
	if (!written)
		return local_refuse_access(lq, h, IBV_ACCESS_REMOTE_WRITE);
	if (!(h->flags & REC_IMM))
		return local_request_done(lq);
	imm.kind = REC_WRITE_IMM; /* written: only a receive is still needed */
	if (held)
		held->header = imm;
	return local_execute_write_imm(lq, &imm, held);
}

/* Puts one piece of a READ's answer into the ring, from byte `at` on. False: the memory isn't
 * granted (any more), or isn't mapped. *n: the bytes sent; 0: the ring has no room. */
static bool answer_read_piece(struct local_qp *lq, const struct ring_header *h,
			      const struct record_remote *r, uint32_t at, uint32_t *n)
{
	WORLD_MEMORY(memory, lq);
	uint64_t from = h->length ? world_own_region(lq, r->addr, h->length, r->rkey,
						     IBV_ACCESS_REMOTE_READ)
				  : 0;
	uint32_t left = h->length - at;
	uint32_t size = left < RING_PAYLOAD_MAX ? left : RING_PAYLOAD_MAX;

	*n = 0;
	if (h->length ? !from : !(local_qp_rights(lq) & IBV_ACCESS_REMOTE_READ))
		return false;
	struct ring_header *out = world_ring_reserve(lq, size);

	if (!out) {
		*n = UINT32_MAX;
		return true;
	}
	if (!world_own_read(lq, from + at, local_body(out), size)) {
		world_ring_abandon(lq, size);
		return false;
	}
	local_fill_record(lq, out, REC_READ_DATA, size == left ? REC_LAST : 0, lq->sender_epoch);
	out->msn = h->msn;
	out->imm = at;
	out->length = size;
	world_ring_commit(lq, out, size);
	*n = size;
	return true;
}

/* Streams the answer; continues at stream_done if the ring was full before. */
enum local_outcome local_execute_read(struct local_qp *lq, const struct ring_header *h,
				      const uint8_t *payload, uint32_t room,
				      struct local_held *held)
{
	struct record_remote r;
	uint32_t at = lq->responder == LOCAL_WAIT_ROOM ? lq->stream_done : 0, n;

	if (room < sizeof(r))
		return LOCAL_REQUEST_REFUSED;
	memcpy(&r, payload, sizeof(r));
	do {
		if (!answer_read_piece(lq, h, &r, at, &n))
			return local_refuse_access(lq, h, IBV_ACCESS_REMOTE_READ);
		if (n == UINT32_MAX) {
			if (!held)
				local_hold(lq, h, payload,
					   sizeof(r)); /* can't fail: the oldest has its place */
			lq->responder = LOCAL_WAIT_ROOM;
			lq->stream_done = at;
			world_ring_wait(lq);
			world_ring_notify(lq);
			return LOCAL_REQUEST_HOLD;
		}
		at += n;
	} while (at < h->length);
	world_ring_notify(lq);
	lq->done_msn++;
	return LOCAL_REQUEST_DONE;
}

static enum local_outcome refuse_invalid(struct local_qp *lq, const struct ring_header *h)
{
	return local_refuse_request(lq, h->msn, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

/* The status comes from the requester, whose QP it concerns: anything but the one is the other. */
static enum local_outcome refuse_as_told(struct local_qp *lq, const struct ring_header *h,
					 const struct record_atomic *op)
{
	if (op->compare_add != IBV_WC_REM_ACCESS_ERR)
		return refuse_invalid(lq, h);
	return local_refuse_request(lq, h->msn, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static enum local_outcome execute_flush_request(struct local_qp *lq, const struct ring_header *h,
						const struct record_atomic *op)
{
	enum ibv_wc_status status = world_own_flush(lq, op);

	if (status == IBV_WC_SUCCESS)
		return local_request_done(lq);
	if (status == IBV_WC_REM_INV_REQ_ERR)
		return refuse_invalid(lq, h);
	return local_refuse_request(lq, h->msn, status, IBV_EVENT_QP_ACCESS_ERR);
}

/* Atomics and ATOMIC WRITE: changes the word. `right` is what the request needs. False: it is
 * refused, and *outcome says what becomes of it. (A peer that breaks the rules asks on a UC QP,
 * too, where a refused request counts as done.) */
static bool execute_on_word(struct local_qp *lq, const struct ring_header *h,
			    const struct record_atomic *op, uint32_t right, uint64_t *old,
			    enum local_outcome *outcome)
{
	WORLD_MEMORY(memory, lq);
	bool answers = lq->attr->max_dest_rd_atomic;
	uint64_t at = answers ? world_own_region(lq, op->addr, 8, op->rkey, right) : 0;

	if (!answers || (at && !world_is_imported(at) && at % 8)) {
		*outcome = refuse_invalid(lq, h);
		return false;
	}
	if (at && !world_is_imported(at) && world_own_atomic(lq, at, op, old))
		return true;
	*outcome = local_refuse_access(lq, h, right);
	return false;
}

enum local_outcome local_execute_atomic(struct local_qp *lq, const struct ring_header *h,
					const uint8_t *payload, uint32_t room)
{
	struct record_atomic op;
	struct ring_header out = {0};
	uint64_t old;

	if (room < sizeof(op))
		return LOCAL_REQUEST_REFUSED;
	memcpy(&op, payload, sizeof(op));
	if (op.operation > RECORD_REFUSED)
		return LOCAL_REQUEST_REFUSED;
	if (op.operation == RECORD_REFUSED)
		return refuse_as_told(lq, h, &op);
	if (op.operation == RECORD_FLUSH)
		return execute_flush_request(lq, h, &op);
	bool stores = op.operation == RECORD_STORE;
	uint32_t right = stores ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
	enum local_outcome outcome;

	if (!execute_on_word(lq, h, &op, right, &old, &outcome))
		return outcome;
	if (stores)
		return local_request_done(lq);
	lq->done_msn++;
	local_fill_record(lq, &out, REC_ATOMIC_RESP, REC_LAST, lq->sender_epoch);
	out.msn = h->msn;
	out.length = sizeof(old);
	world_ring_control(lq, &out, &old, sizeof(old));
	return LOCAL_REQUEST_DONE;
}
