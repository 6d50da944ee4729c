/* SPDX-License-Identifier: BSD-2-Clause */
/* One UDP socket of the RoCEv2 port: making it, its filter, undoing what a process did to it. See
 * udp_slots.h. */
#ifndef VERBENA_DAEMON_NET_SLOT_SOCKET_H
#define VERBENA_DAEMON_NET_SLOT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h" /* WIRE_PORT */

/* Makes a socket of AF_INET6 (for both protocols) or AF_INET, with its options, not bound. Returns
 * a descriptor or -errno. */
int slot_socket_make(bool ipv6);
/* Binds the socket. `shared`: to the port to which others of the group are bound; else the port
 * must be free. Returns 0; -EADDRINUSE; -errno. */
int slot_socket_bind(int fd, bool ipv6, bool shared);
int slot_socket_share(int fd, bool on); /* whether other sockets may be bound to its port */

/*
 * Makes a socket that makes the port look taken to any program that wants to bind it, also with
 * SO_REUSEPORT; it gets no packets. Works while it is open. Returns a descriptor or -errno.
 *
 * The kernel asks only the first socket that it finds whether others may be bound, and the first is
 * the newest of AF_INET. The guard is bound to an interface that doesn't exist, so no packet
 * matches it.
 */
int slot_socket_guard(void);

/* Attaches the program that selects the socket of a packet's slot in the group of `fd`. Returns 0
 * or -errno. */
int slot_socket_steer(int fd);
/* Attaches a filter that passes only packets for QPNs of this slot, and for groups; of those that
 * this host has sent itself only slot_socket_probe()'s, unless `loops`. Returns 0; -EPERM: the
 * filter is locked; -errno. */
int slot_socket_filter(int fd, uint32_t slot, bool loops);
int slot_socket_lock(int fd); /* locks its filter for good */

/* Takes the socket out of the group: it gets no packets any more, in any process that has it. The
 * last socket of the group takes its place. */
void slot_socket_retire(int fd);
bool slot_socket_is_retired(int fd); /* whether slot_socket_retire() was called for it */

/* Sets the size of the receive buffer: large while a process has the socket, minimal otherwise. */
void slot_socket_room(int fd, bool much);
/* Discards the packets in its buffer. */
void slot_socket_drain(int fd);
/* Sets all options again as slot_socket_make() did. */
void slot_socket_reset(int fd);

/*
 * Tests whether a packet for the slot gets from the loopback interface into its socket `fd`.
 * `from`: a socket to send with. Returns 0; -ENOENT: it hasn't arrived within `patience_ms`;
 * -EAGAIN: not known, because loopback doesn't take it.
 */
int slot_socket_probe(int from, int fd, uint32_t slot, unsigned int patience_ms);

/* Whether a descriptor from a process is a UDP socket of this network namespace. */
bool slot_socket_is_udp(int fd, bool *ipv6);
/* The port that it is bound to, 0: none; *anywhere: at any address. */
uint16_t slot_socket_port(int fd, bool ipv6, bool *anywhere);
/* Whether it is such a socket. */
bool slot_socket_is_one(int fd, bool *ipv6);

/* Writes which program or user has the port, as the end of a sentence: "user 1000". */
void slot_socket_owner(char *text, size_t size);

#endif
