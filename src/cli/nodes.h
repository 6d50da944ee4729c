/* SPDX-License-Identifier: BSD-2-Clause */
/* The device nodes as programs look for them in /dev/infiniband. */
#ifndef VERBENA_CLI_NODES_H
#define VERBENA_CLI_NODES_H

#include <jansson.h>
#include <stdbool.h>

/* Whether a node of each of the daemon's devices is in /dev/infiniband already. */
bool nodes_are_there(const json_t *status);

/*
 * Shows /dev/infiniband/uverbsN and rdma_cm in this mount namespace, readable and writable, beside
 * everything that is in /dev. `status` is the daemon's answer. Returns 0, or -errno and everything
 * is as it was.
 */
int nodes_cover(const json_t *status);

#endif
