/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sweeps of what changed: switches and adapters that reported a change (by a trap, or when all
 * switches were asked) are looked at again, and what is new behind their ports; all else is as the
 * last sweep found it. What follows, from LIDs on, is the same as after a whole discovery.
 *
 * Directed routes may have led through what is broken now. So a node is asked only when the ports
 * on the way to it have answered in this sweep that they are linked, the nearest first; a port that
 * isn't any more takes its cable out of the table, and ways are found anew. In the end, nodes to
 * which no way is left are lost.
 *
 * A port that is in Init, which it wasn't after the last sweep, was down meanwhile: something else
 * may be behind it now. If anything doesn't answer, the whole subnet is swept.
 */
#include "sm/internal.h"

/* What is to be looked at ---------------------------------------------------------------------- */

void change_note(struct sm *sm, uint32_t row)
{
	uint64_t guid;

	if (row == SM_NONE || !sm->subnet || sm->changed_count == SM_CHANGED_MAX) {
		sm->wants_sweep = true;
		return;
	}
	guid = sm->subnet->nodes[row].port_guid;
	for (uint32_t i = 0; i < sm->changed_count; i++)
		if (sm->changed[i] == guid)
			return;
	sm->changed[sm->changed_count++] = guid;
}

/* The last sweep's table, to be changed ------------------------------------------------------- */

static void node_copy(struct sm_node *to, const struct sm_node *from)
{
	memcpy(to->description, from->description, sizeof to->description);
	memcpy(to->switch_info, from->switch_info, sizeof to->switch_info);
	memcpy(to->path, from->path, sizeof to->path);
	to->switch_info[11] &= (uint8_t)~4u;
	to->has_description = from->has_description;
	to->has_switch_info = from->has_switch_info;
	to->hops = from->hops;
	to->entry = from->entry;
}

static void ports_copy(struct sm_subnet *to, const struct sm_subnet *from, uint32_t row,
		       const uint32_t *rows)
{
	const struct sm_node *node = &from->nodes[row];
	uint32_t count = node->type == SM_SWITCH ? node->ports + 1u : 1;

	for (uint32_t i = 0; i < count; i++) {
		const struct sm_port *old = &from->ports[node->first_port + i];
		struct sm_port *port = &to->ports[to->nodes[rows[row]].first_port + i];
		uint32_t peer = subnet_peer_node(from, node->first_port + i);

		memcpy(port->info, old->info, INFO_BYTES);
		port->has_info = old->has_info;
		if (peer != SM_NONE && rows[peer] != SM_NONE)
			port->peer = subnet_port(to, rows[peer], from->ports[old->peer].number);
	}
}

/* All nodes that aren't lost, in the same order. NULL: no memory. */
static struct sm_subnet *subnet_copy(const struct sm_subnet *from)
{
	struct sm_subnet *copy = subnet_create();
	uint32_t *rows = calloc(from->node_count + 1, sizeof *rows);
	bool is_good = copy && rows;

	for (uint32_t i = 0; is_good && i < from->node_count; i++) {
		rows[i] = SM_NONE;
		if (from->nodes[i].is_lost)
			continue;
		rows[i] = subnet_node_add(copy, from->nodes[i].info);
		is_good = rows[i] != SM_NONE;
		if (is_good)
			node_copy(&copy->nodes[rows[i]], &from->nodes[i]);
	}
	for (uint32_t i = 0; is_good && i < from->node_count; i++)
		if (rows[i] != SM_NONE)
			ports_copy(copy, from, i, rows);
	free(rows);
	if (is_good)
		return copy;
	subnet_free(copy);
	return NULL;
}

/* The managers that are known, by their rows in the new table. */
static void others_move(struct sm *sm, const struct sm_subnet *to)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < sm->other_count; i++) {
		struct sm_other other = sm->others[i];

		other.node = subnet_find(to, sm->subnet->nodes[other.node].port_guid);
		if (other.node != SM_NONE)
			sm->others[kept++] = other;
	}
	sm->other_count = kept;
}

struct sm_subnet *changes_take(struct sm *sm)
{
	struct sm_subnet *copy;

	if (sm->state != SM_MASTER || !sm->subnet || sm->work != sm->subnet || sm->is_first ||
	    sm->subnet->faults || election_is_open(sm))
		return NULL;
	copy = subnet_copy(sm->subnet);
	if (!copy)
		return NULL;
	others_move(sm, copy);
	for (uint32_t i = 0; i < sm->changed_count; i++) {
		uint32_t row = subnet_find(copy, sm->changed[i]);

		if (row != SM_NONE)
			copy->nodes[row].is_changed = true;
	}
	return copy;
}

/* Cables --------------------------------------------------------------------------------------- */

/* A port that isn't linked any more is at most in Init, whatever it said in the last sweep. */
static void port_unlink(struct sm_subnet *subnet, struct sm_port *port)
{
	uint8_t *state = &port->info[INFO_SPEED_SUPPORTED_STATE];

	port->peer = SM_NONE;
	port->is_asked = false;
	if (octet_low(*state) > PORT_INIT)
		octet_set_low(state, PORT_INIT);
	if (subnet->nodes[port->node].type == SM_SWITCH)
		subnet->nodes[port->node].is_changed = true;
}

void change_cable_cut(struct sm *sm, uint32_t row)
{
	struct sm_port *port = &sm->work->ports[row];

	if (port->peer == SM_NONE)
		return;
	port_unlink(sm->work, &sm->work->ports[port->peer]);
	port->peer = SM_NONE;
}

void change_port_note(struct sm *sm, uint32_t row, uint8_t state_before)
{
	struct sm_port *port = &sm->work->ports[row];
	uint8_t state = sm_port_state(port);

	port->is_fresh = true;
	if (state < PORT_INIT || (state == PORT_INIT && state_before > PORT_INIT))
		change_cable_cut(sm, row);
}

/* Ways ----------------------------------------------------------------------------------------- */

static bool cable_is_up(const struct sm_subnet *subnet, uint32_t row)
{
	const struct sm_port *port = &subnet->ports[row];

	return port->peer != SM_NONE && sm_port_state(port) >= PORT_INIT &&
	       sm_port_state(&subnet->ports[port->peer]) >= PORT_INIT;
}

/* Follows the cables of a node to those that no way leads to yet. */
static void way_extend(struct sm_subnet *subnet, uint32_t row, uint32_t *queue, uint32_t *tail)
{
	const struct sm_node *node = &subnet->nodes[row];
	uint32_t count = node->type == SM_SWITCH ? node->ports + 1u : 1;

	if (node->type != SM_SWITCH && node->hops)
		return;
	for (uint32_t i = 0; i < count; i++) {
		const struct sm_port *port = &subnet->ports[node->first_port + i];
		struct sm_node *next;

		if (!cable_is_up(subnet, node->first_port + i) || node->hops == SM_HOPS_MAX)
			continue;
		next = &subnet->nodes[subnet->ports[port->peer].node];
		if (next->is_reached)
			continue;
		next->is_reached = true;
		memcpy(next->path, node->path, node->hops + 1u);
		next->hops = (uint8_t)(node->hops + 1);
		next->path[next->hops] = port->number;
		next->entry = subnet->ports[port->peer].number;
		queue[(*tail)++] = (uint32_t)(next - subnet->nodes);
	}
}

static void change_ways_find(struct sm *sm)
{
	struct sm_subnet *subnet = sm->work;
	uint32_t *queue = calloc(subnet->node_count + 1, sizeof *queue);
	uint32_t head = 0, tail = 0;

	if (!queue) {
		subnet->faults++;
		return;
	}
	for (uint32_t i = 0; i < subnet->node_count; i++)
		subnet->nodes[i].is_reached = i == 0;
	queue[tail++] = 0;
	while (head < tail)
		way_extend(subnet, queue[head++], queue, &tail);
	free(queue);
}

/* The first port on the way to a node that hasn't answered in this sweep; SM_NONE: all have. */
static uint32_t way_check(const struct sm_subnet *subnet, const struct sm_node *node)
{
	uint32_t at = 0;

	for (unsigned int hop = 1; hop <= node->hops && at != SM_NONE; hop++) {
		uint32_t row = subnet_port(subnet, at, node->path[hop]);

		if (row == SM_NONE || !subnet->ports[row].is_fresh)
			return row;
		at = subnet_peer_node(subnet, row);
	}
	return SM_NONE;
}

/* Steps ---------------------------------------------------------------------------------------- */

static void change_ask(struct sm *sm, uint32_t row)
{
	struct sm_node *node = &sm->work->nodes[row];
	uint32_t port = way_check(sm->work, node);

	if (port != SM_NONE) {
		job_add(sm, JOB_PORT, sm->work->ports[port].node, sm->work->ports[port].number, 0);
		return;
	}
	node->is_changed = false;
	node_ask_more(sm, row);
}

static void unreached_lose(struct sm_subnet *subnet)
{
	for (uint32_t i = 0; i < subnet->node_count; i++)
		if (!subnet->nodes[i].is_reached)
			subnet->nodes[i].is_lost = true;
}

bool changes_step(struct sm *sm)
{
	struct sm_subnet *subnet = sm->work;

	if (subnet->faults)
		return false;
	change_ways_find(sm);
	for (uint32_t i = 0; i < subnet->node_count; i++)
		if (subnet->nodes[i].is_changed && subnet->nodes[i].is_reached)
			change_ask(sm, i);
	if (!jobs_idle(&sm->requests))
		return true;
	unreached_lose(subnet);
	return false;
}
