/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names and numbers of enumerations.
 *
 * The strings are those that rdma-core prints, because scripts search logs for them. Tables only:
 * no state, no locks, any thread.
 */
#include <infiniband/verbs.h>

#include "base/export.h"
#include "base/wc_status.h"

#define COUNT_OF(table) (sizeof(table) / sizeof((table)[0]))

static const char *name_lookup(const char *const *table, size_t count, int value)
{
	if (value < 0 || (size_t)value >= count || !table[value])
		return "unknown";
	return table[value];
}

static const char *const node_type_names[] = {
	[IBV_NODE_CA] = "InfiniBand channel adapter",
	[IBV_NODE_SWITCH] = "InfiniBand switch",
	[IBV_NODE_ROUTER] = "InfiniBand router",
	[IBV_NODE_RNIC] = "iWARP NIC",
	[IBV_NODE_USNIC] = "usNIC",
	[IBV_NODE_USNIC_UDP] = "usNIC UDP",
	[IBV_NODE_UNSPECIFIED] = "unspecified",
};

static const char *const port_state_names[] = {
	[IBV_PORT_NOP] = "no state change (NOP)",
	[IBV_PORT_DOWN] = "down",
	[IBV_PORT_INIT] = "init",
	[IBV_PORT_ARMED] = "armed",
	[IBV_PORT_ACTIVE] = "active",
	[IBV_PORT_ACTIVE_DEFER] = "active defer",
};

static const char *const event_type_names[] = {
	[IBV_EVENT_CQ_ERR] = "CQ error",
	[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
	[IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
	[IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
	[IBV_EVENT_COMM_EST] = "communication established",
	[IBV_EVENT_SQ_DRAINED] = "send queue drained",
	[IBV_EVENT_PATH_MIG] = "path migrated",
	[IBV_EVENT_PATH_MIG_ERR] = "path migration request error",
	[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
	[IBV_EVENT_PORT_ACTIVE] = "port active",
	[IBV_EVENT_PORT_ERR] = "port error",
	[IBV_EVENT_LID_CHANGE] = "LID change",
	[IBV_EVENT_PKEY_CHANGE] = "P_Key change",
	[IBV_EVENT_SM_CHANGE] = "SM change",
	[IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error",
	[IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
	[IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
	[IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
	[IBV_EVENT_GID_CHANGE] = "GID table change",
	[IBV_EVENT_WQ_FATAL] = "WQ fatal",
	[IBV_EVENT_DEVICE_SPEED_CHANGE] = "Device link speed change",
};

static const char *const wr_opcode_names[] = {
	[IBV_WR_RDMA_WRITE] = "rdma-write",
	[IBV_WR_RDMA_WRITE_WITH_IMM] = "rdma-write-with-imm",
	[IBV_WR_SEND] = "send",
	[IBV_WR_SEND_WITH_IMM] = "send-with-imm",
	[IBV_WR_RDMA_READ] = "rdma-read",
	[IBV_WR_ATOMIC_CMP_AND_SWP] = "atomic-cmp-and-swp",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "atomic-fetch-and-add",
	[IBV_WR_LOCAL_INV] = "local-inv",
	[IBV_WR_BIND_MW] = "bind-mw",
	[IBV_WR_SEND_WITH_INV] = "send-with-inv",
	[IBV_WR_TSO] = "tso",
	[IBV_WR_DRIVER1] = "driver1",
	[IBV_WR_FLUSH] = "flush",
	[IBV_WR_ATOMIC_WRITE] = "atomic-write",
};

EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
	return name_lookup(node_type_names, COUNT_OF(node_type_names), (int)type);
}

EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
	return name_lookup(port_state_names, COUNT_OF(port_state_names), (int)state);
}

EXPORT const char *ibv_event_type_str(enum ibv_event_type type)
{
	return name_lookup(event_type_names, COUNT_OF(event_type_names), (int)type);
}

/* In the headers of rdma-core 49 and later, whose drivers use it for traces; not in this header
 * (44). */
EXPORT const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);
EXPORT const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode)
{
	return name_lookup(wr_opcode_names, COUNT_OF(wr_opcode_names), (int)opcode);
}
EXPORT_SINCE_34(ibv_wr_opcode_str, ibv_wr_opcode_str);

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return wc_status_text((int)status);
}

/*
 * A rate in both units, 0 where it has none. Mbit/s are the signalling rate times the line code's
 * efficiency: from FDR on (64b/66b) the rate's name is only a round number.
 */
struct rate_measure {
	int mult; /* multiple of 2.5 Gbit/s */
	int mbps;
};

static const struct rate_measure rates[] = {
	[IBV_RATE_2_5_GBPS] = {1, 2500},       [IBV_RATE_5_GBPS] = {2, 5000},
	[IBV_RATE_10_GBPS] = {4, 10000},       [IBV_RATE_20_GBPS] = {8, 20000},
	[IBV_RATE_30_GBPS] = {12, 30000},      [IBV_RATE_40_GBPS] = {16, 40000},
	[IBV_RATE_60_GBPS] = {24, 60000},      [IBV_RATE_80_GBPS] = {32, 80000},
	[IBV_RATE_120_GBPS] = {48, 120000},    [IBV_RATE_14_GBPS] = {0, 14062},
	[IBV_RATE_56_GBPS] = {0, 56250},       [IBV_RATE_112_GBPS] = {0, 112500},
	[IBV_RATE_168_GBPS] = {0, 168750},     [IBV_RATE_25_GBPS] = {0, 25781},
	[IBV_RATE_100_GBPS] = {0, 103125},     [IBV_RATE_200_GBPS] = {0, 206250},
	[IBV_RATE_300_GBPS] = {0, 309375},     [IBV_RATE_28_GBPS] = {11, 28125},
	[IBV_RATE_50_GBPS] = {20, 53125},      [IBV_RATE_400_GBPS] = {160, 425000},
	[IBV_RATE_600_GBPS] = {240, 637500},   [IBV_RATE_800_GBPS] = {320, 850000},
	[IBV_RATE_1200_GBPS] = {480, 1275000},
};

EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
	int known = (size_t)rate < COUNT_OF(rates) ? rates[rate].mult : 0;

	return known ? known : -1;
}

EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
	int known = (size_t)rate < COUNT_OF(rates) ? rates[rate].mbps : 0;

	return known ? known : -1;
}

EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (size_t i = 0; mult > 0 && i < COUNT_OF(rates); i++)
		if (rates[i].mult == mult)
			return (enum ibv_rate)i;
	return IBV_RATE_MAX;
}

EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (size_t i = 0; mbps > 0 && i < COUNT_OF(rates); i++)
		if (rates[i].mbps == mbps)
			return (enum ibv_rate)i;
	return IBV_RATE_MAX;
}
