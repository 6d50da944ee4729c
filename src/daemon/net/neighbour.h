/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a host answers on its link. Before packets go to a host, the kernel resolves its link
 * address (ARP, neighbour discovery); the kernel's RDMA CM waits for that, and reports when no host
 * answers. The daemon makes the kernel resolve the address by sending an empty datagram to the
 * host's discard port, and learns the outcome from the kernel's neighbour events (netlink).
 *
 * The daemon listens to these events only while there is a question, so that they don't wake an
 * idle daemon. Where the kernel can't be asked (no netlink, an old kernel), every host counts as
 * present; its absence then shows when connecting.
 */
#ifndef VERBENA_DAEMON_NET_NEIGHBOUR_H
#define VERBENA_DAEMON_NET_NEIGHBOUR_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "daemon/core/loop.h"

union neighbour_address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

struct neighbours {
	struct loop *loop;
	struct watch news;
	struct list questions;
	struct timer timer; /* the earliest until_ms of all questions */
};

/* Owned by the asking object. */
struct neighbour_question {
	struct list node; /* to be initialized with list_init() before the first use */
	union neighbour_address from, to; /* addresses of the packets to be sent */
	union neighbour_address link;	  /* the address to resolve: `to`, or a gateway */
	uint32_t ifindex;
	uint64_t until_ms;
	/* `status`: 0 or -ETIMEDOUT. The callback may ask the question again, or free it. */
	void (*answer)(struct neighbour_question *question, int status);
};

void neighbours_init(struct neighbours *neighbours, struct loop *loop);
/* There must be no question. */
void neighbours_fini(struct neighbours *neighbours);

/* The caller has set `from`, `to` and `answer`. Returns 0: the host answers, as far as is known;
 * -EINPROGRESS: `answer` will be called, within `timeout_ms`. */
int neighbour_ask(struct neighbours *neighbours, struct neighbour_question *question,
		  uint32_t timeout_ms);
/* Withdraws the question: `answer` won't be called. Does nothing if it wasn't asked. */
void neighbour_forget(struct neighbours *neighbours, struct neighbour_question *question);

#endif
