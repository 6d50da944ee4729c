/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts that share: which process may import what, what an imported protection domain keeps
 * alive in every order of ends, and the return to another daemon.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw.h"

static const uint64_t token[2] = {0x1111222233334444, 0x5555666677778888};
static const uint64_t other_token[2] = {0x1111222233334444, 0x5555666677778889};
static const uint64_t no_token[2];

static int open_with(const struct raw_process *p, const uint64_t with[2])
{
	const struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} body = {.udata = {p->resp.cookie, {with[0], with[1]}}};
	struct ib_uverbs_get_context_resp resp;
	int fd = raw_connect(&server);

	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	return fd;
}

static int import_pd(int ctx, uint32_t shared, uint32_t *handle)
{
	const struct proto_handle body = {.handle = shared};
	struct proto_import_pd_resp resp = {0};
	int result = raw_call(ctx, PROTO_IMPORT_PD, &body, sizeof(body), &resp, sizeof(resp));

	*handle = resp.handle;
	return result;
}

static uint32_t imported(int ctx, uint32_t shared)
{
	uint32_t handle;

	assert_int_equal(import_pd(ctx, shared, &handle), 0);
	return handle;
}

static int unimport_pd(int ctx, uint32_t handle)
{
	const struct proto_handle body = {.handle = handle};

	return raw_call(ctx, PROTO_UNIMPORT_PD, &body, sizeof(body), NULL, 0);
}

static int query_mr(int ctx, uint32_t shared, struct proto_query_mr_resp *resp)
{
	const struct proto_handle body = {.handle = shared};

	return raw_call(ctx, PROTO_QUERY_MR, &body, sizeof(body), resp, sizeof(*resp));
}

static int import_mr(int ctx, uint32_t pd, uint32_t shared, struct proto_import_mr_resp *resp)
{
	const struct proto_import_mr body = {.pd = pd, .shared = shared};

	return raw_call(ctx, PROTO_IMPORT_MR, &body, sizeof(body), resp, sizeof(*resp));
}

static int dealloc_pd(int ctx, uint32_t handle)
{
	return raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, handle);
}

static int try_mr(int ctx, uint32_t pd)
{
	const struct ib_uverbs_reg_mr body = {
		.start = 0x10000, .length = 0x2000, .hca_va = 0x10000, .pd_handle = pd};
	struct ib_uverbs_reg_mr_resp resp;

	return raw_call(ctx, IB_USER_VERBS_CMD_REG_MR, &body, sizeof(body), &resp, sizeof(resp));
}

/* Two processes, the first with a PD in a context that has the token. */
struct pair {
	struct raw_process a, b;
	int ctx_a, ctx_b;
	uint32_t pd;
};

static void pair_open(struct pair *pair)
{
	raw_attach(&server, &pair->a);
	raw_attach(&server, &pair->b);
	pair->ctx_a = open_with(&pair->a, token);
	pair->ctx_b = open_with(&pair->b, token);
	pair->pd = raw_pd(pair->ctx_a);
}

static void pair_close(struct pair *pair)
{
	close(pair->ctx_a);
	close(pair->ctx_b);
	raw_detach(&pair->a);
	raw_detach(&pair->b);
	raw_expect_count(&server, "clients", 0);
}

/* ------------------------------------------------------------------ permission */

static void only_the_token_counts(void **state)
{
	struct raw_process a, b;
	uint32_t handle;

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	int ctx = open_with(&a, token), plain = open_with(&a, no_token);
	int wrong = open_with(&b, other_token), none = open_with(&b, no_token);
	uint32_t pd = raw_pd(ctx), mr = raw_mr(ctx, pd, NULL);
	uint32_t plain_pd = raw_pd(plain);
	struct proto_query_mr_resp resp;
	const int strangers[] = {wrong, none, plain};

	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(import_pd(strangers[i], pd, &handle), -ENOENT);
		assert_int_equal(query_mr(strangers[i], mr, &resp), -ENOENT);
	}
	/* Two without a token share nothing either. */
	assert_int_equal(import_pd(none, plain_pd, &handle), -ENOENT);
	raw_expect_count(&server, "pd", 2);
	close(ctx);
	close(plain);
	close(wrong);
	close(none);
	raw_detach(&a);
	raw_detach(&b);
}

static void only_what_it_is(void **state)
{
	struct pair pair;
	uint32_t handle;
	struct proto_query_mr_resp resp;
	const struct proto_handle odd = {.handle = 1, .reserved = 1};

	(void)state;
	pair_open(&pair);
	uint32_t cq = raw_cq(pair.ctx_a, -1), mr = raw_mr(pair.ctx_a, pair.pd, NULL);

	assert_int_equal(import_pd(pair.ctx_b, cq, &handle), -ENOENT);
	assert_int_equal(import_pd(pair.ctx_b, mr, &handle), -ENOENT);
	assert_int_equal(import_pd(pair.ctx_b, 0, &handle), -ENOENT);
	assert_int_equal(import_pd(pair.ctx_b, UINT32_MAX, &handle), -ENOENT);
	assert_int_equal(query_mr(pair.ctx_b, pair.pd, &resp), -ENOENT);
	assert_int_equal(raw_call(pair.ctx_b, PROTO_IMPORT_PD, &odd, sizeof(odd), NULL, 0),
			 -EINVAL);
	/* An original can't be given back, and another process's handle is invalid here. */
	assert_int_equal(unimport_pd(pair.ctx_a, pair.pd), -EINVAL);
	assert_int_equal(unimport_pd(pair.ctx_b, pair.pd), -EINVAL);
	assert_int_equal(try_mr(pair.ctx_b, pair.pd), -EINVAL);
	pair_close(&pair);
}

/* A client from before tokens existed. */
static void cookie_alone(void **state)
{
	struct raw_process p;
	struct ib_uverbs_get_context_resp resp;

	(void)state;
	raw_attach(&server, &p);
	const struct {
		struct ib_uverbs_get_context core;
		uint64_t cookie;
	} body = {.cookie = p.resp.cookie};
	int fd = raw_connect(&server);

	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	raw_pd(fd);
	close(fd);
	raw_detach(&p);
}

/* ------------------------------------------------------------------ lives */

static void domain_is_busy_everywhere(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd), again = imported(pair.ctx_b, pair.pd);
	uint32_t mr = raw_mr(pair.ctx_b, pd, NULL);

	assert_int_not_equal(pd, again);
	assert_int_equal(dealloc_pd(pair.ctx_a, pair.pd), -EBUSY);
	assert_int_equal(dealloc_pd(pair.ctx_b, again), -EBUSY);
	assert_int_equal(unimport_pd(pair.ctx_b, pd), -EBUSY);
	assert_int_equal(unimport_pd(pair.ctx_b, again), 0);
	assert_int_equal(raw_destroy(pair.ctx_b, IB_USER_VERBS_CMD_DEREG_MR, mr), 0);
	assert_int_equal(unimport_pd(pair.ctx_b, pd), 0);
	assert_int_equal(unimport_pd(pair.ctx_b, pd), -EINVAL);
	assert_int_equal(dealloc_pd(pair.ctx_a, pair.pd), 0);
	raw_expect_count(&server, "pd", 0);
	pair_close(&pair);
}

static void dealloc_ends_it_for_all(void **state)
{
	struct pair pair;
	uint32_t handle;

	(void)state;
	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd);

	assert_int_equal(dealloc_pd(pair.ctx_b, pd), 0);
	assert_int_equal(try_mr(pair.ctx_a, pair.pd), -EINVAL);
	assert_int_equal(dealloc_pd(pair.ctx_a, pair.pd), -ENOENT);
	assert_int_equal(import_pd(pair.ctx_b, pair.pd, &handle), -ENOENT);
	assert_int_equal(unimport_pd(pair.ctx_a, pair.pd), 0);
	raw_expect_count(&server, "pd", 0);
	pair_close(&pair);
}

static void owner_ends_first(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd);

	raw_detach(&pair.a);
	raw_expect_count(&server, "clients", 1);
	/* As with a kernel's file that another process still has open. */
	raw_destroy(pair.ctx_b, IB_USER_VERBS_CMD_DEREG_MR, raw_mr(pair.ctx_b, pd, NULL));
	uint32_t again = imported(pair.ctx_b, pair.pd);

	assert_int_equal(unimport_pd(pair.ctx_b, pd), 0);
	assert_int_equal(dealloc_pd(pair.ctx_b, again), 0);
	close(pair.ctx_a);
	close(pair.ctx_b);
	raw_detach(&pair.b);
}

static void importer_ends_first(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd);

	raw_mr(pair.ctx_b, pd, NULL);
	raw_qp(pair.ctx_b, pd, raw_cq(pair.ctx_b, -1), NULL);
	assert_int_equal(dealloc_pd(pair.ctx_a, pair.pd), -EBUSY);
	raw_detach(&pair.b);
	raw_expect_count(&server, "clients", 1);
	assert_int_equal(dealloc_pd(pair.ctx_a, pair.pd), 0);
	raw_expect_count(&server, "pd", 0);
	close(pair.ctx_a);
	close(pair.ctx_b);
	raw_detach(&pair.a);
}

/* Objects of an importing context can be imported as well; no handle is taken for another's. */
static void handles_dont_meet(void **state)
{
	struct pair pair;
	uint32_t theirs[16], mine[16];

	(void)state;
	pair_open(&pair);
	for (int i = 0; i < 16; i++) {
		theirs[i] = raw_pd(pair.ctx_a);
		mine[i] = raw_pd(pair.ctx_b);
	}
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 16; k++)
			assert_int_not_equal(theirs[i], mine[k]);
	uint32_t pd = imported(pair.ctx_a, mine[3]);

	assert_int_equal(try_mr(pair.ctx_a, pd), 0);
	assert_int_equal(dealloc_pd(pair.ctx_b, mine[3]), -EBUSY);
	assert_int_equal(dealloc_pd(pair.ctx_b, mine[4]), 0);
	pair_close(&pair);
}

/* ------------------------------------------------------------------ regions */

static void regions_within_a_process(void **state)
{
	struct pair pair;
	struct ib_uverbs_reg_mr_resp mr;
	struct proto_query_mr_resp resp;

	(void)state;
	pair_open(&pair);
	int again = open_with(&pair.a, token);

	raw_mr(pair.ctx_a, pair.pd, &mr);
	assert_int_equal(query_mr(again, mr.mr_handle, &resp), 0);
	assert_int_equal(resp.lkey, mr.lkey);
	assert_int_equal(resp.rkey, mr.rkey);
	assert_int_equal(resp.addr, 0x10000);
	assert_int_equal(resp.length, 0x2000);
	assert_int_equal(query_mr(pair.ctx_b, mr.mr_handle, &resp), -EOPNOTSUPP);
	assert_int_equal(raw_destroy(again, IB_USER_VERBS_CMD_DEREG_MR, mr.mr_handle), -ENOENT);
	assert_int_equal(raw_destroy(pair.ctx_a, IB_USER_VERBS_CMD_DEREG_MR, mr.mr_handle), 0);
	assert_int_equal(query_mr(again, mr.mr_handle, &resp), -ENOENT);
	close(again);
	pair_close(&pair);
}

static int dereg_mr(int ctx, uint32_t handle)
{
	return raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, handle);
}

/* Keys of the importer's own, that lead to the owner's. */
static void regions_between_processes(void **state)
{
	struct pair pair;
	struct ib_uverbs_reg_mr_resp mr, own;
	struct proto_import_mr_resp first, second;
	struct proto_query_mr_resp query;

	(void)state;
	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd);

	raw_mr(pair.ctx_a, pair.pd, &mr);
	raw_mr(pair.ctx_b, pd, &own);
	assert_int_equal(import_mr(pair.ctx_b, pd, mr.mr_handle, &first), 0);
	assert_int_equal(first.owner_slot, pair.a.resp.slot);
	assert_int_equal(first.owner_rkey, mr.rkey);
	assert_int_equal(first.rkey, first.lkey);
	assert_int_not_equal(first.lkey >> 8, own.lkey >> 8);
	assert_int_equal(import_mr(pair.ctx_b, pd, mr.mr_handle, &second), 0);
	assert_int_not_equal(second.lkey >> 8, first.lkey >> 8);
	raw_expect_count(&server, "mr", 4);
	/* The import pins no memory. */
	raw_expect_count(&server, "pinned_bytes", 4 * 4096);
	/* It isn't a region itself, and can't be imported. */
	assert_int_equal(query_mr(pair.ctx_b, first.handle, &query), -ENOENT);
	assert_int_equal(import_mr(pair.ctx_a, pair.pd, first.handle, &second), -ENOENT);
	const struct ib_uverbs_rereg_mr rereg = {
		.mr_handle = first.handle, .flags = 4, .access_flags = 1};
	struct ib_uverbs_rereg_mr_resp rereg_resp;

	assert_int_equal(raw_call(pair.ctx_b, IB_USER_VERBS_CMD_REREG_MR, &rereg, sizeof(rereg),
				  &rereg_resp, sizeof(rereg_resp)),
			 -EINVAL);
	/* It uses its domain, and not the original. */
	assert_int_equal(dereg_mr(pair.ctx_b, own.mr_handle), 0);
	assert_int_equal(unimport_pd(pair.ctx_b, pd), -EBUSY);
	assert_int_equal(dereg_mr(pair.ctx_a, mr.mr_handle), 0);
	assert_int_equal(import_mr(pair.ctx_b, pd, mr.mr_handle, &second), -ENOENT);
	assert_int_equal(dereg_mr(pair.ctx_b, first.handle), 0);
	pair_close(&pair);
}

static void regions_of_others(void **state)
{
	struct pair pair;
	struct ib_uverbs_reg_mr_resp mr, theirs;
	struct proto_import_mr_resp resp;

	(void)state;
	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd), other_pd = raw_pd(pair.ctx_a);
	int none = open_with(&pair.b, no_token);
	uint32_t fresh = raw_pd(pair.ctx_b), plain = raw_pd(none);

	raw_mr(pair.ctx_a, pair.pd, &mr);
	raw_mr(pair.ctx_a, other_pd, &theirs);
	/* Without the token; into another domain, shared or not; from another domain; from one's
	 * own process; by a handle of another kind. */
	assert_int_equal(import_mr(none, plain, mr.mr_handle, &resp), -ENOENT);
	assert_int_equal(import_mr(pair.ctx_b, fresh, mr.mr_handle, &resp), -EINVAL);
	assert_int_equal(import_mr(pair.ctx_b, pd, theirs.mr_handle, &resp), -EINVAL);
	assert_int_equal(import_mr(pair.ctx_a, pair.pd, mr.mr_handle, &resp), -EINVAL);
	assert_int_equal(import_mr(pair.ctx_b, pd, pair.pd, &resp), -ENOENT);
	assert_int_equal(import_mr(pair.ctx_b, mr.mr_handle, mr.mr_handle, &resp), -EINVAL);
	raw_expect_count(&server, "mr", 2);
	close(none);
	pair_close(&pair);
}

/* ------------------------------------------------------------------ another daemon */

static void go_back(struct raw_process *p)
{
	const struct proto_attach body = {.abi = PROTO_ABI,
					  .flags = PROTO_ATTACH_RETURN,
					  .cookie = p->resp.cookie,
					  .slot = p->resp.slot,
					  .qpn_index = 1,
					  .key_index = 1};

	raw_detach(p);
	raw_attach_as(&server, p, &body);
}

static int pd_return(int ctx, uint32_t command, uint32_t shared, uint32_t handle)
{
	struct {
		uint64_t core; /* struct proto_handle and struct ib_uverbs_alloc_pd: 8 bytes */
		struct proto_return old;
	} body = {.core = shared, .old.handle = handle};
	uint64_t resp;

	return raw_call(ctx, command, &body, sizeof(body),
			command == PROTO_IMPORT_PD ? &resp : NULL, sizeof(resp));
}

static int mr_return(int ctx, uint32_t pd, uint32_t shared, const struct proto_import_mr_resp *was)
{
	const struct {
		struct proto_import_mr core;
		struct proto_return old;
	} body = {{pd, shared}, {was->handle, was->lkey}};
	struct proto_import_mr_resp resp = {0};
	int result = raw_call(ctx, PROTO_IMPORT_MR, &body, sizeof(body), &resp, sizeof(resp));

	if (!result) {
		assert_int_equal(resp.handle, was->handle);
		assert_int_equal(resp.lkey, was->lkey);
		assert_int_equal(resp.rkey, was->rkey);
	}
	return result;
}

static void returned(const struct raw_process *p)
{
	assert_int_equal(raw_call(p->fd, PROTO_RETURNED, NULL, 0, NULL, 0), 0);
}

/* Both return, `first` first: the importer may be faster. */
static void both_return(bool owner_first)
{
	struct pair pair;

	pair_open(&pair);
	uint32_t pd = imported(pair.ctx_b, pair.pd), mr = raw_mr(pair.ctx_a, pair.pd, NULL);
	struct proto_import_mr_resp region;

	assert_int_equal(import_mr(pair.ctx_b, pd, mr, &region), 0);
	raw_daemon_replace(&server);
	close(pair.ctx_a);
	close(pair.ctx_b);
	for (int i = 0; i < 2; i++) {
		if (owner_first == !i) {
			go_back(&pair.a);
			pair.ctx_a = open_with(&pair.a, token);
			assert_int_equal(
				pd_return(pair.ctx_a, IB_USER_VERBS_CMD_ALLOC_PD, 0, pair.pd), 0);
			returned(&pair.a);
		} else {
			go_back(&pair.b);
			pair.ctx_b = open_with(&pair.b, token);
			assert_int_equal(pd_return(pair.ctx_b, PROTO_IMPORT_PD, pair.pd, pd), 0);
			assert_int_equal(mr_return(pair.ctx_b, pd, mr, &region), 0);
			assert_int_equal(mr_return(pair.ctx_b, pd, mr, &region), -EEXIST);
			returned(&pair.b);
		}
	}
	assert_int_equal(try_mr(pair.ctx_b, pd), 0);
	assert_int_equal(dealloc_pd(pair.ctx_a, pair.pd), -EBUSY);
	raw_expect_count(&server, "pd", 2);
	pair_close(&pair);
}

static void owner_returns_first(void **state)
{
	(void)state;
	both_return(true);
}

static void importer_returns_first(void **state)
{
	(void)state;
	both_return(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_token_counts),
		cmocka_unit_test(only_what_it_is),
		cmocka_unit_test(cookie_alone),
		cmocka_unit_test(domain_is_busy_everywhere),
		cmocka_unit_test(dealloc_ends_it_for_all),
		cmocka_unit_test(owner_ends_first),
		cmocka_unit_test(importer_ends_first),
		cmocka_unit_test(handles_dont_meet),
		cmocka_unit_test(regions_within_a_process),
		cmocka_unit_test(regions_between_processes),
		cmocka_unit_test(regions_of_others),
		cmocka_unit_test(owner_returns_first),
		cmocka_unit_test(importer_returns_first),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
