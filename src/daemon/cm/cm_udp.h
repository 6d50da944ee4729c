/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CM messages to and from other hosts: UD packets from QP 1 to QP 1 (IBTA volume 1, 13.5; annex
 * A17). They arrive on slot 0's socket of the RoCEv2 port, which belongs to struct wire, and leave
 * by separate sockets. Messages within this host count as QP 1's packets, too, for captures.
 */
#ifndef VERBENA_DAEMON_CM_CM_UDP_H
#define VERBENA_DAEMON_CM_CM_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"
#include "daemon/cm/cm_capture.h"
#include "daemon/core/loop.h"
#include "net/receiver.h"
#include "net/sender.h"

struct cm_service;
struct server;

struct cm_udp {
	struct cm_service *service; /* NULL: not open */
	struct watch watch;
	struct net_sender sender;
	struct net_receiver receiver;
	struct cm_capture capture;
	uint32_t psn;
	struct {
		uint64_t taken, not_mads, bad_key, forged, unsent;
	} counters;
};

void cm_udp_init(struct cm_udp *wire, struct server *server);
/* `socket`: slot 0's, stays the caller's. Does nothing if it is open. */
void cm_udp_open(struct cm_udp *wire, struct cm_service *service, int socket);
void cm_udp_close(struct cm_udp *wire);

/* Sends a message. One that can't be sent is lost, as any packet may be. */
void cm_udp_send(struct cm_udp *wire, const struct cm_path *path, const uint8_t mad[MAD_SIZE]);
/* Shows a message that stays within this host to captures. `path`: as seen by its sender. */
void cm_udp_show_local(struct cm_udp *wire, const struct cm_path *path,
		       const uint8_t mad[MAD_SIZE]);

#endif
