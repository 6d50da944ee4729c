/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joining and leaving multicast groups. See rdmacm.h. A join has a number of its own, which its
 * events carry. When the group is joined, the id's QP is attached to it, unless the program only
 * sends.
 *
 * Owns each struct join from rdma_join_multicast() until it is left or its id ends. The list of an
 * id's joins has a lock, because other threads read it while they handle events.
 */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/mutex.h"
#include "base/refused.h"

struct mutex joins_lock = MUTEX_INITIALIZER(RANK_RDMACM_JOINS);

FORK_KEEP(joins_lock);

int join_attach(struct join *join, const struct ibv_ah_attr *group)
{
	if (join->attached || join->flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
		return 0;
	struct ibv_qp *qp = id_hold_qp(join->id);

	if (!qp)
		return 0;
	join->gid = group->grh.dgid;
	join->lid = group->dlid;
	int err = -ibv_attach_mcast(qp, &join->gid, join->lid);

	join->attached = !err;
	id_release_qp(join->id);
	return err;
}

/* The join after `last` in the id's list, or the first; NULL: there is none. It stays, because the
 * program orders the calls on an id. */
static struct join *list_next(struct id *id, const struct join *last)
{
	mutex_take(&joins_lock);
	struct list *node = last ? last->node.next : id->joins.next;

	mutex_give(&joins_lock);
	return node == &id->joins ? NULL : container_of(node, struct join, node);
}

void joins_lose_qp(struct id *id)
{
	for (struct join *join = list_next(id, NULL); join; join = list_next(id, join)) {
		if (!join->attached)
			continue;
		ibv_detach_mcast(id->pub.qp, &join->gid, join->lid);
		join->attached = false;
		join->lost_qp = true;
	}
}

int joins_take_qp(struct id *id, struct ibv_qp *qp)
{
	for (struct join *join = list_next(id, NULL); join; join = list_next(id, join)) {
		if (!join->lost_qp)
			continue;
		int err = -ibv_attach_mcast(qp, &join->gid, join->lid);

		if (err)
			return err;
		join->attached = true;
		join->lost_qp = false;
	}
	return 0;
}

void joins_init(struct id *id)
{
	mutex_take(&joins_lock);
	list_init(&id->joins);
	mutex_give(&joins_lock);
}

/* A child may have been forked in the middle of a change, so each begins by mending the list. */
static void list_add(struct join *join)
{
	mutex_take(&joins_lock);
	list_mend(&join->id->joins);
	list_add_tail_whole(&join->id->joins, &join->node);
	mutex_give(&joins_lock);
}

static void list_remove(struct join *join)
{
	mutex_take(&joins_lock);
	list_mend(&join->id->joins);
	list_del_whole(&join->node);
	mutex_give(&joins_lock);
}

static struct join *list_take(struct id *id, const struct sockaddr *addr)
{
	struct join *found = NULL;

	mutex_take(&joins_lock);
	list_mend(&id->joins);
	list_for_each(node, &id->joins) {
		struct join *join = container_of(node, struct join, node);

		if (!found && (!addr || !memcmp(&join->addr, addr, addr_size(addr))))
			found = join;
	}
	if (found)
		list_del_whole(&found->node);
	mutex_give(&joins_lock);
	return found;
}

void join_free_all(struct id *id)
{
	struct join *join;

	while ((join = list_take(id, NULL))) {
		registry_remove(&join->object);
		free(join);
	}
}

static int join_at_daemon(struct join *join)
{
	const struct sockaddr *addr = (const struct sockaddr *)&join->addr;
	struct rdma_ucm_join_mcast body = {
		.uid = registry_uid(&join->object),
		.id = join->id->handle,
		.addr_size = (uint16_t)addr_size(addr),
		.join_flags = (uint16_t)join->flags,
	};
	struct rdma_ucm_create_id_resp resp;

	memcpy(&body.addr, &join->addr, body.addr_size);
	int err = cm_call(join->id->generation, RDMA_USER_CM_CMD_JOIN_MCAST, &body, sizeof(body),
			  &resp, sizeof(resp), NULL);

	if (!err)
		join->handle = resp.id;
	return err;
}

static int leave_at_daemon(struct join *join)
{
	struct rdma_ucm_destroy_id body = {.id = join->handle};
	struct rdma_ucm_destroy_id_resp resp;

	return cm_call(join->id->generation, RDMA_USER_CM_CMD_LEAVE_MCAST, &body, sizeof(body),
		       &resp, sizeof(resp), NULL);
}

static int do_join(struct id *id, const struct sockaddr *addr, uint32_t flags, void *context)
{
	if (!addr_size(addr))
		return refused(addr ? -EAFNOSUPPORT : -EINVAL,
			       "rdma_join_multicast: the address is NULL, or its family is none of "
			       "AF_INET, AF_INET6 and AF_IB");
	struct join *join = calloc(1, sizeof(*join));

	if (!join)
		return -ENOMEM;
	join->object.kind = OBJECT_JOIN;
	join->id = id;
	join->context = context;
	join->flags = flags;
	memcpy(&join->addr, addr, addr_size(addr));
	int err = registry_add(&join->object);

	if (err)
		goto out_free;
	list_add(join);
	id_forget_event(id);
	err = join_at_daemon(join);
	if (err)
		goto out_list;
	return id_complete(id);

out_list:
	list_remove(join);
	registry_remove(&join->object);
out_free:
	free(join);
	return err;
}

EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return cm_result(do_join(id_of(id), addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context));
}

EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id,
				  struct rdma_cm_join_mc_attr_ex *mc_join_attr, void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (!mc_join_attr || mc_join_attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_result(mc_join_attr ? -ENOTSUP : -EINVAL);
	if ((mc_join_attr->comp_mask & needed) != needed)
		return cm_result(-EINVAL);
	if (mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_result(-ENOTSUP);
	return cm_result(do_join(id_of(id), mc_join_attr->addr, mc_join_attr->join_flags, context));
}

EXPORT int rdma_leave_multicast(struct rdma_cm_id *pub, struct sockaddr *addr)
{
	struct id *id = id_of(pub);

	if (!addr_size(addr))
		return cm_result(addr ? -EAFNOSUPPORT : -EINVAL);
	struct join *join = list_take(id, addr);

	if (!join)
		return cm_result(-EADDRNOTAVAIL);
	id_forget_event(id);
	int err = leave_at_daemon(join);

	/* Afterwards no thread handles the join's event, which would attach the QP. */
	registry_remove(&join->object);
	if (join->attached && pub->qp)
		ibv_detach_mcast(pub->qp, &join->gid, join->lid);
	free(join);
	return cm_result(err);
}
