/* SPDX-License-Identifier: BSD-2-Clause */
/* Clients of the `rdma_cm` node. See cm_client.h. */
#include "daemon/cm/cm_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cm/cm_channel.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_mcast.h"
#include "daemon/cm/cm_node.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"

/* The number of a client's objects of all kinds. */
enum { OBJECTS_MAX = 65536 };

struct server *cm_server(const struct cm_client *client)
{
	return client->conn->server;
}

uint32_t cm_client_slot(const struct cm_client *client)
{
	const struct process *process =
		client->cookie ? process_by_cookie(cm_server(client), client->cookie) : NULL;

	return process ? process->slot : 0;
}

/* ------------------------------------------------------------------ handles */

int cm_object_enter(struct cm_client *client, struct cm_object *object, enum cm_kind kind)
{
	struct user *user = client->conn->user;

	bool has_much = user->objects >= cm_server(client)->config.user_objects;

	if (has_much && ending_may_help(client->conn, false))
		return -EAGAIN;
	if (client->count >= OBJECTS_MAX || has_much) {
		complain(user,
			 "process %d may not have another identifier or channel of the RDMA CM: it "
			 "has %u, its user %u objects (see user-objects in verbenad.conf)",
			 client->conn->pid, client->count, user->objects);
		return -ENOMEM;
	}
	object->kind = kind;
	object->client = client;
	if (table_add(&client->table, object, &object->handle))
		return -ENOMEM;
	list_add_tail(&client->objects[kind], &object->node);
	client->count++;
	user->objects++;
	return 0;
}

void cm_object_leave(struct cm_object *object)
{
	table_remove(&object->client->table, object->handle);
	list_del(&object->node);
	object->client->count--;
	object->client->conn->user->objects--;
}

void *cm_object_find(const struct cm_client *client, enum cm_kind kind, uint32_t handle)
{
	struct cm_object *object = table_find(&client->table, handle);

	return object && object->kind == kind ? object : NULL;
}

/* ------------------------------------------------------------------ life */

static void cm_client_on_death(struct watch *watch, uint32_t events)
{
	(void)events;
	conn_close(container_of(watch, struct cm_client, death)->conn);
}

int cm_client_open(struct conn *conn)
{
	struct cm_client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	client->conn = conn;
	client->death = (struct watch){.fd = -1, .ready = cm_client_on_death};
	table_init(&client->table);
	for (int kind = 0; kind < CM_KINDS; kind++)
		list_init(&client->objects[kind]);
	conn->cm = client;
	return 0;
}

void cm_client_end(struct cm_client *client)
{
	int pidfd = client->death.fd;

	client->ended = true;
	loop_remove(&cm_server(client)->loop, &client->death);
	if (pidfd >= 0)
		close(pidfd);
	cm_ports_forget(client->node ? &client->node->ports : &cm_server(client)->cm->ports,
			client);
}

/* A step of freeing an identifier. Peers are told in batches. */
static void cm_id_free_some(struct cm_id *id)
{
	enum { BATCH = 32 };
	struct cm_service *service = cm_id_service(id);
	bool run = id->object.client->count % BATCH == 0;

	if (cm_mcast_leave_one(id))
		return;
	cm_id_free(id);
	if (run)
		cm_service_run(service);
}

bool cm_client_free_some(struct cm_client *client)
{
	struct list *ids = &client->objects[CM_KIND_ID];
	struct list *channels = &client->objects[CM_KIND_CHANNEL];

	if (!list_empty(ids))
		cm_id_free_some(container_of(ids->next, struct cm_id, object.node));
	else if (!list_empty(channels))
		cm_channel_free(container_of(channels->next, struct cm_channel, object.node));
	else
		return false;
	return true;
}

void cm_client_free(struct cm_client *client)
{
	table_fini(&client->table);
	if (client->node)
		cm_node_put(client->node);
	client->conn->cm = NULL;
	free(client);
}

void cm_client_network_changed(struct cm_client *client)
{
	list_for_each(node, &client->objects[CM_KIND_ID])
		cm_id_network_changed(container_of(node, struct cm_id, object.node));
}

/* The pidfd shows the process's end: a forked child may hold the connection open. */
static int cm_client_watch_death(struct cm_client *client)
{
	int fd = conn_pidfd(client->conn);

	if (fd == -ESRCH || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		return fd;
	if (fd < 0)
		return 0; /* the end shows when its sockets close */
	int err = loop_add(&cm_server(client)->loop, &client->death, fd, EPOLLIN);

	if (err)
		close(fd);
	return err;
}

/* ------------------------------------------------------------------ commands */

static int cm_client_take_node(struct cm_client *client, const struct proto_cm_hello *hello)
{
	char name[sizeof(hello->node)];

	if (client->node)
		return 0;
	memcpy(name, hello->node, sizeof(name));
	if (name[sizeof(name) - 1])
		return -EINVAL;
	return cm_node_get(cm_server(client)->cm, name, &client->node);
}

int cm_command_hello(struct cm_request *request, void *response)
{
	const struct proto_cm_hello *body = request->body;
	struct cm_client *client = request->client;
	struct server *server = cm_server(client);

	(void)response;
	if (body->abi != PROTO_ABI)
		return -EPROTONOSUPPORT;
	if (body->flags & ~(uint32_t)PROTO_CM_HELLO_NODE)
		return -EINVAL;
	if (body->cookie) {
		const struct process *process = process_by_cookie(server, body->cookie);

		if (!process || process->user != client->conn->user)
			return -ESTALE;
	}
	if (!client->said_hello) {
		int err = body->flags & PROTO_CM_HELLO_NODE ? cm_client_take_node(client, body) : 0;

		if (!err)
			err = cm_client_watch_death(client);
		if (err)
			return err;
		client->said_hello = true;
		client->conn->watch.stranger = false;
	}
	client->cookie = body->cookie;
	cm_service_open_udp(server->cm);
	return 0;
}

int cm_command_create_channel(struct cm_request *request, void *response)
{
	struct proto_cm_create_channel_resp *resp = response;
	struct cm_channel *channel;
	int err = cm_channel_make(request->client, &channel);

	if (err)
		return err;
	request->reply_fd = fcntl(channel->program_end, F_DUPFD_CLOEXEC, 0);
	if (request->reply_fd < 0) {
		cm_channel_free(channel);
		return -EMFILE;
	}
	resp->channel = channel->object.handle;
	return 0;
}

int cm_command_destroy_channel(struct cm_request *request, void *response)
{
	const struct proto_cm_channel *body = request->body;
	struct cm_channel *channel =
		cm_object_find(request->client, CM_KIND_CHANNEL, body->channel);

	(void)response;
	if (!channel || body->reserved)
		return -EINVAL;
	if (channel->ids)
		return -EBUSY;
	cm_channel_free(channel);
	return 0;
}

/* ------------------------------------------------------------------ requests */

enum { BODY_MAX = 512, RESPONSE_MAX = 512 };

#define BODY(name) .size = sizeof(struct name), .least = sizeof(struct name)
#define RESPONSE(name) .response_size = sizeof(struct name)
/* An older version of the structure may come, which ends before this member. */
#define BODY_SINCE(name, member) .size = sizeof(struct name), .least = offsetof(struct name, member)

static const struct {
	cm_command *run;
	uint16_t size, least; /* bytes of the request's structure */
	uint16_t response_size;
	bool more; /* bytes may follow the structure */
	bool postable;
} commands[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = {cm_command_create_id, BODY(rdma_ucm_create_id),
					RESPONSE(rdma_ucm_create_id_resp)},
	[RDMA_USER_CM_CMD_DESTROY_ID] = {cm_command_destroy_id, BODY(rdma_ucm_destroy_id),
					 RESPONSE(rdma_ucm_destroy_id_resp)},
	[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = {cm_command_resolve_route, BODY(rdma_ucm_resolve_route)},
	[RDMA_USER_CM_CMD_CONNECT] = {cm_command_connect, BODY_SINCE(rdma_ucm_connect, ece)},
	[RDMA_USER_CM_CMD_LISTEN] = {cm_command_listen, BODY(rdma_ucm_listen)},
	[RDMA_USER_CM_CMD_ACCEPT] = {cm_command_accept, BODY_SINCE(rdma_ucm_accept, ece)},
	[RDMA_USER_CM_CMD_REJECT] = {cm_command_reject, BODY(rdma_ucm_reject)},
	[RDMA_USER_CM_CMD_DISCONNECT] = {cm_command_disconnect, BODY(rdma_ucm_disconnect),
					 .postable = true},
	[RDMA_USER_CM_CMD_INIT_QP_ATTR] = {cm_command_init_qp_attr, BODY(rdma_ucm_init_qp_attr),
					   RESPONSE(ib_uverbs_qp_attr)},
	[RDMA_USER_CM_CMD_SET_OPTION] = {cm_command_set_option, BODY(rdma_ucm_set_option),
					 .more = true},
	[RDMA_USER_CM_CMD_NOTIFY] = {cm_command_notify, BODY(rdma_ucm_notify)},
	[RDMA_USER_CM_CMD_MIGRATE_ID] = {cm_command_migrate_id, BODY(rdma_ucm_migrate_id),
					 RESPONSE(rdma_ucm_migrate_resp)},
	[RDMA_USER_CM_CMD_QUERY] = {cm_command_query, BODY(rdma_ucm_query)},
	[RDMA_USER_CM_CMD_BIND] = {cm_command_bind, BODY(rdma_ucm_bind)},
	[RDMA_USER_CM_CMD_RESOLVE_ADDR] = {cm_command_resolve_addr, BODY(rdma_ucm_resolve_addr)},
	[RDMA_USER_CM_CMD_JOIN_MCAST] = {cm_command_join_mcast, BODY(rdma_ucm_join_mcast),
					 RESPONSE(rdma_ucm_create_id_resp)},
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = {cm_command_leave_mcast, BODY(rdma_ucm_destroy_id),
					  RESPONSE(rdma_ucm_destroy_id_resp)},
	[PROTO_CM_HELLO] = {cm_command_hello, BODY_SINCE(proto_cm_hello, node)},
	[PROTO_CM_CREATE_CHANNEL] = {cm_command_create_channel,
				     RESPONSE(proto_cm_create_channel_resp)},
	[PROTO_CM_DESTROY_CHANNEL] = {cm_command_destroy_channel, BODY(proto_cm_channel)},
	[PROTO_CM_WRITE_EVENT] = {cm_command_write_event, BODY(proto_cm_write_event)},
};

_Static_assert(sizeof(struct rdma_ucm_accept) <= BODY_MAX &&
		       sizeof(struct rdma_ucm_resolve_addr) <= BODY_MAX,
	       "the largest requests fit");
_Static_assert(sizeof(struct rdma_ucm_query_addr_resp) <= RESPONSE_MAX,
	       "the largest response fits");

/* Parses the packet; copies the command's structure to `body`, which is zeroed. */
static int cm_request_parse(struct cm_request *r, uint32_t *number, const uint8_t *packet,
			    size_t size, uint8_t *body)
{
	struct rdma_ucm_cmd_hdr header;

	if (size < sizeof(header))
		return -EINVAL;
	memcpy(&header, packet, sizeof(header));
	size -= sizeof(header);
	bool posted = header.cmd & PROTO_POSTED;

	header.cmd &= ~PROTO_POSTED;
	if (header.in != size || size > PROTO_CM_MAX_MESSAGE)
		return -EINVAL;
	if (header.cmd >= sizeof(commands) / sizeof(commands[0]) || !commands[header.cmd].run)
		return -EOPNOTSUPP;
	if (posted && !commands[header.cmd].postable)
		return -EINVAL;
	r->posted = posted;
	if (!r->client->said_hello && header.cmd != PROTO_CM_HELLO)
		return -EINVAL;
	size_t whole = commands[header.cmd].size;

	if (size < commands[header.cmd].least || (size > whole && !commands[header.cmd].more))
		return -EINVAL;
	if (header.out < commands[header.cmd].response_size)
		return -ENOSPC;
	memcpy(body, packet + sizeof(header), size < whole ? size : whole);
	r->body = body;
	r->extra = packet + sizeof(header) + whole;
	r->extra_size = size > whole ? size - whole : 0;
	r->room = header.out;
	r->response_size = commands[header.cmd].response_size;
	*number = header.cmd;
	return 0;
}

static void cm_reply_fill(struct reply *reply, const struct cm_request *r)
{
	reply->size = sizeof(struct proto_reply) + r->response_size;
	if (r->reply_fd >= 0)
		reply->fds[reply->fd_count++] = r->reply_fd;
}

bool cm_dispatch(struct conn *conn, const void *packet, size_t size, int *fds, struct reply *reply)
{
	_Alignas(8) uint8_t body[BODY_MAX] = {0};
	struct cm_request request = {.client = conn->cm, .reply_fd = -1};
	bool later = false;
	uint32_t number;
	int err = fds[0] >= 0 ? -EINVAL : cm_request_parse(&request, &number, packet, size, body);

	if (err) {
		complain(conn->user, "process %d sent a request of %zu bytes that isn't right: %s",
			 conn->pid, size, strerror(-err));
	} else {
		memset(reply->data + sizeof(struct proto_reply), 0, RESPONSE_MAX);
		conn->waits &= conn->postponed != NULL;
		err = commands[number].run(&request, reply->data + sizeof(struct proto_reply));
		later = err == -EAGAIN && conn->waits;
		cm_service_run(conn->server->cm);
	}
	reply_error(reply, err);
	if (request.posted)
		reply->size = 0;
	else if (!err)
		cm_reply_fill(reply, &request);
	return !later;
}
