/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection to `uverbsN` or `rdma_cm`: reads requests and answers them in order. Nothing
 * blocks: while a reply can't be sent, no further request of this connection is read, so a client
 * that doesn't read its replies delays only itself and costs the memory of one reply. Descriptors
 * that come with a request are never closed on the loop thread: see closer.h and receive.h.
 */
#ifndef VERBENA_DAEMON_CORE_CONN_H
#define VERBENA_DAEMON_CORE_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/core/loop.h"

struct cm_client;
struct context;
struct device;
struct process;
struct reply;
struct server;
struct user;

/* The role that the connection's first request gives it. */
enum conn_kind {
	CONN_NEW,
	CONN_PROCESS, /* PROTO_ATTACH */
	CONN_CONTEXT, /* GET_CONTEXT */
};

struct conn {
	struct server *server;
	struct user *user;
	struct device *device; /* the device to whose node the client connected */
	struct list node;      /* on server->conns, in the order of `serial`; or ending.h */
	uint64_t serial;       /* no other connection of this daemon has or had it; not 0 */
	struct watch watch;
	pid_t pid; /* the client's, when it connected */
	enum conn_kind kind;
	struct process *process; /* CONN_PROCESS */
	struct context *context; /* CONN_CONTEXT */
	struct cm_client *cm;	 /* of a connection to the node rdma_cm; else NULL */
	bool (*serve)(struct conn *conn, const void *packet, size_t size, int *fds,
		      struct reply *reply);
	struct unsent_reply *unsent; /* a reply that the socket didn't take */
	struct postponed
		*postponed; /* a request to be answered later; until then no other is read */
	bool waits;	    /* the postponed request waits for the end of others (ending.h) */
};

/* Takes over the socket `fd`, accepted at the node of `device`. Returns 0 or -errno (then `fd`
 * stays the caller's). */
int conn_open(struct server *server, int fd, struct device *device);
/* As conn_open(), for the node rdma_cm. */
int conn_open_cm(struct server *server, int fd);

/* Ends the connection. What its client held through it (a process, a context) is freed bit by bit,
 * and the connection with it (ending.h). */
void conn_close(struct conn *conn);
/* Only for ending.c: the next step of freeing a connection that has ended. */
void conn_free_some(struct conn *conn);

/* Whether the client has closed its end, or has ended, although the loop may not have seen it yet.
 */
bool conn_has_hung_up(const struct conn *conn);

/* Retries the postponed requests of all connections. */
void conn_resume(struct server *server);

/* A pidfd of the client that connected, the caller's to close; or -errno (-ESRCH: it has ended). */
int conn_pidfd(const struct conn *conn);

#endif
