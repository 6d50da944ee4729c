/* SPDX-License-Identifier: BSD-2-Clause */
/* Tag-matching SRQs: messages with and without tags, rendezvous, the count of unexpected messages.
 * See tags.h. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tags.h"

static const uint64_t every = ~0ull;

/* ------------------------------------------------------------------ eager */

/* The last size is a message that takes several packets, or pieces of a ring. */
static const uint32_t sizes[] = {0, 1, 100, 3000, 9000, 30000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void tags_eager(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		for (unsigned int i = 0; i < SIZES; i++)
			tm_add(&tm, i, TM_SLOT, 40 + i, every, 0);
	rig_sync(rig);
	for (unsigned int i = SIZES; i-- > 0;) {
		if (rig->role == RIG_A) {
			tm_eager(&tm, i, 40 + i, sizes[i], 7 * i);
			tm_sent(&tm, i);
			continue;
		}
		struct tm_wc wc = tm_expect_data(&tm, i, 40 + i, sizes[i]);

		CHECK_EQ(rig, wc.priv, 7 * i);
		CHECK(rig, pattern_holds(tm_at(&tm, i), sizes[i], 7 * i));
	}
	tm_close(&tm);
}

/* The first buffer that matches is taken, whatever the mask; a tag with bits beyond its mask
 * matches nothing. */
static void tags_masks(struct rig *rig)
{
	static const unsigned int taken[] = {2, 3, 1};
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B) {
		tm_add(&tm, 0, TM_SLOT, 0xff, 0xf, 0);
		tm_add(&tm, 1, TM_SLOT, 0x1200, 0xff00, 0);
		tm_add(&tm, 2, TM_SLOT, 0x34, 0xff, 0);
		tm_add(&tm, 3, TM_SLOT, 0, 0, 0);
	}
	rig_sync(rig);
	static const uint64_t values[] = {0x5634, 0xff, 0x12ff};

	for (unsigned int i = 0; i < 3; i++) {
		if (rig->role == RIG_A) {
			tm_eager(&tm, i, values[i], 64, i);
			tm_sent(&tm, i);
			continue;
		}
		tm_expect_data(&tm, taken[i], values[i], 64);
		CHECK(rig, pattern_holds(tm_at(&tm, taken[i]), 64, i));
	}
	tm_close(&tm);
}

/* ------------------------------------------------------------------ without a match */

static void tags_no_tag(struct rig *rig)
{
	static const struct {
		uint8_t op;
		uint32_t length;
	} messages[] = {{IBV_TMH_NO_TAG, 500},
			{IBV_TMH_FIN, TM_HEADERS},
			{IBV_TMH_EAGER, 15},
			{IBV_TMH_RNDV, 20},
			{99, 64},
			{IBV_TMH_EAGER, 0}};
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		tm_add(&tm, 0, TM_SLOT, 0, 0, 0); /* matches whatever has a tag */
	rig_sync(rig);
	for (unsigned int i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		if (rig->role == RIG_A) {
			pattern_fill(tm_at(&tm, i), 500, i);
			*tm_at(&tm, i) = messages[i].op;
			tm_post(&tm, i, messages[i].length);
			tm_sent(&tm, i);
			continue;
		}
		struct tm_wc wc = tm_expect(&tm, 1000 + i, IBV_WC_TM_NO_TAG, 0);

		CHECK_EQ(rig, wc.tag, 0);
		CHECK_EQ(rig, wc.length, messages[i].length);
		pattern_fill(tm_at(&tm, 0), 500, i);
		*tm_at(&tm, 0) = messages[i].op;
		CHECK(rig, !memcmp(tm_at(&tm, 0), tm_at(&tm, 32 + i), messages[i].length));
	}
	tm_close(&tm);
}

/* A buffer that is posted while a message is unhandled matches nothing before the program has
 * reported it; one that was posted before goes on matching. */
static void tags_out_of_step(struct rig *rig)
{
	static const uint64_t values[] = {9, 5, 1, 5};
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_A) {
		for (unsigned int i = 0; i < 4; i++) {
			rig_sync(rig);
			tm_eager(&tm, i, values[i], 100, i);
			tm_sent(&tm, i);
		}
		tm_close(&tm);
		return;
	}
	tm_add(&tm, 0, TM_SLOT, 1, every, 0);
	rig_sync(rig);
	tm_expect(&tm, 1000, IBV_WC_TM_RECV, 0); /* 9 */
	struct ibv_sge sge = end_sge(&tm.end, TM_SLOT, TM_SLOT);
	struct ibv_ops_wr add = {
		.wr_id = 3,
		.opcode = IBV_WR_TAG_ADD,
		.flags = IBV_OPS_SIGNALED,
		.tm.add = {.recv_wr_id = 1, .sg_list = &sge, .num_sge = 1, .tag = 5, .mask = every},
	};

	OK(rig, tm_op(&tm, &add));
	tm_expect(&tm, 3, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	rig_sync(rig);
	struct tm_wc wc = tm_expect(&tm, 1001, IBV_WC_TM_RECV, 0); /* 5 */

	CHECK_EQ(rig, wc.tag, 0);
	CHECK_EQ(rig, wc.length, TM_TMH + 100);
	CHECK(rig, pattern_holds(tm_at(&tm, 33) + TM_TMH, 100, 1));
	rig_sync(rig);
	tm_expect_data(&tm, 0, 1, 100);
	tm.unexpected = 1; /* of two */
	struct ibv_ops_wr sync = {
		.wr_id = 4,
		.opcode = IBV_WR_TAG_SYNC,
		.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
		.tm.unexpected_cnt = 1,
	};

	OK(rig, tm_op(&tm, &sync));
	tm_expect(&tm, 4, IBV_WC_TM_SYNC, IBV_WC_TM_SYNC_REQ);
	tm.unexpected = 2;
	tm_sync(&tm);
	rig_sync(rig);
	tm_expect_data(&tm, 1, 5, 100);
	tm_close(&tm);
}

/* Removing: a buffer that waits, one that is consumed, and handles that never were. */
static void tags_removed(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_A) {
		rig_sync(rig);
		tm_eager(&tm, 0, 1, 8, 0);
		tm_sent(&tm, 0);
		tm_eager(&tm, 1, 2, 8, 0);
		tm_sent(&tm, 1);
		tm_close(&tm);
		return;
	}
	struct ibv_ops_wr wr = {.wr_id = 9, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED};
	uint32_t consumed = tm_add(&tm, 0, TM_SLOT, 1, every, 0);

	wr.tm.handle = tm_add(&tm, 1, TM_SLOT, 2, every, 0);
	OK(rig, tm_op(&tm, &wr));
	tm_expect(&tm, 9, IBV_WC_TM_DEL, 0);
	OK(rig, tm_op(&tm, &wr)); /* it isn't there any more */
	CHECK_EQ(rig, tm_next(&tm).status, IBV_WC_TM_ERR);
	wr.tm.handle = TM_TAGS; /* no entry has this number */
	CHECK_EQ(rig, tm_op(&tm, &wr), EINVAL);
	wr.tm.handle = 3; /* that entry was never posted */
	CHECK_EQ(rig, tm_op(&tm, &wr), EINVAL);
	rig_sync(rig);
	tm_expect_data(&tm, 0, 1, 8);
	tm_expect(&tm, 1000, IBV_WC_TM_RECV, 0);
	wr.tm.handle = consumed;
	OK(rig, tm_op(&tm, &wr));
	struct tm_wc wc = tm_next(&tm);

	CHECK_EQ(rig, wc.status, IBV_WC_TM_ERR);
	CHECK_EQ(rig, wc.opcode, IBV_WC_TM_DEL);
	wr.flags = 0;
	OK(rig, tm_op(&tm, &wr)); /* unsignaled: nothing is said */
	CHECK(rig, !tm_any(&tm, &wc));
	tm_close(&tm);
}

/* Without an ordinary receive, what matches goes on; what doesn't waits, and matches a buffer that
 * is posted meanwhile. */
static void tags_without_receives(struct rig *rig)
{
	static const uint32_t lengths[] = {200, 20000};
	struct tm_end tm;

	tm_open(&tm, rig, &(struct tm_options){.few_receives = true});
	for (unsigned int i = 0; i < 2; i++) {
		if (rig->role == RIG_A) {
			rig_sync(rig);
			tm_eager(&tm, 0, 1, 50, 1);
			tm_eager(&tm, 1, 2, lengths[i], 2);
			tm_sent(&tm, 0);
			wc_none(&tm.end, tm.end.scq);
			rig_sync(rig);
			tm_sent(&tm, 1);
			continue;
		}
		struct tm_wc wc;

		tm_add(&tm, 0, TM_SLOT, 1, every, 0);
		rig_sync(rig);
		tm_expect_data(&tm, 0, 1, 50);
		CHECK(rig, !tm_any(&tm, &wc));
		rig_sync(rig);
		tm_add(&tm, 1, TM_SLOT, 2, every, 0);
		tm_expect_data(&tm, 1, 2, lengths[i]);
		CHECK(rig, pattern_holds(tm_at(&tm, 1), lengths[i], 2));
	}
	tm_close(&tm);
}

/* The same with an ordinary receive that comes late. */
static void tags_late_receive(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, &(struct tm_options){.few_receives = true});
	if (rig->role == RIG_A) {
		tm_eager(&tm, 1, 2, 20000, 2);
		wc_none(&tm.end, tm.end.scq);
		rig_sync(rig);
		tm_sent(&tm, 1);
	} else {
		rig_sync(rig);
		OK(rig, end_recv(&tm.end, 8, 0, TM_SLOT));
		struct tm_wc wc = tm_expect(&tm, 8, IBV_WC_TM_RECV, 0);

		CHECK_EQ(rig, wc.length, TM_TMH + 20000);
		CHECK(rig, pattern_holds(tm_at(&tm, 0) + TM_TMH, 20000, 2));
	}
	tm_close(&tm);
}

/* Immediate data comes with every kind; an RDMA WRITE takes an ordinary receive. */
static void tags_immediate(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		tm_add(&tm, 0, TM_SLOT, 1, every, 0);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		static const enum ibv_wr_opcode opcodes[] = {
			IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

		tm_header(&tm, 0, IBV_TMH_EAGER, 1, 0);
		tm_header(&tm, 1, IBV_TMH_EAGER, 2, 0);
		for (unsigned int i = 0; i < 3; i++) {
			struct ibv_send_wr wr, *bad;
			struct ibv_sge sge;

			end_request(&tm.end, opcodes[i], i, i * (size_t)TM_SLOT, 24,
				    20 * (size_t)TM_SLOT, &wr, &sge);
			wr.imm_data = htobe32(0xa0 + i);
			OK(rig, ibv_post_send(tm.end.qp, &wr, &bad));
			tm_sent(&tm, i);
		}
		tm_close(&tm);
		return;
	}
	const unsigned int matched = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;

	CHECK_EQ(rig, tm_expect(&tm, 0, IBV_WC_TM_RECV, matched | IBV_WC_WITH_IMM).imm,
		 htobe32(0xa0));
	CHECK_EQ(rig, tm_expect(&tm, 1000, IBV_WC_TM_RECV, IBV_WC_WITH_IMM).imm, htobe32(0xa1));
	CHECK_EQ(rig, tm_expect(&tm, 1001, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM).imm,
		 htobe32(0xa2));
	tm_close(&tm);
}

/* A program that sleeps until its CQ has something is woken by a match and by a READ's end. */
static void tags_events(struct rig *rig)
{
	struct tm_end tm;
	struct ibv_cq *cq;
	void *context;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_A) {
		rig_sync(rig);
		tm_rendezvous(&tm, 0, 1, 1, 20000, 5);
		tm_sent(&tm, 0);
		tm_fin(&tm, 0);
		tm_close(&tm);
		return;
	}
	tm_add(&tm, 0, TM_SLOT, 1, every, 0);
	OK(rig, ibv_req_notify_cq(tm.end.rcq, 0));
	rig_sync(rig);
	for (unsigned int seen = 0; seen < 2;) {
		struct tm_wc wc;

		CHECK(rig, channel_readable(tm.end.channel, RIG_SOON_MS));
		OK(rig, ibv_get_cq_event(tm.end.channel, &cq, &context));
		CHECK(rig, cq == tm.end.rcq);
		ibv_ack_cq_events(cq, 1);
		OK(rig, ibv_req_notify_cq(tm.end.rcq, 0));
		while (tm_any(&tm, &wc)) {
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			seen++;
		}
	}
	tm_close(&tm);
}

/* ------------------------------------------------------------------ rendezvous */

static void tags_rendezvous(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		for (unsigned int i = 0; i < SIZES; i++)
			tm_add(&tm, i, TM_SLOT, i, every, 0);
	rig_sync(rig);
	for (unsigned int i = 0; i < SIZES; i++) {
		if (rig->role == RIG_A) {
			tm_rendezvous(&tm, 0, i, 1, sizes[i], i);
			tm_sent(&tm, 0);
			tm_fin(&tm, 0);
			continue;
		}
		struct tm_wc wc = tm_expect(&tm, i, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);

		CHECK_EQ(rig, wc.tag, i);
		CHECK_EQ(rig, wc.priv, i);
		wc = tm_expect(&tm, i, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
		CHECK_EQ(rig, wc.length, sizes[i]);
		CHECK_EQ(rig, wc.tag, 0);
		CHECK(rig, pattern_holds(tm_at(&tm, i), sizes[i], i));
	}
	tm_close(&tm);
}

/* More at once than the SRQ posts READs. */
static void tags_many_rendezvous(struct rig *rig)
{
	enum { MANY = 30 };
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B)
		for (unsigned int i = 0; i < MANY; i++)
			tm_add(&tm, i, TM_SLOT, 7, every, 0);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (unsigned int i = 0; i < MANY; i++)
			tm_rendezvous(&tm, 0, 7, 1, 10000, 3); /* the same bytes each time */
		for (unsigned int i = 0; i < MANY; i++)
			tm_sent(&tm, 0);
		for (unsigned int i = 0; i < MANY; i++)
			tm_fin(&tm, 0);
		tm_close(&tm);
		return;
	}
	unsigned int matched = 0, valid = 0;

	while (valid < MANY) {
		struct tm_wc wc = tm_next(&tm);

		CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
		if (wc.flags == IBV_WC_TM_MATCH) {
			CHECK_EQ(rig, wc.id, matched++);
			continue;
		}
		CHECK_EQ(rig, wc.flags, IBV_WC_TM_DATA_VALID);
		CHECK_EQ(rig, wc.id, valid++);
		CHECK(rig, pattern_holds(tm_at(&tm, (unsigned int)wc.id), 10000, 3));
	}
	tm_close(&tm);
}

/* A message behind a rendezvous' request matches while the data is still being read. */
static void tags_beside_rendezvous(struct rig *rig)
{
	struct tm_end tm;
	unsigned int seen = 0;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_B) {
		tm_add(&tm, 0, TM_SLOT, 1, every, 0);
		tm_add(&tm, 1, TM_SLOT, 2, every, 0);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		tm_rendezvous(&tm, 0, 1, 2, 30000, 4);
		tm_eager(&tm, 1, 2, 10, 5);
		tm_sent(&tm, 0);
		tm_sent(&tm, 1);
		tm_fin(&tm, 0);
	} else {
		tm_expect(&tm, 0, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		while (seen != 3) {
			struct tm_wc wc = tm_next(&tm);

			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			seen |= 1u << wc.id;
		}
		CHECK(rig, pattern_holds(tm_at(&tm, 0), 30000, 4));
		CHECK(rig, pattern_holds(tm_at(&tm, 1), 10, 5));
	}
	tm_close(&tm);
}

/* B: the program reads the data, and says that it is done. */
static void finish_by_program(struct tm_end *tm, unsigned int slot, unsigned int to)
{
	struct rig *rig = tm->end.rig;
	struct ibv_rvh rvh;

	memcpy(&rvh, tm_at(tm, slot) + TM_TMH, sizeof(rvh));
	struct ibv_sge sge = end_sge(&tm->end, (size_t)to * TM_SLOT, be32toh(rvh.len));
	struct ibv_send_wr read =
				   {
					   .wr_id = 1,
					   .opcode = IBV_WR_RDMA_READ,
					   .send_flags = IBV_SEND_SIGNALED,
					   .sg_list = &sge,
					   .num_sge = 1,
					   .wr.rdma = {.remote_addr = be64toh(rvh.va),
						       .rkey = be32toh(rvh.rkey)},
				   },
			   *bad;

	OK(rig, ibv_post_send(tm->end.qp, &read, &bad));
	wc_expect(&tm->end, tm->end.scq, 1, IBV_WC_SUCCESS);
	*tm_at(tm, slot) = IBV_TMH_FIN;
	tm_post(tm, slot, TM_HEADERS);
	tm_sent(tm, slot);
}

/* The QP has a send queue of its own: the program gets the request. */
static void tags_by_software(struct rig *rig)
{
	struct tm_end tm;

	tm_open(&tm, rig, &(struct tm_options){.own_queue = true});
	if (rig->role == RIG_B)
		tm_add(&tm, 0, TM_SLOT, 1, every, 0);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		tm_rendezvous(&tm, 0, 1, 1, 20000, 4);
		tm_sent(&tm, 0);
		tm_fin(&tm, 0);
	} else {
		struct tm_wc wc = tm_next(&tm);

		CHECK_EQ(rig, wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
		CHECK_EQ(rig, wc.opcode, IBV_WC_TM_RECV);
		CHECK_EQ(rig, wc.flags, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
		CHECK_EQ(rig, wc.id, 0);
		CHECK_EQ(rig, wc.tag, 1);
		CHECK_EQ(rig, wc.length, TM_HEADERS);
		finish_by_program(&tm, 0, 1);
		CHECK(rig, pattern_holds(tm_at(&tm, 1), 20000, 4));
	}
	tm_close(&tm);
}

/* The buffer is too short for the data, or even for the headers. */
static void tags_short_buffer(struct rig *rig)
{
	static const uint32_t lengths[] = {100, 20};
	struct tm_end tm;

	tm_open(&tm, rig, NULL);
	for (unsigned int i = 0; i < 2; i++) {
		if (rig->role == RIG_B)
			tm_add(&tm, 0, lengths[i], 1, every, 0);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			tm_rendezvous(&tm, 0, 1, 1, 101, 4);
			tm_sent(&tm, 0);
			continue;
		}
		struct tm_wc wc = tm_next(&tm);

		CHECK_EQ(rig, wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
		CHECK_EQ(rig, wc.length, lengths[i] < TM_HEADERS ? lengths[i] : TM_HEADERS);
		CHECK_EQ(rig, *tm_at(&tm, 0), IBV_TMH_RNDV);
		memset(tm_at(&tm, 0), 0, 100);
	}
	CHECK_EQ(rig, end_state(&tm.end), IBV_QPS_RTS);
	tm_close(&tm);
}

const struct rig_test tag_tests[] = {
	{"tags_eager", tags_eager},
	{"tags_masks", tags_masks},
	{"tags_no_tag", tags_no_tag},
	{"tags_out_of_step", tags_out_of_step},
	{"tags_removed", tags_removed},
	{"tags_without_receives", tags_without_receives},
	{"tags_late_receive", tags_late_receive},
	{"tags_immediate", tags_immediate},
	{"tags_events", tags_events},
	{"tags_rendezvous", tags_rendezvous},
	{"tags_many_rendezvous", tags_many_rendezvous},
	{"tags_beside_rendezvous", tags_beside_rendezvous},
	{"tags_by_software", tags_by_software},
	{"tags_short_buffer", tags_short_buffer},
	{0},
};
