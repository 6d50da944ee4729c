/* SPDX-License-Identifier: BSD-2-Clause */
/* A device and the queries about it. See device.h. */
#include "daemon/net/device.h"

#include <errno.h>
#include <netinet/in.h>
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
	 IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS | IB_UVERBS_DEVICE_XRC |               \
	 IB_UVERBS_DEVICE_RAW_IP_CSUM | IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING)

/* The kernel's Soft-RoCE subtracts as much from the interface's MTU for all possible headers. */
enum { HEADERS_BYTES = 80, MTU_BYTES_MIN = 256, MTU_BYTES_MAX = 4096 };

/* ------------------------------------------------------------------ identity */

/* Makes the GUID a modified EUI-64 of a card's MAC address. */
static void guid_from_card(struct device *device, const struct host_card *card)
{
	const uint8_t guid[8] = {card->mac[0] ^ 2, card->mac[1], card->mac[2], 0xff, 0xfe,
				 card->mac[3],	   card->mac[4], card->mac[5]};

	memcpy(device->guid, guid, sizeof(guid));
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
}

static bool guid_is_taken(const struct device *device)
{
	const struct devices *devices = &device->server->devices;

	for (uint32_t i = 0; i < devices->count; i++)
		if (&devices->device[i] != device &&
		    !memcmp(devices->device[i].guid, device->guid, sizeof(device->guid)))
			return true;
	return false;
}

/* An interface that was removed and made again has another index, and its MAC address may be
 * changed. */
static void refresh_interface(struct device *device)
{
	struct host_card card = {0};

	if (host_card(device->ifname, &card) != 0) /* none of Ethernet */
		card.ifindex = if_nametoindex(device->ifname);
	device->ifindex = card.ifindex;
	memcpy(device->mac, card.mac, sizeof(card.mac));
}

static void set_identity(struct device *device, const char *ifname)
{
	struct host_card card;

	snprintf(device->ifname, sizeof(device->ifname), "%s", ifname);
	if (host_card(ifname, &card) == 0)
		guid_from_card(device, &card);
	else
		guid_from_host(device);
	/* Programs, librdmacm among them, know devices by their GUIDs. */
	if (guid_is_taken(device))
		guid_from_host(device);
	refresh_interface(device);
}

void device_init(struct device *device, struct server *server, uint32_t index)
{
	const struct watch listener = device->listener;

	*device = (struct device){.server = server, .index = index, .listener = listener};
	snprintf(device->name, sizeof(device->name), "verbena%u", index);
	snprintf(device->node, sizeof(device->node), "uverbs%u", index);
}

void device_bind(struct device *device, const struct config_device *bound)
{
	device->bound = bound;
	snprintf(device->name, sizeof(device->name), "%s", bound->name);
	set_identity(device, bound->ifname[0]);
}

void device_take(struct device *device, const char *base, enum reach reach)
{
	device->reach = reach;
	device->present = true;
	set_identity(device, base);
}

void device_take_host(struct device *device)
{
	device->reach = REACH_NONE;
	device->present = true;
	snprintf(device->ifname, sizeof(device->ifname), "lo");
	guid_from_host(device);
	refresh_interface(device);
}

bool device_is_alone(const struct device *device)
{
	return !device->bound && device->reach == REACH_NONE;
}

/* ------------------------------------------------------------------ port and GIDs */

bool device_is_used(const struct device *device)
{
	const struct slots *slots = &device->server->slots;

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->process[slot] && process_uses(slots->process[slot], device))
			return true;
	return false;
}

/* Sends an event to every process that has a context on the device. */
static void device_send_event(const struct device *device, uint32_t event)
{
	const struct slots *slots = &device->server->slots;

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->process[slot] && process_uses(slots->process[slot], device))
			events_device(&slots->process[slot]->events, event, device->index,
				      DEVICE_PORT);
}

static void device_remove(struct device *device)
{
	const struct slots *slots = &device->server->slots;

	log_info("no interface of %s is there any more: its contexts have lost it", device->name);
	device_send_event(device, EVENT_DEVICE_FATAL);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->process[slot])
			process_lose_device(slots->process[slot], device);
}

static bool is_bound_to(const struct config_device *bound, const char *ifname)
{
	for (uint32_t i = 0; i < bound->count; i++)
		if (!strcmp(bound->ifname[i], ifname))
			return true;
	return false;
}

bool device_has_interface(const struct device *device, const struct network *network,
			  const struct host_address *address)
{
	if (device->bound)
		return is_bound_to(device->bound, address->ifname);
	const struct interface *base = network_base(network, address->ifindex);

	return base && !device_is_alone(device) && !strcmp(base->ifname, device->ifname);
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
 * That of the base, whose MTU is also limited by those above it that have addresses. But a host of
 * which no card has been up yet (a cable isn't plugged in) still serves itself.
 */
static struct host_port device_base_port(const struct device *device,
					 const struct host_address *own, unsigned int count)
{
	const struct host_port always = {.up = true, .mtu = MTU_BYTES_MAX + HEADERS_BYTES};
	bool first = device == &device->server->devices.device[0];

	if (device_is_alone(device) || (first && !device->server->devices.seen_up))
		return always;
	struct host_port port = host_port(device->ifname);
	uint32_t last = device->ifindex;

	for (unsigned int i = 0; i < count; i++) {
		if (own[i].ifindex == last)
			continue;
		last = own[i].ifindex;
		struct host_port above = host_port(own[i].ifname);

		if (above.mtu && above.mtu < port.mtu)
			port.mtu = above.mtu;
	}
	return port;
}

static void refresh_port(struct device *device, const struct host_address *own, unsigned int count)
{
	struct host_port port =
		device->bound ? device_bound_port(device) : device_base_port(device, own, count);
	bool changed = port.up != device->port.up;

	if (!port.mtu)
		port.mtu = device->port.mtu;
	device->port = port;
	if (!changed)
		return;
	log_info("the port of %s is %s", device->name, port.up ? "up" : "down");
	device_send_event(device, port.up ? EVENT_PORT_ACTIVE : EVENT_PORT_ERR);
}

static bool is_present(const struct device *device, const struct network *network)
{
	if (device_is_alone(device))
		return true;
	if (!device->bound)
		return network_named(network, device->ifname);
	for (uint32_t i = 0; i < device->bound->count; i++)
		if (if_nametoindex(device->bound->ifname[i]))
			return true;
	return false;
}

void device_notice(struct device *device, const struct network *network)
{
	bool was_present = device->present;

	device->present = is_present(device, network);
	if (was_present && !device->present)
		device_remove(device);
}

static const struct host_address *address_find(const struct host_address *list, unsigned int count,
					       const uint8_t gid[16])
{
	for (unsigned int i = 0; i < count; i++)
		if (!memcmp(list[i].gid, gid, sizeof(list[i].gid)))
			return &list[i];
	return NULL;
}

/*
 * The address at index 0. In Linux that is always the link-local one which is made of the card's
 * address; here packets are sent by the host's own sockets, so it must be an address that the
 * interface has. So another one stands there where IPv6 is switched off, or makes its link-local
 * addresses otherwise; and until the interface has a carrier, when the kernel makes it. NULL: there
 * is no address at all.
 */
static const struct host_address *choose_first(const struct device *device, const uint8_t usual[16],
					       const struct host_address *own, unsigned int count)
{
	const struct host_address *now = gids_get(&device->gids, 0);
	const struct host_address *first = address_find(own, count, usual);

	if (!first && now)
		first = address_find(own, count, now->gid);
	for (unsigned int i = 0; i < count && !first; i++)
		if (!own[i].tentative &&
		    IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)own[i].gid) &&
		    own[i].ifindex == device->ifindex)
			first = &own[i];
	for (unsigned int i = 0; i < count && !first; i++)
		if (!own[i].tentative)
			first = &own[i];
	return first;
}

static bool refresh_gids(struct device *device, struct host_address *own, unsigned int count)
{
	struct host_address usual = {.gid = {0xfe, 0x80}, .ifindex = device->ifindex};
	unsigned int usable = 0;

	memcpy(usual.gid + 8, device->guid, sizeof(device->guid));
	memcpy(usual.mac, device->mac, sizeof(usual.mac));
	memcpy(usual.ifname, device->ifname, sizeof(usual.ifname));
	const struct host_address *first = choose_first(device, usual.gid, own, count);
	const struct host_address at_first = first ? *first : usual;

	for (unsigned int i = 0; i < count; i++)
		if (!own[i].tentative && memcmp(own[i].gid, usual.gid, sizeof(usual.gid)) != 0)
			own[usable++] = own[i];
	return gids_update(&device->gids, &at_first, own, usable);
}

/* Writes the addresses that are the device's, or those behind its table, to `out`. Returns their
 * number. */
static unsigned int addresses_of(const struct device *device, const struct network *network,
				 bool hidden, struct host_address *out)
{
	const struct devices *devices = &device->server->devices;
	bool rest = hidden || device_is_alone(device);
	unsigned int n = 0;

	/* The loopback interface's are the last in the list: first for a device that has no other
	 * purpose. */
	for (unsigned int pass = 0; pass < 2; pass++)
		for (unsigned int i = 0; i < network->address_count; i++) {
			const struct host_address *a = &network->addresses[i];
			const struct interface *at = network_find(network, a->ifindex);
			bool loopback = at && at->flags & IFF_LOOPBACK;

			if (loopback == (pass == 0) &&
			    (rest ? !devices_own(devices, network, a)
				  : device_has_interface(device, network, a)))
				out[n++] = *a;
		}
	return n;
}

void device_refresh(struct device *device, const struct network *network)
{
	struct host_address *own = calloc((size_t)network->address_count + 1, sizeof(*own));
	bool changed = false;
	unsigned int n;

	refresh_interface(device);
	if (!device_is_used(device))
		gids_forget(&device->gids);
	mcast_addresses_changed(device->server);
	if (!own)
		return;
	n = addresses_of(device, network, false, own);
	refresh_port(device, own, n);
	mcast_datagrams(device->server, device->index, 128u << device_mtu(device));
	changed = refresh_gids(device, own, n);
	n = devices_have_rest(device) ? addresses_of(device, network, true, own) : 0;
	changed |= gids_update_hidden(&device->gids, own, n);
	if (changed)
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

	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = &devices->device[i];

		if (!devices_list_has(devices, device))
			continue;
		struct proto_device *to = &resp->device[resp->count++];

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

	/* The library doesn't let programs see what is behind the table. */
	if (body->port != DEVICE_PORT || body->index >= LIMIT_GID_INDICES)
		return -EINVAL;
	const struct host_address *entry = gids_get(&request->conn->device->gids, body->index);

	if (!entry)
		return -ENODATA;
	memcpy(resp->gid, entry->gid, sizeof(resp->gid));
	resp->type = IB_UVERBS_GID_TYPE_ROCE_V2;
	resp->ifindex = entry->ifindex;
	return 0;
}
