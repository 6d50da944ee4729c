/* SPDX-License-Identifier: BSD-2-Clause */
/* What a fabric says of a node, without messages. One thread. */
#ifndef VERBENA_CLI_NODE_FACTS_H
#define VERBENA_CLI_NODE_FACTS_H

#include <jansson.h>

#include "proto/fabric.h"

struct node_facts {
	struct proto_fabric_device device; /* as libibumad gets it; its counts are checked */
	json_t *node;			   /* `node` of docs/fabric.md, with ports and counters */
};

/*
 * Asks for a node by name or GUID; empty: the first one of the topology. Returns 0 with facts that
 * node_facts_free() ends; -ENOENT: the fabric has no such node; another negative errno: no fabric
 * is up, or it doesn't answer.
 */
int node_facts_ask(const char *name, struct node_facts *facts);
void node_facts_free(struct node_facts *facts);

#endif
