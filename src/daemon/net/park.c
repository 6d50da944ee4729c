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
#include "daemon/net/udp_slots.h"

/* BATCH is below the kernel's limit (SCM_MAX_FD) to keep the stack frame small; a step of the group
 * fits into one message. */
enum { PARK_MAGIC = 0x4b524156, BATCH = 32 };

/* What `first` says in a message without places. */
enum { PARK_BEGIN = 0, PARK_REPLACE = 1, PARK_VALID = 2 };

struct message {
	uint32_t magic;
	uint32_t first; /* place of the first socket */
	uint32_t count; /* of places */
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

static int park_put_message(struct park *park, const struct message *message, const int *fds,
			    unsigned int count)
{
	union {
		char bytes[CMSG_SPACE(BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {(void *)message, sizeof(*message)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	if (count)
		packet_attach(&m, control.bytes, fds, count);
	if (sendmsg(park->in, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	park->messages++;
	return 0;
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

/* Takes the first message out of the queue. Returns 0, or -errno: there is none. */
static int park_drop_message(struct park *park)
{
	struct message message = {0};
	int fds[BATCH], n = park_look_message(park->out, &message, fds, 0);

	for (int i = 0; i < n; i++)
		close(fds[i]);
	if (n < 0 && n != -EINVAL && n != -EMFILE)
		return n;
	park->messages--;
	return 0;
}

void park_clear(struct park *park)
{
	while (park->out >= 0 && park_drop_message(park) == 0)
		;
	park->parked = park->messages = 0;
}

/* Adds places from `first` to `count`; `*parked` follows. */
static int park_put_places(struct park *park, const int *fds, uint32_t count, uint32_t *parked)
{
	int err = 0;

	while (!err && *parked < count) {
		uint32_t left = count - *parked, batch = left < BATCH ? left : BATCH;
		const struct message message = {PARK_MAGIC, *parked, batch};

		err = park_put_message(park, &message, fds + *parked, batch);
		if (!err)
			*parked += batch;
	}
	return err;
}

int park_put(struct park *park, const int *fds, uint32_t count)
{
	const struct message begin = {.magic = PARK_MAGIC, .first = PARK_BEGIN};
	int err = park->in < 0 ? -EBADF : 0;

	if (!err && !park->parked)
		err = park_put_message(park, &begin, &park->in, 1);
	return err ? err : park_put_places(park, fds, count, &park->parked);
}

int park_replace(struct park *park, const int *fds, uint32_t count)
{
	const struct message begin = {.magic = PARK_MAGIC, .first = PARK_REPLACE};
	const struct message valid = {.magic = PARK_MAGIC, .first = PARK_VALID};
	uint32_t old = park->messages, parked = 0;
	int err = park->in < 0 ? -EBADF : park_put_message(park, &begin, &park->in, 1);

	if (!err)
		err = park_put_places(park, fds, count, &parked);
	if (!err)
		err = park_put_message(park, &valid, NULL, 0);
	if (err)
		return err; /* what was put is of no effect */
	park->parked = parked;
	park->unfinished = false;
	while (old-- && park_drop_message(park) == 0)
		;
	return 0;
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

/* A set of sockets, as it is read. */
struct set {
	int in; /* -1: none is being read */
	uint32_t total;
	int fds[UDP_SLOTS_PLACES];
};

/* Sets that were read: the one that counts, and one without its VALID until now. */
struct sets {
	struct set valid, next;
	uint32_t messages;
	bool has_rest; /* of a set that was being taken out */
};

static void set_drop(struct set *set)
{
	while (set->total)
		close(set->fds[--set->total]);
	if (set->in >= 0)
		close(set->in);
	set->in = -1;
}

static bool take_begin(struct sets *sets, int in)
{
	struct set *set = sets->valid.in < 0 ? &sets->valid : &sets->next;

	if (!park_fd_is_ours(in, SOCK_SEQPACKET))
		return false;
	set_drop(set);
	set->in = in;
	return true;
}

static bool take_places(struct sets *sets, const struct message *message, const int *fds)
{
	struct set *set = sets->next.in < 0 ? &sets->valid : &sets->next;

	if (set->in < 0) {
		sets->has_rest = true;
		for (uint32_t i = 0; i < message->count; i++)
			close(fds[i]);
		return true;
	}
	if (message->first != set->total || set->total + message->count > UDP_SLOTS_PLACES)
		return false;
	memcpy(set->fds + set->total, fds, message->count * sizeof(int));
	set->total += message->count;
	return true;
}

static bool take_valid(struct sets *sets)
{
	if (sets->next.in < 0)
		return true; /* the former set was taken out already, or is being taken out */
	set_drop(&sets->valid);
	sets->valid = sets->next;
	sets->next = (struct set){.in = -1};
	return true;
}

/* Whether the message is one of a park; then its descriptors belong to the sets. */
static bool park_take_message(struct sets *sets, const struct message *message, const int *fds,
			      int n)
{
	if (message->count)
		return message->count == (uint32_t)n && take_places(sets, message, fds);
	if (message->first == PARK_VALID)
		return !n && take_valid(sets);
	return n == 1 && message->first <= PARK_REPLACE && take_begin(sets, fds[0]);
}

/* Peeks at all messages. With SO_PEEK_OFF each peek advances by one. */
static int take_sets(struct sets *sets, int out)
{
	for (;;) {
		struct message message = {0};
		int fds[BATCH], n = park_look_message(out, &message, fds, MSG_PEEK);

		if (n == -EAGAIN)
			return sets->valid.total ? 0 : -EINVAL;
		if (n < 0)
			return n;
		sets->messages++;
		if (park_take_message(sets, &message, fds, n))
			continue;
		for (int i = 0; i < n; i++)
			close(fds[i]);
		return -EINVAL;
	}
}

int park_take(struct park *park, int out, int *fds, uint32_t max)
{
	struct sets sets = {.valid.in = -1, .next.in = -1};
	int offset = 0, none = -1;

	if (!park_fd_is_ours(out, SOCK_SEQPACKET) ||
	    setsockopt(out, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)) < 0)
		return -EINVAL;
	int err = take_sets(&sets, out);

	setsockopt(out, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
	bool unfinished = sets.next.in >= 0 || sets.has_rest;

	set_drop(&sets.next);
	if (!err && sets.valid.total > max)
		err = -EINVAL;
	if (err) {
		set_drop(&sets.valid);
		return err;
	}
	memcpy(fds, sets.valid.fds, sets.valid.total * sizeof(int));
	*park = (struct park){.in = sets.valid.in,
			      .out = out,
			      .parked = sets.valid.total,
			      .messages = sets.messages,
			      .unfinished = unfinished};
	return (int)sets.valid.total;
}
