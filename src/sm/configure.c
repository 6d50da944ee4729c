/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ports get: addresses, P_Keys, MTU, virtual lanes, and their states. A port that has all that
 * already is left alone. A port in Init goes to Armed by the same request that gives its LID; all
 * ports go to Active after forwarding tables are written.
 * A port's P_Keys are written before it is told to enforce partitions.
 */
#include "sm/internal.h"

/* PortInfo ------------------------------------------------------------------------------------- */

static uint8_t octet_smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* What both ends of a cable can do: MTU and virtual lanes. */
static void port_link_wish(const struct sm *sm, const struct sm_port *port, uint8_t *data)
{
	uint8_t mtu = octet_low(port->info[INFO_INIT_REPLY_MTU_CAP]);
	uint8_t lanes = octet_high(port->info[INFO_VL_CAP_INIT_TYPE]);

	if (port->peer != SM_NONE && sm->work->ports[port->peer].has_info) {
		const uint8_t *peer = sm->work->ports[port->peer].info;

		mtu = octet_smaller(mtu, octet_low(peer[INFO_INIT_REPLY_MTU_CAP]));
		lanes = octet_smaller(lanes, octet_high(peer[INFO_VL_CAP_INIT_TYPE]));
	}
	octet_set_high(&data[INFO_MTU_SM_SL], mtu);
	octet_set_high(&data[INFO_VLS_ENFORCE], lanes);
	octet_set_low(&data[INFO_VLS_ENFORCE],
		      partition_enforcement(sm, (uint32_t)(port - sm->work->ports)));
	if (sm->options.has_qos)
		data[INFO_VL_HIGH_LIMIT] = sm->lanes.high_limit;
	if (port->number && sm->work->nodes[port->node].type == SM_SWITCH) {
		uint32_t peer = subnet_peer_node(sm->work, (uint32_t)(port - sm->work->ports));
		bool is_leaf = peer != SM_NONE && sm->work->nodes[peer].type != SM_SWITCH;

		data[INFO_STALL_HOQ] = 7 << 5 | (is_leaf ? 16 : 18);
	}
}

static void port_address_wish(const struct sm *sm, const struct sm_node *node, uint8_t *data)
{
	octets_put64(data + INFO_M_KEY, sm->options.m_key);
	octets_put64(data + INFO_PREFIX, SM_PREFIX);
	octets_put16(data + INFO_LID, node->lid);
	octets_put16(data + INFO_SM_LID, sm->own_lid);
	octets_put16(data + INFO_LEASE, sm->options.m_key ? sm->options.m_key_lease_s : 0);
	data[INFO_PROTECT_LMC] =
		(uint8_t)((sm->options.m_key ? sm->options.m_key_protect : 0) << 6 | node->lmc);
	octet_set_low(&data[INFO_MTU_SM_SL], 0);
	data[INFO_REREGISTER_TIMEOUT] = SM_LIFE_TIME;
}

/* The port's PortInfo as it is to be, without its state. Fields that say "no change" are so. */
static void port_wish(const struct sm *sm, const struct sm_port *port, uint8_t *data)
{
	const struct sm_node *node = &sm->work->nodes[port->node];

	memcpy(data, port->info, INFO_BYTES);
	octet_set_low(&data[INFO_SPEED_SUPPORTED_STATE], 0);
	data[INFO_PHYSICAL_DOWN_DEFAULT] = 0;
	data[INFO_WIDTH_ENABLED] = 0;
	octet_set_low(&data[INFO_SPEED_ACTIVE_ENABLED], 0);
	port_link_wish(sm, port, data);
	if (node->type != SM_SWITCH || !port->number)
		port_address_wish(sm, node, data);
}

/* Whether the port has something else than it is to have. */
static bool port_differs(const struct sm_port *port, const uint8_t *wish)
{
	uint8_t is[INFO_BYTES];

	memcpy(is, port->info, sizeof is);
	is[INFO_SPEED_SUPPORTED_STATE] = wish[INFO_SPEED_SUPPORTED_STATE];
	is[INFO_PHYSICAL_DOWN_DEFAULT] = wish[INFO_PHYSICAL_DOWN_DEFAULT];
	is[INFO_WIDTH_ENABLED] = wish[INFO_WIDTH_ENABLED];
	is[INFO_SPEED_ACTIVE_ENABLED] = wish[INFO_SPEED_ACTIVE_ENABLED];
	is[INFO_REREGISTER_TIMEOUT] &= 0x1f;
	return memcmp(is, wish, sizeof is) != 0;
}

static bool port_reregisters(const struct sm *sm, const struct sm_port *port)
{
	const struct sm_node *node = &sm->work->nodes[port->node];

	return sm->is_first && node->type != SM_SWITCH &&
	       (sm_port_capabilities(port) & CAN_REREGISTER);
}

bool port_set_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	const struct sm_port *port = &sm->work->ports[subnet_port(sm->work, job->node, job->port)];
	uint8_t *data = mad + SMP_DATA;

	octets_put32(mad + OFFSET_MODIFIER, job->port);
	port_wish(sm, port, data);
	if (sm_port_state(port) == PORT_INIT)
		octet_set_low(&data[INFO_SPEED_SUPPORTED_STATE], PORT_ARMED);
	if (port_reregisters(sm, port))
		data[INFO_REREGISTER_TIMEOUT] |= 0x80;
	return true;
}

void port_set_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_port *port = &sm->work->ports[subnet_port(sm->work, job->node, job->port)];

	memcpy(port->info, mad + SMP_DATA, INFO_BYTES);
	if (status) {
		sm->counts.refused++;
		sm->work->faults++;
	}
}

/* Ports that carry something: a switch's own, and those with a cable whose other end answers. */
static bool port_matters(const struct sm *sm, uint32_t row)
{
	const struct sm_port *port = &sm->work->ports[row];
	const struct sm_node *node = &sm->work->nodes[port->node];

	if (!port->has_info || node->is_lost)
		return false;
	if (node->type == SM_SWITCH && !port->number)
		return true;
	return subnet_port_is_linked(sm->work, row) || (!node->hops && node->type != SM_SWITCH);
}

void configure_ports(struct sm *sm)
{
	uint8_t wish[INFO_BYTES];

	for (uint32_t row = 0; row < sm->work->port_count; row++) {
		const struct sm_port *port = &sm->work->ports[row];
		const struct sm_node *node = &sm->work->nodes[port->node];

		if (!port_matters(sm, row))
			continue;
		if (row == node->first_port || partition_enforcement(sm, row))
			pkeys_configure(sm, row);
		port_wish(sm, port, wish);
		if (sm_port_state(port) == PORT_INIT || port_differs(port, wish) ||
		    port_reregisters(sm, port))
			job_add(sm, JOB_PORT_SET, port->node, port->number, 0);
		qos_configure(sm, row);
	}
}

/* Active --------------------------------------------------------------------------------------- */

bool activate_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	const struct sm_port *port = &sm->work->ports[subnet_port(sm->work, job->node, job->port)];

	octets_put32(mad + OFFSET_MODIFIER, job->port);
	port_wish(sm, port, mad + SMP_DATA);
	octet_set_low(&mad[SMP_DATA + INFO_SPEED_SUPPORTED_STATE], PORT_ACTIVE);
	return true;
}

/* A port that data made Active meanwhile may refuse to become what it is. */
void activate_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_port *port = &sm->work->ports[subnet_port(sm->work, job->node, job->port)];

	memcpy(port->info, mad + SMP_DATA, INFO_BYTES);
	if (sm_port_state(port) == PORT_ACTIVE)
		return;
	if (status)
		sm->counts.refused++;
	sm->work->faults++;
}

void activate_ports(struct sm *sm)
{
	for (uint32_t row = 0; row < sm->work->port_count; row++) {
		const struct sm_port *port = &sm->work->ports[row];

		if (port_matters(sm, row) && sm_port_state(port) == PORT_ARMED)
			job_add(sm, JOB_ACTIVATE, port->node, port->number, 0);
	}
}
