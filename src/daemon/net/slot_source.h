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
 *
 * A port outlives its process by SOURCE_KEPT_MS: the last packets of the process, an
 * acknowledgement among them, may still wait at a peer that hasn't got the processor yet. Meanwhile
 * the copy is kept here, and the port stays published unless another process gets the slot; so no
 * other user can have the port while packets from it are believed.
 */
#ifndef VERBENA_DAEMON_NET_SLOT_SOURCE_H
#define VERBENA_DAEMON_NET_SLOT_SOURCE_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/core/loop.h"

struct server;

/* Ended processes whose ports are kept at once: with one more, the oldest port is given up. */
enum { SOURCES_KEPT = 64 };

/* What is kept of ended processes, the oldest first. By the loop's thread. */
struct slot_sources {
	struct timer timer; /* runs while there are any */
	uint32_t first, count;
	struct kept_source {
		int fd;
		uid_t uid;
		uint32_t slot;
		uint16_t port;
		uint64_t until_ms;
	} kept[SOURCES_KEPT];
};

void slot_sources_init(struct server *server);
/* Gives up all ports. */
void slot_sources_close(struct server *server);
/* The process at the slot, of user `uid`, has ended; `fd`, its socket, belongs to this module from
 * now on. */
void slot_source_keep(struct server *server, uint32_t slot, uid_t uid, int fd);

/*
 * The port of a socket that a process names. -EINVAL: it isn't a UDP socket of this network
 * namespace, not bound to any address (of IPv6 and IPv4 both, if the host has IPv6), or bound to an
 * interface.
 */
int slot_source_port(int fd);

#endif
