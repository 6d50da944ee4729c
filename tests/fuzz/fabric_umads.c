/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that write arbitrary packets to two umad devices, of H1 and H3: agents come and go,
 * messages of any length and with any header are sent, time passes. Between the agents (src/mad)
 * and the fabric is the queue that verbena-fabric has. At the end nothing may be left.
 */
#include "../unit/fabric/net.h"
#include "base/list.h"
#include "input.h"
#include "mad/mad.h"

#include <endian.h>

enum { FILES = 3, QUEUE = 4096 };

struct place {
	struct mad_port mad;
	uint32_t row;
};

struct queued {
	uint32_t row;
	int qpn;
	struct ib_mad_addr to;
	uint8_t mad[256];
};

static struct net *net;
static struct mad_system mads;
static struct place places[2];
static struct queued queue[QUEUE];
static unsigned int queue_first, queue_count;
static uint64_t now;

static void umad_transmit(struct mad_port *port, int qpn, const struct ib_mad_addr *to,
			  const uint8_t *mad)
{
	const struct place *place = container_of(port, struct place, mad);
	struct queued *at = &queue[(queue_first + queue_count) % QUEUE];

	if (queue_count == QUEUE)
		return;
	queue_count++;
	at->row = place->row;
	at->qpn = qpn;
	at->to = *to;
	memcpy(at->mad, mad, 256);
}

static void umad_deliver(void *reader, const struct ib_user_mad *header, const uint8_t *mad,
			 size_t bytes)
{
	/* Reads all of it: the sanitizer looks whether it is there. */
	unsigned int sum = 0;

	(void)reader;
	for (size_t i = 0; i < bytes; i++)
		sum += mad[i];
	if (header->length != sizeof *header + bytes || sum == UINT32_MAX)
		abort();
}

static void place_deliver(void *context, uint32_t port, const struct fabric_address *from,
			  const uint8_t *mad)
{
	struct ib_mad_addr address = {.qpn = htobe32(from->source_qp),
				      .lid = htobe16(from->source)};

	(void)context;
	for (int i = 0; i < 2; i++)
		if (places[i].row == port)
			mad_port_receive(&places[i].mad, (int)from->destination_qp, &address, mad,
					 now);
}

static void queue_run(void)
{
	/* Two agents that always answer each other would never end. */
	for (int i = 0; i < 500 && queue_count; i++) {
		struct queued one = queue[queue_first];
		struct fabric_address to = {
			.destination = be16toh(one.to.lid),
			.source_qp = (uint32_t)one.qpn,
			.destination_qp = be32toh(one.to.qpn),
			.qkey = be32toh(one.to.qkey),
			.pkey_index = one.to.pkey_index,
			.sl = one.to.sl,
		};

		queue_first = (queue_first + 1) % QUEUE;
		queue_count--;
		fabric_send(&net->fabric, one.row, &to, one.mad, now);
	}
	queue_count = 0;
}

static void agent_roll(struct mad_file *file, struct input *input)
{
	static const uint8_t classes[] = {0x01, 0x81, 0x03, 0x04, 0x32, 0x06, 0x00, 0x21};
	struct umad_reg_attr attr = {
		.mgmt_class = classes[input_u8(input) % sizeof classes],
		.mgmt_class_version = input_u8(input) % 3,
		.method_mask = {input_u8(input) * 0x0101010101010101u, 0},
		.oui = 0x1405,
		.rmpp_version = input_u8(input) % 2,
	};
	uint32_t agent;

	mad_file_register(file, attr.mgmt_class == 0x01 || attr.mgmt_class == 0x81 ? 0 : 1, &attr,
			  &agent);
}

static void packet_roll(struct mad_file *file, struct input *input)
{
	static uint8_t packet[sizeof(struct ib_user_mad) + 4096];
	struct ib_user_mad *header = (void *)packet;
	uint8_t *mad = packet + sizeof *header;
	size_t bytes = input_u8(input) * 8u;
	uint8_t kind = input_u8(input);

	memset(packet, 0, sizeof packet);
	header->agent_id = input_u8(input) % 6;
	header->timeout_ms = input_u8(input);
	header->retries = input_u8(input) % 4;
	header->addr.lid = htobe16(kind & 1 ? 0xffff : input_u8(input) % 10);
	header->addr.qpn = htobe32(kind >> 1 & 1);
	header->addr.qkey = htobe32(0x80010000);
	smp_make(mad, input_u8(input), input_u8(input), input_u8(input), 1, (const uint8_t *)"\1");
	mad[1] = input_u8(input);
	mad[24] = 1; /* RMPP */
	for (int i = 0; i < 4; i++)
		mad[25 + i] = input_u8(input);
	for (unsigned int n = input_u8(input) % 16; n; n--)
		mad[input_u8(input) % 64] = input_u8(input);
	mad_file_send(file, packet, bytes, now);
}

static void step_run(struct mad_file files[FILES], bool is_open[FILES], struct input *input)
{
	unsigned int which = input_u8(input) % FILES;
	uint8_t kind = input_u8(input) % 8;

	if (!is_open[which]) {
		mad_file_open(&files[which], &places[which % 2].mad, NULL);
		is_open[which] = true;
	} else if (kind == 0) {
		mad_file_close(&files[which]);
		is_open[which] = false;
	} else if (kind == 1) {
		mad_file_unregister(&files[which], input_u8(input) % 40);
	} else if (kind < 4) {
		agent_roll(&files[which], input);
	} else if (kind == 4) {
		now += input_u8(input) * 50u;
		for (int i = 0; i < 2; i++)
			mad_port_expire(&places[i].mad, now);
	} else {
		packet_roll(&files[which], input);
	}
	queue_run();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mad_functions functions = {umad_transmit, umad_deliver};
	static const struct fabric_functions fabric_functions = {
		.deliver = place_deliver,
		.postpone = net_postpone,
		.event = net_event,
		.random = net_random,
	};
	struct input input = {.at = data, .end = data + size};
	struct mad_file files[FILES];
	bool is_open[FILES] = {false};

	now = 1;
	queue_first = queue_count = 0;
	net = net_create();
	net->fabric.functions = &fabric_functions;
	net_configure(net);
	mad_system_init(&mads, &functions);
	for (int i = 0; i < 2; i++) {
		mad_port_init(&places[i].mad, &mads, true);
		places[i].row = net_row(net, i ? NODE_H3 : NODE_H1, 1);
	}
	for (int steps = 0; steps < 200 && input_left(&input); steps++)
		step_run(files, is_open, &input);
	for (int i = 0; i < FILES; i++)
		if (is_open[i])
			mad_file_close(&files[i]);
	net_free(net);
	return 0;
}
