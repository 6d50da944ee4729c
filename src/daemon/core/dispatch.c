/* SPDX-License-Identifier: BSD-2-Clause */
/* The command tables and the header's checks. See dispatch.h. No state. */
#include "daemon/core/dispatch.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/process.h"
#include "daemon/core/user.h"
#include "daemon/objects/context.h"

/* The connections on which a command may come. A process that is returning may send only commands
 * that make objects, and those of ON_RETURN. */
enum where { ON_CONTEXT, ON_PROCESS, ON_NEW, ON_ANY, ON_RETURN };

struct command {
	command_fn *run;		      /* NULL: no such command */
	uint16_t request_size, response_size; /* bytes, without the packet's headers */
	uint8_t where, fds;		      /* fds: descriptors that may come along */
	bool makes;  /* it makes an object: struct proto_return may follow */
	bool routes; /* it finds a way for a QP */
	bool ends;   /* it ends an object: it may be posted */
	/* Extended commands: the least room for a response that a client must have. */
	uint16_t response_min;
};

#define REQUEST(name) .request_size = sizeof(struct name)
#define RESPONSE(name) .response_size = sizeof(struct name)

static const struct command commands[] = {
	[IB_USER_VERBS_CMD_GET_CONTEXT] = {command_get_context, REQUEST(ib_uverbs_get_context),
					   RESPONSE(ib_uverbs_get_context_resp), .where = ON_NEW},
	[IB_USER_VERBS_CMD_QUERY_DEVICE] = {command_query_device, REQUEST(ib_uverbs_query_device),
					    RESPONSE(ib_uverbs_query_device_resp)},
	[IB_USER_VERBS_CMD_QUERY_PORT] = {command_query_port, REQUEST(ib_uverbs_query_port),
					  RESPONSE(ib_uverbs_query_port_resp)},
	[IB_USER_VERBS_CMD_ALLOC_PD] = {command_alloc_pd, REQUEST(ib_uverbs_alloc_pd),
					RESPONSE(ib_uverbs_alloc_pd_resp), .makes = true},
	[IB_USER_VERBS_CMD_DEALLOC_PD] = {command_dealloc_pd, REQUEST(ib_uverbs_dealloc_pd)},
	[IB_USER_VERBS_CMD_CREATE_AH] = {command_create_ah, REQUEST(ib_uverbs_create_ah),
					 RESPONSE(proto_create_ah_resp), .makes = true},
	[IB_USER_VERBS_CMD_DESTROY_AH] = {command_destroy_ah, REQUEST(ib_uverbs_destroy_ah)},
	[IB_USER_VERBS_CMD_REG_MR] = {command_reg_mr, REQUEST(ib_uverbs_reg_mr),
				      RESPONSE(ib_uverbs_reg_mr_resp), .makes = true},
	[IB_USER_VERBS_CMD_REREG_MR] = {command_rereg_mr, REQUEST(ib_uverbs_rereg_mr),
					RESPONSE(ib_uverbs_rereg_mr_resp)},
	[IB_USER_VERBS_CMD_DEREG_MR] = {command_dereg_mr, REQUEST(ib_uverbs_dereg_mr)},
	[IB_USER_VERBS_CMD_ALLOC_MW] = {command_alloc_mw, REQUEST(ib_uverbs_alloc_mw),
					RESPONSE(ib_uverbs_alloc_mw_resp), .makes = true},
	[IB_USER_VERBS_CMD_DEALLOC_MW] = {command_dealloc_mw, REQUEST(ib_uverbs_dealloc_mw)},
	[IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL] = {command_create_channel,
						   REQUEST(ib_uverbs_create_comp_channel),
						   RESPONSE(ib_uverbs_create_comp_channel_resp),
						   .makes = true},
	[IB_USER_VERBS_CMD_CREATE_CQ] = {command_create_cq, REQUEST(ib_uverbs_create_cq),
					 RESPONSE(ib_uverbs_create_cq_resp), .makes = true},
	[IB_USER_VERBS_CMD_RESIZE_CQ] = {command_resize_cq, REQUEST(ib_uverbs_resize_cq),
					 RESPONSE(ib_uverbs_resize_cq_resp)},
	[IB_USER_VERBS_CMD_DESTROY_CQ] = {command_destroy_cq, REQUEST(ib_uverbs_destroy_cq),
					  RESPONSE(ib_uverbs_destroy_cq_resp), .ends = true},
	[IB_USER_VERBS_CMD_CREATE_QP] = {command_create_qp, REQUEST(ib_uverbs_create_qp),
					 RESPONSE(ib_uverbs_create_qp_resp), .makes = true},
	[IB_USER_VERBS_CMD_DESTROY_QP] = {command_destroy_qp, REQUEST(ib_uverbs_destroy_qp),
					  RESPONSE(ib_uverbs_destroy_qp_resp), .ends = true},
	/* A process that returns names its attachments anew. */
	[IB_USER_VERBS_CMD_ATTACH_MCAST] = {command_attach_mcast, REQUEST(ib_uverbs_attach_mcast),
					    .makes = true},
	[IB_USER_VERBS_CMD_DETACH_MCAST] = {command_detach_mcast, REQUEST(ib_uverbs_detach_mcast)},
	[IB_USER_VERBS_CMD_CREATE_SRQ] = {command_create_srq, REQUEST(ib_uverbs_create_srq),
					  RESPONSE(ib_uverbs_create_srq_resp), .makes = true},
	[IB_USER_VERBS_CMD_CREATE_XSRQ] = {command_create_xsrq, REQUEST(ib_uverbs_create_xsrq),
					   RESPONSE(ib_uverbs_create_srq_resp), .makes = true},
	[IB_USER_VERBS_CMD_MODIFY_SRQ] = {command_modify_srq, REQUEST(ib_uverbs_modify_srq)},
	[IB_USER_VERBS_CMD_DESTROY_SRQ] = {command_destroy_srq, REQUEST(ib_uverbs_destroy_srq),
					   RESPONSE(ib_uverbs_destroy_srq_resp)},
	[IB_USER_VERBS_CMD_CLOSE_XRCD] = {command_close_xrcd, REQUEST(ib_uverbs_close_xrcd)},
	[IB_USER_VERBS_CMD_OPEN_QP] = {command_open_qp, REQUEST(ib_uverbs_open_qp),
				       RESPONSE(ib_uverbs_create_qp_resp)},
	[PROTO_OPEN_XRCD] = {command_open_xrcd, REQUEST(proto_open_xrcd),
			     RESPONSE(proto_open_xrcd_resp), .makes = true},
	[PROTO_XRC_QUERY] = {command_xrc_query, REQUEST(proto_xrc_query), RESPONSE(proto_xrc_state),
			     .where = ON_ANY},
	[PROTO_XRC_MODIFY] = {command_xrc_modify, REQUEST(proto_xrc_modify),
			      RESPONSE(proto_xrc_state)},
	[PROTO_XRC_REPORT] = {command_xrc_report, REQUEST(proto_xrc_report), .where = ON_PROCESS},
	[PROTO_XRC_RETURNS] = {command_xrc_returns, REQUEST(proto_xrc_returns),
			       RESPONSE(proto_xrc_state), .makes = true},
	[PROTO_XRC_MEMORY] = {command_xrc_memory, .where = ON_PROCESS},
	[PROTO_XRC_SOCKET] = {command_xrc_socket, REQUEST(proto_xrc_socket), .where = ON_PROCESS},
	[PROTO_XRC_MEMORY_RETURNS] = {command_xrc_memory_returns, .where = ON_RETURN, .fds = 1},
	[PROTO_ATTACH] = {command_attach, REQUEST(proto_attach), RESPONSE(proto_attach_resp),
			  .where = ON_NEW, .fds = 4},
	[PROTO_SOURCE] = {command_source, .where = ON_PROCESS, .fds = 1},
	[PROTO_LINK] = {command_link, REQUEST(proto_link), .where = ON_PROCESS},
	[PROTO_UNLINK] = {command_unlink, REQUEST(proto_unlink), .where = ON_PROCESS},
	[PROTO_DESTROY_CHANNEL] = {command_destroy_channel, REQUEST(proto_handle), .ends = true},
	[PROTO_CREATE_QP_CQS] = {command_create_qp_cqs, REQUEST(proto_create_qp_cqs),
				 RESPONSE(proto_create_qp_cqs_resp)},
	[PROTO_CREATE_CHANNEL_CQ] = {command_create_channel_cq, REQUEST(ib_uverbs_create_cq),
				     RESPONSE(proto_create_channel_cq_resp)},
	[PROTO_QUERY_GID] = {command_query_gid, REQUEST(proto_query_gid),
			     RESPONSE(proto_query_gid_resp)},
	[PROTO_LIST_DEVICES] = {command_list_devices, RESPONSE(proto_list_devices_resp),
				.where = ON_ANY},
	[PROTO_LINK_RETURN] = {command_link_return, REQUEST(proto_link_return), .where = ON_RETURN},
	[PROTO_IMPORT_PD] = {command_import_pd, REQUEST(proto_handle),
			     RESPONSE(proto_import_pd_resp), .makes = true},
	[PROTO_UNIMPORT_PD] = {command_unimport_pd, REQUEST(proto_handle)},
	[PROTO_IMPORT_MR] = {command_import_mr, REQUEST(proto_import_mr),
			     RESPONSE(proto_import_mr_resp), .makes = true},
	[PROTO_ALLOC_NULL_MR] = {command_alloc_null_mr, REQUEST(proto_handle),
				 RESPONSE(ib_uverbs_reg_mr_resp), .makes = true},
	[PROTO_ALLOC_DM] = {command_alloc_dm, REQUEST(proto_alloc_dm),
			    RESPONSE(proto_alloc_dm_resp), .makes = true, .fds = 1},
	[PROTO_FREE_DM] = {command_free_dm, REQUEST(proto_handle)},
	[PROTO_IMPORT_DM] = {command_import_dm, REQUEST(proto_handle),
			     RESPONSE(proto_import_dm_resp)},
	[PROTO_REG_DM_MR] = {command_reg_dm_mr, REQUEST(proto_reg_dm_mr),
			     RESPONSE(ib_uverbs_reg_mr_resp), .makes = true},
	[PROTO_ALTERNATE] = {command_alternate, REQUEST(proto_alternate),
			     RESPONSE(proto_alternate_resp), .where = ON_PROCESS},
	[PROTO_CREATE_FLOW] = {command_create_flow, REQUEST(proto_create_flow),
			       RESPONSE(proto_create_flow_resp), .makes = true},
	[PROTO_DESTROY_FLOW] = {command_destroy_flow, REQUEST(proto_handle)},
	[PROTO_QUERY_MR] = {command_query_mr, REQUEST(proto_handle), RESPONSE(proto_query_mr_resp)},
	[PROTO_ROUTE] = {command_route, REQUEST(proto_route), RESPONSE(proto_route_resp),
			 .routes = true},
	[PROTO_RETURNED] = {command_returned, .where = ON_RETURN},
};

static const struct command ex_commands[] = {
	[IB_USER_VERBS_EX_CMD_QUERY_DEVICE] =
		{command_ex_query_device, REQUEST(ib_uverbs_ex_query_device),
		 RESPONSE(ib_uverbs_ex_query_device_resp),
		 .response_min = offsetof(struct ib_uverbs_ex_query_device_resp, odp_caps)},
};

#define ENTRIES(table) (sizeof(table) / sizeof((table)[0]))

void reply_error(struct reply *reply, int result)
{
	const struct proto_reply head = {.result = result};

	memcpy(reply->data, &head, sizeof(head));
	reply->size = sizeof(head);
	reply->fd_count = 0;
}

/* The command that a header names; NULL: none. */
static const struct command *command_of_word(uint32_t word)
{
	uint32_t number = word & IB_USER_VERBS_CMD_COMMAND_MASK;
	bool extended = word & IB_USER_VERBS_CMD_FLAG_EXTENDED;
	size_t count = extended ? ENTRIES(ex_commands) : ENTRIES(commands);

	if (number >= count)
		return NULL;
	const struct command *command = extended ? &ex_commands[number] : &commands[number];

	return command->run ? command : NULL;
}

/* The legacy form: lengths are in words of four bytes and include the header. */
static int parse_legacy(struct request *r, const struct command *command, const uint8_t *packet,
			size_t size)
{
	struct ib_uverbs_cmd_hdr header;

	memcpy(&header, packet, sizeof(header));
	if ((size_t)header.in_words * 4 != size || size < sizeof(header) + command->request_size)
		return -EINVAL;
	if ((size_t)header.out_words * 4 < command->response_size && !r->posted)
		return -ENOSPC;
	r->body = packet + sizeof(header);
	r->size = command->request_size;
	r->udata = packet + sizeof(header) + r->size;
	r->udata_size = size - sizeof(header) - r->size;
	r->response_size = command->response_size;
	return 0;
}

/* The extended form: lengths are in words of eight bytes, without headers, udata apart. */
static int parse_extended(struct request *r, const struct command *command, const uint8_t *packet,
			  size_t size)
{
	struct ib_uverbs_cmd_hdr header;
	struct ib_uverbs_ex_cmd_hdr ex;
	const size_t headers = sizeof(header) + sizeof(ex);

	if (size < headers)
		return -EINVAL;
	memcpy(&header, packet, sizeof(header));
	memcpy(&ex, packet + sizeof(header), sizeof(ex));
	size_t core = (size_t)header.in_words * 8, udata = (size_t)ex.provider_in_words * 8;

	if (core + udata != size - headers || ex.cmd_hdr_reserved || core < command->request_size)
		return -EINVAL;
	/* A newer client's structure may be longer if its additional bytes are 0. */
	for (size_t i = command->request_size; i < core; i++)
		if (packet[headers + i])
			return -EOPNOTSUPP;
	size_t room = (size_t)header.out_words * 8;

	if (room < command->response_min)
		return -ENOSPC;
	r->body = packet + headers;
	r->size = command->request_size;
	r->udata = packet + headers + core;
	r->udata_size = udata;
	r->response_size = room < command->response_size ? room : command->response_size;
	return 0;
}

static bool conn_is_returning(const struct conn *conn)
{
	return (conn->process && conn->process->returning) ||
	       (conn->context && conn->context->process->returning);
}

static int check_place(const struct conn *conn, const struct command *command)
{
	static const enum conn_kind wanted[] = {[ON_CONTEXT] = CONN_CONTEXT,
						[ON_PROCESS] = CONN_PROCESS,
						[ON_RETURN] = CONN_PROCESS,
						[ON_NEW] = CONN_NEW};

	if (command->where == ON_ANY)
		return 0;
	if (conn->kind != wanted[command->where])
		return -EINVAL;
	if (conn->context && conn->context->removed && (command->makes || command->routes))
		return -EIO;
	if (conn_is_returning(conn))
		return command->where == ON_RETURN || command->makes ? 0 : -EINVAL;
	return command->where == ON_RETURN ? -EINVAL : 0;
}

/* Sets r->old, the object's old handle and number, for a process that is returning. */
static int find_old(struct request *r, const struct command *command)
{
	if (!command->makes || !conn_is_returning(r->conn))
		return 0;
	if (r->udata_size < sizeof(*r->old))
		return -EINVAL;
	r->udata_size -= sizeof(*r->old);
	r->old = (const void *)((const uint8_t *)r->udata + r->udata_size);
	return 0;
}

static int command_check_fds(const struct command *command, const int *fds)
{
	return command->fds >= PROTO_MAX_FDS || fds[command->fds] < 0 ? 0 : -EINVAL;
}

static int request_parse(struct request *r, const struct command **out, const uint8_t *packet,
			 size_t size)
{
	const uint32_t known =
		IB_USER_VERBS_CMD_COMMAND_MASK | IB_USER_VERBS_CMD_FLAG_EXTENDED | PROTO_POSTED;
	struct ib_uverbs_cmd_hdr header;

	if (size < sizeof(header))
		return -EINVAL;
	memcpy(&header, packet, sizeof(header));
	if (header.command & ~known)
		return -EINVAL;
	const struct command *command = command_of_word(header.command);

	if (!command)
		return -EOPNOTSUPP;
	if (header.command & PROTO_POSTED && !command->ends)
		return -EINVAL;
	r->posted = header.command & PROTO_POSTED;
	int err = header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED
			  ? parse_extended(r, command, packet, size)
			  : parse_legacy(r, command, packet, size);

	if (!err)
		err = check_place(r->conn, command);
	if (!err)
		err = command_check_fds(command, r->fds);
	if (!err)
		err = find_old(r, command);
	*out = command;
	return err;
}

static void reply_fill(struct reply *reply, const struct request *request)
{
	reply->size = sizeof(struct proto_reply) + request->response_size;
	reply->fd_count = request->reply_fd_count;
	memcpy(reply->fds, request->reply_fds, sizeof(reply->fds));
}

bool conn_dispatch(struct conn *conn, const void *packet, size_t size, int *fds,
		   struct reply *reply)
{
	struct request request = {.conn = conn, .fds = fds};
	const struct command *command;
	int err = request_parse(&request, &command, packet, size);

	if (err == -EIO) {
		log_info("process %d uses a device whose interface is gone", conn->pid);
	} else if (err) {
		complain(conn->user, "process %d sent a request of %zu bytes that isn't right: %s",
			 conn->pid, size, strerror(-err));
	} else {
		memset(reply->data + sizeof(struct proto_reply), 0, command->response_size);
		err = command->run(&request, reply->data + sizeof(struct proto_reply));
	}
	_Static_assert(sizeof(struct proto_list_devices_resp) + sizeof(struct proto_reply) <=
			       PROTO_MAX_MESSAGE,
		       "the largest response fits a packet");
	reply_error(reply, err);
	if (request.posted)
		reply->size = 0;
	else if (!err)
		reply_fill(reply, &request);
	return !request.later;
}
