/* SPDX-License-Identifier: BSD-2-Clause */
/* Event sockets. See events.h. */
#include "daemon/core/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "daemon/core/process.h"
#include "daemon/net/link.h"

/* The socket's buffer is small, because descriptors in flight count against limits of the host. */
enum { BUFFER_BYTES = 16384, RETRY_MS = 100 };

/* enum ibv_event_type */
enum { EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERR = 10 };

struct waiting {
	struct list node;
	struct list same;  /* in its bucket, if it may have an equal */
	struct link *link; /* LINK: the link that the event is about */
	int fds[2];	   /* CAPTURE: owned by this entry; -1: none */
	struct proto_event event;
};

bool events_alive(const struct events *events)
{
	return events->watch.fd >= 0;
}

/* Frees an entry that is off the queue, sent or dropped. */
static void waiting_free(struct waiting *w)
{
	list_del(&w->same);
	if (w->link)
		link_event_done(w->link);
	for (int i = 0; i < 2; i++)
		if (w->fds[i] >= 0)
			close(w->fds[i]);
	free(w);
}

static void drop_all(struct events *events)
{
	struct list *node;

	while ((node = list_pop(&events->queue)))
		waiting_free(container_of(node, struct waiting, node));
}

static void hang_up(struct events *events)
{
	int fd = events->watch.fd;

	timer_cancel(&events->retry);
	loop_remove(events->loop, &events->watch);
	if (fd >= 0)
		close(fd);
	drop_all(events);
	if (fd >= 0 && events->gone)
		events->gone(events);
}

static int events_send_one(struct events *events, const struct waiting *w)
{
	int fds[PROTO_MAX_FDS];

	if (!w->link)
		return packet_send(events->watch.fd, &w->event, sizeof(w->event), w->fds,
				   w->fds[0] < 0 ? 0 : 2, MSG_DONTWAIT);
	const struct process *peer = w->link->process[!w->event.side];

	fds[0] = w->link->memory;
	fds[1] = peer->table;
	fds[2] = w->link->strangers ? w->link->bell[!w->event.side] : peer->doorbell;
	fds[3] = w->link->strangers ? w->link->bell[w->event.side] : peer->regions;
	return packet_send(events->watch.fd, &w->event, sizeof(w->event), fds,
			   w->link->strangers || w->link->show_regions ? 4 : 3, MSG_DONTWAIT);
}

/* Sends what the socket takes. */
static void events_flush(struct events *events)
{
	while (!list_empty(&events->queue)) {
		struct waiting *w = container_of(events->queue.next, struct waiting, node);
		int err = events_send_one(events, w);

		if (err == -EAGAIN) {
			loop_change(events->loop, &events->watch, EPOLLOUT);
			return;
		}
		if (err == -ETOOMANYREFS || err == -ENOMEM || err == -ENOBUFS) {
			timer_set(events->loop, &events->retry, RETRY_MS);
			loop_change(events->loop, &events->watch, 0);
			return;
		}
		if (err) {
			hang_up(events);
			return;
		}
		list_del(&w->node);
		waiting_free(w);
	}
	loop_change(events->loop, &events->watch, 0);
}

static void events_on_ready(struct watch *watch, uint32_t ready)
{
	struct events *events = container_of(watch, struct events, watch);

	if (ready & (EPOLLHUP | EPOLLERR))
		hang_up(events);
	else
		events_flush(events);
}

static void on_retry(struct timer *timer)
{
	events_flush(container_of(timer, struct events, retry));
}

int events_open(struct events *events, struct loop *loop, int *peer_fd)
{
	int pair[2], size = BUFFER_BYTES;

	*events = (struct events){.loop = loop, .watch = {.fd = -1, .ready = events_on_ready}};
	list_init(&events->queue);
	for (uint32_t i = 0; i < EVENTS_BUCKETS; i++)
		list_init(&events->bucket[i]);
	timer_init(&events->retry, on_retry);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	/* The daemon reads nothing from this socket; without a reading side, the peer can't send it
	 * descriptors that it would have to close. */
	shutdown(pair[0], SHUT_RD);
	int err = loop_add(loop, &events->watch, pair[0], 0);

	if (err) {
		close(pair[0]);
		close(pair[1]);
		return err;
	}
	*peer_fd = pair[1];
	return 0;
}

void events_close(struct events *events)
{
	hang_up(events);
}

static struct waiting *waiting_new(struct link *link, const struct proto_event *event)
{
	struct waiting *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	list_init(&w->same);
	w->link = link;
	w->event = *event;
	w->fds[0] = w->fds[1] = -1;
	return w;
}

static uint32_t event_bucket(const struct proto_event *event)
{
	uint64_t word = event->link_id ^ (uint64_t)event->slot << 24 ^
			(uint64_t)event->value << 40 ^ (uint64_t)event->type << 56;

	return (uint32_t)(word * 0x9e3779b97f4a7c15ull >> 32) % EVENTS_BUCKETS;
}

static int events_enqueue(struct events *events, struct link *link, const struct proto_event *event)
{
	if (!events_alive(events))
		return -EPIPE;
	struct waiting *w = waiting_new(link, event);

	if (!w)
		return -ENOMEM;
	list_add_tail(&events->queue, &w->node);
	if (!link)
		list_add_tail(&events->bucket[event_bucket(event)], &w->same);
	events_flush(events);
	return 0;
}

int events_capture(struct events *events, const struct proto_event *event, const int *fds)
{
	if (!events_alive(events))
		return -EPIPE;
	struct waiting *w = waiting_new(NULL, event);

	if (!w)
		return -ENOMEM;
	for (int i = 0; fds && i < 2; i++)
		w->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
	if (fds && (w->fds[0] < 0 || w->fds[1] < 0)) {
		waiting_free(w);
		return -EMFILE;
	}
	list_add_tail(&events->queue, &w->node);
	events_flush(events);
	return 0;
}

int events_link(struct events *events, struct link *link, unsigned int side)
{
	const struct process *self = link->process[side], *peer = link->process[!side];
	const struct proto_event event = {
		.type = PROTO_EVENT_LINK,
		.slot = peer->slot,
		.link_id = link->id,
		.side = side,
		.pid = process_pid_seen(self, peer),
		.uid = link_uid(link, !side),
		.value = link->strangers ? PROTO_LINK_BELLS : 0,
	};

	return events_enqueue(events, link, &event);
}

/* Takes the link's event off the queue. Returns whether it was on it. */
static bool events_unqueue(struct events *events, struct link *link)
{
	list_for_each(node, &events->queue) {
		struct waiting *w = container_of(node, struct waiting, node);

		if (w->link != link)
			continue;
		list_del(&w->node);
		waiting_free(w);
		return true;
	}
	return false;
}

void events_link_forget(struct events *events, struct link *link)
{
	events_unqueue(events, link);
}

/* Whether an equal event waits already. */
static bool is_queued(const struct events *events, const struct proto_event *event)
{
	if (!events_alive(events))
		return false;
	list_for_each(node, (struct list *)&events->bucket[event_bucket(event)])
		if (!memcmp(&container_of(node, struct waiting, same)->event, event,
			    sizeof(*event)))
			return true;
	return false;
}

void events_down(struct events *events, uint32_t slot, uint64_t id)
{
	const struct proto_event event = {
		.type = PROTO_EVENT_LINK_DOWN, .slot = slot, .link_id = id};

	if (!id && is_queued(events, &event))
		return;
	if (events_enqueue(events, NULL, &event) == -ENOMEM) {
		/* A process that doesn't get this event would wait for its peer for ever. */
		log_error("no memory to tell a process that its peer is gone; it loses its device");
		hang_up(events);
	}
}

void events_link_down(struct events *events, struct link *link, unsigned int side)
{
	uint32_t slot = link->process[!side]->slot;

	if (!events_unqueue(events, link))
		events_down(events, slot, link->id);
	else if (side == LINK_ASKER) /* the asking side got no link event but waits for one */
		events_down(events, slot, 0);
}

/* Of several changes of a port's state only the last is sent. */
static void unqueue_port(struct events *events, uint32_t device)
{
	for (struct list *node = events->queue.next, *next; node != &events->queue; node = next) {
		struct waiting *w = container_of(node, struct waiting, node);

		next = node->next;
		if (w->link || w->event.type != PROTO_EVENT_DEVICE || w->event.slot != device ||
		    (w->event.value != EVENT_PORT_ACTIVE && w->event.value != EVENT_PORT_ERR))
			continue;
		list_del(&w->node);
		waiting_free(w);
	}
}

int events_device(struct events *events, uint32_t type, uint32_t device, uint32_t port)
{
	const struct proto_event event = {
		.type = PROTO_EVENT_DEVICE, .slot = device, .value = type, .port = port};

	if (type == EVENT_PORT_ACTIVE || type == EVENT_PORT_ERR)
		unqueue_port(events, device);
	return is_queued(events, &event) ? 0 : events_enqueue(events, NULL, &event);
}

int events_alternate(struct events *events)
{
	const struct proto_event event = {.type = PROTO_EVENT_ALTERNATE};

	return is_queued(events, &event) ? 0 : events_enqueue(events, NULL, &event);
}

void events_xrc(struct events *events, uint32_t qpn, uint32_t dispatcher, uint32_t event)
{
	const struct proto_event e = {
		.type = PROTO_EVENT_XRC, .slot = dispatcher, .link_id = qpn, .value = event};

	if (!is_queued(events, &e) && events_enqueue(events, NULL, &e) == -ENOMEM)
		log_error("no memory to tell a process of a change of XRC queue pair 0x%x", qpn);
}
