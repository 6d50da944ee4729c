/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of a QP on a fabric with link speed and contention. They are held back (pace.h) until
 * their last bit would be at the other end (fabric/transit.h):
 *   [sq.head, entered)     sent; each waits for its time, in `due`
 *   [entered, sq_end())    not sent, the first one perhaps in part
 * A QP that sends many pieces in a row, because this process is late, lets others have their turn
 * after some of them.
 */
#include <errno.h>
#include <stdlib.h>

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

int pace_timed_make(struct qp *qp)
{
	const struct membership *membership = qp->hca->membership;

	if (!membership || !membership->clocks.slow || !qp->cap.max_send_wr)
		return 0;
	struct pace *pace = calloc(1, sizeof(*pace));

	if (!pace)
		return ENOMEM;
	lock_assume_alone(&qp->lock);
	qp->pace = pace;
	pace->due = calloc(qp->sq.mask + 1, sizeof(*pace->due));
	pace->transit = transit_new(membership->node, &membership->clocks);
	if (pace->due && pace->transit)
		return 0;
	pace_free(pace);
	qp->pace = NULL;
	return ENOMEM;
}

void pace_free(struct pace *pace)
{
	if (!pace)
		return;
	free(pace->transit);
	free(pace->due);
	free(pace);
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

	switch (wqe->opcode) {
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		return (struct transit_load){0};
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		load.bytes += ADDRESS_OF_REQUEST;
		break;
	case IBV_WR_RDMA_READ:
		load.bytes = header + ADDRESS_OF_REQUEST;
		load.answer = message;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		load.bytes = header + ATOMIC_OF_REQUEST;
		load.answer = header + ATOMIC_OF_ANSWER;
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
				  &pace->due[pace->entered & qp->sq.mask]))
			continue;
		pace->entered++;
		if (pace->kbps)
			pace_charge(pace, now, wqe->length);
	}
}

void pace_timed_release(struct qp *qp, uint64_t now)
{
	struct pace *pace = qp->pace;

	if (!pace->is_busy)
		transit_begin(pace->transit, now);
	pace_send(qp, now);
	pace->is_busy = pace->entered != sq_end(&qp->sq);
	while (qp->sq.head != pace->entered && pace->due[qp->sq.head & qp->sq.mask] <= now) {
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

	if (qp->sq.head != pace->entered && pace->due[qp->sq.head & qp->sq.mask] < next)
		next = pace->due[qp->sq.head & qp->sq.mask];
	return next;
}
