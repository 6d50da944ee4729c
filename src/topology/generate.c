/* SPDX-License-Identifier: BSD-2-Clause */
/* Generators: what they share, tori, dragonflies and the single switch. No state. */
#include "topology/generate.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "topology/generator.h"
#include "topology/private.h"

void generator_begin(struct generator *generator, struct topology *topology,
		     struct topology_report *report)
{
	topology_init(topology);
	memset(report, 0, sizeof(*report));
	*generator = (struct generator){.topology = topology, .report = report};
}

void generator_nodes(struct generator *generator, enum topology_kind kind, unsigned int ports,
		     unsigned int count, const char *prefix)
{
	char name[40]; /* a prefix of dragonfly_switches(), and a number */
	uint32_t node;

	for (unsigned int i = 0; i < count && !generator->err; i++) {
		snprintf(name, sizeof(name), "%s-%u", prefix, i);
		generator->err =
			topology_add_node(generator->topology, kind, name, NULL, ports, &node);
	}
}

void generator_connect(struct generator *generator, uint32_t a, unsigned int a_port, uint32_t b,
		       unsigned int b_port)
{
	const struct topology *topology = generator->topology;

	if (!generator->err)
		generator->err = topology_connect(generator->topology,
						  topology->nodes[a].first_port + a_port,
						  topology->nodes[b].first_port + b_port);
}

void generator_hosts(struct generator *generator, uint32_t first_switch, unsigned int hosts,
		     unsigned int hosts_per_switch)
{
	for (unsigned int i = 0; i < hosts && !generator->err; i++)
		generator_connect(generator, i, 1, first_switch + i / hosts_per_switch,
				  i % hosts_per_switch + 1);
}

bool generator_fits(struct generator *generator, const char *what, uint64_t value, uint64_t least,
		    uint64_t most)
{
	if (value >= least && value <= most)
		return true;
	topology_remark_error(generator->report, 0, "%s: %llu; possible: %llu to %llu", what,
			      (unsigned long long)value, (unsigned long long)least,
			      (unsigned long long)most);
	generator->err = -EINVAL;
	return false;
}

int generator_end(struct generator *generator, const char *format, ...)
{
	struct topology *topology = generator->topology;
	char title[160];
	va_list args;

	va_start(args, format);
	vsnprintf(title, sizeof(title), format, args);
	va_end(args);
	if (!generator->err) {
		topology->title = topology_text_copy(topology, title, strlen(title));
		generator->err = topology->title ? 0 : -ENOMEM;
	}
	if (generator->err)
		topology_free(topology);
	return generator->err;
}

void topology_set_links(struct topology *topology, unsigned int width, enum topology_speed speed,
			unsigned int mtu, uint32_t delay_ns)
{
	for (uint32_t i = 0; i < topology->port_count; i++) {
		struct topology_port *port = &topology->ports[i];

		if (port->peer == TOPOLOGY_NONE)
			continue;
		port->width = (uint8_t)width;
		port->speed = (uint8_t)speed;
		port->mtu = (uint8_t)mtu;
		port->delay_ns = delay_ns;
	}
}

int topology_make_single(struct topology *topology, unsigned int hosts, unsigned int ports,
			 struct topology_report *report)
{
	struct generator generator;

	if (!ports)
		ports = hosts;
	generator_begin(&generator, topology, report);
	if (generator_fits(&generator, "ports of the switch", ports, 1, TOPOLOGY_PORTS_MAX) &&
	    generator_fits(&generator, "hosts", hosts, 1, ports)) {
		generator_nodes(&generator, TOPOLOGY_CA, 1, hosts, "H");
		generator_nodes(&generator, TOPOLOGY_SWITCH, ports, 1, "S");
		generator_hosts(&generator, hosts, hosts, hosts);
	}
	return generator_end(&generator, "one switch, %u hosts", hosts);
}

/* Torus -------------------------------------------------------------------------------------- */

/* Cables to the next switch in each dimension; of two switches in a circle one pair only. */
static void torus_connect(struct generator *generator, const struct torus_shape *shape,
			  uint32_t first, unsigned int dimensions)
{
	unsigned int count = 1, stride = 1;

	for (unsigned int d = 0; d < dimensions; d++)
		count *= shape->size[d];
	for (unsigned int d = 0; d < dimensions; stride *= shape->size[d], d++) {
		unsigned int port = 1 + shape->hosts + 2 * d * shape->cables;

		for (unsigned int i = 0; i < count; i++) {
			unsigned int at = i / stride % shape->size[d];
			bool is_last = at + 1 == shape->size[d];
			unsigned int next = is_last ? i - at * stride : i + stride;

			if (next == i || (is_last && shape->size[d] == 2))
				continue;
			for (unsigned int c = 0; c < shape->cables; c++)
				generator_connect(generator, first + i, port + c, first + next,
						  port + shape->cables + c);
		}
	}
}

static void torus_switches(struct generator *generator, const struct torus_shape *shape,
			   unsigned int ports)
{
	char prefix[48], row[16] = "";

	for (unsigned int z = 0; z < (shape->size[2] ? shape->size[2] : 1); z++)
		for (unsigned int y = 0; y < shape->size[1]; y++)
			for (unsigned int x = 0; x < shape->size[0] && !generator->err; x++) {
				uint32_t node;

				if (shape->size[2])
					snprintf(row, sizeof(row), "-%u", z);
				snprintf(prefix, sizeof(prefix), "S-%u-%u%s", x, y, row);
				generator->err =
					topology_add_node(generator->topology, TOPOLOGY_SWITCH,
							  prefix, NULL, ports, &node);
			}
}

int topology_make_torus(struct topology *topology, const struct torus_shape *shape,
			struct topology_report *report)
{
	unsigned int dimensions = shape->size[2] ? 3 : 2;
	uint64_t ports = (uint64_t)shape->hosts + 2ull * dimensions * shape->cables;
	struct generator generator;
	bool fits = true;
	char third[16] = "";
	uint64_t switches = 1;

	generator_begin(&generator, topology, report);
	for (unsigned int d = 0; d < dimensions && fits; d++) {
		fits = generator_fits(&generator, "size of a dimension", shape->size[d], 1,
				      TOPOLOGY_NODES_MAX);
		switches *= shape->size[d];
	}
	if (shape->size[2])
		snprintf(third, sizeof(third), " x %u", shape->size[2]);
	if (fits && generator_fits(&generator, "cables between neighbours", shape->cables, 1, 42) &&
	    generator_fits(&generator, "ports of a switch", ports, 1, TOPOLOGY_PORTS_MAX) &&
	    generator_fits(&generator, "switches and hosts",
			   switches > TOPOLOGY_NODES_MAX ? switches : switches * (1 + shape->hosts),
			   1, TOPOLOGY_NODES_MAX)) {
		unsigned int hosts = (unsigned int)switches * shape->hosts;

		generator_nodes(&generator, TOPOLOGY_CA, 1, hosts, "H");
		torus_switches(&generator, shape, (unsigned int)ports);
		generator_hosts(&generator, hosts, hosts, shape->hosts);
		if (!generator.err)
			torus_connect(&generator, shape, hosts, dimensions);
	}
	return generator_end(&generator, "torus of %u x %u%s switches, %u hosts at each",
			     shape->size[0], shape->size[1], third, shape->hosts);
}

/* Dragonfly ---------------------------------------------------------------------------------- */

/* All switches of each group with one another. */
static void dragonfly_local(struct generator *generator, const struct dragonfly_shape *shape,
			    unsigned int groups, uint32_t first)
{
	for (unsigned int group = 0; group < groups; group++)
		for (unsigned int a = 0; a < shape->switches; a++)
			for (unsigned int b = a + 1; b < shape->switches; b++)
				generator_connect(generator, first + group * shape->switches + a,
						  shape->hosts + b,
						  first + group * shape->switches + b,
						  shape->hosts + a + 1);
}

/* An end of a cable between groups: cables of a group have numbers, switch by switch. */
struct dragonfly_end {
	unsigned int group, number;
};

static void dragonfly_cable(struct generator *generator, struct dragonfly_shape shape,
			    uint32_t first, struct dragonfly_end a, struct dragonfly_end b)
{
	unsigned int port = shape.hosts + shape.switches, each = shape.globals;

	generator_connect(generator, first + a.group * shape.switches + a.number / each,
			  port + a.number % each,
			  first + b.group * shape.switches + b.number / each,
			  port + b.number % each);
}

/* In each round, as long as there are other groups, cable n leads to the group n + 1 places on,
 * whose own number for it, counted from the round's end, is the same. */
static void dragonfly_global(struct generator *generator, struct dragonfly_shape shape,
			     unsigned int groups, uint32_t first)
{
	unsigned int others = groups - 1;
	unsigned int rounds = others ? shape.switches * shape.globals / others : 0;

	for (unsigned int group = 0; group < groups; group++)
		for (unsigned int round = 0; round < rounds; round++)
			for (unsigned int n = 0; n < others; n++) {
				struct dragonfly_end a = {group, round * others + n};
				struct dragonfly_end b = {(group + n + 1) % groups,
							  round * others + others - 1 - n};

				if (a.group < b.group)
					dragonfly_cable(generator, shape, first, a, b);
			}
}

static void dragonfly_switches(struct generator *generator, const struct dragonfly_shape *shape,
			       unsigned int groups, unsigned int ports)
{
	char prefix[24];

	for (unsigned int group = 0; group < groups; group++) {
		snprintf(prefix, sizeof(prefix), "S-%u", group);
		generator_nodes(generator, TOPOLOGY_SWITCH, ports, shape->switches, prefix);
	}
}

int topology_make_dragonfly(struct topology *topology, const struct dragonfly_shape *shape,
			    struct topology_report *report)
{
	uint64_t globals = (uint64_t)shape->switches * shape->globals;
	uint64_t ports = (uint64_t)shape->hosts + shape->switches - 1 + shape->globals;
	uint64_t groups = shape->groups ? shape->groups : globals + 1;
	struct generator generator;

	generator_begin(&generator, topology, report);
	if (generator_fits(&generator, "switches of a group", shape->switches, 1,
			   TOPOLOGY_PORTS_MAX) &&
	    generator_fits(&generator, "ports of a switch", ports, 1, TOPOLOGY_PORTS_MAX) &&
	    generator_fits(&generator, "groups", groups, 1, globals + 1) &&
	    generator_fits(&generator, "switches and hosts",
			   groups * shape->switches * (1 + shape->hosts), 1, TOPOLOGY_NODES_MAX)) {
		unsigned int hosts = (unsigned int)groups * shape->switches * shape->hosts;

		generator_nodes(&generator, TOPOLOGY_CA, 1, hosts, "H");
		dragonfly_switches(&generator, shape, (unsigned int)groups, (unsigned int)ports);
		generator_hosts(&generator, hosts, hosts, shape->hosts);
		if (!generator.err) {
			dragonfly_local(&generator, shape, (unsigned int)groups, hosts);
			dragonfly_global(&generator, *shape, (unsigned int)groups, hosts);
		}
	}
	return generator_end(&generator,
			     "dragonfly of %llu groups with %u switches, %u hosts at each",
			     (unsigned long long)groups, shape->switches, shape->hosts);
}
