/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process remembers of an open port, so that the port can go on when the fabric has ended
 * and another one has taken its place: which port it is, its agents, and the requests that wait for
 * a response. These the program gets back, as if their time had passed, when the fabric ends.
 *
 * By descriptor. Any thread; a lock for each port.
 */
#ifndef VERBENA_UMAD_MEMORY_H
#define VERBENA_UMAD_MEMORY_H

#include <infiniband/umad.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/fabric.h"

enum { MEMORY_PORTS = 4096 }; /* descriptors below it can be ports */

/* 0 or -ENOMEM. What a port that the program ended by close() has left is replaced. */
int memory_open(int fd, int number);
void memory_close(int fd);

/* The number of the port; -1: there is none with this descriptor. */
int memory_number(int fd);

/* An agent was registered by this request; NULL: it has ended. */
void memory_agent(int fd, uint32_t id, const struct proto_fabric_register *request);
/* The request of an agent; false: there is no such agent. */
bool memory_agent_get(int fd, uint32_t id, struct proto_fabric_register *request);

/* A packet (struct ib_user_mad and datagram) was sent. */
void memory_sent(int fd, const void *packet, size_t bytes);
/* The packet couldn't be sent. */
void memory_unsent(int fd, const void *packet);
/* A packet has come: the request that it answers waits no longer. */
void memory_came(int fd, const void *packet, size_t bytes);
/* Writes a request that still waits, with the status that its time has passed; it is forgotten.
 * Returns its length; 0: there is none. */
ssize_t memory_unanswered(int fd, void *packet, size_t bytes);

#endif
