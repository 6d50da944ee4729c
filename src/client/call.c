/* SPDX-License-Identifier: BSD-2-Clause */
/* See call.h. No state. */
#include "client/call.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/blocking.h"
#include "base/sys.h"
#include "proto/proto.h"

enum { ERRNO_MAX = 4095, IN_MESSAGES_NS = 1000000, IN_MESSAGES_TRIES = 2000 };

void packet_attach(struct msghdr *message, void *control, const int *fds, unsigned int count)
{
	message->msg_control = control;
	message->msg_controllen = CMSG_SPACE(count * sizeof(int));
	struct cmsghdr *c = CMSG_FIRSTHDR(message);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, count * sizeof(int));
}

/*
 * The kernel counts the descriptors in messages that haven't been received yet for their user, over
 * all processes, and a process may send none while they are more than its own RLIMIT_NOFILE (unless
 * it is privileged). Receivers take them soon, and no event tells of it: so the message is sent
 * again and again, for 2 s at least.
 */
static ssize_t send_later(int socket, const struct msghdr *m, int flags)
{
	const struct timespec nap = {0, IN_MESSAGES_NS};
	ssize_t n = -1;

	for (unsigned int i = 0; n < 0 && errno == ETOOMANYREFS && i < IN_MESSAGES_TRIES; i++) {
		sys_nanosleep(&nap, NULL);
		n = sys_sendmsg(socket, m, flags);
	}
	return n;
}

int packet_send(int socket, const void *data, size_t size, const int *fds, unsigned int count,
		int flags)
{
	union {
		char bytes[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {(void *)data, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count) {
		memset(&control, 0, sizeof(control));
		packet_attach(&m, control.bytes, fds, count);
	}
	ssize_t n;

	if (!(flags & MSG_DONTWAIT) && !blocking_allowed("sending to the daemon"))
		return -EDEADLK;
	do
		n = sys_sendmsg(socket, &m, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == ETOOMANYREFS && !(flags & MSG_DONTWAIT))
		n = send_later(socket, &m, MSG_NOSIGNAL | flags);
	return n < 0 ? -errno : 0;
}

/* Takes the packet's descriptors; the control buffer has room for PROTO_MAX_FDS at most. */
static void take_fds(struct msghdr *m, int *fds)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return;
	size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	memcpy(fds, CMSG_DATA(c), (count < PROTO_MAX_FDS ? count : PROTO_MAX_FDS) * sizeof(int));
}

static void fds_close_all(int *fds)
{
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++) {
		if (fds[i] >= 0)
			sys_close(fds[i]);
		fds[i] = -1;
	}
}

ssize_t packet_receive(int socket, void *data, size_t size, int *fds, int flags)
{
	union {
		char bytes[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		fds[i] = -1;
	if (!(flags & MSG_DONTWAIT) && !blocking_allowed("waiting for the daemon"))
		return -EDEADLK;
	do
		n = sys_recvmsg(socket, &m, MSG_CMSG_CLOEXEC | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	take_fds(&m, fds);
	/* An empty packet can't be told from the end, but may have brought descriptors. */
	if (n == 0)
		fds_close_all(fds);
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		fds_close_all(fds);
		return m.msg_flags & MSG_TRUNC ? -EMSGSIZE : -EMFILE;
	}
	return n;
}

int socket_call(int socket, const void *request, size_t size, const int *fds, unsigned int fd_count,
		void *reply, size_t reply_size, int *reply_fds)
{
	uint8_t packet[PROTO_MAX_MESSAGE];
	int received[PROTO_MAX_FDS];
	struct proto_reply head;
	int err = packet_send(socket, request, size, fds, fd_count, 0);

	if (err)
		return err == -EPIPE || err == -ECONNRESET ? -EIO : err;
	ssize_t n = packet_receive(socket, packet, sizeof(packet), received, 0);

	if (n == -EMFILE)
		return (int)n;
	if (n < (ssize_t)sizeof(head)) {
		fds_close_all(received);
		return -EIO;
	}
	memcpy(&head, packet, sizeof(head));
	if (head.result || (size_t)n < sizeof(head) + reply_size) {
		fds_close_all(received);
		return head.result < 0 && head.result >= -ERRNO_MAX ? head.result : -EIO;
	}
	if (reply_size)
		memcpy(reply, packet + sizeof(head), reply_size);
	if (reply_fds)
		memcpy(reply_fds, received, sizeof(received));
	else
		fds_close_all(received);
	return 0;
}
