/* SPDX-License-Identifier: BSD-2-Clause */
/* poll(), select() and related calls, for rsockets and other descriptors. See preload.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "rspreload/preload.h"

static bool any_rs(const struct pollfd *fds, nfds_t count)
{
	bool any = false;

	for (nfds_t i = 0; i < count; i++)
		any |= rs_awaited(fds[i].fd, fds[i].events) >= 0;
	return any;
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	real_init();
	if (inside || !any_rs(fds, count))
		return real.poll(fds, count, timeout);
	struct pollfd *own = malloc(count * sizeof(*own));

	if (!own) {
		errno = ENOMEM;
		return -1;
	}
	for (nfds_t i = 0; i < count; i++) {
		int rs = rs_of(fds[i].fd);

		own[i] = (struct pollfd){rs < 0 ? fds[i].fd : rs, fds[i].events, 0};
	}
	int n = RS(rpoll(own, count, timeout));

	for (nfds_t i = 0; i < count; i++)
		fds[i].revents = own[i].revents;
	free(own);
	return n;
}

static short select_wanted(int fd, const fd_set *in, const fd_set *out, const fd_set *except)
{
	short events = 0;

	if (in && FD_ISSET(fd, in))
		events |= POLLIN;
	if (out && FD_ISSET(fd, out))
		events |= POLLOUT;
	if (except && FD_ISSET(fd, except))
		events |= POLLPRI;
	return events;
}

static int select_keep(fd_set *set, int fd, bool ready)
{
	if (!set || !FD_ISSET(fd, set))
		return 0;
	if (!ready)
		FD_CLR(fd, set);
	return ready;
}

/* By poll(), because an rsocket's own number may exceed what an fd_set holds. */
static int select_by_poll(int nfds, fd_set *in, fd_set *out, fd_set *except,
			  struct timeval *timeout)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t count = 0;
	int total = 0;

	for (int fd = 0; fd < nfds && fd < FD_SETSIZE; fd++) {
		short events = select_wanted(fd, in, out, except);

		if (events)
			fds[count++] = (struct pollfd){fd, events, 0};
	}
	int ms = timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000) : -1;
	int n = poll(fds, count, ms);

	for (nfds_t i = 0; n >= 0 && i < count; i++) {
		short ready = fds[i].revents;

		if (ready & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
		total += select_keep(in, fds[i].fd, ready & (POLLIN | POLLHUP | POLLERR));
		total += select_keep(out, fds[i].fd, ready & (POLLOUT | POLLERR));
		total += select_keep(except, fds[i].fd, ready & POLLPRI);
	}
	return n < 0 ? -1 : total;
}

static bool any_in_sets(int nfds, const fd_set *in, const fd_set *out, const fd_set *except)
{
	bool any = false;

	for (int fd = 0; fd < nfds; fd++) {
		short events = select_wanted(fd, in, out, except);

		any |= events && rs_awaited(fd, events) >= 0;
	}
	return any;
}

EXPORT int select(int nfds, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	real_init();
	return any_in_sets(nfds, in, out, except) ? select_by_poll(nfds, in, out, except, timeout)
						  : real.select(nfds, in, out, except, timeout);
}

/* Unlike the kernel's call, this changes the signal mask before the wait, not in one atomic step
 * with it. */
static int timeout_ms(const struct timespec *timeout)
{
	return timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000) : -1;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	sigset_t before;

	real_init();
	if (inside || !any_rs(fds, count))
		return real.ppoll(fds, count, timeout, mask);
	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, &before);
	int n = poll(fds, count, timeout_ms(timeout)), error = errno;

	if (mask)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return n;
}

EXPORT int pselect(int nfds, fd_set *in, fd_set *out, fd_set *except,
		   const struct timespec *timeout, const sigset_t *mask)
{
	struct timeval time = {0};
	sigset_t before;

	real_init();
	if (!any_in_sets(nfds, in, out, except))
		return real.pselect(nfds, in, out, except, timeout, mask);
	if (timeout)
		time = (struct timeval){timeout->tv_sec, (timeout->tv_nsec + 999) / 1000};
	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, &before);
	int n = select(nfds, in, out, except, timeout ? &time : NULL), error = errno;

	if (mask)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return n;
}

/* Called by programs that were compiled with _FORTIFY_SOURCE. */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t size);
EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t size)
{
	if (size / sizeof(*fds) < count)
		abort();
	return poll(fds, count, timeout);
}

int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		const sigset_t *mask, size_t size);
EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		       const sigset_t *mask, size_t size)
{
	if (size / sizeof(*fds) < count)
		abort();
	return ppoll(fds, count, timeout, mask);
}
