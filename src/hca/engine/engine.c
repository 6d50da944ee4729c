/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: which thread makes progress, and when.
 *
 * Work arrives in the rings of the links. Any thread that holds hca.engine may drain them. A thread
 * that polls an empty CQ does so (engine_poll) and gets its message without a wake-up. While no
 * thread polls, the engine thread does it, asleep in epoll until a peer rings the doorbell.
 *
 * The lease. pub->header.asleep says whether peers have to ring:
 *   asleep = 1   No thread polls. Peers ring the doorbell after each batch [S1]; the engine thread
 *                sleeps until the doorbell or the next timer.
 *   asleep = 0   Some thread polls without pause and periodically re-arms the watchdog (a timer) to
 *                WATCH_NS. The engine thread isn't woken meanwhile: a wake-up costs the program
 *                more than the re-arming. When the watchdog expires, the engine thread checks
 *                whether hca.polls has moved since its last expiry; if it hasn't, the engine thread
 *                sets asleep = 1 and drains once more.
 * After setting asleep, a thread executes a full fence and then looks at all rings; a peer stores
 * its record, fences, then reads asleep. One of the two sees the other's store, so no record waits
 * unseen. [S2]
 *
 * Armed CQs. A program that has armed a CQ may block in an epoll of its own, and the thread that
 * has the lease may stop polling at any moment; neither tells the engine. The invariant: a record
 * that completes to an armed CQ raises the event without a poller's help, after the wake-up of one
 * doorbell. The thread that arms counts the CQ in the published table before engine_release() [S2].
 * So it finds the record in the ring, or the peer finds the CQ armed, whatever `asleep` says then,
 * and rings (struct pub_header). The engine thread, once woken, passes beside the poller
 * (engine_attend()). Records to other QPs ring no doorbell under a lease. Polls of an armed CQ take
 * no lease, because their program is likely to block soon.
 *
 * Packets may be for any QP, so their socket isn't left to a poller while a CQ is armed:
 * engine_attend() and engine_release() end with roce_arm(). roce_woken() makes the socket hot
 * before the engine thread looks at the armed CQs [S3], so it finds the CQ, or the roce_arm() of
 * the thread that arms comes after. Nor is other work of this process (room in a ring, QPs that are
 * ready to send) left to a poller then: engine_wants_kicks().
 *
 * Acknowledgements wait for a record to travel with only under a lease (the polling thread, or the
 * engine thread when it takes over, flushes them at its next pass). Without a lease they are sent
 * before the engine's lock is released (engine_leave).
 *
 * A poller that has found YIELD_AFTER rings empty in a row yields the processor, so that two
 * processes on one core take turns quickly. Among many processes that is not enough: a few yielding
 * processes can keep one that has work to do from its core for seconds (seen with verbenad, Linux
 * 6.18). So a poller that has found nothing for PATIENCE_NS gives the lease back and sleeps between
 * its polls for 1/NAP_PART of the time that it has waited already (NAP_MAX_NS at most); peers ring,
 * and the engine thread takes what comes. What ends the waiting, the signs of work, is in
 * engine.h.
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
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/blocking.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/local/link.h"
#include "hca/local/link_idle.h"
#include "hca/local/local_carrier.h"
#include "hca/local/local_conn.h"
#include "hca/process/books.h"
#include "hca/process/capture.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "shm/bell.h"

enum {
	ROUNDS = 1024, /* passes before the engine thread looks at the daemon and the timers */
	BATCH = 64,    /* records of a link in one pass: bounds how long the lock is held */
	RING_PASSES = RING_SLOTS / BATCH, /* these take every record that is in a ring before */
	ROCE_LOOKS = 8,	  /* how many rings a look at the socket counts as, by the time it takes */
	LEASE_AFTER = 16, /* consecutive empty rings before a polling thread takes the lease */
	LEASE_FOUND = 8,  /* or polls that did what the engine thread would have been woken for */
	YIELD_AFTER =
		256,	 /* consecutive empty rings: some microseconds, longer than a round trip */
	WARM_NS = 60000, /* how long the engine thread stays awake: as long as waking it takes */
	WATCH_NS = 500000,     /* the watchdog's period */
	PET_NS = 150000,       /* the lease's holder re-arms the watchdog after this time */
	PET_POLLS = 8,	       /* polls between two looks at the clock, unless polls take long */
	PATIENCE_NS = 1000000, /* of empty polls, before the poller naps */
	NAP_PART = 16,
	NAP_MAX_NS = 2000000,
};

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

void engine_leave(struct hca *hca)
{
	if (unlikely(!list_empty(&hca->acks)) && engine_asleep(hca))
		local_flush_acks(hca);
	lock_give(&hca->engine);
}

static unsigned int link_drain(struct hca *hca, struct link *link) REQUIRES(hca->engine)
{
	struct ring_header h;
	const uint8_t *payload;
	uint32_t room;
	int error = 0;
	unsigned int n = 0;

	while (n < BATCH && (payload = ring_peek(&link->rx, &h, &room, &error))) {
		local_take_record(hca, link, &h, payload, room);
		ring_pop(&link->rx, &h);
		n++;
	}
	if (unlikely(error)) {
		log_error("process %d wrote nonsense into its ring; link given up", link->pid);
		link_break(link);
	}
	if (n && ring_publish_lazily(&link->rx)) {
		hca->filled = true;
		link_notify(link); /* a peer that polls looks at its waiters in its passes */
	}
	return n;
}

void engine_drain(struct hca *hca, struct link *link)
{
	lock_take(&hca->engine);
	for (unsigned int n = 0; n < RING_SLOTS && link_is(link, LINK_UP) && ring_ready(&link->rx);)
		n += link_drain(hca, link);
	engine_leave(hca);
}

void engine_take_in(struct hca *hca)
{
	lock_take(&hca->engine);
	roce_take_in(hca->roce);
	engine_leave(hca);
}

static bool cq_overran(const struct qp *qp)
{
	return atomic_load(&cq_of(qp->ibv.send_cq)->overrun) ||
	       atomic_load(&cq_of(qp->ibv.recv_cq)->overrun);
}

/* Fails the QPs of a link whose peer broke the ring's rules or, if `link` is NULL, the QPs of CQs
 * that overran. hca.engine is held. */
static void fail_qps(struct hca *hca, const struct link *link)
{
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++) {
		struct qp *qp = hca->qps[i];

		if (!qp)
			continue;
		lock_take(&qp->lock);
		if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR &&
		    (link ? local_link_of(qp) == link : cq_overran(qp))) {
			log_warn("QP 0x%x fails: %s", qp->ibv.qp_num,
				 link ? "its peer broke the rules of their link"
				      : "a CQ that it completes to has overrun");
			qp_fail(qp, IBV_EVENT_QP_FATAL);
		}
		lock_give(&qp->lock);
	}
}

static void fail_overrun(struct hca *hca)
{
	if (!work_take(&hca->engine_work, ENGINE_OVERRUNS))
		return;
	lock_take(&hca->engine);
	fail_qps(hca, NULL);
	lock_give(&hca->engine);
}

/* Resumes every QP that waited for the link. QPs that must wait again re-enter the list. */
static void wake_waiters(struct link *link)
{
	struct list batch, *node;

	atomic_store(&link->has_waiters, false);
	if (unlikely(atomic_load_explicit(&link->tx.broken, memory_order_relaxed) &&
		     link_is(link, LINK_UP))) {
		log_error("process %d claims to have read what wasn't written; link given up",
			  link->pid);
		link_break(link);
	}
	if (link_pending(link) || (link_is(link, LINK_UP) && !link_flush_backlog(link))) {
		atomic_store(&link->has_waiters, true);
		return;
	}
	list_init(&batch);
	lock_take(&link->tx_lock);
	if (link_is(link, LINK_UP)) /* its memory then stays while hca.engine is held */
		ring_retry(&link->tx);
	while ((node = list_pop(&link->waiters)))
		list_add_tail(&batch, node);
	node = list_pop(&batch);
	lock_give(&link->tx_lock);
	while (node) {
		struct qp *qp = container_of(node, struct qp, tx_wait);

		lock_take(&qp->lock);
		qp->carrier->resume(qp);
		lock_give(&qp->lock);
		lock_take(&link->tx_lock);
		node = list_pop(&batch);
		lock_give(&link->tx_lock);
	}
}

/* One pass over the rings of all links. hca.engine is held. Returns the number of records handled;
 * adds the number of rings looked at to *looked. */
static unsigned int engine_pass_links(struct hca *hca, unsigned int *looked) REQUIRES(hca->engine)
{
	unsigned int n = 0;

	if (unlikely(!list_empty(&hca->acks)))
		local_flush_acks(hca);
	list_for_each(node, &hca->links) {
		struct link *link = container_of(node, struct link, node);

		++*looked;
		if (unlikely(atomic_load_explicit(&link->has_waiters, memory_order_relaxed)))
			wake_waiters(link);
		if (unlikely(!link_is(link, LINK_UP))) {
			list_del(&link->node);
			if (atomic_load(&link->broken))
				fail_qps(hca, link);
			continue;
		}
		if (ring_ready(&link->rx))
			n += link_drain(hca, link);
	}
	if (unlikely(hca->roce && roce_busy(hca->roce))) {
		n += roce_pass(hca->roce);
		*looked += ROCE_LOOKS;
	}
	if (n)
		atomic_store_explicit(&hca->handled,
				      atomic_load_explicit(&hca->handled, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	return n;
}

/* Whether to stay awake after an empty pass. A peer had filled its ring, so its next records are
 * likely to come soon; if this thread slept, the peer would wait until it has fallen asleep and
 * woken. *since is when the empty passes began (ns; 0: with this one). */
static bool is_warm(const struct hca *hca, uint64_t *since) REQUIRES(hca->engine)
{
	if (likely(!hca->filled))
		return false;
	uint64_t now = now_ns();

	if (!*since)
		*since = now;
	return now - *since < WARM_NS;
}

/* Passes until the rings are empty. False: `most` passes were made and there may be more. */
static bool pass_until_idle(struct hca *hca, unsigned int most)
{
	unsigned int looked = 0;
	uint64_t since = 0;

	for (unsigned int passes = 0; passes < most; passes++) {
		lock_take(&hca->engine);
		hca->filled = hca->filled && passes;
		unsigned int n = engine_pass_links(hca, &looked);
		bool found_none = !n;

		n += !list_empty(&hca->acks);
		n += hca->roce && (roce_warm(hca->roce) || roce_ready(hca->roce));
		if (!found_none)
			since = 0;
		n += found_none && is_warm(hca, &since);
		lock_give(&hca->engine);
		if (!n)
			return true;
		if (found_none)
			sched_yield();
	}
	return false;
}

/* Passes until the rings are empty, and for at most ROUNDS passes: the daemon's events and the
 * timers need their turn. */
static void pass_all(struct hca *hca)
{
	if (!pass_until_idle(hca, ROUNDS))
		engine_kick(hca);
}

/* What a thread remembers from poll to poll. */
struct poller {
	unsigned int empty;	/* consecutive empty rings */
	unsigned int found;	/* polls that found something while no thread had the lease */
	unsigned int handled;	/* hca.handled when the waiting began */
	uint32_t taken;		/* cq_taken when the waiting began */
	uint32_t touches;	/* engine_touches() when the thread was last about to nap */
	uint64_t since;		/* ns, when the waiting began; 0: it has not */
	unsigned int unclocked; /* polls since it looked at the clock */
	bool slow;		/* polls take long: look at the clock with the next one again */
	uint64_t clocked;	/* ns, when it looked at the clock */
	uint64_t petted;	/* ns, when it re-armed the watchdog */
	bool napping;
};

/* initial-exec: one instruction instead of a call for each poll */
static _Thread_local struct poller poller __attribute__((tls_model("initial-exec")));

/* Ends the lease. True: its holder was to look at the timers of roce. */
static bool end_lease(struct hca *hca)
{
	poller.found = poller.empty = 0; /* this thread earns the next lease by polling anew */
	atomic_store_explicit(&hca->pub->header.asleep, 1, memory_order_relaxed);
	/* [S2], pairs with [S1], [S3] and [A1]: asleep, and the CQ that the caller has armed,
	 * before the look at the rings and at the waiting QPs */
	atomic_thread_fence(memory_order_seq_cst);
	pass_all(hca);
	return hca->roce && roce_arm(hca->roce);
}

void engine_release(struct hca *hca)
{
	/* The next poller doesn't look at them: the socket is cold. */
	if (end_lease(hca))
		engine_kick(hca);
}

/* The number of peers' writes straight into this process's memory. A link that comes or goes
 * changes it, too. */
static uint32_t engine_touches(struct hca *hca)
{
	uint32_t sum = 0;

	lock_take(&hca->engine);
	list_for_each(node, &hca->links) {
		const struct link *link = container_of(node, struct link, node);

		if (link_is(link, LINK_UP)) /* its memory then stays while hca.engine is held */
			sum += link_touches(link);
	}
	engine_leave(hca);
	return sum;
}

/* Whether a record was handled, or this thread polled a completion, since the last call. */
static bool poller_progressed(const struct hca *hca, struct poller *p)
{
	unsigned int handled = atomic_load_explicit(&hca->handled, memory_order_relaxed);
	bool progressed = p->handled != handled || p->taken != cq_taken;

	p->handled = handled;
	p->taken = cq_taken;
	return progressed;
}

/* Whether peers have written straight into this process's memory since the last call. */
static bool poller_touched(struct hca *hca, struct poller *p)
{
	uint32_t touches = engine_touches(hca);
	bool touched = p->touches != touches;

	p->touches = touches;
	return touched;
}

/* Yields the processor, or naps if the thread has waited for longer than PATIENCE_NS. */
static void give_way(struct hca *hca, struct poller *p)
{
	uint64_t now = now_ns();

	if (poller_progressed(hca, p) || !p->since)
		p->since = now;
	if (unlikely(now - p->since > PATIENCE_NS) && poller_touched(hca, p))
		p->since = now;
	uint64_t waited = now - p->since;

	p->napping = waited > PATIENCE_NS;
	if (!p->napping) {
		sched_yield();
		return;
	}
	uint64_t nap = waited / NAP_PART < NAP_MAX_NS ? waited / NAP_PART : NAP_MAX_NS;

	if (!atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed))
		engine_release(hca);
	sys_nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
}

/* For a thread that naps between polls: the engine thread may have handled what it waits for. If
 * that came soon, what follows is likely to come soon as well, so the thread polls without naps
 * again. */
static void look_up(const struct hca *hca, struct poller *p)
{
	if (!poller_progressed(hca, p))
		return;
	uint64_t now = now_ns();

	p->napping = now - p->since > PATIENCE_NS;
	p->since = now;
}

/* Arms the watchdog: it expires in WATCH_NS unless it is armed again before. */
static void watchdog_set(const struct hca *hca)
{
	const struct itimerspec in = {.it_value.tv_nsec = WATCH_NS};

	if (timerfd_settime(hca->watchdog, 0, &in, NULL) < 0)
		log_error("engine's watchdog: %s", strerror(errno));
}

/* Called by the lease's holder as it polls: re-arms the watchdog every PET_NS. */
static void watchdog_pet(const struct hca *hca, struct poller *p)
{
	uint64_t now = now_ns();

	p->unclocked = 0;
	p->slow = now - p->clocked > PET_NS / 2;
	p->clocked = now;
	if (now - p->petted < PET_NS)
		return;
	p->petted = now;
	watchdog_set(hca);
}

static void take_lease(struct hca *hca, struct poller *p)
{
	atomic_store_explicit(&hca->pub->header.asleep, 0, memory_order_relaxed);
	if (unlikely(hca->watchdog < 0))
		return; /* there is no watchdog: a forked child, or no engine thread */
	p->petted = now_ns();
	watchdog_set(hca);
}

void engine_poll(struct hca *hca, bool armed)
{
	struct poller *p = &poller;
	unsigned int n = 0, looked = 1;

	if (likely(lock_try(&hca->engine))) {
		n = engine_pass_links(hca, &looked);
		engine_leave(hca);
	}
	atomic_store_explicit(&hca->polls,
			      atomic_load_explicit(&hca->polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	bool asleep = atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed);

	if (unlikely(++p->unclocked >= PET_POLLS || p->slow) && !asleep &&
	    likely(hca->watchdog >= 0))
		watchdog_pet(hca, p);
	if (n) {
		p->empty = 0;
		p->since = 0;
		p->napping = false;
		if (unlikely(asleep && !armed) && ++p->found > LEASE_FOUND) {
			p->found = 0;
			take_lease(hca, p);
		}
		return;
	}
	p->empty += looked;
	if (unlikely(p->napping))
		look_up(hca, p);

	if (unlikely(asleep && !armed && p->empty > LEASE_AFTER && !p->napping))
		take_lease(hca, p);
	if (unlikely(p->empty >= YIELD_AFTER)) {
		p->empty = LEASE_AFTER + 1;
		give_way(hca, p);
	}
}

/* ------------------------------------------------------------------ the engine thread */

/* Flags in an event's data: the number below is the descriptor of a bell, or the index of a socket
 * of the sender's. */
#define BELL (1ull << 32)
#define ROOM (1ull << 33)

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
	return_seek(hca, link_any_wished(hca)); /* the next daemon may be there already */
}

/* Handles the daemon's events. Returns -EAGAIN when there are no more, another -errno when the
 * daemon is gone. */
static int take_events(struct hca *hca)
{
	struct proto_event event;
	int fds[PROTO_MAX_FDS], err;

	while ((err = daemon_event_next(hca->event_fd, &event, fds)) == 0) {
		if (event.type == PROTO_EVENT_LINK && event.slot < LIMIT_SLOTS)
			link_install(hca, &event, fds);
		else if (event.type == PROTO_EVENT_LINK_DOWN && event.slot < LIMIT_SLOTS)
			link_down(hca, event.slot, event.link_id);
		else if (event.type == PROTO_EVENT_DEVICE)
			async_device(hca, event.value, event.slot, event.port);
		else if (event.type == PROTO_EVENT_CAPTURE)
			capture_begin(hca, &event, fds);
		else if (event.type == PROTO_EVENT_CAPTURE_END)
			capture_end(hca, event.link_id);
	}
	return err;
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

/* Resumes the QPs that wait for links which aren't on hca.links (they went down), so that no pass
 * looks at them. Waiters of a link that is still to come up keep waiting. */
static void wake_unlisted(struct hca *hca)
{
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (!link || link_pending(link) || !atomic_load(&link->has_waiters))
			continue;
		lock_take(&hca->engine);
		wake_waiters(link);
		lock_give(&hca->engine);
	}
}

static uint64_t scan_timers(struct hca *hca)
{
	uint64_t now = now_ns();
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

	if (rnr < next)
		next = rnr;
	if (idle < next)
		next = idle;
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
{
	struct epoll_event events[4];
	struct timespec timeout, *limit = NULL;
	uint64_t count;

	if (until != UINT64_MAX) {
		uint64_t now = now_ns(), left = until > now ? until - now : 0;

		timeout = (struct timespec){left / 1000000000ull, left % 1000000000ull};
		limit = &timeout;
	}
	int n = wait_for_events(epoll, events, 4, limit);

	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 & BELL)
			bell_quiet(events[i].data.fd); /* the next pass looks at the rings */
		else if (events[i].data.u64 & ROOM)
			roce_writable(hca->roce, (uint32_t)events[i].data.u64);
		else if (events[i].data.fd == hca->event_fd)
			daemon_events(hca);
		else if (hca->roce && events[i].data.fd == hca->roce_fd)
			roce_woken(hca->roce);
		else if (events[i].data.fd == hca->watchdog)
			hca->watch_due = sys_read(hca->watchdog, &count, sizeof(count)) > 0;
		else if (events[i].data.fd != hca->doorbell)
			return_watched(hca);
		else
			doorbell_heard(hca);
	}
}

/* The watchdog has expired. False: no thread has polled since its last expiry, and the lease has
 * been ended. */
static bool still_polled(struct hca *hca, uint32_t *seen)
{
	uint32_t polls = atomic_load_explicit(&hca->polls, memory_order_relaxed);
	bool moved = polls != *seen;

	*seen = polls;
	if (!moved)
		end_lease(hca);
	bool polled = !engine_asleep(hca);

	if (hca->watchdog >= 0) {
		hca->watch_due = false;
		if (polled)
			watchdog_set(hca);
	}
	return polled;
}

/* Whether some CQ is armed. */
static bool owes_events(const struct hca *hca)
{
	if (hca->roce)
		/* [S3], pairs with [S2]: roce.hot, by roce_woken(), before the look at the CQs */
		atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&hca->pub->header.armed_cqs, memory_order_relaxed);
}

/* A thread polls, but a CQ is armed: what this thread was woken for may be a record that completes
 * to it. What comes into the rings meanwhile is the poller's, or rings again. */
static void engine_attend(struct hca *hca)
{
	bool packets = hca->roce && atomic_load_explicit(&hca->roce->hot, memory_order_relaxed);

	if (packets) {
		pass_all(hca);
		roce_arm(hca->roce);
	} else {
		pass_until_idle(hca, RING_PASSES);
	}
}

/* Passes over the rings, unless that is left to a poller. Returns whether a thread polls. */
static bool engine_serve(struct hca *hca, uint32_t *seen)
{
	if (engine_asleep(hca)) {
		end_lease(hca);
		return false;
	}
	bool polled = !hca->watch_due || still_polled(hca, seen);

	if (polled && owes_events(hca))
		engine_attend(hca);
	return polled;
}

uint64_t engine_round(struct hca *hca, uint32_t *seen)
{
	link_take_refusals(hca);
	wake_unlisted(hca);
	fail_overrun(hca);
	bool polled = engine_serve(hca, seen);
	uint64_t next = scan_timers(hca);

	link_reap(hca);
	/* The lease has ended in this round: its holder's timers are this thread's now, so once
	 * more. */
	if (polled && engine_asleep(hca))
		return 0;
	/* Poll for links that link_reap() found in use: their users don't report that they have
	 * finished. */
	uint64_t again =
		work_is_left(&hca->engine_work, ENGINE_DEATHS) ? now_ns() + WATCH_NS : UINT64_MAX;

	return again < next ? again : next;
}

static void *engine_thread(void *arg)
{
	struct hca *hca = arg;
	int epoll = hca->epoll;
	uint32_t seen = 0;
	blocking_forbid();
	int err = life_begin(&hca->pub->header.life); /* before any link is installed */

	if (err)
		log_error("peers won't learn of this process's end: %s", strerror(-err));

	while (!atomic_load(&hca->stop))
		sleep_until(hca, epoll, engine_round(hca, &seen));
	return NULL;
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

void engine_hear(struct hca *hca, int bell)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = BELL | (uint32_t)bell};

	/* Before engine_start() there is no epoll; engine_start() adds all bells that exist by
	 * then. */
	if (hca->epoll >= 0 && epoll_ctl(hca->epoll, EPOLL_CTL_ADD, bell, &e) < 0)
		log_error("a peer of another user won't wake this process: %s", strerror(errno));
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
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
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
	hca->watch_due = false;
	hca->epoll = epoll;
	lock_assume_alone(&hca->engine); /* its thread begins below */
	hear_first(hca);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* guard.h */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's handlers stay on its threads */
	int err = pthread_create(&hca->thread, NULL, engine_thread, hca);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		sys_close(epoll);
		return -err;
	}
	pthread_setname_np(hca->thread, "verbena-engine");
	return 0;
}
