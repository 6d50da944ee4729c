/* SPDX-License-Identifier: BSD-2-Clause */
/* See park.h. Only the daemon's thread calls it. */
#include "daemon/net/park.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/call.h"

/* One message. BATCH is below the kernel's limit (SCM_MAX_FD) to keep the stack frame small; a step
 * of the group fits into one message. */
enum { PARK_MAGIC = 0x4b524156, BATCH = 32 };

struct message {
	uint32_t magic;
	uint32_t first; /* place of the first socket */
	uint32_t count; /* 0: the other end of the pair */
};

void park_init(struct park *park)
{
	*park = (struct park){.in = -1, .out = -1};
}

void park_close(struct park *park)
{
	if (park->in >= 0)
		close(park->in);
	if (park->out >= 0)
		close(park->out);
	park_init(park);
}

static int park_put_message(int in, const struct message *message, const int *fds,
			    unsigned int count)
{
	union {
		char bytes[CMSG_SPACE(BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {(void *)message, sizeof(*message)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	packet_attach(&m, control.bytes, fds, count);
	return sendmsg(in, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Receives the next message and its descriptors; `peek`: MSG_PEEK leaves it in the queue. Returns
 * their number; -errno. */
static int park_look_message(int out, struct message *message, int *fds, int peek)
{
	union {
		char bytes[CMSG_SPACE(BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {message, sizeof(*message)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	for (int i = 0; i < BATCH; i++)
		fds[i] = -1;
	n = recvmsg(out, &m, peek | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int count = 0;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
	}
	if (n == sizeof(*message) && message->magic == PARK_MAGIC &&
	    !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return count;
	for (int i = 0; i < count; i++)
		close(fds[i]);
	return m.msg_flags & MSG_CTRUNC ? -EMFILE : -EINVAL;
}

int park_make(struct park *park)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	*park = (struct park){.in = pair[0], .out = pair[1]};
	return 0;
}

void park_clear(struct park *park)
{
	int n = park->out < 0 ? -EBADF : 0;

	while (n >= 0 || n == -EINVAL || n == -EMFILE) {
		struct message message = {0};
		int fds[BATCH];

		n = park_look_message(park->out, &message, fds, 0);
		for (int i = 0; i < n; i++)
			close(fds[i]);
	}
	park->parked = 0;
}

int park_put(struct park *park, const int *fds, uint32_t count)
{
	const struct message begin = {.magic = PARK_MAGIC};
	int err = park->in < 0 ? -EBADF : 0;

	if (!err && !park->parked)
		err = park_put_message(park->in, &begin, &park->in, 1);
	while (!err && park->parked < count) {
		uint32_t left = count - park->parked, batch = left < BATCH ? left : BATCH;
		const struct message message = {PARK_MAGIC, park->parked, batch};

		err = park_put_message(park->in, &message, fds + park->parked, batch);
		if (!err)
			park->parked += batch;
	}
	return err;
}

/* ------------------------------------------------------------------ taking over */

static bool park_fd_is_ours(int fd, int type)
{
	struct ucred cred;
	int value;
	socklen_t size = sizeof(value), cred_size = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size) == 0 && value == AF_UNIX &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size) == 0 && value == type &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_size) == 0 &&
	       cred.uid == geteuid();
}

/* Peeks at the sockets behind the first message. */
static int take_sockets(int out, int *fds, uint32_t max)
{
	uint32_t total = 0;

	for (;;) {
		struct message message = {0};
		int batch[BATCH], n = park_look_message(out, &message, batch, MSG_PEEK);

		if (n == -EAGAIN)
			return (int)total;
		bool right = n > 0 && message.first == total && message.count == (uint32_t)n &&
			     total + (uint32_t)n <= max;

		for (int i = 0; i < n; i++) {
			if (right)
				fds[total++] = batch[i];
			else
				close(batch[i]);
		}
		if (right)
			continue;
		while (total)
			close(fds[--total]);
		return n < 0 ? n : -EINVAL;
	}
}

int park_take(struct park *park, int out, int *fds, uint32_t max)
{
	int offset = 0, none = -1, first[BATCH], total = -EINVAL;
	struct message message = {0};

	/* With SO_PEEK_OFF each peek advances by one message. */
	if (!park_fd_is_ours(out, SOCK_SEQPACKET) ||
	    setsockopt(out, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)) < 0)
		return -EINVAL;
	int n = park_look_message(out, &message, first, MSG_PEEK);

	if (n == 1 && !message.count && park_fd_is_ours(first[0], SOCK_SEQPACKET))
		total = take_sockets(out, fds, max);
	setsockopt(out, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
	if (total > 0) {
		*park = (struct park){.in = first[0], .out = out, .parked = (uint32_t)total};
		return total;
	}
	for (int i = 0; i < n; i++)
		close(first[i]);
	return n < 0 ? n : total ? total : -EINVAL;
}
