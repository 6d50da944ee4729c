/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fat trees: the numbers of switches that follow from what was asked for, and the cables. No state.
 */
#include <errno.h>

#include "topology/generate.h"
#include "topology/generator.h"
#include "topology/private.h"

/* All numbers, chosen. */
struct tree {
	unsigned int ports, hosts, hosts_per_leaf, leaves, spines;
	unsigned int up;	    /* cables of a leaf to above */
	unsigned int pods, per_pod; /* three levels: leaves, and aggregation switches, of a pod */
	unsigned int aggregation_up;
};

static unsigned int divide_up(unsigned int a, unsigned int b)
{
	return a / b + (a % b != 0);
}

/* The fewest spines with `ports` ports that take `cables` from each of `switches`. */
static unsigned int spines_fewest(unsigned int switches, unsigned int cables, unsigned int ports)
{
	return divide_up(switches * cables, ports);
}

static bool tree_choose_two(struct generator *generator, const struct fat_tree_shape *shape,
			    struct tree *tree)
{
	tree->leaves = shape->leaves  ? shape->leaves
		       : shape->hosts ? divide_up(shape->hosts, tree->hosts_per_leaf)
				      : tree->ports;
	tree->spines =
		shape->spines ? shape->spines : spines_fewest(tree->leaves, tree->up, tree->ports);
	return generator_fits(generator, "leaves under spines of two levels", tree->leaves, 1,
			      tree->ports) &&
	       generator_fits(generator, "spines", tree->spines, 1, tree->up) &&
	       generator_fits(generator, "cables that a spine needs",
			      divide_up(tree->leaves * tree->up, tree->spines), 1, tree->ports);
}

/* A pod is as wide as a leaf has cables up: each of them goes to another aggregation switch. Those
 * at one place in their pods share a group of spines. */
static bool tree_choose_three(struct generator *generator, const struct fat_tree_shape *shape,
			      struct tree *tree)
{
	uint64_t leaves;
	unsigned int group;

	tree->per_pod = tree->up;
	tree->aggregation_up = tree->ports - tree->per_pod;
	leaves = shape->hosts ? divide_up(shape->hosts, tree->hosts_per_leaf) : 0;
	tree->pods = shape->pods ? shape->pods
		     : leaves	 ? divide_up((unsigned int)leaves, tree->per_pod)
				 : tree->ports;
	if (!generator_fits(generator, "pods", tree->pods, 1, tree->ports))
		return false;
	group = shape->spines ? shape->spines / tree->per_pod
			      : spines_fewest(tree->pods, tree->aggregation_up, tree->ports);
	if (shape->spines % tree->per_pod) {
		topology_remark_error(generator->report, 0,
				      "the number of spines is a multiple of %u, the aggregation "
				      "switches of a pod",
				      tree->per_pod);
		generator->err = -EINVAL;
		return false;
	}
	tree->leaves = tree->pods * tree->per_pod;
	tree->spines = group * tree->per_pod;
	return generator_fits(generator, "spines of a group", group, 1, tree->aggregation_up) &&
	       generator_fits(generator, "cables that a spine needs",
			      divide_up(tree->pods * tree->aggregation_up, group), 1, tree->ports);
}

static bool tree_choose(struct generator *generator, const struct fat_tree_shape *shape,
			struct tree *tree)
{
	unsigned int levels = shape->levels;
	uint64_t room;

	if (!generator_fits(generator, "ports of a switch", shape->ports, 2, TOPOLOGY_PORTS_MAX) ||
	    !generator_fits(generator, "hosts", shape->hosts, 0, TOPOLOGY_NODES_MAX) ||
	    !generator_fits(generator, "hosts of a leaf", shape->hosts_per_leaf, 0,
			    shape->ports - 1))
		return false;
	tree->ports = shape->ports;
	tree->hosts_per_leaf = shape->hosts_per_leaf ? shape->hosts_per_leaf : shape->ports / 2;
	tree->up = tree->ports - tree->hosts_per_leaf;
	if (!levels)
		levels = shape->pods || (uint64_t)tree->ports * tree->hosts_per_leaf < shape->hosts
				 ? 3
				 : 2;
	if (!generator_fits(generator, "levels", levels, 2, 3) ||
	    !(levels == 2 ? tree_choose_two : tree_choose_three)(generator, shape, tree))
		return false;
	room = (uint64_t)tree->leaves * tree->hosts_per_leaf;
	if (!generator_fits(generator, "hosts", shape->hosts ? shape->hosts : room, 1, room))
		return false;
	tree->hosts = shape->hosts ? shape->hosts : (unsigned int)room;
	return generator_fits(generator, "switches and hosts",
			      (levels == 2 ? 1ull : 2ull) * tree->leaves + tree->spines +
				      (shape->hosts ? shape->hosts : room),
			      1, TOPOLOGY_NODES_MAX);
}

/* Cables up from `count` switches at `lower` to spines at `spine`: all cables, one switch's after
 * the other's, are dealt to the spines in turn. */
static void tree_connect_up(struct generator *generator, uint32_t lower, unsigned int count,
			    unsigned int step, unsigned int first_port, unsigned int cables,
			    uint32_t spine, unsigned int spines)
{
	for (unsigned int i = 0; i < count * cables; i++)
		generator_connect(generator, lower + i / cables * step, first_port + i % cables,
				  spine + i % spines, i / spines + 1);
}

static void tree_connect_pods(struct generator *generator, const struct tree *tree, uint32_t leaf,
			      uint32_t aggregation, uint32_t spine)
{
	unsigned int wide = tree->per_pod, group = tree->spines / wide;

	for (unsigned int pod = 0; pod < tree->pods; pod++)
		tree_connect_up(generator, leaf + pod * wide, wide, 1, tree->hosts_per_leaf + 1,
				wide, aggregation + pod * wide, wide);
	for (unsigned int i = 0; i < wide; i++)
		tree_connect_up(generator, aggregation + i, tree->pods, wide, wide + 1,
				tree->aggregation_up, spine + i * group, group);
}

static void tree_build(struct generator *generator, const struct tree *tree)
{
	uint32_t leaf = tree->hosts, aggregation = leaf + tree->leaves;
	unsigned int aggregations = tree->pods ? tree->leaves : 0;

	generator_nodes(generator, TOPOLOGY_CA, 1, tree->hosts, "H");
	generator_nodes(generator, TOPOLOGY_SWITCH, tree->ports, tree->leaves, "L");
	generator_nodes(generator, TOPOLOGY_SWITCH, tree->ports, aggregations, "A");
	generator_nodes(generator, TOPOLOGY_SWITCH, tree->ports, tree->spines, "S");
	generator_hosts(generator, leaf, tree->hosts, tree->hosts_per_leaf);
	if (generator->err)
		return;
	if (tree->pods)
		tree_connect_pods(generator, tree, leaf, aggregation, aggregation + aggregations);
	else
		tree_connect_up(generator, leaf, tree->leaves, 1, tree->hosts_per_leaf + 1,
				tree->up, aggregation, tree->spines);
}

int topology_make_fat_tree(struct topology *topology, const struct fat_tree_shape *shape,
			   struct topology_report *report)
{
	struct generator generator;
	struct tree tree = {0};

	generator_begin(&generator, topology, report);
	if (tree_choose(&generator, shape, &tree))
		tree_build(&generator, &tree);
	return generator_end(&generator, "fat tree of %u levels, %u-port switches, %u hosts",
			     tree.pods ? 3 : 2, tree.ports, tree.hosts);
}
