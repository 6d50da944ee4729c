/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of the administration that repeat what the last sweep found or wrote. */
#include "sm/sa.h"

/* A query that names a LID looks at that node only. */
static bool node_is_asked(const struct sa_query *query, const struct sm_node *node)
{
	if (!node->lid || node->is_lost)
		return false;
	return !sa_has(query, 0) || sm_node_has_lid(node, octets_get16(query->record));
}

/* Of a node that is asked: its record has the first of its LIDs, the query may have any. */
static void node_offer(struct sa_query *query, const uint8_t *record, uint64_t except)
{
	sa_offer(query, record, except | 1);
}

#define EACH_NODE(node, query)                                                      \
	for (const struct sm_node *node = (query)->subnet->nodes,                   \
				  *node##_end = node + (query)->subnet->node_count; \
	     node < node##_end; node++)                                             \
		if (node_is_asked(query, node))

#define EACH_SWITCH(node, query) EACH_NODE(node, query) if (node->type == SM_SWITCH)

/* Rows of a node's ports. */
static uint32_t node_rows(const struct sm_node *node)
{
	return node->type == SM_SWITCH ? node->ports + 1u : 1;
}

void sa_class_port_info(struct sa_query *query)
{
	uint8_t record[72] = {1, 2};

	/* QoS, alias GUIDs, members that only send. */
	uint32_t capabilities = (query->sm->qos_rule_count ? 1u << 1 : 0) | 1u << 5 | 1u << 12;

	/* Notices, multicast, several paths, PortInfo by capabilities. */
	octets_put16(record + 2, 0x2602);
	octets_put32(record + 4, capabilities << 5 | 16);
	sa_add(query, record);
}

void sa_nodes(struct sa_query *query)
{
	EACH_NODE(node, query)
	{
		uint8_t record[112] = {0};

		octets_put16(record, node->lid);
		memcpy(record + 4, node->info, 40);
		memcpy(record + 44, node->description, 64);
		node_offer(query, record, 0);
	}
}

/* With modifier bit 31, all capabilities of the query must be there, and others may be. */
static bool capabilities_agree(const struct sa_query *query, const struct sm_port *port)
{
	uint32_t wanted = octets_get32(query->record + 4 + INFO_CAPABILITIES);

	if (!(query->modifier & 1u << 31) || !sa_has(query, 7))
		return true;
	return (sm_port_capabilities(port) & wanted) == wanted;
}

void sa_ports(struct sa_query *query)
{
	uint64_t except = query->modifier & 1u << 31 ? 1u << 7 : 0;

	EACH_NODE(node, query)
	{
		for (uint32_t i = 0; i < node_rows(node); i++) {
			const struct sm_port *port = &query->subnet->ports[node->first_port + i];
			uint8_t record[72] = {0};

			if (!port->has_info || !capabilities_agree(query, port))
				continue;
			octets_put16(record, node->lid);
			record[2] = port->number;
			memcpy(record + 4, port->info, INFO_BYTES);
			/* The M_Key is for managers. */
			if (!query->is_trusted)
				memset(record + 4 + INFO_M_KEY, 0, 8);
			node_offer(query, record, except);
		}
	}
}

void sa_switches(struct sa_query *query)
{
	EACH_SWITCH(node, query)
	{
		uint8_t record[24] = {0};

		octets_put16(record, node->lid);
		memcpy(record + 4, node->switch_info, sizeof node->switch_info);
		node_offer(query, record, 0);
	}
}

void sa_unicast(struct sa_query *query)
{
	uint32_t blocks = query->subnet->top_lid / SM_UNICAST_BLOCK + 1;

	EACH_SWITCH(node, query)
	{
		for (uint32_t block = 0; node->tables && block < blocks; block++) {
			uint8_t record[72] = {0};

			if (block >= node->tables->blocks || !node->tables->is_known[block])
				continue;
			octets_put16(record, node->lid);
			octets_put16(record + 2, (uint16_t)block);
			memcpy(record + 8, node->tables->unicast + block * SM_UNICAST_BLOCK,
			       SM_UNICAST_BLOCK);
			node_offer(query, record, 0);
		}
	}
}

static void multicast_offer(struct sa_query *query, const struct sm_node *node,
			    unsigned int position, unsigned int block)
{
	const uint16_t *known =
		node->tables->multicast + position * SM_MULTICAST_LIDS + block * SM_MULTICAST_BLOCK;
	uint8_t record[72] = {0};

	octets_put16(record, node->lid);
	octets_put16(record + 2, (uint16_t)(position << 12 | block));
	for (unsigned int i = 0; i < SM_MULTICAST_BLOCK; i++)
		octets_put16(record + 8 + 2 * i, known[i]);
	node_offer(query, record, 0);
}

void sa_multicast(struct sa_query *query)
{
	EACH_SWITCH(node, query)
	{
		if (!node->tables || !node->tables->multicast)
			continue;
		for (unsigned int block = 0; block < SM_MULTICAST_LIDS / SM_MULTICAST_BLOCK;
		     block++)
			for (unsigned int position = 0; position <= node->ports / 16u; position++)
				if (node->tables->multicast_known[position][block])
					multicast_offer(query, node, position, block);
	}
}

static void manager_offer(struct sa_query *query, uint16_t lid, const struct sm_other *manager)
{
	uint8_t record[32] = {0};

	octets_put16(record, lid);
	octets_put64(record + 4, manager->guid);
	if (manager->guid == query->sm->own_guid)
		octets_put32(record + 20, query->sm->activity);
	record[24] = (uint8_t)(manager->priority << 4 | manager->state);
	sa_offer(query, record, 0);
}

void sa_managers(struct sa_query *query)
{
	const struct sm *sm = query->sm;
	const struct sm_other own = {
		.guid = sm->own_guid,
		.priority = sm->options.priority,
		.state = (uint8_t)sm->state,
	};

	manager_offer(query, sm->own_lid, &own);
	/* While a sweep is under way, the others' rows are about another table. */
	for (uint32_t i = 0; sm->work == sm->subnet && i < sm->other_count; i++)
		manager_offer(query, sm->subnet->nodes[sm->others[i].node].lid, &sm->others[i]);
}

void sa_links(struct sa_query *query)
{
	const struct sm_subnet *subnet = query->subnet;

	EACH_NODE(node, query)
	{
		for (uint32_t i = 0; i < node_rows(node); i++) {
			const struct sm_port *port = &subnet->ports[node->first_port + i];
			uint8_t record[8] = {0};

			if (!subnet_port_is_linked(subnet, node->first_port + i))
				continue;
			octets_put16(record, node->lid);
			record[2] = port->number;
			record[3] = subnet->ports[port->peer].number;
			octets_put16(record + 4, subnet->nodes[subnet->ports[port->peer].node].lid);
			node_offer(query, record, 0);
		}
	}
}

void sa_guids(struct sa_query *query)
{
	EACH_NODE(node, query)
	{
		unsigned int count = query->subnet->ports[node->first_port].info[INFO_GUID_CAP];

		for (unsigned int block = 0; block * 8 < count; block++) {
			uint8_t record[72] = {0};

			if (!(node->guids_known >> block & 1))
				continue;
			octets_put16(record, node->lid);
			record[2] = (uint8_t)block;
			memcpy(record + 8, node->guids + block * 64, 64);
			node_offer(query, record, 0);
		}
	}
}

static void pkeys_offer(struct sa_query *query, const struct sm_node *node,
			const struct sm_port *port)
{
	for (unsigned int block = 0; port->pkeys && block < port->pkey_blocks; block++) {
		uint8_t record[72] = {0};

		if (!port->pkeys[block].is_known)
			continue;
		octets_put16(record, node->lid);
		octets_put16(record + 2, (uint16_t)block);
		record[4] = port->number;
		for (unsigned int i = 0; i < SM_PKEY_BLOCK; i++)
			octets_put16(record + 8 + 2 * i, port->pkeys[block].keys[i]);
		node_offer(query, record, 0);
	}
}

/* Partitions are for managers. */
void sa_pkeys(struct sa_query *query)
{
	if (!query->is_trusted) {
		query->status = SA_INVALID;
		return;
	}
	EACH_NODE(node, query)
	{
		for (uint32_t i = 0; i < node_rows(node); i++)
			pkeys_offer(query, node, &query->subnet->ports[node->first_port + i]);
	}
}

void sa_lanes(struct sa_query *query)
{
	EACH_NODE(node, query)
	{
		for (uint32_t i = 0; i < node_rows(node); i++) {
			const struct sm_port *port = &query->subnet->ports[node->first_port + i];

			for (unsigned int in = 0; port->sl_to_vl && in < node_rows(node); in++) {
				uint8_t record[16] = {0};

				octets_put16(record, node->lid);
				record[2] = (uint8_t)in;
				record[3] = node->type == SM_SWITCH ? port->number : 0;
				memcpy(record + 8, port->sl_to_vl + 8 * in, 8);
				node_offer(query, record, 0);
			}
		}
	}
}

void sa_arbitration(struct sa_query *query)
{
	EACH_NODE(node, query)
	{
		for (uint32_t i = 0; i < node_rows(node); i++) {
			const struct sm_port *port = &query->subnet->ports[node->first_port + i];
			const uint8_t rooms[] = {port->info[INFO_ARBITRATION_LOW],
						 port->info[INFO_ARBITRATION_HIGH]};

			for (unsigned int block = 0; port->arbitration && block < 4; block++) {
				uint8_t record[72] = {0};

				if (rooms[block / 2] <= (block % 2) * 32)
					continue;
				octets_put16(record, node->lid);
				record[2] = port->number;
				record[3] = (uint8_t)(block + 1);
				memcpy(record + 8, port->arbitration + block * 64, 64);
				node_offer(query, record, 0);
			}
		}
	}
}
