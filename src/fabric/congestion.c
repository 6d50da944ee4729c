/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The congestion control agent: it keeps the key and the settings that a manager writes. Nothing is
 * ever congested here, so the log is empty.
 */
#include "fabric/internal.h"

enum {
	CC_CLASS_PORT_INFO = 0x01,
	CC_INFO = 0x11,
	CC_KEY_INFO = 0x12,
	CC_LOG = 0x13,
	CC_SWITCH_SETTING = 0x14,
	CC_SWITCH_PORT_SETTING = 0x15,
	CC_CA_SETTING = 0x16,
	CC_CONTROL_TABLE = 0x17,
	CC_TIMESTAMP = 0x18,
};

enum { CC_AT_KEY = 24, CC_AT_LOG = 32, CC_VERSION = 2 };
#define CC_SWITCH_SETTING_BYTES 76u
#define CC_TICK_US 1.024

static uint16_t key_info_answer(struct agent_request *request, struct fabric_congestion *own)
{
	uint8_t *data = request->data;

	if (request->method == METHOD_IS_SET) {
		own->key = octets_get64(data);
		own->protect = data[8] >> 7;
		own->lease = octets_get16(data + 10);
		own->violations = octets_get16(data + 12);
	}
	memset(data, 0, 192);
	octets_put64(data, own->protect ? 0 : own->key);
	data[8] = (uint8_t)(own->protect << 7);
	octets_put16(data + 10, own->lease);
	octets_put16(data + 12, own->violations);
	return ANSWER_OK;
}

/* A setting that is kept as it was written. */
static uint16_t setting_answer(struct agent_request *request, uint8_t *own, size_t bytes,
			       bool is_for_node)
{
	if (!is_for_node)
		return ANSWER_UNSUPPORTED;
	if (request->method == METHOD_IS_SET)
		memcpy(own, request->data, bytes);
	memset(request->data, 0, 192);
	memcpy(request->data, own, bytes);
	return ANSWER_OK;
}

static uint16_t get_answer(struct agent_request *request, bool is_switch)
{
	uint8_t *data = request->data;

	if (request->method != METHOD_IS_GET)
		return ANSWER_UNSUPPORTED;
	if (request->attribute == CC_LOG)
		memset(request->mad + CC_AT_LOG, 0, FABRIC_MAD_BYTES - CC_AT_LOG);
	else
		memset(data, 0, 192);
	switch (request->attribute) {
	case CC_CLASS_PORT_INFO:
		data[0] = 1;
		data[1] = CC_VERSION;
		data[7] = 16;
		break;
	case CC_INFO:
		data[2] = is_switch ? 0 : 1; /* ControlTableCap */
		break;
	case CC_LOG:
		request->mad[CC_AT_LOG] = is_switch ? 1 : 2;
		break;
	case CC_TIMESTAMP:
		octets_put32(data, (uint32_t)((double)request->fabric->now_ms * 1000 / CC_TICK_US));
		break;
	default:
		break;
	}
	return ANSWER_OK;
}

/* The last block of ports that the switch has. */
static uint32_t last_block(const struct agent_request *request)
{
	return request->fabric->nodes[request->node].ports / 32u;
}

static uint16_t congestion_answer(struct agent_request *request)
{
	struct fabric_congestion *own = &request->fabric->congestion[request->node];
	bool is_switch = request->fabric->nodes[request->node].type == FABRIC_SWITCH;

	if (request->mad[MAD_AT_VERSION] != CC_VERSION)
		return ANSWER_VERSION;
	switch (request->attribute) {
	case CC_KEY_INFO:
		return key_info_answer(request, own);
	case CC_SWITCH_SETTING:
		return setting_answer(request, own->switch_setting, CC_SWITCH_SETTING_BYTES,
				      is_switch);
	case CC_SWITCH_PORT_SETTING:
		/* A block of 32 ports, of which the first has port 0. */
		if (is_switch && request->modifier > last_block(request))
			return ANSWER_INVALID;
		return setting_answer(request, own->switch_ports + request->modifier % 8 * 128u,
				      128, is_switch);
	case CC_CONTROL_TABLE:
		if (!is_switch && request->modifier)
			return ANSWER_INVALID;
		return setting_answer(request, own->control_table, sizeof own->control_table,
				      !is_switch);
	case CC_CA_SETTING:
		return setting_answer(request, own->ca_setting, sizeof own->ca_setting, !is_switch);
	case CC_CLASS_PORT_INFO:
	case CC_INFO:
	case CC_LOG:
	case CC_TIMESTAMP:
		return get_answer(request, is_switch);
	default:
		return ANSWER_UNSUPPORTED;
	}
}

enum agent_result congestion_process(struct agent_request *request)
{
	struct fabric_congestion *own = &request->fabric->congestion[request->node];
	uint64_t key = octets_get64(request->mad + CC_AT_KEY);

	if (request->method == METHOD_IS_REPRESS)
		return AGENT_SILENT;
	if (own->key && key != own->key && (request->method == METHOD_IS_SET || own->protect)) {
		own->violations += own->violations < UINT16_MAX;
		return AGENT_SILENT;
	}
	octets_put16(request->mad + MAD_AT_STATUS, congestion_answer(request));
	request->mad[MAD_AT_METHOD] = METHOD_IS_GET_RESPONSE;
	return AGENT_ANSWERS;
}
