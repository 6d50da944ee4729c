/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a datagram means at the QP that it is for. Whatever doesn't fit is dropped, as unreliable
 * messages may be; only a receive that can't take what it was posted for fails. No state.
 */
#include <string.h>

#include "base/log.h"
#include "hca/copy.h"
#include "hca/cq.h"
#include "hca/execute.h"

/* The 40 bytes before a datagram's payload, as RoCE v2 gives them: for IPv4 the IP header is in
 * the last 20 of them, for IPv6 all 40 are. */
static void make_grh(struct ibv_grh *grh, const struct record_ud *ud, uint32_t length)
{
	static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

	memset(grh, 0, sizeof(*grh));
	if (memcmp(ud->dgid, v4_prefix, sizeof(v4_prefix))) {
		grh->version_tclass_flow = htobe32(6u << 28 | (uint32_t)ud->traffic_class << 20 |
						   (ud->flow_label & 0xfffff));
		grh->paylen = htobe16(length + 12 + 8 + 4 + 8);
		grh->next_hdr = 17; /* UDP */
		grh->hop_limit = ud->hop_limit;
		memcpy(&grh->sgid, ud->sgid, 16);
		memcpy(&grh->dgid, ud->dgid, 16);
		return;
	}
	uint8_t *ip = (uint8_t *)grh + 20;
	uint16_t total = 20 + 8 + 12 + 8 + length + 4;

	ip[0] = 0x45;
	ip[1] = ud->traffic_class;
	ip[2] = total >> 8;
	ip[3] = total & 0xff;
	ip[6] = 0x40; /* don't fragment */
	ip[8] = ud->hop_limit;
	ip[9] = 17;
	memcpy(ip + 12, ud->sgid + 12, 4);
	memcpy(ip + 16, ud->dgid + 12, 4);
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	ip[10] = sum >> 8;
	ip[11] = sum;
}

static void complete(struct qp *qp, const struct recv_wqe *wqe, const struct arrival *arrival,
		     enum ibv_wc_status status)
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
	};

	cq_push(cq_of(qp->ibv.recv_cq), &cqe, arrival->solicited || status != IBV_WC_SUCCESS);
	if (status != IBV_WC_SUCCESS)
		qp_fail(qp, -1);
}

static bool place(struct qp *qp, const struct recv_wqe *wqe, const struct record_ud *ud,
		  const uint8_t *payload, uint32_t length)
{
	struct iovec local[LIMIT_SGE];
	struct ibv_grh grh;
	int count = receive_segments(qp, wqe, local);

	make_grh(&grh, ud, length);
	return count >= 0 && copy_scatter(local, count, 0, &grh, sizeof(grh)) &&
	       copy_scatter(local, count, sizeof(grh), payload, length);
}

void datagram_execute(struct qp *qp, const struct record_ud *ud, const struct arrival *arrival,
		      const uint8_t *payload)
{
	struct receive buffer;

	if (qp->type != IBV_QPT_UD || !execute_receiving(qp))
		return;
	if (ud->qkey != qp->attr.qkey) {
		log_info("QP 0x%x: datagram from QP 0x%x has another Q_Key, dropped",
			 qp->ibv.qp_num, arrival->src_qpn);
		return;
	}
	const struct recv_wqe *wqe = receive_take(qp, &buffer);

	if (!wqe)
		return;
	if (arrival->length + sizeof(struct ibv_grh) > wqe->length)
		complete(qp, wqe, arrival, IBV_WC_LOC_LEN_ERR);
	else if (!place(qp, wqe, ud, payload, arrival->length))
		complete(qp, wqe, arrival, IBV_WC_LOC_PROT_ERR);
	else
		complete(qp, wqe, arrival, IBV_WC_SUCCESS);
}
