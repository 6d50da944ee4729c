/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon as a whole: its run-time directory, its sockets there, its connections, and when it
 * ends. One thread, one struct server.
 *
 * There is one daemon for each directory: it holds an exclusive flock on `verbenad.pid` while it
 * lives. The file `lock` serializes starting and leaving: a starter (client/start.c, or a daemon
 * that was started by hand) holds it until the new daemon listens; a daemon that leaves takes it,
 * checks once more that no client has connected, and holds it until its sockets are removed.
 * Sockets that a service manager handed in (activation.h) stay, with the connections that wait in
 * them.
 */
#ifndef VERBENA_DAEMON_CORE_SERVER_H
#define VERBENA_DAEMON_CORE_SERVER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/core/config.h"
#include "daemon/core/counters.h"
#include "daemon/core/ending.h"
#include "daemon/core/loop.h"
#include "daemon/core/process.h"
#include "daemon/core/roster.h"
#include "daemon/core/user.h"
#include "daemon/net/devices.h"
#include "daemon/net/route_cache.h"
#include "daemon/net/slot_source.h"
#include "daemon/net/udp_slots.h"
#include "daemon/objects/share.h"
#include "daemon/objects/xrc.h"

struct cm_service;
struct mcast;

struct server_options {
	struct config config;
	int ready_fd; /* the starter's ready pipe; -1: started by hand */
};

struct server {
	struct loop loop;
	char dir[PATH_MAX];
	int dir_fd, lock_fd, pid_fd, spare_fd;	    /* -1: not open */
	struct watch uverbs, rdma_cm, ctl, signals; /* uverbs: the first device's node */
	void (*node_ready)(struct watch *watch, uint32_t events); /* callback of the other nodes */
	bool keep_uverbs, keep_rdma_cm, keep_ctl; /* the service manager's: their files stay */
	struct timer idle;
	struct timer accept_again; /* runs while no descriptor is left for new connections */
	struct config config;
	uint64_t started_ms;
	uint64_t accept_said_ms;
	struct list conns, ctls, users, captures;
	struct ending ending;
	uint32_t ctl_count, capture_count;
	uint32_t ctl_strangers;	  /* of ctl_count: of users other than root and the daemon's own */
	uint32_t connections_max; /* for each user but the daemon's own */
	uint64_t pid_ns, net_ns;
	uint64_t last_link_id, last_capture_id, last_serial;
	struct devices devices;
	struct route_cache routes;
	struct slots slots;
	struct pools pools;
	struct counters ended; /* counters of the processes that have ended */
	struct wire wire;
	struct timer resume;	     /* see attach.h */
	uint64_t wire_wait_until_ms; /* limit of the wait for the park; 0: no wait yet */
	struct roster roster;
	struct share share;
	struct xrc xrc;
	struct cm_service *cm;
	struct mcast *mcast;
	struct slot_sources sources;
};

/* Serves until it is told to stop or is idle. Returns 0, or -errno after a line in the log. */
int server_run(const struct server_options *options);

/* The daemon doesn't start: the program that waits at this descriptor (-1: there is none) needn't
 * try again, as it does after a daemon that was killed. */
void server_give_up(int ready_fd);

/* Checks the limits for a new connection of `uid`. Returns 0, with the connection counted and *user
 * written; -EMFILE: too many; -ENOMEM. */
int server_admit(struct server *server, uid_t uid, struct user **user);
/* Whether the descriptors that the user's clients sent are closed fast enough to take more of them
 * (closer.h). */
bool server_closes_in_time(const struct server *server, const struct user *user);
/* A connection (of any kind) has ended: starts the idle timer when it was the last. */
void server_left(struct server *server);
/* Ends the loop; all connections are closed. */
void server_stop(struct server *server);

#endif
