/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The small net for tests of the core: switches S1 (ports 1: H1, 2: H2, 7 and 8: S2) and S2 (1: H3,
 * 2: H4), a datagram that is asked and answered, and LIDs and tables as an SM writes them.
 */
#ifndef TESTS_FABRIC_NET_H
#define TESTS_FABRIC_NET_H

#include "fabric/fabric.h"
#include "fabric/octets.h"
#include "fabric/port_info.h"
#include "fabric/route.h"

#include <stdlib.h>
#include <string.h>

enum { NODE_S1, NODE_S2, NODE_H1, NODE_H2, NODE_H3, NODE_H4, NODES };
/* LIDs that net_configure() gives. */
enum { LID_H1 = 1, LID_S1 = 2, LID_S2 = 3, LID_H2 = 4, LID_H3 = 5, LID_H4 = 6 };

struct net {
	struct fabric fabric;
	void *memory;
	size_t bytes;
	/* the last datagram that reached an agent */
	unsigned int delivered;
	uint32_t port;
	struct fabric_address from;
	uint8_t mad[256];
	unsigned int events[16];
	/* the last datagram that was postponed */
	unsigned int postponed;
	uint64_t delay_ns;
	struct fabric_datagram late;
	uint32_t random;
};

static inline void net_deliver(void *context, uint32_t port, const struct fabric_address *from,
			       const uint8_t *mad)
{
	struct net *net = context;

	net->delivered++;
	net->port = port;
	net->from = *from;
	memcpy(net->mad, mad, 256);
}

static inline void net_event(void *context, uint32_t port, enum fabric_event event)
{
	struct net *net = context;

	(void)port;
	net->events[event]++;
}

static inline uint32_t net_random(void *context)
{
	struct net *net = context;

	return net->random = net->random * 1103515245 + 12345;
}

/* Keeps the datagram; net_arrive() brings the last one. */
static inline void net_postpone(void *context, const struct fabric_datagram *datagram,
				uint64_t delay_ns)
{
	struct net *net = context;

	net->postponed++;
	net->delay_ns = delay_ns;
	net->late = *datagram;
}

static const struct fabric_functions net_functions = {
	.deliver = net_deliver,
	.postpone = net_postpone,
	.event = net_event,
	.random = net_random,
};

static const struct fabric_plan_node net_nodes[NODES] = {
	{.name = "S1", .type = FABRIC_SWITCH, .ports = 8},
	{.name = "S2", .type = FABRIC_SWITCH, .ports = 8},
	{.name = "H1", .type = FABRIC_CA, .ports = 1},
	{.name = "H2", .type = FABRIC_CA, .ports = 1},
	{.name = "H3", .type = FABRIC_CA, .ports = 1},
	{.name = "H4", .type = FABRIC_CA, .ports = 2},
};

static const struct fabric_plan_cable net_cables[] = {
	{.node = {NODE_S1, NODE_H1}, .port = {1, 1}}, {.node = {NODE_S1, NODE_H2}, .port = {2, 1}},
	{.node = {NODE_S1, NODE_S2}, .port = {7, 7}}, {.node = {NODE_S1, NODE_S2}, .port = {8, 8}},
	{.node = {NODE_S2, NODE_H3}, .port = {1, 1}}, {.node = {NODE_S2, NODE_H4}, .port = {2, 1}},
};

static inline struct net *net_create(void)
{
	const struct fabric_plan plan = {
		.title = "small",
		.nodes = net_nodes,
		.cables = net_cables,
		.node_count = NODES,
		.cable_count = sizeof net_cables / sizeof net_cables[0],
		.first_node = NODE_H1,
	};
	struct fabric_refusal refusal;
	struct net *net = calloc(1, sizeof *net);

	if (!net)
		abort();
	net->bytes = fabric_layout(&plan, &refusal);
	net->memory = calloc(1, net->bytes);
	net->random = 1;
	if (!net->bytes || !net->memory)
		abort();
	fabric_build(&net->fabric, &net_functions, net, net->memory, &plan);
	return net;
}

static inline void net_free(struct net *net)
{
	free(net->memory);
	free(net);
}

static inline uint32_t net_row(const struct net *net, uint32_t node, unsigned int number)
{
	return fabric_port_row(&net->fabric, node, number);
}

static inline struct fabric_port *net_port(struct net *net, uint32_t node, unsigned int number)
{
	return &net->fabric.ports[net_row(net, node, number)];
}

/* A subnet management datagram; with `hops` hops by `path`, else (hops 255) by LID. */
static inline void smp_make(uint8_t mad[256], uint8_t method, uint16_t attribute, uint32_t modifier,
			    uint8_t hops, const uint8_t *path)
{
	memset(mad, 0, 256);
	mad[0] = mad[2] = 1;
	mad[1] = hops == 255 ? 0x01 : 0x81;
	mad[3] = method;
	mad[15] = 7;
	octets_put16(mad + 16, attribute);
	octets_put32(mad + 20, modifier);
	if (hops == 255)
		return;
	mad[7] = hops;
	octets_put16(mad + 32, 0xffff);
	octets_put16(mad + 34, 0xffff);
	if (hops)
		memcpy(mad + 128 + 1, path, hops);
}

static inline void net_send(struct net *net, uint32_t node, unsigned int number, uint16_t lid,
			    uint32_t qp, const uint8_t mad[256], uint64_t now_ms)
{
	struct fabric_address to = {
		.destination = lid,
		.source_qp = qp,
		.destination_qp = qp,
		.qkey = qp ? 0x80010000u : 0,
	};

	fabric_send(&net->fabric, net_row(net, node, number), &to, mad, now_ms);
}

/* Asks from H1 by a directed route; the answer is in net->mad. Returns its status, -1: none. */
static inline int net_ask(struct net *net, const char *path, uint8_t method, uint16_t attribute,
			  uint32_t modifier, const uint8_t data[64])
{
	uint8_t mad[256];
	unsigned int before = net->delivered;

	smp_make(mad, method, attribute, modifier, (uint8_t)strlen(path), (const uint8_t *)path);
	if (data)
		memcpy(mad + 64, data, 64);
	net_send(net, NODE_H1, 1, 0xffff, 0, mad, 1000);
	return net->delivered == before ? -1 : octets_get16(net->mad + 4) & 0x7fff;
}

/* The attribute's value as it is, to be changed and set. */
static inline int net_get(struct net *net, const char *path, uint16_t attribute, uint32_t modifier,
			  uint8_t data[64])
{
	int status = net_ask(net, path, 1, attribute, modifier, NULL);

	memcpy(data, net->mad + 64, 64);
	return status;
}

static inline void net_configure_port(struct net *net, uint32_t node, unsigned int number,
				      uint16_t lid)
{
	struct fabric_port *port = net_port(net, node, number);

	octets_put16(port->info + INFO_LID, lid);
	octets_put16(port->info + INFO_SM_LID, LID_H1);
}

static inline void net_configure_table(struct net *net, uint32_t node, const uint8_t ports[7])
{
	struct fabric_node *row = &net->fabric.nodes[node];

	row->linear_top = 6;
	for (int lid = 1; lid < 7; lid++)
		net->fabric.unicast[(size_t)row->switch_index * FABRIC_LFT_ENTRIES + lid] =
			ports[lid] ^ 0xff;
}

/* All LIDs and tables, and all links active. */
static inline void net_configure(struct net *net)
{
	net_configure_port(net, NODE_H1, 1, LID_H1);
	net_configure_port(net, NODE_S1, 0, LID_S1);
	net_configure_port(net, NODE_S2, 0, LID_S2);
	net_configure_port(net, NODE_H2, 1, LID_H2);
	net_configure_port(net, NODE_H3, 1, LID_H3);
	net_configure_port(net, NODE_H4, 1, LID_H4);
	net_configure_table(net, NODE_S1, (const uint8_t[]){0, 1, 0, 7, 2, 7, 8});
	net_configure_table(net, NODE_S2, (const uint8_t[]){0, 7, 7, 0, 8, 1, 2});
	for (uint32_t row = 0; row < net->fabric.header->ports; row++)
		if (port_state(&net->fabric.ports[row]) == PORT_INIT)
			port_set_state(&net->fabric.ports[row], PORT_ACTIVE);
}

#endif
