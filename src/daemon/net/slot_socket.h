/* SPDX-License-Identifier: BSD-2-Clause */
/* One UDP socket of the RoCEv2 port: making it, its filter, what a process did to it. See wire.h.
 */
#ifndef VERBENA_DAEMON_NET_SLOT_SOCKET_H
#define VERBENA_DAEMON_NET_SLOT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h" /* WIRE_PORT */

/* Of AF_INET6 (for both protocols) or AF_INET, with its options, not bound. A descriptor or -errno.
 */
int slot_socket_make(bool ipv6);
/* Binds it. `shared`: to the port that others of the group are bound to already; else it must be
 * free. 0; -EADDRINUSE; -errno. */
int slot_socket_bind(int fd, bool ipv6, bool shared);
int slot_socket_share(int fd, bool on); /* whether others may be bound beside it */

/*
 * A socket that makes the port look taken to whoever wants to be bound to it, also with
 * SO_REUSEPORT; it gets no packets. Only while it is open. A descriptor or -errno.
 *
 * The kernel asks only the first socket that it finds whether others may be bound, and the first
 * is the newest of AF_INET; bound to an interface that doesn't exist, none of its packets are its.
 */
int slot_socket_guard(void);

/* The program that finds the place of a packet's slot in the group of `fd`. 0 or -errno. */
int slot_socket_steer(int fd);
/* Only packets for QPNs of this slot, and for groups, get in. 0; -EPERM it is locked; -errno. */
int slot_socket_filter(int fd, uint32_t slot);
int slot_socket_lock(int fd); /* its filter stays as it is, for good */

/* Leaves the group, and gets no packets any more, whoever still has it. The last of the group takes
 * its place. */
void slot_socket_retire(int fd);

/* How many bytes may wait in it: many while a process has it, next to none while nobody does. */
void slot_socket_room(int fd, bool much);
/* Throws away what waits in it. */
void slot_socket_drain(int fd);
/* All options as they were when it was made. */
void slot_socket_reset(int fd);

/*
 * Whether a packet for the slot gets from the loopback interface into its socket `fd`: 0; -ENOENT
 * it doesn't; -EAGAIN it can't be said, loopback doesn't take it. `from`: a socket to send with.
 */
int slot_socket_probe(int from, int fd, uint32_t slot);

/* A descriptor that somebody gave: whether it is such a socket, of this network namespace. */
bool slot_socket_is_one(int fd, bool *ipv6);

/* Says who holds the port, as the end of a sentence: "user 1000". */
void slot_socket_owner(char *text, size_t size);

#endif
