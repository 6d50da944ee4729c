/* SPDX-License-Identifier: BSD-2-Clause */
/* See wire.h. */
#include "wire.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CABLE_MAX 4096

struct datagram {
	int to;
	int qpn;
	struct ib_mad_addr from;
	uint8_t mad[MAD_BYTES];
};

struct mad_system wire_system;
struct end wire_ends[ENDS];
uint64_t wire_now;
unsigned wire_loss_percent;
unsigned wire_loss_each;

static struct datagram cable[CABLE_MAX];
static int cable_count;
static unsigned cable_total;

static int chance(void)
{
	return random() % 100 < (long)wire_loss_percent;
}

static void cable_put(struct mad_port *port, int qpn, const struct ib_mad_addr *to,
		      const uint8_t *mad)
{
	int end = port == &wire_ends[LEFT].port ? LEFT : RIGHT;
	int times = chance() ? 0 : chance() ? 2 : 1;

	wire_ends[end].sent++;
	memcpy(wire_ends[end].last_sent, mad, MAD_BYTES);
	wire_ends[end].last_to = ntohs(to->lid);
	if (ntohs(to->lid) != LID(!end))
		return;
	if (wire_loss_each && ++cable_total % wire_loss_each == 0)
		return;
	while (times--) {
		int at = cable_count;

		assert(cable_count < CABLE_MAX);
		if (at && chance())
			at = (int)(random() % at);
		memmove(&cable[at + 1], &cable[at], (size_t)(cable_count - at) * sizeof cable[0]);
		cable[at] = (struct datagram){.to = !end, .qpn = qpn};
		cable[at].from.lid = htons(LID(end));
		cable[at].from.qpn = htonl((uint32_t)qpn);
		memcpy(cable[at].mad, mad, MAD_BYTES);
		cable_count++;
	}
}

static void message_keep(void *reader, const struct ib_user_mad *header, const uint8_t *mad,
			 size_t bytes)
{
	struct end *end = reader;
	struct message *message = &end->got[end->count++];

	assert(end->count <= (int)(sizeof end->got / sizeof end->got[0]));
	assert(header->length == sizeof *header + bytes);
	message->header = *header;
	message->bytes = bytes;
	message->mad = malloc(bytes);
	assert(message->mad);
	memcpy(message->mad, mad, bytes);
}

static const struct mad_functions functions = {.transmit = cable_put, .deliver = message_keep};

void wire_begin(void)
{
	memset(wire_ends, 0, sizeof wire_ends);
	mad_system_init(&wire_system, &functions);
	for (int i = 0; i < ENDS; i++) {
		mad_port_init(&wire_ends[i].port, &wire_system, true);
		mad_file_open(&wire_ends[i].file, &wire_ends[i].port, &wire_ends[i]);
	}
	wire_now = 1000;
	wire_loss_percent = 0;
	wire_loss_each = 0;
	cable_count = 0;
	cable_total = 0;
}

void wire_end(void)
{
	for (int i = 0; i < ENDS; i++) {
		mad_file_close(&wire_ends[i].file);
		for (int k = 0; k < wire_ends[i].count; k++)
			free(wire_ends[i].got[k].mad);
	}
}

static void cable_drain(void)
{
	while (cable_count) {
		struct datagram first = cable[0];

		cable_count--;
		memmove(cable, cable + 1, (size_t)cable_count * sizeof cable[0]);
		mad_port_receive(&wire_ends[first.to].port, first.qpn, &first.from, first.mad,
				 wire_now);
	}
}

void wire_run(uint64_t ms)
{
	uint64_t until = wire_now + ms;

	for (;;) {
		uint64_t next = until;

		cable_drain();
		for (int i = 0; i < ENDS; i++)
			if (mad_port_deadline(&wire_ends[i].port) < next)
				next = mad_port_deadline(&wire_ends[i].port);
		if (next >= until)
			break;
		wire_now = next > wire_now ? next : wire_now;
		for (int i = 0; i < ENDS; i++)
			mad_port_expire(&wire_ends[i].port, wire_now);
	}
	wire_now = until;
}

int wire_register(int end, uint8_t mgmt_class, uint8_t version, uint8_t rmpp, uint64_t methods,
		  uint32_t oui, uint32_t *agent)
{
	struct umad_reg_attr attr = {
		.mgmt_class = mgmt_class,
		.mgmt_class_version = version,
		.rmpp_version = rmpp,
		.method_mask = {methods},
		.oui = oui,
	};

	return mad_file_register(&wire_ends[end].file,
				 mgmt_class == 0x01 || mgmt_class == 0x81 ? 0 : 1, &attr, agent);
}

int wire_send(int end, uint32_t agent, const uint8_t *mad, size_t bytes, uint32_t timeout_ms,
	      uint32_t retries)
{
	struct ib_user_mad *packet = calloc(1, sizeof *packet + bytes);
	int result;

	assert(packet);
	packet->agent_id = agent;
	packet->timeout_ms = timeout_ms;
	packet->retries = retries;
	packet->addr.lid = htons(LID(!end));
	packet->addr.qpn = htonl(1);
	memcpy(packet->data, mad, bytes);
	result = mad_file_send(&wire_ends[end].file, packet, sizeof *packet + bytes, wire_now);
	free(packet);
	return result;
}

void wire_header(uint8_t *mad, uint8_t mgmt_class, uint8_t version, uint8_t method, uint32_t tid)
{
	memset(mad, 0, 24);
	mad[0] = 1;
	mad[1] = mgmt_class;
	mad[2] = version;
	mad[3] = method;
	for (int i = 0; i < 4; i++)
		mad[12 + i] = (uint8_t)(tid >> (24 - 8 * i));
}
