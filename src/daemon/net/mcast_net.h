/* SPDX-License-Identifier: BSD-2-Clause */
/* Which interfaces listen for a group, and what is a member for that: between mcast.c and
 * mcast_net.c. See mcast.h. */
#ifndef VERBENA_DAEMON_NET_MCAST_NET_H
#define VERBENA_DAEMON_NET_MCAST_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/net/mcast.h"

/* Sockets of our own that are members; each has room for few groups. */
enum { MEMBER_SOCKETS = 1024 };

struct member_socket {
	int fd;
	uint32_t groups; /* 0: there is no socket at this place */
	bool ipv6;
	bool full;
};

enum { MCAST_BUCKETS = 1024 };

struct mcast {
	struct server *server;
	struct groups *table;
	int fd; /* of the table */
	struct list buckets[MCAST_BUCKETS];
	uint32_t groups, attached;
	bool settled;
	struct member_socket members[MEMBER_SOCKETS];
};

/* An interface that listens, or shall. */
struct membership {
	struct list node; /* on group->listening */
	uint32_t ifindex;
	int socket; /* the place of the socket that is a member; -1: it doesn't listen */
	bool wanted;
};

/*
 * The group's joins or attachments have changed: interfaces begin to listen, or cease. 0; -ENOMEM:
 * descriptors or memory are scarce, and one doesn't that should. An interface that can't is no
 * error here, and is tried again by the next update.
 */
int mcast_net_update(struct mcast_group *group);
/* Whether this interface does; without the wire, whether it would. */
bool mcast_net_listens(const struct mcast_group *group, uint32_t ifindex);
/* None listens any more. */
void mcast_net_end(struct mcast_group *group);

/* The process has a queue pair that is attached; or its last one isn't any more. */
void mcast_net_enter(struct mcast_group *group, const struct process *process);
void mcast_net_leave(struct mcast_group *group, const struct process *process);

#endif
