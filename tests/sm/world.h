/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric and some subnet managers in one process, in virtual time: what tests of src/sm share.
 * Datagrams are a queue; time goes on when the queue is empty, to what is due first. A world may
 * lose datagrams, and cut and mend cables while a sweep is under way: it asks `disturb` before each
 * datagram.
 */
#ifndef TESTS_SM_WORLD_H
#define TESTS_SM_WORLD_H

#include "fabric/fabric.h"
#include "fabric/octets.h"
#include "fabric/port_info.h"
#include "fabric/route.h"
#include "sm/sm.h"
#include "topology/generate.h"
#include "topology/topology.h"

#include <stdlib.h>
#include <string.h>

#define WORLD_MANAGERS 4

struct world_mad {
	uint32_t port; /* that sends it, or that it is for */
	bool is_in;
	struct sm_peer peer;
	uint8_t mad[SM_MAD_BYTES];
};

struct world;

struct world_manager {
	struct world *world;
	struct sm *sm;
	uint32_t port;
};

struct world {
	struct fabric fabric;
	struct topology topology;
	void *memory;
	struct world_manager managers[WORLD_MANAGERS];
	unsigned int manager_count;
	struct world_mad *queue; /* [head, head + count) modulo room */
	size_t head, count, room;
	uint64_t now_ms;
	uint64_t dice;
	uint32_t loss; /* of 65,536 datagrams */
	void (*disturb)(struct world *world);
	void *context;
	uint64_t mads;
	bool is_verbose;
	/* The last message that a manager sent to somebody who isn't on the fabric (LID of the
	 * asker is in world_ask()). */
	uint8_t *answer;
	size_t answer_bytes;
	bool is_asking;
	uint32_t event_count[8];
};

static inline uint32_t world_roll(struct world *world, uint32_t sides)
{
	world->dice ^= world->dice << 13;
	world->dice ^= world->dice >> 7;
	world->dice ^= world->dice << 17;
	return sides ? (uint32_t)(world->dice >> 20) % sides : 0;
}

static inline void world_queue(struct world *world, const struct world_mad *mad)
{
	if (world->count == world->room) {
		size_t room = world->room ? world->room * 2 : 256;
		struct world_mad *queue = malloc(room * sizeof *queue);

		if (!queue)
			abort();
		for (size_t i = 0; i < world->count; i++)
			queue[i] = world->queue[(world->head + i) % world->room];
		free(world->queue);
		world->queue = queue;
		world->head = 0;
		world->room = room;
	}
	world->queue[(world->head + world->count++) % world->room] = *mad;
}

/* The fabric's side ---------------------------------------------------------------------------- */

static inline void world_deliver(void *context, uint32_t port, const struct fabric_address *from,
				 const uint8_t *mad)
{
	struct world_mad in = {
		.port = port,
		.is_in = true,
		.peer = {.lid = from->source,
			 .qpn = from->source_qp,
			 .qkey = from->qkey,
			 .sl = from->sl,
			 .pkey_index = from->pkey_index},
	};

	memcpy(in.mad, mad, sizeof in.mad);
	world_queue(context, &in);
}

static inline void world_event(void *context, uint32_t port, enum fabric_event event)
{
	struct world *world = context;

	(void)port;
	world->event_count[event]++;
}

static inline uint32_t world_random(void *context)
{
	return world_roll(context, 0x7fffffff);
}

/* No cable of these fabrics has a delay, and none is tapped. */
static inline void world_postpone(void *context, const struct fabric_datagram *datagram,
				  uint64_t delay_ns)
{
	(void)context;
	(void)datagram;
	(void)delay_ns;
	abort();
}

static const struct fabric_functions world_fabric_functions = {
	.deliver = world_deliver,
	.postpone = world_postpone,
	.event = world_event,
	.random = world_random,
};

/* The managers' side --------------------------------------------------------------------------- */

static inline void world_send(void *context, const struct sm_peer *to, const uint8_t *mad,
			      size_t bytes, uint32_t timeout_ms)
{
	struct world_manager *manager = context;
	struct world *world = manager->world;
	struct world_mad out = {.port = manager->port, .peer = *to};

	(void)timeout_ms;
	if (world->is_asking && mad[1] == 0x03) {
		free(world->answer);
		world->answer = malloc(bytes);
		if (!world->answer)
			abort();
		memcpy(world->answer, mad, bytes);
		world->answer_bytes = bytes;
		return;
	}
	memcpy(out.mad, mad, sizeof out.mad);
	world_queue(world, &out);
}

static inline void world_say(void *context, const char *text)
{
	struct world_manager *manager = context;

	if (manager->world->is_verbose)
		printf("%8llu ms, manager %d: %s\n", (unsigned long long)manager->world->now_ms,
		       (int)(manager - manager->world->managers), text);
}

static const struct sm_functions world_sm_functions = {world_send, world_say};

/* Building ------------------------------------------------------------------------------------- */

static inline void world_plan(const struct topology *topology, struct fabric_plan_node *nodes,
			      struct fabric_plan_cable *cables, uint32_t *cable_count)
{
	for (uint32_t i = 0; i < topology->node_count; i++)
		nodes[i] = (struct fabric_plan_node){
			.name = topology->nodes[i].name,
			.type = (uint8_t)topology->nodes[i].kind,
			.ports = topology->nodes[i].ports,
		};
	for (uint32_t i = 0; i < topology->port_count; i++) {
		const struct topology_port *port = &topology->ports[i];

		if (port->peer == TOPOLOGY_NONE || port->peer < i)
			continue;
		cables[(*cable_count)++] = (struct fabric_plan_cable){
			.node = {port->node, topology->ports[port->peer].node},
			.port = {port->number, topology->ports[port->peer].number},
		};
	}
}

/* Makes a fabric of `topology`, which the world owns from now on. */
static inline void world_begin(struct world *world, const struct topology *topology, uint64_t seed)
{
	struct fabric_plan_node *nodes = calloc(topology->node_count, sizeof *nodes);
	struct fabric_plan_cable *cables = calloc(topology->port_count, sizeof *cables);
	struct fabric_plan plan = {.title = "world", .nodes = nodes, .cables = cables};
	struct fabric_refusal refusal;
	size_t bytes;

	memset(world, 0, sizeof *world);
	world->topology = *topology;
	world->dice = seed * 0x9e3779b97f4a7c15u | 1;
	world->now_ms = 1000;
	if (!nodes || !cables)
		abort();
	world_plan(topology, nodes, cables, &plan.cable_count);
	plan.node_count = topology->node_count;
	bytes = fabric_layout(&plan, &refusal);
	world->memory = calloc(1, bytes);
	if (!bytes || !world->memory)
		abort();
	fabric_build(&world->fabric, &world_fabric_functions, world, world->memory, &plan);
	free(nodes);
	free(cables);
}

static inline struct sm *world_manager_add(struct world *world, uint32_t port,
					   const struct sm_options *options)
{
	struct world_manager *manager = &world->managers[world->manager_count++];

	manager->world = world;
	manager->port = port;
	manager->sm = sm_create(&world_sm_functions, manager, options);
	if (!manager->sm)
		abort();
	fabric_issm_set(&world->fabric, port, true, world->now_ms);
	sm_start(manager->sm, world->now_ms);
	return manager->sm;
}

/* The manager's process dies. */
static inline void world_manager_end(struct world *world, unsigned int index)
{
	sm_free(world->managers[index].sm);
	world->managers[index].sm = NULL;
	fabric_issm_set(&world->fabric, world->managers[index].port, false, world->now_ms);
}

static inline void world_end(struct world *world)
{
	for (unsigned int i = 0; i < world->manager_count; i++)
		sm_free(world->managers[i].sm);
	free(world->answer);
	free(world->queue);
	free(world->memory);
	topology_free(&world->topology);
}

/* Running -------------------------------------------------------------------------------------- */

static inline void world_hand(struct world *world, const struct world_mad *mad)
{
	for (unsigned int i = 0; i < world->manager_count; i++)
		if (world->managers[i].sm && world->managers[i].port == mad->port)
			sm_receive(world->managers[i].sm, &mad->peer, mad->mad, SM_MAD_BYTES,
				   world->now_ms);
}

static inline void world_step(struct world *world)
{
	struct world_mad mad = world->queue[world->head];
	struct fabric_address to = {
		.destination = mad.peer.lid,
		.source_qp = mad.mad[1] == 0x03,
		.destination_qp = mad.peer.qpn,
		.qkey = mad.peer.qpn ? 0x80010000u : 0,
	};

	world->head = (world->head + 1) % world->room;
	world->count--;
	world->mads++;
	if (world->disturb)
		world->disturb(world);
	if (world->loss && world_roll(world, 65536) < world->loss)
		return;
	if (mad.is_in)
		world_hand(world, &mad);
	else
		fabric_send(&world->fabric, mad.port, &to, mad.mad, world->now_ms);
}

static inline uint64_t world_deadline(const struct world *world)
{
	uint64_t due = fabric_deadline(&world->fabric);

	for (unsigned int i = 0; i < world->manager_count; i++)
		if (world->managers[i].sm && sm_deadline(world->managers[i].sm) < due)
			due = sm_deadline(world->managers[i].sm);
	return due;
}

/* Runs until a time; the queue is empty then. */
static inline void world_run(struct world *world, uint64_t until_ms)
{
	for (;;) {
		uint64_t due;

		while (world->count)
			world_step(world);
		due = world_deadline(world);
		if (due > until_ms)
			break;
		if (due > world->now_ms)
			world->now_ms = due;
		fabric_expire(&world->fabric, world->now_ms);
		for (unsigned int i = 0; i < world->manager_count; i++)
			if (world->managers[i].sm)
				sm_expire(world->managers[i].sm, world->now_ms);
	}
	world->now_ms = until_ms;
}

/* Runs until a manager is settled, `most_ms` at most. */
static inline bool world_settle(struct world *world, struct sm *sm, uint64_t most_ms)
{
	uint64_t end = world->now_ms + most_ms;

	while (world->now_ms < end) {
		world_run(world, world->now_ms + 10);
		if (sm_is_settled(sm) && fabric_deadline(&world->fabric) == UINT64_MAX)
			return true;
	}
	return false;
}

/* A query of the administration from a LID; the answer is in world->answer. Returns its status. */
static inline int world_ask(struct world *world, struct sm *sm, uint16_t lid, uint8_t method,
			    uint16_t attribute, uint64_t mask, const uint8_t *record, size_t bytes)
{
	struct sm_peer from = {.lid = lid, .qpn = 1, .qkey = 0x80010000u};
	uint8_t mad[SM_MAD_BYTES] = {1, 3, 2, method};

	mad[15] = 9;
	octets_put16(mad + 16, attribute);
	octets_put64(mad + 36, 1); /* trusted */
	octets_put64(mad + 48, mask);
	if (bytes)
		memcpy(mad + 56, record, bytes);
	world->is_asking = true;
	world->answer_bytes = 0;
	sm_receive(sm, &from, mad, sizeof mad, world->now_ms);
	world->is_asking = false;
	return world->answer_bytes ? octets_get16(world->answer + 4) : -1;
}

/* Records in the answer. */
static inline uint32_t world_records(const struct world *world)
{
	uint32_t bytes = octets_get16(world->answer + 44) * 8u;

	return bytes ? (uint32_t)(world->answer_bytes - 56) / bytes : 0;
}

#endif
