/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections on the socket `fabric` (proto/fabric.h). All that comes is checked: kinds, lengths,
 * numbers of ports, and memory files, which must be sealed, so that reading them can neither block
 * nor find another length. What a program doesn't read waits here up to SERVER_UNREAD_MAX, and is
 * dropped and counted then.
 */
#include "fabricd/connection.h"

#include "base/log.h"
#include "client/call.h"
#include "fabric/port_info.h"
#include "fabricd/describe.h"
#include "fabricd/members.h"
#include "proto/fabric.h"
#include "proto/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Packets of one program that are handled before the others get their turn. */
#define PACKETS_AT_ONCE 8

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct message {
	struct list node;
	size_t bytes;
	uint8_t data[];
};

/* To the program ------------------------------------------------------------------------------- */

/* A sealed memory file with the whole message, or -1. */
static int memory_file_make(const uint8_t *data, size_t bytes)
{
	int fd = memfd_create("verbena-mad", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (write(fd, data, bytes) == (ssize_t)bytes && !fcntl(fd, F_ADD_SEALS, SEALS))
		return fd;
	close(fd);
	return -1;
}

/* 0, -EAGAIN: the socket is full, or what makes the connection useless. */
static int message_send(const struct connection *connection, const uint8_t *data, size_t bytes)
{
	int fd, result;

	if (bytes <= PROTO_FABRIC_INLINE)
		return send(connection->watched.fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0
			       ? -errno
			       : 0;
	fd = memory_file_make(data, bytes);
	if (fd < 0)
		return -ENOMEM;
	result = packet_send(connection->watched.fd, data, sizeof(struct ib_user_mad) + MAD_BYTES,
			     &fd, 1, MSG_DONTWAIT);
	close(fd);
	return result;
}

static void message_drop(struct connection *connection, struct message *message)
{
	connection->unread_bytes -= message->bytes;
	list_del(&message->node);
	free(message);
}

static void unread_send(struct connection *connection)
{
	list_for_each(node, &connection->unread) {
		struct message *message = container_of(node, struct message, node);
		int result = message_send(connection, message->data, message->bytes);

		if (result == -EAGAIN)
			return;
		if (result)
			connection->dropped++;
		message_drop(connection, message);
	}
	server_watch_change(connection->server, &connection->watched, EPOLLIN);
}

static void message_keep(struct connection *connection, const uint8_t *data, size_t bytes)
{
	struct message *message = NULL;

	if (connection->unread_bytes + bytes <= SERVER_UNREAD_MAX)
		message = malloc(sizeof *message + bytes);
	if (!message) {
		connection->dropped++;
		return;
	}
	message->bytes = bytes;
	memcpy(message->data, data, bytes);
	list_add_tail(&connection->unread, &message->node);
	connection->unread_bytes += bytes;
	server_watch_change(connection->server, &connection->watched, EPOLLIN | EPOLLOUT);
}

void connection_deliver(void *reader, const struct ib_user_mad *header, const uint8_t *mad,
			size_t bytes)
{
	struct connection *connection = reader;
	uint8_t small[sizeof *header + MAD_BYTES];
	size_t all = sizeof *header + bytes;
	uint8_t *data = all <= sizeof small ? small : malloc(all);
	int result = -EAGAIN;

	connection->received++;
	if (!data) {
		connection->dropped++;
		return;
	}
	memcpy(data, header, sizeof *header);
	memcpy(data + sizeof *header, mad, bytes);
	if (list_empty(&connection->unread))
		result = message_send(connection, data, all);
	if (result == -EAGAIN)
		message_keep(connection, data, all);
	else if (result)
		connection->dropped++;
	if (data != small)
		free(data);
}

/* Ending --------------------------------------------------------------------------------------- */

static void connection_free(struct connection *connection)
{
	struct server *server = connection->server;

	if (connection->member)
		member_leave(server, connection->member);
	if (connection->port) {
		mad_file_close(&connection->file);
		if (list_empty(&connection->port->mad.files))
			list_del(&connection->port->node);
	}
	list_for_each(node, &connection->unread)
		message_drop(connection, container_of(node, struct message, node));
	server_unwatch(server, &connection->watched);
	list_del(&connection->node);
	server->connection_count--;
	free(connection);
}

void connections_close(struct server *server)
{
	list_for_each(node, &server->connections)
		connection_free(container_of(node, struct connection, node));
}

/* Questions ------------------------------------------------------------------------------------ */

static int answer_send(int socket, const void *answer, size_t bytes)
{
	return packet_send(socket, answer, bytes, NULL, 0, MSG_DONTWAIT);
}

/* The end port that a request names, or FABRIC_NONE. */
static uint32_t named_port(const struct server *server, const struct proto_fabric_named *named)
{
	uint32_t node = server_node_find(server, named->node);
	uint32_t row;

	if (node == FABRIC_NONE || named->port > FABRIC_PORTS_MAX)
		return FABRIC_NONE;
	row = fabric_port_row(&server->fabric, node, named->port);
	if (row == FABRIC_NONE || !server->fabric.ports[row].is_end_port)
		return FABRIC_NONE;
	return row;
}

static int query_answer(struct connection *connection, const struct proto_fabric_named *named)
{
	struct proto_fabric_device device = {.result = -ENOENT};
	uint32_t node = server_node_find(connection->server, named->node);

	if (node != FABRIC_NONE)
		describe_device(&connection->server->fabric, node, &device);
	return answer_send(connection->watched.fd, &device, sizeof device);
}

static int issm_answer(struct connection *connection, const struct proto_fabric_named *named)
{
	struct proto_fabric_path answer = {.result = -ENODEV};
	uint32_t row = named_port(connection->server, named);

	if (row != FABRIC_NONE)
		answer.result = issm_make(connection->server, row, answer.path, sizeof answer.path);
	return answer_send(connection->watched.fd, &answer, sizeof answer);
}

static int open_answer(struct connection *connection, const struct proto_fabric_named *named)
{
	struct server *server = connection->server;
	struct proto_fabric_result answer = {.result = -ENODEV};
	uint32_t row = named_port(server, named);

	if (row != FABRIC_NONE) {
		struct server_port *port = server_port_get(server, row);

		answer.result = port ? 0 : -ENOMEM;
		if (port) {
			mad_file_open(&connection->file, &port->mad, connection);
			if (list_empty(&port->node))
				list_add_tail(&server->open_ports, &port->node);
			connection->port = port;
		}
	}
	return answer_send(connection->watched.fd, &answer, sizeof answer);
}

static int tables_answer(struct connection *connection, const struct proto_fabric_named *named)
{
	struct proto_fabric_tables answer = {.result = -ENOENT};
	int file = connection->server->tables;

	answer.node = server_node_find(connection->server, named->node);
	if (answer.node != FABRIC_NONE)
		answer.result = 0;
	return packet_send(connection->watched.fd, &answer, sizeof answer, &file, 1, MSG_DONTWAIT);
}

static int join_answer(struct connection *connection, const struct proto_fabric_named *named,
		       int flows)
{
	struct proto_fabric_result answer = {.result = -ENOENT};
	uint32_t node = server_node_find(connection->server, named->node);

	if (node != FABRIC_NONE) {
		connection->member =
			member_join(connection->server, node, connection->watched.fd, flows);
		answer.result = connection->member ? 0 : -EINVAL;
	}
	return answer_send(connection->watched.fd, &answer, sizeof answer);
}

/* -ENODATA: the fabric has no clocks. */
static int clocks_answer(struct connection *connection)
{
	int file = connection->server->timing.file;
	struct proto_fabric_result answer = {.result = file < 0 ? -ENODATA : 0};

	return packet_send(connection->watched.fd, &answer, sizeof answer, &file, file >= 0,
			   MSG_DONTWAIT);
}

static int named_handle(struct connection *connection, const uint8_t *packet, size_t bytes, int fd)
{
	struct proto_fabric_named named;

	if (bytes != sizeof named || connection->port || connection->member)
		return -EPROTO;
	memcpy(&named, packet, sizeof named);
	named.node[sizeof named.node - 1] = 0;
	switch (named.request.kind) {
	case PROTO_FABRIC_QUERY:
		return query_answer(connection, &named);
	case PROTO_FABRIC_ISSM:
		return issm_answer(connection, &named);
	case PROTO_FABRIC_TABLES:
		return tables_answer(connection, &named);
	case PROTO_FABRIC_CLOCKS:
		return clocks_answer(connection);
	case PROTO_FABRIC_JOIN:
		return join_answer(connection, &named, fd);
	default:
		return open_answer(connection, &named);
	}
}

/* Agents --------------------------------------------------------------------------------------- */

static void agent_register(struct connection *connection,
			   const struct proto_fabric_register *wanted,
			   struct proto_fabric_agent *answer)
{
	struct umad_reg_attr attr = {
		.mgmt_class = (uint8_t)wanted->mgmt_class,
		.mgmt_class_version = (uint8_t)wanted->mgmt_class_version,
		.flags = wanted->flags,
		.method_mask = {wanted->method_mask[0], wanted->method_mask[1]},
		.oui = wanted->oui,
		.rmpp_version = (uint8_t)wanted->rmpp_version,
	};

	answer->result = -EINVAL;
	if (wanted->mgmt_class <= 0xff && wanted->mgmt_class_version <= 0xff &&
	    wanted->rmpp_version <= 0xff && wanted->qpn <= 1)
		answer->result =
			mad_file_register(&connection->file, (int)wanted->qpn, &attr, &answer->id);
	answer->flags = attr.flags;
}

static int register_handle(struct connection *connection, const uint8_t *packet, size_t bytes,
			   int reply)
{
	struct proto_fabric_register wanted;
	struct proto_fabric_agent answer = {0};

	if (bytes != sizeof wanted || !connection->port || reply < 0)
		return -EPROTO;
	memcpy(&wanted, packet, sizeof wanted);
	if (wanted.request.kind == PROTO_FABRIC_REGISTER) {
		agent_register(connection, &wanted, &answer);
	} else {
		answer.result = mad_file_unregister(&connection->file, wanted.id);
	}
	/* A program that doesn't wait for its answer is its own problem. */
	answer_send(reply, &answer, sizeof answer);
	return 0;
}

/* MADs ----------------------------------------------------------------------------------------- */

static int long_handle(struct connection *connection, int file)
{
	size_t most = sizeof(struct ib_user_mad) + MAD_MESSAGE_BYTES_MAX;
	struct stat st;
	uint8_t *data;
	int seals = fcntl(file, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(file, &st) < 0 ||
	    (size_t)st.st_size > most || (size_t)st.st_size < sizeof(struct ib_user_mad))
		return -EPROTO;
	data = malloc((size_t)st.st_size);
	if (data && pread(file, data, (size_t)st.st_size, 0) == st.st_size)
		mad_file_send(&connection->file, data, (size_t)st.st_size, server_now_ms());
	free(data);
	return 0;
}

static int mad_handle(struct connection *connection, const uint8_t *packet, size_t bytes, int file)
{
	size_t header = sizeof(struct proto_fabric_request);

	if (!connection->port)
		return -EPROTO;
	connection->sent++;
	if (file >= 0)
		return long_handle(connection, file);
	/* A MAD that is refused is lost, as one that the link loses: the library has checked what
	 * the program can be told about. */
	mad_file_send(&connection->file, packet + header, bytes - header, server_now_ms());
	return 0;
}

static int violation_handle(struct connection *connection, const uint8_t *packet, size_t bytes)
{
	struct proto_fabric_violation violation;

	if (bytes != sizeof violation || !connection->member)
		return -EPROTO;
	memcpy(&violation, packet, sizeof violation);
	return member_violates(connection->server, &violation);
}

static int came_handle(struct connection *connection, const uint8_t *packet, size_t bytes)
{
	struct proto_fabric_came came;

	if (bytes != sizeof came || !connection->member)
		return -EPROTO;
	memcpy(&came, packet, sizeof came);
	return member_sends(connection->server, came.port);
}

static int packet_handle(struct connection *connection, const uint8_t *packet, size_t bytes, int fd)
{
	struct proto_fabric_request request;

	if (bytes < sizeof request)
		return -EPROTO;
	memcpy(&request, packet, sizeof request);
	if (request.abi != PROTO_FABRIC_ABI)
		return -EPROTO;
	switch (request.kind) {
	case PROTO_FABRIC_QUERY:
	case PROTO_FABRIC_ISSM:
	case PROTO_FABRIC_OPEN:
	case PROTO_FABRIC_TABLES:
	case PROTO_FABRIC_CLOCKS:
	case PROTO_FABRIC_JOIN:
		return named_handle(connection, packet, bytes, fd);
	case PROTO_FABRIC_REGISTER:
	case PROTO_FABRIC_UNREGISTER:
		return register_handle(connection, packet, bytes, fd);
	case PROTO_FABRIC_MAD:
		return mad_handle(connection, packet, bytes, fd);
	case PROTO_FABRIC_VIOLATION:
		return violation_handle(connection, packet, bytes);
	case PROTO_FABRIC_DATA_CAME:
		return came_handle(connection, packet, bytes);
	default:
		return -EPROTO;
	}
}

/* A packet that was received, and the descriptors that came with it. */
struct received {
	uint8_t data[sizeof(struct proto_fabric_request) + PROTO_FABRIC_INLINE];
	union {
		char bytes[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
};

/* Several at once, since each call to the kernel costs more than what a MAD does here. */
static int packets_receive(const struct connection *connection, struct received *received,
			   struct mmsghdr *messages)
{
	struct iovec data[PACKETS_AT_ONCE];
	int count;

	for (unsigned int i = 0; i < PACKETS_AT_ONCE; i++) {
		data[i] = (struct iovec){received[i].data, sizeof received[i].data};
		messages[i].msg_hdr = (struct msghdr){
			.msg_iov = &data[i],
			.msg_iovlen = 1,
			.msg_control = received[i].control.bytes,
			.msg_controllen = sizeof received[i].control.bytes,
		};
	}
	do
		count = recvmmsg(connection->watched.fd, messages, PACKETS_AT_ONCE,
				 MSG_DONTWAIT | MSG_CMSG_CLOEXEC, NULL);
	while (count < 0 && errno == EINTR);
	return count < 0 ? -errno : count;
}

/* Takes the packet's descriptors; the places that are left over get -1. */
static void descriptors_take(struct msghdr *message, int fds[PROTO_MAX_FDS])
{
	struct cmsghdr *control = message->msg_controllen ? CMSG_FIRSTHDR(message) : NULL;
	size_t count = 0;

	if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
		count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (count > PROTO_MAX_FDS)
		count = PROTO_MAX_FDS;
	if (count)
		memcpy(fds, CMSG_DATA(control), count * sizeof(int));
	while (count < PROTO_MAX_FDS)
		fds[count++] = -1;
}

/* `is_over`: an earlier packet has ended the connection, so that only descriptors are closed. */
static int packet_take(struct connection *connection, const struct received *received,
		       struct mmsghdr *message, bool is_over)
{
	int fds[PROTO_MAX_FDS];
	int result = 0;

	descriptors_take(&message->msg_hdr, fds);
	if (is_over)
		result = -ECANCELED;
	else if (!message->msg_len)
		result = -EPIPE;
	else if (message->msg_hdr.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		result = -EPROTO;
	else
		result = packet_handle(connection, received->data, message->msg_len, fds[0]);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return result;
}

static void connection_ready(struct server *server, struct watched *watched, uint32_t events)
{
	static struct received received[PACKETS_AT_ONCE];
	struct connection *connection = container_of(watched, struct connection, watched);
	struct mmsghdr messages[PACKETS_AT_ONCE];
	int count, result = 0;

	if (events & EPOLLOUT)
		unread_send(connection);
	count = packets_receive(connection, received, messages);
	if (count < 0 && count != -EAGAIN)
		result = count;
	for (int i = 0; i < count; i++) {
		int error = packet_take(connection, &received[i], &messages[i], result != 0);

		if (!result)
			result = error;
		/* Each MAD's answer goes out before the next is handled. */
		server_pump(server);
	}
	if (result == -EPROTO)
		log_warn("process %d sent what is no request of libibumad: its connection is "
			 "closed",
			 (int)connection->pid);
	if (result)
		connection_free(connection);
}

void connection_accept(struct server *server, int fd)
{
	struct ucred peer = {.pid = 0, .uid = (uid_t)-1};
	socklen_t size = sizeof peer;
	struct connection *connection;

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	connection = server->connection_count < SERVER_CONNECTIONS_MAX &&
				     (peer.uid == geteuid() || !peer.uid)
			     ? calloc(1, sizeof *connection)
			     : NULL;
	if (!connection || server_watch(server, &connection->watched, fd, EPOLLIN) < 0) {
		free(connection);
		close(fd);
		return;
	}
	connection->server = server;
	connection->watched.ready = connection_ready;
	connection->pid = peer.pid;
	connection->uid = peer.uid;
	list_init(&connection->unread);
	list_add_tail(&server->connections, &connection->node);
	server->connection_count++;
}
