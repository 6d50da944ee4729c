/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The subnet manager (src/sm) against the fabric (src/fabric), simulated: random topologies are
 * swept while datagrams get lost and cables are cut and mended, joins of groups come and go, and a
 * second manager takes over. When the disturbances have ended and the manager says that it is
 * settled, the fabric's own route function has to find a way between all ports that are connected
 * at all, to each of their LIDs; of the shortest length with min-hop routing, over different ports
 * to the LIDs of one port; without a cycle of waiting links with up/down; and packets to a group
 * reach its members once, and no other port. Each seed is one run, always the same.
 *
 *   sm_sim [COUNT] [FIRST]          runs seeds; FIRST alone with -v as third word is shown
 *   sm_sim --sweep PODS LEAVES HOSTS CORES PORTS
 *                                   one sweep of a fat tree of three levels: messages and time
 */
#include <stdio.h>
#include <time.h>

#include "world.h"

#define SM_NO_PORT UINT32_MAX

static uint64_t seed_now;

static void fail(const char *text, uint64_t a, uint64_t b)
{
	printf("seed %llu: %s (%llu, %llu)\n", (unsigned long long)seed_now, text,
	       (unsigned long long)a, (unsigned long long)b);
	exit(1);
}

/* Topologies ----------------------------------------------------------------------------------- */

static void graph_random(struct topology *topology, struct world *dice)
{
	uint32_t switches = 1 + world_roll(dice, 14), hosts = 1 + world_roll(dice, 20);
	uint32_t rows[64];
	char name[16];

	topology_init(topology);
	for (uint32_t i = 0; i < hosts; i++) {
		snprintf(name, sizeof name, "H-%u", i);
		if (topology_add_node(topology, TOPOLOGY_CA, name, NULL, 1 + !world_roll(dice, 4),
				      &rows[switches + i]))
			abort();
	}
	for (uint32_t i = 0; i < switches; i++) {
		snprintf(name, sizeof name, "S-%u", i);
		if (topology_add_node(topology, TOPOLOGY_SWITCH, name, NULL, 36, &rows[i]))
			abort();
	}
	/* A tree, so that all are connected; then cables at random, also two between the same. */
	for (uint32_t i = 1; i < switches; i++)
		topology_connect(topology, topology_port(topology, rows[i], 1),
				 topology_port(topology, rows[world_roll(dice, i)],
					       2 + world_roll(dice, 34)));
	for (uint32_t i = 0; i < switches * 2; i++) {
		uint32_t a = world_roll(dice, switches), b = world_roll(dice, switches);

		if (a != b)
			topology_connect(
				topology,
				topology_port(topology, rows[a], 2 + world_roll(dice, 34)),
				topology_port(topology, rows[b], 2 + world_roll(dice, 34)));
	}
	for (uint32_t i = 0; i < hosts; i++)
		for (unsigned int port = 1; port <= topology->nodes[rows[switches + i]].ports;
		     port++)
			while (topology_connect(
				topology, topology_port(topology, rows[switches + i], port),
				topology_port(topology, rows[world_roll(dice, switches)],
					      2 + world_roll(dice, 34))))
				;
}

static void topology_choose(struct topology *topology, struct world *dice)
{
	struct topology_report report = {0};
	struct fat_tree_shape tree = {.ports = 8, .levels = 2 + world_roll(dice, 2), .hosts = 24};
	struct torus_shape torus = {{2 + world_roll(dice, 4), 3, world_roll(dice, 3)}, 2, 1};
	struct dragonfly_shape dragonfly = {3, 3, 1, 2};
	int result = 0;

	switch (world_roll(dice, 6)) {
	case 0:
		result = topology_make_fat_tree(topology, &tree, &report);
		break;
	case 1:
		result = topology_make_torus(topology, &torus, &report);
		break;
	case 2:
		result = topology_make_dragonfly(topology, &dragonfly, &report);
		break;
	default:
		graph_random(topology, dice);
	}
	if (result) {
		printf("seed %llu: topology: %s\n", (unsigned long long)seed_now,
		       report.count ? report.remarks[0].text : "no memory");
		exit(1);
	}
}

/* Disturbances --------------------------------------------------------------------------------- */

static void disturb(struct world *world)
{
	uint32_t row = world_roll(world, world->fabric.header->ports);
	const struct fabric_port *port = &world->fabric.ports[row];

	if (world_roll(world, 300))
		return;
	if (port->cable != FABRIC_NONE)
		fabric_cable_set(&world->fabric, row, !port->is_cut, world->now_ms);
	if (!world_roll(world, 8)) {
		uint32_t node = world_roll(world, world->fabric.header->nodes);

		/* A reboot: tables are lost. The managers' own nodes stay. */
		for (unsigned int i = 0; i < world->manager_count; i++)
			if (world->fabric.ports[world->managers[i].port].node == node)
				return;
		fabric_power_set(&world->fabric, node, false, world->now_ms);
		fabric_power_set(&world->fabric, node, true, world->now_ms);
	}
}

/* Joins and leaves at random; what is a member in the end is in `members`. */
enum { GROUPS = 3, MEMBERS_MAX = 256 };

struct joins {
	bool is_member[GROUPS][MEMBERS_MAX]; /* by node of the fabric's first ports */
};

static int member_ask(struct world *world, struct sm *sm, uint32_t row, unsigned int group,
		      uint8_t method)
{
	uint8_t record[52] = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff};
	const struct fabric_port *port = &world->fabric.ports[row];

	record[15] = (uint8_t)(group + 1);
	octets_put64(record + 16, 0xfe80000000000000u);
	octets_put64(record + 24, port->guid);
	octets_put32(record + 32, 0x01234567);
	octets_put16(record + 40, 0xffff);
	record[48] = 1;
	return world_ask(world, sm, port_lid(port), method, 0x38,
			 method == 0x15 ? 0x10003 : 0x130c7, record, sizeof record);
}

/* Checks --------------------------------------------------------------------------------------- */

/* The distance from a node to all others by cables that are up; 0: not there. `only`: the port by
 * which it leaves the node; 0: any. */
static void spread(const struct world *world, uint32_t from, unsigned int only, uint16_t *distance)
{
	uint32_t count = world->fabric.header->nodes, head = 0, tail = 0;
	uint32_t *queue = calloc(count, sizeof *queue);

	if (!queue)
		abort();
	memset(distance, 0, count * sizeof *distance);
	distance[from] = 1;
	queue[tail++] = from;
	while (head < tail) {
		uint32_t at = queue[head++];
		const struct fabric_node *node = &world->fabric.nodes[at];

		if (node->type != FABRIC_SWITCH && at != from)
			continue;
		for (unsigned int number = 1; number <= node->ports; number++) {
			uint32_t row = fabric_port_row(&world->fabric, at, number), to;

			if (world->fabric.ports[row].cable == FABRIC_NONE ||
			    (only && at == from && number != only) ||
			    port_state(&world->fabric.ports[row]) < PORT_INIT)
				continue;
			to = world->fabric.ports[world->fabric.ports[row].cable].node;
			if (!distance[to]) {
				distance[to] = (uint16_t)(distance[at] + 1);
				queue[tail++] = to;
			}
		}
	}
	free(queue);
}

struct waits {
	uint32_t count; /* ports: each is a link in the direction out of it */
	uint8_t *after; /* [a * count + b]: a packet on a may wait for b */
	uint8_t *state;
};

static void waits_visit(struct waits *waits, uint32_t at)
{
	waits->state[at] = 1;
	for (uint32_t to = 0; to < waits->count; to++) {
		if (!waits->after[(size_t)at * waits->count + to])
			continue;
		if (waits->state[to] == 1)
			fail("links wait for one another in a circle", at, to);
		if (!waits->state[to])
			waits_visit(waits, to);
	}
	waits->state[at] = 2;
}

/* Whether the end port is one that the manager at `origin` can reach. */
static bool end_is_there(const struct world *world, uint32_t row, const uint16_t *distance)
{
	const struct fabric_port *port = &world->fabric.ports[row];

	if (!port->is_end_port || !distance[port->node])
		return false;
	/* An adapter's port by its own cable. */
	if (port->number && port_state(port) < PORT_INIT)
		return false;
	return !port->number || distance[world->fabric.ports[port->cable].node] != 0;
}

static void joins_make(struct world *world, struct sm *sm, struct joins *joins)
{
	uint16_t *reach = calloc(world->fabric.header->nodes, sizeof *reach);

	if (!reach)
		abort();
	spread(world, world->fabric.ports[world->managers[0].port].node,
	       world->fabric.ports[world->managers[0].port].number, reach);
	memset(joins, 0, sizeof *joins);
	for (int i = 0; i < 60; i++) {
		uint32_t node = world_roll(world, world->fabric.header->nodes);
		uint32_t row = fabric_port_row(&world->fabric, node, 1);
		unsigned int group = world_roll(world, GROUPS);
		bool *is_member = &joins->is_member[group][node];
		int status;

		if (node >= MEMBERS_MAX || !end_is_there(world, row, reach))
			continue;
		status = member_ask(world, sm, row, group, *is_member ? 0x15 : 0x02);
		if (status)
			fail("a join or leave is refused", (uint64_t)status, *is_member);
		*is_member = !*is_member;
	}
	free(reach);
}

/* The LID `index` of a port; returns the port by which the first switch sends packets to it. */
static uint32_t route_check(const struct world *world, uint32_t from, uint32_t to, uint16_t index,
			    bool is_shortest, const uint16_t *distance, struct waits *waits)
{
	struct route_query query = {
		.port = from,
		.destination = (uint16_t)(port_lid(&world->fabric.ports[to]) + index),
		.pkey = 0xffff,
		.mtu = 5,
	};
	struct fabric_route route;

	fabric_route_find(&world->fabric, &query, &route);
	if (route.result != ROUTE_OK || route.end != to) {
		printf("from %s to %s (LID %u): %s\n",
		       fabric_node_name(&world->fabric, world->fabric.ports[from].node),
		       fabric_node_name(&world->fabric, world->fabric.ports[to].node),
		       query.destination, route_result_text(route.result));
		fail("a port can't be reached", from, to);
	}
	if (is_shortest && world->fabric.ports[from].number && world->fabric.ports[to].number &&
	    distance[world->fabric.ports[world->fabric.ports[to].cable].node] + 1u != route.hops)
		fail("a path isn't the shortest", distance[world->fabric.ports[to].node],
		     route.hops);
	for (uint32_t i = 1; waits && i < route.hops; i++)
		waits->after[(size_t)route.hop[i - 1].egress * waits->count + route.hop[i].egress] =
			1;
	return route.hops > 1 ? route.hop[1].egress : SM_NO_PORT;
}

/* The switch at which an end port is: an adapter has other ports. */
static uint32_t switch_of(const struct world *world, uint32_t row)
{
	const struct fabric_port *port = &world->fabric.ports[row];

	return port->number ? world->fabric.ports[port->cable].node : port->node;
}

/* How many ports of a switch lead nearer to where the distances begin. */
static unsigned int ports_nearer(const struct world *world, uint32_t node, const uint16_t *distance)
{
	const struct fabric_node *at = &world->fabric.nodes[node];
	unsigned int count = 0;

	for (unsigned int number = 1; number <= at->ports; number++) {
		const struct fabric_port *port = &world->fabric.ports[at->first_port + number];
		uint32_t peer =
			port->cable == FABRIC_NONE ? node : world->fabric.ports[port->cable].node;

		if (port_state(port) >= PORT_INIT &&
		    world->fabric.nodes[peer].type == FABRIC_SWITCH && distance[peer] &&
		    distance[peer] + 1 == distance[node])
			count++;
	}
	return count;
}

/* All LIDs of a port; with min-hop routing they are spread over what there is. `distance`: from the
 * switch where `from` is; `back`: room. */
static void routes_to_port(const struct world *world, uint32_t from, uint32_t to, bool is_up_down,
			   const uint16_t *distance, uint16_t *back, struct waits *waits)
{
	unsigned int lids = 1u << port_lmc(&world->fabric.ports[to]), used = 0, possible;
	uint32_t seen[128];

	for (unsigned int i = 0; i < lids; i++) {
		uint32_t egress = route_check(world, from, to, (uint16_t)i, !is_up_down, distance,
					      is_up_down ? waits : NULL);
		unsigned int at = 0;

		while (at < used && seen[at] != egress)
			at++;
		if (at == used)
			seen[used++] = egress;
	}
	if (lids == 1 || is_up_down || !world->fabric.ports[from].number ||
	    switch_of(world, from) == switch_of(world, to))
		return;
	spread(world, switch_of(world, to), 0, back);
	possible = ports_nearer(world, switch_of(world, from), back);
	if (used != (possible < lids ? possible : lids))
		fail("the LIDs of a port aren't spread over the ports that lead there", used,
		     possible);
}

static void lids_check(const struct fabric_port *port, uint8_t *used)
{
	for (unsigned int i = 0; i < 1u << port_lmc(port); i++)
		if (!port_lid(port) || used[port_lid(port) + i]++)
			fail("a LID is missing or used twice", i, port_lid(port));
}

static void routes_check(const struct world *world, uint32_t origin, bool is_up_down)
{
	uint32_t ports = world->fabric.header->ports, nodes = world->fabric.header->nodes;
	uint16_t *reach = calloc(nodes, sizeof *reach), *distance = calloc(nodes, sizeof *distance);
	uint16_t *back = calloc(nodes, sizeof *back);
	struct waits waits = {ports, calloc((size_t)ports * ports, 1), calloc(ports, 1)};
	uint8_t *used = calloc(65536, 1);

	if (!reach || !distance || !back || !waits.after || !waits.state || !used)
		abort();
	spread(world, world->fabric.ports[origin].node, world->fabric.ports[origin].number, reach);
	for (uint32_t a = 0; a < ports; a++) {
		if (!end_is_there(world, a, reach))
			continue;
		lids_check(&world->fabric.ports[a], used);
		spread(world, switch_of(world, a), 0, distance);
		for (uint32_t b = 0; b < ports; b++)
			if (a != b && end_is_there(world, b, reach))
				routes_to_port(world, a, b, is_up_down, distance, back, &waits);
	}
	for (uint32_t i = 0; is_up_down && i < ports; i++)
		if (!waits.state[i])
			waits_visit(&waits, i);
	free(reach);
	free(distance);
	free(back);
	free(waits.after);
	free(waits.state);
	free(used);
}

static bool hop_seen(void *context, const struct route_hop *hop)
{
	(void)context;
	(void)hop;
	return true;
}

static void copy_seen(void *context, uint32_t end_port, uint64_t delay_ns)
{
	(void)delay_ns;
	((uint8_t *)context)[end_port]++;
}

static void groups_check(struct world *world, struct sm *sm, const struct joins *joins)
{
	uint32_t ports = world->fabric.header->ports;
	uint8_t *copies = calloc(ports, 1);

	if (!copies)
		abort();
	for (unsigned int group = 0; group < GROUPS; group++)
		for (uint32_t node = 0; node < world->fabric.header->nodes; node++) {
			uint32_t from = fabric_port_row(&world->fabric, node, 1);
			struct route_query query = {.port = from, .pkey = 0xffff, .mtu = 1};
			struct route_visitor visitor = {hop_seen, copy_seen, copies};
			uint8_t record[52] = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff};

			if (node >= MEMBERS_MAX || !joins->is_member[group][node])
				continue;
			record[15] = (uint8_t)(group + 1);
			if (world_ask(world, sm, 1, 0x12, 0x38, 1, record, sizeof record) ||
			    !world_records(world))
				fail("a group that has members isn't there", group, node);
			query.destination = octets_get16(world->answer + 56 + 36);
			memset(copies, 0, ports);
			route_multicast(&world->fabric, &query, &visitor);
			for (uint32_t to = 0; to < ports; to++) {
				uint32_t other = world->fabric.ports[to].node;
				bool is_member = other < MEMBERS_MAX &&
						 world->fabric.ports[to].number == 1 &&
						 world->fabric.ports[to].is_end_port &&
						 joins->is_member[group][other];

				if (copies[to] != is_member) /* the sender gets its own */
					fail("copies of a packet to a group", to, copies[to]);
			}
		}
	free(copies);
}

/* The administration has a path for each LID of a port, one for a query that wants one. */
static void paths_check(struct world *world, struct sm *sm, uint32_t lids)
{
	const struct fabric_port *own = &world->fabric.ports[world->managers[0].port];
	uint8_t record[64] = {0};

	for (uint32_t row = 0; row < world->fabric.header->ports; row++) {
		const struct fabric_port *port = &world->fabric.ports[row];
		uint16_t lid = port_lid(port);

		if (!port->is_end_port || !port->number || port == own ||
		    port_state(port) != PORT_ACTIVE)
			continue;
		octets_put64(record + 8, 0xfe80000000000000u);
		octets_put64(record + 16, port->guid);
		octets_put64(record + 24, 0xfe80000000000000u);
		octets_put64(record + 32, own->guid);
		if (world_ask(world, sm, 1, 0x12, 0x35, 0xc, record, sizeof record))
			continue; /* cut off since */
		if (world_records(world) != lids)
			fail("a pair has too few or too many paths", world_records(world), lids);
		record[49] = 1;
		if (world_ask(world, sm, 1, 0x12, 0x35, 0x100c, record, sizeof record) ||
		    world_records(world) != 1)
			fail("one path was wanted", world_records(world), 1);
		octets_put16(record + 40, (uint16_t)(lid + lids - 1));
		if (world_ask(world, sm, 1, 0x01, 0x35, 0x1c, record, sizeof record) ||
		    octets_get16(world->answer + 56 + 40) != lid + lids - 1)
			fail("the path to a port's last LID", lid, lids);
	}
}

/* Sets (0x02) or deletes (0x15) the GUID at index 2 of a port. Returns the status. */
static int alias_ask(struct world *world, struct sm *sm, uint32_t row, uint8_t method,
		     uint64_t guid)
{
	uint8_t record[72] = {0};

	octets_put16(record, port_lid(&world->fabric.ports[row]));
	octets_put64(record + 8 + 2 * 8, guid);
	return world_ask(world, sm, 1, method, 0x30, 3 | 1u << 6, record, sizeof record);
}

static uint64_t alias_has(const struct world *world, uint32_t row)
{
	size_t end_port = world->fabric.ports[row].end_port;

	return world->fabric.guids[end_port * FABRIC_GUIDS + 2];
}

static void settle_or_fail(struct world *world, struct sm *sm, const char *when)
{
	if (!world_settle(world, sm, 120000))
		fail(when, world->now_ms, 0);
}

/* Alias GUIDs: they reach the port, paths lead to them, a second owner is declined, and they are
 * there again after the port has lost them. */
static void aliases_check(struct world *world, struct sm *sm)
{
	uint32_t own = world->managers[0].port, other = SM_NO_PORT;
	const uint64_t guid = 0x0200c0de00000001u;
	uint8_t record[64] = {0};

	for (uint32_t row = 0; row < world->fabric.header->ports && other == SM_NO_PORT; row++) {
		const struct fabric_port *port = &world->fabric.ports[row];

		if (port->is_end_port && port->number && port_state(port) == PORT_ACTIVE &&
		    port->node != world->fabric.ports[own].node && port_lid(port))
			other = row;
	}
	if (other == SM_NO_PORT)
		return;
	if (alias_ask(world, sm, other, 0x02, guid))
		return; /* an island */
	if (octets_get64(world->answer + 56 + 8 + 16) != guid)
		fail("an alias GUID is declined", other, octets_get64(world->answer + 56 + 24));
	if (alias_ask(world, sm, own, 0x02, guid) || octets_get64(world->answer + 56 + 8 + 16))
		fail("two ports have one GUID", other, own);
	octets_put64(record + 8, 0xfe80000000000000u);
	octets_put64(record + 16, guid);
	octets_put16(record + 42, port_lid(&world->fabric.ports[own]));
	if (world_ask(world, sm, 1, 0x01, 0x35, 0x24, record, sizeof record) ||
	    octets_get16(world->answer + 56 + 40) != port_lid(&world->fabric.ports[other]))
		fail("no path to an alias GUID", other, 0);
	settle_or_fail(world, sm, "the manager doesn't settle after an alias");
	if (alias_has(world, other) != guid)
		fail("an alias isn't written", other, alias_has(world, other));
	fabric_power_set(&world->fabric, world->fabric.ports[other].node, false, world->now_ms);
	settle_or_fail(world, sm, "the manager doesn't settle without the alias's port");
	fabric_power_set(&world->fabric, world->fabric.ports[other].node, true, world->now_ms);
	settle_or_fail(world, sm, "the manager doesn't settle with the alias's port");
	if (alias_has(world, other) != guid)
		fail("an alias isn't written again", other, alias_has(world, other));
	if (alias_ask(world, sm, other, 0x15, 0) || octets_get64(world->answer + 56 + 8 + 16))
		fail("an alias can't be deleted", other, 0);
	settle_or_fail(world, sm, "the manager doesn't settle after a deletion");
	if (alias_has(world, other))
		fail("a deleted alias is still written", other, alias_has(world, other));
}

/* Runs ----------------------------------------------------------------------------------------- */

static void seed_run(uint64_t seed, bool is_verbose)
{
	struct world dice = {.dice = seed * 0x9e3779b97f4a7c15u | 1}, world;
	struct sm_options options = {.retries = 3, .sweep_ms = 3000, .poll_ms = 200};
	struct topology topology;
	struct joins joins;
	struct sm *sm;
	bool is_up_down = world_roll(&dice, 2);

	seed_now = seed;
	topology_choose(&topology, &dice);
	world_begin(&world, &topology, seed);
	world.is_verbose = is_verbose;
	options.routing = is_up_down ? SM_UP_DOWN : SM_MIN_HOP;
	options.window = 1 + world_roll(&dice, 80);
	options.has_qos = !world_roll(&dice, 3);
	options.lmc = world_roll(&dice, 2) ? 0 : (uint8_t)world_roll(&dice, 4);
	if (world_roll(&dice, 3)) {
		world.loss = world_roll(&dice, 4) * 500;
		world.disturb = world_roll(&dice, 3) ? disturb : NULL;
	}
	sm = world_manager_add(&world, fabric_port_row(&world.fabric, 0, 1), &options);
	world_run(&world, world.now_ms + 3000);
	world.loss = 0;
	world.disturb = NULL;
	/* What no trap could report, a look at all switches finds. */
	world_run(&world, world.now_ms + 2 * options.sweep_ms);
	/* The manager's own cable may have been cut: then it can only see itself. */
	if (!world_settle(&world, sm, 120000))
		fail("the manager doesn't settle", world.now_ms, sm_counts_get(sm)->sweeps);
	routes_check(&world, world.managers[0].port, is_up_down);
	paths_check(&world, sm, 1u << options.lmc);
	aliases_check(&world, sm);
	joins_make(&world, sm, &joins);
	if (!world_settle(&world, sm, 120000))
		fail("the manager doesn't settle after joins", world.now_ms, 0);
	groups_check(&world, sm, &joins);
	/* Nothing changes any more, so a further sweep writes nothing. */
	uint64_t blocks = sm_counts_get(sm)->unicast_blocks + sm_counts_get(sm)->multicast_blocks;

	sm_sweep_request(sm, world.now_ms);
	if (!world_settle(&world, sm, 120000))
		fail("the manager doesn't settle after one more sweep", world.now_ms, 0);
	if (blocks != sm_counts_get(sm)->unicast_blocks + sm_counts_get(sm)->multicast_blocks)
		fail("a sweep without a change writes tables", blocks,
		     sm_counts_get(sm)->unicast_blocks);
	world_end(&world);
}

/* Two managers: the better one takes over, dies, and the other one takes over again. */
static void election_run(uint64_t seed)
{
	struct sm_options options = {.retries = 2, .sweep_ms = 3000, .poll_ms = 200};
	struct fat_tree_shape tree = {.ports = 8, .levels = 2, .hosts = 16};
	struct topology_report report = {0};
	struct topology topology;
	struct world world;
	struct sm *first, *second;

	seed_now = seed;
	if (topology_make_fat_tree(&topology, &tree, &report))
		fail("no topology", 0, 0);
	world_begin(&world, &topology, seed);
	world.loss = (uint32_t)(seed % 3) * 300;
	options.priority = 3;
	first = world_manager_add(&world, fabric_port_row(&world.fabric, 0, 1), &options);
	if (seed & 1)
		world_settle(&world, first, 60000);
	options.priority = seed & 2 ? 8 : 1;
	second = world_manager_add(&world, fabric_port_row(&world.fabric, 9, 1), &options);
	world_run(&world, world.now_ms + 20000);
	world.loss = 0;
	world_run(&world, world.now_ms + 20000);
	if (sm_state_get(first) != (seed & 2 ? SM_STANDBY : SM_MASTER) ||
	    sm_state_get(second) != (seed & 2 ? SM_MASTER : SM_STANDBY))
		fail("the wrong manager is the master", sm_state_get(first), sm_state_get(second));
	routes_check(&world, world.managers[0].port, false);
	world_manager_end(&world, seed & 2 ? 1 : 0);
	world_run(&world, world.now_ms + 20000);
	if (sm_state_get(seed & 2 ? first : second) != SM_MASTER)
		fail("the standby doesn't take over", seed, 0);
	routes_check(&world, world.managers[0].port, false);
	world_end(&world);
}

/* A cable between switches, by chance; SM_NO_PORT: there is none. */
static uint32_t trunk_choose(struct world *world)
{
	for (int i = 0; i < 1000; i++) {
		uint32_t row = world_roll(world, world->fabric.header->ports);
		const struct fabric_port *port = &world->fabric.ports[row];

		if (port->cable != FABRIC_NONE &&
		    world->fabric.nodes[port->node].type == FABRIC_SWITCH &&
		    world->fabric.nodes[world->fabric.ports[port->cable].node].type ==
			    FABRIC_SWITCH)
			return row;
	}
	return SM_NO_PORT;
}

/* What changes at one cable, or at one node, is found without looking at all others. */
static void change_run(uint64_t seed)
{
	struct sm_options options = {.retries = 3, .sweep_ms = 3000};
	struct fat_tree_shape tree = {.ports = 8, .levels = 3, .hosts = 48};
	struct topology_report report = {0};
	struct topology topology;
	struct world world;
	struct sm_counts first;
	struct sm *sm;

	seed_now = seed;
	if (topology_make_fat_tree(&topology, &tree, &report))
		fail("no topology", 0, 0);
	world_begin(&world, &topology, seed);
	options.lmc = seed % 2;
	sm = world_manager_add(&world, fabric_port_row(&world.fabric, 0, 1), &options);
	settle_or_fail(&world, sm, "the manager doesn't settle");
	world_run(&world, world.now_ms + options.sweep_ms * 2);
	first = *sm_counts_get(sm);
	for (int i = 0; i < 4; i++) {
		uint32_t row = trunk_choose(&world);
		uint32_t node = world_roll(&world, world.fabric.header->nodes);

		fabric_cable_set(&world.fabric, row, true, world.now_ms);
		settle_or_fail(&world, sm, "the manager doesn't settle after a cut");
		routes_check(&world, world.managers[0].port, false);
		fabric_cable_set(&world.fabric, row, false, world.now_ms);
		settle_or_fail(&world, sm, "the manager doesn't settle after a cable was mended");
		if (node != world.fabric.ports[world.managers[0].port].node) {
			fabric_power_set(&world.fabric, node, false, world.now_ms);
			fabric_power_set(&world.fabric, node, true, world.now_ms);
		}
		settle_or_fail(&world, sm, "the manager doesn't settle after a reboot");
		routes_check(&world, world.managers[0].port, false);
	}
	if (sm_counts_get(sm)->sweeps - sm_counts_get(sm)->partial_sweeps !=
	    first.sweeps - first.partial_sweeps)
		fail("a change made a whole sweep", sm_counts_get(sm)->sweeps,
		     sm_counts_get(sm)->partial_sweeps);
	world_end(&world);
}

static double cpu_seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int sweep_measure(char **argv)
{
	struct fat_tree_shape tree = {
		.levels = 3,
		.pods = (unsigned int)atoi(argv[0]),
		.hosts_per_leaf = (unsigned int)atoi(argv[2]),
		.hosts = (unsigned int)(atoi(argv[0]) * atoi(argv[1]) * atoi(argv[2])),
		.spines = (unsigned int)atoi(argv[3]),
		.ports = (unsigned int)atoi(argv[4]),
	};
	struct sm_options options = {.retries = 3, .window = 64};
	struct topology_report report = {0};
	struct topology topology;
	struct world world;
	double begin;
	struct sm *sm;
	uint32_t ends, switches, links;

	if (topology_make_fat_tree(&topology, &tree, &report)) {
		printf("%s\n", report.count ? report.remarks[0].text : "no memory");
		return 1;
	}
	world_begin(&world, &topology, 1);
	world.is_verbose = true;
	begin = cpu_seconds();
	sm = world_manager_add(&world, fabric_port_row(&world.fabric, 0, 1), &options);
	while (!sm_is_settled(sm) && world.now_ms < 100000)
		world_run(&world, world.now_ms + 10);
	sm_subnet_sizes(sm, &ends, &switches, &links);
	printf("%u ports, %u switches, %u links: %llu requests, %llu blocks, %.2f CPU s of manager "
	       "and fabric, with what is read afterwards\n",
	       ends, switches, links, (unsigned long long)sm_counts_get(sm)->requests,
	       (unsigned long long)sm_counts_get(sm)->unicast_blocks, cpu_seconds() - begin);
	world_end(&world);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 300;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	if (argc == 7 && !strcmp(argv[1], "--sweep"))
		return sweep_measure(argv + 2);
	for (uint64_t seed = first; seed < first + count; seed++)
		seed_run(seed, argc > 3);
	/* A node whose last way is cut while a mended cable to it is found. */
	seed_run(201272, argc > 3);
	for (uint64_t seed = first; seed < first + count / 10; seed++)
		election_run(seed);
	/* The worse manager, still discovering, writes SwitchInfo as it was before the master did.
	 */
	election_run(100090);
	for (uint64_t seed = first; seed < first + count / 20; seed++)
		change_run(seed);
	printf("%llu seeds\n", (unsigned long long)count);
	return 0;
}
