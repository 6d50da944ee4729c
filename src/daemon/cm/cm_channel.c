/* SPDX-License-Identifier: BSD-2-Clause */
/* Event channels. See cm_channel.h. */
#include "daemon/cm/cm_channel.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "daemon/cm/cm_attr.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_mcast.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/core/conn.h"
#include "daemon/core/ending.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"

enum { BUFFER_BYTES = 65536 };

struct waiting {
	struct list node;
	struct rdma_ucm_event_resp event;
};

/* The joined group that the event is about; NULL: none, or the group was left. */
static struct cm_join *join_of(const struct cm_channel *channel,
			       const struct rdma_ucm_event_resp *event)
{
	return cm_object_find(channel->object.client, CM_KIND_JOIN, event->id);
}

/* The identifier that the event belongs to; NULL: it is gone. */
static struct cm_id *cm_event_owner(const struct cm_channel *channel,
				    const struct rdma_ucm_event_resp *event)
{
	const struct cm_join *join = join_of(channel, event);

	if (join)
		return join->id;
	struct cm_id *id = cm_object_find(channel->object.client, CM_KIND_ID, event->id);

	return id && event->event == REPORT_CONNECT_REQUEST ? id->listener : id;
}

/* The counter of reported events that includes this event; NULL: none. */
static uint32_t *reported_of(const struct cm_channel *channel,
			     const struct rdma_ucm_event_resp *event)
{
	struct cm_join *join = join_of(channel, event);
	struct cm_id *owner = cm_event_owner(channel, event);

	if (join)
		return &join->reported;
	return owner ? &owner->reported : NULL;
}

/* ------------------------------------------------------------------ sending */

static void cm_event_was_sent(struct cm_channel *channel, const struct rdma_ucm_event_resp *event)
{
	struct cm_id *id = cm_object_find(channel->object.client, CM_KIND_ID, event->id);
	struct cm_id *owner = cm_event_owner(channel, event);
	uint32_t *reported = reported_of(channel, event);

	channel->sent++;
	if (reported)
		++*reported;
	if (owner)
		owner->last_place = channel->sent;
	if (id && event->event == REPORT_CONNECT_REQUEST)
		id->request_place = channel->sent;
}

static int cm_channel_send_event(struct cm_channel *channel,
				 const struct rdma_ucm_event_resp *event)
{
	const struct cm_id *id = cm_object_find(channel->object.client, CM_KIND_ID, event->id);
	struct proto_cm_event packet = {.event = *event};

	if (id)
		cm_query_beside(id, &packet);
	int err = packet_send(channel->watch.fd, &packet, sizeof(packet), NULL, 0, MSG_DONTWAIT);

	if (!err)
		cm_event_was_sent(channel, event);
	return err;
}

static void cm_channel_flush(struct cm_channel *channel)
{
	struct loop *loop = &cm_server(channel->object.client)->loop;

	while (!list_empty(&channel->queue)) {
		struct waiting *w = container_of(channel->queue.next, struct waiting, node);

		if (cm_channel_send_event(channel, &w->event)) {
			loop_change(loop, &channel->watch, EPOLLOUT);
			return;
		}
		list_del(&w->node);
		free(w);
	}
	loop_change(loop, &channel->watch, 0);
}

static void cm_channel_on_ready(struct watch *watch, uint32_t events)
{
	(void)events;
	cm_channel_flush(container_of(watch, struct cm_channel, watch));
}

int cm_channel_post(struct cm_channel *channel, const struct rdma_ucm_event_resp *event)
{
	if (list_empty(&channel->queue) && cm_channel_send_event(channel, event) == 0)
		return 0;
	struct waiting *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->event = *event;
	/* If others wait already, the loop watches the socket already. */
	if (list_empty(&channel->queue))
		loop_change(&cm_server(channel->object.client)->loop, &channel->watch, EPOLLOUT);
	list_add_tail(&channel->queue, &w->node);
	return 0;
}

int cm_channel_offer(struct cm_channel *channel, const struct rdma_ucm_event_resp *event)
{
	return list_empty(&channel->queue) ? cm_channel_send_event(channel, event) : -EAGAIN;
}

/* ------------------------------------------------------------------ what was read */

static int unread_cost(const struct cm_channel *channel)
{
	int cost = 0;

	ioctl(channel->watch.fd, SIOCOUTQ, &cost);
	return cost;
}

uint64_t cm_channel_read(const struct cm_channel *channel)
{
	uint64_t unread = (uint64_t)(unread_cost(channel) / channel->packet_cost);

	return unread < channel->sent ? channel->sent - unread : 0;
}

/* Measures what one unread event counts; all have the same size. To be called before the program
 * has its end. */
static int cm_channel_count_events(struct cm_channel *channel)
{
	struct proto_cm_event event = {0};
	int err = packet_send(channel->watch.fd, &event, sizeof(event), NULL, 0, MSG_DONTWAIT);

	if (err)
		return err;
	channel->packet_cost = unread_cost(channel);
	if (recv(channel->program_end, &event, sizeof(event), MSG_DONTWAIT) < 0)
		return -errno;
	return channel->packet_cost > 0 ? 0 : -EIO;
}

/* ------------------------------------------------------------------ taking back */

static void was_taken_back(struct cm_channel *channel, const struct rdma_ucm_event_resp *event)
{
	struct cm_id *id = cm_object_find(channel->object.client, CM_KIND_ID, event->id);
	uint32_t *reported = reported_of(channel, event);

	channel->sent--;
	if (reported)
		--*reported;
	if (id && event->event == REPORT_CONNECT_REQUEST)
		id->request_place = 0;
}

/* All unread events go to the queue's front, in their order. */
static void take_unread(struct cm_channel *channel)
{
	struct waiting *w;
	struct list taken;

	list_init(&taken);
	while ((w = malloc(sizeof(*w)))) {
		struct proto_cm_event packet;
		ssize_t n = recv(channel->program_end, &packet, sizeof(packet), MSG_DONTWAIT);

		if (n != (ssize_t)sizeof(packet)) {
			free(w);
			break;
		}
		w->event = packet.event;
		was_taken_back(channel, &w->event);
		list_add_tail(&taken, &w->node);
	}
	while (!list_empty(&channel->queue))
		list_add_tail(&taken, list_pop(&channel->queue));
	while (!list_empty(&taken))
		list_add_tail(&channel->queue, list_pop(&taken));
}

/* Whether any event of `owner` is unread. Without this check, each of many identifiers that end
 * would take back and send again the unread events of all others. */
static bool has_unread(const struct cm_channel *channel, const struct cm_id *owner)
{
	if (owner->last_place > cm_channel_read(channel))
		return true;
	list_for_each(node, (struct list *)&channel->queue)
		if (cm_event_owner(channel, &container_of(node, struct waiting, node)->event) ==
		    owner)
			return true;
	return false;
}

/* Takes back the events of an identifier; if `join` isn't NULL, only those of that group. */
static void cm_channel_take_events(struct cm_channel *channel, const struct cm_id *owner,
				   const struct cm_join *join, struct cm_channel *to)
{
	if (!has_unread(channel, owner))
		return;
	take_unread(channel);
	list_for_each(node, &channel->queue) {
		struct waiting *w = container_of(node, struct waiting, node);

		if (join ? join_of(channel, &w->event) != join
			 : cm_event_owner(channel, &w->event) != owner)
			continue;
		list_del(&w->node);
		if (to)
			list_add_tail(&to->queue, &w->node);
		else
			free(w);
	}
	cm_channel_flush(channel);
	if (to)
		cm_channel_flush(to);
}

void cm_channel_withdraw(struct cm_channel *channel, struct cm_id *owner, struct cm_channel *to)
{
	cm_channel_take_events(channel, owner, NULL, to);
}

void cm_channel_withdraw_join(struct cm_channel *channel, const struct cm_join *join)
{
	cm_channel_take_events(channel, join->id, join, NULL);
}

/* ------------------------------------------------------------------ life */

static int open_socket(struct cm_channel *channel)
{
	int pair[2], size = BUFFER_BYTES;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	/* The daemon reads nothing from this socket; without a reading side, the peer can't send it
	 * descriptors that it would have to close. */
	shutdown(pair[0], SHUT_RD);
	channel->program_end = pair[1];
	int err = loop_add(&cm_server(channel->object.client)->loop, &channel->watch, pair[0], 0);

	if (err)
		close(pair[0]);
	else
		err = cm_channel_count_events(channel);
	return err;
}

/* Whether the client's user may have the descriptors of another channel. Returns 0; -EMFILE;
 * -EAGAIN: when the user's ended clients are freed (ending.h). */
static int cm_channel_check_share(const struct cm_client *client)
{
	struct user *user = client->conn->user;

	if (pool_allows(&cm_server(client)->pools, user, POOL_FILES))
		return 0;
	if (ending_may_help(client->conn, false))
		return -EAGAIN;
	complain(
		user,
		"process %d may not have another event channel of the RDMA CM: user %u has as many "
		"of the daemon's descriptors as a user may have (raise its hard limit of open "
		"files, see prlimit(1))",
		client->conn->pid, user->uid);
	return -EMFILE;
}

int cm_channel_make(struct cm_client *client, struct cm_channel **out)
{
	int err = cm_channel_check_share(client);

	if (err)
		return err;
	struct cm_channel *channel = calloc(1, sizeof(*channel));

	err = channel ? cm_object_enter(client, &channel->object, CM_KIND_CHANNEL) : -ENOMEM;

	if (err) {
		free(channel);
		return err;
	}
	pool_take(&cm_server(client)->pools, client->conn->user, POOL_FILES);
	list_init(&channel->queue);
	channel->program_end = -1;
	channel->watch = (struct watch){.fd = -1, .ready = cm_channel_on_ready};
	err = open_socket(channel);
	if (err)
		cm_channel_free(channel);
	else
		*out = channel;
	return err;
}

void cm_channel_free(struct cm_channel *channel)
{
	int fd = channel->watch.fd;
	struct list *node;

	loop_remove(&cm_server(channel->object.client)->loop, &channel->watch);
	if (fd >= 0)
		close(fd);
	if (channel->program_end >= 0)
		close(channel->program_end);
	while ((node = list_pop(&channel->queue)))
		free(container_of(node, struct waiting, node));
	pool_give(&cm_server(channel->object.client)->pools, channel->object.client->conn->user,
		  POOL_FILES);
	cm_object_leave(&channel->object);
	free(channel);
}
