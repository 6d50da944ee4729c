/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups, their attachments, and the table. See mcast.h. Owns everything but the state of
 * mcast_net.c. */
#include "daemon/net/mcast.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/commands.h"
#include "daemon/core/config.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/mcast_net.h"
#include "daemon/objects/context.h"
#include "shm/groups.h"
#include "wire/flow.h"

#include <rdma/ib_user_ioctl_verbs.h>

/* ------------------------------------------------------------------ the table */

static int table_make(struct mcast *mcast)
{
	const int seals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	void *at = MAP_FAILED;

	mcast->fd = memfd_create("verbena-groups", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (mcast->fd < 0)
		return -errno;
	if (ftruncate(mcast->fd, (off_t)GROUPS_SIZE) == 0)
		at = mmap(NULL, GROUPS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, mcast->fd, 0);
	if (at == MAP_FAILED || fcntl(mcast->fd, F_ADD_SEALS, seals) < 0) {
		int err = -errno;

		if (at != MAP_FAILED)
			munmap(at, GROUPS_SIZE);
		close(mcast->fd);
		return err;
	}
	mcast->table = at;
	mcast->table->magic = GROUPS_MAGIC;
	mcast->table->version = GROUPS_VERSION;
	uint64_t random[2] = {0, (uintptr_t)at ^ (uint64_t)getpid()};

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		log_debug("no random seed for the table of groups");
	mcast->table->seed = random[0];
	atomic_store_explicit(&mcast->table->addresses, random[1] | 1, memory_order_relaxed);
	return 0;
}

int mcast_open(struct server *server)
{
	struct mcast *mcast = calloc(1, sizeof(*mcast));

	if (!mcast)
		return -ENOMEM;
	mcast->server = server;
	for (unsigned int i = 0; i < MCAST_BUCKETS; i++)
		list_init(&mcast->buckets[i]);
	int err = table_make(mcast);

	if (err) {
		free(mcast);
		return err;
	}
	server->mcast = mcast;
	mcast_settle(server);
	return 0;
}

void mcast_close(struct server *server)
{
	if (!server->mcast)
		return;
	munmap(server->mcast->table, GROUPS_SIZE);
	close(server->mcast->fd);
	free(server->mcast);
	server->mcast = NULL;
}

int mcast_table(const struct server *server)
{
	int fd = fcntl(server->mcast->fd, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

struct xrc_table *mcast_xrc_table(const struct server *server)
{
	return &server->mcast->table->xrc;
}

struct flow_rules *mcast_flows(const struct server *server)
{
	return server->mcast ? &server->mcast->table->flows : NULL;
}

void mcast_reach(const struct server *server, uint32_t slot, const struct user *user)
{
	struct flow_rules *flows = mcast_flows(server);

	if (flows)
		flows_set_user(flows, slot, user ? (uint64_t)user->uid + 1 : 0);
}

void mcast_datagrams(const struct server *server, uint32_t device, uint32_t bytes)
{
	_Static_assert((int)CONFIG_DEVICES <= (int)GROUPS_DEVICES, "each device has its place");
	if (server->mcast)
		atomic_store_explicit(&server->mcast->table->datagram_bytes[device], bytes,
				      memory_order_relaxed);
}

void mcast_addresses_changed(struct server *server)
{
	if (server->mcast)
		atomic_fetch_add_explicit(&server->mcast->table->addresses, 2,
					  memory_order_relaxed); /* odd, so never 0 */
}

struct own_list {
	uint32_t count;
	uint8_t gids[GROUPS_OWN][16];
};

static void own_list_add(struct own_list *own, const struct host_address *entry)
{
	if (!entry || own->count == GROUPS_OWN)
		return;
	for (uint32_t i = 0; i < own->count; i++)
		if (!memcmp(own->gids[i], entry->gid, sizeof(own->gids[i])))
			return;
	memcpy(own->gids[own->count++], entry->gid, sizeof(own->gids[0]));
}

void mcast_publish_addresses(struct server *server, const struct host_address *list,
			     unsigned int listed)
{
	static struct own_list own;

	if (!server->mcast)
		return;
	own.count = 0;
	for (uint32_t d = 0; d < server->devices.count; d++)
		for (uint32_t i = 0; i < LIMIT_GID_INDICES; i++)
			own_list_add(&own, gids_get(&server->devices.device[d].gids, i));
	for (unsigned int i = 0; i < listed; i++)
		own_list_add(&own, &list[i]);
	groups_set_own(server->mcast->table, (const uint8_t(*)[16])own.gids, own.count);
}

bool mcast_has_address(const struct server *server, const uint8_t gid[16])
{
	return groups_is_loopback(gid) ||
	       (server->mcast && groups_is_own(server->mcast->table, gid));
}

void mcast_source_port(struct server *server, uint32_t slot, uint16_t port)
{
	if (server->mcast)
		atomic_store_explicit(&server->mcast->table->source_port[slot], port,
				      memory_order_relaxed);
}

uint16_t mcast_source_port_of(const struct server *server, uint32_t slot)
{
	return server->mcast ? atomic_load_explicit(&server->mcast->table->source_port[slot],
						    memory_order_relaxed)
			     : 0;
}

void mcast_settle(struct server *server)
{
	const struct slots *slots = &server->slots;

	if (!server->mcast || server->mcast->settled)
		return;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (slots->absent[slot] ||
		    (slots->process[slot] && slots->process[slot]->returning))
			return;
	server->mcast->settled = true;
	/* [G1], pairs with [G2]: the slots of all that returned are in the table */
	atomic_store_explicit(&server->mcast->table->settled, 1, memory_order_release);
}

/* ------------------------------------------------------------------ groups */

static struct list *mcast_bucket(struct mcast *mcast, const uint8_t gid[16])
{
	uint32_t h = 0x811c9dc5; /* FNV-1a */

	for (int i = 0; i < 16; i++)
		h = (h ^ gid[i]) * 0x01000193;
	return &mcast->buckets[h % MCAST_BUCKETS];
}

static struct mcast_group *group_find(struct mcast *mcast, const uint8_t gid[16])
{
	list_for_each(node, mcast_bucket(mcast, gid)) {
		struct mcast_group *group = container_of(node, struct mcast_group, node);

		if (!memcmp(group->gid, gid, sizeof(group->gid)))
			return group;
	}
	return NULL;
}

/* The group, made if there is none; NULL: no memory. */
static struct mcast_group *group_get(struct mcast *mcast, const uint8_t gid[16])
{
	struct mcast_group *group = group_find(mcast, gid);

	if (group)
		return group;
	group = calloc(1, sizeof(*group));
	if (!group)
		return NULL;
	group->mcast = mcast;
	memcpy(group->gid, gid, sizeof(group->gid));
	list_init(&group->attachments);
	list_init(&group->joins);
	list_init(&group->listening);
	list_init(&group->users);
	list_add_tail(mcast_bucket(mcast, gid), &group->node);
	return group;
}

/* An attachment or join of the group has ended: interfaces may cease to listen, and the group may
 * end. */
static void group_put(struct mcast_group *group)
{
	if (!list_empty(&group->attachments) || !list_empty(&group->joins)) {
		mcast_net_update(group);
		return;
	}
	mcast_net_end(group);
	list_del(&group->node);
	free(group);
}

/* ------------------------------------------------------------------ the users' shares */

static struct group_user *group_user_find(const struct mcast_group *group, const struct user *user)
{
	list_for_each(node, &group->users) {
		struct group_user *of_user = container_of(node, struct group_user, node);

		if (of_user->user == user)
			return of_user;
	}
	return NULL;
}

/*
 * Adds a member of this user, if its share allows that. Each user in a group counts as one group
 * taken: the group could be that user's alone soon. NULL: not allowed, or no memory.
 */
static struct group_user *group_user_get(struct mcast_group *group, struct user *user)
{
	struct pools *pools = &group->mcast->server->pools;
	struct group_user *of_user = group_user_find(group, user);

	if (!of_user) {
		of_user =
			pool_allows(pools, user, POOL_GROUPS) ? calloc(1, sizeof(*of_user)) : NULL;
		if (!of_user)
			return NULL;
		of_user->user = user;
		list_add_tail(&group->users, &of_user->node);
		pool_take(pools, user, POOL_GROUPS);
	}
	of_user->members++;
	return of_user;
}

static void group_user_put(struct mcast_group *group, struct group_user *of_user)
{
	if (--of_user->members)
		return;
	pool_give(&group->mcast->server->pools, of_user->user, POOL_GROUPS);
	list_del(&of_user->node);
	free(of_user);
}

/* A lack of descriptors or memory isn't reported here: the next change tries again. */
void mcast_refresh(struct server *server)
{
	for (unsigned int i = 0; server->mcast && i < MCAST_BUCKETS; i++)
		list_for_each(node, &server->mcast->buckets[i])
			mcast_net_update(container_of(node, struct mcast_group, node));
}

/* ------------------------------------------------------------------ attaching */

static struct process *process_of(const struct qp *qp)
{
	return qp->object.context->process;
}

static struct attachment *attachment_find(const struct qp *qp, const uint8_t gid[16])
{
	list_for_each(node, &qp->groups) {
		struct attachment *a = container_of(node, struct attachment, by_qp);

		if (!memcmp(a->group->gid, gid, sizeof(a->group->gid)))
			return a;
	}
	return NULL;
}

static bool is_attached(const struct mcast_group *group, const struct process *process)
{
	list_for_each(node, &group->attachments)
		if (process_of(container_of(node, struct attachment, by_group)->qp) == process)
			return true;
	return false;
}

static int check_room(const struct qp *qp, const struct mcast_group *group, bool returning)
{
	const struct process *process = process_of(qp);
	const struct group_user *of_user = group_user_find(group, process->user);
	uint32_t own = of_user ? of_user->attached : 0;

	if (!share_allows(process->user, LIMIT_MCAST_QPS, group->attached - own, own) ||
	    !pool_allows(&process->server->pools, process->user, POOL_ATTACHMENTS))
		return -ENOMEM;
	if (process->user->objects >= process->server->config.user_objects && !returning) {
		complain(process->user,
			 "process %d (%s) may not attach another queue pair to a group: user %u "
			 "has %u objects, the most that user-objects in verbenad.conf allows",
			 process->pid, process->comm, process->user->uid, process->user->objects);
		return -ENOMEM;
	}
	return 0;
}

static void attachment_enter(struct attachment *a, struct mcast_group *group, struct qp *qp)
{
	struct user *user = process_of(qp)->user;

	a->group = group;
	a->qp = qp;
	a->alone = list_empty(&group->joins);
	list_add_tail(&group->attachments, &a->by_group);
	list_add_tail(&qp->groups, &a->by_qp);
	group->attached++;
	a->of_user->attached++;
	pool_take(&group->mcast->server->pools, user, POOL_ATTACHMENTS);
	user->objects++;
	qp->object.users++;
}

static void attachment_end(struct attachment *a)
{
	struct mcast_group *group = a->group;
	const struct process *process = process_of(a->qp);

	list_del(&a->by_group);
	list_del(&a->by_qp);
	group->attached--;
	a->of_user->attached--;
	group_user_put(group, a->of_user);
	pool_give(&process->server->pools, process->user, POOL_ATTACHMENTS);
	process->user->objects--;
	a->qp->object.users--;
	free(a);
	if (!is_attached(group, process)) {
		groups_clear(group->mcast->table, group->gid, process->slot);
		mcast_net_leave(group, process);
	}
	group_put(group);
}

static int attach_to(struct mcast_group *group, struct qp *qp, bool returning)
{
	struct process *process = process_of(qp);
	int err = check_room(qp, group, returning);
	struct attachment *a = err ? NULL : calloc(1, sizeof(*a));

	if (!a)
		return err ? err : -ENOMEM;
	a->of_user = group_user_get(group, process->user);
	if (!a->of_user) {
		free(a);
		return -ENOMEM;
	}
	attachment_enter(a, group, qp);
	mcast_net_enter(group, process);
	err = mcast_net_update(group);
	/* An interface that can't listen is no error: this host's processes still reach one
	 * another. */
	if (!err)
		err = groups_set(group->mcast->table, group->gid, process->slot);
	if (err)
		attachment_end(a);
	return err;
}

int qp_attach_group(struct qp *qp, const uint8_t gid[16], bool returning)
{
	struct mcast *mcast = process_of(qp)->server->mcast;

	if (attachment_find(qp, gid))
		return 0;
	struct mcast_group *group = group_get(mcast, gid);

	if (!group)
		return -ENOMEM;
	int err = attach_to(group, qp, returning);

	/* A group that was made for this attachment ends with it. */
	group = err ? group_find(mcast, gid) : NULL;
	if (group)
		group_put(group);
	return err;
}

int qp_detach_group(struct qp *qp, const uint8_t gid[16])
{
	struct attachment *a = attachment_find(qp, gid);

	if (!a)
		return -EINVAL;
	attachment_end(a);
	return 0;
}

bool mcast_detach_one(struct qp *qp)
{
	if (list_empty(&qp->groups))
		return false;
	/* The newest first: the kernel searches its list of an interface's groups from there, and
	 * 8,192 groups took it 12 s the other way round. */
	attachment_end(container_of(qp->groups.prev, struct attachment, by_qp));
	return true;
}

/* ------------------------------------------------------------------ joining */

int mcast_join(struct server *server, struct user *user, struct mcast_join *join,
	       const uint8_t gid[16], uint32_t ifindex)
{
	struct mcast_group *group = group_get(server->mcast, gid);

	if (!group)
		return -ENOMEM;
	join->of_user = group_user_get(group, user);
	if (!join->of_user) {
		group_put(group);
		return -ENOMEM;
	}
	join->group = group;
	join->ifindex = ifindex;
	list_add_tail(&group->joins, &join->node);
	int err = mcast_net_update(group);

	if (!err && !mcast_net_listens(group, ifindex))
		err = -ENODEV;
	if (err)
		mcast_leave(join);
	return err;
}

void mcast_leave(struct mcast_join *join)
{
	struct mcast_group *group = join->group;

	if (!group)
		return;
	list_del(&join->node);
	join->group = NULL;
	group_user_put(group, join->of_user);
	group_put(group);
}

/* ------------------------------------------------------------------ commands */

/* The queue pair `handle` if it can be a member of the group; NULL: it can't. The LID has no
 * meaning on Ethernet (IBTA volume 1, annex A16). */
static struct qp *find_qp(const struct request *request, uint32_t handle, const uint8_t gid[16])
{
	struct qp *qp = (struct qp *)object_find(request->conn->context, OBJECT_QP, handle);

	return qp && qp->type == IB_UVERBS_QPT_UD && flow_is_multicast(gid) ? qp : NULL;
}

int command_attach_mcast(struct request *request, void *response)
{
	const struct ib_uverbs_attach_mcast *body = request->body;
	struct qp *qp = find_qp(request, body->qp_handle, body->gid);

	(void)response;
	int err = qp ? qp_attach_group(qp, body->gid, request->old != NULL) : -EINVAL;

	return err == -ENOMEM && request_may_wait(request) ? -EAGAIN : err;
}

int command_detach_mcast(struct request *request, void *response)
{
	const struct ib_uverbs_detach_mcast *body = request->body;
	struct qp *qp = find_qp(request, body->qp_handle, body->gid);

	(void)response;
	return qp ? qp_detach_group(qp, body->gid) : -EINVAL;
}
