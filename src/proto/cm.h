/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages on the `rdma_cm` socket: between librdmacm and the connection manager in verbenad.
 *
 * The socket is SOCK_SEQPACKET, in the run-time directory. A process has one connection to it, over
 * which its requests are answered in order; it may have many event channels. A request is what a
 * program would write() to /dev/infiniband/rdma_cm: struct rdma_ucm_cmd_hdr (in, out: bytes of what
 * follows and of the response), then the command's structure of <rdma/rdma_user_cm.h>; its
 * `response` field is 0. A reply is struct proto_reply, then the response structure; nothing
 * follows a negative result.
 *
 * Differences from the kernel's, and their reasons:
 *   - DISCONNECT may be posted (PROTO_POSTED): it gets no answer then.
 *   - The first request is PROTO_CM_HELLO, which names the process by the cookie of PROTO_ATTACH
 *     if it has one (a process that uses the CM before it opens a device sends 0, and HELLO again
 *     later).
 *   - PROTO_CM_CREATE_CHANNEL makes an event channel and brings its descriptor: a SOCK_SEQPACKET
 *     socket on which each packet is one event, struct proto_cm_event. So it is readable exactly
 *     while there is an event, whatever poll(), epoll or O_NONBLOCK do with it, and
 *     RDMA_USER_CM_CMD_GET_EVENT isn't needed (-EOPNOTSUPP). The channel lives until
 *     PROTO_CM_DESTROY_CHANNEL or the process's end.
 *   - An event carries what QUERY and INIT_QP_ATTR would answer next, which halves the round trips
 *     of making a connection.
 *   - CREATE_ID's `reserved` has the channel's handle in its first four bytes. MIGRATE_ID's `fd`
 *     is the handle of the target channel; the unread events of this id are sent again there.
 *   - SET_OPTION's value stands after the structure instead of behind a pointer (at most
 *     PROTO_CM_OPTION_MAX bytes).
 *   - DESTROY_ID and MIGRATE_ID answer how many events of the id were reported, as the kernel
 *     does; the library counts those that its program acknowledged.
 *   - INIT_QP_ATTR answers struct ib_uverbs_qp_attr. QUERY answers by option: struct
 *     rdma_ucm_query_addr_resp, struct rdma_ucm_query_path_resp (one path: Ethernet), and for GID
 *     rdma_ucm_query_addr_resp with struct sockaddr_ib in it.
 *   - BIND_IP, RESOLVE_IP, JOIN_IP_MCAST and QUERY_ROUTE are older forms of BIND, RESOLVE_ADDR,
 *     JOIN_MCAST and QUERY: -EOPNOTSUPP.
 *
 * Ids are opaque, and valid on one connection. Integers are in host order where the kernel's are.
 */
#ifndef VERBENA_PROTO_CM_H
#define VERBENA_PROTO_CM_H

#include <rdma/rdma_user_cm.h>
#include <stdint.h>

#define PROTO_CM_NODE "rdma_cm"
#define PROTO_CM_MAX_MESSAGE 2048u
#define PROTO_CM_OPTION_MAX 576u /* eight of struct ibv_path_data */

enum proto_cm_command {
	PROTO_CM_HELLO = 0x80,		 /* struct proto_cm_hello */
	PROTO_CM_CREATE_CHANNEL = 0x81,	 /* header only */
	PROTO_CM_DESTROY_CHANNEL = 0x82, /* struct proto_cm_channel; -EBUSY: ids are on it */
	/* struct proto_cm_write_event: the event comes on the id's channel, with `arg` in the first
	 * bytes of the private data. -EAGAIN: too many events of the channel are unread. */
	PROTO_CM_WRITE_EVENT = 0x83,
};

/* The events that PROTO_CM_WRITE_EVENT may write: in <rdma/rdma_cma.h> of rdma-core 60 they are
 * ADDRINFO_RESOLVED, ADDRINFO_ERROR and USER. */
enum { PROTO_CM_WRITTEN_FIRST = 16, PROTO_CM_WRITTEN_LAST = 18 };

struct proto_cm_write_event {
	uint32_t id;
	uint32_t event;
	int32_t status;
	uint32_t reserved;
	uint64_t arg;
};

struct proto_cm_hello {
	uint32_t abi;	/* PROTO_ABI */
	uint32_t flags; /* enum proto_cm_hello_flag */
	uint64_t cookie;
	/* The node of a fabric that the process is on (VERBENA_NODE), with a zero at the end. A
	 * client stays on its node. -ENODEV: there is no such adapter; -ENOENT, -ECONNREFUSED: no
	 * fabric runs. */
	char node[128];
};

enum proto_cm_hello_flag {
	PROTO_CM_HELLO_NODE = 1, /* `node` is one; empty: the first of the topology */
};

struct proto_cm_channel {
	uint32_t channel;
	uint32_t reserved;
};

/* The reply carries the channel's descriptor. */
struct proto_cm_create_channel_resp {
	uint32_t channel;
	uint32_t reserved;
};

/* The parts of struct proto_cm_event that are filled in beside the event, as of when the event was
 * sent. */
enum proto_cm_known {
	PROTO_CM_KNOWS_ADDR = 1,
	PROTO_CM_KNOWS_PATH = 2,
	PROTO_CM_KNOWS_INIT = 4,
	PROTO_CM_KNOWS_READY = 8, /* RTR and RTS */
};

struct proto_cm_event {
	struct rdma_ucm_event_resp event;
	uint32_t known; /* enum proto_cm_known */
	uint32_t reserved;
	struct rdma_ucm_query_addr_resp addr;
	struct ib_path_rec_data path;
	struct ib_uverbs_qp_attr init, rtr, rts;
};

#endif
