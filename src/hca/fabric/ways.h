/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways of a UD queue pair's datagrams through the fabric: those that it used lately, by their
 * address (a table with one place for each hash). They are as up to date as a connected queue
 * pair's path (path.h). A datagram without a way is dropped, and counted where it stops.
 *
 * An address is made when its handle is, and copied into each request, so that the handle may end
 * before its requests start. Used under qp.lock.
 */
#ifndef VERBENA_HCA_FABRIC_WAYS_H
#define VERBENA_HCA_FABRIC_WAYS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "hca/fabric/flows.h"
#include "hca/fabric/node.h"

struct membership;

/* Where a datagram is sent to, and by which partition. */
struct way_address {
	uint16_t lid;
	uint8_t port;
	uint8_t path_bits; /* of the source LID; doesn't change the way */
	uint8_t sl;
	uint8_t pkey_index;
};

/* A way; of the address for which ways_find() returned it, until the next call of that. */
struct way {
	uint64_t key;  /* 0: unused */
	uint64_t seen; /* the fabric's epoch before the walk */
	struct proto_flow *flow;
	uint32_t room;	 /* bytes that a packet may carry, + 1; 0: it leads nowhere */
	uint32_t end;	 /* row of the port where it ends */
	uint32_t loss;	 /* by faults, in millionths of packets */
	bool is_slow;	 /* a fault on it takes time */
	bool is_dropped; /* the last packet was, by `loss` */
};

struct ways;

/* NULL: no memory. */
struct ways *ways_new(struct membership *membership);
/* NULL is allowed. */
void ways_free(struct ways *ways);

/* The way to the address, as the tables are now. */
struct way *ways_find(struct ways *ways, const struct way_address *address);

/* Whether a packet with `length` bytes gets to the way's end. */
bool way_passes_slow(struct ways *ways, struct way *way);
static inline bool way_passes(struct ways *ways, struct way *way, uint32_t length)
{
	return length < way->room && (likely(!way->loss) || way_passes_slow(ways, way));
}

/*
 * The tree of a multicast packet: where the switches' multicast tables lead from the address's port
 * with its MLID. Valid until the next call of ways_find_tree().
 */
struct tree;

/* The tree of a packet with `length` bytes of payload, as the tables are now, without the copies
 * that faults drop. `again`: of the packet for which it was last called. NULL: no memory. */
struct tree *ways_find_tree(struct ways *ways, const struct way_address *address, uint32_t length,
			    bool again);
/* Whether a fault on it takes time. */
bool tree_is_slow(const struct tree *tree);
/* Whether a port of the node with this row gets a copy. */
bool tree_reaches(const struct tree *tree, uint32_t node);
/* Counts a packet of `words` on all its hops. */
void tree_count(struct tree *tree, uint32_t words);

/* Counts a packet of `words`, with `length` bytes of payload, for which way_passes() was false, or
 * which no queue pair takes at the way's end: it goes as far as it can. */
void way_count_lost(struct ways *ways, struct way *way, const struct way_address *address,
		    uint32_t length, uint32_t words);

#endif
