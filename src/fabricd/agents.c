/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the fabric and the agents of programs: datagrams that a port's agents send go to the
 * fabric, what the fabric doesn't answer itself goes to the agents. Neither may call the other, so
 * a queue is between them.
 */
#include "fabric/internal.h"
#include "fabricd/connection.h"
#include "fabricd/members.h"
#include "fabricd/postponed.h"
#include "fabricd/server.h"
#include "fabricd/tap.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define OUTGOING_MAX 65536u
#define QKEY_OWN 0x80000000u /* such a key in a request means the queue pair's own */
#define QKEY_QP1 0x80010000u

/* From agents to the fabric -------------------------------------------------------------------- */

static bool outgoing_grow(struct server *server)
{
	size_t room = server->outgoing_room ? server->outgoing_room * 2 : 64;
	struct outgoing *grown;

	if (room > OUTGOING_MAX)
		return false;
	grown = malloc(room * sizeof *grown);
	if (!grown)
		return false;
	for (size_t i = 0; i < server->outgoing_count; i++)
		grown[i] = server->outgoing[(server->outgoing_first + i) % server->outgoing_room];
	free(server->outgoing);
	server->outgoing = grown;
	server->outgoing_first = 0;
	server->outgoing_room = room;
	return true;
}

/* A datagram that finds no room is lost, as on a full link. */
static void agent_transmit(struct mad_port *port, int qpn, const struct ib_mad_addr *to,
			   const uint8_t *mad)
{
	struct server_port *own = container_of(port, struct server_port, mad);
	struct server *server = container_of(port->system, struct server, mads);
	struct outgoing *at;

	if (server->outgoing_count == server->outgoing_room && !outgoing_grow(server))
		return;
	at = &server->outgoing[(server->outgoing_first + server->outgoing_count++) %
			       server->outgoing_room];
	at->port = own->row;
	at->qpn = qpn;
	at->to = *to;
	memcpy(at->mad, mad, MAD_BYTES);
}

static void outgoing_send(struct server *server, const struct outgoing *packet, uint64_t now_ms)
{
	const struct ib_mad_addr *to = &packet->to;
	uint32_t qkey = be32toh(to->qkey);
	struct fabric_address address = {
		.source = to->path_bits,
		.destination = be16toh(to->lid),
		.source_qp = (uint32_t)packet->qpn,
		.destination_qp = be32toh(to->qpn),
		.qkey = qkey & QKEY_OWN ? QKEY_QP1 : qkey,
		.pkey_index = to->pkey_index,
		.sl = to->sl,
		.has_grh = to->grh_present,
	};

	if (address.has_grh) {
		uint32_t flow = be32toh(to->flow_label) & 0xfffff;

		flow |= 6u << 28 | (uint32_t)to->traffic_class << 20;
		flow = htobe32(flow);
		memcpy(address.grh, &flow, 4);
		address.grh[7] = to->hop_limit;
		fabric_gid_get(&server->fabric, packet->port, to->gid_index, address.grh + 8);
		memcpy(address.grh + 24, to->gid, 16);
	}
	/* What asks for counters gets those of data, too. */
	if (packet->mad[MAD_AT_CLASS] == CLASS_IS_PERFORMANCE)
		members_fold(server);
	fabric_send(&server->fabric, packet->port, &address, packet->mad, now_ms);
}

void server_pump(struct server *server)
{
	uint64_t now = server_now_ms();

	for (;;) {
		if (fabric_deadline(&server->fabric) <= now) {
			members_fold(server); /* samples of counters may be due */
			fabric_expire(&server->fabric, now);
		}
		if (!server->outgoing_count)
			return;
		while (server->outgoing_count) {
			/* Copied, since the queue may move meanwhile. */
			struct outgoing packet = server->outgoing[server->outgoing_first];

			server->outgoing_first =
				(server->outgoing_first + 1) % server->outgoing_room;
			server->outgoing_count--;
			outgoing_send(server, &packet, now);
		}
	}
}

/* From the fabric to agents -------------------------------------------------------------------- */

static void fabric_deliver(void *context, uint32_t port, const struct fabric_address *from,
			   const uint8_t *mad)
{
	struct server *server = context;
	struct server_port *own = server_port_get(server, port);
	const struct fabric_port *row = &server->fabric.ports[port];
	struct ib_mad_addr address = {
		.qpn = htobe32(from->source_qp),
		.qkey = htobe32(from->qkey),
		.lid = htobe16(from->source),
		.sl = from->sl,
		.path_bits = (uint8_t)(from->destination & ((1u << port_lmc(row)) - 1)),
		.pkey_index = from->pkey_index,
		.grh_present = from->has_grh,
	};

	if (!own)
		return;
	if (from->has_grh) {
		address.hop_limit = from->grh[7];
		memcpy(address.gid, from->grh + 8, 16);
	}
	mad_port_receive(&own->mad, (int)from->destination_qp, &address, mad, server_now_ms());
}

static void fabric_event_note(void *context, uint32_t port, enum fabric_event event)
{
	members_tell(context, port, event);
}

static uint32_t fabric_random(void *context)
{
	struct server *server = context;

	/* xorshift64: faults need no better one */
	server->random ^= server->random << 13;
	server->random ^= server->random >> 7;
	server->random ^= server->random << 17;
	return (uint32_t)(server->random >> 16);
}

const struct fabric_functions server_fabric_functions = {
	.deliver = fabric_deliver,
	.postpone = postponed_add,
	.tap = taps_note,
	.event = fabric_event_note,
	.random = fabric_random,
};

static const struct mad_functions agent_functions = {
	.transmit = agent_transmit,
	.deliver = connection_deliver,
};

void server_agents_init(struct server *server)
{
	mad_system_init(&server->mads, &agent_functions);
	/* Transaction ids must not be those of the process before. */
	server->mads.next_id = (uint32_t)server->random & 0xffffff;
}

struct server_port *server_port_get(struct server *server, uint32_t row)
{
	struct server_port *port = server->ports[row];

	if (port)
		return port;
	port = calloc(1, sizeof *port);
	if (!port)
		return NULL;
	mad_port_init(&port->mad, &server->mads, true);
	port->row = row;
	port->issm.fd = -1;
	list_init(&port->node);
	server->ports[row] = port;
	return port;
}

/* Time ----------------------------------------------------------------------------------------- */

uint64_t server_deadline(const struct server *server)
{
	uint64_t first = fabric_deadline(&server->fabric);

	list_for_each(node, &server->open_ports) {
		const struct server_port *port = container_of(node, struct server_port, node);
		uint64_t at = mad_port_deadline(&port->mad);

		if (at < first)
			first = at;
	}
	if (server->rate_count && server->rates_ms + 100 < first)
		first = server->rates_ms + 100;
	return first;
}

static void rates_apply(struct server *server, uint64_t now_ms)
{
	double seconds = (double)(now_ms - server->rates_ms) / 1000;

	for (unsigned int i = 0; i < server->rate_count; i++) {
		struct error_rate *rate = &server->rates[i];
		double count = rate->rest + rate->per_second * seconds;
		uint32_t whole = count < 1e9 ? (uint32_t)count : 1000000000u;

		rate->rest = count - whole;
		if (whole)
			fabric_error_add(&server->fabric, rate->port, rate->error, whole);
	}
	server->rates_ms = now_ms;
}

void server_expire(struct server *server, uint64_t now_ms)
{
	if (server->rate_count && now_ms - server->rates_ms >= 100)
		rates_apply(server, now_ms);
	list_for_each(node, &server->open_ports) {
		struct server_port *port = container_of(node, struct server_port, node);

		if (mad_port_deadline(&port->mad) <= now_ms)
			mad_port_expire(&port->mad, now_ms);
	}
}
