/* SPDX-License-Identifier: BSD-2-Clause */
/* `verbena fabric gen`: writes a topology file by rule. No state. One thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/fabric.h"
#include "topology/generate.h"

/* What was asked for; 0: not given. */
struct gen_wish {
	unsigned int hosts, ports, levels, per_leaf, leaves, spines, pods;
	unsigned int cables, groups, switches, globals, size[3];
	unsigned int width, mtu;
	enum topology_speed speed;
	uint32_t delay_ns;
	const char *addresses, *path, *title;
};

enum {
	GEN_HOSTS = 256,
	GEN_PORTS,
	GEN_LEVELS,
	GEN_PER_LEAF,
	GEN_LEAVES,
	GEN_SPINES,
	GEN_PODS,
	GEN_CABLES,
	GEN_GROUPS,
	GEN_SWITCHES,
	GEN_GLOBALS,
	GEN_SIZE,
	GEN_LINK,
	GEN_MTU,
	GEN_DELAY,
	GEN_IPS,
	GEN_TITLE,
};

static const struct option gen_options[] = {
	{"hosts", required_argument, NULL, GEN_HOSTS},
	{"ports", required_argument, NULL, GEN_PORTS},
	{"levels", required_argument, NULL, GEN_LEVELS},
	{"hosts-per-leaf", required_argument, NULL, GEN_PER_LEAF},
	{"leaves", required_argument, NULL, GEN_LEAVES},
	{"spines", required_argument, NULL, GEN_SPINES},
	{"pods", required_argument, NULL, GEN_PODS},
	{"cables", required_argument, NULL, GEN_CABLES},
	{"groups", required_argument, NULL, GEN_GROUPS},
	{"switches", required_argument, NULL, GEN_SWITCHES},
	{"globals", required_argument, NULL, GEN_GLOBALS},
	{"size", required_argument, NULL, GEN_SIZE},
	{"link", required_argument, NULL, GEN_LINK},
	{"mtu", required_argument, NULL, GEN_MTU},
	{"delay", required_argument, NULL, GEN_DELAY},
	{"ips", required_argument, NULL, GEN_IPS},
	{"title", required_argument, NULL, GEN_TITLE},
	{"output", required_argument, NULL, 'o'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static bool gen_take_count(const char *name, unsigned int *out)
{
	char option[24];

	snprintf(option, sizeof(option), "--%s", name);
	return cli_number32(option, 1, TOPOLOGY_NODES_MAX, out);
}

/* "4x4x3" */
static bool take_size(unsigned int size[3])
{
	size[2] = 0;
	if (quantity_dimensions(optarg, 1, TOPOLOGY_NODES_MAX, size, 3) >= 2)
		return true;
	cli_error("--size is written 4x4 or 4x4x3, not `%s`", optarg);
	return false;
}

/* "4xHDR" */
static bool take_link(struct gen_wish *wish)
{
	static const unsigned int widths[] = {1, 2, 4, 8, 16};
	char text[32];

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		for (unsigned int speed = 1; speed < TOPOLOGY_SPEEDS; speed++) {
			snprintf(text, sizeof(text), "%ux%s", topology_lanes(widths[i]),
				 topology_speed_name(speed));
			if (!strcmp(text, optarg)) {
				wish->width = widths[i];
				wish->speed = speed;
				return true;
			}
		}
	cli_error("--link is written 4xHDR: 1, 2, 4, 8 or 12 lanes of SDR, DDR, QDR, FDR10, FDR, "
		  "EDR, HDR, NDR or XDR, not `%s`",
		  optarg);
	return false;
}

static bool take_mtu(struct gen_wish *wish)
{
	uint64_t bytes = 0;

	if (quantity_size(optarg, 256, 4096, &bytes))
		wish->mtu = topology_mtu_code(bytes);
	if (wish->mtu)
		return true;
	cli_error("--mtu is 256, 512, 1024, 2048 or 4096, not `%s`", optarg);
	return false;
}

static bool take_text(struct gen_wish *wish, int option)
{
	switch (option) {
	case 'o':
		wish->path = optarg;
		return true;
	case GEN_IPS:
		wish->addresses = optarg;
		return true;
	case GEN_TITLE:
		wish->title = optarg;
		if (topology_text_is_name(optarg, strlen(optarg)))
			return true;
		cli_error("a title is up to %u bytes of printable text", TOPOLOGY_NAME_MAX);
		return false;
	case GEN_SIZE:
		return take_size(wish->size);
	case GEN_LINK:
		return take_link(wish);
	case GEN_DELAY:
		if (topology_delay_parse(&wish->delay_ns, optarg, strlen(optarg)))
			return true;
		cli_error("--delay is a time up to 1s, such as 200ns, not `%s`", optarg);
		return false;
	default:
		return false;
	}
}

static bool gen_take(struct gen_wish *wish, int option)
{
	const struct {
		int option;
		unsigned int *out;
	} counts[] = {
		{GEN_HOSTS, &wish->hosts},     {GEN_PORTS, &wish->ports},
		{GEN_LEVELS, &wish->levels},   {GEN_PER_LEAF, &wish->per_leaf},
		{GEN_LEAVES, &wish->leaves},   {GEN_SPINES, &wish->spines},
		{GEN_PODS, &wish->pods},       {GEN_CABLES, &wish->cables},
		{GEN_GROUPS, &wish->groups},   {GEN_SWITCHES, &wish->switches},
		{GEN_GLOBALS, &wish->globals},
	};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (counts[i].option == option)
			return gen_take_count(gen_options[option - GEN_HOSTS].name, counts[i].out);
	if (option == GEN_MTU)
		return take_mtu(wish);
	return take_text(wish, option);
}

/* Makes the topology of that kind. False: there is no such kind. */
static bool gen_make(const char *kind, const struct gen_wish *wish, struct topology *topology,
		     struct topology_report *report, int *err)
{
	if (!strcmp(kind, "fat-tree"))
		*err = topology_make_fat_tree(
			topology,
			&(struct fat_tree_shape){wish->ports ? wish->ports : 36, wish->levels,
						 wish->hosts, wish->per_leaf, wish->leaves,
						 wish->pods, wish->spines},
			report);
	else if (!strcmp(kind, "torus"))
		*err = topology_make_torus(
			topology,
			&(struct torus_shape){{wish->size[0] ? wish->size[0] : 4,
					       wish->size[1] ? wish->size[1] : 4, wish->size[2]},
					      wish->hosts ? wish->hosts : 1,
					      wish->cables ? wish->cables : 1},
			report);
	else if (!strcmp(kind, "dragonfly"))
		*err = topology_make_dragonfly(
			topology,
			&(struct dragonfly_shape){wish->groups, wish->switches ? wish->switches : 4,
						  wish->globals ? wish->globals : 2,
						  wish->hosts ? wish->hosts : 2},
			report);
	else if (!strcmp(kind, "single"))
		*err = topology_make_single(topology, wish->hosts ? wish->hosts : 8, wish->ports,
					    report);
	else
		return false;
	return true;
}

static int gen_finish(struct topology *topology, const struct gen_wish *wish)
{
	FILE *out = stdout;

	topology_set_links(topology, wish->width, wish->speed, wish->mtu, wish->delay_ns);
	if (wish->title)
		topology->title = wish->title;
	if (wish->addresses && topology_number_adapters(topology, wish->addresses)) {
		cli_error("--ips %s: this isn't a network, such as 10.0.0.0/8, with an address for "
			  "each adapter",
			  wish->addresses);
		return CLI_FAILURE;
	}
	if (wish->path && strcmp(wish->path, "-") != 0) {
		out = fopen(wish->path, "we");
		if (!out) {
			cli_error("cannot write %s: %s", wish->path, strerror(errno));
			return CLI_FAILURE;
		}
	}
	topology_write(topology, out);
	if (out == stdout)
		return cli_finish(CLI_OK);
	if (ferror(out) + fclose(out) == 0)
		return CLI_OK;
	cli_error("cannot write %s: %s", wish->path, strerror(errno));
	return CLI_FAILURE;
}

static int gen_run(const struct cli_command *self, int argc, char **argv)
{
	struct gen_wish wish = {0};
	struct topology_report report;
	struct topology topology;
	int option, err, code;

	while ((option = getopt_long(argc, argv, "o:h", gen_options, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (!gen_take(&wish, option))
			return cli_usage(self);
	}
	if (argc - optind != 1) {
		cli_error("what to generate? fat-tree, torus, dragonfly or single");
		return cli_usage(self);
	}
	if (!gen_make(argv[optind], &wish, &topology, &report, &err)) {
		cli_error("there is no generator `%s`: fat-tree, torus, dragonfly or single",
			  argv[optind]);
		return cli_usage(self);
	}
	if (err) {
		cli_error("that can't be built: %s",
			  report.count ? report.remarks[0].text : strerror(-err));
		return CLI_FAILURE;
	}
	code = gen_finish(&topology, &wish);
	topology_free(&topology);
	return code;
}

const struct cli_command fabric_gen = {
	.name = "fabric gen",
	.summary = "generate a topology file",
	.help = "usage: verbena fabric gen fat-tree|torus|dragonfly|single [OPTION...]\n\n"
		"Writes a topology file (ibsim's format) to standard output.\n\n"
		"fat-tree:  --ports N           of each switch (36)\n"
		"           --hosts N           in all (as many as fit)\n"
		"           --levels 2|3        of switches (as few as do)\n"
		"           --hosts-per-leaf N  (half of the ports)\n"
		"           --leaves N, --spines N, --pods N\n"
		"torus:     --size XxY[xZ]      switches (4x4)\n"
		"           --hosts N           at each switch (1)\n"
		"           --cables N          between neighbours (1)\n"
		"dragonfly: --groups N          (as many as can be)\n"
		"           --switches N        of a group (4)\n"
		"           --globals N         cables of a switch to other groups (2)\n"
		"           --hosts N           at each switch (2)\n"
		"single:    --hosts N           (8)\n"
		"           --ports N           (as many as hosts)\n\n"
		"  -o, --output FILE  not standard output\n"
		"      --link 4xHDR   width and speed of all cables (4xHDR)\n"
		"      --mtu BYTES    of all cables (4096)\n"
		"      --delay TIME   of all cables, such as 200ns\n"
		"      --ips NETWORK  an IP address for each adapter, such as 10.0.0.0/8\n"
		"      --title TEXT   what it is called\n"
		"  -h, --help         show this\n\n"
		"Example: verbena fabric gen fat-tree --ports 64 --levels 3 --pods 10\n",
	.run = gen_run,
};
