/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw packets: frames spread over work queues, counters of flow rules, and what completions report:
 * tags, VLAN tags, checksums. End A sends, end B has the rules. See rig.h, raw.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "raw.h"

enum { WQS = 4, IPS = 32, UDP_AT = 34, IP_BYTES = FRAME - 14 };

/* ------------------------------------------------------------------ frames with IP */

static void put_16(uint8_t *at, unsigned int value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* Writes a UDP datagram to the address that ends with 5, from 10.0.0.`source`; its checksums are 0.
 */
static void udp_write(struct end *end, uint8_t source)
{
	uint8_t *at = end->buf;

	frame_write(end, 2, 5, source);
	put_16(at + 12, 0x0800);
	memset(at + 14, 0, 28);
	at[14] = 0x45;
	put_16(at + 16, IP_BYTES);
	at[22] = 64;
	at[23] = 17;
	memcpy(at + 26, (uint8_t[]){10, 0, 0, source, 10, 0, 1, 1}, 8);
	put_16(at + UDP_AT, 1000);
	put_16(at + UDP_AT + 2, 2000);
	put_16(at + UDP_AT + 4, IP_BYTES - 20);
}

static void udp_send(struct end *end, uint8_t source, unsigned int flags)
{
	udp_write(end, source);
	frame_post(end, end->qp, source, FRAME, flags);
	wc_expect(end, end->scq, source, IBV_WC_SUCCESS);
}

/* ------------------------------------------------------------------ work queues */

struct spread {
	struct end end;
	struct ibv_wq *wq[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
};

static void wq_receive(struct spread *s, unsigned int i, uint64_t id)
{
	struct ibv_sge sge = end_sge(&s->end, RECEIVES + id * 256, 256);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	OK(s->end.rig, ibv_post_wq_recv(s->wq[i], &wr, &bad));
}

static void wqs_make(struct spread *s)
{
	const struct rig *rig = s->end.rig;

	for (unsigned int i = 0; i < WQS; i++) {
		struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ,
						.max_wr = IPS,
						.max_sge = 1,
						.pd = s->end.pd,
						.cq = s->end.rcq};
		struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE,
					    .wq_state = IBV_WQS_RDY};

		CHECK(rig, (s->wq[i] = ibv_create_wq(rig->ctx, &attr)));
		CHECK(rig, attr.max_wr >= IPS);
		OK(rig, ibv_modify_wq(s->wq[i], &ready));
		for (uint64_t id = 0; id < IPS; id++)
			wq_receive(s, i, i * IPS + id);
	}
}

static void spread_open_with(struct spread *s, struct rig *rig, const struct end_options *opt)
{
	uint8_t key[40];
	struct ibv_rwq_ind_table_init_attr table = {.log_ind_tbl_size = 2, .ind_tbl = s->wq};

	end_open(&s->end, rig, opt);
	raw_ready(rig, s->end.qp);
	wqs_make(s);
	CHECK(rig, (s->table = ibv_create_rwq_ind_table(rig->ctx, &table)));
	for (unsigned int i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(i * 37 + 11);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = s->end.pd,
		.rwq_ind_tbl = s->table,
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				 .rx_hash_key_len = sizeof(key),
				 .rx_hash_key = key,
				 .rx_hash_fields_mask =
					 IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4},
	};

	CHECK(rig, (s->qp = ibv_create_qp_ex(rig->ctx, &attr)));
	s->flow = flow_make(rig, s->qp, rule_to(5, 0));
}

static void spread_open(struct spread *s, struct rig *rig)
{
	spread_open_with(s, rig, &raw);
}

static void spread_close(struct spread *s)
{
	const struct rig *rig = s->end.rig;

	CHECK_EQ(rig, ibv_destroy_wq(s->wq[0]), EBUSY);
	CHECK_EQ(rig, ibv_destroy_rwq_ind_table(s->table), EBUSY);
	OK(rig, ibv_destroy_flow(s->flow));
	OK(rig, ibv_destroy_qp(s->qp));
	OK(rig, ibv_destroy_rwq_ind_table(s->table));
	for (unsigned int i = 0; i < WQS; i++)
		OK(rig, ibv_destroy_wq(s->wq[i]));
}

static unsigned int wq_index(const struct spread *s, uint32_t number)
{
	for (unsigned int i = 0; i < WQS; i++)
		if (s->wq[i]->wq_num == number)
			return i;
	rig_fail(s->end.rig, __FILE__, __LINE__, "no work queue has number 0x%x", number);
}

/* Frames of one source go to one queue, in order; those of many sources to several. */
static void spread(struct rig *rig)
{
	int place[IPS];
	unsigned int used = 0;
	struct spread s;

	if (rig->role == RIG_A) {
		raw_open(&s.end, rig);
		rig_sync(rig);
		for (int round = 0; round < 2; round++)
			for (uint8_t source = 0; source < IPS; source++)
				udp_send(&s.end, source, 0);
		rig_sync(rig);
		end_close(&s.end);
		return;
	}
	spread_open(&s, rig);
	memset(place, -1, sizeof(place));
	rig_sync(rig);
	for (int n = 0; n < 2 * IPS; n++) {
		struct ibv_wc wc = completion_wait(&s.end, s.end.rcq);
		const uint8_t *at = s.end.buf + RECEIVES + wc.wr_id * 256;
		unsigned int i = wq_index(&s, wc.qp_num);
		uint8_t source = at[29];

		CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.wr_id / IPS, i);
		CHECK(rig, source < IPS && (place[source] < 0 || place[source] == (int)i));
		place[source] = (int)i;
		used |= 1u << i;
		wq_receive(&s, i, wc.wr_id);
	}
	CHECK(rig, used & (used - 1));
	rig_sync(rig);
	spread_close(&s);
	end_close(&s.end);
}

/* ERR flushes a work queue's receives; RESET forgets them. */
static void wq_states(struct rig *rig)
{
	struct ibv_wq_attr to = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_ERR};
	struct spread s;

	spread_open(&s, rig);
	OK(rig, ibv_modify_wq(s.wq[1], &to));
	for (uint64_t id = 0; id < IPS; id++) {
		struct ibv_wc wc = completion_wait(&s.end, s.end.rcq);

		CHECK_EQ(rig, wc.wr_id, IPS + id);
		CHECK_EQ(rig, wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, wc.qp_num, s.wq[1]->wq_num);
	}
	to.wq_state = IBV_WQS_RDY;
	CHECK_EQ(rig, ibv_modify_wq(s.wq[1], &to), EINVAL);
	to.wq_state = IBV_WQS_RESET;
	OK(rig, ibv_modify_wq(s.wq[1], &to));
	to.attr_mask |= IBV_WQ_ATTR_CURR_STATE;
	to.curr_wq_state = IBV_WQS_RDY;
	CHECK_EQ(rig, ibv_modify_wq(s.wq[1], &to), EINVAL);
	to = (struct ibv_wq_attr){.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	OK(rig, ibv_modify_wq(s.wq[1], &to));
	wc_none(&s.end, s.end.rcq);
	rig_sync(rig);
	spread_close(&s);
	end_close(&s.end);
}

/* A CQ that overruns fails the work queue, and the program hears of it. */
static void wq_overrun(struct rig *rig)
{
	struct spread s;

	if (rig->role == RIG_A) {
		raw_open(&s.end, rig);
		rig_sync(rig);
		for (uint8_t source = 0; source < IPS; source++)
			udp_send(&s.end, source, 0);
		rig_sync(rig);
		end_close(&s.end);
		return;
	}
	const struct end_options shallow = {
		.type = IBV_QPT_RAW_PACKET, .mr_access = MR_NONE, .cqe = 2};

	spread_open_with(&s, rig, &shallow);
	rig_sync(rig);
	for (unsigned int i = 0; i < WQS; i++)
		event_expect(rig, IBV_EVENT_WQ_FATAL, s.wq[i]);
	/* The queue pair that spreads has no queue that could fail. */
	CHECK(rig, !event_seen(rig, IBV_EVENT_QP_FATAL, s.qp, RIG_NEVER_MS));
	rig_sync(rig);
	spread_close(&s);
	end_close(&s.end);
}

/* ------------------------------------------------------------------ counters */

static void counts(struct rig *rig)
{
	struct ibv_counters_init_attr init = {0};
	struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS, .index = 2},
				       bytes = {.counter_desc = IBV_COUNTER_BYTES, .index = 0};
	const struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP};
	struct ibv_flow_spec_counter_action count = {.type = IBV_FLOW_SPEC_ACTION_COUNT};
	struct ibv_counters *counters = NULL;
	struct ibv_flow *flows[2];
	uint64_t value[4];
	struct end end;

	raw_open(&end, rig);
	if (rig->role == RIG_B) {
		CHECK(rig, (counters = ibv_create_counters(rig->ctx, &init)));
		OK(rig, ibv_attach_counters_point_flow(counters, &packets, NULL));
		OK(rig, ibv_attach_counters_point_flow(counters, &bytes, NULL));
		count.counters = counters;
		for (int i = 0; i < 2; i++) {
			struct rule rule = rule_to((uint8_t)(5 + i), 0);

			rule_add(&rule, &count, sizeof(count));
			if (i)
				rule_add(&rule, &drop, sizeof(drop));
			flows[i] = flow_make(rig, end.qp, rule);
			receive_post(&end, end.qp, (uint64_t)i);
		}
		CHECK_EQ(rig, ibv_attach_counters_point_flow(counters, &bytes, NULL), EBUSY);
		CHECK_EQ(rig, ibv_destroy_counters(counters), EBUSY);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (uint32_t seed = 1; seed < 6; seed++)
			frame_send(&end, 6, seed); /* dropped there */
		frame_send(&end, 5, 7);
	} else {
		frame_expect(&end, end.qp->qp_num, 7);
		OK(rig, ibv_read_counters(counters, value, 4, 0));
		CHECK_EQ(rig, value[2], 6);
		CHECK_EQ(rig, value[0], 6 * FRAME);
		CHECK_EQ(rig, value[1] + value[3], 0);
		OK(rig, ibv_destroy_flow(flows[0]));
		OK(rig, ibv_destroy_flow(flows[1]));
		OK(rig, ibv_destroy_counters(counters));
	}
	rig_sync(rig);
	end_close(&end);
}

static void sends_to_5(struct rig *rig, struct end *end, uint32_t seed)
{
	rig_sync(rig);
	if (rig->role == RIG_A)
		frame_send(end, 5, seed); /* it completes with success, dropped or not */
	rig_sync(rig);
}

/* Rules of A for frames on their way out that drop, let pass and count; then one of B, which counts
 * what A sends. */
static void leaving(struct rig *rig)
{
	struct ibv_counters_init_attr init = {0};
	struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS};
	const struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP};
	struct ibv_flow_spec_counter_action count = {.type = IBV_FLOW_SPEC_ACTION_COUNT};
	struct rule drops = rule_to(5, 4), allows = rule_to(5, 2), counted = rule_to(5, 2);
	struct ibv_flow *flow = NULL, *mine = NULL;
	uint64_t value = 0;
	struct end end;

	CHECK(rig, (count.counters = ibv_create_counters(rig->ctx, &init)));
	OK(rig, ibv_attach_counters_point_flow(count.counters, &packets, NULL));
	drops.attr.flags = allows.attr.flags = counted.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	rule_add(&drops, &drop, sizeof(drop));
	rule_add(&drops, &count, sizeof(count));
	rule_add(&counted, &count, sizeof(count));
	raw_open(&end, rig);
	if (rig->role == RIG_B) {
		flow = flow_make(rig, end.qp, rule_to(5, 0));
		for (uint64_t id = 0; id < 4; id++)
			receive_post(&end, end.qp, id);
	} else {
		mine = flow_make(rig, end.qp, drops);
	}
	sends_to_5(rig, &end, 1); /* dropped */
	for (int i = 0; rig->role == RIG_A && !value && i < 60000; i++) {
		OK(rig, ibv_read_counters(count.counters, &value, 1, 0));
		usleep(1000);
	}
	if (rig->role == RIG_A)
		flow = flow_make(rig, end.qp, allows);
	sends_to_5(rig, &end, 2); /* a rule of an earlier priority lets it pass */
	if (rig->role == RIG_B) /* whose process looks at the rules, too, when it takes the frame */
		frame_expect(&end, end.qp->qp_num, 2);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, ibv_destroy_flow(flow));
		OK(rig, ibv_destroy_flow(mine));
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		mine = flow_make(rig, end.qp, counted);
	sends_to_5(rig, &end, 3);
	if (rig->role == RIG_B) {
		frame_expect(&end, end.qp->qp_num, 3);
		wc_none(&end, end.rcq);
		OK(rig, ibv_destroy_flow(mine));
		OK(rig, ibv_destroy_flow(flow));
		OK(rig, ibv_read_counters(count.counters, &value, 1, 0));
	}
	CHECK_EQ(rig, value, 1); /* A: what it dropped; B: the last one */
	OK(rig, ibv_destroy_counters(count.counters));
	rig_sync(rig);
	end_close(&end);
}

/* ------------------------------------------------------------------ completions */

static void checksums(struct rig *rig)
{
	struct ibv_flow *flow = NULL;
	struct ibv_wc wc;
	struct end end;

	raw_open(&end, rig);
	if (rig->role == RIG_B) {
		flow = flow_make(rig, end.qp, rule_to(5, 0));
		for (uint64_t id = 0; id < 4; id++)
			receive_post(&end, end.qp, id);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		udp_send(&end, 1, 0);
		udp_send(&end, 2, IBV_SEND_IP_CSUM);
		frame_send(&end, 5, 3);
	} else {
		wc = completion_wait(&end, end.rcq);
		CHECK(rig, !(wc.wc_flags & IBV_WC_IP_CSUM_OK)); /* the header's is 0 */
		wc = completion_wait(&end, end.rcq);
		CHECK(rig, wc.wc_flags & IBV_WC_IP_CSUM_OK);
		const uint8_t *at = end.buf + RECEIVES + 256;

		CHECK(rig, (at[24] || at[25]) && (at[UDP_AT + 6] || at[UDP_AT + 7]));
		wc = completion_wait(&end, end.rcq);
		CHECK(rig, !(wc.wc_flags & IBV_WC_IP_CSUM_OK)); /* no IP */
		OK(rig, ibv_destroy_flow(flow));
	}
	rig_sync(rig);
	end_close(&end);
}

/* B's queue pair takes VLAN tags out, and its CQ reports tags of both kinds. */
struct tags {
	struct end end;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
};

static void tags_open(struct tags *t, struct rig *rig)
{
	struct ibv_flow_spec_action_tag tag = {.type = IBV_FLOW_SPEC_ACTION_TAG,
					       .tag_id = 0xabcdef};
	struct ibv_cq_init_attr_ex cq = {.cqe = 16,
					 .wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
						     IBV_WC_EX_WITH_CVLAN |
						     IBV_WC_EX_WITH_FLOW_TAG};
	struct rule rule = rule_to(5, 0);

	CHECK(rig, (t->cq = ibv_create_cq_ex(rig->ctx, &cq)));
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = t->end.scq,
		.recv_cq = ibv_cq_ex_to_cq(t->cq),
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = {.max_recv_wr = 4, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING,
		.pd = t->end.pd,
	};

	CHECK(rig, (t->qp = ibv_create_qp_ex(rig->ctx, &attr)));
	raw_ready(rig, t->qp);
	receive_post(&t->end, t->qp, 0);
	rule_add(&rule, &tag, sizeof(tag));
	t->flow = flow_make(rig, t->qp, rule);
}

static void tags(struct rig *rig)
{
	struct ibv_poll_cq_attr poll = {0};
	struct tags t;

	raw_open(&t.end, rig);
	if (rig->role == RIG_B)
		tags_open(&t, rig);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		frame_write(&t.end, 2, 5, 9);
		memmove(t.end.buf + 16, t.end.buf + 12, FRAME);
		put_16(t.end.buf + 12, 0x8100);
		put_16(t.end.buf + 14, 0x6123);
		frame_post(&t.end, t.end.qp, 1, FRAME + 4, 0);
		wc_expect(&t.end, t.end.scq, 1, IBV_WC_SUCCESS);
	} else {
		struct patience patience = patience_of(RIG_SOON_MS);

		while (ibv_start_poll(t.cq, &poll))
			CHECK(rig, !patience_over(&patience));
		CHECK_EQ(rig, ibv_wc_read_byte_len(t.cq), FRAME);
		CHECK_EQ(rig, ibv_wc_read_cvlan(t.cq), 0x6123);
		CHECK_EQ(rig, ibv_wc_read_flow_tag(t.cq), 0xabcdef);
		ibv_end_poll(t.cq);
		CHECK(rig, pattern_holds(t.end.buf + RECEIVES + 14, FRAME - 14, 9));
		OK(rig, ibv_destroy_flow(t.flow));
		OK(rig, ibv_destroy_qp(t.qp));
		OK(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(t.cq)));
	}
	rig_sync(rig);
	end_close(&t.end);
}

/* Requests that are built by ibv_wr_send(). */
static void builder(struct rig *rig)
{
	struct ibv_flow *flow = NULL;
	struct end end;

	raw_open(&end, rig);
	if (rig->role == RIG_B) {
		flow = flow_make(rig, end.qp, rule_to(5, 0));
		receive_post(&end, end.qp, 0);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct ibv_qp_init_attr_ex attr = {
			.send_cq = end.scq,
			.recv_cq = end.rcq,
			.qp_type = IBV_QPT_RAW_PACKET,
			.cap = {.max_send_wr = 4, .max_send_sge = 1},
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = end.pd,
			.send_ops_flags = IBV_QP_EX_WITH_SEND,
		};
		struct ibv_qp *qp = ibv_create_qp_ex(rig->ctx, &attr);

		CHECK(rig, qp);
		raw_ready(rig, qp);
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

		frame_write(&end, 2, 5, 4);
		ibv_wr_start(ex);
		ex->wr_id = 4;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, end.mr->lkey, (uintptr_t)end.buf, FRAME);
		OK(rig, ibv_wr_complete(ex));
		struct ibv_wc wc = completion_wait(&end, end.scq);

		CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.wr_id, 4);
		OK(rig, ibv_destroy_qp(qp));
	} else {
		frame_expect(&end, end.qp->qp_num, 4);
		OK(rig, ibv_destroy_flow(flow));
	}
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test raw_spread_tests[] = {
	{"spread", spread}, {"wq_states", wq_states}, {"wq_overrun", wq_overrun},
	{"counts", counts}, {"leaving", leaving},     {"checksums", checksums},
	{"tags", tags},	    {"builder", builder},     {NULL, NULL},
};
