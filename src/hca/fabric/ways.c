/* SPDX-License-Identifier: BSD-2-Clause */
/* See ways.h. */
#include "hca/fabric/ways.h"

#include <stdlib.h>

#include "base/clock.h"
#include "fabric/internal.h"
#include "hca/fabric/membership.h"

enum { WAYS = 64 };

struct ways {
	struct membership *membership;
	uint64_t dice;
	struct way way[WAYS];
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

void ways_free(struct ways *ways)
{
	if (!ways)
		return;
	for (unsigned int i = 0; i < WAYS; i++)
		flow_end(&ways->membership->flows, ways->way[i].flow);
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
	flow_choose(&ways->membership->flows, &way->flow, &route, query.sl);
	way->room = route.result == ROUTE_OK ? (128u << route.mtu) + 1 : 0;
	way->end = route.end;
	way->loss = node_loss(ways->membership->node, &route);
}

struct way *ways_find(struct ways *ways, const struct way_address *address)
{
	const uint64_t *word = &ways->membership->node->tables.header->epoch;
	uint64_t key = address->lid | (uint64_t)address->port << 16 | (uint64_t)address->sl << 24 |
		       (uint64_t)address->pkey_index << 32 | 1ull << 63;
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

bool way_passes_slow(struct ways *ways, const struct way *way)
{
	return !node_drops(&ways->dice, way->loss);
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
