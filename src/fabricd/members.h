/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes whose verbs devices are a node's (proto/fabric.h: JOIN). Their data doesn't come
 * through this process. What they have sent is read from the memory in which they count it
 * (proto/flows.h), before anything shows counters; and they get the events of their node's ports.
 */
#ifndef VERBENA_FABRICD_MEMBERS_H
#define VERBENA_FABRICD_MEMBERS_H

#include "fabricd/server.h"

struct member;
struct proto_fabric_violation;

/*
 * A process joins the node with this row; its events go to the socket. `flows`: the descriptor of
 * its memory, which stays the caller's; -1: it has none. NULL: the memory isn't as proto/flows.h
 * says, or there is no room for it.
 */
struct member *member_join(struct server *server, uint32_t node, int socket, int flows);
/* Takes what it has counted last, and frees it. */
void member_leave(struct server *server, struct member *member);

/* Adds what the processes have sent since the last time to the counters of the ports. Not more
 * often than so that it takes a small part of this process's time. */
void members_fold(struct server *server);

/* A packet of data was dropped at a port for one of its keys. 0, or -EPROTO: there is no such port.
 */
int member_violates(struct server *server, const struct proto_fabric_violation *violation);

/* Data of a process went in by a port that was Armed. 0, or -EPROTO: there is no such port. */
int member_sends(struct server *server, uint32_t port);

/* An event of an end port. */
void members_tell(struct server *server, uint32_t port, enum fabric_event event);

#endif
