/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: clients of the node rdma_cm, which send commands that are valid, nearly valid, or
 * any bytes, read events or don't, and disconnect, while memory and descriptors may run out. When
 * all have disconnected, no identifier, channel, port, endpoint, user or descriptor is left.
 *
 * Input: actions, a byte each, then their parameters.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "client/call.h"
#include "counters.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "fuzz_server.h"
#include "input.h"
#include "proto/cm.h"

enum { CLIENTS = 3, IDS = 8, PORT = 7471, PACKET = 1024 };

struct client {
	int fd, events;
	uint32_t channel;
	uint32_t ids[IDS], count;
};

static struct client clients[CLIENTS];

static struct client *pick(struct input *in)
{
	return &clients[input_u8(in) % CLIENTS];
}

static void learn_id(struct client *c, uint32_t id)
{
	c->ids[c->count++ % IDS] = id;
}

static uint32_t pick_id(struct client *c, struct input *in)
{
	uint8_t which = input_u8(in);

	return which < 250 ? c->ids[which % IDS] : input_u32(in);
}

/* The reply: its response is copied to `out`. */
static bool call_it(struct client *c, uint32_t command, const void *body, size_t size, size_t room,
		    void *out)
{
	uint8_t packet[PACKET + 8], reply[PROTO_MAX_MESSAGE];
	const struct rdma_ucm_cmd_hdr header = {command, (uint16_t)size, (uint16_t)room};
	struct proto_reply head;
	int fds[PROTO_MAX_FDS];

	if (c->fd < 0 || size > PACKET)
		return false;
	memcpy(packet, &header, sizeof(header));
	memcpy(packet + sizeof(header), body, size);
	if (packet_send(c->fd, packet, sizeof(header) + size, NULL, 0, MSG_DONTWAIT))
		return false;
	server_rounds(1);
	ssize_t n = packet_receive(c->fd, reply, sizeof(reply), fds, MSG_DONTWAIT);

	if (n < (ssize_t)sizeof(head))
		return false;
	memcpy(&head, reply, sizeof(head));
	MUST(head.result <= 0 && n <= (ssize_t)(sizeof(head) + room));
	if (head.result == 0 && out)
		memcpy(out, reply + sizeof(head), room);
	if (fds[0] >= 0 && c->events < 0)
		c->events = fds[0];
	else if (fds[0] >= 0)
		close(fds[0]);
	return head.result == 0;
}

#define CALL(c, command, body) \
	call_it(c, RDMA_USER_CM_CMD_##command, &(body), sizeof(body), 0, NULL)

/* ------------------------------------------------------------------ actions */

static void act_open(struct input *in)
{
	struct client *c = pick(in);
	const struct proto_cm_hello hello = {.abi = PROTO_ABI};
	struct proto_cm_create_channel_resp resp = {0};

	if (c->fd < 0)
		c->fd = server_connect_cm(input_u8(in) % 4);
	call_it(c, PROTO_CM_HELLO, &hello, sizeof(hello), 0, NULL);
	if (call_it(c, PROTO_CM_CREATE_CHANNEL, &hello, 0, sizeof(resp), &resp))
		c->channel = resp.channel;
}

static void act_make(struct input *in)
{
	static const uint16_t spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB};
	struct client *c = pick(in);
	struct rdma_ucm_create_id body = {.uid = 1u + c->count, .qp_type = 3};
	struct rdma_ucm_create_id_resp resp;

	body.ps = spaces[input_u8(in) % 4];
	memcpy(body.reserved, &c->channel, sizeof(c->channel));
	if (call_it(c, RDMA_USER_CM_CMD_CREATE_ID, &body, sizeof(body), sizeof(resp), &resp))
		learn_id(c, resp.id);
}

static uint16_t put_address(struct input *in, void *to)
{
	uint8_t how = input_u8(in);
	const struct sockaddr_in four = {.sin_family = how < 250 ? AF_INET : how,
					 .sin_port = htons(PORT + how % 3),
					 .sin_addr.s_addr =
						 htonl(how < 200 ? INADDR_LOOPBACK : INADDR_ANY)};
	const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
					 .sin6_port = htons(PORT + how % 3),
					 .sin6_addr = in6addr_loopback};

	if (how >= 100 && how < 150) {
		memcpy(to, &six, sizeof(six));
		return sizeof(six);
	}
	memcpy(to, &four, sizeof(four));
	return sizeof(four);
}

static void act_bind(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_bind body = {.id = pick_id(c, in)};

	body.addr_size = put_address(in, &body.addr);
	CALL(c, BIND, body);
}

static void act_listen(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_listen body = {.id = pick_id(c, in)};

	body.backlog = input_u8(in);
	CALL(c, LISTEN, body);
}

static void act_resolve(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_resolve_addr body = {.id = pick_id(c, in)};

	body.dst_size = put_address(in, &body.dst_addr);
	CALL(c, RESOLVE_ADDR, body);
}

static void act_route(struct input *in)
{
	struct client *c = pick(in);
	const struct rdma_ucm_resolve_route body = {.id = pick_id(c, in)};

	CALL(c, RESOLVE_ROUTE, body);
}

static void act_connect(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_connect body = {.id = pick_id(c, in), .conn_param.valid = 1};

	body.conn_param.qp_num = input_u8(in);
	body.conn_param.private_data_len = input_u8(in);
	CALL(c, CONNECT, body);
}

static void act_accept(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_accept body = {.id = pick_id(c, in), .uid = 1};

	body.conn_param.qp_num = input_u8(in);
	body.conn_param.valid = body.conn_param.qp_num < 128;
	CALL(c, ACCEPT, body);
}

static void act_read(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_event_resp event;

	while (c->events >= 0 &&
	       recv(c->events, &event, sizeof(event), MSG_DONTWAIT) == (ssize_t)sizeof(event)) {
		MUST(event.uid && event.event <= PROTO_CM_WRITTEN_LAST);
		if (event.event == 4)
			learn_id(c, event.id);
	}
}

static void act_disconnect(struct input *in)
{
	struct client *c = pick(in);
	const struct rdma_ucm_disconnect body = {.id = pick_id(c, in)};

	CALL(c, DISCONNECT, body);
}

static void act_destroy(struct input *in)
{
	struct client *c = pick(in);
	const struct rdma_ucm_destroy_id body = {.id = pick_id(c, in)};
	struct rdma_ucm_destroy_id_resp resp;

	call_it(c, RDMA_USER_CM_CMD_DESTROY_ID, &body, sizeof(body), sizeof(resp), &resp);
}

static void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->events >= 0)
		close(c->events);
	*c = (struct client){.fd = -1, .events = -1};
}

static void act_close(struct input *in)
{
	client_close(pick(in));
	server_rounds(1);
}

static void act_attr(struct input *in)
{
	struct client *c = pick(in);
	const struct rdma_ucm_init_qp_attr body = {.id = pick_id(c, in), .qp_state = input_u8(in)};
	struct ib_uverbs_qp_attr attr;

	call_it(c, RDMA_USER_CM_CMD_INIT_QP_ATTR, &body, sizeof(body), sizeof(attr), &attr);
}

static void act_query(struct input *in)
{
	struct client *c = pick(in);
	const struct rdma_ucm_query body = {.id = pick_id(c, in), .option = input_u8(in) % 4};

	call_it(c, RDMA_USER_CM_CMD_QUERY, &body, sizeof(body), 512, NULL);
}

static void act_migrate(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_migrate_id body = {.id = pick_id(c, in), .fd = c->channel};
	struct rdma_ucm_migrate_resp resp;

	if (input_u8(in) & 1)
		act_open(in); /* another channel */
	call_it(c, RDMA_USER_CM_CMD_MIGRATE_ID, &body, sizeof(body), sizeof(resp), &resp);
}

static void act_time(struct input *in)
{
	server_pass_time(1ull << input_u8(in) % 17);
	server_rounds(1);
}

static void act_bytes(struct input *in)
{
	struct client *c = pick(in);
	uint8_t bytes[600];
	uint32_t command = input_u8(in);
	size_t size = input_u8(in) * 2u;

	input_bytes(in, bytes, size);
	call_it(c, command, bytes, size, 512, NULL);
}

static void act_reject(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_reject body = {.id = pick_id(c, in)};

	body.private_data_len = input_u8(in);
	CALL(c, REJECT, body);
}

/* A group, or none. The handles of joins are remembered with those of identifiers. */
static void act_join(struct input *in)
{
	struct client *c = pick(in);
	struct rdma_ucm_join_mcast body = {.uid = 1u + c->count, .id = pick_id(c, in)};
	struct rdma_ucm_create_id_resp resp;
	uint8_t how = input_u8(in);
	const struct sockaddr_in four = {.sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(0xe0010200u + how)};
	const struct sockaddr_in6 six = {
		.sin6_family = AF_INET6,
		.sin6_addr.s6_addr = {how < 250 ? 0xff : 0xfd, 0x0e, [15] = how}};

	body.join_flags = how % 8 < 6 ? how % 2 : how;
	body.addr_size = how & 16 ? sizeof(six) : sizeof(four);
	memcpy(&body.addr, how & 16 ? (const void *)&six : (const void *)&four, body.addr_size);
	if (how >= 224)
		body.addr_size = input_u8(in);
	if (call_it(c, RDMA_USER_CM_CMD_JOIN_MCAST, &body, sizeof(body), sizeof(resp), &resp))
		learn_id(c, resp.id);
}

static void act_leave(struct input *in)
{
	struct client *c = pick(in);
	const struct rdma_ucm_destroy_id body = {.id = pick_id(c, in)};
	struct rdma_ucm_destroy_id_resp resp;

	call_it(c, RDMA_USER_CM_CMD_LEAVE_MCAST, &body, sizeof(body), sizeof(resp), &resp);
}

/* Events of the client's own, also more than its channel takes. */
static void act_write(struct input *in)
{
	struct client *c = pick(in);
	uint8_t how = input_u8(in);
	const struct proto_cm_write_event body = {
		.id = pick_id(c, in),
		.event = PROTO_CM_WRITTEN_FIRST + how % 4,
		.status = how,
		.reserved = how == 255,
	};

	for (int i = how % 64; i >= 0; i--)
		call_it(c, PROTO_CM_WRITE_EVENT, &body, sizeof(body), 0, NULL);
}

static void act_scarce(struct input *in)
{
	uint8_t b = input_u8(in);

	if (b < 224)
		server_scarce(b);
	else
		server_narrow(b & 1);
}

/* ------------------------------------------------------------------ an input */

/* After the clients have closed everything, the endpoints end after a while, because no peer
 * answers. */
static void check_end(void)
{
	const struct cm_service *service = server_now()->cm;

	server_scarce(0);
	server_narrow(false);
	for (int i = 0; i < CLIENTS; i++)
		client_close(&clients[i]);
	server_rounds(4);
	for (int i = 0; i < 40; i++) {
		server_pass_time(10000);
		server_rounds(1);
	}
	MUST(!service->cm.endpoints && !service->ports.bindings.count);
	server_check_end(false);
}

static void once(void)
{
	log_open(open("/dev/null", O_WRONLY | O_CLOEXEC), "fuzz");
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = (struct client){.fd = -1, .events = -1};
	server_begin();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	typedef void action_fn(struct input * in);
	static action_fn *const actions[] = {
		act_open,    act_make,	  act_bind,   act_listen, act_resolve,
		act_route,   act_connect, act_accept, act_read,	  act_disconnect,
		act_destroy, act_close,	  act_attr,   act_query,  act_migrate,
		act_time,    act_bytes,	  act_reject, act_scarce,
	};
	/* Added later, so they have numbers of their own: older inputs keep their meaning. */
	enum { JOIN = 255, LEAVE = 254, WRITE = 253 };
	static bool ready;
	struct input in = {data, data + size};

	counters_draw(data, size);
	if (!ready)
		once();
	ready = true;
	server_check_begin();
	for (int i = 0; i < 200 && input_left(&in); i++) {
		uint8_t which = input_u8(&in);

		if (which == JOIN)
			act_join(&in);
		else if (which == LEAVE)
			act_leave(&in);
		else if (which == WRITE)
			act_write(&in);
		else
			actions[which % (sizeof(actions) / sizeof(actions[0]))](&in);
	}
	check_end();
	return 0;
}
