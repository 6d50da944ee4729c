/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * BIND, RESOLVE_ADDR, RESOLVE_ROUTE: which of the host's addresses an identifier has. The host's
 * routing decides: the daemon connects a UDP socket, which sends nothing and doesn't wait, and
 * reads its source address. So the events follow at once, except for a host whose link address the
 * kernel doesn't know yet (neighbour.h).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cm/cm_attr.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/device.h"
#include "daemon/net/route.h"
#include "wire/flow.h"

/* ------------------------------------------------------------------ the device */

/* Takes the device of the source address, which isn't "any". Returns 0; -ENODEV: it is no GID of
 * any device. */
static int take_device(struct cm_id *id)
{
	if (cm_id_node(id))
		return cm_id_take_device(id) ? 0 : -ENODEV;
	cm_address_gid(&id->source, id->path.local);
	id->path.ifindex = id->source.any.sa_family == AF_INET6 ? id->source.six.sin6_scope_id : 0;
	return cm_id_take_device(id) ? 0 : -ENODEV;
}

/* ------------------------------------------------------------------ BIND */

static int bind_port(struct cm_id *id)
{
	const struct cm_client *client = id->object.client;

	return cm_ports_bind(cm_id_ports(id), id, client->conn->user->uid == 0);
}

/* The device of an address that a program binds. As in Linux, a device on Ethernet isn't found by
 * the address family AF_IB (-ENODEV), though its GIDs are known. */
static int bind_device(struct cm_id *id)
{
	if (cm_address_is_ib(&id->source) && !cm_id_node(id))
		return -ENODEV;
	return take_device(id) ? -EADDRNOTAVAIL : 0;
}

static int bind_id(struct cm_id *id, const union cm_address *address)
{
	uint16_t space = id->port_space;

	if (id->state != ID_IDLE)
		return -EINVAL;
	id->source = *address;
	if (cm_address_is_ib(&id->source) &&
	    cm_address_choose_space(&id->source, id->port_space, &id->port_space)) {
		id->source.any.sa_family = AF_UNSPEC;
		return -EPROTONOSUPPORT;
	}
	if (!id->family_set)
		id->family_only =
			address->any.sa_family == AF_INET ||
			(address->any.sa_family == AF_INET6 && cm_id_service(id)->ports.v6_only);
	int err = cm_address_is_any(address) ? 0 : bind_device(id);

	/* As in Linux: it takes a device when it is resolved. A program (libfabric) sees by that
	 * that other hosts can't reach it there. */
	if (!err && cm_gid_is_loopback(id->path.local))
		id->device = NULL;
	if (!err)
		err = bind_port(id);
	if (err) {
		id->source.any.sa_family = AF_UNSPEC;
		id->port_space = space;
		id->device = NULL;
		return err;
	}
	id->state = ID_BOUND;
	return 0;
}

int cm_bind_any(struct cm_id *id)
{
	const union cm_address any = {.any.sa_family = AF_INET};

	return bind_id(id, &any);
}

int cm_command_bind(struct cm_request *request, void *response)
{
	const struct rdma_ucm_bind *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);
	union cm_address address;

	(void)response;
	if (!id || body->reserved)
		return -EINVAL;
	if (body->addr_size > sizeof(body->addr) ||
	    !cm_address_take(&body->addr, body->addr_size, &address))
		return -EAFNOSUPPORT;
	return bind_id(id, &address);
}

/* ------------------------------------------------------------------ RESOLVE_ADDR */

static void set_loopback(union cm_address *address)
{
	if (address->any.sa_family == AF_INET)
		address->four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		address->six.sin6_addr = in6addr_loopback;
}

static int ask_route(int fd, const union cm_address *from, const union cm_address *to,
		     union cm_address *source)
{
	union cm_address local = *from;
	socklen_t size = sizeof(*source);

	cm_address_set_port(&local, 0);
	if (!cm_address_is_any(from) && bind(fd, &local.any, cm_address_size(&local)) < 0)
		return -errno;
	if (connect(fd, &to->any, cm_address_size(to)) < 0 ||
	    getsockname(fd, &source->any, &size) < 0)
		return -errno;
	return 0;
}

/* Sets the source to the address from which packets to `to` are sent. Returns 0; -ENETUNREACH,
 * -EHOSTUNREACH, ... */
static int find_source(struct cm_id *id, const union cm_address *to)
{
	union cm_address source = {0};
	uint16_t port = cm_address_port(&id->source);
	int fd = socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	int err = ask_route(fd, &id->source, to, &source);

	close(fd);
	if (err)
		return err;
	cm_address_set_port(&source, port);
	id->source = source;
	return 0;
}

/* Sets the device and the path. Returns 0, or the status of ADDR_ERROR. */
static int find_way(struct cm_id *id)
{
	struct server *server = cm_server(id->object.client);
	struct cm_service *service = server->cm;
	int err = take_device(id);

	if (err)
		return err;
	cm_address_gid(&id->destination, id->path.remote);
	id->path.traffic_class = id->tos;
	/* A group is no host to connect to; datagrams to it go another way (mcast.h). */
	id->path.on_host = true;
	if (flow_is_multicast(id->path.remote))
		return 0;
	id->path.on_host = route_is_local(server, id->path.remote);
	if (id->path.on_host && service->force_wire && service->wire.service)
		id->path.on_host = false;
	if (id->path.on_host)
		return 0;
	cm_service_open_udp(service);
	return service->wire.service ? 0 : -ENODEV;
}

static bool cm_address_is_group(const union cm_address *address)
{
	uint8_t gid[16];

	cm_address_gid(address, gid);
	return flow_is_multicast(gid);
}

static void cm_id_resolved(struct cm_id *id, int status)
{
	id->state = status ? ID_BOUND : ID_ADDR_RESOLVED;
	if (status)
		id->device = NULL;
	cm_id_event(id, status ? REPORT_ADDR_ERROR : REPORT_ADDR_RESOLVED, status);
}

static void on_neighbour(struct neighbour_question *question, int status)
{
	cm_id_resolved(container_of(question, struct cm_id, question), status);
}

/* Whether a host answers at the destination or its gateway. -EINPROGRESS: the event follows. */
static int find_neighbour(struct cm_id *id, uint32_t timeout_ms)
{
	if (id->path.on_host)
		return 0;
	id->question.answer = on_neighbour;
	memcpy(&id->question.from, &id->source, sizeof(id->question.from));
	memcpy(&id->question.to, &id->destination, sizeof(id->question.to));
	return neighbour_ask(&cm_id_service(id)->neighbours, &id->question, timeout_ms);
}

/* The source of an identifier of a node, which is bound to all addresses, is the node's address. */
static void find_node_source(struct cm_id *id, const struct cm_node *node)
{
	uint32_t version = id->destination.any.sa_family == AF_INET ? 4 : 6;
	uint16_t port = cm_address_port(&id->source);
	uint8_t address[16];

	if (!cm_address_is_any(&id->source))
		return;
	if (cm_node_address(node, version, address))
		cm_address_from_gid(address, version, port, 0, &id->source);
	else
		set_loopback(&id->source);
}

/* Nothing but the identifier's own port is to be found: whether there is a port with the GID, the
 * subnet administration will say. */
static int resolve_ib(struct cm_id *id, struct cm_node *node)
{
	uint8_t gid[16];

	cm_address_gid(&id->destination, gid);
	id->device = &node->device;
	id->gid_index = 0;
	int err = cm_node_path_to_gid(node, gid, ntohs(id->destination.ib.pkey), &id->path);

	if (!err && cm_address_is_any(&id->source))
		memcpy(id->source.ib.gid, id->path.local, sizeof(id->source.ib.gid));
	else if (!err)
		cm_address_gid(&id->source, id->path.local);
	if (!err && !id->source.ib.pkey)
		id->source.ib.pkey = htons(id->path.pkey);
	cm_id_resolved(id, err);
	return 0;
}

/* The topology says which node has an address, so the event follows at once. */
static int resolve_on_node(struct cm_id *id, struct cm_node *node)
{
	uint8_t address[16];
	int err;

	cm_address_gid(&id->destination, address);
	find_node_source(id, node);
	id->device = &node->device;
	id->gid_index = 0;
	if (flow_is_multicast(address)) {
		uint8_t own[16];

		cm_address_gid(&id->source, own);
		err = cm_node_path(node, own, &id->path);
	} else {
		err = cm_node_path(node, address, &id->path);
	}
	cm_id_resolved(id, err);
	return 0;
}

static int cm_id_resolve(struct cm_id *id, const union cm_address *to, uint32_t timeout_ms)
{
	id->destination = *to;
	if (cm_address_is_ib(to))
		return cm_id_node(id) ? resolve_ib(id, cm_id_node(id)) : -ENODEV;
	if (cm_address_is_any(to))
		set_loopback(&id->destination);
	if (cm_id_node(id))
		return resolve_on_node(id, cm_id_node(id));
	/* An identifier with a source address reaches groups on that interface, whatever the routes
	 * say. */
	bool knows = cm_address_is_group(to) && !cm_address_is_any(&id->source);
	int err = knows ? 0 : find_source(id, &id->destination);

	if (err)
		return err;
	id->state = ID_ADDR_QUERY;
	err = find_way(id);
	if (!err)
		err = find_neighbour(id, timeout_ms);
	if (err != -EINPROGRESS)
		cm_id_resolved(id, err);
	return 0;
}

/* Binds an identifier that isn't bound: to the given address, or to any of the family. */
static int bind_source(struct cm_id *id, const union cm_address *from, sa_family_t family)
{
	union cm_address any = {.any.sa_family = family};

	if (id->state != ID_IDLE)
		return 0;
	return bind_id(id, from->any.sa_family ? from : &any);
}

int cm_command_resolve_addr(struct cm_request *request, void *response)
{
	const struct rdma_ucm_resolve_addr *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);
	union cm_address from = {0}, to;

	(void)response;
	if (!id || body->reserved)
		return -EINVAL;
	if (body->dst_size > sizeof(body->dst_addr) || body->src_size > sizeof(body->src_addr) ||
	    !cm_address_take(&body->dst_addr, body->dst_size, &to) ||
	    (body->src_size && !cm_address_take(&body->src_addr, body->src_size, &from)))
		return -EAFNOSUPPORT;
	if (from.any.sa_family && from.any.sa_family != to.any.sa_family)
		return -EINVAL;
	int err = bind_source(id, &from, to.any.sa_family);

	if (err)
		return err;
	if (id->state != ID_BOUND || id->source.any.sa_family != to.any.sa_family)
		return -EINVAL;
	return cm_id_resolve(id, &to, body->timeout_ms);
}

void cm_path_take(struct cm_path *path, const uint8_t *record)
{
	path->remote_lid = (uint16_t)(record[40] << 8 | record[41]);
	path->local_lid = (uint16_t)(record[42] << 8 | record[43]);
	path->pkey = (uint16_t)(record[50] << 8 | record[51]);
	path->sl = record[53] & 15;
	path->mtu = record[54] & 0x3f;
	path->rate = record[55] & 0x3f;
	path->life_time = record[56] & 0x3f;
}

/* The path record that answers RESOLVE_ROUTE, or a loss. */
static void on_path_record(struct cm_query *query, int status, const uint8_t *record)
{
	struct cm_id *id = container_of(query, struct cm_id, query);

	id->state = status ? ID_ADDR_RESOLVED : ID_ROUTE_RESOLVED;
	if (!status) {
		cm_node_path_note(cm_id_node(id), &id->path, record, id->asked_at);
		cm_path_take(&id->path, record);
	}
	cm_id_event(id, status ? REPORT_ROUTE_ERROR : REPORT_ROUTE_RESOLVED, status);
}

static int ask_path(struct cm_id *id, struct cm_node *node, uint32_t timeout_ms)
{
	enum { DGID = 1 << 2, SGID = 1 << 3, REVERSIBLE = 1 << 11, NUMB = 1 << 12, PKEY = 1 << 13 };
	const uint8_t *known = cm_node_path_known(node, &id->path);
	uint8_t record[64] = {0};

	if (known) {
		cm_path_take(&id->path, known);
		id->state = ID_ROUTE_RESOLVED;
		cm_id_event(id, REPORT_ROUTE_RESOLVED, 0);
		return 0;
	}
	memcpy(record + 8, id->path.remote, 16);
	memcpy(record + 24, id->path.local, 16);
	record[49] = 1 << 7 | 1; /* reversible; one path */
	record[50] = (uint8_t)(id->path.pkey >> 8);
	record[51] = (uint8_t)id->path.pkey;
	id->query.answer = on_path_record;
	id->asked_at = cm_node_epoch(node);
	int err = cm_node_ask(node, &id->query, CM_SA_GET, CM_SA_PATH,
			      DGID | SGID | REVERSIBLE | NUMB | PKEY, record, timeout_ms);

	if (!err)
		id->state = ID_ROUTE_QUERY;
	return err;
}

int cm_command_resolve_route(struct cm_request *request, void *response)
{
	const struct rdma_ucm_resolve_route *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);

	(void)response;
	if (!id || id->state != ID_ADDR_RESOLVED)
		return -EINVAL;
	if (cm_id_node(id))
		return ask_path(id, cm_id_node(id), body->timeout_ms);
	/* The route may have gone since the address was resolved. */
	union cm_address source = id->source;
	int err = id->path.on_host ? 0 : find_source(id, &id->destination);

	id->source = source;
	if (!err)
		id->state = ID_ROUTE_RESOLVED;
	cm_id_event(id, err ? REPORT_ROUTE_ERROR : REPORT_ROUTE_RESOLVED, err);
	return 0;
}
