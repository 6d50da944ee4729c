/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pictures of a fabric: what verbena-fabric says of nodes and links as a topology with traffic,
 * which src/topology draws. Owns the arrays that it makes. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ctl.h"
#include "cli/fabric.h"
#include "topology/draw.h"

struct live {
	struct topology topology;
	struct drawing_port *ports;
	struct drawing_node *nodes;
	uint32_t active, starting, down;
	char subtitle[200];
	struct drawing drawing;
};

static void live_free(struct live *live)
{
	topology_free(&live->topology);
	free(live->ports);
	free(live->nodes);
}

static int live_nodes(struct live *live, const json_t *nodes)
{
	const json_t *node;
	size_t i;

	json_array_foreach(nodes, i, node) {
		const char *type = ctl_string(node, "type");
		uint32_t row;
		int err =
			topology_add_node(&live->topology,
					  !strcmp(type, "switch")   ? TOPOLOGY_SWITCH
					  : !strcmp(type, "router") ? TOPOLOGY_ROUTER
								    : TOPOLOGY_CA,
					  ctl_string(node, "name"), ctl_string(node, "description"),
					  (unsigned int)ctl_integer(node, "port_count"), &row);

		if (err)
			return err;
	}
	live->nodes = calloc(live->topology.node_count + 1, sizeof(*live->nodes));
	live->ports = calloc(live->topology.port_count + 1, sizeof(*live->ports));
	if (!live->nodes || !live->ports)
		return -ENOMEM;
	json_array_foreach(nodes, i, node)
		live->nodes[i] = (struct drawing_node){
			.lid = (uint16_t)ctl_integer(node, "lid"),
			.is_off = json_is_true(json_object_get(node, "off")),
			.is_mute = json_is_true(json_object_get(node, "mute")),
		};
	return 0;
}

static uint64_t errors_sum(const json_t *counters)
{
	static const char *const names[] = {
		"symbol",	   "link_recovery",	  "link_downed",
		"rcv_errors",	   "rcv_remote_physical", "rcv_switch_relay",
		"xmit_discards",   "xmit_constraint",	  "rcv_constraint",
		"local_integrity", "buffer_overrun",	  "qp1_dropped",
		"vl15_dropped",
	};
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		sum += (uint64_t)ctl_integer(counters, names[i]);
	return sum;
}

static struct drawing_port port_live(const char *state, const json_t *counters)
{
	return (struct drawing_port){
		.sent_bytes = 4 * (uint64_t)ctl_integer(counters, "xmit_words"),
		.sent_packets = (uint64_t)ctl_integer(counters, "xmit_packets"),
		.errors = errors_sum(counters),
		.state = !strcmp(state, "active") ? DRAWING_ACTIVE
			 : !strcmp(state, "down") ? DRAWING_DOWN
						  : DRAWING_STARTING,
	};
}

/* The row of an end `[node, port]`; TOPOLOGY_NONE: there is none. */
static uint32_t end_row(const struct topology *topology, const json_t *end)
{
	json_int_t node = json_integer_value(json_array_get(end, 0));
	json_int_t port = json_integer_value(json_array_get(end, 1));

	if (node < 0 || node >= topology->node_count || port < 1 || port > TOPOLOGY_PORTS_MAX)
		return TOPOLOGY_NONE;
	return topology_port(topology, (uint32_t)node, (unsigned int)port);
}

static void speed_set(struct topology_port *port, const json_t *link)
{
	static const unsigned int widths[] = {1, 2, 4, 8, 16};
	unsigned long lanes = strtoul(ctl_string(link, "width"), NULL, 10);

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		if (topology_lanes(widths[i]) == lanes)
			port->width = (uint8_t)widths[i];
	for (unsigned int speed = 1; speed < TOPOLOGY_SPEEDS; speed++)
		if (!strcmp(topology_speed_name(speed), ctl_string(link, "speed")))
			port->speed = (uint8_t)speed;
}

static int live_links(struct live *live, const json_t *links)
{
	const json_t *link;
	size_t i;

	json_array_foreach(links, i, link) {
		uint32_t a = end_row(&live->topology, json_object_get(link, "a"));
		uint32_t b = end_row(&live->topology, json_object_get(link, "b"));
		uint8_t worst;

		if (a == TOPOLOGY_NONE || b == TOPOLOGY_NONE ||
		    topology_connect(&live->topology, a, b))
			return -EINVAL;
		speed_set(&live->topology.ports[a], link);
		speed_set(&live->topology.ports[b], link);
		live->ports[a] =
			port_live(ctl_string(link, "state"), json_object_get(link, "counters_a"));
		live->ports[b] =
			port_live(ctl_string(link, "state_b"), json_object_get(link, "counters_b"));
		worst = live->ports[a].state > live->ports[b].state ? live->ports[a].state
								    : live->ports[b].state;
		live->active += worst == DRAWING_ACTIVE;
		live->starting += worst == DRAWING_STARTING;
		live->down += worst == DRAWING_DOWN;
	}
	return 0;
}

static void live_route(struct live *live, const json_t *trace)
{
	const struct topology *topology = &live->topology;
	const json_t *hop;
	size_t i;

	json_array_foreach(json_object_get(trace, "hops"), i, hop) {
		uint32_t from = topology_find(topology, ctl_string(hop, "from"));
		uint32_t to = topology_find(topology, ctl_string(hop, "to"));
		uint32_t port =
			topology_port(topology, from, (unsigned int)ctl_integer(hop, "from_port"));

		if (from == TOPOLOGY_NONE || to == TOPOLOGY_NONE || port == TOPOLOGY_NONE)
			continue;
		live->ports[port].is_on_route = true;
		live->nodes[from].is_on_route = live->nodes[to].is_on_route = true;
	}
}

static int picture_file(const char *path, const struct drawing *drawing,
			int (*draw)(const struct drawing *, FILE *))
{
	FILE *out = strcmp(path, "-") != 0 ? fopen(path, "we") : stdout;
	int err = out ? draw(drawing, out) : -errno;

	if (!err && out == stdout)
		return cli_finish(CLI_OK);
	if (out && out != stdout && ferror(out) + fclose(out) && !err)
		err = -EIO;
	if (err)
		cli_error("cannot write %s: %s", path, strerror(-err));
	return err ? CLI_FAILURE : CLI_OK;
}

static int picture_files(const struct fabric_picture *picture, const struct drawing *drawing)
{
	int code = CLI_OK;

	if (picture->svg)
		code = picture_file(picture->svg, drawing, drawing_svg);
	if (picture->html && code == CLI_OK)
		code = picture_file(picture->html, drawing, drawing_html);
	return code;
}

/* What each port sends now: the difference to the reply before, which has the same links. */
static void live_rates(struct live *live, const struct fabric_picture *picture)
{
	const json_t *old_links = json_object_get(picture->before, "links"), *link;
	size_t i;

	if (!picture->before || picture->seconds <= 0)
		return;
	json_array_foreach(json_object_get(picture->reply, "links"), i, link)
		for (int end = 0; end < 2; end++) {
			const json_t *old = json_object_get(json_array_get(old_links, i),
							    end ? "counters_b" : "counters_a");
			uint32_t row =
				end_row(&live->topology, json_object_get(link, end ? "b" : "a"));
			uint64_t before = 4 * (uint64_t)ctl_integer(old, "xmit_words");

			/* Less than before: somebody cleared it. */
			if (row != TOPOLOGY_NONE && live->ports[row].sent_bytes > before)
				live->ports[row].bytes_per_second =
					(uint64_t)((double)(live->ports[row].sent_bytes - before) /
						   picture->seconds);
		}
}

/* The reply as a topology with what is known of it. 0 or a negative errno. */
static int live_make(struct live *live, const struct fabric_picture *picture)
{
	int err;

	topology_init(&live->topology);
	err = live_nodes(live, json_object_get(picture->reply, "nodes"));
	if (!err)
		err = live_links(live, json_object_get(picture->reply, "links"));
	if (err)
		return err;
	live_rates(live, picture);
	live_route(live, picture->trace);
	live->topology.title = picture->title;
	snprintf(live->subtitle, sizeof(live->subtitle),
		 "%u nodes, %u cables: %u active, %u not active, %u down",
		 live->topology.node_count, live->topology.cable_count, live->active,
		 live->starting, live->down);
	live->drawing = (struct drawing){
		.topology = &live->topology,
		.ports = live->ports,
		.nodes = live->nodes,
		.subtitle = live->subtitle,
		.is_live = picture->is_live,
		.nonce = picture->nonce,
	};
	return 0;
}

int fabric_picture_draw(const struct fabric_picture *picture, FILE *out, bool is_page)
{
	struct live live = {0};
	int err = live_make(&live, picture);

	if (!err)
		err = (is_page ? drawing_html : drawing_svg)(&live.drawing, out);
	live_free(&live);
	return err;
}

int fabric_picture_write(const struct fabric_picture *picture)
{
	struct drawing drawing = {.topology = picture->topology};
	struct live live = {0};
	int err, code = CLI_FAILURE;

	if (!picture->reply)
		return picture_files(picture, &drawing);
	err = live_make(&live, picture);
	if (err)
		cli_error("the fabric's answer makes no topology: %s", strerror(-err));
	else
		code = picture_files(picture, &live.drawing);
	live_free(&live);
	return code;
}
