/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: order, overrun, arming, resizing, forgetting, ending. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakes.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"

static struct cq *engine_cq;

static void push_on_poll(void)
{
	fakes.on_poll = NULL;
	fake_push(engine_cq, 77);
}

static void end(struct cq *cq)
{
	assert_int_equal(cq_destroy(&cq->ibv), 0);
}

static void completions_come_out_in_order(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 5, NULL);
	struct ibv_wc wc[8];
	uint64_t in = 0, out = 0;

	(void)state;
	assert_int_equal(cq->ibv.cqe, 7);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 5; i++)
			assert_true(fake_push(cq, in++));
		assert_int_equal(cq_poll(&cq->ibv, 2, wc), 2);
		assert_int_equal(wc[0].wr_id, out++);
		assert_int_equal(wc[1].wr_id, out++);
		assert_int_equal(cq_poll(&cq->ibv, 8, wc), 3);
		for (int i = 0; i < 3; i++)
			assert_int_equal(wc[i].wr_id, out++);
	}
	assert_int_equal(fakes.polls, 0);
	assert_int_equal(cq_poll(&cq->ibv, 0, wc), 0);
	assert_int_equal(cq_poll(&cq->ibv, -1, wc), 0);
	assert_int_equal(fakes.polls, 0);
	assert_int_equal(cq_poll(&cq->ibv, 8, wc), 0);
	assert_int_equal(fakes.polls, 1); /* an empty poll drives the engine */
	end(cq);
	fake_close(context);
}

static void fields_arrive(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 1, NULL);
	struct cqe cqe = {.wr_id = 1,
			  .status = IBV_WC_REM_ACCESS_ERR,
			  .opcode = IBV_WC_RECV,
			  .byte_len = 3,
			  .imm = 4,
			  .qp_num = 5,
			  .src_qp = 6,
			  .wc_flags = IBV_WC_WITH_IMM,
			  .vendor_err = 8};
	struct ibv_wc wc;

	(void)state;
	cq_push(cq, &cqe, false);
	assert_int_equal(cq_poll(&cq->ibv, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 3);
	assert_int_equal(wc.imm_data, 4);
	assert_int_equal(wc.qp_num, 5);
	assert_int_equal(wc.src_qp, 6);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(wc.vendor_err, 8);
	end(cq);
	fake_close(context);
}

static void empty_poll_takes_what_the_engine_brought(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_wc wc;

	(void)state;
	engine_cq = fake_cq(context, 2, NULL);
	fakes.on_poll = push_on_poll;
	assert_int_equal(cq_poll(&engine_cq->ibv, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 77);
	end(engine_cq);
	fake_close(context);
}

static void overrun_is_for_good(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 3, NULL);
	struct ibv_async_event event;
	struct ibv_wc wc[4];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_true(fake_push(cq, i));
	assert_false(fd_readable(context_of(context)->async.fd));
	assert_false(fake_push(cq, 3));
	assert_false(fake_push(cq, 4));
	assert_int_equal(async_get_event(context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, &cq->ibv);
	assert_false(fd_readable(context_of(context)->async.fd)); /* raised once */
	assert_int_equal(cq_poll(&cq->ibv, 4, wc), 3);
	assert_int_equal(wc[2].wr_id, 2);
	assert_false(fake_push(cq, 5));
	async_ack_event(&event);
	end(cq);
	fake_close(context);
}

static void ignored_overrun_drops_the_oldest(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_init_attr_ex attr = {.cqe = 3,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct cq *cq = cq_of(cq_create(context, &attr));
	struct ibv_wc wc[4];

	(void)state;
	for (int i = 0; i < 5; i++)
		assert_true(fake_push(cq, i));
	assert_int_equal(cq_poll(&cq->ibv, 4, wc), 3);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[2].wr_id, 4);
	end(cq);
	fake_close(context);
}

/* ------------------------------------------------------------------ arming */

static void take_event(struct ibv_comp_channel *channel, struct cq *cq)
{
	struct ibv_cq *got;
	void *cq_context;

	assert_true(fd_readable(channel->fd));
	assert_int_equal(channel_get_event(channel, &got, &cq_context), 0);
	assert_ptr_equal(got, &cq->ibv);
	cq_ack_events(got, 1);
}

static void one_event_for_one_arming(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_comp_channel *channel = channel_create(context);
	struct cq *cq = fake_cq(context, 16, channel);
	struct pub_header *header = &context_of(context)->hca->pub->header;
	_Atomic uint32_t *armed = &header->armed_cqs, *group = &header->armed[cq->arm_group];

	(void)state;
	fake_push(cq, 1);
	assert_false(fd_readable(channel->fd));
	assert_int_equal(cq_req_notify(&cq->ibv, 0), 0);
	assert_int_equal(fakes.releases, 1);
	assert_int_equal(*armed, 1);
	assert_int_equal(*group, 1);
	assert_false(fd_readable(channel->fd)); /* only what comes after the arming counts */
	assert_int_equal(cq_req_notify(&cq->ibv, 0), 0);
	assert_int_equal(*armed, 1);
	fake_push(cq, 2);
	fake_push(cq, 3);
	assert_int_equal(*armed, 0);
	assert_int_equal(*group, 0);
	take_event(channel, cq);
	assert_false(fd_readable(channel->fd));
	end(cq);
	assert_int_equal(channel_destroy(channel), 0);
	fake_close(context);
}

static void solicited_arming(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_comp_channel *channel = channel_create(context);
	struct cq *cq = fake_cq(context, 16, channel);
	struct cqe good = {.wr_id = 1}, bad = {.status = IBV_WC_WR_FLUSH_ERR};
	_Atomic uint32_t *group = &context_of(context)->hca->pub->header.armed[cq->arm_group];

	(void)state;
	cq_req_notify(&cq->ibv, 1);
	assert_int_equal(*group, PUB_ARMED_SOLICITED);
	cq_push(cq, &good, false);
	assert_false(fd_readable(channel->fd));
	cq_push(cq, &good, true);
	take_event(channel, cq);
	cq_req_notify(&cq->ibv, 1);
	cq_push(cq, &bad, false); /* errors always count */
	take_event(channel, cq);
	cq_req_notify(&cq->ibv, 1);
	cq_req_notify(&cq->ibv, 0); /* now any counts */
	assert_int_equal(*group, PUB_ARMED_ANY);
	cq_push(cq, &good, false);
	take_event(channel, cq);
	cq_req_notify(&cq->ibv, 0);
	cq_req_notify(&cq->ibv, 1); /* still any */
	cq_push(cq, &good, false);
	take_event(channel, cq);
	end(cq);
	assert_int_equal(channel_destroy(channel), 0);
	fake_close(context);
}

/* The engine takes no lease for a poll of a CQ that is armed for any event. */
static void engine_knows_polls_of_an_armed_cq(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_comp_channel *channel = channel_create(context);
	struct cq *cq = fake_cq(context, 16, channel);
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(cq_poll(&cq->ibv, 1, &wc), 0);
	assert_int_equal(fakes.armed_polls, 0);
	assert_int_equal(cq_req_notify(&cq->ibv, 1), 0);
	assert_int_equal(cq_poll(&cq->ibv, 1, &wc), 0);
	assert_int_equal(fakes.armed_polls, 0);
	assert_int_equal(cq_req_notify(&cq->ibv, 0), 0);
	assert_int_equal(cq_poll(&cq->ibv, 1, &wc), 0);
	assert_int_equal(fakes.armed_polls, 1);
	end(cq);
	assert_int_equal(channel_destroy(channel), 0);
	fake_close(context);
}

static void arming_without_channel_owes_nothing(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 1, NULL);

	(void)state;
	assert_int_equal(cq_req_notify(&cq->ibv, 0), 0);
	assert_int_equal(atomic_load(&context_of(context)->hca->pub->header.armed_cqs), 0);
	end(cq);
	fake_close(context);
}

/* ------------------------------------------------------------------ forgetting, resizing */

static void forget_closes_the_gaps(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 8, NULL);
	struct ibv_wc wc[8];

	(void)state;
	for (int i = 0; i < 5; i++) /* so that the content wraps */
		fake_push(cq, 0);
	assert_int_equal(cq_poll(&cq->ibv, 8, wc), 5);
	static const uint64_t ids[] = {11, 12, 21, 31, 22, 32, 41, 51};

	for (int i = 0; i < 8; i++)
		fake_push(cq, ids[i]); /* the QP's number is the last digit */
	cq_forget_qp(cq, 1);
	assert_true(fake_push(cq, 62));
	assert_int_equal(cq_poll(&cq->ibv, 8, wc), 4);
	assert_int_equal(wc[0].wr_id, 12);
	assert_int_equal(wc[1].wr_id, 22);
	assert_int_equal(wc[2].wr_id, 32);
	assert_int_equal(wc[3].wr_id, 62);
	end(cq);
	fake_close(context);
}

/* 2^n - 1, as with mlx5 and rxe; so a CQ that a program asks for has always as many as it asked
 * for. */
static void sizes_are_rounded_up(void **state)
{
	static const uint32_t sizes[][2] = {
		{1, 1},	    {2, 3},	{3, 3},
		{4, 7},	    {8, 15},	{16, 31},
		{255, 255}, {256, 511}, {LIMIT_CQE, LIMIT_CQE},
	};
	struct ibv_context *context = fake_open();

	(void)state;
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct cq *cq = fake_cq(context, sizes[i][0], NULL);

		assert_int_equal(cq->ibv.cqe, sizes[i][1]);
		for (uint32_t n = 0; n < sizes[i][1] && n < 600; n++)
			assert_true(fake_push(cq, n));
		if (sizes[i][1] < 600)
			assert_false(fake_push(cq, 0));
		end(cq);
	}
	fake_close(context);
}

/* Each completion that is polled frees places: of a request, those up to its own; of a receive,
 * one. What is forgotten with its QP frees its receives as well. */
static void polling_frees_places(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 64, NULL);
	struct places sends = {65533}, receives = {UINT32_MAX};
	struct cqe send = {.wr_id = 1, .qp_num = 1, .places = &sends};
	struct cqe receive = {.opcode = IBV_WC_RECV, .qp_num = 2, .places = &receives};
	struct ibv_wc wc[8];

	(void)state;
	for (uint32_t end = 65534; end < 65534 + 9; end += 4) { /* three are not signalled */
		send.places_end = (uint16_t)end;
		assert_true(cq_push(cq, &send, false));
		assert_true(cq_push(cq, &receive, false));
	}
	assert_int_equal(places_freed(&sends), 65533);
	assert_int_equal(cq_count_for(cq, &sends), 3);
	assert_int_equal(cq_poll(&cq->ibv, 3, wc), 3);
	assert_int_equal(places_taken_by_sends(&sends, 65542), 4);
	assert_int_equal(places_freed(&receives), 0);
	assert_int_equal(cq_count_for(cq, &sends), 1);
	assert_int_equal(cq_count_for(cq, &receives), 2);
	cq_forget_qp(cq, 2);
	assert_int_equal(places_freed(&receives), 2);
	cq_forget_places(cq, &sends);
	assert_int_equal(cq_poll(&cq->ibv, 8, wc), 1);
	assert_int_equal(places_taken_by_sends(&sends, 65542), 4);
	end(cq);
	fake_close(context);
}

static void resize_keeps_the_content(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, 3, NULL);
	struct ibv_wc wc[16];

	(void)state;
	for (int i = 0; i < 2; i++)
		fake_push(cq, 0);
	assert_int_equal(cq_poll(&cq->ibv, 3, wc), 2);
	for (int i = 0; i < 3; i++)
		fake_push(cq, i);
	assert_int_equal(cq_resize(&cq->ibv, 9), 0);
	assert_int_equal(fakes.resized_to, 15);
	assert_int_equal(cq->ibv.cqe, 15);
	for (int i = 3; i < 9; i++)
		assert_true(fake_push(cq, i));
	assert_int_equal(cq_resize(&cq->ibv, 7), EINVAL);
	assert_int_equal(cq_resize(&cq->ibv, 8), 0); /* 15 again */
	assert_int_equal(cq_poll(&cq->ibv, 6, wc), 6);
	assert_int_equal(cq_resize(&cq->ibv, 3), 0);
	assert_int_equal(cq_poll(&cq->ibv, 16, wc), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(wc[i].wr_id, 6 + i);
	assert_int_equal(cq_resize(&cq->ibv, 0), EINVAL);
	assert_int_equal(cq_resize(&cq->ibv, -1), EINVAL);
	assert_int_equal(cq_resize(&cq->ibv, LIMIT_CQE + 1), EINVAL);
	fakes.daemon_result = -ENOMEM;
	assert_int_equal(cq_resize(&cq->ibv, 5), ENOMEM);
	assert_int_equal(cq->ibv.cqe, 3);
	fakes.daemon_result = 0;
	end(cq);
	fake_close(context);
}

/* ------------------------------------------------------------------ making and ending */

static int create_errno(struct ibv_context *context, struct ibv_cq_init_attr_ex attr)
{
	errno = 0;
	assert_null(cq_create(context, &attr));
	return errno;
}

static void bad_attributes_are_refused(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_cq_init_attr_ex good = {.cqe = 10}, attr;

	(void)state;
	attr = good, attr.cqe = 0;
	assert_int_equal(create_errno(context, attr), EINVAL);
	attr = good, attr.cqe = LIMIT_CQE + 1;
	assert_int_equal(create_errno(context, attr), EINVAL);
	attr = good, attr.comp_vector = 4;
	assert_int_equal(create_errno(context, attr), EINVAL);
	attr = good, attr.wc_flags = 1 << 20; /* there is none such */
	assert_int_equal(create_errno(context, attr), EOPNOTSUPP);
	attr = good, attr.comp_mask = 1u << 20;
	assert_int_equal(create_errno(context, attr), EINVAL);
	attr = good, attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, attr.flags = 1u << 20;
	assert_int_equal(create_errno(context, attr), EOPNOTSUPP);
	fakes.daemon_result = -ENOMEM;
	assert_int_equal(create_errno(context, good), ENOMEM);
	fakes.daemon_result = 0;
	fake_close(context);
}

static void busy_things_stay(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_comp_channel *channel = channel_create(context);
	struct cq *cq = fake_cq(context, 2, channel);

	(void)state;
	assert_int_equal(channel_destroy(channel), EBUSY);
	atomic_store(&cq->users, 1);
	assert_int_equal(cq_destroy(&cq->ibv), EBUSY);
	assert_int_equal(fakes.daemon_cqs, 1);
	atomic_store(&cq->users, 0);
	cq_req_notify(&cq->ibv, 0);
	end(cq); /* still armed, with an unread event: */
	cq = fake_cq(context, 2, channel);
	cq_req_notify(&cq->ibv, 0);
	fake_push(cq, 1);
	end(cq);
	assert_false(fd_readable(channel->fd));
	assert_int_equal(channel_destroy(channel), 0);
	fake_close(context);
}

static void *acknowledge_later(void *arg)
{
	usleep(50000);
	*(_Atomic int *)&fakes.resized_to = 1;
	cq_ack_events(arg, 1);
	return NULL;
}

static void destroy_waits_for_acknowledgements(void **state)
{
	struct ibv_context *context = fake_open();
	struct ibv_comp_channel *channel = channel_create(context);
	struct cq *cq = fake_cq(context, 2, channel);
	struct ibv_cq *got;
	void *cq_context;
	pthread_t thread;

	(void)state;
	cq_req_notify(&cq->ibv, 0);
	fake_push(cq, 1);
	assert_int_equal(channel_get_event(channel, &got, &cq_context), 0);
	pthread_create(&thread, NULL, acknowledge_later, got);
	end(cq);
	assert_int_equal(fakes.resized_to, 1);
	pthread_join(thread, NULL);
	assert_int_equal(channel_destroy(channel), 0);
	fake_close(context);
}

/* ------------------------------------------------------------------ threads */

enum { PER_THREAD = 60000, THREADS = 2 };

static void *producer(void *arg)
{
	for (int i = 0; i < PER_THREAD; i++)
		fake_push(arg, 1);
	return NULL;
}

/* More places than completions, so that nothing overruns. */
static void producers_and_a_poller(void **state)
{
	struct ibv_context *context = fake_open();
	struct cq *cq = fake_cq(context, LIMIT_CQE, NULL);
	pthread_t threads[THREADS];
	struct ibv_wc wc[32];
	int n = 0;

	(void)state;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, producer, cq);
	for (int got; n < THREADS * PER_THREAD; n += got)
		got = cq_poll(&cq->ibv, 32, wc);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n, THREADS * PER_THREAD);
	end(cq);
	fake_close(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(completions_come_out_in_order),
		cmocka_unit_test(fields_arrive),
		cmocka_unit_test(empty_poll_takes_what_the_engine_brought),
		cmocka_unit_test(overrun_is_for_good),
		cmocka_unit_test(ignored_overrun_drops_the_oldest),
		cmocka_unit_test(one_event_for_one_arming),
		cmocka_unit_test(solicited_arming),
		cmocka_unit_test(engine_knows_polls_of_an_armed_cq),
		cmocka_unit_test(arming_without_channel_owes_nothing),
		cmocka_unit_test(forget_closes_the_gaps),
		cmocka_unit_test(sizes_are_rounded_up),
		cmocka_unit_test(polling_frees_places),
		cmocka_unit_test(resize_keeps_the_content),
		cmocka_unit_test(bad_attributes_are_refused),
		cmocka_unit_test(busy_things_stay),
		cmocka_unit_test(destroy_waits_for_acknowledgements),
		cmocka_unit_test(producers_and_a_poller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
