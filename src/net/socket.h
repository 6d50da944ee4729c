/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A UDP socket that bursts are sent by (sender.h). It isn't connected, so a send names the
 * destination, and may have to name more in control messages. Each of these takes the kernel 50 to
 * 100 ns, so the socket has as defaults what its sends have in common:
 *
 *   the source address   of the path for which it was opened: the socket is bound to it
 *   the hop limit        likewise
 *   the segment          the size of the packets that a burst is cut into: once NET_SOCKET_ALIKE
 *                        sends in a row have named the same one, or none where the socket's would
 *                        be wrong. Two programs that answer each other send bursts of two short
 *                        packets, always of the same sizes
 *
 * Not thread-safe: one caller at a time (sender.h).
 */
#ifndef VERBENA_NET_SOCKET_H
#define VERBENA_NET_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "net/path.h"

enum { NET_SOCKET_ALIKE = 64 };

struct net_socket {
	int fd; /* -1: not open */
	uint16_t port;
	uint8_t hop_limit;  /* its default; 0: the host's */
	uint8_t source[16]; /* the address that it is bound to; zeros: to none */
	uint16_t segment;   /* its default; 0: a send isn't cut */
	uint16_t named;	    /* what the last sends had to name instead, ... */
	uint8_t alike;	    /* ... so many in a row */
	bool no_segment;    /* a device can't cut: it has no default any more */
	bool ipv4;
};

enum net_socket_flag {
	NET_SOCKET_ECHO = 1,   /* packets to groups are looped back to this host */
	NET_SOCKET_SHARED = 2, /* `port`, which other sockets of this user have, and no other */
};

/* Opens a socket for the path's addresses and hop limit: bound to `port`, or to any port if that
 * is taken. 0 or -errno. */
int net_socket_open(struct net_socket *s, const struct net_path *path, uint16_t port,
		    unsigned int flags);
void net_socket_close(struct net_socket *s);

/* Sends `size` bytes at `at` in one call, cut into segments of `segment` bytes unless that is 0.
 * Returns 0 or an errno; EAGAIN: the socket is full. */
int net_socket_send(struct net_socket *s, const struct net_path *path, uint8_t *at, uint32_t size,
		    uint32_t segment);

/* Whether the errno of a send may mean that the path's device can't cut. */
bool net_socket_cannot_cut(int err);

#endif
