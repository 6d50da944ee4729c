/* SPDX-License-Identifier: BSD-2-Clause */
/* The control socket. See ctl.h. Answers are written by show.c. */
#include "daemon/core/ctl.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "client/call.h"
#include "daemon/core/capture.h"
#include "daemon/core/closer.h"
#include "daemon/core/receive.h"
#include "daemon/core/resources.h"
#include "daemon/core/server.h"
#include "daemon/core/show.h"
#include "daemon/core/text.h"
#include "daemon/core/user.h"

/*
 * Root and the daemon's own user may have all connections. RESERVED of them stay free for these
 * two, whatever the others do; a user of the others gets at most USER_MAX.
 */
enum { CLIENTS_MAX = 64, RESERVED = 16, USER_MAX = 8, REQUEST_MAX = 4096, TIME_LIMIT_MS = 10000 };

/* What a turn of the loop writes of an answer that comes bit by bit, at most. */
enum { PART_BYTES = 65536, SLICE_NS = 300000 };

struct ctl {
	struct server *server;
	struct user *user;
	struct list node; /* on server->ctls */
	struct watch watch;
	struct timer timer;
	size_t received;
	char request[REQUEST_MAX];
	struct text reply;
	size_t sent;
	bool answered, stop; /* stop: end the daemon after the reply */
	/* The answer comes bit by bit: `reply` is a part of it, and is followed by others. */
	bool more;
	struct resources resources;
	int fd; /* goes with the reply; -1: none */
};

/* Whether the user could control the daemon anyway. */
static bool is_trusted(const struct user *user)
{
	return user->uid == geteuid() || user->uid == 0;
}

static bool ctl_has_room(const struct server *server, const struct user *user)
{
	if (is_trusted(user))
		return server->ctl_count < CLIENTS_MAX;
	return user->ctls < USER_MAX && server->ctl_strangers < CLIENTS_MAX - RESERVED;
}

static void ctl_count_user(struct server *server, struct user *user, uint32_t more)
{
	server->ctl_count += more;
	server->ctl_strangers += is_trusted(user) ? 0 : more;
	user->ctls += more;
}

static void ctl_close(struct ctl *ctl)
{
	struct server *server = ctl->server;
	int fd = ctl->watch.fd;

	timer_cancel(&ctl->timer);
	loop_remove(&server->loop, &ctl->watch);
	closer_close_socket(ctl->user->uid, fd);
	if (ctl->fd >= 0)
		close(ctl->fd);
	list_del(&ctl->node);
	ctl_count_user(server, ctl->user, (uint32_t)-1);
	user_put(ctl->user);
	text_free(&ctl->reply);
	if (ctl->stop)
		server_stop(server);
	server_left(server);
	free(ctl);
}

static void ctl_refuse(struct ctl *ctl, const char *why)
{
	json_open(&ctl->reply, NULL, '{');
	json_flag(&ctl->reply, "ok", false);
	json_words(&ctl->reply, "error", why);
	json_close(&ctl->reply, '}');
}

static void answer_stop(struct ctl *ctl, bool force)
{
	uint32_t clients = ctl->server->slots.count;
	char why[128];

	if (!is_trusted(ctl->user)) {
		ctl_refuse(ctl, "only the user that the daemon runs as, or root, may stop it");
		return;
	}
	if (clients && !force) {
		snprintf(why, sizeof(why), "%u program%s still use%s it", clients,
			 clients == 1 ? "" : "s", clients == 1 ? "s" : "");
		ctl_refuse(ctl, why);
		return;
	}
	log_info("user %u stops the daemon", ctl->user->uid);
	json_open(&ctl->reply, NULL, '{');
	json_flag(&ctl->reply, "ok", true);
	json_number(&ctl->reply, "clients", clients);
	json_close(&ctl->reply, '}');
	ctl->stop = true;
}

/* A capture shows what all programs send, so it is for users who could read the daemon's memory
 * anyway. */
static void answer_capture(struct ctl *ctl, const json_t *request)
{
	json_int_t snap = json_integer_value(json_object_get(request, "snap"));
	const json_t *row = json_object_get(request, "fabric_port");
	json_int_t port = row ? json_integer_value(row) + 1 : 0;

	if (!is_trusted(ctl->user)) {
		ctl_refuse(ctl, "only the user that the daemon runs as, or root, may capture");
		return;
	}
	int err = capture_open(ctl->server, snap > 0 && snap < UINT32_MAX ? (uint32_t)snap : 0,
			       port > 0 && port < UINT32_MAX ? (uint32_t)port : 0, &ctl->fd);

	if (err) {
		ctl_refuse(ctl, err == -EBUSY ? "too many captures are under way already"
					      : "the daemon has no memory or descriptors for it");
		return;
	}
	log_info("user %u captures", ctl->user->uid);
	json_open(&ctl->reply, NULL, '{');
	json_flag(&ctl->reply, "ok", true);
	json_close(&ctl->reply, '}');
}

static struct show_for ctl_asker(const struct ctl *ctl)
{
	return (struct show_for){.uid = ctl->user->uid, .all = is_trusted(ctl->user)};
}

static void ctl_answer(struct ctl *ctl)
{
	json_t *request = json_loadb(ctl->request, ctl->received, 0, NULL);
	const char *op = json_string_value(json_object_get(request, "op"));
	const struct show_for who = ctl_asker(ctl);

	if (op && !strcmp(op, "status"))
		show_status(ctl->server, &who, &ctl->reply);
	else if (op && !strcmp(op, "counters"))
		show_sum(ctl->server, &ctl->reply);
	else if (op && !strcmp(op, "resources"))
		ctl->more = true;
	else if (op && !strcmp(op, "stop"))
		answer_stop(ctl, json_is_true(json_object_get(request, "force")));
	else if (op && !strcmp(op, "capture"))
		answer_capture(ctl, request);
	else
		ctl_refuse(ctl, "not a request that this daemon knows");
	json_decref(request);
	if (ctl->reply.failed) {
		text_free(&ctl->reply);
		ctl_refuse(ctl, "the daemon has no memory for the answer");
	}
	if (!ctl->more)
		text_add(&ctl->reply, "\n");
	ctl->answered = true;
}

/* Writes the answer's next part. Returns 0 or -ENOMEM. */
static int ctl_write_more(struct ctl *ctl)
{
	const struct show_for who = ctl_asker(ctl);
	uint64_t until = clock_ns() + SLICE_NS;

	timer_set(&ctl->server->loop, &ctl->timer, TIME_LIMIT_MS); /* the client reads */
	text_drop(&ctl->reply);
	ctl->sent = 0;
	do
		ctl->more = resources_write(ctl->server, &who, &ctl->resources, &ctl->reply);
	while (ctl->more && ctl->reply.length < PART_BYTES && clock_ns() < until);
	if (!ctl->more)
		text_add(&ctl->reply, "\n");
	return ctl->reply.failed ? -ENOMEM : 0;
}

/* Sends the next bytes of the reply, and its descriptor with the first. Returns as send(). */
static ssize_t send_some(struct ctl *ctl)
{
	struct iovec bytes = {ctl->reply.data + ctl->sent, ctl->reply.length - ctl->sent};
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};

	if (ctl->fd >= 0)
		packet_attach(&message, control, &ctl->fd, 1);
	ssize_t n = sendmsg(ctl->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n > 0 && ctl->fd >= 0) {
		close(ctl->fd);
		ctl->fd = -1;
	}
	return n;
}

/* Returns 0: more to send later; else the connection is over. */
static int ctl_send_reply(struct ctl *ctl)
{
	while (ctl->sent < ctl->reply.length) {
		ssize_t n = send_some(ctl);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_change(&ctl->server->loop, &ctl->watch, EPOLLOUT);
			return 0;
		}
		if (n < 0)
			return -errno;
		ctl->sent += (size_t)n;
	}
	if (!ctl->more)
		return 1;
	loop_change(&ctl->server->loop, &ctl->watch, EPOLLOUT);
	return 0;
}

/* Reads until the request is complete: a newline or the end. Returns 0: more to come. */
static int ctl_receive_packet(struct ctl *ctl)
{
	ssize_t n = receive_stream(ctl->watch.fd, ctl->request + ctl->received,
				   sizeof(ctl->request) - ctl->received);

	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	bool line = n > 0 && memchr(ctl->request + ctl->received, '\n', (size_t)n);

	ctl->received += (size_t)n;
	if (n > 0 && !line && ctl->received < sizeof(ctl->request))
		return 0;
	if (!ctl->received)
		return -EPIPE;
	ctl_answer(ctl);
	return 0;
}

static void ctl_on_ready(struct watch *watch, uint32_t events)
{
	struct ctl *ctl = container_of(watch, struct ctl, watch);
	int err = 0;

	(void)events;
	if (!ctl->answered)
		err = ctl_receive_packet(ctl);
	if (!err && ctl->answered && ctl->more && ctl->sent == ctl->reply.length)
		err = ctl_write_more(ctl);
	if (!err && ctl->answered)
		err = ctl_send_reply(ctl);
	if (err)
		ctl_close(ctl);
}

static void ctl_on_late(struct timer *timer)
{
	ctl_close(container_of(timer, struct ctl, timer));
}

int ctl_open(struct server *server, int fd)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	struct ctl *ctl = calloc(1, sizeof(*ctl));

	if (!ctl)
		return -ENOMEM;
	ctl->server = server;
	ctl->fd = -1;
	ctl->watch = (struct watch){.fd = -1, .stranger = true, .ready = ctl_on_ready};
	ctl->watch.owner = (uint64_t)cred.uid + 1;
	timer_init(&ctl->timer, ctl_on_late);
	int err = server_admit(server, cred.uid, &ctl->user);

	if (err) {
		free(ctl);
		return err;
	}
	err = ctl_has_room(server, ctl->user) ? loop_add(&server->loop, &ctl->watch, fd, EPOLLIN)
					      : -EMFILE;
	if (err) {
		user_put(ctl->user);
		server_left(server);
		free(ctl);
		return err;
	}
	list_add_tail(&server->ctls, &ctl->node);
	ctl_count_user(server, ctl->user, 1);
	timer_set(&server->loop, &ctl->timer, TIME_LIMIT_MS);
	return 0;
}

void ctl_close_all(struct server *server)
{
	while (!list_empty(&server->ctls))
		ctl_close(container_of(server->ctls.next, struct ctl, node));
}
