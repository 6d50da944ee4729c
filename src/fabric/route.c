/* SPDX-License-Identifier: BSD-2-Clause */
/* The way of a packet, hop by hop, by the tables of the switches that it comes to. */
#include "fabric/internal.h"

static const uint8_t sl_to_vl_default[FABRIC_SL_TO_VL_BYTES] = {0x01, 0x23, 0x45, 0x67,
								0x01, 0x23, 0x45, 0x67};

/* Tables --------------------------------------------------------------------------------------- */

/* Stored as the difference from sl_to_vl_default. `ingress` doesn't matter for an adapter. */
uint8_t *sl_to_vl_row(const struct fabric *fabric, uint32_t egress, uint32_t ingress)
{
	const struct fabric_port *out = &fabric->ports[egress];
	const struct fabric_node *node = &fabric->nodes[out->node];
	size_t row = node->sl_to_vl;

	if (node->type == FABRIC_SWITCH)
		row += (size_t)out->number * (node->ports + 1u) + fabric->ports[ingress].number;
	else
		row += out->number - 1u;
	return fabric->sl_to_vl + row * FABRIC_SL_TO_VL_BYTES;
}

static uint8_t lane_find(const struct fabric *fabric, uint32_t egress, uint32_t ingress, uint8_t sl)
{
	uint8_t pair = sl_to_vl_row(fabric, egress, ingress)[(sl & 15) / 2] ^
		       sl_to_vl_default[(sl & 15) / 2];

	return sl & 1 ? octet_low(pair) : octet_high(pair);
}

uint16_t partition_key_get(const struct fabric *fabric, uint32_t port, unsigned int index)
{
	uint16_t stored = fabric->pkeys[(size_t)port * FABRIC_PKEYS + index];

	return index ? stored : stored ^ 0xffff;
}

bool partition_key_matches(const struct fabric *fabric, uint32_t port, uint16_t pkey,
			   unsigned int *index)
{
	for (unsigned int i = 0; i < FABRIC_PKEYS; i++) {
		uint16_t own = partition_key_get(fabric, port, i);

		if (!(own & 0x7fff) || ((own ^ pkey) & 0x7fff) || !((own | pkey) & 0x8000))
			continue;
		*index = i;
		return true;
	}
	return false;
}

/* Whether one of the port's keys permits to send a packet with `pkey`: a limited one permits its
 * own limited key only. So a switch port that has the keys of the end port behind it lets pass what
 * that may send. */
static bool partition_key_permits(const struct fabric *fabric, uint32_t port, uint16_t pkey)
{
	for (unsigned int i = 0; i < FABRIC_PKEYS; i++) {
		uint16_t own = partition_key_get(fabric, port, i);

		if ((own & 0x7fff) && !((own ^ pkey) & 0x7fff) && own >= pkey)
			return true;
	}
	return false;
}

/* Whether a port's partition enforcement, if it has that, lets the packet pass. */
static bool partition_passes(const struct fabric *fabric, uint32_t port, uint8_t direction,
			     const struct route_query *query)
{
	unsigned int index;

	if (query->is_vl15 || !(fabric->ports[port].info[INFO_VLS_ENFORCE] & direction) ||
	    fabric->nodes[fabric->ports[port].node].type != FABRIC_SWITCH ||
	    !fabric->ports[port].number)
		return true;
	if (direction == ENFORCE_IN)
		return partition_key_permits(fabric, port, query->pkey);
	return partition_key_matches(fabric, port, query->pkey, &index);
}

/* Steps ---------------------------------------------------------------------------------------- */

static enum route_result route_end(struct fabric_route *route, enum route_result result,
				   uint32_t blame)
{
	route->result = result;
	route->blame = blame;
	return result;
}

/* The packet leaves by `egress`, having come by `ingress`, if it can. */
static bool egress_take(const struct fabric *fabric, const struct route_query *query,
			uint32_t egress, uint32_t ingress, struct fabric_route *route)
{
	const struct fabric_port *port = &fabric->ports[egress];
	uint8_t least = query->is_vl15 ? PORT_INIT : PORT_ACTIVE;
	struct route_hop *hop = &route->hop[route->hops];
	uint8_t vl = 15;

	route->end = egress;
	if (route->hops == ROUTE_HOPS_MAX)
		return route_end(route, ROUTE_LOOP, egress), false;
	if (port->cable == FABRIC_NONE || port_state(port) < least)
		return route_end(route, ROUTE_INACTIVE, egress), false;
	if (!query->is_vl15) {
		vl = lane_find(fabric, egress, ingress, query->sl);
		if (vl >= port_lanes(port))
			return route_end(route, ROUTE_VL, ingress), false;
		if (query->mtu > port_mtu(port))
			return route_end(route, ROUTE_MTU, egress), false;
		if (!partition_passes(fabric, egress, ENFORCE_OUT, query))
			return route_end(route, ROUTE_PARTITION_XMIT, egress), false;
		if (port_mtu(port) < route->mtu)
			route->mtu = port_mtu(port);
	}
	*hop = (struct route_hop){
		.egress = egress, .ingress = port->cable, .vl = vl, .sl = query->sl & 15};
	route->hops++;
	port = &fabric->ports[hop->ingress];
	route->end = hop->ingress;
	route->is_lossy |= port_data_drop_ppm(port) != 0;
	route->is_slow |= port_is_slowed(port);
	route->is_arming |= port_state(port) == PORT_ARMED;
	route->delay_ns += port_delay_ns(port);
	if (port_state(port) < (query->is_vl15 ? PORT_INIT : PORT_ARMED))
		return route_end(route, ROUTE_INACTIVE, FABRIC_NONE), false;
	if (!partition_passes(fabric, hop->ingress, ENFORCE_IN, query))
		return route_end(route, ROUTE_PARTITION_RCV, hop->ingress), false;
	return true;
}

/* The port by which a switch sends a packet on that came in by `ingress`. */
static bool switch_choose(const struct fabric *fabric, const struct route_query *query,
			  uint32_t ingress, uint32_t *egress, struct fabric_route *route)
{
	const struct fabric_node *node = &fabric->nodes[fabric->ports[ingress].node];
	uint16_t lid = query->destination;
	uint8_t number = 0xff;

	if (lid < FABRIC_LFT_ENTRIES && lid <= node->linear_top)
		number = fabric->unicast[(size_t)node->switch_index * FABRIC_LFT_ENTRIES + lid] ^
			 0xff;
	if (number > node->ports)
		return route_end(route, ROUTE_NO_ENTRY, ingress), false;
	*egress = node->first_port + number;
	/* Port 0 takes only what is for its LID, and that was looked at before. */
	if (!number)
		return route_end(route, ROUTE_NO_ENTRY, ingress), false;
	if (*egress == ingress)
		return route_end(route, ROUTE_LOOPING, ingress), false;
	return true;
}

/* Whether the packet is where it is to go. */
static bool route_arrives(const struct fabric *fabric, const struct route_query *query,
			  uint32_t ingress, struct fabric_route *route)
{
	uint32_t end = fabric_end_port(fabric, ingress);

	if (!port_has_lid(&fabric->ports[end], query->destination))
		return false;
	route->end = end;
	return true;
}

static void route_begin(const struct route_query *query, struct fabric_route *route)
{
	*route = (struct fabric_route){
		.result = ROUTE_OK,
		.end = query->port,
		.blame = FABRIC_NONE,
		.mtu = 5,
	};
}

void fabric_route_find(const struct fabric *fabric, const struct route_query *query,
		       struct fabric_route *route)
{
	uint32_t egress = query->port;
	uint32_t at = egress;

	route->result = ROUTE_OK;
	route->end = query->port;
	route->blame = FABRIC_NONE;
	route->mtu = 5;
	route->is_lossy = route->is_slow = route->is_arming = false;
	route->delay_ns = 0;
	route->hops = 0;
	if (fabric->nodes[fabric->ports[at].node].is_off) {
		route_end(route, ROUTE_OFF, FABRIC_NONE);
		return;
	}
	if (!query->destination || query->destination >= LID_MULTICAST) {
		route_end(route, ROUTE_NO_LID, FABRIC_NONE);
		return;
	}
	while (!route_arrives(fabric, query, at, route)) {
		bool is_switch = fabric->nodes[fabric->ports[at].node].type == FABRIC_SWITCH;

		if (!is_switch && route->hops) {
			route_end(route, ROUTE_NOT_THERE, FABRIC_NONE);
			return;
		}
		if (is_switch && !switch_choose(fabric, query, at, &egress, route))
			return;
		if (!egress_take(fabric, query, egress, at, route))
			return;
		at = route->hop[route->hops - 1].ingress;
	}
}

/* Multicast ------------------------------------------------------------------------------------ */

/* A copy that has come to a switch. */
struct copy {
	uint32_t ingress;
	uint64_t delay_ns;
};

/* Copies that are still to be looked at. */
struct spread {
	const struct fabric *fabric;
	const struct route_query *query;
	const struct route_visitor *visitor;
	struct copy waiting[ROUTE_HOPS_MAX * 4];
	unsigned int count;
};

static bool mask_has(const struct fabric *fabric, const struct fabric_node *node,
		     unsigned int number, uint16_t lid)
{
	uint16_t mask = fabric->multicast[node->multicast +
					  number / FABRIC_MFT_POSITIONS * FABRIC_MFT_ENTRIES +
					  (lid - LID_MULTICAST)];

	return mask >> (number % FABRIC_MFT_POSITIONS) & 1;
}

static bool mask_is_empty(const struct fabric *fabric, const struct fabric_node *node, uint16_t lid)
{
	if (node->multicast_top >= LID_MULTICAST && lid > node->multicast_top)
		return true;
	for (unsigned int number = 0; number <= node->ports; number++)
		if (mask_has(fabric, node, number, lid))
			return false;
	return true;
}

static void spread_cross(struct spread *spread, uint32_t egress, struct copy from)
{
	struct fabric_route route;
	struct copy next;

	route_begin(spread->query, &route);
	if (!egress_take(spread->fabric, spread->query, egress, from.ingress, &route) ||
	    !spread->visitor->visit(spread->visitor->context, &route.hop[0]))
		return;
	next.ingress = route.hop[0].ingress;
	next.delay_ns = from.delay_ns + route.delay_ns;
	if (spread->fabric->ports[next.ingress].is_end_port)
		spread->visitor->reached(spread->visitor->context, next.ingress, next.delay_ns);
	else if (spread->count < sizeof spread->waiting / sizeof spread->waiting[0])
		spread->waiting[spread->count++] = next;
}

/* To port `number` of the switch that the copy is at. */
static void spread_to(struct spread *spread, unsigned int number, struct copy copy)
{
	const struct fabric *fabric = spread->fabric;
	const struct fabric_node *node = &fabric->nodes[fabric->ports[copy.ingress].node];

	if (number)
		spread_cross(spread, node->first_port + number, copy);
	else
		spread->visitor->reached(spread->visitor->context, node->first_port, copy.delay_ns);
}

/* All ports of a switch that the group's masks name, or the default ones. */
static void spread_switch(struct spread *spread, struct copy copy)
{
	const struct fabric *fabric = spread->fabric;
	const struct fabric_port *ingress = &fabric->ports[copy.ingress];
	const struct fabric_node *node = &fabric->nodes[ingress->node];
	uint8_t other = node->default_primary;

	if (mask_is_empty(fabric, node, spread->query->destination)) {
		if (other == ingress->number)
			other = node->default_not_primary;
		if (other && other <= node->ports && other != ingress->number)
			spread_to(spread, other, copy);
		return;
	}
	for (unsigned int number = 0; number <= node->ports; number++)
		if (number != ingress->number &&
		    mask_has(fabric, node, number, spread->query->destination))
			spread_to(spread, number, copy);
}

/* Whether the sender is in the group, too, as the switch sees it by whose port it comes. */
static bool sender_has(const struct fabric *fabric, const struct route_query *query)
{
	const struct fabric_port *from = &fabric->ports[query->port];
	const struct fabric_port *at =
		from->number && from->cable != FABRIC_NONE ? &fabric->ports[from->cable] : from;
	const struct fabric_node *node = &fabric->nodes[at->node];

	return node->type == FABRIC_SWITCH &&
	       mask_has(fabric, node, at->number, query->destination);
}

void route_multicast(const struct fabric *fabric, const struct route_query *query,
		     const struct route_visitor *visitor)
{
	struct spread spread = {.fabric = fabric, .query = query, .visitor = visitor};
	struct copy first = {.ingress = query->port};
	unsigned int switches = 0;

	if (query->destination < LID_MULTICAST ||
	    query->destination >= LID_MULTICAST + FABRIC_MFT_ENTRIES ||
	    fabric->nodes[fabric->ports[query->port].node].is_off)
		return;
	if (sender_has(fabric, query))
		visitor->reached(visitor->context, query->port, 0);
	if (fabric->ports[query->port].number)
		spread_cross(&spread, query->port, first);
	else
		spread.waiting[spread.count++] = first;
	/* Tables that lead in circles end here. */
	while (spread.count && switches++ <= fabric->header->switches)
		spread_switch(&spread, spread.waiting[--spread.count]);
}

/* Words and counters --------------------------------------------------------------------------- */

const char *route_result_text(enum route_result result)
{
	static const char *const texts[ROUTE_RESULTS] = {
		[ROUTE_OK] = "it arrives",
		[ROUTE_NO_LID] = "there is no such unicast LID",
		[ROUTE_NO_ENTRY] = "the switch's forwarding table has no port for this LID",
		[ROUTE_LOOPING] = "the switch would send it back by the port by which it came",
		[ROUTE_LOOP] = "the forwarding tables lead it in a circle",
		[ROUTE_INACTIVE] = "the port isn't active, or has no link",
		[ROUTE_VL] = "the port has no virtual lane for this service level",
		[ROUTE_MTU] = "it is longer than this link's MTU",
		[ROUTE_PARTITION_XMIT] = "the port doesn't send packets of this partition",
		[ROUTE_PARTITION_RCV] = "the port doesn't accept packets of this partition",
		[ROUTE_NOT_THERE] = "it comes to an adapter that hasn't got the LID",
		[ROUTE_OFF] = "the node has no power",
		[ROUTE_DROPPED] = "a fault drops it",
	};

	return result < ROUTE_RESULTS ? texts[result] : "unknown";
}

void route_count(struct fabric *fabric, const struct fabric_route *route, uint64_t packets,
		 uint64_t words)
{
	for (uint32_t i = 0; i < route->hops; i++)
		traffic_count(fabric, &route->hop[i], packets, words, false);
}

void route_count_multicast(struct fabric *fabric, const struct fabric_route *route,
			   uint64_t packets, uint64_t words)
{
	for (uint32_t i = 0; i < route->hops; i++)
		traffic_count(fabric, &route->hop[i], packets, words, true);
}

struct loss {
	enum fabric_error error;
	enum fabric_detail detail; /* DETAILS: none */
};

void route_count_loss(struct fabric *fabric, const struct fabric_route *route, uint32_t packets)
{
	static const struct loss losses[ROUTE_RESULTS] = {
		[ROUTE_NO_ENTRY] = {ERROR_RCV_SWITCH_RELAY, DETAIL_DLID_MAPPING},
		[ROUTE_LOOPING] = {ERROR_RCV_SWITCH_RELAY, DETAIL_LOOPING},
		[ROUTE_LOOP] = {ERROR_XMIT_DISCARDS, DETAIL_LIFETIME},
		[ROUTE_INACTIVE] = {ERROR_XMIT_DISCARDS, DETAIL_INACTIVE},
		[ROUTE_VL] = {ERROR_RCV_SWITCH_RELAY, DETAIL_VL_MAPPING},
		[ROUTE_MTU] = {ERROR_XMIT_DISCARDS, DETAIL_NEIGHBOR_MTU},
		[ROUTE_PARTITION_XMIT] = {ERROR_XMIT_CONSTRAINT, DETAILS},
		[ROUTE_PARTITION_RCV] = {ERROR_RCV_CONSTRAINT, DETAILS},
		[ROUTE_DROPPED] = {ERROR_RCV, DETAIL_LOCAL_PHYSICAL},
	};

	if (route->result == ROUTE_OK || route->blame == FABRIC_NONE)
		return;
	fabric_error_add(fabric, route->blame, losses[route->result].error, packets);
	if (losses[route->result].detail != DETAILS)
		for (uint32_t i = 0; i < packets; i++)
			detail_count(fabric, route->blame, losses[route->result].detail);
}
