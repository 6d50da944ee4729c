/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended polling: batches, fields, timestamps, and calls to the same CQ inside a batch. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "fakes.h"
#include "hca/verbs/cq.h"

static struct ibv_poll_cq_attr no_attr;

static struct ibv_cq_ex *open_ex(struct ibv_context *context, uint64_t wc_flags, uint32_t flags)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 8,
					   .wc_flags = wc_flags,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = flags};
	struct ibv_cq *cq = cq_create(context, &attr);

	assert_non_null(cq);
	return &cq_of(cq)->ex;
}

static struct cq *cq_of_ex(struct ibv_cq_ex *ex)
{
	return cq_of(ibv_cq_ex_to_cq(ex));
}

static void close_ex(struct ibv_cq_ex *ex, struct ibv_context *context)
{
	assert_int_equal(cq_destroy(ibv_cq_ex_to_cq(ex)), 0);
	fake_close(context);
}

static void a_batch(uint32_t flags)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_ex *ex = open_ex(context, IBV_WC_STANDARD_FLAGS, flags);
	struct ibv_wc wc;

	assert_int_equal(ibv_start_poll(ex, &no_attr), ENOENT);
	assert_int_equal(fakes.polls, 1);
	assert_int_equal(ibv_start_poll(ex, &no_attr), ENOENT); /* no lock was left behind */
	for (int i = 1; i <= 5; i++)
		fake_push(cq_of_ex(ex), i);
	assert_int_equal(ibv_start_poll(ex, &no_attr), 0);
	assert_int_equal(ex->wr_id, 1);
	assert_int_equal(ibv_next_poll(ex), 0);
	assert_int_equal(ex->wr_id, 2);
	ibv_end_poll(ex);
	assert_int_equal(cq_poll(ibv_cq_ex_to_cq(ex), 1, &wc), 1); /* goes on where we stopped */
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(ibv_start_poll(ex, &no_attr), 0);
	assert_int_equal(ex->wr_id, 4);
	assert_int_equal(ibv_next_poll(ex), 0);
	assert_int_equal(ibv_next_poll(ex), ENOENT);
	assert_int_equal(ex->wr_id, 5);
	ibv_end_poll(ex);
	assert_int_equal(cq_poll(ibv_cq_ex_to_cq(ex), 1, &wc), 0);
	close_ex(ex, context);
}

static void batches(void **state)
{
	(void)state;
	a_batch(0);
	a_batch(IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
}

static void unknown_attributes_are_refused(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_ex *ex = open_ex(context, 0, 0);
	struct ibv_poll_cq_attr attr = {.comp_mask = 1};

	(void)state;
	fake_push(cq_of_ex(ex), 1);
	assert_int_equal(ibv_start_poll(ex, &attr), EINVAL);
	assert_int_equal(ibv_start_poll(ex, &no_attr), 0);
	ibv_end_poll(ex);
	close_ex(ex, context);
}

static void fields_can_be_read(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_ex *ex = open_ex(context, IBV_WC_STANDARD_FLAGS, 0);
	struct cqe cqe = {.wr_id = 1,
			  .status = IBV_WC_LOC_PROT_ERR,
			  .opcode = IBV_WC_RDMA_READ,
			  .byte_len = 3,
			  .imm = 4,
			  .qp_num = 5,
			  .src_qp = 6,
			  .wc_flags = IBV_WC_GRH,
			  .sl = 10,
			  .vendor_err = 8};

	(void)state;
	cq_push(cq_of_ex(ex), &cqe, false);
	assert_int_equal(ibv_start_poll(ex, &no_attr), 0);
	assert_int_equal(ex->status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RDMA_READ);
	assert_int_equal(ibv_wc_read_byte_len(ex), 3);
	assert_int_equal(ibv_wc_read_imm_data(ex), 4);
	assert_int_equal(ibv_wc_read_qp_num(ex), 5);
	assert_int_equal(ibv_wc_read_src_qp(ex), 6);
	assert_int_equal(ibv_wc_read_wc_flags(ex), IBV_WC_GRH);
	assert_int_equal(ibv_wc_read_vendor_err(ex), 8);
	assert_int_equal(ibv_wc_read_slid(ex), 0);
	assert_int_equal(ibv_wc_read_sl(ex), 10);
	assert_int_equal(ibv_wc_read_dlid_path_bits(ex), 0);
	ibv_end_poll(ex);
	close_ex(ex, context);
}

static void timestamps_follow_the_clocks(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_ex *ex = open_ex(context, CQ_WC_TIMESTAMPS, 0);
	struct timespec wall;

	(void)state;
	fakes.now = 5000;
	fake_push(cq_of_ex(ex), 1);
	fakes.now = 1000005000;
	assert_int_equal(ibv_start_poll(ex, &no_attr), 0);
	assert_int_equal(ibv_wc_read_completion_ts(ex), 5000);
	uint64_t then = ibv_wc_read_completion_wallclock_ns(ex);

	clock_gettime(CLOCK_REALTIME, &wall);
	uint64_t age = (uint64_t)wall.tv_sec * 1000000000ull + wall.tv_nsec - then;

	assert_in_range(age, 1000000000, 2000000000);
	ibv_end_poll(ex);
	close_ex(ex, context);
}

/* What a program does with a completion may complete something else, or end a QP. */
static void the_cq_works_inside_a_batch(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_ex *ex = open_ex(context, IBV_WC_STANDARD_FLAGS, 0);
	struct cq *cq = cq_of_ex(ex);

	(void)state;
	fake_push(cq, 11);
	fake_push(cq, 21);
	assert_int_equal(ibv_start_poll(ex, &no_attr), 0);
	fake_push(cq, 12);
	cq_forget_qp(cq, 1);
	assert_int_equal(cq_req_notify(&cq->ibv, 0), 0);
	assert_int_equal(cq_resize(&cq->ibv, 3), 0);
	assert_int_equal(ex->wr_id, 11);
	assert_int_equal(ibv_wc_read_qp_num(ex), 1);
	assert_int_equal(ibv_next_poll(ex), 0);
	assert_int_equal(ex->wr_id, 12);
	ibv_end_poll(ex);
	close_ex(ex, context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches),
		cmocka_unit_test(unknown_attributes_are_refused),
		cmocka_unit_test(fields_can_be_read),
		cmocka_unit_test(timestamps_follow_the_clocks),
		cmocka_unit_test(the_cq_works_inside_a_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
