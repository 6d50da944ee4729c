/* SPDX-License-Identifier: BSD-2-Clause */
/* The scenarios, by the source that they run; each list ends with one without a name. */
#ifndef VERBENA_TESTS_WEAK_SCENARIOS_H
#define VERBENA_TESTS_WEAK_SCENARIOS_H

#include "model.h"

extern const struct model_scenario litmus_scenarios[], ring_scenarios[], tap_scenarios[],
	groups_scenarios[], mcast_scenarios[], engine_scenarios[], link_scenarios[], mr_scenarios[],
	copy_scenarios[], mapped_scenarios[], window_scenarios[];

/* A link as link.c makes it; in link_scenarios.c. */
struct hca;
struct link;
void scenario_link_init(struct link *link, struct hca *of);

#endif
