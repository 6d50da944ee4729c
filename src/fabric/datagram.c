/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Management datagrams on their way: by directed route, by LID, and first the one and then the
 * other (combined routes); what a port does with one that arrives. A datagram is 256 bytes in a
 * packet of 288, which each port on the way counts.
 *
 * Directed routes follow the specification's rules C14-9 to C14-13: the hop pointer counts up along
 * the initial path, each node notes in the return path by which port the datagram came, and the
 * answer counts down along it.
 */
#include "fabric/internal.h"

#define MAD_WORDS 72u /* LRH, BTH, DETH, the MAD and the ICRC */
#define GRH_WORDS 10u
#define HOPS_MAX 63u

/* One cable ------------------------------------------------------------------------------------ */

/* Whether a fault swallows what arrives at the port. */
static bool fault_drops(struct fabric *fabric, uint32_t port, const uint8_t *mad)
{
	const struct fabric_port *row = &fabric->ports[port];

	if (!row->drop_ppm ||
	    (row->drop_attribute && row->drop_attribute != octets_get16(mad + MAD_AT_ATTRIBUTE)))
		return false;
	if (fabric->functions->random(fabric->context) % 1000000 >= row->drop_ppm)
		return false;
	fabric_error_add(fabric, port, ERROR_RCV, 1);
	detail_count(fabric, port, DETAIL_LOCAL_PHYSICAL);
	return true;
}

/* An Armed port that gets data is Active: the peer has become that. */
static void armed_activate(struct fabric *fabric, uint32_t port)
{
	if (port_state(&fabric->ports[port]) != PORT_ARMED)
		return;
	port_set_state(&fabric->ports[port], PORT_ACTIVE);
	if (fabric->ports[port].is_end_port)
		fabric->functions->event(fabric->context, port, EVENT_PORT_ACTIVE);
	fabric_touch(fabric);
}

void fabric_data_came(struct fabric *fabric, uint32_t port)
{
	uint32_t from = fabric->ports[port].cable;

	if (from != FABRIC_NONE && port_state(&fabric->ports[from]) == PORT_ACTIVE)
		armed_activate(fabric, port);
}

static bool hop_make(struct fabric *fabric, const struct route_hop *hop,
		     const struct fabric_datagram *datagram, bool is_multicast)
{
	uint64_t words = MAD_WORDS + (datagram->address.has_grh ? GRH_WORDS : 0);

	traffic_count(fabric, hop, 1, words, is_multicast);
	if (fabric->is_tapped)
		fabric->functions->tap(fabric->context, datagram, hop->egress, hop->ingress,
				       hop->vl);
	return !fault_drops(fabric, hop->ingress, datagram->mad);
}

bool datagram_cross(struct fabric *fabric, struct fabric_datagram *datagram, uint32_t egress)
{
	const struct fabric_port *port = &fabric->ports[egress];
	struct route_hop hop = {.egress = egress, .ingress = port->cable, .vl = 15};

	if (!port->number || port->cable == FABRIC_NONE || port_state(port) < PORT_INIT ||
	    port_state(&fabric->ports[port->cable]) < PORT_INIT)
		return false;
	datagram->port = hop.ingress;
	datagram->delay_ns += port_delay_ns(&fabric->ports[hop.ingress]);
	return hop_make(fabric, &hop, datagram, false);
}

/* By LID --------------------------------------------------------------------------------------- */

bool datagram_by_lid(struct fabric *fabric, struct fabric_datagram *datagram)
{
	uint32_t from = fabric_end_port(fabric, datagram->port);
	struct route_query query = {
		.port = from,
		.destination = datagram->address.destination,
		.pkey = datagram->pkey,
		.sl = datagram->address.sl,
		.mtu = 1,
		.is_vl15 = !datagram->address.destination_qp,
	};
	struct fabric_route route;

	if (query.is_vl15 && query.destination == LID_PERMISSIVE)
		return datagram_cross(fabric, datagram, datagram->port);
	fabric_route_find(fabric, &query, &route);
	for (uint32_t i = 0; i < route.hops; i++) {
		if (!hop_make(fabric, &route.hop[i], datagram, false))
			return false;
		if (!query.is_vl15)
			armed_activate(fabric, route.hop[i].ingress);
	}
	route_count_loss(fabric, &route, 1);
	if (route.result == ROUTE_PARTITION_XMIT || route.result == ROUTE_PARTITION_RCV)
		trap_bad_partition(fabric, route.blame, datagram->pkey, &datagram->address);
	datagram->delay_ns += route.delay_ns;
	if (route.hops)
		datagram->port = route.hop[route.hops - 1].ingress;
	return route.result == ROUTE_OK;
}

/* By directed route ---------------------------------------------------------------------------- */

static bool node_is_switch(const struct fabric *fabric, uint32_t port)
{
	return fabric->nodes[fabric->ports[port].node].type == FABRIC_SWITCH;
}

/* Goes on by the LID that a combined route names. Only a switch does that for others. */
static bool directed_go_by_lid(struct fabric *fabric, struct fabric_datagram *datagram,
			       uint16_t lid)
{
	const struct fabric_port *end = &fabric->ports[fabric_end_port(fabric, datagram->port)];

	datagram->address.source = port_lid(end);
	datagram->address.destination = lid;
	return datagram_by_lid(fabric, datagram);
}

/* Out of the port of this number, by the path that the datagram has. */
static bool directed_leave(struct fabric *fabric, struct fabric_datagram *datagram, uint8_t number)
{
	const struct fabric_port *at = &fabric->ports[datagram->port];
	uint32_t egress = fabric_port_row(fabric, at->node, number);

	datagram->address.source = datagram->address.destination = LID_PERMISSIVE;
	if (egress == FABRIC_NONE || !number ||
	    (!node_is_switch(fabric, datagram->port) && egress != datagram->port))
		return false;
	return datagram_cross(fabric, datagram, egress);
}

enum directed_next { DIRECTED_GOES_ON, DIRECTED_ARRIVES, DIRECTED_IS_LOST };

static enum directed_next next_if(bool moved)
{
	return moved ? DIRECTED_GOES_ON : DIRECTED_IS_LOST;
}

/* `is_sender`: it is still where it was sent. A switch that got it by LID is in the same role. */
static enum directed_next directed_out(struct fabric *fabric, struct fabric_datagram *datagram,
				       bool is_sender)
{
	uint8_t *mad = datagram->mad;
	uint8_t *pointer = &mad[MAD_AT_HOP_POINTER];
	uint8_t count = mad[MAD_AT_HOP_COUNT];
	uint16_t lid = octets_get16(mad + MAD_AT_DESTINATION_LID);

	if (*pointer > count)
		return *pointer == count + 1 && !is_sender ? DIRECTED_ARRIVES : DIRECTED_IS_LOST;
	if (*pointer == count) {
		if (count)
			mad[MAD_AT_RETURN_PATH + *pointer] = fabric->ports[datagram->port].number;
		++*pointer;
		if (lid == LID_PERMISSIVE)
			return DIRECTED_ARRIVES;
		if (!node_is_switch(fabric, datagram->port))
			return DIRECTED_IS_LOST;
		return next_if(directed_go_by_lid(fabric, datagram, lid));
	}
	if (*pointer) {
		if (is_sender || !node_is_switch(fabric, datagram->port))
			return DIRECTED_IS_LOST;
		mad[MAD_AT_RETURN_PATH + *pointer] = fabric->ports[datagram->port].number;
	} else if (!is_sender && !node_is_switch(fabric, datagram->port)) {
		return DIRECTED_IS_LOST;
	}
	++*pointer;
	return next_if(directed_leave(fabric, datagram, mad[MAD_AT_INITIAL_PATH + *pointer]));
}

static enum directed_next directed_back(struct fabric *fabric, struct fabric_datagram *datagram)
{
	uint8_t *mad = datagram->mad;
	uint8_t *pointer = &mad[MAD_AT_HOP_POINTER];
	uint8_t count = mad[MAD_AT_HOP_COUNT];
	uint16_t lid = octets_get16(mad + MAD_AT_SOURCE_LID);

	if (!*pointer)
		return DIRECTED_ARRIVES;
	if (*pointer > count + 1)
		return DIRECTED_IS_LOST;
	--*pointer;
	if (*pointer)
		return next_if(
			directed_leave(fabric, datagram, mad[MAD_AT_RETURN_PATH + *pointer]));
	if (lid == LID_PERMISSIVE)
		return DIRECTED_ARRIVES;
	return next_if(directed_go_by_lid(fabric, datagram, lid));
}

/* Moves a datagram of class 0x81 to where it is for. False: it was lost. */
static bool directed_travel(struct fabric *fabric, struct fabric_datagram *datagram)
{
	uint8_t *mad = datagram->mad;
	bool is_back = mad[MAD_AT_STATUS] & 0x80;
	uint16_t first = octets_get16(mad + (is_back ? MAD_AT_DESTINATION_LID : MAD_AT_SOURCE_LID));
	bool is_sender = true;

	if (mad[MAD_AT_HOP_COUNT] > HOPS_MAX)
		return false;
	/* A combined route whose first part goes by LID. */
	if (first != LID_PERMISSIVE &&
	    mad[MAD_AT_HOP_POINTER] == (is_back ? mad[MAD_AT_HOP_COUNT] + 1 : 0)) {
		if (datagram->address.destination != LID_PERMISSIVE &&
		    !datagram_by_lid(fabric, datagram))
			return false;
		is_sender = false;
	}
	for (unsigned int steps = 0; steps < 2 * HOPS_MAX; steps++) {
		enum directed_next next = is_back ? directed_back(fabric, datagram)
						  : directed_out(fabric, datagram, is_sender);

		if (next != DIRECTED_GOES_ON)
			return next == DIRECTED_ARRIVES;
		is_sender = false;
	}
	return false;
}

/* Arriving ------------------------------------------------------------------------------------- */

void violation_count(struct fabric_port *port, int offset)
{
	uint16_t count = octets_get16(port->info + offset);

	if (count != UINT16_MAX)
		octets_put16(port->info + offset, count + 1);
}

static void violation_note(struct fabric *fabric, uint32_t end_port, bool is_pkey, uint32_t key,
			   const struct fabric_address *from)
{
	violation_count(&fabric->ports[end_port],
			is_pkey ? INFO_P_KEY_VIOLATIONS : INFO_Q_KEY_VIOLATIONS);
	trap_bad_key(fabric, end_port, is_pkey ? 257 : 258, key, from);
}

void fabric_violation_add(struct fabric *fabric, uint32_t end_port, bool is_pkey, uint32_t key,
			  const struct fabric_address *from, uint64_t now_ms)
{
	fabric->now_ms = now_ms;
	violation_note(fabric, end_port, is_pkey, key, from);
}

/* A port accepts what has its partition's key, and QP 1's queue key. */
static bool general_is_accepted(struct fabric *fabric, struct fabric_datagram *datagram)
{
	uint32_t end = fabric_end_port(fabric, datagram->port);
	unsigned int index;

	if (!partition_key_matches(fabric, end, datagram->pkey, &index)) {
		violation_note(fabric, end, true, datagram->pkey, &datagram->address);
		return false;
	}
	if (datagram->address.qkey != QKEY_GENERAL) {
		violation_note(fabric, end, false, datagram->address.qkey, &datagram->address);
		return false;
	}
	datagram->address.pkey_index = (uint16_t)index;
	return true;
}

static enum agent_result agents_process(struct fabric *fabric, struct fabric_datagram *datagram)
{
	uint8_t *mad = datagram->mad;
	struct agent_request request = {
		.fabric = fabric,
		.from = datagram,
		.node = fabric->ports[datagram->port].node,
		.port = datagram->port,
		.end_port = fabric_end_port(fabric, datagram->port),
		.method = mad[MAD_AT_METHOD],
		.attribute = octets_get16(mad + MAD_AT_ATTRIBUTE),
		.modifier = octets_get32(mad + MAD_AT_MODIFIER),
		.data = mad + MAD_AT_DATA,
		.mad = mad,
	};
	const struct fabric_node *node = &fabric->nodes[request.node];

	if (node->is_off || node->is_mute || mad[0] != 1)
		return AGENT_SILENT;
	if (request.method != METHOD_IS_GET && request.method != METHOD_IS_SET &&
	    request.method != METHOD_IS_REPRESS)
		return AGENT_NOT_MINE;
	switch (mad[MAD_AT_CLASS]) {
	case CLASS_IS_SMP:
	case CLASS_IS_DIRECTED:
		return datagram->address.destination_qp ? AGENT_SILENT : sma_process(&request);
	case CLASS_IS_PERFORMANCE:
		return datagram->address.destination_qp == 1 ? pma_process(&request) : AGENT_SILENT;
	case CLASS_IS_CONGESTION:
		return datagram->address.destination_qp == 1 ? congestion_process(&request)
							     : AGENT_SILENT;
	default:
		return AGENT_NOT_MINE;
	}
}

/* The answer goes back to where the request came from. */
static void datagram_turn(struct fabric *fabric, struct fabric_datagram *datagram)
{
	struct fabric_address *address = &datagram->address;
	struct fabric_address from = *address;
	uint32_t end = fabric_end_port(fabric, datagram->port);

	address->source = from.destination;
	address->destination = from.source;
	address->source_qp = from.destination_qp;
	address->destination_qp = from.source_qp;
	if (from.source_qp)
		address->qkey = QKEY_GENERAL;
	if (address->has_grh) {
		memcpy(address->grh + 8, from.grh + 24, 16);
		memcpy(address->grh + 24, from.grh + 8, 16);
	}
	if (from.destination >= LID_MULTICAST && from.destination != LID_PERMISSIVE) {
		/* A group can't send: its member answers for itself. */
		address->source = port_lid(&fabric->ports[end]);
		fabric_gid_get(fabric, end, 0, address->grh + 8);
	}
	if (datagram->mad[MAD_AT_CLASS] == CLASS_IS_DIRECTED)
		datagram->mad[MAD_AT_STATUS] |= 0x80;
	if (from.destination_qp)
		datagram->pkey = partition_key_get(fabric, end, address->pkey_index);
}

static bool datagram_travel(struct fabric *fabric, struct fabric_datagram *datagram)
{
	bool is_directed = datagram->mad[MAD_AT_CLASS] == CLASS_IS_DIRECTED;

	if (!datagram->address.destination_qp && is_directed)
		return directed_travel(fabric, datagram);
	if (!datagram_by_lid(fabric, datagram))
		return false;
	return !datagram->address.destination_qp || general_is_accepted(fabric, datagram);
}

/* The first address: what the sending port adds to what the program wrote. */
static void datagram_begin(struct fabric *fabric, struct fabric_datagram *datagram, uint32_t port,
			   const struct fabric_address *to, const uint8_t *mad)
{
	const struct fabric_port *row = &fabric->ports[port];
	uint16_t low = (uint16_t)((1u << port_lmc(row)) - 1);

	datagram->address = *to;
	datagram->address.source = port_lid(row) | (to->source & low);
	if (mad[MAD_AT_CLASS] == CLASS_IS_DIRECTED && !to->destination_qp &&
	    octets_get16(mad + MAD_AT_SOURCE_LID) == LID_PERMISSIVE)
		datagram->address.source = LID_PERMISSIVE;
	datagram->port = port;
	datagram->delay_ns = 0;
	datagram->pkey =
		to->pkey_index < FABRIC_PKEYS ? partition_key_get(fabric, port, to->pkey_index) : 0;
	memcpy(datagram->mad, mad, FABRIC_MAD_BYTES);
}

/* From where it is, until nobody has to answer any more. */
static void datagram_run(struct fabric *fabric, struct fabric_datagram *datagram, bool is_there)
{
	while (is_there || datagram_travel(fabric, datagram)) {
		enum agent_result result;

		if (datagram->delay_ns) {
			uint64_t delay_ns = datagram->delay_ns;

			datagram->delay_ns = 0;
			fabric->functions->postpone(fabric->context, datagram, delay_ns);
			return;
		}
		is_there = false;
		result = agents_process(fabric, datagram);
		if (result == AGENT_NOT_MINE)
			fabric->functions->deliver(fabric->context,
						   fabric_end_port(fabric, datagram->port),
						   &datagram->address, datagram->mad);
		if (result != AGENT_ANSWERS)
			return;
		datagram_turn(fabric, datagram);
	}
	fabric->header->mads_dropped++;
}

/* Multicast ------------------------------------------------------------------------------------ */

struct multicast {
	struct fabric *fabric;
	const struct fabric_datagram *datagram;
};

static bool multicast_visit(void *context, const struct route_hop *hop)
{
	struct multicast *multicast = context;

	if (!hop_make(multicast->fabric, hop, multicast->datagram, true))
		return false;
	armed_activate(multicast->fabric, hop->ingress);
	return true;
}

/* Each copy goes on by itself. */
static void multicast_reached(void *context, uint32_t end_port, uint64_t delay_ns)
{
	struct multicast *multicast = context;
	struct fabric_datagram copy = *multicast->datagram;

	copy.port = end_port;
	copy.delay_ns = delay_ns;
	if (general_is_accepted(multicast->fabric, &copy))
		datagram_run(multicast->fabric, &copy, true);
}

/* To QP 1 of all members. Multicast packets have a GRH: receivers discard those without. */
static void multicast_send(struct fabric *fabric, const struct fabric_datagram *datagram)
{
	struct multicast multicast = {.fabric = fabric, .datagram = datagram};
	const struct route_visitor visitor = {multicast_visit, multicast_reached, &multicast};
	const struct route_query query = {
		.port = datagram->port,
		.destination = datagram->address.destination,
		.pkey = datagram->pkey,
		.sl = datagram->address.sl,
		.mtu = 1,
	};

	if (datagram->address.has_grh && datagram->address.grh[24] == 0xff)
		route_multicast(fabric, &query, &visitor);
	else
		fabric->header->mads_dropped++;
}

void fabric_send(struct fabric *fabric, uint32_t port, const struct fabric_address *to,
		 const uint8_t *mad, uint64_t now_ms)
{
	struct fabric_datagram datagram;
	uint16_t lid = to->destination;

	fabric->now_ms = now_ms;
	fabric->header->mads++;
	datagram_begin(fabric, &datagram, port, to, mad);
	if (to->destination_qp && lid >= LID_MULTICAST && lid != LID_PERMISSIVE)
		multicast_send(fabric, &datagram);
	else
		datagram_run(fabric, &datagram, false);
}

void fabric_arrive(struct fabric *fabric, const struct fabric_datagram *datagram, uint64_t now_ms)
{
	struct fabric_datagram copy = *datagram;

	fabric->now_ms = now_ms;
	datagram_run(fabric, &copy, true);
}
