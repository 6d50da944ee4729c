/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does a host answer on its link? Before packets go to a host, the kernel asks the link for its
 * address (ARP, neighbour discovery); the RDMA CM of the kernel waits for that, and says so if
 * nobody answers. Here the kernel is made to ask by an empty datagram to the host's discard port,
 * and its news of neighbours tells the outcome.
 *
 * The news is listened to only while there is a question: an idle daemon isn't woken by it. Where
 * the kernel can't be asked (no netlink, an old kernel), every host counts as there: that it isn't
 * shows when connecting.
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
	struct timer timer; /* for the first of them to run out of time */
};

/* Belongs to whoever asks. */
struct neighbour_question {
	struct list node;		  /* list_init() it before the first use */
	union neighbour_address from, to; /* of the packets that are to go there */
	union neighbour_address link;	  /* whom the link is asked for: `to`, or a gateway */
	uint32_t ifindex;
	uint64_t until_ms;
	/* 0, or -ETIMEDOUT. The question may be asked again, or freed, in it. */
	void (*answer)(struct neighbour_question *question, int status);
};

void neighbours_init(struct neighbours *neighbours, struct loop *loop);
/* There is no question. */
void neighbours_fini(struct neighbours *neighbours);

/* `from`, `to` and `answer` are set. 0: it is there, as far as is known; -EINPROGRESS: `answer` is
 * called. */
int neighbour_ask(struct neighbours *neighbours, struct neighbour_question *question,
		  uint32_t timeout_ms);
/* It isn't answered any more. Does nothing if it wasn't asked. */
void neighbour_forget(struct neighbours *neighbours, struct neighbour_question *question);

#endif
