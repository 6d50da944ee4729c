/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets with descriptors on a SOCK_SEQPACKET socket, and one request with its reply. */
#ifndef VERBENA_CLIENT_CALL_H
#define VERBENA_CLIENT_CALL_H

#include <stdint.h>
#include <sys/types.h>

struct msghdr;

/* Adds `count` descriptors to the message. `control`: zeroed, aligned, CMSG_SPACE(count *
 * sizeof(int)) bytes. */
void packet_attach(struct msghdr *message, void *control, const int *fds, unsigned int count);

/* Sends one packet with `count` descriptors. Returns 0 or -errno: -EAGAIN on a non-blocking socket;
 * -ETOOMANYREFS: the user has too many descriptors in messages, for 2 s at least by now (at this
 * moment, with MSG_DONTWAIT). */
int packet_send(int socket, const void *data, size_t size, const int *fds, unsigned int count,
		int flags);

/*
 * Receives one packet. `fds` has PROTO_MAX_FDS places: the packet's descriptors (close-on-exec),
 * then -1. Returns the packet's size; 0 at the end; -EMSGSIZE: it didn't fit; -EMFILE: the
 * descriptors didn't (none is left open; the data is there as far as it fits); -errno.
 */
ssize_t packet_receive(int socket, void *data, size_t size, int *fds, int flags);

/*
 * Sends one request (header and command in `request`) and receives its reply, which must have
 * `reply_size` bytes of response. Returns the reply's result (0 or negative errno); -EIO: the
 * daemon hung up, or the reply is invalid; -EMFILE: no room for the reply's descriptors. The caller
 * holds the connection's lock.
 */
int socket_call(int socket, const void *request, size_t size, const int *fds, unsigned int fd_count,
		void *reply, size_t reply_size, int *reply_fds);

#endif
