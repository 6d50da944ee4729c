/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unicast routing: which port each switch takes for each LID. Distances are found per destination
 * switch, by one breadth-first search each; all LIDs behind the same switch share them. Of the
 * ports that lead nearer, a switch takes them in turn, those with the fewest LIDs first. So the
 * LIDs of one port (with an LMC) lead over different ports wherever there are several.
 *
 * Min-hop: all shortest paths count. Up/down: switches are ordered by their distance from the roots
 * (those that are nearest to the farthest leaf), and a path goes towards the roots first and then
 * away from them, never up again, so no cycle of links can wait for one another. A switch that can
 * reach the destination by going down only always does, whatever came before: thus a table that
 * doesn't know where a packet came from still keeps the rule. Where several roots leave a switch
 * unreachable, one root is taken: from a single one everything is reached by going down.
 *
 * What is computed depends on the cables and GUIDs only, not on the order of answers.
 */
#include "sm/internal.h"

#define FAR UINT16_MAX

struct edge {
	uint32_t to; /* place of the switch at the other end */
	uint8_t port;
};

struct routes {
	const struct sm_subnet *subnet;
	uint32_t count;
	uint32_t *first_edge; /* count + 1 */
	struct edge *edges;
	uint16_t *cost;	    /* [destination][switch]: hops, FAR: unreachable */
	bool *is_down;	    /* [destination][switch]: the rest of the path goes down only */
	uint32_t *order;    /* by place: rank; lower is nearer to the roots */
	uint32_t *by_order; /* places, the roots first */
	uint32_t *queue;
	uint32_t *first_lid; /* count + 1 */
	uint16_t *lids;	     /* of the ends at each switch */
	uint8_t *lid_ports;  /* by which the switch itself reaches them; 0: itself */
};

static void routes_free(struct routes *routes)
{
	free(routes->first_edge);
	free(routes->edges);
	free(routes->cost);
	free(routes->is_down);
	free(routes->order);
	free(routes->by_order);
	free(routes->queue);
	free(routes->first_lid);
	free(routes->lids);
	free(routes->lid_ports);
}

static uint16_t *cost_row(const struct routes *routes, uint32_t destination)
{
	return routes->cost + (size_t)destination * routes->count;
}

static bool *down_row(const struct routes *routes, uint32_t destination)
{
	return routes->is_down + (size_t)destination * routes->count;
}

/* The graph ------------------------------------------------------------------------------------ */

static int routes_allocate(struct routes *routes, const struct sm_subnet *subnet)
{
	size_t n = subnet->switch_count;

	*routes = (struct routes){.subnet = subnet, .count = subnet->switch_count};
	routes->first_edge = calloc(n + 1, sizeof *routes->first_edge);
	routes->edges = calloc(subnet->port_count + 1, sizeof *routes->edges);
	routes->cost = malloc((n * n + 1) * sizeof *routes->cost);
	routes->is_down = calloc(n * n + 1, sizeof *routes->is_down);
	routes->order = calloc(n + 1, sizeof *routes->order);
	routes->by_order = calloc(n + 1, sizeof *routes->by_order);
	routes->queue = calloc(n + 1, sizeof *routes->queue);
	routes->first_lid = calloc(n + 2, sizeof *routes->first_lid);
	routes->lids = calloc(subnet->top_lid + 1u, sizeof *routes->lids);
	routes->lid_ports = calloc(subnet->top_lid + 1u, sizeof *routes->lid_ports);
	if (!routes->first_edge || !routes->edges || !routes->cost || !routes->is_down ||
	    !routes->order || !routes->by_order || !routes->queue || !routes->first_lid ||
	    !routes->lids || !routes->lid_ports) {
		routes_free(routes);
		return -ENOMEM;
	}
	return 0;
}

static void edges_collect(struct routes *routes)
{
	const struct sm_subnet *subnet = routes->subnet;
	uint32_t count = 0;

	for (uint32_t place = 0; place < routes->count; place++) {
		const struct sm_node *node = &subnet->nodes[subnet->switches[place]];

		routes->first_edge[place] = count;
		for (unsigned int number = 1; number <= node->ports; number++) {
			uint32_t row = node->first_port + number;
			uint32_t peer = subnet_peer_node(subnet, row);

			if (peer == SM_NONE || subnet->nodes[peer].type != SM_SWITCH ||
			    !subnet_port_is_linked(subnet, row) ||
			    subnet->nodes[peer].place == place)
				continue;
			routes->edges[count++] = (struct edge){
				.to = subnet->nodes[peer].place,
				.port = (uint8_t)number,
			};
		}
	}
	routes->first_edge[routes->count] = count;
}

/* The place of the switch where a LID is, with the port of that switch. SM_NONE: at none. */
static uint32_t lid_home(const struct sm_subnet *subnet, uint32_t row, uint8_t *port)
{
	const struct sm_node *node = &subnet->nodes[row];
	uint32_t attachment;

	if (node->is_lost || !node->lid)
		return SM_NONE;
	if (node->type == SM_SWITCH) {
		*port = 0;
		return node->place;
	}
	attachment = subnet_attachment(subnet, row);
	if (attachment == SM_NONE || !subnet_port_is_linked(subnet, attachment))
		return SM_NONE;
	*port = subnet->ports[attachment].number;
	return subnet->nodes[subnet->ports[attachment].node].place;
}

/* Sorts LIDs by their switch, and for each switch in rising order. */
static void lids_collect(struct routes *routes)
{
	const struct sm_subnet *subnet = routes->subnet;
	uint8_t port;

	for (uint32_t row = 0; row < subnet->node_count; row++) {
		uint32_t home = lid_home(subnet, row, &port);

		if (home != SM_NONE)
			routes->first_lid[home + 2] += sm_lid_count(&subnet->nodes[row]);
	}
	for (uint32_t place = 0; place < routes->count; place++)
		routes->first_lid[place + 2] += routes->first_lid[place + 1];
	for (uint32_t lid = 1; lid <= subnet->top_lid; lid++) {
		uint32_t row = subnet_by_lid(subnet, (uint16_t)lid);
		uint32_t home = row == SM_NONE ? SM_NONE : lid_home(subnet, row, &port);

		if (home == SM_NONE)
			continue;
		routes->lids[routes->first_lid[home + 1]] = (uint16_t)lid;
		routes->lid_ports[routes->first_lid[home + 1]++] = port;
	}
}

/* Distances ------------------------------------------------------------------------------------ */

/* From all switches to one. `upwards`: only against edges that go down, so by paths that do. */
static void distances_find(struct routes *routes, uint32_t destination, bool upwards)
{
	uint16_t *cost = cost_row(routes, destination);
	uint32_t head = 0, tail = 0;

	for (uint32_t i = 0; i < routes->count; i++)
		cost[i] = FAR;
	cost[destination] = 0;
	routes->queue[tail++] = destination;
	while (head < tail) {
		uint32_t at = routes->queue[head++];

		for (uint32_t e = routes->first_edge[at]; e < routes->first_edge[at + 1]; e++) {
			uint32_t to = routes->edges[e].to;

			if (cost[to] != FAR || (upwards && routes->order[to] > routes->order[at]))
				continue;
			cost[to] = (uint16_t)(cost[at] + 1);
			routes->queue[tail++] = to;
		}
	}
}

static bool switch_is_leaf(const struct routes *routes, uint32_t place)
{
	/* More than its own LID. */
	return routes->first_lid[place + 1] - routes->first_lid[place] > 1;
}

/* How far the farthest leaf is, of those that can be reached. */
static uint16_t switch_eccentricity(const struct routes *routes, uint32_t place)
{
	const uint16_t *cost = cost_row(routes, place);
	uint16_t most = 0;

	for (uint32_t i = 0; i < routes->count; i++)
		if (switch_is_leaf(routes, i) && cost[i] != FAR && cost[i] > most)
			most = cost[i];
	return most;
}

/* Orders switches by their distance from the roots: all that are most central, or one of them. */
static void order_make(struct routes *routes, const uint16_t *central, bool has_one_root)
{
	uint32_t head = 0, tail = 0;
	uint16_t least = FAR;

	for (uint32_t i = 0; i < routes->count; i++) {
		routes->order[i] = SM_NONE;
		if (central[i] < least)
			least = central[i];
	}
	for (uint32_t i = 0; i < routes->count && !(has_one_root && tail); i++)
		if (central[i] == least) {
			routes->order[i] = tail;
			routes->by_order[tail++] = i;
		}
	while (head < tail) {
		uint32_t at = routes->by_order[head++];

		for (uint32_t e = routes->first_edge[at]; e < routes->first_edge[at + 1]; e++) {
			uint32_t to = routes->edges[e].to;

			if (routes->order[to] != SM_NONE)
				continue;
			routes->order[to] = tail;
			routes->by_order[tail++] = to;
		}
	}
}

/* Paths that go up, and then down. False: a switch that has a way has none of this kind. */
static bool up_down_find(struct routes *routes, uint32_t destination)
{
	uint16_t *cost = cost_row(routes, destination);
	bool *is_down = down_row(routes, destination);

	distances_find(routes, destination, true);
	for (uint32_t i = 0; i < routes->count; i++)
		is_down[i] = cost[i] != FAR;
	for (uint32_t i = 0; i < routes->count; i++) {
		uint32_t at = routes->by_order[i];

		if (is_down[at])
			continue;
		for (uint32_t e = routes->first_edge[at]; e < routes->first_edge[at + 1]; e++) {
			uint32_t to = routes->edges[e].to;

			if (routes->order[to] < routes->order[at] && cost[to] != FAR &&
			    cost[to] + 1 < cost[at])
				cost[at] = (uint16_t)(cost[to] + 1);
		}
		if (cost[at] == FAR)
			return false;
	}
	return true;
}

static bool up_down_all(struct routes *routes, const uint16_t *central, bool has_one_root)
{
	bool is_complete = true;

	order_make(routes, central, has_one_root);
	for (uint32_t d = 0; d < routes->count; d++)
		is_complete &= up_down_find(routes, d);
	return is_complete;
}

static int costs_make(struct sm *sm, struct routes *routes)
{
	uint16_t *central = calloc(routes->count + 1, sizeof *central);

	if (!central)
		return -ENOMEM;
	for (uint32_t d = 0; d < routes->count; d++)
		distances_find(routes, d, false);
	for (uint32_t d = 0; d < routes->count; d++)
		central[d] = switch_eccentricity(routes, d);
	if (sm->options.routing == SM_UP_DOWN && !up_down_all(routes, central, false))
		up_down_all(routes, central, true);
	free(central);
	return 0;
}

/* Choosing ports ------------------------------------------------------------------------------- */

struct chooser {
	const struct routes *routes;
	bool is_up_down;
	uint32_t place;
	uint32_t load[256]; /* LIDs by port */
	uint8_t ports[256]; /* that lead nearer, the least loaded first */
	unsigned int count;
};

static bool edge_leads(const struct chooser *chooser, const struct edge *edge, uint32_t destination)
{
	const struct routes *routes = chooser->routes;
	const uint16_t *cost = cost_row(routes, destination);
	uint32_t at = chooser->place;

	if (cost[edge->to] == FAR || cost[edge->to] + 1 != cost[at])
		return false;
	if (!chooser->is_up_down)
		return true;
	if (down_row(routes, destination)[at])
		return down_row(routes, destination)[edge->to] &&
		       routes->order[edge->to] > routes->order[at];
	return routes->order[edge->to] < routes->order[at];
}

/* Collects the ports that lead nearer, in the order of their load. */
static void ports_collect(struct chooser *chooser, uint32_t destination)
{
	const struct routes *routes = chooser->routes;

	chooser->count = 0;
	for (uint32_t e = routes->first_edge[chooser->place];
	     e < routes->first_edge[chooser->place + 1]; e++) {
		uint8_t port = routes->edges[e].port;
		unsigned int at = chooser->count;

		if (!edge_leads(chooser, &routes->edges[e], destination))
			continue;
		chooser->count++;
		while (at && chooser->load[chooser->ports[at - 1]] > chooser->load[port]) {
			chooser->ports[at] = chooser->ports[at - 1];
			at--;
		}
		chooser->ports[at] = port;
	}
}

static void forwarding_fill(struct chooser *chooser, uint8_t *wanted)
{
	const struct routes *routes = chooser->routes;

	for (uint32_t d = 0; d < routes->count; d++) {
		uint32_t first = routes->first_lid[d], last = routes->first_lid[d + 1];

		if (d == chooser->place) {
			for (uint32_t i = first; i < last; i++)
				wanted[routes->lids[i]] = routes->lid_ports[i];
			continue;
		}
		if (first == last || cost_row(routes, d)[chooser->place] == FAR)
			continue;
		ports_collect(chooser, d);
		for (uint32_t i = first; i < last && chooser->count; i++) {
			uint8_t port = chooser->ports[(i - first) % chooser->count];

			wanted[routes->lids[i]] = port;
			chooser->load[port]++;
		}
	}
}

/* Room for all LIDs; what is known stays. */
static int tables_resize(struct sm_node *node, uint32_t blocks)
{
	struct sm_tables *tables = node->tables;
	uint8_t *unicast;
	bool *is_known;

	if (!tables)
		tables = node->tables = calloc(1, sizeof *tables);
	if (!tables)
		return -ENOMEM;
	free(tables->wanted);
	tables->wanted = malloc(blocks * SM_UNICAST_BLOCK);
	if (!tables->wanted)
		return -ENOMEM;
	memset(tables->wanted, 0xff, blocks * SM_UNICAST_BLOCK);
	if (blocks <= tables->blocks)
		return 0;
	unicast = realloc(tables->unicast, blocks * SM_UNICAST_BLOCK);
	if (!unicast)
		return -ENOMEM;
	tables->unicast = unicast;
	is_known = realloc(tables->is_known, blocks * sizeof *is_known);
	if (!is_known)
		return -ENOMEM;
	tables->is_known = is_known;
	memset(is_known + tables->blocks, 0, (blocks - tables->blocks) * sizeof *is_known);
	tables->blocks = blocks;
	return 0;
}

static int forwarding_make(struct sm *sm, struct routes *routes)
{
	uint32_t blocks = routes->subnet->top_lid / SM_UNICAST_BLOCK + 1;

	for (uint32_t place = 0; place < routes->count; place++) {
		struct sm_node *node = &routes->subnet->nodes[routes->subnet->switches[place]];
		struct chooser chooser = {
			.routes = routes,
			.is_up_down = sm->options.routing == SM_UP_DOWN,
			.place = place,
		};

		if (tables_resize(node, blocks))
			return -ENOMEM;
		forwarding_fill(&chooser, node->tables->wanted);
	}
	return 0;
}

int routes_make(struct sm *sm, struct sm_subnet *subnet)
{
	struct routes routes;
	int result = routes_allocate(&routes, subnet);

	if (result)
		return result;
	edges_collect(&routes);
	lids_collect(&routes);
	result = costs_make(sm, &routes);
	if (!result)
		result = forwarding_make(sm, &routes);
	routes_free(&routes);
	return result;
}
