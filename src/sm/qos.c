/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Quality of service: which lane a service level has, how lanes share a link, and which service
 * level a path gets. Lanes that a port hasn't got are folded onto those that it has.
 *
 * A path's service level is that of the first rule that agrees with its ends, partition, service
 * and QoS class; 0 if none does.
 */
#include "sm/sa.h"

#define ARBITRATION_ENTRIES 32u

/* Settings ------------------------------------------------------------------------------------- */

void qos_begin(struct sm *sm)
{
	for (unsigned int sl = 0; sl < SM_LEVELS; sl++)
		sm->lanes.lane[sl] = (uint8_t)sl;
	for (unsigned int lane = 0; lane < SM_LANES; lane++)
		sm->lanes.low[lane] = 64;
}

void sm_qos_lanes_set(struct sm *sm, const struct sm_qos_lanes *lanes)
{
	sm->lanes = *lanes;
	sm->options.has_qos = true;
}

int sm_qos_rule_add(struct sm *sm, const struct sm_qos_rule *rule)
{
	struct sm_qos_rule *larger;

	if (rule->level >= SM_LEVELS)
		return -EINVAL;
	larger = realloc(sm->qos_rules, (sm->qos_rule_count + 1) * sizeof *larger);
	if (!larger)
		return -ENOMEM;
	sm->qos_rules = larger;
	sm->qos_rules[sm->qos_rule_count++] = *rule;
	return 0;
}

uint8_t qos_level(const struct sm *sm, const struct sm_qos_path *path)
{
	for (uint32_t i = 0; i < sm->qos_rule_count; i++) {
		const struct sm_qos_rule *rule = &sm->qos_rules[i];

		if (rule->pkey && ((rule->pkey ^ path->pkey) & 0x7fff))
			continue;
		if ((rule->source && rule->source != path->source) ||
		    (rule->target && rule->target != path->target))
			continue;
		if (rule->has_class && rule->qos_class != path->qos_class)
			continue;
		if (rule->has_service &&
		    (path->service < rule->service_first || path->service > rule->service_last))
			continue;
		return rule->level;
	}
	return 0;
}

/* Tables: job->port is the egress port, job->block the ingress port ---------------------------- */

static struct sm_port *lane_port(struct sm *sm, const struct sm_job *job)
{
	return &sm->work->ports[subnet_port(sm->work, job->node, job->port)];
}

static unsigned int lane_count(const struct sm_port *port)
{
	static const uint8_t counts[] = {1, 1, 2, 4, 8, 15};
	uint8_t code = octet_high(port->info[INFO_VL_CAP_INIT_TYPE]);

	return code < sizeof counts ? counts[code] : 1;
}

static uint32_t lane_modifier(const struct sm *sm, const struct sm_job *job)
{
	if (sm->work->nodes[job->node].type != SM_SWITCH)
		return 0;
	return (uint32_t)job->block << 8 | job->port;
}

bool lanes_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	unsigned int count = lane_count(lane_port(sm, job));
	const uint8_t *lane = sm->lanes.lane;

	octets_put32(mad + OFFSET_MODIFIER, lane_modifier(sm, job));
	for (unsigned int sl = 0; job->kind == JOB_SL_TO_VL_SET && sl < SM_LEVELS; sl += 2)
		mad[SMP_DATA + sl / 2] =
			(uint8_t)((lane[sl] % count) << 4 | (lane[sl + 1] % count));
	return true;
}

void lanes_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_port *port = lane_port(sm, job);
	const struct sm_node *node = &sm->work->nodes[job->node];

	if (status)
		return;
	if (!port->sl_to_vl)
		port->sl_to_vl = calloc(node->ports + 1u, 8);
	if (port->sl_to_vl)
		memcpy(port->sl_to_vl + job->block * 8u, mad + SMP_DATA, 8);
}

/* VL arbitration: job->block is 1 or 2 (low priority), 3 or 4 (high) --------------------------- */

/* An entry for each lane that has a share, else the share of a lane that is folded onto it. */
static void arbitration_fill(const struct sm_port *port, const uint8_t weights[SM_LANES],
			     unsigned int room, uint8_t data[64])
{
	unsigned int count = lane_count(port), used = 0;

	if (room > ARBITRATION_ENTRIES)
		room = ARBITRATION_ENTRIES;
	for (unsigned int lane = 0; lane < count; lane++) {
		unsigned int weight = 0;

		for (unsigned int other = lane; other < SM_LANES && !weight; other += count)
			weight = weights[other];
		if (!weight || used == room)
			continue;
		data[2 * used] = (uint8_t)lane;
		data[2 * used + 1] = (uint8_t)weight;
		used++;
	}
}

bool arbitration_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	const struct sm_port *port = lane_port(sm, job);
	bool is_switch = sm->work->nodes[job->node].type == SM_SWITCH, is_high = job->block > 2;
	unsigned int room = port->info[is_high ? INFO_ARBITRATION_HIGH : INFO_ARBITRATION_LOW];

	octets_put32(mad + OFFSET_MODIFIER,
		     (uint32_t)job->block << 16 | (is_switch ? job->port : 0));
	if (job->kind != JOB_ARBITRATION_SET)
		return true;
	if (room)
		arbitration_fill(port, is_high ? sm->lanes.high : sm->lanes.low, room,
				 mad + SMP_DATA);
	return room != 0;
}

void arbitration_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_port *port = lane_port(sm, job);

	if (status)
		return;
	if (!port->arbitration)
		port->arbitration = calloc(4, 64);
	if (port->arbitration)
		memcpy(port->arbitration + (job->block - 1u) * 64, mad + SMP_DATA, 64);
}

void qos_configure(struct sm *sm, uint32_t row)
{
	const struct sm_port *port = &sm->work->ports[row];
	const struct sm_node *node = &sm->work->nodes[port->node];
	unsigned int ingress = node->type == SM_SWITCH ? node->ports : 0;

	if (!sm->options.has_qos ||
	    (!node->is_rebooted && port->sl_to_vl && (port->arbitration || !port->number)))
		return;
	for (unsigned int i = 0; i <= ingress; i++)
		job_add(sm, JOB_SL_TO_VL_SET, port->node, port->number, i);
	if (node->type == SM_SWITCH && !port->number)
		return;
	job_add(sm, JOB_ARBITRATION_SET, port->node, port->number, 1);
	job_add(sm, JOB_ARBITRATION_SET, port->node, port->number, 3);
}
