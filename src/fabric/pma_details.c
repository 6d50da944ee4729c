/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attributes of the performance management agent beside PortCounters: causes of errors, words by
 * service level, flow control, waits by lane. What doesn't happen here (FECN and BECN, corrected
 * errors) is counted as 0: those attributes can be read, and reset.
 */
#include "fabric/internal.h"

/* A counter that the attribute has for each cause, 16 bits wide. */
static void causes_answer(struct agent_request *request, const struct port_selection *ports,
			  int first, int count)
{
	struct fabric *fabric = request->fabric;
	uint16_t select = octets_get16(request->data + 2);

	for (int i = 0; i < count; i++) {
		uint8_t *field = request->data + 4 + 2 * i;
		uint16_t value = octets_get16(field);
		uint32_t sum = 0;

		for (uint32_t n = 0; n < ports->count; n++) {
			uint16_t *detail = &fabric->counters[ports->first + n].details[first + i];

			if (request->method == METHOD_IS_SET && (select >> i & 1))
				*detail = value;
			sum += *detail;
		}
		octets_put16(field, sum < UINT16_MAX ? (uint16_t)sum : UINT16_MAX);
	}
	memset(request->data + 4 + 2 * count, 0, (size_t)(188 - 2 * count));
}

/* Words by service level, 32 bits wide. */
static void sl_words_answer(struct agent_request *request, const struct port_selection *ports,
			    bool is_receiver)
{
	uint16_t select = octets_get16(request->data + 2);

	for (unsigned int sl = 0; sl < FABRIC_SLS; sl++) {
		uint8_t *field = request->data + 4 + 4 * sl;
		uint32_t value = octets_get32(field);
		uint64_t sum = 0;

		for (uint32_t n = 0; n < ports->count; n++) {
			uint32_t *words =
				&request->fabric
					 ->sl_words[((size_t)(ports->first + n) * 2 + is_receiver) *
							    FABRIC_SLS +
						    sl];

			if (request->method == METHOD_IS_SET && (select >> sl & 1))
				*words = value;
			sum += *words;
		}
		octets_put32(field, sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX);
	}
	memset(request->data + 4 + 4 * FABRIC_SLS, 0, 188 - 4 * FABRIC_SLS);
}

/* Ticks by lane, 16 bits wide; lanes that no port has are 0. */
static void lane_waits_answer(struct agent_request *request, const struct port_selection *ports)
{
	uint16_t select = octets_get16(request->data + 2);

	memset(request->data + 4 + 2 * FABRIC_VLS, 0, 188 - 2 * FABRIC_VLS);
	for (unsigned int vl = 0; vl < FABRIC_VLS; vl++) {
		uint8_t *field = request->data + 4 + 2 * vl;
		uint16_t value = octets_get16(field);
		uint32_t sum = 0;

		for (uint32_t n = 0; n < ports->count; n++) {
			size_t row = ports->first + n;
			uint16_t *waits = &request->fabric->lane_waits[row * FABRIC_VLS + vl];

			if (request->method == METHOD_IS_SET && (select >> vl & 1))
				*waits = value;
			sum += *waits;
		}
		octets_put16(field, sum < UINT16_MAX ? (uint16_t)sum : UINT16_MAX);
	}
}

/* Two bits for each lane, of which lane 0 has them all. */
static void flow_errors_answer(struct agent_request *request, const struct port_selection *ports)
{
	bool writes = request->method == METHOD_IS_SET && (octets_get16(request->data + 2) & 1);
	uint8_t value = request->data[4] >> 6;
	uint32_t sum = 0;

	for (uint32_t n = 0; n < ports->count; n++) {
		uint32_t *errors = &request->fabric->counters[ports->first + n]
					    .errors_short[ERROR_FLOW_CONTROL];

		if (writes)
			*errors = value;
		sum += *errors;
	}
	memset(request->data + 4, 0, 188);
	request->data[4] = (uint8_t)((sum < 3 ? sum : 3) << 6);
}

uint16_t pma_detail_answer(struct agent_request *request)
{
	struct port_selection ports;
	bool is_there = pma_ports_select(request, &ports);

	switch (request->attribute) {
	case PM_RCV_DETAILS:
	case PM_XMIT_DETAILS:
	case PM_XMIT_DATA_SL:
	case PM_RCV_DATA_SL:
	case PM_FLOW_CONTROL:
	case PM_VL_FLOW_ERRORS:
	case PM_VL_XMIT_WAIT:
	case PM_EXTENDED_SPEEDS:
	case PM_VL_CONGESTION:
	case PM_RCV_CONGESTION:
	case PM_SL_RCV_FECN:
	case PM_SL_RCV_BECN:
	case PM_XMIT_CONGESTION:
	case PM_VL_XMIT_CONGESTION_TIME:
		break;
	default:
		return ANSWER_UNSUPPORTED;
	}
	if (!is_there)
		return ANSWER_INVALID;
	if (request->attribute == PM_RCV_DETAILS)
		causes_answer(request, &ports, DETAIL_LOCAL_PHYSICAL, 6);
	else if (request->attribute == PM_XMIT_DETAILS)
		causes_answer(request, &ports, DETAIL_INACTIVE, 4);
	else if (request->attribute == PM_XMIT_DATA_SL || request->attribute == PM_RCV_DATA_SL)
		sl_words_answer(request, &ports, request->attribute == PM_RCV_DATA_SL);
	else if (request->attribute == PM_VL_FLOW_ERRORS)
		flow_errors_answer(request, &ports);
	else if (request->attribute == PM_VL_XMIT_WAIT)
		lane_waits_answer(request, &ports);
	else
		memset(request->data + 4, 0, 188);
	return ANSWER_OK;
}
