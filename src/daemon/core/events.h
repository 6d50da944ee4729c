/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's end of a process's event socket. It never blocks: what the socket can't take now
 * waits in a queue. The queue needs no limit of its own: it holds at most one link event for each
 * living link, one LINK_DOWN for each link event that was sent and has had none yet (the socket's
 * buffer bounds those), one event of each device event and of each slot to which there will be no
 * link, two for each capture under way, one of each kind for each XRC target queue pair, and one
 * ALTERNATE. A capturing program has such a socket as well, for the events of captured processes.
 */
#ifndef VERBENA_DAEMON_CORE_EVENTS_H
#define VERBENA_DAEMON_CORE_EVENTS_H

#include <stdbool.h>

#include "base/list.h"
#include "daemon/core/loop.h"
#include "proto/proto.h"

struct link;

/* Equal events are looked for by their contents: a process that doesn't read its socket may have
 * thousands waiting. */
#define EVENTS_BUCKETS 64u

struct events {
	struct loop *loop;
	struct watch watch; /* fd -1: the process closed its end */
	struct timer retry;
	struct list queue;
	struct list bucket[EVENTS_BUCKETS];  /* of the queue, those that may have an equal */
	void (*gone)(struct events *events); /* the other end was closed; NULL: no callback */
};

/* Makes the socket pair; *peer_fd is the other end. Returns 0 or -errno. */
int events_open(struct events *events, struct loop *loop, int *peer_fd);
/* Closes the socket; drops the queue. */
void events_close(struct events *events);
/* Whether the process's end is open. */
bool events_alive(const struct events *events);

/* Queues the link's event and sends what fits. `side`: the receiver's side. Returns 0; -ENOMEM;
 * -EPIPE. */
int events_link(struct events *events, struct link *link, unsigned int side);
/* The link is about to end: takes its event off the queue, else queues LINK_DOWN. */
void events_link_down(struct events *events, struct link *link, unsigned int side);
/* Queues LINK_DOWN: the link with this id to the process at `slot` has ended; id 0: there won't be
 * one. */
void events_down(struct events *events, uint32_t slot, uint64_t id);
/* The link is about to end, and the receiver of these events has closed its end. */
void events_link_forget(struct events *events, struct link *link);
/* Queues a capture's event with its two descriptors, of which copies are kept while it waits; `fds`
 * NULL: none. Returns 0; -ENOMEM; -EMFILE; -EPIPE. */
int events_capture(struct events *events, const struct proto_event *event, const int *fds);
/* Queues an event about an XRC target queue pair, unless an equal one waits. `dispatcher`: the slot
 * of the process that gets its packets. */
void events_xrc(struct events *events, uint32_t qpn, uint32_t dispatcher, uint32_t event);
/* Queues the event that there may be an alternate path to load, unless one waits. Returns 0;
 * -ENOMEM; -EPIPE. */
int events_alternate(struct events *events);
/* Queues an event for the contexts of one device. `type`: enum ibv_event_type. */
int events_device(struct events *events, uint32_t type, uint32_t device, uint32_t port);

#endif
