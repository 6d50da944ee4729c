/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What isn't needed to bring the subnet up, but what queries of the administration may ask for:
 * NodeDescription, GUIDInfo, SL to VL tables, VL arbitration. It is read when the subnet is up and
 * nothing else is to be done, and kept from sweep to sweep. Switches' SL to VL tables, which have
 * an entry for each pair of ports, are read in subnets with few pairs only.
 */
#include "sm/internal.h"

#define PAIRS_MAX 65536u /* of switch ports, whose SL to VL tables are read */

/* The next look at all switches finds out whether the node is there. */
void reading_failed(struct sm *sm, const struct sm_job *job)
{
	sm->work->nodes[job->node].is_silent = true;
}

void description_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_node *node = &sm->work->nodes[job->node];

	if (status)
		return;
	memcpy(node->description, mad + SMP_DATA, sizeof node->description);
	node->has_description = true;
}

/* What is missing ------------------------------------------------------------------------------ */

static void lanes_read(struct sm *sm, uint32_t row, bool has_pairs)
{
	const struct sm_port *port = &sm->work->ports[row];
	const struct sm_node *node = &sm->work->nodes[port->node];
	unsigned int ingress = node->type == SM_SWITCH ? node->ports : 0;

	if (port->sl_to_vl || (node->type == SM_SWITCH && !has_pairs))
		return;
	for (unsigned int i = 0; i <= ingress; i++)
		job_add(sm, JOB_SL_TO_VL, port->node, port->number, i);
}

static void arbitration_read(struct sm *sm, uint32_t row)
{
	const struct sm_port *port = &sm->work->ports[row];
	const uint8_t rooms[] = {port->info[INFO_ARBITRATION_LOW],
				 port->info[INFO_ARBITRATION_HIGH]};

	if (port->arbitration)
		return;
	for (unsigned int block = 0; block < 4; block++)
		if (rooms[block / 2] > (block % 2) * 32)
			job_add(sm, JOB_ARBITRATION, port->node, port->number, block + 1);
}

static uint64_t pairs_count(const struct sm_subnet *subnet)
{
	uint64_t pairs = 0;

	for (uint32_t i = 0; i < subnet->switch_count; i++) {
		uint64_t ports = subnet->nodes[subnet->switches[i]].ports + 1u;

		pairs += ports * ports;
	}
	return pairs;
}

static void node_read(struct sm *sm, uint32_t row)
{
	struct sm_node *node = &sm->work->nodes[row];

	if (node->is_lost)
		return;
	if (!node->has_description)
		job_add(sm, JOB_DESCRIPTION, row, 0, 0);
	guids_read(sm, row);
}

void read_begin(struct sm *sm)
{
	bool has_pairs = pairs_count(sm->work) <= PAIRS_MAX;

	for (uint32_t row = 0; row < sm->work->node_count; row++)
		node_read(sm, row);
	for (uint32_t row = 0; row < sm->work->port_count; row++) {
		const struct sm_port *port = &sm->work->ports[row];

		if (!port->has_info || sm->work->nodes[port->node].is_lost ||
		    sm_port_state(port) < PORT_INIT)
			continue;
		lanes_read(sm, row, has_pairs);
		arbitration_read(sm, row);
	}
}
