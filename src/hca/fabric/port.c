/* SPDX-License-Identifier: BSD-2-Clause */
/* Attributes of an adapter and of its ports, as verbs have them, from the fabric's tables. No
 * state.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "fabric/internal.h"
#include "fabric/port_info.h"
#include "hca/fabric/node.h"
#include "proto/limits.h"

uint32_t node_port_row(const struct node *node, uint32_t port)
{
	return port && port <= node->ports ? node_own(node)->first_port + port : FABRIC_NONE;
}

static const struct fabric_port *node_port(const struct node *node, uint32_t port)
{
	uint32_t row = node_port_row(node, port);

	return row == FABRIC_NONE ? NULL : &node->tables.ports[row];
}

static uint8_t highest_bit(uint8_t bits)
{
	return bits ? (uint8_t)(31 - __builtin_clz(bits)) : 0;
}

/* ibv_port_attr.active_speed: 1 SDR, 2 DDR, 4 QDR, 16 FDR, 32 EDR, 64 HDR, 128 NDR and faster. */
static uint8_t port_speed(const struct fabric_port *port)
{
	uint8_t ext = octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]);
	uint8_t basic = octet_high(port->info[INFO_SPEED_ACTIVE_ENABLED]);

	if (port_state(port) == PORT_DOWN)
		return 1;
	if (port_ext2_active(port))
		return 128;
	if (ext)
		return (uint8_t)(16u << highest_bit(ext & 15));
	return basic ? (uint8_t)(1u << highest_bit(basic & 7)) : 1;
}

/* ibv_port_attr.active_speed_ex: as the above, and 256 XDR. */
static uint32_t port_speed_ex(const struct fabric_port *port)
{
	bool xdr = port_state(port) != PORT_DOWN && port_ext2_active(port);

	return xdr ? 256 : port_speed(port);
}

/* VLCap: the code for the number of data lanes. */
static uint8_t port_vl_cap(const struct fabric_port *port)
{
	return octet_high(port->info[INFO_VL_CAP_INIT_TYPE]);
}

int node_query_port(const struct node *node, uint32_t number, struct ibv_port_attr *attr)
{
	const struct fabric_port *port = node_port(node, number);
	const uint8_t *info;

	if (!port)
		return EINVAL;
	info = port->info;
	*attr = (struct ibv_port_attr){
		.state = port_state(port),
		.max_mtu = octet_low(info[INFO_INIT_REPLY_MTU_CAP]),
		.active_mtu = port_mtu(port),
		.gid_tbl_len = info[INFO_GUID_CAP],
		.port_cap_flags = octets_get32(info + INFO_CAPABILITIES),
		.max_msg_sz = LIMIT_MSG_BYTES,
		.bad_pkey_cntr = octets_get16(info + INFO_P_KEY_VIOLATIONS),
		.qkey_viol_cntr = octets_get16(info + INFO_Q_KEY_VIOLATIONS),
		.pkey_tbl_len = FABRIC_PKEYS,
		.lid = port_lid(port),
		.sm_lid = port_sm_lid(port),
		.lmc = port_lmc(port),
		.max_vl_num = port_vl_cap(port),
		.sm_sl = octet_low(info[INFO_MTU_SM_SL]),
		.subnet_timeout = info[INFO_REREGISTER_TIMEOUT] & 31,
		.init_type_reply = octet_high(info[INFO_INIT_REPLY_MTU_CAP]),
		.active_width = port_state(port) == PORT_DOWN ? 2 : info[INFO_WIDTH_ACTIVE],
		.active_speed = port_speed(port),
		.phys_state = port_physical(port),
		.link_layer = IBV_LINK_LAYER_INFINIBAND,
		.port_cap_flags2 = octets_get16(info + INFO_CAPABILITIES2),
		.active_speed_ex = port_speed_ex(port),
	};
	return 0;
}

int node_query_gid(const struct node *node, uint32_t number, uint32_t index,
		   struct ibv_gid_entry *entry)
{
	const struct fabric_port *port = node_port(node, number);

	if (!port || index >= port->info[INFO_GUID_CAP] || index >= FABRIC_GUIDS)
		return EINVAL;
	if (index && !node->tables.guids[(size_t)port->end_port * FABRIC_GUIDS + index])
		return ENODATA;
	*entry = (struct ibv_gid_entry){
		.gid_index = index, .port_num = number, .gid_type = IBV_GID_TYPE_IB};
	fabric_gid_get(&node->tables, node_port_row(node, number), index, entry->gid.raw);
	return 0;
}

int node_query_pkey(const struct node *node, uint32_t number, uint32_t index, uint16_t *pkey)
{
	uint32_t row = node_port_row(node, number);

	if (row == FABRIC_NONE || index >= FABRIC_PKEYS)
		return EINVAL;
	*pkey = partition_key_get(&node->tables, row, index);
	return 0;
}

void node_query_device(const struct node *node, struct ibv_device_attr *attr)
{
	const struct fabric_node *own = node_own(node);

	attr->node_guid = htobe64(own->guid);
	attr->sys_image_guid = htobe64(own->system_guid);
	attr->phys_port_cnt = own->ports;
	attr->max_pkeys = FABRIC_PKEYS;
	attr->device_cap_flags |= IBV_DEVICE_AUTO_PATH_MIG;
}

#define MILLION 1000000u

uint32_t node_loss(const struct node *node, const struct fabric_route *route)
{
	uint64_t passes = MILLION;

	for (uint32_t i = 0; route->is_lossy && i < route->hops; i++) {
		uint32_t drop = port_data_drop_ppm(&node->tables.ports[route->hop[i].ingress]);

		passes = passes * (MILLION - (drop < MILLION ? drop : MILLION)) / MILLION;
	}
	return MILLION - (uint32_t)passes;
}

bool node_drops_of(uint64_t *dice, uint32_t part, uint32_t whole)
{
	if (!part)
		return false;
	/* xorshift64: faults need no better one */
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return (uint32_t)(*dice >> 16) % whole < part;
}

bool node_drops(uint64_t *dice, uint32_t loss)
{
	return node_drops_of(dice, loss, MILLION);
}

void node_drop_choose(const struct node *node, uint64_t *dice, struct fabric_route *route)
{
	uint32_t all = 0, seen = 0, at = 0;

	for (uint32_t i = 0; i < route->hops; i++)
		all += port_data_drop_ppm(&node->tables.ports[route->hop[i].ingress]);
	for (uint32_t i = 0; i < route->hops && all; i++) {
		uint32_t drop = port_data_drop_ppm(&node->tables.ports[route->hop[i].ingress]);

		seen += drop;
		at = i;
		if (node_drops_of(dice, drop, all - seen + drop))
			break;
	}
	if (!all)
		return; /* the fault has ended meanwhile */
	route->hops = at + 1;
	route->result = ROUTE_DROPPED;
	route->end = route->blame = route->hop[at].ingress;
}
