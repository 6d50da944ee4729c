/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options, flags and names of rsockets. See rs.h and verbena-rsocket(7). */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "base/mutex.h"
#include "rsocket/datagram.h"

static int option_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* Limits a buffer's size to a sensible range. */
static uint32_t buffer_size(int wanted)
{
	return wanted < RS_SIZE_LEAST ? RS_SIZE_LEAST : (uint32_t)wanted;
}

/* Whether sizes may still be set: they are fixed when the connection begins. */
static bool rs_is_early(const struct rs *rs) REQUIRES(rs->lock)
{
	if (rs->ds)
		return !rs->ds->sized;
	return rs->state <= RS_LISTENING;
}

static int set_size(struct rs *rs, uint32_t *size, int value, uint32_t most) REQUIRES(rs->lock)
{
	if (!rs_is_early(rs) || value < 0 || (uint32_t)value > most)
		return -EINVAL;
	*size = (uint32_t)value;
	return 0;
}

/* ------------------------------------------------------------------ setting */

/* A datagram rsocket's addresses belong to its UDP socket. */
static int set_udp(struct rs *rs, int level, int name, int value)
{
	return setsockopt(rs->fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

static int set_timeout(struct timeval *timeout, const void *raw, socklen_t size)
{
	if (size < sizeof(*timeout))
		return -EINVAL;
	memcpy(timeout, raw, sizeof(*timeout));
	return timeout->tv_usec < 0 || timeout->tv_usec >= 1000000 ? -EDOM : 0;
}

static int set_socket(struct rs *rs, int name, int value, const void *raw, socklen_t size)
	REQUIRES(rs->lock)
{
	switch (name) {
	case SO_REUSEADDR:
		rs->reuse = value != 0;
		return rs->ds ? set_udp(rs, SOL_SOCKET, name, value) : 0;
	case SO_BROADCAST:
		return rs->ds ? set_udp(rs, SOL_SOCKET, name, value) : 0;
	case SO_RCVBUF:
		if (rs_is_early(rs))
			rs->rbuf_size = buffer_size(value);
		return 0;
	case SO_SNDBUF:
		if (rs_is_early(rs))
			rs->sbuf_size = buffer_size(value);
		return 0;
	case SO_LINGER:
		if (size < sizeof(rs->linger))
			return -EINVAL;
		memcpy(&rs->linger, raw, sizeof(rs->linger));
		return 0;
	case SO_KEEPALIVE:
		rs->keepalive = value != 0;
		return 0;
	case SO_RCVTIMEO:
		return set_timeout(&rs->receive_timeout, raw, size);
	case SO_SNDTIMEO:
		return set_timeout(&rs->send_timeout, raw, size);
	case SO_OOBINLINE:
		rs->oobinline = value != 0;
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

static int set_rdma(struct rs *rs, int name, int value, const void *raw, socklen_t size)
	REQUIRES(rs->lock)
{
	switch (name) {
	case RDMA_SQSIZE:
		return value < 1 ? -EINVAL : set_size(rs, &rs->sq_size, value, UINT16_MAX);
	case RDMA_RQSIZE:
		return value < 1 ? -EINVAL : set_size(rs, &rs->rq_size, value, INT16_MAX);
	case RDMA_INLINE:
		return set_size(rs, &rs->inline_size, value, RS_CHUNK_FIRST);
	case RDMA_IOMAPSIZE:
		/* Rounded up to what the eight bits in rs_hello can encode. */
		return set_size(rs, &rs->iomap_size, value > 128 ? (value + 255) & ~255 : value,
				127 * 256);
	case RDMA_ROUTE:
		if (!rs_is_early(rs) || !size)
			return -EINVAL;
		free(rs->route);
		rs->route = malloc(size);
		if (!rs->route)
			return -ENOMEM;
		memcpy(rs->route, raw, size);
		rs->route_size = size;
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

static int set_locked(struct rs *rs, int level, int name, const void *raw, socklen_t size)
	REQUIRES(rs->lock)
{
	int value = 0;

	if (!raw || !size)
		return -EINVAL;
	memcpy(&value, raw, size < sizeof(value) ? size : sizeof(value));
	switch (level) {
	case SOL_SOCKET:
		return set_socket(rs, name, value, raw, size);
	case SOL_RDMA:
		return set_rdma(rs, name, value, raw, size);
	case IPPROTO_TCP:
		if (name == TCP_NODELAY)
			rs->nodelay = value != 0;
		if (name == TCP_KEEPIDLE)
			rs->keepalive_time = value;
		/* Other options are accepted without effect. */
		return name == TCP_NODELAY || name == TCP_MAXSEG || name == TCP_KEEPIDLE ||
				       name == TCP_KEEPINTVL || name == TCP_KEEPCNT
			       ? 0
			       : -ENOPROTOOPT;
	case IPPROTO_IPV6:
		if (name != IPV6_V6ONLY)
			return -ENOPROTOOPT;
		rs->v6only = value != 0;
		return rs->ds ? set_udp(rs, level, name, value) : 0;
	default:
		return -ENOPROTOOPT;
	}
}

EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return option_result(-EBADF);
	mutex_take(&rs->lock);
	int err = set_locked(rs, level, optname, optval, optlen);

	mutex_give(&rs->lock);
	return option_result(err);
}

/* ------------------------------------------------------------------ getting */

static int get_socket(struct rs *rs, int name, int *value) REQUIRES(rs->lock)
{
	switch (name) {
	case SO_ERROR:
		rs_advance(rs);
		*value = rs->error;
		rs->error = 0;
		return 0;
	case SO_TYPE:
		*value = rs->ds ? SOCK_DGRAM : SOCK_STREAM;
		return 0;
	case SO_DOMAIN:
		*value = rs->family;
		return 0;
	case SO_ACCEPTCONN:
		*value = rs->state == RS_LISTENING;
		return 0;
	case SO_REUSEADDR:
		*value = rs->reuse;
		return 0;
	case SO_RCVBUF:
		*value = (int)rs->rbuf_size;
		return 0;
	case SO_SNDBUF:
		*value = (int)rs->sbuf_size;
		return 0;
	case SO_KEEPALIVE:
		*value = rs->keepalive;
		return 0;
	case SO_OOBINLINE:
		*value = rs->oobinline;
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

static int get_rdma(const struct rs *rs, int name, int *value) REQUIRES(rs->lock)
{
	switch (name) {
	case RDMA_SQSIZE:
		*value = (int)rs->sq_size;
		return 0;
	case RDMA_RQSIZE:
		*value = (int)rs->rq_size;
		return 0;
	case RDMA_INLINE:
		*value = (int)rs->inline_size;
		return 0;
	case RDMA_IOMAPSIZE:
		*value = (int)rs->iomap_size;
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

static int get_tcp(const struct rs *rs, int name, int *value) REQUIRES(rs->lock)
{
	if (name == TCP_NODELAY)
		*value = rs->nodelay;
	else if (name == TCP_MAXSEG)
		*value = RS_CHUNK_MAX;
	else if (name == TCP_KEEPIDLE)
		*value = rs->keepalive_time;
	else
		return -ENOPROTOOPT;
	return 0;
}

static int option_give(const void *what, size_t size, void *optval, socklen_t *optlen)
{
	if (*optlen > size)
		*optlen = (socklen_t)size;
	memcpy(optval, what, *optlen);
	return 0;
}

static int option_get_locked(struct rs *rs, int level, int name, void *optval, socklen_t *optlen)
	REQUIRES(rs->lock)
{
	int value, err = -ENOPROTOOPT;

	if (level == SOL_SOCKET && name == SO_LINGER)
		return option_give(&rs->linger, sizeof(rs->linger), optval, optlen);
	if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO))
		return option_give(name == SO_RCVTIMEO ? &rs->receive_timeout : &rs->send_timeout,
				   sizeof(rs->send_timeout), optval, optlen);
	if (level == SOL_SOCKET)
		err = get_socket(rs, name, &value);
	else if (level == SOL_RDMA)
		err = get_rdma(rs, name, &value);
	else if (level == IPPROTO_TCP)
		err = get_tcp(rs, name, &value);
	else if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
		value = rs->v6only;
		err = 0;
	}
	return err ? err : option_give(&value, sizeof(value), optval, optlen);
}

EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return option_result(-EBADF);
	if (!optval || !optlen)
		return option_result(-EFAULT);
	mutex_take(&rs->lock);
	int err = option_get_locked(rs, level, optname, optval, optlen);

	mutex_give(&rs->lock);
	return option_result(err);
}

EXPORT int rfcntl(int socket, int cmd, ...)
{
	struct rs *rs = rs_table_get(socket);
	va_list args;

	if (!rs)
		return option_result(-EBADF);
	va_start(args, cmd);
	long arg = va_arg(args, long);

	va_end(args);
	switch (cmd) {
	case F_GETFL:
		mutex_take(&rs->lock);
		arg = O_RDWR | (rs->nonblocking ? O_NONBLOCK : 0);
		mutex_give(&rs->lock);
		return (int)arg;
	case F_SETFL:
		mutex_take(&rs->lock);
		rs->nonblocking = arg & O_NONBLOCK;
		mutex_give(&rs->lock);
		return 0;
	case F_GETFD:
	case F_SETFD:
		return fcntl(rs->fd, cmd, arg);
	default:
		return option_result(-EINVAL);
	}
}

/* ------------------------------------------------------------------ names */

static int give_addr(const struct sockaddr *from, struct sockaddr *addr, socklen_t *addrlen)
{
	socklen_t size = rs_address_bytes(from->sa_family);

	memcpy(addr, from, *addrlen < size ? *addrlen : size);
	*addrlen = size;
	return 0;
}

EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return option_result(-EBADF);
	if (rs->ds)
		return getpeername(rs->fd, addr, addrlen);
	mutex_take(&rs->lock); /* an rconnect() that fails makes a new identifier */
	const struct sockaddr *peer = rdma_get_peer_addr(rs->id);
	bool connected = rs->state >= RS_CONNECTED && rs->state != RS_FAILED && peer->sa_family;
	int result = connected ? give_addr(peer, addr, addrlen) : option_result(-ENOTCONN);

	mutex_give(&rs->lock);
	return result;
}

EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *rs = rs_table_get(socket);
	struct sockaddr_storage none = {.ss_family = AF_UNSPEC};

	if (!rs)
		return option_result(-EBADF);
	if (rs->ds)
		return getsockname(rs->fd, addr, addrlen);
	mutex_take(&rs->lock);
	const struct sockaddr *own = rdma_get_local_addr(rs->id);

	none.ss_family = (sa_family_t)rs->family;
	int result =
		give_addr(own->sa_family ? own : (const struct sockaddr *)&none, addr, addrlen);

	mutex_give(&rs->lock);
	return result;
}
