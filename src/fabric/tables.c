/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables that a subnet manager reads and writes by blocks. */
#include "fabric/internal.h"

#define UNICAST_BLOCK 64u
#define MULTICAST_BLOCK 32u
#define PKEY_BLOCK 32u
#define GUID_BLOCK 8u

/* The port whose table is meant: a switch has them all, an adapter the one that was asked. */
static uint32_t table_port(const struct agent_request *request, unsigned int number)
{
	if (request->fabric->nodes[request->node].type != FABRIC_SWITCH)
		return request->port;
	return fabric_port_row(request->fabric, request->node, number);
}

static uint16_t block_refuse(struct agent_request *request)
{
	memset(request->data, 0, 64);
	return ANSWER_INVALID;
}

uint16_t guid_info_answer(struct agent_request *request)
{
	struct fabric *fabric = request->fabric;
	struct fabric_port *port = &fabric->ports[request->end_port];
	uint64_t *guids = fabric->guids + (size_t)port->end_port * FABRIC_GUIDS;
	unsigned int count = port->info[INFO_GUID_CAP];
	bool is_changed = false;

	if (request->modifier * (uint64_t)GUID_BLOCK >= count)
		return block_refuse(request);
	for (unsigned int i = 0; i < GUID_BLOCK; i++) {
		unsigned int index = request->modifier * GUID_BLOCK + i;
		uint64_t value = octets_get64(request->data + 8 * i);

		if (index >= count) {
			octets_put64(request->data + 8 * i, 0);
			continue;
		}
		if (request->method == METHOD_IS_SET && index && guids[index] != value) {
			guids[index] = value;
			is_changed = true;
		}
		octets_put64(request->data + 8 * i, index ? guids[index] : port->guid);
	}
	if (is_changed)
		fabric->functions->event(fabric->context, request->end_port, EVENT_GID_CHANGE);
	return ANSWER_OK;
}

uint16_t pkey_table_answer(struct agent_request *request)
{
	struct fabric *fabric = request->fabric;
	unsigned int block = request->modifier & 0xffff;
	uint32_t port = table_port(request, request->modifier >> 16);
	bool is_changed = false;

	if (port == FABRIC_NONE || block >= FABRIC_PKEYS / PKEY_BLOCK)
		return block_refuse(request);
	for (unsigned int i = 0; i < PKEY_BLOCK; i++) {
		unsigned int index = block * PKEY_BLOCK + i;
		uint16_t value = octets_get16(request->data + 2 * i);

		if (request->method == METHOD_IS_SET &&
		    partition_key_get(fabric, port, index) != value) {
			fabric->pkeys[(size_t)port * FABRIC_PKEYS + index] =
				index ? value : value ^ 0xffff;
			is_changed = true;
		}
		octets_put16(request->data + 2 * i, partition_key_get(fabric, port, index));
	}
	if (is_changed)
		fabric_touch(fabric);
	if (is_changed && fabric->ports[port].is_end_port)
		fabric->functions->event(fabric->context, port, EVENT_PKEY_CHANGE);
	return ANSWER_OK;
}

uint16_t sl_to_vl_answer(struct agent_request *request)
{
	static const uint8_t usual[] = {0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67};
	struct fabric *fabric = request->fabric;
	uint32_t egress = table_port(request, request->modifier & 0xff);
	uint32_t ingress = table_port(request, request->modifier >> 8 & 0xff);
	uint8_t *row;

	if (egress == FABRIC_NONE || ingress == FABRIC_NONE)
		return block_refuse(request);
	row = sl_to_vl_row(fabric, egress, ingress);
	for (unsigned int i = 0; i < FABRIC_SL_TO_VL_BYTES; i++) {
		uint8_t wanted = request->data[i] ^ usual[i];

		if (request->method == METHOD_IS_SET && row[i] != wanted) {
			row[i] = wanted;
			fabric_touch(fabric);
		}
	}
	memset(request->data, 0, 64);
	for (unsigned int i = 0; i < FABRIC_SL_TO_VL_BYTES; i++)
		request->data[i] = row[i] ^ usual[i];
	return ANSWER_OK;
}

/* Low priority: lanes 0 to 7, all but lane 0 with weight 4. High priority: lane 0 only. */
static uint8_t arbitration_usual(bool is_high, unsigned int at)
{
	if (!(at % 2))
		return (uint8_t)(at / 2);
	return (at / 2 == 0) == is_high ? 4 : 0;
}

uint16_t arbitration_answer(struct agent_request *request)
{
	enum { BLOCK_LOW = 1, BLOCK_HIGH = 3, BYTES = 2 * FABRIC_VLARB_ENTRIES };
	unsigned int block = request->modifier >> 16;
	uint32_t port = table_port(request, request->modifier & 0xffff);
	bool is_high = block == BLOCK_HIGH;
	uint8_t *row;

	if (port == FABRIC_NONE || (block != BLOCK_LOW && block != BLOCK_HIGH))
		return block_refuse(request);
	row = request->fabric->vlarb + (size_t)port * 2 * BYTES + (is_high ? BYTES : 0);
	if (request->method == METHOD_IS_SET)
		for (unsigned int i = 0; i < BYTES; i++)
			row[i] = request->data[i] ^ arbitration_usual(is_high, i);
	memset(request->data, 0, 64);
	for (unsigned int i = 0; i < BYTES; i++)
		request->data[i] = row[i] ^ arbitration_usual(is_high, i);
	return ANSWER_OK;
}

uint16_t unicast_answer(struct agent_request *request)
{
	struct fabric *fabric = request->fabric;
	const struct fabric_node *node = &fabric->nodes[request->node];
	bool is_changed = false;
	uint8_t *entries;

	if (node->type != FABRIC_SWITCH)
		return ANSWER_UNSUPPORTED;
	if (request->modifier >= FABRIC_LFT_ENTRIES / UNICAST_BLOCK)
		return block_refuse(request);
	entries = fabric->unicast + (size_t)node->switch_index * FABRIC_LFT_ENTRIES +
		  request->modifier * UNICAST_BLOCK;
	for (unsigned int i = 0; i < UNICAST_BLOCK; i++) {
		uint8_t wanted = request->data[i] ^ 0xff;

		if (request->method == METHOD_IS_SET && entries[i] != wanted) {
			__atomic_store_n(&entries[i], wanted, __ATOMIC_RELAXED);
			is_changed = true;
		}
		request->data[i] = entries[i] ^ 0xff;
	}
	if (is_changed)
		fabric_touch(fabric);
	return ANSWER_OK;
}

uint16_t multicast_answer(struct agent_request *request)
{
	struct fabric *fabric = request->fabric;
	const struct fabric_node *node = &fabric->nodes[request->node];
	unsigned int position = request->modifier >> 28;
	unsigned int block = request->modifier & 0x1ff;
	bool is_changed = false;
	uint16_t *masks;

	if (node->type != FABRIC_SWITCH)
		return ANSWER_UNSUPPORTED;
	if (block >= FABRIC_MFT_ENTRIES / MULTICAST_BLOCK ||
	    position > node->ports / FABRIC_MFT_POSITIONS)
		return block_refuse(request);
	masks = fabric->multicast + node->multicast + position * FABRIC_MFT_ENTRIES +
		block * MULTICAST_BLOCK;
	for (unsigned int i = 0; i < MULTICAST_BLOCK; i++) {
		uint16_t wanted = octets_get16(request->data + 2 * i);

		if (request->method == METHOD_IS_SET && masks[i] != wanted) {
			__atomic_store_n(&masks[i], wanted, __ATOMIC_RELAXED);
			is_changed = true;
		}
		octets_put16(request->data + 2 * i, masks[i]);
	}
	if (is_changed)
		fabric_touch(fabric);
	return ANSWER_OK;
}
