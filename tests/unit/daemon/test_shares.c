/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shares (daemon/core/user.h): of each row of the table of docs/trust.md, one user takes all that
 * it gets, and another user still gets some. The table has no other rows, and says what the headers
 * say. Needs root, is skipped otherwise.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <cmocka.h>

#include "client/call.h"
#include "daemon/cm/cm_numbers.h"
#include "daemon/core/config.h"
#include "daemon/core/user.h"
#include "proto/cm.h"
#include "proto/limits.h"
#include "raw.h"

/* GROUPS: over which attachments are spread. */
enum { ALICE = 60001, BOB = 60002, CAROL = 60004, GROUPS = 2048 };

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

#define AS(user, action)      \
	do {                  \
		become(user); \
		action;       \
		become(0);    \
	} while (0)

/* Starts a daemon for all users, with these lines in its configuration. */
static void start_with(const char *more)
{
	char config[256];

	if (geteuid() != 0)
		skip();
	snprintf(config, sizeof(config), "node-mode = 0666\nctl-mode = 0666\n%s", more);
	raw_daemon_configured(&server, config);
}

static void start(void)
{
	start_with("");
}

/* FEW_FILES: descriptors of a daemon whose share of them is small; EIGHTH: an eighth of them. */
enum { FEW_FILES = 1024, EIGHTH = FEW_FILES / 8 };

static void start_small(void)
{
	raw_files = FEW_FILES;
	start();
	raw_files = 0;
}

static void stop(void)
{
	raw_server_stop(NULL);
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
	return raw_cm_exchange(fd, command, body, size, size, reply_size, reply, reply_size,
			       reply_fd);
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

/* An identifier that shares this port, at 127.0.0.1, with others. */
static int share_port(const struct cm_user *user, uint16_t port)
{
	struct rdma_ucm_create_id create = {.uid = 1, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC};
	const struct sockaddr_in here = {.sin_family = AF_INET,
					 .sin_port = htons(port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct {
		struct rdma_ucm_set_option head;
		uint32_t value;
	} reuse = {.head = {.level = RDMA_OPTION_ID, .optname = RDMA_OPTION_ID_REUSEADDR}, 1};
	struct rdma_ucm_bind bind = {.addr_size = sizeof(here)};
	struct rdma_ucm_create_id_resp resp;

	memcpy(create.reserved, &user->channel, sizeof(user->channel));
	assert_int_equal(cm_call(user->fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create),
				 &resp, sizeof(resp), NULL),
			 0);
	reuse.head.id = bind.id = resp.id;
	reuse.head.optlen = sizeof(reuse.value);
	assert_int_equal(cm_call(user->fd, RDMA_USER_CM_CMD_SET_OPTION, &reuse,
				 sizeof(reuse.head) + sizeof(reuse.value), NULL, 0, NULL),
			 0);
	memcpy(&bind.addr, &here, sizeof(here));
	return cm_call(user->fd, RDMA_USER_CM_CMD_BIND, &bind, sizeof(bind), NULL, 0, NULL);
}

static void identifiers_on_one_port_are_shared_out(void **state)
{
	enum { ALL = 4096, PORT = 5000 };
	struct cm_user first, other;
	uint32_t taken = 0;

	(void)state;
	start();
	cm_user_begin(&first, ALICE);
	cm_user_begin(&other, BOB);
	while (taken <= ALL && share_port(&first, PORT) == 0)
		taken++;
	assert_int_equal(taken, ALL / 2);
	for (int i = 0; i < ALL / 4; i++)
		assert_int_equal(share_port(&other, PORT), 0);
	cm_user_end(&first);
	cm_user_end(&other);
	stop();
}

/* ------------------------------------------------------------------ processes and objects */

static void target_of(int ctx, uint32_t *qpn, struct proto_open_xrcd_resp *domain)
{
	const struct proto_open_xrcd open = {.dev = 7, .ino = 5, .oflags = O_CREAT};
	struct ib_uverbs_create_qp body = {.qp_type = IB_UVERBS_QPT_XRC_TGT};
	struct ib_uverbs_create_qp_resp resp;

	assert_int_equal(
		raw_call(ctx, PROTO_OPEN_XRCD, &open, sizeof(open), domain, sizeof(*domain)), 0);
	body.pd_handle = domain->handle;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	*qpn = resp.qpn;
}

static void open_target(int ctx, uint32_t domain, uint32_t qpn)
{
	const struct ib_uverbs_open_qp body = {
		.pd_handle = domain, .qpn = qpn, .qp_type = IB_UVERBS_QPT_XRC_TGT};
	struct ib_uverbs_create_qp_resp resp;

	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_OPEN_QP, &body, sizeof(body), &resp, sizeof(resp)),
		0);
}

static int try_attach(uid_t user, struct raw_process *process)
{
	AS(user, process->fd = raw_connect(&server));
	process->table = raw_table();
	process->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	process->event_fd = -1;
	return raw_attach_with(process->fd, process->table, process->doorbell, &process->resp,
			       &process->event_fd);
}

static void quotas_are_per_user(void **state)
{
	struct raw_process alice[3], bob;
	const struct ib_uverbs_alloc_pd body = {0};
	int context;

	(void)state;
	start_with("user-processes = 2\nuser-objects = 5\n");
	assert_int_equal(try_attach(ALICE, &alice[0]), 0);
	assert_int_equal(try_attach(ALICE, &alice[1]), 0);
	assert_int_equal(try_attach(ALICE, &alice[2]), -EMFILE);
	raw_detach(&alice[2]);
	assert_int_equal(try_attach(BOB, &bob), 0);
	raw_detach(&alice[1]);
	raw_expect_count(&server, "clients", 2);
	assert_int_equal(try_attach(ALICE, &alice[1]), 0);

	AS(ALICE, context = raw_context(&server, &alice[0]));
	for (int i = 0; i < 5; i++)
		raw_pd(context);
	assert_int_equal(
		raw_call(context, IB_USER_VERBS_CMD_ALLOC_PD, &body, sizeof(body), NULL, 0),
		-ENOMEM);
	close(context);
	raw_expect_count(&server, "pd", 0);
	AS(BOB, context = raw_context(&server, &bob));
	for (int i = 0; i < 5; i++)
		raw_pd(context);
	close(context);
	raw_detach(&bob);
	raw_detach(&alice[0]);
	raw_detach(&alice[1]);
	stop();
}

/* A slot that an XRC target queue pair keeps after its process's end counts, too: otherwise one
 * process could keep the slots of all that its user ever had. */
static void kept_slots_count(void **state)
{
	struct raw_process keeper, maker, other;
	struct proto_open_xrcd_resp domain;
	uint32_t qpn;
	int context[2];

	(void)state;
	start_with("user-processes = 2\n");
	assert_int_equal(try_attach(ALICE, &keeper), 0);
	assert_int_equal(try_attach(ALICE, &maker), 0);
	AS(ALICE, context[0] = raw_context(&server, &keeper);
	   context[1] = raw_context(&server, &maker));
	target_of(context[1], &qpn, &domain);
	target_of(context[0], &(uint32_t){0}, &domain);
	open_target(context[0], domain.handle, qpn);
	close(context[1]);
	raw_detach(&maker);
	raw_expect_count(&server, "clients", 1);
	assert_int_equal(try_attach(ALICE, &maker), -EMFILE);
	raw_detach(&maker);
	assert_int_equal(try_attach(BOB, &other), 0);
	raw_detach(&other);
	close(context[0]);
	raw_detach(&keeper);
	raw_expect_count(&server, "clients", 0);
	assert_int_equal(try_attach(ALICE, &maker), 0);
	raw_detach(&maker);
	stop();
}

static void defaults_are_the_tables(void **state)
{
	struct config config;

	(void)state;
	config_init(&config, true);
	assert_int_equal(config.user_processes, 512);
	assert_int_equal(config.user_objects, 1048576);
	assert_int_equal(LIMIT_SLOTS - 1, 1023);
}

/* Objects of the CM count with all others. */
static void cm_objects_count(void **state)
{
	struct cm_user first, other;
	struct rdma_ucm_create_id create = {.uid = 1, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC};
	struct rdma_ucm_create_id_resp resp;
	uint32_t made = 0;

	(void)state;
	start_with("user-objects = 5\n");
	cm_user_begin(&first, ALICE);
	memcpy(create.reserved, &first.channel, sizeof(first.channel));
	while (made < 10 && cm_call(first.fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof(create),
				    &resp, sizeof(resp), NULL) == 0)
		made++;
	assert_int_equal(made, 4); /* and the channel */
	cm_user_begin(&other, BOB);
	assert_int_equal(take_port(&other, RDMA_PS_TCP, 0), 0);
	cm_user_end(&first);
	cm_user_end(&other);
	stop();
}

/* ------------------------------------------------------------------ connections, descriptors */

/* Whether the daemon answers on a new connection of this user. */
static bool take_connection(uid_t user, int *fd)
{
	AS(user, *fd = raw_connect(&server));
	return raw_call(*fd, PROTO_LIST_DEVICES, NULL, 0, NULL, 0) == 0;
}

static void connections_are_shared_out(void **state)
{
	int fd[EIGHTH + 1], other;

	(void)state;
	start_small();
	for (int i = 0; i <= EIGHTH; i++)
		assert_int_equal(take_connection(ALICE, &fd[i]), i < EIGHTH);
	assert_true(take_connection(BOB, &other));
	for (int i = 0; i <= EIGHTH; i++)
		close(fd[i]);
	close(other);
	stop();
}

static int take_device_memory(int ctx)
{
	const struct proto_alloc_dm body = {.length = 4096};
	struct proto_alloc_dm_resp resp;
	int fd = memfd_create("dm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
	int err =
		raw_call_fds(ctx, PROTO_ALLOC_DM, &body, sizeof(body), &fd, 1, &resp, sizeof(resp));

	close(fd);
	return err;
}

static int take_channel(const struct cm_user *user)
{
	struct proto_cm_create_channel_resp resp;
	int events = -1;
	int err = cm_call(user->fd, PROTO_CM_CREATE_CHANNEL, NULL, 0, &resp, sizeof(resp), &events);

	if (events >= 0)
		close(events);
	return err;
}

/* What has descriptors of the daemon's beside connections is counted together. */
static void objects_with_descriptors_are_shared_out(void **state)
{
	enum { BUFFERS = 40, SHARE = EIGHTH / 2 };
	struct cm_user first, other;
	struct raw_process process, others;
	int context, others_context;

	(void)state;
	start_small();
	cm_user_begin(&first, ALICE); /* has one channel */
	AS(ALICE, raw_attach(&server, &process); context = raw_context(&server, &process));
	for (int i = 0; i < BUFFERS; i++)
		assert_int_equal(take_device_memory(context), 0);
	for (int i = BUFFERS + 1; i < SHARE; i++)
		assert_int_equal(take_channel(&first), 0);
	assert_int_equal(take_channel(&first), -EMFILE);
	assert_int_equal(take_device_memory(context), -ENOMEM);
	cm_user_begin(&other, BOB);
	AS(BOB, raw_attach(&server, &others); others_context = raw_context(&server, &others));
	for (int i = 0; i < 4; i++) {
		assert_int_equal(take_device_memory(others_context), 0);
		assert_int_equal(take_channel(&other), 0);
	}
	/* Another program of the first user gets what one had that has ended. */
	close(context);
	raw_detach(&process);
	assert_int_equal(take_channel(&first), 0);
	close(others_context);
	raw_detach(&others);
	cm_user_end(&first);
	cm_user_end(&other);
	stop();
}

/* Attaches a process that keeps only its two sockets open. */
static void attach_small(struct raw_process *process, uid_t user)
{
	AS(user, raw_attach(&server, process));
	close(process->table);
	close(process->doorbell);
}

static void detach_small(const struct raw_process *process)
{
	close(process->fd);
	close(process->event_fd);
}

/* Closes an event's descriptors, because descriptors in flight count, too. */
static void drop_event(const struct raw_process *process)
{
	struct proto_event event;
	int fds[PROTO_MAX_FDS];

	assert_int_equal(raw_event_all(process, &event, fds), 0);
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

enum { FILES = 240 };

/* The result of requesting a link, while a process may have FILES descriptors. The limit is in
 * force during the request only: descriptors are sent without it, because all that programs of the
 * same user have in flight at the time count against the sender's limit. */
static int wish(const struct raw_process *process, const struct raw_process *peer)
{
	const struct proto_link body = {.slot = peer->resp.slot};
	struct rlimit old, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){.rlim_cur = FILES, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	int err = raw_call(process->fd, PROTO_LINK, &body, sizeof(body), NULL, 0);

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);

	if (!err) {
		drop_event(process);
		drop_event(peer);
	}
	return err;
}

/* Links that other users request take a share of a process's descriptors, and no user may take the
 * whole share. Links that the process itself requests aren't limited. */
static void strangers_leave_room_for_others(void **state)
{
	enum { SHARE = FILES / 8 * 3, HALF = SHARE / 2 };
	static struct raw_process bob[HALF + 1];
	struct raw_process alice, carol;

	(void)state;
	start();
	attach_small(&alice, ALICE);
	attach_small(&carol, CAROL);
	for (int i = 0; i <= HALF; i++) {
		attach_small(&bob[i], BOB);
		assert_int_equal(wish(&bob[i], &alice), i < HALF ? 0 : -EMFILE);
	}
	assert_int_equal(wish(&carol, &alice), 0);
	assert_int_equal(wish(&alice, &bob[HALF]), 0);
	/* A process that detaches makes room. */
	detach_small(&bob[0]);
	detach_small(&bob[HALF]);
	drop_event(&alice);
	drop_event(&alice);
	attach_small(&bob[HALF], BOB);
	assert_int_equal(wish(&bob[HALF], &alice), 0);
	for (int i = 1; i <= HALF; i++)
		detach_small(&bob[i]);
	detach_small(&alice);
	detach_small(&carol);
	stop();
}

/* ------------------------------------------------------------------ `ctl`, captures, the log */

enum { CTL_ALL = 64, CTL_RESERVED = 16, CTL_USER = 8 };

/* Connects until the daemon hangs up. Connections are accepted in turn, so the one after the last
 * that it keeps shows that it has kept those. */
static void take_ctls(uid_t user, int *fd, int wanted)
{
	char byte;

	for (int i = 0; i <= wanted; i++)
		AS(user, fd[i] = raw_connect_ctl(&server));
	assert_int_equal(recv(fd[wanted], &byte, 1, 0), 0);
	close(fd[wanted]);
	for (int i = 0; i < wanted; i++)
		assert_int_equal(recv(fd[i], &byte, 1, MSG_DONTWAIT), -1);
}

static bool has_status(uid_t user)
{
	json_t *reply;

	AS(user, reply = raw_ctl(&server, "{\"op\":\"status\"}\n"));
	bool has = reply;

	json_decref(reply);
	return has;
}

static void ctl_is_shared_out(void **state)
{
	enum { USERS = (CTL_ALL - CTL_RESERVED) / CTL_USER };
	int fd[USERS][CTL_USER + 1], none[1];

	(void)state;
	start();
	for (int i = 0; i < USERS; i++) {
		assert_true(has_status(BOB));
		take_ctls(CAROL + (uid_t)i, fd[i], CTL_USER);
	}
	/* What is left is root's. */
	take_ctls(BOB, none, 0);
	assert_true(has_status(0));
	for (int i = 0; i < USERS; i++)
		for (int k = 0; k < CTL_USER; k++)
			close(fd[i][k]);
	stop();
}

/* Returns the daemon's words, or NULL and the capture's descriptor. */
static const char *take_capture(uid_t user, int *capture)
{
	static const char line[] = "{\"op\":\"capture\"}\n";
	static char reply[1024];
	int fds[PROTO_MAX_FDS], fd;

	AS(user, fd = raw_connect_ctl(&server));
	assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
	ssize_t n = packet_receive(fd, reply, sizeof(reply) - 1, fds, 0);

	assert_true(n > 0);
	reply[n] = 0;
	close(fd);
	*capture = fds[0];
	return fds[0] < 0 ? reply : NULL;
}

static void captures_are_roots(void **state)
{
	enum { CAPTURES = 8 };
	int fd[CAPTURES + 1];

	(void)state;
	start();
	assert_non_null(strstr(take_capture(ALICE, &fd[0]), "root"));
	for (int i = 0; i < CAPTURES; i++)
		assert_null(take_capture(0, &fd[i]));
	assert_non_null(strstr(take_capture(0, &fd[CAPTURES]), "too many"));
	for (int i = 0; i < CAPTURES; i++)
		close(fd[i]);
	stop();
}

/* Has the daemon log a line because of this user. */
static void cause_line(uid_t user)
{
	const struct proto_attach body = {.abi = PROTO_ABI};
	struct proto_attach_resp resp;
	int fd;

	AS(user, fd = raw_connect(&server));
	assert_int_equal(raw_attach_fds(fd, &body, NULL, 0, &resp, NULL), -EINVAL);
	close(fd);
}

static uint32_t lines_logged(void)
{
	char path[128], line[1024];
	uint32_t count = 0;

	snprintf(path, sizeof(path), "%s/log", server.dir);
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "attached without its descriptors") != NULL;
	fclose(file);
	return count;
}

static void log_lines_are_shared_out(void **state)
{
	enum { LINES = 50, A_SECOND = 5, CAUSED = 300 };
	struct timespec from, to;

	(void)state;
	start();
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < CAUSED; i++)
		cause_line(ALICE);
	clock_gettime(CLOCK_MONOTONIC, &to);
	uint32_t lines = lines_logged();

	assert_in_range(lines, LINES, LINES + (uint32_t)(to.tv_sec - from.tv_sec + 1) * A_SECOND);
	cause_line(BOB);
	assert_int_equal(lines_logged(), lines + 1);
	stop();
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

/* The other rows of the table, each with the tests that take the share. */
static const struct share_row {
	const char *text;
	CMUnitTestFunction test;
} other_rows[] = {
	{"| slots for processes | 1,023 | `user-processes`: 512, with what XRC targets keep |",
	 kept_slots_count},
	{"| objects of all kinds, also of the CM | memory | `user-objects`: 1,048,576 |",
	 cm_objects_count},
	{"| connections | descriptors | 1/8 of them "
	 "([`server_admit()`](../src/daemon/core/server.c)) |",
	 connections_are_shared_out},
	{"| device memory and event channels of the CM | 1/8 of the descriptors | half of what is "
	 "left |",
	 objects_with_descriptors_are_shared_out},
	{"| clients of `ctl` | 64 | 8; 16 are root's and the daemon's own user's |",
	 ctl_is_shared_out},
	{"| descriptors of a process for links of strangers | 3/8 of its limit | half of what is "
	 "left |",
	 strangers_leave_room_for_others},
	{"| ephemeral ports, of each port space of the CM | `ip_local_port_range` | half of what "
	 "is "
	 "left |",
	 another_user_gets_ports},
	{"| identifiers on one port of the CM | 4,096 | half of what is left |",
	 identifiers_on_one_port_are_shared_out},
	{"| captures | 8 | only root and the daemon's own user have them |", captures_are_roots},
	{"| log lines | no limit | 50, then 5 in a second |", log_lines_are_shared_out},
};
enum { OTHER_ROWS = sizeof(other_rows) / sizeof(other_rows[0]) };

static bool pools_have_row(const char *line)
{
	char number[32], wanted[128];

	for (uint32_t i = 0; i < ROWS; i++) {
		snprintf(number, sizeof(number), "%u,%03u", rows[i].size / 1000,
			 rows[i].size % 1000);
		snprintf(wanted, sizeof(wanted), "| %s | %s | half of what is left |\n",
			 rows[i].name, number);
		if (!strcmp(line, wanted))
			return true;
	}
	return false;
}

static bool others_have_row(const char *line)
{
	for (uint32_t i = 0; i < OTHER_ROWS; i++) {
		size_t length = strlen(other_rows[i].text);

		if (!strncmp(line, other_rows[i].text, length) && line[length] == '\n')
			return true;
	}
	return false;
}

/* Each pool is a row of `rows`, or of those with descriptors. */
static void pools_are_known(void)
{
	for (uint32_t i = 0; i < POOL_KINDS; i++) {
		bool known = i == POOL_FILES;

		for (uint32_t j = 0; j < ROWS; j++)
			known |= !strcmp(rows[j].name, pool_name((enum pool_kind)i)) &&
				 rows[j].size == pool_size(&(struct pools){0}, (enum pool_kind)i);
		assert_true(known);
	}
}

static void trust_md_has_the_numbers(void **state)
{
	static const char heading[] = "| of the host |", rule[] = "|---|";
	char line[512];
	uint32_t found = 0;
	bool within = false;

	(void)state;
	pools_are_known();
	FILE *file = fopen(TRUST_MD, "r");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		within = line[0] == '|' && (within || !strncmp(line, heading, strlen(heading)));
		if (!within || !strncmp(line, heading, strlen(heading)) ||
		    !strncmp(line, rule, strlen(rule)))
			continue;
		if (!pools_have_row(line) && !others_have_row(line))
			fail_msg("no test takes one user's share of: %s", line);
		found++;
	}
	fclose(file);
	assert_int_equal(found, ROWS + OTHER_ROWS);
}

int main(void)
{
	enum { MORE = 3 };
	struct CMUnitTest tests[MORE + OTHER_ROWS + ROWS] = {
		cmocka_unit_test(trust_md_has_the_numbers),
		cmocka_unit_test(defaults_are_the_tables),
		cmocka_unit_test(quotas_are_per_user),
	};

	for (int i = 0; i < OTHER_ROWS; i++)
		tests[MORE + i] = (struct CMUnitTest){.name = other_rows[i].text,
						      .test_func = other_rows[i].test};
	for (int i = 0; i < ROWS; i++)
		tests[MORE + OTHER_ROWS + i] =
			(struct CMUnitTest){.name = rows[i].name,
					    .test_func = another_user_gets_one,
					    .initial_state = (void *)&rows[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
