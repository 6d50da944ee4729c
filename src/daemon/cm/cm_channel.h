/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An event channel of the RDMA CM: a socket whose packets are events (proto/cm.h). What the socket
 * can't take waits in a queue, which needs no limit of its own: an identifier has few events in its
 * life, and the number of identifiers is limited.
 *
 * The daemon keeps the program's end open as well: when an identifier is destroyed or goes to
 * another channel, the daemon takes its unread events back out of the socket.
 */
#ifndef VERBENA_DAEMON_CM_CM_CHANNEL_H
#define VERBENA_DAEMON_CM_CM_CHANNEL_H

#include <rdma/rdma_user_cm.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/cm/cm_object.h"
#include "daemon/core/loop.h"

struct cm_id;
struct cm_join;

struct cm_channel {
	struct cm_object object;
	int program_end;
	struct watch watch; /* the daemon's end */
	struct list queue;
	uint32_t ids;	 /* identifiers on it */
	uint64_t sent;	 /* packets sent, without those that were taken back */
	int packet_cost; /* bytes in SIOCOUTQ for an unread packet */
};

/* Makes a channel and its socket. Returns 0 or -errno. */
int cm_channel_make(struct cm_client *client, struct cm_channel **out);
/* No identifier may be on it. */
void cm_channel_free(struct cm_channel *channel);

/* Queues and sends an event; it belongs to the identifier event->id (a CONNECT_REQUEST to its
 * listener). Returns 0 or -ENOMEM. */
int cm_channel_post(struct cm_channel *channel, const struct rdma_ucm_event_resp *event);

/* The same for an event that the program writes itself, as often as it likes: sends it, or returns
 * -EAGAIN if the socket doesn't take it or others wait. */
int cm_channel_offer(struct cm_channel *channel, const struct rdma_ucm_event_resp *event);

/* How many of the packets that were sent the program has read. */
uint64_t cm_channel_read(const struct cm_channel *channel);

/* Takes back the events of `owner` that the program hasn't read, and sends them to `to`; NULL:
 * drops them. */
void cm_channel_withdraw(struct cm_channel *channel, struct cm_id *owner, struct cm_channel *to);
/* Takes back and drops the unread events of a group that an identifier has joined. */
void cm_channel_withdraw_join(struct cm_channel *channel, const struct cm_join *join);

#endif
