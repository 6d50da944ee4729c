/* SPDX-License-Identifier: BSD-2-Clause */
/* See crossing.h. */
#include "hca/fabric/crossing.h"

#include "fabric/port_info.h"

struct search {
	uint32_t port;
	struct crossing found;
};

static void look_at(struct search *search, const struct route_hop *hop)
{
	if (hop->egress != search->port && hop->ingress != search->port)
		return;
	search->found = (struct crossing){
		.is_there = true, .is_out = hop->egress == search->port, .vl = hop->vl};
}

static bool visit_branch(void *context, const struct route_hop *hop)
{
	look_at(context, hop);
	return true;
}

static void branch_reached(void *context, uint32_t end_port, uint64_t delay_ns)
{
	(void)context;
	(void)end_port;
	(void)delay_ns;
}

struct crossing crossing_find(const struct fabric *tables, const struct route_query *query,
			      uint32_t port)
{
	struct search search = {.port = port};
	const struct route_visitor visitor = {visit_branch, branch_reached, &search};
	struct fabric_route route;

	if (query->destination >= LID_MULTICAST && query->destination != LID_PERMISSIVE) {
		route_multicast(tables, query, &visitor);
		return search.found;
	}
	fabric_route_find(tables, query, &route);
	for (uint32_t i = 0; i < route.hops; i++)
		look_at(&search, &route.hop[i]);
	return search.found;
}
