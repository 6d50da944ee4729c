/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queries of the administration: which attribute and method, which components count, and the
 * answer's datagram. A query is copied once and then read from there. What a master doesn't know it
 * answers with an error; a manager that isn't the master doesn't answer at all.
 */
#include "sm/sa.h"

/* Components ----------------------------------------------------------------------------------- */

static const uint8_t node_bits[] = {16, 16, 8, 8, 8, 8, 64, 64, 64, 16, 16, 32, 8, 24, 0};
static const uint8_t port_bits[] = {16, 8, 8, 64, 64, 16, 16, 32, 16, 16, 8,  8,  8, 8, 4,
				    4,	4, 4, 2,  3,  3,  4,  4,  4,  4,  4,  4,  8, 8, 8,
				    4,	4, 3, 5,  4,  1,  1,  1,  1,  16, 16, 16, 8, 1, 2,
				    5,	3, 5, 4,  4,  16, 8,  24, 16, 4,  4,  3,  5};
static const uint8_t lane_bits[] = {16, 8, 8, 32};
static const uint8_t switch_bits[] = {16, 16};
static const uint8_t unicast_bits[] = {16, 16};
static const uint8_t multicast_bits[] = {16, 4, 3, 9};
static const uint8_t manager_bits[] = {16, 16, 64, 64, 32, 4, 4};
static const uint8_t link_bits[] = {16, 8, 8, 16};
static const uint8_t guid_bits[] = {16, 8, 8, 32, 64, 64, 64, 64, 64, 64, 64, 64};
static const uint8_t service_bits[] = {64, 128, 16, 16, 32, 128, 0,  8,	 8,  8,	 8,  8,	 8,
				       8,  8,	8,  8,	8,  8,	 8,  8,	 8,  8,	 16, 16, 16,
				       16, 16,	16, 16, 16, 32,	 32, 32, 32, 64, 64};
static const uint8_t pkey_bits[] = {16, 16, 8};
static const uint8_t path_bits[] = {32, 32, 128, 128, 16, 16, 1, 3, 20, 8, 8,
				    1,	7,  16,	 12,  4,  2,  6, 2, 6,	2, 6};
static const uint8_t arbitration_bits[] = {16, 8, 8};
static const uint8_t member_bits[] = {128, 128, 32, 16, 2, 6, 8, 16, 2, 6, 2, 6, 4, 20, 8, 4, 4, 1};
static const uint8_t inform_bits[] = {128, 16, 48, 128, 16, 16, 16, 8, 8, 16, 16, 24, 3, 5, 8, 24};
static const uint8_t no_bits[1];

#define LAYOUT(attribute, bytes, bits, ...)                      \
	{                                                        \
		attribute, bytes, bits, sizeof bits, __VA_ARGS__ \
	}

static const struct sa_layout layouts[] = {
	LAYOUT(SA_CLASS_PORT_INFO, 72, no_bits, sa_class_port_info, NULL, NULL, NULL),
	LAYOUT(SA_INFORM, 36, no_bits, NULL, sa_inform_set, NULL, NULL),
	LAYOUT(SA_NODE, 112, node_bits, sa_nodes, NULL, NULL, NULL),
	LAYOUT(SA_PORT, 72, port_bits, sa_ports, NULL, NULL, NULL),
	LAYOUT(SA_SL_TO_VL, 16, lane_bits, sa_lanes, NULL, NULL, NULL),
	LAYOUT(SA_SWITCH, 24, switch_bits, sa_switches, NULL, NULL, NULL),
	LAYOUT(SA_UNICAST, 72, unicast_bits, sa_unicast, NULL, NULL, NULL),
	LAYOUT(SA_MULTICAST, 72, multicast_bits, sa_multicast, NULL, NULL, NULL),
	LAYOUT(SA_MANAGER, 32, manager_bits, sa_managers, NULL, NULL, NULL),
	LAYOUT(SA_LINK, 8, link_bits, sa_links, NULL, NULL, NULL),
	LAYOUT(SA_GUIDS, 72, guid_bits, sa_guids, sa_guids_set, sa_guids_remove, NULL),
	LAYOUT(SA_SERVICE, 176, service_bits, sa_services, sa_service_set, sa_service_remove, NULL),
	LAYOUT(SA_PKEYS, 72, pkey_bits, sa_pkeys, NULL, NULL, NULL),
	LAYOUT(SA_PATH, 64, path_bits, sa_paths, NULL, NULL, NULL),
	LAYOUT(SA_MULTI_PATH, 64, path_bits, NULL, NULL, NULL, sa_multi_paths),
	LAYOUT(SA_ARBITRATION, 72, arbitration_bits, sa_arbitration, NULL, NULL, NULL),
	LAYOUT(SA_MEMBER, 56, member_bits, sa_members, sa_member_join, sa_member_leave, NULL),
	LAYOUT(SA_INFORM_RECORD, 64, inform_bits, sa_informs, NULL, NULL, NULL),
};

/* A component of 0 bits is a text of 64 bytes. */
static unsigned int component_bits(const struct sa_layout *layout, unsigned int component)
{
	return layout->bits[component] ? layout->bits[component] : 512;
}

/* Whether two records have the same bits. */
static bool bits_equal(const uint8_t *a, const uint8_t *b, unsigned int at, unsigned int count)
{
	unsigned int end = at + count;

	while (at < end) {
		unsigned int step = at % 8 || end - at < 8 ? 1 : 8;
		uint8_t mask = step == 8 ? 0xff : (uint8_t)(0x80 >> at % 8);

		if ((a[at / 8] ^ b[at / 8]) & mask)
			return false;
		at += step;
	}
	return true;
}

uint32_t sa_component(const struct sa_query *query, unsigned int component)
{
	unsigned int at = 0;
	uint32_t value = 0;

	for (unsigned int i = 0; i < component; i++)
		at += component_bits(query->layout, i);
	for (unsigned int i = 0; i < component_bits(query->layout, component); i++, at++)
		value = value << 1 | (query->record[at / 8] >> (7 - at % 8) & 1);
	return value;
}

void sa_add(struct sa_query *query, const uint8_t *record)
{
	size_t bytes = query->layout->bytes;

	if (query->bytes + bytes > SM_MESSAGE_BYTES_MAX) {
		query->status = SA_NO_RESOURCES;
		return;
	}
	if (query->bytes + bytes > query->room) {
		size_t room = query->room * 2 + bytes;
		uint8_t *larger = realloc(query->answer, room);

		if (!larger) {
			query->status = SA_NO_RESOURCES;
			return;
		}
		query->answer = larger;
		query->room = room;
	}
	memcpy(query->answer + query->bytes, record, bytes);
	query->bytes += bytes;
	query->count++;
}

void sa_offer(struct sa_query *query, const uint8_t *record, uint64_t except)
{
	const struct sa_layout *layout = query->layout;
	uint64_t mask = query->mask & ~except;
	unsigned int at = 0;

	for (unsigned int i = 0; i < layout->components && mask >> i; i++) {
		unsigned int bits = component_bits(layout, i);

		if ((mask >> i & 1) && at + bits <= layout->bytes * 8u &&
		    !bits_equal(query->record, record, at, bits))
			return;
		at += bits;
	}
	sa_add(query, record);
}

/* Answers -------------------------------------------------------------------------------------- */

static void query_answer_header(const struct sa_query *query, const uint8_t *mad)
{
	uint8_t *answer = query->answer;

	memcpy(answer, mad, SA_HEADER);
	answer[3] |= METHOD_RESPONSE;
	octets_put16(answer + OFFSET_STATUS, query->status);
	memset(answer + 24, 0, 12 + 8);
	octets_put16(answer + SA_RECORD_WORDS,
		     query->layout ? (uint16_t)((query->layout->bytes + 7) / 8) : 0);
}

static void query_answer_send(struct sa_query *query, const uint8_t *mad)
{
	bool is_table =
		(query->method == SA_GET_TABLE || query->method == SA_GET_MULTI) && !query->status;

	if (query->status || !is_table) {
		/* One datagram: zero where there is no record. */
		if (query->status)
			query->bytes = SA_HEADER;
		memset(query->answer + query->bytes, 0, SM_MAD_BYTES - query->bytes);
		query->bytes = SM_MAD_BYTES;
	}
	query_answer_header(query, mad);
	if (is_table) {
		query->answer[24] = RMPP_VERSION;
		query->answer[25] = RMPP_DATA;
		query->answer[26] = RMPP_ACTIVE;
	}
	query->sm->functions->send(query->sm->context, query->from, query->answer, query->bytes, 0);
}

static const struct sa_layout *layout_find(uint16_t attribute)
{
	for (unsigned int i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
		if (layouts[i].attribute == attribute)
			return &layouts[i];
	return NULL;
}

static void query_get(struct sa_query *query)
{
	query->layout->get(query);
	if (query->status || query->method == SA_GET_TABLE)
		return;
	if (!query->count)
		query->status = SA_NO_RECORDS;
	else if (query->count > 1)
		query->status = SA_TOO_MANY;
}

static void query_run(struct sa_query *query)
{
	const struct sa_layout *layout = query->layout;
	void (*act)(struct sa_query *) = NULL;

	if (layout && (query->method == SA_GET || query->method == SA_GET_TABLE) && layout->get)
		act = query_get;
	else if (layout && query->method == SA_SET)
		act = layout->set;
	else if (layout && query->method == SA_DELETE)
		act = layout->remove;
	else if (layout && query->method == SA_GET_MULTI)
		act = layout->multi;
	if (act)
		act(query);
	else
		query->status = SA_UNSUPPORTED;
}

static bool method_is_query(uint8_t method)
{
	return method == SA_GET || method == SA_SET || method == SA_GET_TABLE ||
	       method == SA_GET_MULTI || method == SA_DELETE;
}

void sa_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad, size_t bytes)
{
	struct sa_query query = {
		.sm = sm,
		.subnet = sm->subnet,
		.from = from,
		.method = header_method(mad),
		.mask = octets_get64(mad + SA_MASK),
		.modifier = octets_get32(mad + OFFSET_MODIFIER),
		.is_trusted = octets_get64(mad + SA_KEY) == SA_KEY_TRUSTED,
		.bytes = SA_HEADER,
		.room = 4096,
		.extra = mad + SA_HEADER,
		.extra_bytes = bytes - SA_HEADER,
	};

	if (sm->state != SM_MASTER || !sm->subnet || bytes < SM_MAD_BYTES)
		return;
	if (query.method == SA_REPORT_RESPONSE) {
		report_acknowledge(sm, mad);
		return;
	}
	/* A wrong key gets no answer, so that keys can't be tried out quickly. */
	if (!method_is_query(query.method) || (octets_get64(mad + SA_KEY) && !query.is_trusted))
		return;
	query.answer = malloc(query.room);
	if (!query.answer)
		return;
	sm->counts.queries++;
	query.layout = layout_find(octets_get16(mad + OFFSET_ATTRIBUTE));
	memcpy(query.record, mad + SA_HEADER, SA_RECORD_MAX);
	if (header_version(mad) != 2)
		query.status = SA_BAD_VERSION;
	else
		query_run(&query);
	query_answer_send(&query, mad);
	free(query.answer);
}
