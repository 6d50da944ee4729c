/* SPDX-License-Identifier: BSD-2-Clause */
/* Which interfaces listen for a group, and which sockets are members for that: between mcast.c and
 * mcast_net.c. See mcast.h. */
#ifndef VERBENA_DAEMON_NET_MCAST_NET_H
#define VERBENA_DAEMON_NET_MCAST_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/net/mcast.h"

/* The daemon's own sockets that are members; each can join few groups. */
enum { MEMBER_SOCKETS = 1024 };

struct member_socket {
	int fd;
	uint32_t groups; /* 0: no socket at this place */
	bool ipv6;
	bool full; /* a join found no room (ENOBUFS); cleared when one of its groups is left */
};

enum { MCAST_BUCKETS = 1024 };

struct mcast {
	struct server *server;
	struct groups *table;
	int fd; /* of the table */
	struct list buckets[MCAST_BUCKETS];
	bool settled; /* all processes of the last daemon have returned or ended; never cleared */
	struct member_socket members[MEMBER_SOCKETS];
};

/* An interface that listens for the group, or is to listen. */
struct membership {
	struct list node; /* on group->listening */
	uint32_t ifindex;
	int socket;  /* index of the member socket; -1: it doesn't listen */
	bool wanted; /* only meaningful within mcast_net_update(): it is to go on listening */
};

/*
 * The group's joins or attachments have changed: makes interfaces begin or cease to listen. Returns
 * 0; -ENOMEM: an interface doesn't listen that should, because descriptors or memory are scarce. An
 * interface that is unable to listen is no error here; the next update tries it again.
 */
int mcast_net_update(struct mcast_group *group);
/* Whether this interface listens; without the wire, whether it would. */
bool mcast_net_listens(const struct mcast_group *group, uint32_t ifindex);
/* Makes all interfaces cease to listen. */
void mcast_net_end(struct mcast_group *group);

/* The process's first queue pair was attached, or its last one detached. */
void mcast_net_enter(struct mcast_group *group, const struct process *process);
void mcast_net_leave(struct mcast_group *group, const struct process *process);

#endif
