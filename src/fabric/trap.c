/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traps: notices of an end port to its subnet manager, sent again until the manager represses them.
 * They are rows of a table, so that a trap isn't lost with the process. A notice that waits for its
 * repression isn't made a second time.
 */
#include "fabric/internal.h"

#define TRAP_COPIES 8u
#define TRAP_MS_LEAST 200u
#define TRAP_MS_MOST 5000u

enum { NOTICE_URGENT = 1, NOTICE_SECURITY = 2, NOTICE_INFORMATIONAL = 4 };

/* How often a port may send traps: its SubnetTimeOut, 4.096 us times a power of two. */
static uint64_t trap_period_ms(const struct fabric_port *port)
{
	unsigned int power = port->info[INFO_REREGISTER_TIMEOUT] & 0x1f;
	uint64_t ms = (4096ull << power) / 1000000;

	if (ms < TRAP_MS_LEAST)
		return TRAP_MS_LEAST;
	return ms < TRAP_MS_MOST ? ms : TRAP_MS_MOST;
}

static struct fabric_trap *trap_row(struct fabric *fabric, uint32_t end_port, const uint8_t *notice)
{
	struct fabric_trap *free_one = NULL;

	for (uint32_t i = 0; i < FABRIC_TRAPS; i++) {
		struct fabric_trap *trap = &fabric->traps[i];

		if (!trap->next_ms && !free_one)
			free_one = trap;
		if (trap->next_ms && trap->port == end_port && !memcmp(trap->notice, notice, 64))
			return NULL;
	}
	return free_one;
}

/* Queues a notice; without an SM there is nowhere to send it. With a full table it is dropped: a
 * sweep finds out. */
static void trap_post(struct fabric *fabric, uint32_t end_port, const uint8_t *notice)
{
	struct fabric_trap *trap;

	if (!port_sm_lid(&fabric->ports[end_port]))
		return;
	trap = trap_row(fabric, end_port, notice);
	if (!trap)
		return;
	memcpy(trap->notice, notice, sizeof trap->notice);
	trap->port = end_port;
	trap->sent = 0;
	trap->tid = ++fabric->header->trap_tid;
	trap->next_ms = fabric->now_ms ? fabric->now_ms : 1;
	deadline_note(fabric, trap->next_ms);
}

/* The parts that all notices have. */
static void notice_begin(const struct fabric *fabric, uint32_t end_port, uint8_t type,
			 uint16_t number, uint8_t notice[64])
{
	memset(notice, 0, 64);
	notice[0] = 0x80 | type;
	notice[3] = fabric->nodes[fabric->ports[end_port].node].type;
	octets_put16(notice + 4, number);
	octets_put16(notice + 6, port_lid(&fabric->ports[end_port]));
}

void trap_link_state(struct fabric *fabric, uint32_t port)
{
	uint8_t notice[64];

	notice_begin(fabric, port, NOTICE_URGENT, 128, notice);
	octets_put16(notice + 10, port_lid(&fabric->ports[port]));
	trap_post(fabric, port, notice);
}

void trap_threshold(struct fabric *fabric, uint32_t port, uint16_t number)
{
	uint32_t end_port = fabric_end_port(fabric, port);
	uint8_t notice[64];

	notice_begin(fabric, end_port, NOTICE_URGENT, number, notice);
	octets_put16(notice + 12, port_lid(&fabric->ports[end_port]));
	notice[14] = fabric->ports[port].number;
	trap_post(fabric, end_port, notice);
}

void trap_local_change(struct fabric *fabric, uint32_t end_port, uint8_t changes)
{
	const uint8_t *info = fabric->ports[end_port].info;
	uint8_t others = changes & (CHANGE_DESCRIPTION | CHANGE_WIDTH | CHANGE_SPEED);
	uint8_t notice[64];

	notice_begin(fabric, end_port, NOTICE_INFORMATIONAL, 144, notice);
	octets_put16(notice + 12, port_lid(&fabric->ports[end_port]));
	notice[15] = others ? 1 : 0;
	memcpy(notice + 16, info + INFO_CAPABILITIES, 4);
	octets_put16(notice + 20, others);
	memcpy(notice + 22, info + INFO_CAPABILITIES2, 2);
	trap_post(fabric, end_port, notice);
}

void trap_bad_m_key(struct agent_request *request)
{
	const uint8_t *mad = request->mad;
	uint8_t hops = mad[MAD_AT_HOP_COUNT] < 30 ? mad[MAD_AT_HOP_COUNT] : 30;
	uint8_t notice[64];

	notice_begin(request->fabric, request->end_port, NOTICE_SECURITY, 256, notice);
	octets_put16(notice + 12, request->from->address.source);
	notice[16] = request->method;
	octets_put16(notice + 18, request->attribute);
	octets_put32(notice + 20, request->modifier);
	memcpy(notice + 24, mad + MAD_AT_M_KEY, 8);
	if (mad[MAD_AT_CLASS] == CLASS_IS_DIRECTED) {
		memcpy(notice + 14, mad + MAD_AT_SOURCE_LID, 2);
		notice[33] = 0x80 | (mad[MAD_AT_HOP_COUNT] > 30 ? 0x40 : 0) | hops;
		memcpy(notice + 34, mad + MAD_AT_RETURN_PATH + 1, hops);
	}
	trap_post(request->fabric, request->end_port, notice);
}

void trap_bad_key(struct fabric *fabric, uint32_t end_port, uint16_t number, uint32_t key,
		  const struct fabric_address *from)
{
	uint8_t notice[64];

	notice_begin(fabric, end_port, NOTICE_SECURITY, number, notice);
	octets_put16(notice + 12, from->source);
	octets_put16(notice + 14, from->destination);
	octets_put32(notice + 16, key);
	octets_put32(notice + 20, (uint32_t)from->sl << 28 | (from->source_qp & 0xffffff));
	octets_put32(notice + 24, from->destination_qp & 0xffffff);
	if (from->has_grh)
		memcpy(notice + 28, from->grh + 8, 32);
	trap_post(fabric, end_port, notice);
}

void trap_bad_partition(struct fabric *fabric, uint32_t port, uint16_t pkey,
			const struct fabric_address *from)
{
	/* DataValid: LIDs, P_Key, SL and QPs; GIDs if there are any. */
	enum { VALID = 0x3f, VALID_GIDS = 0xc0 };
	uint32_t end_port = fabric_end_port(fabric, port);
	uint8_t notice[64];

	notice_begin(fabric, end_port, NOTICE_SECURITY, 259, notice);
	octets_put16(notice + 10, VALID | (from->has_grh ? VALID_GIDS : 0));
	octets_put16(notice + 12, from->source);
	octets_put16(notice + 14, from->destination);
	octets_put16(notice + 16, pkey);
	octets_put32(notice + 18, (uint32_t)from->sl << 28 | (from->source_qp & 0xffffff));
	octets_put32(notice + 22, from->destination_qp & 0xffffff);
	if (from->has_grh)
		memcpy(notice + 26, from->grh + 8, 32);
	octets_put16(notice + 58, port_lid(&fabric->ports[end_port]));
	notice[60] = fabric->ports[port].number;
	trap_post(fabric, end_port, notice);
}

void trap_system_guid(struct fabric *fabric, uint32_t end_port)
{
	const struct fabric_port *port = &fabric->ports[end_port];
	uint8_t notice[64];

	notice_begin(fabric, end_port, NOTICE_INFORMATIONAL, 145, notice);
	octets_put16(notice + 12, port_lid(port));
	octets_put64(notice + 16, fabric->nodes[port->node].system_guid);
	trap_post(fabric, end_port, notice);
}

/* Sending -------------------------------------------------------------------------------------- */

static void trap_send(struct fabric *fabric, struct fabric_trap *trap)
{
	const struct fabric_port *port = &fabric->ports[trap->port];
	struct fabric_address to = {
		.destination = port_sm_lid(port),
		.sl = octet_low(port->info[INFO_MTU_SM_SL]),
	};
	uint8_t mad[FABRIC_MAD_BYTES] = {1, CLASS_IS_SMP, 1, METHOD_IS_TRAP,
					 [MAD_AT_ATTRIBUTE + 1] = ATTRIBUTE_NOTICE};

	octets_put64(mad + MAD_AT_TID, trap->tid);
	octets_put16(mad + MAD_AT_SOURCE_LID, LID_PERMISSIVE);
	octets_put16(mad + MAD_AT_DESTINATION_LID, LID_PERMISSIVE);
	memcpy(mad + MAD_AT_DATA, trap->notice, sizeof trap->notice);
	trap->next_ms = ++trap->sent < TRAP_COPIES ? fabric->now_ms + trap_period_ms(port) : 0;
	fabric_send(fabric, trap->port, &to, mad, fabric->now_ms);
}

/* Looks at all rows: that costs a microsecond, so it is done when something changed only. */
void deadline_find(struct fabric *fabric)
{
	uint64_t first = samplers_deadline(fabric);

	for (uint32_t i = 0; i < FABRIC_TRAPS; i++)
		if (fabric->traps[i].next_ms && fabric->traps[i].next_ms < first)
			first = fabric->traps[i].next_ms;
	fabric->first_ms = first;
}

void deadline_note(struct fabric *fabric, uint64_t at_ms)
{
	if (at_ms < fabric->first_ms)
		fabric->first_ms = at_ms;
}

void trap_repress(struct fabric *fabric, uint32_t end_port, const uint8_t *mad)
{
	for (uint32_t i = 0; i < FABRIC_TRAPS; i++) {
		struct fabric_trap *trap = &fabric->traps[i];

		if (trap->next_ms && trap->port == end_port &&
		    trap->tid == octets_get64(mad + MAD_AT_TID))
			trap->next_ms = 0;
	}
	deadline_find(fabric);
}

void fabric_expire(struct fabric *fabric, uint64_t now_ms)
{
	fabric->now_ms = now_ms;
	for (uint32_t i = 0; i < FABRIC_TRAPS; i++)
		if (fabric->traps[i].next_ms && fabric->traps[i].next_ms <= now_ms)
			trap_send(fabric, &fabric->traps[i]);
	samplers_expire(fabric);
	deadline_find(fabric);
}

uint64_t fabric_deadline(const struct fabric *fabric)
{
	return fabric->first_ms;
}
