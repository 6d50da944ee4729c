/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A node's management datagrams: their connections to verbena-fabric, messages of the connection
 * manager, questions to the subnet administration. See cm_node.h.
 *
 * A connection's two agents are registered in a row, so that their numbers are known without
 * waiting for the answers, which no code reads. Questions come first: they conflict with no other
 * program's agent. If another program has QP 1's connection manager on this port, no message comes,
 * and connections fail as if the network lost all messages.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "daemon/cm/cm_fabric.h"
#include "daemon/cm/cm_node.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "fabric/internal.h"
#include "proto/fabric.h"
#include "proto/proto.h"

enum { AGENT_SA, AGENT_CM };
enum { CLASS_SA = 0x03, CLASS_CM = 0x07, METHOD_SEND = 0x03, METHOD_ANSWER = 0x80 };
enum { AT_RMPP = 24, AT_SM_KEY = 36, AT_MASK = 48, AT_RECORD = 56, RECORD_BYTES = 64 };
enum { SA_RETRIES = 9 };

/* ------------------------------------------------------------------ the connection */

int cm_fabric_ask(const char *directory, uint32_t kind, const char *name, uint32_t port)
{
	struct proto_fabric_named named = {.request = {PROTO_FABRIC_ABI, kind}, .port = port};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int err;

	snprintf(named.node, sizeof(named.node), "%s", name);
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory,
		     PROTO_FABRIC_SOCKET) >= (int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		err = -errno;
	else
		err = packet_send(fd, &named, sizeof(named), NULL, 0, MSG_DONTWAIT);
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* Registers an agent of QP 1, with a socket for the answer that no code will read. */
static int node_agent_add(int fd, uint32_t mgmt_class, uint32_t rmpp, uint64_t methods)
{
	struct proto_fabric_register request = {
		.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_REGISTER},
		.qpn = 1,
		.mgmt_class = mgmt_class,
		.mgmt_class_version = 2,
		.rmpp_version = rmpp,
		.method_mask = {methods},
	};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	int err = packet_send(fd, &request, sizeof(request), &pair[1], 1, MSG_DONTWAIT);

	close(pair[0]);
	close(pair[1]);
	return err;
}

static void node_ready(struct watch *watch, uint32_t events);

static int node_port_open(struct cm_node_port *port)
{
	struct cm_node *node = port->node;
	int fd = cm_fabric_ask(node->service->server->dir, PROTO_FABRIC_OPEN, node->name,
			       node->tables.ports[port->row].number);

	if (fd < 0)
		return fd;
	int err = node_agent_add(fd, CLASS_SA, 1, 0);

	if (!err)
		err = node_agent_add(fd, CLASS_CM, 0, 1ull << METHOD_SEND);
	port->watch.ready = node_ready;
	if (!err)
		err = loop_add(&node->service->server->loop, &port->watch, fd, EPOLLIN);
	if (err)
		close(fd);
	return err;
}

int cm_node_mad_open(struct cm_node *node)
{
	int err = 0;

	for (uint32_t i = 0; i < node->port_count && !err; i++) {
		struct cm_node_port *port = &node->by_number[i];

		if (port->row == node->port || node->tables.ports[port->row].cable != FABRIC_NONE)
			err = node_port_open(port);
	}
	return err;
}

/* ------------------------------------------------------------------ sending */

/* What goes to verbena-fabric for a datagram. */
struct node_packet {
	struct proto_fabric_request request;
	uint8_t header[sizeof(struct ib_user_mad)];
	uint8_t mad[MAD_SIZE];
};

/* `header` says which agent sends it, and how long an answer is waited for. */
static int node_transmit(struct cm_node_port *port, struct ib_user_mad *header, const uint8_t *mad,
			 uint16_t lid, uint8_t sl)
{
	struct cm_node *node = port->node;
	struct node_packet packet = {.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_MAD}};

	header->length = sizeof(*header) + MAD_SIZE;
	header->addr.qpn = htobe32(MAD_GSI_QPN);
	header->addr.qkey = htobe32(MAD_GSI_QKEY);
	header->addr.lid = htobe16(lid);
	header->addr.sl = sl;
	memcpy(packet.header, header, sizeof(packet.header));
	memcpy(packet.mad, mad, MAD_SIZE);
	int err = port->watch.fd < 0 ? cm_node_check(node) : 0;

	if (!err)
		err = cm_node_open(node);
	if (!err)
		err = packet_send(port->watch.fd, &packet, sizeof(packet), NULL, 0, MSG_DONTWAIT);
	if (err)
		node->lost++;
	return err;
}

void cm_node_send(struct cm_node *node, const struct cm_path *path, const uint8_t mad[MAD_SIZE])
{
	struct cm_node_port *port = cm_node_port_by_lid(node, path->local_lid);
	struct ib_user_mad header = {.agent_id = AGENT_CM};

	/* The manager may have given other LIDs since. */
	if (!port)
		port = cm_node_main(node);
	header.addr.path_bits =
		path->local_lid & ((1u << port_lmc(&node->tables.ports[port->row])) - 1);
	node_transmit(port, &header, mad, path->remote_lid, path->sl);
}

int cm_node_ask(struct cm_node *node, struct cm_query *query, enum cm_sa_method method,
		enum cm_sa_attribute attribute, uint64_t mask, const uint8_t record[64],
		uint32_t timeout_ms)
{
	const struct fabric_port *port = &node->tables.ports[node->port];
	struct ib_user_mad header = {.agent_id = AGENT_SA};
	uint8_t mad[MAD_SIZE] = {0};

	if (!port_sm_lid(port))
		return -EAGAIN;
	mad[0] = 1;
	mad[1] = CLASS_SA;
	mad[2] = 2;
	mad[3] = method;
	octets_put32(mad + 12, ++node->last_query);
	octets_put16(mad + 16, attribute);
	mad[AT_RMPP] = 1;
	octets_put64(mad + AT_MASK, mask);
	memcpy(mad + AT_RECORD, record, RECORD_BYTES);
	/* The whole time, in as many tries as Linux makes. */
	header.timeout_ms = query ? timeout_ms / (SA_RETRIES + 1) + 1 : 0;
	header.retries = query ? SA_RETRIES : 0;
	int err = node_transmit(cm_node_main(node), &header, mad, port_sm_lid(port),
				octet_low(port->info[INFO_MTU_SM_SL]));

	if (!err && query) {
		query->number = node->last_query;
		list_add_tail(&node->queries, &query->node);
	}
	return err;
}

void cm_node_forget(struct cm_query *query)
{
	list_del(&query->node);
	list_init(&query->node);
}

/* ------------------------------------------------------------------ receiving */

static void node_take_answer(struct cm_node *node, const struct ib_user_mad *header,
			     const uint8_t *mad, size_t bytes)
{
	uint32_t number = octets_get32(mad + 12);
	bool is_late = header->status == ETIMEDOUT;
	int status = is_late ? -ETIMEDOUT : octets_get16(mad + 4) ? -EINVAL : 0;

	if (!is_late && (bytes < MAD_SIZE || !(mad[3] & METHOD_ANSWER)))
		return;
	list_for_each(at, &node->queries) {
		struct cm_query *query = container_of(at, struct cm_query, node);

		if (query->number != number)
			continue;
		cm_node_forget(query);
		query->answer(query, status, status ? NULL : mad + AT_RECORD);
		return;
	}
}

static bool is_request(const uint8_t bytes[MAD_SIZE])
{
	struct cm_mad mad;

	return !cm_mad_decode(bytes, &mad) && (mad.message == CM_REQ || mad.message == CM_SIDR_REQ);
}

/* Connections aren't made by the node's other ports. */
static void node_take_message(const struct cm_node_port *port, const struct ib_user_mad *header,
			      const uint8_t *mad)
{
	const struct cm_node *node = port->node;
	const struct fabric *tables = &node->tables;
	struct cm_path path = {
		.node = node->number,
		.sl = header->addr.sl,
		.pkey = partition_key_get(tables, port->row,
					  header->addr.pkey_index % FABRIC_PKEYS),
	};

	if (cm_node_path_by_lids(node, port_lid(&tables->ports[port->row]),
				 be16toh(header->addr.lid), &path) &&
	    (port->row == node->port || !is_request(mad)))
		cm_service_take(node->service, &path, mad);
}

/* One packet. False: there is none, or the connection has ended. */
static bool node_take(struct cm_node_port *port, int *result)
{
	struct cm_node *node = port->node;
	uint8_t packet[sizeof(struct ib_user_mad) + 4096];
	struct ib_user_mad header;
	const uint8_t *mad = packet + sizeof(header);
	int fds[PROTO_MAX_FDS];
	ssize_t got = packet_receive(port->watch.fd, packet, sizeof(packet), fds, MSG_DONTWAIT);

	*result = got == -EAGAIN ? 0 : got == -EMSGSIZE ? 0 : got <= 0 ? -EPIPE : 0;
	if (got == -EAGAIN || *result)
		return false;
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	/* The answer to OPEN is shorter. */
	if (got < (ssize_t)(sizeof(header) + MAD_HEADER))
		return true;
	size_t bytes = (size_t)got - sizeof(header);

	memcpy(&header, packet, sizeof(header));
	if (header.agent_id == AGENT_SA)
		node_take_answer(node, &header, mad, bytes);
	else if (!header.status && bytes >= MAD_SIZE)
		node_take_message(port, &header, mad);
	return true;
}

static void node_ready(struct watch *watch, uint32_t events)
{
	struct cm_node_port *port = container_of(watch, struct cm_node_port, watch);
	struct cm_node *node = port->node;
	struct cm_service *service = node->service;
	int result = 0;

	(void)events;
	/* A callback may end the node's last client only by a later event, so the node stays. */
	while (node_take(port, &result))
		;
	if (result)
		cm_node_lost(node);
	cm_service_run(service);
}
