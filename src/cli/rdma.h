/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for iproute2's rdma(8), which programs and test suites ask for devices. `verbena run`
 * puts it in front of PATH.
 *
 * It answers `rdma dev`, `rdma link` and `rdma resource` (each also with `show`, `list`, and a
 * device) with Verbena's devices, in iproute2's formats, behind those that the system's own rdma
 * lists, if there is one. Everything else is the system's: this process becomes that program.
 */
#ifndef VERBENA_CLI_RDMA_H
#define VERBENA_CLI_RDMA_H

#include <jansson.h>
#include <stdbool.h>

/* The program. Returns an exit code as iproute2's: 0 or 1. */
int rdma_run(int argc, char **argv);

/* What is asked for. */
enum rdma_object { RDMA_DEV, RDMA_LINK, RDMA_RESOURCE };

/*
 * Verbena's devices as an array of objects with the keys and values of iproute2's JSON. `status`
 * and `resources` are the daemon's answers; `resources` is used for RDMA_RESOURCE only. Capability
 * names ("caps") are included with `details`. NULL: no memory.
 */
json_t *rdma_entries(enum rdma_object object, const json_t *status, const json_t *resources,
		     bool details);

/* What the system's rdma(8) prints. */
struct rdma_output {
	char *text; /* from malloc(); never NULL after success */
	size_t length;
};

/* Runs the system's rdma with the arguments that this process got. False: there is none, or it
 * failed; a host without RDMA in its kernel has no devices to add, so no reason is given. */
bool rdma_system_ask(char **argv, struct rdma_output *output);

/* Becomes the system's rdma. Returns only if there is none, or it can't be executed: -errno. */
int rdma_system_become(char **argv);

#endif
