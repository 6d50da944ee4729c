/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joins the two halves of each cable once all lines are read: each end's line names the other end.
 * No state but the parser's. One thread at a time.
 */
#include <errno.h>
#include <stdlib.h>

#include "topology/parse.h"

static const struct topology_node *node_of(const struct parser *parser, uint32_t port)
{
	return &parser->topology->nodes[parser->topology->ports[port].node];
}

/* The row of the port that a half names; TOPOLOGY_NONE: there is none, which was said. */
static uint32_t half_remote(const struct parser *parser, const struct half_cable *half)
{
	const struct topology *topology = parser->topology;
	uint32_t node = topology_find_slice(topology, half->remote.text, half->remote.bytes);
	int shown = (int)(half->remote.bytes < 60 ? half->remote.bytes : 60);
	uint32_t alias = node == TOPOLOGY_NONE ? alias_find(parser, half->remote) : TOPOLOGY_NONE;

	if (alias != TOPOLOGY_NONE)
		return alias;

	if (node == TOPOLOGY_NONE) {
		topology_remark_error(parser->report, half->line,
				      "the cable of port %u of \"%.60s\" leads to \"%.*s\", which "
				      "isn't in the file",
				      topology->ports[half->port].number,
				      node_of(parser, half->port)->name, shown, half->remote.text);
		return TOPOLOGY_NONE;
	}
	if (!half->remote_port || half->remote_port > topology->nodes[node].ports) {
		topology_remark_error(parser->report, half->line,
				      "the cable leads to port %u of \"%.60s\", which has ports 1 "
				      "to %u",
				      half->remote_port, topology->nodes[node].name,
				      topology->nodes[node].ports);
		return TOPOLOGY_NONE;
	}
	return topology->nodes[node].first_port + half->remote_port;
}

/* The other end must name this one. */
static void half_mismatch(const struct parser *parser, const struct half_cable *half,
			  uint32_t remote, uint32_t claimed)
{
	const struct topology_port *port = &parser->topology->ports[half->port];
	const struct topology_port *other = &parser->topology->ports[remote];

	if (remote == half->port)
		topology_remark_error(parser->report, half->line,
				      "the cable of port %u of \"%.60s\" leads to itself",
				      port->number, node_of(parser, half->port)->name);
	else if (!other->line)
		topology_remark_error(parser->report, half->line,
				      "the cable's other end is missing: add `[%u] \"%.60s\"[%u]` "
				      "to \"%.60s\" (line %u)",
				      other->number, node_of(parser, half->port)->name,
				      port->number, node_of(parser, remote)->name,
				      node_of(parser, remote)->line);
	else if (claimed != TOPOLOGY_NONE)
		topology_remark_error(
			parser->report, half->line,
			"the cable leads to port %u of \"%.60s\", but that port's (line %u) leads "
			"to port %u of \"%.60s\"",
			other->number, node_of(parser, remote)->name, other->line,
			parser->topology->ports[claimed].number, node_of(parser, claimed)->name);
}

/* Both ends of a cable have one width, speed, MTU and delay: the lesser, and the longer delay. */
static void cable_agree(struct topology_port *a, struct topology_port *b)
{
	uint8_t width = a->width, speed = a->speed, mtu = a->mtu;

	if (!width || (b->width && topology_lanes(b->width) < topology_lanes(width)))
		width = b->width;
	if (!speed || (b->speed && b->speed < speed))
		speed = b->speed;
	if (!mtu || (b->mtu && b->mtu < mtu))
		mtu = b->mtu;
	a->width = b->width = width;
	a->speed = b->speed = speed;
	a->mtu = b->mtu = mtu;
	if (a->delay_ns < b->delay_ns)
		a->delay_ns = b->delay_ns;
	b->delay_ns = a->delay_ns;
}

/* A port that has an alias leads to the first one that leads to it. */
static void aliases_claim(const struct parser *parser, uint32_t *claims)
{
	for (uint32_t i = 0; i < parser->half_count; i++) {
		const struct half_cable *half = &parser->halves[i];
		uint32_t remote = claims[half->port];

		if (remote != TOPOLOGY_NONE && claims[remote] == TOPOLOGY_NONE &&
		    alias_find(parser, half->remote) == remote)
			claims[remote] = half->port;
	}
}

void parse_cables(struct parser *parser)
{
	struct topology *topology = parser->topology;
	/* Where each port's own line leads. */
	uint32_t *claims = malloc((topology->port_count + 1) * sizeof(*claims));

	if (!claims) {
		parser->failure = -ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < topology->port_count; i++)
		claims[i] = TOPOLOGY_NONE;
	aliases_sort(parser);
	for (uint32_t i = 0; i < parser->half_count; i++)
		claims[parser->halves[i].port] = half_remote(parser, &parser->halves[i]);
	aliases_claim(parser, claims);
	for (uint32_t i = 0; i < parser->half_count; i++) {
		const struct half_cable *half = &parser->halves[i];
		uint32_t remote = claims[half->port];

		if (remote == TOPOLOGY_NONE || topology->ports[half->port].peer == remote)
			continue;
		if (remote == half->port || claims[remote] != half->port) {
			half_mismatch(parser, half, remote, claims[remote]);
			continue;
		}
		cable_agree(&topology->ports[half->port], &topology->ports[remote]);
		topology_connect(topology, half->port, remote);
	}
	free(claims);
}
