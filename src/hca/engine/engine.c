/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine thread: what wakes it, and its round. lease.c says when it passes over the rings
 * itself and when a polling thread does.
 *
 * Blocking. The engine thread sleeps in epoll_pwait2() (epoll_wait()) only, without a lock; it
 * takes only locks under which no thread makes a call that may block (rank_check_blocking()); and
 * it makes no blocking call to the daemon: call.c refuses those on this thread (blocking_forbid()).
 * Its other system calls, and why none can wait for another process:
 *   read() of doorbell, watchdog, inotify    O_NONBLOCK; no other process has these descriptors
 *   write() of a doorbell of the same user   an eventfd, O_NONBLOCK
 *   write() of a channel's eventfd           waits at 2^64 - 2 events only
 *   timerfd_settime() (bells, watchdog)      never sleeps
 *   epoll_ctl()                              waits for other epoll_ctl() calls of this epoll only
 *   recvmsg(), recvmmsg()                    MSG_DONTWAIT (daemon_event_next(), net/receiver.c)
 *   sendmsg() of packets                     O_NONBLOCK; epoll reports when a full socket has room
 *   process_vm_*(), pread() of /proc/PID/mem may wait until a page of the peer's is read from its
 *                                            file, as any access to memory may; not for the peer
 *   pidfd_open(), open() of /proc/PID/mem, mmap(), munmap(), fallocate()
 *                                            when a link or a capture comes or goes: kernel memory
 *   close()                                  of eventfds, timerfds, memory files, pidfds: no linger
 *   futex()                                  the locks above
 */
#include "hca/engine/engine.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/blocking.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/lease.h"
#include "hca/engine/pass.h"
#include "hca/fabric/membership.h"
#include "hca/local/link.h"
#include "hca/local/link_idle.h"
#include "hca/local/link_part.h"
#include "hca/local/local_carrier.h"
#include "hca/process/books.h"
#include "hca/process/capture.h"
#include "hca/process/control.h"
#include "hca/process/hca.h"
#include "hca/process/park.h"
#include "hca/roce/interface.h"
#include "hca/roce/roce.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/xrc_follow.h"
#include "shm/bell.h"

uint64_t now_ns(void)
{
	return clock_ns();
}

void engine_kick(struct hca *hca)
{
	uint64_t one = 1;

	/* [N1], pairs with [N2]: what the engine thread is to look at, before this. A kick that the
	 * engine thread hasn't heard yet counts for this one as well. */
	if (atomic_exchange_explicit(&hca->kicked, true, memory_order_acq_rel))
		return;
	if (sys_write(hca->doorbell, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("engine's doorbell: %s", strerror(errno));
}

void engine_watch_qp_slow(struct qp *qp)
{
	struct hca *hca = qp->hca;

	lock_take(&hca->active_lock);
	bool first = list_empty(&hca->active);

	if (list_empty(&qp->active))
		list_add_tail(&hca->active, &qp->active);
	atomic_store(&qp->is_active, true);
	lock_give(&hca->active_lock);
	if (first)
		engine_kick(hca);
}

/* Flags in an event's data: the number below is the descriptor of a bell, or the index of a socket
 * of the sender's. */
#define BELL (1ull << 32)
#define ROOM (1ull << 33)
#define ENDED (1ull << 34)   /* no number: a peer's process has ended */
#define PACKETS (1ull << 35) /* no number: packets in a socket that was another process's */
#define FRAMES (1ull << 36)  /* no number: the interface of raw packets */

enum { PARTING_LOOK_NS = 1000000000, DEATH_LOOK_NS = 500000 };

/* The daemon has closed the event socket, unless another thread has returned to the next daemon
 * meanwhile. */
static void daemon_lost(struct hca *hca, uint32_t seen)
{
	mutex_take(&hca->events_lock);
	bool lost = hca->generation == seen;

	if (lost) {
		epoll_ctl(hca->epoll, EPOLL_CTL_DEL, hca->event_fd, NULL);
		hca->lost = true;
	}
	mutex_give(&hca->events_lock);
	if (!lost)
		return;
	capture_end_all(hca);
	log_info("verbenad is gone: connections go on; what needs a daemon starts the next one");
	return_seek(hca, link_any_request(hca)); /* the next daemon may be there already */
}

/* A device that is gone: its requests and receives have completed when the program hears of it. */
static void take_device_event(struct hca *hca, const struct proto_event *event)
{
	if (event->value == IBV_EVENT_DEVICE_FATAL) {
		async_remove_device(hca, event->slot);
		engine_fail_removed(hca);
	}
	async_device(hca, event->value, event->slot, event->port);
}

static void leave_to_control(struct hca *hca, enum control_work work)
{
	work_leave(&hca->control_work, work);
	control_wake(hca);
}

static void take_daemon_event(struct hca *hca, const struct proto_event *event, int *fds)
{
	if (event->type == PROTO_EVENT_LINK_DOWN && event->slot < LIMIT_SLOTS)
		link_down(hca, event->slot, event->link_id);
	else if (event->type == PROTO_EVENT_DEVICE)
		take_device_event(hca, event);
	else if (event->type == PROTO_EVENT_CAPTURE)
		capture_begin(hca, event, fds);
	else if (event->type == PROTO_EVENT_CAPTURE_END)
		capture_end(hca, event->link_id);
	else if (event->type == PROTO_EVENT_ALTERNATE)
		leave_to_control(hca, CONTROL_ALTERNATE);
	else if (event->type == PROTO_EVENT_XRC)
		xrc_event(hca, (uint32_t)event->link_id, event->slot, event->value);
}

/* Handles the daemon's events. Returns -EAGAIN when there are no more, another -errno when the
 * daemon is gone. A link's event is read and handled under events_lock: see hca.links_named. */
static int take_events(struct hca *hca)
{
	struct proto_event event;
	int fds[PROTO_MAX_FDS];

	for (;;) {
		mutex_take(&hca->events_lock);
		int err = daemon_event_next(hca->event_fd, &event, fds);
		bool link = !err && event.type == PROTO_EVENT_LINK && event.slot < LIMIT_SLOTS;

		if (link)
			link_install(hca, &event, fds);
		mutex_give(&hca->events_lock);
		if (err)
			return err;
		if (!link)
			take_daemon_event(hca, &event, fds);
	}
}

void engine_first_events(struct hca *hca)
{
	take_events(hca);
}

/* The doorbell has been read empty: the next kick has to write again. */
static void kick_heard(struct hca *hca)
{
	/* [N2], pairs with [N1]: before the look at the work */
	atomic_exchange_explicit(&hca->kicked, false, memory_order_acq_rel);
}

/* The descriptor of our doorbell is readable. */
static void doorbell_heard(struct hca *hca)
{
	uint64_t count;

	if (sys_read(hca->doorbell, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("engine's doorbell: %s", strerror(errno));
	kick_heard(hca);
}

/* The daemon's event socket is readable: links, their ends, asynchronous events. */
static void daemon_events(struct hca *hca)
{
	mutex_take(&hca->events_lock);
	uint32_t seen = hca->generation;

	mutex_give(&hca->events_lock);
	if (take_events(hca) != -EAGAIN)
		daemon_lost(hca, seen);
}

/* The connection to verbena-fabric is readable: events of the node's ports. */
static void fabric_events(struct hca *hca)
{
	struct proto_fabric_event event;
	int result;

	while (!(result = membership_next(hca->membership, &event)))
		async_device(hca, event.event, 0, (int)event.port);
	if (result == -EPIPE)
		log_info("verbena-fabric is gone: data goes the ways that it went");
}

/* When to look whether verbena-fabric runs again. */
static uint64_t scan_fabric(struct hca *hca)
{
	uint64_t next = UINT64_MAX;

	if (membership_due(hca->membership, now_ns(), &next))
		leave_to_control(hca, CONTROL_FABRIC);
	return next;
}

static uint64_t scan_timers(struct hca *hca)
{
	uint64_t now = now_ns();

	pace_look(hca, now);
	uint64_t next = qp_timers_scan(hca, now);

	uint64_t rnr = UINT64_MAX;

	/* Pollers hold the engine's lock most of the time, so it is taken only if needed. */
	if (unlikely(atomic_load(&hca->has_rnr))) {
		lock_take(&hca->engine);
		rnr = local_scan_receivers(hca, now);
		lock_give(&hca->engine);
	}
	uint64_t roce = hca->roce ? roce_scan(hca->roce, now) : UINT64_MAX;
	uint64_t idle = link_idle_scan(hca);
	uint64_t events = cq_moderation_scan(hca, now);

	uint64_t fabric = hca->membership ? scan_fabric(hca) : UINT64_MAX;

	if (rnr < next)
		next = rnr;
	if (fabric < next)
		next = fabric;
	if (idle < next)
		next = idle;
	if (events < next)
		next = events;
	return roce < next ? roce : next;
}

/* epoll_pwait2(), or epoll_wait() where the kernel has no epoll_pwait2(): kernels before 5.11,
 * system call filters, valgrind. `limit` is NULL for no limit. Engine thread only. */
static int wait_for_events(int epoll, struct epoll_event *events, int max,
			   const struct timespec *limit)
{
	static bool unknown;

	if (likely(!unknown)) {
		int n = epoll_pwait2(epoll, events, max, limit, NULL);

		unknown = n < 0 && (errno == ENOSYS || errno == EPERM);
		if (!unknown)
			return n;
	}
	if (!limit)
		return epoll_wait(epoll, events, max, -1);
	/* Rounded up: waking too early would find nothing due, repeatedly. */
	uint64_t ms = limit->tv_sec * 1000ull + (limit->tv_nsec + 999999) / 1000000;

	return epoll_wait(epoll, events, max, ms < INT_MAX ? (int)ms : INT_MAX);
}

/* Blocks until an event comes, or until `until` (ns of CLOCK_MONOTONIC; UINT64_MAX: no limit). */
static void sleep_until(struct hca *hca, int epoll, uint64_t until)
	REQUIRES(park_working[PARK_ENGINE])
{
	struct epoll_event events[4];
	struct timespec timeout, *limit = NULL;
	uint64_t count;

	if (until != UINT64_MAX) {
		uint64_t now = now_ns(), left = until > now ? until - now : 0;

		timeout = (struct timespec){left / 1000000000ull, left % 1000000000ull};
		limit = &timeout;
	}
	park_rest(PARK_ENGINE);
	int n = wait_for_events(epoll, events, 4, limit);

	park_work(PARK_ENGINE);

	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 & BELL)
			bell_quiet(events[i].data.fd); /* the next pass looks at the rings */
		else if (events[i].data.u64 & ROOM)
			roce_writable(hca->roce, (uint32_t)events[i].data.u64);
		else if (events[i].data.u64 & PACKETS)
			roce_woken(hca->roce);
		else if (events[i].data.u64 & ENDED)
			work_leave(&hca->engine_work, ENGINE_DEATHS);
		else if (events[i].data.u64 & FRAMES)
			interface_heard(hca);
		else if (events[i].data.fd == hca->event_fd)
			daemon_events(hca);
		else if (hca->roce && events[i].data.fd == hca->roce_fd)
			roce_woken(hca->roce);
		else if (events[i].data.fd == hca->watchdog)
			hca->watch_due = sys_read(hca->watchdog, &count, sizeof(count)) > 0;
		else if (hca->membership && events[i].data.fd == membership_socket(hca->membership))
			fabric_events(hca);
		else if (events[i].data.fd != hca->doorbell)
			return_watched(hca);
		else
			doorbell_heard(hca);
	}
}

uint64_t engine_round(struct hca *hca, uint32_t *seen)
{
	link_take_refusals(hca);
	engine_wake_unlisted(hca);
	engine_fail_overrun(hca);
	link_hear_ended(hca);
	bool polled = engine_serve(hca, seen);
	uint64_t next = scan_timers(hca);

	link_reap(hca);
	/* The lease has ended in this round: its holder's timers are this thread's now, so once
	 * more. */
	if (polled && engine_asleep(hca))
		return 0;
	/* Poll for links that link_reap() found in use: their users don't report that they have
	 * finished. */
	uint64_t again = UINT64_MAX;

	if (unlikely(work_is_left(&hca->engine_work, ENGINE_DEATHS)))
		again = now_ns() + DEATH_LOOK_NS;
	else if (unlikely(link_parts_unwatched(hca)))
		again = now_ns() + PARTING_LOOK_NS;
	return pace_sleep(hca, again < next ? again : next);
}

static void *engine_thread(void *arg)
{
	struct hca *hca = arg;
	int epoll = hca->epoll;
	uint32_t seen = 0;

	park_join(PARK_ENGINE);
	blocking_forbid();
	lock_never_own();
	/* Messages that are held back for their time are released by timers. */
	if (hca->membership && hca->membership->clocks.slow)
		prctl(PR_SET_TIMERSLACK, 1);
	int err = life_begin(&hca->pub->header.life); /* before any link is installed */

	if (err)
		log_error("peers won't learn of this process's end: %s", strerror(-err));
	park_work(PARK_ENGINE);
	while (!atomic_load(&hca->stop))
		sleep_until(hca, epoll, engine_round(hca, &seen));
	park_rest(PARK_ENGINE);
	return NULL;
}

bool engine_await_packets(struct hca *hca, int fd)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = PACKETS};

	return hca->epoll >= 0 && (epoll_ctl(hca->epoll, EPOLL_CTL_MOD, fd, &e) == 0 ||
				   epoll_ctl(hca->epoll, EPOLL_CTL_ADD, fd, &e) == 0);
}

bool engine_await_room(struct hca *hca, int fd, unsigned int socket)
{
	struct epoll_event e = {.events = EPOLLOUT | EPOLLONESHOT, .data.u64 = ROOM | socket};

	/* Room that is there already is reported as well: EPOLLOUT is level-triggered. */
	if (epoll_ctl(hca->epoll, EPOLL_CTL_MOD, fd, &e) == 0 ||
	    epoll_ctl(hca->epoll, EPOLL_CTL_ADD, fd, &e) == 0)
		return true;
	log_error("engine: epoll can't wait for room in a socket (%s); its packets are sent again "
		  "after a timeout",
		  strerror(errno));
	return false;
}

bool engine_hear_frames(struct hca *hca, int fd)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = FRAMES};

	return epoll_ctl(hca->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

void engine_hear(struct hca *hca, int bell)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = BELL | (uint32_t)bell};

	/* Before engine_start() there is no epoll; engine_start() adds all bells that exist by
	 * then. */
	if (hca->epoll >= 0 && epoll_ctl(hca->epoll, EPOLL_CTL_ADD, bell, &e) < 0)
		log_error("a peer of another user won't wake this process: %s", strerror(errno));
}

bool engine_await_end(struct hca *hca, int fd)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = ENDED};

	return hca->epoll >= 0 && epoll_ctl(hca->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

void engine_unhear(struct hca *hca, int bell)
{
	epoll_ctl(hca->epoll, EPOLL_CTL_DEL, bell, NULL);
}

static void hear_first(struct hca *hca) REQUIRES(hca->engine)
{
	list_for_each(node, &hca->links) {
		const struct link *link = container_of(node, struct link, node);

		if (link->hear >= 0)
			engine_hear(hca, link->hear);
	}
}

static int watch_fd(int epoll, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data = engine_descriptor(fd)};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

void engine_hear_fabric(struct hca *hca)
{
	if (watch_fd(hca->epoll, membership_socket(hca->membership)) < 0)
		log_error("events of the fabric's ports won't come: %s", strerror(errno));
}

int engine_start(struct hca *hca)
{
	sigset_t all, old;
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll < 0)
		return -errno;
	hca->watchdog = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (hca->watchdog < 0 || watch_fd(epoll, hca->watchdog) < 0 ||
	    watch_fd(epoll, hca->doorbell) < 0 || watch_fd(epoll, hca->event_fd) < 0) {
		int err = -errno;

		sys_close(epoll);
		return err;
	}
	int err = hca->roce ? roce_join(hca->roce, epoll) : 0;

	if (err) {
		sys_close(epoll);
		return err;
	}
	hca->watch_due = false;
	hca->epoll = epoll;
	if (hca->membership)
		engine_hear_fabric(hca);
	lock_assume_alone(&hca->engine); /* its thread begins below */
	hear_first(hca);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* guard.h */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's handlers stay on its threads */
	err = pthread_create(&hca->thread, NULL, engine_thread, hca);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		sys_close(epoll);
		return -err;
	}
	pthread_setname_np(hca->thread, "verbena-engine");
	return 0;
}
