/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Topologies by rule. Adapters have one port and are called H-0, H-1, ...; they come first, so that
 * the first row is one. Each function overwrites `topology`. It returns 0, -EINVAL with an error
 * in the report (what doesn't fit), or -ENOMEM; after an error `topology` is empty.
 */
#ifndef VERBENA_TOPOLOGY_GENERATE_H
#define VERBENA_TOPOLOGY_GENERATE_H

#include "topology/topology.h"

/*
 * A fat tree of switches with `ports` ports. Two levels: leaves L-0... and spines S-0...; three:
 * pods of leaves and aggregation switches A-0..., and spines. Fields that are 0 are chosen: half of
 * a leaf's ports for hosts, as few switches as carry what comes up from below.
 */
struct fat_tree_shape {
	unsigned int ports;	     /* of a switch: 2 to TOPOLOGY_PORTS_MAX */
	unsigned int levels;	     /* 2, 3; 0: as few as do */
	unsigned int hosts;	     /* in all; 0: as many as the leaves take */
	unsigned int hosts_per_leaf; /* fewer leave more ports for spines */
	unsigned int leaves;	     /* two levels; 0: by hosts, or `ports` */
	unsigned int pods;	     /* three levels; 0: by hosts, or `ports` */
	unsigned int spines;
};
int topology_make_fat_tree(struct topology *topology, const struct fat_tree_shape *shape,
			   struct topology_report *report);

/* Switches S-x-y or S-x-y-z in a torus of two or three dimensions (`size[2]` 0: two), `cables`
 * between neighbours, `hosts` at each. */
struct torus_shape {
	unsigned int size[3], hosts, cables;
};
int topology_make_torus(struct topology *topology, const struct torus_shape *shape,
			struct topology_report *report);

/* Groups of switches S-group-number that are all joined to one another; each switch has `globals`
 * cables to other groups, and `hosts`. `groups` 0: as many as there can be, a * h + 1. */
struct dragonfly_shape {
	unsigned int groups, switches, globals, hosts;
};
int topology_make_dragonfly(struct topology *topology, const struct dragonfly_shape *shape,
			    struct topology_report *report);

/* One switch S-0 with `ports` ports (0: as many as hosts). */
int topology_make_single(struct topology *topology, unsigned int hosts, unsigned int ports,
			 struct topology_report *report);

/* Gives all cables a width, a speed, an MTU and a delay. */
void topology_set_links(struct topology *topology, unsigned int width, enum topology_speed speed,
			unsigned int mtu, uint32_t delay_ns);

#endif
