/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables of a subnet, as one sweep finds it: nodes, ports, which port is joined to which. Rows
 * name one another by index. A port of an adapter is a node of its own, since it has a LID of its
 * own and is reached by its own cable only. All memory belongs to the subnet.
 */
#include "sm/internal.h"

uint32_t sm_hash(uint64_t value)
{
	value *= 0x9e3779b97f4a7c15u;
	return (uint32_t)(value >> 32);
}

struct sm_subnet *subnet_create(void)
{
	struct sm_subnet *subnet = calloc(1, sizeof *subnet);

	if (!subnet)
		return NULL;
	subnet->index_room = 64;
	subnet->index = calloc(subnet->index_room, sizeof *subnet->index);
	if (!subnet->index) {
		free(subnet);
		return NULL;
	}
	return subnet;
}

void sm_tables_free(struct sm_tables *tables)
{
	if (!tables)
		return;
	free(tables->unicast);
	free(tables->wanted);
	free(tables->is_known);
	free(tables->multicast);
	free(tables);
}

void subnet_free(struct sm_subnet *subnet)
{
	if (!subnet)
		return;
	for (uint32_t i = 0; i < subnet->node_count; i++) {
		sm_tables_free(subnet->nodes[i].tables);
		free(subnet->nodes[i].guids);
	}
	for (uint32_t i = 0; i < subnet->port_count; i++) {
		free(subnet->ports[i].sl_to_vl);
		free(subnet->ports[i].arbitration);
		free(subnet->ports[i].pkeys);
	}
	free(subnet->nodes);
	free(subnet->ports);
	free(subnet->index);
	free(subnet->switches);
	free(subnet->by_lid);
	free(subnet->tree_order);
	free(subnet->tree_parent);
	free(subnet);
}

/* Finding -------------------------------------------------------------------------------------- */

/* The place of the GUID in the index, or the free place where it belongs. */
static uint32_t subnet_index_place(const struct sm_subnet *subnet, uint64_t port_guid)
{
	uint32_t mask = subnet->index_room - 1;
	uint32_t at = sm_hash(port_guid) & mask;

	while (subnet->index[at] && subnet->nodes[subnet->index[at] - 1].port_guid != port_guid)
		at = (at + 1) & mask;
	return at;
}

uint32_t subnet_find(const struct sm_subnet *subnet, uint64_t port_guid)
{
	uint32_t found = subnet->index[subnet_index_place(subnet, port_guid)];

	return found ? found - 1 : SM_NONE;
}

uint32_t subnet_port(const struct sm_subnet *subnet, uint32_t node, unsigned int number)
{
	const struct sm_node *row;

	if (node >= subnet->node_count)
		return SM_NONE;
	row = &subnet->nodes[node];
	if (row->type != SM_SWITCH)
		return number == row->number ? row->first_port : SM_NONE;
	return number <= row->ports ? row->first_port + number : SM_NONE;
}

uint32_t subnet_by_lid(const struct sm_subnet *subnet, uint16_t lid)
{
	if (!subnet->by_lid || lid >= LID_MULTICAST || !subnet->by_lid[lid])
		return SM_NONE;
	return subnet->by_lid[lid] - 1;
}

uint32_t subnet_peer_node(const struct sm_subnet *subnet, uint32_t port)
{
	uint32_t peer = port == SM_NONE ? SM_NONE : subnet->ports[port].peer;

	return peer == SM_NONE ? SM_NONE : subnet->ports[peer].node;
}

struct sm_port *subnet_end(const struct sm_subnet *subnet, uint32_t node)
{
	return &subnet->ports[subnet->nodes[node].first_port];
}

uint32_t subnet_attachment(const struct sm_subnet *subnet, uint32_t node)
{
	uint32_t peer = subnet->ports[subnet->nodes[node].first_port].peer;

	if (subnet->nodes[node].type == SM_SWITCH || peer == SM_NONE ||
	    subnet->nodes[subnet->ports[peer].node].type != SM_SWITCH)
		return SM_NONE;
	return peer;
}

bool subnet_port_is_linked(const struct sm_subnet *subnet, uint32_t port)
{
	const struct sm_port *row = &subnet->ports[port];
	uint32_t peer = row->peer;

	if (peer == SM_NONE || !row->has_info || !subnet->ports[peer].has_info)
		return false;
	return sm_port_state(row) >= PORT_INIT &&
	       sm_port_state(&subnet->ports[peer]) >= PORT_INIT &&
	       !subnet->nodes[row->node].is_lost &&
	       !subnet->nodes[subnet->ports[peer].node].is_lost;
}

/* Adding --------------------------------------------------------------------------------------- */

/* Room for one more row of `size` bytes. */
static bool rows_grow(void **rows, uint32_t count, uint32_t more, uint32_t *room, size_t size)
{
	uint32_t wanted = *room ? *room : 64;
	void *larger;

	if (count + more <= *room)
		return true;
	while (wanted < count + more)
		wanted *= 2;
	larger = realloc(*rows, wanted * size);
	if (!larger)
		return false;
	*rows = larger;
	*room = wanted;
	return true;
}

static bool subnet_index_grow(struct sm_subnet *subnet)
{
	uint32_t *old = subnet->index;

	if (subnet->node_count * 2 < subnet->index_room)
		return true;
	subnet->index = calloc(subnet->index_room * 2, sizeof *subnet->index);
	if (!subnet->index) {
		subnet->index = old;
		return false;
	}
	subnet->index_room *= 2;
	for (uint32_t i = 0; i < subnet->node_count; i++)
		subnet->index[subnet_index_place(subnet, subnet->nodes[i].port_guid)] = i + 1;
	free(old);
	return true;
}

static void node_fill(struct sm_node *node, const uint8_t info[40])
{
	*node = (struct sm_node){
		.type = info[2],
		.ports = info[2] == SM_SWITCH ? info[3] : 0,
		.number = info[2] == SM_SWITCH ? 0 : info[36],
		.system_guid = octets_get64(info + 4),
		.guid = octets_get64(info + 12),
		.port_guid = octets_get64(info + 20),
	};
	memcpy(node->info, info, sizeof node->info);
}

uint32_t subnet_node_add(struct sm_subnet *subnet, const uint8_t info[40])
{
	uint32_t row = subnet->node_count, rows = info[2] == SM_SWITCH ? info[3] + 1u : 1;
	struct sm_node *node;

	if (!subnet_index_grow(subnet) ||
	    !rows_grow((void **)&subnet->nodes, row, 1, &subnet->node_room,
		       sizeof *subnet->nodes) ||
	    !rows_grow((void **)&subnet->ports, subnet->port_count, rows, &subnet->port_room,
		       sizeof *subnet->ports))
		return SM_NONE;
	node = &subnet->nodes[row];
	node_fill(node, info);
	node->first_port = subnet->port_count;
	for (uint32_t i = 0; i < rows; i++)
		subnet->ports[subnet->port_count++] = (struct sm_port){
			.node = row,
			.peer = SM_NONE,
			.number = node->type == SM_SWITCH ? (uint8_t)i : node->number,
		};
	subnet->node_count++;
	subnet->index[subnet_index_place(subnet, node->port_guid)] = row + 1;
	return row;
}

/* Closing -------------------------------------------------------------------------------------- */

static int node_compare(const void *a, const void *b)
{
	const struct sm_node *const *left = a, *const *right = b;

	return (*left)->port_guid < (*right)->port_guid ? -1
							: (*left)->port_guid > (*right)->port_guid;
}

static int switches_sort(struct sm_subnet *subnet)
{
	const struct sm_node **rows = calloc(subnet->node_count + 1, sizeof *rows);
	uint32_t count = 0;

	subnet->switches = calloc(subnet->node_count + 1, sizeof *subnet->switches);
	if (!rows || !subnet->switches) {
		free(rows);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < subnet->node_count; i++)
		if (subnet->nodes[i].type == SM_SWITCH && !subnet->nodes[i].is_lost)
			rows[count++] = &subnet->nodes[i];
	qsort(rows, count, sizeof *rows, node_compare);
	for (uint32_t i = 0; i < count; i++) {
		subnet->switches[i] = (uint32_t)(rows[i] - subnet->nodes);
		subnet->nodes[subnet->switches[i]].place = i;
	}
	subnet->switch_count = count;
	free(rows);
	return 0;
}

int subnet_close(struct sm_subnet *subnet)
{
	subnet->by_lid = calloc(LID_MULTICAST, sizeof *subnet->by_lid);
	if (!subnet->by_lid || switches_sort(subnet))
		return -ENOMEM;
	for (uint32_t i = 0; i < subnet->node_count; i++) {
		const struct sm_node *node = &subnet->nodes[i];
		uint32_t end = node->lid + sm_lid_count(node);

		if (!node->lid || end > LID_MULTICAST)
			continue;
		for (uint32_t lid = node->lid; lid < end; lid++)
			subnet->by_lid[lid] = i + 1;
		if (end > subnet->top_lid + 1u)
			subnet->top_lid = (uint16_t)(end - 1);
	}
	for (uint32_t i = 0; i < subnet->port_count; i++)
		if (subnet_port_is_linked(subnet, i) && subnet->ports[i].peer > i)
			subnet->link_count++;
	return 0;
}
