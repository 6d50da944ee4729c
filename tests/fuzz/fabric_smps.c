/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Agents that send arbitrary management datagrams into a fabric. An input is a list of steps: the
 * node and the QP that send, the LID, then how much of the datagram's header is made well (class,
 * method, attribute, route) and the bytes of the rest. After each step the tables must be such that
 * another process could open them.
 */
#include "../unit/fabric/net.h"
#include "input.h"

static void step_run(struct net *net, struct input *input)
{
	uint8_t kind = input_u8(input), path[63], mad[256];
	uint32_t node = input_u8(input) % NODES;
	uint16_t lid = input_u8(input);
	uint8_t hops = input_u8(input);
	uint8_t method = input_u8(input);

	for (unsigned int i = 0; i < sizeof path; i++)
		path[i] = i < 4 ? input_u8(input) : 0;
	smp_make(mad, method, (uint16_t)(input_u8(input)),
		 (uint32_t)input_u8(input) << ((kind >> 2 & 3) * 8) | input_u8(input),
		 kind & 1 ? 255 : hops % 64, path);
	for (unsigned int i = 0; i < 64; i++)
		mad[64 + i] = input_u8(input);
	if (kind & 2)
		mad[input_u8(input)] = input_u8(input);
	if (kind & 0x10)
		mad[1] = kind & 0x20 ? 0x04 : 0x21;
	if (kind & 0x40)
		octets_put16(mad + 32, lid);
	net_send(net, node, node >= NODE_H1, kind & 0x80 ? 0xffff : lid, (kind & 0x10) != 0, mad,
		 1000u + input_u8(input) * 100u);
	fabric_expire(&net->fabric, 2000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {.at = data, .end = data + size};
	struct net *net = net_create();
	struct fabric again;

	if (size && data[0] & 1)
		net_configure(net);
	for (int steps = 0; steps < 50 && input_left(&input); steps++) {
		struct route_query query = {.port = net_row(net, NODE_H2, 1), .pkey = 0xffff};
		struct fabric_route route;

		step_run(net, &input);
		query.destination = (uint16_t)steps;
		fabric_route_find(&net->fabric, &query, &route);
		if (fabric_open(&again, &net_functions, net, net->memory, net->bytes))
			abort();
	}
	net_free(net);
	return 0;
}
