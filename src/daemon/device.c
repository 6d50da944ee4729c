/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device verbena0: its identity, its attributes, and its GID table, which follows the addresses
 * of the host's interfaces (rtnetlink), as kernel Soft-RoCE's does. A GID keeps its place; one that
 * goes leaves a hole. Loopback counts, so a machine without a network has GIDs too.
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/daemon.h"

#define EVENT_GID_CHANGE 18 /* IBV_EVENT_GID_CHANGE */

static struct mnl_socket *netlink;
static bool started; /* the first dump is through: changes are news */

/* ------------------------------------------------------------------ the GID table */

static void tell_processes(uint32_t event)
{
	const struct proto_event e = {.type = PROTO_EVENT_DEVICE, .value = event, .port = 1};

	list_for_each(node, &server.processes)
		process_send(container_of(node, struct process, node), &e, NULL, 0);
}

static struct gid_entry *gid_find(struct device *d, const uint8_t *gid, uint32_t ifindex)
{
	for (unsigned int i = 0; i < LIMIT_GIDS; i++)
		if (d->gids[i].used && d->gids[i].ifindex == ifindex &&
		    !memcmp(d->gids[i].gid, gid, 16))
			return &d->gids[i];
	return NULL;
}

static void gid_add(struct device *d, const uint8_t *gid, uint32_t ifindex)
{
	if (gid_find(d, gid, ifindex))
		return;
	for (unsigned int i = 0; i < LIMIT_GIDS; i++) {
		if (d->gids[i].used)
			continue;
		memcpy(d->gids[i].gid, gid, 16);
		d->gids[i].ifindex = ifindex;
		d->gids[i].used = true;
		if (started)
			tell_processes(EVENT_GID_CHANGE);
		return;
	}
	log_warn("the host has more than %u addresses; some have no GID", LIMIT_GIDS);
}

static void gid_remove(struct device *d, const uint8_t *gid, uint32_t ifindex)
{
	struct gid_entry *e = gid_find(d, gid, ifindex);

	if (!e)
		return;
	e->used = false;
	tell_processes(EVENT_GID_CHANGE);
}

/* ------------------------------------------------------------------ rtnetlink */

static int on_address(const struct nlmsghdr *message, void *arg)
{
	struct device *d = arg;
	const struct ifaddrmsg *a = mnl_nlmsg_get_payload(message);
	const struct nlattr *attr, *found = NULL;
	uint8_t gid[16] = {0};

	if (message->nlmsg_type != RTM_NEWADDR && message->nlmsg_type != RTM_DELADDR)
		return MNL_CB_OK;
	mnl_attr_for_each(attr, message, sizeof(*a))
	{
		int type = mnl_attr_get_type(attr);

		if (type == IFA_LOCAL || (type == IFA_ADDRESS && !found))
			found = attr;
	}
	if (!found)
		return MNL_CB_OK;
	if (a->ifa_family == AF_INET6 && mnl_attr_get_payload_len(found) == 16) {
		memcpy(gid, mnl_attr_get_payload(found), 16);
	} else if (a->ifa_family == AF_INET && mnl_attr_get_payload_len(found) == 4) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, mnl_attr_get_payload(found), 4);
	} else {
		return MNL_CB_OK;
	}
	if (message->nlmsg_type == RTM_NEWADDR)
		gid_add(d, gid, a->ifa_index);
	else
		gid_remove(d, gid, a->ifa_index);
	return MNL_CB_OK;
}

/* The first hardware address names the device: an EUI-64 of it. */
static int on_interface(const struct nlmsghdr *message, void *arg)
{
	struct device *d = arg;
	const struct ifinfomsg *i = mnl_nlmsg_get_payload(message);
	const struct nlattr *attr;

	if (message->nlmsg_type != RTM_NEWLINK || i->ifi_type != ARPHRD_ETHER || d->guid)
		return MNL_CB_OK;
	mnl_attr_for_each(attr, message, sizeof(*i))
	{
		if (mnl_attr_get_type(attr) != IFLA_ADDRESS || mnl_attr_get_payload_len(attr) != 6)
			continue;
		const uint8_t *m = mnl_attr_get_payload(attr);
		uint8_t g[8] = {m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};

		memcpy(&d->guid, g, sizeof(g));
	}
	return MNL_CB_OK;
}

static int dump(struct device *d, uint16_t type, uint8_t family, mnl_cb_t callback)
{
	char buf[MNL_SOCKET_BUFFER_SIZE];
	struct nlmsghdr *message = mnl_nlmsg_put_header(buf);
	static unsigned int sequence = 1;
	ssize_t n;
	int state = MNL_CB_OK;

	message->nlmsg_type = type;
	message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	message->nlmsg_seq = ++sequence;
	struct rtgenmsg *family_message =
		mnl_nlmsg_put_extra_header(message, sizeof(struct ifinfomsg));

	family_message->rtgen_family = family;
	if (mnl_socket_sendto(netlink, message, message->nlmsg_len) < 0)
		return -errno;
	while (state > MNL_CB_STOP) {
		n = mnl_socket_recvfrom(netlink, buf, sizeof(buf));
		if (n <= 0)
			return -errno;
		state = mnl_cb_run(buf, n, sequence, mnl_socket_get_portid(netlink), callback, d);
	}
	return state < 0 ? -errno : 0;
}

static void on_netlink(struct source *source, uint32_t events)
{
	struct device *d = container_of(source, struct device, netlink);
	char buf[MNL_SOCKET_BUFFER_SIZE];
	ssize_t n = recv(source->fd, buf, sizeof(buf), MSG_DONTWAIT);

	(void)events;
	if (n > 0)
		mnl_cb_run(buf, n, 0, 0, on_address, d);
}

/* Without an Ethernet address: from the boot's random id, marked as locally administered. */
static void guid_from_boot(struct device *d)
{
	char id[64] = {0};
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	uint64_t hash = 14695981039346656037ull; /* FNV-1a */

	if (f) {
		if (!fgets(id, sizeof(id), f))
			id[0] = 0;
		fclose(f);
	}
	for (const char *c = id; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 1099511628211ull;
	memcpy(&d->guid, &hash, sizeof(hash));
	((uint8_t *)&d->guid)[0] = 0x02;
}

int device_init(struct device *d)
{
	static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};

	snprintf(d->name, sizeof(d->name), "verbena0");
	snprintf(d->node, sizeof(d->node), "uverbs0");
	netlink = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	if (netlink && mnl_socket_bind(netlink, RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR,
				       MNL_SOCKET_AUTOPID) == 0) {
		dump(d, RTM_GETLINK, AF_UNSPEC, on_interface);
		dump(d, RTM_GETADDR, AF_INET6, on_address);
		dump(d, RTM_GETADDR, AF_INET, on_address);
		d->netlink = (struct source){.ready = on_netlink, .fd = mnl_socket_get_fd(netlink)};
		loop_add(&d->netlink, EPOLLIN);
	} else {
		log_warn("no rtnetlink (%m): the device knows the loopback address only");
	}
	if (!d->gids[0].used) /* lo is down in a fresh network namespace */
		gid_add(d, loopback, 1);
	if (!d->guid)
		guid_from_boot(d);
	started = true;
	return 0;
}

/* ------------------------------------------------------------------ attributes */

enum { /* enum ibv_device_cap_flags */
       CAP_CURR_QP_STATE_MOD = 1 << 7,
       CAP_PORT_ACTIVE_EVENT = 1 << 10,
       CAP_SYS_IMAGE_GUID = 1 << 11,
       CAP_RC_RNR_NAK_GEN = 1 << 12,
       CAP_SRQ_RESIZE = 1 << 13,
};

void device_query(const struct device *d, struct ib_uverbs_query_device_resp *r)
{
	r->fw_ver = 0ull << 32 | 1 << 16 | 0; /* 0.1.0 */
	r->node_guid = r->sys_image_guid = d->guid;
	r->max_mr_size = LIMIT_MR_BYTES;
	r->page_size_cap = 0xfffff000;
	r->vendor_id = DEVICE_VENDOR_ID;
	r->vendor_part_id = DEVICE_PART_ID;
	r->hw_ver = DEVICE_HW_VERSION;
	r->max_qp = LIMIT_QP;
	r->max_qp_wr = LIMIT_QP_WR;
	r->device_cap_flags = CAP_CURR_QP_STATE_MOD | CAP_PORT_ACTIVE_EVENT | CAP_SYS_IMAGE_GUID |
			      CAP_RC_RNR_NAK_GEN | CAP_SRQ_RESIZE;
	r->max_sge = r->max_sge_rd = LIMIT_SGE;
	r->max_cq = LIMIT_CQ;
	r->max_cqe = LIMIT_CQE;
	r->max_mr = LIMIT_MRS_PER_SLOT - 1;
	r->max_pd = LIMIT_PD;
	r->max_qp_rd_atom = r->max_qp_init_rd_atom = LIMIT_RD_ATOM;
	r->max_res_rd_atom = LIMIT_RD_ATOM * LIMIT_QPS_PER_SLOT;
	r->atomic_cap = 1; /* IBV_ATOMIC_HCA */
	r->max_ah = LIMIT_AH;
	r->max_srq = LIMIT_SRQ;
	r->max_srq_wr = LIMIT_SRQ_WR;
	r->max_srq_sge = LIMIT_SGE;
	r->max_pkeys = LIMIT_PKEYS;
	r->local_ca_ack_delay = 15;
	r->phys_port_cnt = 1;
}

void device_query_port(const struct device *d, struct ib_uverbs_query_port_resp *r)
{
	(void)d;
	r->port_cap_flags = 1 << 16 | 1 << 26; /* CM supported, GIDs are IP addresses */
	r->max_msg_sz = LIMIT_MSG_BYTES;
	r->gid_tbl_len = LIMIT_GIDS;
	r->pkey_tbl_len = LIMIT_PKEYS;
	r->state = 4;			/* active */
	r->max_mtu = r->active_mtu = 5; /* 4096 */
	r->max_vl_num = 1;
	r->active_width = 2;  /* 4x */
	r->active_speed = 32; /* EDR: the lanes together about what memory gives */
	r->phys_state = 5;    /* link up */
	r->link_layer = 2;    /* Ethernet */
	r->flags = 1;	      /* GRH required */
}
