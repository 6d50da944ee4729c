/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagram rsockets. See rs.h.
 *
 * Each has a UDP socket, whose descriptor is its number and whose addresses are its own; and, for
 * each local address that it sends from, an unreliable-datagram queue pair. Who doesn't know yet
 * which queue pair is behind an address sends his datagrams by UDP, behind a header that tells his
 * own (struct ds_udp_header); who gets such a one answers with his. From then on datagrams go from
 * queue pair to queue pair, behind a header that tells the sender's address (struct ds_header).
 * What is too long for the device's MTU stays with UDP.
 *
 *   ds_dest.c   destinations, local queue pairs, what comes by UDP
 *   datagram.c  sending and receiving
 *
 * There is no thread: whoever uses the rsocket, or waits for it, looks at the UDP socket as well.
 * All under rs.lock. All queue pairs of an rsocket share a completion queue, so they are of one
 * device; from an address of another device datagrams go by UDP.
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

/* Before each datagram between queue pairs. The IPv4 one ends after `ipv4`. */
struct ds_header {
	uint8_t version; /* 4, 6 */
	uint8_t length;
	uint16_t port; /* network order, as what follows */
	union {
		uint32_t ipv4;
		struct {
			uint32_t flowinfo;
			uint8_t addr[16];
		} ipv6;
	};
};

/* By UDP. With RS_OP_DATA a datagram follows, which asks for an answer; with RS_OP_CTRL nothing. */
struct ds_udp_header {
	uint32_t tag; /* network order, as all */
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
	DS_MESSAGE_MAX = 2048, /* with its header: what the peer's receives have room for */
	DS_RECEIVE = 4096,     /* what ours have: all that a device can bring */
	DS_QPS = 4,
	DS_PEERS_MAX = 4096, /* remembered; then they are all forgotten */
};

/* A queue pair, for one local address. */
struct ds_qp {
	struct rdma_cm_id *id;
	union ds_addr source; /* its port is the UDP socket's */
	struct ds_header header;
	uint32_t most; /* bytes of a message, with its header */
	struct ibv_mr *smr, *rmr;
	uint8_t *rbuf; /* a slot for each receive; then one GRH that nobody reads */
};

struct ds_peer {
	union ds_addr addr; /* first: peers are compared by it */
	struct ds_qp *qp;   /* the way there; NULL: only by UDP */
	struct ibv_ah *ah;  /* NULL: not known yet */
	uint32_t qpn;
	int64_t answered_ns; /* when it was last told about our queue pair */
};

/* A datagram that has arrived. */
struct ds_message {
	union ds_addr from;
	struct ds_qp *qp; /* in its receive `slot`; NULL: in `copy` */
	uint32_t slot, offset, length;
	uint8_t *copy;
};

struct ds {
	struct ds_qp *qps[DS_QPS];
	unsigned int qp_count;
	void *peers; /* tree of struct ds_peer */
	unsigned int peer_count;
	struct ds_peer *last; /* sent to last, or NULL */
	struct ds_peer *connected;
	struct ds_message *inbox; /* ring */
	uint32_t inbox_size, inbox_head, inbox_count;
	uint32_t *free_slots; /* of rs.sbuf: a stack */
	uint32_t free_count, slots;
	bool sized;
};

/* ---- ds_dest.c */

/* The peer with this address, made if need be. 0 or -errno. */
int ds_peer_get(struct rs *rs, const union ds_addr *addr, struct ds_peer **out);
/* The iovec behind the header that tells who we are. Bytes of the iovec, or -errno. */
ssize_t ds_send_udp(struct rs *rs, const struct ds_peer *peer, const struct iovec *iov,
		    size_t count, enum rs_op op, int flags);
/* Takes what has come by UDP. */
void ds_events(struct rs *rs);
/* Buffers; before the first datagram. 0 or -errno. */
int ds_prepare(struct rs *rs);
void ds_close(struct rs *rs);
void ds_post_receive(struct ds_qp *qp, uint32_t slot);
bool ds_same(const union ds_addr *a, const union ds_addr *b);

/* ---- datagram.c */

/* A datagram rsocket; `flags` are socket()'s. 0 or -errno. */
int ds_open(struct rs *rs, int flags);
/* Appends to the inbox; false: it isn't taken. */
bool ds_deliver(struct rs *rs, const struct ds_message *message);
void ds_progress(struct rs *rs) REQUIRES(rs->lock);
short ds_ready(const struct rs *rs);
int ds_connect(struct rs *rs, const struct sockaddr *addr, socklen_t size);
ssize_t ds_send(struct rs *rs, const struct msghdr *msg, int flags) REQUIRES(rs->lock);
ssize_t ds_receive(struct rs *rs, struct msghdr *msg, int flags) REQUIRES(rs->lock);
bool ds_sends_done(const struct rs *rs);

#endif
