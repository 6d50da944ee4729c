/* SPDX-License-Identifier: BSD-2-Clause */
/* See ways.h. */
#include "hca/fabric/ways.h"

#include <stdlib.h>

#include "base/clock.h"
#include "fabric/internal.h"
#include "fabric/port_info.h"
#include "hca/fabric/membership.h"

enum { WAYS = 64 };

enum { TREES = 8 };

/* The hops of a tree are counted by several flows, each with as many as a flow has. */
struct tree {
	uint64_t key; /* 0: unused */
	uint64_t seen;
	struct proto_flow **flows;
	uint32_t flow_count, flow_room;
	bool is_valid;	   /* for the next packet; else memory was missing in the walk, or a fault
			    * drops copies */
	bool is_slow;	   /* a fault on it takes time */
	uint64_t *reached; /* bits: nodes that get a copy */
};

struct ways {
	struct membership *membership;
	uint64_t dice;
	struct proto_flow *dropped; /* of datagrams that faults dropped lately; NULL: none yet */
	struct way way[WAYS];
	struct tree tree[TREES];
};

struct ways *ways_new(struct membership *membership)
{
	struct ways *ways = calloc(1, sizeof(*ways));

	if (ways) {
		ways->membership = membership;
		ways->dice = clock_ns() | 1;
	}
	return ways;
}

/* Nothing of it is counted any more. */
static void tree_clear(struct ways *ways, struct tree *tree)
{
	for (uint32_t i = 0; i < tree->flow_count; i++)
		flow_end(&ways->membership->flows, tree->flows[i]);
	tree->flow_count = 0;
	tree->key = 0;
}

void ways_free(struct ways *ways)
{
	if (!ways)
		return;
	for (unsigned int i = 0; i < TREES; i++) {
		tree_clear(ways, &ways->tree[i]);
		free(ways->tree[i].flows);
		free(ways->tree[i].reached);
	}
	for (unsigned int i = 0; i < WAYS; i++)
		flow_end(&ways->membership->flows, ways->way[i].flow);
	flow_end(&ways->membership->flows, ways->dropped);
	free(ways);
}

static struct route_query way_query(const struct ways *ways, const struct way_address *address)
{
	const struct node *node = ways->membership->node;
	uint32_t port = node_port_row(node, address->port);

	return (struct route_query){
		.port = port,
		.destination = address->lid,
		.pkey = partition_key_get(&node->tables, port, address->pkey_index),
		.sl = address->sl,
	};
}

static void way_walk(struct ways *ways, struct way *way, const struct way_address *address)
{
	const struct fabric *tables = &ways->membership->node->tables;
	struct route_query query = way_query(ways, address);
	struct fabric_route route;

	fabric_route_find(tables, &query, &route);
	membership_arm(ways->membership, &route);
	flow_choose(&ways->membership->flows, &way->flow, &route, query.sl);
	way->is_dropped = false;
	way->room = route.result == ROUTE_OK ? (128u << route.mtu) + 1 : 0;
	way->end = route.end;
	way->loss = node_loss(ways->membership->node, &route);
	way->is_slow = route.result == ROUTE_OK && route.is_slow;
}

/* Never 0. */
static uint64_t way_key(const struct way_address *address)
{
	return address->lid | (uint64_t)address->port << 16 | (uint64_t)address->sl << 24 |
	       (uint64_t)address->pkey_index << 32 | 1ull << 63;
}

struct way *ways_find(struct ways *ways, const struct way_address *address)
{
	const uint64_t *word = &ways->membership->node->tables.header->epoch;
	uint64_t key = way_key(address);
	struct way *way = &ways->way[(key * 0x9e3779b97f4a7c15ull >> 32) % WAYS];
	/* [P1], pairs with [P2] */
	uint64_t epoch = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	if (likely(way->key == key && way->seen == epoch))
		return way;
	way_walk(ways, way, address);
	way->key = key;
	way->seen = epoch;
	return way;
}

bool way_passes_slow(struct ways *ways, struct way *way)
{
	way->is_dropped = node_drops(&ways->dice, way->loss);
	return !way->is_dropped;
}

/* The code of the smallest MTU into which the bytes fit. */
static uint8_t mtu_for(uint32_t length)
{
	uint8_t mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && length > 128u << mtu)
		mtu++;
	return mtu;
}

void way_count_lost(struct ways *ways, struct way *way, const struct way_address *address,
		    uint32_t length, uint32_t words)
{
	struct flows *flows = &ways->membership->flows;
	struct route_query query = way_query(ways, address);
	struct fabric_route route;

	if (way->room && length < way->room && way->is_dropped) {
		way->is_dropped = false;
		fabric_route_find(&ways->membership->node->tables, &query, &route);
		node_drop_choose(ways->membership->node, &ways->dice, &route);
		flow_choose(flows, &ways->dropped, &route, query.sl);
		flow_count_lost(ways->dropped, 1, words);
		return;
	}
	if (!way->room || length < way->room) {
		flow_count_lost(way->flow, 1, words);
		return;
	}
	/* A link on the way is too small for it. */
	query.mtu = mtu_for(length);
	fabric_route_find(&ways->membership->node->tables, &query, &route);
	struct proto_flow *flow = flow_take(flows, &route, query.sl);

	flow_count_lost(flow, 1, words);
	flow_end(flows, flow);
}

/* ------------------------------------------------------------------ trees */

/* A walk under way. `part` are the hops that no flow has yet; `flows` have the others. */
struct tree_walk {
	struct ways *ways;
	struct tree *tree;
	uint32_t flows;
	uint8_t sl;
	struct fabric_route part;
};

static void tree_flow_add(struct tree_walk *walk)
{
	struct tree *tree = walk->tree;

	if (!walk->part.hops)
		return;
	if (walk->flows == tree->flow_room) {
		uint32_t room = tree->flow_room ? tree->flow_room * 2 : 2;
		struct proto_flow **grown = realloc(tree->flows, room * sizeof(*grown));

		if (!grown) {
			tree->is_valid = false;
			return;
		}
		tree->flows = grown;
		tree->flow_room = room;
	}
	if (walk->flows == tree->flow_count)
		tree->flows[tree->flow_count++] = NULL;
	flow_choose(&walk->ways->membership->flows, &tree->flows[walk->flows++], &walk->part,
		    walk->sl | PROTO_FLOW_MULTICAST);
	membership_arm(walk->ways->membership, &walk->part);
	walk->part.hops = 0;
}

/* The last hop's copy is dropped where it arrives: that hop has a flow of its own. */
static void tree_hop_drop(struct tree_walk *walk, const struct route_hop *hop)
{
	walk->part.hops--;
	tree_flow_add(walk);
	walk->part.hop[walk->part.hops++] = *hop;
	walk->part.result = ROUTE_DROPPED;
	walk->part.blame = hop->ingress;
	tree_flow_add(walk);
	walk->part.result = ROUTE_OK;
	walk->part.blame = FABRIC_NONE;
}

/* The flows of an earlier walk that this one didn't need. */
static void tree_flows_end(struct tree_walk *walk)
{
	struct tree *tree = walk->tree;

	while (tree->flow_count > walk->flows)
		flow_end(&walk->ways->membership->flows, tree->flows[--tree->flow_count]);
}

static bool tree_hop_add(void *context, const struct route_hop *hop)
{
	struct tree_walk *walk = context;
	const struct fabric_port *ingress =
		&walk->ways->membership->node->tables.ports[hop->ingress];

	if (walk->part.hops == PROTO_FLOW_HOPS)
		tree_flow_add(walk);
	if (walk->part.hops < PROTO_FLOW_HOPS)
		walk->part.hop[walk->part.hops++] = *hop;
	walk->part.is_arming |= port_state(ingress) == PORT_ARMED;
	walk->tree->is_slow |= port_is_slowed(ingress);
	if (!port_data_drop_ppm(ingress))
		return true;
	walk->tree->is_valid = false;
	if (!node_drops(&walk->ways->dice, port_data_drop_ppm(ingress)))
		return true;
	tree_hop_drop(walk, hop);
	return false;
}

static void tree_reach(void *context, uint32_t end_port, uint64_t delay_ns)
{
	const struct tree_walk *walk = context;
	uint32_t node = walk->ways->membership->node->tables.ports[end_port].node;

	(void)delay_ns;
	walk->tree->reached[node / 64] |= 1ull << node % 64;
}

static bool tree_walk(struct ways *ways, struct tree *tree, const struct way_address *address,
		      uint32_t length)
{
	const struct fabric *tables = &ways->membership->node->tables;
	size_t words = tables->header->nodes / 64 + 1;
	struct tree_walk walk = {.ways = ways, .tree = tree, .sl = address->sl};
	const struct route_visitor visitor = {tree_hop_add, tree_reach, &walk};
	struct route_query query = way_query(ways, address);

	walk.part.blame = FABRIC_NONE;
	if (!tree->reached)
		tree->reached = calloc(words, sizeof(*tree->reached));
	if (!tree->reached)
		return false;
	for (size_t i = 0; i < words; i++)
		tree->reached[i] = 0;
	tree->is_valid = true;
	tree->is_slow = false;
	query.mtu = mtu_for(length);
	route_multicast(tables, &query, &visitor);
	tree_flow_add(&walk);
	tree_flows_end(&walk);
	return true;
}

struct tree *ways_find_tree(struct ways *ways, const struct way_address *address, uint32_t length,
			    bool again)
{
	const uint64_t *word = &ways->membership->node->tables.header->epoch;
	uint64_t key = way_key(address) | (uint64_t)mtu_for(length) << 48;
	struct tree *tree = &ways->tree[(key * 0x9e3779b97f4a7c15ull >> 32) % TREES];
	/* [P1], pairs with [P2] */
	uint64_t epoch = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	if (likely(tree->key == key && tree->seen == epoch && (tree->is_valid || again)))
		return tree;
	if (!tree_walk(ways, tree, address, length))
		return NULL;
	tree->key = key;
	tree->seen = epoch;
	return tree;
}

bool tree_is_slow(const struct tree *tree)
{
	return tree->is_slow;
}

bool tree_reaches(const struct tree *tree, uint32_t node)
{
	return tree->reached[node / 64] >> node % 64 & 1;
}

void tree_count(struct tree *tree, uint32_t words)
{
	for (uint32_t i = 0; i < tree->flow_count; i++)
		if (tree->flows[i]->result == ROUTE_DROPPED)
			flow_count_lost(tree->flows[i], 1, words);
		else
			flow_count(tree->flows[i], 1, words);
}
