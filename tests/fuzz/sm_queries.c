/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that ask a subnet manager: arbitrary queries of its administration, traps, questions and
 * commands of other managers, while cables are cut and time goes on. An input is a list of steps. A
 * query's answer must be as long as its header says and repeat the transaction; in the end the
 * manager must settle again, and must have reached all ports that it can.
 */
#include <stdio.h>

#include "../sm/world.h"
#include "input.h"

static const uint8_t methods[] = {0x01, 0x02, 0x12, 0x14, 0x15, 0x06, 0x86, 0x81};
static const uint16_t attributes[] = {0x01, 0x02, 0x03, 0x11, 0x12, 0x13, 0x14, 0x15, 0x17, 0x18,
				      0x20, 0x30, 0x31, 0x33, 0x35, 0x36, 0x38, 0x3a, 0xf3, 0x99};

static void answer_check(const struct world *world, const uint8_t *mad)
{
	uint32_t bytes;

	if (!world->answer_bytes)
		return;
	MUST(world->answer_bytes >= 56 && !memcmp(world->answer + 8, mad + 8, 8));
	MUST(octets_get16(world->answer + 16) == octets_get16(mad + 16));
	bytes = octets_get16(world->answer + 44) * 8u;
	if (world->answer[26] & 1)
		MUST(bytes && (world->answer_bytes - 56) % bytes == 0);
	else
		MUST(world->answer_bytes == SM_MAD_BYTES);
}

/* A query with a record of which the first bytes are the input's. */
static void query_send(struct world *world, struct sm *sm, struct input *input)
{
	struct sm_peer from = {.lid = input_u8(input) % 12, .qpn = 1, .qkey = 0x80010000u};
	uint8_t mad[SM_MAD_BYTES + 64] = {1, 3, 2};
	uint8_t kind = input_u8(input), most = input_u8(input);

	mad[3] = methods[kind % sizeof methods];
	octets_put16(mad + 16, attributes[input_u8(input) % 20]);
	if (kind & 0x80)
		octets_put32(mad + 20, 1u << 31);
	mad[15] = input_u8(input);
	octets_put64(mad + 36, kind & 0x40 ? 0 : 1);
	octets_put64(mad + 48, kind & 0x20 ? input_u64(input) : 1ull << (input_u8(input) & 63));
	input_bytes(input, mad + 56, most < 200 ? most : 200);
	/* GIDs that are there. */
	if (kind & 0x10) {
		octets_put64(mad + 56 + 16, 0xfe80000000000000u);
		octets_put64(mad + 56 + 24, 0x100000u + input_u8(input) % 16);
	}
	world->is_asking = true;
	world->answer_bytes = 0;
	sm_receive(sm, &from, mad, kind & 0x08 ? sizeof mad : SM_MAD_BYTES, world->now_ms);
	world->is_asking = false;
	answer_check(world, mad);
}

/* A trap, or a question or command about SMInfo, by LID or by directed route. */
static void smp_send(struct world *world, struct sm *sm, struct input *input)
{
	struct sm_peer from = {.lid = input_u8(input)};
	uint8_t mad[SM_MAD_BYTES] = {1, 1, 1}, kind = input_u8(input);

	if (kind & 1)
		mad[1] = 0x81;
	mad[3] = kind & 2 ? 5 : 1 + (kind >> 2 & 1);
	octets_put16(mad + 16, kind & 2 ? 0x02 : 0x20);
	octets_put32(mad + 20, input_u8(input));
	mad[15] = input_u8(input);
	input_bytes(input, mad + 64, 64);
	if (kind & 8)
		mad[3] = 0x81;
	sm_receive(sm, &from, mad, sizeof mad, world->now_ms);
}

static void step_run(struct world *world, struct sm *sm, struct input *input)
{
	uint8_t what = input_u8(input);
	uint32_t row = input_u8(input) % world->fabric.header->ports;

	switch (what % 8) {
	case 0:
		smp_send(world, sm, input);
		break;
	case 1:
		world_run(world, world->now_ms + input_u8(input) * 20u);
		break;
	case 2:
		if (world->fabric.ports[row].cable != FABRIC_NONE)
			fabric_cable_set(&world->fabric, row, !world->fabric.ports[row].is_cut,
					 world->now_ms);
		break;
	default:
		query_send(world, sm, input);
	}
}

static void end_check(struct world *world, struct sm *sm)
{
	for (uint32_t row = 0; row < world->fabric.header->ports; row++)
		if (world->fabric.ports[row].is_cut)
			fabric_cable_set(&world->fabric, row, false, world->now_ms);
	world_run(world, world->now_ms + 20000);
	/* One that was told to, rests. */
	if (sm_state_get(sm) != SM_MASTER)
		return;
	sm_sweep_request(sm, world->now_ms);
	MUST(world_settle(world, sm, 60000));
	for (uint32_t row = 0; row < world->fabric.header->ports; row++)
		MUST(!world->fabric.ports[row].is_end_port || port_lid(&world->fabric.ports[row]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {.at = data, .end = data + size};
	struct fat_tree_shape tree = {.ports = 4, .levels = 2, .hosts = 6};
	struct sm_options options = {.retries = 1, .sweep_ms = 1000, .poll_ms = 500};
	struct topology_report report = {0};
	struct topology topology;
	struct world world;
	struct sm *sm;

	MUST(!topology_make_fat_tree(&topology, &tree, &report));
	world_begin(&world, &topology, 1);
	sm = world_manager_add(&world, fabric_port_row(&world.fabric, 0, 1), &options);
	world_run(&world, world.now_ms + 10);
	for (int steps = 0; steps < 60 && input_left(&input); steps++)
		step_run(&world, sm, &input);
	end_check(&world, sm);
	world_end(&world);
	return 0;
}
