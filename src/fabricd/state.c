/* SPDX-License-Identifier: BSD-2-Clause */
/* See state.h. A new file is made under another name and renamed when it is complete. */
#include "fabricd/state.h"

#include "base/log.h"
#include "fabricd/connection.h"
#include "fabricd/timing.h"
#include "topology/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_NEW STATE_FILE ".new"

int state_lock(struct server *server)
{
	int fd;

	server->directory = open(server->directory_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (server->directory < 0) {
		log_error("cannot open %s: %s", server->directory_path, strerror(errno));
		return -errno;
	}
	fd = openat(server->directory, STATE_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
		return 0; /* kept until the process ends */
	if (fd >= 0)
		close(fd);
	log_error("a fabric runs in %s already: end it with `verbena fabric down`",
		  server->directory_path);
	return -EBUSY;
}

/* From a topology to a plan -------------------------------------------------------------------- */

static void plan_node(const struct topology *topology, const struct topology_node *from,
		      struct fabric_plan_node *to)
{
	*to = (struct fabric_plan_node){
		.name = from->name,
		.description = from->description,
		.guid = from->guid,
		.system_guid = from->system_guid,
		.port_guid =
			topology->ports[from->first_port + (from->kind != TOPOLOGY_SWITCH)].guid,
		.vendor_id = from->vendor_id,
		.revision = 0xa1,
		.device_id = (uint16_t)from->device_id,
		.type = from->kind,
		.ports = from->ports,
		.has_base_port0 = from->has_base_port0,
	};
}

static uint8_t cable_width(const struct topology_port *port)
{
	return port->width;
}

static uint32_t plan_cables(const struct topology *topology, struct fabric_plan_cable *cables)
{
	uint32_t count = 0;

	for (uint32_t row = 0; row < topology->port_count; row++) {
		const struct topology_port *a = &topology->ports[row];
		const struct topology_port *b;

		if (a->peer == TOPOLOGY_NONE || a->peer < row)
			continue;
		b = &topology->ports[a->peer];
		cables[count++] = (struct fabric_plan_cable){
			.node = {a->node, b->node},
			.port = {a->number, b->number},
			.width = cable_width(a),
			.speed = {.basic = (uint8_t)topology_speed_basic(a->speed),
				  .ext = (uint8_t)topology_speed_extended(a->speed),
				  .ext2 = (uint8_t)topology_speed_extended2(a->speed)},
			.mtu = a->mtu,
			.delay_ns = a->delay_ns,
		};
	}
	return count;
}

static uint32_t plan_ips(const struct topology *topology, struct fabric_plan_ip *ips)
{
	uint32_t count = 0;

	for (uint32_t row = 0; row < topology->port_count; row++) {
		const struct topology_port *port = &topology->ports[row];
		const struct topology_address *address;
		struct fabric_plan_ip *to = &ips[count];

		if (port->address == TOPOLOGY_NONE)
			continue;
		address = &topology->addresses[port->address];
		to->node = port->node;
		to->port = port->number;
		to->ip = (struct fabric_ip){.version = address->is_ipv6 ? 6 : 4,
					    .prefix = address->prefix};
		if (!address->is_ipv6)
			to->ip.address[10] = to->ip.address[11] = 0xff;
		memcpy(to->ip.address + (address->is_ipv6 ? 0 : 12), address->bytes,
		       address->is_ipv6 ? 16 : 4);
		count++;
	}
	return count;
}

/* The first adapter: where programs attach that name no node. */
static uint32_t plan_first(const struct topology *topology)
{
	for (uint32_t i = 0; i < topology->node_count; i++)
		if (topology->nodes[i].kind == TOPOLOGY_CA)
			return i;
	return 0;
}

static void report_log(const char *path, const struct topology_report *report)
{
	for (uint32_t i = 0; i < report->count && i < TOPOLOGY_REMARKS; i++) {
		const struct topology_remark *remark = &report->remarks[i];

		if (remark->is_warning)
			log_warn("%s:%u: %s", path, remark->line, remark->text);
		else
			log_error("%s:%u: %s", path, remark->line, remark->text);
	}
	if (report->dropped)
		log_error("%s: %u more remarks", path, report->dropped);
}

/* The file ------------------------------------------------------------------------------------- */

static int state_map(struct server *server, int fd, size_t bytes)
{
	server->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (server->memory == MAP_FAILED)
		return -errno;
	server->bytes = bytes;
	return 0;
}

/* An empty file of that size under the new name, mapped. */
static int state_make(struct server *server, size_t bytes)
{
	int fd, result;

	unlinkat(server->directory, STATE_NEW, 0);
	fd = openat(server->directory, STATE_NEW, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	result = ftruncate(fd, (off_t)bytes) < 0 ? -errno : state_map(server, fd, bytes);
	close(fd);
	return result;
}

static int state_publish(struct server *server)
{
	return renameat(server->directory, STATE_NEW, server->directory, STATE_FILE) < 0 ? -errno
											 : 0;
}

static int server_prepare(struct server *server)
{
	list_init(&server->open_ports);
	list_init(&server->members);
	server->tables = openat(server->directory, STATE_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (server->tables < 0)
		return -errno;
	server->ports = calloc(server->fabric.header->ports, sizeof *server->ports);
	server->started_ms = server_now_ms();
	return server->ports ? timing_begin(server) : -ENOMEM;
}

static int plan_build(struct server *server, const struct topology *topology,
		      const struct fabric_plan *plan, uint32_t slow)
{
	struct fabric_refusal refusal;
	size_t bytes = fabric_layout(plan, &refusal);
	int result;

	if (!bytes) {
		log_error("%s: %s", topology->title, refusal.text);
		return -EINVAL;
	}
	result = state_make(server, bytes);
	if (!result) {
		fabric_build(&server->fabric, &server_fabric_functions, server, server->memory,
			     plan);
		server->fabric.header->slow = slow;
		result = state_publish(server);
	}
	if (result)
		log_error("cannot make %s/" STATE_FILE ": %s", server->directory_path,
			  strerror(-result));
	return result ? result : server_prepare(server);
}

int state_create(struct server *server, const char *path, uint32_t slow)
{
	struct topology_report report = {0};
	struct topology topology;
	struct fabric_plan plan = {0};
	struct fabric_plan_node *nodes;
	struct fabric_plan_cable *cables;
	struct fabric_plan_ip *ips;
	int result = topology_read(&topology, path, &report);

	report_log(path, &report);
	if (result) {
		if (!report.count)
			log_error("cannot read %s: %s", path, strerror(-result));
		return result;
	}
	nodes = calloc(topology.node_count + 1, sizeof *nodes);
	cables = calloc(topology.port_count + 1, sizeof *cables);
	ips = calloc(topology.address_count + 1, sizeof *ips);
	result = -ENOMEM;
	if (nodes && cables && ips) {
		for (uint32_t i = 0; i < topology.node_count; i++)
			plan_node(&topology, &topology.nodes[i], &nodes[i]);
		plan.title = topology.title;
		plan.nodes = nodes;
		plan.cables = cables;
		plan.ips = ips;
		plan.ip_count = plan_ips(&topology, ips);
		plan.node_count = topology.node_count;
		plan.cable_count = plan_cables(&topology, cables);
		plan.first_node = topology.node_count ? plan_first(&topology) : 0;
		result = plan_build(server, &topology, &plan, slow);
	}
	free(nodes);
	free(cables);
	free(ips);
	topology_free(&topology);
	return result;
}

/* Resuming and copies -------------------------------------------------------------------------- */

/* Copies only what isn't zero, so that the copy is as sparse. */
static int state_copy(int to, const uint8_t *data, size_t bytes)
{
	static const uint8_t zero[4096];

	if (ftruncate(to, (off_t)bytes) < 0)
		return -errno;
	for (size_t at = 0; at < bytes; at += sizeof zero) {
		size_t some = bytes - at < sizeof zero ? bytes - at : sizeof zero;

		if (!memcmp(data + at, zero, some))
			continue;
		if (pwrite(to, data + at, some, (off_t)at) != (ssize_t)some)
			return -EIO;
	}
	return 0;
}

/* Maps a saved file, for the caller to unmap when 0 is returned. */
static int saved_map(const char *path, uint8_t **data, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	int result = 0;

	*data = MAP_FAILED;
	*bytes = 0;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		result = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct fabric_header))
		result = -EINVAL;
	if (!result) {
		*bytes = (size_t)st.st_size;
		/* Private, so that checking it can't write to it. */
		*data = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		result = *data == MAP_FAILED ? -errno : 0;
	}
	close(fd);
	return result;
}

static int state_restore(struct server *server, const char *from)
{
	struct fabric checked;
	uint8_t *data;
	size_t bytes;
	int fd, result = saved_map(from, &data, &bytes);

	if (result)
		return result;
	result = fabric_open(&checked, &server_fabric_functions, server, data, bytes);
	if (!result) {
		unlinkat(server->directory, STATE_NEW, 0);
		fd = openat(server->directory, STATE_NEW, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
			    0600);
		result = fd < 0 ? -errno : state_copy(fd, data, bytes);
		if (fd >= 0)
			close(fd);
	}
	munmap(data, bytes);
	return result ? result : state_publish(server);
}

int state_resume(struct server *server, const char *from)
{
	struct stat st = {0};
	int result = from ? state_restore(server, from) : 0;
	int fd;

	if (!result) {
		fd = openat(server->directory, STATE_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		result = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
		if (!result && st.st_size < (off_t)sizeof(struct fabric_header))
			result = -EINVAL;
		if (!result)
			result = state_map(server, fd, (size_t)st.st_size);
		if (fd >= 0)
			close(fd);
	}
	if (!result)
		result = fabric_open(&server->fabric, &server_fabric_functions, server,
				     server->memory, server->bytes);
	if (result) {
		log_error("cannot resume from %s%s: %s", from ? from : server->directory_path,
			  from ? "" : "/" STATE_FILE,
			  result == -EINVAL ? "it isn't the complete state of a fabric of this "
					      "version"
					    : strerror(-result));
		return result;
	}
	server->is_resumed = true;
	return server_prepare(server);
}

int state_save(const struct server *server, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
	int result;

	if (fd < 0)
		return -errno;
	result = state_copy(fd, server->memory, server->bytes);
	close(fd);
	return result;
}

int state_load(struct server *server, const char *path)
{
	const struct fabric_header *own = server->memory;
	struct fabric_header *header;
	struct fabric checked;
	uint64_t epoch = own->epoch;
	uint8_t *data;
	size_t bytes;
	int result = saved_map(path, &data, &bytes);

	if (result)
		return result;
	header = (void *)data;
	result = fabric_open(&checked, &server_fabric_functions, server, data, bytes);
	/* The same nodes, ports and names, so that rows mean the same. */
	if (!result && (bytes != server->bytes || header->nodes != own->nodes ||
			header->ports != own->ports || header->name_bytes != own->name_bytes ||
			memcmp(checked.names, server->fabric.names, own->name_bytes)))
		result = -EINVAL;
	if (!result) {
		/* Processes that map the tables never see another epoch in between. */
		header->epoch = epoch;
		header->slow = own->slow;
		memcpy(server->memory, data, bytes);
		fabric_routes_changed(&server->fabric);
	}
	munmap(data, bytes);
	return result;
}
