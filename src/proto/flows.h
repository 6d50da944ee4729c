/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process has sent over a fabric, by the way that it went: memory that the process makes
 * when it joins a node (PROTO_FABRIC_JOIN), and that verbena-fabric reads when somebody asks for a
 * port's counters. So no packet costs a write to memory that processes share.
 *
 * A *flow* is one way, as a list of ports, with the packets and words that took it. Both sides
 * write, each its own fields:
 *
 *   the process         `state` FREE -> LIVE, after it has written the way; LIVE -> ENDED, after
 *                       its last count; `packets`, `words`, `lost`; header.used
 *   verbena-fabric      `state` ENDED -> FREE, after it has taken all; the fields *_taken: what of
 *                       the counts is in the ports' counters already
 *
 * They only count upwards (a process takes packets back that it counted too early, before anybody
 * could see them at another port, within the call that counted them). What has been taken is in
 * this memory, which the process keeps, so that a verbena-fabric that is killed and goes on takes
 * nothing twice.
 *
 * verbena-fabric copies a way and checks it. A process that counts what it hasn't sent makes the
 * counters of its own user's fabric wrong, and does no other harm.
 */
#ifndef VERBENA_PROTO_FLOWS_H
#define VERBENA_PROTO_FLOWS_H

#include <stdatomic.h>
#include <stdint.h>

#define PROTO_FLOWS 65536u
#define PROTO_FLOW_HOPS 64u
#define PROTO_FLOWS_MAGIC 0x7662666c6f7773ull

#define PROTO_FLOW_MULTICAST 0x80u

enum proto_flow_state { PROTO_FLOW_FREE, PROTO_FLOW_LIVE, PROTO_FLOW_ENDED };

struct proto_flow {
	_Atomic uint32_t state; /* enum proto_flow_state */
	uint16_t hops;
	uint8_t sl;	       /* and PROTO_FLOW_MULTICAST: the hops are a part of a tree */
	uint8_t result;	       /* enum route_result: why what is lost stops after the last hop */
	uint32_t blame;	       /* the port that counts what is lost; UINT32_MAX: none */
	_Atomic uint32_t lost; /* packets */
	_Atomic uint64_t packets, words; /* that passed all hops */
	/* verbena-fabric's: */
	_Atomic uint64_t packets_taken, words_taken;
	_Atomic uint32_t lost_taken;
	uint32_t reserved[3];
	/* The ports by which the packets left, nearest first. Rows of the fabric's table. */
	uint32_t egress[PROTO_FLOW_HOPS];
};

_Static_assert(sizeof(struct proto_flow) == 64 + 4 * PROTO_FLOW_HOPS, "counts in one cache line");

/* The file is sealed against another size, and sparse: pages exist once flows are used. */
struct proto_flows {
	uint64_t magic;
	_Atomic uint32_t used; /* flows beyond it have never been used */
	uint32_t reserved[13];
	struct proto_flow flow[PROTO_FLOWS];
};

#define PROTO_FLOWS_BYTES sizeof(struct proto_flows)

#endif
