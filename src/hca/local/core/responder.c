/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's responder: what arriving requests mean. They are executed in order; one that
 * can't be executed yet (no receive, data on the way, ring full) waits with its QP, and those after
 * it behind it, so that other QPs of the link go on. See the states in local_qp.h.
 *
 * Bounded memory. What waits is held in LOCAL_HELD_BYTES at most, and only if the world has
 * storage. The oldest message has a place of its own (struct local_first) unless it brings more
 * than LOCAL_FIRST_BYTES of payload. Beyond that, messages of RC stay with their sender: `flow`
 * becomes REFUSES, what arrives isn't numbered, and AGAIN asks for request `arrived_msn` and all
 * after it as soon as the messages that wait have been executed, or after ASK_NS. The sender's view
 * of a receive that is missing (RNR, its retries and their time) is the same wherever the message
 * waits.
 *
 * Order. A message that is lost with its sender (its QP ended, its process died, its memory can't
 * be had) halts the responder: nothing that the same sender sent after it is executed.
 */
#include <errno.h>
#include <string.h>

#include "base/wc_status.h"
#include "hca/local/core/state.h"
#include "transport/transport.h"

/* How long a refused request waits at its sender, if nothing else says earlier that there is room.
 */
#define ASK_NS 5000000ull

enum outcome {
	DONE,
	HOLD,	/* it waits: here, or at its sender */
	REFUSED /* nothing after it is executed; or nonsense */
};

/* ------------------------------------------------------------------ answers */

static void answer(struct local_qp *lq, enum record_kind kind, uint32_t msn, uint32_t imm)
{
	struct ring_header h = {0};

	local_fill_record(lq, &h, kind, 0, lq->sender_epoch);
	h.msn = msn;
	h.imm = imm;
	h.length = lq->attr->min_rnr_timer & 31;
	world_ring_control(lq, &h, NULL, 0);
}

/* The last word on request `msn`: whatever follows it never executes. */
static void nak(struct local_qp *lq, uint32_t msn, enum ibv_wc_status status)
{
	lq->responder = LOCAL_HALTED;
	answer(lq, REC_NAK, msn, status);
}

static enum outcome request_done(struct local_qp *lq)
{
	lq->done_msn++;
	world_owe_ack(lq);
	return DONE;
}

/* Refuses request `msn`; an unreliable QP says nothing, the request counts as done. */
static enum outcome refuse_request(struct local_qp *lq, uint32_t msn, enum ibv_wc_status status,
				   int event)
{
	world_log(lq, "request refused: %s", wc_status_text(status));
	if (lq->type != IBV_QPT_RC)
		return request_done(lq);
	nak(lq, msn, status);
	world_fail(lq, event);
	return REFUSED;
}

/* Refuses what world_own_region() didn't resolve. A QP that isn't set up for the operation calls
 * the request invalid (9.7.4.1.5), a key that doesn't grant it is an access error. */
static enum outcome refuse_access(struct local_qp *lq, const struct ring_header *h, uint32_t access)
{
	if (local_qp_rights(lq) & access)
		return refuse_request(lq, h->msn, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	return refuse_request(lq, h->msn, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

/* ------------------------------------------------------------------ receives */

static void complete_receive(struct local_qp *lq, const struct recv_wqe *wqe,
			     const struct ring_header *h, enum ibv_wc_status status)
{
	const struct arrival arrival = {
		.length = h->length,
		.imm = h->imm,
		.src_qpn = record_qpn(h->src),
		.has_imm = h->flags & REC_IMM,
		.solicited = h->flags & REC_SOLICITED,
		.is_write = h->kind == REC_WRITE_IMM || h->kind == REC_WRITE_DATA,
	};

	world_receive_complete(lq, wqe, &arrival, status);
}

/* A message met a receive that can't hold it. */
static enum outcome fail_receive(struct local_qp *lq, const struct recv_wqe *wqe,
				 const struct ring_header *h, enum ibv_wc_status here,
				 enum ibv_wc_status there)
{
	world_log(lq, "a message of %u bytes can't be received (%s; the receive has %u bytes)",
		  h->length, wc_status_text(here), wqe->length);
	complete_receive(lq, wqe, h, here);
	if (lq->type == IBV_QPT_RC)
		nak(lq, h->msn, there);
	else
		world_owe_ack(lq);
	world_fail(lq, -1);
	return REFUSED;
}

/* A message is longer than its receive. A connected, reliable one fails both QPs; an unreliable one
 * is dropped, and the receive stays for the next one (docs/behaviour.md). */
static enum outcome too_long(struct local_qp *lq, const struct recv_wqe *wqe,
			     const struct ring_header *h)
{
	if (lq->type == IBV_QPT_RC)
		return fail_receive(lq, wqe, h, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	world_log(lq, "a message of %u bytes is longer than its receive (%u), dropped", h->length,
		  wqe->length);
	world_receive_back(lq, wqe);
	return request_done(lq);
}

/* ------------------------------------------------------------------ holding */

static struct local_held *oldest_held(const struct local_qp *lq)
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

/* No room for request `h`, which is the next one: it stays with its sender (RC), or is lost (UC).
 */
static void keep_out(struct local_qp *lq)
{
	lq->flow = lq->type == IBV_QPT_RC ? LOCAL_REFUSES : LOCAL_LOSES;
	if (lq->flow == LOCAL_LOSES) {
		lq->lost++;
		return;
	}
	lq->arrived_msn--;
	lq->ask_at = 0;
	world_watch_receive(lq);
}

/* Keeps request `h` until it can be executed. NULL: there is no room, it is kept out. */
static struct local_held *hold(struct local_qp *lq, const struct ring_header *h,
			       const uint8_t *payload, uint32_t size)
{
	struct local_held *held = find_storage(lq, size);

	if (!held) {
		keep_out(lq);
		return NULL;
	}
	memcpy(&held->header, h, sizeof(*h));
	if (size)
		memcpy(held->payload, payload, size);
	held->size = size;
	list_add_tail(&lq->held, &held->node);
	return held;
}

static void release(struct local_qp *lq, struct local_held *held)
{
	list_del(&held->node);
	if (is_first(lq, held))
		return;
	lq->held_bytes -= held_size(held->size);
	world_release(lq, held);
}

static bool waits(const struct local_qp *lq)
{
	return lq->responder == LOCAL_WAIT_RECEIVE || lq->responder == LOCAL_WAIT_DATA ||
	       lq->responder == LOCAL_WAIT_ROOM;
}

/* What waited goes on. */
static void wait_ends(struct local_qp *lq)
{
	if (lq->responder == LOCAL_WAIT_RECEIVE)
		world_receive_wait(lq, false);
	if (waits(lq))
		lq->responder = LOCAL_OPEN;
	lq->rnr_deadline = 0;
}

void local_drop_held(struct local_qp *lq)
{
	struct local_held *held;

	if (lq->responder == LOCAL_WAIT_DATA)
		world_receive_back(lq, &lq->taken.wqe);
	wait_ends(lq);
	lq->responder = LOCAL_HALTED;
	lq->flow = LOCAL_TAKES;
	while ((held = oldest_held(lq)))
		release(lq, held);
}

/*
 * Whether the life of the peer's QP that sent what waits is there and sends. Else its program has
 * been told that the message isn't sent, and its memory may hold anything.
 */
static bool sender_there(struct local_qp *lq)
{
	if (!local_link_up(lq))
		return false;
	uint64_t word = world_peer_word(lq);
	uint32_t state = pub_qp_state(word);

	return (uint8_t)pub_qp_epoch(word) == lq->sender_epoch &&
	       (state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

/* No receive for request `h`, held already, or not yet. */
static enum outcome no_receive(struct local_qp *lq, const struct ring_header *h,
			       const uint8_t *payload, uint32_t size, struct local_held *held)
{
	bool waited = lq->responder == LOCAL_WAIT_RECEIVE;

	if (lq->type != IBV_QPT_RC)
		return request_done(lq); /* lost, as an unreliable message may be */
	if (h->flags >> REC_RNR_SHIFT == 0) {
		nak(lq, h->msn, IBV_WC_RNR_RETRY_EXC_ERR);
		return REFUSED;
	}
	if (held && waited)
		return HOLD;
	lq->responder = LOCAL_WAIT_RECEIVE;
	if (!held)
		hold(lq, h, payload, size);
	answer(lq, REC_RNR, h->msn, 0);
	if (waited)
		return HOLD;			/* at its sender; its time goes on */
	lq->first.held.header.flags = h->flags; /* its retries, wherever it waits */
	lq->rnr_deadline = 0;
	world_count(lq, PUB_LOCAL_RNR_WAITS);
	world_watch_receive(lq);
	return HOLD;
}

/* The next receive. NULL: none, and RC is told when one is posted. */
static const struct recv_wqe *next_receive(struct local_qp *lq, struct receive *room)
{
	const struct recv_wqe *wqe = world_receive_take(lq, room);

	if (likely(wqe || lq->type != IBV_QPT_RC))
		return wqe;
	world_receive_wait(lq, true);
	wqe = world_receive_take(lq, room);
	if (wqe)
		world_receive_wait(lq, false);
	return wqe;
}

/* ------------------------------------------------------------------ SEND */

static bool place_payload(struct local_qp *lq, const struct recv_wqe *wqe, uint32_t offset,
			  const uint8_t *payload, uint32_t length)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_receive_segments(lq, wqe, local);

	return likely(count >= 0) && world_scatter(lq, local, count, offset, payload, length);
}

static enum outcome execute_send(struct local_qp *lq, const struct ring_header *h,
				 const uint8_t *payload, uint32_t room, struct local_held *held)
{
	struct receive buffer;

	if (unlikely(h->length > room))
		return REFUSED;
	const struct recv_wqe *wqe = next_receive(lq, &buffer);

	if (unlikely(!wqe))
		return no_receive(lq, h, payload, h->length, held);
	if (unlikely(h->length > wqe->length))
		return too_long(lq, wqe, h);
	if (unlikely(!place_payload(lq, wqe, 0, payload, h->length)))
		return fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	complete_receive(lq, wqe, h, IBV_WC_SUCCESS);
	return request_done(lq);
}

static enum outcome execute_write_imm(struct local_qp *lq, const struct ring_header *h,
				      struct local_held *held)
{
	struct receive buffer;
	const struct recv_wqe *wqe = next_receive(lq, &buffer);

	if (unlikely(!wqe))
		return no_receive(lq, h, NULL, 0, held);
	complete_receive(lq, wqe, h, IBV_WC_SUCCESS);
	return request_done(lq);
}

/* ------------------------------------------------------------------ SEND by reference */

/* The sender's segments as it named them, checked: their number, or -1 when they aren't `length`
 * bytes. */
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

/* Of `list`, the `length` bytes from *at and *done (within segment *at) on. Both advance. */
static int slice(const struct iovec *list, int count, int *at, size_t *done, size_t length,
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
	FETCH_GONE,	/* the sender's process */
	FETCH_IMPORTED, /* it is a third process's: only the sender can read it */
};

/* Segments of one key, in one copy. The hazard is set for the key; so the key is looked up now. */
static enum fetch fetch_region(struct local_qp *lq, const struct record_segment *from, int n,
			       const struct iovec *local, int count, size_t length)
{
	struct iovec remote[LIMIT_SGE];
	struct mr_view view;

	if (!world_peer_region(lq, from->lkey + 1, &view))
		return FETCH_REVOKED;
	if (view.access & PUB_MR_FOREIGN)
		return FETCH_IMPORTED;
	if (view.pd != world_peer_pd(lq))
		return FETCH_REVOKED;
	for (int i = 0; i < n; i++) {
		if (!mr_covers(&view, from[i].addr, from[i].length))
			return FETCH_REVOKED;
		remote[i] = (struct iovec){(void *)(uintptr_t)(from[i].addr + view.offset),
					   from[i].length};
	}
	int err = world_peer_fetch(lq, remote, n, local, count, length);

	return likely(!err) ? FETCHED : err == -ESRCH ? FETCH_GONE : FETCH_FAULT;
}

/* All segments, key by key: each key has a hazard while its bytes are copied, so that the sender's
 * deregistration waits for that. */
static enum fetch fetch_segments(struct local_qp *lq, const struct record_segment *from, int n,
				 const struct iovec *local, int count)
{
	struct iovec part[LIMIT_SGE];
	enum fetch result = FETCHED;
	size_t done = 0;
	int at = 0;

	for (int i = 0, same; i < n && result == FETCHED; i += same) {
		size_t length = from[i].length;

		for (same = 1; i + same < n && from[i + same].lkey == from[i].lkey; same++)
			length += from[i + same].length;
		int parts = slice(local, count, &at, &done, length, part);
		world_hazard *hazard = world_hazard_region_inner(lq, from[i].lkey + 1);

		result = fetch_region(lq, from + i, same, part, parts, length);
		world_hazard_clear(hazard);
	}
	return result;
}

/* Asks for the data to be streamed; the receive stays taken meanwhile. The names of the segments
 * aren't needed any more. */
static enum outcome ask_for_data(struct local_qp *lq, const struct ring_header *h,
				 struct local_held *held, const struct recv_wqe *wqe)
{
	if (wqe != &lq->taken.wqe)
		memcpy(&lq->taken, wqe, sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]));
	world_receive_keep(lq);
	if (!held)
		hold(lq, h, NULL, 0); /* the first one's place is free */
	wait_ends(lq);
	lq->responder = LOCAL_WAIT_DATA;
	lq->stream_done = 0;
	answer(lq, REC_PULL, h->msn, 0);
	return HOLD;
}

/* A message's bytes couldn't be fetched, or not before its sender flushed it: whose fault? */
static enum outcome fetch_failed(struct local_qp *lq, const struct ring_header *h,
				 const struct recv_wqe *wqe, const struct iovec *local, int count,
				 enum fetch result)
{
	bool gone = result == FETCH_GONE || !sender_there(lq);

	if (!gone && result == FETCH_FAULT && !world_reachable(local, count))
		return fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	world_receive_back(lq, wqe);
	if (gone) { /* it is lost, and so is what was sent after it */
		lq->responder = LOCAL_HALTED;
		return REFUSED;
	}
	world_log(lq, "the memory of a message from QP 0x%x isn't %s there any more",
		  record_qpn(h->src), result == FETCH_REVOKED ? "registered" : "mapped");
	if (lq->type != IBV_QPT_RC)
		return request_done(lq);
	nak(lq, h->msn, IBV_WC_LOC_PROT_ERR);
	return REFUSED;
}

/* Whether a message's bytes are fetched from the sender's memory, else it streams them. */
static bool fetches(struct local_qp *lq, const struct ring_header *h)
{
	return lq->self || (world_link_copies(lq) && !world_link_prefers_ring(lq, h->length));
}

static enum outcome fetch_message(struct local_qp *lq, const struct ring_header *h,
				  const struct record_segment *from, int n,
				  const struct recv_wqe *wqe, struct local_held *held)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_receive_segments(lq, wqe, local);

	if (unlikely(count < 0))
		return fail_receive(lq, wqe, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	/* The sender doesn't end its QP, and so gives no memory back, while this names it. Nothing
	 * of what is there afterwards may get into the receive, not even of a message that fails.
	 */
	world_hazard *hazard = world_hazard_qp(lq);
	enum fetch result =
		sender_there(lq) ? fetch_segments(lq, from, n, local, count) : FETCH_GONE;

	world_hazard_clear(hazard);
	if (unlikely(result == FETCH_IMPORTED))
		return ask_for_data(lq, h, held, wqe);
	if (unlikely(result != FETCHED || !sender_there(lq)))
		return fetch_failed(lq, h, wqe, local, count, result);
	complete_receive(lq, wqe, h, IBV_WC_SUCCESS);
	return request_done(lq);
}

static enum outcome execute_send_by_reference(struct local_qp *lq, const struct ring_header *h,
					      const uint8_t *payload, uint32_t room,
					      struct local_held *held)
{
	struct receive buffer;
	struct record_segment from[LIMIT_SGE];

	if (lq->responder == LOCAL_WAIT_DATA)
		return HOLD;
	int n = read_segments(payload, room, h->length, from);

	if (unlikely(n < 0))
		return REFUSED;
	const struct recv_wqe *wqe = next_receive(lq, &buffer);

	if (unlikely(!wqe))
		return no_receive(lq, h, payload, n * sizeof(from[0]), held);
	if (unlikely(h->length > wqe->length))
		return too_long(lq, wqe, h);
	if (!fetches(lq, h))
		return ask_for_data(lq, h, held, wqe);
	return fetch_message(lq, h, from, n, wqe, held);
}

/* A piece of what ask_for_data() asked for. */
static void on_send_data(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			 uint32_t room)
{
	struct local_held *held = oldest_held(lq);

	if (lq->responder != LOCAL_WAIT_DATA || held->header.msn != h->msn ||
	    h->imm != lq->stream_done || h->length > room ||
	    h->length > held->header.length - lq->stream_done)
		return;
	if (!place_payload(lq, &lq->taken.wqe, h->imm, payload, h->length)) {
		lq->responder = LOCAL_HALTED; /* the receive completes here */
		fail_receive(lq, &lq->taken.wqe, &held->header, IBV_WC_LOC_PROT_ERR,
			     IBV_WC_REM_OP_ERR);
		return;
	}
	lq->stream_done += h->length;
	if (lq->stream_done < held->header.length)
		return;
	complete_receive(lq, &lq->taken.wqe, &held->header, IBV_WC_SUCCESS);
	lq->responder = LOCAL_OPEN;
	request_done(lq);
	release(lq, held);
	local_execute_held(lq);
}

/* ------------------------------------------------------------------ one-sided, executed here */

/*
 * A piece of an RDMA WRITE. The first one is checked for the whole message, so that a refused one
 * leaves no trace; each is checked again, since the region may go meanwhile. The final byte of the
 * message is written last.
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

/* A piece that others follow: no request of its own. */
static void take_write_part(struct local_qp *lq, const struct ring_header *h,
			    const uint8_t *payload, uint32_t room)
{
	if (lq->write == LOCAL_WRITE_VOID)
		return;
	if (list_empty(&lq->held) && write_piece(lq, h, payload, room))
		return;
	if (lq->type == IBV_QPT_RC)
		refuse_access(lq, h, IBV_ACCESS_REMOTE_WRITE);
	else
		lq->write = LOCAL_WRITE_VOID; /* lost, with all that follows */
}

static enum outcome execute_write(struct local_qp *lq, const struct ring_header *h,
				  const uint8_t *payload, uint32_t room, struct local_held *held)
{
	bool written = lq->write != LOCAL_WRITE_VOID && write_piece(lq, h, payload, room);
	struct ring_header imm = *h;

	lq->write_done = 0;
	lq->write = LOCAL_WRITE_NONE;
	if (!written)
		return refuse_access(lq, h, IBV_ACCESS_REMOTE_WRITE);
	if (!(h->flags & REC_IMM))
		return request_done(lq);
	imm.kind = REC_WRITE_IMM; /* written: what is left is to wait for a receive */
	if (held)
		held->header = imm;
	return execute_write_imm(lq, &imm, held);
}

/* One piece of a READ's answer, `at` bytes into it. False: the memory isn't granted (any more), or
 * isn't mapped. *n: its bytes; 0: the ring has no room. */
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

/* Streams the answer; from stream_done on when the ring was full before. */
static enum outcome execute_read(struct local_qp *lq, const struct ring_header *h,
				 const uint8_t *payload, uint32_t room, struct local_held *held)
{
	struct record_remote r;
	uint32_t at = lq->responder == LOCAL_WAIT_ROOM ? lq->stream_done : 0, n;

	if (room < sizeof(r))
		return REFUSED;
	memcpy(&r, payload, sizeof(r));
	do {
		if (!answer_read_piece(lq, h, &r, at, &n))
			return refuse_access(lq, h, IBV_ACCESS_REMOTE_READ);
		if (n == UINT32_MAX) {
			if (!held)
				hold(lq, h, payload, sizeof(r)); /* the first one's place is free */
			lq->responder = LOCAL_WAIT_ROOM;
			lq->stream_done = at;
			world_ring_wait(lq);
			world_ring_notify(lq);
			return HOLD;
		}
		at += n;
	} while (at < h->length);
	world_ring_notify(lq);
	lq->done_msn++;
	return DONE;
}

static enum outcome execute_atomic(struct local_qp *lq, const struct ring_header *h,
				   const uint8_t *payload, uint32_t room)
{
	WORLD_MEMORY(memory, lq);
	struct record_atomic op;
	struct ring_header out = {0};
	uint64_t old;

	if (room < sizeof(op))
		return REFUSED;
	memcpy(&op, payload, sizeof(op));
	uint64_t at = world_own_region(lq, op.addr, 8, op.rkey, IBV_ACCESS_REMOTE_ATOMIC);

	if (!at)
		return refuse_access(lq, h, IBV_ACCESS_REMOTE_ATOMIC);
	if (at % 8)
		return refuse_request(lq, h->msn, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	if (!world_own_atomic(lq, at, &op, &old))
		return refuse_access(lq, h, IBV_ACCESS_REMOTE_ATOMIC);
	lq->done_msn++;
	local_fill_record(lq, &out, REC_ATOMIC_RESP, REC_LAST, lq->sender_epoch);
	out.msn = h->msn;
	out.length = sizeof(old);
	world_ring_control(lq, &out, &old, sizeof(old));
	return DONE;
}

/* ------------------------------------------------------------------ order */

static enum outcome execute(struct local_qp *lq, const struct ring_header *h,
			    const uint8_t *payload, uint32_t room, struct local_held *held)
{
	switch (h->kind) {
	case REC_SEND:
		return execute_send(lq, h, payload, room, held);
	case REC_SEND_REF:
		return execute_send_by_reference(lq, h, payload, room, held);
	case REC_WRITE_IMM:
		return execute_write_imm(lq, h, held);
	case REC_WRITE_DATA:
		return execute_write(lq, h, payload, room, held);
	case REC_READ_REQ:
		return execute_read(lq, h, payload, room, held);
	case REC_ATOMIC_REQ:
		return execute_atomic(lq, h, payload, room);
	default:
		return REFUSED;
	}
}

/* How much of a request's payload must be kept to execute it later; no more than it has, whatever
 * it claims. */
static uint32_t size_to_keep(const struct ring_header *h, uint32_t room)
{
	uint32_t size = room;

	switch (h->kind) {
	case REC_SEND:
		size = h->length;
		break;
	case REC_WRITE_IMM:
		size = 0;
		break;
	case REC_READ_REQ:
		size = sizeof(struct record_remote);
		break;
	case REC_ATOMIC_REQ:
		size = sizeof(struct record_atomic);
		break;
	default:
		break;
	}
	return size < room ? size : room;
}

/* Request arrived_msn: it is executed, or waits behind those that wait. */
static void take_next(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
		      uint32_t room)
{
	lq->arrived_msn++;
	if (unlikely(lq->flow != LOCAL_TAKES || !list_empty(&lq->held))) {
		if (lq->flow != LOCAL_TAKES)
			keep_out(lq);
		else
			hold(lq, h, payload, size_to_keep(h, room));
		return;
	}
	enum outcome outcome = execute(lq, h, payload, room, NULL);

	if (unlikely(outcome != HOLD && waits(lq)))
		wait_ends(lq); /* it had waited at its sender */
}

void local_take_request(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			uint32_t room)
{
	if (unlikely(!local_receiving(lq) || lq->responder == LOCAL_HALTED))
		return;
	if (unlikely(lq->state == IBV_QPS_RTR))
		world_established(lq);
	if (unlikely(h->kind == REC_SEND_DATA)) {
		on_send_data(lq, h, payload, room);
		return;
	}
	if (unlikely(h->msn != lq->arrived_msn))
		return; /* not the next one: what follows a refused one, or not an honest peer's */
	if (unlikely(record_epoch(h->src) != lq->sender_epoch)) {
		if (lq->arrived_msn || lq->write != LOCAL_WRITE_NONE)
			return; /* of another life than what came before it */
		lq->sender_epoch = record_epoch(h->src); /* answers go to the QP that asked */
	}
	if (h->kind == REC_WRITE_DATA && !(h->flags & REC_LAST))
		take_write_part(lq, h, payload, room);
	else
		take_next(lq, h, payload, room);
}

/* Nothing is held any more: what was lost behind it is over, what was refused is asked for. */
static void reopen(struct local_qp *lq)
{
	if (lq->flow == LOCAL_LOSES) {
		lq->done_msn += lq->lost;
		lq->lost = 0;
		lq->flow = LOCAL_TAKES;
		world_owe_ack(lq);
	} else if (lq->flow == LOCAL_REFUSES) {
		lq->flow = LOCAL_TAKES;
		answer(lq, REC_AGAIN, lq->arrived_msn, 0);
	}
}

void local_execute_held(struct local_qp *lq)
{
	struct local_held *held;

	if (unlikely((!list_empty(&lq->held) || lq->flow != LOCAL_TAKES) && !sender_there(lq)))
		local_drop_held(lq); /* lost, and nothing that was sent after it is executed */
	while ((held = oldest_held(lq))) {
		enum outcome outcome = execute(lq, &held->header, held->payload, held->size, held);

		if (outcome == HOLD)
			return;
		if (outcome == REFUSED) {
			local_drop_held(lq);
			return;
		}
		wait_ends(lq);
		release(lq, held);
	}
	reopen(lq);
}

/* ------------------------------------------------------------------ timers */

static bool rnr_expires(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	const struct local_held *held = oldest_held(lq);
	uint32_t flags = held ? held->header.flags : lq->first.held.header.flags;
	uint64_t retries = flags >> REC_RNR_SHIFT;

	if (!lq->rnr_deadline)
		lq->rnr_deadline = retries == 7
					   ? UINT64_MAX
					   : now + retries * tp_rnr_ns(lq->attr->min_rnr_timer);
	if (lq->rnr_deadline <= now) {
		nak(lq, held ? held->header.msn : lq->arrived_msn, IBV_WC_RNR_RETRY_EXC_ERR);
		local_drop_held(lq);
		return false;
	}
	if (lq->rnr_deadline < *next)
		*next = lq->rnr_deadline;
	return lq->rnr_deadline != UINT64_MAX;
}

/* Refused requests are asked for now and then, also if nothing is known to have changed: storage of
 * the link's or the user's may be free again. */
static bool asks_again(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	if (lq->ask_at && lq->ask_at <= now) {
		lq->ask_at = 0;
		if (list_empty(&lq->held))
			local_execute_held(lq);
		return lq->flow == LOCAL_REFUSES;
	}
	if (!lq->ask_at)
		lq->ask_at = now + ASK_NS;
	if (lq->ask_at < *next)
		*next = lq->ask_at;
	return true;
}

bool local_qp_expire_receive(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	bool runs = lq->responder == LOCAL_WAIT_RECEIVE && rnr_expires(lq, now, next);

	/* A receive that is posted asks for what waits for one. */
	if (lq->flow == LOCAL_REFUSES && lq->responder != LOCAL_WAIT_RECEIVE &&
	    list_empty(&lq->held) && asks_again(lq, now, next))
		runs = true;
	return runs;
}
