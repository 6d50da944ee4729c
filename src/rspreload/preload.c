/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librspreload.so: preloaded, it turns a program's TCP sockets into rsockets. See rsocket(7).
 *
 * What the program has is a descriptor of /dev/null, so that nothing else gets its number; a table
 * says which rsocket it stands for. The library below uses sockets, too, under other numbers, so
 * its calls pass through here unchanged. Where RDMA can't do it (no device for an address, nobody
 * answers), the socket becomes an ordinary one, under the same number.
 *
 * Not supported, as upstream: epoll, and rsockets in a child after fork().
 *
 * Owns the table. Threads: any; entries are looked up without a lock, and changed under one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "abi/export.h"

enum { FDS_MAX = 1 << 16 };

/* What a number stands for: an rsocket's number plus one, or 0. Several may share one (dup2). */
static int table[FDS_MAX];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool inside; /* rsocket() makes sockets of its own */

/* ------------------------------------------------------------------ the real calls */

static struct {
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept4)(int, struct sockaddr *, socklen_t *, int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	ssize_t (*read)(int, void *, size_t);
	ssize_t (*readv)(int, const struct iovec *, int);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*write)(int, const void *, size_t);
	ssize_t (*writev)(int, const struct iovec *, int);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	int (*shutdown)(int, int);
	int (*close)(int);
	int (*getpeername)(int, struct sockaddr *, socklen_t *);
	int (*getsockname)(int, struct sockaddr *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*fcntl)(int, int, ...);
	int (*dup2)(int, int);
	ssize_t (*sendfile)(int, int, off_t *, size_t);
} real;

static void find(void *place, const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	memcpy(place, &function, sizeof(function));
}

static void find_all(void)
{
#define FIND(name) find(&real.name, #name)
	FIND(socket);
	FIND(bind);
	FIND(listen);
	FIND(accept4);
	FIND(connect);
	FIND(recv);
	FIND(recvfrom);
	FIND(recvmsg);
	FIND(read);
	FIND(readv);
	FIND(send);
	FIND(sendto);
	FIND(sendmsg);
	FIND(write);
	FIND(writev);
	FIND(poll);
	FIND(select);
	FIND(shutdown);
	FIND(close);
	FIND(getpeername);
	FIND(getsockname);
	FIND(setsockopt);
	FIND(getsockopt);
	FIND(fcntl);
	FIND(dup2);
	FIND(sendfile);
#undef FIND
}

/* Other libraries' constructors may call before ours has run. */
static void init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_all);
}

/* ------------------------------------------------------------------ the table */

/* The rsocket that the number stands for, or -1. */
static int rs_of(int fd)
{
	init();
	return fd >= 0 && fd < FDS_MAX ? __atomic_load_n(&table[fd], __ATOMIC_ACQUIRE) - 1 : -1;
}

static void table_set(int fd, int rs)
{
	__atomic_store_n(&table[fd], rs + 1, __ATOMIC_RELEASE);
}

/* Takes the number out. The rsocket if that was its last one, else -1. */
static int table_take(int fd)
{
	pthread_mutex_lock(&table_lock);
	int rs = rs_of(fd), last = rs;

	table_set(fd, -1);
	for (int i = 0; last >= 0 && i < FDS_MAX; i++)
		if (table[i] == rs + 1)
			last = -1;
	pthread_mutex_unlock(&table_lock);
	return last;
}

/* A number for an rsocket, which is closed if there is none. */
static int adopt(int rs)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd >= FDS_MAX) {
		real.close(fd);
		errno = EMFILE;
		fd = -1;
	}
	if (fd < 0) {
		int error = errno;

		rclose(rs);
		errno = error;
		return -1;
	}
	table_set(fd, rs);
	return fd;
}

/* ------------------------------------------------------------------ back to TCP */

static const struct {
	int level, name;
} kept_options[] = {
	{SOL_SOCKET, SO_REUSEADDR},
	{SOL_SOCKET, SO_KEEPALIVE},
	{IPPROTO_TCP, TCP_NODELAY},
	{IPPROTO_IPV6, IPV6_V6ONLY},
};

/* The number stands for an ordinary socket from now on. 0 or -1. */
static int become_ordinary(int fd)
{
	int rs = rs_of(fd), family = AF_INET, value;
	socklen_t size = sizeof(family);

	rgetsockopt(rs, SOL_SOCKET, SO_DOMAIN, &family, &size);
	int flags = rfcntl(rs, F_GETFL, 0);
	int plain = real.socket(family, SOCK_STREAM, 0);

	if (plain < 0)
		return -1;
	for (size_t i = 0; i < sizeof(kept_options) / sizeof(kept_options[0]); i++) {
		size = sizeof(value);
		if (!rgetsockopt(rs, kept_options[i].level, kept_options[i].name, &value, &size) &&
		    value)
			real.setsockopt(plain, kept_options[i].level, kept_options[i].name, &value,
					sizeof(value));
	}
	if (flags & O_NONBLOCK)
		real.fcntl(plain, F_SETFL, O_NONBLOCK);
	int last = table_take(fd);

	if (real.dup2(plain, fd) < 0)
		return -1;
	real.close(plain);
	if (last >= 0)
		rclose(last);
	return 0;
}

/* ------------------------------------------------------------------ life */

EXPORT int socket(int domain, int type, int protocol)
{
	bool ours = (domain == AF_INET || domain == AF_INET6) &&
		    (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
		    (!protocol || protocol == IPPROTO_TCP);

	init();
	if (!ours || inside)
		return real.socket(domain, type, protocol);
	inside = true;
	int rs = rsocket(domain, type, protocol);

	inside = false;
	/* Without a device there is TCP. */
	return rs < 0 ? real.socket(domain, type, protocol) : adopt(rs);
}

EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	int rs = rs_of(fd);

	if (rs < 0)
		return real.bind(fd, addr, addrlen);
	if (!rbind(rs, addr, addrlen))
		return 0;
	if (errno == EADDRINUSE || become_ordinary(fd))
		return -1;
	return real.bind(fd, addr, addrlen);
}

EXPORT int listen(int fd, int backlog)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.listen(fd, backlog) : rlisten(rs, backlog);
}

EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags)
{
	int listener = rs_of(fd);

	if (listener < 0)
		return real.accept4(fd, addr, addrlen, flags);
	int rs = raccept(listener, addr, addrlen);

	if (rs < 0)
		return -1;
	if (flags & SOCK_NONBLOCK)
		rfcntl(rs, F_SETFL, O_NONBLOCK);
	return adopt(rs);
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	return accept4(fd, addr, addrlen, 0);
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	int rs = rs_of(fd);

	if (rs < 0)
		return real.connect(fd, addr, addrlen);
	if (!rconnect(rs, addr, addrlen))
		return 0;
	if (errno == EINPROGRESS || errno == EALREADY || errno == EISCONN || errno == EINTR)
		return -1;
	return become_ordinary(fd) ? -1 : real.connect(fd, addr, addrlen);
}

EXPORT int shutdown(int fd, int how)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.shutdown(fd, how) : rshutdown(rs, how);
}

EXPORT int close(int fd)
{
	if (rs_of(fd) < 0)
		return real.close(fd);
	int last = table_take(fd);

	real.close(fd);
	return last < 0 ? 0 : rclose(last);
}

EXPORT int dup2(int from, int to)
{
	int rs = rs_of(from);

	init();
	if (from == to)
		return real.dup2(from, to);
	if (rs_of(to) >= 0)
		close(to);
	if (real.dup2(from, to) < 0)
		return -1;
	if (rs >= 0 && to < FDS_MAX)
		table_set(to, rs);
	return to;
}

/* ------------------------------------------------------------------ data */

EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.recv(fd, buf, len, flags) : rrecv(rs, buf, len, flags);
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
			socklen_t *addrlen)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.recvfrom(fd, buf, len, flags, addr, addrlen)
		      : rrecvfrom(rs, buf, len, flags, addr, addrlen);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.recvmsg(fd, msg, flags) : rrecvmsg(rs, msg, flags);
}

EXPORT ssize_t read(int fd, void *buf, size_t count)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.read(fd, buf, count) : rread(rs, buf, count);
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.readv(fd, iov, count) : rreadv(rs, iov, count);
}

EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.send(fd, buf, len, flags) : rsend(rs, buf, len, flags);
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		      socklen_t addrlen)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.sendto(fd, buf, len, flags, addr, addrlen)
		      : rsendto(rs, buf, len, flags, addr, addrlen);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.sendmsg(fd, msg, flags) : rsendmsg(rs, msg, flags);
}

EXPORT ssize_t write(int fd, const void *buf, size_t count)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.write(fd, buf, count) : rwrite(rs, buf, count);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.writev(fd, iov, count) : rwritev(rs, iov, count);
}

/* By copying: there are no pages to hand over. */
static ssize_t copy_file(int rs, int in, off_t *offset, size_t count)
{
	char part[65536];
	size_t done = 0;

	while (done < count) {
		size_t want = count - done < sizeof(part) ? count - done : sizeof(part);
		off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
		ssize_t got = pread(in, part, want, at);
		ssize_t sent = got > 0 ? rsend(rs, part, (size_t)got, 0) : got;

		if (sent <= 0)
			return done ? (ssize_t)done : sent;
		if (offset)
			*offset += sent;
		else
			lseek(in, sent, SEEK_CUR);
		done += (size_t)sent;
		if (sent < got)
			break;
	}
	return (ssize_t)done;
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count);
EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	int rs = rs_of(out);

	return rs < 0 ? real.sendfile(out, in, offset, count) : copy_file(rs, in, offset, count);
}

ssize_t sendfile64(int out, int in, off_t *offset, size_t count);
EXPORT ssize_t sendfile64(int out, int in, off_t *offset, size_t count)
{
	return sendfile(out, in, offset, count);
}

/* ------------------------------------------------------------------ waiting */

static bool any_rs(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (rs_of(fds[i].fd) >= 0)
			return true;
	return false;
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	init();
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
	int n = rpoll(own, count, timeout);

	for (nfds_t i = 0; i < count; i++)
		fds[i].revents = own[i].revents;
	free(own);
	return n;
}

static short wanted(int fd, const fd_set *in, const fd_set *out, const fd_set *except)
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

static int keep(fd_set *set, int fd, bool ready)
{
	if (!set || !FD_ISSET(fd, set))
		return 0;
	if (!ready)
		FD_CLR(fd, set);
	return ready;
}

/* By poll(): an rsocket's own number may be beyond what a set holds. */
static int select_by_poll(int nfds, fd_set *in, fd_set *out, fd_set *except,
			  struct timeval *timeout)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t count = 0;
	int total = 0;

	for (int fd = 0; fd < nfds && fd < FD_SETSIZE; fd++) {
		short events = wanted(fd, in, out, except);

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
		total += keep(in, fds[i].fd, ready & (POLLIN | POLLHUP | POLLERR));
		total += keep(out, fds[i].fd, ready & (POLLOUT | POLLERR));
		total += keep(except, fds[i].fd, ready & POLLPRI);
	}
	return n < 0 ? -1 : total;
}

EXPORT int select(int nfds, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	init();
	for (int fd = 0; fd < nfds; fd++)
		if (wanted(fd, in, out, except) && rs_of(fd) >= 0)
			return select_by_poll(nfds, in, out, except, timeout);
	return real.select(nfds, in, out, except, timeout);
}

/* ------------------------------------------------------------------ names and options */

EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.getpeername(fd, addr, addrlen) : rgetpeername(rs, addr, addrlen);
}

EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.getsockname(fd, addr, addrlen) : rgetsockname(rs, addr, addrlen);
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.setsockopt(fd, level, name, value, size)
		      : rsetsockopt(rs, level, name, value, size);
}

EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.getsockopt(fd, level, name, value, size)
		      : rgetsockopt(rs, level, name, value, size);
}

static int control(int fd, int cmd, long arg)
{
	int rs = rs_of(fd);

	if (rs < 0 || cmd == F_GETFD || cmd == F_SETFD)
		return real.fcntl(fd, cmd, arg);
	if (cmd == F_GETFL || cmd == F_SETFL)
		return rfcntl(rs, cmd, arg);
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);

	va_end(args);
	return control(fd, cmd, arg);
}

int fcntl64(int fd, int cmd, ...);
EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);

	va_end(args);
	return control(fd, cmd, arg);
}
