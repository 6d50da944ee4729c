/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Link speed and contention, of all links (`--timing`) or of those with faults: makes the memory of
 * the clocks (fabric/clocks.h), which verbena-fabric itself never writes to, and counts
 * PortXmitWait by it.
 */
#ifndef VERBENA_FABRICD_TIMING_H
#define VERBENA_FABRICD_TIMING_H

#include "fabricd/server.h"

/* Makes the memory. 0 or -errno. */
int timing_begin(struct server *server);

/* Adds what ports have waited since the last time to their counters. */
void timing_fold(struct server *server);

#endif
