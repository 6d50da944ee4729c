/* SPDX-License-Identifier: BSD-2-Clause */
/* Nodes: their life, the fabric's tables, addresses. See cm_node.h. */
#include "daemon/cm/cm_node.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "daemon/cm/cm_fabric.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "fabric/internal.h"
#include "proto/fabric.h"
#include "proto/proto.h"
#include "wire/ip.h"

/* ------------------------------------------------------------------ the tables */

/* Asks for the node's row and the tables' file. */
static int node_tables_ask(const char *directory, const char *name, uint32_t *row, int *file)
{
	struct proto_fabric_tables answer;
	int fds[PROTO_MAX_FDS] = {-1, -1, -1, -1};
	int socket = cm_fabric_ask(directory, PROTO_FABRIC_TABLES, name, 0);

	if (socket < 0)
		return socket;
	struct pollfd wait = {.fd = socket, .events = POLLIN};
	ssize_t got = poll(&wait, 1, CM_FABRIC_WAIT_MS) == 1
			      ? packet_receive(socket, &answer, sizeof(answer), fds, MSG_DONTWAIT)
			      : -ETIMEDOUT;

	close(socket);
	for (unsigned int i = 1; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	*file = fds[0];
	if (got != sizeof(answer) || *file < 0)
		return -EIO;
	*row = answer.node;
	return answer.result == -ENOENT ? -ENODEV : answer.result;
}

static uint64_t file_number(const struct stat *st)
{
	return (uint64_t)st->st_ino << 16 ^ (uint64_t)st->st_dev ^ 1ull << 63;
}

int cm_node_check(const struct cm_node *node)
{
	struct stat st;
	uint32_t row;
	int file = -1;
	int err = node_tables_ask(node->service->server->dir, node->name, &row, &file);

	if (!err && (fstat(file, &st) < 0 || file_number(&st) != node->fabric))
		err = -ESTALE;
	if (file >= 0)
		close(file);
	return err;
}

static int node_tables_map(struct cm_node *node, int file, uint32_t row)
{
	struct stat st;

	if (fstat(file, &st) < 0)
		return -errno;
	void *memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, file, 0);

	if (memory == MAP_FAILED)
		return -errno;
	node->bytes = (size_t)st.st_size;
	node->fabric = file_number(&st);
	int err = fabric_view(&node->tables, memory, node->bytes);

	if (!err &&
	    (row >= node->tables.header->nodes || node->tables.nodes[row].type == FABRIC_SWITCH))
		err = -ENODEV;
	if (err) {
		munmap(memory, node->bytes);
		node->bytes = 0;
	}
	return err;
}

/* ------------------------------------------------------------------ life */

/* The port with an address, else the first one. */
static uint32_t node_choose_port(const struct fabric *tables, uint32_t row)
{
	const struct fabric_node *own = &tables->nodes[row];

	for (uint32_t number = 1; number <= own->ports; number++)
		if (fabric_ip_get(tables, own->first_port + number))
			return own->first_port + number;
	return own->first_port + 1;
}

static void node_fill_device(struct cm_node *node, uint32_t row)
{
	struct device *device = &node->device;

	*device = (struct device){.present = true, .listener = {.fd = -1}};
	snprintf(device->name, sizeof(device->name), "%s", DEVICE_NAME);
	octets_put64(device->guid, node->tables.nodes[row].guid);
}

static void cm_node_free(struct cm_node *node)
{
	cm_node_close(node);
	timer_cancel(&node->again);
	if (node->bytes)
		munmap(node->tables.header, node->bytes);
	cm_ports_fini(&node->ports);
	list_del(&node->node);
	free(node->by_number);
	free(node);
}

static int node_ports_make(struct cm_node *node, uint32_t row)
{
	const struct fabric_node *own = &node->tables.nodes[row];

	node->by_number = calloc(own->ports, sizeof(*node->by_number));
	if (!node->by_number)
		return -ENOMEM;
	node->port_count = own->ports;
	for (uint32_t i = 0; i < own->ports; i++)
		node->by_number[i] = (struct cm_node_port){
			.node = node, .row = own->first_port + 1 + i, .watch = {.fd = -1}};
	node->port = node_choose_port(&node->tables, row);
	return 0;
}

static int cm_node_make(struct cm_service *service, const char *name, int file, uint32_t row,
			struct cm_node **out)
{
	struct cm_node *node = calloc(1, sizeof(*node));

	if (!node)
		return -ENOMEM;
	node->service = service;
	cm_node_link_init(node);
	list_init(&node->node);
	list_init(&node->queries);
	list_init(&node->joins);
	snprintf(node->name, sizeof(node->name), "%s", name);
	int err = cm_ports_init(&node->ports);

	if (!err)
		err = node_tables_map(node, file, row);
	if (!err)
		err = node_ports_make(node, row);
	if (err) {
		cm_node_free(node);
		return err;
	}
	node_fill_device(node, row);
	node->number = ++service->last_node;
	list_add_tail(&service->nodes, &node->node);
	*out = node;
	return 0;
}

/* The node that clients are on already, in the fabric of this file. */
static struct cm_node *node_find(const struct cm_service *service, int file, uint32_t row)
{
	struct stat st;

	if (fstat(file, &st) < 0)
		return NULL;
	list_for_each(at, (struct list *)&service->nodes) {
		struct cm_node *node = container_of(at, struct cm_node, node);

		if (node->fabric == file_number(&st) && node->tables.ports[node->port].node == row)
			return node;
	}
	return NULL;
}

int cm_node_get(struct cm_service *service, const char *name, struct cm_node **out)
{
	uint32_t row;
	int file = -1;
	int err = node_tables_ask(service->server->dir, name, &row, &file);
	struct cm_node *node = err ? NULL : node_find(service, file, row);

	if (!err && !node)
		err = cm_node_make(service, name, file, row, &node);
	if (file >= 0)
		close(file);
	if (err)
		return err;
	node->clients++;
	*out = node;
	err = cm_node_open(node);
	if (err)
		cm_node_put(node);
	return err;
}

void cm_node_put(struct cm_node *node)
{
	if (!--node->clients)
		cm_node_free(node);
}

struct cm_node *cm_node_by_number(const struct cm_service *service, uint32_t number)
{
	list_for_each(at, (struct list *)&service->nodes) {
		struct cm_node *node = container_of(at, struct cm_node, node);

		if (node->number == number)
			return node;
	}
	return NULL;
}

struct cm_node_port *cm_node_port_by_lid(const struct cm_node *node, uint16_t lid)
{
	for (uint32_t i = 0; i < node->port_count; i++)
		if (port_has_lid(&node->tables.ports[node->by_number[i].row], lid))
			return &node->by_number[i];
	return NULL;
}

struct cm_node_port *cm_node_main(const struct cm_node *node)
{
	return &node->by_number[node->tables.ports[node->port].number - 1];
}

/* ------------------------------------------------------------------ addresses */

static bool is_loopback(const uint8_t address[16])
{
	static const uint8_t six[16] = {[15] = 1};

	return ip_is_v4(address) ? address[12] == 127 : !memcmp(address, six, sizeof(six));
}

bool cm_node_has(const struct cm_node *node, const uint8_t address[16])
{
	const struct fabric_ip *ip = fabric_ip_get(&node->tables, node->port);

	return is_loopback(address) || (ip && !memcmp(ip->address, address, sizeof(ip->address)));
}

bool cm_node_address(const struct cm_node *node, uint32_t version, uint8_t address[16])
{
	const struct fabric_ip *ip = fabric_ip_get(&node->tables, node->port);

	if (!ip || ip->version != version)
		return false;
	memcpy(address, ip->address, sizeof(ip->address));
	return true;
}

bool cm_node_has_gid(const struct cm_node *node, const uint8_t gid[16])
{
	uint8_t own[16];

	/* A GID that isn't set reads as the first one. */
	for (unsigned int i = 0; i < FABRIC_GUIDS; i++) {
		fabric_gid_get(&node->tables, node->port, i, own);
		if (!memcmp(own, gid, sizeof(own)))
			return true;
	}
	return false;
}

int cm_node_path_to_gid(const struct cm_node *node, const uint8_t gid[16], uint16_t pkey,
			struct cm_path *path)
{
	const struct fabric *tables = &node->tables;
	unsigned int index = 0;

	if (port_state(&tables->ports[node->port]) != PORT_ACTIVE)
		return -ENETUNREACH;
	if (pkey && !partition_key_matches(tables, node->port, pkey, &index))
		return -ENODEV;
	path->node = node->number;
	path->pkey = partition_key_get(tables, node->port, index);
	path->local_lid = port_lid(&tables->ports[node->port]);
	fabric_gid_get(tables, node->port, 0, path->local);
	memcpy(path->remote, gid, sizeof(path->remote));
	return 0;
}

bool cm_node_path_by_lids(const struct cm_node *node, uint16_t local, uint16_t remote,
			  struct cm_path *path)
{
	const struct fabric *tables = &node->tables;
	const struct cm_node_port *own = cm_node_port_by_lid(node, local);
	uint32_t to = fabric_lid_find(tables, remote);

	if (!own || to == FABRIC_NONE)
		return false;
	fabric_gid_get(tables, own->row, 0, path->local);
	fabric_gid_get(tables, to, 0, path->remote);
	path->local_lid = local;
	path->remote_lid = remote;
	return true;
}

int cm_node_path(const struct cm_node *node, const uint8_t address[16], struct cm_path *path)
{
	const struct fabric *tables = &node->tables;
	uint32_t to = is_loopback(address) ? node->port : fabric_ip_find(tables, address);
	uint8_t gid[16];

	if (to == FABRIC_NONE)
		return -EHOSTUNREACH;
	fabric_gid_get(tables, to, 0, gid);
	return cm_node_path_to_gid(node, gid, 0, path);
}
