/* SPDX-License-Identifier: BSD-2-Clause */
/* QUERY, INIT_QP_ATTR, SET_OPTION. No state. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "daemon/cm/cm_attr.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "daemon/net/device.h"
#include "fabric/internal.h"
#include "wire/ip.h"

enum { PKEY = 0xffff, LIFE_TIME = 16 };

static uint32_t cm_id_gid_index(const struct cm_id *id)
{
	const struct gids *gids = &id->device->gids;
	const struct host_address *entry = gids_find(gids, id->path.local);

	return entry ? (uint32_t)(entry - gids->entry) : id->gid_index;
}

static uint8_t cm_id_port_number(const struct cm_id *id)
{
	const struct cm_node *node = cm_id_node(id);

	return node ? node->tables.ports[node->port].number : DEVICE_PORT;
}

uint16_t cm_id_pkey(const struct cm_id *id)
{
	return id->path.node ? id->path.pkey : PKEY;
}

/* The index of its P_Key at its port. */
static uint16_t cm_id_pkey_index(const struct cm_id *id)
{
	const struct cm_node *node = cm_id_node(id);
	unsigned int index = 0;

	if (node && id->path.node)
		partition_key_matches(&node->tables, node->port, id->path.pkey, &index);
	return (uint16_t)index;
}

/* Within a subnet the LID is enough. */
static void fill_ah_by_lid(const struct cm_id *id, struct ib_uverbs_ah_attr *attr)
{
	*attr = (struct ib_uverbs_ah_attr){
		.port_num = cm_id_port_number(id),
		.dlid = id->path.remote_lid,
		.sl = id->path.sl,
	};
}

void cm_attr_fill_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *attr)
{
	if (id->path.node) {
		fill_ah_by_lid(id, attr);
		return;
	}
	*attr = (struct ib_uverbs_ah_attr){
		.is_global = 1,
		.port_num = DEVICE_PORT,
		.grh = {.sgid_index = (uint8_t)cm_id_gid_index(id),
			.hop_limit = IP_HOP_LIMIT,
			.traffic_class = id->path.traffic_class},
	};
	memcpy(attr->grh.dgid, id->path.remote, 16);
}

/* ------------------------------------------------------------------ QUERY */

static uint64_t node_guid(const struct cm_id *id)
{
	uint64_t word;

	if (!id->device)
		return 0;
	memcpy(&word, id->device->guid, sizeof(word));
	return word;
}

static void cm_query_fill_device(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	resp->node_guid = node_guid(id);
	if (!id->device)
		return;
	resp->port_num = cm_id_port_number(id);
	resp->pkey = cm_id_pkey(id);
}

static void query_addr(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	cm_query_fill_device(id, resp);
	resp->src_size = (uint16_t)cm_address_size(&id->source);
	resp->dst_size = (uint16_t)cm_address_size(&id->destination);
	memcpy(&resp->src_addr, &id->source, resp->src_size);
	memcpy(&resp->dst_addr, &id->destination, resp->dst_size);
}

static void fill_ib(const struct cm_id *id, const uint8_t gid[16], const union cm_address *address,
		    void *to)
{
	struct cm_sockaddr_ib ib = {
		.family = CM_AF_IB,
		.pkey = htons(cm_id_pkey(id)),
		.service_id = htobe64((uint64_t)id->port_space << 16 | cm_address_port(address)),
		.service_mask = UINT64_MAX,
	};

	memcpy(ib.gid, gid, 16);
	memcpy(to, &ib, sizeof(ib));
}

static void cm_query_fill_gid(const struct cm_id *id, struct rdma_ucm_query_addr_resp *resp)
{
	cm_query_fill_device(id, resp);
	resp->src_size = resp->dst_size = sizeof(struct cm_sockaddr_ib);
	fill_ib(id, id->path.local, &id->source, &resp->src_addr);
	fill_ib(id, id->path.remote, &id->destination, &resp->dst_addr);
}

static void fill_record_on_fabric(const struct cm_id *id, uint8_t r[64])
{
	enum { EXACTLY = 2 << 6 };
	const struct cm_path *path = &id->path;

	r[40] = (uint8_t)(path->remote_lid >> 8);
	r[41] = (uint8_t)path->remote_lid;
	r[42] = (uint8_t)(path->local_lid >> 8);
	r[43] = (uint8_t)path->local_lid;
	r[49] = 1 << 7 | 1; /* reversible, one path */
	r[50] = (uint8_t)(path->pkey >> 8);
	r[51] = (uint8_t)path->pkey;
	r[53] = path->sl;
	r[54] = EXACTLY | (path->mtu ? path->mtu : IBV_MTU_2048);
	r[55] = EXACTLY | path->rate;
	r[56] = EXACTLY | path->life_time;
}

/* The PathRecord of subnet administration (IBTA volume 1, 15.2.5.16). */
static void fill_path_record(const struct cm_id *id, uint8_t r[64])
{
	enum { EXACTLY = 2 << 6 };
	uint8_t mtu = id->endpoint && id->endpoint->qp.mtu ? id->endpoint->qp.mtu : IBV_MTU_1024;

	memset(r, 0, 64);
	memcpy(r + 8, id->path.remote, 16);
	memcpy(r + 24, id->path.local, 16);
	if (id->path.node) {
		fill_record_on_fabric(id, r);
		return;
	}
	r[47] = IP_HOP_LIMIT;
	r[48] = id->path.traffic_class;
	r[49] = 1 << 7 | 1; /* reversible, one path */
	r[50] = PKEY >> 8;
	r[51] = PKEY & 0xff;
	r[54] = EXACTLY | mtu;
	r[55] = EXACTLY | IBV_RATE_100_GBPS;
	r[56] = EXACTLY | LIFE_TIME;
}

static void fill_path_data(const struct cm_id *id, struct ib_path_rec_data *data)
{
	data->flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	fill_path_record(id, (uint8_t *)data->path_rec);
}

static int query_path(const struct cm_id *id, struct cm_request *request, void *response)
{
	struct rdma_ucm_query_path_resp *resp = response;

	request->response_size = sizeof(*resp);
	if (request->room < sizeof(*resp))
		return -ENOSPC;
	if (id->state != ID_ROUTE_RESOLVED && id->state != ID_CONNECT)
		return 0;
	resp->num_paths = 1;
	if (request->room < sizeof(*resp) + sizeof(resp->path_data[0]))
		return 0;
	request->response_size += sizeof(resp->path_data[0]);
	fill_path_data(id, &resp->path_data[0]);
	return 0;
}

int cm_command_query(struct cm_request *request, void *response)
{
	const struct rdma_ucm_query *body = request->body;
	const struct cm_id *id = cm_id_find(request, body->id);

	if (!id)
		return -EINVAL;
	if (body->option == RDMA_USER_CM_QUERY_PATH)
		return query_path(id, request, response);
	if (body->option != RDMA_USER_CM_QUERY_ADDR && body->option != RDMA_USER_CM_QUERY_GID)
		return -EINVAL;
	request->response_size = sizeof(struct rdma_ucm_query_addr_resp);
	if (request->room < request->response_size)
		return -ENOSPC;
	if (body->option == RDMA_USER_CM_QUERY_ADDR)
		query_addr(id, response);
	else
		cm_query_fill_gid(id, response);
	return 0;
}

/* ------------------------------------------------------------------ INIT_QP_ATTR */

static void attr_init(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	attr->port_num = cm_id_port_number(id);
	attr->pkey_index = cm_id_pkey_index(id);
	if (id->type == CM_ID_UD) {
		attr->qp_attr_mask |= IBV_QP_QKEY;
		attr->qkey = CM_UDP_QKEY;
		return;
	}
	attr->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
	if (!id->endpoint)
		return;
	attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->endpoint->qp.responder_resources)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static void attr_rtr(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	const struct cm_qp *qp = &id->endpoint->qp;

	attr->qp_attr_mask =
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	cm_attr_fill_ah(id, &attr->ah_attr);
	attr->path_mtu = qp->mtu;
	attr->dest_qp_num = qp->remote_qpn;
	attr->rq_psn = qp->local_psn ? qp->local_psn : id->psn;
	if (id->type != CM_ID_RC && id->type != CM_ID_XRC_RECV)
		return;
	attr->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	attr->max_dest_rd_atomic = qp->responder_resources;
}

static void attr_rts(const struct cm_id *id, struct ib_uverbs_qp_attr *attr)
{
	const struct cm_qp *qp = &id->endpoint->qp;

	attr->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	attr->sq_psn = qp->remote_psn;
	if (id->type == CM_ID_XRC_RECV) {
		attr->qp_attr_mask |= IBV_QP_TIMEOUT;
		attr->timeout = id->has_ack_timeout ? id->ack_timeout : qp->ack_timeout;
	}
	if (id->type != CM_ID_RC && id->type != CM_ID_XRC_SEND)
		return;
	attr->qp_attr_mask |=
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->timeout = id->has_ack_timeout ? id->ack_timeout : qp->ack_timeout;
	attr->retry_cnt = qp->retry_count;
	attr->rnr_retry = qp->rnr_retry;
	attr->max_rd_atomic = qp->initiator_depth;
}

/* Whether the peer's queue pair is known. */
static bool knows_peer(const struct cm_id *id)
{
	switch (id->endpoint ? id->endpoint->state : CM_IDLE) {
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
	case CM_ESTABLISHED:
		return true;
	default:
		return false;
	}
}

int cm_command_init_qp_attr(struct cm_request *request, void *response)
{
	const struct rdma_ucm_init_qp_attr *body = request->body;
	const struct cm_id *id = cm_id_find(request, body->id);
	struct ib_uverbs_qp_attr *attr = response;

	if (!id || !id->device)
		return -EINVAL;
	attr->qp_state = body->qp_state;
	/* A datagram QP needs no attribute of a peer. */
	if (body->qp_state == IBV_QPS_INIT ||
	    (id->type == CM_ID_UD &&
	     (body->qp_state == IBV_QPS_RTR || body->qp_state == IBV_QPS_RTS))) {
		attr_init(id, attr);
		return 0;
	}
	if (!knows_peer(id))
		return -EINVAL;
	if (body->qp_state == IBV_QPS_RTR)
		attr_rtr(id, attr);
	else if (body->qp_state == IBV_QPS_RTS)
		attr_rts(id, attr);
	else
		return -EINVAL;
	return 0;
}

/* ------------------------------------------------------------------ beside an event */

static void add_path(const struct cm_id *id, struct proto_cm_event *to)
{
	to->known |= PROTO_CM_KNOWS_PATH;
	fill_path_data(id, &to->path);
}

static void add_addr(const struct cm_id *id, struct proto_cm_event *to)
{
	to->known |= PROTO_CM_KNOWS_ADDR;
	query_addr(id, &to->addr);
}

/* For a connected QP. The library asks for a datagram QP's, because the queue key isn't part of the
 * event. */
static void add_init(const struct cm_id *id, struct proto_cm_event *to)
{
	if (id->type == CM_ID_UD || !id->device)
		return;
	to->known |= PROTO_CM_KNOWS_INIT;
	to->init.qp_state = IBV_QPS_INIT;
	attr_init(id, &to->init);
}

static void add_ready(const struct cm_id *id, struct proto_cm_event *to)
{
	if (id->type == CM_ID_UD || !id->device || !knows_peer(id))
		return;
	to->known |= PROTO_CM_KNOWS_READY;
	to->rtr.qp_state = IBV_QPS_RTR;
	attr_rtr(id, &to->rtr);
	to->rts.qp_state = IBV_QPS_RTS;
	attr_rts(id, &to->rts);
}

void cm_query_beside(const struct cm_id *id, struct proto_cm_event *to)
{
	switch (to->event.event) {
	case REPORT_ADDR_RESOLVED:
		add_addr(id, to);
		add_init(id, to);
		break;
	case REPORT_ROUTE_RESOLVED:
		add_path(id, to);
		break;
	case REPORT_CONNECT_REQUEST:
		add_addr(id, to);
		add_path(id, to);
		add_init(id, to);
		add_ready(id, to);
		break;
	case REPORT_CONNECT_RESPONSE:
		add_init(id, to);
		add_ready(id, to);
		break;
	default:
		break;
	}
}

/* ------------------------------------------------------------------ SET_OPTION */

static int set_id_option(struct cm_id *id, uint32_t name, const uint8_t *value, size_t size)
{
	uint32_t word = 0;

	memcpy(&word, value, size < sizeof(word) ? size : sizeof(word));
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (size != 1)
			return -EINVAL;
		id->tos = id->path.traffic_class = value[0];
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		/* An identifier that listens can't begin to share its port. */
		if (size != sizeof(int) ||
		    (id->state != ID_IDLE && (!word || id->state == ID_LISTEN)))
			return -EINVAL;
		id->reuse = word;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		if (size != sizeof(int) || (id->state != ID_IDLE && id->state != ID_BOUND))
			return -EINVAL;
		id->family_only = word;
		id->family_set = true;
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (size != 1 || value[0] > 31 || id->type == CM_ID_UC || id->type == CM_ID_UD)
			return -EINVAL;
		id->ack_timeout = value[0];
		id->has_ack_timeout = true;
		return 0;
	default:
		return -ENOSYS;
	}
}

/* Which of the paths, by its flags; NULL: none. */
static const uint8_t *find_path(const uint8_t *value, size_t size, uint32_t flags)
{
	struct ib_path_rec_data data;

	for (; size; size -= sizeof(data), value += sizeof(data)) {
		memcpy(&data, value, sizeof(data));
		if (data.flags == flags)
			return value + offsetof(struct ib_path_rec_data, path_rec);
	}
	return NULL;
}

/*
 * Sets the path, instead of RESOLVE_ROUTE. Its ends must be the resolved ones. On a node the
 * program may have the record from anywhere; on Ethernet the host's routing decides where packets
 * go, and of the other fields only those that exist there are used. Of a connected identifier
 * the path may be an alternate one.
 */
static int cm_id_set_path(struct cm_id *id, const uint8_t *value, size_t size)
{
	enum { PRIMARY = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL };
	enum { ALTERNATE = IB_PATH_ALTERNATE | IB_PATH_BIDIRECTIONAL };
	const bool later = id->state == ID_CONNECT;

	if (!size || size % sizeof(struct ib_path_rec_data))
		return -EINVAL;
	const uint8_t *record = find_path(value, size, later ? ALTERNATE : PRIMARY);

	if (record && later)
		return cm_alternate_begin(id, record);
	if (!record || id->state != ID_ADDR_RESOLVED ||
	    memcmp(record + 8, id->path.remote, 16) != 0 ||
	    memcmp(record + 24, id->path.local, 16) != 0)
		return -EINVAL;
	id->path.traffic_class = record[48];
	if (cm_id_node(id))
		cm_path_take(&id->path, record);
	id->state = ID_ROUTE_RESOLVED;
	cm_id_event(id, REPORT_ROUTE_RESOLVED, 0);
	return 0;
}

int cm_command_set_option(struct cm_request *request, void *response)
{
	const struct rdma_ucm_set_option *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);

	(void)response;
	if (!id || body->optval || body->optlen > PROTO_CM_OPTION_MAX ||
	    request->extra_size != body->optlen)
		return -EINVAL;
	if (body->level == RDMA_OPTION_ID)
		return set_id_option(id, body->optname, request->extra, body->optlen);
	if (body->level == RDMA_OPTION_IB && body->optname == RDMA_OPTION_IB_PATH)
		return cm_id_set_path(id, request->extra, body->optlen);
	return -ENOSYS;
}
