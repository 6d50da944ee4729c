/* SPDX-License-Identifier: BSD-2-Clause */
/* See mcast.h. */
#include "hca/exec/mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "fabric/port_info.h"
#include "hca/engine/engine.h"
#include "hca/exec/datagram_send.h"
#include "hca/exec/fanout.h"
#include "hca/process/books.h"
#include "hca/process/capture.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/qp.h"
#include "wire/packet.h"

enum { BUCKETS = 512 };

/* A QP that is attached to a group. */
struct member {
	struct list node;  /* in a bucket, by its GID */
	struct list by_qp; /* on qp.groups */
	struct qp *qp;
	uint8_t gid[16];
};

struct mcast {
	struct list buckets[BUCKETS]; /* under hca.engine */
	/* Read under any QP's lock. `old`: the former daemon's, until this one's is settled; else
	 * NULL. */
	const struct groups *_Atomic table, *_Atomic old;
};

/* ------------------------------------------------------------------ the table */

static const struct groups *groups_map(int fd)
{
	const struct groups *table =
		fd < 0 ? MAP_FAILED
		       : mmap(NULL, GROUPS_SIZE, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (table == MAP_FAILED)
		return NULL;
	if (table->magic == GROUPS_MAGIC && table->version == GROUPS_VERSION)
		return table;
	munmap((void *)table, GROUPS_SIZE);
	return NULL;
}

static void groups_unmap(const struct groups *table)
{
	if (table)
		munmap((void *)table, GROUPS_SIZE);
}

int mcast_make(struct hca *hca, int fd)
{
	struct mcast *mcast = calloc(1, sizeof(*mcast));

	if (!mcast)
		return -ENOMEM;
	for (unsigned int i = 0; i < BUCKETS; i++)
		list_init(&mcast->buckets[i]);
	atomic_store(&mcast->table, groups_map(fd));
	if (!mcast->table)
		log_warn("the table of multicast groups is missing: datagrams to groups don't "
			 "reach processes of this host");
	hca->mcast = mcast;
	return 0;
}

void mcast_unmake(struct hca *hca)
{
	if (!hca->mcast)
		return;
	groups_unmap(hca->mcast->table);
	free(hca->mcast);
	hca->mcast = NULL;
}

/* Waits until no thread uses a table that has been replaced: each QP's lock was free since. */
static void pass_locks(struct hca *hca)
{
	lock_take(&hca->engine);
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++) {
		if (!hca->qps[i])
			continue;
		lock_take(&hca->qps[i]->lock);
		lock_give(&hca->qps[i]->lock);
	}
	lock_give(&hca->engine);
}

void mcast_take_table(struct hca *hca, int fd)
{
	struct mcast *mcast = hca->mcast;
	const struct groups *fresh = groups_map(fd);

	if (!fresh)
		return;
	const struct groups *gone = atomic_exchange(&mcast->old, mcast->table);

	atomic_store(&mcast->table, fresh);
	pass_locks(hca);
	groups_unmap(gone);
}

uint64_t mcast_addresses(const struct hca *hca)
{
	const struct groups *table = hca->mcast ? atomic_load(&hca->mcast->table) : NULL;

	return table ? atomic_load_explicit(&table->addresses, memory_order_relaxed) : 0;
}

/* Whether all processes of the last daemon are in the table, or have ended. Read before the table:
 * a process that is missing there then isn't attached. */
static bool is_settled(const struct groups *table)
{
	/* [G2], pairs with [G1] */
	return atomic_load_explicit(&table->settled, memory_order_acquire);
}

/* The table in which the queue pair is: the new one, or the last daemon's while processes are
 * missing in the new one. */
static const struct xrc_table *xrc_table_of(const struct hca *hca, uint32_t qpn)
{
	const struct groups *table = hca->mcast ? atomic_load(&hca->mcast->table) : NULL;

	if (unlikely(!table))
		return NULL;
	bool settled = is_settled(table);

	if (likely(xrc_table_find(&table->xrc, qpn) || settled))
		return &table->xrc;
	const struct groups *old = atomic_load(&hca->mcast->old);

	return old ? &old->xrc : &table->xrc;
}

const struct xrc_target *mcast_xrc_find(const struct hca *hca, uint32_t qpn)
{
	const struct xrc_table *table = xrc_table_of(hca, qpn);

	return table ? xrc_table_find(table, qpn) : NULL;
}

/* An entry of the daemon's present table stays the queue pair's as long as it has its number. That
 * table stays mapped while hca.engine is held. */
uint64_t mcast_xrc_state(const struct hca *hca, uint32_t qpn, struct xrc_found *found)
{
	const struct groups *table = hca->mcast ? atomic_load(&hca->mcast->table) : NULL;

	if (unlikely(!table))
		return 0;
	if (unlikely(found->table != table || !xrc_target_state(found->target, qpn))) {
		found->target = xrc_table_find(&table->xrc, qpn);
		found->table = found->target ? table : NULL;
	}
	if (likely(found->table != NULL))
		return xrc_target_state(found->target, qpn);
	const struct xrc_target *target = mcast_xrc_find(hca, qpn);

	return target ? xrc_target_state(target, qpn) : 0;
}

bool mcast_xrc_read(const struct hca *hca, uint32_t qpn, struct xrc_view *view)
{
	const struct xrc_table *table = xrc_table_of(hca, qpn);

	return table && xrc_table_read(table, qpn, view);
}

struct mcast_tables mcast_tables(const struct hca *hca)
{
	const struct mcast *mcast = hca->mcast;
	struct mcast_tables tables = {0};

	if (!mcast)
		return tables;
	tables.table = atomic_load(&mcast->table);
	const struct groups *old = atomic_load(&mcast->old);

	if (unlikely(old && tables.table) && !is_settled(tables.table))
		tables.old = old;
	return tables;
}

uint32_t mcast_datagram_bytes(const struct hca *hca, uint32_t device)
{
	const struct groups *table = hca->mcast ? atomic_load(&hca->mcast->table) : NULL;
	uint32_t bytes =
		table && device < GROUPS_DEVICES
			? atomic_load_explicit(&table->datagram_bytes[device], memory_order_relaxed)
			: 0;

	return bytes && bytes < DATAGRAM_BYTES ? bytes : DATAGRAM_BYTES;
}

bool mcast_is_own(const struct hca *hca, const uint8_t gid[16], struct groups_known *last)
{
	const struct groups *table = hca->mcast ? atomic_load(&hca->mcast->table) : NULL;
	uint64_t addresses = table ? groups_addresses(table) : 0;

	if (unlikely(!addresses))
		return true;
	if (likely(last->addresses == addresses && !memcmp(last->gid, gid, sizeof(last->gid))))
		return true;
	if (!groups_is_own(table, gid))
		return false;
	last->addresses = addresses;
	memcpy(last->gid, gid, sizeof(last->gid));
	return true;
}

/* ORs the slots of processes with a member into `slots`. False: there is none. */
static bool find_processes(const struct mcast *mcast, const uint8_t gid[16],
			   uint64_t slots[GROUPS_WORDS])
{
	const struct groups *table = atomic_load(&mcast->table);
	const struct groups *old = atomic_load(&mcast->old);

	bool old_too = unlikely(old && table) && !is_settled(table);

	memset(slots, 0, GROUPS_WORDS * sizeof(slots[0]));
	bool any = table && groups_find(table, gid, slots);

	if (old_too)
		any |= groups_find(old, gid, slots);
	return any;
}

/* ------------------------------------------------------------------ attaching */

static struct list *bucket_of(struct mcast *mcast, const uint8_t gid[16])
{
	uint32_t h = 0x811c9dc5; /* FNV-1a */

	for (int i = 0; i < 16; i++)
		h = (h ^ gid[i]) * 0x01000193;
	return &mcast->buckets[h % BUCKETS];
}

static struct member *member_find(const struct qp *qp, const uint8_t gid[16])
{
	list_for_each(node, &qp->groups) {
		struct member *m = container_of(node, struct member, by_qp);

		if (!memcmp(m->gid, gid, sizeof(m->gid)))
			return m;
	}
	return NULL;
}

static bool is_member(struct qp *qp, const uint8_t gid[16])
{
	lock_take(&qp->hca->engine);
	bool yes = member_find(qp, gid) != NULL;

	lock_give(&qp->hca->engine);
	return yes;
}

/* Adds the member, unless another thread has added the same one meanwhile. */
static void member_enter(struct member *m)
{
	struct hca *hca = m->qp->hca;

	lock_take(&hca->engine);
	bool fresh = !member_find(m->qp, m->gid);

	if (fresh) {
		list_add_tail(bucket_of(hca->mcast, m->gid), &m->node);
		list_add_tail(&m->qp->groups, &m->by_qp);
	}
	lock_give(&hca->engine);
	if (!fresh)
		free(m);
}

int mcast_attach(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct qp *qp = qp_of(ibv);

	if (qp->hca->membership && (lid < LID_MULTICAST || lid == LID_PERMISSIVE))
		return EINVAL;
	if (is_member(qp, gid->raw))
		return 0;
	struct member *m = calloc(1, sizeof(*m));

	if (!m)
		return ENOMEM;
	m->qp = qp;
	memcpy(m->gid, gid->raw, sizeof(m->gid));
	books_enter(qp->hca);
	int err = -daemon_attach_mcast(&qp->context->conn, qp->handle, gid->raw, lid);

	if (!err)
		member_enter(m);
	books_leave(qp->hca);
	if (err)
		free(m);
	return err;
}

int mcast_detach(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct qp *qp = qp_of(ibv);
	struct hca *hca = qp->hca;

	books_enter(hca);
	int err = -daemon_detach_mcast(&qp->context->conn, qp->handle, gid->raw, lid);

	lock_take(&hca->engine);
	/* Without a daemon the attachment ends here only; it isn't handed to the next one. */
	struct member *m = !err || err == EIO ? member_find(qp, gid->raw) : NULL;

	if (m) {
		list_del(&m->node);
		list_del(&m->by_qp);
		err = 0;
	}
	lock_give(&hca->engine);
	books_leave(hca);
	free(m);
	return err;
}

int mcast_again(struct daemon_conn *conn, const struct qp *qp)
{
	int err = 0;

	list_for_each(node, &qp->groups)
		if (!err)
			err = daemon_attach_mcast(conn, qp->handle,
						  container_of(node, struct member, by_qp)->gid, 0);
	return err;
}

void mcast_for_each(struct hca *hca, const uint8_t gid[16], void (*visit)(struct qp *qp, void *arg),
		    void *arg)
{
	list_for_each(node, bucket_of(hca->mcast, gid)) {
		struct member *m = container_of(node, struct member, node);

		if (!memcmp(m->gid, gid, sizeof(m->gid)))
			visit(m->qp, arg);
	}
}

/* ------------------------------------------------------------------ sending */

/* Sends the datagram by RoCE if it leaves the host, and looks up its slots. Result as of
 * roce_datagram(). */
static enum step fanout_begin(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			      int count) REQUIRES(qp->lock)
{
	struct hca *hca = qp->hca;
	struct fanout *fanout = qp->fanout;

	if (!find_processes(hca->mcast, wqe->ud.to.dgid, fanout->left) || hca->roce_forced)
		memset(fanout->left, 0, sizeof(fanout->left));
	if (wqe->ud.beyond) {
		enum step step = roce_datagram(qp, wqe, local, count);

		if (step != STEP_DONE)
			return step;
	} else {
		if (capture_on(hca))
			capture_show_datagram(qp, wqe);
		qp->ud_psn++;
	}
	wqe->flags |= SEND_BEGUN;
	return STEP_DONE;
}

enum step mcast_fan_out(struct qp *qp, struct send_wqe *wqe, const struct iovec *local, int count,
			const struct audience *audience)
{
	const struct fanout *fanout = fanout_get(qp);

	/* A group's datagrams carry this QPN only (IBTA volume 1, 9.6.1.2): receivers would drop
	 * any other. */
	if (unlikely(!fanout || (wqe->ud.remote_qpn & 0xffffff) != WIRE_MULTICAST_QPN))
		return datagram_sent(qp, wqe);
	enum step step = wqe->flags & SEND_BEGUN ? STEP_DONE : fanout_begin(qp, wqe, local, count);

	if (step == STEP_FAILED)
		return datagram_fail(qp, wqe, IBV_WC_LOC_PROT_ERR);
	if (step == STEP_WAIT)
		return step;
	return fanout_go_on(qp, wqe, local, count, audience);
}

static enum step group_send(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			    int count) REQUIRES(qp->lock)
{
	return mcast_fan_out(qp, wqe, local, count, NULL);
}

const struct datagram_carrier datagram_group = {
	.name = "group",
	.send = group_send,
	.skip = fanout_skip,
};
