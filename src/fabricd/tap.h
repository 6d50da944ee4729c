/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures: what crosses a port's cable, as pcapng on a stream of which a control client gets the
 * other end with its answer. A client that doesn't read makes nobody wait: what finds no room is
 * lost to it, and the block that follows says how much (epb_dropcount).
 */
#ifndef VERBENA_FABRICD_TAP_H
#define VERBENA_FABRICD_TAP_H

#include "fabricd/server.h"

#define TAPS_AT_ONCE 8u

bool taps_have_room(const struct server *server);
/* Begins a capture. Returns the end of its stream that the client gets, or -1. */
int tap_begin(struct server *server, uint32_t port);
void taps_close(struct server *server);
/* The fabric's function `tap`. */
void taps_note(void *context, const struct fabric_datagram *datagram, uint32_t egress,
	       uint32_t ingress, uint8_t vl);

#endif
