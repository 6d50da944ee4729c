/* SPDX-License-Identifier: BSD-2-Clause */
/* What `verbena fabric` shows, as JSON. Reads only. */
#include "fabric/internal.h"
#include "fabricd/connection.h"
#include "fabricd/control.h"
#include "fabricd/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static json_t *guid_json(uint64_t guid)
{
	char text[24];

	snprintf(text, sizeof text, "0x%016" PRIx64, guid);
	return json_string(text);
}

/* Text from outside that may not be UTF-8. */
static json_t *text_json(const char *text, size_t most)
{
	char copy[257];
	size_t length = strnlen(text, most < sizeof copy ? most : sizeof copy - 1);
	json_t *value;

	memcpy(copy, text, length);
	copy[length] = 0;
	value = json_string(copy);
	if (value)
		return value;
	for (size_t i = 0; i < length; i++)
		if (copy[i] & 0x80)
			copy[i] = '?';
	return json_string(copy);
}

static json_t *node_name_json(const struct fabric *fabric, uint32_t node)
{
	return text_json(fabric_node_name(fabric, node), 256);
}

json_t *show_counters(const struct fabric *fabric, uint32_t port)
{
	static const char *const names[TRAFFICS] = {
		"xmit_words",	"rcv_words",   "xmit_packets",	 "rcv_packets",
		"unicast_xmit", "unicast_rcv", "multicast_xmit", "multicast_rcv"};
	const struct fabric_counters *counters = &fabric->counters[port];
	json_t *object = json_object();

	for (int kind = 0; kind < TRAFFICS; kind++)
		json_object_set_new(object, names[kind],
				    json_integer((json_int_t)counters->traffic[kind]));
	for (enum fabric_error error = 0; error < ERRORS; error++)
		json_object_set_new(object, error_name(error),
				    json_integer((json_int_t)counters->errors[error]));
	return object;
}

/* Status --------------------------------------------------------------------------------------- */

static void fault_add(json_t *faults, const struct fabric *fabric, const char *kind, uint32_t node,
		      json_t *rest)
{
	json_t *fault = rest ? rest : json_object();

	json_object_set_new(fault, "kind", json_string(kind));
	json_object_set_new(fault, "node", node_name_json(fabric, node));
	json_array_append_new(faults, fault);
}

static void port_faults_add(json_t *faults, const struct fabric *fabric, uint32_t row)
{
	const struct fabric_port *port = &fabric->ports[row];
	int number = port->number;

	if (port->is_cut && port->cable > row)
		fault_add(faults, fabric, "cut", port->node, json_pack("{s:i}", "port", number));
	if (port->drop_ppm)
		fault_add(faults, fabric, "drop", port->node,
			  json_pack("{s:i, s:f, s:i}", "port", number, "percent",
				    port->drop_ppm / 10000.0, "attribute",
				    (int)port->drop_attribute));
	if (port->is_limited && port->cable > row)
		fault_add(faults, fabric, "rate", port->node,
			  json_pack("{s:i, s:s, s:s}", "port", number, "width",
				    port_width_text(port), "speed", port_speed_text(port)));
	if (port->delay_ns)
		fault_add(
			faults, fabric, "delay", port->node,
			json_pack("{s:i, s:I}", "port", number, "ns", (json_int_t)port->delay_ns));
}

static json_t *faults_json(const struct server *server)
{
	const struct fabric *fabric = &server->fabric;
	json_t *faults = json_array();

	for (uint32_t node = 0; node < fabric->header->nodes; node++) {
		if (fabric->nodes[node].is_off)
			fault_add(faults, fabric, "off", node, NULL);
		if (fabric->nodes[node].is_mute)
			fault_add(faults, fabric, "mute", node, NULL);
	}
	for (uint32_t row = 0; row < fabric->header->ports; row++)
		port_faults_add(faults, fabric, row);
	for (unsigned int i = 0; i < server->rate_count; i++) {
		const struct error_rate *rate = &server->rates[i];
		const struct fabric_port *port = &fabric->ports[rate->port];

		fault_add(faults, fabric, "errors", port->node,
			  json_pack("{s:i, s:s, s:f}", "port", (int)port->number, "counter",
				    error_name(rate->error), "per_second", rate->per_second));
	}
	return faults;
}

static json_t *client_json(const struct connection *connection)
{
	const struct fabric *fabric = &connection->server->fabric;
	const struct fabric_port *port = &fabric->ports[connection->port->row];
	char path[32], program[64] = "";
	int agents = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)connection->pid);
	file = fopen(path, "re");
	if (file && fgets(program, sizeof program, file))
		program[strcspn(program, "\n")] = 0;
	if (file)
		fclose(file);
	for (int i = 0; i < UMAD_CA_MAX_AGENTS; i++)
		agents += connection->file.agents[i].is_registered;
	return json_pack(
		"{s:i, s:I, s:o, s:o, s:i, s:i, s:I, s:I, s:I, s:I}", "pid", (int)connection->pid,
		"uid", (json_int_t)connection->uid, "program", text_json(program, sizeof program),
		"node", node_name_json(fabric, port->node), "port", (int)port->number, "agents",
		agents, "sent", (json_int_t)connection->sent, "received",
		(json_int_t)connection->received, "queued_bytes",
		(json_int_t)connection->unread_bytes, "dropped", (json_int_t)connection->dropped);
}

static json_t *clients_json(const struct server *server)
{
	json_t *clients = json_array();

	list_for_each(node, &server->connections) {
		const struct connection *connection = container_of(node, struct connection, node);

		if (connection->port)
			json_array_append_new(clients, client_json(connection));
	}
	return clients;
}

struct totals {
	json_int_t cables, up, active;
	json_t *managers;
};

static void totals_count(const struct fabric *fabric, struct totals *totals)
{
	for (uint32_t row = 0; row < fabric->header->ports; row++) {
		const struct fabric_port *port = &fabric->ports[row];

		if (port->cable != FABRIC_NONE && port->cable > row) {
			uint8_t other = port_state(&fabric->ports[port->cable]);

			totals->cables++;
			totals->up += port_state(port) > PORT_DOWN && other > PORT_DOWN;
			totals->active += port_state(port) == PORT_ACTIVE && other == PORT_ACTIVE;
		}
		if (port->has_issm)
			json_array_append_new(totals->managers,
					      json_pack("{s:o, s:i, s:i}", "node",
							node_name_json(fabric, port->node), "port",
							(int)port->number, "lid",
							(int)port_lid(port)));
	}
}

json_t *status_show(struct server *server, const json_t *request)
{
	const struct fabric_header *header = server->fabric.header;
	struct totals totals = {.managers = json_array()};
	json_t *answer;

	(void)request;
	totals_count(&server->fabric, &totals);
	answer = json_pack("{s:b, s:o, s:i, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			   "ok", 1, "title", text_json(header->title, sizeof header->title), "pid",
			   (int)getpid(), "version", VERBENA_VERSION, "resumed", server->is_resumed,
			   "uptime_ms", (json_int_t)(server_now_ms() - server->started_ms), "nodes",
			   (json_int_t)header->nodes, "switches", (json_int_t)header->switches,
			   "adapters", (json_int_t)(header->nodes - header->switches), "cables",
			   totals.cables, "links_up", totals.up, "links_active", totals.active,
			   "epoch", (json_int_t)header->epoch, "mads", (json_int_t)header->mads);
	json_object_set_new(answer, "mads_dropped", json_integer((json_int_t)header->mads_dropped));
	json_object_set_new(answer, "state_bytes", json_integer((json_int_t)server->bytes));
	json_object_set_new(answer, "timing", json_integer((json_int_t)header->slow));
	json_object_set_new(answer, "managers", totals.managers);
	json_object_set_new(answer, "clients", clients_json(server));
	json_object_set_new(answer, "faults", faults_json(server));
	return answer;
}

/* Topology ------------------------------------------------------------------------------------- */

static json_t *node_json(const struct fabric *fabric, uint32_t index)
{
	static const char *const types[] = {"", "ca", "switch", "router"};
	const struct fabric_node *node = &fabric->nodes[index];
	uint32_t first = node->first_port + (node->type != FABRIC_SWITCH);

	return json_pack("{s:o, s:o, s:s, s:o, s:i, s:i, s:b, s:b}", "name",
			 node_name_json(fabric, index), "description",
			 text_json(node->description, sizeof node->description), "type",
			 types[node->type], "guid", guid_json(node->guid), "port_count",
			 (int)node->ports, "lid", (int)port_lid(&fabric->ports[first]), "off",
			 node->is_off, "mute", node->is_mute);
}

static json_t *link_json(const struct fabric *fabric, uint32_t row, bool has_counters)
{
	const struct fabric_port *a = &fabric->ports[row];
	const struct fabric_port *b = &fabric->ports[a->cable];
	json_t *link = json_pack("{s:[I, i], s:[I, i], s:s, s:s, s:s, s:s, s:s, s:f, s:b}", "a",
				 (json_int_t)a->node, (int)a->number, "b", (json_int_t)b->node,
				 (int)b->number, "state", port_state_text(a), "state_b",
				 port_state_text(b), "physical", port_physical_text(a), "width",
				 port_width_text(a), "speed", port_speed_text(a), "gbps",
				 port_rate_tenths(a) / 10.0, "cut", a->is_cut);

	if (has_counters) {
		json_object_set_new(link, "counters_a", show_counters(fabric, row));
		json_object_set_new(link, "counters_b", show_counters(fabric, a->cable));
	}
	return link;
}

json_t *show_topology(struct server *server, const json_t *request)
{
	const struct fabric *fabric = &server->fabric;
	bool has_counters = json_is_true(json_object_get(request, "counters"));
	json_t *nodes = json_array(), *links = json_array();

	for (uint32_t node = 0; node < fabric->header->nodes; node++)
		json_array_append_new(nodes, node_json(fabric, node));
	for (uint32_t row = 0; row < fabric->header->ports; row++)
		if (fabric->ports[row].cable != FABRIC_NONE && fabric->ports[row].cable > row)
			json_array_append_new(links, link_json(fabric, row, has_counters));
	return json_pack("{s:b, s:o, s:o}", "ok", 1, "nodes", nodes, "links", links);
}

/* A node --------------------------------------------------------------------------------------- */

static json_t *gids_json(const struct fabric *fabric, const struct fabric_port *port)
{
	const uint64_t *guids = fabric->guids + (size_t)port->end_port * FABRIC_GUIDS;
	uint64_t prefix = octets_get64(port->info + INFO_PREFIX);
	json_t *gids = json_array();

	for (unsigned int i = 0; i < port->info[INFO_GUID_CAP] && i < FABRIC_GUIDS; i++) {
		uint64_t guid = i ? guids[i] : port->guid;
		char text[40];

		if (!guid)
			continue;
		snprintf(text, sizeof text, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x",
			 (unsigned)(prefix >> 48), (unsigned)(prefix >> 32 & 0xffff),
			 (unsigned)(prefix >> 16 & 0xffff), (unsigned)(prefix & 0xffff),
			 (unsigned)(guid >> 48), (unsigned)(guid >> 32 & 0xffff),
			 (unsigned)(guid >> 16 & 0xffff), (unsigned)(guid & 0xffff));
		json_array_append_new(gids, json_string(text));
	}
	return gids;
}

static json_t *pkeys_json(const struct fabric *fabric, uint32_t row)
{
	json_t *pkeys = json_array();
	unsigned int count = FABRIC_PKEYS;

	while (count && !partition_key_get(fabric, row, count - 1))
		count--;
	for (unsigned int i = 0; i < count; i++)
		json_array_append_new(pkeys, json_integer(partition_key_get(fabric, row, i)));
	return pkeys;
}

static json_t *port_json(const struct fabric *fabric, uint32_t row)
{
	const struct fabric_port *port = &fabric->ports[row];
	json_t *object = json_pack(
		"{s:i, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:f, s:i, s:b, s:b}", "port",
		(int)port->number, "state", port_state_text(port), "physical",
		port_physical_text(port), "lid", (int)port_lid(port), "lmc", (int)port_lmc(port),
		"sm_lid", (int)port_sm_lid(port), "width", port_width_text(port), "speed",
		port_speed_text(port), "gbps", port_rate_tenths(port) / 10.0, "mtu",
		128 << port_mtu(port), "cut", port->is_cut, "issm", port->has_issm);

	if (port->is_end_port) {
		json_object_set_new(object, "guid", guid_json(port->guid));
		json_object_set_new(object, "gids", gids_json(fabric, port));
	}
	if (port->cable != FABRIC_NONE) {
		const struct fabric_port *peer = &fabric->ports[port->cable];

		json_object_set_new(object, "peer", node_name_json(fabric, peer->node));
		json_object_set_new(object, "peer_port", json_integer(peer->number));
	}
	json_object_set_new(object, "pkeys", pkeys_json(fabric, row));
	json_object_set_new(object, "capabilities",
			    json_integer(octets_get32(port->info + INFO_CAPABILITIES)));
	json_object_set_new(object, "counters", show_counters(fabric, row));
	return object;
}

json_t *show_node(struct server *server, const json_t *request)
{
	const struct fabric *fabric = &server->fabric;
	json_t *refusal = NULL, *node, *ports;
	uint32_t index = request_node(server, request, "node", &refusal);

	if (refusal)
		return refusal;
	node = node_json(fabric, index);
	ports = json_array();
	for (unsigned int number = 0; number <= fabric->nodes[index].ports; number++) {
		uint32_t row = fabric_port_row(fabric, index, number);

		if (row != FABRIC_NONE)
			json_array_append_new(ports, port_json(fabric, row));
	}
	json_object_set_new(node, "ports", ports);
	return json_pack("{s:b, s:o}", "ok", 1, "node", node);
}

/* Routes --------------------------------------------------------------------------------------- */

static json_t *hop_json(const struct fabric *fabric, const struct route_hop *hop)
{
	const struct fabric_port *from = &fabric->ports[hop->egress];
	const struct fabric_port *to = &fabric->ports[hop->ingress];

	return json_pack("{s:o, s:i, s:o, s:i, s:i}", "from", node_name_json(fabric, from->node),
			 "from_port", (int)from->number, "to", node_name_json(fabric, to->node),
			 "to_port", (int)to->number, "vl", (int)hop->vl);
}

struct tree {
	const struct fabric *fabric;
	json_t *hops, *reached;
};

static bool tree_visit(void *context, const struct route_hop *hop)
{
	struct tree *tree = context;

	json_array_append_new(tree->hops, hop_json(tree->fabric, hop));
	return json_array_size(tree->hops) < tree->fabric->header->ports;
}

static void tree_reached(void *context, uint32_t end_port, uint64_t delay_ns)
{
	struct tree *tree = context;
	const struct fabric_port *port = &tree->fabric->ports[end_port];

	(void)delay_ns;
	json_array_append_new(tree->reached,
			      json_pack("{s:o, s:i, s:i}", "node",
					node_name_json(tree->fabric, port->node), "port",
					(int)port->number, "lid", (int)port_lid(port)));
}

static json_t *multicast_trace(const struct fabric *fabric, const struct route_query *query)
{
	struct tree tree = {.fabric = fabric, .hops = json_array(), .reached = json_array()};
	struct route_visitor visitor = {tree_visit, tree_reached, &tree};
	bool is_reached;

	route_multicast(fabric, query, &visitor);
	is_reached = json_array_size(tree.reached) > 0;
	return json_pack("{s:b, s:s, s:s, s:o, s:o}", "ok", 1, "result",
			 is_reached ? "ok" : "no-entry", "text",
			 is_reached ? "it arrives" : "no port gets it", "hops", tree.hops,
			 "reached", tree.reached);
}

static json_t *unicast_trace(const struct fabric *fabric, const struct route_query *query)
{
	static const char *const names[ROUTE_RESULTS] = {
		"ok",  "no-lid",	 "no-entry",	  "looping",   "loop", "inactive", "vl",
		"mtu", "partition-xmit", "partition-rcv", "not-there", "off",  "dropped"};
	struct fabric_route route;
	json_t *hops = json_array();

	fabric_route_find(fabric, query, &route);
	for (uint32_t i = 0; i < route.hops; i++)
		json_array_append_new(hops, hop_json(fabric, &route.hop[i]));
	return json_pack("{s:b, s:s, s:s, s:o, s:i, s:I}", "ok", 1, "result", names[route.result],
			 "text", route_result_text(route.result), "hops", hops, "mtu",
			 128 << route.mtu, "delay_ns", (json_int_t)route.delay_ns);
}

/* The end port of a node: port 0 of a switch, else the one named, or the first. */
static uint32_t node_end_port(const struct fabric *fabric, uint32_t node, json_int_t number)
{
	uint32_t row;

	if (fabric->nodes[node].type == FABRIC_SWITCH)
		return fabric->nodes[node].first_port;
	row = number > 0 && number <= (json_int_t)FABRIC_PORTS_MAX
		      ? fabric_port_row(fabric, node, (unsigned int)number)
		      : FABRIC_NONE;
	return row == FABRIC_NONE ? fabric->nodes[node].first_port + 1 : row;
}

json_t *show_trace(struct server *server, const json_t *request)
{
	const struct fabric *fabric = &server->fabric;
	json_int_t lid = json_integer_value(json_object_get(request, "lid"));
	json_int_t mlid = json_integer_value(json_object_get(request, "mlid"));
	json_int_t pkey = json_integer_value(json_object_get(request, "pkey"));
	json_t *refusal = NULL;
	uint32_t from = request_node(server, request, "from", &refusal);
	struct route_query query = {
		.pkey = pkey ? (uint16_t)pkey : 0xffff,
		.sl = json_integer_value(json_object_get(request, "sl")) & 15,
	};

	if (refusal)
		return refusal;
	query.port = node_end_port(fabric, from,
				   json_integer_value(json_object_get(request, "from_port")));
	if (mlid) {
		query.destination = (uint16_t)mlid;
		return multicast_trace(fabric, &query);
	}
	if (!lid) {
		uint32_t to = request_node(server, request, "to", &refusal);

		if (refusal)
			return refusal;
		lid = port_lid(&fabric->ports[node_end_port(
			fabric, to, json_integer_value(json_object_get(request, "to_port")))]);
	}
	query.destination = lid > 0 && lid < 0x10000 ? (uint16_t)lid : 0;
	return unicast_trace(fabric, &query);
}

/* Tables --------------------------------------------------------------------------------------- */

static json_t *unicast_table(const struct fabric *fabric, const struct fabric_node *node)
{
	const uint8_t *table = fabric->unicast + (size_t)node->switch_index * FABRIC_LFT_ENTRIES;
	json_t *entries = json_array();

	for (unsigned int lid = 0; lid < FABRIC_LFT_ENTRIES && lid <= node->linear_top; lid++)
		if (table[lid])
			json_array_append_new(entries, json_pack("{s:i, s:i}", "lid", (int)lid,
								 "port", table[lid] ^ 0xff));
	return entries;
}

static json_t *multicast_table(const struct fabric *fabric, const struct fabric_node *node)
{
	json_t *entries = json_array();

	for (unsigned int at = 0; at < FABRIC_MFT_ENTRIES; at++) {
		json_t *ports = json_array();

		for (unsigned int number = 0; number <= node->ports; number++)
			if (fabric->multicast[node->multicast +
					      number / FABRIC_MFT_POSITIONS * FABRIC_MFT_ENTRIES +
					      at] >>
				    number % FABRIC_MFT_POSITIONS &
			    1)
				json_array_append_new(ports, json_integer(number));
		if (json_array_size(ports))
			json_array_append_new(entries,
					      json_pack("{s:i, s:O}", "mlid",
							(int)(LID_MULTICAST + at), "ports", ports));
		json_decref(ports);
	}
	return entries;
}

json_t *show_table(struct server *server, const json_t *request)
{
	const struct fabric *fabric = &server->fabric;
	json_t *refusal = NULL;
	uint32_t index = request_node(server, request, "node", &refusal);
	const struct fabric_node *node;

	if (refusal)
		return refusal;
	node = &fabric->nodes[index];
	if (node->type != FABRIC_SWITCH)
		return answer_refuse("\"%s\" is no switch: it has no tables",
				     fabric_node_name(fabric, index));
	return json_pack("{s:b, s:o}", "ok", 1, "entries",
			 strcmp(request_text(request, "kind"), "multicast")
				 ? unicast_table(fabric, node)
				 : multicast_table(fabric, node));
}
