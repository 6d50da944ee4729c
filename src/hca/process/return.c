/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Returning to the next daemon. books.h says when, proto/proto.h which messages are exchanged.
 *
 * Connections that are established need no daemon, and go on all the while. New connections to the
 * daemon are made beside the old ones; only when the daemon has taken everything do their
 * descriptors take the old ones' places, so that a return that fails has changed nothing.
 *
 * Which threads return: a thread whose command finds the daemon gone, which starts the next one if
 * there is none; and the control thread (control.h), when a link is wanted, or when another process
 * has started a daemon. The engine thread notices a new daemon by inotify on the run-time
 * directory.
 *
 * Locks. Starting a daemon takes seconds, so it is done before any lock is taken. Returning to one
 * that is there write-locks hca.books: no entry is open, so no list of objects changes. hca.lock is
 * taken only to copy a link's number, never across a call: the data path never waits for a daemon.
 * A child that is forked meanwhile closes the new connections (return_leave()).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/start.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/exec/xrc_wire.h"
#include "hca/local/link.h"
#include "hca/mem/dm.h"
#include "hca/mem/foreign.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/capture.h"
#include "hca/process/context.h"
#include "hca/process/control.h"
#include "hca/process/hca.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/channel.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/flow.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/window.h"
#include "hca/verbs/xrcd.h"

/* The new connections. */
struct fresh {
	struct daemon_conn process;
	int event_fd;
	struct daemon_wire roce;
	struct daemon_conn *contexts; /* in the order of hca.contexts */
	size_t count;		      /* of contexts' connections that are open */
};

/* ------------------------------------------------------------------ objects */

static int pd_again(struct daemon_conn *conn, struct list *held)
{
	const struct pd *pd = container_of(held, struct pd, held);
	uint32_t handle;

	return pd->imported ? daemon_import_pd(conn, pd->shown, &handle)
			    : daemon_alloc_pd(conn, &handle);
}

static int channel_again(struct daemon_conn *conn, struct list *held)
{
	const struct channel *channel = container_of(held, struct channel, held);
	uint32_t handle;

	return channel->registered ? daemon_create_channel(conn, &handle) : 0;
}

static int cq_again(struct daemon_conn *conn, struct list *held)
{
	struct cq *cq = container_of(held, struct cq, held);
	struct ibv_comp_channel *ibv = cq->ibv.channel;
	uint32_t handle;

	if (!cq->registered)
		return 0;
	return daemon_create_cq(conn, cq_depth(cq),
				ibv ? (int64_t)container_of(ibv, struct channel, ibv)->handle : -1,
				cq->comp_vector, &handle);
}

static int srq_again(struct daemon_conn *conn, struct list *held)
{
	struct srq *srq = container_of(held, struct srq, held);
	struct ib_uverbs_create_srq_resp resp;

	lock_take(&srq->lock);
	uint32_t max_wr = srq->rq.max_wr, max_sge = srq->rq.max_sge;

	lock_give(&srq->lock);
	return srq_register(conn, srq, max_wr, max_sge, &resp);
}

static int xrcd_held_again(struct daemon_conn *conn, struct list *held)
{
	return xrcd_again(conn, container_of(held, struct xrcd, held));
}

static int dm_again(struct daemon_conn *conn, struct list *held)
{
	const struct dm *dm = container_of(held, struct dm, held);
	uint32_t handle;

	return daemon_alloc_dm(conn, dm->length, dm->fd, &handle);
}

static int mr_again(struct daemon_conn *conn, struct list *held)
{
	const struct mr *mr = container_of(held, struct mr, held);
	struct ib_uverbs_reg_mr_resp resp;
	struct proto_import_mr_resp imported;

	if (mr->foreign)
		return daemon_import_mr(conn, pd_of(mr->ibv.pd)->handle, mr->handle, &imported);
	return mr_ask_keys(conn, mr, &resp);
}

static int mw_again(struct daemon_conn *conn, struct list *held)
{
	const struct mw *mw = container_of(held, struct mw, held);
	struct ib_uverbs_alloc_mw_resp resp;

	return daemon_alloc_mw(conn, pd_of(mw->ibv.pd)->handle, mw->type, &resp);
}

static int qp_again(struct daemon_conn *conn, struct list *held)
{
	struct qp *qp = container_of(held, struct qp, held);
	struct ib_uverbs_create_qp_resp resp;

	if (qp->target)
		return target_again(conn, qp);
	struct ib_uverbs_create_qp cmd;

	qp_create_command(qp, &cmd);
	int err = daemon_create_qp(conn, &cmd, &resp);

	return err ? err : mcast_again(conn, qp);
}

static int flow_again(struct daemon_conn *conn, struct list *held)
{
	uint32_t handle;

	return daemon_create_flow(conn, &container_of(held, struct flow, held)->request, &handle);
}

static int ah_again(struct daemon_conn *conn, struct list *held)
{
	const struct ah *ah = container_of(held, struct ah, held);
	struct proto_create_ah_resp resp;
	int err = daemon_create_ah(conn, pd_of(ah->ibv.pd)->handle, &ah->request, &resp);

	/* The address may be gone from the host; then only the daemon has no handle for the AH. */
	return err == -EINVAL ? 0 : err;
}

static struct proto_return old_names(enum held_kind kind, struct list *held)
{
	switch (kind) {
	case HELD_PD:
		return (struct proto_return){container_of(held, struct pd, held)->handle, 0};
	case HELD_CHANNEL:
		return (struct proto_return){container_of(held, struct channel, held)->handle, 0};
	case HELD_CQ:
		return (struct proto_return){container_of(held, struct cq, held)->handle, 0};
	case HELD_XRCD: {
		struct xrcd *xrcd = container_of(held, struct xrcd, held);

		return (struct proto_return){xrcd->handle, xrcd_number(xrcd)};
	}
	case HELD_SRQ: {
		const struct srq *srq = container_of(held, struct srq, held);

		return (struct proto_return){srq->handle, srq->number};
	}
	case HELD_AH:
		return (struct proto_return){container_of(held, struct ah, held)->handle, 0};
	case HELD_FLOW:
		return (struct proto_return){container_of(held, struct flow, held)->handle, 0};
	case HELD_DM:
		return (struct proto_return){container_of(held, struct dm, held)->handle, 0};
	case HELD_MR: {
		const struct mr *mr = container_of(held, struct mr, held);

		return (struct proto_return){mr->foreign ? mr->foreign->handle : mr->handle,
					     mr->key};
	}
	case HELD_MW: {
		const struct mw *mw = container_of(held, struct mw, held);

		return (struct proto_return){mw->handle, mw->first_key};
	}
	case HELD_QP: {
		const struct qp *qp = container_of(held, struct qp, held);

		return (struct proto_return){qp->handle, qp->ibv.qp_num};
	}
	case HELD_KINDS:
		break;
	}
	abort();
}

/* Hands all objects of a context to the new daemon, in the order of enum held_kind: each after the
 * objects that it uses. */
static int objects_again(struct daemon_conn *conn, struct context *context)
{
	static int (*const again[])(struct daemon_conn * conn, struct list * held) = {
		[HELD_PD] = pd_again,	       [HELD_CHANNEL] = channel_again, [HELD_CQ] = cq_again,
		[HELD_XRCD] = xrcd_held_again, [HELD_SRQ] = srq_again,	       [HELD_DM] = dm_again,
		[HELD_MR] = mr_again,	       [HELD_MW] = mw_again,	       [HELD_QP] = qp_again,
		[HELD_FLOW] = flow_again,      [HELD_AH] = ah_again,
	};
	int err = 0;

	for (unsigned int kind = 0; kind < HELD_KINDS; kind++) {
		list_for_each(held, &context->held[kind]) {
			struct proto_return old = old_names((enum held_kind)kind, held);

			conn->old = &old;
			err = again[kind](conn, held);
			conn->old = NULL;
			if (err)
				return err;
		}
	}
	return 0;
}

/* ------------------------------------------------------------------ the return */

/* The index of a number, if it is one of this process's and below `least`; else `least`. */
static uint32_t lower_index(const struct hca *hca, uint32_t number, uint32_t least)
{
	uint32_t index = number & (LIMIT_QPS_PER_SLOT - 1);

	return number >> LIMIT_QP_BITS == hca->slot && index < least ? index : least;
}

/* Tells the daemon from which numbers on to allocate: the lowest in use, or the next one. */
static void number_marks(struct hca *hca, struct proto_attach *body)
{
	uint32_t qpn = UINT32_MAX, key = UINT32_MAX;

	list_for_each(node, &hca->contexts) {
		struct context *context = container_of(node, struct context, node);

		list_for_each(held, &context->held[HELD_QP])
			qpn = lower_index(hca, container_of(held, struct qp, held)->ibv.qp_num,
					  qpn);
		list_for_each(held, &context->held[HELD_SRQ])
			qpn = lower_index(hca, container_of(held, struct srq, held)->number, qpn);
		list_for_each(held, &context->held[HELD_MR]) {
			uint32_t index =
				container_of(held, struct mr, held)->key >> LIMIT_KEY_TAG_BITS;

			key = index < key ? index : key;
		}
		list_for_each(held, &context->held[HELD_MW]) {
			uint32_t index = container_of(held, struct mw, held)->first_key >>
					 LIMIT_KEY_TAG_BITS;

			key = index < key ? index : key;
		}
	}
	if (qpn == UINT32_MAX)
		qpn = atomic_load(&hca->last_qp_index) % (LIMIT_QPS_PER_SLOT - 1) + 1;
	if (key == UINT32_MAX)
		key = atomic_load(&hca->last_key_index) % (LIMIT_MRS_PER_SLOT - 1) + 1;
	body->qpn_index = qpn;
	body->key_index = key;
}

static int attach_again(struct hca *hca, struct fresh *fresh)
{
	struct proto_attach body = {.flags = PROTO_ATTACH_RETURN |
					     (hca->roce_forced ? PROTO_ATTACH_LOOPS : 0) |
					     (hca_has_wire(hca) ? 0 : PROTO_ATTACH_NO_WIRE),
				    .cookie = hca->cookie,
				    .slot = hca->slot};
	struct proto_attach_resp resp;

	number_marks(hca, &body);
	int err =
		daemon_attach(&fresh->process, &body, hca->table_fd, hca->doorbell, hca->regions_fd,
			      hca->park_fd, &resp, &fresh->event_fd, &fresh->roce);

	return err ? err : xrc_wire_again(hca, &fresh->process);
}

static int contexts_again(struct hca *hca, struct fresh *fresh)
{
	size_t count = 0;

	list_for_each(node, &hca->contexts)
		count++;
	fresh->contexts = calloc(count + 1, sizeof(*fresh->contexts));
	if (!fresh->contexts)
		return -ENOMEM;
	for (size_t i = 0; i <= count; i++)
		fresh->contexts[i].fd = -1;
	list_for_each(node, &hca->contexts) {
		struct context *context = container_of(node, struct context, node);
		struct daemon_conn *conn = &fresh->contexts[fresh->count];
		uint32_t vectors;
		int err = daemon_context_open(conn, context->verbs.context.device->dev_name,
					      hca->cookie, context->token, &vectors);

		if (err)
			return err;
		fresh->count++;
		err = objects_again(conn, context);
		if (err)
			return err;
	}
	return 0;
}

static void set_links_named(struct hca *hca, bool named)
{
	mutex_take(&hca->events_lock);
	hca->links_named = named;
	mutex_give(&hca->events_lock);
}

static int links_again(struct hca *hca, struct fresh *fresh)
{
	set_links_named(hca, true);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link_name name;

		if (!link_name_up(hca, slot, &name))
			continue;
		int err = daemon_link_return(&fresh->process, name.id, slot, name.side);

		if (err)
			return err;
	}
	int err = daemon_returned(&fresh->process);

	if (!err && hca->roce)
		roce_origin_name(hca->roce, &fresh->process);
	return err;
}

static void replace_fd(int *old, int *with)
{
	if (dup3(*with, *old, O_CLOEXEC) < 0)
		log_error("a descriptor can't be replaced: %s", strerror(errno));
	sys_close(*with);
	*with = -1;
}

/* The socket and the park stay what they were, if there were any: the new descriptors are for the
 * same files. */
static void take_wire(struct hca *hca, struct daemon_wire *roce)
{
	if (hca->park_fd < 0) {
		hca->park_fd = roce->park;
		roce->park = -1;
	}
	hca->roce_flags |= roce->flags;
	mcast_take_table(hca, roce->groups);
}

/* The process gets its UDP socket now, if no daemon before had one for it. */
static void take_udp_socket(struct hca *hca, struct daemon_wire *roce)
{
	if (roce->socket < 0 || !hca->roce || hca_has_wire(hca))
		return;
	roce_open(hca->roce, roce->socket);
	roce->socket = -1;
	int err = roce_join(hca->roce, hca->epoll);

	if (err)
		log_error("packets from other hosts won't be noticed: %s", strerror(-err));
}

/* The new connections take the places of the old ones. */
static void take_over(struct hca *hca, struct fresh *fresh)
{
	struct epoll_event e = {.events = EPOLLIN, .data = engine_descriptor(hca->event_fd)};
	size_t i = 0;

	mutex_take(&hca->events_lock);
	epoll_ctl(hca->epoll, EPOLL_CTL_DEL, hca->event_fd, NULL);
	capture_end_all(hca);
	replace_fd(&hca->event_fd, &fresh->event_fd);
	epoll_ctl(hca->epoll, EPOLL_CTL_ADD, hca->event_fd, &e);
	if (hca->watch_fd >= 0)
		sys_close(hca->watch_fd);
	hca->watch_fd = -1;
	hca->lost = hca->links_named = false;
	take_wire(hca, &fresh->roce);
	hca->generation++;
	mutex_give(&hca->events_lock);
	replace_fd(&hca->conn.fd, &fresh->process.fd);
	list_for_each(node, &hca->contexts)
		replace_fd(&container_of(node, struct context, node)->conn.fd,
			   &fresh->contexts[i++].fd);
	take_udp_socket(hca, &fresh->roce);
	/* Link requests that the old daemon didn't answer are queued again. */
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		uint32_t asked = LINK_ASKED;

		if (link)
			atomic_compare_exchange_strong(&link->state, &asked, LINK_WISHED);
	}
	work_leave(&hca->control_work, CONTROL_LINKS);
	control_wake(hca);
	engine_kick(hca); /* events that may have come already */
}

static void fresh_close(struct fresh *fresh)
{
	if (fresh->event_fd >= 0)
		sys_close(fresh->event_fd);
	if (fresh->roce.socket >= 0)
		sys_close(fresh->roce.socket);
	if (fresh->roce.park >= 0)
		sys_close(fresh->roce.park);
	if (fresh->roce.groups >= 0)
		sys_close(fresh->roce.groups);
	for (size_t i = 0; i < fresh->count; i++)
		daemon_close(&fresh->contexts[i]);
	free(fresh->contexts);
	daemon_close(&fresh->process);
}

/* hca.books is write-locked. */
static int go_back(struct hca *hca)
{
	struct fresh fresh = {.process = DAEMON_CONN_CLOSED,
			      .event_fd = -1,
			      .roce = {.socket = -1, .park = -1, .groups = -1}};

	atomic_store(&hca->fresh, &fresh);
	int err = attach_again(hca, &fresh);

	if (!err)
		err = contexts_again(hca, &fresh);
	if (!err)
		err = links_again(hca, &fresh);
	if (!err)
		take_over(hca, &fresh);
	else
		set_links_named(hca, false);
	atomic_store(&hca->fresh, NULL);
	fresh_close(&fresh);
	return err;
}

/* Whether the error means that the daemon is gone again, or that there is none. */
static bool is_gone(int err)
{
	return err == -EIO || err == -ECONNREFUSED || err == -ENOENT;
}

/* Attaches to a daemon that is running. 0 also if another thread has returned meanwhile. */
static int return_join(struct hca *hca, uint32_t seen)
{
	int err = 0;

	rwlock_write(&hca->books);
	if (hca->generation == seen) {
		start_join_only(true);
		err = go_back(hca);
		start_join_only(false);
		if (!err)
			log_info("verbenad was replaced: this process goes on with the new one");
	}
	rwlock_give(&hca->books);
	return err;
}

int return_to_daemon(struct hca *hca, uint32_t seen, bool may_start)
{
	int err = -EIO;

	for (int i = 0; i < START_TRIES && is_gone(err); i++) {
		start_pause(i);
		err = may_start ? start_one() : 0;
		if (!err)
			err = return_join(hca, seen);
		if (is_gone(err) && !may_start)
			break;
	}
	if (err && !may_start)
		log_debug("the next daemon can't be joined: %s", strerror(-err));
	else if (err)
		log_warn("verbenad is gone, and this process can't go on with another (%s): "
			 "connections go on, new objects can't be made",
			 strerror(-err));
	return err;
}

void return_leave(struct hca *hca)
{
	struct fresh *fresh = atomic_exchange(&hca->fresh, NULL);

	if (!fresh)
		return;
	const int fds[] = {fresh->event_fd, fresh->roce.socket, fresh->roce.park,
			   fresh->roce.groups, fresh->process.fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	/* Up to and including `count`: the last connection is being opened, or isn't used. */
	for (size_t i = 0; fresh->contexts && i <= fresh->count; i++)
		if (fresh->contexts[i].fd >= 0)
			sys_close(fresh->contexts[i].fd);
}

/* ------------------------------------------------------------------ waiting for the next daemon */

/* Watches the run-time directory for the next daemon. The engine thread gets the watch's events. */
static void return_watch(struct hca *hca)
{
	char dir[PATH_MAX];

	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct epoll_event e = {.events = EPOLLIN, .data = engine_descriptor(fd)};

	/* A daemon creates its sockets there; the process that starts it closes `lock` once it
	 * listens. */
	if (fd < 0 || start_directory(dir, sizeof(dir)) ||
	    inotify_add_watch(fd, dir, IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
		log_info("the next daemon will only be noticed when it is needed: %s",
			 strerror(errno));
		if (fd >= 0)
			sys_close(fd);
		return;
	}
	mutex_take(&hca->events_lock);
	if (hca->lost && hca->watch_fd < 0 && epoll_ctl(hca->epoll, EPOLL_CTL_ADD, fd, &e) == 0) {
		hca->watch_fd = fd;
		fd = -1;
	}
	mutex_give(&hca->events_lock);
	if (fd >= 0)
		sys_close(fd); /* another thread has returned meanwhile */
}

void return_sought(struct hca *hca)
{
	mutex_take(&hca->events_lock);
	enum seek sought = hca->seek;
	bool lost = hca->lost, watched = hca->watch_fd >= 0;
	uint32_t seen = hca->generation;

	hca->seek = SEEK_NOTHING;
	mutex_give(&hca->events_lock);
	if (sought == SEEK_NOTHING || !lost)
		return;
	if (!watched)
		return_watch(hca); /* before the check: no daemon that comes later is missed */
	/* A connection may succeed to a daemon that is being killed and still listens for a moment;
	 * that isn't the next daemon yet. */
	bool start = sought == SEEK_NEXT_OR_START;

	if (start || start_is_there())
		return_to_daemon(hca, seen, start);
}

void return_seek(struct hca *hca, bool start)
{
	mutex_take(&hca->events_lock);
	if (hca->seek != SEEK_NEXT_OR_START)
		hca->seek = start ? SEEK_NEXT_OR_START : SEEK_NEXT;
	mutex_give(&hca->events_lock);
	control_wake(hca);
}

void return_for_link(struct hca *hca)
{
	mutex_take(&hca->events_lock);
	bool lost = hca->lost;

	mutex_give(&hca->events_lock);
	if (lost)
		return_seek(hca, true);
}

void return_watched(struct hca *hca)
{
	_Alignas(struct inotify_event) char events[4096];

	mutex_take(&hca->events_lock);
	while (hca->watch_fd >= 0 && sys_read(hca->watch_fd, events, sizeof(events)) > 0)
		;
	mutex_give(&hca->events_lock);
	return_seek(hca, false);
}
