/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection to the `rdma_cm` node: its requests, its handles. It ends when the connection
 * (conn.h) or the client's process does, whichever is first, and is freed bit by bit (ending.h).
 */
#ifndef VERBENA_DAEMON_CM_CM_CLIENT_H
#define VERBENA_DAEMON_CM_CM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/cm/cm_object.h"
#include "daemon/core/loop.h"
#include "daemon/core/table.h"
#include "proto/cm.h"

struct cm_node;
struct conn;
struct reply;
struct server;

struct cm_client {
	struct conn *conn;
	bool said_hello; /* the first request was PROTO_CM_HELLO; never cleared */
	uint64_t cookie; /* its process's; 0: it has opened no device yet */
	struct table table;
	struct list objects[CM_KINDS];
	uint32_t count;
	bool ended;	      /* its identifiers have no ports and get no events; never cleared */
	struct watch death;   /* pidfd */
	struct cm_node *node; /* of a fabric; NULL: it is on the host */
};

/* A request while its command runs. */
struct cm_request {
	struct cm_client *client;
	const void *body;  /* the command's structure, aligned; zero where the packet was shorter */
	const void *extra; /* the bytes that follow the structure */
	size_t extra_size;
	size_t room;	      /* bytes of response for which the client has room */
	size_t response_size; /* set from the table of commands; a command may change it */
	int reply_fd;	      /* to be sent and closed; -1: none */
	bool posted;	      /* the client expects no answer */
};

typedef int cm_command(struct cm_request *request, void *response);

/* cm_client.c */
cm_command cm_command_hello, cm_command_create_channel, cm_command_destroy_channel;
/* cm_id.c */
cm_command cm_command_create_id, cm_command_destroy_id, cm_command_migrate_id;
cm_command cm_command_write_event;
/* cm_resolve.c */
cm_command cm_command_bind, cm_command_resolve_addr, cm_command_resolve_route;
/* cm_query.c */
cm_command cm_command_query, cm_command_init_qp_attr, cm_command_set_option;
/* cm_mcast.c */
cm_command cm_command_join_mcast, cm_command_leave_mcast;
/* cm_connect.c */
cm_command cm_command_connect, cm_command_listen, cm_command_accept, cm_command_reject;
cm_command cm_command_disconnect, cm_command_notify;

/* Makes the client of a connection. Returns 0; -ENOMEM. */
int cm_client_open(struct conn *conn);
/* The three parts of its end, as context_end(), context_free_some() and context_free(). */
void cm_client_end(struct cm_client *client);
bool cm_client_free_some(struct cm_client *client);
void cm_client_free(struct cm_client *client);
/* The devices were refreshed: checks each of the client's identifiers. */
void cm_client_network_changed(struct cm_client *client);

/* Answers one packet, as conn_dispatch() does. */
bool cm_dispatch(struct conn *conn, const void *packet, size_t size, int *fds, struct reply *reply);

struct server *cm_server(const struct cm_client *client);
/* The slot of the client's process; 0: unknown. */
uint32_t cm_client_slot(const struct cm_client *client);

#endif
