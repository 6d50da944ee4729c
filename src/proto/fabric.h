/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages on the socket `fabric` of verbena-fabric: between libibumad and the fabric.
 *
 * The socket is SOCK_SEQPACKET, in the run-time directory. A connection either asks once (QUERY,
 * ISSM, TABLES, CLOCKS) and gets one answer, or becomes a port (OPEN) or a process on a node
 * (JOIN). What the fabric then sends on it are messages of the port's agents, and nothing else,
 * since the program polls the socket: a packet is struct ib_user_mad and the MAD, as read from a
 * umad device. Of a message longer than PROTO_FABRIC_INLINE the packet has the header and the first
 * 256 bytes, and a sealed memory file with all of it comes beside.
 *
 * What the program sends on it begins with struct proto_fabric_request. REGISTER and UNREGISTER
 * bring the socket for their answer; a MAD gets none. A MAD longer than PROTO_FABRIC_INLINE comes
 * in a sealed memory file: struct ib_user_mad and the MAD. A packet that isn't valid ends the
 * connection.
 *
 * A process whose verbs devices are a node's maps the fabric's tables (TABLES;
 * src/fabric/tables.h), read-only, and joins the node (JOIN) by a connection that it keeps: with it
 * comes a memory file in which it counts what it sends (flows.h), and the fabric sends struct
 * proto_fabric_event on it. verbenad, which sends no data, joins without memory, for the events.
 * It maps the file of the clocks (src/fabric/clocks.h), too (CLOCKS), for reading and writing.
 *
 * Integers are in host order, except for those of Linux's structures that aren't.
 */
#ifndef VERBENA_PROTO_FABRIC_H
#define VERBENA_PROTO_FABRIC_H

#include <stdint.h>

#define PROTO_FABRIC_SOCKET "fabric"
#define PROTO_FABRIC_CONTROL "fabctl"
#define PROTO_FABRIC_ABI 1u

#define PROTO_FABRIC_NAME 128u	   /* bytes of a node's name, with the zero at the end */
#define PROTO_FABRIC_INLINE 65536u /* bytes of struct ib_user_mad and MAD together */
#define PROTO_FABRIC_PORTS 10u	   /* of a device that libibumad can describe */
#define PROTO_FABRIC_PKEYS 64u

enum proto_fabric_kind {
	PROTO_FABRIC_QUERY = 1,	     /* node: struct proto_fabric_device */
	PROTO_FABRIC_ISSM = 2,	     /* node, port: struct proto_fabric_path */
	PROTO_FABRIC_OPEN = 3,	     /* node, port: struct proto_fabric_result */
	PROTO_FABRIC_REGISTER = 4,   /* agent: struct proto_fabric_agent, on the socket beside */
	PROTO_FABRIC_UNREGISTER = 5, /* agent.id: struct proto_fabric_result, likewise */
	PROTO_FABRIC_MAD = 6,	     /* struct ib_user_mad and MAD follow */
	PROTO_FABRIC_TABLES = 7,     /* node: struct proto_fabric_tables, with the tables' file */
	PROTO_FABRIC_JOIN = 8,	    /* node: struct proto_fabric_result; may have the flows' file */
	PROTO_FABRIC_VIOLATION = 9, /* of a process on a node: struct proto_fabric_violation */
	PROTO_FABRIC_DATA_CAME = 10, /* likewise: struct proto_fabric_came */
	PROTO_FABRIC_CLOCKS = 11,    /* struct proto_fabric_result; the clocks' file beside */
};

struct proto_fabric_request {
	uint32_t abi;  /* PROTO_FABRIC_ABI */
	uint32_t kind; /* enum proto_fabric_kind */
};

struct proto_fabric_named {
	struct proto_fabric_request request;
	uint32_t port;
	char node[PROTO_FABRIC_NAME]; /* empty: the first node of the topology */
};

struct proto_fabric_register {
	struct proto_fabric_request request;
	uint32_t id; /* UNREGISTER */
	uint32_t qpn;
	uint32_t mgmt_class, mgmt_class_version;
	uint32_t flags;
	uint32_t oui;
	uint32_t rmpp_version;
	uint32_t reserved;
	uint64_t method_mask[2];
};

struct proto_fabric_result {
	int32_t result; /* 0 or a negative errno */
	uint32_t reserved;
};

struct proto_fabric_agent {
	int32_t result;
	uint32_t id;
	uint32_t flags; /* those that are known, with -EINVAL for unknown ones */
	uint32_t reserved;
};

struct proto_fabric_path {
	int32_t result;
	char path[256];
};

struct proto_fabric_tables {
	int32_t result; /* -ENOENT: no such node */
	uint32_t node;	/* its row */
};

/* What an adapter tells its driver. */
struct proto_fabric_event {
	uint32_t port;	/* number */
	uint32_t event; /* enum ibv_event_type */
};

/* An end port dropped a packet for its P_Key or Q_Key. Isn't answered. */
struct proto_fabric_violation {
	struct proto_fabric_request request;
	uint32_t port; /* the row of the port that dropped it */
	uint32_t is_pkey;
	uint32_t key;
	uint32_t source_qp, destination_qp;
	uint16_t source, destination; /* LIDs */
	uint8_t sl;
	uint8_t has_grh;
	uint8_t reserved[2];
	uint8_t sgid[16], dgid[16];
};

/* Data goes by a port that is Armed. Isn't answered. */
struct proto_fabric_came {
	struct proto_fabric_request request;
	uint32_t port; /* the row of the port by which it comes in */
	uint32_t reserved;
};

struct proto_fabric_port {
	uint32_t number;
	uint32_t lid, lmc, sm_lid, sm_sl;
	uint32_t state, physical;
	uint32_t rate; /* Gb/s, rounded down */
	uint32_t capabilities;
	uint32_t pkeys;
	uint64_t prefix, guid;
	uint16_t pkey[PROTO_FABRIC_PKEYS];
};

struct proto_fabric_device {
	int32_t result; /* -ENOENT: no such node */
	uint32_t type;	/* 1: adapter, 2: switch, 3: router */
	uint32_t numports;
	uint32_t ports; /* of `port`; a switch has port 0 only */
	uint64_t guid, system_guid;
	struct proto_fabric_port port[PROTO_FABRIC_PORTS];
};

#endif
