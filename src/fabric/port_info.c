/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PortInfo: what a manager reads and writes of a port, and the states that a port goes through by
 * that. A Set with a field that can't be has no effect at all.
 *
 * States, and what a Set may change:
 *   Down    -> Init by training only (link.c)
 *   Init    -> Armed
 *   Armed   -> Active; also by the first packet of data that arrives (datagram.c)
 *   any     -> Down, after which the link trains again if both ends' physical states let it
 */
#include "fabric/internal.h"

#define EXTENDED_SPEEDS (1u << 31) /* in the modifier: the manager knows LinkSpeedExtEnabled */
#define REREGISTER 0x80
#define EXT2_NONE 6u /* LinkSpeedExtEnabled2, as 30 and 31 are for LinkSpeedExtEnabled */
#define EXT2_ALL 7u

/* The port that the modifier names. */
static struct fabric_port *port_named(struct agent_request *request)
{
	struct fabric *fabric = request->fabric;
	const struct fabric_node *node = &fabric->nodes[request->node];
	unsigned int number = request->modifier & 0xff;

	if (!number && node->type != FABRIC_SWITCH)
		return &fabric->ports[request->port];
	return port_at(fabric, fabric_port_row(fabric, request->node, number));
}

/* Checking ------------------------------------------------------------------------------------- */

static bool state_is_refused(const struct fabric_port *port, const uint8_t *data)
{
	uint8_t wanted = octet_low(data[INFO_SPEED_SUPPORTED_STATE]);
	uint8_t physical = octet_high(data[INFO_PHYSICAL_DOWN_DEFAULT]);
	uint8_t state = port_state(port);

	if (physical > PHYSICAL_DISABLED || (octet_low(data[INFO_PHYSICAL_DOWN_DEFAULT]) > 2))
		return true;
	/* A physical state ends the link: no other state of the port can be wanted with it. */
	if (physical && wanted > PORT_DOWN)
		return true;
	switch (wanted) {
	case 0:
	case PORT_DOWN:
		return false;
	case PORT_ARMED:
		return state != PORT_INIT && state != PORT_ARMED;
	case PORT_ACTIVE:
		return state != PORT_ARMED && state != PORT_ACTIVE;
	default:
		return true;
	}
}

static bool subset_is_refused(uint8_t wanted, uint8_t supported, uint8_t all)
{
	return wanted && wanted != all && (wanted & ~supported);
}

static bool link_is_refused(const struct agent_request *request, const struct fabric_port *port,
			    const uint8_t *data)
{
	const uint8_t *own = port->info;

	if (subset_is_refused(data[INFO_WIDTH_ENABLED], own[INFO_WIDTH_SUPPORTED], 0xff) ||
	    subset_is_refused(octet_low(data[INFO_SPEED_ACTIVE_ENABLED]),
			      octet_high(own[INFO_SPEED_SUPPORTED_STATE]), 0xf))
		return true;
	if ((request->modifier & EXTENDED_SPEEDS) && (data[INFO_EXT_ENABLED] & 0x1f) != 0x1e &&
	    subset_is_refused(data[INFO_EXT_ENABLED] & 0x1f,
			      octet_low(own[INFO_EXT_ACTIVE_SUPPORTED]), 0x1f))
		return true;
	if ((request->modifier & EXTENDED_SPEEDS) && (data[INFO_EXT2] & 7) != EXT2_NONE &&
	    subset_is_refused(data[INFO_EXT2] & 7, port_ext2_supported(port), EXT2_ALL))
		return true;
	return octet_high(data[INFO_MTU_SM_SL]) > octet_low(own[INFO_INIT_REPLY_MTU_CAP]) ||
	       octet_high(data[INFO_VLS_ENFORCE]) > octet_high(own[INFO_VL_CAP_INIT_TYPE]);
}

static bool address_is_refused(const struct fabric_port *port, const uint8_t *data)
{
	uint16_t lid = octets_get16(data + INFO_LID);
	uint16_t manager = octets_get16(data + INFO_SM_LID);

	if (!port->is_end_port)
		return false;
	return lid >= LID_MULTICAST || manager >= LID_MULTICAST || (!lid && port_lid(port)) ||
	       (!manager && port_sm_lid(port));
}

/* Writing -------------------------------------------------------------------------------------- */

static void port_event(struct fabric *fabric, const struct fabric_port *port,
		       enum fabric_event event)
{
	fabric->functions->event(fabric->context, (uint32_t)(port - fabric->ports), event);
}

/* What end ports only have. */
static void address_write(struct fabric *fabric, struct fabric_port *port, const uint8_t *data)
{
	uint8_t *own = port->info;
	bool has_prefix = memcmp(own + INFO_PREFIX, data + INFO_PREFIX, 8) != 0;
	bool has_lid = octets_get16(data + INFO_LID) != port_lid(port) ||
		       (data[INFO_PROTECT_LMC] & 7) != port_lmc(port);
	bool has_manager = octets_get16(data + INFO_SM_LID) != port_sm_lid(port) ||
			   octet_low(data[INFO_MTU_SM_SL]) != octet_low(own[INFO_MTU_SM_SL]);

	memcpy(own + INFO_M_KEY, data + INFO_M_KEY, 8);
	memcpy(own + INFO_PREFIX, data + INFO_PREFIX, 8);
	memcpy(own + INFO_LID, data + INFO_LID, 4);
	memcpy(own + INFO_LEASE, data + INFO_LEASE, 2);
	own[INFO_PROTECT_LMC] = data[INFO_PROTECT_LMC] & 0xc7;
	octet_set_low(&own[INFO_MTU_SM_SL], octet_low(data[INFO_MTU_SM_SL]));
	memcpy(own + INFO_M_KEY_VIOLATIONS, data + INFO_M_KEY_VIOLATIONS, 6);
	own[INFO_REREGISTER_TIMEOUT] = data[INFO_REREGISTER_TIMEOUT] & 0x1f;
	if (has_lid)
		fabric_touch(fabric);
	if (has_lid)
		port_event(fabric, port, EVENT_LID_CHANGE);
	if (has_manager)
		port_event(fabric, port, EVENT_SM_CHANGE);
	if (has_prefix)
		port_event(fabric, port, EVENT_GID_CHANGE);
	if (data[INFO_REREGISTER_TIMEOUT] & REREGISTER)
		port_event(fabric, port, EVENT_CLIENT_REREGISTER);
}

static uint8_t enabled_choose(uint8_t wanted, uint8_t all, uint8_t supported, uint8_t own)
{
	if (!wanted)
		return own;
	return wanted == all ? supported : wanted;
}

static void ext2_write(struct fabric_port *port, uint8_t wanted)
{
	uint8_t supported = port_ext2_supported(port);
	uint8_t enabled = enabled_choose(wanted, EXT2_ALL, supported, port_ext2_enabled(port));

	port_set_ext2(port, port_ext2_active(port), supported, enabled == EXT2_NONE ? 0 : enabled);
}

/* Which widths and speeds the next training may choose. */
static void link_write(struct agent_request *request, struct fabric_port *port, const uint8_t *data)
{
	uint8_t *own = port->info;
	uint8_t width = own[INFO_WIDTH_ENABLED];
	uint8_t speed = octet_low(own[INFO_SPEED_ACTIVE_ENABLED]);
	uint8_t extended = own[INFO_EXT_ENABLED];
	uint8_t extended2 = port_ext2_enabled(port);
	uint8_t changes = 0;

	own[INFO_WIDTH_ENABLED] =
		enabled_choose(data[INFO_WIDTH_ENABLED], 0xff, own[INFO_WIDTH_SUPPORTED], width);
	octet_set_low(&own[INFO_SPEED_ACTIVE_ENABLED],
		      enabled_choose(octet_low(data[INFO_SPEED_ACTIVE_ENABLED]), 0xf,
				     octet_high(own[INFO_SPEED_SUPPORTED_STATE]), speed));
	if (request->modifier & EXTENDED_SPEEDS) {
		own[INFO_EXT_ENABLED] =
			enabled_choose(data[INFO_EXT_ENABLED] & 0x1f, 0x1f,
				       octet_low(own[INFO_EXT_ACTIVE_SUPPORTED]), extended);
		if (own[INFO_EXT_ENABLED] == 0x1e) /* "none" */
			own[INFO_EXT_ENABLED] = 0;
		ext2_write(port, data[INFO_EXT2] & 7);
	}
	if (own[INFO_WIDTH_ENABLED] != width)
		changes |= CHANGE_WIDTH;
	if (octet_low(own[INFO_SPEED_ACTIVE_ENABLED]) != speed ||
	    own[INFO_EXT_ENABLED] != extended || port_ext2_enabled(port) != extended2)
		changes |= CHANGE_SPEED;
	if (changes)
		trap_local_change(request->fabric, request->end_port, changes);
}

/* What changes where packets of data go. */
static void lanes_write(struct fabric *fabric, struct fabric_port *port, const uint8_t *data)
{
	uint8_t *own = port->info;
	uint8_t mtu = octet_high(data[INFO_MTU_SM_SL]);
	uint8_t lanes = octet_high(data[INFO_VLS_ENFORCE]);
	uint8_t old[2] = {own[INFO_MTU_SM_SL], own[INFO_VLS_ENFORCE]};

	if (mtu)
		octet_set_high(&own[INFO_MTU_SM_SL], mtu);
	if (lanes)
		octet_set_high(&own[INFO_VLS_ENFORCE], lanes);
	octet_set_low(&own[INFO_VLS_ENFORCE], octet_low(data[INFO_VLS_ENFORCE]));
	if (old[0] >> 4 != own[INFO_MTU_SM_SL] >> 4 || old[1] != own[INFO_VLS_ENFORCE])
		fabric_touch(fabric);
	own[INFO_VL_HIGH_LIMIT] = data[INFO_VL_HIGH_LIMIT];
	octet_set_low(&own[INFO_VL_CAP_INIT_TYPE], octet_low(data[INFO_VL_CAP_INIT_TYPE]));
	own[INFO_STALL_HOQ] = data[INFO_STALL_HOQ];
	own[INFO_THRESHOLDS] = data[INFO_THRESHOLDS];
}

/* The link goes down; it comes up again at once, unless a physical state keeps it down. */
static void port_go_down(struct fabric *fabric, struct fabric_port *port, uint8_t physical)
{
	uint32_t row = (uint32_t)(port - fabric->ports);
	uint8_t rest = octet_low(port->info[INFO_PHYSICAL_DOWN_DEFAULT]);

	link_drop(fabric, row, true);
	port_set_physical(port, physical ? physical : rest);
	link_settle(fabric, row, false);
}

static void state_write(struct fabric *fabric, struct fabric_port *port, const uint8_t *data)
{
	uint8_t wanted = octet_low(data[INFO_SPEED_SUPPORTED_STATE]);
	uint8_t physical = octet_high(data[INFO_PHYSICAL_DOWN_DEFAULT]);
	uint8_t rest = octet_low(data[INFO_PHYSICAL_DOWN_DEFAULT]);

	if (rest)
		octet_set_low(&port->info[INFO_PHYSICAL_DOWN_DEFAULT], rest);
	if (!port->number) {
		/* A switch's own port has no link that could go down. */
		if (wanted >= PORT_ARMED)
			port_set_state(port, wanted);
		return;
	}
	if (wanted == PORT_DOWN || physical) {
		port_go_down(fabric, port, physical);
	} else if (wanted && wanted != port_state(port)) {
		port_set_state(port, wanted);
		fabric_touch(fabric);
		if (wanted == PORT_ACTIVE && port->is_end_port)
			port_event(fabric, port, EVENT_PORT_ACTIVE);
	}
}

static uint16_t port_info_write(struct agent_request *request, struct fabric_port *port)
{
	const uint8_t *data = request->data;

	if (state_is_refused(port, data) || link_is_refused(request, port, data) ||
	    address_is_refused(port, data))
		return ANSWER_INVALID;
	if (port->is_end_port)
		address_write(request->fabric, port, data);
	link_write(request, port, data);
	lanes_write(request->fabric, port, data);
	state_write(request->fabric, port, data);
	return ANSWER_OK;
}

/* Reading -------------------------------------------------------------------------------------- */

/* The key is shown to a request that has it, and to all where nothing is protected. */
static bool m_key_is_shown(const struct agent_request *request, const struct fabric_port *port)
{
	return !(port->info[INFO_PROTECT_LMC] >> 6) ||
	       !memcmp(port->info + INFO_M_KEY, request->mad + MAD_AT_M_KEY, 8);
}

uint16_t port_info_answer(struct agent_request *request)
{
	struct fabric_port *port = port_named(request);
	uint8_t reregister = 0;
	uint16_t status = ANSWER_OK;

	if (!port) {
		memset(request->data, 0, 64);
		return ANSWER_INVALID;
	}
	if (request->method == METHOD_IS_SET) {
		reregister =
			port->is_end_port ? request->data[INFO_REREGISTER_TIMEOUT] & REREGISTER : 0;
		status = port_info_write(request, port);
	}
	memcpy(request->data, port->info, INFO_BYTES);
	if (!m_key_is_shown(request, port))
		memset(request->data + INFO_M_KEY, 0, 8);
	request->data[INFO_LOCAL_PORT] = request->fabric->ports[request->port].number;
	if (!status)
		request->data[INFO_REREGISTER_TIMEOUT] |= reregister;
	return status;
}
