/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the nodes of networks without levels are: tori as a grid, others as a circle. No state but
 * the layout.
 */
#include <math.h>
#include <stdio.h>

#include "topology/layout.h"

#define CELL_WIDTH 90.0f
#define MARGIN 40.0f

/* A switch's layout_coordinates by its name, S-x-y or S-x-y-z. Returns how many there are. */
static int layout_coordinates(const char *name, unsigned int at[3])
{
	int n, end = 0;

	at[2] = 0;
	n = sscanf(name, "S-%4u-%4u%n-%4u%n", &at[0], &at[1], &end, &at[2], &end);
	return n >= 2 && !name[end] ? n : 0;
}

/* Whether each cable between switches leads along one dimension, and how large the torus is. */
static bool grid_measure(const struct layout *layout, unsigned int size[3])
{
	const struct topology *topology = layout->topology;
	unsigned int a[3], b[3];
	uint64_t room = 1;

	size[0] = size[1] = size[2] = 0;
	for (uint32_t i = 0; i < topology->port_count; i++) {
		const struct topology_port *port = &topology->ports[i];
		const struct topology_node *node = &topology->nodes[port->node];

		if (node->kind != TOPOLOGY_SWITCH)
			continue;
		if (!layout_coordinates(node->name, a))
			return false;
		for (unsigned int d = 0; d < 3; d++)
			size[d] = a[d] >= size[d] ? a[d] + 1 : size[d];
		if (port->peer == TOPOLOGY_NONE)
			continue;
		node = &topology->nodes[topology->ports[port->peer].node];
		if (node->kind == TOPOLOGY_SWITCH &&
		    (!layout_coordinates(node->name, b) ||
		     (a[0] != b[0]) + (a[1] != b[1]) + (a[2] != b[2]) != 1))
			return false;
	}
	for (unsigned int d = 0; d < 3; d++)
		room *= size[d];
	return room == layout->switches;
}

/* A dragonfly's switches have two numbers, too, but within a group each has a cable to each. */
static bool grid_is_torus(const struct layout *layout, const unsigned int size[3])
{
	const struct topology *topology = layout->topology;
	unsigned int a[3], b[3];

	for (uint32_t i = 0; i < topology->port_count; i++) {
		uint32_t peer = topology->ports[i].peer;

		if (peer == TOPOLOGY_NONE ||
		    !layout_coordinates(topology->nodes[topology->ports[i].node].name, a) ||
		    !layout_coordinates(topology->nodes[topology->ports[peer].node].name, b))
			continue;
		for (unsigned int d = 0; d < 3; d++) {
			unsigned int distance = a[d] > b[d] ? a[d] - b[d] : b[d] - a[d];

			if (distance > 1 && distance != size[d] - 1)
				return false;
		}
	}
	return true;
}

bool layout_grid(struct layout *layout)
{
	const struct topology *topology = layout->topology;
	unsigned int size[3], at[3], rows = 0;
	float cell_height;

	if (!grid_measure(layout, size) || !grid_is_torus(layout, size))
		return false;
	layout->kind = LAYOUT_GRID;
	for (uint32_t i = 0; i < topology->node_count; i++)
		if (layout->hosts[i] > rows * 6)
			rows = (layout->hosts[i] + 5) / 6;
	cell_height = 76 + (float)rows * LAYOUT_DOT;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		if (topology->nodes[i].kind != TOPOLOGY_SWITCH)
			continue;
		layout_coordinates(topology->nodes[i].name, at);
		layout->x[i] = MARGIN + CELL_WIDTH * ((float)at[0] + 0.5f +
						      (float)at[2] * ((float)size[0] + 0.8f));
		layout->y[i] = MARGIN + cell_height * ((float)at[1] + 0.3f) + (float)at[2] * 24;
		layout->hosts[i] = 0; /* counted again below */
	}
	for (uint32_t i = 0; i < topology->node_count; i++) {
		uint32_t home = layout->home[i], n;

		if (home == TOPOLOGY_NONE)
			continue;
		n = layout->hosts[home]++;
		layout->x[i] = layout->x[home] - 20 + (float)(n % 6) * LAYOUT_DOT;
		layout->y[i] = layout->y[home] + 18 + layout_row(n, 6) * LAYOUT_DOT;
	}
	layout->width = 2 * MARGIN + CELL_WIDTH * ((float)size[0] * (float)size[2] +
						   0.8f * (float)(size[2] - 1));
	layout->height = 2 * MARGIN + cell_height * (float)size[1] + (float)(size[2] - 1) * 24;
	return true;
}

void layout_circle(struct layout *layout)
{
	const struct topology *topology = layout->topology;
	float radius = (float)layout->switches * 52 / 6.2832f;
	uint32_t number = 0, most = 0;
	float centre;

	layout->kind = LAYOUT_CIRCLE;
	radius = radius < 170 ? 170 : radius;
	for (uint32_t i = 0; i < topology->node_count; i++)
		most = layout->hosts[i] > most ? layout->hosts[i] : most;
	centre = MARGIN + radius + 40 + layout_row(most + 1, 2) * LAYOUT_DOT;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		float angle = 6.2832f * (float)number / (float)layout->switches - 1.5708f;

		if (topology->nodes[i].kind != TOPOLOGY_SWITCH)
			continue;
		layout->x[i] = centre + radius * cosf(angle);
		layout->y[i] = centre + radius * sinf(angle);
		layout->hosts[i] = 0;
		number++;
	}
	for (uint32_t i = 0; i < topology->node_count; i++) {
		uint32_t home = layout->home[i], n;
		float out, side, dx, dy;

		if (topology->nodes[i].kind == TOPOLOGY_SWITCH)
			continue;
		if (home == TOPOLOGY_NONE) {
			layout->x[i] = layout->y[i] = MARGIN;
			continue;
		}
		n = layout->hosts[home]++;
		dx = (layout->x[home] - centre) / radius;
		dy = (layout->y[home] - centre) / radius;
		out = 30 + layout_row(n, 2) * LAYOUT_DOT;
		side = (n % 2 ? 0.5f : -0.5f) * LAYOUT_DOT;
		layout->x[i] = layout->x[home] + dx * out - dy * side;
		layout->y[i] = layout->y[home] + dy * out + dx * side;
	}
	layout->width = layout->height = 2 * centre;
}
