/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands, one function each. See daemon.h. A request is built on the stack: header, the
 * kernel's structure, udata; `response` fields stay 0 (there is no user address to write to).
 */
#include "client/daemon.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "client/call.h"
#include "client/start.h"
#include "proto/limits.h"

struct packet {
	struct ib_uverbs_cmd_hdr header;
	uint8_t body[640];
};

static int conn_exchange(struct daemon_conn *conn, uint32_t command, const void *body, size_t size,
			 const int *fds, unsigned int fd_count, void *reply, size_t reply_size,
			 int *reply_fds)
{
	struct packet request;

	if (size > sizeof(request.body) || size % 4)
		return -EINVAL;
	if (size)
		memcpy(request.body, body, size);
	if (conn->old && size + sizeof(*conn->old) <= sizeof(request.body)) {
		memcpy(request.body + size, conn->old, sizeof(*conn->old));
		size += sizeof(*conn->old);
	}
	request.header.command = command;
	request.header.in_words = (sizeof(request.header) + size) / 4;
	request.header.out_words = reply_size / 4;
	mutex_take(&conn->lock);
	int err = conn->fd < 0 ? -EIO
			       : socket_call(conn->fd, &request, sizeof(request.header) + size, fds,
					     fd_count, reply, reply_size, reply_fds);

	mutex_give(&conn->lock);
	return err;
}

/* How many further daemons a command is sent to when its daemon was killed. */
enum { LOST_TRIES = 3 };

/* The number of objects of the command's kind that a process may have, its row, and its name; NULL:
 * no limited kind. */
static const char *limit_of(uint32_t command, uint32_t *limit, size_t *row)
{
	static const struct {
		uint32_t command, limit;
		const char *name;
	} limits[] = {
		{IB_USER_VERBS_CMD_ALLOC_PD, LIMIT_PD, "protection domains"},
		{IB_USER_VERBS_CMD_REG_MR, LIMIT_MR, "memory regions"},
		{PROTO_ALLOC_NULL_MR, LIMIT_MR, "memory regions"},
		{PROTO_ALLOC_DM, LIMIT_DM, "buffers of device memory"},
		{IB_USER_VERBS_CMD_CREATE_AH, LIMIT_AH, "address handles"},
		{IB_USER_VERBS_CMD_CREATE_CQ, LIMIT_CQ, "completion queues"},
		{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, LIMIT_CQ, "completion channels"},
		{PROTO_CREATE_CHANNEL_CQ, LIMIT_CQ, "completion queues"},
		{IB_USER_VERBS_CMD_CREATE_SRQ, LIMIT_SRQ, "shared receive queues"},
		{IB_USER_VERBS_CMD_CREATE_XSRQ, LIMIT_SRQ, "shared receive queues"},
		{PROTO_OPEN_XRCD, LIMIT_XRCD, "XRC domains"},
		{IB_USER_VERBS_CMD_OPEN_QP, LIMIT_QP, "queue pairs"},
		{IB_USER_VERBS_CMD_CREATE_QP, LIMIT_QP, "queue pairs"},
		{PROTO_CREATE_QP_CQS, LIMIT_QP, "queue pairs"},
		{PROTO_CREATE_FLOW, LIMIT_PROCESS_FLOWS, "flow rules"},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i].command == command) {
			*limit = limits[i].limit;
			*row = i;
			return limits[i].name;
		}
	return NULL;
}

/* Logged once for each kind, because a program may try again and again; the daemon's log has each
 * refusal with its number. */
void daemon_explain_limit(uint32_t command)
{
	static _Atomic uint32_t said; /* a bit for each row of limit_of() */
	uint32_t limit;
	size_t row;
	const char *name = limit_of(command, &limit, &row);

	if (name && !(atomic_fetch_or(&said, 1u << row) & 1u << row))
		log_warn("verbenad makes no more %s for this process: it may have %u, and its user "
			 "what user-objects in verbenad.conf allows; the daemon's log says which "
			 "it was",
			 name, limit);
}

/* As conn_exchange(); a command whose daemon is gone is sent to the next one. */
static int conn_exchange_again(struct daemon_conn *conn, uint32_t command, const void *body,
			       size_t size, const int *fds, unsigned int fd_count, void *reply,
			       size_t reply_size, int *reply_fds)
{
	const struct daemon_owner *calls = conn->owner_calls;
	void *owner = conn->owner;

	if (calls)
		calls->enter(owner);
	int err = conn_exchange(conn, command, body, size, fds, fd_count, reply, reply_size,
				reply_fds);

	for (int i = 0; err == -EIO && calls && i < LOST_TRIES && !calls->lost(owner); i++)
		err = conn_exchange(conn, command, body, size, fds, fd_count, reply, reply_size,
				    reply_fds);
	if (calls)
		calls->leave(owner);
	/* Of a region there is a third reason, which its caller knows. */
	if (err == -ENOMEM && command != IB_USER_VERBS_CMD_REG_MR)
		daemon_explain_limit(command);
	return err;
}

static int conn_exchange_simple(struct daemon_conn *conn, uint32_t command, const void *body,
				size_t size, void *reply, size_t reply_size)
{
	return conn_exchange_again(conn, command, body, size, NULL, 0, reply, reply_size, NULL);
}

/* Sends a command without an answer. A failure is ignored: without a daemon the object is gone as
 * well. */
static void conn_post(struct daemon_conn *conn, uint32_t command, const void *body, size_t size)
{
	struct packet request = {.header = {.command = command | PROTO_POSTED}};

	memcpy(request.body, body, size);
	size += sizeof(request.header);
	request.header.in_words = size / 4;
	mutex_take(&conn->lock);
	if (conn->fd >= 0)
		packet_send(conn->fd, &request, size, NULL, 0, 0);
	mutex_give(&conn->lock);
}

static int conn_open_node(struct daemon_conn *conn, const char *node)
{
	int fd = start_connect(node);

	if (fd < 0)
		return fd;
	*conn = (struct daemon_conn){.fd = fd};
	mutex_init(&conn->lock, RANK_DAEMON_CONN);
	return 0;
}

void daemon_leave(struct daemon_conn *conn)
{
	if (conn->fd >= 0)
		sys_close(conn->fd);
	conn->fd = -1;
	conn->owner_calls = NULL;
	mutex_init(&conn->lock, RANK_DAEMON_CONN);
}

bool daemon_is_left(const struct daemon_conn *conn)
{
	return conn->fd < 0 && !conn->owner_calls;
}

void daemon_close(struct daemon_conn *conn)
{
	mutex_take(&conn->lock);
	sys_hang_up(&conn->fd);
	mutex_give(&conn->lock);
}

int daemon_list_devices(struct proto_device *list, unsigned int max)
{
	struct proto_list_devices_resp resp;
	struct daemon_conn conn;
	int err = -EIO;

	for (int i = 0; i < START_TRIES && err == -EIO; i++) {
		start_pause(i);
		err = conn_open_node(&conn, NULL);
		if (err)
			return err;
		err = conn_exchange(&conn, PROTO_LIST_DEVICES, NULL, 0, NULL, 0, &resp,
				    sizeof(resp), NULL);
		daemon_close(&conn);
	}
	if (err)
		return err;
	unsigned int n = resp.count < max ? resp.count : max;

	if (n > sizeof(resp.device) / sizeof(resp.device[0]))
		return -EIO;
	memcpy(list, resp.device, n * sizeof(*list));
	return n;
}

/* Takes the descriptors that the reply announces, in this order. Others are closed. */
static int attach_take_wire(struct proto_attach_resp *resp, int *fds, struct daemon_wire *wire)
{
	unsigned int next = 1;

	if (resp->wire & PROTO_WIRE)
		wire->socket = fds[next++];
	if (resp->wire & PROTO_WIRE_PARK)
		wire->park = fds[next++];
	if (resp->wire & PROTO_GROUPS && next < PROTO_MAX_FDS)
		wire->groups = fds[next++];
	wire->flags = resp->wire;
	while (next < PROTO_MAX_FDS && fds[next] < 0)
		next++;
	bool right = (wire->socket >= 0) == !!(resp->wire & PROTO_WIRE) &&
		     (wire->park >= 0) == !!(resp->wire & PROTO_WIRE_PARK) &&
		     (wire->groups >= 0) == !!(resp->wire & PROTO_GROUPS) && next == PROTO_MAX_FDS;

	return right ? 0 : -EPROTO;
}

int daemon_attach(struct daemon_conn *conn, const struct proto_attach *old, int table_fd,
		  int doorbell_fd, int regions_fd, int park, struct proto_attach_resp *resp,
		  int *event_fd, struct daemon_wire *wire)
{
	const char *memlock = env_get("VERBENA_MEMLOCK");
	struct proto_attach body = {0};

	*wire = (struct daemon_wire){.socket = -1, .park = -1, .groups = -1};
	if (old)
		body = *old;
	body.abi = PROTO_ABI;
	if (memlock && !strcmp(memlock, "off"))
		body.flags |= PROTO_ATTACH_NO_MEMLOCK;
	const int fds[] = {table_fd, doorbell_fd, regions_fd, park};
	unsigned int count = park >= 0 ? 4 : 3;
	int received[PROTO_MAX_FDS] = {-1, -1, -1, -1};
	int err = -EIO;

	for (int i = 0; i < START_TRIES && err == -EIO; i++) {
		start_pause(i);
		err = conn_open_node(conn, NULL);
		if (err)
			return err;
		err = conn_exchange(conn, PROTO_ATTACH, &body, sizeof(body), fds, count, resp,
				    sizeof(*resp), received);
		if (!err && received[0] < 0)
			err = -EPROTO;
		if (!err)
			err = attach_take_wire(resp, received, wire);
		if (err)
			daemon_close(conn);
	}
	if (!err) {
		*event_fd = received[0];
		return 0;
	}
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (received[i] >= 0)
			sys_close(received[i]);
	*wire = (struct daemon_wire){.socket = -1, .park = -1, .groups = -1};
	return err;
}

int daemon_source(struct daemon_conn *conn, int fd)
{
	return conn_exchange(conn, PROTO_SOURCE, NULL, 0, &fd, 1, NULL, 0, NULL);
}

int daemon_link(struct daemon_conn *conn, uint32_t slot)
{
	const struct proto_link body = {.slot = slot};

	return conn_exchange_simple(conn, PROTO_LINK, &body, sizeof(body), NULL, 0);
}

int daemon_unlink(struct daemon_conn *conn, uint32_t slot, uint64_t link_id)
{
	const struct proto_unlink body = {.slot = slot, .link_id = link_id};

	return conn_exchange_simple(conn, PROTO_UNLINK, &body, sizeof(body), NULL, 0);
}

int daemon_link_return(struct daemon_conn *conn, uint64_t link_id, uint32_t slot, uint32_t side)
{
	const struct proto_link_return body = {.link_id = link_id, .slot = slot, .side = side};

	return conn_exchange_simple(conn, PROTO_LINK_RETURN, &body, sizeof(body), NULL, 0);
}

int daemon_returned(struct daemon_conn *conn)
{
	return conn_exchange_simple(conn, PROTO_RETURNED, NULL, 0, NULL, 0);
}

int daemon_event_next(int event_fd, struct proto_event *event, int *fds)
{
	ssize_t n = packet_receive(event_fd, event, sizeof(*event), fds, MSG_DONTWAIT);

	/* -EMFILE: no descriptors were left for those that came; the event itself is still
	 * valid. */
	if (n == sizeof(*event) || n == -EMFILE)
		return 0;
	for (unsigned int i = 0; n > 0 && i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	return n == 0 || n == -ECONNRESET ? -EPIPE : n < 0 ? (int)n : -EPROTO;
}

int daemon_context_open(struct daemon_conn *conn, const char *node, uint64_t cookie,
			const uint64_t token[2], uint32_t *num_comp_vectors)
{
	struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} body = {.udata = {.cookie = cookie, .token = {token[0], token[1]}}};
	struct ib_uverbs_get_context_resp resp;
	int err = conn_open_node(conn, node);

	if (err)
		return err;
	err = conn_exchange_simple(conn, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), &resp,
				   sizeof(resp));
	if (err) {
		daemon_close(conn);
		return err;
	}
	*num_comp_vectors = resp.num_comp_vectors;
	return 0;
}

int daemon_query_device(struct daemon_conn *conn, struct ib_uverbs_query_device_resp *resp)
{
	const struct ib_uverbs_query_device body = {0};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_QUERY_DEVICE, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_query_port(struct daemon_conn *conn, uint8_t port,
		      struct ib_uverbs_query_port_resp *resp)
{
	const struct ib_uverbs_query_port body = {.port_num = port};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_QUERY_PORT, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_query_gid(struct daemon_conn *conn, uint32_t port, uint32_t index,
		     struct proto_query_gid_resp *resp)
{
	const struct proto_query_gid body = {.port = port, .index = index};

	return conn_exchange_simple(conn, PROTO_QUERY_GID, &body, sizeof(body), resp,
				    sizeof(*resp));
}

/* ------------------------------------------------------------------ objects */

int daemon_alloc_pd(struct daemon_conn *conn, uint32_t *handle)
{
	const struct ib_uverbs_alloc_pd body = {0};
	struct ib_uverbs_alloc_pd_resp resp;
	int err = conn_exchange_simple(conn, IB_USER_VERBS_CMD_ALLOC_PD, &body, sizeof(body), &resp,
				       sizeof(resp));

	if (!err)
		*handle = resp.pd_handle;
	return err;
}

int daemon_dealloc_pd(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_dealloc_pd body = {.pd_handle = handle};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DEALLOC_PD, &body, sizeof(body), NULL,
				    0);
}

int daemon_import_pd(struct daemon_conn *conn, uint32_t shared, uint32_t *handle)
{
	const struct proto_handle body = {.handle = shared};
	struct proto_import_pd_resp resp;
	int err = conn_exchange_simple(conn, PROTO_IMPORT_PD, &body, sizeof(body), &resp,
				       sizeof(resp));

	if (!err)
		*handle = resp.handle;
	return err;
}

int daemon_unimport_pd(struct daemon_conn *conn, uint32_t handle)
{
	const struct proto_handle body = {.handle = handle};

	return conn_exchange_simple(conn, PROTO_UNIMPORT_PD, &body, sizeof(body), NULL, 0);
}

int daemon_query_mr(struct daemon_conn *conn, uint32_t shared, struct proto_query_mr_resp *resp)
{
	const struct proto_handle body = {.handle = shared};

	return conn_exchange_simple(conn, PROTO_QUERY_MR, &body, sizeof(body), resp, sizeof(*resp));
}

int daemon_import_mr(struct daemon_conn *conn, uint32_t pd, uint32_t shared,
		     struct proto_import_mr_resp *resp)
{
	const struct proto_import_mr body = {.pd = pd, .shared = shared};

	return conn_exchange_simple(conn, PROTO_IMPORT_MR, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_reg_mr(struct daemon_conn *conn, uint32_t pd, uint64_t addr, uint64_t length,
		  uint64_t iova, uint32_t access, struct proto_reg_mr reach,
		  struct ib_uverbs_reg_mr_resp *resp)
{
	const struct {
		struct ib_uverbs_reg_mr reg;
		struct proto_reg_mr udata;
	} body = {.reg = {.start = addr,
			  .length = length,
			  .hca_va = iova,
			  .pd_handle = pd,
			  .access_flags = access},
		  .udata = reach};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_REG_MR, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_rereg_mr(struct daemon_conn *conn, uint32_t handle, uint32_t flags, uint64_t addr,
		    uint64_t length, uint64_t iova, uint32_t pd, uint32_t access,
		    struct proto_reg_mr reach, struct ib_uverbs_rereg_mr_resp *resp)
{
	const struct {
		struct ib_uverbs_rereg_mr rereg;
		struct proto_reg_mr udata;
	} body = {.rereg = {.mr_handle = handle,
			    .flags = flags,
			    .start = addr,
			    .length = length,
			    .hca_va = iova,
			    .pd_handle = pd,
			    .access_flags = access},
		  .udata = reach};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_REREG_MR, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_alloc_null_mr(struct daemon_conn *conn, uint32_t pd, struct ib_uverbs_reg_mr_resp *resp)
{
	const struct proto_handle body = {.handle = pd};

	return conn_exchange_simple(conn, PROTO_ALLOC_NULL_MR, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_alloc_dm(struct daemon_conn *conn, uint64_t length, int fd, uint32_t *handle)
{
	const struct proto_alloc_dm body = {.length = length};
	struct proto_alloc_dm_resp resp;
	int err = conn_exchange_again(conn, PROTO_ALLOC_DM, &body, sizeof(body), &fd, 1, &resp,
				      sizeof(resp), NULL);

	if (!err)
		*handle = resp.handle;
	return err;
}

int daemon_free_dm(struct daemon_conn *conn, uint32_t handle)
{
	const struct proto_handle body = {.handle = handle};

	return conn_exchange_simple(conn, PROTO_FREE_DM, &body, sizeof(body), NULL, 0);
}

int daemon_import_dm(struct daemon_conn *conn, uint32_t shared, uint64_t *length, int *fd)
{
	const struct proto_handle body = {.handle = shared};
	struct proto_import_dm_resp resp;
	int fds[PROTO_MAX_FDS] = {-1, -1, -1, -1};
	int err = conn_exchange_again(conn, PROTO_IMPORT_DM, &body, sizeof(body), NULL, 0, &resp,
				      sizeof(resp), fds);

	for (unsigned int i = err ? 0 : 1; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
	if (err || fds[0] < 0)
		return err ? err : -EPROTO;
	*length = resp.length;
	*fd = fds[0];
	return 0;
}

int daemon_reg_dm_mr(struct daemon_conn *conn, const struct proto_reg_dm_mr *body,
		     struct ib_uverbs_reg_mr_resp *resp)
{
	return conn_exchange_simple(conn, PROTO_REG_DM_MR, body, sizeof(*body), resp,
				    sizeof(*resp));
}

int daemon_dereg_mr(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_dereg_mr body = {.mr_handle = handle};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DEREG_MR, &body, sizeof(body), NULL, 0);
}

int daemon_alloc_mw(struct daemon_conn *conn, uint32_t pd, uint8_t type,
		    struct ib_uverbs_alloc_mw_resp *resp)
{
	const struct ib_uverbs_alloc_mw body = {.pd_handle = pd, .mw_type = type};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_ALLOC_MW, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_dealloc_mw(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_dealloc_mw body = {.mw_handle = handle};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DEALLOC_MW, &body, sizeof(body), NULL,
				    0);
}

int daemon_create_channel(struct daemon_conn *conn, uint32_t *handle)
{
	const struct ib_uverbs_create_comp_channel body = {0};
	struct ib_uverbs_create_comp_channel_resp resp;
	int err = conn_exchange_simple(conn, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &body,
				       sizeof(body), &resp, sizeof(resp));

	if (!err)
		*handle = resp.fd; /* a handle here, not a descriptor */
	return err;
}

void daemon_destroy_channel(struct daemon_conn *conn, uint32_t handle)
{
	const struct proto_handle body = {.handle = handle};

	conn_post(conn, PROTO_DESTROY_CHANNEL, &body, sizeof(body));
}

int daemon_create_cq(struct daemon_conn *conn, uint32_t cqe, int64_t channel, uint32_t comp_vector,
		     uint32_t *handle)
{
	const struct ib_uverbs_create_cq body = {
		.cqe = cqe, .comp_vector = comp_vector, .comp_channel = channel};
	struct ib_uverbs_create_cq_resp resp;
	int err = conn_exchange_simple(conn, IB_USER_VERBS_CMD_CREATE_CQ, &body, sizeof(body),
				       &resp, sizeof(resp));

	if (!err)
		*handle = resp.cq_handle;
	return err;
}

int daemon_create_channel_cq(struct daemon_conn *conn, uint32_t cqe, uint32_t comp_vector,
			     struct proto_create_channel_cq_resp *resp)
{
	const struct ib_uverbs_create_cq body = {.cqe = cqe, .comp_vector = comp_vector};

	return conn_exchange_simple(conn, PROTO_CREATE_CHANNEL_CQ, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_resize_cq(struct daemon_conn *conn, uint32_t handle, uint32_t cqe)
{
	const struct ib_uverbs_resize_cq body = {.cq_handle = handle, .cqe = cqe};
	struct ib_uverbs_resize_cq_resp resp;

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_RESIZE_CQ, &body, sizeof(body), &resp,
				    sizeof(resp));
}

void daemon_destroy_cq(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_destroy_cq body = {.cq_handle = handle};

	conn_post(conn, IB_USER_VERBS_CMD_DESTROY_CQ, &body, sizeof(body));
}

int daemon_create_qp(struct daemon_conn *conn, const struct ib_uverbs_create_qp *cmd,
		     struct ib_uverbs_create_qp_resp *resp)
{
	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_CREATE_QP, cmd, sizeof(*cmd), resp,
				    sizeof(*resp));
}

int daemon_create_qp_cqs(struct daemon_conn *conn, const struct proto_create_qp_cqs *cmd,
			 struct proto_create_qp_cqs_resp *resp)
{
	return conn_exchange_simple(conn, PROTO_CREATE_QP_CQS, cmd, sizeof(*cmd), resp,
				    sizeof(*resp));
}

void daemon_destroy_qp(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_destroy_qp body = {.qp_handle = handle};

	conn_post(conn, IB_USER_VERBS_CMD_DESTROY_QP, &body, sizeof(body));
}

int daemon_attach_mcast(struct daemon_conn *conn, uint32_t qp, const uint8_t gid[16], uint16_t lid)
{
	struct ib_uverbs_attach_mcast body = {.qp_handle = qp, .mlid = lid};

	memcpy(body.gid, gid, sizeof(body.gid));
	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_ATTACH_MCAST, &body, sizeof(body), NULL,
				    0);
}

int daemon_detach_mcast(struct daemon_conn *conn, uint32_t qp, const uint8_t gid[16], uint16_t lid)
{
	struct ib_uverbs_detach_mcast body = {.qp_handle = qp, .mlid = lid};

	memcpy(body.gid, gid, sizeof(body.gid));
	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DETACH_MCAST, &body, sizeof(body), NULL,
				    0);
}

int daemon_create_flow(struct daemon_conn *conn, const struct proto_create_flow *body,
		       uint32_t *handle)
{
	struct proto_create_flow_resp resp;
	int err = conn_exchange_simple(conn, PROTO_CREATE_FLOW, body, sizeof(*body), &resp,
				       sizeof(resp));

	if (!err)
		*handle = resp.handle;
	return err;
}

int daemon_destroy_flow(struct daemon_conn *conn, uint32_t handle)
{
	const struct proto_handle body = {.handle = handle};

	return conn_exchange_simple(conn, PROTO_DESTROY_FLOW, &body, sizeof(body), NULL, 0);
}

int daemon_create_srq(struct daemon_conn *conn, uint32_t pd, uint32_t max_wr, uint32_t max_sge,
		      uint32_t *handle)
{
	const struct ib_uverbs_create_srq body = {
		.pd_handle = pd, .max_wr = max_wr, .max_sge = max_sge};
	struct ib_uverbs_create_srq_resp resp;
	int err = conn_exchange_simple(conn, IB_USER_VERBS_CMD_CREATE_SRQ, &body, sizeof(body),
				       &resp, sizeof(resp));

	if (!err)
		*handle = resp.srq_handle;
	return err;
}

int daemon_open_xrcd(struct daemon_conn *conn, const struct proto_open_xrcd *body,
		     struct proto_open_xrcd_resp *resp)
{
	return conn_exchange_simple(conn, PROTO_OPEN_XRCD, body, sizeof(*body), resp,
				    sizeof(*resp));
}

int daemon_close_xrcd(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_close_xrcd body = {.xrcd_handle = handle};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_CLOSE_XRCD, &body, sizeof(body), NULL,
				    0);
}

int daemon_close_target(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_destroy_qp body = {.qp_handle = handle};
	struct ib_uverbs_destroy_qp_resp resp;

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DESTROY_QP, &body, sizeof(body), &resp,
				    sizeof(resp));
}

int daemon_create_xsrq(struct daemon_conn *conn, const struct ib_uverbs_create_xsrq *body,
		       struct ib_uverbs_create_srq_resp *resp)
{
	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_CREATE_XSRQ, body, sizeof(*body), resp,
				    sizeof(*resp));
}

int daemon_open_qp(struct daemon_conn *conn, uint32_t xrcd, uint32_t qpn, uint8_t type,
		   uint32_t *handle)
{
	const struct ib_uverbs_open_qp body = {.pd_handle = xrcd, .qpn = qpn, .qp_type = type};
	struct ib_uverbs_create_qp_resp resp;
	int err = conn_exchange_simple(conn, IB_USER_VERBS_CMD_OPEN_QP, &body, sizeof(body), &resp,
				       sizeof(resp));

	if (!err)
		*handle = resp.qp_handle;
	return err;
}

int daemon_xrc_query(struct daemon_conn *conn, uint32_t handle, uint32_t qpn,
		     struct proto_xrc_state *state)
{
	const struct proto_xrc_query body = {.handle = handle, .qpn = qpn};

	return conn_exchange_simple(conn, PROTO_XRC_QUERY, &body, sizeof(body), state,
				    sizeof(*state));
}

int daemon_xrc_modify(struct daemon_conn *conn, uint32_t handle, const struct proto_xrc_state *to,
		      struct proto_xrc_state *now)
{
	const struct proto_xrc_modify body = {.handle = handle, .to = *to};

	return conn_exchange_simple(conn, PROTO_XRC_MODIFY, &body, sizeof(body), now, sizeof(*now));
}

int daemon_alternate(struct daemon_conn *conn, uint32_t qpn, uint32_t status,
		     struct proto_alternate_resp *next)
{
	const struct proto_alternate body = {.qpn = qpn, .status = status};

	return conn_exchange_simple(conn, PROTO_ALTERNATE, &body, sizeof(body), next,
				    sizeof(*next));
}

int daemon_xrc_report(struct daemon_conn *conn, const struct proto_xrc_report *report)
{
	return conn_exchange_simple(conn, PROTO_XRC_REPORT, report, sizeof(*report), NULL, 0);
}

int daemon_xrc_returns(struct daemon_conn *conn, uint32_t xrcd, const struct proto_xrc_state *was,
		       struct proto_xrc_state *now)
{
	const struct proto_xrc_returns body = {.xrcd = xrcd, .was = *was};

	return conn_exchange_simple(conn, PROTO_XRC_RETURNS, &body, sizeof(body), now,
				    sizeof(*now));
}

/* A command whose answer is one descriptor. */
static int conn_exchange_fd(struct daemon_conn *conn, uint32_t command, const void *body,
			    size_t size, int *fd)
{
	int received[PROTO_MAX_FDS] = {-1, -1, -1, -1};
	int err = conn_exchange(conn, command, body, size, NULL, 0, NULL, 0, received);

	*fd = received[0];
	for (unsigned int i = 1; i < PROTO_MAX_FDS; i++)
		if (received[i] >= 0)
			sys_close(received[i]);
	return !err && *fd < 0 ? -EPROTO : err;
}

int daemon_xrc_memory(struct daemon_conn *conn, int *fd)
{
	return conn_exchange_fd(conn, PROTO_XRC_MEMORY, NULL, 0, fd);
}

int daemon_xrc_socket(struct daemon_conn *conn, uint32_t slot, int *fd)
{
	const struct proto_xrc_socket body = {.slot = slot};

	return conn_exchange_fd(conn, PROTO_XRC_SOCKET, &body, sizeof(body), fd);
}

int daemon_xrc_memory_returns(struct daemon_conn *conn, int fd)
{
	return conn_exchange(conn, PROTO_XRC_MEMORY_RETURNS, NULL, 0, &fd, 1, NULL, 0, NULL);
}

int daemon_modify_srq(struct daemon_conn *conn, uint32_t handle, uint32_t max_wr)
{
	const struct ib_uverbs_modify_srq body = {.srq_handle = handle,
						  .attr_mask = 1, /* IB_SRQ_MAX_WR */
						  .max_wr = max_wr};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_MODIFY_SRQ, &body, sizeof(body), NULL,
				    0);
}

int daemon_destroy_srq(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_destroy_srq body = {.srq_handle = handle};
	struct ib_uverbs_destroy_srq_resp resp;

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DESTROY_SRQ, &body, sizeof(body), &resp,
				    sizeof(resp));
}

int daemon_route(struct daemon_conn *conn, const struct proto_route *request,
		 struct proto_route_resp *resp)
{
	return conn_exchange_simple(conn, PROTO_ROUTE, request, sizeof(*request), resp,
				    sizeof(*resp));
}

int daemon_create_ah(struct daemon_conn *conn, uint32_t pd, const struct ib_uverbs_ah_attr *attr,
		     struct proto_create_ah_resp *resp)
{
	struct ib_uverbs_create_ah body = {.pd_handle = pd};

	body.attr = *attr;
	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_CREATE_AH, &body, sizeof(body), resp,
				    sizeof(*resp));
}

int daemon_destroy_ah(struct daemon_conn *conn, uint32_t handle)
{
	const struct ib_uverbs_destroy_ah body = {.ah_handle = handle};

	return conn_exchange_simple(conn, IB_USER_VERBS_CMD_DESTROY_AH, &body, sizeof(body), NULL,
				    0);
}
