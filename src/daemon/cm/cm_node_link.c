/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A node's connections to verbena-fabric: opening them, what follows when they end, and the events
 * of the node's ports. And what is valid until the next event or change of the tables: path
 * records. See cm_node.h.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/cm/cm_fabric.h"
#include "daemon/cm/cm_mcast.h"
#include "daemon/cm/cm_node.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "proto/fabric.h"

enum { LOOK_MS = 250 };

/* ------------------------------------------------------------------ events */

/* What the subnet administration knew of the node may be gone: its groups are joined anew. */
static void node_reregister(struct cm_node *node)
{
	memset(node->paths, 0, sizeof(node->paths));
	cm_mcast_rejoin(node);
}

static void node_take_event(struct cm_node *node, const struct proto_fabric_event *event)
{
	if (event->port != node->tables.ports[node->port].number)
		return;
	switch (event->event) {
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_LID_CHANGE:
		node_reregister(node);
		break;
	default:
		break;
	}
}

static void node_events_ready(struct watch *watch, uint32_t events)
{
	struct cm_node *node = container_of(watch, struct cm_node, events);
	struct cm_service *service = node->service;
	struct proto_fabric_event event;
	ssize_t got;

	(void)events;
	/* The answer to JOIN has this size too, and the port 0. */
	_Static_assert(sizeof(event) == sizeof(struct proto_fabric_result), "one size of packets");
	while ((got = recv(watch->fd, &event, sizeof(event), MSG_DONTWAIT)) == sizeof(event))
		node_take_event(node, &event);
	if (got >= 0 || (errno != EAGAIN && errno != EINTR))
		cm_node_lost(node);
	cm_service_run(service);
}

/* ------------------------------------------------------------------ opening, closing */

static int node_events_open(struct cm_node *node)
{
	int fd = cm_fabric_ask(node->service->server->dir, PROTO_FABRIC_JOIN, node->name, 0);

	if (fd < 0)
		return fd;
	node->events.ready = node_events_ready;
	int err = loop_add(&node->service->server->loop, &node->events, fd, EPOLLIN);

	if (err)
		close(fd);
	return err;
}

int cm_node_open(struct cm_node *node)
{
	if (cm_node_main(node)->watch.fd >= 0)
		return 0;
	int err = cm_node_mad_open(node);

	if (!err)
		err = node_events_open(node);
	if (err)
		cm_node_close(node);
	else
		timer_cancel(&node->again);
	return err;
}

static void watch_close(struct cm_node *node, struct watch *watch)
{
	int fd = watch->fd;

	if (fd < 0)
		return;
	loop_remove(&node->service->server->loop, watch);
	watch->fd = -1;
	close(fd);
}

void cm_node_close(struct cm_node *node)
{
	for (uint32_t i = 0; i < node->port_count; i++)
		watch_close(node, &node->by_number[i].watch);
	watch_close(node, &node->events);
}

void cm_node_lost(struct cm_node *node)
{
	struct list *at;

	cm_node_close(node);
	timer_set(&node->service->server->loop, &node->again, LOOK_MS);
	while ((at = list_pop(&node->queries))) {
		struct cm_query *query = container_of(at, struct cm_query, node);

		list_init(&query->node);
		query->answer(query, -ETIMEDOUT, NULL);
	}
}

/* Events may have been missed meanwhile. */
static void node_look_again(struct timer *timer)
{
	struct cm_node *node = container_of(timer, struct cm_node, again);
	struct cm_service *service = node->service;
	int err = cm_node_check(node);

	if (err == -ESTALE) {
		log_warn("rdma_cm: another fabric runs in place of the one that the programs on "
			 "node %s are on; restart them",
			 node->name);
		return;
	}
	if (!err)
		err = cm_node_open(node);
	if (err)
		timer_set(&service->server->loop, timer, LOOK_MS);
	else
		node_reregister(node);
	cm_service_run(service);
}

void cm_node_link_init(struct cm_node *node)
{
	node->events.fd = -1;
	timer_init(&node->again, node_look_again);
}

/* ------------------------------------------------------------------ paths */

uint64_t cm_node_epoch(const struct cm_node *node)
{
	/* [P1], pairs with [P2] */
	return __atomic_load_n(&node->tables.header->epoch, __ATOMIC_ACQUIRE);
}

/* The place that a path's record has, if it is known. */
static uint32_t path_place(const struct cm_path *path)
{
	uint32_t sum = path->pkey;

	for (unsigned int i = 0; i < sizeof(path->remote); i++)
		sum = sum * 31 + path->remote[i];
	return sum % CM_NODE_PATHS;
}

const uint8_t *cm_node_path_known(const struct cm_node *node, const struct cm_path *path)
{
	const struct cm_node_path *known = &node->paths[path_place(path)];

	if (!known->epoch || known->epoch != cm_node_epoch(node) || known->pkey != path->pkey ||
	    memcmp(known->remote, path->remote, sizeof(known->remote)) != 0)
		return NULL;
	return known->record;
}

void cm_node_path_note(struct cm_node *node, const struct cm_path *path, const uint8_t record[64],
		       uint64_t epoch)
{
	struct cm_node_path *known = &node->paths[path_place(path)];

	known->epoch = epoch;
	known->pkey = path->pkey;
	memcpy(known->remote, path->remote, sizeof(known->remote));
	memcpy(known->record, record, sizeof(known->record));
}
