/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's connection manager: what stands between the programs' identifiers (cm_id.h), the
 * state machine (cm/cm.h), and other hosts (cm_udp.h).
 *
 * Messages between two identifiers of this daemon don't leave it: they wait in a queue until the
 * command that caused them is done, and are then received by the same state machine.
 *
 * A program may listen, take one connection, and listen anew, while its peer connects again at once
 * (perftest does); over a network the request would take longer than that. So a request waits a
 * little for the next listener, if its sender was heard by the last one on that port a moment ago,
 * and that one's program goes on. All others for whom nobody listens are refused at once.
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
	struct timer timer;
	struct list at_home; /* messages to this host's own */
	struct list held;    /* requests that wait for a listener; the oldest first */
	uint32_t held_count;
	bool force_wire; /* for tests: nothing is at home */
	bool running;
	uint64_t lost;	       /* messages for which there was no memory */
	uint64_t nobody;       /* requests for a port on which nobody listens */
	uint64_t backlog_full; /* requests that a listener had no place for */
};

/* Sets server->cm. 0 or -ENOMEM. */
int cm_service_open(struct server *server);
/* All clients are gone. */
void cm_service_close(struct server *server);

/* After anything that may have caused messages: delivers those for this host, sets the timer. */
void cm_service_run(struct cm_service *service);

/* A message from another host. */
void cm_service_take(struct cm_service *service, const struct cm_path *path,
		     const uint8_t mad[MAD_SIZE]);

/* The devices are refreshed. Before there is a connection manager: nothing. */
void cm_service_network_changed(struct server *server);

/* Takes part in the wire if it can be opened, or is open. */
void cm_service_open_udp(struct cm_service *service);

/* Who sent this REQ or SIDR_REQ, seen from where it came. */
struct cm_asker cm_service_asker(const struct cm_path *path, const struct cm_mad *mad);

/* cm_connect.c: what the state machine says. */
extern const struct cm_ops cm_service_ops;
void cm_service_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_SIZE]);

#endif
