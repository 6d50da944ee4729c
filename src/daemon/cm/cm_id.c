/* SPDX-License-Identifier: BSD-2-Clause */
/* Identifiers: their life, their events, a listener's backlog. See cm_id.h. */
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_mcast.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "daemon/core/loop.h"
#include "daemon/core/server.h"
#include "wire/ip.h"

struct cm_service *cm_id_service(const struct cm_id *id)
{
	return cm_server(id->object.client)->cm;
}

struct cm_node *cm_id_node(const struct cm_id *id)
{
	return id->object.client->node;
}

struct cm_ports *cm_id_ports(const struct cm_id *id)
{
	struct cm_node *node = cm_id_node(id);

	return node ? &node->ports : &cm_id_service(id)->ports;
}

struct cm_id *cm_id_find(const struct cm_request *request, uint32_t handle)
{
	return cm_object_find(request->client, CM_KIND_ID, handle);
}

/* ------------------------------------------------------------------ events */

void cm_id_post(struct cm_id *id, const struct rdma_ucm_event_resp *event)
{
	if (id->object.client->ended)
		return;
	if (cm_channel_post(id->channel, event))
		log_error("rdma_cm: event %u for process %d is lost, because the daemon got no "
			  "memory for it; free memory on this host or raise the daemon's limit, "
			  "and restart the program if it waits for the event",
			  event->event, id->object.client->conn->pid);
}

void cm_id_event_with(struct cm_id *id, struct rdma_ucm_event_resp *event)
{
	event->uid = id->uid;
	event->id = id->object.handle;
	if (id->uid)
		cm_id_post(id, event);
}

void cm_id_event(struct cm_id *id, uint32_t type, int status)
{
	struct rdma_ucm_event_resp event = {.event = type, .status = (uint32_t)status};

	cm_id_event_with(id, &event);
}

/* ------------------------------------------------------------------ a listener's requests */

void cm_id_add_request(struct cm_id *listener, struct cm_id *id)
{
	id->listener = listener;
	list_add_tail(&listener->requests, &id->request_node);
	listener->request_count++;
}

void cm_id_drop_request(struct cm_id *id)
{
	if (!id->listener)
		return;
	list_del(&id->request_node);
	id->listener->request_count--;
	id->listener = NULL;
}

/* Requests that the program has read don't count against the backlog any more. */
static void forget_read_requests(struct cm_id *listener)
{
	uint64_t read = cm_channel_read(listener->channel);

	list_for_each(node, &listener->requests) {
		struct cm_id *id = container_of(node, struct cm_id, request_node);

		if (!id->request_place || id->request_place > read)
			break;
		cm_id_drop_request(id);
	}
}

bool cm_id_has_backlog(struct cm_id *listener)
{
	if (listener->request_count >= listener->backlog)
		forget_read_requests(listener);
	return listener->request_count < listener->backlog;
}

/* Frees the requests that the program hasn't read; the others are the program's by now. */
static void drop_requests(struct cm_id *listener)
{
	bool ended = listener->object.client->ended; /* all of its identifiers are freed */

	if (list_empty(&listener->requests))
		return;
	if (!ended)
		cm_channel_withdraw(listener->channel, listener, NULL);
	list_for_each(node, &listener->requests) {
		struct cm_id *id = container_of(node, struct cm_id, request_node);
		bool known = ended || id->request_place; /* its event wasn't taken back */

		cm_id_drop_request(id);
		if (!known)
			cm_id_free(id);
	}
}

/* ------------------------------------------------------------------ life */

int cm_id_make(struct cm_channel *channel, uint16_t port_space, uint8_t type, struct cm_id **out)
{
	struct cm_id *id = calloc(1, sizeof(*id));
	int err = id ? cm_object_enter(channel->object.client, &id->object, CM_KIND_ID) : -ENOMEM;

	if (err) {
		free(id);
		return err;
	}
	id->channel = channel;
	channel->ids++;
	id->port_space = port_space;
	id->type = type;
	list_init(&id->requests);
	list_init(&id->joins);
	list_init(&id->request_node);
	list_init(&id->port.node);
	list_init(&id->question.node);
	list_init(&id->query.node);
	list_init(&id->alternate.node);
	if (getrandom(&id->psn, sizeof(id->psn), 0) != sizeof(id->psn))
		id->psn = id->object.handle;
	id->psn &= 0xffffff;
	*out = id;
	return 0;
}

void cm_id_free(struct cm_id *id)
{
	struct cm_service *service = cm_id_service(id);

	drop_requests(id);
	while (cm_mcast_leave_one(id))
		;
	cm_id_drop_request(id);
	neighbour_forget(&service->neighbours, &id->question);
	cm_node_forget(&id->query);
	cm_alternate_end(id);
	cm_alternate_follow(id);
	if (id->endpoint)
		cm_close(&service->cm, id->endpoint, now_ms());
	cm_ports_unbind(cm_id_ports(id), id);
	id->channel->ids--;
	cm_object_leave(&id->object);
	free(id);
}

/* ------------------------------------------------------------------ its device */

static void note_card(struct cm_id *id, const struct host_address *entry)
{
	id->card_ifindex = entry->ifindex;
	memcpy(id->card_mac, entry->mac, sizeof(id->card_mac));
}

bool cm_gid_is_loopback(const uint8_t gid[16])
{
	return ip_is_v4(gid) ? gid[12] == 127 : IN6_IS_ADDR_LOOPBACK((const void *)gid);
}

/* The device of a node, if the node has the identifier's address. */
static bool take_node_device(struct cm_id *id, struct cm_node *node)
{
	uint8_t address[16];

	cm_address_gid(&id->source, address);
	if (cm_address_is_ib(&id->source) ? !cm_node_has_gid(node, address)
					  : !cm_node_has(node, address))
		return false;
	id->device = &node->device;
	id->gid_index = 0;
	return true;
}

bool cm_id_take_device(struct cm_id *id)
{
	if (cm_id_node(id))
		return take_node_device(id, cm_id_node(id));

	static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
	const struct devices *devices = &cm_server(id->object.client)->devices;
	const struct host_address *entry;

	id->device = devices_find(devices, id->path.local, &entry);
	/* All of 127.0.0.0/8 is the host's own, but the device's GID table has only one of them. */
	if (!id->device && cm_gid_is_loopback(id->path.local))
		id->device = devices_find(devices, loopback, &entry);
	if (!id->device)
		return false;
	if (!id->path.ifindex)
		id->path.ifindex = entry->ifindex;
	id->gid_index = (uint8_t)(entry - id->device->gids.entry);
	note_card(id, entry);
	return true;
}

/* The identifier's device is gone: ends its connection, which the peer learns as far as a route
 * leads there. */
static void remove_device(struct cm_id *id)
{
	neighbour_forget(&cm_id_service(id)->neighbours, &id->question);
	cm_alternate_follow(id);
	if (id->endpoint)
		cm_close(&cm_id_service(id)->cm, id->endpoint, now_ms());
	id->endpoint = NULL;
	id->state = ID_REMOVED;
	cm_id_event(id, REPORT_DEVICE_REMOVAL, 0);
}

void cm_id_network_changed(struct cm_id *id)
{
	const struct host_address *entry;

	if (!id->device || id->state == ID_REMOVED || cm_id_node(id))
		return;
	if (!id->device->present) {
		remove_device(id);
		return;
	}
	if (!devices_find(&cm_server(id->object.client)->devices, id->path.local, &entry) ||
	    (entry->ifindex == id->card_ifindex &&
	     !memcmp(entry->mac, id->card_mac, sizeof(entry->mac))))
		return;
	note_card(id, entry);
	cm_id_event(id, REPORT_ADDR_CHANGE, 0);
}

/* ------------------------------------------------------------------ commands */

static int type_of(uint16_t port_space, uint8_t qp_type)
{
	switch (port_space) {
	case RDMA_PS_TCP:
		return CM_ID_RC;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return CM_ID_UD;
	case RDMA_PS_IB:
		if (qp_type == CM_ID_XRC_SEND || qp_type == CM_ID_XRC_RECV)
			return qp_type;
		return qp_type >= CM_ID_RC && qp_type <= CM_ID_UD ? qp_type : -EINVAL;
	default:
		return -EINVAL;
	}
}

int cm_command_create_id(struct cm_request *request, void *response)
{
	const struct rdma_ucm_create_id *body = request->body;
	struct rdma_ucm_create_id_resp *resp = response;
	int type = type_of(body->ps, body->qp_type);
	uint32_t handle;
	struct cm_id *id;

	memcpy(&handle, body->reserved, sizeof(handle));
	struct cm_channel *channel = cm_object_find(request->client, CM_KIND_CHANNEL, handle);

	if (type < 0 || !channel || !body->uid)
		return -EINVAL;
	int err = cm_id_make(channel, body->ps, (uint8_t)type, &id);

	if (err)
		return err;
	id->uid = body->uid;
	resp->id = id->object.handle;
	return 0;
}

int cm_command_destroy_id(struct cm_request *request, void *response)
{
	const struct rdma_ucm_destroy_id *body = request->body;
	struct rdma_ucm_destroy_id_resp *resp = response;
	struct cm_id *id = cm_id_find(request, body->id);

	if (!id)
		return -EINVAL;
	drop_requests(id);
	cm_channel_withdraw(id->channel, id, NULL);
	resp->events_reported = id->reported;
	cm_id_free(id);
	return 0;
}

int cm_command_migrate_id(struct cm_request *request, void *response)
{
	const struct rdma_ucm_migrate_id *body = request->body;
	struct rdma_ucm_migrate_resp *resp = response;
	struct cm_id *id = cm_id_find(request, body->id);
	struct cm_channel *to = cm_object_find(request->client, CM_KIND_CHANNEL, body->fd);

	if (!id || !to)
		return -EINVAL;
	if (to != id->channel) {
		struct cm_channel *from = id->channel;

		forget_read_requests(id);
		from->ids--;
		to->ids++;
		id->channel = to;
		cm_channel_withdraw(from, id, to);
	}
	resp->events_reported = id->reported;
	return 0;
}

int cm_command_write_event(struct cm_request *request, void *response)
{
	const struct proto_cm_write_event *body = request->body;
	struct cm_id *id = cm_id_find(request, body->id);

	(void)response;
	if (!id || !id->uid || body->reserved || body->event < PROTO_CM_WRITTEN_FIRST ||
	    body->event > PROTO_CM_WRITTEN_LAST)
		return -EINVAL;
	struct rdma_ucm_event_resp event = {
		.uid = id->uid,
		.id = id->object.handle,
		.event = body->event,
		.status = (uint32_t)body->status,
	};

	memcpy(event.param.conn.private_data, &body->arg, sizeof(body->arg));
	return cm_channel_offer(id->channel, &event);
}
