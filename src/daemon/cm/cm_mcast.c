/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * JOIN_MCAST, LEAVE_MCAST. A full member makes the identifier's interface listen for the group
 * (mcast.h); a send-only member needs only the group's address. The program's library attaches its
 * queue pair itself, when it gets the event that it has joined.
 *
 * Ethernet has no subnet manager that would have to be asked, so the event follows at once. As with
 * the kernel's RoCEv2 a group's GID is the IP address; unlike there, IPv6 works as well.
 *
 * Owns each struct cm_join, an object of its client with a handle of its own.
 */
#include "daemon/cm/cm_mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cm/cm_attr.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/core/conn.h"
#include "daemon/core/server.h"
#include "fabric/octets.h"
#include "wire/flow.h"
#include "wire/ip.h"
#include "wire/packet.h"

static void cm_join_report(struct cm_join *join, uint64_t uid)
{
	struct rdma_ucm_event_resp event = {
		.event = REPORT_MULTICAST_JOIN, .uid = uid, .id = join->object.handle};
	struct rdma_ucm_ud_param *ud = &event.param.ud;
	struct ib_uverbs_ah_attr attr;

	cm_attr_fill_ah(join->id, &attr);
	if (cm_id_node(join->id)) {
		attr.is_global = 1;
		attr.dlid = join->lid;
		attr.sl = join->sl;
	}
	memcpy(attr.grh.dgid, join->gid, sizeof(attr.grh.dgid));
	ud->qp_num = WIRE_MULTICAST_QPN;
	ud->qkey = CM_UDP_QKEY;
	memcpy(&ud->ah_attr, &attr, sizeof(attr));
	cm_id_post(join->id, &event);
}

/* ------------------------------------------------------------------ on a fabric */

/* Components of a member record. */
enum {
	MEMBER_MGID = 1 << 0,
	MEMBER_PORT = 1 << 1,
	MEMBER_QKEY = 1 << 2,
	MEMBER_CLASS = 1 << 6,
	MEMBER_PKEY = 1 << 7,
	MEMBER_SL = 1 << 12,
	MEMBER_FLOW = 1 << 13,
	MEMBER_STATE = 1 << 16,
};
enum { JOIN_FULL = 1, JOIN_SEND_ONLY = 4 };

/* The GID of the group that an IP address is: as Linux maps it for the RDMA CM (signature 0x4001)
 * or as IPoIB does (0x401b, 0x601b). */
static void group_gid(const struct cm_id *id, const uint8_t address[16], uint8_t gid[16])
{
	bool is_v4 = ip_is_v4(address);
	uint8_t signature = id->port_space == RDMA_PS_IPOIB || !is_v4 ? 0x1b : 0x01;

	if (!is_v4 && address[2] == 0xa0 && address[3] == 0x1b) {
		memcpy(gid, address, 16); /* chosen by the administration already */
		return;
	}
	memset(gid, 0, 16);
	gid[0] = 0xff;
	gid[1] = 0x12;
	gid[2] = is_v4 ? 0x40 : 0x60;
	gid[3] = signature;
	gid[4] = (uint8_t)(id->path.pkey >> 8);
	gid[5] = (uint8_t)id->path.pkey;
	if (is_v4)
		memcpy(gid + 12, address + 12, 4);
	else
		memcpy(gid + 6, address + 6, 10);
	if (is_v4)
		gid[12] &= 0x0f;
}

static void member_record(const struct cm_join *join, uint8_t record[64])
{
	memset(record, 0, 64);
	memcpy(record, join->gid, 16);
	memcpy(record + 16, join->id->path.local, 16);
	octets_put32(record + 32, CM_UDP_QKEY);
	octets_put16(record + 40, join->id->path.pkey);
	record[48] = (uint8_t)(2 << 4 | (join->is_full ? JOIN_FULL : JOIN_SEND_ONLY));
}

/* Whether another join of the node keeps the port in the group. */
static bool group_is_shared(const struct cm_join *join)
{
	const struct cm_node *node = cm_id_node(join->id);

	list_for_each(at, &node->joins) {
		const struct cm_join *other = container_of(at, struct cm_join, at_node);

		if (other != join && other->is_joined && other->is_full == join->is_full &&
		    !memcmp(other->gid, join->gid, sizeof(join->gid)))
			return true;
	}
	return false;
}

static void leave_on_fabric(struct cm_join *join)
{
	uint8_t record[64];

	cm_node_forget(&join->query);
	if (join->is_joined && !group_is_shared(join)) {
		member_record(join, record);
		cm_node_ask(cm_id_node(join->id), NULL, CM_SA_DELETE, CM_SA_MEMBER,
			    MEMBER_MGID | MEMBER_PORT | MEMBER_STATE, record, 0);
	}
	list_del(&join->at_node);
}

static void join_fails(struct cm_join *join, int status)
{
	struct rdma_ucm_event_resp event = {
		.event = REPORT_MULTICAST_ERROR,
		.status = (uint32_t)status,
		.uid = join->uid,
		.id = join->object.handle,
	};

	join->is_joined = false;
	cm_id_post(join->id, &event);
}

static void on_member_record(struct cm_query *query, int status, const uint8_t *record)
{
	struct cm_join *join = container_of(query, struct cm_join, query);

	if (status) {
		join_fails(join, status);
		return;
	}
	join->is_joined = true;
	join->lid = octets_get16(record + 36);
	join->sl = record[44] >> 4;
	cm_join_report(join, join->uid);
}

/* The program's queue pairs are attached by the LID that the group had. */
static void on_member_again(struct cm_query *query, int status, const uint8_t *record)
{
	struct cm_join *join = container_of(query, struct cm_join, query);

	/* Without an answer there is no manager, and the next one will have the ports register. */
	if (status == -EINVAL || (!status && octets_get16(record + 36) != join->lid))
		join_fails(join, -ENETRESET);
	else if (!status)
		join->sl = record[44] >> 4;
}

static int ask_to_join(struct cm_join *join)
{
	enum { TIMEOUT_MS = 3000 };
	uint8_t record[64];

	member_record(join, record);
	return cm_node_ask(cm_id_node(join->id), &join->query, CM_SA_SET, CM_SA_MEMBER,
			   MEMBER_MGID | MEMBER_PORT | MEMBER_QKEY | MEMBER_CLASS | MEMBER_PKEY |
				   MEMBER_SL | MEMBER_FLOW | MEMBER_STATE,
			   record, TIMEOUT_MS);
}

static int join_on_fabric(struct cm_join *join, uint64_t uid)
{
	join->uid = uid;
	join->query.answer = on_member_record;
	return ask_to_join(join);
}

void cm_mcast_rejoin(struct cm_node *node)
{
	list_for_each(at, &node->joins) {
		struct cm_join *join = container_of(at, struct cm_join, at_node);

		if (!join->is_joined)
			continue;
		cm_node_forget(&join->query);
		join->query.answer = on_member_again;
		ask_to_join(join);
	}
}

/* ------------------------------------------------------------------ */

static void cm_join_free(struct cm_join *join)
{
	if (cm_id_node(join->id))
		leave_on_fabric(join);
	mcast_leave(&join->member);
	list_del(&join->node);
	cm_object_leave(&join->object);
	free(join);
}

bool cm_mcast_leave_one(struct cm_id *id)
{
	if (list_empty(&id->joins))
		return false;
	cm_join_free(container_of(id->joins.next, struct cm_join, node));
	return true;
}

/* An identifier may join that has a device, and datagrams. Returns 0 or -EINVAL. */
static int cm_join_check(const struct cm_id *id, const struct rdma_ucm_join_mcast *body)
{
	bool ready = id && id->device && id->type == CM_ID_UD &&
		     (id->state == ID_BOUND || id->state == ID_ADDR_RESOLVED);

	return ready && body->join_flags < RDMA_MC_JOIN_FLAG_RESERVED ? 0 : -EINVAL;
}

static int take_group(const struct cm_id *id, const struct rdma_ucm_join_mcast *body,
		      uint8_t gid[16])
{
	union cm_address address;

	if (body->addr_size > sizeof(body->addr) ||
	    !cm_address_take(&body->addr, body->addr_size, &address) ||
	    (cm_address_is_ib(&address) && !cm_id_node(id)))
		return -EINVAL;
	cm_address_gid(&address, gid);
	return flow_is_multicast(gid) ? 0 : -EINVAL;
}

static int join_make(struct cm_id *id, bool full, const uint8_t gid[16], struct cm_join **out)
{
	struct cm_join *join = calloc(1, sizeof(*join));
	int err = join ? cm_object_enter(id->object.client, &join->object, CM_KIND_JOIN) : -ENOMEM;

	if (err) {
		free(join);
		return err;
	}
	join->id = id;
	join->is_full = full;
	list_init(&join->query.node);
	list_init(&join->at_node);
	memcpy(join->gid, gid, sizeof(join->gid));
	list_add_tail(&id->joins, &join->node);
	if (cm_id_node(id)) {
		group_gid(id, gid, join->gid);
		list_add_tail(&cm_id_node(id)->joins, &join->at_node);
	} else if (full)
		err = mcast_join(cm_server(id->object.client), id->object.client->conn->user,
				 &join->member, gid, id->path.ifindex);
	if (err)
		cm_join_free(join);
	else
		*out = join;
	return err;
}

int cm_command_join_mcast(struct cm_request *request, void *response)
{
	const struct rdma_ucm_join_mcast *body = request->body;
	struct rdma_ucm_create_id_resp *resp = response;
	struct cm_id *id = cm_id_find(request, body->id);
	struct cm_join *join;
	uint8_t gid[16];
	int err = cm_join_check(id, body);

	if (!err)
		err = take_group(id, body, gid);
	if (!err)
		err = join_make(id, body->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER, gid, &join);
	if (err)
		return err;
	resp->id = join->object.handle;
	if (!cm_id_node(id)) {
		cm_join_report(join, body->uid);
		return 0;
	}
	err = join_on_fabric(join, body->uid);
	if (err)
		cm_join_free(join);
	return err;
}

int cm_command_leave_mcast(struct cm_request *request, void *response)
{
	const struct rdma_ucm_destroy_id *body = request->body;
	struct rdma_ucm_destroy_id_resp *resp = response;
	struct cm_join *join = cm_object_find(request->client, CM_KIND_JOIN, body->id);

	if (!join)
		return -ENOENT;
	cm_channel_withdraw_join(join->id->channel, join);
	resp->events_reported = join->reported;
	cm_join_free(join);
	return 0;
}
