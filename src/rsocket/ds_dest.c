/* SPDX-License-Identifier: BSD-2-Clause */
/* Destinations and local queue pairs of datagrams; messages received by UDP. See datagram.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "rsocket/datagram.h"

enum { UDP_BATCH = 64, RESOLVE_MS = 2000 };

/* Minimum time between two answers to a peer, which sends by UDP also when its datagrams are
 * long. */
#define ANSWER_NS 10000000

/* ------------------------------------------------------------------ addresses */

static socklen_t ds_addr_size(const union ds_addr *addr)
{
	return addr->sa.sa_family == AF_INET6 ? sizeof(addr->in6) : sizeof(addr->in);
}

static int ds_addr_compare(const void *one, const void *two)
{
	const union ds_addr *a = one, *b = two;

	if (a->sa.sa_family != b->sa.sa_family)
		return a->sa.sa_family < b->sa.sa_family ? -1 : 1;
	if (a->sa.sa_family == AF_INET) {
		int order = memcmp(&a->in.sin_addr, &b->in.sin_addr, sizeof(a->in.sin_addr));

		return order ? order : (int)a->in.sin_port - (int)b->in.sin_port;
	}
	int order = memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr));

	return order ? order : (int)a->in6.sin6_port - (int)b->in6.sin6_port;
}

bool ds_same(const union ds_addr *a, const union ds_addr *b)
{
	return !ds_addr_compare(a, b);
}

/* For a device, an IPv4 address mapped into IPv6 is an IPv4 address. */
static union ds_addr ds_addr_plain(const union ds_addr *addr)
{
	union ds_addr out = *addr;

	if (addr->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr))
		return out;
	memset(&out, 0, sizeof(out));
	out.in.sin_family = AF_INET;
	out.in.sin_port = addr->in6.sin6_port;
	memcpy(&out.in.sin_addr, &addr->in6.sin6_addr.s6_addr[12], sizeof(out.in.sin_addr));
	return out;
}

static bool is_any(const union ds_addr *addr)
{
	return addr->sa.sa_family == AF_INET ? addr->in.sin_addr.s_addr == htonl(INADDR_ANY)
					     : IN6_IS_ADDR_UNSPECIFIED(&addr->in6.sin6_addr);
}

/* The address from which the host would send, with the UDP socket's port. */
static int source_for(struct rs *rs, const union ds_addr *to, union ds_addr *source)
{
	socklen_t size = sizeof(*source);
	int err = 0;

	if (getsockname(rs->fd, &source->sa, &size))
		return -errno;
	if (!is_any(source))
		return 0;
	in_port_t port = source->in.sin_port; /* at the same place in both families */
	int probe = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (probe < 0)
		return -errno;
	size = sizeof(*source);
	if (sys_connect(probe, &to->sa, ds_addr_size(to)) || getsockname(probe, &source->sa, &size))
		err = -errno;
	sys_close(probe);
	source->in.sin_port = port;
	return err;
}

static struct ds_header header_of(const union ds_addr *source)
{
	union ds_addr addr = ds_addr_plain(source);
	struct ds_header header = {.port = addr.in.sin_port};

	if (addr.sa.sa_family == AF_INET) {
		header.version = 4;
		header.length = DS_IPV4;
		header.ipv4 = addr.in.sin_addr.s_addr;
	} else {
		header.version = 6;
		header.length = DS_IPV6;
		header.ipv6.flowinfo = addr.in6.sin6_flowinfo;
		memcpy(header.ipv6.addr, &addr.in6.sin6_addr, sizeof(header.ipv6.addr));
	}
	return header;
}

/* ------------------------------------------------------------------ buffers */

int ds_prepare(struct rs *rs)
{
	struct ds *ds = rs->ds;

	if (ds->sized)
		return 0;
	if (rs->rq_size > rs->rbuf_size / DS_RECEIVE)
		rs->rq_size = rs->rbuf_size / DS_RECEIVE;
	if (rs->sq_size > rs->sbuf_size / DS_MESSAGE_MAX)
		rs->sq_size = rs->sbuf_size / DS_MESSAGE_MAX;
	rs->rq_size += !rs->rq_size;
	rs->sq_size += !rs->sq_size;
	ds->slots = ds->free_count = rs->sq_free = rs->sq_size;
	/* All receives may be full, and as many messages may have arrived by UDP. */
	ds->inbox_size = (DS_QPS + 1) * rs->rq_size;
	ds->inbox = calloc(ds->inbox_size, sizeof(*ds->inbox));
	ds->free_slots = calloc(ds->slots, sizeof(*ds->free_slots));
	rs->sbuf = calloc(ds->slots, DS_MESSAGE_MAX);
	if (!ds->inbox || !ds->free_slots || !rs->sbuf) {
		free(ds->inbox);
		free(ds->free_slots);
		free(rs->sbuf);
		ds->inbox = NULL;
		ds->free_slots = NULL;
		rs->sbuf = NULL;
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < ds->slots; i++)
		ds->free_slots[i] = i;
	ds->sized = true;
	return 0;
}

static int register_buffers(struct rs *rs, struct ds_qp *qp) REQUIRES(rs->lock)
{
	size_t size = (size_t)rs->rq_size * DS_RECEIVE + DS_GRH;

	qp->rbuf = calloc(1, size);
	if (!qp->rbuf)
		return -ENOMEM;
	qp->rmr = ibv_reg_mr(qp->id->pd, qp->rbuf, size, IBV_ACCESS_LOCAL_WRITE);
	qp->smr = ibv_reg_mr(qp->id->pd, rs->sbuf, (size_t)rs->ds->slots * DS_MESSAGE_MAX, 0);
	return qp->rmr && qp->smr ? 0 : -errno;
}

void ds_post_receive(struct rs *rs, struct ds_qp *qp, uint32_t slot)
{
	struct ibv_sge sge[] = {
		{(uintptr_t)qp->rbuf + (size_t)rs->rq_size * DS_RECEIVE, DS_GRH, qp->rmr->lkey},
		{(uintptr_t)qp->rbuf + (size_t)slot * DS_RECEIVE, DS_RECEIVE, qp->rmr->lkey},
	};
	struct ibv_recv_wr wr = {.wr_id = rs_wr_receive(slot), .sg_list = sge, .num_sge = 2};
	struct ibv_recv_wr *bad;

	ibv_post_recv(qp->id->qp, &wr, &bad);
}

/* ------------------------------------------------------------------ queue pairs */

static int ds_make_cq(struct rs *rs, struct ibv_context *verbs) REQUIRES(rs->lock)
{
	if (rs->cq)
		return rs->cq->context == verbs ? 0 : -EOPNOTSUPP;
	return rs_make_cq(rs, verbs, (int)(DS_QPS * (rs->sq_size + rs->rq_size)));
}

static int ds_make_qp(struct rs *rs, struct ds_qp *qp) REQUIRES(rs->lock)
{
	struct ibv_port_attr port;
	struct ibv_qp_init_attr attr = {
		.qp_context = qp,
		.send_cq = rs->cq,
		.recv_cq = rs->cq,
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = rs->sq_size,
			.max_recv_wr = rs->rq_size,
			.max_send_sge = 1,
			.max_recv_sge = 2,
			.max_inline_data = rs->inline_size},
	};

	if (rdma_create_qp(qp->id, NULL, &attr) ||
	    ibv_query_port(qp->id->verbs, qp->id->port_num, &port))
		return -errno;
	qp->most = 128u << port.active_mtu;
	if (qp->most > DS_MESSAGE_MAX)
		qp->most = DS_MESSAGE_MAX;
	for (uint32_t i = 0; i < rs->rq_size; i++)
		ds_post_receive(rs, qp, i);
	return 0;
}

static void ds_qp_free(struct ds_qp *qp)
{
	if (qp->id && qp->id->qp)
		rdma_destroy_qp(qp->id);
	if (qp->smr)
		ibv_dereg_mr(qp->smr);
	if (qp->rmr)
		ibv_dereg_mr(qp->rmr);
	if (qp->id)
		rdma_destroy_id(qp->id);
	free(qp->rbuf);
	free(qp);
}

static int qp_make(struct rs *rs, const union ds_addr *source, struct ds_qp **out)
	REQUIRES(rs->lock)
{
	struct ds_qp *qp = calloc(1, sizeof(*qp));
	union ds_addr addr = ds_addr_plain(source);
	int err = 0;

	if (!qp)
		return -ENOMEM;
	qp->source = *source;
	qp->header = header_of(source);
	addr.in.sin_port = 0; /* the CM's ports are unrelated to UDP's */
	if (rdma_create_id(NULL, &qp->id, rs, RDMA_PS_UDP) || rdma_bind_addr(qp->id, &addr.sa))
		err = -errno;
	if (!err && !qp->id->verbs)
		err = -ENODEV;
	if (!err)
		err = ds_make_cq(rs, qp->id->verbs);
	if (!err)
		err = register_buffers(rs, qp);
	if (!err)
		err = ds_make_qp(rs, qp);
	if (err)
		ds_qp_free(qp);
	else
		*out = qp;
	return err;
}

/* The queue pair for the local address. NULL: no device has the address, or another device than
 * that of the other queue pairs. */
static struct ds_qp *qp_for(struct rs *rs, const union ds_addr *source) REQUIRES(rs->lock)
{
	struct ds *ds = rs->ds;
	struct ds_qp *qp = NULL;

	for (unsigned int i = 0; i < ds->qp_count; i++)
		if (ds_same(&ds->qps[i]->source, source))
			return ds->qps[i];
	if (ds->qp_count < DS_QPS && !qp_make(rs, source, &qp))
		ds->qps[ds->qp_count++] = qp;
	return qp;
}

/* ------------------------------------------------------------------ peers */

static void peer_free(void *data)
{
	struct ds_peer *peer = data;

	if (peer->ah)
		ibv_destroy_ah(peer->ah);
	free(peer);
}

static void forget_all(struct ds *ds)
{
	tdestroy(ds->peers, peer_free);
	ds->peers = NULL;
	ds->peer_count = 0;
	ds->last = ds->connected = NULL;
}

int ds_peer_get(struct rs *rs, const union ds_addr *addr, struct ds_peer **out)
{
	struct ds *ds = rs->ds;
	union ds_addr source = {0};

	if (ds->last && ds_same(&ds->last->addr, addr)) {
		*out = ds->last;
		return 0;
	}
	struct ds_peer **found = tfind(addr, &ds->peers, ds_addr_compare);

	if (found) {
		*out = *found;
		return 0;
	}
	int err = source_for(rs, addr, &source);

	if (err)
		return err;
	/* The number of senders that this socket hears from is unlimited. */
	if (ds->peer_count >= DS_PEERS_MAX && !ds->connected)
		forget_all(ds);
	struct ds_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return -ENOMEM;
	peer->addr = *addr;
	peer->qp = qp_for(rs, &source);
	if (!tsearch(peer, &ds->peers, ds_addr_compare)) {
		free(peer);
		return -ENOMEM;
	}
	ds->peer_count++;
	*out = peer;
	return 0;
}

static bool ds_gid_index(struct ds_qp *qp, const union ibv_gid *gid, uint8_t *index)
{
	struct ibv_port_attr port;
	union ibv_gid one;

	if (ibv_query_port(qp->id->verbs, qp->id->port_num, &port))
		return false;
	for (int i = 0; i < port.gid_tbl_len && i <= UINT8_MAX; i++) {
		if (!ibv_query_gid(qp->id->verbs, qp->id->port_num, i, &one) &&
		    !memcmp(&one, gid, sizeof(one))) {
			*index = (uint8_t)i;
			return true;
		}
	}
	return false;
}

static struct ibv_ah *make_ah(struct ds_qp *qp, struct rdma_cm_id *id)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = qp->id->port_num,
		.grh = {.dgid = id->route.addr.addr.ibaddr.dgid, .hop_limit = 64},
	};

	return ds_gid_index(qp, &id->route.addr.addr.ibaddr.sgid, &attr.grh.sgid_index)
		       ? ibv_create_ah(qp->id->pd, &attr)
		       : NULL;
}

/* The peer's queue pair is known: datagrams go there once the address handle exists. */
static void peer_found(struct ds_peer *peer, uint32_t qpn)
{
	union ds_addr from, to;
	struct rdma_cm_id *id;

	if (!peer->qp || (peer->ah && peer->qpn == qpn))
		return;
	peer->qpn = qpn;
	if (peer->ah)
		return; /* the address handle is the same; only the QPN changed */
	from = ds_addr_plain(&peer->qp->source);
	to = ds_addr_plain(&peer->addr);
	from.in.sin_port = 0;
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP))
		return;
	if (!rdma_resolve_addr(id, &from.sa, &to.sa, RESOLVE_MS) &&
	    !rdma_resolve_route(id, RESOLVE_MS) && id->verbs == peer->qp->id->verbs)
		peer->ah = make_ah(peer->qp, id);
	rdma_destroy_id(id);
}

/* ------------------------------------------------------------------ UDP */

ssize_t ds_send_udp(struct rs *rs, const struct ds_peer *peer, const struct iovec *iov,
		    size_t count, enum rs_op op, int flags)
{
	struct ds_udp_header header = {.tag = htonl(DS_UDP_TAG), .op = (uint8_t)op};
	struct iovec all[RS_DATAGRAM_PARTS + 1] = {{.iov_base = &header}};
	struct msghdr msg = {.msg_iov = all, .msg_iovlen = count + 1};
	const struct ds_qp *qp = peer->qp;

	if (count > RS_DATAGRAM_PARTS)
		return -EMSGSIZE;
	header.version = qp ? qp->header.version : 4;
	header.length = header.version == 4 ? DS_UDP_IPV4 : DS_UDP_IPV6;
	header.qpn = htonl(qp ? qp->id->qp->qp_num & 0xffffff : 0);
	if (qp && header.version == 4)
		header.ipv4 = qp->header.ipv4;
	else if (qp)
		memcpy(header.ipv6, qp->header.ipv6.addr, sizeof(header.ipv6));
	all[0].iov_len = header.length;
	if (count)
		memcpy(&all[1], iov, count * sizeof(*iov));
	if (peer != rs->ds->connected) {
		msg.msg_name = (void *)&peer->addr;
		msg.msg_namelen = ds_addr_size(&peer->addr);
	}
	ssize_t n = sys_sendmsg(rs->fd, &msg, (flags & MSG_DONTWAIT) | MSG_NOSIGNAL);

	return n < 0 ? -errno : n < header.length ? 0 : n - header.length;
}

/* The size of the header in bytes; 0: it isn't a valid one. */
static uint32_t valid_header(const struct ds_udp_header *header, size_t size)
{
	if (size < DS_UDP_IPV4 || ntohl(header->tag) != DS_UDP_TAG || header->length > size)
		return 0;
	return (header->version == 4 && header->length == DS_UDP_IPV4) ||
			       (header->version == 6 && header->length == DS_UDP_IPV6)
		       ? header->length
		       : 0;
}

static void take_data(struct rs *rs, const union ds_addr *from, const uint8_t *data, size_t size)
	REQUIRES(rs->lock)
{
	struct ds_message message = {.from = *from, .length = (uint32_t)size};

	message.copy = malloc(size ? size : 1);
	if (!message.copy)
		return;
	memcpy(message.copy, data, size);
	if (!ds_deliver(rs, &message))
		free(message.copy);
}

static void ds_take_packet(struct rs *rs, const union ds_addr *from, const uint8_t *data,
			   size_t size) REQUIRES(rs->lock)
{
	struct ds_udp_header header = {0};
	struct ds_peer *peer;

	memcpy(&header, data, size < sizeof(header) ? size : sizeof(header));
	uint32_t skip = valid_header(&header, size);

	if (!skip || ds_peer_get(rs, from, &peer))
		return;
	if (header.op == RS_OP_DATA && peer->qp && rs_now_ns() - peer->answered_ns > ANSWER_NS) {
		peer->answered_ns = rs_now_ns();
		ds_send_udp(rs, peer, NULL, 0, RS_OP_CTRL, MSG_DONTWAIT);
	}
	if (ntohl(header.qpn) & 0xffffff)
		peer_found(peer, ntohl(header.qpn) & 0xffffff);
	if (header.op == RS_OP_DATA)
		take_data(rs, from, data + skip, size - skip);
}

void ds_events(struct rs *rs)
{
	uint8_t packet[DS_UDP_IPV6 + 65536];
	union ds_addr from = {0};

	if (ds_prepare(rs))
		return;
	for (int i = 0; i < UDP_BATCH; i++) {
		struct iovec room = {packet, sizeof(packet)};
		struct msghdr m = {.msg_name = &from.sa,
				   .msg_namelen = sizeof(from),
				   .msg_iov = &room,
				   .msg_iovlen = 1};
		ssize_t n = sys_recvmsg(rs->fd, &m, MSG_DONTWAIT);

		/* The peer's host refused a datagram: reported once on a connected socket. */
		if (n < 0 && errno == ECONNREFUSED)
			rs->error = ECONNREFUSED;
		if (n < 0)
			return;
		ds_take_packet(rs, &from, packet, (size_t)n);
	}
}

/* ------------------------------------------------------------------ the end */

void ds_close(struct rs *rs)
{
	struct ds *ds = rs->ds;

	forget_all(ds);
	while (ds->qp_count)
		ds_qp_free(ds->qps[--ds->qp_count]);
	for (; ds->inbox_count; ds->inbox_count--) {
		free(ds->inbox[ds->inbox_head].copy);
		ds->inbox_head = (ds->inbox_head + 1) % ds->inbox_size;
	}
	free(ds->inbox);
	free(ds->free_slots);
	free(ds);
	rs->ds = NULL;
}
