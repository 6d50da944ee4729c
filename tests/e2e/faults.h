/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of tests, one a file, each ended by a null name. */
#ifndef VERBENA_E2E_FAULTS_H
#define VERBENA_E2E_FAULTS_H

#include "rig.h"

extern const struct rig_test data_tests[];     /* what arrives, in which order */
extern const struct rig_test remote_tests[];   /* faults between requester and responder */
extern const struct rig_test state_tests[];    /* states, attributes, events of a QP */
extern const struct rig_test queue_tests[];    /* CQs, SRQs, channels, limits, wrong arguments */
extern const struct rig_test loose_tests[];    /* UD and UC: nobody acknowledges */
extern const struct rig_test dry_tests[];      /* UD: receivers that are late */
extern const struct rig_test unmapped_tests[]; /* memory that isn't there any more */
extern const struct rig_test foreign_tests[];  /* regions that another process imports */
extern const struct rig_test file_tests[];     /* memory files; writes that follow one another */
extern const struct rig_test dereg_tests[];    /* the end of a region that is being used */
extern const struct rig_test order_tests[]; /* order after a message that is lost with its sender */
extern const struct rig_test
	away_tests[]; /* answers that come while their requester doesn't look */

extern const struct rig_test behaviour_tests[]; /* what docs/behaviour.md decides */

#endif
