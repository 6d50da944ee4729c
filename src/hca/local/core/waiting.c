/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages that the responder holds: requests that have arrived and can't be executed yet.
 *
 * Bounded memory. A QP holds LOCAL_HELD_BYTES at most, and only if the world has storage. The
 * oldest message has a place of its own (struct local_first) unless it has more than
 * LOCAL_FIRST_BYTES of payload. Beyond that, messages of RC stay with their sender: `flow` becomes
 * REFUSES, arriving requests aren't counted, and AGAIN asks for request `arrived_msn` and all after
 * it as soon as the held messages have been executed, or after ASK_NS (responder.c). A missing
 * receive looks the same to the sender (RNR, its retries and their time) wherever the message
 * waits.
 */
#include <string.h>

#include "hca/local/core/responder.h"

struct local_held *local_oldest_held(const struct local_qp *lq)
{
	return list_empty(&lq->held) ? NULL : container_of(lq->held.next, struct local_held, node);
}

static bool is_first(const struct local_qp *lq, const struct local_held *held)
{
	return held == &lq->first.held;
}

static uint32_t held_size(uint32_t payload)
{
	return (uint32_t)sizeof(struct local_held) + payload;
}

/* Storage for a message with `size` bytes of payload, or NULL. */
static struct local_held *find_storage(struct local_qp *lq, uint32_t size)
{
	if (list_empty(&lq->held) && size <= LOCAL_FIRST_BYTES)
		return &lq->first.held;
	if (held_size(size) > LOCAL_HELD_BYTES - lq->held_bytes)
		return NULL;
	struct local_held *held = world_hold(lq, size);

	if (held)
		lq->held_bytes += held_size(size);
	return held;
}

/* There is no room for the next request: it stays with its sender (RC), or is lost (UC). */
void local_keep_out(struct local_qp *lq)
{
	lq->flow = local_reliable(lq) ? LOCAL_REFUSES : LOCAL_LOSES;
	if (lq->flow == LOCAL_LOSES) {
		lq->lost++;
		return;
	}
	lq->arrived_msn--;
	lq->ask_at = 0;
	world_watch_receive(lq);
}

/* Keeps request `h` until it can be executed. NULL: there is no room, and local_keep_out() was
 * called. */
struct local_held *local_hold(struct local_qp *lq, const struct ring_header *h,
			      const uint8_t *payload, uint32_t size)
{
	struct local_held *held = find_storage(lq, size);

	if (!held) {
		local_keep_out(lq);
		return NULL;
	}
	memcpy(&held->header, h, sizeof(*h));
	if (size)
		memcpy(held->payload, payload, size);
	held->size = size;
	list_add_tail(&lq->held, &held->node);
	return held;
}

void local_release_held(struct local_qp *lq, struct local_held *held)
{
	list_del(&held->node);
	if (is_first(lq, held))
		return;
	lq->held_bytes -= held_size(held->size);
	world_release(lq, held);
}

bool local_responder_waits(const struct local_qp *lq)
{
	return lq->responder == LOCAL_WAIT_RECEIVE || lq->responder == LOCAL_WAIT_DATA ||
	       lq->responder == LOCAL_WAIT_ROOM;
}

/* Ends the wait of the oldest message: the responder is OPEN again. */
void local_wait_ends(struct local_qp *lq)
{
	if (lq->responder == LOCAL_WAIT_RECEIVE)
		world_receive_wait(lq, false);
	if (local_responder_waits(lq))
		lq->responder = LOCAL_OPEN;
	lq->untaken = false;
	lq->rnr_deadline = 0;
}

static void forget_held(struct local_qp *lq)
{
	struct local_held *held;

	if (lq->responder == LOCAL_WAIT_DATA && !lq->untaken)
		world_receive_back(lq, &lq->taken.wqe);
	local_wait_ends(lq);
	lq->flow = LOCAL_TAKES;
	while ((held = local_oldest_held(lq)))
		local_release_held(lq, held);
}

void local_drop_held(struct local_qp *lq)
{
	forget_held(lq);
	lq->responder = LOCAL_HALTED;
}

void local_lose_stream(struct local_qp *lq)
{
	forget_held(lq);
	lq->lost = 0;
	lq->met |= lq->write != LOCAL_WRITE_NONE;
	lq->write = LOCAL_WRITE_NONE;
	lq->write_done = 0;
	lq->done_msn = (uint32_t)lq->arrived_msn;
	lq->cut = true;
}

/* The messages that wait are lost with their link or their sender. */
void local_lose_held(struct local_qp *lq)
{
	if (lq->type == IBV_QPT_UC)
		local_lose_stream(lq);
	else
		local_drop_held(lq);
}

/*
 * Whether the peer's QP that sent the held messages still exists, in the same life, and sends. If
 * not, its program has got completions that say the messages weren't sent, and may have reused
 * their memory.
 */
bool local_sender_there(struct local_qp *lq)
{
	if (!local_link_up(lq))
		return false;
	uint64_t word = world_peer_word(lq);
	uint32_t state = pub_qp_state(word);

	return (uint8_t)pub_qp_epoch(word) == lq->sender_epoch &&
	       (state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}
