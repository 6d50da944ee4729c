/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast trees: one spanning tree of all switches, from a central one, of which each group uses
 * the part that joins its members. Switches between two members' switches pass packets on; a member
 * that only sends is joined to the tree, but gets nothing.
 */
#include "sm/internal.h"

/* A breadth-first tree from one switch. Returns how many switches it has. */
static uint32_t tree_grow(struct sm_subnet *subnet, uint32_t root)
{
	uint32_t head = 0, tail = 0;

	for (uint32_t i = 0; i < subnet->switch_count; i++)
		subnet->tree_parent[i] = SM_NONE - 1;
	subnet->tree_parent[root] = SM_NONE;
	if (subnet->switch_count)
		subnet->tree_order[tail++] = root;
	while (head < tail) {
		const struct sm_node *node =
			&subnet->nodes[subnet->switches[subnet->tree_order[head++]]];

		for (unsigned int number = 1; number <= node->ports; number++) {
			uint32_t row = node->first_port + number;
			uint32_t peer = subnet_peer_node(subnet, row);

			if (peer == SM_NONE || subnet->nodes[peer].type != SM_SWITCH ||
			    !subnet_port_is_linked(subnet, row) ||
			    subnet->tree_parent[subnet->nodes[peer].place] != SM_NONE - 1)
				continue;
			subnet->tree_parent[subnet->nodes[peer].place] = subnet->ports[row].peer;
			subnet->tree_order[tail++] = subnet->nodes[peer].place;
		}
	}
	return tail;
}

/* The place of the switch that is in the middle of the longest of shortest paths: two searches. */
static uint32_t tree_center(struct sm_subnet *subnet)
{
	uint32_t end, at, length = 0;

	end = subnet->tree_order[tree_grow(subnet, 0) - 1];
	at = subnet->tree_order[tree_grow(subnet, end) - 1];
	for (uint32_t i = at; i != end; length++)
		i = subnet->nodes[subnet_peer_node(subnet, subnet->tree_parent[i])].place;
	for (uint32_t i = 0; i < length / 2; i++)
		at = subnet->nodes[subnet_peer_node(subnet, subnet->tree_parent[at])].place;
	return at;
}

int trees_prepare(struct sm_subnet *subnet)
{
	subnet->tree_order = calloc(subnet->switch_count + 1, sizeof *subnet->tree_order);
	subnet->tree_parent = calloc(subnet->switch_count + 1, sizeof *subnet->tree_parent);
	if (!subnet->tree_order || !subnet->tree_parent)
		return -ENOMEM;
	if (!subnet->switch_count)
		return 0;
	subnet->tree_root = tree_center(subnet);
	subnet->tree_count = tree_grow(subnet, subnet->tree_root);
	return 0;
}

/* Groups --------------------------------------------------------------------------------------- */

static void mask_set(struct sm_group *group, uint32_t place, unsigned int port)
{
	group->masks[place][port / 8] |= (uint8_t)(1u << (port % 8));
}

/* Counts the member at its switch, and opens its port if it receives. */
static void member_place(const struct sm_subnet *subnet, struct sm_group *group,
			 const struct sm_member *member, uint32_t *counts, uint32_t *total)
{
	uint32_t row = subnet_find(subnet, member->guid);
	uint32_t attachment, place;
	unsigned int port = 0;

	if (row == SM_NONE || subnet->nodes[row].is_lost)
		return;
	if (subnet->nodes[row].type == SM_SWITCH) {
		place = subnet->nodes[row].place;
	} else {
		attachment = subnet_attachment(subnet, row);
		if (attachment == SM_NONE || !subnet_port_is_linked(subnet, attachment))
			return;
		place = subnet->nodes[subnet->ports[attachment].node].place;
		port = subnet->ports[attachment].number;
	}
	counts[place]++;
	++*total;
	if (member->state & 3)
		mask_set(group, place, port);
}

/* From the leaves to the root: an edge is used if there are members on both of its sides. */
static void tree_prune(const struct sm_subnet *subnet, struct sm_group *group, uint32_t *counts,
		       uint32_t total)
{
	for (uint32_t i = subnet->tree_count; i-- > 1;) {
		uint32_t place = subnet->tree_order[i];
		uint32_t row = subnet->tree_parent[place];
		const struct sm_port *parent = &subnet->ports[subnet->ports[row].peer];
		uint32_t above = subnet->nodes[parent->node].place;

		counts[above] += counts[place];
		if (!counts[place] || counts[place] == total)
			continue;
		mask_set(group, place, subnet->ports[row].number);
		mask_set(group, above, parent->number);
	}
}

void group_tree_make(struct sm *sm, struct sm_group *group)
{
	const struct sm_subnet *subnet = sm->work;
	uint32_t *counts = calloc(subnet->switch_count + 1, sizeof *counts);
	uint32_t total = 0;

	free(group->masks);
	group->masks = NULL;
	group->mask_count = 0;
	if (!group->count) {
		free(counts);
		return;
	}
	group->masks = calloc(subnet->switch_count + 1, sizeof *group->masks);
	group->mask_count = group->masks ? subnet->switch_count : 0;
	if (counts && group->masks) {
		for (uint32_t i = 0; i < group->count; i++)
			member_place(subnet, group, &group->members[i], counts, &total);
		tree_prune(subnet, group, counts, total);
	} else {
		sm->work->faults++;
	}
	free(counts);
}
