/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The subnet management agent of each port: which requests it takes, whether their M_Key permits
 * them, and the attributes of nodes and switches. PortInfo is in port_info.c, tables in tables.c.
 */
#include "fabric/internal.h"

static uint16_t node_description_answer(struct agent_request *request)
{
	if (request->method != METHOD_IS_GET)
		return ANSWER_UNSUPPORTED;
	memcpy(request->data, request->fabric->nodes[request->node].description, 64);
	return ANSWER_OK;
}

static uint16_t node_info_answer(struct agent_request *request)
{
	const struct fabric_node *node = &request->fabric->nodes[request->node];
	uint8_t *data = request->data;

	if (request->method != METHOD_IS_GET)
		return ANSWER_UNSUPPORTED;
	memset(data, 0, 64);
	data[0] = data[1] = 1;
	data[2] = node->type;
	data[3] = node->ports;
	octets_put64(data + 4, node->system_guid);
	octets_put64(data + 12, node->guid);
	octets_put64(data + 20, request->fabric->ports[request->end_port].guid);
	octets_put16(data + 28, FABRIC_PKEYS);
	octets_put16(data + 30, node->device_id);
	octets_put32(data + 32, node->revision);
	octets_put32(data + 36, node->vendor_id);
	data[36] = request->fabric->ports[request->port].number;
	return ANSWER_OK;
}

/* SwitchInfo ----------------------------------------------------------------------------------- */

static uint16_t switch_info_set(struct agent_request *request, struct fabric_node *node)
{
	const uint8_t *data = request->data;
	uint16_t top = octets_get16(data + 6);

	if (top >= FABRIC_LFT_ENTRIES)
		return ANSWER_INVALID;
	if (node->linear_top != top) {
		node->linear_top = top;
		fabric_touch(request->fabric);
	}
	node->default_port = data[8];
	node->default_primary = data[9];
	node->default_not_primary = data[10];
	node->life_time = data[11] >> 3;
	if (data[11] & 4)
		node->switch_info_flags &= (uint8_t)~4u;
	node->multicast_top = octets_get16(data + 18);
	return ANSWER_OK;
}

uint16_t switch_info_answer(struct agent_request *request)
{
	struct fabric_node *node = &request->fabric->nodes[request->node];
	uint8_t *data = request->data;
	uint16_t status = ANSWER_OK;

	if (node->type != FABRIC_SWITCH)
		return ANSWER_UNSUPPORTED;
	if (request->method == METHOD_IS_SET)
		status = switch_info_set(request, node);
	memset(data, 0, 64);
	octets_put16(data, FABRIC_LFT_ENTRIES);
	octets_put16(data + 4, FABRIC_MFT_ENTRIES);
	octets_put16(data + 6, node->linear_top);
	data[8] = node->default_port;
	data[9] = node->default_primary;
	data[10] = node->default_not_primary;
	data[11] = (uint8_t)(node->life_time << 3) | (node->switch_info_flags & 4);
	octets_put16(data + 14, FABRIC_PKEYS);
	data[16] = 0xc0 | (node->has_enhanced_port0 ? 0x08 : 0);
	octets_put16(data + 18, node->multicast_top);
	return status;
}

/* M_Key ---------------------------------------------------------------------------------------- */

static uint64_t lease_end(const struct fabric_port *port)
{
	return (uint64_t)port->lease_end_ms[1] << 32 | port->lease_end_ms[0];
}

static void lease_set(struct fabric_port *port, uint64_t end_ms)
{
	port->lease_end_ms[0] = (uint32_t)end_ms;
	port->lease_end_ms[1] = (uint32_t)(end_ms >> 32);
}

/* A lease that has run out ends the protection; the key stays. */
static void lease_expire(struct fabric *fabric, struct fabric_port *port)
{
	uint64_t end = lease_end(port);

	if (!end || end > fabric->now_ms)
		return;
	lease_set(port, 0);
	port->info[INFO_PROTECT_LMC] &= 0x3f;
}

/* Whether a request without the port's key is permitted. Get may be; what writes never is. */
static bool protection_permits(const struct fabric_port *port, uint8_t method)
{
	return method == METHOD_IS_GET && port->info[INFO_PROTECT_LMC] >> 6 < 2;
}

/* Whether the request has the key that the end port wants. */
static bool m_key_permits(struct agent_request *request)
{
	struct fabric_port *port = &request->fabric->ports[request->end_port];
	uint64_t key = octets_get64(port->info + INFO_M_KEY);
	uint16_t lease = octets_get16(port->info + INFO_LEASE);

	lease_expire(request->fabric, port);
	if (!key)
		return true;
	if (key == octets_get64(request->mad + MAD_AT_M_KEY)) {
		lease_set(port, 0);
		return true;
	}
	if (protection_permits(port, request->method))
		return true;
	violation_count(port, INFO_M_KEY_VIOLATIONS);
	if (lease && !lease_end(port))
		lease_set(port, request->fabric->now_ms + lease * 1000ull);
	trap_bad_m_key(request);
	return false;
}

/* Dispatch ------------------------------------------------------------------------------------- */

enum {
	SM_NODE_DESCRIPTION = 0x10,
	SM_NODE_INFO = 0x11,
	SM_SWITCH_INFO = 0x12,
	SM_GUID_INFO = 0x14,
	SM_PORT_INFO = 0x15,
	SM_PKEY_TABLE = 0x16,
	SM_SL_TO_VL = 0x17,
	SM_ARBITRATION = 0x18,
	SM_UNICAST = 0x19,
	SM_MULTICAST = 0x1b,
	SM_SM_INFO = 0x20,
	SM_PORT_INFO_EXTENDED = 0x33,
};

/* No error correction is modelled: all modes read as not supported. */
static uint16_t port_info_extended_answer(struct agent_request *request)
{
	if (request->method != METHOD_IS_GET)
		return ANSWER_UNSUPPORTED;
	memset(request->data, 0, 64);
	return ANSWER_OK;
}

struct attribute_agent {
	uint16_t attribute;
	uint16_t (*answer)(struct agent_request *request);
};

static const struct attribute_agent attributes[] = {
	{SM_NODE_DESCRIPTION, node_description_answer},
	{SM_NODE_INFO, node_info_answer},
	{SM_SWITCH_INFO, switch_info_answer},
	{SM_GUID_INFO, guid_info_answer},
	{SM_PORT_INFO, port_info_answer},
	{SM_PKEY_TABLE, pkey_table_answer},
	{SM_SL_TO_VL, sl_to_vl_answer},
	{SM_ARBITRATION, arbitration_answer},
	{SM_UNICAST, unicast_answer},
	{SM_MULTICAST, multicast_answer},
	{SM_PORT_INFO_EXTENDED, port_info_extended_answer},
};

static uint16_t attribute_answer(struct agent_request *request)
{
	if (request->mad[MAD_AT_VERSION] != 1)
		return ANSWER_VERSION;
	for (unsigned int i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
		if (attributes[i].attribute == request->attribute)
			return attributes[i].answer(request);
	return ANSWER_UNSUPPORTED;
}

enum agent_result sma_process(struct agent_request *request)
{
	/* The SM of a program answers this, and its M_Key is none. */
	if (request->attribute == SM_SM_INFO && request->method != METHOD_IS_REPRESS)
		return AGENT_NOT_MINE;
	if (!m_key_permits(request))
		return AGENT_SILENT;
	if (request->method == METHOD_IS_REPRESS) {
		trap_repress(request->fabric, request->end_port, request->mad);
		return AGENT_SILENT;
	}
	octets_put16(request->mad + MAD_AT_STATUS, attribute_answer(request));
	request->mad[MAD_AT_METHOD] = METHOD_IS_GET_RESPONSE;
	return AGENT_ANSWERS;
}
