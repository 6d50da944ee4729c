/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PathRecord: the way from one LID to another by the tables that this manager wanted, with the
 * smallest MTU and rate on it. Between two ports there are as many paths as the one with more LIDs
 * has; the first LID of one belongs to the first of the other, and so on.
 */
#include "sm/sa.h"

/* Components of the record. */
enum {
	PATH_SERVICE_HIGH = 0,
	PATH_DGID = 2,
	PATH_SGID = 3,
	PATH_DLID = 4,
	PATH_SLID = 5,
	PATH_RAW = 6,
	PATH_HOPS = 9,
	PATH_REVERSIBLE = 11,
	PATH_COUNT = 12,
	PATH_PKEY = 13,
	PATH_QOS_CLASS = 14,
	PATH_SL = 15,
	PATH_MTU_SELECTOR = 16,
	PATH_MTU = 17,
	PATH_RATE_SELECTOR = 18,
	PATH_RATE = 19,
	PATH_LIFE_SELECTOR = 20,
	PATH_LIFE = 21,
};

enum { AT_DGID = 8, AT_SGID = 24, AT_DLID = 40, AT_SLID = 42, AT_FLOW = 44, AT_COUNT = 49 };
enum { AT_PKEY = 50, AT_SL = 52, AT_MTU = 54, AT_RATE = 55, AT_LIFE = 56 };

/* Rates ---------------------------------------------------------------------------------------- */

struct rate {
	uint8_t code;
	uint16_t tenths; /* of Gb/s */
};

static const struct rate rates[] = {
	{2, 25},    {3, 100},	{4, 300},   {5, 50},	{6, 200},    {7, 400},
	{8, 600},   {9, 800},	{10, 1200}, {11, 140},	{12, 560},   {13, 1120},
	{14, 1680}, {15, 250},	{16, 1000}, {17, 2000}, {18, 3000},  {19, 280},
	{20, 500},  {21, 4000}, {22, 6000}, {23, 8000}, {24, 12000},
};

uint32_t rate_worth(uint8_t code)
{
	for (unsigned int i = 0; i < sizeof rates / sizeof rates[0]; i++)
		if (rates[i].code == code)
			return rates[i].tenths;
	return 0;
}

uint32_t plain_worth(uint8_t code)
{
	return code;
}

/* Of one lane, in tenths of Gb/s. */
static uint32_t lane_rate(const uint8_t *info)
{
	if ((info[INFO_EXT2] >> 5 & 3) == 1)
		return 2000; /* XDR */
	switch (octet_high(info[INFO_EXT_ACTIVE_SUPPORTED])) {
	case 1:
		return 140;
	case 2:
		return 250;
	case 4:
		return 500;
	case 8:
		return 1000;
	default:
		return 25u * octet_high(info[INFO_SPEED_ACTIVE_ENABLED]);
	}
}

uint8_t port_rate(const struct sm_port *port)
{
	static const uint8_t lanes[] = {[1] = 1, [2] = 4, [4] = 8, [8] = 12, [16] = 2};
	uint8_t width = port->info[INFO_WIDTH_ACTIVE];
	uint32_t tenths = width < sizeof lanes ? lanes[width] * lane_rate(port->info) : 0;

	for (unsigned int i = 0; i < sizeof rates / sizeof rates[0]; i++)
		if (rates[i].tenths == tenths)
			return rates[i].code;
	return 0;
}

uint8_t sa_select(uint8_t selector, uint8_t wish, uint8_t most, uint32_t (*worth)(uint8_t code))
{
	uint8_t best = 0;

	switch (selector) {
	case 0:
		return worth(most) > worth(wish) ? most : 0;
	case 1:
		for (uint8_t code = 1; code < 64; code++)
			if (worth(code) && worth(code) < worth(wish) &&
			    worth(code) <= worth(most) && (!best || worth(code) > worth(best)))
				best = code;
		return best;
	case 2:
		return worth(wish) && worth(wish) <= worth(most) ? wish : 0;
	default:
		return most;
	}
}

/* The way -------------------------------------------------------------------------------------- */

struct way {
	uint8_t mtu, rate;
	unsigned int hops;
};

static void way_narrow(struct way *way, const struct sm_port *port)
{
	uint8_t mtu = octet_high(port->info[INFO_MTU_SM_SL]);
	uint8_t rate = port_rate(port);

	if (mtu && mtu < way->mtu)
		way->mtu = mtu;
	if (rate && (!way->rate || rate_worth(rate) < rate_worth(way->rate)))
		way->rate = rate;
}

/* The switch's port towards a LID, or SM_NONE. */
static uint32_t egress_find(const struct sm_subnet *subnet, const struct sm_node *node,
			    uint16_t lid)
{
	uint8_t number;

	if (!node->tables || !node->tables->wanted || lid > subnet->top_lid)
		return SM_NONE;
	number = node->tables->wanted[lid];
	return number && number <= node->ports ? node->first_port + number : SM_NONE;
}

/* Follows the tables to a LID of `to`. False: they don't lead there. */
static bool way_follow(const struct sm_subnet *subnet, uint32_t from, uint32_t to, uint16_t lid,
		       struct way *way)
{
	uint32_t at = from;

	*way = (struct way){.mtu = 5};
	way_narrow(way, subnet_end(subnet, from));
	while (at != to && way->hops < SM_HOPS_MAX) {
		const struct sm_node *node = &subnet->nodes[at];
		uint32_t egress =
			node->type == SM_SWITCH ? egress_find(subnet, node, lid) : node->first_port;

		if ((node->type != SM_SWITCH && at != from) || egress == SM_NONE ||
		    !subnet_port_is_linked(subnet, egress))
			return false;
		way_narrow(way, &subnet->ports[egress]);
		at = subnet_peer_node(subnet, egress);
		way->hops++;
	}
	if (at == to)
		way_narrow(way, subnet_end(subnet, to));
	return at == to;
}

/* Records -------------------------------------------------------------------------------------- */

/* A key that both have, and that at least one has in full; 0: none. `wanted`: this one, or any. */
static uint16_t pkey_common(const struct sm *sm, const struct sm_node *a, const struct sm_node *b,
			    uint16_t wanted)
{
	uint16_t left[128], right[128];
	unsigned int lefts = partition_keys(sm, a, left, 128);
	unsigned int rights = partition_keys(sm, b, right, 128);

	for (unsigned int i = 0; i < lefts; i++)
		for (unsigned int j = 0; j < rights; j++)
			if (!((left[i] ^ right[j]) & 0x7fff) && ((left[i] | right[j]) & 0x8000) &&
			    (!wanted || !((left[i] ^ wanted) & 0x7fff)))
				return left[i];
	return 0;
}

/* A component with its selector; without a wish it is `most`. */
static uint8_t path_select(const struct sa_query *query, unsigned int component, uint8_t most,
			   uint32_t (*worth)(uint8_t code))
{
	uint8_t selector;

	if (!sa_has(query, component))
		return most;
	selector = sa_has(query, component - 1) ? (uint8_t)sa_component(query, component - 1) : 2;
	return sa_select(selector, (uint8_t)sa_component(query, component), most, worth);
}

/* The life time is the same everywhere. */
static bool life_agrees(const struct sa_query *query)
{
	uint32_t wish = sa_component(query, PATH_LIFE);
	uint32_t selector =
		sa_has(query, PATH_LIFE_SELECTOR) ? sa_component(query, PATH_LIFE_SELECTOR) : 2;

	if (!sa_has(query, PATH_LIFE))
		return true;
	return selector == 0   ? SM_LIFE_TIME > wish
	       : selector == 1 ? SM_LIFE_TIME < wish
	       : selector == 2 ? SM_LIFE_TIME <= wish
			       : true;
}

/* The path's service level, by the rules for its ends and what the query says. */
static uint8_t path_level(const struct sa_query *query, const struct sm_node *source,
			  const struct sm_node *target, uint16_t pkey)
{
	const struct sm_qos_path path = {
		.pkey = pkey,
		.qos_class = sa_has(query, PATH_QOS_CLASS)
				     ? (uint16_t)(octets_get16(query->record + AT_SL) >> 4)
				     : 0,
		.source = source->port_guid,
		.target = target->port_guid,
		.service = sa_has(query, PATH_SERVICE_HIGH) ? octets_get64(query->record) : 0,
	};

	return qos_level(query->sm, &path);
}

/* The ends of a path, as numbers from the first LID of each on. */
struct path_bits {
	uint32_t source, target;
};

/* The GID that the query names, which may be an alias, or the port's own. */
static void path_gid_write(const struct sa_query *query, unsigned int component, unsigned int at,
			   const struct sm_node *node, uint8_t *record)
{
	if (sa_has(query, component))
		memcpy(record + at, query->record + at, 16);
	else
		gid_make(record + at, node->port_guid);
}

/* Whether there is a path that the query agrees with; it is added. */
static bool path_offer(struct sa_query *query, uint32_t from, uint32_t to, struct path_bits bits)
{
	const struct sm_node *source = &query->subnet->nodes[from];
	const struct sm_node *target = &query->subnet->nodes[to];
	uint16_t wanted = sa_has(query, PATH_PKEY) ? octets_get16(query->record + AT_PKEY) : 0;
	uint16_t pkey = pkey_common(query->sm, source, target, wanted);
	uint8_t record[64] = {0}, level = path_level(query, source, target, pkey);
	struct way way;

	if (!pkey ||
	    !way_follow(query->subnet, from, to, (uint16_t)(target->lid + bits.target), &way))
		return false;
	/* Other service levels can be had where all are set up. */
	if (sa_has(query, PATH_SL) && (octets_get16(query->record + AT_SL) & 15) != level) {
		level = octets_get16(query->record + AT_SL) & 15;
		if (level && !query->sm->options.has_qos)
			return false;
	}
	way.mtu = path_select(query, PATH_MTU, way.mtu, plain_worth);
	way.rate = path_select(query, PATH_RATE, way.rate, rate_worth);
	if (!way.mtu || !way.rate || !life_agrees(query))
		return false;
	memcpy(record, query->record, 8);
	path_gid_write(query, PATH_DGID, AT_DGID, target, record);
	path_gid_write(query, PATH_SGID, AT_SGID, source, record);
	octets_put16(record + AT_DLID, (uint16_t)(target->lid + bits.target));
	octets_put16(record + AT_SLID, (uint16_t)(source->lid + bits.source));
	record[AT_COUNT] = 0x80;
	octets_put16(record + AT_PKEY, wanted ? wanted : pkey);
	octets_put16(record + AT_SL, level);
	if (sa_has(query, PATH_QOS_CLASS))
		record[AT_SL] = query->record[AT_SL];
	if (sa_has(query, PATH_QOS_CLASS))
		record[AT_SL + 1] |= query->record[AT_SL + 1] & 0xf0;
	record[AT_MTU] = 2 << 6 | way.mtu;
	record[AT_RATE] = 2 << 6 | way.rate;
	record[AT_LIFE] = 2 << 6 | SM_LIFE_TIME;
	sa_add(query, record);
	return true;
}

/* How many paths between two ports are wanted at most. */
static uint32_t paths_wanted(const struct sa_query *query)
{
	if (query->method == SA_GET)
		return 1;
	return sa_has(query, PATH_COUNT) ? query->record[AT_COUNT] & 0x7f : UINT32_MAX;
}

/* All paths between two ports; a LID that the query names is the only one at its end. */
static void pair_offer(struct sa_query *query, uint32_t from, uint32_t to)
{
	const struct sm_node *source = &query->subnet->nodes[from];
	const struct sm_node *target = &query->subnet->nodes[to];
	bool has_source = sa_has(query, PATH_SLID), has_target = sa_has(query, PATH_DLID);
	uint32_t sources = has_source ? 1 : sm_lid_count(source);
	uint32_t targets = has_target ? 1 : sm_lid_count(target);
	uint32_t count = sources > targets ? sources : targets, found = 0;

	for (uint32_t i = 0; i < count && found < paths_wanted(query) && !query->status; i++) {
		struct path_bits bits = {i & (sources - 1), i & (targets - 1)}; /* powers of two */

		if (has_source)
			bits.source = octets_get16(query->record + AT_SLID) - source->lid;
		if (has_target)
			bits.target = octets_get16(query->record + AT_DLID) - target->lid;
		found += path_offer(query, from, to, bits);
	}
}

/* The path to a group: what its members agreed on. */
static void path_to_group(struct sa_query *query, const struct sm_node *source)
{
	const struct sm_group *group = sm_group_find(query->sm, query->record + AT_DGID);
	uint8_t record[64] = {0};

	if (!group) {
		query->status = SA_NO_RECORDS;
		return;
	}
	memcpy(record + AT_DGID, group->record, 16);
	octets_put16(record + AT_DLID, group->lid);
	if (source) {
		gid_make(record + AT_SGID, source->port_guid);
		octets_put16(record + AT_SLID, source->lid);
	}
	memcpy(record + AT_FLOW, group->record + 44, 4);
	octets_put32(record + AT_FLOW, octets_get32(record + AT_FLOW) & 0x0fffffff);
	record[48] = group->record[39];
	record[AT_COUNT] = 0x80;
	memcpy(record + AT_PKEY, group->record + 40, 2);
	record[AT_SL + 1] = octet_high(group->record[44]);
	record[AT_MTU] = group->record[38];
	record[AT_RATE] = group->record[42];
	record[AT_LIFE] = group->record[43];
	sa_add(query, record);
}

/* Whom the query names as an end: a row, SM_NONE: anyone. False: it names what isn't there. */
static bool end_find(struct sa_query *query, unsigned int gid_component, unsigned int gid_at,
		     unsigned int lid_component, unsigned int lid_at, uint32_t *row)
{
	uint32_t by_lid;

	*row = SM_NONE;
	if (sa_has(query, gid_component)) {
		if (octets_get64(query->record + gid_at) == SM_PREFIX)
			*row = subnet_find_any(query->sm, query->subnet,
					       octets_get64(query->record + gid_at + 8));
		if (*row == SM_NONE || !query->subnet->nodes[*row].lid) {
			query->status = SA_INVALID_GID;
			return false;
		}
	}
	if (!sa_has(query, lid_component))
		return true;
	by_lid = subnet_by_lid(query->subnet, octets_get16(query->record + lid_at));
	if (by_lid == SM_NONE || (*row != SM_NONE && *row != by_lid)) {
		query->status = query->method == SA_GET ? SA_NO_RECORDS : SA_OK;
		return false;
	}
	*row = by_lid;
	return true;
}

static bool row_is_path_end(const struct sa_query *query, uint32_t row)
{
	return query->subnet->nodes[row].lid && !query->subnet->nodes[row].is_lost;
}

static void paths_offer(struct sa_query *query, uint32_t from, uint32_t to)
{
	uint32_t count = query->subnet->node_count;

	for (uint32_t i = from == SM_NONE ? 0 : from; i < (from == SM_NONE ? count : from + 1); i++)
		for (uint32_t k = to == SM_NONE ? 0 : to; k < (to == SM_NONE ? count : to + 1);
		     k++) {
			if (query->status)
				return;
			if (row_is_path_end(query, i) && row_is_path_end(query, k))
				pair_offer(query, i, k);
		}
}

void sa_paths(struct sa_query *query)
{
	uint32_t from, to;

	/* Raw packets. */
	if (sa_has(query, PATH_RAW) && (query->record[AT_FLOW] & 0x80))
		return;
	if (!end_find(query, PATH_SGID, AT_SGID, PATH_SLID, AT_SLID, &from))
		return;
	if (sa_has(query, PATH_DGID) && query->record[AT_DGID] == 0xff) {
		path_to_group(query, from == SM_NONE ? NULL : &query->subnet->nodes[from]);
		return;
	}
	if (!end_find(query, PATH_DGID, AT_DGID, PATH_DLID, AT_DLID, &to))
		return;
	paths_offer(query, from, to);
}

/* Several paths ------------------------------------------------------------------------------- */

/* MultiPathRecord: what PathRecord has from its flow label on, then counts of GIDs, then these. Its
 * mask has the same order, without the four ends and the service. */
enum { MULTI_SOURCES = 15, MULTI_TARGETS = 16, MULTI_GIDS = 24, MULTI_SHIFT = 6, MULTI_BITS = 16 };

static void multi_to_single(struct sa_query *query)
{
	uint8_t record[64] = {0};

	memcpy(record + AT_FLOW, query->record, 13);
	memcpy(query->record, record, sizeof record);
	query->mask = (query->mask & ((1u << MULTI_BITS) - 1)) << MULTI_SHIFT | 1u << PATH_DGID |
		      1u << PATH_SGID;
}

void sa_multi_paths(struct sa_query *query)
{
	unsigned int sources = query->record[MULTI_SOURCES];
	unsigned int targets = query->record[MULTI_TARGETS];
	const uint8_t *gids = query->extra + MULTI_GIDS;

	if (!sources || !targets || MULTI_GIDS + (sources + targets) * 16 > query->extra_bytes) {
		query->status = SA_INVALID;
		return;
	}
	multi_to_single(query);
	for (unsigned int i = 0; i < sources && !query->status; i++)
		for (unsigned int k = 0; k < targets && !query->status; k++) {
			memcpy(query->record + AT_SGID, gids + i * 16, 16);
			memcpy(query->record + AT_DGID, gids + (sources + k) * 16, 16);
			/* Groups have no choice of paths. */
			if (query->record[AT_SGID] == 0xff || query->record[AT_DGID] == 0xff)
				query->status = SA_INVALID;
			else
				sa_paths(query);
		}
}
