/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: an arbitrary topology file. It is refused with an error, or is a topology whose
 * cables have two ends; what is written of that is read again without a remark, with as many
 * nodes and cables; and it can be drawn.
 *
 * Input: the file.
 */
#include <stdio.h>
#include <stdlib.h>

#include "input.h"
#include "topology/draw.h"

static void check_cables(const struct topology *topology)
{
	uint32_t ends = 0;

	for (uint32_t i = 0; i < topology->port_count; i++) {
		const struct topology_port *port = &topology->ports[i];

		MUST(port->node < topology->node_count);
		MUST(topology->nodes[port->node].first_port + port->number == i);
		if (port->peer == TOPOLOGY_NONE)
			continue;
		MUST(port->peer < topology->port_count && port->peer != i);
		MUST(topology->ports[port->peer].peer == i);
		ends++;
	}
	MUST(ends == 2 * topology->cable_count);
}

static void check_again(const struct topology *topology)
{
	struct topology_report report;
	struct topology again;
	char *text;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	MUST(out);
	topology_write(topology, out);
	fclose(out);
	MUST(topology_parse(&again, text, bytes, "", &report) == 0);
	MUST(again.node_count == topology->node_count);
	MUST(again.cable_count == topology->cable_count);
	topology_free(&again);
	free(text);
}

static void check_drawing(const struct topology *topology)
{
	struct drawing drawing = {.topology = topology};
	char *text;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	MUST(out && !drawing_html(&drawing, out));
	fclose(out);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct topology_report report;
	struct topology topology;
	int err = topology_parse(&topology, (const char *)data, size, "file", &report);

	MUST(report.count <= TOPOLOGY_REMARKS);
	if (err) {
		MUST(report.errors && !topology.node_count);
		return 0;
	}
	MUST(!report.errors && topology.node_count);
	check_cables(&topology);
	check_again(&topology);
	if (topology.node_count <= 64)
		check_drawing(&topology);
	topology_free(&topology);
	return 0;
}
