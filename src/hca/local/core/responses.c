/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's requester, second half: how responses change the send queue, and its
 * transport timer.
 *
 * The timer has no clock on the fast path: a scan remembers how far the QP was, and a QP that made
 * no progress between two scans began to stall at the first. Progress is a request that completes,
 * or a piece of one that the peer's engine made room for, or sent. Lack of progress for timeout x
 * (retries + 1) ends the QP with RETRY_EXC_ERR, as with an adapter. Three exceptions: what a peer
 * had taken before its process ended completes (local_qp_peer_ended()); a peer process
 * that only waits for a processor would have been served by its adapter, so it gets GRACE_NS; and
 * answers that a peer sent before its QP ended count, however late this side reads them
 * (answers_may_wait()). An unreliable message by reference that the peer doesn't fetch is given up
 * after UNRELIABLE_NS, unless the peer may still copy it (may_be_copied_yet()).
 */
#include "hca/local/core/state.h"

#define GRACE_NS 20000000000ull
#define DEAD_LIMIT_NS 2000000000ull
#define UNRELIABLE_NS 1000000000ull
#define SCAN_MIN_NS 1000000ull
#define ANSWERS_NS 20000000ull
#define SCAN_MAX_NS 250000000ull
/* No look for so long: this process was stopped. Several times SCAN_MAX_NS, since it may be slow.
 */
#define ABSENT_NS (4 * SCAN_MAX_NS)

/* ------------------------------------------------------------------ acknowledgements */

void local_qp_drain(struct local_qp *lq)
{
	bool begun = lq->sq->next != lq->sq->head && sq_at(lq->sq, lq->sq->next)->progress;

	/* A request that has begun is finished: pieces of a WRITE are in the ring, or its data is
	 * in place. */
	lq->resend_until = lq->sq->next + begun;
	local_check_drained(lq);
}

void local_take_ack(struct local_qp *lq, uint32_t ack)
{
	if (lq->type == IBV_QPT_UC && ack - lq->acked_msn <= (uint32_t)lq->next_msn - lq->acked_msn)
		lq->acked_msn = ack;
	while (lq->sq->acked != lq->sq->next) {
		struct send_wqe *wqe = sq_at(lq->sq, lq->sq->acked);

		if ((int32_t)(wqe->msn - ack) >= 0)
			break;
		if (unlikely((wqe->flags & (SEND_READS | SEND_ANSWERED)) == SEND_READS))
			break; /* acknowledged without its data, which no correct peer does */
		if (unlikely(lq->wait == LOCAL_RNR))
			lq->wait = LOCAL_RUNS;
		local_complete(lq, wqe, IBV_WC_SUCCESS);
	}
	local_run(lq);
}

bool local_qp_peer_ended(struct local_qp *lq)
{
	uint32_t before = lq->sq->acked;

	if (lq->type != IBV_QPT_RC || before == lq->sq->next)
		return false;
	uint64_t word = world_peer_taken(lq);

	/* It is of the two lives that these requests belong to, or says nothing of them. */
	if (word != pub_taken((uint32_t)word, lq->epoch, (uint8_t)lq->peer_epoch))
		return false;
	local_take_ack(lq, (uint32_t)word);
	return lq->sq->acked != before;
}

/* Finds the outstanding request with number `msn`: *place is its place in the send queue. The
 * numbers are consecutive. False: there is none. */
static bool find_place(const struct local_qp *lq, uint32_t msn, uint32_t *place)
{
	if (lq->sq->acked == lq->sq->next)
		return false;
	uint32_t ahead = msn - sq_at(lq->sq, lq->sq->acked)->msn;

	*place = lq->sq->acked + ahead;
	return ahead < lq->sq->next - lq->sq->acked;
}

static struct send_wqe *find_request(const struct local_qp *lq, uint32_t msn)
{
	uint32_t place;

	return find_place(lq, msn, &place) ? sq_at(lq->sq, place) : NULL;
}

/* Completes the requests before `msn` and returns request `msn`. NULL: it isn't outstanding, or one
 * before it still waits for its data (a correct peer answers in order). */
static struct send_wqe *request_in_turn(struct local_qp *lq, uint32_t msn)
{
	local_take_ack(lq, msn);
	struct send_wqe *wqe = find_request(lq, msn);

	return wqe && wqe == sq_at(lq->sq, lq->sq->acked) ? wqe : NULL;
}

/* The next request to send, if the peer has seen it: a WRITE of which only the first pieces are in
 * the ring, or a request that AGAIN asked for and that isn't sent again yet. NULL: it hasn't. */
static struct send_wqe *seen_by_peer(const struct local_qp *lq)
{
	if (lq->sq->acked != lq->sq->next || lq->sq->next == lq->sq->head)
		return NULL;
	struct send_wqe *wqe = sq_at(lq->sq, lq->sq->next);

	return wqe->flags & SEND_BEGUN ? wqe : NULL;
}

/* The peer refused request `msn`. */
static void on_nak(struct local_qp *lq, const struct ring_header *h)
{
	struct send_wqe *wqe = request_in_turn(lq, h->msn);

	if (!wqe && h->msn == (uint32_t)lq->next_msn)
		wqe = seen_by_peer(lq);
	if (!wqe)
		return;
	enum ibv_wc_status status = h->imm;

	lq->peer_rnr_timer = h->length & 31;
	if (status == IBV_WC_SUCCESS || status > IBV_WC_GENERAL_ERR)
		status = IBV_WC_REM_OP_ERR;
	local_complete(lq, wqe, local_reliable(lq) ? status : IBV_WC_SUCCESS);
}

/* RNR: the peer has no receive for the request, which waits there or here. */
static void on_rnr(struct local_qp *lq, const struct ring_header *h)
{
	world_count(lq, PUB_LOCAL_RNR_TOLD);
	lq->peer_rnr_timer = h->length & 31;
	/* The peer has executed all requests before it. One of them that is still outstanding has
	 * lost its answer with a link: the wait for a receive doesn't excuse the time of that. */
	struct send_wqe *wqe = request_in_turn(lq, h->msn);

	if (!wqe)
		return;
	if (lq->wait != LOCAL_STREAMS)
		lq->wait = LOCAL_RNR;
	if (world_captures(lq))
		world_capture_rnr(lq, wqe, lq->sq->acked);
}

static bool uses_receive(const struct send_wqe *wqe)
{
	return wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM ||
	       wqe->opcode == IBV_WR_SEND_WITH_INV || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The peer didn't take the request: puts it back into the state before it was sent. Data that a
 * WRITE has copied to the peer's memory already isn't copied again. */
static void take_back(struct local_qp *lq, struct send_wqe *wqe)
{
	local_uncount(lq, wqe);
	wqe->flags &= (uint16_t) ~(SEND_READS | SEND_BLOCKING | SEND_SETTLED | SEND_ANSWERED);
	lq->receives_used -= uses_receive(wqe);
	if (wqe->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || wqe->flags & SEND_BY_RING)
		wqe->progress = 0;
}

void local_take_back_from(struct local_qp *lq, uint32_t msn)
{
	uint32_t first;

	if (!find_place(lq, msn, &first))
		return;
	for (uint32_t place = first; place != lq->sq->next; place++)
		take_back(lq, sq_at(lq->sq, place));
	lq->sq->next = first;
	lq->next_msn -= (uint32_t)lq->next_msn - msn;
	if (lq->wait == LOCAL_RNR || (int32_t)(lq->pull_msn - msn) >= 0)
		lq->wait = LOCAL_RUNS;
}

/* AGAIN: the peer had no room for request `msn` and those after it, and has now: they are sent
 * again. */
static void on_again(struct local_qp *lq, const struct ring_header *h)
{
	if (!local_reliable(lq))
		return;
	local_take_back_from(lq, h->msn);
	local_run(lq);
}

/* ------------------------------------------------------------------ data */

/* The memory of request `msn` was deregistered, or isn't mapped any more: fails the request. */
static void fail_memory(struct local_qp *lq, uint32_t msn)
{
	struct send_wqe *wqe = request_in_turn(lq, msn);

	if (wqe)
		local_complete(lq, wqe, IBV_WC_LOC_PROT_ERR);
}

/* Puts one piece of the streamed message into the ring; looks its keys up anew. True: there may be
 * more to do. */
static bool stream_piece(struct local_qp *lq, struct send_wqe *wqe)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	uint32_t left = wqe->length - wqe->progress;
	uint32_t n = left < RING_PAYLOAD_MAX ? left : RING_PAYLOAD_MAX;
	struct ring_header *h = world_ring_reserve(lq, n);

	if (!h) {
		world_ring_wait(lq);
		return false;
	}
	int count = world_request_segments(lq, wqe, 0, local);

	if (count < 0 || !world_gather(lq, local_body(h), local, count, wqe->progress, n)) {
		world_ring_abandon(lq, n);
		lq->wait = LOCAL_RUNS;
		fail_memory(lq, lq->pull_msn);
		return false;
	}
	local_fill_record(lq, h, REC_SEND_DATA, n == left ? REC_LAST : 0, (uint8_t)lq->peer_epoch);
	h->msn = lq->pull_msn;
	h->imm = wqe->progress;
	h->length = n;
	world_ring_commit(lq, h, n);
	wqe->progress += n;
	lq->pieces++;
	if (n == left)
		lq->wait = LOCAL_RUNS;
	return n != left;
}

/* UC: the peer asks for the data of a message that was given up (local_give_up()). */
static void disown_message(struct local_qp *lq, uint32_t msn)
{
	struct ring_header h = {0};

	if (lq->type != IBV_QPT_UC || !local_link_up(lq))
		return;
	local_fill_record(lq, &h, REC_GONE, 0, (uint8_t)lq->peer_epoch);
	h.msn = msn;
	world_ring_control(lq, &h, NULL, 0);
}

void local_stream(struct local_qp *lq)
{
	struct send_wqe *wqe = find_request(lq, lq->pull_msn);

	if (!wqe) {
		lq->wait = LOCAL_RUNS;
		disown_message(lq, lq->pull_msn);
	} else {
		while (lq->wait == LOCAL_STREAMS && stream_piece(lq, wqe))
			;
	}
	if (local_link_up(lq))
		world_ring_notify(lq);
}

static void on_pull(struct local_qp *lq, const struct ring_header *h)
{
	struct send_wqe *wqe = find_request(lq, h->msn);

	if (!wqe)
		disown_message(lq, h->msn);
	if (!wqe || (wqe->opcode != IBV_WR_SEND && wqe->opcode != IBV_WR_SEND_WITH_IMM &&
		     wqe->opcode != IBV_WR_SEND_WITH_INV))
		return;
	lq->pull_msn = h->msn;
	lq->wait = LOCAL_STREAMS;
	wqe->progress = 0;
	local_stream(lq);
}

/* Copies bytes of a READ's or an atomic's answer into the request's segments, from `offset` on. */
static bool place_answer(struct local_qp *lq, const struct send_wqe *wqe, uint32_t offset,
			 const uint8_t *payload, uint32_t length)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_request_segments(lq, wqe, IBV_ACCESS_LOCAL_WRITE, local);

	return count >= 0 && world_scatter(lq, local, count, offset, payload, length);
}

static void on_data(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
		    uint32_t room)
{
	struct send_wqe *wqe = find_request(lq, h->msn);

	/* A piece before this one may be lost with a link: then the request gets no answer. */
	if (!wqe || (wqe->flags & (SEND_READS | SEND_ANSWERED)) != SEND_READS || h->length > room ||
	    h->imm != wqe->progress || h->length > wqe->length - wqe->progress)
		return;
	if (!place_answer(lq, wqe, h->imm, payload, h->length)) {
		fail_memory(lq, h->msn);
		return;
	}
	lq->pieces++;
	wqe->progress += h->length;
	if (h->flags & REC_LAST && wqe->progress == wqe->length) {
		wqe->flags |= SEND_ANSWERED;
		local_take_ack(lq, h->msn + 1);
	}
}

void local_take_response(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
			 uint32_t room)
{
	switch (h->kind) {
	case REC_NAK:
		on_nak(lq, h);
		break;
	case REC_RNR:
		on_rnr(lq, h);
		break;
	case REC_AGAIN:
		on_again(lq, h);
		break;
	case REC_PULL:
		on_pull(lq, h);
		break;
	case REC_READ_DATA:
	case REC_ATOMIC_RESP:
		on_data(lq, h, payload, room);
		break;
	case REC_GONE:
		local_take_gone(lq, h);
		break;
	case REC_FATAL:
		if (h->imm == IBV_EVENT_QP_ACCESS_ERR || h->imm == IBV_EVENT_QP_REQ_ERR)
			world_fail(lq, h->imm);
		break;
	default: /* ACK: its count has been handled already */
		break;
	}
}

/* ------------------------------------------------------------------ being ready */

/*
 * Announces this QP to the peer. A peer that isn't in RTR yet doesn't wait for the KICK: it finds
 * this QP ready when it gets there. Both sides publish their state and then read the other's, so at
 * least one of them sees the other ready.
 */
void local_kick(struct local_qp *lq)
{
	/* The peer's epoch isn't known yet, so the record carries no acknowledgement. */
	struct ring_header h = {
		.kind = REC_KICK,
		.dst = record_address(lq->attr->dest_qp_num, 0),
		.src = record_address(lq->qpn, lq->epoch),
	};

	lq->peer = LOCAL_PEER_TOLD;
	if (lq->type == IBV_QPT_XRC_SEND)
		return; /* the peer never waits for it */
	uint32_t state = pub_qp_state(world_peer_word(lq));

	if (state >= IBV_QPS_RTR && state != IBV_QPS_ERR)
		world_ring_control(lq, &h, NULL, 0);
}

/* ------------------------------------------------------------------ XRC */

/*
 * A process has ended, and its SRQs with it, but the target QP lives: it refuses the oldest request
 * that isn't answered, as it refuses those that come for a destroyed SRQ. The process may have
 * executed the request and ended before it answered; the requester can't know. False: nothing has
 * happened.
 */
bool local_refuse_missing(struct local_qp *lq, enum world_link link)
{
	if (lq->type != IBV_QPT_XRC_SEND || link != WORLD_LINK_DOWN ||
	    world_srq_look(lq) != WORLD_SRQ_MISSING)
		return false;
	local_complete(lq, sq_at(lq->sq, lq->sq->acked), IBV_WC_REM_ACCESS_ERR);
	return true;
}

/* ------------------------------------------------------------------ the timer */

/* Whether the peer's QP still exists, in the life that this QP sends to, and receives. */
static bool peer_lives(struct local_qp *lq)
{
	uint64_t word = world_peer_word(lq);

	return lq->peer == LOCAL_PEER_READY && pub_qp_epoch(word) == lq->peer_epoch &&
	       pub_qp_state(word) >= IBV_QPS_RTR && pub_qp_state(word) != IBV_QPS_ERR;
}

static uint64_t timeout_ns(const struct local_qp *lq)
{
	if (!local_reliable(lq))
		return UNRELIABLE_NS;
	if (!lq->attr->timeout)
		return UINT64_MAX;
	return (4096ull << lq->attr->timeout) * (lq->attr->retry_cnt + 1);
}

/* Why the peer's QP doesn't take our requests, for the log. */
static const char *not_ready_reason(struct local_qp *lq)
{
	enum world_link link = world_link(lq);

	if (link == WORLD_LINK_DOWN)
		return "the peer's process has ended, or has no link to this one";
	if (link == WORLD_LINK_COMING)
		return "no daemon has linked this process to the peer's in time";
	if (link == WORLD_LINK_UP && !world_link_taken(lq))
		return "the peer's process hasn't come to the link in time";
	uint64_t word = world_peer_word(lq);

	if (!word)
		return "the peer's QP doesn't exist";
	if (pub_qp_state(word) < IBV_QPS_RTR || pub_qp_state(word) == IBV_QPS_ERR)
		return "the peer's QP isn't in a state to receive";
	if (pub_qp_type(word) != local_peer_type(lq))
		return "the peer's QP is of another type";
	if (world_peer_partner(lq) != lq->qpn)
		return "the peer's QP is connected to another QP";
	if (lq->peer != LOCAL_PEER_READY && world_peer_rq_psn(lq) != lq->attr->sq_psn)
		return "our first PSN (sq_psn) isn't the one that the peer expects (rq_psn)";
	if (lq->peer != LOCAL_PEER_READY && local_being_sent(lq))
		return "the link to the peer's process was lost in the middle of an RDMA WRITE";
	return "the peer's process doesn't run (stopped?)";
}

/* Whether the oldest request that isn't answered is one that the fabric has lost. */
static bool oldest_is_lost(const struct local_qp *lq)
{
	return lq->unrouted && lq->sq->acked == lq->sq->next;
}

static void local_give_up(struct local_qp *lq)
{
	bool lost = oldest_is_lost(lq);
	char why[160];

	if (lost)
		world_route_explain(lq, why, sizeof(why));
	world_log(lq, "no answer from QP 0x%x: %s", lq->attr->dest_qp_num,
		  lost ? why : not_ready_reason(lq));
	if (local_reliable(lq)) {
		local_complete(lq, sq_at(lq->sq, lq->sq->acked), IBV_WC_RETRY_EXC_ERR);
		return;
	}
	/* In SQD requests that haven't started don't start. */
	uint32_t end = lq->state == IBV_QPS_SQD ? lq->resend_until : lq->sq->head;

	local_cut_write(lq);
	while (lq->sq->acked != end)
		local_complete(lq, sq_at(lq->sq, lq->sq->acked), IBV_WC_SUCCESS);
}

/*
 * Whether the time without progress isn't counted. Either the daemon, or the next one, is
 * introducing the two processes, or learns that an SRQ's has ended, which an adapter needn't wait
 * for, and one of them may have the link before the other; or the peer answered RNR, this QP
 * retries for ever, and the peer's QP still exists: the same as with an adapter, even while the
 * peer's program is stopped. With fewer retries the peer's own timer counts them, unless the peer
 * can't run.
 */
static bool time_excused(struct local_qp *lq, enum world_link link, uint64_t now)
{
	if (lq->type == IBV_QPT_XRC_SEND && now < lq->grace_until &&
	    world_srq_look(lq) == WORLD_SRQ_LEAVING)
		return true;
	if (link == WORLD_LINK_UP && world_link_taken(lq))
		return lq->wait == LOCAL_RNR && lq->attr->rnr_retry == 7 && peer_lives(lq);
	return link != WORLD_LINK_DOWN && now < lq->grace_until;
}

/* For how long (ns) requests may go without progress; lowers *next to when to look again. */
static uint64_t patience_ns(const struct local_qp *lq, enum world_link link, uint64_t now,
			    uint64_t *next)
{
	uint64_t limit = timeout_ns(lq);

	/* An adapter doesn't learn that its peer died: it reports the error when the QP's time is
	 * up, and a program that is about to exit, too, never sees it. But no request waits for
	 * ever. */
	if (link == WORLD_LINK_DOWN && limit > DEAD_LIMIT_NS)
		limit = DEAD_LIMIT_NS;
	uint64_t look = limit / 4 < SCAN_MIN_NS	  ? SCAN_MIN_NS
			: limit / 4 > SCAN_MAX_NS ? SCAN_MAX_NS
						  : limit / 4;

	if (now + look < *next)
		*next = now + look;
	return limit;
}

/*
 * Whether answers that the peer gave before its QP ended may still be unread. A QP that refused a
 * request is in ERR, and a QP whose program has finished is destroyed, while its answers are in
 * this side's ring, or about to come there because the ring was full. This side may be late to read
 * them, and then must not report the peer as silent. So it reads all that is in the ring by now,
 * and waits for ANSWERS_NS.
 */
static bool answers_may_wait(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	if (!lq->answers_since) {
		lq->answers_since = now;
		lq->answers_mark = world_ring_mark(lq);
	}
	if (now - lq->answers_since >= ANSWERS_NS && !world_ring_unread(lq, lq->answers_mark))
		return false;
	if (now + SCAN_MIN_NS < *next)
		*next = now + SCAN_MIN_NS;
	return true;
}

/* Whether the peer only waits for a processor, and has time left for that. */
static bool peer_is_slow(struct local_qp *lq, uint64_t now)
{
	return now < lq->grace_until && peer_lives(lq) && world_peer_runs(lq);
}

/*
 * Whether an unreliable message mustn't be given up, because the peer may still copy it: then the
 * program, which may use the memory once the message has completed, would have other bytes
 * delivered. A peer that doesn't run (it is stopped) may be about to copy, and so may one that
 * hasn't left a link which isn't up here any more. A reliable QP's error ends what the peer copies
 * (local_sender_there()).
 */
static bool may_be_copied_yet(struct local_qp *lq, enum world_link link)
{
	if (local_reliable(lq) || !world_peer_may_copy(lq))
		return false;
	return link != WORLD_LINK_UP || (peer_lives(lq) && !world_peer_runs(lq));
}

/* Takes the time out of account during which this process didn't look: it was stopped (job control
 * stops the peer as well), and the peer's answers, or its turn to go on, come first. */
static void excuse_own_absence(struct local_qp *lq, uint64_t now)
{
	uint64_t absent = now - lq->looked_at;

	if (unlikely(lq->stalled_since && absent > ABSENT_NS)) {
		lq->stalled_since += absent;
		lq->grace_until += absent;
	}
	lq->looked_at = now;
}

/*
 * Sends a request that the fabric has lost again, once each timeout, as an adapter does. False: the
 * timeout after the last retry is over. Retries are counted, since this process may look late, and
 * the fabric's manager isn't to be blamed for that. Each answer to an earlier request begins the
 * count anew, and while one is missing, it isn't this request that fails.
 */
static bool local_retry_lost(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	uint64_t period = lq->attr->timeout ? 4096ull << lq->attr->timeout : SCAN_MAX_NS;
	bool oldest = oldest_is_lost(lq);
	uint32_t progress = lq->sq->acked + lq->pieces;

	if (!lq->retry_at || lq->retry_place != lq->sq->next || lq->retry_progress != progress) {
		lq->retry_at = now + period;
		lq->retry_place = lq->sq->next;
		lq->retry_progress = progress;
		lq->retries = 0;
	}
	if (now >= lq->retry_at) {
		if (oldest && lq->retries == lq->attr->retry_cnt && lq->attr->timeout)
			return false;
		lq->retries += oldest;
		lq->retry_at = now + period;
		lq->unrouted = false;
		local_run(lq);
	}
	if (lq->unrouted && lq->retry_at < *next)
		*next = lq->retry_at;
	return true;
}

/* By another path the request has all its retries again. */
static bool local_migrate(struct local_qp *lq)
{
	if (!world_route_migrates(lq))
		return false;
	lq->retry_at = 0;
	lq->unrouted = false;
	local_run(lq);
	return true;
}

bool local_qp_expire(struct local_qp *lq, uint64_t now, uint64_t *next)
{
	/* In SQD requests that haven't started don't start: only those under way are waited for. */
	bool busy = lq->sq->acked != (lq->state == IBV_QPS_SQD ? lq->resend_until : lq->sq->head);
	enum world_link link = world_link(lq);

	if (!busy || local_waits_here(lq) ||
	    (lq->state != IBV_QPS_RTS && lq->state != IBV_QPS_SQD)) {
		lq->stalled_since = 0;
		lq->unrouted = false;
		return false;
	}
	if (lq->type == IBV_QPT_XRC_SEND && lq->sq->acked == lq->sq->next) {
		/* No record says that the target QP has become ready, or that the SRQ's process has
		 * the link. */
		local_run(lq);
		if (now + SCAN_MIN_NS < *next)
			*next = now + SCAN_MIN_NS;
	} else if (local_refuse_missing(lq, link)) {
		lq->stalled_since = 0;
		return false;
	} else if (lq->type == IBV_QPT_XRC_SEND && link == WORLD_LINK_DOWN &&
		   now + SCAN_MIN_NS < *next) {
		*next = now + SCAN_MIN_NS;
	}
	uint64_t limit = patience_ns(lq, link, now, next);

	excuse_own_absence(lq, now);
	if (unlikely(lq->unrouted) && link == WORLD_LINK_UP) {
		bool oldest = oldest_is_lost(lq);
		bool goes_on = local_retry_lost(lq, now, next) || local_migrate(lq);

		if (!goes_on)
			local_give_up(lq);
		if (oldest) {
			lq->stalled_since = 0;
			return goes_on;
		}
	}
	uint32_t progress = lq->sq->acked + lq->pieces;

	if (progress != lq->scan_progress || !lq->stalled_since) {
		lq->scan_progress = progress;
		lq->stalled_since = now;
		lq->grace_until = now + GRACE_NS;
		lq->answers_since = 0;
		return true;
	}
	if (time_excused(lq, link, now))
		lq->stalled_since = now;
	if (limit == UINT64_MAX || now - lq->stalled_since < limit)
		return true;
	/* peer_lives() is called before the look into the ring: the peer answers first, and ends
	 * then. */
	if (link == WORLD_LINK_UP && (peer_is_slow(lq, now) || answers_may_wait(lq, now, next)))
		return true;
	if (may_be_copied_yet(lq, link) || local_qp_peer_ended(lq)) {
		lq->stalled_since = now;
		lq->grace_until = now + GRACE_NS;
		return true;
	}
	local_give_up(lq);
	lq->stalled_since = 0;
	return false;
}
