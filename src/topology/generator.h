/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the generators only: a topology that grows, and the first error. */
#ifndef VERBENA_TOPOLOGY_GENERATOR_H
#define VERBENA_TOPOLOGY_GENERATOR_H

#include "topology/topology.h"

struct generator {
	struct topology *topology;
	struct topology_report *report;
	int err; /* the first one; then the others do nothing */
};

void generator_begin(struct generator *generator, struct topology *topology,
		     struct topology_report *report);
/* Adds nodes PREFIX-0, PREFIX-1, ... */
void generator_nodes(struct generator *generator, enum topology_kind kind, unsigned int ports,
		     unsigned int count, const char *prefix);
/* A cable between ports of two rows. */
void generator_connect(struct generator *generator, uint32_t a, unsigned int a_port, uint32_t b,
		       unsigned int b_port);
/* Joins rows 0 to `hosts` - 1 to the first ports of switches, in order. */
void generator_hosts(struct generator *generator, uint32_t first_switch, unsigned int hosts,
		     unsigned int hosts_per_switch);
/* Whether a number is possible; if not, this is reported. */
bool generator_fits(struct generator *generator, const char *what, uint64_t value, uint64_t least,
		    uint64_t most);
/* Gives the topology its title, or empties it after an error. Returns the first error. */
int generator_end(struct generator *generator, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
