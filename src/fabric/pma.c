/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The performance management agent: a node's port counters, read and written by any of its ports.
 * PortCounters saturates, PortCountersExtended wraps; writing one doesn't change the other.
 */
#include "fabric/internal.h"

#define ALL_PORTS 255u

enum {
	CAPABLE_ALL_PORTS = 1 << 8,
	CAPABLE_EXTENDED = 1 << 9,
	CAPABLE_XMIT_WAIT = 1 << 12,
	CAPABLE_QP1_DROPPED = 1 << 15,
};
#define CAPABLE2_EXTENDED_ERRORS (1u << 1)

bool pma_ports_select(const struct agent_request *request, struct port_selection *selection)
{
	const struct fabric_node *node = &request->fabric->nodes[request->node];
	unsigned int number = request->data[1];
	bool is_switch = node->type == FABRIC_SWITCH;

	if (number == ALL_PORTS && is_switch) {
		*selection = (struct port_selection){node->first_port, node->ports + 1u};
		return true;
	}
	selection->first = fabric_port_row(request->fabric, request->node, number);
	selection->count = 1;
	return selection->first != FABRIC_NONE;
}

static uint16_t class_port_info_answer(struct agent_request *request)
{
	bool is_switch = request->fabric->nodes[request->node].type == FABRIC_SWITCH;
	uint8_t *data = request->data;

	if (request->method != METHOD_IS_GET)
		return ANSWER_UNSUPPORTED;
	memset(data, 0, 192);
	data[0] = data[1] = 1;
	octets_put16(data + 2, CAPABLE_EXTENDED | CAPABLE_XMIT_WAIT | CAPABLE_QP1_DROPPED |
				       (is_switch ? CAPABLE_ALL_PORTS : 0));
	octets_put32(data + 4, CAPABLE2_EXTENDED_ERRORS << 5 | 16);
	return ANSWER_OK;
}

/* PortCounters --------------------------------------------------------------------------------- */

/* Where an error stands, how many bits it has, and which bit of CounterSelect names it. */
struct short_field {
	uint8_t at, bits, select;
	bool is_low; /* the lower nibble */
};

static const struct short_field short_fields[ERRORS_OF_PORT_COUNTERS] = {
	[ERROR_SYMBOL] = {4, 16, 0, false},
	[ERROR_LINK_RECOVERY] = {6, 8, 1, false},
	[ERROR_LINK_DOWNED] = {7, 8, 2, false},
	[ERROR_RCV] = {8, 16, 3, false},
	[ERROR_RCV_REMOTE_PHYSICAL] = {10, 16, 4, false},
	[ERROR_RCV_SWITCH_RELAY] = {12, 16, 5, false},
	[ERROR_XMIT_DISCARDS] = {14, 16, 6, false},
	[ERROR_XMIT_CONSTRAINT] = {16, 8, 7, false},
	[ERROR_RCV_CONSTRAINT] = {17, 8, 8, false},
	[ERROR_LOCAL_INTEGRITY] = {19, 4, 9, false},
	[ERROR_BUFFER_OVERRUN] = {19, 4, 10, true},
	[ERROR_QP1_DROPPED] = {20, 16, 17, false},
	[ERROR_VL15_DROPPED] = {22, 16, 11, false},
	[ERROR_XMIT_WAIT] = {40, 32, 16, false},
};

enum { SHORT_TRAFFIC_AT = 24, SHORT_TRAFFIC_SELECT = 12, SHORT_SELECT2_AT = 18 };

static uint32_t short_get(const uint8_t *data, const struct short_field *field)
{
	switch (field->bits) {
	case 4:
		return field->is_low ? octet_low(data[field->at]) : octet_high(data[field->at]);
	case 8:
		return data[field->at];
	case 16:
		return octets_get16(data + field->at);
	default:
		return octets_get32(data + field->at);
	}
}

static void short_put(uint8_t *data, const struct short_field *field, uint64_t value)
{
	uint64_t most = (1ull << field->bits) - 1;

	if (value > most)
		value = most;
	switch (field->bits) {
	case 4:
		if (field->is_low)
			octet_set_low(&data[field->at], (uint8_t)value);
		else
			octet_set_high(&data[field->at], (uint8_t)value);
		break;
	case 8:
		data[field->at] = (uint8_t)value;
		break;
	case 16:
		octets_put16(data + field->at, (uint16_t)value);
		break;
	default:
		octets_put32(data + field->at, (uint32_t)value);
		break;
	}
}

static void short_write(struct fabric_counters *counters, const uint8_t *data)
{
	uint32_t select = octets_get16(data + 2) | (uint32_t)data[SHORT_SELECT2_AT] << 16;

	for (int error = 0; error < ERRORS_OF_PORT_COUNTERS; error++)
		if (select >> short_fields[error].select & 1)
			counters->errors_short[error] = short_get(data, &short_fields[error]);
	for (int kind = 0; kind < 4; kind++)
		if (select >> (SHORT_TRAFFIC_SELECT + kind) & 1)
			counters->traffic_short[kind] =
				octets_get32(data + SHORT_TRAFFIC_AT + 4 * kind);
}

static void short_read(const struct fabric *fabric, const struct port_selection *ports,
		       uint8_t *data)
{
	static const struct short_field word = {.bits = 32};

	memset(data + 4, 0, 188);
	for (int error = 0; error < ERRORS_OF_PORT_COUNTERS; error++) {
		uint64_t sum = 0;

		for (uint32_t i = 0; i < ports->count; i++)
			sum += fabric->counters[ports->first + i].errors_short[error];
		short_put(data, &short_fields[error], sum);
	}
	for (int kind = 0; kind < 4; kind++) {
		struct short_field field = word;
		uint64_t sum = 0;

		for (uint32_t i = 0; i < ports->count; i++)
			sum += fabric->counters[ports->first + i].traffic_short[kind];
		field.at = (uint8_t)(SHORT_TRAFFIC_AT + 4 * kind);
		short_put(data, &field, sum);
	}
}

static uint16_t counters_answer(struct agent_request *request)
{
	struct port_selection ports;

	if (!pma_ports_select(request, &ports))
		return ANSWER_INVALID;
	if (request->method == METHOD_IS_SET)
		for (uint32_t i = 0; i < ports.count; i++)
			short_write(&request->fabric->counters[ports.first + i], request->data);
	short_read(request->fabric, &ports, request->data);
	return ANSWER_OK;
}

/* PortCountersExtended ------------------------------------------------------------------------- */

/* The order in which the errors stand there. */
static const uint8_t extended_order[ERRORS_OF_PORT_COUNTERS] = {
	ERROR_SYMBOL,
	ERROR_LINK_RECOVERY,
	ERROR_LINK_DOWNED,
	ERROR_RCV,
	ERROR_RCV_REMOTE_PHYSICAL,
	ERROR_RCV_SWITCH_RELAY,
	ERROR_XMIT_DISCARDS,
	ERROR_XMIT_CONSTRAINT,
	ERROR_RCV_CONSTRAINT,
	ERROR_LOCAL_INTEGRITY,
	ERROR_BUFFER_OVERRUN,
	ERROR_VL15_DROPPED,
	ERROR_XMIT_WAIT,
	ERROR_QP1_DROPPED,
};

enum { EXTENDED_TRAFFIC_AT = 8, EXTENDED_ERRORS_AT = 72 };

static void extended_write(struct fabric_counters *counters, const uint8_t *data)
{
	uint16_t select = octets_get16(data + 2);
	uint32_t select2 = octets_get32(data + 4);

	for (int kind = 0; kind < TRAFFICS; kind++)
		if (select >> kind & 1)
			counters->traffic[kind] =
				octets_get64(data + EXTENDED_TRAFFIC_AT + 8 * kind);
	for (int i = 0; i < ERRORS_OF_PORT_COUNTERS; i++)
		if (select2 >> i & 1)
			counters->errors[extended_order[i]] =
				octets_get64(data + EXTENDED_ERRORS_AT + 8 * i);
}

static uint16_t extended_answer(struct agent_request *request)
{
	const struct fabric *fabric = request->fabric;
	uint8_t *data = request->data;
	struct port_selection ports;

	if (!pma_ports_select(request, &ports))
		return ANSWER_INVALID;
	if (request->method == METHOD_IS_SET)
		for (uint32_t i = 0; i < ports.count; i++)
			extended_write(&fabric->counters[ports.first + i], data);
	memset(data + 8, 0, 184);
	for (int kind = 0; kind < TRAFFICS; kind++) {
		uint64_t sum = 0;

		for (uint32_t i = 0; i < ports.count; i++)
			sum += fabric->counters[ports.first + i].traffic[kind];
		octets_put64(data + EXTENDED_TRAFFIC_AT + 8 * kind, sum);
	}
	for (int error = 0; error < ERRORS_OF_PORT_COUNTERS; error++) {
		uint64_t sum = 0;

		for (uint32_t i = 0; i < ports.count; i++)
			sum += fabric->counters[ports.first + i].errors[extended_order[error]];
		octets_put64(data + EXTENDED_ERRORS_AT + 8 * error, sum);
	}
	return ANSWER_OK;
}

/* Dispatch ---------------------------------------------------------------------------------------
 */

static uint16_t pma_answer(struct agent_request *request)
{
	if (request->mad[MAD_AT_VERSION] != 1)
		return ANSWER_VERSION;
	switch (request->attribute) {
	case PM_CLASS_PORT_INFO:
		return class_port_info_answer(request);
	case PM_SAMPLES_CONTROL:
		return samples_control_answer(request);
	case PM_SAMPLES_RESULT:
	case PM_SAMPLES_RESULT_EXTENDED:
		return samples_result_answer(request);
	case PM_COUNTERS:
		return counters_answer(request);
	case PM_COUNTERS_EXTENDED:
		return extended_answer(request);
	default:
		return pma_detail_answer(request);
	}
}

enum agent_result pma_process(struct agent_request *request)
{
	if (request->method == METHOD_IS_REPRESS)
		return AGENT_SILENT;
	octets_put16(request->mad + MAD_AT_STATUS, pma_answer(request));
	request->mad[MAD_AT_METHOD] = METHOD_IS_GET_RESPONSE;
	return AGENT_ANSWERS;
}
