/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection to `uverbs0` or `rdma_cm`: reads requests, answers them in order. Nothing blocks:
 * while a reply can't be sent, no further request of this connection is read, so a client that
 * doesn't read its replies holds up nobody but itself and costs one reply of memory.
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

/* What the connection's first request made of it. */
enum conn_kind {
	CONN_NEW,
	CONN_PROCESS, /* PROTO_ATTACH */
	CONN_CONTEXT, /* GET_CONTEXT */
};

struct conn {
	struct server *server;
	struct user *user;
	struct device *device; /* whose node it connected to */
	struct list node;      /* on server->conns */
	struct watch watch;
	pid_t pid; /* who connected */
	enum conn_kind kind;
	struct process *process; /* CONN_PROCESS */
	struct context *context; /* CONN_CONTEXT */
	struct cm_client *cm;	 /* of the node rdma_cm; else NULL */
	bool (*serve)(struct conn *conn, const void *packet, size_t size, int *fds,
		      struct reply *reply);
	struct unsent_reply *unsent; /* a reply that the socket didn't take */
	struct postponed *postponed; /* a request that is answered later; none is read meanwhile */
};

/* Takes over the socket `fd`, accepted at the node of `device`. 0 or -errno (the caller still has
 * `fd`). */
int conn_open(struct server *server, int fd, struct device *device);
/* Likewise, of the node rdma_cm. */
int conn_open_cm(struct server *server, int fd);

/* Ends it and frees what its client held through it (a process, a context) and itself. */
void conn_close(struct conn *conn);

/* Tries the requests again that a command didn't want to answer yet. */
void conn_resume(struct server *server);

/* A pidfd of who connected, the caller's to close; -errno (-ESRCH: it is gone already). */
int conn_pidfd(const struct conn *conn);

#endif
