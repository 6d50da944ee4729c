/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that the responder's files call on one another. responder.c says which does what. */
#ifndef VERBENA_HCA_LOCAL_CORE_RESPONDER_H
#define VERBENA_HCA_LOCAL_CORE_RESPONDER_H

#include "hca/local/core/state.h"

/* The outcome of executing a request. */
enum local_outcome {
	LOCAL_REQUEST_DONE,
	LOCAL_REQUEST_HOLD,    /* it waits: here, or at its sender */
	LOCAL_REQUEST_REFUSED, /* nothing after it is executed; or it was malformed */
};

/* ---- responder.c: answers */
/* Puts a record without payload into the ring: `kind`, about request `msn`. */
void local_answer(struct local_qp *lq, enum record_kind kind, uint32_t msn, uint32_t imm);
/* Sends a NAK for request `msn`: no later request is ever executed. */
void local_send_nak(struct local_qp *lq, uint32_t msn, enum ibv_wc_status status);
/* The same after the QP has failed with `event` (negative: none). */
void local_fail_with_nak(struct local_qp *lq, uint32_t msn, enum ibv_wc_status status, int event);
/* Counts the oldest request as executed and owes its acknowledgement. LOCAL_REQUEST_DONE. */
static inline enum local_outcome local_request_done(struct local_qp *lq)
{
	lq->done_msn++;
	world_publish_taken(lq, lq->done_msn);
	local_owe_ack(lq);
	return LOCAL_REQUEST_DONE;
}

/* Refuses request `msn`. An unreliable QP sends no answer, and the request counts as done. */
enum local_outcome local_refuse_request(struct local_qp *lq, uint32_t msn,
					enum ibv_wc_status status, int event);
/* Refuses an access that world_own_region() didn't resolve for `access`. */
enum local_outcome local_refuse_access(struct local_qp *lq, const struct ring_header *h,
				       uint32_t access);

/* ---- waiting.c */
/* The message that has waited longest, or NULL. */
struct local_held *local_oldest_held(const struct local_qp *lq);
/* Keeps request `h` until it can be executed. NULL: there is no room, and local_keep_out() was
 * called. */
struct local_held *local_hold(struct local_qp *lq, const struct ring_header *h,
			      const uint8_t *payload, uint32_t size);
/* There is no room for the request that arrived last: it stays with its sender (RC), or is lost
 * (UC). */
void local_keep_out(struct local_qp *lq);
/* The messages that wait are lost with their link or their sender. RC: nothing sent after them is
 * executed. */
void local_lose_held(struct local_qp *lq);
/* Frees the storage of a held message. */
void local_release_held(struct local_qp *lq, struct local_held *held);
/* Whether the oldest message can't be executed yet. */
bool local_responder_waits(const struct local_qp *lq);
/* Ends the wait of the oldest message: the responder is OPEN again. */
void local_wait_ends(struct local_qp *lq);
/* Whether the peer's QP that sent the waiting messages still exists, in the same life, and
 * sends. */
bool local_sender_there(struct local_qp *lq);

/*
 * ---- requests. `payload` has `room` bytes. `held` is where the request is kept already, or NULL.
 */
/* receiving.c */
void local_complete_receive(struct local_qp *lq, const struct recv_wqe *wqe,
			    const struct ring_header *h, enum ibv_wc_status status);
/* A message met a receive that can't hold it: the receive completes with `here`, the request with
 * `there`. */
enum local_outcome local_fail_receive(struct local_qp *lq, const struct recv_wqe *wqe,
				      const struct ring_header *h, enum ibv_wc_status here,
				      enum ibv_wc_status there);
/* A message is longer than its receive. */
enum local_outcome local_message_too_long(struct local_qp *lq, const struct recv_wqe *wqe,
					  const struct ring_header *h);
/* The message is in its receive: completes both, and invalidates the memory window that the message
 * names, if any. */
enum local_outcome local_message_received(struct local_qp *lq, const struct recv_wqe *wqe,
					  const struct ring_header *h);
/* Takes the next receive, copied to `room` if need be. NULL: there is none; for RC the next post
 * calls local_qp_receive_posted(). */
const struct recv_wqe *local_take_receive(struct local_qp *lq, struct receive *room);
/* The same for a SEND whose first bytes are in `head`: world_head_bytes(), or as many as it has. */
const struct recv_wqe *local_take_receive_for(struct local_qp *lq, struct receive *room,
					      const uint8_t *head, uint32_t length);
/* The same for a SEND whose payload, or its first piece, is in shared memory. */
const struct recv_wqe *local_take_by_payload(struct local_qp *lq, struct receive *room,
					     const uint8_t *payload, uint32_t length);
/* There is no receive for request `h`: RC keeps `size` bytes of its payload until there is one. */
enum local_outcome local_wait_for_receive(struct local_qp *lq, const struct ring_header *h,
					  const uint8_t *payload, uint32_t size,
					  struct local_held *held);
/* Copies `length` bytes into the receive, from `offset` on. */
bool local_place_payload(struct local_qp *lq, const struct recv_wqe *wqe, uint32_t offset,
			 const uint8_t *payload, uint32_t length);
/* Execute a request that consumes a receive: it is done, waits, or is refused. */
enum local_outcome local_execute_send(struct local_qp *lq, const struct ring_header *h,
				      const uint8_t *payload, uint32_t room,
				      struct local_held *held);
enum local_outcome local_execute_write_imm(struct local_qp *lq, const struct ring_header *h,
					   struct local_held *held);
/* fetching.c */
enum local_outcome local_execute_send_by_reference(struct local_qp *lq, const struct ring_header *h,
						   const uint8_t *payload, uint32_t room,
						   struct local_held *held);
/* A piece of the payload that PULL asked for. */
void local_take_send_data(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			  uint32_t room);
/* serving.c: each executes a request, or has it wait */
/* A piece of a WRITE that isn't the last one: no request of its own. */
void local_take_write_part(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			   uint32_t room);
enum local_outcome local_execute_write(struct local_qp *lq, const struct ring_header *h,
				       const uint8_t *payload, uint32_t room,
				       struct local_held *held);
enum local_outcome local_execute_read(struct local_qp *lq, const struct ring_header *h,
				      const uint8_t *payload, uint32_t room,
				      struct local_held *held);
enum local_outcome local_execute_atomic(struct local_qp *lq, const struct ring_header *h,
					const uint8_t *payload, uint32_t room);

#endif
