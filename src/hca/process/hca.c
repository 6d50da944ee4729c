/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's HCA: making it (attach to the daemon, published table, self link, engine thread)
 * and leaving it behind in a forked child. Owns the one struct hca; `instance` changes under
 * `instance_lock`, and in the child of a fork, where only one thread exists.
 */
#include "hca/process/hca.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/start.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/exec/segment.h"
#include "hca/exec/xrc_target.h"
#include "hca/fabric/membership.h"
#include "hca/local/link.h"
#include "hca/local/way.h"
#include "hca/mem/convert.h"
#include "hca/mem/hazard.h"
#include "hca/mem/shared.h"
#include "hca/process/books.h"
#include "hca/process/capture.h"
#include "hca/process/context.h"
#include "hca/process/control.h"
#include "hca/process/exit.h"
#include "hca/process/park.h"
#include "hca/roce/interface.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/channel.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/tagged.h"

static struct hca *_Atomic instance;
static pid_t instance_pid; /* the process whose it is: not a child's that ran no handler */
static struct mutex instance_lock = MUTEX_INITIALIZER(RANK_INSTANCE);

/* Makes published memory: a sealed memory file, mapped here for writing. NULL with errno. */
static void *hca_memory_make(const char *name, size_t size, int *fd)
{
	void *at = MAP_FAILED;

	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	if (ftruncate(*fd, (off_t)size) == 0)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	if (fcntl(*fd, F_ADD_SEALS,
		  F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		munmap(at, size);
		return NULL;
	}
	return at;
}

static void table_fill(struct pub *pub)
{
	pub->header.magic = PUB_MAGIC;
	pub->header.version = PUB_VERSION;
	atomic_store_explicit(&pub->header.asleep, 1, memory_order_relaxed);
}

static void regions_fill(struct pub_regions *regions)
{
	if (sys_getrandom(&regions->probe, sizeof(regions->probe), 0) < 0)
		regions->probe = (uintptr_t)regions ^ getpid();
	regions->probe_addr = (uintptr_t)&regions->probe;
}

/* hca_free() undoes this, also if only a part was made. */
static int tables_make(struct hca *hca)
{
	hca->pub = hca_memory_make("verbena-table", PUB_SIZE, &hca->table_fd);
	if (!hca->pub)
		return -errno;
	table_fill(hca->pub);
	hca->regions = hca_memory_make("verbena-regions", PUB_REGIONS_SIZE, &hca->regions_fd);
	if (!hca->regions)
		return -errno;
	regions_fill(hca->regions);
	return 0;
}

/* `socket`: the UDP socket that the daemon gives, or -1. */
static int hca_attach(struct hca *hca, int *socket)
{
	struct proto_attach_resp resp;
	struct daemon_wire roce;
	int err = tables_make(hca);

	if (err)
		return err;
	hca->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = hca->doorbell < 0 ? -errno : membership_make(hca->pub, &hca->membership);
	hca->roce_forced = !hca->membership && roce_is_forced();
	const struct proto_attach body = {.flags = hca->roce_forced ? PROTO_ATTACH_LOOPS : 0};
	if (!err)
		err = daemon_attach(&hca->conn, &body, hca->table_fd, hca->doorbell,
				    hca->regions_fd, -1, &resp, &hca->event_fd, &roce);
	if (err)
		return err;
	if (hca->membership && roce.socket >= 0)
		sys_close(roce.socket);
	else
		*socket = roce.socket;
	hca->park_fd = roce.park;
	hca->roce_flags = roce.flags;
	err = mcast_make(hca, roce.groups);
	if (!err)
		err = segment_make(hca);
	if (roce.groups >= 0)
		sys_close(roce.groups);
	if (err) {
		daemon_close(&hca->conn);
		return err;
	}
	start_stay();
	hca->slot = resp.slot;
	hca->cookie = resp.cookie;
	hca->pub->header.slot = resp.slot;
	return 0;
}

static void hca_free(struct hca *hca)
{
	link_free_self(hca);
	roce_unmake(hca);
	interface_unmake(hca);
	segment_unmake(hca);
	mcast_unmake(hca);
	xrc_here_unmake(hca);
	membership_unmake(hca->membership);
	if (hca->pub)
		munmap(hca->pub, PUB_SIZE);
	if (hca->event_fd >= 0)
		sys_close(hca->event_fd);
	if (atomic_load(&hca->roce_fd) >= 0)
		sys_close(hca->roce_fd);
	if (hca->park_fd >= 0)
		sys_close(hca->park_fd);
	if (hca->doorbell >= 0)
		sys_close(hca->doorbell);
	if (hca->watchdog >= 0)
		sys_close(hca->watchdog);
	if (hca->table_fd >= 0)
		sys_close(hca->table_fd);
	if (hca->regions)
		munmap(hca->regions, PUB_REGIONS_SIZE);
	if (hca->regions_fd >= 0)
		sys_close(hca->regions_fd);
	hazard_unmake(hca);
	free(hca->qps);
	free(hca);
}

static struct hca *hca_make(void)
{
	/* On pages of its own: see park.h. */
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (sizeof(struct hca) + page - 1) & -page;
	struct hca *hca = aligned_alloc(page, size);

	if (!hca)
		return NULL;
	memset(hca, 0, size);
	hca_init_locks(hca);
	list_init(&hca->contexts);
	list_init(&hca->links);
	list_init(&hca->acks);
	list_init(&hca->tagged);
	list_init(&hca->rnr);
	list_init(&hca->dry);
	list_init(&hca->active);
	list_init(&hca->windows_ending);
	list_init(&hca->moderated);
	hca->doorbell = hca->table_fd = hca->regions_fd = -1;
	hca->event_fd = hca->watch_fd = -1;
	hca->park_fd = hca->watchdog = hca->epoll = -1;
	atomic_init(&hca->roce_fd, -1);
	hca->watch_due = true;
	hca->pace_at = UINT64_MAX;
	hca->long_by_ring = way_long_by_ring();
	hca->share_memory = shared_allowed();
	hca->convert = convert_wanted();
	hca->qps = calloc(LIMIT_QPS_PER_SLOT, sizeof(*hca->qps));
	int socket = -1, err = hca->qps ? hazard_make(hca) : -ENOMEM;

	if (!err)
		err = xrc_here_make(hca);

	if (!err)
		err = hca_attach(hca, &socket);

	if (!err) {
		err = link_make_self(hca);
		if (!err)
			err = hca->membership ? 0 : roce_make(hca, socket);
		if (!err) {
			engine_first_events(hca);
			err = control_start(hca);
		}
		if (!err) {
			err = engine_start(hca);
			if (err)
				control_stop(hca);
		}
		if (err)
			daemon_close(&hca->conn);
	}
	if (err) {
		log_error("can't attach to verbenad: %s", strerror(-err));
		hca_free(hca);
		errno = -err;
		return NULL;
	}
	return hca;
}

/*
 * A forked child owns none of the parent's objects. The structures stay, so that pointers to them
 * don't dangle, but nothing leads from them to the parent any more: what the two would share
 * (rings, tables, descriptors that count events) is replaced by the child's own; the connections to
 * the daemon are closed (the daemon would take the parent for alive as long as they are open, and
 * two processes can't use one connection); all links are down, and no thread drives the engine.
 * Locks are initialised anew: the threads that held them don't exist in the child. Requests that
 * the child posts never start; unread completions and events are the parent's, and the child gets
 * none; an object that the child ends is ended in the child only. A device that it opens belongs to
 * a new HCA.
 *
 * fork() waits for no lock (base/fork.h): neither for one of the thread that calls it, in a signal
 * handler, nor for one of a thread that waits for the program's handlers. So the child mends the
 * lists of objects, which may have been in the middle of a change. Only the memory that was
 * converted is different: convert_before_fork() takes a lock, under which no signal handler runs.
 */
static _Thread_local struct hca *forking __attribute__((tls_model("initial-exec")));

static void before_fork(void)
{
	forking = instance;
	if (forking)
		convert_before_fork(forking);
}

static void after_fork_in_parent(void)
{
	if (forking)
		convert_after_fork(forking);
}

static bool memory_replace(const void *at, size_t size, int kind)
{
	return mmap((void *)at, size, PROT_READ | PROT_WRITE,
		    kind | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Memory of the child's own in place of what it shares with its parent. RLIMIT_DATA may refuse
 * private memory, and doesn't count shared memory, which is as good. */
static void own_memory(const void *at, size_t size)
{
	if (!memory_replace(at, size, MAP_PRIVATE) && !memory_replace(at, size, MAP_SHARED))
		log_error("a forked child can't let go of its parent's memory: %s",
			  strerror(errno));
}

/* The descriptor's number stays in use, but now names an eventfd of the child's own. */
static void own_eventfd(int fd, int flags)
{
	int own = eventfd(0, flags);

	if (own < 0 || dup3(own, fd, O_CLOEXEC) < 0)
		sys_close(fd);
	if (own >= 0)
		sys_close(own);
}

static void let_go(int *fd)
{
	if (*fd >= 0)
		sys_close(*fd);
	*fd = -1;
}

static void leave_link_memory(struct link *link)
{
	if (link->memory)
		own_memory(link->memory, LINK_SIZE);
	if (link->peer)
		own_memory(link->peer, PUB_SIZE);
	if (link->regions)
		own_memory(link->regions, PUB_REGIONS_SIZE);
	let_go(&link->doorbell);
	let_go(&link->hear);
	peer_close(&link->process);
}

static void leave_link(struct link *link)
{
	lock_init(&link->tx_lock, RANK_LINK_TX);
	list_init(&link->node);
	list_init(&link->waiters);
	atomic_store(&link->has_waiters, false);
	atomic_store_explicit(&link->owing, NULL, memory_order_relaxed);
	link->can_vm = link->direct = false;
	mapped_leave(link);
	if (!link->self)
		leave_link_memory(link);
	link_forget_next(link);
	/* The memory stays mapped: no thread of the child gives it back. */
	atomic_store(&link->state, link->memory && !link->self ? LINK_ENDING : LINK_DOWN);
}

static void leave_queue(struct event_queue *queue)
{
	lock_init(&queue->lock, RANK_EVENT_QUEUE);
	list_init(&queue->events);
	own_eventfd(queue->fd, EFD_SEMAPHORE | (fcntl(queue->fd, F_GETFL) & O_NONBLOCK));
}

/* An object's public half. The child doesn't wait for events that the parent hasn't
 * acknowledged. */
static void leave_public(pthread_mutex_t *mutex, pthread_cond_t *cond)
{
	pthread_mutex_init(mutex, NULL);
	pthread_cond_init(cond, NULL);
}

static void leave_cq(struct cq *cq)
{
	lock_init(&cq->lock, RANK_CQ);
	leave_public(&cq->ibv.mutex, &cq->ibv.cond);
	cq->ibv.comp_events_completed = cq->comp_reported;
	cq->ibv.async_events_completed = cq->async_reported;
	atomic_store(&cq->tail, atomic_load(&cq->head));
	atomic_store_explicit(&cq->armed, CQ_UNARMED, memory_order_relaxed);
	lock_assume_alone(&cq->lock);
	cq->held_back = 0;
	list_init(&cq->moderated);
}

static void leave_srq(struct srq *srq)
{
	lock_init(&srq->lock, RANK_SRQ);
	leave_public(&srq->ibv.mutex, &srq->ibv.cond);
	srq->ibv.events_completed = srq->async_reported;
	list_init(&srq->waiters);
	atomic_store(&srq->has_waiters, 0);
}

static void leave_qp(struct qp *qp)
{
	lock_init(&qp->lock, RANK_QP);
	lock_init(&qp->builder.turn, RANK_QP_TURN);
	leave_public(&qp->ibv.mutex, &qp->ibv.cond);
	qp->ibv.events_completed = qp->async_reported;
	list_init(&qp->room_wait);
	list_init(&qp->tx_wait);
	list_init(&qp->active);
	atomic_store(&qp->is_active, false);
	list_init(&qp->srq_wait);
	if (qp->tagged)
		list_init(&qp->tagged->node);
	qp->wait_link = NULL;
	qp->starved = false;
	qp->carrier->leave(qp);
}

static void leave_channel(struct channel *channel)
{
	leave_queue(&channel->queue);
	mutex_init(&channel->first, RANK_CHANNEL_FIRST);
}

static void leave_context(struct context *context)
{
	daemon_leave(&context->conn);
	context->own_route = (struct own_route){0};
	leave_queue(&context->async);
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	for (unsigned int kind = 0; kind < HELD_KINDS; kind++)
		list_mend(&context->held[kind]);
	list_for_each(held, &context->held[HELD_CQ])
		leave_cq(container_of(held, struct cq, held));
	list_for_each(held, &context->held[HELD_SRQ])
		leave_srq(container_of(held, struct srq, held));
	list_for_each(held, &context->held[HELD_QP])
		leave_qp(container_of(held, struct qp, held));
	list_for_each(held, &context->held[HELD_CHANNEL])
		leave_channel(container_of(held, struct channel, held));
}

/* The parent's armed CQs aren't armed in the child (leave_cq()). */
static void leave_armed(struct pub_header *header)
{
	atomic_store_explicit(&header->armed_cqs, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < PUB_ARM_GROUPS; i++)
		atomic_store_explicit(&header->armed[i], 0, memory_order_relaxed);
}

static void leave_lists(struct hca *hca) REQUIRES(hca->active_lock) REQUIRES(hca->engine)
	REQUIRES(hca->windows_lock) REQUIRES(hca->moderated_lock)
{
	list_init(&hca->links);
	list_init(&hca->acks);
	list_init(&hca->tagged);
	list_init(&hca->rnr);
	list_init(&hca->dry);
	list_init(&hca->active);
	list_init(&hca->windows_ending);
	list_init(&hca->moderated);
	atomic_store(&hca->has_moderated, false);
	leave_armed(&hca->pub->header);
	atomic_store(&hca->prefetches, NULL);
	hca->prefetching = NULL;
	atomic_store(&hca->prefetch_count, 0);
	work_forget(&hca->control_work);
	work_forget(&hca->engine_work);
}

static void after_fork_in_child(void)
{
	struct hca *hca = forking;

	mutex_init(&instance_lock, RANK_INSTANCE);
	instance = NULL;
	forking = NULL;
	if (!hca)
		return;
	park_leave();
	convert_leave(hca);
	lock_forget_sleepers();
	hca_init_locks(hca);
	daemon_leave(&hca->conn);
	let_go(&hca->event_fd);
	if (atomic_load(&hca->roce_fd) >= 0)
		sys_close(atomic_exchange(&hca->roce_fd, -1));
	let_go(&hca->park_fd);
	let_go(&hca->table_fd);
	let_go(&hca->regions_fd);
	let_go(&hca->watch_fd);
	let_go(&hca->epoll);
	let_go(&hca->watchdog);
	return_leave(hca);
	roce_leave(hca);
	capture_leave(hca);
	membership_leave(hca->membership);
	segment_leave(hca);
	interface_leave(hca);
	own_eventfd(hca->doorbell, EFD_NONBLOCK);
	atomic_store_explicit(&hca->kicked, false, memory_order_relaxed);
	own_memory(hca->pub, PUB_SIZE);
	own_memory(hca->regions, PUB_REGIONS_SIZE);
	leave_lists(hca);
	xrc_here_leave(hca);
	hazard_leave(hca);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (atomic_load(&hca->link_by_slot[slot]))
			leave_link(atomic_load(&hca->link_by_slot[slot]));
	list_mend(&hca->contexts);
	list_for_each(node, &hca->contexts)
		leave_context(container_of(node, struct context, node));
}

/* Before the program's own handlers can be registered: so the children's handlers of the program
 * that call verbs run after ours. And not later, in hca_get(): a signal handler's fork() waits for
 * the C library's lock of the handlers' list. */
__attribute__((constructor)) static void process_watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Last, after the program's own handlers. A forked child has no instance; or its parent's, if it
 * ran no handlers (_Fork(), vfork()). */
__attribute__((destructor)) static void process_exits(void)
{
	struct hca *hca = instance;

	if (hca && instance_pid == getpid())
		exit_acknowledge(hca);
}

struct hca *hca_get(void)
{
	mutex_take(&instance_lock);
	if (!instance) {
		instance_pid = getpid();
		instance = hca_make();
	}
	struct hca *hca = instance;

	mutex_give(&instance_lock);
	return hca;
}
