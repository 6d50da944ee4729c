/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The performance management agent against a model: datagrams by random routes and service levels,
 * errors, and random requests for counters, their resets and samples. The model knows each hop of
 * the small net by its own copy of the forwarding tables, counts into plain arrays, and was written
 * without the core's code. Each seed is one net and 300 steps, always the same.
 *
 *   sim_fabric_performance [COUNT] [FIRST]
 */
#include "../unit/fabric/net.h"
#include "fabric_seeds.h"

enum { STEPS = 300, SWITCHES = 2, PORTS = 9, WORDS = 72, GET = 1, SET = 2, SAMPLES = 15 };
enum { KINDS = 4, WAIT = 13, PORT_ERRORS = 14, FLOW = 14, ALL_ERRORS = 15, CAUSES = 10 };

/* What a port has counted. Errors are in the order of enum fabric_error. */
struct counts {
	uint64_t traffic[8], errors[ALL_ERRORS];
	uint32_t traffic_short[KINDS], errors_short[ALL_ERRORS], sl[2][16];
	uint16_t causes[CAUSES];
	uint16_t lane_waits[FABRIC_VLS];
};

struct sampler {
	bool is_used;
	uint64_t start_ms, end_ms, before[SAMPLES], value[SAMPLES];
	uint16_t tag, select[SAMPLES];
	uint8_t port, status; /* 0 done, 1 to begin, 2 runs */
};

struct model {
	struct counts counts[NODES][PORTS];
	struct sampler samplers[NODES];
	uint64_t now_ms;
};

/* The net -------------------------------------------------------------------------------------- */

static const uint16_t lids[NODES] = {LID_S1, LID_S2, LID_H1, LID_H2, LID_H3, LID_H4};
static const uint8_t tables[SWITCHES][7] = {{0, 1, 0, 7, 2, 7, 8}, {0, 7, 7, 0, 8, 1, 2}};

struct place {
	uint32_t node;
	unsigned int port;
};

static struct place peer_of(struct place at)
{
	for (unsigned int i = 0; i < sizeof net_cables / sizeof net_cables[0]; i++)
		for (int end = 0; end < 2; end++)
			if (net_cables[i].node[end] == at.node &&
			    net_cables[i].port[end] == at.port)
				return (struct place){net_cables[i].node[!end],
						      net_cables[i].port[!end]};
	abort();
}

static uint32_t add_up_to(uint32_t value, uint64_t more, uint32_t most)
{
	return more < most - value ? value + (uint32_t)more : most;
}

static void place_count(struct model *model, struct place at, bool is_receiver, unsigned int sl)
{
	struct counts *counts = &model->counts[at.node][at.port];

	counts->traffic[0 + is_receiver] += WORDS;
	counts->traffic[2 + is_receiver] += 1;
	counts->traffic[4 + is_receiver] += 1;
	counts->traffic_short[0 + is_receiver] =
		add_up_to(counts->traffic_short[0 + is_receiver], WORDS, UINT32_MAX);
	counts->traffic_short[2 + is_receiver] =
		add_up_to(counts->traffic_short[2 + is_receiver], 1, UINT32_MAX);
	counts->sl[is_receiver][sl] = add_up_to(counts->sl[is_receiver][sl], WORDS, UINT32_MAX);
}

/* A datagram goes from one node to another. Returns the port by which it comes. */
static unsigned int model_send(struct model *model, uint32_t from, uint32_t to, unsigned int sl)
{
	struct place at = {from, from < SWITCHES ? 0 : 1};

	while (at.node != to) {
		if (at.node < SWITCHES)
			at.port = tables[at.node][lids[to]];
		place_count(model, at, false, sl);
		at = peer_of(at);
		place_count(model, at, true, sl);
	}
	return at.port;
}

/* Errors --------------------------------------------------------------------------------------- */

static const struct error_field {
	uint8_t at, bits, select;
} fields[PORT_ERRORS] = {
	{4, 16, 0}, {6, 8, 1},	{7, 8, 2},   {8, 16, 3},  {10, 16, 4},	{12, 16, 5},  {14, 16, 6},
	{16, 8, 7}, {17, 8, 8}, {19, 44, 9}, {19, 4, 10}, {20, 16, 17}, {22, 16, 11}, {40, 32, 16},
};

static uint32_t field_most(unsigned int error)
{
	unsigned int bits = error == FLOW ? 2 : fields[error].bits % 40;

	return bits == 32 ? UINT32_MAX : (1u << bits) - 1;
}

static void model_error(struct model *model, struct place at, unsigned int error, uint32_t count)
{
	struct counts *counts = &model->counts[at.node][at.port];

	counts->errors[error] += count;
	counts->errors_short[error] =
		add_up_to(counts->errors_short[error], count, field_most(error));
}

/* What the node answers ------------------------------------------------------------------------ */

struct asked {
	uint32_t node;
	unsigned int first, count; /* ports */
	uint8_t method, attribute;
	const uint8_t *data;
};

static uint64_t field_get(const uint8_t *data, unsigned int at, unsigned int bits)
{
	uint64_t value = 0;

	if (bits == 44) /* the upper nibble */
		return data[at] >> 4;
	if (bits == 4)
		return data[at] & 15;
	for (unsigned int i = 0; i < bits / 8; i++)
		value = value << 8 | data[at + i];
	return value;
}

static void field_put(uint8_t *data, unsigned int at, unsigned int bits, uint64_t value)
{
	if (bits == 44)
		data[at] |= (uint8_t)(value << 4);
	else if (bits == 4)
		data[at] |= (uint8_t)value;
	else
		for (unsigned int i = bits / 8; i--; value >>= 8)
			data[at + i] = (uint8_t)value;
}

static void expect_short(struct counts *ports, const struct asked *asked, uint8_t *expected)
{
	uint32_t select = octets_get16(asked->data + 2) | (uint32_t)asked->data[18] << 16;

	for (unsigned int error = 0; error < PORT_ERRORS; error++) {
		const struct error_field *field = &fields[error];
		uint64_t sum = 0;

		for (unsigned int i = 0; i < asked->count; i++) {
			if (asked->method == SET && (select >> field->select & 1))
				ports[i].errors_short[error] =
					(uint32_t)field_get(asked->data, field->at, field->bits);
			sum += ports[i].errors_short[error];
		}
		field_put(expected, field->at, field->bits,
			  sum < field_most(error) ? sum : field_most(error));
	}
	for (unsigned int kind = 0; kind < KINDS; kind++) {
		uint64_t sum = 0;

		for (unsigned int i = 0; i < asked->count; i++) {
			if (asked->method == SET && (select >> (12 + kind) & 1))
				ports[i].traffic_short[kind] =
					(uint32_t)field_get(asked->data, 24 + 4 * kind, 32);
			sum += ports[i].traffic_short[kind];
		}
		field_put(expected, 24 + 4 * kind, 32, sum < UINT32_MAX ? sum : UINT32_MAX);
	}
}

static void expect_extended(struct counts *ports, const struct asked *asked, uint8_t *expected)
{
	/* QP1Dropped comes last there. */
	static const uint8_t order[PORT_ERRORS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 11};
	uint16_t select = octets_get16(asked->data + 2);
	uint32_t select2 = octets_get32(asked->data + 4);

	memcpy(expected + 4, asked->data + 4, 4);
	for (unsigned int n = 0; n < 8 + PORT_ERRORS; n++) {
		unsigned int at = n < 8 ? 8 + 8 * n : 72 + 8 * (n - 8);
		bool is_named = n < 8 ? select >> n & 1 : select2 >> (n - 8) & 1;
		uint64_t sum = 0;

		for (unsigned int i = 0; i < asked->count; i++) {
			uint64_t *value =
				n < 8 ? &ports[i].traffic[n] : &ports[i].errors[order[n - 8]];

			if (asked->method == SET && is_named)
				*value = field_get(asked->data, at, 64);
			sum += *value;
		}
		field_put(expected, at, 64, sum);
	}
}

static void expect_levels(struct counts *ports, const struct asked *asked, uint8_t *expected)
{
	for (unsigned int sl = 0; sl < 16; sl++) {
		uint64_t sum = 0;

		for (unsigned int i = 0; i < asked->count; i++) {
			uint32_t *words = &ports[i].sl[asked->attribute == 0x37][sl];

			if (asked->method == SET && (octets_get16(asked->data + 2) >> sl & 1))
				*words = octets_get32(asked->data + 4 + 4 * sl);
			sum += *words;
		}
		field_put(expected, 4 + 4 * sl, 32, sum < UINT32_MAX ? sum : UINT32_MAX);
	}
}

static void expect_causes(struct counts *ports, const struct asked *asked, uint8_t *expected)
{
	unsigned int first = asked->attribute == 0x15 ? 0 : 6;

	for (unsigned int n = 0; n < (first ? 4u : 6u); n++) {
		uint32_t sum = 0;

		for (unsigned int i = 0; i < asked->count; i++) {
			uint16_t *cause = &ports[i].causes[first + n];

			if (asked->method == SET && (octets_get16(asked->data + 2) >> n & 1))
				*cause = octets_get16(asked->data + 4 + 2 * n);
			sum += *cause;
		}
		field_put(expected, 4 + 2 * n, 16, sum < UINT16_MAX ? sum : UINT16_MAX);
	}
}

static void expect_flow(struct counts *ports, const struct asked *asked, uint8_t *expected)
{
	uint32_t sum = 0;

	for (unsigned int i = 0; i < asked->count; i++) {
		if (asked->method == SET && (asked->data[3] & 1))
			ports[i].errors_short[FLOW] = asked->data[4] >> 6;
		sum += ports[i].errors_short[FLOW];
	}
	expected[4] = (uint8_t)((sum < 3 ? sum : 3) << 6);
}

/* PortVLXmitWait: the lanes that are selected are written. */
static void expect_lane_waits(struct counts *ports, const struct asked *asked, uint8_t *expected)
{
	for (unsigned int vl = 0; vl < FABRIC_VLS; vl++) {
		uint32_t sum = 0;

		for (unsigned int i = 0; i < asked->count; i++) {
			uint16_t *waits = &ports[i].lane_waits[vl];

			if (asked->method == SET && (octets_get16(asked->data + 2) >> vl & 1))
				*waits = octets_get16(asked->data + 4 + 2 * vl);
			sum += *waits;
		}
		octets_put16(expected + 4 + 2 * vl,
			     (uint16_t)(sum < UINT16_MAX ? sum : UINT16_MAX));
	}
}

/* Samples -------------------------------------------------------------------------------------- */

static uint64_t quantity(const struct counts *counts, uint16_t select)
{
	if (select >= 1 && select <= 4)
		return counts->traffic[select - 1];
	return select == 5 ? counts->errors[WAIT] : 0;
}

/* Samples that were due before the next step. */
static void model_samples(struct model *model)
{
	for (uint32_t node = 0; node < NODES; node++) {
		struct sampler *own = &model->samplers[node];
		const struct counts *counts = &model->counts[node][own->port];

		if (own->status == 1 && own->start_ms <= model->now_ms) {
			for (int i = 0; i < SAMPLES; i++)
				own->before[i] = quantity(counts, own->select[i]);
			own->status = 2;
		}
		if (own->status != 2 || own->end_ms > model->now_ms)
			continue;
		for (int i = 0; i < SAMPLES; i++) {
			uint64_t now = quantity(counts, own->select[i]);

			own->value[i] = now >= own->before[i] ? now - own->before[i] : now;
		}
		own->status = 0;
	}
}

static void expect_control(struct model *model, const struct asked *asked, uint8_t *expected)
{
	struct sampler *own = &model->samplers[asked->node];

	if (asked->method == SET && !own->status) {
		uint32_t start = octets_get32(asked->data + 28);
		uint32_t interval = octets_get32(asked->data + 32);

		memset(own, 0, sizeof *own);
		own->is_used = true;
		own->port = (uint8_t)asked->first;
		own->status = 1;
		own->tag = octets_get16(asked->data + 36);
		own->start_ms = model->now_ms + start / 1000;
		own->end_ms = own->start_ms + (interval + 999ull) / 1000;
		for (int i = 0; i < SAMPLES; i++)
			own->select[i] = octets_get16(asked->data + 38 + 2 * i);
		model_samples(model);
	}
	expected[0] = asked->data[0];
	expected[2] = 249;
	expected[3] = 4;
	field_put(expected, 4, 32, 0x09249249);
	field_put(expected, 8, 16, 0x1249);
	if (!own->is_used || own->port != asked->first)
		return;
	expected[11] = own->status;
	field_put(expected, 36, 16, own->tag);
	for (int i = 0; i < SAMPLES; i++)
		field_put(expected, 38 + 2u * (unsigned int)i, 16, own->select[i]);
}

static void expect_result(const struct model *model, const struct asked *asked, uint8_t *expected)
{
	const struct sampler *own = &model->samplers[asked->node];
	bool is_long = asked->attribute == 0x1e;

	if (is_long)
		expected[4] = 0x80;
	field_put(expected, 0, 16, own->is_used ? own->tag : 0);
	expected[3] = own->status;
	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t value = own->value[i];

		if (!is_long && value > UINT32_MAX)
			value = UINT32_MAX;
		field_put(expected, is_long ? 8 + 8 * i : 4 + 4 * i, is_long ? 64 : 32, value);
	}
}

/* Requests ------------------------------------------------------------------------------------- */

/* The status; `expected` is what the attribute reads then. */
static int expect_any(struct model *model, struct asked *asked, uint8_t expected[192])
{
	unsigned int port = asked->data[1], ports = asked->node < SWITCHES ? 8 : 1;
	bool is_there = port <= ports && (port || asked->node < SWITCHES);
	struct counts *counts = model->counts[asked->node];

	if (asked->node == NODE_H4 && port == 2)
		is_there = true;
	asked->first = port == 255 ? 0 : port;
	asked->count = port == 255 ? ports + 1 : 1;
	memset(expected, 0, 192);
	if (asked->attribute == 0x11 || asked->attribute == 0x1e) {
		if (asked->method == SET)
			return 0x0c;
		expect_result(model, asked, expected);
		return 0;
	}
	if (asked->attribute == 0x17 || asked->attribute == 0x20)
		return 0x0c;
	if (port == 255 && (asked->node >= SWITCHES || asked->attribute == 0x10))
		return 0x1c;
	if (port != 255 && !is_there)
		return 0x1c;
	memcpy(expected, asked->data, 4);
	if (asked->attribute == 0x12)
		expect_short(counts + asked->first, asked, expected);
	else if (asked->attribute == 0x1d)
		expect_extended(counts + asked->first, asked, expected);
	else if (asked->attribute == 0x36 || asked->attribute == 0x37)
		expect_levels(counts + asked->first, asked, expected);
	else if (asked->attribute == 0x15 || asked->attribute == 0x16)
		expect_causes(counts + asked->first, asked, expected);
	else if (asked->attribute == 0x1b)
		expect_flow(counts + asked->first, asked, expected);
	else if (asked->attribute == 0x1c)
		expect_lane_waits(counts + asked->first, asked, expected);
	else if (asked->attribute == 0x10)
		expect_control(model, asked, expected);
	return 0;
}

static void data_roll(uint8_t data[192], uint8_t attribute)
{
	for (int i = 0; i < 192; i++)
		data[i] = (uint8_t)(dice_roll(4) ? 0 : dice_roll(256));
	data[0] = (uint8_t)dice_roll(3);
	data[1] = (uint8_t)(dice_roll(6) ? dice_roll(10) : 255);
	data[2] = (uint8_t)dice_roll(256);
	data[3] = (uint8_t)dice_roll(256);
	if (attribute != 0x10)
		return;
	octets_put32(data + 28, dice_roll(4000));
	octets_put32(data + 32, dice_roll(20000));
	for (int i = 0; i < SAMPLES; i++)
		octets_put16(data + 38 + 2 * i, (uint16_t)dice_roll(7));
}

static bool answer_check(const struct net *net, const struct asked *asked, int status,
			 const uint8_t expected[192])
{
	int got = octets_get16(net->mad + 4);

	if (got == status && net->mad[3] == 0x81 && net->mad[17] == asked->attribute &&
	    (status || asked->attribute == 0x10 || !memcmp(net->mad + 64, expected, 192)) &&
	    (status || asked->attribute != 0x10 ||
	     (!memcmp(net->mad + 64 + 1, expected + 1, 27) &&
	      !memcmp(net->mad + 64 + 36, expected + 36, 156))))
		return true;
	printf("attribute 0x%x method %d port %d at node %u: status 0x%x, model 0x%x\n",
	       asked->attribute, asked->method, asked->data[1], asked->node, got, status);
	for (int i = 0; i < 192 && !status; i++)
		if (net->mad[64 + i] != expected[i])
			printf("  octet %d: 0x%02x, model 0x%02x\n", i, net->mad[64 + i],
			       expected[i]);
	return false;
}

static bool request_run(struct net *net, struct model *model)
{
	static const uint8_t attributes[] = {0x12, 0x12, 0x1d, 0x1d, 0x36, 0x37, 0x15, 0x16, 0x1b,
					     0x1c, 0x30, 0x10, 0x10, 0x11, 0x1e, 0x17, 0x20};
	uint8_t mad[256] = {
		1, 0x04, 1,
		dice_roll(3) ? GET : SET, [17] = attributes[dice_roll(sizeof attributes)]};
	struct asked asked = {
		.node = dice_roll(NODES), .method = mad[3], .attribute = mad[17], .data = mad + 64};
	uint32_t from = dice_roll(NODES);
	unsigned int sl = dice_roll(16);
	struct fabric_address to = {.destination = lids[asked.node],
				    .source_qp = 1,
				    .destination_qp = 1,
				    .qkey = 0x80010000u,
				    .sl = (uint8_t)sl};
	unsigned int before = net->delivered;
	uint8_t expected[192];
	int status;

	data_roll(mad + 64, mad[17]);
	model_samples(model);
	model_send(model, from, asked.node, sl);
	status = expect_any(model, &asked, expected);
	model_send(model, asked.node, from, sl);
	fabric_send(&net->fabric, net_row(net, from, from >= SWITCHES), &to, mad, model->now_ms);
	if (net->delivered != before + 1) {
		printf("attribute 0x%x isn't answered\n", mad[17]);
		return false;
	}
	return answer_check(net, &asked, status, expected);
}

static void error_run(struct net *net, struct model *model)
{
	struct place at = {.node = dice_roll(NODES)};
	unsigned int error = dice_roll(ALL_ERRORS);
	uint32_t count = dice_roll(4) ? dice_roll(20) : dice_roll(100000);

	at.port = at.node < SWITCHES ? dice_roll(PORTS) : 1;
	model_error(model, at, error, count);
	fabric_error_add(&net->fabric, net_row(net, at.node, at.port), error, count);
}

static void wait_run(struct net *net, struct model *model)
{
	struct place at = {.node = dice_roll(NODES)};
	uint32_t ticks = dice_roll(4) ? dice_roll(200) : dice_roll(100000);
	uint8_t vl = (uint8_t)dice_roll(FABRIC_VLS);

	at.port = at.node < SWITCHES ? dice_roll(PORTS) : 1;
	uint16_t *waits = &model->counts[at.node][at.port].lane_waits[vl];

	*waits = (uint16_t)add_up_to(*waits, ticks, UINT16_MAX);
	model_error(model, at, WAIT, ticks);
	fabric_wait_add(&net->fabric, net_row(net, at.node, at.port), vl, ticks);
}

static bool seed_run(uint64_t seed)
{
	static struct model model;
	struct net *net = net_create();
	bool is_right = true;

	dice_seed(seed);
	memset(&model, 0, sizeof model);
	model.now_ms = 1000;
	net_configure(net);
	/* No manager: the traps that errors make would be datagrams of their own. */
	for (uint32_t row = 0; row < net->fabric.header->ports; row++)
		octets_put16(net->fabric.ports[row].info + INFO_SM_LID, 0);
	for (int i = 0; i < STEPS && is_right; i++) {
		if (!dice_roll(5))
			error_run(net, &model);
		if (!dice_roll(8))
			wait_run(net, &model);
		if (!dice_roll(3)) {
			model.now_ms += dice_roll(10);
			model_samples(&model);
			fabric_expire(&net->fabric, model.now_ms);
		}
		is_right = request_run(net, &model);
	}
	net_free(net);
	return is_right;
}

int main(int argc, char **argv)
{
	return seeds_run(argc, argv, seed_run);
}
