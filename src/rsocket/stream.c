/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending and receiving on a stream. See rs.h.
 *
 * A call copies between the program's memory and the rsocket's: sent bytes are copied to sbuf (or
 * go inline), then written to the peer's rbuf; received bytes are copied from rbuf. When half of
 * rbuf has been read, it is offered again. Bytes arrive in rbuf in order and without gaps, because
 * the peer fills one half before it begins the next; so counters suffice.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/export.h"
#include "base/mutex.h"
#include "base/send_direct.h"
#include "rsocket/datagram.h"

/* ------------------------------------------------------------------ what a completion is of */

#define WR_CONTROL_BIT (1ull << 63)

uint64_t rs_wr_data(uint32_t sbuf_bytes)
{
	return sbuf_bytes;
}

uint64_t rs_wr_control(void)
{
	return WR_CONTROL_BIT;
}

int rs_post_write(struct rs *rs, struct ibv_sge *sge, int count, const uint32_t *message,
		  unsigned int flags, uint64_t addr, uint32_t key, uint64_t wr_id)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = count,
		.opcode = message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.imm_data = message ? htonl(*message) : 0,
		.wr.rdma = {addr, key},
	};
	struct ibv_send_wr *bad;

	return -ibv_post_send(rs->id->qp, &wr, &bad);
}

/* ------------------------------------------------------------------ control */

static bool may_control(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->control < RS_CONTROL_MAX && rs->state == RS_CONNECTED;
}

static void post_control(struct rs *rs, struct ibv_sge *sge, uint32_t message, uint64_t addr,
			 uint32_t key) REQUIRES(rs->lock)
{
	int err = rs_post_write(rs, sge, sge ? 1 : 0, &message, sge ? IBV_SEND_INLINE : 0, addr,
				key, rs_wr_control());

	if (err)
		rs_fail(rs, -err);
	else
		rs->control++;
}

/* Grants the peer as many messages as there are receives posted here, and a half of rbuf that has
 * been read. */
static void rs_grant_credits(struct rs *rs) REQUIRES(rs->lock)
{
	uint32_t half = rs->rbuf_size / 2;
	bool memory = rs->rbuf_free >= half;
	bool messages = (int16_t)(rs->received - rs->granted) >= 0;

	if (!(memory || messages) || !may_control(rs) || !rs->may_receive)
		return;
	uint32_t message = rs_message(RS_OP_SGL, (uint16_t)(rs->received + rs->rq_size));

	rs->granted = (uint16_t)(rs->received + rs->rq_size / 2);
	if (!memory) {
		post_control(rs, NULL, message, 0, 0);
		return;
	}
	struct rs_sge offer = {(uintptr_t)rs->rbuf + rs->rbuf_offer, rs->rmr->rkey, half};
	struct ibv_sge sge = {(uintptr_t)&offer, sizeof(offer), 0};

	post_control(rs, &sge, message, rs->peer_sgl.addr + rs->peer_entry * sizeof(offer),
		     rs->peer_sgl.key);
	rs->peer_entry = (rs->peer_entry + 1) % rs->peer_sgl.length;
	rs->rbuf_free -= half;
	rs->rbuf_offer = (rs->rbuf_offer + half) % rs->rbuf_size;
}

static void send_due(struct rs *rs) REQUIRES(rs->lock)
{
	rs_iomap_tell(rs);
	rs_grant_credits(rs);
	if (rs->shutdown_due < 0 || !may_control(rs))
		return;
	uint32_t what = (uint32_t)rs->shutdown_due;

	rs->shutdown_due = -1;
	post_control(rs, NULL, rs_message(RS_OP_CTRL, what), 0, 0);
	if (what == RS_CTRL_DISCONNECT && rs->state == RS_CONNECTED)
		rs->state = RS_CLOSED;
}

/* ------------------------------------------------------------------ completions */

/* Reads the entries of the table here, which the peer wrote before its message. */
static void learn_targets(struct rs *rs) REQUIRES(rs->lock)
{
	struct rs_sge *entry = &rs->table[rs->target_next];

	if (rs->target[rs->target_next].length ||
	    !__atomic_load_n(&entry->length, __ATOMIC_ACQUIRE))
		return;
	rs->target[rs->target_next] = *entry;
	entry->length = 0;
	rs->target_next = (rs->target_next + 1) % RS_SGL_SIZE;
}

static void take_control(struct rs *rs, uint32_t what) REQUIRES(rs->lock)
{
	switch (what) {
	case RS_CTRL_DISCONNECT:
		rs->may_receive = rs->may_send = false;
		if (rs->state < RS_CLOSED)
			rs->state = RS_CLOSED;
		break;
	case RS_CTRL_SHUTDOWN:
		rs->may_receive = false;
		break;
	default: /* a keep-alive message */
		break;
	}
}

static void take_message(struct rs *rs, uint32_t message) REQUIRES(rs->lock)
{
	uint32_t value = message & RS_VALUE_MASK;

	switch (message >> RS_OP_SHIFT) {
	case RS_OP_DATA:
		/* The counters must stay consistent whatever the peer sends. */
		if (value > rs->rbuf_size - rs->rbuf_ready - rs->rbuf_free) {
			rs_fail(rs, EPROTO);
			return;
		}
		rs->rbuf_ready += value;
		rs->received++;
		break;
	case RS_OP_SGL:
		rs->credit = (uint16_t)value;
		learn_targets(rs);
		break;
	case RS_OP_CTRL:
		take_control(rs, value);
		break;
	default: /* an iomap entry is read when it is used */
		break;
	}
}

static void rs_take_completion(struct rs *rs, const struct ibv_wc *wc) REQUIRES(rs->lock)
{
	if (wc->status != IBV_WC_SUCCESS) {
		if (rs->state == RS_CONNECTED)
			rs_fail(rs, ECONNRESET);
		else if (rs->state == RS_CLOSED)
			rs->state = RS_DISCONNECTED;
		return;
	}
	if (wc->opcode & IBV_WC_RECV) {
		struct ibv_recv_wr wr = {.wr_id = 0}, *bad;

		ibv_post_recv(rs->id->qp, &wr, &bad);
		take_message(rs, ntohl(wc->imm_data));
	} else if (wc->wr_id & WR_CONTROL_BIT) {
		rs->control--;
	} else {
		rs->sq_free++;
		rs->sbuf_free += (uint32_t)wc->wr_id;
	}
}

bool rs_progress(struct rs *rs)
{
	struct ibv_wc wc[16];
	bool any = false;
	int n;

	if (rs->ds)
		ds_progress(rs);
	if (rs->ds || !rs->cq)
		return false;
	do {
		n = ibv_poll_cq(rs->cq, 16, wc);
		for (int i = 0; i < n; i++)
			rs_take_completion(rs, &wc[i]);
		any |= n > 0;
	} while (n == 16);
	if (rs->state == RS_CONNECTED)
		send_due(rs);
	if (any)
		rs_wake(rs);
	return any;
}

bool rs_can_send(const struct rs *rs)
{
	return rs->sq_free && rs->sent != rs->credit && rs->target[rs->target_now].length &&
	       rs->sbuf_free;
}

/* ------------------------------------------------------------------ sending */

static bool rs_send_is_ready(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->state > RS_CONNECTED ||
	       (rs->state == RS_CONNECTED && (!rs->may_send || rs_can_send(rs)));
}

static bool rs_connect_has_ended(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->state >= RS_CONNECTED;
}

/* The error for an rsocket that isn't connected, or not any more. */
static int not_connected(struct rs *rs) REQUIRES(rs->lock)
{
	if (rs->state == RS_FAILED) {
		int error = rs->error;

		rs->error = 0;
		return error ? -error : -ECONNRESET;
	}
	return -ENOTCONN;
}

static int send_error(struct rs *rs) REQUIRES(rs->lock)
{
	if (rs->state == RS_CLOSED || rs->state == RS_DISCONNECTED ||
	    (rs->state == RS_CONNECTED && !rs->may_send))
		return -EPIPE;
	return not_connected(rs);
}

/* Copies `bytes` from the vector to `out` and advances in it. */
static void iov_gather(uint8_t *out, const struct iovec **iov, size_t *at, uint32_t bytes)
{
	while (bytes) {
		size_t n = (*iov)->iov_len - *at;

		if (n > bytes)
			n = bytes;
		memcpy(out, (const uint8_t *)(*iov)->iov_base + *at, n);
		out += n;
		bytes -= (uint32_t)n;
		*at += n;
		if (*at == (*iov)->iov_len) {
			(*iov)++;
			*at = 0;
		}
	}
}

int rs_stage(struct rs *rs, const struct iovec **iov, size_t *at, uint32_t bytes,
	     struct ibv_sge sge[2])
{
	uint32_t end = rs->sbuf_size - rs->sbuf_next, first = bytes < end ? bytes : end;

	iov_gather(rs->sbuf + rs->sbuf_next, iov, at, first);
	sge[0] = (struct ibv_sge){(uintptr_t)rs->sbuf + rs->sbuf_next, first, rs->smr->lkey};
	if (bytes > first) {
		iov_gather(rs->sbuf, iov, at, bytes - first);
		sge[1] = (struct ibv_sge){(uintptr_t)rs->sbuf, bytes - first, rs->smr->lkey};
	}
	rs->sbuf_next = (rs->sbuf_next + bytes) % rs->sbuf_size;
	rs->sbuf_free -= bytes;
	return bytes > first ? 2 : 1;
}

/* Advances in the vector. */
static void iov_skip(const struct iovec **iov, size_t *at, size_t bytes)
{
	while (bytes >= (*iov)->iov_len - *at) {
		bytes -= (*iov)->iov_len - *at;
		(*iov)++;
		*at = 0;
		if (!bytes)
			return;
	}
	*at += bytes;
}

static int post_data(struct rs *rs, struct ibv_sge *sge, int count, uint32_t bytes,
		     unsigned int flags, uint32_t staged) REQUIRES(rs->lock)
{
	const struct rs_sge *target = &rs->target[rs->target_now];
	uint32_t message = rs_message(RS_OP_DATA, bytes);

	return rs_post_write(rs, sge, count, &message, flags, target->addr, target->key,
			     rs_wr_data(staged));
}

/*
 * Sends from the program's memory as inline data of any size; our device accepts that where it can
 * carry it out at once (to a peer of this host). Returns the number of bytes, or 0: use sbuf,
 * and don't try again for some sends.
 */
static ssize_t send_direct(struct rs *rs, const struct iovec **iov, size_t *at, uint32_t bytes)
	REQUIRES(rs->lock)
{
	struct ibv_sge sge[RS_SEND_SGE];
	size_t offset = *at;
	uint32_t total = 0;
	int count = 0;

	for (const struct iovec *v = *iov; total < bytes && count < RS_SEND_SGE; v++) {
		size_t n = v->iov_len - offset;

		n = n < bytes - total ? n : bytes - total;
		if (n)
			sge[count++] =
				(struct ibv_sge){(uintptr_t)v->iov_base + offset, (uint32_t)n, 0};
		total += (uint32_t)n;
		offset = 0;
	}
	if (post_data(rs, sge, count, total, IBV_SEND_INLINE | SEND_DIRECT, 0)) {
		rs->stage_next = RS_STAGE_NEXT;
		return 0;
	}
	iov_skip(iov, at, total);
	return total;
}

/* Sends few bytes inline, more by sbuf. */
static ssize_t send_copy(struct rs *rs, const struct iovec **iov, size_t *at, uint32_t bytes)
	REQUIRES(rs->lock)
{
	uint8_t copy[RS_CHUNK_FIRST];
	struct ibv_sge sge[2];
	int err;

	if (bytes > rs->sbuf_free)
		bytes = rs->sbuf_free;
	if (bytes <= rs->inline_size && bytes <= sizeof(copy)) {
		iov_gather(copy, iov, at, bytes);
		sge[0] = (struct ibv_sge){(uintptr_t)copy, bytes, 0};
		err = post_data(rs, sge, 1, bytes, IBV_SEND_INLINE, 0);
	} else {
		int count = rs_stage(rs, iov, at, bytes, sge);

		err = post_data(rs, sge, count, bytes, 0, bytes);
	}
	return err ? err : (ssize_t)bytes;
}

/* Sends one write of at most `left` bytes. Returns their number, or -errno. */
static ssize_t send_chunk(struct rs *rs, const struct iovec **iov, size_t *at, size_t left)
	REQUIRES(rs->lock)
{
	struct rs_sge *target = &rs->target[rs->target_now];
	uint32_t bytes = left < rs->chunk ? (uint32_t)left : rs->chunk;
	ssize_t n = 0;

	if (bytes > target->length)
		bytes = target->length;
	if (rs->stage_next)
		rs->stage_next--;
	else if (bytes > rs->inline_size)
		n = send_direct(rs, iov, at, bytes);
	if (!n)
		n = send_copy(rs, iov, at, bytes);
	if (n < 0) {
		rs_fail(rs, (int)-n);
		return n;
	}
	rs->sq_free--;
	rs->sent++;
	target->addr += (uint64_t)n;
	target->length -= (uint32_t)n;
	if (!target->length)
		rs->target_now = (rs->target_now + 1) % RS_SGL_SIZE;
	if (rs->chunk < RS_CHUNK_MAX)
		rs->chunk *= 2;
	return n;
}

static size_t vector_size(const struct iovec *iov, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		size += iov[i].iov_len;
	return size;
}

static ssize_t send_locked(struct rs *rs, const struct iovec *iov, size_t size, bool nonblocking)
	REQUIRES(rs->lock)
{
	size_t done = 0, at = 0;
	if (rs->state < RS_RESOLVING_ADDR)
		return -ENOTCONN;
	int err = rs_wait(rs, rs_connect_has_ended, nonblocking, -1);

	if (err)
		return err;
	/* A program that only sends takes its completions here now and then; otherwise the engine
	 * thread would have to. */
	if (rs->sent % RS_LOOK_SENDS == 0)
		rs_progress(rs);
	/* A small first chunk doesn't help while the peer is still copying earlier data. */
	rs->chunk = rs->sq_free == rs->sq_size ? RS_CHUNK_FIRST : RS_CHUNK_BUSY;
	while (done < size) {
		if (!rs_send_is_ready(rs) || !rs_can_send(rs))
			err = rs_wait(rs, rs_send_is_ready, nonblocking,
				      rs_timeout_ms(&rs->send_timeout));
		if (err == -ETIMEDOUT)
			err = -EAGAIN;
		if (!err && (rs->state != RS_CONNECTED || !rs->may_send))
			err = send_error(rs);
		if (err)
			return done ? (ssize_t)done : err;
		while (iov->iov_len == at) {
			iov++;
			at = 0;
		}
		ssize_t n = send_chunk(rs, &iov, &at, size - done);

		if (n < 0)
			return done ? (ssize_t)done : n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t stream_result(ssize_t n)
{
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

static ssize_t send_message(int fd, const struct msghdr *msg, int flags)
{
	struct rs *rs = rs_table_get(fd);
	const struct iovec *iov = msg->msg_iov;
	ssize_t n;

	if (!rs)
		return stream_result(-EBADF);
	if (flags & MSG_OOB || (msg->msg_control && msg->msg_controllen))
		return stream_result(-EOPNOTSUPP);
	if (!rs->ds && (msg->msg_name || msg->msg_namelen))
		return stream_result(-EISCONN);
	mutex_take(&rs->lock);
	if (rs->ds)
		n = ds_send(rs, msg, flags);
	else
		n = send_locked(rs, iov, vector_size(iov, msg->msg_iovlen),
				rs->nonblocking || flags & MSG_DONTWAIT);
	mutex_give(&rs->lock);
	return stream_result(n);
}

EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return rsendto(socket, buf, len, flags, NULL, 0);
}

EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
		       const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_name = (void *)dest_addr,
			     .msg_namelen = addrlen,
			     .msg_iov = &iov,
			     .msg_iovlen = 1};

	return send_message(socket, &msg, flags);
}

EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return send_message(socket, msg, flags);
}

EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsend(socket, buf, count, 0);
}

EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)iovcnt};

	return iovcnt < 0 ? stream_result(-EINVAL) : send_message(socket, &msg, 0);
}

/* ------------------------------------------------------------------ receiving */

static bool receive_ready(const struct rs *rs) REQUIRES(rs->lock)
{
	return rs->rbuf_ready || rs->state > RS_CONNECTED ||
	       (rs->state == RS_CONNECTED && !rs->may_receive);
}

/* Copies the available bytes, up to `size`; `peek` doesn't consume them. */
static size_t take_bytes(struct rs *rs, void *buf, size_t size, bool peek) REQUIRES(rs->lock)
{
	size_t bytes = size < rs->rbuf_ready ? size : rs->rbuf_ready;
	size_t end = rs->rbuf_size - rs->rbuf_next, first = bytes < end ? bytes : end;

	memcpy(buf, rs->rbuf + rs->rbuf_next, first);
	memcpy((uint8_t *)buf + first, rs->rbuf, bytes - first);
	if (!peek) {
		rs->rbuf_next = (uint32_t)((rs->rbuf_next + bytes) % rs->rbuf_size);
		rs->rbuf_ready -= (uint32_t)bytes;
		rs->rbuf_free += (uint32_t)bytes;
		if (rs->state == RS_CONNECTED)
			rs_grant_credits(rs);
	}
	return bytes;
}

static ssize_t receive_locked(struct rs *rs, void *buf, size_t size, int flags) REQUIRES(rs->lock)
{
	bool nonblocking = rs->nonblocking || flags & MSG_DONTWAIT, all = flags & MSG_WAITALL;
	size_t done = 0;

	if (rs->state < RS_RESOLVING_ADDR)
		return -ENOTCONN;
	do {
		int err = rs->rbuf_ready ? 0
					 : rs_wait(rs, receive_ready, nonblocking,
						   rs_timeout_ms(&rs->receive_timeout));

		if (err == -ETIMEDOUT)
			err = -EAGAIN;
		if (!err && !rs->rbuf_ready && rs->state == RS_FAILED)
			err = not_connected(rs);
		if (err)
			return done ? (ssize_t)done : err;
		if (!rs->rbuf_ready)
			break;
		done += take_bytes(rs, (uint8_t *)buf + done, size - done, flags & MSG_PEEK);
	} while (all && done < size && !(flags & MSG_PEEK));
	return (ssize_t)done;
}

static ssize_t rs_receive(int fd, void *buf, size_t size, int flags)
{
	struct rs *rs = rs_table_get(fd);

	if (!rs)
		return -EBADF;
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (!size)
		return 0;
	mutex_take(&rs->lock);
	ssize_t n = receive_locked(rs, buf, size, flags);

	mutex_give(&rs->lock);
	return n;
}

/* Receives into the vector: waits for the first part only. */
static ssize_t receive_vector(int fd, const struct iovec *iov, size_t count, int flags)
{
	ssize_t done = 0;

	if (flags & MSG_PEEK && count > 1)
		count = 1;
	for (size_t i = 0; i < count; i++) {
		int how = done && !(flags & MSG_WAITALL) ? flags | MSG_DONTWAIT : flags;
		ssize_t n = rs_receive(fd, iov[i].iov_base, iov[i].iov_len, how);

		if (n < 0)
			return done ? done : n;
		done += n;
		if ((size_t)n < iov[i].iov_len)
			break;
	}
	return done;
}

/* recvmsg(), and the calls that are made from it. */
static ssize_t receive_message(int fd, struct msghdr *msg, int flags)
{
	struct rs *rs = rs_table_get(fd);

	if (!rs)
		return -EBADF;
	if (msg->msg_control && msg->msg_controllen)
		return -EOPNOTSUPP;
	if (!rs->ds) {
		ssize_t n = receive_vector(fd, msg->msg_iov, msg->msg_iovlen, flags);

		msg->msg_flags = 0;
		if (n >= 0 && msg->msg_name)
			rgetpeername(fd, msg->msg_name, &msg->msg_namelen);
		return n;
	}
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	mutex_take(&rs->lock);
	ssize_t n = ds_receive(rs, msg, flags);

	mutex_give(&rs->lock);
	return n;
}

EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
			 socklen_t *addrlen)
{
	struct iovec iov = {buf, len};
	struct msghdr msg = {.msg_name = addrlen ? src_addr : NULL,
			     .msg_namelen = addrlen ? *addrlen : 0,
			     .msg_iov = &iov,
			     .msg_iovlen = 1};
	ssize_t n = receive_message(socket, &msg, flags);

	if (n >= 0 && src_addr && addrlen)
		*addrlen = msg.msg_namelen;
	return stream_result(n);
}

EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return stream_result(receive_message(socket, msg, flags));
}

EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecv(socket, buf, count, 0);
}

EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)iovcnt};

	return stream_result(iovcnt < 0 ? -EINVAL : receive_message(socket, &msg, 0));
}

/* ------------------------------------------------------------------ readiness */

short rs_ready(const struct rs *rs)
{
	short ready = 0;

	if (rs->ds)
		return ds_ready(rs);
	switch (rs->state) {
	case RS_CONNECTED:
		if (rs->rbuf_ready || !rs->may_receive)
			ready |= POLLIN;
		if (!rs->may_receive)
			ready |= POLLRDHUP;
		if (!rs->may_send || rs_can_send(rs))
			ready |= POLLOUT;
		break;
	case RS_CLOSED:
	case RS_DISCONNECTED:
		ready |= POLLIN | POLLOUT | POLLRDHUP;
		/* Programs take this bit for the end, so it is set only when all bytes have been
		 * read. */
		if (!rs->rbuf_ready)
			ready |= POLLHUP;
		break;
	case RS_FAILED:
		ready |= POLLIN | POLLOUT | POLLERR | POLLHUP;
		break;
	case RS_LISTENING:
		ready |= rs->request ? POLLIN : 0;
		break;
	case RS_OPEN:
	case RS_BOUND:
		/* The bits of a TCP socket that isn't connected. */
		ready |= POLLOUT | POLLHUP;
		break;
	default:
		break;
	}
	return ready;
}
