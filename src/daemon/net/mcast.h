/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups of this host: which queue pairs are *attached* (ATTACH_MCAST: they get the
 * group's datagrams) and which interfaces *listen* (they take its packets from the network, and say
 * so to it). As with kernel Soft-RoCE these are two things:
 *
 *   - attaching makes a queue pair a receiver of whatever comes for the group, from this host's
 *     processes or by any interface that listens;
 *   - joining by the RDMA CM (cm_mcast.c), as a full member, makes the interface of the identifier
 *     listen. Who only sends (a send-only member) makes nothing listen.
 *
 * Soft-RoCE's device is one interface; ours, as a rule, is all of them. So a queue pair that is
 * attached to a group that nobody has joined makes the interface listen to which the host's routes
 * for the group lead (where there is none, the device's first).
 *
 * How a datagram gets to the processes:
 *
 *   - Those of this host get it from the sender, by their links. Where it has to go it sees in the
 *     table (shm/groups.h), which is written here.
 *   - From other hosts it comes as IP multicast. For multicast the kernel doesn't choose one of the
 *     sockets of port 4791 (wire.h): each one that is a member gets a copy. So the slot's socket of
 *     each process that is attached is a member on each interface that listens, and of the others
 *     none (IP_MULTICAST_ALL is off): a process without an attachment gets nothing. A socket can be
 *     a member of few groups (20 of IPv4, net.ipv4.igmp_max_memberships). One that can't be of more
 *     hears all groups of the host from then on, until its process ends; the process drops what
 *     none of its queue pairs is attached to.
 *   - That an interface listens is, besides, the membership of a socket of our own (mcast_net.c):
 *     also when no queue pair is attached, and for groups beyond the limit.
 *
 * A daemon that ends takes its own sockets with it, but the slots' stay members, and get what comes
 * meanwhile. Processes that return attach their queue pairs anew. Whoever doesn't is made to leave
 * all groups (udp_slots_slot_done()).
 */
#ifndef VERBENA_DAEMON_NET_MCAST_H
#define VERBENA_DAEMON_NET_MCAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/limits.h"

struct device;
struct groups;
struct mcast;
struct process;
struct qp;
struct server;

struct mcast_group {
	struct list node; /* in a bucket */
	struct mcast *mcast;
	uint8_t gid[16];
	struct list attachments; /* struct attachment.by_group */
	struct list joins;	 /* struct mcast_join.node */
	struct list listening;	 /* struct membership, see mcast_net.h */
	uint32_t attached;
};

struct attachment {
	struct list by_group, by_qp;
	struct mcast_group *group;
	struct qp *qp;
	bool alone; /* nobody had joined then: its device's own interface listens */
};

/* A full member's interface. */
struct mcast_join {
	struct list node;
	struct mcast_group *group; /* NULL: it isn't one */
	uint32_t ifindex;
};

/* Makes server->mcast, with its table. 0 or -errno. */
int mcast_open(struct server *server);
/* All processes and clients are gone. */
void mcast_close(struct server *server);

/* A copy of the table's descriptor for a process; the caller's to close. -errno. */
int mcast_table(const struct server *server);
/* Processes of the last daemon may have come back or ended: says in the table when all have. */
void mcast_settle(struct server *server);
/* The table says so. Every change of what PROTO_ROUTE answers of the host's own addresses. */
void mcast_addresses_changed(struct server *server);
/* The devices have their GIDs: all of them go into the table. */
void mcast_publish_addresses(struct server *server);
/* Interfaces or addresses have changed. */
void mcast_refresh(struct server *server);

/* 0, also when it is attached; -ENOMEM as many as there may be, or no memory. */
int qp_attach_group(struct qp *qp, const uint8_t gid[16], bool returning);
/* -EINVAL: it isn't attached. */
int qp_detach_group(struct qp *qp, const uint8_t gid[16]);
void mcast_detach_all(struct qp *qp);

/* The names of the interfaces that listen, for people: "eth0 lo"; "-": none does. */
void mcast_listening(const struct mcast_group *group, char *text, size_t size);

/* An interface listens, until mcast_leave(). 0; -ENOMEM; -ENODEV it can't. */
int mcast_join(struct server *server, struct mcast_join *join, const uint8_t gid[16],
	       uint32_t ifindex);
void mcast_leave(struct mcast_join *join);

#endif
