/* SPDX-License-Identifier: BSD-2-Clause */
/* The port and its agents. One thread. */
#include "smd/port.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libibumad.so.3"
#define HEADER sizeof(struct ib_user_mad)

/* The agents: directed and LID-routed management, and administration. */
static const struct {
	int mgmt_class, version;
	uint8_t rmpp;
	uint8_t methods[6];
} agent_kinds[PORT_AGENTS] = {
	{0x81, 1, 0, {1, 2, 5, 7}},
	{0x01, 1, 0, {1, 2, 5, 7}},
	{0x03, 2, 1, {1, 2, 0x12, 0x14, 0x15}},
};

/* Finding -------------------------------------------------------------------------------------- */

static int library_load(struct umad_calls *calls)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	struct {
		const char *name;
		void *place;
	} wanted[] = {
		{"umad_init", &calls->init},
		{"umad_get_port", &calls->get_port},
		{"umad_release_port", &calls->release_port},
		{"umad_get_issm_path", &calls->get_issm_path},
		{"umad_open_port", &calls->open_port},
		{"umad_close_port", &calls->close_port},
		{"umad_register", &calls->register_agent},
		{"umad_send", &calls->send},
		{"umad_recv", &calls->receive},
	};

	if (!library) {
		log_error("cannot load " LIBRARY ": %s; `verbena sm --node NODE` uses Verbena's "
			  "own, else the system's is needed",
			  dlerror());
		return -ENOENT;
	}
	for (unsigned int i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		void *symbol = dlsym(library, wanted[i].name);

		if (!symbol) {
			log_error(LIBRARY " has no %s: it is too old", wanted[i].name);
			return -ENOSYS;
		}
		memcpy(wanted[i].place, &symbol, sizeof symbol);
	}
	return 0;
}

int smd_port_find(struct smd_port *port, const char *device, int number)
{
	umad_port_t found = {0};
	int result;

	*port = (struct smd_port){.fd = -1, .issm = -1, .room = HEADER + 4096};
	result = library_load(&port->calls);
	if (result)
		return result;
	port->buffer = malloc(port->room);
	if (!port->buffer)
		return -ENOMEM;
	port->calls.init();
	result = port->calls.get_port(device, number, &found);
	if (result) {
		log_error("there is no port of an InfiniBand device%s%s: is the fabric up, and is "
			  "the node one of its?",
			  device ? " called " : "", device ? device : "");
		return result < 0 ? result : -ENODEV;
	}
	memcpy(port->device, found.ca_name, sizeof port->device);
	port->number = found.portnum;
	port->guid = be64toh(found.port_guid);
	port->calls.release_port(&found);
	return 0;
}

/* Opening -------------------------------------------------------------------------------------- */

static void issm_take(struct smd_port *port)
{
	char path[PATH_MAX];

	if (!port->calls.get_issm_path(port->device, port->number, path, sizeof path))
		port->issm = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (port->issm < 0)
		log_warn("the port can't say that it has a subnet manager: other managers won't "
			 "see this one");
}

int smd_port_open(struct smd_port *port)
{
	port->fd = port->calls.open_port(port->device, port->number);
	if (port->fd < 0)
		return port->fd;
	for (int i = 0; i < PORT_AGENTS; i++) {
		long methods[16 / sizeof(long)] = {0};

		for (int k = 0; k < 6 && agent_kinds[i].methods[k]; k++)
			methods[agent_kinds[i].methods[k] / (8 * sizeof(long))] |=
				1l << agent_kinds[i].methods[k] % (8 * sizeof(long));
		port->agents[i] = port->calls.register_agent(port->fd, agent_kinds[i].mgmt_class,
							     agent_kinds[i].version,
							     agent_kinds[i].rmpp, methods);
		if (port->agents[i] < 0) {
			log_error("%s port %d: another program manages the subnet from there",
				  port->device, port->number);
			smd_port_close(port);
			return -EBUSY;
		}
	}
	issm_take(port);
	return 0;
}

void smd_port_close(struct smd_port *port)
{
	if (port->issm >= 0)
		close(port->issm);
	if (port->fd >= 0)
		port->calls.close_port(port->fd);
	port->issm = port->fd = -1;
}

void smd_port_free(struct smd_port *port)
{
	smd_port_close(port);
	free(port->buffer);
}

/* Messages ------------------------------------------------------------------------------------- */

static int agent_of(const struct smd_port *port, uint8_t mgmt_class)
{
	for (int i = 0; i < PORT_AGENTS; i++)
		if (agent_kinds[i].mgmt_class == mgmt_class)
			return port->agents[i];
	return -1;
}

static void peer_write(struct ib_mad_addr *address, const struct sm_peer *to)
{
	address->qpn = htonl(to->qpn);
	address->qkey = htonl(to->qkey);
	address->lid = htons(to->lid);
	address->sl = to->sl;
	address->pkey_index = to->pkey_index;
	address->grh_present = to->has_grh;
	if (!to->has_grh)
		return;
	address->hop_limit = to->hop_limit;
	address->traffic_class = to->traffic_class;
	address->flow_label = htonl(to->flow_label);
	memcpy(address->gid, to->gid, sizeof to->gid);
}

static void peer_read(const struct ib_mad_addr *address, struct sm_peer *from)
{
	*from = (struct sm_peer){
		.lid = ntohs(address->lid),
		.qpn = ntohl(address->qpn),
		.qkey = 0,
		.sl = address->sl,
		.pkey_index = address->pkey_index,
		.has_grh = address->grh_present,
		.hop_limit = address->hop_limit,
		.traffic_class = address->traffic_class,
		.flow_label = ntohl(address->flow_label),
	};
	memcpy(from->gid, address->gid, sizeof from->gid);
	/* QP 1 talks with one key everywhere. */
	if (from->qpn)
		from->qkey = 0x80010000u;
}

void smd_port_send(struct smd_port *port, const struct sm_peer *to, const uint8_t *mad,
		   size_t bytes, uint32_t timeout_ms)
{
	uint8_t small[HEADER + SM_MAD_BYTES];
	uint8_t *packet = bytes <= SM_MAD_BYTES ? small : malloc(HEADER + bytes);
	int agent = agent_of(port, mad[1]);

	if (packet && agent >= 0 && port->fd >= 0) {
		memset(packet, 0, HEADER);
		peer_write(&((struct ib_user_mad *)(void *)packet)->addr, to);
		memcpy(packet + HEADER, mad, bytes);
		/* What can't be sent is as lost as what the link loses. */
		port->calls.send(port->fd, agent, packet, (int)bytes, (int)timeout_ms, 0);
	}
	if (packet != small)
		free(packet);
}

static int smd_buffer_grow(struct smd_port *port, int length)
{
	size_t wanted = HEADER + (size_t)length;
	uint8_t *larger = NULL;

	if (length > 0 && wanted > port->room && wanted <= HEADER + SM_MESSAGE_BYTES_MAX)
		larger = realloc(port->buffer, wanted);
	if (!larger)
		return -ENOMEM;
	port->buffer = larger;
	port->room = wanted;
	return 0;
}

ssize_t smd_port_receive(struct smd_port *port, struct sm_peer *from, const uint8_t **mad)
{
	struct ib_user_mad *umad = (void *)port->buffer;
	int length = (int)(port->room - HEADER);
	int result = port->calls.receive(port->fd, port->buffer, &length, 0);

	if (result == -ENOSPC)
		return smd_buffer_grow(port, length);
	if (result < 0)
		return result == -EAGAIN || result == -EWOULDBLOCK || result == -ETIMEDOUT ? -EAGAIN
											   : -EIO;
	/* The manager counts its own timeouts. */
	if (umad->status || length < (int)SM_MAD_BYTES)
		return 0;
	peer_read(&umad->addr, from);
	*mad = port->buffer + HEADER;
	return length;
}
