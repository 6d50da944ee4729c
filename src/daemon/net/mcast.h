/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups of this host: which queue pairs are *attached* (ATTACH_MCAST: they get the
 * group's datagrams) and which interfaces *listen* (they receive the group's packets from the
 * network, and report that to the network). As with the kernel's Soft-RoCE these are separate:
 *
 *   - attaching makes a queue pair a receiver of all datagrams to the group, from this host's
 *     processes or by any interface that listens;
 *   - joining by the RDMA CM (cm_mcast.c), as a full member, makes the interface of the identifier
 *     listen. A send-only member makes no interface listen.
 *
 * A device of Soft-RoCE is one interface; a device of the daemon, as a rule, is all of them. So a
 * queue pair that is attached to a group without a full member makes the interface listen to which
 * the host's routes for the group lead (without such a route, the device's first).
 *
 * How a datagram gets to the processes:
 *
 *   - Processes of this host get it from the sender, by their links. The sender finds the members
 *     in the table (shm/groups.h), which mcast.c writes.
 *   - From other hosts it comes as IP multicast. For multicast the kernel doesn't choose one of
 *     the sockets of port 4791 (udp_slots.h): each one that is a member gets a copy. So the slot's
 *     socket of each process that is attached is a member on each interface that listens, and no
 *     other socket is (IP_MULTICAST_ALL is off): a process without an attachment gets nothing. A
 *     socket can be a member of few groups (20 of IPv4, net.ipv4.igmp_max_memberships). A socket
 *     at that limit receives the datagrams of all groups of the host from then on, until its
 *     process ends; the process drops those to which none of its queue pairs is attached.
 *   - In addition, a socket of the daemon's own is a member on each interface that listens
 *     (mcast_net.c): it makes the interface listen when no queue pair is attached, and for groups
 *     beyond the slots' sockets' limit.
 *
 * When a daemon ends, its own sockets close, but the slots' sockets stay members and go on
 * receiving. Processes that return attach their queue pairs anew. The socket of a process that
 * doesn't return leaves all groups (udp_slots_slot_done()).
 */
#ifndef VERBENA_DAEMON_NET_MCAST_H
#define VERBENA_DAEMON_NET_MCAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/net/host.h"
#include "proto/limits.h"

struct device;
struct flow_rules;
struct groups;
struct mcast;
struct process;
struct qp;
struct server;
struct user;
struct xrc_table;

struct mcast_group {
	struct list node; /* in a hash bucket */
	struct mcast *mcast;
	uint8_t gid[16];
	struct list attachments; /* struct attachment.by_group */
	struct list joins;	 /* struct mcast_join.node */
	struct list listening;	 /* struct membership, see mcast_net.h */
	struct list users;	 /* struct group_user.node */
	uint32_t attached;
};

/* A user with attachments or joins in the group. */
struct group_user {
	struct list node;
	struct user *user;
	uint32_t members, attached; /* attached: of the members, those that are attachments */
};

struct attachment {
	struct list by_group, by_qp;
	struct mcast_group *group;
	struct qp *qp;
	struct group_user *of_user;
	/* Attached while the group had no full member: its device's interface listens. Never
	 * changed. */
	bool alone;
};

/* A full member's interface. */
struct mcast_join {
	struct list node;
	struct mcast_group *group; /* NULL: not joined */
	struct group_user *of_user;
	uint32_t ifindex;
};

/* Makes server->mcast, with its table. Returns 0 or -errno. */
int mcast_open(struct server *server);
/* Tells all processes the longest datagram, bytes, of a device's port. */
void mcast_datagrams(const struct server *server, uint32_t device, uint32_t bytes);
/* All processes and clients must be gone. */
void mcast_close(struct server *server);

/* A copy of the table's descriptor for a process, the caller's to close; or -errno. */
int mcast_table(const struct server *server);
/* The table of XRC target queue pairs, a part of that table. */
struct xrc_table *mcast_xrc_table(const struct server *server);
/* The flow rules in the table. NULL: there is no table. */
struct flow_rules *mcast_flows(const struct server *server);
/* A process may be reached by frames from now on: it has attached, or is back with all its rules;
 * or, `user` NULL, it ends. */
void mcast_reach(const struct server *server, uint32_t slot, const struct user *user);
/* Processes of the last daemon may have returned or ended: sets `settled` in the table when all
 * have. */
void mcast_settle(struct server *server);
/* Counts a change of the host's addresses in the table, so that processes drop answers of
 * PROTO_ROUTE that they keep. */
void mcast_addresses_changed(struct server *server);
/* Writes the host's addresses, `listed` in `list`, and all GIDs of the devices into the table. */
void mcast_publish_addresses(struct server *server, const struct host_address *list,
			     unsigned int listed);
/* Whether this host has the address, as the table says. */
bool mcast_has_address(const struct server *server, const uint8_t gid[16]);
/* Publishes the source port of the slot's packets to this host; 0: it sends none. */
void mcast_source_port(struct server *server, uint32_t slot, uint16_t port);
/* The port that is published; 0: none. */
uint16_t mcast_source_port_of(const struct server *server, uint32_t slot);
/* Interfaces or addresses have changed: interfaces begin to listen again where they must. */
void mcast_refresh(struct server *server);

/* Returns 0, also when the queue pair is attached already; -ENOMEM: a limit is reached, or no
 * memory. */
int qp_attach_group(struct qp *qp, const uint8_t gid[16], bool returning);
/* Returns 0; -EINVAL: the queue pair isn't attached. */
int qp_detach_group(struct qp *qp, const uint8_t gid[16]);
/* Detaches a queue pair that ends from one of its groups. False: it is in none. */
bool mcast_detach_one(struct qp *qp);

/* Writes the names of the interfaces that listen, for people: "eth0 lo"; "-": none. */
void mcast_listening(const struct mcast_group *group, char *text, size_t size);

/* Makes the interface listen until mcast_leave(). Returns 0; -ENOMEM; -ENODEV: it can't. */
int mcast_join(struct server *server, struct user *user, struct mcast_join *join,
	       const uint8_t gid[16], uint32_t ifindex);
void mcast_leave(struct mcast_join *join);

#endif
