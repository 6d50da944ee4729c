/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What no single line of a topology file shows: GUIDs and LIDs that two nodes have, and which nodes
 * can have their description as name. No state but the parser's. One thread at a time.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "topology/parse.h"

struct numbered {
	uint64_t number;
	uint32_t node;
};

static int numbered_compare(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return x->node < y->node ? -1 : x->node > y->node;
}

static void check_guids(struct parser *parser, struct numbered *rows)
{
	const struct topology *topology = parser->topology;
	uint32_t count = 0;

	for (uint32_t i = 0; i < topology->node_count; i++)
		if (topology->nodes[i].guid)
			rows[count++] = (struct numbered){topology->nodes[i].guid, i};
	qsort(rows, count, sizeof(*rows), numbered_compare);
	for (uint32_t i = 1; i < count; i++)
		if (rows[i].number == rows[i - 1].number)
			topology_remark_error(
				parser->report, topology->nodes[rows[i].node].line,
				"\"%.60s\" and \"%.60s\" have one GUID, 0x%016" PRIx64,
				topology->nodes[rows[i - 1].node].name,
				topology->nodes[rows[i].node].name, rows[i].number);
}

/* Two ports of one LID are possible in a broken cluster, and of no effect here. */
static int check_lids(struct parser *parser)
{
	const struct topology *topology = parser->topology;
	uint32_t *holders = calloc(TOPOLOGY_LID_MAX + 1, sizeof(*holders)); /* node + 1 */

	if (!holders)
		return -ENOMEM;
	for (uint32_t i = 0; i < topology->port_count; i++) {
		const struct topology_port *port = &topology->ports[i];
		const struct topology_node *node = &topology->nodes[port->node];

		if (!port->lid)
			continue;
		if (holders[port->lid])
			topology_remark_warning(parser->report,
						port->line ? port->line : node->line,
						"\"%.60s\" and \"%.60s\" have one LID, %u",
						topology->nodes[holders[port->lid] - 1].name,
						node->name, port->lid);
		holders[port->lid] = port->node + 1;
	}
	free(holders);
	return 0;
}

/* Whether a name is what ibnetdiscover makes of a GUID: `S-0002c90200423e58`. */
static bool name_is_guid(const char *name)
{
	return strchr("SHR", name[0]) && name[1] == '-' && strlen(name) == 18 &&
	       strspn(name + 2, "0123456789abcdefABCDEF") == 16;
}

static int description_compare(const void *a, const void *b, void *context)
{
	const struct topology *topology = context;

	return strcmp(topology->nodes[*(const uint32_t *)a].description,
		      topology->nodes[*(const uint32_t *)b].description);
}

/* Whether a node with a GUID as name can have its description as name: no other node has it. */
static bool description_is_name(const struct topology *topology, const struct topology_node *node,
				bool is_alone)
{
	size_t bytes = strlen(node->description);

	return is_alone && name_is_guid(node->name) &&
	       topology_text_is_name(node->description, bytes) &&
	       topology_find_slice(topology, node->description, bytes) == TOPOLOGY_NONE;
}

static int rename_nodes(struct topology *topology)
{
	uint32_t count = topology->node_count, end;
	uint32_t *rows = malloc((count + 1) * sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		rows[i] = i;
	qsort_r(rows, count, sizeof(*rows), description_compare, topology);
	for (uint32_t i = 0; i < count; i = end) {
		struct topology_node *node = &topology->nodes[rows[i]];

		for (end = i + 1; end < count; end++)
			if (description_compare(&rows[i], &rows[end], topology))
				break;
		/* The table of names has the old ones until the end. */
		if (description_is_name(topology, node, end == i + 1))
			node->name = node->description;
	}
	free(rows);
	return topology_index_names(topology);
}

void parse_check(struct parser *parser)
{
	struct topology *topology = parser->topology;
	struct numbered *rows = malloc((topology->node_count + 1) * sizeof(*rows));
	int err = rows ? 0 : -ENOMEM;

	if (rows) {
		check_guids(parser, rows);
		free(rows);
	}
	if (!err)
		err = check_lids(parser);
	if (!err && !parser->report->errors)
		err = rename_nodes(topology);
	if (err)
		parser->failure = err;
}
