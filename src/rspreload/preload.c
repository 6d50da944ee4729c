/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls on one socket: its life, its data, its names and options. See preload.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rspreload/preload.h"

enum { PART = 65536 };

/* ------------------------------------------------------------------ to TCP and back */

static const struct {
	int level, name;
} kept_options[] = {
	{SOL_SOCKET, SO_REUSEADDR},
	{SOL_SOCKET, SO_KEEPALIVE},
	{IPPROTO_TCP, TCP_NODELAY},
	{IPPROTO_IPV6, IPV6_V6ONLY},
};

enum { KEPT = sizeof(kept_options) / sizeof(kept_options[0]) };

void options_to_socket(int rs, int fd)
{
	for (size_t i = 0; i < KEPT; i++) {
		int level = kept_options[i].level, name = kept_options[i].name, value = 0;
		socklen_t size = sizeof(value);

		if (!RS(rgetsockopt(rs, level, name, &value, &size)) && value)
			real.setsockopt(fd, level, name, &value, sizeof(value));
	}
}

void options_to_rsocket(int fd, int rs)
{
	for (size_t i = 0; i < KEPT; i++) {
		int level = kept_options[i].level, name = kept_options[i].name, value = 0;
		socklen_t size = sizeof(value);

		if (!real.getsockopt(fd, level, name, &value, &size) && value)
			RS(rsetsockopt(rs, level, name, &value, sizeof(value)));
	}
}

/* Turns the number into an ordinary socket. 0 or -1. */
static int become_ordinary(int fd)
{
	int rs = rs_of(fd), family = AF_INET, type = SOCK_STREAM;
	socklen_t size = sizeof(family);

	RS(rgetsockopt(rs, SOL_SOCKET, SO_DOMAIN, &family, &size));
	RS(rgetsockopt(rs, SOL_SOCKET, SO_TYPE, &type, &size));
	int flags = RS(rfcntl(rs, F_GETFL, 0));
	int plain = real.socket(family, type, 0);

	if (plain < 0)
		return -1;
	options_to_socket(rs, plain);
	if (flags & O_NONBLOCK)
		real.fcntl(plain, F_SETFL, O_NONBLOCK);
	epoll_forget(fd);
	int last = table_take(fd);

	if (real.dup2(plain, fd) < 0)
		return -1;
	real.close(plain);
	if (last >= 0)
		RS(rclose(last));
	return 0;
}

/* ------------------------------------------------------------------ life */

EXPORT int socket(int domain, int type, int protocol)
{
	real_init();
	if (inside || !config_wants(domain, type, protocol))
		return real.socket(domain, type, protocol);
	if (fork_wanted() && (type & SOCK_STREAM)) {
		int fd = real.socket(domain, type, protocol);

		later_set(fd, LATER_SOCKET);
		return fd;
	}
	int rs = RS(rsocket(domain, type, protocol));

	/* Without a device the socket is an ordinary one. */
	return rs < 0 ? real.socket(domain, type, protocol)
		      : table_adopt(rs, type & SOCK_CLOEXEC ? O_CLOEXEC : 0);
}

EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	int rs = rs_of(fd);

	if (rs < 0)
		return real.bind(fd, addr, addrlen);
	if (!RS(rbind(rs, addr, addrlen)))
		return 0;
	if (errno == EADDRINUSE || become_ordinary(fd))
		return -1;
	return real.bind(fd, addr, addrlen);
}

EXPORT int listen(int fd, int backlog)
{
	int rs = rs_of(fd);

	if (rs >= 0)
		return RS(rlisten(rs, backlog));
	int err = real.listen(fd, backlog);

	if (!err && later_of(fd) == LATER_SOCKET)
		later_set(fd, LATER_LISTEN);
	return err;
}

EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags)
{
	int listener = rs_of(fd);

	if (listener < 0) {
		int got = real.accept4(fd, addr, addrlen, flags);

		if (got >= 0 && later_of(fd) == LATER_LISTEN)
			later_set(got, LATER_ACCEPTED);
		return got;
	}
	int rs = RS(raccept(listener, addr, addrlen));

	if (rs < 0)
		return -1;
	if (flags & SOCK_NONBLOCK)
		RS(rfcntl(rs, F_SETFL, O_NONBLOCK));
	return table_adopt(rs, flags & SOCK_CLOEXEC ? O_CLOEXEC : 0);
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	return accept4(fd, addr, addrlen, 0);
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	int rs = rs_of(fd);

	if (rs < 0) {
		if (later_of(fd) == LATER_SOCKET)
			later_set(fd, LATER_CONNECTED);
		return real.connect(fd, addr, addrlen);
	}
	if (!RS(rconnect(rs, addr, addrlen)))
		return 0;
	if (errno == EINPROGRESS || errno == EALREADY || errno == EISCONN || errno == EINTR)
		return -1;
	return become_ordinary(fd) ? -1 : real.connect(fd, addr, addrlen);
}

EXPORT int shutdown(int fd, int how)
{
	int rs = rs_used(fd);

	return rs < 0 ? real.shutdown(fd, how) : RS(rshutdown(rs, how));
}

EXPORT int close(int fd)
{
	int rs = rs_of(fd);

	later_set(fd, LATER_NONE);
	epoll_forget(fd);
	if (rs < 0)
		return real.close(fd);
	int last = table_take(fd);

	real.close(fd);
	return last < 0 ? 0 : RS(rclose(last));
}

/* ------------------------------------------------------------------ copies of numbers */

static int socket_copied(int from, int to)
{
	if (to >= 0)
		table_copy(from, to);
	return to;
}

EXPORT int dup(int fd)
{
	rs_used(fd);
	return socket_copied(fd, real.dup(fd));
}

/* Ends what the number `to` stands for; the kernel itself closes the descriptor. */
static void socket_make_room(int to)
{
	later_set(to, LATER_NONE);
	if (rs_of(to) >= 0)
		close(to);
}

EXPORT int dup2(int from, int to)
{
	rs_used(from);
	if (from != to)
		socket_make_room(to);
	int got = real.dup2(from, to);

	return from == to ? got : socket_copied(from, got);
}

EXPORT int dup3(int from, int to, int flags)
{
	rs_used(from);
	if (from != to)
		socket_make_room(to);
	return socket_copied(from, real.dup3(from, to, flags));
}

/* ------------------------------------------------------------------ receiving */

/* The rsocket that is about to be read; an edge-triggered epoll may report it again afterwards. */
static int socket_reading(int fd)
{
	int rs = rs_used(fd);

	if (rs >= 0)
		socket_loud(fd, QUIET_IN);
	return rs;
}

EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	int rs = socket_reading(fd);

	return rs < 0 ? real.recv(fd, buf, len, flags) : RS(rrecv(rs, buf, len, flags));
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
			socklen_t *addrlen)
{
	int rs = socket_reading(fd);

	return rs < 0 ? real.recvfrom(fd, buf, len, flags, addr, addrlen)
		      : RS(rrecvfrom(rs, buf, len, flags, addr, addrlen));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	int rs = socket_reading(fd);

	if (rs < 0)
		return real.recvmsg(fd, msg, flags);
	/* Rsockets have no control messages, so the buffer for them is left out. */
	struct msghdr plain = *msg;

	plain.msg_control = NULL;
	plain.msg_controllen = 0;
	ssize_t n = RS(rrecvmsg(rs, &plain, flags));

	msg->msg_namelen = plain.msg_namelen;
	msg->msg_controllen = 0;
	msg->msg_flags = plain.msg_flags;
	return n;
}

EXPORT ssize_t read(int fd, void *buf, size_t count)
{
	int rs = socket_reading(fd);

	return rs < 0 ? real.read(fd, buf, count) : RS(rread(rs, buf, count));
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
	int rs = socket_reading(fd);

	return rs < 0 ? real.readv(fd, iov, count) : RS(rreadv(rs, iov, count));
}

/* Called by programs that were compiled with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *buf, size_t count, size_t room);
EXPORT ssize_t __read_chk(int fd, void *buf, size_t count, size_t room)
{
	if (count > room)
		abort();
	return read(fd, buf, count);
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
EXPORT ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	if (len > room)
		abort();
	return recv(fd, buf, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *addr,
		       socklen_t *addrlen);
EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags,
			      struct sockaddr *addr, socklen_t *addrlen)
{
	if (len > room)
		abort();
	return recvfrom(fd, buf, len, flags, addr, addrlen);
}

/* ------------------------------------------------------------------ sending */

static int socket_writing(int fd)
{
	int rs = rs_used(fd);

	if (rs >= 0)
		socket_loud(fd, QUIET_OUT);
	return rs;
}

EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	int rs = socket_writing(fd);

	return rs < 0 ? real.send(fd, buf, len, flags) : RS(rsend(rs, buf, len, flags));
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		      socklen_t addrlen)
{
	int rs = socket_writing(fd);

	return rs < 0 ? real.sendto(fd, buf, len, flags, addr, addrlen)
		      : RS(rsendto(rs, buf, len, flags, addr, addrlen));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	int rs = socket_writing(fd);

	return rs < 0 ? real.sendmsg(fd, msg, flags) : RS(rsendmsg(rs, msg, flags));
}

EXPORT ssize_t write(int fd, const void *buf, size_t count)
{
	int rs = socket_writing(fd);

	return rs < 0 ? real.write(fd, buf, count) : RS(rwrite(rs, buf, count));
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
	int rs = socket_writing(fd);

	return rs < 0 ? real.writev(fd, iov, count) : RS(rwritev(rs, iov, count));
}

/* ------------------------------------------------------------------ from files and pipes */

/* Copies the file's bytes: an rsocket can't take over pages. */
static ssize_t copy_file(int rs, int in, off_t *offset, size_t count)
{
	char part[PART];
	size_t done = 0;

	while (done < count) {
		size_t want = count - done < sizeof(part) ? count - done : sizeof(part);
		off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
		ssize_t got = pread(in, part, want, at);
		ssize_t sent = got > 0 ? RS(rsend(rs, part, (size_t)got, 0)) : got;

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
	int rs = socket_writing(out);

	return rs < 0 ? real.sendfile(out, in, offset, count) : copy_file(rs, in, offset, count);
}

ssize_t sendfile64(int out, int in, off_t *offset, size_t count);
EXPORT ssize_t sendfile64(int out, int in, off_t *offset, size_t count)
{
	return sendfile(out, in, offset, count);
}

/* Waits for the first byte, then moves as many as a pipe holds or takes without waiting. */
static ssize_t splice_part(int in, int out, size_t count)
{
	char part[PART];
	int from = socket_reading(in), to = socket_writing(out);
	struct pollfd room = {.fd = out, .events = POLLOUT};

	/* Bytes that were read must be written, so no more are read than the pipe takes at once. */
	if (count > sizeof(part))
		count = sizeof(part);
	if (to < 0) {
		if (count > PIPE_BUF)
			count = PIPE_BUF;
		if (real.poll(&room, 1, -1) < 0)
			return -1;
		ssize_t n = RS(rrecv(from, part, count, 0));

		return n > 0 ? real.write(out, part, (size_t)n) : n;
	}
	if (RS(rpoll(&(struct pollfd){.fd = to, .events = POLLOUT}, 1, -1)) < 0)
		return -1;
	ssize_t n = from < 0 ? real.read(in, part, count) : RS(rrecv(from, part, count, 0));
	ssize_t done = 0;

	while (done < n) {
		ssize_t sent = RS(rsend(to, part + done, (size_t)(n - done), 0));

		if (sent < 0 && errno != EAGAIN)
			return done ? done : -1;
		if (sent > 0)
			done += sent;
		else if (RS(rpoll(&(struct pollfd){.fd = to, .events = POLLOUT}, 1, -1)) < 0)
			return -1;
	}
	return n;
}

EXPORT ssize_t splice(int in, off_t *in_offset, int out, off_t *out_offset, size_t count,
		      unsigned int flags)
{
	if (rs_used(in) < 0 && rs_used(out) < 0)
		return real.splice(in, in_offset, out, out_offset, count, flags);
	if (in_offset || out_offset) {
		errno = ESPIPE;
		return -1;
	}
	return splice_part(in, out, count);
}

/* ------------------------------------------------------------------ names and options */

EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.getpeername(fd, addr, addrlen) : RS(rgetpeername(rs, addr, addrlen));
}

EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.getsockname(fd, addr, addrlen) : RS(rgetsockname(rs, addr, addrlen));
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.setsockopt(fd, level, name, value, size)
		      : RS(rsetsockopt(rs, level, name, value, size));
}

EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	int rs = rs_of(fd);

	return rs < 0 ? real.getsockopt(fd, level, name, value, size)
		      : RS(rgetsockopt(rs, level, name, value, size));
}

static int socket_control(int fd, int cmd, long arg)
{
	int rs = rs_of(fd);

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) {
		rs_used(fd);
		return socket_copied(fd, real.fcntl(fd, cmd, arg));
	}
	if (rs < 0 || cmd == F_GETFD || cmd == F_SETFD)
		return real.fcntl(fd, cmd, arg);
	if (cmd == F_GETFL || cmd == F_SETFL)
		return RS(rfcntl(rs, cmd, arg));
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);

	va_end(args);
	return socket_control(fd, cmd, arg);
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);

	va_end(args);
	return socket_control(fd, cmd, arg);
}

/* Bytes that can be read now, at least; counting beyond one buffer isn't possible. */
static int bytes_there(int rs, int *count)
{
	char part[PART];
	ssize_t n = RS(rrecv(rs, part, sizeof(part), MSG_PEEK | MSG_DONTWAIT));

	if (n < 0 && errno != EAGAIN)
		return -1;
	*count = n < 0 ? 0 : (int)n;
	return 0;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	int rs = rs_of(fd);
	va_list args;

	va_start(args, request);
	void *arg = va_arg(args, void *);

	va_end(args);
	if (rs < 0)
		return real.ioctl(fd, request, arg);
	switch (request) {
	case FIONBIO:
		return RS(rfcntl(rs, F_SETFL, *(int *)arg ? (long)O_NONBLOCK : 0L));
	case FIONREAD:
		return bytes_there(rs, arg);
	case FIOCLEX:
	case FIONCLEX:
		return real.ioctl(fd, request, arg);
	default:
		errno = ENOTTY;
		return -1;
	}
}
