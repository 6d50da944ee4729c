/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes of a virtual InfiniBand fabric (docs/fabric.md) on which clients of the connection manager
 * are. Such a client's identifiers don't see the host's addresses but those of its node: the IP
 * address that the topology gives the node in place of IPoIB. Messages are management datagrams of
 * class 7 between the nodes' QP 1, which go where the fabric's forwarding tables lead; a route is a
 * path record of the subnet administration, a group a member record.
 *
 * Connections are made by one port of the node. Queue pairs may migrate to another one, and the
 * messages of their connections go by that port then (cm_alternate.h).
 *
 * A node exists while it has clients. It has a connection to verbena-fabric for each port that has
 * a cable, as a program's port of libibumad, with two agents. verbena-fabric is asked once for each
 * new client, and waited for at most CM_FABRIC_WAIT_MS; everything else is sent, and answered later
 * or never. By one more connection the events of the node's ports come. When verbena-fabric ends,
 * the node looks four times a second whether it runs again, and goes on if it is the same fabric.
 */
#ifndef VERBENA_DAEMON_CM_CM_NODE_H
#define VERBENA_DAEMON_CM_CM_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/cm.h"
#include "daemon/cm/cm_ports.h"
#include "daemon/core/loop.h"
#include "daemon/net/device.h"
#include "fabric/fabric.h"

struct cm_service;

#define CM_NODE_NAME 128u
#define CM_NODE_PATHS 64u

/* A path record that the subnet administration gave, valid while the fabric's epoch is the same. */
struct cm_node_path {
	uint64_t epoch; /* 0: none */
	uint8_t remote[16];
	uint16_t pkey;
	uint8_t record[64];
};

/* A port of a node. */
struct cm_node_port {
	struct cm_node *node;
	uint32_t row;
	struct watch watch; /* the connection for datagrams */
};

struct cm_node {
	struct list node; /* on service.nodes */
	struct cm_service *service;
	uint32_t number; /* in cm_path.node; never 0, and not used again */
	unsigned int clients;
	char name[CM_NODE_NAME];
	struct fabric tables; /* mapped read-only */
	size_t bytes;	      /* of the mapping */
	uint64_t fabric;      /* which file it is */
	uint32_t port;	      /* row of the port that connections are made by */
	struct device device; /* what its identifiers have: no interface */
	struct cm_ports ports;
	struct cm_node_port *by_number; /* its ports, from port 1 */
	uint32_t port_count;
	struct watch events; /* the connection for events, which is open if that of `port` is */
	struct timer again;  /* while they aren't: when to look for the fabric */
	struct list queries; /* struct cm_query, unanswered */
	struct list joins;   /* struct cm_join.at_node */
	uint32_t last_query;
	uint64_t lost; /* messages that couldn't be sent */
	struct cm_node_path paths[CM_NODE_PATHS];
};

/* ---- life (cm_node.c) */
/* The node with this name, for one more client. 0; -ENODEV: there is no such adapter; -ENOENT: no
 * fabric runs; -errno. */
int cm_node_get(struct cm_service *service, const char *name, struct cm_node **out);
void cm_node_put(struct cm_node *node);
struct cm_node *cm_node_by_number(const struct cm_service *service, uint32_t number);

/* The port with this LID; NULL: none. */
struct cm_node_port *cm_node_port_by_lid(const struct cm_node *node, uint16_t lid);
/* The connection for datagrams of the port that connections are made by. */
struct cm_node_port *cm_node_main(const struct cm_node *node);

/* ---- addresses (cm_node.c) */
/* Whether the node has this IP address (a GID), or it is a loopback address. */
bool cm_node_has(const struct cm_node *node, const uint8_t address[16]);
/* Whether its port has this GID. */
bool cm_node_has_gid(const struct cm_node *node, const uint8_t gid[16]);
/* Its own address of this version, as a GID. False: it has none. */
bool cm_node_address(const struct cm_node *node, uint32_t version, uint8_t address[16]);
/* The path from the node to the one with this address, without what a route adds. 0; -EHOSTUNREACH:
 * no node has the address; -ENETUNREACH: the port isn't active. */
int cm_node_path(const struct cm_node *node, const uint8_t address[16], struct cm_path *path);
/* The same to a GID, by this P_Key (0: the port's first). -ENODEV: the port hasn't got it. */
int cm_node_path_to_gid(const struct cm_node *node, const uint8_t gid[16], uint16_t pkey,
			struct cm_path *path);

/* The path between these LIDs, the first of which is a port's of the node: fills in both, and the
 * GIDs as with messages that come by it. False: there aren't such ports. */
bool cm_node_path_by_lids(const struct cm_node *node, uint16_t local, uint16_t remote,
			  struct cm_path *path);

/* Whether the fabric that runs now has the node's tables. 0; -ESTALE: it is another one; -errno:
 * none runs. */
int cm_node_check(const struct cm_node *node);

/* ---- connections (cm_node_link.c) */
void cm_node_link_init(struct cm_node *node);
/* Opens the connections if they aren't open. 0 or -errno: none is open. */
int cm_node_open(struct cm_node *node);
void cm_node_close(struct cm_node *node);
/* A connection has ended: closes all, and looks for the next fabric. All questions fail. */
void cm_node_lost(struct cm_node *node);

/* ---- paths (cm_node_link.c) */
/* The record that the administration gave for this path, NULL: it is to be asked. */
const uint8_t *cm_node_path_known(const struct cm_node *node, const struct cm_path *path);
/* `epoch`: the fabric's when it was asked. */
void cm_node_path_note(struct cm_node *node, const struct cm_path *path, const uint8_t record[64],
		       uint64_t epoch);
uint64_t cm_node_epoch(const struct cm_node *node);

/* ---- datagrams (cm_node_mad.c) */
/* Opens the connections for datagrams, which aren't open. 0 or -errno: some are open then. */
int cm_node_mad_open(struct cm_node *node);
/* Sends a message of the connection manager; what can't be sent is lost. */
void cm_node_send(struct cm_node *node, const struct cm_path *path, const uint8_t mad[MAD_SIZE]);

/* A question to the subnet administration. Part of what asks it. */
struct cm_query {
	struct list node; /* on node.queries; in no list: none is under way */
	uint32_t number;
	/* The answer: `record` is NULL unless status is 0; -ETIMEDOUT; -EINVAL: it was refused. */
	void (*answer)(struct cm_query *query, int status, const uint8_t *record);
};

enum cm_sa_method { CM_SA_GET = 0x01, CM_SA_SET = 0x02, CM_SA_DELETE = 0x15 };
enum cm_sa_attribute { CM_SA_PATH = 0x35, CM_SA_MEMBER = 0x38 };

/* Asks; `record` has the attribute's 64 bytes, `mask` says which components count. 0: the answer
 * follows; -EAGAIN: there is no subnet manager yet; -errno. `query` NULL: no answer is wanted. */
int cm_node_ask(struct cm_node *node, struct cm_query *query, enum cm_sa_method method,
		enum cm_sa_attribute attribute, uint64_t mask, const uint8_t record[64],
		uint32_t timeout_ms);
/* The answer isn't wanted any more. */
void cm_node_forget(struct cm_query *query);

#endif
