/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's requests that consume a receive and bring their payload with them: SEND, and the
 * notification of an RDMA WRITE with immediate data whose bytes are in place. Also all that can
 * happen to a receive: it completes, is too short, fails, or is missing.
 */
#include <string.h>

#include "base/wc_status.h"
#include "hca/local/core/responder.h"

void local_complete_receive(struct local_qp *lq, const struct recv_wqe *wqe,
			    const struct ring_header *h, enum ibv_wc_status status)
{
	const struct arrival arrival = record_arrival(h);

	world_receive_complete(lq, wqe, &arrival, status);
}

/* A message met a receive that can't hold it: both fail. */
enum local_outcome local_fail_receive(struct local_qp *lq, const struct recv_wqe *wqe,
				      const struct ring_header *h, enum ibv_wc_status here,
				      enum ibv_wc_status there)
{
	world_log(lq, "a message of %u bytes can't be received (%s; the receive has %u bytes)",
		  h->length, wc_status_text(here), wqe->length);
	local_complete_receive(lq, wqe, h, here);
	if (local_reliable(lq)) {
		local_fail_with_nak(lq, h->msn, there, -1);
	} else {
		local_owe_ack(lq);
		world_fail(lq, -1);
	}
	return LOCAL_REQUEST_REFUSED;
}

/* A message is longer than its receive. On RC both QPs fail; on UC the message is dropped, and the
 * receive stays for the next one (docs/behaviour.md). */
enum local_outcome local_message_too_long(struct local_qp *lq, const struct recv_wqe *wqe,
					  const struct ring_header *h)
{
	if (local_reliable(lq))
		return local_fail_receive(lq, wqe, h, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	world_log(lq, "a message of %u bytes is longer than its receive (%u), dropped", h->length,
		  wqe->length);
	world_receive_back(lq, wqe);
	return local_request_done(lq);
}

/* There is no receive for request `h`, which may be held already. */
enum local_outcome local_wait_for_receive(struct local_qp *lq, const struct ring_header *h,
					  const uint8_t *payload, uint32_t size,
					  struct local_held *held)
{
	bool waited = lq->responder == LOCAL_WAIT_RECEIVE;

	if (!local_reliable(lq))
		return local_request_done(lq); /* lost, as an unreliable message may be */
	if (h->flags >> REC_RNR_SHIFT == 0) {
		local_send_nak(lq, h->msn, IBV_WC_RNR_RETRY_EXC_ERR);
		return LOCAL_REQUEST_REFUSED;
	}
	if (held && waited)
		return LOCAL_REQUEST_HOLD;
	lq->responder = LOCAL_WAIT_RECEIVE;
	if (!held)
		local_hold(lq, h, payload, size);
	local_answer(lq, REC_RNR, h->msn, 0);
	if (waited)
		return LOCAL_REQUEST_HOLD;	/* at its sender; its deadline stays */
	lq->first.held.header.flags = h->flags; /* its rnr_retry, wherever it waits */
	lq->rnr_deadline = 0;
	world_count(lq, PUB_LOCAL_RNR_WAITS);
	world_watch_receive(lq);
	return LOCAL_REQUEST_HOLD;
}

/* Takes the next receive. NULL: there is none; for RC the next post calls
 * local_qp_receive_posted(). */
const struct recv_wqe *local_take_receive(struct local_qp *lq, struct receive *room)
{
	return local_take_receive_for(lq, room, NULL, 0);
}

static const struct recv_wqe *take_once(struct local_qp *lq, struct receive *room,
					const uint8_t *head, uint32_t length)
{
	return likely(!head) ? world_receive_take(lq, room)
			     : world_receive_take_for(lq, room, head, length);
}

const struct recv_wqe *local_take_receive_for(struct local_qp *lq, struct receive *room,
					      const uint8_t *head, uint32_t length)
{
	const struct recv_wqe *wqe = take_once(lq, room, head, length);

	if (likely(wqe || !local_reliable(lq)))
		return wqe;
	world_receive_wait(lq, true);
	wqe = take_once(lq, room, head, length);
	if (wqe)
		world_receive_wait(lq, false);
	return wqe;
}

const struct recv_wqe *local_take_by_payload(struct local_qp *lq, struct receive *room,
					     const uint8_t *payload, uint32_t length)
{
	uint32_t asked = world_head_bytes(lq), known = length < asked ? length : asked;
	uint8_t head[LOCAL_HEAD_BYTES];

	memcpy(head, payload, known); /* once, since it is shared memory */
	return local_take_receive_for(lq, room, head, known);
}

/* ------------------------------------------------------------------ SEND */

bool local_place_payload(struct local_qp *lq, const struct recv_wqe *wqe, uint32_t offset,
			 const uint8_t *payload, uint32_t length)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_receive_segments(lq, wqe, offset + length, local);

	return likely(count >= 0) && world_scatter(lq, local, count, offset, payload, length);
}

/* The message names a key that the peer may not invalidate, which is a fault of class J (IBTA
 * 9.9.3): the receive and the QP fail, and the peer gets no answer, so that its retries run out.
 * Messages before this one were executed, and are acknowledged. */
static enum local_outcome fail_invalidation(struct local_qp *lq, const struct recv_wqe *wqe,
					    const struct ring_header *h)
{
	world_log(lq, "the peer may not invalidate key 0x%x; it gets no answer", h->imm);
	if (!local_reliable(lq)) {
		world_receive_back(lq, wqe); /* UC has no such message */
		return local_request_done(lq);
	}
	local_qp_flush_ack(lq);
	lq->responder = LOCAL_HALTED;
	local_complete_receive(lq, wqe, h, IBV_WC_REM_INV_REQ_ERR);
	world_fail(lq, -1);
	return LOCAL_REQUEST_REFUSED;
}

enum local_outcome local_message_received(struct local_qp *lq, const struct recv_wqe *wqe,
					  const struct ring_header *h)
{
	if (unlikely(h->flags & REC_INVALIDATE) &&
	    (!local_reliable(lq) || !world_invalidate(lq, h->imm)))
		return fail_invalidation(lq, wqe, h);
	local_complete_receive(lq, wqe, h, IBV_WC_SUCCESS);
	return local_request_done(lq);
}

enum local_outcome local_execute_send(struct local_qp *lq, const struct ring_header *h,
				      const uint8_t *payload, uint32_t room,
				      struct local_held *held)
{
	struct receive buffer;

	if (unlikely(h->length > room))
		return LOCAL_REQUEST_REFUSED;
	const struct recv_wqe *wqe =
		likely(!world_head_bytes(lq))
			? local_take_receive(lq, &buffer)
			: local_take_by_payload(lq, &buffer, payload, h->length);

	if (unlikely(!wqe))
		return local_wait_for_receive(lq, h, payload, h->length, held);
	if (unlikely(h->length > wqe->length))
		return local_message_too_long(lq, wqe, h);
	if (unlikely(!local_place_payload(lq, wqe, 0, payload, h->length)))
		return local_fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	return local_message_received(lq, wqe, h);
}

enum local_outcome local_execute_write_imm(struct local_qp *lq, const struct ring_header *h,
					   struct local_held *held)
{
	struct receive buffer;
	const struct recv_wqe *wqe = local_take_receive(lq, &buffer);

	if (unlikely(!wqe))
		return local_wait_for_receive(lq, h, NULL, 0, held);
	local_complete_receive(lq, wqe, h, IBV_WC_SUCCESS);
	return local_request_done(lq);
}
