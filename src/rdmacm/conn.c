/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's connection to the node `rdma_cm`. See rdmacm.h.
 *
 * It is opened with the first channel, and stays open. The daemon's objects exist as long as it
 * does; when it breaks (the daemon ended), they are gone. Each object stores the generation of its
 * connection, and the next connection has another one. A forked child starts without a connection:
 * existing objects stay the parent's, new ones belong to the child.
 *
 * The daemon identifies the process by the socket's peer credentials, so this library doesn't need
 * the cookie, which only libibverbs' copy of the client code knows.
 */
#include "rdmacm/rdmacm.h"

#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/call.h"
#include "client/start.h"

static struct {
	struct mutex lock;
	int fd GUARDED_BY(lock); /* -1: none */
	uint32_t generation GUARDED_BY(lock);
} conn = {.lock = MUTEX_INITIALIZER(RANK_RDMACM_CONN), .fd = -1, .generation = 1};

static void disconnect_locked(void) REQUIRES(conn.lock)
{
	sys_hang_up(&conn.fd);
	conn.generation++;
}

static void conn_after_fork_in_child(void)
{
	mutex_init(&conn.lock, RANK_RDMACM_CONN);
	sys_end(&conn.fd); /* and no more: the connection is the parent's */
	conn.generation++;
}

__attribute__((constructor)) static void conn_watch_forks(void)
{
	pthread_atfork(NULL, NULL, conn_after_fork_in_child);
}

struct packet {
	struct rdma_ucm_cmd_hdr header;
	uint8_t body[PROTO_CM_MAX_MESSAGE - sizeof(struct rdma_ucm_cmd_hdr)];
};

static int packet_fill(struct packet *packet, uint32_t command, const void *body, size_t size,
		       size_t reply_size)
{
	if (size > sizeof(packet->body))
		return -EINVAL;
	packet->header = (struct rdma_ucm_cmd_hdr){command, size, reply_size};
	if (size)
		memcpy(packet->body, body, size);
	return 0;
}

static int exchange_locked(uint32_t command, const void *body, size_t size, void *reply,
			   size_t reply_size, int *fd) REQUIRES(conn.lock)
{
	struct packet request;
	int fds[PROTO_MAX_FDS];
	int err = packet_fill(&request, command, body, size, reply_size);

	if (err)
		return err;
	err = socket_call(conn.fd, &request, sizeof(request.header) + size, NULL, 0, reply,
			  reply_size, fd ? fds : NULL);

	if (!err && fd) {
		*fd = fds[0];
		for (unsigned int i = 1; i < PROTO_MAX_FDS; i++)
			if (fds[i] >= 0)
				sys_close(fds[i]);
	}
	return err;
}

bool cm_is_on_node(void)
{
	return env_get("VERBENA_NODE");
}

static int hello_locked(void) REQUIRES(conn.lock)
{
	struct proto_cm_hello hello = {.abi = PROTO_ABI};
	const char *node = env_get("VERBENA_NODE");

	if (node && strlen(node) >= sizeof(hello.node))
		return -ENODEV;
	if (node) {
		hello.flags = PROTO_CM_HELLO_NODE;
		strcpy(hello.node, node);
	}

	conn.fd = start_connect(PROTO_CM_NODE);
	if (conn.fd < 0) {
		int err = conn.fd;

		conn.fd = -1;
		return err;
	}
	int err = exchange_locked(PROTO_CM_HELLO, &hello, sizeof(hello), NULL, 0, NULL);

	if (err)
		disconnect_locked();
	return err;
}

int cm_conn_open(uint32_t *generation)
{
	mutex_take(&conn.lock);
	int err = conn.fd < 0 ? -EIO : 0;
	for (int i = 0; i < START_TRIES && err == -EIO; i++) {
		start_pause(i);
		err = hello_locked();
	}
	*generation = conn.generation;
	mutex_give(&conn.lock);
	/* The error of a host without connection manager. */
	return err == -EIO || err == -ECONNREFUSED || err == -ENOENT ? -ENODEV : err;
}

int cm_call(uint32_t generation, uint32_t command, const void *body, size_t size, void *reply,
	    size_t reply_size, int *fd)
{
	int err = -ENODEV;

	registry_pass();
	mutex_take(&conn.lock);
	if (conn.fd >= 0 && conn.generation == generation)
		err = exchange_locked(command, body, size, reply, reply_size, fd);
	if (err == -EIO) {
		log_warn("verbenad hung up: the connections of rdma_cm, and their ids, are lost");
		disconnect_locked();
		err = -ENODEV;
	}
	mutex_give(&conn.lock);
	return err;
}

int cm_post(uint32_t generation, uint32_t command, const void *body, size_t size)
{
	struct packet packet;
	int err = packet_fill(&packet, command | PROTO_POSTED, body, size, 0);

	if (err)
		return err;
	registry_pass();
	mutex_take(&conn.lock);
	if (conn.fd < 0 || conn.generation != generation ||
	    packet_send(conn.fd, &packet, sizeof(packet.header) + size, NULL, 0, 0))
		err = -ENODEV;
	mutex_give(&conn.lock);
	return err;
}
