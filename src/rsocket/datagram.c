/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending and receiving datagrams. See datagram.h. */
#include "rsocket/datagram.h"
#include "base/sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------ life */

int ds_open(struct rs *rs, int flags)
{
	rs->ds = calloc(1, sizeof(*rs->ds));
	if (!rs->ds)
		return -ENOMEM;
	int fd = socket(rs->family, SOCK_DGRAM | SOCK_NONBLOCK | (flags & SOCK_CLOEXEC), 0);

	if (fd < 0)
		return -errno;
	int err = rs_table_set(fd, rs);

	if (err)
		sys_close(fd);
	else
		rs->fd = fd;
	return err;
}

int ds_connect(struct rs *rs, const struct sockaddr *addr, socklen_t size)
{
	union ds_addr to = {0};
	struct ds *ds = rs->ds;

	memcpy(&to, addr, size < sizeof(to) ? size : sizeof(to));
	if (sys_connect(rs->fd, addr, size))
		return -errno;
	ds->connected = NULL;
	if (addr->sa_family == AF_UNSPEC) {
		rs->state = RS_BOUND;
		return 0;
	}
	int err = ds_prepare(rs);

	if (!err)
		err = ds_peer_get(rs, &to, &ds->connected);
	if (!err)
		rs->state = RS_CONNECTED;
	return err;
}

/* ------------------------------------------------------------------ what arrives */

bool ds_deliver(struct rs *rs, const struct ds_message *message)
{
	struct ds *ds = rs->ds;

	if (ds->inbox_count == ds->inbox_size ||
	    (ds->connected && !ds_same(&ds->connected->addr, &message->from)))
		return false;
	ds->inbox[(ds->inbox_head + ds->inbox_count++) % ds->inbox_size] = *message;
	return true;
}

/* The sender's address, in the form of this socket's family. */
static void sender_of(const struct rs *rs, const struct ds_header *header, union ds_addr *from)
{
	memset(from, 0, sizeof(*from));
	if (header->version == 4 && rs->family == AF_INET) {
		from->in.sin_family = AF_INET;
		from->in.sin_port = header->port;
		from->in.sin_addr.s_addr = header->ipv4;
		return;
	}
	from->in6.sin6_family = AF_INET6;
	from->in6.sin6_port = header->port;
	if (header->version == 6) {
		from->in6.sin6_flowinfo = header->ipv6.flowinfo;
		memcpy(&from->in6.sin6_addr, header->ipv6.addr, sizeof(header->ipv6.addr));
		return;
	}
	from->in6.sin6_addr.s6_addr[10] = from->in6.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&from->in6.sin6_addr.s6_addr[12], &header->ipv4, sizeof(header->ipv4));
}

/* Whether a received message is a datagram of the protocol; if so, puts it into the inbox. */
static bool take_received(struct rs *rs, struct ds_qp *qp, uint32_t slot, uint32_t length)
	REQUIRES(rs->lock)
{
	struct ds_message message = {.qp = qp, .slot = slot};
	struct ds_header header = {0};

	if (length < DS_IPV4)
		return false;
	memcpy(&header, qp->rbuf + (size_t)slot * DS_RECEIVE,
	       length < sizeof(header) ? length : sizeof(header));
	if (header.length > length || !((header.version == 4 && header.length == DS_IPV4) ||
					(header.version == 6 && header.length == DS_IPV6)))
		return false;
	message.offset = header.length;
	message.length = length - header.length;
	sender_of(rs, &header, &message.from);
	return ds_deliver(rs, &message);
}

static struct ds_qp *qp_numbered(const struct ds *ds, uint32_t qpn)
{
	for (unsigned int i = 0; i < ds->qp_count; i++)
		if (ds->qps[i]->id->qp->qp_num == qpn)
			return ds->qps[i];
	return NULL;
}

static void ds_take_completion(struct rs *rs, const struct ibv_wc *wc) REQUIRES(rs->lock)
{
	struct ds *ds = rs->ds;
	struct ds_qp *qp = qp_numbered(ds, wc->qp_num);
	uint32_t slot = rs_wr_slot(wc->wr_id);

	if (!rs_wr_is_receive(wc->wr_id)) {
		rs->sq_free++;
		if (slot < ds->slots)
			ds->free_slots[ds->free_count++] = slot;
		return;
	}
	if (!qp || wc->status != IBV_WC_SUCCESS)
		return;
	if (wc->byte_len < DS_GRH || !take_received(rs, qp, slot, wc->byte_len - DS_GRH))
		ds_post_receive(rs, qp, slot);
}

void ds_progress(struct rs *rs)
{
	struct ibv_wc wc[16];
	bool any = false;
	int n;

	if (!rs->cq)
		return;
	do {
		n = ibv_poll_cq(rs->cq, 16, wc);
		for (int i = 0; i < n; i++)
			ds_take_completion(rs, &wc[i]);
		any |= n > 0;
	} while (n == 16);
	if (any)
		rs_wake(rs);
}

/* ------------------------------------------------------------------ sending */

static bool can_send(const struct rs *rs) REQUIRES(rs->lock)
{
	return !rs->ds->sized || (rs->sq_free && rs->ds->free_count);
}

bool ds_sends_done(const struct rs *rs)
{
	return !rs->ds->sized || rs->sq_free == rs->sq_size;
}

static size_t total_of(const struct msghdr *msg)
{
	size_t size = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		size += msg->msg_iov[i].iov_len;
	return size;
}

/* Sends by the queue pair: a copy in sbuf, after the header. */
static ssize_t send_rdma(struct rs *rs, const struct ds_peer *peer, const struct msghdr *msg,
			 uint32_t size, bool nonblocking) REQUIRES(rs->lock)
{
	struct ds *ds = rs->ds;
	int err = can_send(rs) ? 0 : rs_wait(rs, can_send, nonblocking, -1);

	if (err)
		return err;
	struct ds_qp *qp = peer->qp;
	uint32_t slot = ds->free_slots[ds->free_count - 1], at = qp->header.length;
	uint8_t *place = rs->sbuf + (size_t)slot * DS_MESSAGE_MAX;

	memcpy(place, &qp->header, at);
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		memcpy(place + at, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
		at += (uint32_t)msg->msg_iov[i].iov_len;
	}
	struct ibv_sge sge = {(uintptr_t)place, at, qp->smr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = at <= rs->inline_size ? IBV_SEND_INLINE : 0,
		.wr.ud = {peer->ah, peer->qpn, RDMA_UDP_QKEY},
	};
	struct ibv_send_wr *bad;

	err = ibv_post_send(qp->id->qp, &wr, &bad);
	if (err)
		return -err;
	ds->free_count--;
	rs->sq_free--;
	return size;
}

/* Finds the destination. A socket without an address is bound now, because peers answer to its
 * address. */
static int ds_find_destination(struct rs *rs, const struct msghdr *msg, struct ds_peer **peer)
	REQUIRES(rs->lock)
{
	struct ds *ds = rs->ds;
	union ds_addr to = {0}, own = {0};
	socklen_t size = sizeof(own);

	if (!msg->msg_namelen) {
		*peer = ds->connected;
		return ds->connected ? 0 : -EDESTADDRREQ;
	}
	if (!msg->msg_name || msg->msg_namelen < sizeof(to.in))
		return -EINVAL;
	memcpy(&to, msg->msg_name, msg->msg_namelen < sizeof(to) ? msg->msg_namelen : sizeof(to));
	if (getsockname(rs->fd, &own.sa, &size))
		return -errno;
	if (!own.in.sin_port && bind(rs->fd, &own.sa, size))
		return -errno;
	int err = ds_prepare(rs);

	if (!err)
		err = ds_peer_get(rs, &to, peer);
	if (!err)
		ds->last = *peer;
	return err;
}

/* Whether the destination is that of the last send; cheaper than looking it up. */
static bool is_last(const struct ds *ds, const struct msghdr *msg)
{
	union ds_addr to;

	if (!ds->last || msg->msg_namelen < sizeof(to.in) || msg->msg_namelen > sizeof(to))
		return false;
	memcpy(&to, msg->msg_name, msg->msg_namelen);
	return ds_same(&ds->last->addr, &to);
}

ssize_t ds_send(struct rs *rs, const struct msghdr *msg, int flags)
{
	bool nonblocking = rs->nonblocking || flags & MSG_DONTWAIT;
	struct ds_peer *peer = rs->ds->last;
	size_t size = total_of(msg);
	int err = is_last(rs->ds, msg) ? 0 : ds_find_destination(rs, msg, &peer);

	if (err)
		return err;
	rs_look(rs);
	if (!peer->ah || size + peer->qp->header.length > peer->qp->most)
		return size + DS_UDP_IPV6 > DS_MESSAGE_MAX
			       ? -EMSGSIZE
			       : ds_send_udp(rs, peer, msg->msg_iov, msg->msg_iovlen, RS_OP_DATA,
					     nonblocking ? MSG_DONTWAIT : 0);
	return send_rdma(rs, peer, msg, (uint32_t)size, nonblocking);
}

/* ------------------------------------------------------------------ receiving */

static bool has_message(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->ds->inbox_count || rs->error;
}

static size_t msg_scatter(const struct msghdr *msg, const uint8_t *data, size_t size)
{
	size_t done = 0;

	for (size_t i = 0; i < msg->msg_iovlen && done < size; i++) {
		size_t n = msg->msg_iov[i].iov_len;

		n = n < size - done ? n : size - done;
		memcpy(msg->msg_iov[i].iov_base, data + done, n);
		done += n;
	}
	return done;
}

static void give_name(struct msghdr *msg, const union ds_addr *from)
{
	socklen_t size = from->sa.sa_family == AF_INET ? sizeof(from->in) : sizeof(from->in6);

	if (msg->msg_name)
		memcpy(msg->msg_name, from, msg->msg_namelen < size ? msg->msg_namelen : size);
	msg->msg_namelen = msg->msg_name ? size : 0;
}

static void drop_first(struct rs *rs) REQUIRES(rs->lock)
{
	struct ds *ds = rs->ds;
	struct ds_message *message = &ds->inbox[ds->inbox_head];

	if (message->qp)
		ds_post_receive(rs, message->qp, message->slot);
	free(message->copy);
	message->copy = NULL;
	ds->inbox_head = (ds->inbox_head + 1) % ds->inbox_size;
	ds->inbox_count--;
}

ssize_t ds_receive(struct rs *rs, struct msghdr *msg, int flags)
{
	bool nonblocking = rs->nonblocking || flags & MSG_DONTWAIT;
	struct ds *ds = rs->ds;
	int err = ds_prepare(rs);

	if (!err && !ds->inbox_count)
		err = rs_wait(rs, has_message, nonblocking, rs_timeout_ms(&rs->receive_timeout));
	if (err == -ETIMEDOUT)
		err = -EAGAIN;
	if (!err && !ds->inbox_count) {
		err = -rs->error;
		rs->error = 0;
	}
	if (err)
		return err;
	const struct ds_message *message = &ds->inbox[ds->inbox_head];
	uint32_t length = message->length;
	const uint8_t *data = message->qp ? message->qp->rbuf + (size_t)message->slot * DS_RECEIVE +
						    message->offset
					  : message->copy;
	size_t n = msg_scatter(msg, data, length);

	give_name(msg, &message->from);
	msg->msg_flags = n < length ? MSG_TRUNC : 0;
	if (!(flags & MSG_PEEK))
		drop_first(rs);
	return flags & MSG_TRUNC ? (ssize_t)length : (ssize_t)n;
}

short ds_ready(const struct rs *rs)
{
	return (short)((rs->ds->inbox_count ? POLLIN : 0) | (can_send(rs) ? POLLOUT : 0) |
		       (rs->error ? POLLERR : 0));
}
