/* SPDX-License-Identifier: BSD-2-Clause */
/* The device and the queries about it. See device.h. */
#include "daemon/device.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/commands.h"
#include "daemon/conn.h"
#include "daemon/dispatch.h"
#include "daemon/process.h"
#include "daemon/server.h"
#include "proto/limits.h"

/* Numbers of the specification and of <infiniband/verbs.h>. */
enum {
	MTU_4096 = 5,
	STATE_ACTIVE = 4,
	PHYS_LINK_UP = 5,
	WIDTH_4X = 2,
	SPEED_EDR = 32,
	LAYER_ETHERNET = 2,
	ATOMIC_HCA = 1,
	EVENT_GID_CHANGE = 18,
	ACK_DELAY = 15, /* 4.096 us * 2^15: 134 ms, a process may have to wait for a processor */
};

#define PAGE_SIZES 0xfffff000ull
#define FIRMWARE (1ull << 16) /* 0.1.0: 16 bits each */

/* Only what is so. */
#define CAPABILITIES                                                                \
	(IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE | IB_UVERBS_DEVICE_CURR_QP_STATE_MOD | \
	 IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT | IB_UVERBS_DEVICE_SYS_IMAGE_GUID |     \
	 IB_UVERBS_DEVICE_RC_RNR_NAK_GEN | IB_UVERBS_DEVICE_SRQ_RESIZE)

/* Many addresses come at once when an interface comes up. */
enum { REFRESH_DELAY_MS = 20 };

/* ------------------------------------------------------------------ who it is */

/* A modified EUI-64: of the card's address, or one that isn't anybody's. */
static void make_guid(struct device *device)
{
	struct host_card card;
	uint8_t *g = device->guid;

	if (host_card(&card) == 0) {
		const uint8_t guid[8] = {card.mac[0] ^ 2, card.mac[1], card.mac[2], 0xff, 0xfe,
					 card.mac[3],	  card.mac[4], card.mac[5]};

		memcpy(g, guid, sizeof(guid));
		device->first.ifindex = card.ifindex;
		memcpy(device->first.ifname, card.ifname, sizeof(card.ifname));
		return;
	}
	uint64_t number = host_number();

	memcpy(g, &number, sizeof(number));
	g[0] &= 0xfc; /* no vendor's, not a group's */
	g[7] |= 1;    /* never all zero */
	device->first.ifindex = if_nametoindex("lo");
	snprintf(device->first.ifname, sizeof(device->first.ifname), "lo");
}

static void tell_all(struct device *device)
{
	const struct slots *slots = &device->server->slots;

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->process[slot])
			events_device(&slots->process[slot]->events, EVENT_GID_CHANGE, DEVICE_PORT);
}

static void read_addresses(struct device *device)
{
	struct host_address *list = NULL;
	int count = host_addresses(&list);

	if (count < 0) {
		log_warn("the host's addresses can't be read: %s", strerror(-count));
		count = 0;
	}
	if (gids_update(&device->gids, &device->first, list, (unsigned int)count))
		tell_all(device);
	free(list);
}

static void on_refresh(struct timer *timer)
{
	read_addresses(container_of(timer, struct device, refresh));
}

static void on_network(struct watch *watch, uint32_t events)
{
	struct device *device = container_of(watch, struct device, network);

	(void)events;
	host_watch_drain(watch->fd);
	timer_set(&device->server->loop, &device->refresh, REFRESH_DELAY_MS);
}

void device_init(struct device *device, struct server *server)
{
	*device = (struct device){.server = server, .network = {.fd = -1, .ready = on_network}};
	timer_init(&device->refresh, on_refresh);
	make_guid(device);
	memcpy(device->first.gid, (const uint8_t[]){0xfe, 0x80}, 2);
	memcpy(device->first.gid + 8, device->guid, sizeof(device->guid));
	/* Watched before they are read, so that no change is missed. */
	int fd = host_watch_open();
	int err = fd < 0 ? fd : loop_add(&server->loop, &device->network, fd, EPOLLIN);

	if (err)
		log_warn("changes of the host's addresses can't be watched (%s): the GIDs stay as "
			 "they are now",
			 strerror(-err));
	if (err && fd >= 0)
		close(fd);
	read_addresses(device);
}

void device_fini(struct device *device)
{
	int fd = device->network.fd;

	timer_cancel(&device->refresh);
	loop_remove(&device->server->loop, &device->network);
	if (fd >= 0)
		close(fd);
}

/* ------------------------------------------------------------------ queries */

static uint64_t guid_word(const struct device *device)
{
	uint64_t word;

	memcpy(&word, device->guid, sizeof(word));
	return word;
}

int command_list_devices(struct request *request, void *response)
{
	struct proto_list_devices_resp *resp = response;

	resp->count = 1;
	resp->device[0] = (struct proto_device){
		.name = DEVICE_NAME,
		.node = DEVICE_NODE,
		.node_guid = guid_word(&request->conn->server->device),
		.index = 0,
		.ports = 1,
	};
	return 0;
}

static void fill_device(const struct device *device, struct ib_uverbs_query_device_resp *resp)
{
	*resp = (struct ib_uverbs_query_device_resp){
		.fw_ver = FIRMWARE,
		.node_guid = guid_word(device),
		.sys_image_guid = guid_word(device),
		.max_mr_size = LIMIT_MR_BYTES,
		.page_size_cap = PAGE_SIZES,
		.vendor_id = DEVICE_VENDOR_ID,
		.vendor_part_id = DEVICE_PART_ID,
		.hw_ver = DEVICE_HW_VERSION,
		.max_qp = LIMIT_QP,
		.max_qp_wr = LIMIT_QP_WR,
		.device_cap_flags = CAPABILITIES,
		.max_sge = LIMIT_SGE,
		.max_sge_rd = LIMIT_SGE,
		.max_cq = LIMIT_CQ,
		.max_cqe = LIMIT_CQE,
		.max_mr = LIMIT_MRS_PER_SLOT - 1,
		.max_pd = LIMIT_PD,
		.max_qp_rd_atom = LIMIT_RD_ATOM,
		.max_res_rd_atom = LIMIT_RD_ATOM * LIMIT_QP,
		.max_qp_init_rd_atom = LIMIT_RD_ATOM,
		.atomic_cap = ATOMIC_HCA,
		.max_ah = LIMIT_AH,
		.max_srq = LIMIT_SRQ,
		.max_srq_wr = LIMIT_SRQ_WR,
		.max_srq_sge = LIMIT_SGE,
		.max_pkeys = LIMIT_PKEYS,
		.local_ca_ack_delay = ACK_DELAY,
		.phys_port_cnt = 1,
	};
}

int command_query_device(struct request *request, void *response)
{
	fill_device(&request->conn->server->device, response);
	return 0;
}

int command_ex_query_device(struct request *request, void *response)
{
	const struct ib_uverbs_ex_query_device *body = request->body;
	struct ib_uverbs_ex_query_device_resp *resp = response;

	if (body->comp_mask || body->reserved)
		return -EINVAL;
	fill_device(&request->conn->server->device, &resp->base);
	resp->response_length = (uint32_t)request->response_size;
	resp->timestamp_mask = UINT64_MAX; /* completions carry CLOCK_MONOTONIC */
	resp->hca_core_clock = 1000000;	   /* kHz */
	resp->device_cap_flags_ex = CAPABILITIES;
	return 0;
}

int command_query_port(struct request *request, void *response)
{
	const struct ib_uverbs_query_port *body = request->body;
	struct ib_uverbs_query_port_resp *resp = response;

	if (body->port_num != DEVICE_PORT)
		return -EINVAL;
	*resp = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS,
		.max_msg_sz = LIMIT_MSG_BYTES,
		.gid_tbl_len = LIMIT_GIDS,
		.pkey_tbl_len = LIMIT_PKEYS,
		.state = STATE_ACTIVE,
		.max_mtu = MTU_4096,
		.active_mtu = MTU_4096,
		.max_vl_num = 1,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_EDR,
		.phys_state = PHYS_LINK_UP,
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
	const struct host_address *entry =
		gids_get(&request->conn->server->device.gids, body->index);

	if (!entry)
		return -ENODATA;
	memcpy(resp->gid, entry->gid, sizeof(resp->gid));
	resp->type = IB_UVERBS_GID_TYPE_ROCE_V2;
	resp->ifindex = entry->ifindex;
	return 0;
}
