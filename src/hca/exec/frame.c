/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executing a frame at its raw packet queue pair or work queue. A frame that finds no receive, or
 * is longer than the next one, is dropped, and the queue stays as it was, as with datagrams
 * (datagram.c). No state.
 */
#include <string.h>

#include "base/log.h"
#include "hca/exec/execute.h"
#include "hca/mem/copy.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"
#include "wire/ether.h"

enum { ADDRESSES = 12, TYPE_VLAN = 0x8100 };

/* The VLAN tag that is taken out of the frame, for a queue that asked for that. */
struct stripped {
	bool tag;
	uint16_t control;
};

static struct stripped frame_strip(const struct qp *qp, const struct arrival *arrival,
				   const uint8_t *frame)
{
	const uint8_t *at = frame + ADDRESSES;

	if (!atomic_load_explicit(&qp->strips_tag, memory_order_relaxed) ||
	    arrival->length < ETHER_HEADER + ETHER_TAG || (at[0] << 8 | at[1]) != TYPE_VLAN)
		return (struct stripped){0};
	return (struct stripped){true, (uint16_t)(at[2] << 8 | at[3])};
}

static bool frame_place(struct qp *qp, const struct recv_wqe *wqe, const struct stripped *stripped,
			const uint8_t *frame, uint32_t length)
{
	HAZARD_SCOPE(holds, qp);
	struct iovec local[LIMIT_SGE];
	int count = receive_segments(qp, wqe, length, local, &holds);
	uint32_t gap = stripped->tag ? ETHER_TAG : 0;

	return count >= 0 && copy_scatter(local, count, 0, frame, ADDRESSES) &&
	       copy_scatter(local, count, ADDRESSES, frame + ADDRESSES + gap, length - ADDRESSES);
}

enum datagram_fate frame_execute(struct qp *qp, const struct arrival *arrival, const uint8_t *frame)
{
	struct stripped stripped = frame_strip(qp, arrival, frame);
	uint32_t length = arrival->length - (stripped.tag ? ETHER_TAG : 0);
	const struct recv_wqe *wqe;
	struct receive buffer;

	switch (receive_take_fitting(qp, &buffer, length, &wqe)) {
	case RECEIVE_NONE:
		return DATAGRAM_NO_RECEIVE;
	case RECEIVE_TOO_SHORT:
		log_info("QP 0x%x: a frame of %u bytes is longer than the next receive, dropped",
			 qp->ibv.qp_num, length);
		return DATAGRAM_TOO_LONG;
	default:
		break;
	}
	bool placed = frame_place(qp, wqe, &stripped, frame, length);
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = placed ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR,
		.opcode = IBV_WC_RECV,
		.byte_len = length,
		.imm = arrival->tag,
		.qp_num = qp->ibv.qp_num,
		.src_qp = stripped.control,
		.wc_flags = ether_checksums_right(frame, arrival->length) ? IBV_WC_IP_CSUM_OK : 0,
		.is_frame = true,
		.places = qp->receives,
	};

	if (!placed)
		say_receive_failed(qp, wqe->wr_id, IBV_WC_LOC_PROT_ERR);
	cq_push(cq_of(qp->ibv.recv_cq), &cqe, !placed);
	if (!placed)
		qp_fail(qp, qp->wq ? IBV_EVENT_QP_FATAL : -1);
	return DATAGRAM_TAKEN;
}
