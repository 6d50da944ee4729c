/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for queue pairs and multicast, which driver libraries call. Each returns 0 or a positive
 * errno. The count of events as in cmd_cq.c.
 */
#include <rdma/ib_user_ioctl_cmds.h>
#include <string.h>

#include "base/sys.h"
#include "kverbs/commands.h"

/* ------------------------------------------------------------------ creating */

/* The handles of a new queue pair's parts. */
struct qp_parts {
	uint32_t domain; /* the protection domain's, or the XRC domain's */
	uint32_t send_cq, recv_cq, srq;
	struct provider_xrcd *xrcd;
};

static struct provider_xrcd *xrcd_of(struct ibv_xrcd *xrcd)
{
	return container_of(xrcd, struct provider_xrcd, ibv);
}

/* A queue pair with an indirection table has no receive queue of its own, and may have no send
 * queue. */
static int parts_with_table(const struct ibv_qp_init_attr_ex *attr, struct qp_parts *parts)
{
	if (attr->cap.max_recv_wr || attr->cap.max_recv_sge || attr->recv_cq || attr->srq)
		return EINVAL;
	if (attr->cap.max_send_wr && !attr->send_cq)
		return EINVAL;
	if (attr->cap.max_send_wr)
		parts->send_cq = attr->send_cq->handle;
	return 0;
}

static int parts_with_queues(const struct ibv_qp_init_attr_ex *attr, struct qp_parts *parts)
{
	if (!attr->send_cq || (attr->qp_type != IBV_QPT_XRC_SEND && !attr->recv_cq))
		return EINVAL;
	parts->send_cq = attr->send_cq->handle;
	if (attr->qp_type != IBV_QPT_XRC_SEND)
		parts->recv_cq = attr->recv_cq->handle;
	return 0;
}

static int parts_of(const struct ibv_qp_init_attr_ex *attr, struct qp_parts *parts)
{
	*parts = (struct qp_parts){.srq = attr->srq ? attr->srq->handle : 0};
	switch (attr->qp_type) {
	case IBV_QPT_XRC_RECV:
		if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD))
			return EINVAL;
		parts->xrcd = xrcd_of(attr->xrcd);
		parts->domain = parts->xrcd->handle;
		return 0;
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_DRIVER:
		if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
			return EINVAL;
		parts->domain = attr->pd->handle;
		return attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE
			       ? parts_with_table(attr, parts)
			       : parts_with_queues(attr, parts);
	default:
		return EINVAL;
	}
}

static void qp_begin(struct ibv_qp *qp, struct ibv_context *context, void *qp_context,
		     enum ibv_qp_type type, enum ibv_qp_state state)
{
	qp->context = context;
	qp->qp_context = qp_context;
	qp->qp_type = type;
	qp->state = state;
	qp->events_completed = 0;
	pthread_mutex_init(&qp->mutex, NULL);
	pthread_cond_init(&qp->cond, NULL);
}

/* Takes over what the kernel says of the new queue pair. */
static void uverbs_qp_fill(struct ibv_qp *qp, struct ibv_context *context,
			   struct ibv_qp_init_attr_ex *attr,
			   const struct ib_uverbs_create_qp_resp *from)
{
	qp_begin(qp, context, attr->qp_context, attr->qp_type, IBV_QPS_RESET);
	qp->handle = from->qp_handle;
	qp->qp_num = from->qpn;
	qp->pd = attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	attr->cap.max_send_wr = from->max_send_wr;
	attr->cap.max_recv_wr = from->max_recv_wr;
	attr->cap.max_send_sge = from->max_send_sge;
	attr->cap.max_recv_sge = from->max_recv_sge;
	attr->cap.max_inline_data = from->max_inline_data;
}

/* The program's flags as the method has them. */
static uint32_t qp_method_flags(const struct ibv_qp_init_attr_ex *attr)
{
	uint32_t flags = 0;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)
		flags = attr->create_flags & ~(uint32_t)IBV_QP_CREATE_SOURCE_QPN;
	return attr->sq_sig_all ? flags | IB_UVERBS_QP_CREATE_SQ_SIG_ALL : flags;
}

/* The parts that the queue pair has. */
static void qp_method_parts(struct method *method, const struct ibv_qp_init_attr_ex *attr,
			    const struct qp_parts *parts)
{
	bool table = attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE;

	if (attr->qp_type == IBV_QPT_XRC_RECV) {
		method_object(method, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, parts->domain);
		return;
	}
	method_object(method, UVERBS_ATTR_CREATE_QP_PD_HANDLE, parts->domain);
	if (attr->srq)
		method_object(method, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, parts->srq);
	if (!table || attr->cap.max_send_wr)
		method_object(method, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, parts->send_cq);
	if (table)
		method_object(method, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE,
			      (uint32_t)attr->rwq_ind_tbl->ind_tbl_handle);
	else if (attr->qp_type != IBV_QPT_XRC_SEND)
		method_object(method, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, parts->recv_cq);
}

/* For an imported context, see context_is_imported(). */
static int create_qp_method(struct ibv_context *context, struct ibv_qp *qp,
			    struct ibv_qp_init_attr_ex *attr, const struct qp_parts *parts,
			    const struct driver_data *driver, struct ibv_command_buffer *link)
{
	bool sends_only = attr->qp_type == IBV_QPT_XRC_SEND;
	struct ib_uverbs_create_qp_resp answer = {0};
	struct ib_uverbs_qp_cap got,
		cap = {
			.max_send_wr = attr->cap.max_send_wr,
			.max_recv_wr = sends_only ? 0 : attr->cap.max_recv_wr,
			.max_send_sge = attr->cap.max_send_sge,
			.max_recv_sge = sends_only ? 0 : attr->cap.max_recv_sge,
			.max_inline_data = attr->cap.max_inline_data,
		};
	uint32_t flags = qp_method_flags(attr);
	struct method method;

	method_begin(&method, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	method_object(&method, UVERBS_ATTR_CREATE_QP_HANDLE, 0);
	qp_method_parts(&method, attr, parts);
	method_in_u64(&method, UVERBS_ATTR_CREATE_QP_USER_HANDLE, (uintptr_t)qp);
	method_in(&method, UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof(cap));
	method_in_u64(&method, UVERBS_ATTR_CREATE_QP_TYPE, attr->qp_type);
	if (flags)
		method_in_u32(&method, UVERBS_ATTR_CREATE_QP_FLAGS, flags);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    attr->create_flags & IBV_QP_CREATE_SOURCE_QPN)
		method_in_u32(&method, UVERBS_ATTR_CREATE_QP_SOURCE_QPN, attr->source_qpn);
	method_object(&method, UVERBS_ATTR_CREATE_QP_EVENT_FD, (uint64_t)context->async_fd);
	method_out(&method, UVERBS_ATTR_CREATE_QP_RESP_CAP, &got, sizeof(got));
	method_out(&method, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &answer.qpn, sizeof(answer.qpn));
	method_driver(&method, driver);
	method_append(&method, link);
	int err = method_run(kernel_of(context), &method);

	if (err)
		return err;
	method_return(&method, link);
	answer.qp_handle = (uint32_t)method_result(&method, UVERBS_ATTR_CREATE_QP_HANDLE);
	answer.max_send_wr = got.max_send_wr;
	answer.max_recv_wr = got.max_recv_wr;
	answer.max_send_sge = got.max_send_sge;
	answer.max_recv_sge = got.max_recv_sge;
	answer.max_inline_data = got.max_inline_data;
	uverbs_qp_fill(qp, context, attr, &answer);
	return 0;
}

static int create_legacy(struct ibv_context *context, struct ibv_qp *qp,
			 struct ibv_qp_init_attr_ex *attr, const struct qp_parts *parts,
			 void *request, size_t size, struct ib_uverbs_create_qp_resp *response,
			 size_t response_size)
{
	bool sends_only = attr->qp_type == IBV_QPT_XRC_SEND;
	struct ib_uverbs_create_qp core = {
		.user_handle = (uintptr_t)qp,
		.pd_handle = parts->domain,
		.send_cq_handle = parts->send_cq,
		.recv_cq_handle = parts->recv_cq,
		.srq_handle = parts->srq,
		.max_send_wr = attr->cap.max_send_wr,
		.max_recv_wr = sends_only ? 0 : attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv_sge = sends_only ? 0 : attr->cap.max_recv_sge,
		.max_inline_data = attr->cap.max_inline_data,
		.sq_sig_all = attr->sq_sig_all != 0,
		.qp_type = (uint8_t)attr->qp_type,
		.is_srq = attr->srq != NULL,
	};
	struct driver_data driver = driver_data_of(request, COMMAND_HEADER + sizeof(core), size,
						   response, sizeof(*response), response_size);

	if (context_is_imported(context))
		return create_qp_method(context, qp, attr, parts, &driver, NULL);
	int err = COMMAND(context, CREATE_QP, core, size, response);

	if (!err)
		uverbs_qp_fill(qp, context, attr, response);
	return err;
}

EXPORT int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
			     void *request, size_t size, struct ib_uverbs_create_qp_resp *response,
			     size_t response_size)
{
	struct ibv_qp_init_attr_ex full = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct qp_parts parts;
	int err = parts_of(&full, &parts);

	if (!err)
		err = create_legacy(pd->context, qp, &full, &parts, request, size, response,
				    response_size);
	if (!err)
		attr->cap = full.cap;
	return err;
}
EXPORT_SINCE_34(ibv_cmd_create_qp, ibv_cmd_create_qp);

EXPORT int ibv_cmd_create_qp_ex(struct ibv_context *context, struct provider_qp *qp,
				struct ibv_qp_init_attr_ex *attr, void *request, size_t size,
				struct ib_uverbs_create_qp_resp *response, size_t response_size)
{
	const uint32_t known =
		IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct qp_parts parts;
	int err = attr->comp_mask & ~known ? EINVAL : parts_of(attr, &parts);

	if (!err)
		err = create_legacy(context, &qp->ibv, attr, &parts, request, size, response,
				    response_size);
	return err;
}
EXPORT_SINCE_34(ibv_cmd_create_qp_ex, ibv_cmd_create_qp_ex);

/* The fields that only the extended command has: 0 or a positive errno. */
static int qp_extras(struct ib_uverbs_ex_create_qp *core, const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS |
			       IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SOURCE_QPN |
			       IBV_QP_CREATE_PCI_WRITE_END_PADDING;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) {
		if (attr->create_flags & ~known)
			return EINVAL;
		core->create_flags = attr->create_flags;
		if (attr->create_flags & IBV_QP_CREATE_SOURCE_QPN)
			core->source_qpn = attr->source_qpn;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) {
		core->rwq_ind_tbl_handle = attr->rwq_ind_tbl->ind_tbl_handle;
		core->comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE;
	}
	return 0;
}

static int create_extended(struct ibv_context *context, struct ibv_qp *qp,
			   struct ibv_qp_init_attr_ex *attr, const struct qp_parts *parts,
			   void *request, size_t size, struct ib_uverbs_ex_create_qp_resp *response,
			   size_t response_size, struct ibv_command_buffer *link)
{
	bool sends_only = attr->qp_type == IBV_QPT_XRC_SEND;
	struct ib_uverbs_ex_create_qp core = {
		.user_handle = (uintptr_t)qp,
		.pd_handle = parts->domain,
		.send_cq_handle = parts->send_cq,
		.recv_cq_handle = parts->recv_cq,
		.srq_handle = parts->srq,
		.max_send_wr = attr->cap.max_send_wr,
		.max_recv_wr = sends_only ? 0 : attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv_sge = sends_only ? 0 : attr->cap.max_recv_sge,
		.max_inline_data = attr->cap.max_inline_data,
		.sq_sig_all = attr->sq_sig_all != 0,
		.qp_type = (uint8_t)attr->qp_type,
		.is_srq = attr->srq != NULL,
	};
	struct driver_data driver =
		driver_data_of(request, COMMAND_HEADER_EXTENDED + sizeof(core), size, response,
			       sizeof(*response), response_size);
	int err = qp_extras(&core, attr);

	if (err)
		return err;
	if (link || context_is_imported(context))
		return create_qp_method(context, qp, attr, parts, &driver, link);
	err = COMMAND_EXTENDED(context, CREATE_QP, core, size, response);
	if (!err)
		uverbs_qp_fill(qp, context, attr, &response->base);
	return err;
}

/* Since 64 with attributes of the driver, which only the method takes. */
EXPORT int ibv_cmd_create_qp_ex2_64(struct ibv_context *context, struct provider_qp *qp,
				    struct ibv_qp_init_attr_ex *attr, void *request, size_t size,
				    struct ib_uverbs_ex_create_qp_resp *response,
				    size_t response_size, struct ibv_command_buffer *link)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
			       IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct qp_parts parts;
	int err = attr->comp_mask & ~known ? EINVAL : parts_of(attr, &parts);

	if (!err)
		err = create_extended(context, &qp->ibv, attr, &parts, request, size, response,
				      response_size, link);
	return err;
}
EXPORT_SINCE_64(ibv_cmd_create_qp_ex2_64, ibv_cmd_create_qp_ex2);

EXPORT int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct provider_qp *qp,
				 struct ibv_qp_init_attr_ex *attr, void *request, size_t size,
				 struct ib_uverbs_ex_create_qp_resp *response, size_t response_size)
{
	return ibv_cmd_create_qp_ex2_64(context, qp, attr, request, size, response, response_size,
					NULL);
}
EXPORT_34(ibv_cmd_create_qp_ex2, ibv_cmd_create_qp_ex2);
EXPORT_PRIVATE(ibv_cmd_create_qp_ex2, ibv_cmd_create_qp_ex2, 57);
EXPORT_PRIVATE(ibv_cmd_create_qp_ex2, ibv_cmd_create_qp_ex2, 59);

EXPORT int ibv_cmd_open_qp(struct ibv_context *context, struct provider_qp *qp, int qp_size,
			   struct ibv_qp_open_attr *attr, void *request, size_t size,
			   struct ib_uverbs_create_qp_resp *response, size_t response_size)
{
	const uint32_t needed =
		IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
	struct ib_uverbs_open_qp core = {
		.user_handle = (uintptr_t)qp,
		.qpn = attr->qp_num,
		.qp_type = (uint8_t)attr->qp_type,
	};

	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed)
		return EINVAL;
	core.pd_handle = xrcd_of(attr->xrcd)->handle;
	int err = COMMAND(context, OPEN_QP, core, size, response);

	if (err)
		return err;
	qp_begin(&qp->ibv, context, attr->qp_context, attr->qp_type, IBV_QPS_UNKNOWN);
	qp->ibv.handle = response->qp_handle;
	qp->ibv.qp_num = attr->qp_num;
	qp->ibv.pd = NULL;
	qp->ibv.send_cq = NULL;
	qp->ibv.recv_cq = NULL;
	qp->ibv.srq = NULL;
	if (qp_size >= (int)sizeof(*qp)) {
		qp->comp_mask = PROVIDER_QP_XRCD;
		qp->xrcd = xrcd_of(attr->xrcd);
	}
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_open_qp, ibv_cmd_open_qp);

/* ------------------------------------------------------------------ modifying */

static void address_to_kernel(struct ib_uverbs_qp_dest *to, const struct ibv_ah_attr *from)
{
	*to = (struct ib_uverbs_qp_dest){
		.flow_label = from->grh.flow_label,
		.dlid = from->dlid,
		.sgid_index = from->grh.sgid_index,
		.hop_limit = from->grh.hop_limit,
		.traffic_class = from->grh.traffic_class,
		.sl = from->sl,
		.src_path_bits = from->src_path_bits,
		.static_rate = from->static_rate,
		.is_global = from->is_global,
		.port_num = from->port_num,
	};
	memcpy(to->dgid, from->grh.dgid.raw, sizeof(to->dgid));
}

static void modify_addresses(struct ib_uverbs_modify_qp *to, const struct ibv_qp_attr *from,
			     int mask)
{
	if (mask & IBV_QP_AV)
		address_to_kernel(&to->dest, &from->ah_attr);
	if (!(mask & IBV_QP_ALT_PATH))
		return;
	address_to_kernel(&to->alt_dest, &from->alt_ah_attr);
	to->alt_pkey_index = from->alt_pkey_index;
	to->alt_port_num = from->alt_port_num;
	to->alt_timeout = from->alt_timeout;
}

/* Fields that the mask doesn't name may be anything in the program's structure, so they stay 0. */
static void modify_fill(struct ib_uverbs_modify_qp *to, const struct ibv_qp *qp,
			const struct ibv_qp_attr *from, int mask)
{
#define FIELD(bit, field)        \
	if (mask & IBV_QP_##bit) \
	to->field = from->field
	to->qp_handle = qp->handle;
	to->attr_mask = (uint32_t)mask;
	FIELD(STATE, qp_state);
	FIELD(CUR_STATE, cur_qp_state);
	FIELD(EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	FIELD(ACCESS_FLAGS, qp_access_flags);
	FIELD(PKEY_INDEX, pkey_index);
	FIELD(PORT, port_num);
	FIELD(QKEY, qkey);
	FIELD(PATH_MTU, path_mtu);
	FIELD(TIMEOUT, timeout);
	FIELD(RETRY_CNT, retry_cnt);
	FIELD(RNR_RETRY, rnr_retry);
	FIELD(RQ_PSN, rq_psn);
	FIELD(MAX_QP_RD_ATOMIC, max_rd_atomic);
	FIELD(MIN_RNR_TIMER, min_rnr_timer);
	FIELD(SQ_PSN, sq_psn);
	FIELD(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	FIELD(PATH_MIG_STATE, path_mig_state);
	FIELD(DEST_QPN, dest_qp_num);
#undef FIELD
	modify_addresses(to, from, mask);
}

EXPORT int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, void *request,
			     size_t size)
{
	struct ib_uverbs_modify_qp core = {0};

	if (mask & ~(IBV_QP_RATE_LIMIT - 1))
		return EOPNOTSUPP; /* only the extended command has it */
	modify_fill(&core, qp, attr, mask);
	return command_run(kernel_of(qp->context),
			   &(struct command){
				   .number = IB_USER_VERBS_CMD_MODIFY_QP,
				   .core = &core,
				   .core_size = sizeof(core),
				   .driver = driver_data_of(request, COMMAND_HEADER + sizeof(core),
							    size, NULL, 0, 0),
			   });
}
EXPORT_SINCE_34(ibv_cmd_modify_qp, ibv_cmd_modify_qp);

EXPORT int ibv_cmd_modify_qp_ex(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
				void *request, size_t size,
				struct ib_uverbs_ex_modify_qp_resp *response, size_t response_size)
{
	struct ib_uverbs_ex_modify_qp core = {0};
	size_t rate_end = COMMAND_HEADER_EXTENDED +
			  offsetof(struct ib_uverbs_ex_modify_qp, rate_limit) +
			  sizeof(core.rate_limit);

	if ((mask & IBV_QP_RATE_LIMIT) && size < rate_end)
		return EINVAL;
	modify_fill(&core.base, qp, attr, mask);
	if (mask & IBV_QP_RATE_LIMIT)
		core.rate_limit = attr->rate_limit;
	return COMMAND_EXTENDED(qp->context, MODIFY_QP, core, size, response);
}
EXPORT_SINCE_34(ibv_cmd_modify_qp_ex, ibv_cmd_modify_qp_ex);

/* ------------------------------------------------------------------ querying */

static void address_from_kernel(struct ibv_ah_attr *to, const struct ib_uverbs_qp_dest *from)
{
	*to = (struct ibv_ah_attr){
		.grh.flow_label = from->flow_label,
		.grh.sgid_index = from->sgid_index,
		.grh.hop_limit = from->hop_limit,
		.grh.traffic_class = from->traffic_class,
		.dlid = from->dlid,
		.sl = from->sl,
		.src_path_bits = from->src_path_bits,
		.static_rate = from->static_rate,
		.is_global = from->is_global,
		.port_num = from->port_num,
	};
	memcpy(to->grh.dgid.raw, from->dgid, sizeof(from->dgid));
}

static void caps_fill(struct ibv_qp_cap *to, const struct ib_uverbs_query_qp_resp *from)
{
	to->max_send_wr = from->max_send_wr;
	to->max_recv_wr = from->max_recv_wr;
	to->max_send_sge = from->max_send_sge;
	to->max_recv_sge = from->max_recv_sge;
	to->max_inline_data = from->max_inline_data;
}

static void query_fill(struct ibv_qp_attr *to, const struct ib_uverbs_query_qp_resp *from)
{
	to->qkey = from->qkey;
	to->rq_psn = from->rq_psn;
	to->sq_psn = from->sq_psn;
	to->dest_qp_num = from->dest_qp_num;
	to->qp_access_flags = from->qp_access_flags;
	to->pkey_index = from->pkey_index;
	to->alt_pkey_index = from->alt_pkey_index;
	to->qp_state = from->qp_state;
	to->cur_qp_state = from->cur_qp_state;
	to->path_mtu = from->path_mtu;
	to->path_mig_state = from->path_mig_state;
	to->sq_draining = from->sq_draining;
	to->max_rd_atomic = from->max_rd_atomic;
	to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	to->min_rnr_timer = from->min_rnr_timer;
	to->port_num = from->port_num;
	to->timeout = from->timeout;
	to->retry_cnt = from->retry_cnt;
	to->rnr_retry = from->rnr_retry;
	to->alt_port_num = from->alt_port_num;
	to->alt_timeout = from->alt_timeout;
	caps_fill(&to->cap, from);
	address_from_kernel(&to->ah_attr, &from->dest);
	address_from_kernel(&to->alt_ah_attr, &from->alt_dest);
}

static void query_init_fill(struct ibv_qp_init_attr *to, const struct ibv_qp *qp,
			    const struct ib_uverbs_query_qp_resp *from)
{
	to->qp_context = qp->qp_context;
	to->send_cq = qp->send_cq;
	to->recv_cq = qp->recv_cq;
	to->srq = qp->srq;
	to->qp_type = qp->qp_type;
	to->sq_sig_all = from->sq_sig_all;
	caps_fill(&to->cap, from);
}

EXPORT int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			    struct ibv_qp_init_attr *init, void *request, size_t size)
{
	struct ib_uverbs_query_qp core = {.qp_handle = qp->handle, .attr_mask = (uint32_t)mask};
	struct ib_uverbs_query_qp_resp answer, *response = &answer;
	size_t response_size = sizeof(answer);

	if (mask & ~(IBV_QP_RATE_LIMIT - 1))
		return EOPNOTSUPP;
	int err = COMMAND(qp->context, QUERY_QP, core, size, response);

	if (err)
		return err;
	query_fill(attr, &answer);
	query_init_fill(init, qp, &answer);
	return 0;
}
EXPORT_SINCE_34(ibv_cmd_query_qp, ibv_cmd_query_qp);

/* ------------------------------------------------------------------ ending */

static void qp_events_await(struct ibv_qp *qp, uint32_t reported)
{
	pthread_mutex_lock(&qp->mutex);
	while (qp->events_completed != reported)
		sys_cond_wait(&qp->cond, &qp->mutex);
	pthread_mutex_unlock(&qp->mutex);
}

EXPORT int ibv_cmd_destroy_qp(struct ibv_qp *qp)
{
	struct ib_uverbs_destroy_qp core = {.qp_handle = qp->handle};
	struct ib_uverbs_destroy_qp_resp reported;
	int err = COMMAND_ANSWERED(qp->context, DESTROY_QP, core, reported);

	if (!err)
		qp_events_await(qp, reported.events_reported);
	return destroy_result(err);
}
EXPORT_SINCE_34(ibv_cmd_destroy_qp, ibv_cmd_destroy_qp);

/* ------------------------------------------------------------------ multicast */

EXPORT int ibv_cmd_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct ib_uverbs_attach_mcast core = {.qp_handle = qp->handle, .mlid = lid};

	memcpy(core.gid, gid->raw, sizeof(core.gid));
	return COMMAND_PLAIN(qp->context, ATTACH_MCAST, core);
}
EXPORT_SINCE_34(ibv_cmd_attach_mcast, ibv_cmd_attach_mcast);

EXPORT int ibv_cmd_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct ib_uverbs_detach_mcast core = {.qp_handle = qp->handle, .mlid = lid};

	memcpy(core.gid, gid->raw, sizeof(core.gid));
	return COMMAND_PLAIN(qp->context, DETACH_MCAST, core);
}
EXPORT_SINCE_34(ibv_cmd_detach_mcast, ibv_cmd_detach_mcast);
