/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiving a client's packet without closing any of its descriptors (closer.h says why).
 *
 * recvmsg() closes the descriptors for which there is no room, in the message or in the process. So
 * the packet is first peeked at, with room for as many descriptors as a packet can have: the socket
 * keeps references of its own meanwhile. The packet leaves the socket when all of its descriptors
 * are in the caller's hands.
 */
#ifndef VERBENA_DAEMON_CORE_RECEIVE_H
#define VERBENA_DAEMON_CORE_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The kernel's limit, SCM_MAX_FD. */
enum { RECEIVE_MAX_FDS = 253 };

struct received {
	unsigned int count;
	int fds[RECEIVE_MAX_FDS]; /* then -1; the caller hands them to closer_close() */
};

/*
 * Receives one packet, without waiting. `may_have_fds`: false takes no descriptors. Returns the
 * packet's size; 0 at the end, or at an empty packet, which no client of the protocol sends;
 * -EMSGSIZE: it had more than `size` bytes; -EMFILE: it has descriptors that can't be taken; it
 * stays in the socket, so that nothing more can be received; -EAGAIN; -errno. In each case
 * `received` has the descriptors that were taken.
 */
ssize_t receive_packet(int socket, void *data, size_t size, bool may_have_fds,
		       struct received *received);

/* Receives from a stream on which no descriptors may come, without waiting. Returns as recv(), or
 * -EINVAL: descriptors came; they stay in the socket. */
ssize_t receive_stream(int socket, void *data, size_t size);

#endif
