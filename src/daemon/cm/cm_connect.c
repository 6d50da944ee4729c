/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections: the programs' commands to the state machine (CONNECT, LISTEN, ACCEPT, REJECT,
 * DISCONNECT, NOTIFY), and the state machine's callbacks.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cm/cm_attr.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "daemon/core/loop.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "proto/limits.h"

enum { BACKLOG_MAX = 1024, RETRIES_MAX = 7 };

static struct cm *cm_id_machine(const struct cm_id *id)
{
	return &cm_id_service(id)->cm;
}

/* The one that the identifier connects to. */
static uint64_t cm_id_service_id(const struct cm_id *id)
{
	if (cm_address_is_ib(&id->destination))
		return be64toh(id->destination.ib.service_id);
	return (uint64_t)id->port_space << 16 | cm_address_port(&id->destination);
}

/* ------------------------------------------------------------------ LISTEN */

int cm_command_listen(struct cm_request *request, void *response)
{
	const struct rdma_ucm_listen *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);
	int32_t backlog = (int32_t)body->backlog;

	(void)response;
	if (!id || (id->state != ID_BOUND && id->state != ID_IDLE))
		return -EINVAL;
	int err = id->state == ID_IDLE ? cm_bind_any(id) : 0;

	if (!err)
		err = cm_ports_check_listen(id);
	if (err)
		return err;
	id->backlog = backlog > 0 && backlog < BACKLOG_MAX ? (uint32_t)backlog : BACKLOG_MAX;
	id->state = ID_LISTEN;
	return 0;
}

/* ------------------------------------------------------------------ CONNECT */

/* Compares pid and user: librdmacm doesn't know the cookie, which libibverbs keeps to itself. */
static bool cm_client_is_of_process(const struct process *process, const struct cm_client *client)
{
	return process->pid == client->conn->pid && process->user == client->conn->user;
}

/* The queue pair must be of the client's own process, or, while that is unknown, of no process of
 * another client. Otherwise one program could make another's connections look stale. */
static int check_qpn(const struct cm_id *id, uint32_t qpn)
{
	uint32_t slot = cm_client_slot(id->object.client), of = qpn >> LIMIT_QP_BITS;

	if (qpn >> 24)
		return -EINVAL;
	if (!qpn || of == slot)
		return 0;
	const struct process *owner = process_by_slot(cm_server(id->object.client), of);

	return slot || (owner && !cm_client_is_of_process(owner, id->object.client)) ? -EINVAL : 0;
}

/* Writes the IP header, unless the address is InfiniBand's, then the program's own data. Returns
 * the bytes of both, or -EINVAL. */
static int cm_id_private_data(const struct cm_id *id, const struct rdma_ucm_conn_param *param,
			      uint8_t room[CM_PRIVATE_MAX])
{
	struct cm_ip ip = {
		.version = id->source.any.sa_family == AF_INET ? 4 : 6,
		.port = cm_address_port(&id->source),
	};

	if (cm_address_is_ib(&id->source)) {
		if (param->private_data_len > CM_PRIVATE_MAX)
			return -EINVAL;
		memcpy(room, param->private_data, param->private_data_len);
		return param->private_data_len;
	}
	if (CM_IP_HEADER + param->private_data_len > CM_PRIVATE_MAX)
		return -EINVAL;
	cm_address_gid(&id->source, ip.source);
	cm_address_gid(&id->destination, ip.destination);
	cm_ip_encode(&ip, room);
	memcpy(room + CM_IP_HEADER, param->private_data, param->private_data_len);
	return CM_IP_HEADER + param->private_data_len;
}

/* The largest payload of a packet that fits the path's MTU with the headers around it. */
static uint8_t path_mtu(const struct cm_id *id)
{
	enum { HEADERS = 96 };
	static const uint32_t bytes[] = {0, 256, 512, 1024, 2048, 4096};
	struct ifreq request = {0};
	int fd = -1;
	uint8_t mtu = IBV_MTU_4096;

	if (id->path.node)
		return id->path.mtu ? id->path.mtu : (uint8_t)IBV_MTU_2048;
	if (id->path.on_host)
		return mtu;
	if (if_indextoname(id->path.ifindex, request.ifr_name))
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0)
		while (mtu > IBV_MTU_256 && (int)(bytes[mtu] + HEADERS) > request.ifr_mtu)
			mtu--;
	else
		mtu = IBV_MTU_1024;
	if (fd >= 0)
		close(fd);
	return mtu;
}

static uint8_t at_most(uint8_t value, uint8_t max)
{
	return value < max ? value : max;
}

static uint8_t transport_of_type(uint8_t type)
{
	switch (type) {
	case CM_ID_UC:
		return CM_TRANSPORT_UC;
	case CM_ID_XRC_SEND:
	case CM_ID_XRC_RECV:
		return CM_TRANSPORT_XRC;
	default:
		return CM_TRANSPORT_RC;
	}
}

static int connect_rc(struct cm_id *id, const struct rdma_ucm_connect *body,
		      const struct cm_private *private_data)
{
	const struct rdma_ucm_conn_param *param = &body->conn_param;
	const struct cm_connect connect = {
		.path = id->path,
		.service_id = cm_id_service_id(id),
		.qp = {.transport = transport_of_type(id->type),
		       .local_qpn = param->qp_num,
		       .local_psn = id->psn,
		       .responder_resources = param->responder_resources,
		       .initiator_depth = param->initiator_depth,
		       .retry_count = at_most(param->retry_count, RETRIES_MAX),
		       .rnr_retry = at_most(param->rnr_retry_count, RETRIES_MAX),
		       .mtu = path_mtu(id),
		       .ack_timeout = id->has_ack_timeout ? id->ack_timeout : 0,
		       .traffic_class = id->tos},
		.flow_control = param->flow_control,
		.srq = param->srq,
		.vendor_id = body->ece.vendor_id,
		.vendor_option = body->ece.attr_mod,
		.private_data = *private_data,
	};

	return cm_connect(cm_id_machine(id), id->endpoint, &connect, now_ms());
}

int cm_command_connect(struct cm_request *request, void *response)
{
	const struct rdma_ucm_connect *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);
	uint8_t room[CM_PRIVATE_MAX];

	(void)response;
	if (!id || !body->conn_param.valid || body->reserved || id->state != ID_ROUTE_RESOLVED ||
	    check_qpn(id, body->conn_param.qp_num))
		return -EINVAL;
	int size = cm_id_private_data(id, &body->conn_param, room);

	if (size < 0)
		return size;
	if (!id->endpoint)
		id->endpoint = cm_open(cm_id_machine(id), id);
	if (!id->endpoint)
		return -ENOMEM;
	const struct cm_private private_data = {room, (uint32_t)size};
	int err = id->type == CM_ID_UD
			  ? cm_sidr_request(cm_id_machine(id), id->endpoint, &id->path,
					    cm_id_service_id(id), &private_data, now_ms())
			  : connect_rc(id, body, &private_data);

	if (err)
		return err;
	id->qpn = body->conn_param.qp_num;
	id->state = ID_CONNECT;
	return 0;
}

/* ------------------------------------------------------------------ ACCEPT */

static int accept_rc(struct cm_id *id, const struct rdma_ucm_accept *body,
		     const struct cm_private *private_data)
{
	const struct rdma_ucm_conn_param *param = &body->conn_param;
	const struct cm_accept accept = {
		.qpn = param->qp_num,
		.psn = id->psn,
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
		.rnr_retry = at_most(param->rnr_retry_count, RETRIES_MAX),
		.flow_control = param->flow_control,
		.srq = param->srq,
		.vendor_id = body->ece.vendor_id,
		.vendor_option = body->ece.attr_mod,
		.private_data = *private_data,
	};

	return cm_accept(cm_id_machine(id), id->endpoint, &accept, now_ms());
}

/* ACCEPT on the passive side: the answer to a request. */
static int accept_request(struct cm_id *id, const struct rdma_ucm_accept *body)
{
	const struct rdma_ucm_conn_param *param = &body->conn_param;
	const struct cm_private private_data = {param->private_data, param->private_data_len};

	if (check_qpn(id, param->qp_num) || !body->uid)
		return -EINVAL;
	int err = id->type == CM_ID_UD
			  ? cm_sidr_answer(cm_id_machine(id), id->endpoint, CM_SIDR_SUCCESS,
					   param->qp_num, CM_UDP_QKEY, &private_data, now_ms())
			  : accept_rc(id, body, &private_data);

	if (err)
		return err;
	id->uid = body->uid;
	id->qpn = param->qp_num;
	cm_id_drop_request(id);
	return 0;
}

/* Tells the peer that there will be no connection. */
static int cm_id_refuse(struct cm_id *id, enum cm_reject reason,
			const struct cm_private *private_data)
{
	int err = id->type == CM_ID_UD
			  ? cm_sidr_answer(cm_id_machine(id), id->endpoint, CM_SIDR_REJECT, 0, 0,
					   private_data, now_ms())
			  : cm_reject(cm_id_machine(id), id->endpoint, reason, private_data,
				      now_ms());

	if (!err)
		cm_id_drop_request(id);
	return err;
}

int cm_command_accept(struct cm_request *request, void *response)
{
	const struct rdma_ucm_accept *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);

	(void)response;
	if (!id || body->reserved || id->state != ID_CONNECT || !id->endpoint)
		return -EINVAL;
	int err = body->conn_param.valid ? accept_request(id, body)
					 : cm_confirm(cm_id_machine(id), id->endpoint);

	/* As in Linux the peer doesn't wait for what failed here. In a state that has nothing to
	 * refuse (established, ended) this does nothing. */
	if (err)
		cm_id_refuse(id, CM_REJECT_CONSUMER, NULL);
	return err;
}

/* ------------------------------------------------------------------ the others */

int cm_command_reject(struct cm_request *request, void *response)
{
	const struct rdma_ucm_reject *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);
	const struct cm_private private_data = {body->private_data, body->private_data_len};
	uint8_t reason = body->reason ? body->reason : CM_REJECT_CONSUMER;

	(void)response;
	if (!id || !id->endpoint ||
	    (reason != CM_REJECT_CONSUMER && reason != CM_REJECT_VENDOR_OPTION))
		return -EINVAL;
	return cm_id_refuse(id, reason, &private_data);
}

int cm_command_disconnect(struct cm_request *request, void *response)
{
	const struct rdma_ucm_disconnect *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);

	(void)response;
	if (!id || !id->endpoint || id->type == CM_ID_UD)
		return -EINVAL;
	cm_alternate_follow(id);
	cm_disconnect(cm_id_machine(id), id->endpoint,
		      now_ms()); /* already disconnected: not an error */
	return 0;
}

int cm_command_notify(struct cm_request *request, void *response)
{
	const struct rdma_ucm_notify *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);

	(void)response;
	if (!id || !id->endpoint || body->event != IBV_EVENT_COMM_EST)
		return -EINVAL;
	return cm_establish(cm_id_machine(id), id->endpoint);
}

/* ------------------------------------------------------------------ requests from peers */

static void fill_private(struct rdma_ucm_event_resp *event, const struct cm_mad *mad, uint32_t skip,
			 bool ud)
{
	uint32_t size = cm_private_size(mad->message) - skip;

	if (ud) {
		memcpy(event->param.ud.private_data, mad->private_data + skip, size);
		event->param.ud.private_data_len = (uint8_t)size;
	} else {
		memcpy(event->param.conn.private_data, mad->private_data + skip, size);
		event->param.conn.private_data_len = (uint8_t)size;
	}
}

/* Seen from this side: what the peer offers as initiator is this side's limit as responder, and
 * vice versa. */
static void fill_conn(struct rdma_ucm_event_resp *event, const struct cm_mad *mad)
{
	struct rdma_ucm_conn_param *conn = &event->param.conn;

	conn->responder_resources = (uint8_t)mad->initiator_depth;
	conn->initiator_depth = (uint8_t)mad->responder_resources;
	conn->flow_control = (uint8_t)mad->flow_control;
	conn->retry_count = (uint8_t)mad->retry_count;
	conn->rnr_retry_count = (uint8_t)mad->rnr_retry;
	conn->srq = (uint8_t)mad->srq;
	conn->qp_num = mad->qpn;
	event->ece.vendor_id =
		mad->message == CM_REQ
			? mad->vendor_id
			: mad->vendor_id_h << 16 | mad->vendor_id_m << 8 | mad->vendor_id_l;
	event->ece.attr_mod = mad->attribute_modifier;
}

/* The answer to a request for which there is no listener. */
static int cm_mad_refusal(const struct cm_mad *mad)
{
	return mad->message == CM_SIDR_REQ ? CM_SIDR_UNSUPPORTED : CM_REJECT_SERVICE_ID;
}

/*
 * The answer to a request for which there is no room now: the backlog is full, or memory or the
 * user's objects are used up. As in Linux a REQ isn't answered, so that its repetition gets
 * through when there is room; a SIDR_REQ is refused.
 */
static int cm_mad_no_room(const struct cm_mad *mad)
{
	return mad->message == CM_SIDR_REQ ? CM_SIDR_REJECT : -1;
}

/* The listener for a request, at a node or on the host; NULL: none. `ip`: the request's addresses;
 * NULL: it has none, so that it can only be for a listener with an address AF_IB: at a node one
 * that is bound to a GID or to any, on the host one that is bound to any. */
static struct cm_id *find_listener(struct cm_service *service, const struct cm_path *path,
				   const struct cm_mad *mad, const struct cm_ip *ip)
{
	uint16_t port_space = (uint16_t)(mad->service_id >> 16);
	/* What asks for XRC has the initiator, so the listener is to have a target. */
	uint8_t type = mad->message == CM_SIDR_REQ	    ? CM_ID_UD
		       : mad->transport == CM_TRANSPORT_XRC ? CM_ID_XRC_RECV
		       : mad->transport == CM_TRANSPORT_UC  ? CM_ID_UC
							    : CM_ID_RC;

	if (mad->service_id >> 32)
		return NULL;
	struct cm_node *node = path->node ? cm_node_by_number(service, path->node) : NULL;
	const struct cm_ports *ports = node ? &node->ports : &service->ports;
	struct cm_id *listener = NULL;

	if (ip)
		listener = cm_ports_listener(ports, port_space, (uint16_t)mad->service_id,
					     ip->destination);
	else
		listener = cm_ports_listener_ib(ports, port_space, (uint16_t)mad->service_id,
						path->local);
	return listener && listener->type == type ? listener : NULL;
}

/* Sets the identifier's addresses; `ip` as above. False: the request's destination is no address of
 * a device. */
static bool cm_id_fill_request(struct cm_id *id, const struct cm_endpoint *endpoint,
			       const struct cm_mad *mad, const struct cm_ip *ip)
{
	uint32_t scope = endpoint->path.ifindex;

	id->path = endpoint->path;
	if (ip) {
		cm_address_from_gid(ip->destination, ip->version, (uint16_t)mad->service_id, scope,
				    &id->source);
		cm_address_from_gid(ip->source, ip->version, ip->port, scope, &id->destination);
	} else {
		uint16_t pkey = cm_id_pkey(id);

		cm_address_from_ib(id->path.local, pkey, mad->service_id, &id->source);
		cm_address_from_ib(id->path.remote, pkey, 0, &id->destination);
	}
	id->state = ID_CONNECT;
	return cm_id_take_device(id);
}

static int cm_id_on_request(void *arg, struct cm_endpoint *endpoint, const struct cm_mad *mad)
{
	struct cm_service *service = arg;
	struct rdma_ucm_event_resp event = {.event = REPORT_CONNECT_REQUEST};
	struct cm_ip header;
	const struct cm_ip *ip = cm_ip_decode(mad->private_data, &header) ? &header : NULL;
	struct cm_id *listener = find_listener(service, &endpoint->path, mad, ip);
	struct cm_id *id;

	/* A program's own data may look like addresses. */
	if (!listener && ip) {
		ip = NULL;
		listener = find_listener(service, &endpoint->path, mad, ip);
	}

	service->no_listener += !listener;
	if (listener && !cm_id_has_backlog(listener)) {
		service->backlog_full++;
		return cm_mad_no_room(mad);
	}
	if (!listener)
		return cm_mad_refusal(mad);
	if (cm_id_make(listener->channel, listener->port_space, listener->type, &id))
		return cm_mad_no_room(mad);
	if (!cm_id_fill_request(id, endpoint, mad, ip)) {
		cm_id_free(id);
		return cm_mad_refusal(mad);
	}
	id->tos = listener->tos;
	id->endpoint = endpoint;
	endpoint->owner = id;
	event.uid = listener->uid;
	event.id = id->object.handle;
	fill_private(&event, mad, ip ? CM_IP_HEADER : 0, id->type == CM_ID_UD);
	if (id->type != CM_ID_UD)
		fill_conn(&event, mad);
	listener->was_asked = true;
	listener->asker = cm_service_asker(&endpoint->path, mad);
	cm_id_add_request(listener, id);
	if (!cm_channel_post(listener->channel, &event))
		return 0;
	id->endpoint = NULL; /* the endpoint stays the caller's */
	cm_id_free(id);
	return cm_mad_no_room(mad);
}

/* ------------------------------------------------------------------ what happens to connections */

static void cm_id_on_sidr_reply(struct cm_id *id, const struct cm_mad *mad)
{
	struct rdma_ucm_event_resp event = {
		.event = mad->reason ? REPORT_UNREACHABLE : REPORT_ESTABLISHED,
		.status = mad->reason,
	};

	fill_private(&event, mad, 0, true);
	if (!mad->reason) {
		event.param.ud.qp_num = mad->qpn;
		event.param.ud.qkey = mad->qkey;
		cm_attr_fill_ah(id, &event.param.ud.ah_attr);
	}
	cm_id_event_with(id, &event);
}

static void cm_id_on_event(void *arg, struct cm_endpoint *endpoint, const struct cm_event *e)
{
	struct cm_id *id = endpoint->owner;
	struct rdma_ucm_event_resp event = {.status = (uint32_t)e->status};

	(void)arg;
	switch (e->type) {
	case CM_EVENT_REP:
		event.event = REPORT_CONNECT_RESPONSE;
		fill_private(&event, e->mad, 0, false);
		fill_conn(&event, e->mad);
		break;
	case CM_EVENT_ESTABLISHED:
		event.event = REPORT_ESTABLISHED;
		break;
	case CM_EVENT_REJECTED:
		event.event = REPORT_REJECTED;
		fill_private(&event, e->mad, 0, false);
		break;
	case CM_EVENT_UNREACHABLE:
		event.event = REPORT_UNREACHABLE;
		break;
	case CM_EVENT_DISCONNECTED:
		cm_alternate_end(id);
		event.event = REPORT_DISCONNECTED;
		break;
	case CM_EVENT_TIMEWAIT_EXIT:
		event.event = REPORT_TIMEWAIT_EXIT;
		break;
	case CM_EVENT_SIDR_REP:
		cm_id_on_sidr_reply(id, e->mad);
		return;
	case CM_EVENT_LOAD:
		cm_alternate_on_load(id, e->mad);
		return;
	case CM_EVENT_LOADED:
		cm_alternate_on_loaded(id, e->mad);
		return;
	case CM_EVENTS:
		return;
	}
	cm_id_event_with(id, &event);
}

const struct cm_ops cm_service_ops = {
	.send = cm_service_send,
	.event = cm_id_on_event,
	.request = cm_id_on_request,
};
