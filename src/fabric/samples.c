/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sampling: PortSamplesControl asks a node to count a port's traffic over an interval that begins
 * some ticks later, PortSamplesResult tells what was counted. Each node has one mechanism, which
 * takes the five quantities that are mandatory. A row of TABLE_SAMPLERS is used from the first Set
 * until another node needs it; one whose interval isn't over is never taken away.
 *
 * States (enum fabric_sampling) and what leaves them:
 *   SAMPLING_DONE     samples_control_answer(), by a Set
 *   SAMPLING_STARTED  samplers_expire(), at start_ms
 *   SAMPLING_RUNS     samplers_expire(), at end_ms
 */
#include "fabric/internal.h"

#define TICK 249u /* in units of 4 ns, less one: a microsecond */
#define TICKS_PER_MS 1000u
#define WIDTH_32_BITS 4u
#define WIDTH_64_BITS 0x80000000u /* ExtendedWidth */
#define MASKS_0_TO_9 0x09249249u  /* each counter: the mandatory quantities */
#define MASKS_10_TO_14 0x1249u

enum {
	CONTROL_TICK = 2,
	CONTROL_WIDTH = 3,
	CONTROL_MASKS = 4,
	CONTROL_MASKS_MORE = 8,
	CONTROL_STATUS = 11,
	CONTROL_START = 28,
	CONTROL_INTERVAL = 32,
	CONTROL_TAG = 36,
	CONTROL_SELECT = 38,
};

enum { RESULT_STATUS = 2, RESULT_COUNTERS = 4, RESULT_EXTENDED_WIDTH = 4, RESULT_EXTENDED = 8 };

/* CounterSelect. 0 and all others count nothing. */
enum {
	SAMPLE_XMIT_WORDS = 1,
	SAMPLE_RCV_WORDS = 2,
	SAMPLE_XMIT_PACKETS = 3,
	SAMPLE_RCV_PACKETS = 4,
	SAMPLE_XMIT_WAIT = 5,
};

static uint64_t quantity_get(const struct fabric_counters *counters, uint16_t select)
{
	switch (select) {
	case SAMPLE_XMIT_WORDS:
		return counters->traffic[TRAFFIC_XMIT_WORDS];
	case SAMPLE_RCV_WORDS:
		return counters->traffic[TRAFFIC_RCV_WORDS];
	case SAMPLE_XMIT_PACKETS:
		return counters->traffic[TRAFFIC_XMIT_PACKETS];
	case SAMPLE_RCV_PACKETS:
		return counters->traffic[TRAFFIC_RCV_PACKETS];
	case SAMPLE_XMIT_WAIT:
		return counters->errors[ERROR_XMIT_WAIT];
	default:
		return 0;
	}
}

/* Time ----------------------------------------------------------------------------------------- */

static uint64_t sampler_deadline(const struct fabric_sampler *sampler)
{
	if (!sampler->is_used || sampler->status == SAMPLING_DONE)
		return UINT64_MAX;
	return sampler->status == SAMPLING_STARTED ? sampler->start_ms : sampler->end_ms;
}

/* Enters the state that follows. */
static void sampler_step(const struct fabric *fabric, struct fabric_sampler *sampler)
{
	uint32_t row = fabric_port_row(fabric, sampler->node, sampler->port);
	const struct fabric_counters *counters = &fabric->counters[row];
	bool begins = sampler->status == SAMPLING_STARTED;

	for (unsigned int i = 0; i < FABRIC_SAMPLES; i++) {
		uint64_t now = quantity_get(counters, sampler->select[i]);

		if (begins)
			sampler->before[i] = now;
		else
			/* A counter that was reset meanwhile counts from its reset. */
			sampler->value[i] =
				now >= sampler->before[i] ? now - sampler->before[i] : now;
	}
	sampler->status = begins ? SAMPLING_RUNS : SAMPLING_DONE;
}

void samplers_expire(struct fabric *fabric)
{
	for (unsigned int i = 0; i < FABRIC_SAMPLERS; i++)
		while (sampler_deadline(&fabric->samplers[i]) <= fabric->now_ms)
			sampler_step(fabric, &fabric->samplers[i]);
}

uint64_t samplers_deadline(const struct fabric *fabric)
{
	uint64_t first = UINT64_MAX;

	for (unsigned int i = 0; i < FABRIC_SAMPLERS; i++) {
		uint64_t at = sampler_deadline(&fabric->samplers[i]);

		if (at < first)
			first = at;
	}
	return first;
}

void samplers_check(struct fabric *fabric)
{
	for (unsigned int i = 0; i < FABRIC_SAMPLERS; i++) {
		struct fabric_sampler *sampler = &fabric->samplers[i];

		if (sampler->is_used &&
		    (sampler->node >= fabric->header->nodes || sampler->status > SAMPLING_RUNS ||
		     fabric_port_row(fabric, sampler->node, sampler->port) == FABRIC_NONE))
			sampler->is_used = false;
	}
}

/* Rows ----------------------------------------------------------------------------------------- */

static struct fabric_sampler *sampler_find(struct fabric *fabric, uint32_t node)
{
	for (unsigned int i = 0; i < FABRIC_SAMPLERS; i++)
		if (fabric->samplers[i].is_used && fabric->samplers[i].node == node)
			return &fabric->samplers[i];
	return NULL;
}

/* The node's row, or the one that was over first. NULL: all others' intervals aren't over. */
static struct fabric_sampler *sampler_take(struct fabric *fabric, uint32_t node)
{
	struct fabric_sampler *sampler = sampler_find(fabric, node);

	for (unsigned int i = 0; i < FABRIC_SAMPLERS && !sampler; i++)
		if (!fabric->samplers[i].is_used)
			sampler = &fabric->samplers[i];
	if (sampler)
		return sampler;
	for (unsigned int i = 0; i < FABRIC_SAMPLERS; i++) {
		struct fabric_sampler *other = &fabric->samplers[i];

		if (other->status == SAMPLING_DONE && (!sampler || other->end_ms < sampler->end_ms))
			sampler = other;
	}
	return sampler;
}

/* Attributes ----------------------------------------------------------------------------------- */

static void sampler_start(struct agent_request *request, struct fabric_sampler *sampler)
{
	const uint8_t *data = request->data;
	uint64_t now = request->fabric->now_ms;

	memset(sampler, 0, sizeof *sampler);
	sampler->node = request->node;
	sampler->port = data[1];
	sampler->start = octets_get32(data + CONTROL_START);
	sampler->interval = octets_get32(data + CONTROL_INTERVAL);
	sampler->tag = octets_get16(data + CONTROL_TAG);
	for (unsigned int i = 0; i < FABRIC_SAMPLES; i++)
		sampler->select[i] = octets_get16(data + CONTROL_SELECT + 2 * i);
	sampler->start_ms = now + sampler->start / TICKS_PER_MS;
	sampler->end_ms =
		sampler->start_ms + ((uint64_t)sampler->interval + TICKS_PER_MS - 1) / TICKS_PER_MS;
	sampler->status = SAMPLING_STARTED;
	sampler->is_used = true;
	samplers_expire(request->fabric);
	deadline_note(request->fabric, sampler_deadline(sampler));
}

static void control_show(uint8_t *data, const struct fabric_sampler *sampler)
{
	uint8_t opcode = data[0], port = data[1];

	memset(data, 0, 192);
	data[0] = opcode;
	data[1] = port;
	data[CONTROL_TICK] = TICK;
	data[CONTROL_WIDTH] = WIDTH_32_BITS;
	octets_put32(data + CONTROL_MASKS, MASKS_0_TO_9);
	octets_put16(data + CONTROL_MASKS_MORE, MASKS_10_TO_14);
	if (!sampler || sampler->port != port)
		return;
	data[CONTROL_STATUS] = sampler->status;
	octets_put32(data + CONTROL_START, sampler->start);
	octets_put32(data + CONTROL_INTERVAL, sampler->interval);
	octets_put16(data + CONTROL_TAG, sampler->tag);
	for (unsigned int i = 0; i < FABRIC_SAMPLES; i++)
		octets_put16(data + CONTROL_SELECT + 2 * i, sampler->select[i]);
}

/* A Set while an interval isn't over changes nothing: the answer's status field says why. */
uint16_t samples_control_answer(struct agent_request *request)
{
	struct fabric *fabric = request->fabric;
	struct fabric_sampler *sampler;
	struct port_selection ports;

	if (!pma_ports_select(request, &ports) || ports.count != 1 || request->modifier)
		return ANSWER_INVALID;
	samplers_expire(fabric);
	sampler = sampler_find(fabric, request->node);
	if (request->method == METHOD_IS_SET && (!sampler || sampler->status == SAMPLING_DONE)) {
		sampler = sampler_take(fabric, request->node);
		if (!sampler)
			return ANSWER_BUSY;
		sampler_start(request, sampler);
	}
	control_show(request->data, sampler);
	return ANSWER_OK;
}

uint16_t samples_result_answer(struct agent_request *request)
{
	bool is_extended = request->attribute == PM_SAMPLES_RESULT_EXTENDED;
	const struct fabric_sampler *sampler;
	uint8_t *data = request->data;

	if (request->method != METHOD_IS_GET)
		return ANSWER_UNSUPPORTED;
	if (request->modifier)
		return ANSWER_INVALID;
	samplers_expire(request->fabric);
	sampler = sampler_find(request->fabric, request->node);
	memset(data, 0, 192);
	if (is_extended)
		octets_put32(data + RESULT_EXTENDED_WIDTH, WIDTH_64_BITS);
	if (!sampler)
		return ANSWER_OK;
	octets_put16(data, sampler->tag);
	octets_put16(data + RESULT_STATUS, sampler->status);
	for (unsigned int i = 0; i < FABRIC_SAMPLES; i++) {
		uint64_t value = sampler->value[i];

		if (is_extended)
			octets_put64(data + RESULT_EXTENDED + 8 * i, value);
		else
			octets_put32(data + RESULT_COUNTERS + 4 * i,
				     value < UINT32_MAX ? (uint32_t)value : UINT32_MAX);
	}
	return ANSWER_OK;
}
