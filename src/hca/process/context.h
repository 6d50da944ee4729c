/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts: devices that the program has opened, and all that it holds at the daemon. */
#ifndef VERBENA_HCA_PROCESS_CONTEXT_H
#define VERBENA_HCA_PROCESS_CONTEXT_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "client/daemon.h"
#include "hca/verbs/event.h"

/* The kinds of objects at the daemon, each after those that it uses; see books.h. */
enum held_kind {
	HELD_PD,
	HELD_CHANNEL,
	HELD_CQ,
	HELD_XRCD,
	HELD_SRQ,
	HELD_DM,
	HELD_MR,
	HELD_MW,
	HELD_QP,
	HELD_FLOW,
	HELD_AH,
	HELD_KINDS,
};

struct hca;

/* The daemon's last answer about an address of this host; see route.c. */
struct own_route {
	uint64_t addresses; /* mcast_addresses() before the call; 0: there is no answer */
	struct proto_route request;
	struct proto_route_resp at;
};

struct context {
	struct verbs_context verbs; /* public part; ibv_context is its last member */
	struct hca *hca;
	struct daemon_conn conn;
	uint32_t device_index; /* the device whose events it gets */
	uint64_t token[2];     /* lets a process that has it share the context; in cmd_fd */
	int cmd_fd;	       /* a memory file: verbs_share.c */
	/* IBV_EVENT_DEVICE_FATAL came: its device's last interface is gone, and its queue pairs
	 * have failed. Set by the engine thread, never cleared; atomic, because any thread reads
	 * it. */
	_Atomic bool removed;
	struct event_queue async;
	struct own_route own_route; /* under hca.lock */
	struct list node;	    /* on hca.contexts */
	struct list held[HELD_KINDS];
};

static inline bool context_removed(const struct context *context)
{
	return atomic_load_explicit(&context->removed, memory_order_relaxed);
}

static inline struct context *context_of(struct ibv_context *ibv)
{
	return container_of(verbs_get_ctx(ibv), struct context, verbs);
}

#endif
