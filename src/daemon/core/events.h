/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's end of a process's event socket: never blocks; what the socket can't take now waits
 * in a queue. The queue needs no limit of its own: it holds at most one link event for each living
 * link, one LINK_DOWN for each link event that went out and isn't answered by one yet (the socket's
 * buffer bounds those), one of each device event and each slot that it can't be linked to, and two
 * for each capture under way. The same serves a capturing program, who hears of captured processes.
 */
#ifndef VERBENA_DAEMON_CORE_EVENTS_H
#define VERBENA_DAEMON_CORE_EVENTS_H

#include <stdbool.h>

#include "base/list.h"
#include "daemon/core/loop.h"
#include "proto/proto.h"

struct link;

struct events {
	struct loop *loop;
	struct watch watch; /* fd -1: the process closed its end */
	struct timer retry;
	struct list queue;
	void (*gone)(struct events *events); /* the other end closed; NULL: nobody asks */
};

/* Makes the socket pair; *peer_fd is the other end. 0 or -errno. */
int events_open(struct events *events, struct loop *loop, int *peer_fd);
/* Whatever waits is dropped. */
void events_close(struct events *events);
/* The process's end is open. */
bool events_alive(const struct events *events);

/* Queues and sends. `side`: the receiver's. 0; -ENOMEM; -EPIPE. */
int events_link(struct events *events, struct link *link, unsigned int side);
/* The link is going: takes its event off the queue, or says that it went down. */
void events_link_down(struct events *events, struct link *link, unsigned int side);
/* The link with this id to the process at `slot` is no more; id 0: there won't be one. */
void events_down(struct events *events, uint32_t slot, uint64_t id);
/* The link is going, and nobody reads these events any more. */
void events_link_forget(struct events *events, struct link *link);
/* A capture's event with its two descriptors, of which copies are kept while it waits; `fds` NULL:
 * without any. 0; -ENOMEM; -EMFILE; -EPIPE. */
int events_capture(struct events *events, const struct proto_event *event, const int *fds);
/* To the contexts of one device. `type`: enum ibv_event_type. */
int events_device(struct events *events, uint32_t type, uint32_t device, uint32_t port);

#endif
