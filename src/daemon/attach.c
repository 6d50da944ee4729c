/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands that make a connection a process's or a context's, and links. No state. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/commands.h"
#include "daemon/conn.h"
#include "daemon/context.h"
#include "daemon/dispatch.h"
#include "daemon/link.h"
#include "daemon/process.h"
#include "daemon/server.h"
#include "daemon/user.h"
#include "proto/limits.h"

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
	if (body->flags & ~(uint32_t)(PROTO_ATTACH_NO_MEMLOCK | PROTO_ATTACH_RETURN))
		return -EINVAL;
	int err = process_attach(request->conn, body, request->fds, response, &request->reply_fd);

	if (!err)
		request->conn->watch.stranger = false;
	if (!err && request->conn->user->uid == geteuid())
		request->conn->process->no_memlock = body->flags & PROTO_ATTACH_NO_MEMLOCK;
	return err;
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
