/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters that only ever rise, and come round: positions, sequence numbers, epochs.
 *
 * Where such a counter begins is of no importance to what it counts, so each one begins shortly
 * before its end, in every build: a program passes the end soon after its start, and so do all
 * tests. A counter that begins at 0 passes it after months, far from any test. What is released is
 * what is tested; a start of its own for tests would leave the released one untried.
 *
 * docs/counters.md lists them, with what makes the passage right; tools/check-counters (test
 * rules.counters) holds the source against it.
 *
 * The simulators draw the distance from the seed (COUNTERS_DRAWN): the end may be passed at any
 * step of a run, or at none.
 */
#ifndef VERBENA_BASE_COUNTER_H
#define VERBENA_BASE_COUNTER_H

#include <stdint.h>

#ifdef COUNTERS_DRAWN
extern uint32_t counter_lead; /* steps to the end */
#define COUNTER_START(lead) (0u - counter_lead)
#else
/* The value from which `lead` steps lead to 0, of 32 bits or, if it is cast, of fewer. */
#define COUNTER_START(lead) (0u - (uint32_t)(lead))
#endif

#endif
