/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving from clients. See receive.h. No state. */
#include "daemon/core/receive.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static ssize_t socket_peek(int socket, struct msghdr *m)
{
	ssize_t n;

	do
		n = recvmsg(socket, m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void received_take(struct received *received, struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	memset(received->fds, -1, sizeof(received->fds));
	received->count = 0;
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return;
	received->count = (unsigned int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(received->fds, CMSG_DATA(c), received->count * sizeof(int));
}

ssize_t receive_packet(int socket, void *data, size_t size, bool may_have_fds,
		       struct received *received)
{
	union {
		char bytes[CMSG_SPACE(RECEIVE_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = may_have_fds ? control.bytes : NULL,
			   .msg_controllen = may_have_fds ? sizeof(control.bytes) : 0};
	ssize_t n = socket_peek(socket, &m);

	if (n < 0)
		m.msg_controllen = 0;
	received_take(received, &m);
	if (n <= 0)
		return n;
	if (m.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	/* Takes the packet off: its descriptors' other references are in `received`. */
	if (recv(socket, NULL, 0, MSG_DONTWAIT) < 0)
		return -errno;
	return m.msg_flags & MSG_TRUNC ? -EMSGSIZE : n;
}

ssize_t receive_stream(int socket, void *data, size_t size)
{
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = socket_peek(socket, &m);

	if (n <= 0)
		return n;
	if (m.msg_flags & MSG_CTRUNC)
		return -EINVAL;
	/* No more than what was seen: later bytes may have descriptors. */
	n = recv(socket, data, (size_t)n, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}
