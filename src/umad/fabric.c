/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The backend whose one device is a node of a fabric (verbena-fabric, proto/fabric.h). A program is
 * on the node that VERBENA_NODE names; empty: the first one of the topology.
 *
 * A port is a connection, which the program polls. A table has what the connection doesn't tell:
 * which agents are registered, since a send to another one must fail at once. The answers of the
 * fabric come on sockets of their own, as what comes on the port's is for the program. When
 * the fabric has ended, a port goes on with the next one while the program waits for messages
 * (node_return()). Any thread. A program that closes a port while it uses it has no right to any
 * result.
 */
#include "umad/fabric.h"

#include "base/env.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/call.h"
#include "client/rundir.h"
#include "proto/fabric.h"
#include "proto/proto.h"
#include "umad/backend.h"
#include "umad/memory.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DEVICE_NAME "verbena0"
#define NODE_VARIABLE "VERBENA_NODE"
#define MAD_BYTES_MIN 36 /* a header of RMPP: what Linux wants at least */
#define MAD_BYTES_ONE 256
#define MESSAGE_BYTES_MAX (8u << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* How long the fabric may take for an answer. */
#define ANSWER_MS 10000

/* Connecting ----------------------------------------------------------------------------------- */

/* A connection to the fabric, or a negative errno, which people are told once in a process. */
static int fabric_connect(bool is_telling)
{
	static bool is_told;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[RUNDIR_MAX];
	int fd, error, result = rundir_find(directory, sizeof directory);

	if (result)
		return result;
	snprintf(address.sun_path, sizeof address.sun_path, "%.96s/%s", directory,
		 PROTO_FABRIC_SOCKET);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!sys_connect(fd, (struct sockaddr *)&address, sizeof address))
		return fd;
	error = errno;
	sys_close(fd);
	if (is_telling && !__atomic_exchange_n(&is_told, true, __ATOMIC_RELAXED))
		fprintf(stderr,
			"verbena: no fabric runs in %s (%s), so node \"%s\" has no device: start "
			"one with `verbena fabric up`\n",
			directory, strerror(error), env_get(NODE_VARIABLE));
	return -error;
}

/* Waits for one answer of that size. 0 or a negative errno. */
static int answer_receive(int socket, void *answer, size_t bytes)
{
	struct pollfd wait = {.fd = socket, .events = POLLIN};
	int fds[PROTO_MAX_FDS];
	ssize_t got;

	if (sys_poll(&wait, 1, ANSWER_MS) != 1)
		return -EIO;
	got = packet_receive(socket, answer, bytes, fds, MSG_DONTWAIT);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	return got == (ssize_t)bytes ? 0 : -EIO;
}

/* Asks about this process's node on a new connection, which is returned. */
static int node_ask(enum proto_fabric_kind kind, int port, void *answer, size_t bytes,
		    bool is_telling)
{
	const char *name = env_get(NODE_VARIABLE);
	struct proto_fabric_named named = {
		.request = {PROTO_FABRIC_ABI, kind},
		.port = (uint32_t)port,
	};
	int fd, result;

	memset(answer, 0, bytes);
	if (!name || strlen(name) >= sizeof named.node)
		return -ENODEV;
	strcpy(named.node, name);
	fd = fabric_connect(is_telling);
	if (fd < 0)
		return fd;
	result = packet_send(fd, &named, sizeof named, NULL, 0, 0);
	if (!result)
		result = answer_receive(fd, answer, bytes);
	if (!result)
		return fd;
	sys_close(fd);
	return result;
}

/* Devices -------------------------------------------------------------------------------------- */

static int node_query(struct proto_fabric_device *device)
{
	int fd = node_ask(PROTO_FABRIC_QUERY, 0, device, sizeof *device, true);

	if (fd < 0)
		return fd;
	sys_close(fd);
	return device->result;
}

static int node_list(char names[][UMAD_CA_NAME_LEN], int max)
{
	struct proto_fabric_device device;
	int result = max > 0 ? node_query(&device) : -ENOSPC;

	if (result == -ENOENT)
		fprintf(stderr, "verbena: the fabric has no node \"%s\" (" NODE_VARIABLE ")\n",
			env_get(NODE_VARIABLE));
	if (result)
		return 0;
	strcpy(names[0], DEVICE_NAME);
	return 1;
}

/* A port as it is described, in allocated memory. */
static struct umad_port *port_create(const struct proto_fabric_port *from)
{
	struct umad_port *port = calloc(1, sizeof *port);
	uint32_t pkeys = from->pkeys < PROTO_FABRIC_PKEYS ? from->pkeys : PROTO_FABRIC_PKEYS;
	uint16_t *table = calloc(pkeys + 1, sizeof *table);

	if (!port || !table) {
		free(port);
		free(table);
		return NULL;
	}
	memcpy(table, from->pkey, pkeys * sizeof *table);
	*port = (struct umad_port){
		.ca_name = DEVICE_NAME,
		.portnum = (int)from->number,
		.base_lid = from->lid,
		.lmc = from->lmc,
		.sm_lid = from->sm_lid,
		.sm_sl = from->sm_sl,
		.state = from->state,
		.phys_state = from->physical,
		.rate = from->rate,
		.capmask = htobe32(from->capabilities),
		.gid_prefix = htobe64(from->prefix),
		.port_guid = htobe64(from->guid),
		.pkeys_size = pkeys,
		.pkeys = table,
		.link_layer = "InfiniBand",
	};
	return port;
}

static void ports_release(struct umad_ca *ca)
{
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (ca->ports[i])
			free(ca->ports[i]->pkeys);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
}

static int node_describe(const char *name, struct umad_ca *ca)
{
	struct proto_fabric_device device;
	int result = strcmp(name, DEVICE_NAME) ? -ENOENT : node_query(&device);

	if (result)
		return result;
	strcpy(ca->ca_name, DEVICE_NAME);
	strcpy(ca->fw_ver, VERBENA_VERSION);
	strcpy(ca->ca_type, "Verbena");
	strcpy(ca->hw_ver, "0");
	ca->node_type = device.type;
	ca->numports = (int)device.numports;
	ca->node_guid = htobe64(device.guid);
	ca->system_guid = htobe64(device.system_guid);
	for (uint32_t i = 0; i < device.ports && i < PROTO_FABRIC_PORTS; i++) {
		const struct proto_fabric_port *port = &device.port[i];

		if (port->number >= UMAD_CA_MAX_PORTS || ca->ports[port->number])
			continue;
		ca->ports[port->number] = port_create(port);
		if (!ca->ports[port->number]) {
			ports_release(ca);
			return -ENOMEM;
		}
	}
	return 0;
}

static int node_issm_path(const char *name, int port, char *path, size_t size)
{
	struct proto_fabric_path answer;
	int fd = strcmp(name, DEVICE_NAME)
			 ? -ENODEV
			 : node_ask(PROTO_FABRIC_ISSM, port, &answer, sizeof answer, true);

	if (fd < 0)
		return fd;
	sys_close(fd);
	answer.path[sizeof answer.path - 1] = 0;
	if (answer.result)
		return answer.result;
	if (strlen(answer.path) >= size)
		return -EINVAL;
	strcpy(path, answer.path);
	return 0;
}

/* Open ports ----------------------------------------------------------------------------------- */

/* By descriptor: PORT_IS_OPEN, and bit n for agent n. */
#define PORTS_MAX MEMORY_PORTS
#define PORT_IS_OPEN (1ull << 63)
static uint64_t open_ports[PORTS_MAX];

static uint64_t *port_place(int fd)
{
	return fd >= 0 && fd < PORTS_MAX ? &open_ports[fd] : NULL;
}

static void port_note(int fd, uint32_t agent, bool is_registered)
{
	uint64_t bit = 1ull << agent;

	if (is_registered)
		__atomic_fetch_or(port_place(fd), bit, __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(port_place(fd), ~bit, __ATOMIC_RELAXED);
}

/* 0; -EBADF: no port of ours; -EIO: it has no such agent. */
static int port_check(int fd, uint32_t agent)
{
	uint64_t *place = port_place(fd);
	uint64_t port = place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;

	if (!(port & PORT_IS_OPEN))
		return -EBADF;
	return port >> agent & 1 ? 0 : -EIO;
}

/* A new connection of the port, non-blocking. */
static int port_connect(int number, bool is_telling)
{
	struct proto_fabric_result answer;
	int fd = node_ask(PROTO_FABRIC_OPEN, number, &answer, sizeof answer, is_telling);

	if (fd < 0)
		return fd == -ENODEV ? fd : -EIO;
	if (answer.result) {
		sys_close(fd);
		return answer.result == -ENODEV ? -EINVAL : answer.result;
	}
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
		sys_close(fd);
		return -EMFILE;
	}
	return fd;
}

static int node_open(const char *name, int number)
{
	int fd;

	if (strcmp(name, DEVICE_NAME))
		return -ENODEV;
	fd = port_connect(number, true);
	if (fd < 0)
		return fd;
	if (memory_open(fd, number)) {
		sys_close(fd);
		return -EMFILE;
	}
	/* A port that the program ended by close() may have left its entry: it is replaced. */
	__atomic_store_n(port_place(fd), PORT_IS_OPEN, __ATOMIC_RELAXED);
	return fd;
}

static int node_close(int fd)
{
	uint64_t *place = port_place(fd);

	if (!place || !(__atomic_exchange_n(place, 0, __ATOMIC_RELAXED) & PORT_IS_OPEN))
		return -EBADF;
	memory_close(fd);
	sys_close(fd);
	return 0;
}

/* Sending -------------------------------------------------------------------------------------- */

/* Sends a packet on the port's non-blocking socket, and waits until it has room, as the fabric
 * always reads. */
static int port_send(int fd, const void *data, size_t bytes, int beside)
{
	struct pollfd wait = {.fd = fd, .events = POLLOUT};

	for (;;) {
		int result = packet_send(fd, data, bytes, &beside, beside >= 0, 0);

		if (result != -EAGAIN)
			return result == -EPIPE || result == -ECONNRESET ? -EIO : result;
		if (sys_poll(&wait, 1, -1) < 0 && errno != EINTR)
			return -errno;
	}
}

/* Sends a request about agents with a socket for the answer. */
static int agent_ask(int fd, const struct proto_fabric_register *request,
		     struct proto_fabric_agent *answer)
{
	int pair[2];
	int result;

	*answer = (struct proto_fabric_agent){0};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	result = port_send(fd, request, sizeof *request, pair[1]);
	sys_close(pair[1]);
	if (!result)
		result = answer_receive(pair[0], answer, sizeof *answer);
	sys_close(pair[0]);
	return result;
}

static int node_register(int fd, int qpn, struct umad_reg_attr *attr, uint32_t *agent)
{
	struct proto_fabric_register request = {
		.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_REGISTER},
		.qpn = (uint32_t)qpn,
		.mgmt_class = attr->mgmt_class,
		.mgmt_class_version = attr->mgmt_class_version,
		.flags = attr->flags,
		.oui = attr->oui,
		.rmpp_version = attr->rmpp_version,
		.method_mask = {attr->method_mask[0], attr->method_mask[1]},
	};
	struct proto_fabric_agent answer;
	int result = port_check(fd, 0);

	if (result == -EBADF)
		return result;
	result = agent_ask(fd, &request, &answer);
	if (result)
		return result;
	attr->flags = answer.flags;
	if (answer.result)
		return answer.result;
	if (answer.id >= UMAD_CA_MAX_AGENTS)
		return -EIO;
	*agent = answer.id;
	memory_agent(fd, answer.id, &request);
	port_note(fd, answer.id, true);
	return 0;
}

static int node_unregister(int fd, uint32_t agent)
{
	struct proto_fabric_register request = {
		.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_UNREGISTER},
		.id = agent,
	};
	struct proto_fabric_agent answer;
	int result = agent < UMAD_CA_MAX_AGENTS ? port_check(fd, agent) : -EINVAL;

	if (result)
		return result == -EBADF ? result : -EINVAL;
	result = agent_ask(fd, &request, &answer);
	if (!result)
		result = answer.result;
	if (!result) {
		port_note(fd, agent, false);
		memory_agent(fd, agent, NULL);
	}
	return result;
}

/* A message that is too long for a packet. */
static int long_send(int fd, const void *packet, size_t bytes)
{
	struct proto_fabric_request request = {PROTO_FABRIC_ABI, PROTO_FABRIC_MAD};
	int file = memfd_create("verbena-mad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int result = 0;

	if (file < 0)
		return -errno;
	if (sys_write(file, packet, bytes) != (ssize_t)bytes || fcntl(file, F_ADD_SEALS, SEALS) < 0)
		result = -ENOMEM;
	if (!result)
		result = port_send(fd, &request, sizeof request, file);
	sys_close(file);
	return result;
}

static int short_send(int fd, const void *packet, size_t bytes)
{
	struct proto_fabric_request request = {PROTO_FABRIC_ABI, PROTO_FABRIC_MAD};
	uint8_t buffer[sizeof request + sizeof(struct ib_user_mad) + MAD_BYTES_ONE];
	uint8_t *joined = buffer;
	int result;

	if (sizeof request + bytes > sizeof buffer)
		joined = malloc(sizeof request + bytes);
	if (!joined)
		return -ENOMEM;
	memcpy(joined, &request, sizeof request);
	memcpy(joined + sizeof request, packet, bytes);
	result = port_send(fd, joined, sizeof request + bytes, -1);
	if (joined != buffer)
		free(joined);
	return result;
}

static int node_send(int fd, const void *packet, size_t bytes)
{
	const struct ib_user_mad *header = packet;
	int result;

	if (bytes < sizeof *header + MAD_BYTES_MIN || bytes > sizeof *header + MESSAGE_BYTES_MAX ||
	    header->agent_id >= UMAD_CA_MAX_AGENTS)
		return -EINVAL;
	result = port_check(fd, header->agent_id);
	if (result)
		return result;
	/* Before it is sent, as its answer may come at once. */
	memory_sent(fd, packet, bytes);
	result = bytes > PROTO_FABRIC_INLINE ? long_send(fd, packet, bytes)
					     : short_send(fd, packet, bytes);
	if (result)
		memory_unsent(fd, packet);
	return result;
}

/* Receiving ------------------------------------------------------------------------------------ */

/* Receives or looks at the next packet; `file` gets what came beside, or -1. */
static ssize_t port_receive(int fd, void *data, size_t bytes, int *file, int flags)
{
	int fds[PROTO_MAX_FDS];
	ssize_t got = packet_receive(fd, data, bytes, fds, MSG_DONTWAIT | flags);

	*file = fds[0];
	for (unsigned int i = 1; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	return !got || got == -ECONNRESET ? -ENOTCONN : got; /* the fabric has ended */
}

/* The whole of a message whose packet has its beginning only. */
static ssize_t file_receive(int file, void *packet, size_t bytes)
{
	ssize_t got = file < 0 ? -EIO : sys_pread(file, packet, bytes, 0);

	return got == (ssize_t)bytes ? got : -EIO;
}

/* As from a umad device: a message that is too long for the caller stays, and the caller gets its
 * header with the length. */
static ssize_t node_receive(int fd, void *packet, size_t bytes)
{
	struct ib_user_mad header;
	int file;
	ssize_t got = port_receive(fd, &header, sizeof header, &file, MSG_PEEK);

	if (file >= 0)
		sys_close(file);
	if (got == -ENOTCONN && port_check(fd, 0) != -EBADF) {
		got = memory_unanswered(fd, packet, bytes);
		return got ? got : -ENOTCONN;
	}
	if (got < 0 && got != -EMSGSIZE)
		return got;
	if (bytes < sizeof header)
		return -EINVAL;
	if (header.length > bytes) {
		got = port_receive(fd, packet,
				   bytes < sizeof header + MAD_BYTES_ONE
					   ? bytes
					   : sizeof header + MAD_BYTES_ONE,
				   &file, MSG_PEEK);
		if (file >= 0)
			sys_close(file);
		return got < 0 && got != -EMSGSIZE ? got : -ENOSPC;
	}
	got = port_receive(fd, packet, bytes, &file, 0);
	if (got >= (ssize_t)sizeof header && header.length > (size_t)got)
		got = file_receive(file, packet, header.length);
	if (file >= 0)
		sys_close(file);
	if (got > 0)
		memory_came(fd, packet, (size_t)got);
	return got;
}

/* A fabric that has ended --------------------------------------------------------------------- */

/* Registers what has the lowest free number, which must be `id`. 0 or a negative errno. */
static int agent_again(int fresh, uint32_t id, const struct proto_fabric_register *request)
{
	struct proto_fabric_agent answer;
	int result = agent_ask(fresh, request, &answer);

	if (!result)
		result = answer.result;
	return !result && answer.id != id ? -EIO : result;
}

static void agent_end(int fresh, uint32_t id)
{
	const struct proto_fabric_register request = {
		.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_UNREGISTER},
		.id = id,
	};
	struct proto_fabric_agent answer;

	agent_ask(fresh, &request, &answer);
}

/* Registers the port's agents on a new connection, with their numbers, as the program knows them.
 * Meanwhile an agent without methods has each number that isn't in use. 0 or a negative errno: the
 * connection is of no use. */
static int agents_again(int port, int fresh)
{
	static const struct proto_fabric_register filler = {
		.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_REGISTER},
		.qpn = 1,
		.mgmt_class = 0x03,
		.mgmt_class_version = 2,
	};
	struct proto_fabric_register request;
	uint32_t used = 0;
	int result = 0;

	for (uint32_t id = 0; id < UMAD_CA_MAX_AGENTS; id++)
		used |= (uint32_t)memory_agent_get(port, id, &request) << id;
	for (uint32_t id = 0; used >> id && !result; id++)
		result = agent_again(fresh, id,
				     memory_agent_get(port, id, &request) ? &request : &filler);
	for (uint32_t id = 0; used >> id && !result; id++)
		if (!(used >> id & 1))
			agent_end(fresh, id);
	return result;
}

/* A descriptor that can be read when a fabric may have begun to listen, or -1. It stays open for
 * the process's life. */
static int changes_watch(void)
{
	static _Atomic int watch = -1;
	char directory[RUNDIR_MAX], events[4096];
	int fd = watch;

	if (fd < 0) {
		int none = -1;

		fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		if (fd >= 0 && !atomic_compare_exchange_strong(&watch, &none, fd)) {
			sys_close(fd);
			fd = none;
		}
	}
	/* The directory may be another one than before. */
	if (fd < 0 || rundir_find(directory, sizeof directory) ||
	    inotify_add_watch(fd, directory, IN_CREATE | IN_MOVED_TO | IN_ATTRIB) < 0)
		return -1;
	while (sys_read(fd, events, sizeof events) > 0)
		;
	return fd;
}

/* Whether the port's connection has ended: what it has received was read before. */
static bool port_has_ended(int fd)
{
	char byte;

	return recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static struct mutex return_lock = MUTEX_INITIALIZER(RANK_UMAD_RETURN);
FORK_KEEP(return_lock);

/* The new connection takes the descriptor of the old one, so the program, and threads that wait,
 * go on with it. */
static int port_replace(int fd) REQUIRES(return_lock)
{
	int fresh = port_connect(memory_number(fd), false);
	int result = fresh < 0 ? fresh : agents_again(fd, fresh);

	if (!result && dup3(fresh, fd, O_CLOEXEC) < 0)
		result = -errno;
	if (fresh >= 0)
		sys_close(fresh);
	return result;
}

static int node_return(int fd, int *changed)
{
	int result = 0;

	if (memory_number(fd) < 0)
		return -EIO;
	/* Watched first: a fabric that begins after the attempt isn't missed. */
	*changed = changes_watch();
	mutex_take(&return_lock);
	if (port_has_ended(fd))
		result = port_replace(fd);
	mutex_give(&return_lock);
	return result ? -EAGAIN : 0;
}

const struct umad_backend backend_fabric = {
	.devices_list = node_list,
	.device_query = node_describe,
	.issm_path = node_issm_path,
	.port_open = node_open,
	.port_close = node_close,
	.agent_register = node_register,
	.agent_unregister = node_unregister,
	.packet_send = node_send,
	.packet_receive = node_receive,
	.port_return = node_return,
	.is_near = true,
};

__attribute__((constructor)) static void fabric_choose(void)
{
	if (env_get(NODE_VARIABLE))
		backend_choose(&backend_fabric);
}
