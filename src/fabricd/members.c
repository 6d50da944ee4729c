/* SPDX-License-Identifier: BSD-2-Clause */
/* See members.h. Owns the mappings of the processes' memory. */
#include "fabricd/members.h"

#include "base/clock.h"
#include "fabric/route.h"
#include "fabricd/timing.h"
#include "proto/fabric.h"
#include "proto/flows.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* The part of this process's time that folding may take, as one in so many. */
#define FOLD_SHARE 20

#define FLOW_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

struct member {
	struct list node;	   /* on server.members */
	struct proto_flows *flows; /* NULL: it sends no data, and wants the events only */
	uint32_t row;		   /* of its node */
	int socket;		   /* the connection's */
};

/* Folding -------------------------------------------------------------------------------------- */

/* The way of a flow, copied and checked. False: there is no such way. */
static bool way_read(const struct fabric *fabric, const struct proto_flow *flow,
		     struct fabric_route *route)
{
	/* The process may change them at any moment. */
	const volatile struct proto_flow *from = flow;
	uint32_t hops = from->hops;

	route->result = from->result;
	route->blame = from->blame;
	route->hops = hops;
	if (hops > PROTO_FLOW_HOPS || route->result >= ROUTE_RESULTS ||
	    (route->blame != FABRIC_NONE && route->blame >= fabric->header->ports))
		return false;
	for (uint32_t i = 0; i < hops; i++) {
		uint32_t egress = from->egress[i];

		if (egress >= fabric->header->ports || fabric->ports[egress].cable == FABRIC_NONE)
			return false;
		route->hop[i] = (struct route_hop){
			.egress = egress,
			.ingress = fabric->ports[egress].cable,
			.sl = from->sl & 15,
		};
	}
	return true;
}

/* What was counted since the last time, of a counter that only grows; notes it as taken. */
static uint64_t take_new(const _Atomic uint64_t *count, _Atomic uint64_t *taken)
{
	uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
	uint64_t more = now - atomic_load_explicit(taken, memory_order_relaxed);

	atomic_store_explicit(taken, now, memory_order_relaxed);
	return more;
}

static void flow_fold(struct fabric *fabric, struct proto_flow *flow)
{
	/* [F2], pairs with [F1] */
	uint32_t state = atomic_load_explicit(&flow->state, memory_order_acquire);
	struct fabric_route route;
	uint64_t packets, words;
	uint32_t lost;

	if (state == PROTO_FLOW_FREE)
		return;
	packets = take_new(&flow->packets, &flow->packets_taken);
	words = take_new(&flow->words, &flow->words_taken);
	lost = atomic_load_explicit(&flow->lost, memory_order_relaxed) -
	       atomic_load_explicit(&flow->lost_taken, memory_order_relaxed);
	if ((packets || words || lost) && way_read(fabric, flow, &route)) {
		if (flow->sl & PROTO_FLOW_MULTICAST)
			route_count_multicast(fabric, &route, packets, words);
		else
			route_count(fabric, &route, packets, words);
		route_count_loss(fabric, &route, lost);
	}
	atomic_fetch_add_explicit(&flow->lost_taken, lost, memory_order_relaxed);
	if (state == PROTO_FLOW_ENDED)
		/* [F4], pairs with [F3] */
		atomic_store_explicit(&flow->state, PROTO_FLOW_FREE, memory_order_release);
}

static void member_fold(struct server *server, const struct member *member)
{
	uint32_t used = 0;

	if (member->flows)
		used = atomic_load_explicit(&member->flows->used, memory_order_relaxed);
	for (uint32_t i = 0; i < used && i < PROTO_FLOWS; i++)
		flow_fold(&server->fabric, &member->flows->flow[i]);
}

void members_fold(struct server *server)
{
	uint64_t begin = clock_ns();
	uint64_t end;

	if (begin < server->fold_ns)
		return;
	timing_fold(server);
	if (list_empty(&server->members))
		return;
	server->fabric.now_ms = begin / 1000000;
	list_for_each(node, &server->members)
		member_fold(server, container_of(node, struct member, node));
	end = clock_ns();
	server->fold_ns = end + (end - begin) * FOLD_SHARE;
}

/* Joining -------------------------------------------------------------------------------------- */

static struct proto_flows *flows_map(int fd)
{
	struct proto_flows *flows;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & FLOW_SEALS) != FLOW_SEALS || fstat(fd, &st) < 0 ||
	    (size_t)st.st_size != PROTO_FLOWS_BYTES)
		return NULL;
	flows = mmap(NULL, PROTO_FLOWS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (flows == MAP_FAILED)
		return NULL;
	if (flows->magic == PROTO_FLOWS_MAGIC)
		return flows;
	munmap(flows, PROTO_FLOWS_BYTES);
	return NULL;
}

struct member *member_join(struct server *server, uint32_t node, int socket, int flows)
{
	struct member *member = calloc(1, sizeof *member);

	if (!member)
		return NULL;
	member->row = node;
	member->socket = socket;
	member->flows = flows < 0 ? NULL : flows_map(flows);
	if (flows >= 0 && !member->flows) {
		free(member);
		return NULL;
	}
	list_add_tail(&server->members, &member->node);
	return member;
}

void member_leave(struct server *server, struct member *member)
{
	server->fabric.now_ms = server_now_ms();
	member_fold(server, member);
	if (member->flows)
		munmap(member->flows, PROTO_FLOWS_BYTES);
	list_del(&member->node);
	free(member);
}

/* Events --------------------------------------------------------------------------------------- */

void members_tell(struct server *server, uint32_t port, enum fabric_event event)
{
	static const uint32_t verbs[] = {
		[EVENT_PORT_ACTIVE] = IBV_EVENT_PORT_ACTIVE,
		[EVENT_PORT_ERROR] = IBV_EVENT_PORT_ERR,
		[EVENT_LID_CHANGE] = IBV_EVENT_LID_CHANGE,
		[EVENT_SM_CHANGE] = IBV_EVENT_SM_CHANGE,
		[EVENT_CLIENT_REREGISTER] = IBV_EVENT_CLIENT_REREGISTER,
		[EVENT_PKEY_CHANGE] = IBV_EVENT_PKEY_CHANGE,
		[EVENT_GID_CHANGE] = IBV_EVENT_GID_CHANGE,
	};
	const struct fabric_port *row = &server->fabric.ports[port];
	struct proto_fabric_event packet = {.port = row->number, .event = verbs[event]};

	list_for_each(node, &server->members) {
		const struct member *member = container_of(node, struct member, node);

		/* A process that doesn't read its events loses them. */
		if (member->row == row->node)
			send(member->socket, &packet, sizeof packet, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

int member_violates(struct server *server, const struct proto_fabric_violation *violation)
{
	struct fabric_address from = {
		.source = violation->source,
		.destination = violation->destination,
		.source_qp = violation->source_qp,
		.destination_qp = violation->destination_qp,
		.sl = violation->sl,
		.has_grh = violation->has_grh,
	};
	uint32_t port = violation->port;

	if (port >= server->fabric.header->ports || !server->fabric.ports[port].is_end_port)
		return -EPROTO;
	memcpy(from.grh + 8, violation->sgid, 16);
	memcpy(from.grh + 24, violation->dgid, 16);
	fabric_violation_add(&server->fabric, port, violation->is_pkey, violation->key, &from,
			     server_now_ms());
	return 0;
}

int member_sends(struct server *server, uint32_t port)
{
	if (port >= server->fabric.header->ports)
		return -EPROTO;
	server->fabric.now_ms = server_now_ms();
	fabric_data_came(&server->fabric, port);
	return 0;
}
