/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram rsockets. See rs.h.
 *
 * Each has a UDP socket, whose descriptor is its number and whose address is its own, and an
 * unreliable-datagram queue pair for each local address that it sends from. A sender that doesn't
 * know the peer's queue pair yet sends its datagrams by UDP, after a header with its own QPN
 * (struct ds_udp_header); the receiver of such a datagram answers with its QPN. From then on
 * datagrams go from queue pair to queue pair, after a header with the sender's address
 * (struct ds_header). Datagrams longer than the device's MTU always go by UDP.
 *
 *   ds_dest.c   destinations, local queue pairs, messages received by UDP
 *   datagram.c  sending and receiving
 *
 * There is no thread of its own: each call that uses the rsocket, or waits for it, also polls the
 * UDP socket. Everything is guarded by rs.lock. All queue pairs of an rsocket share a completion
 * queue, so they belong to one device; from an address of another device datagrams go by UDP.
 */
#ifndef VERBENA_RSOCKET_DATAGRAM_H
#define VERBENA_RSOCKET_DATAGRAM_H

#include <netinet/in.h>

#include "rsocket/rs.h"

union ds_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* The header of each datagram between queue pairs. The IPv4 form ends after `ipv4`. */
struct ds_header {
	uint8_t version; /* 4, 6 */
	uint8_t length;
	uint16_t port; /* network order, like the following fields */
	union {
		uint32_t ipv4;
		struct {
			uint32_t flowinfo;
			uint8_t addr[16];
		} ipv6;
	};
};

/* The header of messages by UDP. With RS_OP_DATA a datagram follows, and an answer is requested;
 * with RS_OP_CTRL nothing follows. */
struct ds_udp_header {
	uint32_t tag; /* network order, like all fields */
	uint8_t version;
	uint8_t op;
	uint8_t length;
	uint8_t reserved;
	uint32_t qpn;
	union {
		uint32_t ipv4;
		uint8_t ipv6[16];
	};
};

#define DS_UDP_TAG 0x55555555u

enum {
	DS_IPV4 = 8, /* bytes of struct ds_header */
	DS_IPV6 = 24,
	DS_UDP_IPV4 = 16, /* of struct ds_udp_header */
	DS_UDP_IPV6 = 28,
	DS_GRH = 40,
	DS_MESSAGE_MAX = 2048, /* with its header: the room in a receive of the peer */
	DS_RECEIVE = 4096,     /* bytes of a receive here: the most that a device can deliver */
	DS_QPS = 4,
	DS_PEERS_MAX = 4096, /* peers that are remembered; beyond that all are forgotten */
};

/* A queue pair for one local address. */
struct ds_qp {
	struct rdma_cm_id *id;
	union ds_addr source; /* with the UDP socket's port */
	struct ds_header header;
	uint32_t most; /* longest message in bytes, with its header */
	struct ibv_mr *smr, *rmr;
	uint8_t *rbuf; /* a slot for each receive; then one for GRHs, which isn't read */
};

struct ds_peer {
	union ds_addr addr; /* must be first: peers are compared by it */
	struct ds_qp *qp;   /* the local queue pair to use; NULL: only UDP */
	struct ibv_ah *ah;  /* NULL: the peer's queue pair isn't known yet */
	uint32_t qpn;
	int64_t answered_ns; /* when the local QPN was last sent to this peer */
};

/* A received datagram. */
struct ds_message {
	union ds_addr from;
	struct ds_qp *qp; /* the message is in this QP's receive `slot`; NULL: in `copy` */
	uint32_t slot, offset, length;
	uint8_t *copy;
};

struct ds {
	struct ds_qp *qps[DS_QPS];
	unsigned int qp_count;
	void *peers; /* tree of struct ds_peer */
	unsigned int peer_count;
	struct ds_peer *last; /* the last destination, or NULL */
	struct ds_peer *connected;
	struct ds_message *inbox; /* ring */
	uint32_t inbox_size, inbox_head, inbox_count;
	uint32_t *free_slots; /* free slots of rs.sbuf, a stack */
	uint32_t free_count, slots;
	/* ds_prepare() has allocated the buffers: their sizes are fixed. Never cleared. Under
	 * rs.lock, as all of this structure. */
	bool sized;
};

/* ---- ds_dest.c */

/* Returns the peer with this address, which is made if it doesn't exist. 0 or -errno. */
int ds_peer_get(struct rs *rs, const union ds_addr *addr, struct ds_peer **out) REQUIRES(rs->lock);
/* Sends the iovec by UDP, after the header with the local address and QPN. Returns the bytes of the
 * iovec, or -errno. */
ssize_t ds_send_udp(struct rs *rs, const struct ds_peer *peer, const struct iovec *iov,
		    size_t count, enum rs_op op, int flags) REQUIRES(rs->lock);
/* Handles messages received by UDP. */
void ds_events(struct rs *rs) REQUIRES(rs->lock);
/* Allocates buffers; called before the first datagram. 0 or -errno. */
int ds_prepare(struct rs *rs) REQUIRES(rs->lock);
void ds_close(struct rs *rs) REQUIRES(rs->lock);
void ds_post_receive(struct rs *rs, struct ds_qp *qp, uint32_t slot) REQUIRES(rs->lock);
bool ds_same(const union ds_addr *a, const union ds_addr *b);

/* ---- datagram.c */

/* Makes `rs` a datagram rsocket; `flags` are those of socket(). 0 or -errno; rs->fd is the UDP
 * socket. */
int ds_open(struct rs *rs, int flags);
/* Appends to the inbox. False: the message isn't taken. */
bool ds_deliver(struct rs *rs, const struct ds_message *message) REQUIRES(rs->lock);
void ds_progress(struct rs *rs) REQUIRES(rs->lock);
short ds_ready(const struct rs *rs) REQUIRES(rs->lock);
int ds_connect(struct rs *rs, const struct sockaddr *addr, socklen_t size) REQUIRES(rs->lock);
ssize_t ds_send(struct rs *rs, const struct msghdr *msg, int flags) REQUIRES(rs->lock);
ssize_t ds_receive(struct rs *rs, struct msghdr *msg, int flags) REQUIRES(rs->lock);
bool ds_sends_done(const struct rs *rs) REQUIRES(rs->lock);

#endif
