/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a fabric says of a node; see node_facts.h. The socket `fabric` has what libibumad shows of
 * the device, the control socket its counters and texts. One thread.
 */
#include "cli/node_facts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/fabric.h"
#include "client/call.h"
#include "client/rundir.h"
#include "proto/proto.h"

#define ANSWER_LIMIT_S 10

/* A connection to the fabric, or -errno. */
static int facts_connect(void)
{
	const struct timeval limit = {.tv_sec = ANSWER_LIMIT_S};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[RUNDIR_MAX];
	int fd, error = rundir_find(directory, sizeof(directory));

	if (error)
		return error;
	snprintf(address.sun_path, sizeof(address.sun_path), "%." RUNDIR_MAX_TEXT "s/%s", directory,
		 PROTO_FABRIC_SOCKET);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	error = -errno;
	close(fd);
	/* -ENOENT means that there is no such node. */
	return error == -ENOENT ? -ECONNREFUSED : error;
}

/* Sends the question and receives the device. Returns 0 or -errno. */
static int device_exchange(int fd, const struct proto_fabric_named *question,
			   struct proto_fabric_device *device)
{
	int fds[PROTO_MAX_FDS];
	int error = packet_send(fd, question, sizeof(*question), NULL, 0, 0);
	ssize_t got;

	if (error)
		return error;
	got = packet_receive(fd, device, sizeof(*device), fds, 0);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (got < 0)
		return (int)got;
	if (got != (ssize_t)sizeof(*device) || device->ports > PROTO_FABRIC_PORTS)
		return -EPROTO;
	for (uint32_t i = 0; i < device->ports; i++)
		if (device->port[i].pkeys > PROTO_FABRIC_PKEYS)
			return -EPROTO;
	return device->result;
}

static int device_ask(const char *name, struct proto_fabric_device *device)
{
	struct proto_fabric_named question = {.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_QUERY}};
	int fd, error;

	if (strlen(name) >= sizeof(question.node))
		return -ENOENT;
	strcpy(question.node, name);
	fd = facts_connect();
	if (fd < 0)
		return fd;
	error = device_exchange(fd, &question, device);
	close(fd);
	return error;
}

int node_facts_ask(const char *name, struct node_facts *facts)
{
	char guid[24];
	json_t *reply;
	int error = device_ask(name, &facts->device);

	facts->node = NULL;
	if (error)
		return error;
	/* By its GUID, as an empty name is none there. */
	snprintf(guid, sizeof(guid), "0x%016" PRIx64, facts->device.guid);
	reply = fabric_ask_silently(json_pack("{s:s, s:s}", "op", "node", "node", guid));
	if (!reply)
		return -EPROTO;
	facts->node = json_incref(json_object_get(reply, "node"));
	json_decref(reply);
	return facts->node ? 0 : -EPROTO;
}

void node_facts_free(struct node_facts *facts)
{
	json_decref(facts->node);
	facts->node = NULL;
}
