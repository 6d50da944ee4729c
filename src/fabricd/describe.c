/* SPDX-License-Identifier: BSD-2-Clause */
/* Nodes and ports in words, and as libibumad describes them. No state. */
#include "fabricd/describe.h"

#include "fabric/internal.h"
#include "topology/topology.h"

struct lane_speed {
	const char *name;
	uint32_t tenths; /* Gb/s of a lane */
};

static const struct lane_speed *port_lane_speed(const struct fabric_port *port)
{
	static const struct lane_speed none = {"", 0};
	static const struct lane_speed usual[] = {{"SDR", 25}, {"DDR", 50}, {"QDR", 100}};
	static const struct lane_speed extended[] = {
		{"FDR", 140}, {"EDR", 250}, {"HDR", 500}, {"NDR", 1000}};
	static const struct lane_speed fastest = {"XDR", 2000};
	uint8_t fast = octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]);
	uint8_t slow = octet_high(port->info[INFO_SPEED_ACTIVE_ENABLED]);

	if (port_ext2_active(port))
		return &fastest;
	for (int i = 3; i >= 0; i--)
		if (fast >> i & 1)
			return &extended[i];
	for (int i = 2; i >= 0; i--)
		if (slow >> i & 1)
			return &usual[i];
	return &none;
}

uint32_t port_rate_tenths(const struct fabric_port *port)
{
	return port_state(port) == PORT_DOWN ? 0
					     : topology_lanes(port->info[INFO_WIDTH_ACTIVE]) *
						       port_lane_speed(port)->tenths;
}

const char *port_speed_text(const struct fabric_port *port)
{
	return port_state(port) == PORT_DOWN ? "" : port_lane_speed(port)->name;
}

const char *port_width_text(const struct fabric_port *port)
{
	static const char *const texts[] = {
		[0] = "", [1] = "1X", [2] = "2X", [4] = "4X", [8] = "8X", [12] = "12X"};

	return port_state(port) == PORT_DOWN ? ""
					     : texts[topology_lanes(port->info[INFO_WIDTH_ACTIVE])];
}

const char *port_state_text(const struct fabric_port *port)
{
	static const char *const texts[] = {"", "down", "init", "armed", "active"};
	uint8_t state = port_state(port);

	return state <= PORT_ACTIVE ? texts[state] : "";
}

const char *port_physical_text(const struct fabric_port *port)
{
	static const char *const texts[] = {"",		"sleep",    "polling",
					    "disabled", "training", "link-up"};
	uint8_t physical = port_physical(port);

	return physical <= PHYSICAL_LINK_UP ? texts[physical] : "";
}

static const char *const error_names[ERRORS] = {
	[ERROR_SYMBOL] = "symbol",
	[ERROR_LINK_RECOVERY] = "link_recovery",
	[ERROR_LINK_DOWNED] = "link_downed",
	[ERROR_RCV] = "rcv_errors",
	[ERROR_RCV_REMOTE_PHYSICAL] = "rcv_remote_physical",
	[ERROR_RCV_SWITCH_RELAY] = "rcv_switch_relay",
	[ERROR_XMIT_DISCARDS] = "xmit_discards",
	[ERROR_XMIT_CONSTRAINT] = "xmit_constraint",
	[ERROR_RCV_CONSTRAINT] = "rcv_constraint",
	[ERROR_LOCAL_INTEGRITY] = "local_integrity",
	[ERROR_BUFFER_OVERRUN] = "buffer_overrun",
	[ERROR_QP1_DROPPED] = "qp1_dropped",
	[ERROR_VL15_DROPPED] = "vl15_dropped",
	[ERROR_XMIT_WAIT] = "xmit_wait",
	[ERROR_FLOW_CONTROL] = "flow_control",
};

const char *error_name(enum fabric_error error)
{
	return error_names[error];
}

enum fabric_error error_find(const char *name)
{
	for (enum fabric_error error = 0; error < ERRORS; error++)
		if (!strcmp(error_names[error], name))
			return error;
	return ERRORS;
}

/* Devices -------------------------------------------------------------------------------------- */

static void describe_port(const struct fabric *fabric, uint32_t row, struct proto_fabric_port *to)
{
	const struct fabric_port *port = &fabric->ports[row];

	*to = (struct proto_fabric_port){
		.number = port->number,
		.lid = port_lid(port),
		.lmc = port_lmc(port),
		.sm_lid = port_sm_lid(port),
		.sm_sl = octet_low(port->info[INFO_MTU_SM_SL]),
		.state = port_state(port),
		.physical = port_physical(port),
		.rate = port_rate_tenths(port) / 10,
		.capabilities = octets_get32(port->info + INFO_CAPABILITIES),
		.pkeys = FABRIC_PKEYS,
		.prefix = octets_get64(port->info + INFO_PREFIX),
		.guid = port->guid,
	};
	/* A port without a link has the rate that Linux shows then: 4x SDR. */
	if (!to->rate)
		to->rate = 10;
	for (unsigned int i = 0; i < PROTO_FABRIC_PKEYS; i++)
		to->pkey[i] = partition_key_get(fabric, row, i);
}

void describe_device(const struct fabric *fabric, uint32_t node, struct proto_fabric_device *device)
{
	const struct fabric_node *row = &fabric->nodes[node];
	bool is_switch = row->type == FABRIC_SWITCH;
	unsigned int last = is_switch ? 0 : row->ports;

	if (last >= PROTO_FABRIC_PORTS)
		last = PROTO_FABRIC_PORTS - 1;
	*device = (struct proto_fabric_device){
		.type = row->type,
		.numports = last,
		.guid = row->guid,
		.system_guid = row->system_guid,
	};
	for (unsigned int number = !is_switch; number <= last; number++)
		describe_port(fabric, row->first_port + number, &device->port[device->ports++]);
}
