/* SPDX-License-Identifier: BSD-2-Clause */
/* Tag-matching SRQs: wrong arguments, messages that fail, queue pairs that end in between. See
 * tags.h. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tags.h"

static const uint64_t every = ~0ull;

/* ------------------------------------------------------------------ arguments */

/* Fails, with this errno. */
static void refused(struct rig *rig, struct ibv_srq_init_attr_ex attr, int wanted, int line)
{
	errno = 0;
	struct ibv_srq *srq = ibv_create_srq_ex(rig->ctx, &attr);

	if (srq || errno != wanted)
		rig_fail(rig, __FILE__, line, "the SRQ is %p, errno %d; expected %d", (void *)srq,
			 errno, wanted);
}

static void tags_wrong_srq(struct rig *rig)
{
	struct ibv_cq_init_attr_ex ex = {.cqe = 16};
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(rig->ctx, &ex);
	struct ibv_cq *plain = ibv_create_cq(rig->ctx, 16, NULL, NULL, 0);
	struct ibv_device_attr_ex device;

	CHECK(rig, pd && cq && plain);
	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &device));
	CHECK_EQ(rig, device.tm_caps.flags, IBV_TM_CAP_RC);
	const struct ibv_srq_init_attr_ex right = {
		.attr = {.max_wr = 16, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = ibv_cq_ex_to_cq(cq),
		.tm_cap = {.max_num_tags = device.tm_caps.max_num_tags,
			   .max_ops = device.tm_caps.max_ops},
	};
	struct ibv_srq_init_attr_ex attr = right;

	attr.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_TM;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_CQ;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_PD;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.cq = plain;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.tm_cap.max_num_tags = 0;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.tm_cap.max_num_tags++;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.tm_cap.max_ops++;
	refused(rig, attr, EINVAL, __LINE__);
	attr = right, attr.attr.max_wr = 0;
	refused(rig, attr, EINVAL, __LINE__);

	attr = right;
	struct ibv_srq *srq = ibv_create_srq_ex(rig->ctx, &attr);

	CHECK(rig, srq);
	struct ibv_qp_init_attr qp = {.send_cq = plain,
				      .recv_cq = plain,
				      .srq = srq,
				      .cap = {.max_send_wr = 1, .max_send_sge = 1}};

	for (qp.qp_type = IBV_QPT_UC; qp.qp_type <= IBV_QPT_UD; qp.qp_type++) {
		errno = 0;
		CHECK(rig, !ibv_create_qp(pd, &qp));
		CHECK_EQ(rig, errno, EINVAL);
	}
	CHECK_EQ(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), EBUSY);
	CHECK_EQ(rig, ibv_dealloc_pd(pd), EBUSY);
	OK(rig, ibv_destroy_srq(srq));
	OK(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	OK(rig, ibv_destroy_cq(plain));
	OK(rig, ibv_dealloc_pd(pd));
}

static void tags_wrong_ops(struct rig *rig)
{
	struct ibv_device_attr_ex device;
	struct ibv_sge sge[64] = {0};
	struct tm_end tm;

	tm_open(&tm, rig, &(struct tm_options){.tags = 3});
	if (rig->role == RIG_A) {
		tm_close(&tm);
		return;
	}
	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &device));
	struct ibv_ops_wr bad_ops[3] = {
		{.wr_id = 1, .next = &bad_ops[1], .flags = IBV_OPS_SIGNALED, .tm.add.tag = 1},
		{.wr_id = 2, .next = &bad_ops[2], .tm.add = {.sg_list = sge, .num_sge = 64}},
		{.wr_id = 3},
	};
	struct ibv_ops_wr *bad = NULL;

	/* What is before the wrong one is executed, nothing after it. */
	CHECK_EQ(rig, ibv_post_srq_ops(tm.end.srq, bad_ops, &bad), EINVAL);
	CHECK(rig, bad == &bad_ops[1]);
	tm_expect(&tm, 1, IBV_WC_TM_ADD, 0);
	bad_ops[1].tm.add.num_sge = (int)device.tm_caps.max_sge + 1;
	CHECK_EQ(rig, tm_op(&tm, &bad_ops[1]), EINVAL);
	bad_ops[1].tm.add.num_sge = -1;
	CHECK_EQ(rig, tm_op(&tm, &bad_ops[1]), EINVAL);
	bad_ops[2].opcode = (enum ibv_ops_wr_opcode)3;
	CHECK_EQ(rig, tm_op(&tm, &bad_ops[2]), EINVAL);
	/* Three buffers fit. */
	tm_add(&tm, 0, TM_SLOT, 2, every, 0);
	uint32_t third = tm_add(&tm, 1, TM_SLOT, 3, every, 0);

	bad_ops[2].opcode = IBV_WR_TAG_ADD;
	CHECK_EQ(rig, tm_op(&tm, &bad_ops[2]), ENOMEM);
	struct ibv_ops_wr del = {.opcode = IBV_WR_TAG_DEL, .tm.handle = third};

	OK(rig, tm_op(&tm, &del));
	CHECK(rig, tm_add(&tm, 1, TM_SLOT, 3, every, 0) != third);
	/* The send queue is the SRQ's. */
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;

	CHECK_EQ(rig, ibv_post_send(tm.end.qp, &send, &bad_send), ENOMEM);
	/* An SRQ of another kind has no list. */
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *plain = ibv_create_srq(tm.end.pd, &attr);

	CHECK(rig, plain);
	CHECK_EQ(rig, ibv_post_srq_ops(plain, &del, &bad), EINVAL);
	CHECK(rig, bad == &del);
	OK(rig, ibv_destroy_srq(plain));
	tm_close(&tm);
}

/* ------------------------------------------------------------------ messages that fail */

/* A: the request has completed; its acknowledgement may be lost with B's QP, which failed after
 * it. */
static void sent_or_lost(struct tm_end *tm)
{
	struct ibv_wc wc = wc_wait(&tm->end, tm->end.scq);

	CHECK(tm->end.rig, wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR ||
				   wc.status == IBV_WC_WR_FLUSH_ERR);
}

static void tags_eager_too_long(struct rig *rig)
{
	static const uint32_t lengths[] = {100, 20000};

	for (unsigned int i = 0; i < 2; i++) {
		struct tm_end tm;

		tm_open(&tm, rig, NULL);
		if (rig->role == RIG_B)
			tm_add(&tm, 4, lengths[i] - 1, 1, every, 0);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			tm_eager(&tm, 0, 1, lengths[i], 0);
			wc_expect(&tm.end, tm.end.scq, 0, IBV_WC_REM_INV_REQ_ERR);
			tm_close(&tm);
			continue;
		}
		struct tm_wc wc = tm_next(&tm);

		if (wc.flags == IBV_WC_TM_MATCH) /* its end isn't here yet */
			wc = tm_next(&tm);
		CHECK_EQ(rig, wc.status, IBV_WC_LOC_LEN_ERR);
		CHECK_EQ(rig, wc.id, 4);
		CHECK_EQ(rig, end_state(&tm.end), IBV_QPS_ERR);
		tm_close(&tm);
	}
}

/* The buffer isn't memory that may be written: of an eager message, of a READ. */
static void tags_bad_buffer(struct rig *rig)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct tm_end tm;

		tm_open(&tm, rig, NULL);
		struct ibv_sge sge = {.addr = (uintptr_t)tm.end.buf, .length = 64, .lkey = 12345};
		struct ibv_ops_wr wr = {
			.opcode = IBV_WR_TAG_ADD,
			.tm.add = {.recv_wr_id = 4,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .tag = 1,
				   .mask = every},
		};

		if (rig->role == RIG_B)
			OK(rig, tm_op(&tm, &wr));
		rig_sync(rig);
		if (rig->role == RIG_A && i == 0) {
			tm_eager(&tm, 0, 1, 64, 0);
			wc_expect(&tm.end, tm.end.scq, 0, IBV_WC_REM_OP_ERR);
		} else if (rig->role == RIG_A) {
			tm_rendezvous(&tm, 0, 1, 1, 64, 0);
			sent_or_lost(&tm);
		} else {
			if (i == 1)
				tm_expect(&tm, 4, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
			struct tm_wc wc = tm_next(&tm);

			CHECK_EQ(rig, wc.status, IBV_WC_LOC_PROT_ERR);
			CHECK_EQ(rig, wc.id, 4);
			CHECK_EQ(rig, end_state(&tm.end), IBV_QPS_ERR);
		}
		tm_close(&tm);
	}
}

/* The sender's key doesn't grant the READ. */
static void tags_read_refused(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		tm_add(&tm, 4, TM_SLOT, 1, every, 0);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct ibv_rvh rvh = {.va = htobe64((uintptr_t)tm.end.buf),
				      .rkey = htobe32(tm.end.mr->rkey + 256),
				      .len = htobe32(1000)};

		tm_header(&tm, 0, IBV_TMH_RNDV, 1, 0);
		memcpy(tm_at(&tm, 0) + TM_TMH, &rvh, sizeof(rvh));
		tm_post(&tm, 0, TM_HEADERS);
		sent_or_lost(&tm);
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, tm.end.qp);
	} else {
		tm_expect(&tm, 4, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		struct tm_wc wc = tm_next(&tm);

		CHECK_EQ(rig, wc.status, IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(rig, wc.opcode, IBV_WC_TM_RECV);
		CHECK_EQ(rig, wc.id, 4);
		CHECK_EQ(rig, end_state(&tm.end), IBV_QPS_ERR);
	}
	tm_close(&tm);
}

/* A rendezvous' request that is longer than tm_caps says is refused when it matches. */
static void tags_long_request(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		tm_add(&tm, 4, TM_SLOT, 1, every, 0);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		tm_header(&tm, 0, IBV_TMH_RNDV, 1, 0);
		tm_post(&tm, 0, 65);
		wc_expect(&tm.end, tm.end.scq, 0, IBV_WC_REM_INV_REQ_ERR);
	} else {
		struct tm_wc wc = tm_next(&tm);

		CHECK_EQ(rig, wc.status, IBV_WC_LOC_LEN_ERR);
		CHECK_EQ(rig, wc.id, 4);
	}
	tm_close(&tm);
}

/* ------------------------------------------------------------------ queue pairs that end */

/* A rendezvous of a QP that can't read yet: its buffer completes when the QP fails, is reset or
 * ends, and its entry of the list is free again. */
static void tags_ended(struct rig *rig)
{
	for (unsigned int how = 0; how < 3; how++) {
		struct tm_end tm;

		tm_open(&tm, rig, &(struct tm_options){.no_rts = true, .tags = 1});
		if (rig->role == RIG_B)
			tm_add(&tm, 4, TM_SLOT, 1, every, 0);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			tm_rendezvous(&tm, 0, 1, 1, 64, 0);
			sent_or_lost(&tm);
			tm_close(&tm);
			continue;
		}
		struct tm_wc wc;

		tm_expect(&tm, 4, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		CHECK(rig, !tm_any(&tm, &wc));
		if (how == 2) {
			OK(rig, ibv_destroy_qp(tm.end.qp));
			tm.end.qp = NULL;
		} else {
			OK(rig, end_move(&tm.end, how ? IBV_QPS_RESET : IBV_QPS_ERR));
		}
		wc = tm_next(&tm);
		CHECK_EQ(rig, wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, wc.opcode, IBV_WC_TM_RECV);
		CHECK_EQ(rig, wc.id, 4);
		tm_add(&tm, 5, TM_SLOT, 1, every, 0);
		tm_close(&tm);
	}
}

/* The same QP reads as soon as it may. */
static void tags_read_later(struct rig *rig)
{
	struct tm_end tm;
	struct tm_wc wc;

	tm_open(&tm, rig, &(struct tm_options){.no_rts = true});
	if (rig->role == RIG_B)
		tm_add(&tm, 4, TM_SLOT, 1, every, 0);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		tm_rendezvous(&tm, 0, 1, 1, 20000, 6);
		tm_sent(&tm, 0);
		tm_fin(&tm, 0);
	} else {
		tm_expect(&tm, 4, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		CHECK(rig, !tm_any(&tm, &wc));
		end_rts(&tm.end);
		tm_expect(&tm, 4, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
		CHECK(rig, pattern_holds(tm_at(&tm, 4), 20000, 6));
	}
	tm_close(&tm);
}

/* What isn't polled of an ended QP stays: the program needs it for its count. */
static void tags_outlive_qp(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_A) {
		tm_eager(&tm, 0, 1, 64, 0);
		tm_sent(&tm, 0);
		rig_sync(rig);
	} else {
		rig_sync(rig);
		OK(rig, ibv_destroy_qp(tm.end.qp));
		tm.end.qp = NULL;
		tm_expect(&tm, 1000, IBV_WC_TM_RECV, 0);
		tm.unexpected = 1;
		tm_sync(&tm);
	}
	tm_close(&tm);
}

const struct rig_test tag_wrong_tests[] = {
	{"tags_wrong_srq", tags_wrong_srq},
	{"tags_wrong_ops", tags_wrong_ops},
	{"tags_eager_too_long", tags_eager_too_long},
	{"tags_bad_buffer", tags_bad_buffer},
	{"tags_read_refused", tags_read_refused},
	{"tags_long_request", tags_long_request},
	{"tags_ended", tags_ended},
	{"tags_read_later", tags_read_later},
	{"tags_outlive_qp", tags_outlive_qp},
	{0},
};
