/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shares (daemon/core/user.h): of each pool of the host, one user takes all that it gets, and
 * another user still gets some. The table of docs/trust.md says what the headers say. Needs root,
 * is skipped otherwise.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <cmocka.h>

#include "daemon/core/user.h"
#include "proto/cm.h"
#include "proto/limits.h"
#include "raw.h"

/* GROUPS: over which attachments are spread. */
enum { ALICE = 60001, BOB = 60002, GROUPS = 2048 };

struct client {
	struct raw_process process;
	int ctx;
	uint32_t pd, cq, qp[LIMIT_MCAST_ATTACHED / GROUPS + 1], xrcd;
};

static struct client alice, bob;

static void become(uid_t uid)
{
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(setegid(uid), 0);
	assert_int_equal(seteuid(uid), 0);
}

static void start(void)
{
	static const char config[] = "node-mode = 0666\nctl-mode = 0666\n";

	if (geteuid() != 0)
		skip();
	raw_daemon_configured(&server, config);
}

/* ------------------------------------------------------------------ taking one of each pool */

static uint32_t qp_of_type(const struct client *c, uint8_t type)
{
	const struct ib_uverbs_create_qp body = {
		.pd_handle = type == IB_UVERBS_QPT_XRC_TGT ? c->xrcd : c->pd,
		.send_cq_handle = c->cq,
		.recv_cq_handle = c->cq,
		.max_send_wr = 1,
		.max_recv_wr = 1,
		.qp_type = type,
	};
	struct ib_uverbs_create_qp_resp resp;

	return raw_call(c->ctx, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp,
			sizeof(resp))
		       ? 0
		       : resp.qp_handle;
}

static int attach_to(const struct client *c, uint32_t qp, uint32_t number)
{
	struct ib_uverbs_attach_mcast body = {.qp_handle = qp};

	body.gid[0] = 0xff;
	body.gid[1] = 0x0e;
	memcpy(body.gid + 12, &number, sizeof(number));
	return raw_call(c->ctx, IB_USER_VERBS_CMD_ATTACH_MCAST, &body, sizeof(body), NULL, 0);
}

/* A group of the user's own. */
static int take_group(struct client *c, uint32_t i)
{
	return attach_to(c, c->qp[0], i + (c == &bob ? 1u << 20 : 0));
}

/* One of few groups, by one of many queue pairs. */
static int take_attachment(struct client *c, uint32_t i)
{
	if (i % GROUPS == 0)
		c->qp[i / GROUPS] = qp_of_type(c, IB_UVERBS_QPT_UD);
	return attach_to(c, c->qp[i / GROUPS], i % GROUPS);
}

static int take_member(struct client *c, uint32_t i)
{
	(void)i;
	return attach_to(c, qp_of_type(c, IB_UVERBS_QPT_UD), 1);
}

static int take_target(struct client *c, uint32_t i)
{
	(void)i;
	return qp_of_type(c, IB_UVERBS_QPT_XRC_TGT) ? 0 : -ENOMEM;
}

static int take_flow(struct client *c, uint32_t i)
{
	const struct proto_create_flow body = {
		.qp = c->qp[0], .type = IBV_FLOW_ATTR_ALL_DEFAULT, .port = 1};
	struct proto_create_flow_resp resp;

	/* A process has a limit of its own: each that reaches it is followed by another. */
	if (i && i % LIMIT_PROCESS_FLOWS == 0) {
		raw_attach(&server, &c->process);
		c->ctx = raw_context(&server, &c->process);
		c->pd = raw_pd(c->ctx);
		c->cq = raw_cq(c->ctx, -1);
		c->qp[0] = qp_of_type(c, IB_UVERBS_QPT_RAW_PACKET);
		return take_flow(c, 1);
	}
	return raw_call(c->ctx, PROTO_CREATE_FLOW, &body, sizeof(body), &resp, sizeof(resp));
}

static const struct row {
	const char *name; /* in docs/trust.md */
	uint32_t size;
	int (*take)(struct client *c, uint32_t i);
	uint8_t type; /* of the first queue pair */
} rows[] = {
	{"multicast groups", LIMIT_MCAST_GROUPS, take_group, IB_UVERBS_QPT_UD},
	{"attachments to groups", LIMIT_MCAST_ATTACHED, take_attachment, IB_UVERBS_QPT_UD},
	{"queue pairs in one group", LIMIT_MCAST_QPS, take_member, IB_UVERBS_QPT_UD},
	{"XRC target queue pairs", LIMIT_XRC_TARGETS, take_target, IB_UVERBS_QPT_UD},
	{"flow rules", LIMIT_FLOWS, take_flow, IB_UVERBS_QPT_RAW_PACKET},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* ------------------------------------------------------------------ the connection manager */

/* IDS_EACH: of one client, whose objects have a limit of their own. */
enum { IDS_EACH = 50000 };

struct cm_user {
	int fd, events;
	uint32_t channel;
};

static int cm_call(int fd, uint32_t command, const void *body, size_t size, void *reply,
		   size_t reply_size, int *reply_fd)
{
	_Alignas(8) uint8_t packet[1024] = {0};
	const struct rdma_ucm_cmd_hdr header = {
		.cmd = command, .in = (uint16_t)size, .out = (uint16_t)reply_size};

	assert_true(sizeof(header) + size <= sizeof(packet));
	memcpy(packet, &header, sizeof(header));
	if (size)
		memcpy(packet + sizeof(header), body, size);
	int err = raw_send(fd, packet, sizeof(header) + size, NULL, 0);

	return err ? err : raw_receive(fd, reply, reply_size, reply_fd);
}

static void cm_user_begin(struct cm_user *user, uid_t uid)
{
	const struct proto_cm_hello hello = {.abi = PROTO_ABI};
	struct proto_cm_create_channel_resp resp;

	become(uid);
	user->fd = raw_connect_cm(&server);
	become(0);
	assert_int_equal(cm_call(user->fd, PROTO_CM_HELLO, &hello, sizeof(hello), NULL, 0, NULL),
			 0);
	assert_int_equal(cm_call(user->fd, PROTO_CM_CREATE_CHANNEL, NULL, 0, &resp, sizeof(resp),
				 &user->events),
			 0);
	user->channel = resp.channel;
}

static void cm_user_end(const struct cm_user *user)
{
	close(user->events);
	close(user->fd);
}

/* An identifier with this port of all addresses; 0: any. */
static int take_port(const struct cm_user *user, uint16_t space, uint16_t port)
{
	struct rdma_ucm_create_id create = {.uid = 1, .ps = space, .qp_type = IBV_QPT_RC};
	const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct rdma_ucm_bind bind = {.addr_size = sizeof(any)};
	struct rdma_ucm_create_id_resp resp;

	memcpy(create.reserved, &user->channel, sizeof(user->channel));
	assert_int_equal(cm_call(user->fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create),
				 &resp, sizeof(resp), NULL),
			 0);
	bind.id = resp.id;
	memcpy(&bind.addr, &any, sizeof(any));
	return cm_call(user->fd, RDMA_USER_CM_CMD_BIND, &bind, sizeof(bind), NULL, 0, NULL);
}

static uint32_t ephemeral_ports(uint16_t *first)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
	unsigned int a = 0, b = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%u %u", &a, &b), 2);
	fclose(file);
	*first = (uint16_t)a;
	return b - a + 1;
}

static uint32_t take_ports(const struct cm_user *user, uint32_t most)
{
	uint32_t taken = 0;

	while (taken < most && take_port(user, RDMA_PS_TCP, 0) == 0)
		taken++;
	return taken;
}

/* One user has half of the ephemeral ports, however it asks for them; another gets some, and the
 * other port spaces are unaffected. What an ended program had its user's next one gets at once. */
static void another_user_gets_ports(void **state)
{
	struct cm_user first, second, other;
	uint16_t lowest;
	uint32_t all = ephemeral_ports(&lowest), half = (all + 1) / 2;

	(void)state;
	if (half > IDS_EACH)
		skip();
	start();
	cm_user_begin(&first, ALICE);
	cm_user_begin(&other, BOB);
	assert_int_equal(take_ports(&first, all), half);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_not_equal(take_port(&first, RDMA_PS_TCP, (uint16_t)(lowest + i)), 0);
	assert_int_equal(take_port(&first, RDMA_PS_UDP, 0), 0);
	assert_int_equal(take_port(&first, RDMA_PS_TCP, (uint16_t)(lowest - 1)), 0);
	assert_int_equal(take_ports(&other, all / 4), all / 4);
	cm_user_end(&first);
	cm_user_begin(&second, ALICE);
	assert_int_equal(take_ports(&second, all / 4), all / 4);
	cm_user_end(&second);
	cm_user_end(&other);
	raw_daemon_stop(&server);
}

/* ------------------------------------------------------------------ the tests */

static void client_begin(struct client *c, uid_t uid, uint8_t type)
{
	const struct proto_open_xrcd open = {0};
	struct proto_open_xrcd_resp resp;

	become(uid);
	raw_attach(&server, &c->process);
	c->ctx = raw_context(&server, &c->process);
	become(0);
	c->pd = raw_pd(c->ctx);
	c->cq = raw_cq(c->ctx, -1);
	c->qp[0] = qp_of_type(c, type);
	assert_int_not_equal(c->qp[0], 0);
	assert_int_equal(
		raw_call(c->ctx, PROTO_OPEN_XRCD, &open, sizeof(open), &resp, sizeof(resp)), 0);
	c->xrcd = resp.handle;
}

static void another_user_gets_one(void **state)
{
	const struct row *row = *state;
	uint32_t taken = 0;

	start();
	client_begin(&alice, ALICE, row->type);
	client_begin(&bob, BOB, row->type);
	become(ALICE); /* take_flow() attaches */
	while (taken <= row->size && row->take(&alice, taken) == 0)
		taken++;
	become(0);
	assert_int_equal(taken, row->size / 2);
	become(BOB);
	for (uint32_t i = 0; i < row->size / 4; i++)
		assert_int_equal(row->take(&bob, i), 0);
	become(0);
	raw_daemon_stop(&server);
}

static const char ports_row[] = "| ephemeral ports, of each port space of the CM | "
				"`ip_local_port_range` | half of what is left |";

static void trust_md_has_the_numbers(void **state)
{
	char line[512], number[32], wanted[128];
	uint32_t found = 0;

	(void)state;
	for (uint32_t i = 0; i < POOL_KINDS; i++) {
		bool known = false;

		for (uint32_t j = 0; j < ROWS; j++)
			known |= !strcmp(rows[j].name, pool_name((enum pool_kind)i)) &&
				 rows[j].size == pool_size((enum pool_kind)i);
		assert_true(known);
	}
	FILE *file = fopen(TRUST_MD, "r");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		found += !strncmp(line, ports_row, strlen(ports_row));
		for (uint32_t i = 0; i < ROWS; i++) {
			if (rows[i].size >= 1000)
				snprintf(number, sizeof(number), "%u,%03u", rows[i].size / 1000,
					 rows[i].size % 1000);
			snprintf(wanted, sizeof(wanted), "| %s | %s | half of what is left |",
				 rows[i].name, number);
			found += !strncmp(line, wanted, strlen(wanted));
		}
	}
	fclose(file);
	assert_int_equal(found, ROWS + 1);
}

int main(void)
{
	struct CMUnitTest tests[ROWS + 2] = {cmocka_unit_test(trust_md_has_the_numbers),
					     cmocka_unit_test(another_user_gets_ports)};

	for (int i = 0; i < ROWS; i++)
		tests[i + 2] = (struct CMUnitTest){.name = rows[i].name,
						   .test_func = another_user_gets_one,
						   .initial_state = (void *)&rows[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
