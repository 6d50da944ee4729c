/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of a QP whose messages need time on a fabric. They are held back (pace.h) until their
 * last bit would be at the other end (fabric/transit.h):
 *   [sq.head, entered)     sent; each waits for its time, in `times`
 *   [entered, sq_end())    not sent, the first one perhaps in part
 * A QP that sends many pieces in a row, because this process is late, lets others have their turn
 * after some of them.
 *
 * On a fabric with link speed and contention each QP has this from the start. On others it begins
 * when the first request is about to start by a way that a fault makes slow (pace_timed_hold()),
 * and ends when no way does that any more (pace_timed_end()).
 */
#include <errno.h>
#include <stdlib.h>

#include "hca/engine/engine.h"
#include "hca/exec/datagram_fabric.h"
#include "hca/fabric/membership.h"
#include "hca/fabric/transit.h"
#include "hca/verbs/pace.h"

/* The pieces that one turn sends at most. A process that isn't late sends one. */
#define PIECES_AT_ONCE 16

/* Bytes of headers, and of what follows the payload. */
enum {
	LRH_BTH_ICRC_VCRC = 8 + 12 + 4 + 2,
	GRH_OF_PACKET = 40,
	DETH_OF_PACKET = 8,
	ADDRESS_OF_REQUEST = 16, /* RETH */
	ATOMIC_OF_REQUEST = 28,
	ATOMIC_OF_ANSWER = 12,
};

/* A completion that waits until its request's acknowledgement is back. */
struct late {
	struct cqe cqe;
	uint64_t at;
	bool solicited;
};

static void timed_free(struct pace *pace)
{
	transit_free(pace->transit);
	free(pace->times);
	free(pace->late);
	pace->transit = NULL;
	pace->times = NULL;
	pace->late = NULL;
	pace->late_count = 0;
}

/* Adds to the QP's limits the time that messages need. 0 or ENOMEM, and nothing has changed. */
static int timed_make(struct qp *qp) REQUIRES(qp->lock)
{
	const struct membership *membership = qp->hca->membership;
	struct pace *pace = qp->pace ? qp->pace : calloc(1, sizeof(*pace));

	if (!pace)
		return ENOMEM;
	pace->times = calloc(qp->sq.mask + 1, sizeof(*pace->times));
	pace->late = calloc(qp->sq.mask + 1, sizeof(*pace->late));
	pace->transit = transit_new(membership->node, &membership->clocks);
	if (pace->times && pace->late && pace->transit) {
		pace->entered = qp->sq.head;
		qp->pace = pace;
		return 0;
	}
	timed_free(pace);
	if (!qp->pace)
		free(pace);
	return ENOMEM;
}

int pace_timed_make(struct qp *qp)
{
	const struct membership *membership = qp->hca->membership;

	if (!membership || !membership->clocks.slow || membership->clocks.faults_only ||
	    !qp->cap.max_send_wr)
		return 0;
	lock_assume_alone(&qp->lock);
	return timed_make(qp);
}

void pace_free(struct pace *pace)
{
	if (!pace)
		return;
	timed_free(pace);
	free(pace);
}

bool pace_timed_hold(struct qp *qp)
{
	if (!qp->hca->membership->clocks.slow || (qp->pace && qp->pace->transit) || timed_make(qp))
		return false;
	qp->sq.held += qp->sq.head - qp->sq.next;
	qp->sq.head = qp->sq.next;
	qp->pace->entered = qp->sq.head;
	pace_hold(qp);
	return true;
}

void pace_timed_end(struct qp *qp)
{
	struct pace *pace = qp->pace;

	if (qp->sq.held || pace->late_count || transit_is_needed(pace->transit))
		return;
	timed_free(pace);
	if (pace->kbps)
		return;
	free(pace);
	qp->pace = NULL;
}

void pace_forget(struct qp *qp)
{
	if (!qp->pace->transit)
		return;
	transit_clear(qp->pace->transit);
	qp->pace->entered = qp->sq.head;
	qp->pace->is_busy = false;
}

/* ------------------------------------------------------------------ loads */

static struct transit_load datagram_load(const struct qp *qp, const struct send_wqe *wqe)
	REQUIRES(qp->lock)
{
	struct way_address to = datagram_way(qp, wqe);
	bool has_grh = wqe->ud.to.lid_flags & RECORD_UD_GRH;

	return (struct transit_load){
		.lid = to.lid,
		.port = to.port,
		.sl = to.sl,
		.pkey_index = to.pkey_index,
		.bytes = wqe->length + LRH_BTH_ICRC_VCRC + DETH_OF_PACKET +
			 (has_grh ? GRH_OF_PACKET : 0),
	};
}

static struct transit_load request_load(const struct qp *qp, const struct send_wqe *wqe)
	REQUIRES(qp->lock)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	uint32_t header = LRH_BTH_ICRC_VCRC + (ah->is_global ? GRH_OF_PACKET : 0);
	uint64_t message = (uint64_t)sq_packets(qp, wqe) * header + wqe->length;
	struct transit_load load = {
		.lid = ah->dlid,
		.port = ah->port_num,
		.sl = ah->sl & 15,
		.pkey_index = (uint8_t)qp->attr.pkey_index,
		.bytes = message,
	};

	load.is_acked = qp_is_reliable(qp);
	switch (wqe->opcode) {
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
	case WR_LACKED:
		return (struct transit_load){0};
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		load.bytes += ADDRESS_OF_REQUEST;
		break;
	case IBV_WR_RDMA_READ:
		load.bytes = header + ADDRESS_OF_REQUEST;
		load.answer = message;
		load.is_acked = false;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		load.bytes = header + ATOMIC_OF_REQUEST;
		load.answer = header + ATOMIC_OF_ANSWER;
		load.is_acked = false;
		break;
	default:
		break;
	}
	return load;
}

/* ------------------------------------------------------------------ releasing */

/* Sends what may be sent by now, as far as one turn goes. */
static void pace_send(struct qp *qp, uint64_t now) REQUIRES(qp->lock)
{
	struct pace *pace = qp->pace;

	for (int i = 0; i < PIECES_AT_ONCE; i++) {
		if (pace->entered == sq_end(&qp->sq) || pace_timed_next(qp) > now)
			return;
		const struct send_wqe *wqe = sq_at(&qp->sq, pace->entered);
		struct transit_load load =
			qp->type == IBV_QPT_UD ? datagram_load(qp, wqe) : request_load(qp, wqe);

		if (!transit_send(pace->transit, &load, now,
				  &pace->times[pace->entered & qp->sq.mask]))
			continue;
		pace->entered++;
		if (pace->kbps)
			pace_charge(pace, now, wqe->length);
	}
}

/* The first completion that waits comes. */
static void late_push(struct qp *qp) REQUIRES(qp->lock)
{
	struct pace *pace = qp->pace;
	const struct late *late = &pace->late[pace->late_first];

	cq_push(qp->send_cq, &late->cqe, late->solicited);
	pace->late_first = (pace->late_first + 1) & qp->sq.mask;
	pace->late_count--;
}

void pace_timed_complete(struct qp *qp, const struct send_wqe *wqe, const struct cqe *cqe,
			 bool solicited)
{
	struct pace *pace = qp->pace;
	size_t place =
		(size_t)((const uint8_t *)wqe - (const uint8_t *)qp->sq.wqes) / qp->sq.stride;
	uint64_t at = cqe->status == IBV_WC_SUCCESS ? pace->times[place].answered : 0;

	if (!pace->late_count && (!at || at <= now_ns())) {
		cq_push(qp->send_cq, cqe, solicited);
		return;
	}
	pace->late[(pace->late_first + pace->late_count++) & qp->sq.mask] =
		(struct late){*cqe, at, solicited};
	engine_watch_qp(qp);
	pace_note(qp->hca, pace->late[pace->late_first].at);
}

void pace_timed_drop(struct qp *qp)
{
	qp->pace->late_count = 0;
}

void pace_timed_release(struct qp *qp, uint64_t now)
{
	struct pace *pace = qp->pace;

	while (pace->late_count && pace->late[pace->late_first].at <= now)
		late_push(qp);
	if (!pace->is_busy)
		transit_begin(pace->transit, now);
	pace_send(qp, now);
	pace->is_busy = pace->entered != sq_end(&qp->sq);
	while (qp->sq.head != pace->entered && pace->times[qp->sq.head & qp->sq.mask].due <= now) {
		qp->sq.head++;
		qp->sq.held--;
	}
}

uint64_t pace_timed_next(const struct qp *qp)
{
	const struct pace *pace = qp->pace;
	uint64_t next = UINT64_MAX;

	if (pace->entered != sq_end(&qp->sq)) {
		next = transit_next(pace->transit);
		if (pace->kbps && pace->next > next)
			next = pace->next;
	}
	return next;
}

uint64_t pace_timed_due(const struct qp *qp)
{
	const struct pace *pace = qp->pace;
	uint64_t next = pace_timed_next(qp);

	if (qp->sq.head != pace->entered && pace->times[qp->sq.head & qp->sq.mask].due < next)
		next = pace->times[qp->sq.head & qp->sq.mask].due;
	if (pace->late_count && pace->late[pace->late_first].at < next)
		next = pace->late[pace->late_first].at;
	return next;
}
