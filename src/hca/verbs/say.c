/* SPDX-License-Identifier: BSD-2-Clause */
/* See say.h. */
#include "hca/verbs/say.h"

#include <errno.h>

#include "base/log.h"
#include "base/wc_status.h"
#include "hca/verbs/srq.h"
#include "proto/limits.h"

static const char *type_name(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	case IBV_QPT_RAW_PACKET:
		return "raw packet";
	case IBV_QPT_XRC_SEND:
		return "XRC initiator";
	case IBV_QPT_XRC_RECV:
		return "XRC target";
	default:
		return "other";
	}
}

/* ------------------------------------------------------------------ creating */

struct capability {
	const char *name;
	uint32_t wanted, limit;
};

static bool say_capability(const struct ibv_qp_cap *cap)
{
	const struct capability all[] = {
		{"max_send_wr", cap->max_send_wr, LIMIT_QP_WR},
		{"max_recv_wr", cap->max_recv_wr, LIMIT_QP_WR},
		{"max_send_sge", cap->max_send_sge, LIMIT_SGE},
		{"max_recv_sge", cap->max_recv_sge, LIMIT_SGE},
	};

	/* No device says how much, so that programs find out by trying: libfabric. */
	if (cap->max_inline_data > LIMIT_INLINE) {
		log_info("ibv_create_qp: cap.max_inline_data is %u, and %u at most",
			 cap->max_inline_data, LIMIT_INLINE);
		return true;
	}

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].wanted > all[i].limit) {
			log_warn_few("ibv_create_qp: cap.%s is %u, and %u at most", all[i].name,
				     all[i].wanted, all[i].limit);
			return true;
		}
	return false;
}

void say_no_qp(const struct ibv_qp_init_attr_ex *attr)
{
	const char *type = type_name(attr->qp_type);

	if (say_capability(&attr->cap))
		return;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd)
		log_warn_few("ibv_create_qp: a queue pair (%s) needs a protection domain", type);
	else if (!attr->send_cq || (!attr->recv_cq && attr->qp_type != IBV_QPT_XRC_SEND))
		log_warn_few("ibv_create_qp: a queue pair (%s) needs send_cq and recv_cq", type);
	else if (attr->srq && attr->qp_type == IBV_QPT_XRC_SEND)
		log_warn_few("ibv_create_qp: an XRC initiator receives nothing, and has no SRQ");
	else if (attr->srq && srq_of(attr->srq)->xrcd)
		log_warn_few("ibv_create_qp: an XRC domain's SRQ is used by the domain's targets "
			     "only, not by a queue pair (%s)",
			     type);
	else
		log_warn_few("ibv_create_qp: qp_type %d with comp_mask 0x%x, create_flags 0x%x and "
			     "send_ops_flags 0x%llx isn't supported",
			     (int)attr->qp_type, attr->comp_mask,
			     attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags
									     : 0,
			     attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
				     ? (unsigned long long)attr->send_ops_flags
				     : 0);
}

/* ------------------------------------------------------------------ posting */

/* Whether this kind is to be said of the QP now. */
static bool qp_says(struct qp *qp, enum said kind) REQUIRES(qp->lock)
{
	bool first = !(qp->said & kind);

	qp->said |= (uint8_t)kind;
	return first;
}

static uint64_t bytes_of(const struct ibv_sge *list, int count)
{
	uint64_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += list[i].length;
	return bytes;
}

static bool segments_exceed(const struct qp *qp, const struct ibv_send_wr *wr) REQUIRES(qp->lock)
{
	return wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge;
}

static bool inline_exceeds(const struct qp *qp, const struct ibv_send_wr *wr) REQUIRES(qp->lock)
{
	return wr->send_flags & IBV_SEND_INLINE &&
	       bytes_of(wr->sg_list, wr->num_sge) > qp->sq.max_inline;
}

void say_send_refused(struct qp *qp, const struct ibv_send_wr *wr, int err)
{
	const uint32_t number = qp->ibv.qp_num;

	/* What else has ENOMEM is a full queue: sq_find_room() has said it. */
	if (err == ENOMEM && !segments_exceed(qp, wr) && !inline_exceeds(qp, wr))
		return;
	if (!qp_says(qp, SAID_SEND))
		return;
	if (qp->state == IBV_QPS_RESET)
		log_warn_few("ibv_post_send: QP 0x%x is in RESET; it takes requests from INIT on, "
			     "and starts them in RTS",
			     number);
	else if (err == EOPNOTSUPP || (unsigned int)wr->opcode >= 32)
		log_warn_few("ibv_post_send: QP 0x%x (%s) has no opcode %d", number,
			     type_name(qp->type), (int)wr->opcode);
	else if (qp->type == IBV_QPT_UD && !wr->wr.ud.ah)
		log_warn_few(
			"ibv_post_send: QP 0x%x: a datagram needs an address handle (wr.ud.ah)",
			number);
	else if (inline_exceeds(qp, wr))
		log_warn_few("ibv_post_send: QP 0x%x: %llu bytes of inline data; it was made with "
			     "max_inline_data %u",
			     number, (unsigned long long)bytes_of(wr->sg_list, wr->num_sge),
			     qp->sq.max_inline);
	else if (segments_exceed(qp, wr))
		log_warn_few(
			"ibv_post_send: QP 0x%x: %d segments; it was made with max_send_sge %u",
			number, wr->num_sge, qp->sq.max_sge);
	else
		log_warn_few("ibv_post_send: QP 0x%x: a request with opcode %d, %d segments and "
			     "flags 0x%x isn't possible",
			     number, (int)wr->opcode, wr->num_sge, wr->send_flags);
}

void say_built_refused(struct qp *qp)
{
	lock_take(&qp->lock);
	if (qp_says(qp, SAID_SEND)) {
		if (qp->state == IBV_QPS_RESET)
			log_warn_few("ibv_wr_complete: QP 0x%x is in RESET; it takes requests from "
				     "INIT on, and starts them in RTS",
				     qp->ibv.qp_num);
		else
			log_warn_few("ibv_wr_complete: QP 0x%x: more than %u requests at once, "
				     "or one with more than %u segments or %u bytes of inline "
				     "data, as the QP was made, or with arguments that aren't "
				     "possible",
				     qp->ibv.qp_num, qp->sq.max_wr, qp->sq.max_sge,
				     qp->sq.max_inline);
	}
	lock_give(&qp->lock);
}

void say_receive_refused(struct qp *qp, const struct ibv_recv_wr *wr, int err)
{
	const uint32_t number = qp->ibv.qp_num;

	if (err == ENOMEM || !qp_says(qp, SAID_RECEIVE))
		return;
	if (qp->srq)
		log_warn_few("ibv_post_recv: QP 0x%x has an SRQ, which takes its receives "
			     "(ibv_post_srq_recv)",
			     number);
	else if (qp->spread || !qp->recv_cq)
		log_warn_few("ibv_post_recv: QP 0x%x (%s) takes no receives", number,
			     type_name(qp->type));
	else if (qp->state == IBV_QPS_RESET)
		log_warn_few("ibv_post_recv: QP 0x%x is in RESET; it takes receives from INIT on",
			     number);
	else
		log_warn_few(
			"ibv_post_recv: QP 0x%x: %d segments; it was made with max_recv_sge %u",
			number, wr->num_sge, qp->rq.max_sge);
}

void say_srq_refused(uint32_t max_sge, const struct ibv_recv_wr *wr, int err)
{
	if (err != ENOMEM)
		log_warn_few("ibv_post_srq_recv: %d segments; the SRQ was made with max_sge %u",
			     wr->num_sge, max_sge);
}

/* ------------------------------------------------------------------ completing */

static const char *send_meaning(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return "the message is too long, for a datagram longer than the port's MTU";
	case IBV_WC_LOC_QP_OP_ERR:
		return "a queue pair of this type doesn't execute such a request";
	case IBV_WC_LOC_PROT_ERR:
		return "a segment isn't within the region of its lkey, which must be of the queue "
		       "pair's protection domain, and have IBV_ACCESS_LOCAL_WRITE for what is read "
		       "into it";
	case IBV_WC_MW_BIND_ERR:
		return "the window can't be bound so to this region";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the peer refuses it: its receive is shorter than the message, or its queue "
		       "pair doesn't allow the operation (qp_access_flags, max_dest_rd_atomic)";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer refuses it: rkey, address and length must be within a region of "
		       "its queue pair's protection domain that has the access right";
	case IBV_WC_REM_OP_ERR:
		return "the peer can't execute it, for example because its receive isn't memory "
		       "that it may write";
	case IBV_WC_RETRY_EXC_ERR:
		return "the peer doesn't answer: its queue pair isn't in RTR or RTS, isn't "
		       "connected to this one or has ended, or packets don't arrive";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer has posted no receive for it, for as long as rnr_retry lets it "
		       "wait";
	default:
		return "see ibv_poll_cq(3)";
	}
}

static const char *receive_meaning(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return "the message is longer than the receive";
	case IBV_WC_LOC_PROT_ERR:
		return "a segment isn't within the region of its lkey, which must be of the queue "
		       "pair's (or SRQ's) protection domain, and have IBV_ACCESS_LOCAL_WRITE";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the message is to invalidate a key (IBV_WR_SEND_WITH_INV) that isn't that "
		       "of a type 2 memory window which is bound to this queue pair";
	default:
		return "the message can't be received";
	}
}

static void say_failed(struct qp *qp, const char *what, uint64_t wr_id, enum ibv_wc_status status,
		       const char *meaning) REQUIRES(qp->lock)
{
	if (status != IBV_WC_WR_FLUSH_ERR && qp_says(qp, SAID_FAILURE))
		log_warn_few("QP 0x%x: the first %s that fails: wr_id %llu, status %d (%s): %s",
			     qp->ibv.qp_num, what, (unsigned long long)wr_id, (int)status,
			     wc_status_text(status), meaning);
}

void say_send_failed(struct qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	say_failed(qp, "request", wr_id, status, send_meaning(status));
}

void say_receive_failed(struct qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	say_failed(qp, "receive", wr_id, status, receive_meaning(status));
}

void say_peer_refused(struct qp *qp, int event)
{
	if ((event != IBV_EVENT_QP_ACCESS_ERR && event != IBV_EVENT_QP_REQ_ERR) ||
	    !qp_says(qp, SAID_FAILURE))
		return;
	log_warn_few(
		"QP 0x%x goes to ERR: %s", qp->ibv.qp_num,
		event == IBV_EVENT_QP_ACCESS_ERR
			? "its peer asked for memory that no region allows it (rkey, address, "
			  "length, access rights)"
			: "its peer asked for what this queue pair doesn't allow "
			  "(qp_access_flags, max_dest_rd_atomic, a receive that is too short)");
}
