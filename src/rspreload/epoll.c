/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoll with rsockets. See preload.h.
 *
 * The kernel's epoll has the other descriptors, and an eventfd that wakes waiting threads when the
 * set changes. The rsockets are kept here; waiting is rpoll() on them and on the kernel's epoll.
 *
 * Edge-triggered: an event isn't reported again until the program has read or written (any amount).
 * So an event may be reported once too often, but never too seldom for a program that continues
 * until EAGAIN.
 *
 * `sets_lock` guards all data here; no thread waits while it holds the lock. The pointers to the
 * sets are atomic as well, and read without it where only their presence counts.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "rspreload/preload.h"

struct watch {
	int fd;
	struct epoll_event event; /* events 0: one shot, and reported */
};

struct set {
	struct watch *watches GUARDED_BY(sets_lock) PT_GUARDED_BY(sets_lock);
	unsigned int count GUARDED_BY(sets_lock);
	unsigned int room GUARDED_BY(sets_lock);
	int wake; /* written once: eventfd in the kernel's epoll; its data is the set's address */
};

/* The descriptors of one epoll_wait(). */
struct waiting {
	struct pollfd *fds; /* the last is the kernel's epoll */
	int *numbers;	    /* the program's numbers */
	unsigned int count, room;
};

static struct set *sets[FDS_MAX];
struct mutex sets_lock = MUTEX_INITIALIZER(RANK_PRELOAD_SETS);

static struct set *set_of(int epfd)
{
	real_init();
	return epfd >= 0 && epfd < FDS_MAX ? __atomic_load_n(&sets[epfd], __ATOMIC_ACQUIRE) : NULL;
}

/* ------------------------------------------------------------------ changing; sets_lock held */

static struct set *set_make(int epfd) REQUIRES(sets_lock)
{
	struct set *set = set_of(epfd);

	if (set)
		return set;
	set = calloc(1, sizeof(*set));
	if (!set)
		return NULL;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = set};

	set->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (set->wake < 0 || real.epoll_ctl(epfd, EPOLL_CTL_ADD, set->wake, &event)) {
		int error = errno;

		if (set->wake >= 0)
			real.close(set->wake);
		free(set);
		errno = error;
		return NULL;
	}
	__atomic_store_n(&sets[epfd], set, __ATOMIC_RELEASE);
	return set;
}

static struct watch *watch_of(const struct set *set, int fd) REQUIRES(sets_lock)
{
	for (unsigned int i = 0; i < set->count; i++)
		if (set->watches[i].fd == fd)
			return &set->watches[i];
	return NULL;
}

static void set_wake(const struct set *set)
{
	uint64_t one = 1;

	/* If this fails, the eventfd is readable already. */
	if (real.write(set->wake, &one, sizeof(one)) < 0)
		return;
}

static bool socket_is_polled(int fd)
{
	return __atomic_load_n(&table[fd].polled, __ATOMIC_RELAXED);
}

static void socket_set_polled(int fd, bool polled) REQUIRES(sets_lock)
{
	__atomic_store_n(&table[fd].polled, polled, __ATOMIC_RELAXED);
}

static bool watches_grow(struct set *set) REQUIRES(sets_lock)
{
	unsigned int room = set->room ? 2 * set->room : 16;
	struct watch *more = malloc(room * sizeof(*more)), *fewer = set->watches;

	if (!more)
		return false;
	if (fewer)
		memcpy(more, fewer, set->count * sizeof(*more));
	FORK_POINT();
	set->watches = more;
	set->room = room;
	FORK_POINT();
	free(fewer);
	return true;
}

static int watch_add(struct set *set, int fd, const struct epoll_event *event) REQUIRES(sets_lock)
{
	if (set->count == set->room && !watches_grow(set))
		return ENOMEM;
	set->watches[set->count] = (struct watch){fd, *event};
	FORK_POINT();
	set->count++;
	socket_loud(fd, UINT8_MAX);
	socket_set_polled(fd, true);
	return 0;
}

static void watch_drop(struct set *set, struct watch *watch) REQUIRES(sets_lock)
{
	*watch = set->watches[set->count - 1];
	FORK_POINT();
	set->count--;
}

/* In a child that was forked within watch_drop(): the last watch may be there twice, and is whole
 * where it was. */
static void sets_mend(void) NO_THREAD_SAFETY_ANALYSIS
{
	for (int epfd = 0; epfd < FDS_MAX; epfd++) {
		struct set *set = sets[epfd];
		struct watch *last = set && set->count ? &set->watches[set->count - 1] : NULL;
		struct watch *first = last ? watch_of(set, last->fd) : NULL;

		if (first && first != last)
			watch_drop(set, first);
	}
}

FORK_MEND(sets_lock, sets_mend);

static int watch_change(int epfd, int op, int fd, const struct epoll_event *event)
	REQUIRES(sets_lock)
{
	struct set *set = set_make(epfd);

	if (!set)
		return errno;
	struct watch *watch = watch_of(set, fd);
	int err = 0;

	if (op == EPOLL_CTL_ADD)
		err = watch ? EEXIST : watch_add(set, fd, event);
	else if (!watch)
		err = ENOENT;
	else if (op == EPOLL_CTL_DEL)
		watch_drop(set, watch);
	else
		watch->event = *event;
	if (op == EPOLL_CTL_MOD)
		socket_loud(fd, UINT8_MAX);
	set_wake(set);
	return err;
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	real_init();
	if (rs_awaited(fd, event ? (short)event->events : 0) < 0)
		return real.epoll_ctl(epfd, op, fd, event);
	if (op != EPOLL_CTL_DEL && !event) {
		errno = EFAULT;
		return -1;
	}
	mutex_take(&sets_lock);
	int err = watch_change(epfd, op, fd, event);

	mutex_give(&sets_lock);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

void epoll_forget(int fd)
{
	if (!set_of(fd) && !(fd >= 0 && fd < FDS_MAX && socket_is_polled(fd)))
		return;
	mutex_take(&sets_lock);
	struct set *set = set_of(fd);

	if (set) {
		__atomic_store_n(&sets[fd], NULL, __ATOMIC_RELEASE);
		FORK_POINT();
		real.close(set->wake);
		free(set->watches);
		free(set);
	}
	for (int i = 0; socket_is_polled(fd) && i < FDS_MAX; i++) {
		set = __atomic_load_n(&sets[i], __ATOMIC_RELAXED);
		struct watch *watch = set ? watch_of(set, fd) : NULL;

		if (watch)
			watch_drop(set, watch);
	}
	socket_set_polled(fd, false);
	mutex_give(&sets_lock);
}

/* ------------------------------------------------------------------ waiting */

/* The events to wait for; poll()'s bits equal epoll's. */
static short watch_wanted(const struct watch *watch) REQUIRES(sets_lock)
{
	uint32_t events = watch->event.events & (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI);
	uint8_t quiet = socket_quiet(watch->fd);

	if (watch->event.events & EPOLLET) {
		if (quiet & QUIET_IN)
			events &= ~(uint32_t)(EPOLLIN | EPOLLRDHUP);
		if (quiet & QUIET_OUT)
			events &= ~(uint32_t)EPOLLOUT;
	}
	return (short)events;
}

static bool watch_is_quiet(const struct watch *watch) REQUIRES(sets_lock)
{
	return !watch->event.events || (watch->event.events & EPOLLET && !watch_wanted(watch) &&
					socket_quiet(watch->fd) & QUIET_END);
}

static bool waiting_grow(struct waiting *w, unsigned int room)
{
	if (room <= w->room)
		return true;
	struct pollfd *fds = realloc(w->fds, room * sizeof(*fds));

	if (!fds)
		return false;
	w->fds = fds;
	int *numbers = realloc(w->numbers, room * sizeof(*numbers));

	if (!numbers)
		return false;
	w->numbers = numbers;
	w->room = room;
	return true;
}

/* Collects the descriptors to wait for. */
static bool waiting_gather(int epfd, struct waiting *w)
{
	bool ok = false;

	mutex_take(&sets_lock);
	struct set *set = set_of(epfd);

	w->count = 0;
	if (set && waiting_grow(w, set->count + 1)) {
		for (unsigned int i = 0; i < set->count; i++) {
			const struct watch *watch = &set->watches[i];
			int rs = rs_of(watch->fd);

			if (rs < 0 || watch_is_quiet(watch))
				continue;
			w->numbers[w->count] = watch->fd;
			w->fds[w->count++] = (struct pollfd){rs, watch_wanted(watch), 0};
		}
		w->fds[w->count] = (struct pollfd){epfd, POLLIN, 0};
		ok = true;
	}
	mutex_give(&sets_lock);
	return ok;
}

/* Reports one event; applies edge trigger or one shot to the watch. */
static bool set_report(struct set *set, int fd, short ready, struct epoll_event *out)
	REQUIRES(sets_lock)
{
	struct watch *watch = watch_of(set, fd);

	if (!watch || !watch->event.events)
		return false;
	*out = (struct epoll_event){(uint32_t)(uint16_t)ready, watch->event.data};
	if (watch->event.events & EPOLLET) {
		uint8_t bits = (ready & (POLLIN | POLLRDHUP) ? QUIET_IN : 0) |
			       (ready & POLLOUT ? QUIET_OUT : 0) |
			       (ready & (POLLHUP | POLLERR) ? QUIET_END : 0);

		__atomic_or_fetch(&table[fd].quiet, bits, __ATOMIC_RELAXED);
	}
	if (watch->event.events & EPOLLONESHOT)
		watch->event.events = 0;
	return true;
}

/* The kernel's events, without the set's own eventfd. */
static int kernel_events(int epfd, struct set *set, struct epoll_event *events, int max)
	REQUIRES(sets_lock)
{
	int n = real.epoll_wait(epfd, events, max, 0), kept = 0;
	uint64_t count;

	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr != set)
			events[kept++] = events[i];
		else if (real.read(set->wake, &count, sizeof(count)) < 0)
			continue;
	}
	return kept;
}

static int waiting_collect(int epfd, const struct waiting *w, struct epoll_event *events, int max)
{
	int n = 0;

	mutex_take(&sets_lock);
	struct set *set = set_of(epfd);

	if (set && w->fds[w->count].revents)
		n = kernel_events(epfd, set, events, max);
	for (unsigned int i = 0; set && i < w->count && n < max; i++)
		if (w->fds[i].revents &&
		    set_report(set, w->numbers[i], w->fds[i].revents, &events[n]))
			n++;
	mutex_give(&sets_lock);
	return n;
}

static int64_t epoll_now_ms(void)
{
	return (int64_t)(clock_ns() / 1000000);
}

static int waiting_wait(int epfd, struct waiting *w, struct epoll_event *events, int max,
			int timeout)
{
	int64_t end = timeout < 0 ? -1 : epoll_now_ms() + timeout;

	for (;;) {
		int64_t left = end < 0 ? -1 : end - epoll_now_ms();

		if (!waiting_gather(epfd, w)) {
			errno = ENOMEM;
			return -1;
		}
		int n = RS(rpoll(w->fds, w->count + 1, end >= 0 && left < 0 ? 0 : (int)left));

		if (n < 0)
			return -1;
		n = n ? waiting_collect(epfd, w, events, max) : 0;
		if (n || (end >= 0 && epoll_now_ms() >= end))
			return n;
	}
}

EXPORT int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
	struct waiting w = {0};

	if (!set_of(epfd))
		return real.epoll_wait(epfd, events, max, timeout);
	if (max <= 0) {
		errno = EINVAL;
		return -1;
	}
	int n = waiting_wait(epfd, &w, events, max, timeout), error = errno;

	free(w.fds);
	free(w.numbers);
	errno = error;
	return n;
}

EXPORT int epoll_pwait(int epfd, struct epoll_event *events, int max, int timeout,
		       const sigset_t *mask)
{
	sigset_t before;

	if (!set_of(epfd))
		return real.epoll_pwait(epfd, events, max, timeout, mask);
	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, &before);
	int n = epoll_wait(epfd, events, max, timeout), error = errno;

	if (mask)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return n;
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *events, int max,
			const struct timespec *timeout, const sigset_t *mask)
{
	/* A set without rsockets, such as that of libibverbs' engine, keeps its time-out in ns. */
	if (!set_of(epfd))
		return real.epoll_pwait2(epfd, events, max, timeout, mask);
	int ms = timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000)
			 : -1;

	return epoll_pwait(epfd, events, max, ms, mask);
}
