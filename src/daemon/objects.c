/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands: one table from numbers to handlers, with the length that each needs. A handler gets
 * a request whose body is long enough and belongs to the right kind of connection.
 *
 * Objects count their users: what is in use can't be destroyed (-EBUSY), as in the kernel.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/daemon.h"

const char *const object_names[OBJ_TYPES] = {
	[OBJ_PD] = "pd", [OBJ_MR] = "mr",   [OBJ_CHANNEL] = "channel", [OBJ_CQ] = "cq",
	[OBJ_QP] = "qp", [OBJ_SRQ] = "srq", [OBJ_AH] = "ah",
};

/* ------------------------------------------------------------------ objects */

static struct object *find(struct conn *conn, enum object_type type, uint32_t handle)
{
	return table_find(&conn->objects[type], handle);
}

/* A new object of `type` that uses up to four others (NULLs are skipped). */
static int make(struct conn *conn, enum object_type type, struct object *const uses[4],
		struct object **out)
{
	struct object *o = calloc(1, sizeof(*o));
	int err = o ? table_add(&conn->objects[type], o, &o->handle) : -ENOMEM;

	if (err) {
		if (err == -ENOSPC)
			log_warn("process %d has %u objects of type %s, which is the limit",
				 conn->pid, conn->objects[type].used, object_names[type]);
		free(o);
		return err == -ENOSPC ? -ENOMEM : err;
	}
	for (int i = 0; uses && i < 4; i++) {
		o->uses[i] = uses[i];
		if (uses[i])
			uses[i]->users++;
	}
	*out = o;
	return 0;
}

/* Gives back what an object of `type` took from its process. */
static void give_back(struct conn *conn, enum object_type type, struct object *o)
{
	struct process *p = conn->process;

	if (!p)
		return;
	if (type == OBJ_QP)
		numbers_give(&p->qpns, o->qp.qpn & (LIMIT_QPS_PER_SLOT - 1));
	if (type == OBJ_MR) {
		numbers_give(&p->keys, o->mr.rkey >> LIMIT_KEY_TAG_BITS);
		p->pinned_bytes -= o->mr.length;
	}
}

static void free_object(struct conn *conn, enum object_type type, struct object *o)
{
	give_back(conn, type, o);
	for (int i = 0; i < 4; i++)
		if (o->uses[i])
			o->uses[i]->users--;
	table_remove(&conn->objects[type], o->handle);
	free(o);
}

static int destroy(struct conn *conn, enum object_type type, uint32_t handle)
{
	struct object *o = find(conn, type, handle);

	if (!o)
		return -EINVAL;
	if (o->users)
		return -EBUSY;
	free_object(conn, type, o);
	return 0;
}

void objects_free_all(struct conn *conn)
{
	static const enum object_type order[] = {OBJ_AH, OBJ_QP,      OBJ_SRQ, OBJ_MR,
						 OBJ_CQ, OBJ_CHANNEL, OBJ_PD};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		struct table *t = &conn->objects[order[i]];

		for (uint32_t place = 0; place < t->size; place++)
			if (table_at(t, place))
				free_object(conn, order[i], table_at(t, place));
		table_destroy(t);
	}
}

static void reply(struct response *r, const void *body, size_t size)
{
	memcpy(r->body, body, size);
	r->size = size;
}

/* ------------------------------------------------------------------ process and context */

static int do_attach(struct conn *conn, struct request *q, struct response *r)
{
	const struct proto_attach *cmd = (const void *)q->body;
	struct proto_attach_resp resp;

	if (conn->is_process || conn->is_context)
		return -EINVAL;
	if (cmd->abi != PROTO_ABI) {
		log_warn("process %d speaks version %u of our protocol, we speak %u: "
			 "its library and this daemon are of different releases",
			 conn->pid, cmd->abi, PROTO_ABI);
		return -EPROTONOSUPPORT;
	}
	int err = process_attach(conn, q->fds[0], q->fds[1], &r->fd, &resp);

	if (err)
		return err;
	q->fds[0] = q->fds[1] = -1; /* kept */
	reply(r, &resp, sizeof(resp));
	return 0;
}

static int do_link(struct conn *conn, struct request *q, struct response *r)
{
	const struct proto_link *cmd = (const void *)q->body;

	(void)r;
	return conn->is_process ? link_make(conn->process, cmd->slot) : -EINVAL;
}

static int do_list_devices(struct conn *conn, struct request *q, struct response *r)
{
	struct proto_list_devices_resp resp = {.count = 1};
	struct proto_device *d = &resp.device[0];

	(void)conn;
	(void)q;
	memcpy(d->name, server.device.name, sizeof(d->name));
	memcpy(d->node, server.device.node, sizeof(d->node));
	d->node_guid = server.device.guid;
	d->ports = 1;
	reply(r, &resp, sizeof(resp));
	return 0;
}

static int do_get_context(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_get_context *cmd = (const void *)q->body;
	struct ib_uverbs_get_context_resp resp = {.num_comp_vectors = LIMIT_COMP_VECTORS};
	struct proto_get_context udata;

	if (conn->is_process || conn->is_context)
		return -EINVAL;
	memcpy(&udata, q->body + sizeof(*cmd), sizeof(udata));
	struct process *p = process_by_cookie(udata.cookie, conn->uid);

	if (!p)
		return -EINVAL;
	conn->process = p;
	conn->is_context = true;
	list_add_tail(&p->contexts, &conn->of_process);
	reply(r, &resp, sizeof(resp));
	return 0;
}

/* ------------------------------------------------------------------ queries */

static int do_query_device(struct conn *conn, struct request *q, struct response *r)
{
	struct ib_uverbs_query_device_resp resp = {0};

	(void)conn;
	(void)q;
	device_query(&server.device, &resp);
	reply(r, &resp, sizeof(resp));
	return 0;
}

static int do_query_port(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_query_port *cmd = (const void *)q->body;
	struct ib_uverbs_query_port_resp resp = {0};

	(void)conn;
	if (cmd->port_num != 1)
		return -EINVAL;
	device_query_port(&server.device, &resp);
	reply(r, &resp, sizeof(resp));
	return 0;
}

static int do_query_gid(struct conn *conn, struct request *q, struct response *r)
{
	const struct proto_query_gid *cmd = (const void *)q->body;
	struct proto_query_gid_resp resp = {.type = 2};

	(void)conn;
	if (cmd->port != 1 || cmd->index >= LIMIT_GIDS)
		return -EINVAL;
	const struct gid_entry *e = &server.device.gids[cmd->index];

	if (!e->used)
		return -ENODATA;
	memcpy(resp.gid, e->gid, sizeof(resp.gid));
	resp.ifindex = e->ifindex;
	reply(r, &resp, sizeof(resp));
	return 0;
}

/* ------------------------------------------------------------------ PD, MR */

static int do_alloc_pd(struct conn *conn, struct request *q, struct response *r)
{
	struct object *pd;
	int err = make(conn, OBJ_PD, NULL, &pd);

	(void)q;
	if (err)
		return err;
	reply(r, &(struct ib_uverbs_alloc_pd_resp){.pd_handle = pd->handle},
	      sizeof(struct ib_uverbs_alloc_pd_resp));
	return 0;
}

static int do_dealloc_pd(struct conn *conn, struct request *q, struct response *r)
{
	(void)r;
	return destroy(conn, OBJ_PD, ((const struct ib_uverbs_dealloc_pd *)q->body)->pd_handle);
}

/* enum ibv_access_flags */
enum {
	ACCESS_LOCAL_WRITE = 1,
	ACCESS_REMOTE_WRITE = 2,
	ACCESS_REMOTE_ATOMIC = 8,
	ACCESS_KNOWN = 0xff,
	ACCESS_OPTIONAL = 0x3ff00000,
	ACCESS_ON_DEMAND = 64,
};

static int check_access(uint32_t access)
{
	if (access & ~(uint32_t)(ACCESS_KNOWN | ACCESS_OPTIONAL))
		return -EINVAL;
	if (access & ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	if ((access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC)) &&
	    !(access & ACCESS_LOCAL_WRITE))
		return -EINVAL; /* remote write implies local write (10.6.3.1) */
	return 0;
}

/* A key index with a tag that its last owner didn't have. */
static int take_key(struct process *p, uint32_t *lkey)
{
	uint32_t index;
	int err = numbers_take(&p->keys, &index);

	if (err)
		return err;
	if (index >= p->key_tags_size) {
		uint32_t size = p->key_tags_size ? p->key_tags_size * 2 : 256;
		uint8_t *tags = realloc(p->key_tags, size);

		if (!tags) {
			numbers_give(&p->keys, index);
			return -ENOMEM;
		}
		memset(tags + p->key_tags_size, 0, size - p->key_tags_size);
		p->key_tags = tags;
		p->key_tags_size = size;
	}
	p->key_tags[index] += 2;
	*lkey = index << LIMIT_KEY_TAG_BITS | p->key_tags[index];
	return 0;
}

static int do_reg_mr(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_reg_mr *cmd = (const void *)q->body;
	struct object *uses[4] = {find(conn, OBJ_PD, cmd->pd_handle)}, *mr;
	struct ib_uverbs_reg_mr_resp resp = {0};
	int err = check_access(cmd->access_flags);

	if (err)
		return err;
	if (!uses[0] || cmd->length > LIMIT_MR_BYTES || cmd->start + cmd->length < cmd->start ||
	    cmd->hca_va + cmd->length < cmd->hca_va)
		return -EINVAL;
	err = make(conn, OBJ_MR, uses, &mr);
	if (err)
		return err;
	err = take_key(conn->process, &resp.lkey);
	if (err) {
		uses[0]->users--;
		table_remove(&conn->objects[OBJ_MR], mr->handle);
		free(mr);
		return -ENOMEM;
	}
	resp.rkey = resp.lkey + 1;
	resp.mr_handle = mr->handle;
	mr->mr.addr = cmd->start;
	mr->mr.length = cmd->length;
	mr->mr.access = cmd->access_flags;
	mr->mr.rkey = resp.rkey;
	conn->process->pinned_bytes += cmd->length;
	reply(r, &resp, sizeof(resp));
	return 0;
}

static int do_dereg_mr(struct conn *conn, struct request *q, struct response *r)
{
	(void)r;
	return destroy(conn, OBJ_MR, ((const struct ib_uverbs_dereg_mr *)q->body)->mr_handle);
}

/* ------------------------------------------------------------------ channel, CQ */

static int do_create_channel(struct conn *conn, struct request *q, struct response *r)
{
	struct object *channel;
	int err = make(conn, OBJ_CHANNEL, NULL, &channel);

	(void)q;
	if (err)
		return err;
	reply(r, &(struct ib_uverbs_create_comp_channel_resp){.fd = channel->handle},
	      sizeof(struct ib_uverbs_create_comp_channel_resp));
	return 0;
}

static int do_destroy_channel(struct conn *conn, struct request *q, struct response *r)
{
	(void)r;
	return destroy(conn, OBJ_CHANNEL, ((const struct proto_handle *)q->body)->handle);
}

static int do_create_cq(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_create_cq *cmd = (const void *)q->body;
	struct object *uses[4] = {NULL}, *cq;

	if (!cmd->cqe || cmd->cqe > LIMIT_CQE || cmd->comp_vector >= LIMIT_COMP_VECTORS)
		return -EINVAL;
	if (cmd->comp_channel != -1) {
		uses[0] = find(conn, OBJ_CHANNEL, cmd->comp_channel);
		if (!uses[0])
			return -EINVAL;
	}
	int err = make(conn, OBJ_CQ, uses, &cq);

	if (err)
		return err;
	cq->cq.cqe = cmd->cqe;
	reply(r, &(struct ib_uverbs_create_cq_resp){.cq_handle = cq->handle, .cqe = cmd->cqe},
	      sizeof(struct ib_uverbs_create_cq_resp));
	return 0;
}

static int do_resize_cq(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_resize_cq *cmd = (const void *)q->body;
	struct object *cq = find(conn, OBJ_CQ, cmd->cq_handle);

	if (!cq || !cmd->cqe || cmd->cqe > LIMIT_CQE)
		return -EINVAL;
	cq->cq.cqe = cmd->cqe;
	reply(r, &(struct ib_uverbs_resize_cq_resp){.cqe = cmd->cqe},
	      sizeof(struct ib_uverbs_resize_cq_resp));
	return 0;
}

static int do_destroy_cq(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_destroy_cq *cmd = (const void *)q->body;

	reply(r, &(struct ib_uverbs_destroy_cq_resp){0}, sizeof(struct ib_uverbs_destroy_cq_resp));
	return destroy(conn, OBJ_CQ, cmd->cq_handle);
}

/* ------------------------------------------------------------------ QP, SRQ, AH */

static int check_qp(const struct ib_uverbs_create_qp *cmd)
{
	if (cmd->qp_type < 2 || cmd->qp_type > 4) /* RC, UC, UD */
		return -EOPNOTSUPP;
	if (cmd->max_send_wr > LIMIT_QP_WR || cmd->max_recv_wr > LIMIT_QP_WR ||
	    cmd->max_send_sge > LIMIT_SGE || cmd->max_recv_sge > LIMIT_SGE ||
	    cmd->max_inline_data > LIMIT_INLINE)
		return -EINVAL;
	return 0;
}

static int do_create_qp(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_create_qp *cmd = (const void *)q->body;
	struct object *uses[4] = {
		find(conn, OBJ_PD, cmd->pd_handle),
		find(conn, OBJ_CQ, cmd->send_cq_handle),
		find(conn, OBJ_CQ, cmd->recv_cq_handle),
		cmd->is_srq ? find(conn, OBJ_SRQ, cmd->srq_handle) : NULL,
	};
	struct object *qp;
	uint32_t number;
	int err = check_qp(cmd);

	if (err)
		return err;
	if (!uses[0] || !uses[1] || !uses[2] || (cmd->is_srq && !uses[3]))
		return -EINVAL;
	err = numbers_take(&conn->process->qpns, &number);
	if (err) {
		log_warn("process %d has all its %u QP numbers in use", conn->pid,
			 LIMIT_QPS_PER_SLOT - 1);
		return -ENOMEM;
	}
	err = make(conn, OBJ_QP, uses, &qp);
	if (err) {
		numbers_give(&conn->process->qpns, number);
		return err;
	}
	qp->qp.qpn = conn->process->slot << LIMIT_QP_BITS | number;
	qp->qp.type = cmd->qp_type;
	qp->qp.max_send_wr = cmd->max_send_wr;
	qp->qp.max_recv_wr = cmd->max_recv_wr;
	struct ib_uverbs_create_qp_resp resp = {
		.qp_handle = qp->handle,
		.qpn = qp->qp.qpn,
		.max_send_wr = cmd->max_send_wr,
		.max_recv_wr = cmd->max_recv_wr,
		.max_send_sge = cmd->max_send_sge,
		.max_recv_sge = cmd->max_recv_sge,
		.max_inline_data = cmd->max_inline_data,
	};

	reply(r, &resp, sizeof(resp));
	return 0;
}

static int do_destroy_qp(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_destroy_qp *cmd = (const void *)q->body;

	reply(r, &(struct ib_uverbs_destroy_qp_resp){0}, sizeof(struct ib_uverbs_destroy_qp_resp));
	return destroy(conn, OBJ_QP, cmd->qp_handle);
}

static int do_create_srq(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_create_srq *cmd = (const void *)q->body;
	struct object *uses[4] = {find(conn, OBJ_PD, cmd->pd_handle)}, *srq;

	if (!uses[0] || !cmd->max_wr || cmd->max_wr > LIMIT_SRQ_WR || cmd->max_sge > LIMIT_SGE)
		return -EINVAL;
	int err = make(conn, OBJ_SRQ, uses, &srq);

	if (err)
		return err;
	srq->srq.max_wr = cmd->max_wr;
	reply(r,
	      &(struct ib_uverbs_create_srq_resp){
		      .srq_handle = srq->handle, .max_wr = cmd->max_wr, .max_sge = cmd->max_sge},
	      sizeof(struct ib_uverbs_create_srq_resp));
	return 0;
}

static int do_modify_srq(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_modify_srq *cmd = (const void *)q->body;
	struct object *srq = find(conn, OBJ_SRQ, cmd->srq_handle);

	(void)r;
	if (!srq || !cmd->max_wr || cmd->max_wr > LIMIT_SRQ_WR)
		return -EINVAL;
	srq->srq.max_wr = cmd->max_wr;
	return 0;
}

static int do_destroy_srq(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_destroy_srq *cmd = (const void *)q->body;

	reply(r, &(struct ib_uverbs_destroy_srq_resp){0},
	      sizeof(struct ib_uverbs_destroy_srq_resp));
	return destroy(conn, OBJ_SRQ, cmd->srq_handle);
}

static int do_create_ah(struct conn *conn, struct request *q, struct response *r)
{
	const struct ib_uverbs_create_ah *cmd = (const void *)q->body;
	struct object *uses[4] = {find(conn, OBJ_PD, cmd->pd_handle)}, *ah;

	if (!uses[0] || cmd->attr.port_num != 1 || !cmd->attr.is_global ||
	    !server.device.gids[cmd->attr.grh.sgid_index].used)
		return -EINVAL;
	int err = make(conn, OBJ_AH, uses, &ah);

	if (err)
		return err;
	reply(r, &(struct ib_uverbs_create_ah_resp){.ah_handle = ah->handle},
	      sizeof(struct ib_uverbs_create_ah_resp));
	return 0;
}

static int do_destroy_ah(struct conn *conn, struct request *q, struct response *r)
{
	(void)r;
	return destroy(conn, OBJ_AH, ((const struct ib_uverbs_destroy_ah *)q->body)->ah_handle);
}

/* ------------------------------------------------------------------ the table */

struct command {
	uint32_t number;
	bool needs_context;
	size_t size; /* of the body, exactly */
	int (*run)(struct conn *conn, struct request *request, struct response *response);
};

#define CTX true
#define ANY false
static const struct command commands[] = {
	{PROTO_ATTACH, ANY, sizeof(struct proto_attach), do_attach},
	{PROTO_LINK, ANY, sizeof(struct proto_link), do_link},
	{PROTO_LIST_DEVICES, ANY, 0, do_list_devices},
	{IB_USER_VERBS_CMD_GET_CONTEXT, ANY,
	 sizeof(struct ib_uverbs_get_context) + sizeof(struct proto_get_context), do_get_context},
	{IB_USER_VERBS_CMD_QUERY_DEVICE, CTX, sizeof(struct ib_uverbs_query_device),
	 do_query_device},
	{IB_USER_VERBS_CMD_QUERY_PORT, CTX, sizeof(struct ib_uverbs_query_port), do_query_port},
	{PROTO_QUERY_GID, CTX, sizeof(struct proto_query_gid), do_query_gid},
	{IB_USER_VERBS_CMD_ALLOC_PD, CTX, sizeof(struct ib_uverbs_alloc_pd), do_alloc_pd},
	{IB_USER_VERBS_CMD_DEALLOC_PD, CTX, sizeof(struct ib_uverbs_dealloc_pd), do_dealloc_pd},
	{IB_USER_VERBS_CMD_REG_MR, CTX, sizeof(struct ib_uverbs_reg_mr), do_reg_mr},
	{IB_USER_VERBS_CMD_DEREG_MR, CTX, sizeof(struct ib_uverbs_dereg_mr), do_dereg_mr},
	{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, CTX, sizeof(struct ib_uverbs_create_comp_channel),
	 do_create_channel},
	{PROTO_DESTROY_CHANNEL, CTX, sizeof(struct proto_handle), do_destroy_channel},
	{IB_USER_VERBS_CMD_CREATE_CQ, CTX, sizeof(struct ib_uverbs_create_cq), do_create_cq},
	{IB_USER_VERBS_CMD_RESIZE_CQ, CTX, sizeof(struct ib_uverbs_resize_cq), do_resize_cq},
	{IB_USER_VERBS_CMD_DESTROY_CQ, CTX, sizeof(struct ib_uverbs_destroy_cq), do_destroy_cq},
	{IB_USER_VERBS_CMD_CREATE_QP, CTX, sizeof(struct ib_uverbs_create_qp), do_create_qp},
	{IB_USER_VERBS_CMD_DESTROY_QP, CTX, sizeof(struct ib_uverbs_destroy_qp), do_destroy_qp},
	{IB_USER_VERBS_CMD_CREATE_SRQ, CTX, sizeof(struct ib_uverbs_create_srq), do_create_srq},
	{IB_USER_VERBS_CMD_MODIFY_SRQ, CTX, sizeof(struct ib_uverbs_modify_srq), do_modify_srq},
	{IB_USER_VERBS_CMD_DESTROY_SRQ, CTX, sizeof(struct ib_uverbs_destroy_srq), do_destroy_srq},
	{IB_USER_VERBS_CMD_CREATE_AH, CTX, sizeof(struct ib_uverbs_create_ah), do_create_ah},
	{IB_USER_VERBS_CMD_DESTROY_AH, CTX, sizeof(struct ib_uverbs_destroy_ah), do_destroy_ah},
};

static const struct command *find_command(uint32_t number)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (commands[i].number == number)
			return &commands[i];
	return NULL;
}

int command_run(struct conn *conn, const uint8_t *packet, size_t size, int *fds,
		struct response *response)
{
	struct ib_uverbs_cmd_hdr header;
	_Alignas(8) uint8_t body[PROTO_MAX_MESSAGE];

	if (size < sizeof(header))
		return -EINVAL;
	memcpy(&header, packet, sizeof(header));
	if ((size_t)header.in_words * 4 != size)
		return -EINVAL;
	const struct command *command = find_command(header.command);

	if (!command)
		return -EOPNOTSUPP;
	if (size - sizeof(header) != command->size)
		return -EINVAL;
	if (command->needs_context && !conn->is_context)
		return -EINVAL;
	memcpy(body, packet + sizeof(header), command->size);
	struct request request = {.body = body, .size = command->size, .fds = fds};

	return command->run(conn, &request, response);
}
