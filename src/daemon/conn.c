/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection to a node: reads a request, runs it, writes the reply. A client that doesn't read
 * its replies while it sends more requests fills its own socket and is hung up on; nobody waits for
 * it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "daemon/daemon.h"

static const uint32_t object_limits[OBJ_TYPES] = {
	[OBJ_PD] = LIMIT_PD, [OBJ_MR] = LIMIT_MRS_PER_SLOT - 1, [OBJ_CHANNEL] = LIMIT_CQ,
	[OBJ_CQ] = LIMIT_CQ, [OBJ_QP] = LIMIT_QPS_PER_SLOT,	[OBJ_SRQ] = LIMIT_SRQ,
	[OBJ_AH] = LIMIT_AH,
};

void conn_close(struct conn *conn)
{
	if (conn->is_process && conn->process) {
		process_end(conn->process); /* comes back here */
		return;
	}
	objects_free_all(conn);
	list_del(&conn->of_process);
	list_del(&conn->node);
	loop_remove(&conn->source);
	close(conn->source.fd);
	server.conn_count--;
	free(conn);
}

static void answer(struct conn *conn, int result, struct response *response)
{
	uint8_t packet[PROTO_MAX_MESSAGE];
	struct proto_reply head = {.result = result};
	size_t size = result ? 0 : response->size;

	memcpy(packet, &head, sizeof(head));
	memcpy(packet + sizeof(head), response->body, size);
	int err = packet_send(conn->source.fd, packet, sizeof(head) + size, &response->fd,
			      !result && response->fd >= 0, MSG_DONTWAIT);

	if (response->fd >= 0)
		close(response->fd);
	if (err) {
		log_info("process %d doesn't read its replies (%s), connection closed", conn->pid,
			 strerror(-err));
		conn_close(conn);
	}
}

static void on_request(struct source *source, uint32_t events)
{
	struct conn *conn = container_of(source, struct conn, source);
	uint8_t packet[PROTO_MAX_MESSAGE];
	int fds[PROTO_MAX_FDS];
	struct response response = {.size = 0, .fd = -1};

	(void)events;
	ssize_t n = packet_receive(source->fd, packet, sizeof(packet), fds, MSG_DONTWAIT);

	if (n == -EAGAIN)
		return;
	if (n == -EMSGSIZE) {
		answer(conn, -EINVAL, &response);
		return;
	}
	if (n <= 0) {
		conn_close(conn);
		return;
	}
	int result = command_run(conn, packet, n, fds, &response);

	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	answer(conn, result, &response);
}

void conn_accept(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		free(conn);
		close(fd);
		return;
	}
	conn->source = (struct source){.ready = on_request, .fd = fd};
	conn->pid = cred.pid;
	conn->uid = cred.uid;
	conn->gid = cred.gid;
	list_init(&conn->of_process);
	for (int i = 0; i < OBJ_TYPES; i++)
		table_init(&conn->objects[i], object_limits[i]);
	if (loop_add(&conn->source, EPOLLIN)) {
		free(conn);
		close(fd);
		return;
	}
	list_add_tail(&server.conns, &conn->node);
	server.conn_count++;
}
