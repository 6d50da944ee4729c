/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for rsockets. See rs.h.
 *
 * A waiting thread first polls for some microseconds (polling_time), then arms the completion
 * queue, polls once more, and sleeps in poll(): on the event channel, the completion channel, and
 * the thread's own eventfd, by which another thread that takes completions or events wakes it. The
 * sleep is bounded by wake_up_interval, as in verbena-rsocket(7).
 *
 * A thread may be cancelled while it sleeps, and only there: it then leaves the list of waiters,
 * and no lock stays taken. All other code calls base/sys.h; calls to librdmacm and libibverbs that
 * are cancellation points are made with cancellation disabled (rs_cancel_off()).
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "rsocket/rs.h"

/* ------------------------------------------------------------------ waiters */

static pthread_key_t event_key;
static pthread_once_t event_once = PTHREAD_ONCE_INIT;

static void close_event(void *value)
{
	sys_close((int)(intptr_t)value - 1);
}

static void make_key(void)
{
	pthread_key_create(&event_key, close_event);
}

/* Returns this thread's eventfd, or -errno. */
static int own_event(void)
{
	pthread_once(&event_once, make_key);
	intptr_t value = (intptr_t)pthread_getspecific(event_key);

	if (value)
		return (int)value - 1;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	pthread_setspecific(event_key, (void *)(intptr_t)(fd + 1));
	return fd;
}

void rs_wake(struct rs *rs)
{
	list_for_each(node, &rs->waiters) {
		uint64_t one = 1;

		/* The write can't fail: the counter is far from its maximum. */
		if (sys_write(container_of(node, struct rs_waiter, node)->event_fd, &one,
			      sizeof(one)) < 0)
			continue;
	}
}

void rs_dismiss(struct rs *rs)
{
	rs->closed = true;
	rs_wake(rs);
	while (!list_empty(&rs->waiters))
		mutex_wait(&rs->lock, &rs->left);
}

/* The caller holds rs->lock. The rsocket may be freed once the lock is released. */
static void waiter_leave(struct rs *rs, struct rs_waiter *waiter) REQUIRES(rs->lock)
{
	list_del(&waiter->node);
	if (rs->closed)
		pthread_cond_signal(&rs->left);
}

static void event_fd_drain(int event_fd)
{
	uint64_t count;

	while (sys_read(event_fd, &count, sizeof(count)) > 0)
		;
}

/* ------------------------------------------------------------------ time */

int64_t rs_now_ns(void)
{
	return (int64_t)clock_ns();
}

/* The time until `end` (-1: unlimited) for poll(), in ms, rounded up. */
static int sleep_ms(int64_t end)
{
	int most = rs_config()->wake_up_ms;

	if (end < 0)
		return most;
	int64_t left = (end - rs_now_ns() + 999999) / 1000000;

	return left < 0 ? 0 : left < most ? (int)left : most;
}

static int64_t wait_end_ns(int timeout_ms)
{
	return timeout_ms < 0 ? -1 : rs_now_ns() + timeout_ms * 1000000ll;
}

/* ------------------------------------------------------------------ one rsocket's part */

/* A connected rsocket polls its event channel only when it has no completions to take. */
static void rs_look_for_events(struct rs *rs) REQUIRES(rs->lock)
{
	rs_progress(rs);
	if (rs->state != RS_CONNECTED && !rs->ds)
		rs_events(rs);
}

void rs_advance(struct rs *rs)
{
	rs_progress(rs);
	rs_events(rs);
}

static void rs_arm(struct rs *rs) REQUIRES(rs->lock)
{
	if (rs->cq)
		ibv_req_notify_cq(rs->cq, 0);
	rs_advance(rs);
}

/* Fills in the rsocket's descriptors from `fds` on; returns their number. */
static unsigned int rs_watch(const struct rs *rs, struct pollfd *fds) REQUIRES(rs->lock)
{
	fds[0] = (struct pollfd){.fd = rs->fd, .events = POLLIN};
	if (!rs->completions)
		return 1;
	fds[1] = (struct pollfd){.fd = rs->completions->fd, .events = POLLIN};
	return 2;
}

static void rs_woken(struct rs *rs) REQUIRES(rs->lock)
{
	struct ibv_cq *cq;
	void *context;

	if (!rs->completions)
		return;
	int state = rs_cancel_off();
	int err = ibv_get_cq_event(rs->completions, &cq, &context);

	pthread_setcancelstate(state, NULL);
	if (!err) {
		ibv_ack_cq_events(cq, 1);
		rs_wake(rs);
	}
}

/* Polls as long as the configuration says. Returns whether the rsocket is ready. */
static bool rs_spin(struct rs *rs, bool (*ready)(const struct rs *)) REQUIRES(rs->lock)
{
	int64_t end = rs_now_ns() + rs_config()->polling_us * 1000ll;

	do {
		rs_progress(rs);
		if (ready(rs))
			return true;
	} while (rs_now_ns() < end);
	return false;
}

/* A program that polls without waiting doesn't pay for a system call each time. Connection events
 * aren't urgent: the end of a connection is seen from its data as well. */
static void look_now_and_then(struct rs *rs) REQUIRES(rs->lock)
{
	int64_t now = rs_now_ns();

	if ((rs->state == RS_CONNECTED || rs->ds) && now - rs->looked_ns < RS_LOOK_NS)
		return;
	rs->looked_ns = now;
	rs_events(rs);
}

void rs_look(struct rs *rs)
{
	rs_progress(rs);
	look_now_and_then(rs);
}

int rs_timeout_ms(const struct timeval *timeout)
{
	if (!timeout->tv_sec && !timeout->tv_usec)
		return -1;
	return timeout->tv_sec > INT32_MAX / 1000 - 1
		       ? INT32_MAX
		       : (int)(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
}

/* The state of one sleep in rs_wait(). */
struct rs_sleep {
	struct rs *rs;
	struct rs_waiter waiter;
};

static void rs_sleep_cancelled(void *arg)
{
	struct rs_sleep *sleep = arg;

	mutex_take(&sleep->rs->lock);
	waiter_leave(sleep->rs, &sleep->waiter);
	mutex_give(&sleep->rs->lock);
}

/* Not analysed, because the lock is released meanwhile. 0 or -errno. */
static int rs_sleep(struct rs *rs, int event_fd, int64_t end) NO_THREAD_SAFETY_ANALYSIS
{
	struct rs_sleep sleep = {.rs = rs, .waiter.event_fd = event_fd};
	struct pollfd fds[3];
	unsigned int count = rs_watch(rs, fds);
	int err;

	fds[count++] = (struct pollfd){.fd = event_fd, .events = POLLIN};
	list_add_tail(&rs->waiters, &sleep.waiter.node);
	pthread_cleanup_push(rs_sleep_cancelled, &sleep);
	mutex_give(&rs->lock);
	err = poll(fds, count, sleep_ms(end)) < 0 ? -errno : 0;
	mutex_take(&rs->lock);
	pthread_cleanup_pop(false);
	waiter_leave(rs, &sleep.waiter);
	event_fd_drain(event_fd);
	return err;
}

int rs_wait(struct rs *rs, bool (*ready)(const struct rs *), bool nonblocking, int timeout_ms)
{
	int64_t end = -1;

	rs_look_for_events(rs);
	if (ready(rs))
		return 0;
	if (nonblocking) {
		look_now_and_then(rs);
		return ready(rs) ? 0 : -EAGAIN;
	}
	if (rs_spin(rs, ready))
		return 0;
	int event_fd = own_event();

	if (event_fd < 0)
		return event_fd;
	end = wait_end_ns(timeout_ms);
	for (;;) {
		rs_arm(rs);
		if (ready(rs))
			return 0;
		if (rs->closed)
			return -EBADF;
		if (end >= 0 && rs_now_ns() >= end)
			return -ETIMEDOUT;
		int err = rs_sleep(rs, event_fd, end);

		rs_woken(rs);
		if (err) {
			rs_look_for_events(rs);
			return ready(rs) ? 0 : err;
		}
	}
}

/* ------------------------------------------------------------------ rpoll */

/* One of the descriptors that polling_check() examines. */
struct awaited {
	struct rs *rs; /* the rsocket whose list `waiter` is in; NULL: none */
	struct rs_waiter waiter;
	bool closed; /* it was an rsocket that has been closed; its number may be reused */
};

struct polling {
	struct pollfd *fds; /* the program's array */
	nfds_t count;
	struct pollfd *all; /* for poll(): up to two per descriptor, and the eventfd */
	struct awaited *awaited;
	int event_fd;
};

/* The events for which this descriptor is ready. */
static short check_rsocket(struct rs *rs, short events, bool sleep_next)
{
	short ready;

	mutex_take(&rs->lock);
	if (sleep_next)
		rs_arm(rs);
	else
		rs_look(rs);
	ready = rs_ready(rs) & (short)(events | POLLERR | POLLHUP);
	mutex_give(&rs->lock);
	return ready;
}

/* Counts the descriptors that are ready now. Whether a descriptor is an rsocket is looked up
 * once for each, because other threads may open and close meanwhile; poll() ignores its entry
 * (fd -1). */
static int polling_check(struct polling *p, bool sleep_next)
{
	nfds_t others = 0;
	int ready = 0;

	for (nfds_t i = 0; i < p->count; i++) {
		struct pollfd *fd = &p->fds[i];
		struct awaited *a = &p->awaited[i];
		struct rs *rs = a->closed ? NULL : a->rs ? a->rs : rs_table_get(fd->fd);

		fd->revents = a->closed ? POLLNVAL
			      : rs	? check_rsocket(rs, fd->events, sleep_next)
					: 0;
		p->all[i] = (struct pollfd){rs || a->closed ? -1 : fd->fd, fd->events, 0};
		others += p->all[i].fd >= 0;
	}
	if (others && poll(p->all, p->count, 0) < 0)
		return -errno;
	for (nfds_t i = 0; i < p->count; i++) {
		p->fds[i].revents |= p->all[i].revents;
		ready += p->fds[i].revents != 0;
	}
	return ready;
}

static void enter_all(struct polling *p)
{
	for (nfds_t i = 0; i < p->count; i++) {
		struct awaited *a = &p->awaited[i];
		struct rs *rs = a->closed ? NULL : rs_table_get(p->fds[i].fd);

		a->waiter.event_fd = p->event_fd;
		if (!rs)
			continue;
		mutex_take(&rs->lock);
		if (!rs->closed) {
			list_add_tail(&rs->waiters, &a->waiter.node);
			a->rs = rs;
		}
		mutex_give(&rs->lock);
	}
}

/* Leaves the waiters' lists of the rsockets that were entered. Their numbers may have been reused,
 * so the table isn't consulted. */
static void leave_all(struct polling *p)
{
	for (nfds_t i = 0; i < p->count; i++) {
		struct awaited *a = &p->awaited[i];
		struct rs *rs = a->rs;

		a->rs = NULL;
		if (!rs)
			continue;
		mutex_take(&rs->lock);
		a->closed = rs->closed;
		waiter_leave(rs, &a->waiter);
		rs_woken(rs);
		mutex_give(&rs->lock);
	}
}

/* Collects all descriptors that may end the sleep. */
static nfds_t gather_fds(struct polling *p)
{
	nfds_t n = 0;

	for (nfds_t i = 0; i < p->count; i++) {
		struct rs *rs = p->awaited[i].rs;

		if (!rs) {
			p->all[n++] = (struct pollfd){p->fds[i].fd, p->fds[i].events, 0};
			continue;
		}
		mutex_take(&rs->lock);
		n += rs_watch(rs, &p->all[n]);
		mutex_give(&rs->lock);
	}
	p->all[n++] = (struct pollfd){.fd = p->event_fd, .events = POLLIN};
	return n;
}

static int poll_all(struct polling *p, int timeout_ms)
{
	int64_t end = wait_end_ns(timeout_ms);
	int64_t spin_end = rs_now_ns() + rs_config()->polling_us * 1000ll;
	int ready;

	do {
		ready = polling_check(p, false);
		if (ready || !timeout_ms)
			return ready;
	} while (rs_now_ns() < spin_end);
	for (;;) {
		enter_all(p);
		ready = polling_check(p, true);
		int left = sleep_ms(end), err = 0;

		if (!ready && poll(p->all, gather_fds(p), left) < 0)
			err = -errno;
		leave_all(p);
		event_fd_drain(p->event_fd);
		if (!ready && !err)
			ready = polling_check(p, true);
		if (ready || err)
			return ready ? ready : err;
		if (end >= 0 && rs_now_ns() >= end)
			return 0;
	}
}

/* Also runs when the thread is cancelled while it sleeps. */
static void polling_end(void *arg)
{
	struct polling *p = arg;

	if (p->awaited)
		leave_all(p);
	free(p->all);
	free(p->awaited);
}

/* Also returns -ENOMEM when polling.all or polling.awaited couldn't be allocated. */
static int poll_to_end(struct polling *p, int timeout_ms)
{
	int n;

	pthread_cleanup_push(polling_end, p);
	n = p->all && p->awaited ? poll_all(p, timeout_ms) : -ENOMEM;
	pthread_cleanup_pop(true);
	return n;
}

static bool any_rsocket(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (rs_table_get(fds[i].fd))
			return true;
	return false;
}

EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct polling p = {.fds = fds, .count = nfds};
	int n;

	if (!any_rsocket(fds, nfds))
		return poll(fds, nfds, timeout);
	p.event_fd = own_event();
	if (p.event_fd < 0) {
		errno = -p.event_fd;
		return -1;
	}
	p.all = malloc((2 * nfds + 1) * sizeof(*p.all));
	p.awaited = calloc(nfds, sizeof(*p.awaited));
	n = poll_to_end(&p, timeout);
	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

/* ------------------------------------------------------------------ rselect */

static struct pollfd *from_sets(int nfds, const fd_set *readfds, const fd_set *writefds,
				const fd_set *exceptfds, nfds_t *count)
{
	struct pollfd *fds = malloc(((size_t)nfds + 1) * sizeof(*fds));

	*count = 0;
	for (int fd = 0; fds && fd < nfds; fd++) {
		short events = 0;

		if (readfds && FD_ISSET(fd, readfds))
			events |= POLLIN;
		if (writefds && FD_ISSET(fd, writefds))
			events |= POLLOUT;
		if (exceptfds && FD_ISSET(fd, exceptfds))
			events |= POLLPRI;
		if (events)
			fds[(*count)++] = (struct pollfd){.fd = fd, .events = events};
	}
	return fds;
}

static int fd_set_put(fd_set *set, int fd, bool is_ready)
{
	if (!set || !FD_ISSET(fd, set))
		return 0;
	if (is_ready)
		return 1;
	FD_CLR(fd, set);
	return 0;
}

/* Frees `fds` if the thread is cancelled. */
static int select_sleep(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	int n;

	pthread_cleanup_push(free, fds);
	n = rpoll(fds, count, timeout_ms);
	pthread_cleanup_pop(false);
	return n;
}

EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
		   struct timeval *timeout)
{
	nfds_t count;
	int total = 0, ms = -1;
	struct pollfd *fds = from_sets(nfds, readfds, writefds, exceptfds, &count);

	if (!fds) {
		errno = ENOMEM;
		return -1;
	}
	if (timeout)
		ms = (int)(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
	int n = select_sleep(fds, count, ms);

	for (nfds_t i = 0; n >= 0 && i < count; i++) {
		short ready = fds[i].revents;

		if (ready & POLLNVAL) {
			errno = EBADF;
			n = -1;
			break;
		}
		total += fd_set_put(readfds, fds[i].fd, ready & (POLLIN | POLLHUP | POLLERR));
		total += fd_set_put(writefds, fds[i].fd, ready & (POLLOUT | POLLERR));
		total += fd_set_put(exceptfds, fds[i].fd, ready & POLLPRI);
	}
	free(fds);
	return n < 0 ? -1 : total;
}
