/* SPDX-License-Identifier: BSD-2-Clause */
/* Gathers the cables between each two nodes. Owns its arrays. One thread at a time. */
#include "topology/links.h"

#include <errno.h>
#include <stdlib.h>

/* The node at the other end of a port that has a cable. */
static uint32_t peer_node(const struct topology *topology, uint32_t port)
{
	return topology->ports[topology->ports[port].peer].node;
}

static int cable_compare(const void *a, const void *b, void *context)
{
	const struct topology *topology = context;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint32_t x_node = topology->ports[x].node, y_node = topology->ports[y].node;

	if (x_node != y_node)
		return x_node < y_node ? -1 : 1;
	if (peer_node(topology, x) != peer_node(topology, y))
		return peer_node(topology, x) < peer_node(topology, y) ? -1 : 1;
	return x < y ? -1 : x > y;
}

static void link_add(struct drawn_link *link, const struct drawing *drawing, uint32_t port)
{
	const struct drawing_port *a, *b;

	link->cables++;
	if (!drawing->ports)
		return;
	a = &drawing->ports[port];
	b = &drawing->ports[drawing->topology->ports[port].peer];
	link->bytes += drawing->is_live ? a->bytes_per_second + b->bytes_per_second
					: a->sent_bytes + b->sent_bytes;
	link->errors += a->errors + b->errors;
	link->is_on_route |= a->is_on_route || b->is_on_route;
	if (a->state == DRAWING_DOWN || b->state == DRAWING_DOWN)
		link->down++;
	else if (a->state == DRAWING_STARTING || b->state == DRAWING_STARTING)
		link->starting++;
}

/* Whether port i, of a cable between i and `peer`, stands for the cable. */
static bool is_first_end(const struct topology *topology, uint32_t i, uint32_t peer)
{
	uint32_t node = topology->ports[i].node, peers = topology->ports[peer].node;

	return node != peers ? node < peers : i <= peer;
}

int drawn_links_make(struct drawn_links *links, const struct drawing *drawing)
{
	const struct topology *topology = drawing->topology;
	uint32_t count = 0;
	size_t room = (size_t)topology->cable_count + 1;

	*links = (struct drawn_links){
		.links = malloc(room * sizeof(*links->links)),
		.cables = malloc(room * sizeof(*links->cables)),
	};
	if (!links->links || !links->cables)
		return -ENOMEM;
	for (uint32_t i = 0; i < topology->port_count; i++) {
		uint32_t peer = topology->ports[i].peer;

		if (peer != TOPOLOGY_NONE && is_first_end(topology, i, peer))
			links->cables[count++] = i;
	}
	qsort_r(links->cables, count, sizeof(*links->cables), cable_compare, (void *)topology);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t a = topology->ports[links->cables[i]].node;
		uint32_t b = peer_node(topology, links->cables[i]);
		struct drawn_link *link = links->count ? &links->links[links->count - 1] : NULL;

		if (!link || link->a != a || link->b != b) {
			link = &links->links[links->count++];
			*link = (struct drawn_link){.a = a, .b = b, .first = i};
		}
		link_add(link, drawing, links->cables[i]);
	}
	for (uint32_t i = 0; i < links->count; i++) {
		uint64_t mean = links->links[i].bytes / links->links[i].cables;

		links->most_bytes = mean > links->most_bytes ? mean : links->most_bytes;
	}
	return 0;
}

void drawn_links_free(struct drawn_links *links)
{
	free(links->links);
	free(links->cables);
}

unsigned int drawn_link_load(const struct drawn_links *links, const struct drawn_link *link)
{
	uint64_t bytes = link->bytes / link->cables;
	double part;

	if (!bytes || !links->most_bytes)
		return 0;
	part = (double)bytes / (double)links->most_bytes;
	return part > 0.6 ? 4 : part > 0.25 ? 3 : part > 0.05 ? 2 : 1;
}
