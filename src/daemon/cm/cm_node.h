/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes of a virtual InfiniBand fabric (docs/fabric.md) on which clients of the connection manager
 * are. Such a client's identifiers don't see the host's addresses but those of its node: the IP
 * address that the topology gives the node in place of IPoIB. Messages are management datagrams of
 * class 7 between the nodes' QP 1, which go where the fabric's forwarding tables lead; a route is a
 * path record of the subnet administration, a group a member record.
 *
 * A node exists while it has clients. It has a connection to verbena-fabric, as a program's port of
 * libibumad, with two agents. verbena-fabric is asked once for each new client, and waited for at
 * most NODE_WAIT_MS; everything else is sent, and answered later or never. When verbena-fabric
 * ends, the next client's HELLO or the next message connects again.
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

struct cm_node {
	struct list node; /* on service.nodes */
	struct cm_service *service;
	uint32_t number; /* in cm_path.node; never 0, and not used again */
	unsigned int clients;
	char name[CM_NODE_NAME];
	struct fabric tables; /* mapped read-only */
	size_t bytes;	      /* of the mapping */
	uint64_t fabric;      /* which file it is */
	uint32_t port;	      /* row of the port that is used */
	struct device device; /* what its identifiers have: no interface */
	struct cm_ports ports;
	struct watch watch;  /* the connection */
	struct list queries; /* struct cm_query, unanswered */
	struct list joins;   /* struct cm_join.at_node */
	uint32_t last_query;
	uint64_t lost; /* messages that couldn't be sent */
};

/* ---- life (cm_node.c) */
/* The node with this name, for one more client. 0; -ENODEV: there is no such adapter; -ENOENT: no
 * fabric runs; -errno. */
int cm_node_get(struct cm_service *service, const char *name, struct cm_node **out);
void cm_node_put(struct cm_node *node);
struct cm_node *cm_node_by_number(const struct cm_service *service, uint32_t number);

/* ---- addresses (cm_node.c) */
/* Whether the node has this IP address (a GID), or it is a loopback address. */
bool cm_node_has(const struct cm_node *node, const uint8_t address[16]);
/* Its own address of this version, as a GID. False: it has none. */
bool cm_node_address(const struct cm_node *node, uint32_t version, uint8_t address[16]);
/* The path from the node to the one with this address, without what a route adds. 0; -EHOSTUNREACH:
 * no node has the address; -ENETUNREACH: the port isn't active. */
int cm_node_path(const struct cm_node *node, const uint8_t address[16], struct cm_path *path);

/* ---- datagrams (cm_node_mad.c) */
/* Opens the connection if it isn't open. 0 or -errno. */
int cm_node_open(struct cm_node *node);
void cm_node_close(struct cm_node *node);
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
