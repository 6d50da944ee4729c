/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a plan to tables, and back from memory to tables. Sizes follow from the plan only; the
 * memory that comes must be zero, and stays so where a table has its default.
 */
#include "fabric/clocks.h"
#include "fabric/internal.h"

#include <errno.h>
#include <stdio.h>

#define PAGE 4096u
#define ADAPTER_GUID 0x100000u
#define SWITCH_GUID 0x200000u

/* Adds what a node needs to the counts of rows. */
static void node_count(struct fabric_header *header, const struct fabric_plan_node *node)
{
	uint32_t rows = node->ports + (node->type == FABRIC_SWITCH);

	header->nodes++;
	header->ports += rows;
	header->name_bytes += (uint32_t)strlen(node->name) + 1;
	if (node->type == FABRIC_SWITCH) {
		header->switches++;
		header->end_ports++;
		header->sl_to_vl_rows += (uint64_t)rows * rows;
		header->multicast_words +=
			(node->ports / FABRIC_MFT_POSITIONS + 1) * FABRIC_MFT_ENTRIES;
	} else {
		header->end_ports += node->ports;
		header->sl_to_vl_rows += node->ports;
	}
}

static uint64_t table_bytes(const struct fabric_header *header, enum fabric_table table)
{
	switch (table) {
	case TABLE_NODES:
		return header->nodes * sizeof(struct fabric_node);
	case TABLE_PORTS:
		return header->ports * sizeof(struct fabric_port);
	case TABLE_COUNTERS:
		return header->ports * sizeof(struct fabric_counters);
	case TABLE_TRAPS:
		return FABRIC_TRAPS * sizeof(struct fabric_trap);
	case TABLE_PKEYS:
		return (uint64_t)header->ports * FABRIC_PKEYS * sizeof(uint16_t);
	case TABLE_GUIDS:
		return (uint64_t)header->end_ports * FABRIC_GUIDS * sizeof(uint64_t);
	case TABLE_VLARB:
		return (uint64_t)header->ports * 2 * FABRIC_VLARB_ENTRIES * 2;
	case TABLE_SL_TO_VL:
		return header->sl_to_vl_rows * FABRIC_SL_TO_VL_BYTES;
	case TABLE_UNICAST:
		return (uint64_t)header->switches * FABRIC_LFT_ENTRIES;
	case TABLE_MULTICAST:
		return (uint64_t)header->multicast_words * sizeof(uint16_t);
	case TABLE_CONGESTION:
		return header->nodes * sizeof(struct fabric_congestion);
	case TABLE_SL_WORDS:
		return (uint64_t)header->ports * 2 * FABRIC_SLS * sizeof(uint32_t);
	case TABLE_LANE_WAITS:
		return (uint64_t)header->ports * FABRIC_VLS * sizeof(uint16_t);
	case TABLE_SAMPLERS:
		return FABRIC_SAMPLERS * sizeof(struct fabric_sampler);
	case TABLE_ADDRESSES:
		return header->end_ports * sizeof(struct fabric_ip);
	case TABLE_NAMES:
		return header->name_bytes;
	case TABLES:
		break;
	}
	return 0;
}

static void header_place(struct fabric_header *header)
{
	uint64_t at = (sizeof *header + PAGE - 1) / PAGE * PAGE;

	for (enum fabric_table table = 0; table < TABLES; table++) {
		header->at[table] = at;
		at += (table_bytes(header, table) + PAGE - 1) / PAGE * PAGE;
	}
	header->bytes = at;
}

static void header_count(struct fabric_header *header, const struct fabric_plan *plan)
{
	memset(header, 0, sizeof *header);
	for (uint32_t i = 0; i < plan->node_count; i++)
		node_count(header, &plan->nodes[i]);
	header_place(header);
}

/* Checking ------------------------------------------------------------------------------------- */

static bool node_is_refused(const struct fabric_plan_node *node, struct fabric_refusal *refusal)
{
	const char *why = NULL;

	if (!node->name || !*node->name)
		why = "it has no name";
	else if (node->type < FABRIC_CA || node->type > FABRIC_ROUTER)
		why = "it is neither a switch nor an adapter";
	else if (!node->ports || node->ports > FABRIC_PORTS_MAX)
		why = "the number of ports must be 1 to 254";
	if (why)
		snprintf(refusal->text, sizeof refusal->text, "node \"%s\": %s",
			 node->name ? node->name : "", why);
	return why != NULL;
}

static bool cable_is_refused(const struct fabric_plan *plan, const struct fabric_plan_cable *cable,
			     struct fabric_refusal *refusal)
{
	for (int end = 0; end < 2; end++) {
		uint32_t node = cable->node[end];

		if (node < plan->node_count && cable->port[end] &&
		    cable->port[end] <= plan->nodes[node].ports)
			continue;
		snprintf(refusal->text, sizeof refusal->text,
			 "a cable ends at port %u of \"%s\", which isn't there", cable->port[end],
			 node < plan->node_count ? plan->nodes[node].name : "?");
		return true;
	}
	return false;
}

size_t fabric_layout(const struct fabric_plan *plan, struct fabric_refusal *refusal)
{
	struct fabric_header header;

	if (!plan->node_count || plan->node_count > FABRIC_NODES_MAX ||
	    plan->first_node >= plan->node_count) {
		snprintf(refusal->text, sizeof refusal->text, "a fabric has 1 to %u nodes, not %u",
			 FABRIC_NODES_MAX, plan->node_count);
		return 0;
	}
	for (uint32_t i = 0; i < plan->node_count; i++)
		if (node_is_refused(&plan->nodes[i], refusal))
			return 0;
	for (uint32_t i = 0; i < plan->cable_count; i++)
		if (cable_is_refused(plan, &plan->cables[i], refusal))
			return 0;
	header_count(&header, plan);
	return header.bytes;
}

/* Building ------------------------------------------------------------------------------------- */

static void fabric_locate(struct fabric *fabric, const struct fabric_functions *functions,
			  void *context, void *memory)
{
	struct fabric_header *header = memory;
	uint8_t *base = memory;

	*fabric = (struct fabric){
		.functions = functions,
		.context = context,
		.header = header,
		.nodes = (void *)(base + header->at[TABLE_NODES]),
		.ports = (void *)(base + header->at[TABLE_PORTS]),
		.counters = (void *)(base + header->at[TABLE_COUNTERS]),
		.traps = (void *)(base + header->at[TABLE_TRAPS]),
		.pkeys = (void *)(base + header->at[TABLE_PKEYS]),
		.guids = (void *)(base + header->at[TABLE_GUIDS]),
		.vlarb = base + header->at[TABLE_VLARB],
		.sl_to_vl = base + header->at[TABLE_SL_TO_VL],
		.unicast = base + header->at[TABLE_UNICAST],
		.multicast = (void *)(base + header->at[TABLE_MULTICAST]),
		.congestion = (void *)(base + header->at[TABLE_CONGESTION]),
		.sl_words = (void *)(base + header->at[TABLE_SL_WORDS]),
		.lane_waits = (void *)(base + header->at[TABLE_LANE_WAITS]),
		.samplers = (void *)(base + header->at[TABLE_SAMPLERS]),
		.ips = (void *)(base + header->at[TABLE_ADDRESSES]),
		.names = (char *)(base + header->at[TABLE_NAMES]),
	};
}

/* PortInfo of a port without a link. */
static void port_info_reset(struct fabric_port *port, uint8_t type, bool is_enhanced,
			    uint16_t capabilities2)
{
	uint32_t capabilities = 1u << 3 | 1u << 6 | 1u << 11 | 1u << 14 | 1u << 15 | 1u << 22;
	uint8_t *info = port->info;
	uint8_t widths = info[INFO_WIDTH_SUPPORTED];
	uint8_t speeds = octet_high(info[INFO_SPEED_SUPPORTED_STATE]);
	uint8_t extended = octet_low(info[INFO_EXT_ACTIVE_SUPPORTED]);
	uint8_t extended2 = port_ext2_supported(port);
	uint8_t mtu = octet_low(info[INFO_INIT_REPLY_MTU_CAP]);

	memset(info, 0, INFO_BYTES);
	info[INFO_WIDTH_SUPPORTED] = info[INFO_WIDTH_ENABLED] = widths;
	octet_set_high(&info[INFO_SPEED_SUPPORTED_STATE], speeds);
	octet_set_low(&info[INFO_SPEED_ACTIVE_ENABLED], speeds);
	octet_set_low(&info[INFO_EXT_ACTIVE_SUPPORTED], extended);
	info[INFO_EXT_ENABLED] = extended;
	port_set_ext2(port, 0, extended2, extended2);
	/* What switches show of a port that never had a link. */
	info[INFO_WIDTH_ACTIVE] = widths & 2 ? 2 : 1;
	octet_set_high(&info[INFO_SPEED_ACTIVE_ENABLED], 1);
	info[INFO_PHYSICAL_DOWN_DEFAULT] = PHYSICAL_POLLING << 4 | PHYSICAL_POLLING;
	port_set_state(port, PORT_DOWN);
	info[INFO_MTU_SM_SL] = (uint8_t)(mtu << 4);
	info[INFO_VL_CAP_INIT_TYPE] = 4 << 4;
	info[INFO_ARBITRATION_HIGH] = info[INFO_ARBITRATION_LOW] = FABRIC_VLARB_ENTRIES;
	info[INFO_INIT_REPLY_MTU_CAP] = mtu;
	info[INFO_VLS_ENFORCE] = 4 << 4;
	if (!port->is_end_port)
		return;
	if (type == FABRIC_SWITCH)
		capabilities |= 1u << 30 | 1u << 26;
	else
		capabilities |= 1u << 5 | 1u << 16 | 1u << 25 | 1u << 26;
	octets_put64(info + INFO_PREFIX, 0xfe80000000000000u);
	octets_put32(info + INFO_CAPABILITIES,
		     capabilities | (port->has_issm ? CAPABILITY_IS_SM : 0));
	octets_put16(info + INFO_CAPABILITIES2, capabilities2);
	info[INFO_GUID_CAP] = type == FABRIC_SWITCH ? 1 : FABRIC_GUIDS;
	info[INFO_REREGISTER_TIMEOUT] = 18;
	info[INFO_RESPONSE_TIME] = 16;
	if (port->number)
		return;
	/* A switch's own port has no link of its own. */
	port_set_state(port, is_enhanced ? PORT_INIT : PORT_ACTIVE);
	port_set_physical(port, PHYSICAL_LINK_UP);
	info[INFO_WIDTH_ACTIVE] = 2;
	octet_set_high(&info[INFO_SPEED_ACTIVE_ENABLED], 4);
}

uint8_t widths_upto(uint8_t width)
{
	static const uint8_t widths[] = {[1] = 1,
					 [2] = 1 | 2 | 16,
					 [4] = 1 | 2 | 4 | 16,
					 [8] = 1 | 2 | 4 | 8 | 16,
					 [16] = 1 | 16};

	return width < sizeof widths ? widths[width] : 0;
}

/* All bits up to the highest one. */
static uint8_t bits_upto(uint8_t bits)
{
	bits |= bits >> 1;
	bits |= bits >> 2;
	return bits | bits >> 4;
}

struct fabric_speed speeds_upto(struct fabric_speed speed)
{
	if (speed.ext2)
		speed.ext |= 8;
	if (speed.ext || !speed.basic)
		speed.basic = 4;
	return (struct fabric_speed){
		.basic = bits_upto(speed.basic & 7),
		.ext = bits_upto(speed.ext & 15),
		.ext2 = speed.ext2 & 1,
	};
}

/* All that a cable can carry, up to its own width and speed. */
static void port_equip(struct fabric_port *port, const struct fabric_plan_cable *cable)
{
	uint8_t widths = widths_upto(cable && cable->width ? cable->width : 2);
	struct fabric_speed speed = cable ? cable->speed : (struct fabric_speed){0};

	if (!speed.basic && !speed.ext && !speed.ext2)
		speed.ext = 4;
	speed = speeds_upto(speed);
	port->info[INFO_WIDTH_SUPPORTED] = widths ? widths : widths_upto(2);
	octet_set_high(&port->info[INFO_SPEED_SUPPORTED_STATE], speed.basic);
	octet_set_low(&port->info[INFO_EXT_ACTIVE_SUPPORTED], speed.ext);
	port_set_ext2(port, 0, speed.ext2, speed.ext2);
	octet_set_low(&port->info[INFO_INIT_REPLY_MTU_CAP],
		      cable && cable->mtu >= 1 && cable->mtu <= 5 ? cable->mtu : 5);
	port->cable_delay_ns = cable ? cable->delay_ns : 0;
}

static void ports_build(struct fabric *fabric, uint32_t index, const struct fabric_plan_node *plan,
			uint32_t *end_ports)
{
	struct fabric_node *node = &fabric->nodes[index];

	for (unsigned int number = plan->type != FABRIC_SWITCH; number <= plan->ports; number++) {
		struct fabric_port *port = &fabric->ports[node->first_port + number];

		port->node = index;
		port->number = (uint8_t)number;
		port->cable = FABRIC_NONE;
		port->is_end_port = plan->type != FABRIC_SWITCH || !number;
		port->end_port = port->is_end_port ? (*end_ports)++ : FABRIC_NONE;
		if (port->is_end_port)
			port->guid = number ? (plan->port_guid ? plan->port_guid + number - 1
							       : node->guid + number)
					    : (plan->port_guid ? plan->port_guid : node->guid);
		port_equip(port, NULL);
	}
}

void description_store(struct fabric_node *node, const char *text)
{
	size_t length = strnlen(text, sizeof node->description);

	memset(node->description, 0, sizeof node->description);
	memcpy(node->description, text, length);
}

struct builder {
	uint64_t adapter_guid, switch_guid;
	uint32_t ports, switches, sl_to_vl, multicast, names, end_ports;
};

static void node_build(struct fabric *fabric, struct builder *at, uint32_t index,
		       const struct fabric_plan_node *plan)
{
	struct fabric_node *node = &fabric->nodes[index];
	bool is_switch = plan->type == FABRIC_SWITCH;
	const char *description = plan->description ? plan->description : plan->name;
	uint32_t rows = plan->ports + is_switch;

	node->guid = plan->guid;
	if (!node->guid && is_switch)
		node->guid = at->switch_guid++;
	if (!node->guid) {
		node->guid = at->adapter_guid;
		at->adapter_guid += plan->ports + 1u;
	}
	node->system_guid = plan->system_guid ? plan->system_guid : node->guid;
	node->name = at->names;
	memcpy((char *)fabric->names + at->names, plan->name, strlen(plan->name) + 1);
	at->names += (uint32_t)strlen(plan->name) + 1;
	description_store(node, description);
	node->first_port = at->ports - !is_switch; /* wraps at the first row, and back */
	node->sl_to_vl = at->sl_to_vl;
	node->switch_index = is_switch ? at->switches++ : FABRIC_NONE;
	node->multicast = at->multicast;
	node->vendor_id = plan->vendor_id;
	node->revision = plan->revision;
	node->device_id = plan->device_id;
	node->type = plan->type;
	node->ports = plan->ports;
	node->has_enhanced_port0 = is_switch && !plan->has_base_port0;
	ports_build(fabric, index, plan, &at->end_ports);
	at->ports += rows;
	at->sl_to_vl += is_switch ? rows * rows : rows;
	if (is_switch)
		at->multicast += (plan->ports / FABRIC_MFT_POSITIONS + 1) * FABRIC_MFT_ENTRIES;
}

static void cable_build(struct fabric *fabric, const struct fabric_plan_cable *cable)
{
	uint32_t a = fabric_port_row(fabric, cable->node[0], cable->port[0]);
	uint32_t b = fabric_port_row(fabric, cable->node[1], cable->port[1]);

	fabric->ports[a].cable = b;
	fabric->ports[b].cable = a;
	port_equip(&fabric->ports[a], cable);
	port_equip(&fabric->ports[b], cable);
}

static void ip_build(struct fabric *fabric, const struct fabric_plan_ip *ip)
{
	uint32_t row = fabric_port_row(fabric, ip->node, ip->port);

	if (row != FABRIC_NONE && fabric->ports[row].end_port != FABRIC_NONE)
		fabric->ips[fabric->ports[row].end_port] = ip->ip;
}

/* CapabilityMask2: what any of its ports can do. */
static uint16_t node_capabilities2(const struct fabric *fabric, const struct fabric_node *node)
{
	uint16_t capabilities = CAPABILITY2_PORT_INFO_EXTENDED | CAPABILITY2_WIDTH_2X;

	for (unsigned int number = 1; number <= node->ports; number++) {
		const struct fabric_port *port = &fabric->ports[node->first_port + number];
		uint8_t ext = octet_low(port->info[INFO_EXT_ACTIVE_SUPPORTED]);

		capabilities |= ext & 4 ? CAPABILITY2_HDR : 0;
		capabilities |= ext & 8 ? CAPABILITY2_NDR : 0;
		capabilities |= port_ext2_supported(port)
					? CAPABILITY2_XDR | CAPABILITY2_EXTENDED_SPEEDS2
					: 0;
	}
	return capabilities;
}

/* The node's tables as they are without a subnet manager. */
static void node_reset(struct fabric *fabric, uint32_t index)
{
	struct fabric_node *node = &fabric->nodes[index];
	unsigned int first = node->type != FABRIC_SWITCH;
	uint16_t capabilities2 = node_capabilities2(fabric, node);

	for (unsigned int number = first; number <= node->ports; number++)
		port_info_reset(&fabric->ports[node->first_port + number], node->type,
				node->has_enhanced_port0, capabilities2);
	node->linear_top = node->multicast_top = 0;
	node->default_port = node->default_primary = node->default_not_primary = 0;
	node->life_time = 0;
	node->switch_info_flags = 0;
}

void fabric_build(struct fabric *fabric, const struct fabric_functions *functions, void *context,
		  void *memory, const struct fabric_plan *plan)
{
	struct fabric_header *header = memory;
	struct builder at = {.adapter_guid = ADAPTER_GUID, .switch_guid = SWITCH_GUID};

	header_count(header, plan);
	memcpy(header->magic, FABRIC_MAGIC, sizeof FABRIC_MAGIC);
	header->layout = FABRIC_LAYOUT;
	header->first_node = plan->first_node;
	if (plan->title)
		strncpy(header->title, plan->title, sizeof header->title - 1);
	fabric_locate(fabric, functions, context, memory);
	for (uint32_t i = 0; i < plan->node_count; i++)
		node_build(fabric, &at, i, &plan->nodes[i]);
	for (uint32_t i = 0; i < plan->cable_count; i++)
		cable_build(fabric, &plan->cables[i]);
	for (uint32_t i = 0; i < plan->ip_count; i++)
		ip_build(fabric, &plan->ips[i]);
	for (uint32_t i = 0; i < plan->node_count; i++)
		node_reset(fabric, i);
	for (uint32_t i = 0; i < header->ports; i++)
		link_settle(fabric, i, false);
	deadline_find(fabric);
	/* [P3], pairs with [P4] */
	__atomic_store_n(&header->is_complete, 1, __ATOMIC_RELEASE);
}

void node_tables_clear(struct fabric *fabric, uint32_t index)
{
	struct fabric_node *node = &fabric->nodes[index];
	bool is_switch = node->type == FABRIC_SWITCH;
	uint32_t rows = node->ports + is_switch;
	uint32_t first = node->first_port + !is_switch;

	memset(fabric->counters + first, 0, rows * sizeof *fabric->counters);
	memset(fabric->sl_words + (size_t)first * 2 * FABRIC_SLS, 0,
	       (size_t)rows * 2 * FABRIC_SLS * sizeof *fabric->sl_words);
	memset(fabric->lane_waits + (size_t)first * FABRIC_VLS, 0,
	       (size_t)rows * FABRIC_VLS * sizeof *fabric->lane_waits);
	memset(fabric->pkeys + (size_t)first * FABRIC_PKEYS, 0, rows * FABRIC_PKEYS * 2);
	memset(fabric->vlarb + (size_t)first * 4 * FABRIC_VLARB_ENTRIES, 0,
	       rows * 4 * FABRIC_VLARB_ENTRIES);
	memset(fabric->sl_to_vl + (size_t)node->sl_to_vl * FABRIC_SL_TO_VL_BYTES, 0,
	       (size_t)(is_switch ? rows * rows : rows) * FABRIC_SL_TO_VL_BYTES);
	memset(&fabric->congestion[index], 0, sizeof fabric->congestion[index]);
	for (uint32_t row = first; row < first + rows; row++)
		if (fabric->ports[row].end_port != FABRIC_NONE)
			memset(fabric->guids + (size_t)fabric->ports[row].end_port * FABRIC_GUIDS,
			       0, FABRIC_GUIDS * sizeof(uint64_t));
	if (is_switch) {
		memset(fabric->unicast + (size_t)node->switch_index * FABRIC_LFT_ENTRIES, 0,
		       FABRIC_LFT_ENTRIES);
		memset(fabric->multicast + node->multicast, 0,
		       (node->ports / FABRIC_MFT_POSITIONS + 1) * FABRIC_MFT_ENTRIES * 2);
	}
	node_reset(fabric, index);
}

/* Opening -------------------------------------------------------------------------------------- */

/* Rows whose indexes other code relies on. What managers write is checked where it is used. */
static bool node_is_sane(const struct fabric *fabric, const struct fabric_node *node)
{
	const struct fabric_header *header = fabric->header;
	bool is_switch = node->type == FABRIC_SWITCH;
	uint64_t rows = node->ports + (uint64_t)is_switch;
	uint64_t first = (uint32_t)(node->first_port + !is_switch);

	if (node->type < FABRIC_CA || node->type > FABRIC_ROUTER || !node->ports ||
	    node->ports > FABRIC_PORTS_MAX || first + rows > header->ports ||
	    node->name >= header->name_bytes ||
	    node->sl_to_vl + (is_switch ? rows * rows : rows) > header->sl_to_vl_rows)
		return false;
	if (!is_switch)
		return node->switch_index == FABRIC_NONE;
	return node->switch_index < header->switches &&
	       node->multicast + (node->ports / FABRIC_MFT_POSITIONS + 1ull) * FABRIC_MFT_ENTRIES <=
		       header->multicast_words;
}

static bool port_is_sane(const struct fabric *fabric, uint32_t row)
{
	const struct fabric_header *header = fabric->header;
	const struct fabric_port *port = &fabric->ports[row];

	if (port->node >= header->nodes || port->number > fabric->nodes[port->node].ports ||
	    (uint32_t)(fabric->nodes[port->node].first_port + port->number) != row)
		return false;
	if (port->cable != FABRIC_NONE &&
	    (port->cable >= header->ports || fabric->ports[port->cable].cable != row))
		return false;
	return port->end_port == FABRIC_NONE ? !port->is_end_port
					     : port->end_port < header->end_ports;
}

/* Opens tables without writing to them. */
static int tables_open(struct fabric *fabric, const struct fabric_functions *functions,
		       void *context, void *memory, size_t bytes)
{
	struct fabric_header *header = memory;
	struct fabric_header placed;

	if (bytes < sizeof *header || memcmp(header->magic, FABRIC_MAGIC, sizeof FABRIC_MAGIC) ||
	    header->layout != FABRIC_LAYOUT ||
	    /* [P4], pairs with [P3] */
	    !__atomic_load_n(&header->is_complete, __ATOMIC_ACQUIRE) || header->bytes != bytes ||
	    header->nodes > FABRIC_NODES_MAX || !header->nodes ||
	    header->first_node >= header->nodes || !header->name_bytes ||
	    header->slow > CLOCKS_SLOW_MAX)
		return -EINVAL;
	placed = *header;
	header_place(&placed);
	if (placed.bytes != bytes || memcmp(placed.at, header->at, sizeof placed.at))
		return -EINVAL;
	fabric_locate(fabric, functions, context, memory);
	if (fabric->names[header->name_bytes - 1])
		return -EINVAL;
	for (uint32_t i = 0; i < header->nodes; i++)
		if (!node_is_sane(fabric, &fabric->nodes[i]))
			return -EINVAL;
	for (uint32_t i = 0; i < header->ports; i++)
		if (!port_is_sane(fabric, i))
			return -EINVAL;
	return 0;
}

int fabric_view(struct fabric *fabric, const void *memory, size_t bytes)
{
	return tables_open(fabric, NULL, NULL, (void *)memory, bytes);
}

int fabric_open(struct fabric *fabric, const struct fabric_functions *functions, void *context,
		void *memory, size_t bytes)
{
	int result = tables_open(fabric, functions, context, memory, bytes);

	if (result)
		return result;
	for (uint32_t i = 0; i < FABRIC_TRAPS; i++)
		if (fabric->traps[i].port >= fabric->header->ports)
			fabric->traps[i].next_ms = 0;
	samplers_check(fabric);
	deadline_find(fabric);
	return 0;
}

/* Finding -------------------------------------------------------------------------------------- */

const char *fabric_node_name(const struct fabric *fabric, uint32_t node)
{
	return fabric->names + fabric->nodes[node].name;
}

uint32_t fabric_port_row(const struct fabric *fabric, uint32_t node, unsigned int number)
{
	const struct fabric_node *row = &fabric->nodes[node];

	if (number > row->ports || (!number && row->type != FABRIC_SWITCH))
		return FABRIC_NONE;
	return row->first_port + number;
}

uint32_t fabric_end_port(const struct fabric *fabric, uint32_t port)
{
	const struct fabric_port *row = &fabric->ports[port];

	return row->is_end_port ? port : fabric->nodes[row->node].first_port;
}

void fabric_gid_get(const struct fabric *fabric, uint32_t end_port, unsigned int index,
		    uint8_t gid[16])
{
	const struct fabric_port *port = &fabric->ports[end_port];
	uint64_t guid = 0;

	if (index && index < port->info[INFO_GUID_CAP] && index < FABRIC_GUIDS)
		guid = fabric->guids[(size_t)port->end_port * FABRIC_GUIDS + index];
	memcpy(gid, port->info + INFO_PREFIX, 8);
	octets_put64(gid + 8, guid ? guid : port->guid);
}

const struct fabric_ip *fabric_ip_get(const struct fabric *fabric, uint32_t end_port)
{
	const struct fabric_port *port = &fabric->ports[end_port];

	if (port->end_port == FABRIC_NONE || !fabric->ips[port->end_port].version)
		return NULL;
	return &fabric->ips[port->end_port];
}

uint32_t fabric_ip_find(const struct fabric *fabric, const uint8_t address[16])
{
	for (uint32_t row = 0; row < fabric->header->ports; row++) {
		const struct fabric_ip *ip = fabric_ip_get(fabric, row);

		if (ip && !memcmp(ip->address, address, sizeof ip->address))
			return row;
	}
	return FABRIC_NONE;
}

uint32_t fabric_lid_find(const struct fabric *fabric, uint16_t lid)
{
	for (uint32_t row = 0; row < fabric->header->ports; row++)
		if (fabric->ports[row].is_end_port && port_has_lid(&fabric->ports[row], lid))
			return row;
	return FABRIC_NONE;
}

struct fabric_port *port_at(struct fabric *fabric, uint32_t row)
{
	return row == FABRIC_NONE ? NULL : &fabric->ports[row];
}

void fabric_touch(struct fabric *fabric)
{
	/* [P2], pairs with [P1]: what was written to the tables, before the number. */
	__atomic_fetch_add(&fabric->header->epoch, 1, __ATOMIC_RELEASE);
}

void fabric_routes_changed(struct fabric *fabric)
{
	fabric_touch(fabric);
}
