/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What isn't needed to bring the subnet up, but what queries of the administration may ask for:
 * NodeDescription, GUIDInfo, SL to VL tables, VL arbitration. It is read when the subnet is up and
 * nothing else is to be done, and kept from sweep to sweep. Switches' SL to VL tables, which have
 * an entry for each pair of ports, are read in subnets with few pairs only.
 */
#include "sm/internal.h"

#define PAIRS_MAX 65536u /* of switch ports, whose SL to VL tables are read */
#define ARBITRATION_BYTES (4 * 64)

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

/* GUIDInfo ------------------------------------------------------------------------------------- */

static unsigned int guid_count(const struct sm *sm, uint32_t row)
{
	return subnet_end(sm->work, row)->info[INFO_GUID_CAP];
}

bool guids_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	(void)sm;
	octets_put32(mad + OFFSET_MODIFIER, job->block);
	return true;
}

void guids_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_node *node = &sm->work->nodes[job->node];

	if (status)
		return;
	if (!node->guids)
		node->guids = calloc((guid_count(sm, job->node) + 7) / 8, 64);
	if (node->guids)
		memcpy(node->guids + job->block * 64u, mad + SMP_DATA, 64);
}

/* SL to VL: job->port is the egress port, job->block the ingress port -------------------------- */

static struct sm_port *lane_port(struct sm *sm, const struct sm_job *job)
{
	return &sm->work->ports[subnet_port(sm->work, job->node, job->port)];
}

static uint32_t lane_modifier(const struct sm *sm, const struct sm_job *job)
{
	if (sm->work->nodes[job->node].type != SM_SWITCH)
		return 0;
	return (uint32_t)job->block << 8 | job->port;
}

bool lanes_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	octets_put32(mad + OFFSET_MODIFIER, lane_modifier(sm, job));
	return true;
}

/* SL n uses lane n, modulo the number of lanes. */
bool lanes_set_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	static const uint8_t counts[] = {1, 1, 2, 4, 8, 15};
	uint8_t code = octet_high(lane_port(sm, job)->info[INFO_VL_CAP_INIT_TYPE]);
	uint8_t lanes = code < sizeof counts ? counts[code] : 1;

	octets_put32(mad + OFFSET_MODIFIER, lane_modifier(sm, job));
	for (unsigned int sl = 0; sl < 16; sl += 2)
		mad[SMP_DATA + sl / 2] = (uint8_t)((sl % lanes) << 4 | ((sl + 1) % lanes));
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

/* VL arbitration: job->block is 1 to 4 --------------------------------------------------------- */

static uint32_t arbitration_modifier(const struct sm *sm, const struct sm_job *job)
{
	bool is_switch = sm->work->nodes[job->node].type == SM_SWITCH;

	return (uint32_t)job->block << 16 | (is_switch ? job->port : 0);
}

bool arbitration_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	octets_put32(mad + OFFSET_MODIFIER, arbitration_modifier(sm, job));
	return true;
}

/* All lanes get the same share at low priority, and nothing has high priority. */
bool arbitration_set_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	const struct sm_port *port = lane_port(sm, job);
	unsigned int room =
		port->info[job->block == 1 ? INFO_ARBITRATION_LOW : INFO_ARBITRATION_HIGH];

	if (!room)
		return false;
	octets_put32(mad + OFFSET_MODIFIER, arbitration_modifier(sm, job));
	for (unsigned int i = 0; i < 32 && i < room; i++) {
		mad[SMP_DATA + 2 * i] = (uint8_t)(i % 8);
		mad[SMP_DATA + 2 * i + 1] = job->block == 1 ? 64 : 0;
	}
	return true;
}

void arbitration_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_port *port = lane_port(sm, job);

	if (status)
		return;
	if (!port->arbitration)
		port->arbitration = calloc(1, ARBITRATION_BYTES);
	if (port->arbitration)
		memcpy(port->arbitration + (job->block - 1u) * 64, mad + SMP_DATA, 64);
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
	for (unsigned int i = 0; !node->guids && i < guid_count(sm, row); i += 8)
		job_add(sm, JOB_GUIDS, row, 0, i / 8);
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
