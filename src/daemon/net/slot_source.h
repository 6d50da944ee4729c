/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The source port of a slot's packets to its own host.
 *
 * Every program of a host can send UDP packets from the host's addresses, but only from a port that
 * no other user's socket has. So a process that sends to its own host by UDP (VERBENA_CARRIER=wire)
 * binds a socket to a port at any address, and names it to the daemon (PROTO_SOURCE). The daemon
 * keeps a copy, so the port stays taken for as long as processes believe it to be the slot's.
 * Further sockets of the process's own user may be bound to the port (SO_REUSEPORT): the process
 * sends by one for each source address. Another program of that user could bind such a socket, too,
 * but it could as well write into the process's memory.
 */
#ifndef VERBENA_DAEMON_NET_SLOT_SOURCE_H
#define VERBENA_DAEMON_NET_SLOT_SOURCE_H

/*
 * The port of a socket that a process names. -EINVAL: it isn't a UDP socket of this network
 * namespace, not bound to any address (of IPv6 and IPv4 both, if the host has IPv6), or bound to an
 * interface.
 */
int slot_source_port(int fd);

#endif
