/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets with descriptors on a SOCK_SEQPACKET socket, and one request with its reply. */
#ifndef VERBENA_CLIENT_CALL_H
#define VERBENA_CLIENT_CALL_H

#include <stdint.h>
#include <sys/types.h>

struct msghdr;

/* Puts `count` descriptors beside the message. `control`: zeroed, aligned, CMSG_SPACE of them. */
void packet_attach(struct msghdr *message, void *control, const int *fds, unsigned int count);

/* Sends one packet with `count` descriptors. 0 or -errno (-EAGAIN on a non-blocking socket). */
int packet_send(int socket, const void *data, size_t size, const int *fds, unsigned int count,
		int flags);

/*
 * Receives one packet; `fds` has PROTO_MAX_FDS places, -1 where none came (close-on-exec). Returns
 * its size; 0 at the end; -EMSGSIZE when it didn't fit, -EMFILE when the descriptors didn't (none
 * is left open; what fits of the data is there); -errno.
 */
ssize_t packet_receive(int socket, void *data, size_t size, int *fds, int flags);

/*
 * One request (header and command in `request`) and its reply. `reply_size` bytes of response must
 * come. Returns the reply's result (0 or negative errno), -EIO when the daemon hung up or answers
 * nonsense, -EMFILE when there is no room for the reply's descriptors. The caller holds the
 * connection's lock.
 */
int socket_call(int socket, const void *request, size_t size, const int *fds, unsigned int fd_count,
		void *reply, size_t reply_size, int *reply_fds);

#endif
