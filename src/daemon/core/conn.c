/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections. See conn.h. Owns the socket, the unsent reply and the postponed request, with their
 * descriptors. */
#include "daemon/core/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/call.h"
#include "daemon/cm/cm_client.h"
#include "daemon/core/closer.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/receive.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/objects/context.h"
#include "proto/proto.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

struct unsent_reply {
	size_t size;
	int fds[PROTO_MAX_FDS];
	unsigned int fd_count;
	uint8_t data[];
};

/* A request to be answered later. */
struct postponed {
	size_t size;
	int fds[PROTO_MAX_FDS];
	_Alignas(8) uint8_t packet[];
};

int conn_pidfd(const struct conn *conn)
{
	socklen_t size = sizeof(int);
	int fd;

	if (getsockopt(conn->watch.fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
		return fd;
	fd = (int)syscall(SYS_pidfd_open, conn->pid, 0);
	return fd < 0 ? -errno : fd;
}

/* Keeps a reply that the socket doesn't take; no request is read until it does. */
static int keep_reply(struct conn *conn, const struct reply *reply)
{
	struct unsent_reply *unsent = malloc(sizeof(*unsent) + reply->size);

	if (!unsent)
		return -ENOMEM;
	unsent->size = reply->size;
	unsent->fd_count = reply->fd_count;
	memcpy(unsent->fds, reply->fds, sizeof(unsent->fds));
	memcpy(unsent->data, reply->data, reply->size);
	conn->unsent = unsent;
	loop_change(&conn->server->loop, &conn->watch, EPOLLOUT);
	return 0;
}

static void close_sent(const int *fds, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		close(fds[i]);
}

/* Sends the reply. Returns 0; -EAGAIN: the reply is kept; else the connection is unusable. Takes
 * the reply's descriptors over. */
static int conn_send_reply(struct conn *conn, struct reply *reply)
{
	if (!reply->size) /* to a posted request */
		return 0;
	int err = packet_send(conn->watch.fd, reply->data, reply->size, reply->fds, reply->fd_count,
			      MSG_DONTWAIT);

	if (err == -EAGAIN) {
		err = keep_reply(conn, reply);
		if (!err)
			return -EAGAIN;
	}
	close_sent(reply->fds, reply->fd_count);
	return err;
}

/* The client's end of its event socket may be among the descriptors, with packets that have other
 * clients' descriptors. */
static void unsent_free(struct conn *conn)
{
	struct unsent_reply *unsent = conn->unsent;

	if (unsent)
		closer_close(conn->user->uid, unsent->fds, unsent->fd_count);
	free(unsent);
	conn->unsent = NULL;
}

static int send_unsent(struct conn *conn)
{
	struct unsent_reply *unsent = conn->unsent;
	int err = packet_send(conn->watch.fd, unsent->data, unsent->size, unsent->fds,
			      unsent->fd_count, MSG_DONTWAIT);

	if (err)
		return err;
	unsent_free(conn);
	loop_change(&conn->server->loop, &conn->watch, EPOLLIN);
	return 0;
}

/* Keeps the request; no other is read until it is answered. Takes the descriptors over. */
static int conn_postpone(struct conn *conn, const void *packet, size_t size, int *fds)
{
	struct postponed *kept = malloc(sizeof(*kept) + size);

	if (!kept) {
		closer_close(conn->user->uid, fds, PROTO_MAX_FDS);
		return -ENOMEM;
	}
	kept->size = size;
	memcpy(kept->packet, packet, size);
	memcpy(kept->fds, fds, sizeof(kept->fds));
	conn->postponed = kept;
	conn->server->ending.waiting += conn->waits;
	loop_change(&conn->server->loop, &conn->watch, 0);
	return 0;
}

static void forget_postponed(struct conn *conn)
{
	if (conn->postponed) {
		closer_close(conn->user->uid, conn->postponed->fds, PROTO_MAX_FDS);
		conn->server->ending.waiting -= conn->waits;
	}
	conn->waits = false;
	free(conn->postponed);
	conn->postponed = NULL;
}

/* Closes a connection that can't be served, or on which nothing more can be received. */
static void conn_on_hangup(struct watch *watch, uint32_t events)
{
	(void)events;
	conn_close(container_of(watch, struct conn, watch));
}

/* Answers a packet that can't be received as it is. `err`: -EMSGSIZE or -EMFILE. Returns as
 * serve_one(). */
static int refuse_packet(struct conn *conn, int err, bool is_stuck)
{
	struct reply reply;

	complain(conn->user,
		 "process %d sent a request of more than %u bytes or with more descriptors than %u "
		 "(or than this daemon may have, or takes while it closes those of user %u)",
		 conn->pid, PROTO_MAX_MESSAGE, PROTO_MAX_FDS, conn->user->uid);
	reply_error(&reply, err == -EMFILE ? -EMFILE : -EINVAL);
	/* The packet stays in the socket, so the answer is the last: the client's next request must
	 * fail, not wait. A close now would keep the client from reading the answer (ECONNRESET).
	 */
	if (is_stuck)
		shutdown(conn->watch.fd, SHUT_RD);
	err = conn_send_reply(conn, &reply);
	if (!is_stuck)
		return err;
	conn->watch.ready = conn_on_hangup;
	loop_change(&conn->server->loop, &conn->watch, 0);
	return err == -EAGAIN ? -EPIPE : err;
}

/* Reads and serves one request. Returns 0; -EAGAIN: none now; else the connection is over. */
static int serve_one(struct conn *conn)
{
	_Alignas(8) uint8_t packet[PROTO_MAX_MESSAGE];
	struct received received;
	struct reply reply;
	ssize_t n = receive_packet(conn->watch.fd, packet, sizeof(packet),
				   server_closes_in_time(conn->server, conn->user), &received);
	bool is_stuck = n == -EMFILE;

	if (n > 0 && received.count > PROTO_MAX_FDS)
		n = -EMFILE;
	if (n > 0 && !conn->serve(conn, packet, (size_t)n, received.fds, &reply))
		return conn_postpone(conn, packet, (size_t)n, received.fds);
	closer_close(conn->user->uid, received.fds, received.count);
	if (n == -EMSGSIZE || n == -EMFILE)
		return refuse_packet(conn, (int)n, is_stuck);
	if (n <= 0)
		return n ? (int)n : -EPIPE;
	return conn_send_reply(conn, &reply);
}

/* Serves the postponed request again. Returns as serve_one(). */
static int serve_postponed(struct conn *conn)
{
	struct postponed *kept = conn->postponed;
	struct reply reply;

	if (!conn->serve(conn, kept->packet, kept->size, kept->fds, &reply))
		return 0;
	forget_postponed(conn);
	loop_change(&conn->server->loop, &conn->watch, EPOLLIN);
	return conn_send_reply(conn, &reply);
}

void conn_resume(struct server *server)
{
	struct list *next;

	for (struct list *node = server->conns.next; node != &server->conns; node = next) {
		struct conn *conn = container_of(node, struct conn, node);
		int err = conn->postponed ? serve_postponed(conn) : 0;

		next = node->next;
		if (err && err != -EAGAIN)
			conn_close(conn);
	}
}

bool conn_has_hung_up(const struct conn *conn)
{
	struct pollfd p = {.fd = conn->watch.fd};

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

/* Whether it is a context whose process has ended, while a forked child still holds it open. */
static bool conn_lost_process(const struct conn *conn)
{
	return conn->context && conn->context->process->ended;
}

static void conn_on_ready(struct watch *watch, uint32_t events)
{
	struct conn *conn = container_of(watch, struct conn, watch);
	int err = 0;

	if (conn->unsent && (events & EPOLLOUT))
		err = send_unsent(conn);
	/* A client that closed its end may have left requests in the socket. They are not executed:
	 * no client waits for the answers, and whatever they made would be freed at once. */
	if (!err && ((events & (EPOLLHUP | EPOLLERR)) || conn_lost_process(conn)))
		err = -EPIPE;
	/* One request for each turn of the loop: a client that waits for each reply has no second
	 * request in the socket, and a client that floods must not delay the others. */
	if (!err && !conn->unsent && !conn->postponed)
		err = serve_one(conn);
	if (err && err != -EAGAIN)
		conn_close(conn);
}

int conn_open(struct server *server, int fd, struct device *device)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return -ENOMEM;
	conn->server = server;
	conn->device = device;
	conn->pid = cred.pid;
	conn->serve = conn_dispatch;
	conn->watch = (struct watch){.fd = -1, .stranger = true, .ready = conn_on_ready};
	conn->watch.owner = (uint64_t)cred.uid + 1;
	int err = server_admit(server, cred.uid, &conn->user);

	if (!err) {
		err = loop_add(&server->loop, &conn->watch, fd, EPOLLIN);
		if (err) {
			user_put(conn->user);
			server_left(server);
		}
	}
	if (err) {
		free(conn);
		return err;
	}
	conn->serial = ++server->last_serial;
	list_add_tail(&server->conns, &conn->node);
	return 0;
}

int conn_open_cm(struct server *server, int fd)
{
	int err = conn_open(server, fd, NULL);

	if (err)
		return err;
	struct conn *conn = container_of(server->conns.prev, struct conn, node);

	conn->serve = cm_dispatch;
	err = cm_client_open(conn);
	if (err) {
		conn->watch.ready = conn_on_hangup;
		log_error("no memory for a client of the RDMA CM");
	}
	return 0;
}

/* The part of the end that is done at once. */
static void conn_end(struct conn *conn)
{
	int fd = conn->watch.fd;

	if (conn->process)
		process_end(conn->process);
	if (conn->context)
		context_end(conn->context);
	if (conn->cm)
		cm_client_end(conn->cm);
	loop_remove(&conn->server->loop, &conn->watch);
	closer_close_socket(conn->user->uid, fd);
	unsent_free(conn);
	forget_postponed(conn);
	list_del(&conn->node);
}

void conn_close(struct conn *conn)
{
	struct user *user = conn->user;

	conn_end(conn);
	user->connections--;
	ending_add(conn); /* keeps the user */
}

void conn_free_some(struct conn *conn)
{
	struct context *first = conn->process ? process_first_context(conn->process) : NULL;

	if (first && !first->ended) {
		conn_close(first->conn);
		return;
	}
	if (first) {
		conn_free_some(first->conn);
		return;
	}
	if ((conn->context && context_free_some(conn->context)) ||
	    (conn->cm && cm_client_free_some(conn->cm)))
		return;
	if (conn->process)
		process_free(conn->process);
	if (conn->context)
		context_free(conn->context);
	if (conn->cm)
		cm_client_free(conn->cm);
	list_del(&conn->node);
	user_put_ended(conn->user);
	server_left(conn->server);
	free(conn);
}
