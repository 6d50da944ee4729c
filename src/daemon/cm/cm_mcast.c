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
#include "daemon/core/server.h"
#include "wire/flow.h"
#include "wire/packet.h"

static void cm_join_report(struct cm_join *join, uint64_t uid)
{
	struct rdma_ucm_event_resp event = {
		.event = REPORT_MULTICAST_JOIN, .uid = uid, .id = join->object.handle};
	struct rdma_ucm_ud_param *ud = &event.param.ud;
	struct ib_uverbs_ah_attr attr;

	cm_attr_fill_ah(join->id, &attr);
	memcpy(attr.grh.dgid, join->gid, sizeof(attr.grh.dgid));
	ud->qp_num = WIRE_MULTICAST_QPN;
	ud->qkey = CM_UDP_QKEY;
	memcpy(&ud->ah_attr, &attr, sizeof(attr));
	cm_id_post(join->id, &event);
}

static void cm_join_free(struct cm_join *join)
{
	mcast_leave(&join->member);
	list_del(&join->node);
	cm_object_leave(&join->object);
	free(join);
}

void cm_mcast_leave_all(struct cm_id *id)
{
	while (!list_empty(&id->joins))
		cm_join_free(container_of(id->joins.next, struct cm_join, node));
}

/* An identifier may join that has a device, and datagrams. Returns 0 or -EINVAL. */
static int cm_join_check(const struct cm_id *id, const struct rdma_ucm_join_mcast *body)
{
	bool ready = id && id->device && id->type == CM_ID_UD &&
		     (id->state == ID_BOUND || id->state == ID_ADDR_RESOLVED);

	return ready && body->join_flags < RDMA_MC_JOIN_FLAG_RESERVED ? 0 : -EINVAL;
}

static int take_group(const struct rdma_ucm_join_mcast *body, uint8_t gid[16])
{
	union cm_address address;

	if (body->addr_size > sizeof(body->addr) ||
	    !cm_address_take(&body->addr, body->addr_size, &address))
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
	memcpy(join->gid, gid, sizeof(join->gid));
	list_add_tail(&id->joins, &join->node);
	if (full)
		err = mcast_join(cm_server(id->object.client), &join->member, gid,
				 id->path.ifindex);
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
		err = take_group(body, gid);
	if (!err)
		err = join_make(id, body->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER, gid, &join);
	if (err)
		return err;
	resp->id = join->object.handle;
	cm_join_report(join, body->uid);
	return 0;
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
