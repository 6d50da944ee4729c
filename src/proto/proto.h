/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages on a `uverbsN` socket.
 *
 * The socket is SOCK_SEQPACKET; one request is one packet, one reply is one packet. A request is
 * what a program would write() to /dev/infiniband/uverbsN: struct ib_uverbs_cmd_hdr, then the
 * command's structure of <rdma/ib_user_verbs.h>, then driver-private bytes (udata). The 64-bit
 * `response` field that leads the kernel's structures has no meaning here and is 0. A reply is
 * struct proto_reply (the result, as write() would have returned it: 0, or a negative errno), then
 * the kernel's response structure, then the response's udata; nothing follows a negative result.
 * Descriptors travel by SCM_RIGHTS beside the packet that names them.
 *
 * Requests of one connection are answered in order. A command that only ends an object may be
 * *posted* (PROTO_POSTED in the header's command): it is executed in order, too, but never
 * answered. The client has checked that the command can't fail, and doesn't wait. Both sides run on
 * one host and one ABI; integers are in host order.
 *
 * A process has one *process connection* (its first request is PROTO_ATTACH) and a connection for
 * each context that it opens (first request: GET_CONTEXT, with the process's cookie as udata, so
 * that the context's QPNs and keys come out of the process's own ranges).
 *
 * A daemon may end while its clients live on. Each client then *returns* to the next daemon: it
 * attaches with PROTO_ATTACH_RETURN and its old slot and cookie, opens its contexts again, creates
 * what it holds (each request with a struct proto_return as udata, which names the old handle and
 * number), names its links (PROTO_LINK_RETURN), and finishes with PROTO_RETURNED. The daemon
 * accepts nothing else from it in between.
 */
#ifndef VERBENA_PROTO_PROTO_H
#define VERBENA_PROTO_PROTO_H

#include <rdma/ib_user_verbs.h>
#include <stdint.h>

#define PROTO_ABI 7u
#define PROTO_MAX_MESSAGE 4096u /* bytes of a request or a reply */
#define PROTO_MAX_FDS 4u

/* Commands that only a software device needs; beyond the numbers that the kernel uses. */
enum proto_command {
	PROTO_ATTACH =
		0x80, /* process connection: struct proto_attach; fds: table, doorbell, regions */
	PROTO_LINK = 0x81, /* process connection: struct proto_link */
	PROTO_DESTROY_CHANNEL =
		0x82,		/* context: struct proto_handle (the kernel has close() for it) */
	PROTO_QUERY_GID = 0x83, /* context: struct proto_query_gid (the kernel has an ioctl) */
	PROTO_LIST_DEVICES = 0x84, /* any connection: header only (the kernel has netlink) */
	PROTO_LINK_RETURN = 0x85,  /* process connection: struct proto_link_return */
	PROTO_RETURNED = 0x86,	   /* process connection: header only */
	/* Sharing, all with struct proto_handle: a handle of a context with the same token. */
	PROTO_IMPORT_PD = 0x87,	  /* context: makes a handle of this context for the same PD */
	PROTO_UNIMPORT_PD = 0x88, /* context: ends this context's handle; the PD itself stays */
	PROTO_QUERY_MR = 0x89,	  /* context: a region of this process */
	PROTO_UNLINK = 0x8a,	  /* process connection: struct proto_unlink */
	PROTO_ROUTE = 0x8b,	  /* context: struct proto_route */
	PROTO_IMPORT_MR = 0x8c,	  /* context: struct proto_import_mr, a region of another process */
	PROTO_CREATE_CHANNEL_CQ = 0x8d, /* context: struct ib_uverbs_create_cq */
	PROTO_CREATE_QP_CQS = 0x8e,	/* context: struct proto_create_qp_cqs */
	/* context: struct proto_handle, a PD: makes the keys of a region without memory; the
	 * response is that of REG_MR (with the kernel, a driver has one key for all) */
	PROTO_ALLOC_NULL_MR = 0xa0,
	/* Device memory (the kernel has ioctls). */
	PROTO_ALLOC_DM = 0xa1,	/* context: struct proto_alloc_dm; fd: the memory file */
	PROTO_FREE_DM = 0xa2,	/* context: struct proto_handle */
	PROTO_IMPORT_DM = 0xa3, /* context: struct proto_handle, of a context with the same token */
	PROTO_REG_DM_MR = 0xa4, /* context: struct proto_reg_dm_mr; response as of REG_MR */
	/* XRC (docs/xrc.md) */
	PROTO_OPEN_XRCD = 0x8f,	  /* context: struct proto_open_xrcd */
	PROTO_XRC_QUERY = 0x90,	  /* context, process connection: struct proto_xrc_query */
	PROTO_XRC_MODIFY = 0x91,  /* context: struct proto_xrc_modify */
	PROTO_XRC_REPORT = 0x92,  /* process connection: struct proto_xrc_report */
	PROTO_XRC_RETURNS = 0x93, /* context: struct proto_xrc_returns, a process that returns */
	PROTO_XRC_MEMORY = 0x94,  /* process connection: no body; with the memory file that the
				     process's user shares (shm/xrc_shared.h) */
	PROTO_SOURCE = 0x97,	  /* process connection: no body; fd: see below */
	PROTO_XRC_SOCKET = 0x95,  /* process connection: struct proto_xrc_socket */
	PROTO_XRC_MEMORY_RETURNS = 0x96, /* process connection, a process that returns: no body,
					    with the file that PROTO_XRC_MEMORY gave */
	/* process connection: struct proto_alternate, after PROTO_EVENT_ALTERNATE */
	PROTO_ALTERNATE = 0xa5,
	/* Flow rules (the kernel has extended commands, of a size that varies). */
	PROTO_CREATE_FLOW = 0xb0,  /* context: struct proto_create_flow */
	PROTO_DESTROY_FLOW = 0xb1, /* context: struct proto_handle */
};

/* A bit of ib_uverbs_cmd_hdr.command, and of rdma_ucm_cmd_hdr.cmd, that the kernel doesn't use. */
#define PROTO_POSTED 0x40000000u

struct proto_reply {
	int32_t result;
	uint32_t reserved;
};

/* PROTO_CREATE_CHANNEL_CQ: CREATE_COMP_CHANNEL, and CREATE_CQ on that channel (the request's
 * `comp_channel` has no meaning), in one round trip. Both or none. */
struct proto_create_channel_cq_resp {
	uint32_t channel;
	uint32_t cq;
};

/* PROTO_CREATE_QP_CQS: CREATE_QP, and before it the CQs that it completes to, each with a channel
 * of its own. All or nothing. */
struct proto_new_cq {
	uint32_t cqe; /* 0: not made; the QP's request names an existing CQ */
	uint32_t comp_vector;
};

struct proto_create_qp_cqs {
	struct proto_new_cq send, recv;
	struct ib_uverbs_create_qp qp;
};

struct proto_create_qp_cqs_resp {
	struct proto_create_channel_cq_resp send, recv; /* zero for a CQ that wasn't made */
	struct ib_uverbs_create_qp_resp qp;
};

#define PROTO_ATTACH_FDS 3u /* table, doorbell, regions; PROTO_ATTACH_RETURN: then the park */

/* PROTO_ATTACH. Table and regions are the process's published memory (src/shm/pub.h), sealed. The
 * regions' file may be left out: then peers leave all access to the regions to the process
 * itself. */
struct proto_attach {
	uint32_t abi;
	uint32_t flags; /* enum proto_attach_flag */
	/* With PROTO_ATTACH_RETURN the process's old cookie and slot, and the lowest QPN index and
	 * key index in use (or where new ones begin); else 0. */
	uint64_t cookie;
	uint32_t slot;
	uint32_t qpn_index, key_index;
	uint32_t reserved;
};

enum proto_attach_flag {
	/* Don't enforce RLIMIT_MEMLOCK on this process. Only a daemon of the same user complies. */
	PROTO_ATTACH_NO_MEMLOCK = 1,
	PROTO_ATTACH_RETURN = 2, /* -ESTALE: the daemon doesn't know the process */
	/* The slot's UDP socket takes what this host sends, too (PROTO_SOURCE). */
	PROTO_ATTACH_LOOPS = 4,
	/* With PROTO_ATTACH_RETURN: the process has no UDP socket, since no daemon before had one
	 * for it. So it gets one as a new process does: no other process has it. */
	PROTO_ATTACH_NO_WIRE = 8,
};

/*
 * Reply's descriptors: the event socket (SOCK_SEQPACKET, daemon to process). With PROTO_WIRE the
 * UDP socket of this process's slot follows: bound to port 4791, it gets the packets for the QPNs
 * of the slot. With PROTO_WIRE_PARK the park follows, which the process only keeps open and hands
 * to the next daemon (as the fourth descriptor of PROTO_ATTACH_RETURN): it holds the sockets of all
 * slots, so that they outlive a daemon, and no slot's place among them ever changes. With
 * PROTO_GROUPS, last, the table of multicast groups (src/shm/groups.h), to be mapped read-only.
 */
struct proto_attach_resp {
	uint64_t cookie; /* identifies this process in GET_CONTEXT; not guessable */
	uint32_t slot;	 /* this process's slot; upper bits of its QPNs */
	uint32_t wire;	 /* enum proto_wire */
};

enum proto_wire {
	PROTO_WIRE = 1,
	PROTO_WIRE_IPV6 = 2, /* the socket is of AF_INET6, for IPv4 too; else of AF_INET */
	PROTO_WIRE_PARK = 4,
	PROTO_GROUPS = 8,
};

/*
 * PROTO_SOURCE: the source port of the packets that this process sends to its own host, with a UDP
 * socket that is bound to the port at any address, and so keeps it from other users' sockets while
 * the daemon has a copy. Other processes believe that a packet from an address of this host was
 * sent by this process if it has that port (struct groups.source_port). -EINVAL: no such socket;
 * -EBUSY: the process has named one.
 */

/* PROTO_LINK: requests a link to the process at `slot`. The reply says whether that is possible;
 * the link itself arrives as PROTO_EVENT_LINK on both processes' event sockets. -ENOENT: the slot
 * is free. -EALREADY: the event has been sent before. */
struct proto_link {
	uint32_t slot;
	uint32_t reserved;
};

/* PROTO_UNLINK: this process doesn't use this link any more, or couldn't take it. The peer gets
 * PROTO_EVENT_LINK_DOWN; either may request another link. The link may also be one that this
 * process has named (PROTO_LINK_RETURN) and the peer hasn't named yet. -ENOENT: there is no such
 * link. */
struct proto_unlink {
	uint64_t link_id;
	uint32_t slot; /* the peer's */
	uint32_t reserved;
};

/*
 * PROTO_OPEN_XRCD: as the kernel's OPEN_XRCD, which gets a descriptor. Here the process reads the
 * file's inode itself, because reading it may block; a domain is shared by the processes of one
 * user only, which have the same rights. -EAGAIN: the file has no domain, and O_CREAT isn't set;
 * -EINVAL: it has one, and O_EXCL is set. A process that is returning names the domain's old
 * number, and gets it again unless another domain has it.
 */
struct proto_open_xrcd {
	uint64_t dev, ino; /* 0, 0: a domain of its own */
	uint32_t oflags;
	uint32_t reserved;
};

struct proto_open_xrcd_resp {
	uint32_t handle;
	uint32_t domain; /* the number by which tables name it */
};

/* What the daemon keeps for the processes that have a target queue pair open; it doesn't interpret
 * `attr`. `version` changes with each change of the others. */
enum { PROTO_XRC_ATTR = 24 };
struct proto_xrc_state {
	uint32_t version;
	uint32_t state;	 /* enum ibv_qp_state */
	uint32_t epoch;	 /* changes at RESET */
	uint32_t access; /* qp_access_flags that are granted */
	uint32_t peer;	 /* dest_qp_num */
	uint32_t rq_psn;
	uint32_t rnr_timer; /* min_rnr_timer */
	/* Chosen by the daemon: */
	uint32_t place;	     /* in the shared memory file; another one after RESET */
	uint32_t dispatcher; /* the slot of the process that gets its packets; 0: none */
	uint32_t reserved;
	uint64_t attr[PROTO_XRC_ATTR];
};

/* PROTO_XRC_SOCKET: the socket of a slot whose process has ended and left target queue pairs, for
 * the process that gets their packets now (proto_xrc_state.dispatcher). -ENOENT: it isn't this
 * one, or isn't any more. */
struct proto_xrc_socket {
	uint32_t slot;
	uint32_t reserved;
};

/* PROTO_XRC_QUERY: of a context by handle; on the process connection by number, of a domain that
 * the process has open, or a queue pair whose packets it gets. -EINVAL: there is no such target
 * queue pair. */
struct proto_xrc_query {
	uint32_t handle;
	uint32_t qpn;
};

/* PROTO_XRC_MODIFY. -EAGAIN: `to.version` isn't the version any more. The response is struct
 * proto_xrc_state. */
struct proto_xrc_modify {
	uint32_t handle;
	uint32_t reserved;
	struct proto_xrc_state to;
};

/* PROTO_XRC_REPORT: a process that executes the requests of a target queue pair's initiator, or the
 * initiator itself, has met what concerns the queue pair. Without effect if `epoch` is over. */
struct proto_xrc_report {
	uint32_t qpn;
	uint32_t epoch; /* the low 8 bits */
	/* enum ibv_event_type. All but COMM_EST move it to ERR; so does PROTO_XRC_NO_EVENT. */
	uint32_t event;
	uint32_t reserved;
};
#define PROTO_XRC_NO_EVENT UINT32_MAX

/* PROTO_XRC_RETURNS: a handle of a target queue pair, whose number is in struct proto_return. The
 * first process that returns with one makes it, as `was`; the response is what it is now. */
struct proto_xrc_returns {
	uint32_t xrcd;
	uint32_t reserved;
	struct proto_xrc_state was;
};

/* udata of each command that makes an object, from a process that is returning; behind other udata
 * of the command. */
struct proto_return {
	uint32_t handle;
	/* QP, XRC SRQ: its number; MR: its key; MW: its first key; XRC domain: its number; else 0
	 */
	uint32_t number;
};

/* How processes of this user on the host reach a region, and why not faster: for `verbena
 * resources`. udata of REG_MR and REREG_MR; older clients send none. */
struct proto_reg_mr {
	uint32_t reach; /* enum proto_reach */
	/* PROTO_REACH_MAPPED: not 0 if that is so by conversion (hca/mem/convert.h), and then true
	 * only while pub_header.taken_back is one less. */
	uint32_t converted;
};

enum proto_reach {
	PROTO_REACH_UNKNOWN, /* also: by a client that doesn't say */
	PROTO_REACH_MAPPED,  /* they map it */
	PROTO_REACH_PRIVATE, /* it is, or part of it, private memory: by system calls */
	PROTO_REACH_PIECES,  /* it is in too many files: likewise */
	PROTO_REACH_OFF,     /* VERBENA_MEMORY=private: likewise */
	PROTO_REACH_UNSEEN,  /* the process can't see its own mappings: likewise */
};

struct proto_link_return {
	uint64_t link_id;
	uint32_t slot; /* the peer's */
	uint32_t side; /* this process's side */
};

struct proto_handle {
	uint32_t handle;
	uint32_t reserved;
};

struct proto_query_gid {
	uint32_t port;
	uint32_t index;
};

struct proto_query_gid_resp {
	uint8_t gid[16];
	uint32_t type;	  /* enum ibv_gid_type: 2 is RoCE v2 */
	uint32_t ifindex; /* of the interface that gave it */
};

/* PROTO_ROUTE: finds the way to a GID from the context's device. A link-local GID is looked up on
 * the interface of the source GID. */
struct proto_route {
	uint32_t port;
	uint32_t sgid_index;
	uint8_t dgid[16];
};

struct proto_route_resp {
	uint8_t sgid[16];
	uint32_t ifindex; /* of the source GID */
	uint32_t flags;	  /* enum proto_route_flag */
};

enum proto_route_flag {
	PROTO_ROUTE_LOCAL = 1, /* an address of this host, that is of processes of this daemon */
	PROTO_ROUTE_WIRE = 2,  /* packets can be sent there. Neither flag: it can't be reached */
	PROTO_ROUTE_GROUP = 4, /* a multicast group: members on this host are reached in any case */
};

/* The response of CREATE_AH; what follows the handle is where the kernel's drivers add their
 * data. */
struct proto_create_ah_resp {
	uint32_t ah_handle;
	struct proto_route_resp route;
};

/* GET_CONTEXT's udata. Older clients send the cookie only, without the token. */
struct proto_get_context {
	uint64_t cookie;
	uint64_t token[2]; /* contexts with equal tokens may import each other's objects; 0: none */
};

struct proto_import_pd_resp {
	uint32_t handle; /* its handle in this context */
	uint32_t reserved;
};

struct proto_query_mr_resp {
	uint64_t addr, length, iova;
	uint32_t lkey, rkey;
	uint32_t access; /* enum ib_uverbs_access_flags */
	uint32_t reserved;
};

/* PROTO_IMPORT_MR: makes keys of this process for the region `shared`, which belongs to another
 * process of the same user, and to the protection domain of `pd`. The result counts no pinned
 * memory, and ends with DEREG_MR. -ENOENT: there is no such region; -EOPNOTSUPP: it is of another
 * user; -EINVAL: it is of another domain, or of this process. A process that is returning gets its
 * keys again, whether or not the owner is back. */
struct proto_import_mr {
	uint32_t pd;
	uint32_t shared;
};

struct proto_import_mr_resp {
	uint32_t handle;
	uint32_t lkey, rkey;
	uint32_t owner_slot;
	uint32_t owner_rkey;
	uint32_t reserved;
};

/* PROTO_ALLOC_DM. The memory file has whole pages, and is sealed against changes of its size. */
struct proto_alloc_dm {
	uint64_t length; /* bytes */
};

struct proto_alloc_dm_resp {
	uint32_t handle;
	uint32_t reserved;
};

/* The response of PROTO_IMPORT_DM; its descriptor: the memory file. The importer gets no object:
 * the memory is there as long as it is mapped, but no more can import it once its allocator has
 * freed it or has ended. */
struct proto_import_dm_resp {
	uint64_t length;
};

struct proto_reg_dm_mr {
	uint64_t offset, length; /* the part of the buffer, bytes */
	uint32_t pd;
	uint32_t dm; /* of this context, or of one with the same token */
	uint32_t access;
	uint32_t reserved;
};

/* PROTO_ALTERNATE: the result for the last path that this process got, and a question for the next
 * one, on a fabric. -ENOENT: there is none. */
struct proto_alternate {
	uint32_t qpn;	 /* of the last path; 0: it has got none yet */
	uint32_t status; /* enum proto_alternate_status, or another of an APR */
};

/* Statuses of an APR. */
enum proto_alternate_status {
	PROTO_ALTERNATE_LOADED = 0, /* the queue pair has it, in REARM or ARMED */
	PROTO_ALTERNATE_REJECTED = 3,
	PROTO_ALTERNATE_IS_CURRENT = 5,
	PROTO_ALTERNATE_QPN = 6,
	PROTO_ALTERNATE_LID = 7, /* this and the next one: of no port */
	PROTO_ALTERNATE_GID = 8,
};

/* The fields of a path as in a LAP (src/cm/mad.h), seen from this process; in host order. */
struct proto_alternate_resp {
	uint32_t qpn;
	uint32_t flow_label;
	uint16_t local_lid, remote_lid;
	uint8_t sl, rate, ack_timeout, traffic_class, hop_limit;
	uint8_t is_global; /* with a GRH, to remote_gid */
	uint8_t reserved[2];
	uint8_t local_gid[16], remote_gid[16];
};

/* CREATE_QP's qp_type of a work queue: a queue pair that only receives (hca/verbs/wq.h). */
#define PROTO_QPT_WQ 0x80u

#define PROTO_FLOW_BYTES 512u

/* PROTO_CREATE_FLOW. The fields are those of struct ibv_flow_attr; `specs` has `count`
 * specifications in the kernel's layout (src/wire/steer.h). The answer is sent when all processes
 * can see the rule. -EOPNOTSUPP, -EINVAL: as steer_check() says, or the queue pair isn't of type
 * RAW_PACKET; -ENOMEM: there are too many rules. */
struct proto_create_flow {
	uint32_t qp;
	uint32_t type, flags;
	uint16_t priority, size;
	uint8_t port, count;
	uint8_t reserved[6];
	uint8_t specs[PROTO_FLOW_BYTES];
};

struct proto_create_flow_resp {
	uint32_t handle;
	uint32_t reserved;
};

struct proto_device {
	char name[32];	    /* verbena0 */
	char node[32];	    /* uverbs0 */
	uint64_t node_guid; /* network order, as in struct ibv_device_attr */
	uint32_t index;
	uint32_t ports;
};

struct proto_list_devices_resp {
	uint32_t count;
	uint32_t reserved;
	struct proto_device device[16];
};

enum proto_event_type {
	/* fds: link memory, the peer's table (read-only), its doorbell; and its regions (read-only)
	 * if both have handed some in. With PROTO_LINK_BELLS, between different users, the last two
	 * are instead: the bell that wakes the peer, the bell that wakes this process
	 * (src/shm/bell.h). */
	PROTO_EVENT_LINK = 1,
	PROTO_EVENT_LINK_DOWN = 2, /* the peer has ended; link_id 0: there will be no link */
	/* For each context of a device: value is enum ibv_event_type. */
	PROTO_EVENT_DEVICE = 3,
	/* A capture begins for a process. Sent to the process and to the capturing program; fds:
	 * the ring (struct tap_memory), and its bell (src/shm/bell.h), on which the program
	 * sleeps. Slot 0: the daemon's own ring; sent to the program only. */
	PROTO_EVENT_CAPTURE = 4,
	/* Capture link_id has ended: sent to the process when the capturing program ended, to the
	 * program when the process did. */
	PROTO_EVENT_CAPTURE_END = 5,
	/* An XRC target queue pair has changed or ended, of a domain that the process has open, or
	 * whose packets it gets. link_id: its number; slot: of the process that gets its packets
	 * now; value: enum ibv_event_type for each of its handles, or PROTO_XRC_NO_EVENT. */
	PROTO_EVENT_XRC = 6,
	/* There may be an alternate path to be loaded into a queue pair: PROTO_ALTERNATE. */
	PROTO_EVENT_ALTERNATE = 7,
};

enum proto_link_flag {
	PROTO_LINK_BELLS = 1,
};

/* One packet of the event socket. */
struct proto_event {
	uint32_t type;
	uint32_t slot;	  /* LINK*: the peer's slot; DEVICE: the device's index; CAPTURE*: the
			   * process's slot */
	uint64_t link_id; /* LINK*: never used again for another link; CAPTURE*: likewise */
	uint32_t side;	  /* LINK: 0 or 1, this process's side of the link */
	int32_t pid;  /* LINK: the peer's pid as this process sees it, 0: not visible; CAPTURE: the
			 process's as the daemon sees it */
	uint32_t uid; /* LINK: the peer's; CAPTURE: the process's */
	uint32_t value; /* LINK: enum proto_link_flag; DEVICE: event type; CAPTURE: bytes to keep
			 * of a packet, 0 for all */
	/* DEVICE: port number. CAPTURE: 0, or the row + 1 of a port of the fabric: the packets that
	 * cross it, as those of its link layer, are wanted, and no others. */
	uint32_t port;
	uint32_t reserved;
};

#endif
