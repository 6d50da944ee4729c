/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Discovery: from the manager's own port outwards, by directed routes. A switch's ports are read
 * after its notice of changes was taken, so a change that comes later is announced again. Of a
 * cable between two switches only one end asks what is behind it: the answer names both.
 *
 * What the sweep before knew of a node (its tables, its P_Keys) is taken over when the node still
 * has the LID that it got then, and no switch reports a change there: a switch or adapter that was
 * switched off and on during a sweep may have got its LID after it lost its tables.
 */
#include "sm/internal.h"

/* Nodes ---------------------------------------------------------------------------------------- */

/* The node's own row in the last subnet, or NULL. */
static struct sm_node *node_before(struct sm *sm, const struct sm_node *node)
{
	uint32_t row = sm->subnet ? subnet_find(sm->subnet, node->port_guid) : SM_NONE;
	struct sm_node *before = row == SM_NONE ? NULL : &sm->subnet->nodes[row];

	if (!before || before->guid != node->guid || before->ports != node->ports)
		return NULL;
	return before;
}

static void path_copy(struct sm *sm, struct sm_node *node, uint32_t via, unsigned int port)
{
	const struct sm_node *from;

	if (via == SM_NONE)
		return;
	from = &sm->work->nodes[via];
	memcpy(node->path, from->path, from->hops + 1u);
	node->hops = (uint8_t)(from->hops + 1);
	node->path[node->hops] = (uint8_t)port;
}

/* What doesn't change by itself, or is announced when it does. */
static void description_inherit(struct sm *sm, struct sm_node *node)
{
	const struct sm_node *before = node_before(sm, node);

	if (!before || !before->has_description)
		return;
	memcpy(node->description, before->description, sizeof node->description);
	node->has_description = true;
}

void node_ask_more(struct sm *sm, uint32_t row)
{
	const struct sm_node *node = &sm->work->nodes[row];

	if (node->type == SM_SWITCH)
		job_add(sm, JOB_SWITCH, row, 0, 0);
	else
		job_add(sm, JOB_PORT, row, node->number, 0);
}

/* A NodeInfo that can't be. */
static bool node_info_is_refused(const uint8_t *info)
{
	if (info[2] < SM_CA || info[2] > SM_ROUTER || !octets_get64(info + 20))
		return true;
	if (info[2] == SM_SWITCH)
		return info[3] > FABRIC_PORTS_MAX || info[36] > info[3];
	return !info[36] || info[36] > info[3];
}

bool node_info_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	uint32_t port;

	if (job->node == SM_NONE)
		return true;
	port = subnet_port(sm->work, job->node, job->port);
	if (port == SM_NONE || sm->work->ports[port].peer != SM_NONE ||
	    mad[SMP_HOP_COUNT] >= SM_HOPS_MAX)
		return false;
	mad[SMP_HOP_COUNT]++;
	mad[SMP_INITIAL_PATH + mad[SMP_HOP_COUNT]] = job->port;
	return true;
}

/* The cable between the port that was asked through and the one that answered. */
static void cable_note(struct sm *sm, const struct sm_job *job, uint32_t row, unsigned int number)
{
	uint32_t near = subnet_port(sm->work, job->node, job->port);
	uint32_t far = subnet_port(sm->work, row, number);

	if (near == SM_NONE || far == SM_NONE || sm->work->ports[near].peer != SM_NONE)
		return;
	/* The cable was put into another port. */
	if (sm->is_partial)
		change_cable_cut(sm, far);
	if (sm->work->ports[far].peer != SM_NONE)
		return;
	sm->work->ports[near].peer = far;
	sm->work->ports[far].peer = near;
	/* It has answered by this cable, so what the last sweep knew of the port is over: without
	 * that no way would lead to the node to read it again. */
	if (sm->is_partial && sm_port_state(&sm->work->ports[far]) < PORT_INIT)
		octet_set_low(&sm->work->ports[far].info[INFO_SPEED_SUPPORTED_STATE], PORT_INIT);
}

void node_info_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	const uint8_t *info = mad + SMP_DATA;
	bool is_known;
	uint32_t row;

	if (status || node_info_is_refused(info)) {
		sm->work->faults++;
		return;
	}
	row = subnet_find(sm->work, octets_get64(info + 20));
	is_known = row != SM_NONE;
	if (!is_known) {
		row = subnet_node_add(sm->work, info);
		if (row == SM_NONE) {
			sm->work->faults++;
			return;
		}
		path_copy(sm, &sm->work->nodes[row], job->node, job->port);
		sm->work->nodes[row].entry = info[36];
		description_inherit(sm, &sm->work->nodes[row]);
		node_ask_more(sm, row);
	}
	if (job->node == SM_NONE)
		sm->own_guid = octets_get64(info + 20);
	else
		cable_note(sm, job, row, info[36]);
	if (is_known && sm->is_partial)
		sm->work->nodes[row].is_changed = true;
}

/* Nothing answers behind the port: it is as if there were no cable. */
void node_info_failed(struct sm *sm, const struct sm_job *job)
{
	(void)job;
	sm->work->faults++;
}

/* Switches ------------------------------------------------------------------------------------- */

bool plain_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	(void)sm;
	(void)job;
	(void)mad;
	return true;
}

static void ports_ask(struct sm *sm, uint32_t row)
{
	for (unsigned int port = 0; port <= sm->work->nodes[row].ports; port++)
		job_add(sm, JOB_PORT, row, port, 0);
}

void switch_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_node *node = &sm->work->nodes[job->node];

	if (status) {
		job_lost(sm, job);
		return;
	}
	memcpy(node->switch_info, mad + SMP_DATA, sizeof node->switch_info);
	node->has_switch_info = true;
	if (node->switch_info[11] & 4)
		job_add(sm, JOB_SWITCH_CLEAR, job->node, 0, 0);
	else
		ports_ask(sm, job->node);
}

/* The bit is cleared by writing it; all else is written as it was read. */
bool switch_clear_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	memcpy(mad + SMP_DATA, sm->work->nodes[job->node].switch_info, 20);
	mad[SMP_DATA + 11] |= 4;
	return true;
}

void switch_clear_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	(void)mad;
	if (status)
		sm->work->faults++;
	ports_ask(sm, job->node);
}

/* Ports ---------------------------------------------------------------------------------------- */

bool port_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	(void)sm;
	octets_put32(mad + OFFSET_MODIFIER, job->port);
	return true;
}

static bool port_leads_on(const struct sm_node *node, const struct sm_port *port)
{
	if (sm_port_state(port) < PORT_INIT || port->peer != SM_NONE || port->is_asked)
		return false;
	/* Only the first hop leaves an adapter. */
	return node->type == SM_SWITCH ? port->number != 0 : node->hops == 0;
}

void port_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_node *node = &sm->work->nodes[job->node];
	uint32_t row = subnet_port(sm->work, job->node, job->port);
	uint8_t before;
	struct sm_port *port;

	if (row == SM_NONE)
		return;
	port = &sm->work->ports[row];
	if (status) {
		sm->work->faults++;
		return;
	}
	before = sm_port_state(port);
	memcpy(port->info, mad + SMP_DATA, INFO_BYTES);
	port->has_info = true;
	if (sm->is_partial)
		change_port_note(sm, row, before);
	if (row == node->first_port && node->port_guid != sm->own_guid) {
		if (sm_port_capabilities(port) & CAN_BE_SM)
			job_add(sm, JOB_MANAGER, job->node, 0, 0);
		else
			election_forget(sm, job->node);
	}
	if (port_leads_on(node, port)) {
		port->is_asked = true;
		job_add(sm, JOB_NODE, job->node, job->port, 0);
	}
}

/* The sweep before ----------------------------------------------------------------------------- */

static bool switch_reports_change(const struct sm_node *node)
{
	return node->type == SM_SWITCH && node->has_switch_info && (node->switch_info[11] & 4);
}

/* Whether the node may have lost its tables since the last sweep. */
static bool node_is_suspect(const struct sm *sm, uint32_t row)
{
	const struct sm_node *node = &sm->work->nodes[row];
	uint32_t peer = subnet_peer_node(sm->work, node->first_port);

	if (node->type == SM_SWITCH)
		return switch_reports_change(node);
	return sm_port_state(&sm->work->ports[node->first_port]) < PORT_ARMED ||
	       (peer != SM_NONE && switch_reports_change(&sm->work->nodes[peer]));
}

/* Moves what the last sweep knew of the node's tables. */
static void tables_inherit(struct sm *sm, struct sm_node *node)
{
	struct sm_node *before = node_before(sm, node);
	const struct sm_port *port = &sm->work->ports[node->first_port];

	if (!before || !port->has_info || octets_get16(port->info + INFO_LID) != before->lid ||
	    node_is_suspect(sm, (uint32_t)(node - sm->work->nodes))) {
		node->is_rebooted = true;
		return;
	}
	node->tables = before->tables;
	node->guids = before->guids;
	node->guids_known = before->guids_known;
	before->tables = NULL;
	before->guids = NULL;
	before->guids_known = 0;
}

/* The same of a port's SL, arbitration and P_Key tables. */
static void lanes_inherit(struct sm *sm, const struct sm_node *node, struct sm_port *port)
{
	struct sm_node *before = node_before(sm, node);
	uint32_t row;
	struct sm_port *old;

	if (!before || node->is_rebooted)
		return;
	row = subnet_port(sm->subnet, (uint32_t)(before - sm->subnet->nodes), port->number);
	if (row == SM_NONE)
		return;
	old = &sm->subnet->ports[row];
	port->sl_to_vl = old->sl_to_vl;
	port->arbitration = old->arbitration;
	port->pkeys = old->pkeys;
	port->pkey_blocks = old->pkey_blocks;
	old->sl_to_vl = old->arbitration = NULL;
	old->pkeys = NULL;
}

void discover_inherit(struct sm *sm)
{
	for (uint32_t i = 0; sm->subnet && i < sm->work->node_count; i++)
		tables_inherit(sm, &sm->work->nodes[i]);
	for (uint32_t i = 0; sm->subnet && i < sm->work->port_count; i++)
		lanes_inherit(sm, &sm->work->nodes[sm->work->ports[i].node], &sm->work->ports[i]);
}

void discover_begin(struct sm *sm)
{
	if (sm->is_partial)
		return;
	sm->other_count = 0;
	job_add(sm, JOB_NODE, SM_NONE, 0, 0);
}
