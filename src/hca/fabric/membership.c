/* SPDX-License-Identifier: BSD-2-Clause */
/* See membership.h. */
#include "hca/fabric/membership.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sys.h"
#include "client/call.h"
#include "fabric/internal.h"
#include "fabric/port_info.h"
#include "proto/proto.h"
#include "shm/pub.h"

/* ------------------------------------------------------------------ life */

static void socket_set(struct membership *membership, int socket)
{
	lock_take(&membership->lock);
	int old = membership->socket;

	membership->socket = socket;
	lock_give(&membership->lock);
	if (old >= 0)
		sys_close(old);
}

void membership_unmake(struct membership *membership)
{
	if (!membership)
		return;
	socket_set(membership, -1);
	flows_unmake(&membership->flows);
	transit_unmap(&membership->clocks);
	free(membership);
}

static int membership_join(struct membership *membership)
{
	int result = flows_make(&membership->flows);

	if (!result)
		result = transit_map(membership->node, &membership->clocks);
	if (result)
		return result;
	int socket = node_connect(PROTO_FABRIC_JOIN, membership->flows.fd);

	if (socket < 0)
		return socket;
	socket_set(membership, socket);
	return 0;
}

int membership_make(struct pub *pub, struct membership **out)
{
	const struct node *node = node_is_named() ? node_get() : NULL;

	*out = NULL;
	if (!node)
		return node_is_named() ? -errno : 0;
	struct membership *membership = calloc(1, sizeof(*membership));

	if (!membership)
		return -ENOMEM;
	*membership = (struct membership){.node = node, .flows.fd = -1, .socket = -1};
	lock_init(&membership->lock, RANK_MEMBERSHIP);
	int result = membership_join(membership);

	if (result) {
		membership_unmake(membership);
		return result;
	}
	pub->header.fabric = node->fabric;
	pub->header.node = node->row;
	*out = membership;
	return 0;
}

void membership_leave(struct membership *membership)
{
	if (!membership)
		return;
	lock_init(&membership->lock, RANK_MEMBERSHIP);
	membership->state = MEMBER_GONE;
	socket_set(membership, -1);
	lock_init(&membership->flows.lock, RANK_FLOWS);
	if (mmap(membership->flows.memory, PROTO_FLOWS_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		log_error("a forked child counts what its parent sends over the fabric");
	if (membership->flows.fd >= 0)
		sys_close(membership->flows.fd);
	membership->flows.fd = -1;
}

/* ------------------------------------------------------------------ events */

int membership_socket(struct membership *membership)
{
	lock_take(&membership->lock);
	int socket = membership->socket;

	lock_give(&membership->lock);
	return socket;
}

/* One packet: an event (both kinds have its size), or -errno. */
static int membership_packet(struct membership *membership, struct proto_fabric_event *event)
	REQUIRES(membership->lock)
{
	int fds[PROTO_MAX_FDS];
	ssize_t got = packet_receive(membership->socket, event, sizeof(*event), fds, MSG_DONTWAIT);

	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	if (got == -EAGAIN)
		return -EAGAIN;
	return got == sizeof(*event) ? 0 : -EPIPE;
}

int membership_next(struct membership *membership, struct proto_fabric_event *event)
{
	_Static_assert(sizeof(*event) == sizeof(struct proto_fabric_result), "one size of packets");
	int result = -EPIPE;

	lock_take(&membership->lock);
	if (membership->socket >= 0)
		result = membership_packet(membership, event);
	if (!result && !membership->is_greeted) {
		membership->is_greeted = true;
		result = membership_packet(membership, event);
	}
	if (result == -EPIPE && membership->socket >= 0) {
		sys_close(membership->socket);
		membership->socket = -1;
		membership->is_greeted = false;
		membership->state = MEMBER_LOST;
		membership->look_at = 0;
	}
	lock_give(&membership->lock);
	return result;
}

bool membership_due(struct membership *membership, uint64_t now, uint64_t *next)
{
	bool due = false;

	lock_take(&membership->lock);
	if (membership->state == MEMBER_LOST) {
		if (!membership->look_at)
			membership->look_at = now + MEMBERSHIP_LOOK_NS;
		due = now >= membership->look_at;
		if (due) {
			membership->state = MEMBER_ASKED;
			membership->look_at = 0;
		} else if (membership->look_at < *next) {
			*next = membership->look_at;
		}
	}
	lock_give(&membership->lock);
	return due;
}

int membership_again(struct membership *membership)
{
	int result = node_check(membership->node);

	if (!result)
		result = transit_map(membership->node, &membership->clocks);
	int socket = result ? -1 : node_connect(PROTO_FABRIC_JOIN, membership->flows.fd);

	if (!result && socket < 0)
		result = socket;
	lock_take(&membership->lock);
	membership->state = !result ? MEMBER_JOINED : result == -ESTALE ? MEMBER_GONE : MEMBER_LOST;
	membership->socket = socket;
	lock_give(&membership->lock);
	return result;
}

/* ------------------------------------------------------------------ violations */

void membership_report(struct membership *membership, struct proto_fabric_violation *violation)
{
	violation->request =
		(struct proto_fabric_request){PROTO_FABRIC_ABI, PROTO_FABRIC_VIOLATION};
	lock_take(&membership->lock);
	if (membership->socket >= 0)
		packet_send(membership->socket, violation, sizeof(*violation), NULL, 0,
			    MSG_DONTWAIT);
	lock_give(&membership->lock);
}

/* ------------------------------------------------------------------ ports that are Armed */

static void came_tell(struct membership *membership, uint32_t port)
{
	struct proto_fabric_came came = {
		.request = {PROTO_FABRIC_ABI, PROTO_FABRIC_DATA_CAME},
		.port = port,
	};

	lock_take(&membership->lock);
	if (membership->socket >= 0)
		packet_send(membership->socket, &came, sizeof(came), NULL, 0, MSG_DONTWAIT);
	lock_give(&membership->lock);
}

void membership_arm(struct membership *membership, const struct fabric_route *route)
{
	const struct fabric *tables = &membership->node->tables;

	if (!route->is_arming)
		return;
	for (uint32_t i = 0; i < route->hops; i++)
		if (port_state(&tables->ports[route->hop[i].ingress]) == PORT_ARMED)
			came_tell(membership, route->hop[i].ingress);
}
