/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What clients with many objects leave is freed bit by bit (daemon/core/ending.h): until it is, it
 * can't be used, and it is in nobody's way. Each test asks for something right after such an end,
 * on a connection that was idle: the daemon comes to that request after the end (epoll has a queue,
 * which a connection leaves only when it is found idle), when most of the objects are still to be
 * freed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_user_cm.h>
#include <cmocka.h>

#include "proto/cm.h"
#include "raw.h"

/* The user's share. Freeing so many takes many turns of the daemon's loop. */
enum { OBJECTS = 60000, PORT = 7471 };

static const char config[] = "user-objects = 60000\nuser-processes = 3\n";

static int begin(void **state)
{
	(void)state;
	raw_daemon_configured(&server, config);
	return 0;
}

/* A process whose user has no share left: all is taken by its context, which is returned. */
static int full_process(struct raw_process *process)
{
	struct ib_uverbs_reg_mr_resp resp;

	raw_attach(&server, process);
	int ctx = raw_context(&server, process);
	uint32_t pd = raw_pd(ctx);

	for (int i = 1; i < OBJECTS; i++)
		raw_mr(ctx, pd, &resp);
	return ctx;
}

static int alloc_pd(int ctx)
{
	const struct ib_uverbs_alloc_pd body = {0};
	struct ib_uverbs_alloc_pd_resp resp;

	return raw_call(ctx, IB_USER_VERBS_CMD_ALLOC_PD, &body, sizeof(body), &resp, sizeof(resp));
}

static void a_share_is_free_again_at_once(void **state)
{
	struct raw_process first, second;

	(void)state;
	int ctx = full_process(&first);

	raw_attach(&server, &second);
	int idle = raw_context(&server, &second), other = raw_context(&server, &second);

	assert_int_equal(alloc_pd(other), -ENOMEM);
	close(ctx);
	raw_detach(&first);
	assert_int_equal(alloc_pd(idle), 0);
	close(idle);
	close(other);
	raw_detach(&second);
	raw_expect_count(&server, "clients", 0);
}

static void a_context_alone_ends(void **state)
{
	struct raw_process process;

	(void)state;
	int ctx = full_process(&process), idle = raw_context(&server, &process);
	int other = raw_context(&server, &process);

	assert_int_equal(alloc_pd(other), -ENOMEM);
	close(ctx);
	assert_int_equal(alloc_pd(idle), 0);
	close(idle);
	close(other);
	raw_detach(&process);
	raw_expect_count(&server, "clients", 0);
}

static void a_place_for_a_process_is_free_again_at_once(void **state)
{
	struct raw_process full, others[2], next;

	(void)state;
	int ctx = full_process(&full);

	raw_attach(&server, &others[0]);
	raw_attach(&server, &others[1]);
	close(ctx);
	raw_detach(&full);
	raw_attach(&server, &next);
	assert_int_not_equal(next.resp.slot, full.resp.slot);
	raw_detach(&next);
	raw_detach(&others[0]);
	raw_detach(&others[1]);
	raw_expect_count(&server, "clients", 0);
}

/* ------------------------------------------------------------------ the connection manager */

static int cm_call(int fd, uint32_t command, const void *body, size_t size, void *reply,
		   size_t reply_size)
{
	struct rdma_ucm_cmd_hdr header = {
		.cmd = command, .in = (uint16_t)size, .out = (uint16_t)reply_size};
	uint8_t packet[512];

	memcpy(packet, &header, sizeof(header));
	memcpy(packet + sizeof(header), body, size);
	assert_int_equal(raw_send(fd, packet, sizeof(header) + size, NULL, 0), 0);
	return raw_receive(fd, reply, reply_size, NULL);
}

static uint32_t cm_client(int fd)
{
	const struct proto_cm_hello hello = {.abi = PROTO_ABI};
	struct proto_cm_create_channel_resp resp;
	struct rdma_ucm_cmd_hdr header = {.cmd = PROTO_CM_CREATE_CHANNEL, .out = sizeof(resp)};
	int end;

	assert_int_equal(cm_call(fd, PROTO_CM_HELLO, &hello, sizeof(hello), NULL, 0), 0);
	assert_int_equal(raw_send(fd, &header, sizeof(header), NULL, 0), 0);
	assert_int_equal(raw_receive(fd, &resp, sizeof(resp), &end), 0);
	close(end);
	return resp.channel;
}

static uint32_t cm_id(int fd, uint32_t channel)
{
	struct rdma_ucm_create_id body = {.uid = 1, .ps = RDMA_PS_TCP};
	struct rdma_ucm_create_id_resp resp;

	memcpy(body.reserved, &channel, sizeof(channel));
	assert_int_equal(
		cm_call(fd, RDMA_USER_CM_CMD_CREATE_ID, &body, sizeof(body), &resp, sizeof(resp)),
		0);
	return resp.id;
}

/* Binds to the port and listens. Returns the first result that isn't 0. */
static int cm_listen_at(int fd, uint32_t id, uint16_t port)
{
	struct rdma_ucm_bind bind = {.id = id, .addr_size = sizeof(struct sockaddr_in)};
	const struct rdma_ucm_listen listen = {.id = id, .backlog = 8};
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_port = htons(port),
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	memcpy(&bind.addr, &address, sizeof(address));
	int err = cm_call(fd, RDMA_USER_CM_CMD_BIND, &bind, sizeof(bind), NULL, 0);

	return err ? err : cm_call(fd, RDMA_USER_CM_CMD_LISTEN, &listen, sizeof(listen), NULL, 0);
}

static void a_port_is_free_again_at_once(void **state)
{
	int first = raw_connect_cm(&server), second = raw_connect_cm(&server);
	int idle = raw_connect_cm(&server);
	uint32_t channel = cm_client(first), id = cm_id(second, cm_client(second));
	uint32_t later = cm_id(idle, cm_client(idle));

	(void)state;
	for (int i = 7; i < OBJECTS; i++) /* three channels, four more identifiers */
		cm_id(first, channel);

	for (int i = 0; i < 2; i++)
		assert_int_equal(cm_listen_at(first, cm_id(first, channel), (uint16_t)(PORT + i)),
				 0);
	assert_int_equal(cm_listen_at(second, id, PORT), -EADDRINUSE);
	close(first);
	assert_int_equal(cm_listen_at(idle, later, PORT), 0);
	close(idle);
	close(second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_share_is_free_again_at_once),
		cmocka_unit_test(a_context_alone_ends),
		cmocka_unit_test(a_place_for_a_process_is_free_again_at_once),
		cmocka_unit_test(a_port_is_free_again_at_once),
	};

	return cmocka_run_group_tests(tests, begin, raw_server_stop);
}
