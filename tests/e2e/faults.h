/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of tests, one per file, each ended by a null name. */
#ifndef VERBENA_E2E_FAULTS_H
#define VERBENA_E2E_FAULTS_H

#include "rig.h"

extern const struct rig_test data_tests[];	/* data transfer and order */
extern const struct rig_test remote_tests[];	/* faults between requester and responder */
extern const struct rig_test state_tests[];	/* states, attributes, events of a QP */
extern const struct rig_test queue_tests[];	/* CQs, SRQs, channels, limits, wrong arguments */
extern const struct rig_test places_tests[];	/* when a place of a queue is free */
extern const struct rig_test loose_tests[];	/* UD and UC: no acknowledgements */
extern const struct rig_test dry_tests[];	/* UD: receivers without receives */
extern const struct rig_test unmapped_tests[];	/* memory that was unmapped */
extern const struct rig_test foreign_tests[];	/* regions that another process imports */
extern const struct rig_test file_tests[];	/* memory files; writes that follow one another */
extern const struct rig_test found_tests[];	/* memory that is shared already */
extern const struct rig_test dereg_tests[];	/* the end of a region that is being used */
extern const struct rig_test reach_tests[];	/* receives longer than their memory */
extern const struct rig_test converted_tests[]; /* private memory that is converted */
extern const struct rig_test kept_tests[];	/* what a program relies on, for converted memory */
extern const struct rig_test held_tests[];	/* the same, while the kernel holds the memory */
extern const struct rig_test order_tests[]; /* order after a message that is lost with its sender */
extern const struct rig_test
	away_tests[]; /* answers that arrive while their requester is stopped */

extern const struct rig_test window_tests[];	    /* memory windows */
extern const struct rig_test window_wrong_tests[];  /* their refusals */
extern const struct rig_test window_mapped_tests[]; /* their memory is mapped by the peer */
extern const struct rig_test region_tests[];	    /* kinds of regions */
extern const struct rig_test dm_tests[];	    /* device memory */
extern const struct rig_test odp_tests[];	    /* on-demand paging */
extern const struct rig_test placement_tests[];	    /* ATOMIC WRITE and FLUSH */
extern const struct rig_test domain_tests[];	    /* domains, moderation, rate limits */
extern const struct rig_test tag_tests[];	    /* tag-matching SRQs */
extern const struct rig_test tag_wrong_tests[];	    /* their refusals, and ends in between */
extern const struct rig_test tag_random_tests[];    /* against a model */
extern const struct rig_test behaviour_tests[];	    /* what docs/behaviour.md decides */
extern const struct rig_test xrc_tests[];
extern const struct rig_test ofed_tests[];  /* OFED's calls for XRC */
extern const struct rig_test later_tests[]; /* calls of later releases of rdma-core */

/* placement.c: replaces the end's QP, which is in RESET, by one with the builders of RC. */
void placement_qp(struct end *end);

#endif
