/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting what this process sends over the fabric (proto/flows.h). A flow belongs to one queue
 * pair, and is counted under its lock, with plain additions.
 */
#ifndef VERBENA_HCA_FABRIC_FLOWS_H
#define VERBENA_HCA_FABRIC_FLOWS_H

#include <stdint.h>

#include "base/lock.h"
#include "fabric/route.h"
#include "proto/flows.h"

struct flows {
	struct proto_flows *memory;
	int fd; /* of the memory; handed to each verbena-fabric */
	struct lock lock;
	uint32_t next GUARDED_BY(lock); /* where to look for a free flow */
};

/* 0 or -errno. */
int flows_make(struct flows *flows);
void flows_unmake(struct flows *flows);

/* A flow for this way, whose counts are 0. Flow 0, which no code reads, if there is none left. */
struct proto_flow *flow_take(struct flows *flows, const struct fabric_route *route, uint8_t sl);
/* The flow won't be counted any more. NULL: nothing happens. */
void flow_end(struct flows *flows, struct proto_flow *flow);
/* Replaces *flow (NULL: there is none yet) by one of this way, if it isn't one. */
void flow_choose(struct flows *flows, struct proto_flow **flow, const struct fabric_route *route,
		 uint8_t sl);

static inline void flow_count(struct proto_flow *flow, uint64_t packets, uint64_t words)
{
	atomic_store_explicit(&flow->packets,
			      atomic_load_explicit(&flow->packets, memory_order_relaxed) + packets,
			      memory_order_relaxed);
	atomic_store_explicit(&flow->words,
			      atomic_load_explicit(&flow->words, memory_order_relaxed) + words,
			      memory_order_relaxed);
}

/* Packets that passed all hops and stopped then, as route.result says. */
static inline void flow_count_lost(struct proto_flow *flow, uint64_t packets, uint64_t words)
{
	flow_count(flow, packets, words);
	atomic_store_explicit(&flow->lost,
			      atomic_load_explicit(&flow->lost, memory_order_relaxed) +
				      (uint32_t)packets,
			      memory_order_relaxed);
}

#endif
