/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's connection manager, which connects the programs' identifiers (cm_id.h), the state
 * machine (cm/cm.h), and other hosts (cm_udp.h).
 *
 * Messages between two identifiers of this daemon don't leave it: they wait in a queue until the
 * command that caused them is done, and are then received by the same state machine.
 *
 * A request for a port without a listener is refused at once, with one exception. A program may
 * listen, take one connection, and listen anew, while its peer connects again at once (perftest
 * does); over a network the second request would arrive later than that. So a request is held for a
 * moment if the last listener on that port got a request from the same sender a moment ago, and the
 * listener's program goes on.
 */
#ifndef VERBENA_DAEMON_CM_CM_SERVICE_H
#define VERBENA_DAEMON_CM_CM_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/cm.h"
#include "daemon/cm/cm_ports.h"
#include "daemon/cm/cm_udp.h"
#include "daemon/core/loop.h"
#include "daemon/net/neighbour.h"

struct server;

struct cm_service {
	struct server *server;
	struct cm cm;
	struct cm_ports ports;
	struct cm_udp wire;
	struct neighbours neighbours;
	struct list nodes; /* struct cm_node: of fabrics (cm_node.h) */
	uint32_t last_node;
	struct timer timer;
	struct list alternates; /* struct cm_alternate.node (cm_alternate.h) */
	struct list at_home;	/* messages to endpoints of this daemon */
	struct list held;	/* requests that wait for a listener; the oldest first */
	uint32_t held_count;
	bool force_wire;       /* for tests: local messages go through the wire, too */
	bool running;	       /* within cm_service_run(), which isn't entered again */
	uint64_t lost;	       /* messages for which there was no memory */
	uint64_t no_listener;  /* requests for a port without a listener */
	uint64_t backlog_full; /* requests beyond a listener's backlog */
};

/* Sets server->cm. Returns 0 or -ENOMEM. */
int cm_service_open(struct server *server);
/* All clients must be gone. */
void cm_service_close(struct server *server);

/* To be called after anything that may have caused messages: delivers those for this host, sets the
 * timer. */
void cm_service_run(struct cm_service *service);

/* For how many ms peers on other hosts still need the connection manager of a daemon without
 * clients (cm_needed_until()); 0: they don't. */
uint64_t cm_service_needed_ms(const struct cm_service *service);

/* Handles a message from another host. */
void cm_service_take(struct cm_service *service, const struct cm_path *path,
		     const uint8_t mad[MAD_SIZE]);

/* The devices were refreshed: checks all identifiers. Does nothing before there is a connection
 * manager. */
void cm_service_network_changed(struct server *server);

/* Opens the UDP socket for other hosts, if the wire is open or can be opened. */
void cm_service_open_udp(struct cm_service *service);

/* The sender of this REQ or SIDR_REQ; `path`: as seen by the receiver. */
struct cm_asker cm_service_asker(const struct cm_path *path, const struct cm_mad *mad);

/* cm_connect.c: the callbacks of the state machine. */
extern const struct cm_ops cm_service_ops;
/* Queues a message for this host, or sends it to another one. `arg`: the struct cm_service. */
void cm_service_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_SIZE]);

#endif
