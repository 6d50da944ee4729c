/* SPDX-License-Identifier: BSD-2-Clause */
/* The scenarios, by the source that they run; each list ends with one without a name. */
#ifndef VERBENA_TESTS_WEAK_SCENARIOS_H
#define VERBENA_TESTS_WEAK_SCENARIOS_H

#include "model.h"

extern const struct model_scenario litmus_scenarios[], lock_scenarios[], ring_scenarios[],
	tap_scenarios[], groups_scenarios[], flows_scenarios[], mcast_scenarios[],
	engine_scenarios[], link_scenarios[], mr_scenarios[], copy_scenarios[], mapped_scenarios[],
	window_scenarios[];

/* A link as link.c makes it; in link_scenarios.c. */
struct hca;
struct link;
void scenario_link_init(struct link *link, struct hca *of);

/* roce.c with a socket of the model; in roce_scenarios.c. `bell`: the event of the engine thread.
 */
struct roce;
void scenario_roce_init(struct roce *roce, struct hca *hca, unsigned int bell, bool hot);
/* Then: as it is when engine_start() makes the engine thread. */
void scenario_roce_begin(struct roce *roce);
void scenario_packet_comes(void);
unsigned int scenario_packets_taken(void);
/* The engine thread's look at the epoll: whether the socket is reported. */
bool scenario_epoll_reports(void);

#endif
