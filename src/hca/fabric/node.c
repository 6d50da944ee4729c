/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding the node and mapping the fabric's tables. The one struct node is made once, under
 * node_lock, and never changes.
 */
#include "hca/fabric/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/call.h"
#include "client/rundir.h"
#include "proto/fabric.h"
#include "proto/proto.h"

#define NODE_VARIABLE "VERBENA_NODE"

/* How long the fabric may take for an answer. */
#define NODE_ANSWER_MS 10000

static struct mutex node_lock = MUTEX_INITIALIZER(RANK_NODE);
FORK_KEEP(node_lock);
static struct node *the_node;

bool node_is_named(void)
{
	return env_get(NODE_VARIABLE) != NULL;
}

/* ------------------------------------------------------------------ asking */

static int node_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[RUNDIR_MAX];
	int result = rundir_find(directory, sizeof(directory));

	if (result)
		return result;
	snprintf(address.sun_path, sizeof(address.sun_path), "%.*s/%s", (int)sizeof(directory) - 1,
		 directory, PROTO_FABRIC_SOCKET);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (!sys_connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	result = -errno;
	sys_close(fd);
	return result;
}

int node_connect(uint32_t kind, int fd)
{
	const char *name = env_get(NODE_VARIABLE);
	struct proto_fabric_named named = {.request = {PROTO_FABRIC_ABI, kind}};

	if (!name || strlen(name) >= sizeof(named.node))
		return -ENODEV;
	strcpy(named.node, name);
	int socket = node_socket();

	if (socket < 0)
		return socket;
	int result = packet_send(socket, &named, sizeof(named), &fd, fd >= 0, 0);

	if (!result)
		return socket;
	sys_close(socket);
	return result;
}

/* Waits for the answer of `bytes` and the descriptor beside it, or -1. 0 or a negative errno. */
static int node_answer(int socket, void *answer, size_t bytes, int *file)
{
	struct pollfd wait = {.fd = socket, .events = POLLIN};
	int fds[PROTO_MAX_FDS] = {-1, -1, -1, -1};
	ssize_t got = -EIO;

	if (sys_poll(&wait, 1, NODE_ANSWER_MS) == 1)
		got = packet_receive(socket, answer, bytes, fds, MSG_DONTWAIT);
	for (unsigned int i = 1; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	*file = fds[0];
	return got == (ssize_t)bytes ? 0 : -EIO;
}

/* Asks about this process's node: the answer of `bytes`, and the descriptor beside it, or -1. 0 or
 * a negative errno. */
static int node_inquire(uint32_t kind, void *answer, size_t bytes, int *file)
{
	int socket = node_connect(kind, -1);

	*file = -1;
	if (socket < 0)
		return socket;
	int result = node_answer(socket, answer, bytes, file);

	sys_close(socket);
	return result;
}

/* The node's row and the tables' file. 0 or a negative errno. */
static int node_ask_tables(uint32_t *row, int *file)
{
	struct proto_fabric_tables answer = {0};
	int result = node_inquire(PROTO_FABRIC_TABLES, &answer, sizeof(answer), file);

	if (!result)
		result = answer.result == -ENOENT ? -ENODEV : answer.result;
	if (!result && *file < 0)
		result = -EIO;
	*row = answer.node;
	return result;
}

int node_ask_clocks(int *file)
{
	struct proto_fabric_result answer;
	int result = node_inquire(PROTO_FABRIC_CLOCKS, &answer, sizeof(answer), file);

	if (!result)
		result = answer.result;
	return !result && *file < 0 ? -EIO : result;
}

/* ------------------------------------------------------------------ the tables */

/* Which fabric has its tables in this file. The mapping keeps the file, so that its number isn't
 * given to another one. */
static uint64_t fabric_number(const struct stat *st)
{
	return (uint64_t)st->st_ino << 16 ^ (uint64_t)st->st_dev ^ 1ull << 63;
}

static int node_map(struct node *node, int file)
{
	struct stat st;

	if (fstat(file, &st) < 0)
		return -errno;
	void *memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, file, 0);

	if (memory == MAP_FAILED)
		return -errno;
	int result = fabric_view(&node->tables, memory, (size_t)st.st_size);

	if (!result && node->row >= node->tables.header->nodes)
		result = -EINVAL;
	if (!result && node_own(node)->type == FABRIC_SWITCH)
		result = -ENODEV;
	if (result) {
		munmap(memory, (size_t)st.st_size);
		return result;
	}
	node->fabric = fabric_number(&st);
	node->ports = node_own(node)->ports;
	return 0;
}

static int node_make(struct node **out)
{
	struct node *node = calloc(1, sizeof(*node));
	int file = -1;

	if (!node)
		return -ENOMEM;
	int result = node_ask_tables(&node->row, &file);

	if (!result)
		result = node_map(node, file);
	if (file >= 0)
		sys_close(file);
	if (result)
		free(node);
	else
		*out = node;
	return result;
}

static void node_complain(int error)
{
	static bool is_told;

	if (is_told)
		return;
	is_told = true;
	if (error == -ENODEV)
		log_error("the fabric has no adapter \"%s\" (" NODE_VARIABLE "): `verbena fabric "
			  "show` names its nodes",
			  env_get(NODE_VARIABLE));
	else
		log_error("node \"%s\" (" NODE_VARIABLE ") has no device, since no fabric answers "
			  "(%s): start one with `verbena fabric up`",
			  env_get(NODE_VARIABLE), strerror(-error));
}

const struct node *node_get(void)
{
	int result = 0;

	mutex_take(&node_lock);
	if (!the_node)
		result = node_make(&the_node);
	if (result)
		node_complain(result);
	mutex_give(&node_lock);
	errno = -result;
	return the_node;
}

int node_check(const struct node *node)
{
	struct stat st;
	uint32_t row;
	int file = -1;
	int result = node_ask_tables(&row, &file);

	if (!result && fstat(file, &st) < 0)
		result = -errno;
	if (!result && (fabric_number(&st) != node->fabric || row != node->row))
		result = -ESTALE;
	if (file >= 0)
		sys_close(file);
	return result == -ENODEV ? -ESTALE : result;
}
