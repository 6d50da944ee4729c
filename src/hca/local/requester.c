/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requester: what responses do to a QP's send queue, and its transport timer.
 *
 * The timer has no clock on the fast path: a scan remembers how far each QP was, and a QP that
 * made no progress between two scans began to stall at the first. Lack of progress for
 * timeout x (retries + 1) ends the QP with RETRY_EXC_ERR, as with a card; but a peer process that
 * merely waits for a processor would have been served by its card, so such a peer gets GRACE_NS.
 * A datagram to a process that doesn't read its ring is dropped after UNRELIABLE_NS; so is an
 * unreliable message by reference that nobody fetches.
 */
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/peer.h"
#include "hca/mem/copy.h"
#include "hca/mem/mr.h"
#include "hca/process/capture.h"
#include "hca/process/counters.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"

#define GRACE_NS 20000000000ull
#define DEAD_LIMIT_NS 2000000000ull
#define UNRELIABLE_NS 1000000000ull
#define SCAN_MIN_NS 1000000ull
#define SCAN_MAX_NS 250000000ull

/* ------------------------------------------------------------------ responses */

static void check_drained(struct qp *qp)
{
	if (unlikely(qp->state == IBV_QPS_SQD) && qp->sq.acked == qp->sq.next)
		qp_drained(qp);
}

void requester_ack(struct qp *qp, uint32_t ack)
{
	while (qp->sq.acked != qp->sq.next) {
		struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.acked);

		if ((int32_t)(wqe->msn - ack) >= 0)
			break;
		if (unlikely((wqe->flags & (SEND_READS | SEND_ANSWERED)) == SEND_READS))
			break; /* acknowledged without its data: not by an honest peer */
		qp->rnr_waiting = false;
		local_complete(qp, wqe, IBV_WC_SUCCESS);
	}
	if (unlikely(qp->sq.next != qp->sq.head))
		sq_run(qp);
	check_drained(qp);
}

/* The outstanding request with number `msn`, or NULL. Their numbers are consecutive. */
static struct send_wqe *find(struct qp *qp, uint32_t msn)
{
	if (qp->sq.acked == qp->sq.next)
		return NULL;
	uint32_t ahead = msn - sq_at(&qp->sq, qp->sq.acked)->msn;

	return ahead < qp->sq.next - qp->sq.acked ? sq_at(&qp->sq, qp->sq.acked + ahead) : NULL;
}

/* Request `msn`, after those before it have completed. NULL: it isn't outstanding, or one before it
 * still waits for its data; an honest peer answers in order. */
static struct send_wqe *in_turn(struct qp *qp, uint32_t msn)
{
	requester_ack(qp, msn);
	struct send_wqe *wqe = find(qp, msn);

	return wqe && wqe == sq_at(&qp->sq, qp->sq.acked) ? wqe : NULL;
}

static void on_nak(struct qp *qp, const struct ring_header *h)
{
	struct send_wqe *wqe = in_turn(qp, h->msn);

	if (!wqe)
		return;
	enum ibv_wc_status status = h->imm;

	qp->peer_rnr_timer = h->length & 31;
	if (status == IBV_WC_SUCCESS || status > IBV_WC_GENERAL_ERR)
		status = IBV_WC_REM_OP_ERR;
	local_complete(qp, wqe, qp->type == IBV_QPT_RC ? status : IBV_WC_SUCCESS);
}

/* The peer has no receive for the request, which waits there. */
static void on_rnr(struct qp *qp, const struct ring_header *h)
{
	struct send_wqe *wqe = find(qp, h->msn);

	qp->rnr_waiting = wqe != NULL;
	counters_rare(qp->hca, PUB_LOCAL_RNR_TOLD);
	qp->peer_rnr_timer = h->length & 31;
	if (wqe && capture_on(qp->hca))
		capture_show_rnr(qp, wqe,
				 qp->sq.acked + (h->msn - sq_at(&qp->sq, qp->sq.acked)->msn));
}

/* The memory of request `msn` was deregistered, or isn't mapped any more. */
static void fail_memory(struct qp *qp, uint32_t msn)
{
	struct send_wqe *wqe = in_turn(qp, msn);

	if (wqe)
		local_complete(qp, wqe, IBV_WC_LOC_PROT_ERR);
}

/* Streams what the responder can't copy from here itself; goes on when the ring has room. */
static void stream(struct qp *qp)
{
	struct iovec local[LIMIT_SGE];
	struct send_wqe *wqe = find(qp, qp->pull_msn);

	if (!wqe || !qp->pulled)
		return;
	int count = sq_segments(qp, wqe, 0, local);

	if (count < 0) {
		qp->pulled = false;
		fail_memory(qp, qp->pull_msn);
		return;
	}
	while (wqe->progress < wqe->length) {
		uint32_t left = wqe->length - wqe->progress;
		uint32_t n = left < RING_PAYLOAD_MAX ? left : RING_PAYLOAD_MAX;
		struct ring_header *h = link_begin(qp->link, n);

		if (!h) {
			link_wait(qp->link, qp);
			break;
		}
		local_record(qp, h, REC_SEND_DATA, n == left ? REC_LAST : 0);
		h->msn = qp->pull_msn;
		h->imm = wqe->progress;
		h->length = n;
		if (!copy_gather((uint8_t *)h + RING_HEADER, local, count, wqe->progress, n)) {
			link_abandon(qp->link, n);
			qp->pulled = false;
			fail_memory(qp, qp->pull_msn);
			return;
		}
		link_send(qp->link, h, n);
		wqe->progress += n;
	}
	qp->pulled = wqe->progress < wqe->length;
	link_notify(qp->link);
}

static void on_pull(struct qp *qp, const struct ring_header *h)
{
	struct send_wqe *wqe = find(qp, h->msn);

	if (!wqe || (wqe->opcode != IBV_WR_SEND && wqe->opcode != IBV_WR_SEND_WITH_IMM))
		return;
	qp->pull_msn = h->msn;
	qp->pulled = true;
	wqe->progress = 0;
	stream(qp);
}

/* Data of a READ or an atomic, into the request's segments. */
static void on_data(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
		    uint32_t room)
{
	struct iovec local[LIMIT_SGE];
	struct send_wqe *wqe = find(qp, h->msn);

	if (!wqe || !(wqe->flags & SEND_READS) || h->length > room || h->imm > wqe->length ||
	    h->length > wqe->length - h->imm)
		return;
	int count = sq_segments(qp, wqe, IBV_ACCESS_LOCAL_WRITE, local);

	if (count < 0 || !copy_scatter(local, count, h->imm, payload, h->length)) {
		fail_memory(qp, h->msn);
		return;
	}
	if (h->flags & REC_LAST) {
		wqe->flags |= SEND_ANSWERED;
		requester_ack(qp, h->msn + 1);
	}
}

void requester_response(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			uint32_t room)
{
	switch (h->kind) {
	case REC_ACK:
		break; /* its number has been looked at */
	case REC_NAK:
		on_nak(qp, h);
		break;
	case REC_RNR:
		on_rnr(qp, h);
		break;
	case REC_PULL:
		on_pull(qp, h);
		break;
	case REC_READ_DATA:
	case REC_ATOMIC_RESP:
		on_data(qp, h, payload, room);
		break;
	case REC_FATAL:
		if (h->imm == IBV_EVENT_QP_ACCESS_ERR || h->imm == IBV_EVENT_QP_REQ_ERR)
			qp_fail(qp, h->imm);
		break;
	default:
		break;
	}
}

/*
 * A peer that isn't in RTR yet waits for nothing, and finds this QP ready when it comes there. Both
 * sides publish their state, fence, and look at the other's: one of them sees the other at least.
 */
static bool peer_may_wait(const struct qp *qp)
{
	uint32_t state = pub_qp_state(pub_qp_read_state(qp->remote));

	return state >= IBV_QPS_RTR && state != IBV_QPS_ERR;
}

/* Tells the peer, once, that this QP is ready. */
static void kick(struct qp *qp)
{
	/* Not qp_record: the peer's epoch isn't known yet, so no ACK may ride on it. */
	struct ring_header h = {
		.kind = REC_KICK,
		.dst = record_address(qp->attr.dest_qp_num, 0),
		.src = record_address(qp->ibv.qp_num, qp->epoch),
	};

	qp->kick_pending = false;
	if (peer_may_wait(qp))
		link_control(qp->link, &h, NULL, 0);
}

void requester_resume(struct qp *qp)
{
	local_find_remote(qp);
	if (qp->kick_pending)
		kick(qp);
	if (qp->pulled)
		stream(qp);
}

/* ------------------------------------------------------------------ the timer */

/* A peer whose QP is there and whose process is neither stopped nor dead is only slow. */
static bool peer_starved(const struct qp *qp)
{
	if (!qp->link || !link_is(qp->link, LINK_UP) || !qp->remote || !qp->peer_ready)
		return false;
	uint64_t word = pub_qp_read_state(qp->remote);

	if ((uint8_t)pub_qp_epoch(word) != qp->remote_epoch || pub_qp_state(word) < IBV_QPS_RTR ||
	    pub_qp_state(word) == IBV_QPS_ERR)
		return false;
	char state = peer_state(qp->link->pid);

	return state == 'R' || state == 'S' || state == 'D';
}

static uint64_t timeout_ns(const struct qp *qp)
{
	if (qp->type != IBV_QPT_RC)
		return UNRELIABLE_NS;
	if (!qp->attr.timeout)
		return UINT64_MAX;
	return (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1);
}

static void give_up(struct qp *qp, const char *why)
{
	struct send_wqe *wqe = sq_at(&qp->sq, qp->sq.acked);

	log_info("QP 0x%x to QP 0x%x: no answer, %s", qp->ibv.qp_num, qp->attr.dest_qp_num, why);
	if (qp->type == IBV_QPT_RC) {
		local_complete(qp, wqe, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	while (qp->sq.acked != qp->sq.head)
		local_complete(qp, sq_at(&qp->sq, qp->sq.acked), IBV_WC_SUCCESS);
}

/* Why the peer's QP doesn't take our requests, for the log. */
static const char *not_ready_reason(const struct qp *qp)
{
	if (link_is(qp->link, LINK_DOWN))
		return "the peer's process has ended";
	if (!qp->remote)
		return "there is no process with that QP number";
	uint64_t word = pub_qp_read_state(qp->remote);

	if (!word)
		return "the peer's QP doesn't exist";
	if (pub_qp_state(word) < IBV_QPS_RTR || pub_qp_state(word) == IBV_QPS_ERR)
		return "the peer's QP isn't in a state to receive";
	if (pub_qp_type(word) != qp->type)
		return "the peer's QP is of another type";
	if (atomic_load_explicit(&qp->remote->peer, memory_order_relaxed) != qp->ibv.qp_num)
		return "the peer's QP is connected to another QP";
	if (!qp->peer_ready &&
	    atomic_load_explicit(&qp->remote->rq_psn, memory_order_relaxed) != qp->attr.sq_psn)
		return "our first PSN (sq_psn) isn't the one that the peer expects (rq_psn)";
	return "the peer's process doesn't run (stopped?)";
}

/*
 * Whether the time that passes counts against nobody: the daemon is introducing us (a card needs no
 * introduction), or the peer said that it has no receive and we retry for ever, as with a card even
 * when its program is stopped. With fewer retries the peer counts them, unless it can't.
 */
static bool excused(const struct qp *qp, uint64_t now)
{
	if (!qp->link || link_is(qp->link, LINK_DOWN))
		return false;
	if (qp->rnr_waiting && qp->attr.rnr_retry == 7)
		return true;
	return link_introducing(qp->link) && now < qp->grace_until;
}

bool local_expire(struct qp *qp, uint64_t now, uint64_t *next)
{
	/* In SQD what isn't started stays so: only what is on its way is waited for. */
	bool busy = qp->sq.acked != (qp->state == IBV_QPS_SQD ? qp->sq.next : qp->sq.head);
	bool alive = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;

	if (!busy || !alive)
		return false;
	bool dead = link_is(qp->link, LINK_DOWN);
	uint64_t limit = timeout_ns(qp);

	/* A card doesn't know that its peer died: the error comes when the QP's time is up, and a
	 * program that is about to leave too never sees it. But no request waits for ever. */
	if (dead && limit > DEAD_LIMIT_NS)
		limit = DEAD_LIMIT_NS;
	uint64_t look = limit / 4 < SCAN_MIN_NS	  ? SCAN_MIN_NS
			: limit / 4 > SCAN_MAX_NS ? SCAN_MAX_NS
						  : limit / 4;

	if (now + look < *next)
		*next = now + look;
	if (!qp_stalled_ns(qp, now)) {
		qp->grace_until = now + GRACE_NS;
		return true;
	}
	if (excused(qp, now))
		qp->stalled_since = now;
	if (limit == UINT64_MAX || now - qp->stalled_since < limit)
		return true;
	if (!dead && now < qp->grace_until && peer_starved(qp))
		return true;
	give_up(qp, not_ready_reason(qp));
	return false;
}
