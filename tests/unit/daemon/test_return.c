/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon that is killed, and its clients that return to the next one: slots are kept, handles and
 * numbers are restored, links exist again when both sides name them, and no client waits without
 * bound.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "raw.h"

/* ------------------------------------------------------------------ returning by hand */

/* Attaches again over a new connection. The result of it. */
static int try_return(struct raw_process *p, uint64_t cookie, uint32_t slot)
{
	const struct proto_attach body = {.abi = PROTO_ABI,
					  .flags = PROTO_ATTACH_RETURN,
					  .cookie = cookie,
					  .slot = slot,
					  .qpn_index = 1,
					  .key_index = 1};

	close(p->fd);
	p->fd = raw_connect(&server);
	return raw_attach_body(p->fd, &body, p->table, p->doorbell, &p->resp, &p->event_fd);
}

static void go_back(struct raw_process *p)
{
	const uint32_t slot = p->resp.slot;
	const uint64_t cookie = p->resp.cookie;

	close(p->event_fd);
	assert_int_equal(try_return(p, cookie, slot), 0);
	assert_int_equal(p->resp.slot, slot);
	assert_true(p->resp.cookie == cookie);
}

static int returned(const struct raw_process *p)
{
	return raw_call(p->fd, PROTO_RETURNED, NULL, 0, NULL, 0);
}

static int link_return(const struct raw_process *p, uint64_t id, uint32_t slot, uint32_t side)
{
	const struct proto_link_return body = {.link_id = id, .slot = slot, .side = side};

	return raw_call(p->fd, PROTO_LINK_RETURN, &body, sizeof(body), NULL, 0);
}

static int pd_return(int ctx, uint32_t handle)
{
	const struct {
		struct ib_uverbs_alloc_pd core;
		struct proto_return old;
	} body = {.old.handle = handle};
	struct ib_uverbs_alloc_pd_resp resp;
	int result =
		raw_call(ctx, IB_USER_VERBS_CMD_ALLOC_PD, &body, sizeof(body), &resp, sizeof(resp));

	if (!result)
		assert_int_equal(resp.pd_handle, handle);
	return result;
}

static int cq_return(int ctx, uint32_t handle)
{
	const struct {
		struct ib_uverbs_create_cq core;
		struct proto_return old;
	} body = {.core = {.cqe = 16, .comp_channel = -1}, .old.handle = handle};
	struct ib_uverbs_create_cq_resp resp;

	return raw_call(ctx, IB_USER_VERBS_CMD_CREATE_CQ, &body, sizeof(body), &resp, sizeof(resp));
}

static int mr_return(int ctx, uint32_t pd, uint32_t handle, uint32_t lkey)
{
	const struct {
		struct ib_uverbs_reg_mr core;
		struct proto_return old;
	} body = {.core = {.start = 0x10000,
			   .length = 0x2000,
			   .hca_va = 0x10000,
			   .pd_handle = pd,
			   .access_flags = 1},
		  .old = {handle, lkey}};
	struct ib_uverbs_reg_mr_resp resp;
	int result =
		raw_call(ctx, IB_USER_VERBS_CMD_REG_MR, &body, sizeof(body), &resp, sizeof(resp));

	if (!result) {
		assert_int_equal(resp.mr_handle, handle);
		assert_int_equal(resp.lkey, lkey);
		assert_int_equal(resp.rkey, lkey);
	}
	return result;
}

static int qp_return(int ctx, uint32_t pd, uint32_t cq, uint32_t handle, uint32_t qpn)
{
	const struct {
		struct ib_uverbs_create_qp core;
		struct proto_return old;
	} body = {.core = {.pd_handle = pd,
			   .send_cq_handle = cq,
			   .recv_cq_handle = cq,
			   .max_send_wr = 4,
			   .max_send_sge = 1,
			   .qp_type = 2},
		  .old = {handle, qpn}};
	struct ib_uverbs_create_qp_resp resp;
	int result = raw_call(ctx, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp,
			      sizeof(resp));

	if (!result)
		assert_int_equal(resp.qpn, qpn);
	return result;
}

static int ask_link(const struct raw_process *p, uint32_t slot)
{
	const struct proto_link body = {.slot = slot};

	return raw_call(p->fd, PROTO_LINK, &body, sizeof(body), NULL, 0);
}

/* Takes the next event, which must be of this type, without its descriptors. */
static struct proto_event expect_event(const struct raw_process *p, uint32_t type)
{
	struct proto_event event;
	int fds[3];

	assert_int_equal(raw_event(p, &event, fds), 0);
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	assert_int_equal(event.type, type);
	return event;
}

/* ------------------------------------------------------------------ tests */

static void slots_are_kept(void **state)
{
	struct raw_process old[3], young;

	(void)state;
	for (int i = 0; i < 3; i++)
		raw_attach(&server, &old[i]);
	raw_daemon_replace(&server);
	for (int i = 0; i < 50; i++) {
		raw_attach(&server, &young);
		for (int k = 0; k < 3; k++)
			assert_int_not_equal(young.resp.slot, old[k].resp.slot);
		raw_detach(&young);
	}
	for (int i = 0; i < 3; i++) {
		go_back(&old[i]);
		assert_int_equal(returned(&old[i]), 0);
	}
	raw_expect_count(&server, "clients", 3);
	for (int i = 0; i < 3; i++)
		raw_detach(&old[i]);
}

static void only_who_was_there_may_return(void **state)
{
	struct raw_process p, stranger;
	const struct proto_attach twisted = {
		.abi = PROTO_ABI, .flags = PROTO_ATTACH_RETURN, .qpn_index = 0, .key_index = 1};

	(void)state;
	raw_attach(&server, &p);
	raw_attach(&server, &stranger);
	const uint64_t cookie = p.resp.cookie;
	const uint32_t slot = p.resp.slot;

	/* Not while the daemon lives. */
	close(stranger.event_fd);
	assert_int_equal(try_return(&stranger, cookie, slot), -ESTALE);
	raw_daemon_replace(&server);
	assert_int_equal(try_return(&stranger, cookie ^ 1024, slot), -ESTALE);
	assert_int_equal(try_return(&stranger, cookie, slot + 1), -ESTALE);
	assert_int_equal(try_return(&stranger, cookie, LIMIT_SLOTS), -ESTALE);
	assert_int_equal(try_return(&stranger, cookie, UINT32_MAX), -ESTALE);
	close(stranger.fd);
	stranger.fd = raw_connect(&server);
	assert_int_equal(raw_attach_body(stranger.fd, &twisted, stranger.table, stranger.doorbell,
					 &stranger.resp, &stranger.event_fd),
			 -EINVAL);
	go_back(&p);
	assert_int_equal(try_return(&stranger, cookie, slot), -ESTALE); /* it is back already */
	close(stranger.fd);
	close(stranger.table);
	close(stranger.doorbell);
	raw_detach(&p);
}

static int mw_return(int context, uint32_t pd, uint32_t handle, uint32_t number)
{
	const struct ib_uverbs_alloc_mw body = {.pd_handle = pd, .mw_type = 2};
	const struct proto_return old = {handle, number};
	uint8_t request[sizeof(body) + sizeof(old)];
	struct ib_uverbs_alloc_mw_resp resp;

	memcpy(request, &body, sizeof(body));
	memcpy(request + sizeof(body), &old, sizeof(old));
	int err = raw_call(context, IB_USER_VERBS_CMD_ALLOC_MW, request, sizeof(request), &resp,
			   sizeof(resp));

	if (!err) {
		assert_int_equal(resp.mw_handle, handle);
		assert_int_equal(resp.rkey, number);
	}
	return err;
}

static void everything_has_its_old_names(void **state)
{
	struct ib_uverbs_reg_mr_resp keys;
	struct raw_process p;
	uint32_t pd, cq, mr, qp, qpn, new_qpn;

	(void)state;
	raw_attach(&server, &p);
	int ctx = raw_context(&server, &p);

	for (int i = 0; i < 20; i++) /* numbers that were in use before */
		raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, raw_mr(ctx, raw_pd(ctx), NULL));
	pd = raw_pd(ctx);
	cq = raw_cq(ctx, -1);
	mr = raw_mr(ctx, pd, &keys);
	qp = raw_qp(ctx, pd, cq, &qpn);
	const struct ib_uverbs_alloc_mw type_2 = {.pd_handle = pd, .mw_type = 2};
	struct ib_uverbs_alloc_mw_resp window;

	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_ALLOC_MW, &type_2, sizeof(type_2), &window,
				  sizeof(window)),
			 0);
	raw_daemon_replace(&server);
	go_back(&p);
	close(ctx);
	ctx = raw_context(&server, &p);
	assert_int_equal(pd_return(ctx, pd), 0);
	assert_int_equal(cq_return(ctx, cq), 0);
	assert_int_equal(mr_return(ctx, pd, mr, keys.lkey), 0);
	assert_int_equal(qp_return(ctx, pd, cq, qp, qpn), 0);
	assert_int_equal(mw_return(ctx, pd, window.mw_handle, window.rkey), 0);
	/* Nothing twice, nothing that can't be. */
	assert_int_equal(pd_return(ctx, pd), -EEXIST);
	assert_int_equal(pd_return(ctx, 0), -EINVAL);
	assert_int_equal(pd_return(ctx, UINT32_MAX), -EINVAL);
	assert_int_equal(mr_return(ctx, pd, mr + 1000, keys.lkey), -EEXIST);
	assert_int_equal(mr_return(ctx, pd, mr + 1001, keys.lkey + 1), -EEXIST);
	assert_int_equal(mr_return(ctx, pd, mr + 1002, 1), -EINVAL);
	assert_int_equal(mw_return(ctx, pd, window.mw_handle + 1004, keys.lkey), -EEXIST);
	assert_int_equal(mw_return(ctx, pd, window.mw_handle + 1005, UINT32_MAX), -EINVAL);
	assert_int_equal(qp_return(ctx, pd, cq, qp + 1002, qpn), -EEXIST);
	assert_int_equal(qp_return(ctx, pd, cq, qp + 1003, qpn + (1 << LIMIT_QP_BITS)), -EINVAL);
	/* Nothing else in between. */
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), -EINVAL);
	assert_int_equal(ask_link(&p, 5), -EINVAL);
	assert_int_equal(returned(&p), 0);
	assert_int_equal(returned(&p), -EINVAL);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0x2000);

	/* As any other now: new names aren't the old ones, and old ones work. */
	assert_int_not_equal(raw_pd(ctx), pd);
	raw_qp(ctx, pd, cq, &new_qpn);
	assert_int_not_equal(new_qpn, qpn);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_QP, qp), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, mr), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_MW, window.mw_handle), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	close(ctx);
	raw_detach(&p);
}

static int tagged_return(int ctx, uint32_t pd, uint32_t cq, uint32_t handle)
{
	const struct {
		struct ib_uverbs_create_xsrq core;
		struct proto_return old;
	} body = {.core = {.srq_type = 2, /* IBV_SRQT_TM */
			   .pd_handle = pd,
			   .cq_handle = cq,
			   .max_wr = 4,
			   .max_sge = 1,
			   .max_num_tags = 9},
		  .old.handle = handle};
	struct ib_uverbs_create_srq_resp resp;
	int result = raw_call(ctx, IB_USER_VERBS_CMD_CREATE_XSRQ, &body, sizeof(body), &resp,
			      sizeof(resp));

	if (!result)
		assert_int_equal(resp.srq_handle, handle);
	return result;
}

static void a_tag_matching_srq_returns(void **state)
{
	struct raw_process p;

	(void)state;
	raw_attach(&server, &p);
	int ctx = raw_context(&server, &p);
	uint32_t pd = raw_pd(ctx), cq = raw_cq(ctx, -1), handle = 77;

	raw_daemon_replace(&server);
	go_back(&p);
	close(ctx);
	ctx = raw_context(&server, &p);
	assert_int_equal(pd_return(ctx, pd), 0);
	assert_int_equal(tagged_return(ctx, pd, cq, handle), -EINVAL); /* its CQ comes first */
	assert_int_equal(cq_return(ctx, cq), 0);
	assert_int_equal(tagged_return(ctx, pd, cq, handle), 0);
	assert_int_equal(tagged_return(ctx, pd, cq, handle), -EEXIST);
	assert_int_equal(returned(&p), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, cq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_SRQ, handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, cq), 0);
	close(ctx);
	raw_detach(&p);
}

static void who_ends_while_it_returns_leaves_nothing(void **state)
{
	struct raw_process p;

	(void)state;
	raw_attach(&server, &p);
	int ctx = raw_context(&server, &p);
	uint32_t pd = raw_pd(ctx);

	raw_daemon_replace(&server);
	go_back(&p);
	close(ctx);
	ctx = raw_context(&server, &p);
	assert_int_equal(pd_return(ctx, pd), 0);
	assert_int_equal(link_return(&p, 99, 7, 0), 0);
	close(ctx);
	raw_expect_count(&server, "pd", 0);
	raw_detach(&p);
}

static void links_exist_again(void **state)
{
	struct raw_process a, b;

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	assert_int_equal(ask_link(&a, b.resp.slot), 0);
	const struct proto_event ea = expect_event(&a, PROTO_EVENT_LINK);
	const struct proto_event eb = expect_event(&b, PROTO_EVENT_LINK);

	raw_daemon_replace(&server);
	go_back(&a);
	assert_int_equal(link_return(&a, ea.link_id, b.resp.slot, 2), -EINVAL);
	assert_int_equal(link_return(&a, ea.link_id, a.resp.slot, ea.side), -EINVAL);
	assert_int_equal(link_return(&a, ea.link_id, b.resp.slot, ea.side), 0);
	assert_int_equal(returned(&a), 0);
	go_back(&b);
	assert_int_equal(link_return(&b, eb.link_id, a.resp.slot, eb.side), 0);
	assert_int_equal(link_return(&b, eb.link_id, a.resp.slot, eb.side), -EEXIST);
	assert_int_equal(returned(&b), 0);
	raw_expect_count(&server, "links", 2);
	assert_int_equal(ask_link(&a, b.resp.slot), -EALREADY);
	raw_detach(&b);
	assert_true(expect_event(&a, PROTO_EVENT_LINK_DOWN).link_id == ea.link_id);
	raw_detach(&a);
}

/* One side names the link, then ends it before the other side is back. */
static void a_claim_is_given_back(void **state)
{
	struct raw_process a, b;

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	raw_daemon_replace(&server);
	go_back(&a);
	assert_int_equal(link_return(&a, 4711, b.resp.slot, 0), 0);
	assert_int_equal(returned(&a), 0);
	const struct proto_unlink body = {.link_id = 4711, .slot = b.resp.slot};

	assert_int_equal(raw_call(a.fd, PROTO_UNLINK, &body, sizeof(body), NULL, 0), 0);
	assert_int_equal(raw_call(a.fd, PROTO_UNLINK, &body, sizeof(body), NULL, 0), -ENOENT);
	go_back(&b);
	assert_int_equal(link_return(&b, 4711, a.resp.slot, 1), 0);
	assert_int_equal(returned(&b), 0);
	assert_true(expect_event(&b, PROTO_EVENT_LINK_DOWN).link_id == 4711);
	assert_int_equal(ask_link(&a, b.resp.slot), 0);
	assert_int_equal(expect_event(&a, PROTO_EVENT_LINK).slot, b.resp.slot);
	raw_detach(&a);
	raw_detach(&b);
}

/* The daemon was killed when it had reported the link to one side only. */
static void a_link_of_one_side_goes_down(void **state)
{
	struct raw_process a, b;

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	raw_daemon_replace(&server);
	go_back(&a);
	assert_int_equal(link_return(&a, 4711, b.resp.slot, 0), 0);
	assert_int_equal(returned(&a), 0);
	go_back(&b);
	assert_int_equal(returned(&b), 0);
	assert_true(expect_event(&a, PROTO_EVENT_LINK_DOWN).link_id == 4711);
	/* The reverse: the side that doesn't know the link returns first. */
	raw_daemon_replace(&server);
	go_back(&a);
	assert_int_equal(returned(&a), 0);
	go_back(&b);
	assert_int_equal(link_return(&b, 4712, a.resp.slot, 0), 0);
	assert_int_equal(returned(&b), 0);
	assert_true(expect_event(&b, PROTO_EVENT_LINK_DOWN).link_id == 4712);
	raw_detach(&a);
	raw_detach(&b);
}

static void a_wish_waits_for_its_peer(void **state)
{
	struct raw_process a, b, late;

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	raw_daemon_replace(&server);
	raw_attach(&server, &late);
	go_back(&a);
	assert_int_equal(returned(&a), 0);
	assert_int_equal(ask_link(&a, b.resp.slot), 0);
	go_back(&b);
	assert_int_equal(ask_link(&late, b.resp.slot), 0);
	assert_int_equal(returned(&b), 0);
	assert_int_equal(expect_event(&a, PROTO_EVENT_LINK).slot, b.resp.slot);
	assert_int_equal(expect_event(&late, PROTO_EVENT_LINK).slot, b.resp.slot);
	raw_detach(&late);
	raw_detach(&a);
	raw_detach(&b);
}

/* Starts a process that attaches, reports its slot, and waits to be killed. */
static pid_t other_process(uint32_t *slot)
{
	struct raw_process p;
	int report[2];

	assert_int_equal(pipe(report), 0);
	pid_t pid = fork();

	if (pid == 0) {
		raw_attach(&server, &p);
		if (write(report[1], &p.resp.slot, sizeof(p.resp.slot)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(report[0], slot, sizeof(*slot)), sizeof(*slot));
	close(report[0]);
	close(report[1]);
	return pid;
}

static void who_never_returns_is_given_up(void **state)
{
	struct raw_process a;
	uint32_t slot;

	(void)state;
	raw_attach(&server, &a);
	pid_t pid = other_process(&slot);

	raw_daemon_replace(&server);
	go_back(&a);
	assert_int_equal(link_return(&a, 4713, slot, 0), 0);
	assert_int_equal(returned(&a), 0);
	assert_int_equal(ask_link(&a, slot), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(expect_event(&a, PROTO_EVENT_LINK_DOWN).link_id == 4713);
	assert_true(expect_event(&a, PROTO_EVENT_LINK_DOWN).link_id == 0);
	assert_int_equal(ask_link(&a, slot), -ENOENT);
	raw_detach(&a);
}

static void who_ended_meanwhile_is_not_waited_for(void **state)
{
	static const char *const options[] = {"--idle-ms", "-1", NULL};
	uint32_t slot;
	pid_t pid = other_process(&slot);

	(void)state;
	assert_int_equal(kill(server.pid, SIGKILL), 0);
	assert_int_equal(waitpid(server.pid, NULL, 0), server.pid);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	raw_daemon_exec(&server, options);
	struct raw_process a;

	raw_attach(&server, &a);
	assert_int_not_equal(a.resp.slot, slot); /* slots age across daemons */
	assert_int_equal(ask_link(&a, slot), -ENOENT);
	raw_detach(&a);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, raw_server_start, raw_server_stop)
	const struct CMUnitTest tests[] = {
		TEST(slots_are_kept),
		TEST(only_who_was_there_may_return),
		TEST(everything_has_its_old_names),
		TEST(a_tag_matching_srq_returns),
		TEST(who_ends_while_it_returns_leaves_nothing),
		TEST(links_exist_again),
		TEST(a_claim_is_given_back),
		TEST(a_link_of_one_side_goes_down),
		TEST(a_wish_waits_for_its_peer),
		TEST(who_never_returns_is_given_up),
		TEST(who_ended_meanwhile_is_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
