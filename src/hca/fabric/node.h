/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The node of a fabric that this process is on, if VERBENA_NODE names one (`verbena run --node`):
 * its verbs devices are that node's adapter then.
 *
 * The fabric's tables (src/fabric/tables.h) are the state of verbena-fabric itself, mapped here
 * read-only: attributes of ports, forwarding tables, P_Keys are what the subnet manager wrote last,
 * without a call. They outlive verbena-fabric, as switches outlive what manages them: while none
 * runs, data goes the ways that it went before.
 *
 * A process is on one node from its first call on, and stays there; a forked child is on the same.
 */
#ifndef VERBENA_HCA_FABRIC_NODE_H
#define VERBENA_HCA_FABRIC_NODE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "fabric/route.h"

struct node {
	struct fabric tables; /* only what takes a `const struct fabric` may be called */
	uint64_t fabric;      /* which fabric: different for each file of tables; never 0 */
	uint32_t row;	      /* in tables.nodes */
	uint32_t ports;	      /* the adapter's */
};

/* Whether the environment names a node: this process has no other devices then. */
bool node_is_named(void);

/* The node; the first call asks verbena-fabric. NULL with errno: ENODEV: there is no such node, or
 * it is a switch, which has no verbs; else no fabric can be reached. What is wrong is said on
 * standard error, once. */
const struct node *node_get(void);

/* Opens a connection to verbena-fabric and sends the request for this process's node, with a
 * descriptor if `fd` isn't -1. The connection or a negative errno. */
int node_connect(uint32_t kind, int fd);

/* The file of the fabric's clocks (fabric/clocks.h). 0 or a negative errno. */
int node_ask_clocks(int *file);

/* Whether the fabric that runs now has the same tables. 0; -ESTALE: it is another one; -errno: none
 * runs. Doesn't say so on standard error. */
int node_check(const struct node *node);

/* ---- attributes, as the tables have them now. Errors are positive errnos. */

/* The row of a port of the adapter, or FABRIC_NONE. */
uint32_t node_port_row(const struct node *node, uint32_t port);
/* EINVAL: no such port. */
int node_query_port(const struct node *node, uint32_t port, struct ibv_port_attr *attr);
/* EINVAL: no such port or index; ENODATA: the entry is empty. */
int node_query_gid(const struct node *node, uint32_t port, uint32_t index,
		   struct ibv_gid_entry *entry);
/* In host order. EINVAL: no such port or index. */
int node_query_pkey(const struct node *node, uint32_t port, uint32_t index, uint16_t *pkey);
/* Sets what of a device's attributes the node has; the others stay. */
void node_query_device(const struct node *node, struct ibv_device_attr *attr);

/* Whether a packet with one key is accepted where the other one is expected: the same partition, of
 * which one of the two is a full member. */
static inline bool pkeys_match(uint16_t a, uint16_t b)
{
	return a & 0x7fff && !((a ^ b) & 0x7fff) && (a | b) & 0x8000;
}

/* The chance that faults drop a packet on this route, in millionths. */
uint32_t node_loss(const struct node *node, const struct fabric_route *route);
/* Whether a packet with this chance is dropped; *dice isn't 0, and changes. */
bool node_drops(uint64_t *dice, uint32_t loss);
/* Whether one of `whole` cases is one of `part` of them. */
bool node_drops_of(uint64_t *dice, uint32_t part, uint32_t whole);
/* A packet was dropped on the route: makes it the route up to the port that dropped it. */
void node_drop_choose(const struct node *node, uint64_t *dice, struct fabric_route *route);

static inline const struct fabric_node *node_own(const struct node *node)
{
	return &node->tables.nodes[node->row];
}

#endif
