/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager's messages in captures. Those that are exchanged with other hosts are seen
 * as the sender sends them and the receiver receives them (net/tap.h). A message within this host
 * is no packet; it is shown once, as the packet that its sender would have sent from QP 1.
 */
#ifndef VERBENA_DAEMON_CM_CM_CAPTURE_H
#define VERBENA_DAEMON_CM_CM_CAPTURE_H

#include "net/tap.h"
#include "wire/packet.h"

struct server;

struct cm_capture {
	struct net_tap net; /* for the sender and the receiver */
	struct server *server;
};

void cm_capture_init(struct cm_capture *capture, struct server *server);

/* Shows a message to an endpoint of this daemon. `packet`: its headers; `path`: as seen by the
 * sender. */
void cm_capture_show(const struct cm_capture *capture, const struct packet *packet,
		     const uint8_t source[16], const uint8_t destination[16], uint8_t traffic_class,
		     const void *payload);

#endif
