/* SPDX-License-Identifier: BSD-2-Clause */
/* See commands.h. */
#include "commands.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/call.h"
#include "input.h"
#include "proto/limits.h"

/* ------------------------------------------------------------------ requests */

/* A handle of an object that `command` makes: one that the client has, or had, or any number. */
static uint32_t handle_of(const struct client *client, uint32_t command, struct input *in)
{
	uint8_t b = input_u8(in);

	if (b >= 248)
		return input_u32(in);
	for (uint32_t i = 0; i < client->count; i++) {
		const struct known *k = &client->known[(client->count - 1 - i + b) % client->count];

		if (k->command == command || b >= 240)
			return k->handle;
	}
	return b;
}

#define PD(client, in) handle_of(client, IB_USER_VERBS_CMD_ALLOC_PD, in)
#define CQ(client, in) handle_of(client, IB_USER_VERBS_CMD_CREATE_CQ, in)
#define SRQ(client, in) handle_of(client, IB_USER_VERBS_CMD_CREATE_SRQ, in)
#define XRCD(client, in) handle_of(client, PROTO_OPEN_XRCD, in)

static void add(struct packet *packet, const void *data, size_t size)
{
	memcpy(packet->bytes + packet->size, data, size);
	packet->size += size;
}

#define ADD(packet, ...)                                          \
	do {                                                      \
		add(packet, &(__VA_ARGS__), sizeof(__VA_ARGS__)); \
	} while (0)

static void body_mr(struct packet *p, const struct client *c, struct input *in)
{
	struct ib_uverbs_reg_mr body = {.start = (uint64_t)input_u8(in) << 12,
					.length = (uint64_t)input_u8(in) << input_u8(in) % 50,
					.pd_handle = PD(c, in),
					.access_flags = input_u8(in)};

	body.hca_va = body.start;
	ADD(p, body);
}

static void body_mw(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_alloc_mw body = {.pd_handle = PD(c, in),
						.mw_type = input_u8(in) % 4};

	ADD(p, body);
}

static void body_rereg(struct packet *p, const struct client *c, struct input *in)
{
	struct ib_uverbs_rereg_mr body = {.mr_handle = handle_of(c, IB_USER_VERBS_CMD_REG_MR, in),
					  .flags = input_u8(in) % 8,
					  .start = (uint64_t)input_u8(in) << 12,
					  .length = (uint64_t)input_u8(in) << input_u8(in) % 50,
					  .pd_handle = PD(c, in),
					  .access_flags = input_u8(in)};

	body.hca_va = body.start;
	ADD(p, body);
}

static void body_cq(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_create_cq body = {
		.cqe = input_u8(in),
		.comp_vector = input_u8(in) % 9,
		.comp_channel =
			input_u8(in) & 1
				? -1
				: (int32_t)handle_of(c, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, in)};

	ADD(p, body);
}

static void body_qp(struct packet *p, const struct client *c, struct input *in)
{
	static const uint8_t types[] = {2, 3, 4, 8}; /* RC, UC, UD, raw packets */
	const struct ib_uverbs_create_qp body = {.pd_handle = PD(c, in),
						 .send_cq_handle = CQ(c, in),
						 .recv_cq_handle = CQ(c, in),
						 .is_srq = input_u8(in) & 1,
						 .srq_handle = SRQ(c, in),
						 .max_send_wr = input_u8(in),
						 .max_recv_wr = input_u8(in),
						 .max_send_sge = 1,
						 .max_recv_sge = 1,
						 .qp_type = types[input_u8(in) % 4]};

	ADD(p, body);
}

static void body_ah(struct packet *p, const struct client *c, struct input *in)
{
	struct ib_uverbs_create_ah body = {.pd_handle = PD(c, in)};

	body.attr.is_global = 1;
	body.attr.port_num = 1;
	body.attr.grh.sgid_index = input_u8(in) % 8;
	ADD(p, body);
}

static void body_srq(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_create_srq body = {
		.pd_handle = PD(c, in), .max_wr = input_u8(in), .max_sge = input_u8(in) % 40};

	ADD(p, body);
}

static void body_modify_srq(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_modify_srq body = {
		.srq_handle = SRQ(c, in), .attr_mask = input_u8(in) % 4, .max_wr = input_u8(in)};

	ADD(p, body);
}

static void body_resize(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_resize_cq body = {.cq_handle = CQ(c, in), .cqe = input_u8(in)};

	ADD(p, body);
}

/* Commands with a 64-bit `response` first and nothing more. */
static void body_response(struct packet *p, const struct client *c, struct input *in)
{
	const uint64_t response = 0;

	(void)c, (void)in;
	ADD(p, response);
}

static void body_none(struct packet *p, const struct client *c, struct input *in)
{
	(void)p, (void)c, (void)in;
}

static void body_port(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_query_port body = {.port_num = input_u8(in) % 3};

	(void)c;
	ADD(p, body);
}

static void body_gid(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_query_gid body = {.port = 1, .index = input_u8(in) % 16};

	(void)c;
	ADD(p, body);
}

static void body_route(struct packet *p, const struct client *c, struct input *in)
{
	struct proto_route body = {.port = input_u8(in) % 3, .sgid_index = input_u8(in) % 8};

	(void)c;
	for (unsigned int i = 0; i < sizeof(body.dgid); i += 4) {
		uint32_t word = input_u32(in);

		memcpy(body.dgid + i, &word, sizeof(word));
	}
	ADD(p, body);
}

static const uint8_t groups[][16] = {
	{[10] = 0xff, 0xff, 224, 1, 2, 3},
	{[10] = 0xff, 0xff, 224, 1, 2, 4},
	{0xff, 0x0e, [15] = 1},
	{[10] = 0xff, 0xff, 10, 1, 2, 3}, /* none */
};

/* The same structure attaches and detaches. */
static void body_mcast(struct packet *p, const struct client *c, struct input *in)
{
	struct ib_uverbs_attach_mcast body = {
		.qp_handle = handle_of(c, IB_USER_VERBS_CMD_CREATE_QP, in)};
	uint8_t b = input_u8(in);

	memcpy(body.gid, groups[b % 4], sizeof(body.gid));
	/* Many groups: there are limits. */
	if (b >= 128)
		body.gid[15] = input_u8(in);
	add(p, &body, offsetof(struct ib_uverbs_attach_mcast, driver_data));
}

/* Device memory: the file that comes along (daemon_commands.c) has one page. */
static void body_alloc_dm(struct packet *p, const struct client *c, struct input *in)
{
	uint8_t b = input_u8(in);
	const struct proto_alloc_dm body = {.length = b < 192 ? b * 22u : (uint64_t)b << b % 60};

	(void)c;
	ADD(p, body);
}

static void body_dm_handle(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_handle body = {.handle = handle_of(c, PROTO_ALLOC_DM, in)};

	ADD(p, body);
}

static void body_dm_mr(struct packet *p, const struct client *c, struct input *in)
{
	struct proto_reg_dm_mr body = {
		.offset = input_u8(in), .length = input_u8(in), .access = input_u8(in)};

	body.pd = PD(c, in);
	body.dm = handle_of(c, PROTO_ALLOC_DM, in);
	body.access |= body.access & 0x80 ? 0 : IB_UVERBS_ACCESS_ZERO_BASED;
	ADD(p, body);
}

static void body_null_mr(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_handle body = {.handle = PD(c, in)};

	ADD(p, body);
}

/* A handle alone, at the place that the kernel's structure has it. */
static void body_destroy(struct packet *p, const struct client *c, struct input *in)
{
	static const struct {
		uint16_t command, makes;
		bool responds;
	} ends[] = {
		{IB_USER_VERBS_CMD_DEALLOC_PD, IB_USER_VERBS_CMD_ALLOC_PD, false},
		{IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_REG_MR, false},
		{IB_USER_VERBS_CMD_DEALLOC_MW, IB_USER_VERBS_CMD_ALLOC_MW, false},
		{IB_USER_VERBS_CMD_CLOSE_XRCD, PROTO_OPEN_XRCD, false},
		{IB_USER_VERBS_CMD_DESTROY_AH, IB_USER_VERBS_CMD_CREATE_AH, false},
		{IB_USER_VERBS_CMD_DESTROY_CQ, IB_USER_VERBS_CMD_CREATE_CQ, true},
		{IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_CREATE_QP, true},
		{IB_USER_VERBS_CMD_DESTROY_SRQ, IB_USER_VERBS_CMD_CREATE_SRQ, true},
		{PROTO_DESTROY_CHANNEL, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, false},
	};
	struct ib_uverbs_cmd_hdr header;
	const uint64_t response = 0;

	memcpy(&header, p->bytes, sizeof(header));
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		if (ends[i].command != header.command)
			continue;
		const uint32_t handle[2] = {handle_of(c, ends[i].makes, in), 0};

		if (ends[i].responds)
			ADD(p, response);
		add(p, handle, header.command == PROTO_DESTROY_CHANNEL || ends[i].responds ? 8 : 4);
	}
}

static void body_import_pd(struct packet *p, const struct client *other, struct input *in)
{
	const struct proto_handle body = {.handle = PD(other, in)};

	ADD(p, body);
}

static void body_unimport_pd(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_handle body = {.handle = PD(c, in)};

	ADD(p, body);
}

static void body_query_mr(struct packet *p, const struct client *other, struct input *in)
{
	const struct proto_handle body = {.handle = handle_of(other, IB_USER_VERBS_CMD_REG_MR, in)};

	ADD(p, body);
}

/* Handles of two clients are often the same numbers. */
static void body_import_mr(struct packet *p, const struct client *other, struct input *in)
{
	const struct proto_import_mr body = {
		.pd = PD(other, in), .shared = handle_of(other, IB_USER_VERBS_CMD_REG_MR, in)};

	ADD(p, body);
}

/* Bodies that name another client. */
static void body_link(struct packet *p, const struct client *other, struct input *in)
{
	const struct proto_link body = {.slot = other->slot ? other->slot : input_u8(in)};

	ADD(p, body);
}

static void body_link_return(struct packet *p, const struct client *other, struct input *in)
{
	const struct proto_link_return body = {
		.link_id = other->link_id, .slot = other->slot, .side = input_u8(in) % 3};

	ADD(p, body);
}

static void body_flow(struct packet *p, const struct client *c, struct input *in)
{
	struct proto_create_flow body = {.qp = handle_of(c, IB_USER_VERBS_CMD_CREATE_QP, in),
					 .type = input_u8(in) % 5,
					 .flags = input_u8(in) % 8,
					 .priority = input_u8(in),
					 .port = input_u8(in) < 224,
					 .count = input_u8(in) % 4,
					 .size = input_u8(in)};

	if (body.size == 255)
		body.size = PROTO_FLOW_BYTES + 1;
	input_bytes(in, body.specs, body.size < 128 ? body.size : 128);
	ADD(p, body);
}

static void body_destroy_flow(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_handle body = {.handle = handle_of(c, PROTO_CREATE_FLOW, in)};

	ADD(p, body);
}

/* The extended form: lengths in words of eight bytes, without headers. */
static void body_ex_query(struct packet *p, const struct client *c, struct input *in)
{
	const struct {
		struct ib_uverbs_ex_cmd_hdr header;
		struct ib_uverbs_ex_query_device core;
		uint64_t more[2];
	} body = {.header.provider_in_words = input_u8(in) % 4,
		  .core.comp_mask = input_u8(in) >= 224,
		  .more[0] = input_u8(in) >= 224};

	(void)c;
	add(p, &body, sizeof(body) - (input_u8(in) >= 128 ? 0 : sizeof(body.more)));
}

static uint32_t qpn_of(const struct client *c, struct input *in)
{
	uint8_t b = input_u8(in);

	return c->slot << LIMIT_QP_BITS | b % 16;
}

static void body_open_xrcd(struct packet *p, const struct client *c, struct input *in)
{
	uint8_t b = input_u8(in);
	/* Few files, so that clients meet in one; 0100 is O_CREAT, 0200 O_EXCL. */
	const struct proto_open_xrcd body = {
		.dev = b % 4 ? 1 : 0, .ino = b % 4, .oflags = (b & 64) | (b & 128)};

	(void)c;
	ADD(p, body);
}

static void body_xsrq(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_create_xsrq body = {.srq_type = input_u8(in) % 8 ? 1 : 2,
						   .pd_handle = PD(c, in),
						   .max_wr = input_u8(in),
						   .max_sge = 1,
						   .xrcd_handle = XRCD(c, in),
						   .cq_handle = CQ(c, in)};

	ADD(p, body);
}

static void body_xrc_qp(struct packet *p, const struct client *c, struct input *in)
{
	bool target = input_u8(in) % 4;
	const struct ib_uverbs_create_qp body = {.pd_handle = target ? XRCD(c, in) : PD(c, in),
						 .send_cq_handle = CQ(c, in),
						 .max_send_wr = 4,
						 .max_send_sge = 1,
						 .qp_type = target ? 10 : 9};

	ADD(p, body);
}

static void body_open_qp(struct packet *p, const struct client *c, struct input *in)
{
	const struct ib_uverbs_open_qp body = {
		.pd_handle = XRCD(c, in), .qpn = qpn_of(c, in), .qp_type = 10};

	ADD(p, body);
}

static void body_xrc_query(struct packet *p, const struct client *c, struct input *in)
{
	bool by_number = input_u8(in) & 1;
	const struct proto_xrc_query body = {
		.handle = by_number ? 0 : handle_of(c, IB_USER_VERBS_CMD_CREATE_QP, in),
		.qpn = by_number ? qpn_of(c, in) : 0};

	ADD(p, body);
}

static struct proto_xrc_state xrc_state(const struct client *c, struct input *in)
{
	return (struct proto_xrc_state){.version = input_u8(in) % 4,
					.state = input_u8(in) % 8,
					.epoch = input_u8(in) % 4,
					.access = input_u8(in),
					.peer = qpn_of(c, in)};
}

static void body_xrc_modify(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_xrc_modify body = {
		.handle = handle_of(c, IB_USER_VERBS_CMD_CREATE_QP, in), .to = xrc_state(c, in)};

	ADD(p, body);
}

static void body_xrc_report(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_xrc_report body = {
		.qpn = qpn_of(c, in), .epoch = input_u8(in) % 8, .event = input_u8(in) % 6};

	ADD(p, body);
}

static void body_xrc_returns(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_xrc_returns body = {.xrcd = XRCD(c, in), .was = xrc_state(c, in)};

	ADD(p, body);
}

static void body_alternate(struct packet *p, const struct client *c, struct input *in)
{
	const struct proto_alternate body = {.qpn = qpn_of(c, in), .status = input_u8(in) % 16};

	ADD(p, body);
}

#define EXTENDED(number) ((number) | IB_USER_VERBS_CMD_FLAG_EXTENDED)

static const struct {
	uint32_t command;
	void (*fill)(struct packet *packet, const struct client *client, struct input *in);
	bool others, makes;
} commands[] = {
	{IB_USER_VERBS_CMD_ALLOC_PD, body_response, false, true},
	{IB_USER_VERBS_CMD_REG_MR, body_mr, false, true},
	{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, body_response, false, true},
	{IB_USER_VERBS_CMD_CREATE_CQ, body_cq, false, true},
	{IB_USER_VERBS_CMD_CREATE_SRQ, body_srq, false, true},
	{IB_USER_VERBS_CMD_CREATE_QP, body_qp, false, true},
	{IB_USER_VERBS_CMD_CREATE_AH, body_ah, false, true},
	{IB_USER_VERBS_CMD_REREG_MR, body_rereg, false, false},
	{IB_USER_VERBS_CMD_RESIZE_CQ, body_resize, false, false},
	{IB_USER_VERBS_CMD_MODIFY_SRQ, body_modify_srq, false, false},
	{IB_USER_VERBS_CMD_DEALLOC_PD, body_destroy, false, false},
	{IB_USER_VERBS_CMD_DEREG_MR, body_destroy, false, false},
	{IB_USER_VERBS_CMD_DESTROY_AH, body_destroy, false, false},
	{IB_USER_VERBS_CMD_DESTROY_CQ, body_destroy, false, false},
	{IB_USER_VERBS_CMD_DESTROY_QP, body_destroy, false, false},
	{IB_USER_VERBS_CMD_DESTROY_SRQ, body_destroy, false, false},
	{PROTO_DESTROY_CHANNEL, body_destroy, false, false},
	{PROTO_LINK, body_link, true, false},
	{EXTENDED(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), body_ex_query, false, false},
	{PROTO_LINK_RETURN, body_link_return, true, false},
	{PROTO_RETURNED, body_none, false, false},
	{IB_USER_VERBS_CMD_QUERY_DEVICE, body_response, false, false},
	{IB_USER_VERBS_CMD_QUERY_PORT, body_port, false, false},
	{PROTO_QUERY_GID, body_gid, false, false},
	{PROTO_LIST_DEVICES, body_none, false, false},
	{PROTO_IMPORT_PD, body_import_pd, true, true},
	{PROTO_UNIMPORT_PD, body_unimport_pd, false, false},
	{PROTO_QUERY_MR, body_query_mr, true, false},
	{PROTO_IMPORT_MR, body_import_mr, true, true},
	{PROTO_ROUTE, body_route, false, false},
	{IB_USER_VERBS_CMD_ATTACH_MCAST, body_mcast, false, true},
	{IB_USER_VERBS_CMD_DETACH_MCAST, body_mcast, false, false},
	{IB_USER_VERBS_CMD_ALLOC_MW, body_mw, false, true},
	{IB_USER_VERBS_CMD_DEALLOC_MW, body_destroy, false, false},
	{PROTO_OPEN_XRCD, body_open_xrcd, false, true},
	{IB_USER_VERBS_CMD_CLOSE_XRCD, body_destroy, false, false},
	{IB_USER_VERBS_CMD_CREATE_XSRQ, body_xsrq, false, true},
	{IB_USER_VERBS_CMD_CREATE_QP, body_xrc_qp, false, true},
	{IB_USER_VERBS_CMD_OPEN_QP, body_open_qp, false, false},
	{PROTO_XRC_QUERY, body_xrc_query, false, false},
	{PROTO_XRC_MODIFY, body_xrc_modify, false, false},
	{PROTO_XRC_REPORT, body_xrc_report, false, false},
	{PROTO_XRC_RETURNS, body_xrc_returns, false, true},
	{PROTO_CREATE_FLOW, body_flow, false, true},
	{PROTO_DESTROY_FLOW, body_destroy_flow, false, false},
	{PROTO_ALLOC_DM, body_alloc_dm, false, true},
	{PROTO_FREE_DM, body_dm_handle, false, false},
	{PROTO_IMPORT_DM, body_dm_handle, true, false},
	{PROTO_REG_DM_MR, body_dm_mr, false, true},
	{PROTO_ALLOC_NULL_MR, body_null_mr, false, true},
	{PROTO_ALTERNATE, body_alternate, false, false},
};

/* The last ones were added later, with numbers from 255 down, so that older inputs keep their
 * meaning. */
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]), LATER = 22, LAST = 255 };

enum { EX_HEADERS = sizeof(struct ib_uverbs_cmd_hdr) + sizeof(struct ib_uverbs_ex_cmd_hdr) };

/* Only a process that returns sends this; for others it is ignored. */
static void add_return(struct packet *p, const struct client *client, struct input *in)
{
	const struct known *k = &client->known[input_u8(in) % KNOWN];
	uint8_t b = input_u8(in);
	struct proto_return old = {.handle = k->handle, .number = k->number};

	if (b >= 128) /* a number from its own range, which it may not have had */
		old = (struct proto_return){.handle = b,
					    .number = b & 1 ? client->slot << LIMIT_QP_BITS | b % 16
							    : (uint32_t)(b % 16) << 8 | (b & 4)};
	ADD(p, old);
}

void command_make(struct packet *packet, const struct client *client, const struct client *other,
		  struct input *in)
{
	uint8_t which = input_u8(in);
	unsigned int i = which > LAST - LATER ? COMMANDS - LATER + (LAST - which)
					      : which % (COMMANDS - LATER);
	struct ib_uverbs_cmd_hdr header = {.command = commands[i].command, .out_words = 1024};

	*packet = (struct packet){.size = sizeof(header)};
	memcpy(packet->bytes, &header, sizeof(header));
	commands[i].fill(packet, commands[i].others ? other : client, in);
	if (commands[i].makes)
		add_return(packet, client, in);
	header.in_words = (uint16_t)(packet->size / 4);
	if (header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED)
		header.in_words = (uint16_t)((packet->size - EX_HEADERS) / 8);
	memcpy(packet->bytes, &header, sizeof(header));
}

/* ------------------------------------------------------------------ the socket */

void client_send(struct client *client, const void *packet, size_t size, const int *fds,
		 unsigned int count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = {0};
	struct iovec iov = {(void *)packet, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	uint32_t command = 0;

	if (client->fd < 0)
		return;
	if (count)
		packet_attach(&m, control, fds, count);
	if (sendmsg(client->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
	if (size >= sizeof(command))
		memcpy(&command, packet, sizeof(command));
	if (client->asked_count < sizeof(client->asked) / sizeof(client->asked[0]))
		client->asked[client->asked_count++] = command;
}

void client_request(struct client *client, uint32_t command, const void *body, size_t size,
		    const int *fds, unsigned int count)
{
	struct packet p = {.size = 0};
	const struct ib_uverbs_cmd_hdr header = {.command = command,
						 .in_words =
							 (uint16_t)((sizeof(header) + size) / 4),
						 .out_words = 1024};

	ADD(&p, header);
	add(&p, body, size);
	client_send(client, p.bytes, p.size, fds, count);
}

static void learn_object(struct client *client, uint32_t command, const uint8_t *body, size_t size)
{
	struct known *k = &client->known[client->count % KNOWN];
	uint32_t words[2] = {0};

	memcpy(words, body, size < sizeof(words) ? size : sizeof(words));
	/* An imported domain is used like the client's own. */
	if (command == PROTO_IMPORT_PD)
		command = IB_USER_VERBS_CMD_ALLOC_PD;
	if (command == PROTO_REG_DM_MR || command == PROTO_ALLOC_NULL_MR)
		command = IB_USER_VERBS_CMD_REG_MR;
	*k = (struct known){command, words[0], words[1]};
	client->count += client->count < KNOWN;
}

/* A successful reply to `command`. */
static void learn(struct client *client, uint32_t command, const uint8_t *body, size_t size)
{
	struct proto_attach_resp resp;

	if (command == PROTO_ATTACH && size >= sizeof(resp)) {
		memcpy(&resp, body, sizeof(resp));
		client->slot = resp.slot;
		client->cookie = resp.cookie;
		return;
	}
	if (command == PROTO_XRC_RETURNS)
		return; /* it answers with a state */
	if (command == IB_USER_VERBS_CMD_OPEN_QP)
		command = IB_USER_VERBS_CMD_CREATE_QP;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && size; i++)
		if (commands[i].makes && commands[i].command == command) {
			learn_object(client, command, body, size);
			return;
		}
}

static void take_reply(struct client *client, const uint8_t *packet, size_t size, int *fds)
{
	struct proto_reply head;
	uint32_t command = client->asked[0];

	MUST(size >= sizeof(head));
	memcpy(&head, packet, sizeof(head));
	MUST(head.result <= 0 && head.result > -4096);
	if (client->asked_count)
		memmove(client->asked, client->asked + 1,
			--client->asked_count * sizeof(client->asked[0]));
	else
		command = 0;
	if (!head.result)
		learn(client, command, packet + sizeof(head), size - sizeof(head));
	if (command == PROTO_ATTACH && fds[0] >= 0 && client->event_fd < 0) {
		client->event_fd = fds[0];
		fds[0] = -1;
	}
}

static void take_event(struct client *client, const uint8_t *packet, size_t size, int *fds)
{
	struct proto_event event;

	(void)fds;
	MUST(size == sizeof(event));
	memcpy(&event, packet, sizeof(event));
	MUST(event.type >= PROTO_EVENT_LINK && event.type <= PROTO_EVENT_CAPTURE_END);
	if (event.type == PROTO_EVENT_LINK) {
		MUST(fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0);
		client->link_id = event.link_id;
	}
}

static void take_all(struct client *client, int fd,
		     void (*take)(struct client *client, const uint8_t *packet, size_t size,
				  int *fds))
{
	uint8_t packet[PROTO_MAX_MESSAGE];
	int fds[PROTO_MAX_FDS];
	ssize_t n;

	while (fd >= 0 && (n = packet_receive(fd, packet, sizeof(packet), fds, MSG_DONTWAIT)) > 0) {
		take(client, packet, (size_t)n, fds);
		for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

void client_read(struct client *client)
{
	take_all(client, client->fd, take_reply);
	take_all(client, client->event_fd, take_event);
}
