/* SPDX-License-Identifier: BSD-2-Clause */
/* Device nodes in /dev/infiniband, for programs that look for them there. */
#ifndef VERBENA_CLI_NODES_H
#define VERBENA_CLI_NODES_H

#include <jansson.h>
#include <stdbool.h>

/* The device of /dev that stands for Verbena's nodes; NULL: /dev has none that fits. */
const char *node_inert_device(void);

/* Whether /dev/infiniband already has a node for each of the daemon's devices. */
bool nodes_are_there(const json_t *status);

/*
 * Shows /dev/infiniband/uverbsN and rdma_cm in this mount namespace, readable and writable, beside
 * all existing entries of /dev. `status` is the daemon's answer. Returns 0, or -errno with
 * everything unchanged.
 */
int nodes_cover(const json_t *status);

#endif
