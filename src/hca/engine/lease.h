/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine thread's side of the lease: lease.c. The pollers' side is in engine.h. */
#ifndef VERBENA_HCA_ENGINE_LEASE_H
#define VERBENA_HCA_ENGINE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/process/hca.h"

/* Passes over the rings, unless that is left to a poller. Returns whether a thread polls. `seen`:
 * see engine_round(). Engine thread. */
bool engine_serve(struct hca *hca, uint32_t *seen);

#endif
