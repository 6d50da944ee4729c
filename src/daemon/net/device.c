/* SPDX-License-Identifier: BSD-2-Clause */
/* A device and the queries about it. See device.h. */
#include "daemon/net/device.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/net/mcast.h"
#include "proto/limits.h"

/* Numbers of the specification and of <infiniband/verbs.h>. */
enum {
	MTU_4096 = 5,
	STATE_DOWN = 1,
	STATE_ACTIVE = 4,
	PHYS_DISABLED = 3,
	PHYS_LINK_UP = 5,
	WIDTH_4X = 2,
	SPEED_EDR = 32,
	LAYER_ETHERNET = 2,
	ATOMIC_HCA = 1,
	TM_CAP_RC = 1,
	EVENT_DEVICE_FATAL = 8,
	EVENT_PORT_ACTIVE = 9,
	EVENT_PORT_ERR = 10,
	EVENT_GID_CHANGE = 18,
	ACK_DELAY = 15, /* 4.096 us * 2^15: 134 ms, for processes that wait for a CPU */
};

#define PAGE_SIZES 0xfffff000ull

/* Only capabilities that the soft HCA has. */
#define CAPABILITIES                                                                \
	(IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE | IB_UVERBS_DEVICE_CURR_QP_STATE_MOD | \
	 IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT | IB_UVERBS_DEVICE_SYS_IMAGE_GUID |     \
	 IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | IB_UVERBS_DEVICE_SRQ_RESIZE |            \
	 IB_UVERBS_DEVICE_MEM_WINDOW | IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B |        \
	 IB_UVERBS_DEVICE_XRC | IB_UVERBS_DEVICE_RAW_IP_CSUM |                      \
	 IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING)

/* The kernel's Soft-RoCE subtracts as much from the interface's MTU for all possible headers. */
enum { HEADERS_BYTES = 80, MTU_BYTES_MIN = 256, MTU_BYTES_MAX = 4096 };

/* ------------------------------------------------------------------ identity */

/* Makes the GUID a modified EUI-64 of a card's MAC address. */
static void guid_from_card(struct device *device, const struct host_card *card)
{
	const uint8_t guid[8] = {card->mac[0] ^ 2, card->mac[1], card->mac[2], 0xff, 0xfe,
				 card->mac[3],	   card->mac[4], card->mac[5]};

	memcpy(device->guid, guid, sizeof(guid));
	memcpy(device->first.ifname, card->ifname, sizeof(card->ifname));
}

/* Makes a GUID that belongs to no vendor. */
static void guid_from_host(struct device *device)
{
	uint64_t number = host_number();
	uint8_t *g = device->guid;

	memcpy(g, &number, sizeof(number));
	g[0] &= 0xfc; /* locally administered, not a group's */
	g[6] ^= (uint8_t)device->index;
	g[7] |= 1; /* never all zero */
	snprintf(device->first.ifname, sizeof(device->first.ifname), "%s",
		 device->bound ? device->bound->ifname[0] : "lo");
}

/* The first GID stays, whatever addresses the interface has. But an interface that was removed and
 * made again has another index, and its MAC address may be changed. */
static void refresh_first(struct device *device)
{
	struct host_card card = {0};

	if (host_card(device->first.ifname, &card) != 0) /* none of Ethernet */
		card.ifindex = if_nametoindex(device->first.ifname);
	device->first.ifindex = card.ifindex;
	memcpy(device->first.mac, card.mac, sizeof(card.mac));
}

void device_init(struct device *device, struct server *server, uint32_t index,
		 const struct config_device *bound)
{
	struct host_card card;

	*device = (struct device){
		.server = server, .index = index, .bound = bound, .listener = {.fd = -1}};
	snprintf(device->name, sizeof(device->name), "%s", bound ? bound->name : DEVICE_NAME);
	snprintf(device->node, sizeof(device->node), "uverbs%u", index);
	if (host_card(bound ? bound->ifname[0] : NULL, &card) == 0)
		guid_from_card(device, &card);
	else
		guid_from_host(device);
	memcpy(device->first.gid, (const uint8_t[]){0xfe, 0x80}, 2);
	memcpy(device->first.gid + 8, device->guid, sizeof(device->guid));
	refresh_first(device);
}

/* ------------------------------------------------------------------ port and GIDs */

/* Sends an event to every process that has a context on the device. */
static void device_send_event(const struct device *device, uint32_t event)
{
	const struct slots *slots = &device->server->slots;

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->process[slot] && process_uses(slots->process[slot], device))
			events_device(&slots->process[slot]->events, event, device->index,
				      DEVICE_PORT);
}

/* Its last interface is gone: the contexts that are open end with it, as when a card is removed. */
static void device_remove(struct device *device)
{
	const struct slots *slots = &device->server->slots;

	log_info("no interface of %s is there any more: its contexts have lost it", device->name);
	device_send_event(device, EVENT_DEVICE_FATAL);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->process[slot])
			process_lose_device(slots->process[slot], device);
}

static bool is_bound_to(const struct device *device, const char *ifname)
{
	for (uint32_t i = 0; device->bound && i < device->bound->count; i++)
		if (!strcmp(device->bound->ifname[i], ifname))
			return true;
	return !device->bound;
}

/* Up while one of the interfaces is up; the MTU is the smallest of those. */
static struct host_port device_bound_port(const struct device *device)
{
	struct host_port sum = {0};

	for (uint32_t i = 0; i < device->bound->count; i++) {
		struct host_port port = host_port(device->bound->ifname[i]);

		if (!port.up)
			continue;
		if (!sum.up || port.mtu < sum.mtu)
			sum.mtu = port.mtu;
		sum.up = true;
	}
	return sum;
}

/*
 * The port of the device of all interfaces follows its card's interface, but only once that has
 * been up: a host without a network, or with a cable that isn't plugged in yet, still serves
 * itself.
 */
static struct host_port common_port(struct device *device)
{
	struct host_port port = host_port(device->first.ifname);

	device->seen_up |= port.up;
	if (!device->seen_up)
		port = (struct host_port){.up = true, .mtu = MTU_BYTES_MAX + HEADERS_BYTES};
	return port;
}

static void refresh_port(struct device *device, bool first)
{
	struct host_port port = device->bound ? device_bound_port(device) : common_port(device);
	bool changed = port.up != device->port.up;

	if (!port.mtu)
		port.mtu = device->port.mtu;
	device->port = port;
	if (!changed || first)
		return;
	log_info("the port of %s is %s", device->name, port.up ? "up" : "down");
	device_send_event(device, port.up ? EVENT_PORT_ACTIVE : EVENT_PORT_ERR);
}

static bool is_present(const struct device *device)
{
	for (uint32_t i = 0; device->bound && i < device->bound->count; i++)
		if (if_nametoindex(device->bound->ifname[i]))
			return true;
	return !device->bound;
}

void device_refresh(struct device *device, const struct host_address *list, unsigned int count)
{
	bool first = !device->gids.used[0];
	struct host_address *own = calloc((size_t)count + 1, sizeof(*own));
	unsigned int n = 0;

	for (unsigned int i = 0; own && i < count; i++)
		if (is_bound_to(device, list[i].ifname))
			own[n++] = list[i];
	refresh_first(device);
	bool was_present = device->present;

	device->present = is_present(device);
	if (was_present && !device->present)
		device_remove(device);
	refresh_port(device, first);
	mcast_datagrams(device->server, device->index, 128u << device_mtu(device));
	mcast_addresses_changed(device->server);
	if (own && gids_update(&device->gids, &device->first, own, n) && !first)
		device_send_event(device, EVENT_GID_CHANGE);
	free(own);
}

unsigned int device_mtu(const struct device *device)
{
	unsigned int bytes = MTU_BYTES_MAX, mtu = MTU_4096;

	while (bytes > MTU_BYTES_MIN && bytes + HEADERS_BYTES > device->port.mtu) {
		bytes /= 2;
		mtu--;
	}
	return mtu;
}

uint32_t device_capabilities(void)
{
	return CAPABILITIES;
}

/* ------------------------------------------------------------------ queries */

static uint64_t device_guid_word(const struct device *device)
{
	uint64_t word;

	memcpy(&word, device->guid, sizeof(word));
	return word;
}

int command_list_devices(struct request *request, void *response)
{
	struct proto_list_devices_resp *resp = response;

	const struct devices *devices = &request->conn->server->devices;

	resp->count = devices->count;
	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = &devices->device[i];
		struct proto_device *to = &resp->device[i];

		to->node_guid = device_guid_word(device);
		to->index = i;
		to->ports = 1;
		snprintf(to->name, sizeof(to->name), "%s", device->name);
		snprintf(to->node, sizeof(to->node), "%s", device->node);
	}
	return 0;
}

/* The configuration may allow a user fewer objects than the device's limit. */
static uint32_t device_allowed(const struct device *device, uint32_t limit)
{
	uint32_t objects = device->server->config.user_objects;

	return limit < objects ? limit : objects;
}

static void device_fill_response(const struct device *device,
				 struct ib_uverbs_query_device_resp *resp)
{
	*resp = (struct ib_uverbs_query_device_resp){
		.fw_ver = DEVICE_FIRMWARE_NUMBER,
		.node_guid = device_guid_word(device),
		.sys_image_guid = device_guid_word(device),
		.max_mr_size = LIMIT_MR_BYTES,
		.page_size_cap = PAGE_SIZES,
		.vendor_id = DEVICE_VENDOR_ID,
		.vendor_part_id = DEVICE_PART_ID,
		.hw_ver = DEVICE_HW_VERSION,
		.max_qp = device_allowed(device, LIMIT_QP),
		.max_qp_wr = LIMIT_QP_WR,
		.device_cap_flags = CAPABILITIES,
		.max_sge = LIMIT_SGE,
		.max_sge_rd = LIMIT_SGE,
		.max_cq = device_allowed(device, LIMIT_CQ),
		.max_cqe = LIMIT_CQE,
		.max_mr = device_allowed(device, LIMIT_MR),
		.max_mw = device_allowed(device, LIMIT_MW),
		.max_pd = device_allowed(device, LIMIT_PD),
		.max_qp_rd_atom = LIMIT_RD_ATOM,
		.max_res_rd_atom = LIMIT_RD_ATOM * device_allowed(device, LIMIT_QP),
		.max_qp_init_rd_atom = LIMIT_RD_ATOM,
		.atomic_cap = ATOMIC_HCA,
		.max_raw_ethy_qp = device_allowed(device, LIMIT_QP),
		.max_mcast_grp = LIMIT_MCAST_GROUPS,
		.max_mcast_qp_attach = LIMIT_MCAST_QPS,
		.max_total_mcast_qp_attach = LIMIT_MCAST_ATTACHED,
		.max_ah = device_allowed(device, LIMIT_AH),
		.max_srq = device_allowed(device, LIMIT_SRQ),
		.max_srq_wr = LIMIT_SRQ_WR,
		.max_srq_sge = LIMIT_SGE,
		.max_pkeys = LIMIT_PKEYS,
		.local_ca_ack_delay = ACK_DELAY,
		.phys_port_cnt = 1,
	};
}

int command_query_device(struct request *request, void *response)
{
	device_fill_response(request->conn->device, response);
	return 0;
}

int command_ex_query_device(struct request *request, void *response)
{
	const struct ib_uverbs_ex_query_device *body = request->body;
	struct ib_uverbs_ex_query_device_resp *resp = response;

	if (body->comp_mask || body->reserved)
		return -EINVAL;
	device_fill_response(request->conn->device, &resp->base);
	resp->response_length = (uint32_t)request->response_size;
	resp->odp_caps.general_caps = ODP_GENERAL;
	resp->odp_caps.per_transport_caps.rc_odp_caps = ODP_RC;
	resp->odp_caps.per_transport_caps.uc_odp_caps = ODP_UC;
	resp->odp_caps.per_transport_caps.ud_odp_caps = ODP_UD;
	resp->xrc_odp_caps = ODP_XRC;
	resp->tm_caps.max_rndv_hdr_size = LIMIT_RNDV_BYTES;
	resp->tm_caps.max_num_tags = LIMIT_TAGS;
	resp->tm_caps.flags = TM_CAP_RC;
	resp->tm_caps.max_ops = LIMIT_TAG_OPS;
	resp->tm_caps.max_sge = LIMIT_TAG_SGE;
	resp->cq_moderation_caps.max_cq_moderation_count = UINT16_MAX;
	resp->cq_moderation_caps.max_cq_moderation_period = UINT16_MAX;
	resp->max_dm_size = LIMIT_DM_BYTES;
	resp->raw_packet_caps = RAW_PACKET_CAPS;
	resp->max_wq_type_rq = device_allowed(request->conn->device, LIMIT_QP);
	resp->rss_caps.supported_qpts = 1u << IB_UVERBS_QPT_RAW_PACKET;
	resp->rss_caps.max_rwq_indirection_tables = LIMIT_TABLES;
	resp->rss_caps.max_rwq_indirection_table_size = 1u << LIMIT_TABLE_LOG;
	resp->timestamp_mask = UINT64_MAX; /* completions carry CLOCK_MONOTONIC in ns */
	resp->hca_core_clock = 1000000;	   /* kHz */
	resp->device_cap_flags_ex = CAPABILITIES | CAPABILITIES_EX;
	return 0;
}

int command_query_port(struct request *request, void *response)
{
	const struct ib_uverbs_query_port *body = request->body;
	struct ib_uverbs_query_port_resp *resp = response;

	const struct device *device = request->conn->device;

	if (body->port_num != DEVICE_PORT)
		return -EINVAL;
	*resp = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = DEVICE_PORT_CAPS,
		.max_msg_sz = LIMIT_MSG_BYTES,
		.gid_tbl_len = LIMIT_GIDS,
		.pkey_tbl_len = LIMIT_PKEYS,
		.state = device->port.up ? STATE_ACTIVE : STATE_DOWN,
		.max_mtu = MTU_4096,
		.active_mtu = (uint8_t)device_mtu(device),
		.max_vl_num = 1,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_EDR,
		.phys_state = device->port.up ? PHYS_LINK_UP : PHYS_DISABLED,
		.link_layer = LAYER_ETHERNET,
		.flags = IB_UVERBS_QPF_GRH_REQUIRED,
	};
	return 0;
}

int command_query_gid(struct request *request, void *response)
{
	const struct proto_query_gid *body = request->body;
	struct proto_query_gid_resp *resp = response;

	if (body->port != DEVICE_PORT || body->index >= LIMIT_GIDS)
		return -EINVAL;
	const struct host_address *entry = gids_get(&request->conn->device->gids, body->index);

	if (!entry)
		return -ENODATA;
	memcpy(resp->gid, entry->gid, sizeof(resp->gid));
	resp->type = IB_UVERBS_GID_TYPE_ROCE_V2;
	resp->ifindex = entry->ifindex;
	return 0;
}
