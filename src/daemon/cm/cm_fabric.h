/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting to verbena-fabric. */
#ifndef VERBENA_DAEMON_CM_CM_FABRIC_H
#define VERBENA_DAEMON_CM_CM_FABRIC_H

#include <stdint.h>

/* How long verbena-fabric may take for an answer. */
enum { CM_FABRIC_WAIT_MS = 1000 };

/* Sends a request about a node on a new connection to the fabric of this run-time directory: a
 * descriptor, which doesn't block, or -errno (-ENOENT, -ECONNREFUSED: no fabric runs). */
int cm_fabric_ask(const char *directory, uint32_t kind, const char *node, uint32_t port);

#endif
