/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executing a datagram at its QP. A datagram that doesn't fit (another Q_Key, no receive, longer
 * than the next receive) is dropped, and leaves the QP and its receives as they were: any process
 * that knows the Q_Key may send one, so it must not be able to stop the QP (docs/behaviour.md).
 * Only a receive whose own memory isn't valid fails, and the QP with it: that is the receiving
 * program's error. No state.
 */
#include <string.h>

#include "base/log.h"
#include "fabric/port_info.h"
#include "hca/exec/execute.h"
#include "hca/fabric/membership.h"
#include "hca/mem/copy.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"
#include "wire/grh.h"
#include "wire/ip.h"
#include "wire/packet.h"

/* Writes the IP header of the packet that the datagram came in, or would have come in. */
static void make_grh(struct ibv_grh *grh, const struct record_ud *ud, const struct arrival *arrival)
{
	const struct ip_fields ip = {
		.source = ud->sgid,
		.destination = ud->dgid,
		.flow_label = ud->flow_label,
		.traffic_class = ud->traffic_class,
		.hop_limit = ud->hop_limit,
	};
	uint8_t opcode = PACKET_UD | (arrival->has_imm ? OP_SEND_ONLY_IMM : OP_SEND_ONLY);

	_Static_assert(sizeof(*grh) == GRH_SIZE, "the program's GRH");
	grh_write((uint8_t *)grh, &ip,
		  packet_headers_size(opcode) + arrival->length + packet_padding(arrival->length) +
			  WIRE_ICRC);
}

/*
 * The service level in a receive's completion. RoCE has none; mlx5's adapters put the packet's type
 * there, and a program that doesn't find it takes an IPv4 header for an IPv6 one
 * (docs/behaviour.md). Bit 3: there is a UDP header (RoCE v2); bits 0 to 2: the IP header.
 */
enum packet_type { PACKET_TYPE_IPV6 = 8 | 1, PACKET_TYPE_IPV4 = 8 | 2 };

static enum packet_type datagram_packet_type(const struct record_ud *ud)
{
	return ip_is_v4(ud->dgid) ? PACKET_TYPE_IPV4 : PACKET_TYPE_IPV6;
}

/* What a completion says of a packet of the fabric. */
static void complete_on_fabric(const struct qp *qp, const struct record_ud *ud, struct cqe *cqe)
	REQUIRES(qp->lock)
{
	const struct node *node = qp->hca->membership->node;
	uint32_t row = node_port_row(node, qp->attr.port_num);

	if (!(ud->lid_flags & RECORD_UD_GRH))
		cqe->wc_flags &= (uint8_t)~IBV_WC_GRH;
	cqe->sl = ud->sl & 15;
	cqe->slid = ud->slid;
	if (row != FABRIC_NONE)
		cqe->path_bits = ud->lid_flags & ((1u << port_lmc(&node->tables.ports[row])) - 1);
}

static void datagram_complete(struct qp *qp, const struct recv_wqe *wqe, const struct record_ud *ud,
			      const struct arrival *arrival, enum ibv_wc_status status)
	REQUIRES(qp->lock)
{
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = arrival->length + sizeof(struct ibv_grh),
		.imm = arrival->imm,
		.qp_num = qp->ibv.qp_num,
		.src_qp = arrival->src_qpn,
		.wc_flags = IBV_WC_GRH | (arrival->has_imm ? IBV_WC_WITH_IMM : 0),
		.sl = datagram_packet_type(ud),
		.places = qp->receives,
	};

	if (unlikely(qp->hca->membership != NULL))
		complete_on_fabric(qp, ud, &cqe);

	if (status != IBV_WC_SUCCESS)
		say_receive_failed(qp, wqe->wr_id, status);
	cq_push(qp->recv_cq, &cqe, arrival->solicited || status != IBV_WC_SUCCESS);
	if (status != IBV_WC_SUCCESS)
		qp_fail(qp, -1);
}

static bool datagram_place(struct qp *qp, const struct recv_wqe *wqe, const struct record_ud *ud,
			   const struct arrival *arrival, const uint8_t *payload)
{
	HAZARD_SCOPE(holds, qp);
	struct iovec local[LIMIT_SGE];
	struct ibv_grh grh;
	int count =
		receive_segments(qp, wqe, (uint32_t)sizeof(grh) + arrival->length, local, &holds);

	/* Without a GRH the bytes stay as they are. */
	if (unlikely(qp->hca->membership && !(ud->lid_flags & RECORD_UD_GRH)))
		return count >= 0 &&
		       copy_scatter(local, count, sizeof(grh), payload, arrival->length);
	make_grh(&grh, ud, arrival);
	return count >= 0 && copy_scatter(local, count, 0, &grh, sizeof(grh)) &&
	       copy_scatter(local, count, sizeof(grh), payload, arrival->length);
}

/* Whether the packet's P_Key matches the QP's. */
static bool datagram_pkey_fits(const struct qp *qp, const struct record_ud *ud) REQUIRES(qp->lock)
{
	uint16_t own;

	return !node_query_pkey(qp->hca->membership->node, qp->attr.port_num, qp->attr.pkey_index,
				&own) &&
	       pkeys_match(own, ud->pkey);
}

enum datagram_fate datagram_admit(const struct qp *qp, const struct record_ud *ud,
				  const struct arrival *arrival)
{
	bool takes = qp->type == (arrival->is_frame ? IBV_QPT_RAW_PACKET : IBV_QPT_UD);

	if (!takes || !execute_receiving(qp))
		return DATAGRAM_STATE;
	if (arrival->is_frame)
		return DATAGRAM_TAKEN;
	if (unlikely(qp->hca->membership != NULL) && !datagram_pkey_fits(qp, ud))
		return DATAGRAM_PKEY;
	if (likely(ud->qkey == qp->attr.qkey))
		return DATAGRAM_TAKEN;
	log_info("QP 0x%x: datagram from QP 0x%x has another Q_Key, dropped", qp->ibv.qp_num,
		 arrival->src_qpn);
	return DATAGRAM_QKEY;
}

enum datagram_fate datagram_execute(struct qp *qp, const struct record_ud *ud,
				    const struct arrival *arrival, const uint8_t *payload)
{
	struct receive buffer;

	enum datagram_fate fate = datagram_admit(qp, ud, arrival);

	if (unlikely(fate != DATAGRAM_TAKEN))
		return fate;
	if (arrival->is_frame)
		return frame_execute(qp, arrival, payload);
	const struct recv_wqe *wqe;
	uint32_t needed = arrival->length + sizeof(struct ibv_grh);

	switch (receive_take_fitting(qp, &buffer, needed, &wqe)) {
	case RECEIVE_NONE:
		return DATAGRAM_NO_RECEIVE;
	case RECEIVE_TOO_SHORT:
		log_info("QP 0x%x: datagram from QP 0x%x of %u bytes, 40 of them for its header, "
			 "is longer than the next receive, dropped",
			 qp->ibv.qp_num, arrival->src_qpn, needed);
		return DATAGRAM_TOO_LONG;
	default:
		break;
	}
	bool placed = datagram_place(qp, wqe, ud, arrival, payload);

	datagram_complete(qp, wqe, ud, arrival, placed ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
	return DATAGRAM_TAKEN;
}
