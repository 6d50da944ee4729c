/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions at the daemon: attributes, pinned memory and its limit, changing a region. The
 * addresses are made up, because the daemon doesn't access memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "raw.h"

enum { PAGE = 4096, TRANSLATION = 1, PD = 2, ACCESS = 4 };

static struct raw_process process;
static int ctx;
static uint32_t pd;

static int open_context(void **state)
{
	(void)state;
	raw_attach(&server, &process);
	ctx = raw_context(&server, &process);
	pd = raw_pd(ctx);
	return 0;
}

static int close_context(void **state)
{
	(void)state;
	close(ctx);
	raw_detach(&process);
	raw_expect_count(&server, "clients", 0);
	return 0;
}

static int reg_mr_as(uint64_t start, uint64_t length, uint64_t iova, uint32_t access,
		     struct ib_uverbs_reg_mr_resp *resp)
{
	struct ib_uverbs_reg_mr body = {
		.start = start, .length = length, .hca_va = iova, .access_flags = access};

	body.pd_handle = pd;
	return raw_call(ctx, IB_USER_VERBS_CMD_REG_MR, &body, sizeof(body), resp, sizeof(*resp));
}

static int reg_mr(uint64_t start, uint64_t length, uint64_t iova, uint32_t access)
{
	struct ib_uverbs_reg_mr_resp resp;

	return reg_mr_as(start, length, iova, access, &resp);
}

static void mr_attributes(void **state)
{
	(void)state;
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 0), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 4096);
	assert_int_equal(reg_mr(0x1fff, 2, 0x1fff, 1), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 3 * 4096);
	assert_int_equal(reg_mr(0x1000, 0, 0x1000, 0), -EINVAL);
	assert_int_equal(reg_mr(0x1000, LIMIT_MR_BYTES + 1, 0x1000, 0), -EINVAL);
	assert_int_equal(reg_mr(UINT64_MAX - 10, 100, 0x1ff5, 0), -EINVAL);
	assert_int_equal(reg_mr(UINT64_MAX - 10, 10, UINT64_MAX - 10, 0), -EINVAL);
	assert_int_equal(reg_mr(0x1000, 0x2000, UINT64_MAX & ~0xfffull, 0), -EINVAL);
	assert_int_equal(reg_mr(0x1000, UINT64_MAX, 0x1000, 0), -EINVAL);
	/* Another name, at the same place of a page or not. */
	assert_int_equal(reg_mr(0x1234, 100, 0x7234, 0), 0);
	assert_int_equal(reg_mr(0x1234, 100, 0x7235, 0), -EINVAL);
	assert_int_equal(reg_mr(0x1234, 100, 0, 0x20), 0);
	/* Access: remote write and atomics need local write; optional bits are ignored. */
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 2), -EINVAL);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 8), -EINVAL);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 4), 0);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 0xf), 0);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 0x40), 0);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 0x100), 0);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 0x200), -EINVAL);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 1u << 19), -EINVAL);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 1u << 20), 0);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 1u << 29), 0);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 1u << 30), -EINVAL);
	assert_int_equal(reg_mr(0x1000, 1, 0x1000, 1u << 31), -EINVAL);
}

/* ------------------------------------------------------------------ the limit */

/* CAP_IPC_LOCK, which lifts the limit, away from or back to what this process may have. */
static void lock_capability(bool wanted)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	const uint32_t bit = 1u << CAP_IPC_LOCK;

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	if (wanted)
		data[0].effective |= bit & data[0].permitted;
	else
		data[0].effective &= ~bit;
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static struct rlimit set_limit(rlim_t bytes)
{
	struct rlimit old, limit;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	limit = old;
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	return old;
}

static void the_limit_counts_whole_pages(void **state)
{
	const struct rlimit old = set_limit(10 * PAGE + 100);

	(void)state;
	lock_capability(false);
	assert_int_equal(reg_mr(0x10000, 9 * PAGE, 0x10000, 1), 0);
	assert_int_equal(reg_mr(0x10fff, 2, 0x10fff, 1), -ENOMEM);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 9 * PAGE);
	/* The same page again counts again; then nothing is left. */
	assert_int_equal(reg_mr(0x10000, 1, 0x10000, 1), 0);
	assert_int_equal(reg_mr(0x10000, 1, 0x10000, 1), -ENOMEM);
	/* The limit is evaluated each time. */
	set_limit(11 * PAGE);
	assert_int_equal(reg_mr(0x10000, 1, 0x10000, 1), 0);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
	lock_capability(true);
}

static void what_is_given_back_is_free_again(void **state)
{
	const struct rlimit old = set_limit(10 * PAGE);
	struct ib_uverbs_reg_mr_resp resp;

	(void)state;
	lock_capability(false);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(reg_mr_as(0x10000, 10 * PAGE, 0x10000, 1, &resp), 0);
		assert_int_equal(reg_mr(0x10000, 1, 0x10000, 1), -ENOMEM);
		assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, resp.mr_handle), 0);
	}
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
	lock_capability(true);
}

static void the_capability_lifts_the_limit(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	const struct rlimit old = set_limit(PAGE);

	lock_capability(true);
	assert_int_equal(reg_mr(0x10000, 100 * PAGE, 0x10000, 1), 0);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
}

static void a_program_may_ask_for_no_limit(void **state)
{
	const struct rlimit old = set_limit(PAGE);
	struct proto_attach body = {.abi = PROTO_ABI, .flags = PROTO_ATTACH_NO_MEMLOCK};

	(void)state;
	lock_capability(false);
	assert_int_equal(reg_mr(0x10000, 2 * PAGE, 0x10000, 1), -ENOMEM);
	close(ctx);
	raw_detach(&process);
	raw_attach_as(&server, &process, &body);
	ctx = raw_context(&server, &process);
	pd = raw_pd(ctx);
	assert_int_equal(reg_mr(0x10000, 100 * PAGE, 0x10000, 1), 0);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
	lock_capability(true);
}

static void the_figures_are_shown(void **state)
{
	(void)state;
	assert_int_equal(reg_mr(0x10000, 3 * PAGE, 0x10000, 1), 0);
	json_t *reply = raw_ctl(&server, "{\"op\": \"resources\"}");
	const json_t *mine = json_array_get(json_object_get(reply, "process"), 0);
	const json_t *user = json_array_get(json_object_get(reply, "user"), 0);

	assert_int_equal(json_integer_value(json_object_get(mine, "pid")), getpid());
	assert_int_equal(json_integer_value(json_object_get(mine, "pinned_bytes")), 3 * PAGE);
	assert_int_equal(json_integer_value(json_object_get(user, "uid")), geteuid());
	assert_int_equal(json_integer_value(json_object_get(user, "pinned_bytes")), 3 * PAGE);
	assert_int_equal(json_integer_value(json_object_get(user, "processes")), 1);
	json_decref(reply);
}

/* ------------------------------------------------------------------ changing a region */

static struct ib_uverbs_rereg_mr change;

static int rereg(uint32_t flags)
{
	struct ib_uverbs_rereg_mr_resp resp;

	change.flags = flags;
	return raw_call(ctx, IB_USER_VERBS_CMD_REREG_MR, &change, sizeof(change), &resp,
			sizeof(resp));
}

static void a_region_can_be_changed(void **state)
{
	struct ib_uverbs_reg_mr_resp resp;
	uint32_t other_pd = raw_pd(ctx);

	(void)state;
	assert_int_equal(reg_mr_as(0x10000, PAGE, 0x10000, 1, &resp), 0);
	change = (struct ib_uverbs_rereg_mr){.mr_handle = resp.mr_handle,
					     .start = 0x20000,
					     .length = 3 * PAGE,
					     .hca_va = 0x20000,
					     .pd_handle = other_pd,
					     .access_flags = 3};
	assert_int_equal(rereg(TRANSLATION), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 3 * PAGE);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), -EBUSY);
	assert_int_equal(rereg(PD | ACCESS), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, other_pd), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, resp.mr_handle), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	assert_int_equal(rereg(PD), -ENOENT);
}

/* On-demand regions pin nothing; the implicit one has no other address than 0, and no huge pages.
 */
static void on_demand_is_not_pinned(void **state)
{
	struct ib_uverbs_reg_mr_resp resp;

	(void)state;
	assert_int_equal(reg_mr(0x1000, 5 * PAGE, 0x1000, 0x41), 0);
	assert_int_equal(reg_mr(0, UINT64_MAX, 0, 0x4f), 0);
	assert_int_equal(reg_mr(0, UINT64_MAX, 0, 0xf), -EINVAL);
	assert_int_equal(reg_mr(0, UINT64_MAX, 0x1000, 0x41), -EINVAL);
	assert_int_equal(reg_mr(0, UINT64_MAX, 0, 0xc1), -EINVAL);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	assert_int_equal(reg_mr_as(0x1000, PAGE, 0x1000, 1, &resp), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), PAGE);
	/* A change of access pins the pages, or releases them. */
	change = (struct ib_uverbs_rereg_mr){.mr_handle = resp.mr_handle, .access_flags = 0x41};
	assert_int_equal(rereg(ACCESS), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	change.access_flags = 1;
	assert_int_equal(rereg(ACCESS), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), PAGE);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, resp.mr_handle), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
}

static void a_wrong_change_changes_nothing(void **state)
{
	struct ib_uverbs_reg_mr_resp resp;

	(void)state;
	assert_int_equal(reg_mr_as(0x10000, PAGE, 0x10000, 1, &resp), 0);
	change = (struct ib_uverbs_rereg_mr){.mr_handle = resp.mr_handle, .pd_handle = 0x77777};
	assert_int_equal(rereg(0), -EINVAL);
	assert_int_equal(rereg(8), -EINVAL);
	assert_int_equal(rereg(TRANSLATION), -EINVAL); /* length 0 */
	assert_int_equal(rereg(PD), -EINVAL);
	change.pd_handle = pd;
	change.access_flags = 2; /* remote write without local write */
	assert_int_equal(rereg(PD | ACCESS), -EINVAL);
	change.access_flags = 0x400;
	assert_int_equal(rereg(ACCESS), -EINVAL);
	assert_int_equal(raw_count(&server, "pinned_bytes"), PAGE);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, resp.mr_handle), 0);
}

static void null_regions_have_keys_only(void **state)
{
	struct proto_handle body = {.handle = pd};
	struct ib_uverbs_reg_mr_resp resp;

	(void)state;
	assert_int_equal(
		raw_call(ctx, PROTO_ALLOC_NULL_MR, &body, sizeof(body), &resp, sizeof(resp)), 0);
	assert_int_equal(resp.rkey, resp.lkey);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	change = (struct ib_uverbs_rereg_mr){.mr_handle = resp.mr_handle, .access_flags = 1};
	assert_int_equal(rereg(ACCESS), -EINVAL);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), -EINPROGRESS);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, resp.mr_handle), 0);
	body.handle = 0x77777;
	assert_int_equal(
		raw_call(ctx, PROTO_ALLOC_NULL_MR, &body, sizeof(body), &resp, sizeof(resp)),
		-EINVAL);
	body = (struct proto_handle){.handle = pd, .reserved = 1};
	assert_int_equal(
		raw_call(ctx, PROTO_ALLOC_NULL_MR, &body, sizeof(body), &resp, sizeof(resp)),
		-EINVAL);
}

/* A memory file of `size` bytes with these seals. */
static int dm_file(size_t size, int seals)
{
	int fd = memfd_create("dm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int alloc_dm(uint64_t length, int fd, uint32_t *handle)
{
	struct proto_alloc_dm body = {.length = length};
	struct proto_alloc_dm_resp resp = {0};
	int err = raw_call_fds(ctx, PROTO_ALLOC_DM, &body, sizeof(body), &fd, fd < 0 ? 0 : 1, &resp,
			       sizeof(resp));

	*handle = resp.handle;
	if (fd >= 0)
		close(fd);
	return err;
}

static int reg_dm(uint32_t dm, uint64_t offset, uint64_t length, uint32_t access,
		  struct ib_uverbs_reg_mr_resp *resp)
{
	struct proto_reg_dm_mr body = {
		.offset = offset, .length = length, .pd = pd, .dm = dm, .access = access};

	return raw_call(ctx, PROTO_REG_DM_MR, &body, sizeof(body), resp, sizeof(*resp));
}

static void device_memory_has_owners(void **state)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct ib_uverbs_reg_mr_resp region;
	uint32_t first, second;

	(void)state;
	assert_int_equal(alloc_dm(100, -1, &first), -EINVAL);
	assert_int_equal(alloc_dm(100, dm_file(PAGE, F_SEAL_GROW | F_SEAL_SEAL), &first), -EINVAL);
	assert_int_equal(alloc_dm(100, dm_file(2 * PAGE, seals), &first), -EINVAL);
	assert_int_equal(alloc_dm(0, dm_file(PAGE, seals), &first), -EINVAL);
	assert_int_equal(alloc_dm(LIMIT_DM_BYTES + 1, dm_file(PAGE, seals), &first), -EINVAL);
	assert_int_equal(alloc_dm(100, dm_file(PAGE, seals), &first), 0);
	assert_int_equal(alloc_dm(LIMIT_DM_BYTES, dm_file(LIMIT_DM_BYTES, seals), &second),
			 -ENOMEM);
	assert_int_equal(reg_dm(first, 96, 8, 0x2f, &region), -EINVAL);
	assert_int_equal(reg_dm(first, UINT64_MAX, 8, 0x2f, &region), -EINVAL);
	assert_int_equal(reg_dm(first, 0, 8, 0xf, &region), -EINVAL);
	assert_int_equal(reg_dm(first, 0, 8, 0x22, &region), -EINVAL);
	assert_int_equal(reg_dm(first, 0, 8, 0x61, &region), -EINVAL);
	assert_int_equal(reg_dm(pd, 0, 8, 0x2f, &region), -ENOENT);
	assert_int_equal(reg_dm(first, 0, 8, 0x2f, &region), 0);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_FREE_DM, first), -EBUSY);
	change = (struct ib_uverbs_rereg_mr){.mr_handle = region.mr_handle, .access_flags = 1};
	assert_int_equal(rereg(ACCESS), -EINVAL);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, region.mr_handle), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_FREE_DM, first), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_FREE_DM, first), -ENOENT);
}

static int alloc_mw(uint32_t domain, uint8_t type, struct ib_uverbs_alloc_mw_resp *resp)
{
	struct ib_uverbs_alloc_mw body = {.pd_handle = domain, .mw_type = type};

	return raw_call(ctx, IB_USER_VERBS_CMD_ALLOC_MW, &body, sizeof(body), resp, sizeof(*resp));
}

static size_t windows_shown(void)
{
	json_t *reply = raw_ctl(&server, "{\"op\":\"resources\"}\n");
	size_t count = json_array_size(json_object_get(reply, "mw"));

	json_decref(reply);
	return count;
}

static void windows_have_keys_and_owners(void **state)
{
	struct ib_uverbs_alloc_mw_resp first, second;
	struct ib_uverbs_reg_mr_resp region;

	(void)state;
	assert_int_equal(alloc_mw(pd, 0, &first), -EINVAL);
	assert_int_equal(alloc_mw(pd, 3, &first), -EINVAL);
	assert_int_equal(alloc_mw(0x77777, 1, &first), -EINVAL);
	assert_int_equal(alloc_mw(pd, 1, &first), 0);
	assert_int_equal(alloc_mw(pd, 2, &second), 0);
	assert_int_equal(reg_mr_as(0x10000, PAGE, 0x10000, 1, &region), 0);
	/* One index names one object, a window or a region. */
	assert_int_not_equal(first.rkey >> 8, second.rkey >> 8);
	assert_int_not_equal(region.rkey >> 8, first.rkey >> 8);
	assert_int_not_equal(region.rkey >> 8, second.rkey >> 8);
	assert_int_equal(raw_count(&server, "pinned_bytes"), PAGE);
	assert_int_equal(windows_shown(), 2);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, first.mw_handle), -ENOENT);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, region.mr_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_MW, first.mw_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_MW, first.mw_handle), -ENOENT);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_MW, second.mw_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, pd), 0);
	assert_int_equal(windows_shown(), 0);
}

static void windows_end_with_their_process(void **state)
{
	struct ib_uverbs_alloc_mw_resp resp;

	(void)state;
	assert_int_equal(alloc_mw(pd, 2, &resp), 0);
	assert_int_equal(windows_shown(), 1);
	close(ctx);
	raw_detach(&process);
	raw_expect_count(&server, "clients", 0);
	assert_int_equal(windows_shown(), 0);
	open_context(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
	const struct CMUnitTest tests[] = {
		TEST(mr_attributes),
		TEST(the_limit_counts_whole_pages),
		TEST(what_is_given_back_is_free_again),
		TEST(the_capability_lifts_the_limit),
		TEST(a_program_may_ask_for_no_limit),
		TEST(the_figures_are_shown),
		TEST(a_region_can_be_changed),
		TEST(a_wrong_change_changes_nothing),
		TEST(on_demand_is_not_pinned),
		TEST(null_regions_have_keys_only),
		TEST(device_memory_has_owners),
		TEST(windows_have_keys_and_owners),
		TEST(windows_end_with_their_process),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
