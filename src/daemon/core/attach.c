/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands that attach a process, open a context, and make links. The state of the UDP sockets,
 * and of the wait for them, is in struct server.
 */
#include "daemon/core/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cm/cm_service.h"
#include "daemon/core/capture.h"
#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/return.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/link.h"
#include "daemon/net/mcast.h"
#include "daemon/net/slot_source.h"
#include "daemon/objects/context.h"
#include "proto/limits.h"

/* How long a new process waits for a process that may bring the sockets of the last daemon. On a
 * machine with dozens of runnable threads, returning takes seconds; a process that waited too short
 * a time reaches this host only, for all its life. Only a stopped process makes it that long. */
enum { PARK_WAIT_MS = 20000 };

/* ------------------------------------------------------------------ the wire */

/* Whether a process of the daemon's own user may still return and bring the park. */
static bool park_may_come(const struct server *server)
{
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (server->slots.absent[slot] && server->slots.absent[slot]->uid == geteuid())
			return true;
	return false;
}

static void on_resume(struct timer *timer)
{
	conn_resume(container_of(timer, struct server, resume));
}

void attach_init(struct server *server)
{
	timer_init(&server->resume, on_resume);
}

void attach_resume(struct server *server)
{
	if (server->wire_wait_until_ms && (server->wire.count || !park_may_come(server)))
		timer_set(&server->loop, &server->resume, 0);
}

/* Whether the port is held by the last daemon's processes, of which one may still bring the
 * park. */
static bool must_wait(struct server *server)
{
	if (udp_slots_open(&server->wire) != -EADDRINUSE || !park_may_come(server))
		return false;
	uint64_t now = now_ms();

	if (!server->wire_wait_until_ms) {
		server->wire_wait_until_ms = now + PARK_WAIT_MS;
		timer_set(&server->loop, &server->resume, PARK_WAIT_MS);
	}
	return now < server->wire_wait_until_ms;
}

static void take_park(struct request *request)
{
	struct conn *conn = request->conn;
	int *park = &request->fds[PROTO_ATTACH_FDS];
	int err = -EPERM;

	if (*park < 0)
		return;
	/* Only from a process of the daemon's own user, which could control the daemon anyway. */
	if (conn->user->uid == geteuid())
		err = udp_slots_adopt(&conn->server->wire, *park);
	if (!err)
		*park = -1;
	else if (err != -EALREADY && err != -ENODEV)
		complain(conn->user,
			 "what process %d kept of the last daemon's sockets is of no use: %s",
			 conn->pid, strerror(-err));
}

static void reply_with(struct request *request, int fd)
{
	request->reply_fds[request->reply_fd_count++] = fd;
}

/* Adds a copy of `fd` to the reply, because descriptors in a reply are closed after sending. */
static bool reply_with_copy(struct request *request, int fd)
{
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy >= 0)
		reply_with(request, copy);
	return copy >= 0;
}

/* Gives the process its slot's UDP socket; without one it reaches the processes of this host
 * only. */
static void give_wire(struct request *request, struct proto_attach_resp *resp)
{
	struct server *server = request->conn->server;
	const struct process *process = request->conn->process;
	const struct proto_attach *body = request->body;
	bool has = process->returning && !(body->flags & PROTO_ATTACH_NO_WIRE);
	unsigned int flags =
		(has ? UDP_SLOTS_RETURNING : 0) | (process->loops ? UDP_SLOTS_LOOPS : 0);
	int fd = udp_slots_slot(&server->wire, process->slot, process->user->uid, flags);

	if (fd < 0 || !reply_with_copy(request, fd))
		return;
	resp->wire = PROTO_WIRE | (server->wire.ipv6 ? PROTO_WIRE_IPV6 : 0);
	if (process->user->uid == geteuid() && reply_with_copy(request, server->wire.park.out))
		resp->wire |= PROTO_WIRE_PARK;
}

/* Gives the process the table of groups; without it the process sends to groups of other hosts
 * only. */
static void give_groups(struct request *request, struct proto_attach_resp *resp)
{
	int fd = mcast_table(request->conn->server);

	if (fd < 0)
		return;
	reply_with(request, fd);
	resp->wire |= PROTO_GROUPS;
}

/* ------------------------------------------------------------------ commands */

int command_attach(struct request *request, void *response)
{
	const struct proto_attach *body = request->body;

	if (body->abi != PROTO_ABI) {
		complain(request->conn->user,
			 "process %d speaks version %u of the protocol, this daemon version %u: "
			 "stop the daemon, the next program starts the right one",
			 request->conn->pid, body->abi, PROTO_ABI);
		return -EPROTONOSUPPORT;
	}
	if (body->flags & ~(uint32_t)(PROTO_ATTACH_NO_MEMLOCK | PROTO_ATTACH_RETURN |
				      PROTO_ATTACH_LOOPS | PROTO_ATTACH_NO_WIRE))
		return -EINVAL;
	bool returning = body->flags & PROTO_ATTACH_RETURN;
	struct conn *conn = request->conn;
	int event_fd;

	if (!returning && request->fds[PROTO_ATTACH_FDS] >= 0)
		return -EINVAL;
	if (!returning && must_wait(conn->server)) {
		request->later = true;
		return -EAGAIN;
	}
	int err = process_attach(conn, body, request->fds, response, &event_fd);

	request->later = err == -EAGAIN && conn->waits;
	if (err)
		return err;
	conn->watch.stranger = false;
	conn->process->loops = body->flags & PROTO_ATTACH_LOOPS;
	if (conn->user->uid == geteuid())
		conn->process->no_memlock = body->flags & PROTO_ATTACH_NO_MEMLOCK;
	reply_with(request, event_fd);
	if (returning)
		take_park(request);
	bool had_wire = conn->server->wire.count;

	give_wire(request, response);
	give_groups(request, response);
	/* cppcheck-suppress incorrectLogicOperator ; give_wire() may open the port */
	if (!had_wire && conn->server->wire.count)
		mcast_refresh(conn->server);
	if (conn->server->wire.count)
		cm_service_open_udp(conn->server->cm);
	attach_resume(conn->server);
	capture_attached(conn->process);
	return 0;
}

int command_source(struct request *request, void *response)
{
	struct process *process = request->conn->process;

	(void)response;
	if (process->source >= 0)
		return -EBUSY;
	int port = slot_source_port(request->fds[0]);

	if (port < 0)
		return port;
	process->source = request->fds[0];
	request->fds[0] = -1;
	mcast_source_port(process->server, process->slot, (uint16_t)port);
	return 0;
}

int command_link(struct request *request, void *response)
{
	const struct proto_link *body = request->body;

	(void)response;
	return body->reserved ? -EINVAL : link_make(request->conn->process, body->slot);
}

int command_unlink(struct request *request, void *response)
{
	const struct proto_unlink *body = request->body;

	(void)response;
	return body->reserved ? -EINVAL
			      : link_give_up(request->conn->process, body->slot, body->link_id);
}

int command_get_context(struct request *request, void *response)
{
	struct ib_uverbs_get_context_resp *resp = response;
	struct conn *conn = request->conn;
	struct proto_get_context udata = {0};
	size_t size = request->udata_size;

	if (size < sizeof(udata.cookie))
		return -EINVAL;
	memcpy(&udata, request->udata, size < sizeof(udata) ? sizeof(udata.cookie) : sizeof(udata));
	struct process *process = process_by_cookie(conn->server, udata.cookie);

	if (!process || process->user != conn->user) {
		complain(conn->user, "process %d wants a context for a process that isn't attached",
			 conn->pid);
		return -ESTALE;
	}
	int err = context_make(process, conn, udata.token, &conn->context);

	if (err)
		return err;
	conn->kind = CONN_CONTEXT;
	conn->watch.stranger = false;
	resp->num_comp_vectors = LIMIT_COMP_VECTORS;
	return 0;
}
