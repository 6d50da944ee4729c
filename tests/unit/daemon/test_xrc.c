/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC at the daemon: which domain a file stands for, who learns of a target queue pair's state, and
 * what lives on after whose end, also at the next daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_verbs.h>
#include <cmocka.h>

#include "proto/limits.h"
#include "raw.h"

enum { RTR = 2, ERR = 6, ACCESS_ERR = 3, COMM_EST = 4 };

/* A process with a context. */
struct client {
	struct raw_process process;
	int ctx;
};

static struct client a, b;

static void client_begin(struct client *c)
{
	raw_attach(&server, &c->process);
	c->ctx = raw_context(&server, &c->process);
}

static void client_end(struct client *c)
{
	close(c->ctx);
	raw_detach(&c->process);
}

static int begin(void **state)
{
	(void)state;
	raw_expect_count(&server, "clients", 0);
	client_begin(&a);
	client_begin(&b);
	return 0;
}

static int end(void **state)
{
	(void)state;
	client_end(&a);
	client_end(&b);
	raw_expect_count(&server, "clients", 0);
	return 0;
}

/* ------------------------------------------------------------------ commands */

static int open_domain(int ctx, uint64_t ino, uint32_t oflags, struct proto_open_xrcd_resp *resp)
{
	const struct proto_open_xrcd body = {.dev = ino ? 7 : 0, .ino = ino, .oflags = oflags};

	return raw_call(ctx, PROTO_OPEN_XRCD, &body, sizeof(body), resp, sizeof(*resp));
}

static uint32_t domain(int ctx, uint64_t ino)
{
	struct proto_open_xrcd_resp resp;

	assert_int_equal(open_domain(ctx, ino, O_CREAT, &resp), 0);
	return resp.handle;
}

static int close_domain(int ctx, uint32_t handle)
{
	const struct ib_uverbs_close_xrcd body = {.xrcd_handle = handle};

	return raw_call(ctx, IB_USER_VERBS_CMD_CLOSE_XRCD, &body, sizeof(body), NULL, 0);
}

static uint32_t target(int ctx, uint32_t xrcd, uint32_t *handle)
{
	const struct ib_uverbs_create_qp body = {.pd_handle = xrcd,
						 .qp_type = IB_UVERBS_QPT_XRC_TGT};
	struct ib_uverbs_create_qp_resp resp;

	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	*handle = resp.qp_handle;
	return resp.qpn;
}

static int open_target(int ctx, uint32_t xrcd, uint32_t qpn, uint32_t *handle)
{
	const struct ib_uverbs_open_qp body = {
		.pd_handle = xrcd, .qpn = qpn, .qp_type = IB_UVERBS_QPT_XRC_TGT};
	struct ib_uverbs_create_qp_resp resp;
	int err =
		raw_call(ctx, IB_USER_VERBS_CMD_OPEN_QP, &body, sizeof(body), &resp, sizeof(resp));

	*handle = err ? UINT32_MAX : resp.qp_handle;
	return err;
}

static int query(int fd, uint32_t handle, uint32_t qpn, struct proto_xrc_state *is)
{
	const struct proto_xrc_query body = {.handle = handle, .qpn = qpn};

	return raw_call(fd, PROTO_XRC_QUERY, &body, sizeof(body), is, sizeof(*is));
}

static int modify(int ctx, uint32_t handle, const struct proto_xrc_state *to,
		  struct proto_xrc_state *now)
{
	const struct proto_xrc_modify body = {.handle = handle, .to = *to};

	return raw_call(ctx, PROTO_XRC_MODIFY, &body, sizeof(body), now, sizeof(*now));
}

static int report(const struct client *c, uint32_t qpn, uint32_t epoch, uint32_t event)
{
	const struct proto_xrc_report body = {.qpn = qpn, .epoch = epoch, .event = event};

	return raw_call(c->process.fd, PROTO_XRC_REPORT, &body, sizeof(body), NULL, 0);
}

/* The next event is about this queue pair, and has this value. */
static void told(const struct client *c, uint32_t qpn, uint32_t value)
{
	struct proto_event event;
	int fds[3];

	assert_int_equal(raw_event(&c->process, &event, fds), 0);
	assert_int_equal(event.type, PROTO_EVENT_XRC);
	assert_int_equal(event.link_id, qpn);
	assert_int_equal(event.value, value);
}

/* ------------------------------------------------------------------ domains */

static void a_file_is_one_domain(void **state)
{
	struct proto_open_xrcd_resp one, two, other;

	(void)state;
	assert_int_equal(open_domain(a.ctx, 5, 0, &one), -EAGAIN);
	assert_int_equal(open_domain(a.ctx, 5, O_CREAT | O_EXCL, &one), 0);
	assert_int_equal(open_domain(b.ctx, 5, O_CREAT | O_EXCL, &two), -EINVAL);
	assert_int_equal(open_domain(b.ctx, 5, 0, &two), 0);
	assert_int_equal(one.domain, two.domain);
	assert_int_equal(open_domain(b.ctx, 6, O_CREAT, &other), 0);
	assert_int_not_equal(one.domain, other.domain);
	/* It ends with its last handle. */
	assert_int_equal(close_domain(a.ctx, one.handle), 0);
	assert_int_equal(close_domain(a.ctx, one.handle), -ENOENT);
	assert_int_equal(open_domain(a.ctx, 5, 0, &one), 0);
	assert_int_equal(close_domain(a.ctx, one.handle), 0);
	assert_int_equal(close_domain(b.ctx, two.handle), 0);
	assert_int_equal(open_domain(a.ctx, 5, 0, &one), -EAGAIN);
}

static void anonymous_domains_differ(void **state)
{
	struct proto_open_xrcd_resp one, two;

	(void)state;
	assert_int_equal(open_domain(a.ctx, 0, O_EXCL, &one), 0);
	assert_int_equal(open_domain(a.ctx, 0, 0, &two), 0);
	assert_int_not_equal(one.domain, two.domain);
}

static void srqs_have_numbers(void **state)
{
	uint32_t xrcd = domain(a.ctx, 5), pd = raw_pd(a.ctx), cq = raw_cq(a.ctx, -1);
	struct ib_uverbs_create_xsrq body = {.pd_handle = pd,
					     .max_wr = 4,
					     .max_sge = 1,
					     .srq_type = IB_UVERBS_SRQT_XRC,
					     .xrcd_handle = xrcd,
					     .cq_handle = cq};
	struct ib_uverbs_create_srq_resp one, two;

	(void)state;
	for (struct ib_uverbs_create_srq_resp *resp = &one;; resp = &two) {
		assert_int_equal(raw_call(a.ctx, IB_USER_VERBS_CMD_CREATE_XSRQ, &body, sizeof(body),
					  resp, sizeof(*resp)),
				 0);
		assert_int_equal(resp->srqn >> LIMIT_QP_BITS, a.process.resp.slot);
		if (resp == &two)
			break;
	}
	assert_int_not_equal(one.srqn, two.srqn);
	assert_int_equal(close_domain(a.ctx, xrcd), -EBUSY);
	assert_int_equal(raw_destroy(a.ctx, IB_USER_VERBS_CMD_DESTROY_CQ, cq), -EBUSY);
	body.xrcd_handle = xrcd + 1;
	assert_int_equal(raw_call(a.ctx, IB_USER_VERBS_CMD_CREATE_XSRQ, &body, sizeof(body), &one,
				  sizeof(one)),
			 -EINVAL);
}

/* ------------------------------------------------------------------ target queue pairs */

static void states_change_one_by_one(void **state)
{
	uint32_t mine = domain(a.ctx, 5), theirs = domain(b.ctx, 5), handle, opened;
	uint32_t qpn = target(a.ctx, mine, &handle);
	struct proto_xrc_state is, to, now;

	(void)state;
	assert_int_equal(open_target(b.ctx, theirs, qpn, &opened), 0);
	assert_int_equal(query(b.ctx, opened, 0, &is), 0);
	to = is;
	to.state = RTR;
	to.peer = 0x112233;
	to.attr[3] = 77;
	assert_int_equal(modify(a.ctx, handle, &to, &now), 0);
	assert_int_equal(now.state, RTR);
	assert_int_equal(now.epoch, is.epoch);
	told(&a, qpn, PROTO_XRC_NO_EVENT);
	told(&b, qpn, PROTO_XRC_NO_EVENT);
	/* The other one's knowledge is old. */
	assert_int_equal(modify(b.ctx, opened, &to, &now), -EAGAIN);
	assert_int_equal(query(b.process.fd, 0, qpn, &is), 0);
	assert_int_equal(is.peer, 0x112233);
	assert_true(is.attr[3] == 77);
	is.state = 0;
	assert_int_equal(modify(b.ctx, opened, &is, &now), 0);
	assert_int_not_equal(now.epoch, is.epoch);
	/* Bad requests. */
	now.state = ERR + 1;
	assert_int_equal(modify(b.ctx, opened, &now, &now), -EINVAL);
	assert_int_equal(modify(b.ctx, opened + 1, &is, &now), -EINVAL);
	assert_int_equal(query(b.ctx, opened + 1, 0, &is), -EINVAL);
}

static void reports_reach_all(void **state)
{
	uint32_t mine = domain(a.ctx, 5), theirs = domain(b.ctx, 5), handle, opened;
	uint32_t qpn = target(a.ctx, mine, &handle);
	struct proto_xrc_state is, now;

	(void)state;
	assert_int_equal(open_target(b.ctx, theirs, qpn, &opened), 0);
	assert_int_equal(query(a.ctx, handle, 0, &is), 0);
	is.state = RTR;
	assert_int_equal(modify(a.ctx, handle, &is, &now), 0);
	told(&a, qpn, PROTO_XRC_NO_EVENT);
	told(&b, qpn, PROTO_XRC_NO_EVENT);
	for (int i = 0; i < 2; i++) /* once is enough */
		assert_int_equal(report(&b, qpn, now.epoch, COMM_EST), 0);
	told(&a, qpn, COMM_EST);
	told(&b, qpn, COMM_EST);
	assert_int_equal(report(&b, qpn, now.epoch + 1, ACCESS_ERR), 0); /* is over */
	assert_int_equal(report(&b, qpn + 1, now.epoch, ACCESS_ERR), 0);
	assert_int_equal(report(&b, qpn, now.epoch, COMM_EST + 1), -EINVAL);
	assert_int_equal(query(a.ctx, handle, 0, &is), 0);
	assert_int_equal(is.state, RTR);
	assert_int_equal(report(&b, qpn, now.epoch, ACCESS_ERR), 0);
	told(&a, qpn, ACCESS_ERR);
	told(&b, qpn, ACCESS_ERR);
	assert_int_equal(query(a.ctx, handle, 0, &is), 0);
	assert_int_equal(is.state, ERR);
}

/* Who hasn't the domain open learns and changes nothing. */
static void strangers_are_kept_out(void **state)
{
	uint32_t mine = domain(a.ctx, 5), theirs = domain(b.ctx, 6), handle, opened;
	uint32_t qpn = target(a.ctx, mine, &handle);
	struct proto_xrc_state is, now;

	(void)state;
	assert_int_equal(open_target(b.ctx, theirs, qpn, &opened), -EINVAL);
	assert_int_equal(open_target(b.ctx, mine + 100, qpn, &opened), -EINVAL);
	assert_int_equal(open_target(a.ctx, mine, qpn + 1, &opened), -EINVAL);
	assert_int_equal(query(b.process.fd, 0, qpn, &is), -EINVAL);
	assert_int_equal(query(a.ctx, handle, 0, &is), 0);
	is.state = RTR;
	assert_int_equal(modify(a.ctx, handle, &is, &now), 0);
	assert_int_equal(report(&b, qpn, now.epoch, ACCESS_ERR), 0);
	assert_int_equal(query(a.ctx, handle, 0, &is), 0);
	assert_int_equal(is.state, RTR);
}

static void it_outlives_its_maker(void **state)
{
	uint32_t theirs = domain(b.ctx, 5), handle, opened, other;
	uint32_t slot = a.process.resp.slot;
	uint32_t qpn = target(a.ctx, domain(a.ctx, 5), &handle);
	struct proto_xrc_state is, now;

	(void)state;
	assert_int_equal(open_target(b.ctx, theirs, qpn, &opened), 0);
	client_end(&a);
	raw_expect_count(&server, "clients", 1);
	assert_int_equal(query(b.ctx, opened, 0, &is), 0);
	is.state = RTR;
	assert_int_equal(modify(b.ctx, opened, &is, &now), 0);
	assert_int_equal(open_target(b.ctx, theirs, qpn, &other), 0);
	/* Its slot is nobody's, however many come. */
	for (int i = 0; i < (int)LIMIT_SLOTS + 16; i++) {
		raw_attach(&server, &a.process);
		assert_int_not_equal(a.process.resp.slot, slot);
		raw_detach(&a.process);
	}
	client_begin(&a);
	assert_int_equal(raw_destroy(b.ctx, IB_USER_VERBS_CMD_DESTROY_QP, opened), 0);
	assert_int_equal(query(b.ctx, other, 0, &is), 0);
	assert_int_equal(raw_destroy(b.ctx, IB_USER_VERBS_CMD_DESTROY_QP, other), 0);
	assert_int_equal(open_target(b.ctx, theirs, qpn, &opened), -EINVAL);
	assert_int_equal(close_domain(b.ctx, theirs), 0);
}

/* The number is given to nothing else while another process has the queue pair open. */
static void its_number_stays_its_own(void **state)
{
	uint32_t mine = domain(a.ctx, 5), theirs = domain(b.ctx, 5), handle, opened, other;
	uint32_t qpn = target(a.ctx, mine, &handle);

	(void)state;
	assert_int_equal(open_target(b.ctx, theirs, qpn, &opened), 0);
	assert_int_equal(raw_destroy(a.ctx, IB_USER_VERBS_CMD_DESTROY_QP, handle), 0);
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT + 16; i++) {
		assert_int_not_equal(target(a.ctx, mine, &other), qpn);
		assert_int_equal(raw_destroy(a.ctx, IB_USER_VERBS_CMD_DESTROY_QP, other), 0);
	}
	assert_int_equal(raw_destroy(b.ctx, IB_USER_VERBS_CMD_DESTROY_QP, opened), 0);
}

static void daemon_signal(int signal, int options)
{
	int status;

	assert_int_equal(kill(server.pid, signal), 0);
	assert_int_equal(waitpid(server.pid, &status, options), server.pid);
}

/* B's request is ready at the daemon before A's end is, and is executed after it. */
static int after_the_end_of_a(uint32_t command, const void *body, size_t size)
{
	daemon_signal(SIGSTOP, WUNTRACED);
	assert_int_equal(raw_request(b.ctx, command, body, size, NULL, 0), 0);
	client_end(&a);
	daemon_signal(SIGCONT, WCONTINUED);
	int result = raw_receive(b.ctx, NULL, 0, NULL);

	client_begin(&a);
	return result;
}

/* A process that has seen another one end (waitpid()) finds nothing of it, whatever of the two the
 * daemon's loop sees first. */
static void the_dead_have_nothing(void **state)
{
	const struct proto_open_xrcd body = {.dev = 7, .ino = 5};
	struct ib_uverbs_open_qp open = {.qp_type = IB_UVERBS_QPT_XRC_TGT};
	uint32_t handle;

	(void)state;
	domain(a.ctx, 5);
	assert_int_equal(after_the_end_of_a(PROTO_OPEN_XRCD, &body, sizeof(body)), -EAGAIN);
	open.pd_handle = domain(b.ctx, 5);
	open.qpn = target(a.ctx, domain(a.ctx, 5), &handle);
	assert_int_equal(after_the_end_of_a(IB_USER_VERBS_CMD_OPEN_QP, &open, sizeof(open)),
			 -EINVAL);
	assert_int_equal(close_domain(b.ctx, open.pd_handle), 0);
}

/* ------------------------------------------------------------------ the next daemon */

static void go_back(struct client *c)
{
	const struct proto_attach body = {.abi = PROTO_ABI,
					  .flags = PROTO_ATTACH_RETURN,
					  .cookie = c->process.resp.cookie,
					  .slot = c->process.resp.slot,
					  .qpn_index = 1,
					  .key_index = 1};

	close(c->process.event_fd);
	close(c->process.fd);
	close(c->ctx);
	c->process.fd = raw_connect(&server);
	assert_int_equal(raw_attach_body(c->process.fd, &body, c->process.table,
					 c->process.doorbell, &c->process.resp,
					 &c->process.event_fd),
			 0);
	c->ctx = raw_context(&server, &c->process);
}

static void domain_again(int ctx, uint32_t handle, uint32_t number)
{
	const struct {
		struct proto_open_xrcd core;
		struct proto_return old;
	} body = {.core = {.dev = 7, .ino = 5}, .old = {handle, number}};
	struct proto_open_xrcd_resp resp;

	assert_int_equal(raw_call(ctx, PROTO_OPEN_XRCD, &body, sizeof(body), &resp, sizeof(resp)),
			 0);
	assert_int_equal(resp.handle, handle);
	assert_int_equal(resp.domain, number);
}

static void target_again(int ctx, uint32_t xrcd, uint32_t handle, uint32_t qpn,
			 const struct proto_xrc_state *was, struct proto_xrc_state *now)
{
	const struct {
		struct proto_xrc_returns core;
		struct proto_return old;
	} body = {.core = {.xrcd = xrcd, .was = *was}, .old = {handle, qpn}};

	assert_int_equal(raw_call(ctx, PROTO_XRC_RETURNS, &body, sizeof(body), now, sizeof(*now)),
			 0);
}

static int returned(const struct client *c)
{
	return raw_call(c->process.fd, PROTO_RETURNED, NULL, 0, NULL, 0);
}

/* The one that didn't make it returns first. Whatever the other one remembers, it is now as the
 * first one says. */
static void it_returns(void **state)
{
	struct proto_open_xrcd_resp mine, theirs;
	uint32_t handle, opened;
	struct proto_xrc_state is, now;

	(void)state;
	assert_int_equal(open_domain(a.ctx, 5, O_CREAT, &mine), 0);
	assert_int_equal(open_domain(b.ctx, 5, O_CREAT, &theirs), 0);
	uint32_t qpn = target(a.ctx, mine.handle, &handle);

	assert_int_equal(open_target(b.ctx, theirs.handle, qpn, &opened), 0);
	assert_int_equal(query(a.ctx, handle, 0, &is), 0);
	is.state = RTR;
	is.peer = 99;
	assert_int_equal(modify(a.ctx, handle, &is, &now), 0);
	raw_daemon_replace(&server);
	go_back(&b);
	domain_again(b.ctx, theirs.handle, theirs.domain);
	target_again(b.ctx, theirs.handle, opened, qpn, &now, &is);
	assert_int_equal(is.state, RTR);
	assert_int_equal(is.peer, 99);
	assert_int_equal(is.epoch, now.epoch);
	assert_int_equal(returned(&b), 0);
	go_back(&a);
	domain_again(a.ctx, mine.handle, mine.domain);
	now.state = 0; /* it hadn't heard */
	target_again(a.ctx, mine.handle, handle, qpn, &now, &is);
	assert_int_equal(is.state, RTR);
	assert_int_equal(returned(&a), 0);
	/* The number is in use. */
	uint32_t other;

	assert_int_not_equal(target(a.ctx, mine.handle, &other), qpn);
	assert_int_equal(report(&a, qpn, is.epoch, ACCESS_ERR), 0);
	assert_int_equal(query(b.ctx, opened, 0, &is), 0);
	assert_int_equal(is.state, ERR);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_file_is_one_domain),  TEST(anonymous_domains_differ),
		TEST(srqs_have_numbers),     TEST(states_change_one_by_one),
		TEST(reports_reach_all),     TEST(strangers_are_kept_out),
		TEST(it_outlives_its_maker), TEST(its_number_stays_its_own),
		TEST(the_dead_have_nothing), TEST(it_returns),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
