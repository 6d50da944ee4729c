/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of an rsocket: made, bound, connected or accepted, ended. See rs.h. The event channel's
 * descriptor never blocks; whether the rsocket does is a flag of its own. Connecting proceeds with
 * each event, in whichever call handles events.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/export.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "rsocket/datagram.h"

/* rclose() doesn't wait until the peer has read everything; only the last message is waited for. */
enum { CLOSE_WAIT_MS = 2000, RESOLVE_TIMEOUT_MS = 5000 };

static int connect_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* ------------------------------------------------------------------ making */

static struct rs *rs_new(int family)
{
	const struct rs_config *config = rs_config();
	struct rs *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	mutex_init(&rs->lock, RANK_RSOCKET);
	rs->family = family;
	rs->fd = -1;
	rs->sbuf_size = config->wmem;
	rs->rbuf_size = config->mem;
	rs->sq_size = config->sqsize;
	rs->rq_size = config->rqsize;
	rs->inline_size = config->inline_size;
	rs->iomap_size = config->iomap_size;
	rs->shutdown_due = -1;
	pthread_cond_init(&rs->left, NULL);
	list_init(&rs->waiters);
	list_init(&rs->mapped);
	list_init(&rs->pending);
	return rs;
}

/* A connection inherits its listener's options. */
static void rs_inherit(struct rs *rs, const struct rs *listener) REQUIRES(rs->lock, listener->lock)
{
	rs->sbuf_size = listener->sbuf_size;
	rs->rbuf_size = listener->rbuf_size;
	rs->sq_size = listener->sq_size;
	rs->rq_size = listener->rq_size;
	rs->inline_size = listener->inline_size;
	rs->iomap_size = listener->iomap_size;
	rs->nodelay = listener->nodelay;
}

/* The program doesn't know the rsocket yet, or the last waiter has left it. */
static void rs_free(struct rs *rs)
{
	mutex_assume_alone(&rs->lock);
	if (rs->ds)
		ds_close(rs);
	rs_endpoint_free(rs);
	if (rs->request) {
		struct rdma_cm_id *id = rs->request->id;

		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		rdma_ack_cm_event(rs->request);
	}
	if (rs->id)
		rdma_destroy_id(rs->id);
	if (rs->fd >= 0)
		rs_table_clear(rs->fd);
	if (rs->fd >= 0 && !rs->channel)
		sys_close(rs->fd);
	if (rs->channel)
		rdma_destroy_event_channel(rs->channel);
	mutex_destroy(&rs->lock);
	pthread_cond_destroy(&rs->left);
	free(rs->route);
	free(rs);
}

static int make_channel(struct rs *rs)
{
	rs->channel = rdma_create_event_channel();
	if (!rs->channel || fcntl(rs->channel->fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	int err = rs_table_set(rs->channel->fd, rs);

	if (!err)
		rs->fd = rs->channel->fd;
	return err;
}

static int stream_open(struct rs *rs)
{
	int err = make_channel(rs);

	if (!err && rdma_create_id(rs->channel, &rs->id, rs, RDMA_PS_TCP))
		err = -errno;
	return err;
}

EXPORT int rsocket(int domain, int type, int protocol)
{
	int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC);

	type &= ~flags;
	/* Datagrams go through a UDP socket, which has IP addresses only. */
	if (domain != AF_INET && domain != AF_INET6 && (domain != AF_IB || type != SOCK_STREAM))
		return connect_result(-EAFNOSUPPORT);
	if (type != SOCK_STREAM && type != SOCK_DGRAM)
		return connect_result(-ESOCKTNOSUPPORT);
	if (protocol && protocol != (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
		return connect_result(-EPROTONOSUPPORT);
	struct rs *rs = rs_new(domain);

	if (!rs)
		return connect_result(-ENOMEM);
	mutex_assume_alone(&rs->lock);
	int err = type == SOCK_STREAM ? stream_open(rs) : ds_open(rs, flags);

	if (err) {
		rs_free(rs);
		return connect_result(err);
	}
	rs->nonblocking = flags & SOCK_NONBLOCK;
	return rs->fd;
}

/* ------------------------------------------------------------------ events */

void rs_fail(struct rs *rs, int error)
{
	rs->state = RS_FAILED;
	rs->error = error;
	rs->may_send = rs->may_receive = false;
	rs_wake(rs);
}

static struct rdma_conn_param param_of(const struct rs_hello *hello)
{
	return (struct rdma_conn_param){
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 7, /* unlimited: see RS_CONTROL_MAX */
	};
}

static void rs_connected(struct rs *rs) REQUIRES(rs->lock)
{
	rs->state = RS_CONNECTED;
	rs->connecting = false;
	rs->may_send = rs->may_receive = true;
}

static int begin_connect(struct rs *rs) REQUIRES(rs->lock)
{
	struct rs_hello hello;
	int err = rs_endpoint_make(rs);

	if (err)
		return err;
	rs_hello_make(rs, &hello);
	struct rdma_conn_param param = param_of(&hello);

	rs->state = RS_CONNECTING;
	return rdma_connect(rs->id, &param) ? -errno : 0;
}

static int begin_route(struct rs *rs) REQUIRES(rs->lock)
{
	rs->state = RS_RESOLVING_ROUTE;
	if (rs->route)
		return rdma_set_option(rs->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, rs->route,
				       rs->route_size)
			       ? -errno
			       : 0;
	return rdma_resolve_route(rs->id, RESOLVE_TIMEOUT_MS) ? -errno : 0;
}

static int rs_established(struct rs *rs, const struct rdma_cm_event *event) REQUIRES(rs->lock)
{
	if (rs->state != RS_CONNECTING)
		return 0;
	int err = rs_hello_take(rs, event->param.conn.private_data,
				event->param.conn.private_data_len);

	if (!err)
		rs_connected(rs);
	return err;
}

/* All data sent before the disconnection has arrived. */
static void rs_disconnected(struct rs *rs) REQUIRES(rs->lock)
{
	rs_progress(rs);
	if (rs->state != RS_FAILED)
		rs->state = RS_DISCONNECTED;
	rs->may_send = rs->may_receive = false;
	rdma_disconnect(rs->id);
}

static int cm_event_error(const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_UNREACHABLE:
		return -ETIMEDOUT;
	default:
		return event->status < 0 ? event->status : -EHOSTUNREACH;
	}
}

/* Handles one event. Returns 0, or the error that ends the rsocket. */
static int take_event(struct rs *rs, const struct rdma_cm_event *event) REQUIRES(rs->lock)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return begin_route(rs);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return begin_connect(rs);
	case RDMA_CM_EVENT_ESTABLISHED:
		return rs_established(rs, event);
	case RDMA_CM_EVENT_DISCONNECTED:
		rs_disconnected(rs);
		return 0;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		return cm_event_error(event);
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	default:
		return 0;
	}
}

/* rdma_get_cm_event() is a cancellation point, so cancellation is disabled while rs->lock is
 * held. */
static int rs_get_cm_event(const struct rs *rs, struct rdma_cm_event **event)
{
	int state = rs_cancel_off();
	int err = rdma_get_cm_event(rs->channel, event);

	pthread_setcancelstate(state, NULL);
	return err;
}

void rs_events(struct rs *rs)
{
	struct rdma_cm_event *event;

	if (rs->ds) {
		ds_events(rs);
		return;
	}
	while (rs->state != RS_FAILED && !rs->request && !rs_get_cm_event(rs, &event)) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			rs->request = event;
			rs_wake(rs);
			return;
		}
		int err = take_event(rs, event);

		rdma_ack_cm_event(event);
		if (err)
			rs_fail(rs, -err);
		rs_wake(rs);
	}
}

/* ------------------------------------------------------------------ the active side */

static int set_reuse(struct rs *rs) REQUIRES(rs->lock)
{
	int on = 1;

	if (rs->v6only &&
	    rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)))
		return -errno;
	if (rs->reuse &&
	    rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)))
		return -errno;
	return 0;
}

static int bind_locked(struct rs *rs, const struct sockaddr *addr, socklen_t addrlen)
	REQUIRES(rs->lock)
{
	if (rs->state != RS_OPEN)
		return -EINVAL;
	int err = rs->ds ? 0 : set_reuse(rs);

	if (rs->ds && bind(rs->fd, addr, addrlen))
		err = -errno;
	else if (!rs->ds && !err && rdma_bind_addr(rs->id, (struct sockaddr *)addr))
		err = -errno;
	if (err)
		return err;
	rs->state = RS_BOUND;
	if (!rs->ds)
		memcpy(&rs->bound, addr, rs_address_bytes(addr->sa_family));
	return 0;
}

/* Common to calls with an address: checks the arguments and runs the call under rs.lock. */
static int with_address(int socket, const struct sockaddr *addr, socklen_t addrlen,
			int (*locked)(struct rs *rs, const struct sockaddr *addr,
				      socklen_t addrlen))
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return connect_result(-EBADF);
	if (!addr || addrlen < sizeof(struct sockaddr_in) ||
	    addrlen < rs_address_bytes(addr->sa_family))
		return connect_result(-EINVAL);
	mutex_take(&rs->lock);
	int err = locked(rs, addr, addrlen);

	mutex_give(&rs->lock);
	return connect_result(err);
}

EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return with_address(socket, addr, addrlen, bind_locked);
}

static bool rs_connect_is_over(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->state >= RS_CONNECTED;
}

/* Makes the identifier anew, with the address that the program had bound. A port that was chosen
 * for the program isn't kept, as with TCP. */
static int rs_renew_id(struct rs *rs) REQUIRES(rs->lock)
{
	struct rdma_cm_id *old = rs->id;

	if (rdma_create_id(rs->channel, &rs->id, rs, RDMA_PS_TCP)) {
		rs->id = old;
		return -errno;
	}
	rdma_destroy_id(old);
	rs->state = RS_OPEN;
	return rs->bound.ss_family ? bind_locked(rs, (struct sockaddr *)&rs->bound,
						 rs_address_bytes(rs->bound.ss_family))
				   : 0;
}

/*
 * Tells why the attempt to connect failed; ECONNABORTED: another call has told it (SO_ERROR).
 * As with TCP the rsocket is an unconnected one afterwards, and the next rconnect() another
 * attempt. Without a new identifier it stays FAILED.
 */
static int end_attempt(struct rs *rs) REQUIRES(rs->lock)
{
	int err = rs->error ? -rs->error : -ECONNABORTED;

	rs->error = 0;
	rs_endpoint_free(rs);
	if (rs_renew_id(rs))
		rs->state = RS_FAILED;
	else
		rs->connecting = false;
	return err;
}

static int begin_attempt(struct rs *rs, const struct sockaddr *addr) REQUIRES(rs->lock)
{
	rs->state = RS_RESOLVING_ADDR;
	rs->connecting = true;
	if (!rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)addr, RESOLVE_TIMEOUT_MS))
		return 0;
	rs->state = RS_FAILED;
	rs->error = errno;
	return end_attempt(rs);
}

static int connect_locked(struct rs *rs, const struct sockaddr *addr, socklen_t addrlen)
	REQUIRES(rs->lock)
{
	bool first = rs->state == RS_OPEN || rs->state == RS_BOUND;

	if (rs->ds)
		return ds_connect(rs, addr, addrlen);
	if (rs->state == RS_LISTENING)
		return -EINVAL;
	if (!first && !rs->connecting)
		return -EISCONN;
	int err = first ? begin_attempt(rs, addr) : 0;

	if (err)
		return err;
	err = rs_wait(rs, rs_connect_is_over, rs->nonblocking, -1);
	if (err == -EAGAIN)
		return first ? -EINPROGRESS : -EALREADY;
	if (err)
		return err;
	return rs->state == RS_FAILED ? end_attempt(rs) : 0;
}

EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return with_address(socket, addr, addrlen, connect_locked);
}

/* ------------------------------------------------------------------ the passive side */

EXPORT int rlisten(int socket, int backlog)
{
	struct rs *rs = rs_table_get(socket);
	int err = 0;

	if (!rs)
		return connect_result(-EBADF);
	if (rs->ds)
		return connect_result(-EOPNOTSUPP);
	mutex_take(&rs->lock);
	if (rs->state > RS_LISTENING)
		err = -EINVAL;
	else if (rs->state != RS_LISTENING && rdma_listen(rs->id, backlog))
		err = -errno;
	if (!err)
		rs->state = RS_LISTENING;
	mutex_give(&rs->lock);
	return connect_result(err);
}

static bool has_request(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->request || rs->state != RS_LISTENING;
}

/* Answers a connection request with a new rsocket. */
static int rs_answer_request(struct rs *rs, const struct rdma_cm_event *request) REQUIRES(rs->lock)
{
	struct rs_hello hello;
	int err = make_channel(rs);

	if (!err && rdma_migrate_id(request->id, rs->channel))
		err = -errno;
	if (err)
		return err;
	rs->id = request->id;
	rs->id->context = rs;
	err = rs_endpoint_make(rs);
	if (!err)
		err = rs_hello_take(rs, request->param.conn.private_data,
				    request->param.conn.private_data_len);
	if (err)
		return err;
	rs_hello_make(rs, &hello);
	struct rdma_conn_param param = param_of(&hello);

	if (rdma_accept(rs->id, &param))
		return -errno;
	/* This QP is ready; the peer's is ready before the peer confirms. */
	rs_connected(rs);
	return 0;
}

static int rs_take_request(struct rs *listener, struct rdma_cm_event *request, struct rs **out)
	REQUIRES(listener->lock)
{
	struct rs *rs = rs_new(listener->family);
	int err = -ENOMEM;

	if (rs) {
		mutex_assume_alone(&rs->lock);
		rs_inherit(rs, listener);
		err = rs_answer_request(rs, request);
	}
	if (err)
		rdma_reject(request->id, NULL, 0);
	if (err && !(rs && rs->id))
		rdma_destroy_id(request->id);
	rdma_ack_cm_event(request);
	if (err && rs)
		rs_free(rs);
	*out = rs;
	return err;
}

static int accept_locked(struct rs *listener, struct rs **out) REQUIRES(listener->lock)
{
	if (listener->state != RS_LISTENING)
		return -EINVAL;
	for (;;) {
		int err = rs_wait(listener, has_request, listener->nonblocking, -1);

		if (!err && listener->state != RS_LISTENING)
			err = -EINVAL;
		if (err)
			return err;
		struct rdma_cm_event *request = listener->request;

		listener->request = NULL;
		err = rs_take_request(listener, request, out);
		/* A peer that gave up or is no rsocket is skipped; the program sees only this
		 * process's own errors. */
		if (!err || err == -EMFILE || err == -ENFILE || err == -ENOMEM)
			return err;
	}
}

EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rs *listener = rs_table_get(socket), *rs;

	if (!listener)
		return connect_result(-EBADF);
	if (listener->ds)
		return connect_result(-EOPNOTSUPP);
	mutex_take(&listener->lock);
	int err = accept_locked(listener, &rs);

	mutex_give(&listener->lock);
	if (err)
		return connect_result(err);
	if (addr && addrlen)
		rgetpeername(rs->fd, addr, addrlen);
	return rs->fd;
}

/* ------------------------------------------------------------------ the end */

bool rs_sends_done(const struct rs *rs)
{
	return rs->state >= RS_DISCONNECTED || !rs->cq ||
	       (rs->shutdown_due < 0 && !rs->control && rs->sq_free == rs->sq_size);
}

static int shutdown_locked(struct rs *rs, int how) REQUIRES(rs->lock)
{
	if (rs->ds)
		return shutdown(rs->fd, how) ? -errno : 0;
	rs_advance(rs);
	if (rs->state == RS_CLOSED || rs->state == RS_DISCONNECTED)
		return 0;
	if (rs->state != RS_CONNECTED)
		return -ENOTCONN;
	bool had_sent = rs->may_send;

	if (how != SHUT_WR)
		rs->may_receive = false;
	if (how != SHUT_RD)
		rs->may_send = false;
	if (!rs->may_send && !rs->may_receive)
		rs->shutdown_due = RS_CTRL_DISCONNECT;
	else if (had_sent && !rs->may_send)
		rs->shutdown_due = RS_CTRL_SHUTDOWN;
	rs_progress(rs);
	rs_wake(rs);
	return 0;
}

EXPORT int rshutdown(int socket, int how)
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return connect_result(-EBADF);
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return connect_result(-EINVAL);
	mutex_take(&rs->lock);
	int err = shutdown_locked(rs, how);

	mutex_give(&rs->lock);
	return connect_result(err);
}

/* Closes a child's copy of its parent's descriptor; the rest belongs to the parent. */
static int rs_close_inherited(int socket)
{
	if (!rs_table_get_inherited(socket))
		return -EBADF;
	rs_table_clear(socket);
	return sys_close(socket) ? -errno : 0;
}

EXPORT int rclose(int socket)
{
	struct rs *rs = rs_table_get(socket);

	if (!rs)
		return connect_result(rs_close_inherited(socket));
	int state = rs_cancel_off(); /* a half-closed rsocket would be useless to the program */

	mutex_take(&rs->lock);
	if (!rs->ds && rs->state == RS_CONNECTED)
		shutdown_locked(rs, SHUT_RDWR);
	if (rs->ds)
		rs_wait(rs, ds_sends_done, false, CLOSE_WAIT_MS);
	else if (rs->state == RS_CONNECTED || rs->state == RS_CLOSED)
		rs_wait(rs, rs_sends_done, false, CLOSE_WAIT_MS);
	rs_table_clear(socket);
	rs_dismiss(rs);
	mutex_give(&rs->lock);
	rs_free(rs);
	pthread_setcancelstate(state, NULL);
	return 0;
}
