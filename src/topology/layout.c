/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the nodes of a drawing are: levels of a tree, from spines above to adapters below. Switches
 * of a level are ordered by where their neighbours are, so that few cables cross. Owns the arrays
 * of struct layout. One thread at a time.
 */
#include "topology/layout.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL_HEIGHT 150.0f
#define SWITCH_GAP 14.0f
#define MARGIN 30.0f
#define BOX_HOSTS_MAX 40u /* so many adapters are boxes with names */
#define SWEEPS 4

/* Levels -------------------------------------------------------------------------------------- */

/* One step of the search from the adapters up: gives neighbours of a switch their level. */
static uint32_t levels_spread(const struct topology *topology, uint8_t *levels, uint32_t node,
			      uint32_t *queue, uint32_t tail)
{
	const struct topology_node *row = &topology->nodes[node];

	for (unsigned int i = 1; i <= row->ports; i++) {
		uint32_t peer = topology->ports[row->first_port + i].peer;
		uint32_t other = peer == TOPOLOGY_NONE ? node : topology->ports[peer].node;

		if (levels[other] != UINT8_MAX)
			continue;
		levels[other] = levels[node] < UINT8_MAX - 1 ? levels[node] + 1 : UINT8_MAX - 1;
		queue[tail++] = other;
	}
	return tail;
}

int topology_levels(const struct topology *topology, uint8_t *levels)
{
	uint32_t *queue = malloc((topology->node_count + 1) * sizeof(*queue)), tail = 0;
	int most = 0;

	if (!queue)
		return -ENOMEM;
	for (uint32_t i = 0; i < topology->node_count; i++) {
		bool is_end = topology->nodes[i].kind != TOPOLOGY_SWITCH;

		levels[i] = is_end ? 0 : UINT8_MAX;
		if (is_end)
			queue[tail++] = i;
	}
	for (uint32_t head = 0; head < tail; head++)
		tail = levels_spread(topology, levels, queue[head], queue, tail);
	free(queue);
	for (uint32_t i = 0; i < topology->node_count; i++) {
		if (levels[i] == UINT8_MAX) /* no adapter can be reached */
			levels[i] = 1;
		most = levels[i] > most ? levels[i] : most;
	}
	return most + 1;
}

/* Order --------------------------------------------------------------------------------------- */

struct ordered {
	uint32_t node;
	float place; /* mean of its neighbours' */
};

static int ordered_compare(const void *a, const void *b)
{
	const struct ordered *x = a, *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	return x->node < y->node ? -1 : x->node > y->node;
}

/* The mean place of the neighbours at a level; `place` when there are none. */
static float neighbours_place(const struct layout *layout, uint32_t node, int level,
			      const float *places)
{
	const struct topology *topology = layout->topology;
	const struct topology_node *row = &topology->nodes[node];
	double sum = 0;
	unsigned int count = 0;

	for (unsigned int i = 1; i <= row->ports; i++) {
		uint32_t peer = topology->ports[row->first_port + i].peer;

		if (peer == TOPOLOGY_NONE || layout->levels[topology->ports[peer].node] != level)
			continue;
		sum += places[topology->ports[peer].node];
		count++;
	}
	return count ? (float)(sum / count) : places[node];
}

/* Orders the switches of a level by those of another one. Places are 0 to 1 in each level. */
static void level_order(const struct layout *layout, struct ordered *rows, int level, int by,
			float *places)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < layout->topology->node_count; i++)
		if (layout->levels[i] == level)
			rows[count++] = (struct ordered){
				i, by ? neighbours_place(layout, i, by, places) : places[i]};
	qsort(rows, count, sizeof(*rows), ordered_compare);
	for (uint32_t i = 0; i < count; i++)
		places[rows[i].node] = ((float)i + 0.5f) / (float)count;
}

/* How long the cables between switches are, by their places: fewer cross when they are short. */
static double cables_length(const struct layout *layout, const float *places)
{
	const struct topology *topology = layout->topology;
	double sum = 0;

	for (uint32_t i = 0; i < topology->port_count; i++) {
		const struct topology_port *port = &topology->ports[i];

		if (port->peer == TOPOLOGY_NONE || !layout->levels[port->node] ||
		    !layout->levels[topology->ports[port->peer].node])
			continue;
		sum += fabs((double)places[port->node] -
			    (double)places[topology->ports[port->peer].node]);
	}
	return sum;
}

/* The order of the file, unless another one, made up and down through the levels, is clearly
 * better: people know the file's. */
static void levels_order(const struct layout *layout, struct ordered *rows, float *places,
			 float *best)
{
	size_t bytes = layout->topology->node_count * sizeof(*places);
	double least;

	for (uint32_t i = 0; i < layout->topology->node_count; i++)
		places[i] = (float)i;
	for (int level = 1; level < layout->level_count; level++)
		level_order(layout, rows, level, 0, places);
	memcpy(best, places, bytes);
	least = cables_length(layout, places);
	for (int sweep = 0; sweep < SWEEPS; sweep++) {
		for (int level = 2; level < layout->level_count; level++)
			level_order(layout, rows, level, level - 1, places);
		for (int level = layout->level_count - 2; sweep && level >= 1; level--)
			level_order(layout, rows, level, level + 1, places);
		if (cables_length(layout, places) < least * 0.9) {
			least = cables_length(layout, places);
			memcpy(best, places, bytes);
		}
	}
	memcpy(places, best, bytes);
}

/* Places -------------------------------------------------------------------------------------- */

unsigned int layout_columns(uint32_t hosts, uint32_t switches)
{
	unsigned int most = switches >= 12 ? 5 : 8;

	if (hosts <= most)
		return hosts ? hosts : 1;
	for (unsigned int columns = most; columns > most / 2; columns--)
		if (hosts % columns == 0)
			return columns;
	return most;
}

/* How wide a switch is with its adapters below it. */
static float switch_width(const struct layout *layout, uint32_t node)
{
	float hosts =
		layout->has_boxes
			? (float)layout->hosts[node] * (LAYOUT_SWITCH_WIDTH + 8)
			: (float)layout_columns(layout->hosts[node], layout->switches) * LAYOUT_DOT;

	return (hosts > LAYOUT_SWITCH_WIDTH ? hosts : LAYOUT_SWITCH_WIDTH) + SWITCH_GAP;
}

static void place_leaves(struct layout *layout, struct ordered *rows, const float *places)
{
	uint32_t count = 0;
	float x = MARGIN;

	for (uint32_t i = 0; i < layout->topology->node_count; i++)
		if (layout->levels[i] == 1)
			rows[count++] = (struct ordered){i, places[i]};
	qsort(rows, count, sizeof(*rows), ordered_compare);
	for (uint32_t i = 0; i < count; i++) {
		float width = switch_width(layout, rows[i].node);

		layout->x[rows[i].node] = x + width / 2;
		x += width;
	}
	layout->width = x + MARGIN;
}

/* The adapters at their switches; those without one in a row behind. Returns the lowest y. */
static float place_hosts(struct layout *layout, uint32_t *taken, float y)
{
	float step = layout->has_boxes ? LAYOUT_SWITCH_WIDTH + 8 : LAYOUT_DOT, lowest = y;

	for (uint32_t i = 0; i < layout->topology->node_count; i++) {
		uint32_t home = layout->home[i], n;
		unsigned int columns;

		if (layout->levels[i])
			continue;
		if (home == TOPOLOGY_NONE) {
			layout->x[i] = layout->width + step / 2;
			layout->y[i] = y;
			layout->width += step + 6;
			continue;
		}
		n = taken[home]++;
		columns = layout->has_boxes ? layout->hosts[home]
					    : layout_columns(layout->hosts[home], layout->switches);
		layout->x[i] =
			layout->x[home] + ((float)(n % columns) - (float)(columns - 1) / 2) * step;
		layout->y[i] = y + layout_row(n, columns) * step;
		lowest = layout->y[i] > lowest ? layout->y[i] : lowest;
	}
	return lowest;
}

static int layout_tree(struct layout *layout)
{
	uint32_t count = layout->topology->node_count;
	struct ordered *rows = malloc((count + 1) * sizeof(*rows));
	float *places = malloc(2 * (count + 1) * sizeof(*places)), height, leaf_y;
	uint32_t *taken = calloc(count + 1, sizeof(*taken));
	int err = rows && places && taken ? 0 : -ENOMEM;

	if (!err) {
		levels_order(layout, rows, places, places + count + 1);
		place_leaves(layout, rows, places);
		height = layout->width * 0.4f / (float)layout->level_count;
		height = height < LEVEL_HEIGHT ? LEVEL_HEIGHT : height;
		leaf_y = MARGIN +
			 (float)(layout->level_count > 2 ? layout->level_count - 2 : 0) * height;
		for (uint32_t i = 0; i < count; i++)
			if (layout->levels[i] > 1) {
				layout->x[i] = MARGIN + places[i] * (layout->width - 2 * MARGIN);
				layout->y[i] = leaf_y - (float)(layout->levels[i] - 1) * height;
			} else if (layout->levels[i]) {
				layout->y[i] = leaf_y;
			}
		layout->height =
			place_hosts(layout, taken, leaf_y + (layout->has_boxes ? 90 : 30)) +
			LAYOUT_SWITCH_HEIGHT + MARGIN;
	}
	free(rows);
	free(places);
	free(taken);
	return err;
}

/* The upper levels may have more switches than fit above the leaves. */
static void layout_widen(struct layout *layout)
{
	float wanted = 0, factor;

	for (int level = 2; level < layout->level_count; level++) {
		uint32_t count = 0;

		for (uint32_t i = 0; i < layout->topology->node_count; i++)
			count += layout->levels[i] == level;
		if ((float)count * (LAYOUT_SWITCH_WIDTH + 6) + 2 * MARGIN > wanted)
			wanted = (float)count * (LAYOUT_SWITCH_WIDTH + 6) + 2 * MARGIN;
	}
	if (wanted <= layout->width)
		return;
	factor = (wanted - 2 * MARGIN) / (layout->width - 2 * MARGIN);
	for (uint32_t i = 0; i < layout->topology->node_count; i++) {
		uint32_t home = layout->levels[i] ? i : layout->home[i];
		float base = home == TOPOLOGY_NONE ? layout->x[i] : layout->x[home];

		if (!layout->levels[i] && home != TOPOLOGY_NONE)
			layout->x[i] += (base - MARGIN) * (factor - 1);
	}
	for (uint32_t i = 0; i < layout->topology->node_count; i++)
		if (layout->levels[i])
			layout->x[i] += (layout->x[i] - MARGIN) * (factor - 1);
	layout->width = wanted;
}

/* Making -------------------------------------------------------------------------------------- */

static void homes_find(struct layout *layout)
{
	const struct topology *topology = layout->topology;

	for (uint32_t i = 0; i < topology->node_count; i++) {
		const struct topology_node *node = &topology->nodes[i];

		layout->home[i] = TOPOLOGY_NONE;
		layout->switches += node->kind == TOPOLOGY_SWITCH;
		for (unsigned int p = 1; node->kind != TOPOLOGY_SWITCH && p <= node->ports; p++) {
			uint32_t peer = topology->ports[node->first_port + p].peer;

			if (peer == TOPOLOGY_NONE ||
			    topology->nodes[topology->ports[peer].node].kind != TOPOLOGY_SWITCH)
				continue;
			layout->home[i] = topology->ports[peer].node;
			layout->hosts[layout->home[i]]++;
			break;
		}
	}
}

int layout_make(struct layout *layout, const struct topology *topology)
{
	uint32_t count = topology->node_count + 1;
	int err;

	*layout = (struct layout){
		.topology = topology,
		.x = calloc(count, sizeof(*layout->x)),
		.y = calloc(count, sizeof(*layout->y)),
		.home = calloc(count, sizeof(*layout->home)),
		.hosts = calloc(count, sizeof(*layout->hosts)),
		.levels = calloc(count, 1),
	};
	if (!layout->x || !layout->y || !layout->home || !layout->hosts || !layout->levels)
		return -ENOMEM;
	layout->level_count = topology_levels(topology, layout->levels);
	if (layout->level_count < 0)
		return layout->level_count;
	homes_find(layout);
	layout->has_boxes = topology->node_count - layout->switches <= BOX_HOSTS_MAX;
	if (layout->level_count == 2 && layout->switches > 3) {
		layout->has_boxes = false;
		if (!layout_grid(layout))
			layout_circle(layout);
		return 0;
	}
	err = layout_tree(layout);
	if (!err)
		layout_widen(layout);
	return err;
}

void layout_free(struct layout *layout)
{
	free(layout->x);
	free(layout->y);
	free(layout->home);
	free(layout->hosts);
	free(layout->levels);
}
