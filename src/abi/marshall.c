/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conversion between the structures of the kernel ABI and those of verbs.
 *
 * No current public header declares these functions, but Debian's librdmacm imports them. Members
 * of the same name mean the same; only the structures differ. Destinations are written whole,
 * padding and unnamed parts as zero. No state, any thread.
 */
#include <string.h>

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include "abi/marshall.h"
#include "base/export.h"

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *out, const struct ib_uverbs_ah_attr *in)
{
	struct ibv_ah_attr ah = {
		.grh.flow_label = in->grh.flow_label,
		.grh.sgid_index = in->grh.sgid_index,
		.grh.hop_limit = in->grh.hop_limit,
		.grh.traffic_class = in->grh.traffic_class,
		.dlid = in->dlid,
		.sl = in->sl,
		.src_path_bits = in->src_path_bits,
		.static_rate = in->static_rate,
		.is_global = in->is_global,
		.port_num = in->port_num,
	};

	memcpy(ah.grh.dgid.raw, in->grh.dgid, sizeof(ah.grh.dgid.raw));
	*out = ah;
}

EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *out, const struct ib_uverbs_qp_attr *in)
{
	struct ibv_qp_attr qp = {
		.qp_state = in->qp_state,
		.cur_qp_state = in->cur_qp_state,
		.path_mtu = in->path_mtu,
		.path_mig_state = in->path_mig_state,
		.qkey = in->qkey,
		.rq_psn = in->rq_psn,
		.sq_psn = in->sq_psn,
		.dest_qp_num = in->dest_qp_num,
		.qp_access_flags = in->qp_access_flags,
		.cap.max_send_wr = in->max_send_wr,
		.cap.max_recv_wr = in->max_recv_wr,
		.cap.max_send_sge = in->max_send_sge,
		.cap.max_recv_sge = in->max_recv_sge,
		.cap.max_inline_data = in->max_inline_data,
		.pkey_index = in->pkey_index,
		.alt_pkey_index = in->alt_pkey_index,
		.en_sqd_async_notify = in->en_sqd_async_notify,
		.sq_draining = in->sq_draining,
		.max_rd_atomic = in->max_rd_atomic,
		.max_dest_rd_atomic = in->max_dest_rd_atomic,
		.min_rnr_timer = in->min_rnr_timer,
		.port_num = in->port_num,
		.timeout = in->timeout,
		.retry_cnt = in->retry_cnt,
		.rnr_retry = in->rnr_retry,
		.alt_port_num = in->alt_port_num,
		.alt_timeout = in->alt_timeout,
	};

	ibv_copy_ah_attr_from_kern(&qp.ah_attr, &in->ah_attr);
	ibv_copy_ah_attr_from_kern(&qp.alt_ah_attr, &in->alt_ah_attr);
	*out = qp;
}

EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *out,
					const struct ib_user_path_rec *in)
{
	struct ibv_sa_path_rec path = {
		.dlid = in->dlid,
		.slid = in->slid,
		.raw_traffic = (int)in->raw_traffic,
		.flow_label = in->flow_label,
		.hop_limit = in->hop_limit,
		.traffic_class = in->traffic_class,
		.reversible = (int)in->reversible,
		.numb_path = in->numb_path,
		.pkey = in->pkey,
		.sl = in->sl,
		.mtu_selector = in->mtu_selector,
		.mtu = (uint8_t)in->mtu,
		.rate_selector = in->rate_selector,
		.rate = in->rate,
		.packet_life_time_selector = in->packet_life_time_selector,
		.packet_life_time = in->packet_life_time,
		.preference = in->preference,
	};

	memcpy(path.dgid.raw, in->dgid, sizeof(path.dgid.raw));
	memcpy(path.sgid.raw, in->sgid, sizeof(path.sgid.raw));
	*out = path;
}

EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *out,
				      const struct ibv_sa_path_rec *in)
{
	struct ib_user_path_rec path = {
		.dlid = in->dlid,
		.slid = in->slid,
		.raw_traffic = (uint32_t)in->raw_traffic,
		.flow_label = in->flow_label,
		.reversible = (uint32_t)in->reversible,
		.mtu = in->mtu,
		.pkey = in->pkey,
		.hop_limit = in->hop_limit,
		.traffic_class = in->traffic_class,
		.numb_path = in->numb_path,
		.sl = in->sl,
		.mtu_selector = in->mtu_selector,
		.rate_selector = in->rate_selector,
		.rate = in->rate,
		.packet_life_time_selector = in->packet_life_time_selector,
		.packet_life_time = in->packet_life_time,
		.preference = in->preference,
	};

	memcpy(path.dgid, in->dgid.raw, sizeof(path.dgid));
	memcpy(path.sgid, in->sgid.raw, sizeof(path.sgid));
	*out = path;
}
