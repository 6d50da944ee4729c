/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder's SEND by reference: the record names the sender's segments. Their bytes are copied
 * from the sender's memory, key by key under a hazard each; where that isn't possible or isn't
 * better (local/way.h), PULL asks the sender to stream them through the ring.
 */
#include <errno.h>
#include <string.h>

#include "base/wc_status.h"
#include "hca/local/core/responder.h"

/* Decodes and checks the sender's segments: their number, or -1 if they aren't `length` bytes
 * together. */
static int read_segments(const uint8_t *payload, uint32_t room, uint32_t length,
			 struct record_segment *out)
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
		total += s.length;
		out[n++] = s;
	}
	return n;
}

/* The part of `list` with the next `length` bytes, from byte *done of segment *at on. Both
 * advance. */
static int iovec_slice(const struct iovec *list, int count, int *at, size_t *done, size_t length,
		       struct iovec *out)
{
	int n = 0;

	while (length && *at < count) {
		size_t left = list[*at].iov_len - *done, part = left < length ? left : length;

		out[n++] = (struct iovec){(uint8_t *)list[*at].iov_base + *done, part};
		length -= part;
		*done += part;
		if (part == left)
			++*at, *done = 0;
	}
	return n;
}

enum fetch {
	FETCHED,
	FETCH_FAULT,	/* one side's memory isn't mapped */
	FETCH_REVOKED,	/* the sender has deregistered it */
	FETCH_GONE,	/* the sender's process has ended */
	FETCH_IMPORTED, /* only the sender can read it: the region is a third process's, or moving
			 */
};

/* Copies the segments of one key at once. The hazard for the key is set before, so the key is
 * looked up now. */
static enum fetch fetch_region(struct local_qp *lq, const struct record_segment *from, int n,
			       const struct iovec *local, int count, size_t length)
{
	struct iovec remote[LIMIT_SGE];
	struct mr_view view;

	if (!world_peer_region(lq, from->lkey, &view))
		return FETCH_REVOKED;
	if (view.access & (PUB_MR_FOREIGN | PUB_MR_MOVING))
		return FETCH_IMPORTED;
	if (view.pd != world_peer_pd(lq))
		return FETCH_REVOKED;
	for (int i = 0; i < n; i++) {
		if (!mr_covers(&view, from[i].addr, from[i].length))
			return FETCH_REVOKED;
		remote[i] = (struct iovec){(void *)(uintptr_t)(from[i].addr + view.offset),
					   from[i].length};
	}
	int err = world_peer_fetch(lq, &view, remote, n, local, count, length);

	return likely(!err) ? FETCHED : err == -ESRCH ? FETCH_GONE : FETCH_FAULT;
}

/* Copies all segments, key by key: a hazard is set for each key while its bytes are copied, so the
 * sender's deregistration waits for that. */
static enum fetch fetch_segments(struct local_qp *lq, const struct record_segment *from, int n,
				 const struct iovec *local, int count)
{
	struct iovec part[LIMIT_SGE];
	enum fetch result = FETCHED;
	size_t done = 0;
	int at = 0;

	for (int i = 0, same; i < n && result == FETCHED; i += same) {
		size_t length = from[i].length;

		/* The sender takes the end of one call for the end of the copy if this process is
		 * stopped there (mem/hazard.h). */
		if (unlikely(i && !local_sender_there(lq)))
			return FETCH_GONE;
		for (same = 1; i + same < n && from[i + same].lkey == from[i].lkey; same++)
			length += from[i + same].length;
		int parts = iovec_slice(local, count, &at, &done, length, part);
		world_hazard *hazard = world_hazard_region_inner(lq, from[i].lkey);

		result = fetch_region(lq, from + i, same, part, parts, length);
		world_hazard_clear(hazard);
	}
	return result;
}

static void keep_receive(struct local_qp *lq, const struct recv_wqe *wqe)
{
	if (wqe != &lq->taken.wqe)
		memcpy(&lq->taken, wqe, sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]));
	world_receive_keep(lq);
}

static enum local_outcome wait_for_data(struct local_qp *lq, const struct ring_header *h,
					bool untaken)
{
	local_wait_ends(lq);
	lq->responder = LOCAL_WAIT_DATA;
	lq->untaken = untaken;
	lq->stream_done = 0;
	local_answer(lq, REC_PULL, h->msn, 0);
	return LOCAL_REQUEST_HOLD;
}

/* Asks the sender to stream the data; the receive stays taken meanwhile. The segments' names aren't
 * needed any more. */
static enum local_outcome ask_for_data(struct local_qp *lq, const struct ring_header *h,
				       struct local_held *held, const struct recv_wqe *wqe)
{
	keep_receive(lq, wqe);
	if (!held)
		local_hold(lq, h, NULL, 0); /* can't fail: the oldest message has its own place */
	return wait_for_data(lq, h, false);
}

/* The same before a receive is taken, since the first piece chooses it. The names of the segments
 * are kept, because there may be no receive for the message then, so that it is tried again. */
static enum local_outcome ask_for_head(struct local_qp *lq, const struct ring_header *h,
				       const uint8_t *payload, int n, struct local_held *held)
{
	if (!held)
		held = local_hold(lq, h, payload, (uint32_t)n * sizeof(struct record_segment));
	return held ? wait_for_data(lq, h, true) : LOCAL_REQUEST_HOLD;
}

/* A message's bytes couldn't be fetched, or its sender flushed it meanwhile: fails the receive (if
 * one is taken) or the request, depending on whose memory or QP it was. */
static enum local_outcome fetch_failed(struct local_qp *lq, const struct ring_header *h,
				       const struct recv_wqe *wqe, const struct iovec *local,
				       int count, enum fetch result)
{
	bool gone = result == FETCH_GONE || !local_sender_there(lq);

	if (wqe && !gone && result == FETCH_FAULT && !world_reachable(local, count))
		return local_fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	if (wqe)
		world_receive_back(lq, wqe);
	if (gone && lq->type == IBV_QPT_UC)
		return local_request_done(lq); /* lost, as an unreliable message may be */
	if (gone) {			       /* nothing that was sent after it is executed */
		lq->responder = LOCAL_HALTED;
		return LOCAL_REQUEST_REFUSED;
	}
	world_log(lq, "the memory of a message from QP 0x%x isn't %s there any more",
		  record_qpn(h->src), result == FETCH_REVOKED ? "registered" : "mapped");
	if (!local_reliable(lq))
		return local_request_done(lq);
	local_send_nak(lq, h->msn, IBV_WC_LOC_PROT_ERR);
	return LOCAL_REQUEST_REFUSED;
}

/* Whether a message's bytes are copied from the sender's memory; else the sender streams them. Not
 * by a link that the sender has left already: it wouldn't wait for the hazard. */
static bool local_fetches(struct local_qp *lq, const struct ring_header *h)
{
	return lq->self || (world_link_guarded(lq) && !world_link_prefers_ring(lq, h->length));
}

/* While this hazard names the sender's QP, the sender doesn't end it, and so its program doesn't
 * reuse the message's memory. Later contents must not get into the receive, not even of a message
 * that fails. */
static enum fetch fetch_guarded(struct local_qp *lq, const struct record_segment *from, int n,
				const struct iovec *local, int count)
{
	world_hazard *hazard = world_hazard_qp(lq);
	enum fetch result =
		local_sender_there(lq) ? fetch_segments(lq, from, n, local, count) : FETCH_GONE;

	world_hazard_clear(hazard);
	return result;
}

static enum local_outcome fetch_message(struct local_qp *lq, const struct ring_header *h,
					const struct record_segment *from, int n,
					const struct recv_wqe *wqe, struct local_held *held)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_receive_segments(lq, wqe, h->length, local);

	if (unlikely(count < 0))
		return local_fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	enum fetch result = fetch_guarded(lq, from, n, local, count);

	if (unlikely(result == FETCH_IMPORTED))
		return ask_for_data(lq, h, held, wqe);
	if (unlikely(result != FETCHED || !local_sender_there(lq)))
		return fetch_failed(lq, h, wqe, local, count, result);
	return local_message_received(lq, wqe, h);
}

/* Copies the message's first bytes, `length` of them. */
static enum fetch fetch_head(struct local_qp *lq, const struct record_segment *from, uint8_t *head,
			     uint32_t length)
{
	struct record_segment first[LOCAL_HEAD_BYTES];
	const struct iovec local = {head, length};
	int n = 0;

	for (uint32_t left = length; left; left -= first[n++].length) {
		first[n] = from[n];
		if (first[n].length > left)
			first[n].length = left;
	}
	return fetch_guarded(lq, first, n, &local, 1);
}

/* A SEND whose first bytes choose the receive. */
static enum local_outcome execute_by_head(struct local_qp *lq, const struct ring_header *h,
					  const uint8_t *payload, const struct record_segment *from,
					  int n, struct local_held *held)
{
	uint32_t known = world_head_bytes(lq) < h->length ? world_head_bytes(lq) : h->length;
	uint8_t head[LOCAL_HEAD_BYTES];
	struct receive buffer;
	enum fetch result =
		local_fetches(lq, h) ? fetch_head(lq, from, head, known) : FETCH_IMPORTED;

	if (result == FETCH_IMPORTED)
		return ask_for_head(lq, h, payload, n, held);
	if (unlikely(result != FETCHED || !local_sender_there(lq)))
		return fetch_failed(lq, h, NULL, NULL, 0, result);
	const struct recv_wqe *wqe = local_take_receive_for(lq, &buffer, head, known);

	if (unlikely(!wqe))
		return local_wait_for_receive(lq, h, payload, n * sizeof(from[0]), held);
	if (unlikely(h->length > wqe->length))
		return local_message_too_long(lq, wqe, h);
	return fetch_message(lq, h, from, n, wqe, held);
}

enum local_outcome local_execute_send_by_reference(struct local_qp *lq, const struct ring_header *h,
						   const uint8_t *payload, uint32_t room,
						   struct local_held *held)
{
	struct receive buffer;
	struct record_segment from[LIMIT_SGE];

	if (lq->responder == LOCAL_WAIT_DATA)
		return LOCAL_REQUEST_HOLD;
	int n = read_segments(payload, room, h->length, from);

	if (unlikely(n < 0))
		return LOCAL_REQUEST_REFUSED;
	if (unlikely(world_head_bytes(lq)))
		return execute_by_head(lq, h, payload, from, n, held);
	const struct recv_wqe *wqe = local_take_receive(lq, &buffer);

	if (unlikely(!wqe))
		return local_wait_for_receive(lq, h, payload, n * sizeof(from[0]), held);
	if (unlikely(h->length > wqe->length))
		return local_message_too_long(lq, wqe, h);
	if (!local_fetches(lq, h))
		return ask_for_data(lq, h, held, wqe);
	return fetch_message(lq, h, from, n, wqe, held);
}

/* The sender has given the message up (UC), so its data won't come: the receive stays for the next
 * message. */
void local_take_gone(struct local_qp *lq, const struct ring_header *h)
{
	struct local_held *held = local_oldest_held(lq);

	if (lq->type != IBV_QPT_UC || lq->responder != LOCAL_WAIT_DATA ||
	    held->header.msn != h->msn)
		return;
	world_receive_back(lq, &lq->taken.wqe);
	local_wait_ends(lq);
	local_request_done(lq);
	local_release_held(lq, held);
	local_execute_held(lq);
}

/* The first piece of a message that chooses the receive by it. False: there is no receive, and the
 * message waits, or the QP has failed. */
static bool take_by_first_piece(struct local_qp *lq, struct local_held *held,
				const uint8_t *payload, uint32_t length)
{
	struct receive buffer;
	const struct recv_wqe *wqe = local_take_by_payload(lq, &buffer, payload, length);

	lq->untaken = false;
	if (!wqe) {
		if (local_wait_for_receive(lq, &held->header, NULL, 0, held) ==
		    LOCAL_REQUEST_REFUSED)
			local_drop_held(lq);
		return false;
	}
	if (held->header.length <= wqe->length) {
		keep_receive(lq, wqe);
		return true;
	}
	lq->responder = LOCAL_HALTED; /* the receive completes with an error below */
	local_message_too_long(lq, wqe, &held->header);
	return false;
}

/* A piece of the data that ask_for_data() asked for. */
void local_take_send_data(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			  uint32_t room)
{
	struct local_held *held = local_oldest_held(lq);

	/* The rest of what was sent before the message had no receive: its sender waits for that
	 * from now on, and sends it again when it is asked to. */
	if (unlikely(lq->responder == LOCAL_WAIT_RECEIVE && h->flags & REC_LAST) && held &&
	    held->header.msn == h->msn)
		local_answer(lq, REC_RNR, h->msn, 0);
	if (lq->responder != LOCAL_WAIT_DATA || held->header.msn != h->msn ||
	    h->imm != lq->stream_done || h->length > room ||
	    h->length > held->header.length - lq->stream_done)
		return;
	if (unlikely(lq->untaken) && !take_by_first_piece(lq, held, payload, h->length))
		return;
	if (!local_place_payload(lq, &lq->taken.wqe, h->imm, payload, h->length)) {
		lq->responder = LOCAL_HALTED; /* the receive completes with an error below */
		local_fail_receive(lq, &lq->taken.wqe, &held->header, IBV_WC_LOC_PROT_ERR,
				   IBV_WC_REM_OP_ERR);
		return;
	}
	lq->stream_done += h->length;
	if (lq->stream_done < held->header.length)
		return;
	lq->responder = LOCAL_OPEN;
	if (local_message_received(lq, &lq->taken.wqe, &held->header) == LOCAL_REQUEST_REFUSED)
		return; /* the QP has failed, and what was held is gone */
	local_release_held(lq, held);
	local_execute_held(lq);
}
