/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts: what a program opened, and all that it holds at the daemon. */
#ifndef VERBENA_HCA_PROCESS_CONTEXT_H
#define VERBENA_HCA_PROCESS_CONTEXT_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "base/list.h"
#include "client/daemon.h"
#include "hca/verbs/event.h"

/* What a context holds at the daemon, users after what they use; see books.h. */
enum held_kind {
	HELD_PD,
	HELD_CHANNEL,
	HELD_CQ,
	HELD_SRQ,
	HELD_MR,
	HELD_QP,
	HELD_AH,
	HELD_KINDS,
};

struct hca;

/* What the daemon said last of an address of this host; see route.c. */
struct own_route {
	uint64_t addresses; /* mcast_addresses() of then; 0: nothing */
	struct proto_route request;
	struct proto_route_resp at;
};

struct context {
	struct verbs_context verbs; /* public part; ibv_context is its last member */
	struct hca *hca;
	struct daemon_conn conn;
	uint32_t device_index; /* whose events it gets */
	uint64_t token[2];     /* who knows it may share; cmd_fd says it */
	int cmd_fd;	       /* a memory file: verbs_share.c */
	struct event_queue async;
	struct own_route own_route; /* under hca.lock */
	struct list node;	    /* on hca.contexts */
	struct list held[HELD_KINDS];
};

static inline struct context *context_of(struct ibv_context *ibv)
{
	return container_of(verbs_get_ctx(ibv), struct context, verbs);
}

#endif
