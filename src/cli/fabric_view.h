/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of what a fabric has, for people or (`json`) for scripts. Each returns an exit code. */
#ifndef VERBENA_CLI_FABRIC_VIEW_H
#define VERBENA_CLI_FABRIC_VIEW_H

#include <jansson.h>
#include <stdbool.h>

int fabric_nodes_show(bool json);
int fabric_links_show(bool json);
int fabric_errors_show(bool json);
int fabric_node_show(const char *node, bool json);
int fabric_port_show(const char *node, unsigned int port, bool json);
/* The request is stolen. */
int fabric_counters_show(json_t *request, bool json);

#endif
