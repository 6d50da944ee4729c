/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester, rule by rule: the packets it sends for posted requests and received responses. */
#include <stdio.h>
#include <string.h>

#include "stage.h"

#define P(n) (SQ_PSN + (n))
enum { MS = 1000000, ACK = AETH_ACK | AETH_NO_CREDITS };
/* The transport timer of timeout 14. */
#define TIMEOUT_NS (4096ull << 14)

static void segments(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 2 * MTU + 1, TP_SOLICITED);
	post(s, IBV_WR_RDMA_WRITE_WITH_IMM, 2 * MTU, 0);
	post(s, IBV_WR_SEND, 0, 0);
	post(s, IBV_WR_RDMA_WRITE, 3, 0);
	post(s, IBV_WR_SEND_WITH_INV, MTU, 0);
	sends(s, OP_SEND_FIRST, P(0));
	assert_int_equal(s->out.length, MTU);
	assert_false(s->out.ack_request || s->out.solicited);
	sends(s, OP_SEND_MIDDLE, P(1));
	sends(s, OP_SEND_LAST, P(2));
	assert_int_equal(s->out.length, 1);
	assert_true(s->out.ack_request && s->out.solicited);
	sends(s, OP_WRITE_FIRST, P(3));
	assert_int_equal(s->out.dma_length, 2 * MTU);
	assert_int_equal(s->out.addr, 1000);
	assert_int_equal(s->out.rkey, 77);
	sends(s, OP_WRITE_LAST_IMM, P(4));
	assert_int_equal(s->out.length, MTU);
	sends(s, OP_SEND_ONLY, P(5));
	assert_int_equal(s->out.length, 0);
	assert_true(s->out.ack_request);
	sends(s, OP_WRITE_ONLY, P(6));
	sends(s, OP_SEND_ONLY_INVALIDATE, P(7));
	assert_int_equal(s->out.rkey, 77);
	sends_nothing(s);
	says(s, "");
	acknowledges(s, P(4), ACK, 2); /* one for two messages */
	says(s, "done 0 0, done 1 0");
	acknowledges(s, P(7), ACK, 5);
	says(s, "done 2 0, done 3 0, done 4 0");
	assert_int_equal(tp_deadline(s->tp), TP_NEVER);
	stage_end(s);
}

/* Posts a WRITE and expects it whole: its first packet has the range. */
static void writes_whole(struct stage *s, uint32_t packets, uint32_t psn)
{
	uint32_t length = packets * MTU - 1;

	post(s, IBV_WR_RDMA_WRITE, length, 0);
	sends(s, OP_WRITE_FIRST, psn);
	assert_int_equal(s->out.dma_length, length);
	for (uint32_t i = 1; i < packets - 1; i++)
		sends(s, OP_WRITE_MIDDLE, psn + i);
	sends(s, OP_WRITE_LAST, psn + packets - 1);
	sends_nothing(s);
}

/* ... and in pieces: each has its own address and length; only the last asks. */
static void writes_in_pieces(struct stage *s, uint32_t packets, uint32_t psn)
{
	uint32_t length = packets * MTU - 1;

	post(s, IBV_WR_RDMA_WRITE, length, 0);
	for (uint32_t i = 0; i < packets; i++) {
		uint32_t n = i == packets - 1 ? MTU - 1 : MTU;

		sends(s, OP_WRITE_ONLY, psn + i);
		assert_int_equal(s->out.addr, 1000 + i * MTU);
		assert_int_equal(s->out.dma_length, n);
		assert_int_equal(s->out.length, n);
		assert_int_equal(s->out.rkey, 77);
		assert_int_equal(s->out.ack_request, i == packets - 1);
	}
	sends_nothing(s);
}

/* A WRITE goes in pieces once the peer has executed WRITEs to all of its range. */
static void write_in_pieces(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	peer_drops(s);
	s->tp->congestion.window = TP_WINDOW_MAX;
	writes_whole(s, 3, P(0));
	writes_whole(s, 3, P(3)); /* the one before isn't acknowledged yet */
	acknowledges(s, P(5), ACK, 2);
	writes_in_pieces(s, 3, P(6));
	/* One request, three messages: some are acknowledged, lost ones are repeated. */
	acknowledges(s, P(6), ACK, 3);
	says(s, "done 0 0, done 1 0");
	acknowledges(s, P(7), AETH_NAK | NAK_SEQUENCE, 3);
	sends(s, OP_WRITE_ONLY, P(7));
	assert_int_equal(s->out.addr, 1000 + MTU);
	sends(s, OP_WRITE_ONLY, P(8));
	acknowledges(s, P(8), ACK, 5);
	says(s, "done 2 0");
	writes_whole(s, 4, P(9)); /* one packet more than has been accepted */
	acknowledges(s, P(12), ACK, 6);
	writes_in_pieces(s, 4, P(13));
	acknowledges(s, P(14), AETH_NAK | NAK_REMOTE_ACCESS, 7);
	says(s, "done 3 0, done 4 10");
	stage_end(s);
}

/* Long WRITEs and those with immediate data are whole, and so are UC's. */
static void write_whole(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->tp->congestion.window = TP_WINDOW_MAX;
	for (uint32_t i = 0; i < 2; i++) {
		writes_whole(s, TP_PIECES_MAX + 1, P(i * (TP_PIECES_MAX + 1)));
		acknowledges(s, P((i + 1) * (TP_PIECES_MAX + 1) - 1), ACK, 1 + i);
	}
	says(s, "done 0 0, done 1 0");
	uint32_t psn = P(2 * (TP_PIECES_MAX + 1));

	writes_in_pieces(s, TP_PIECES_MAX, psn);
	psn += TP_PIECES_MAX;
	post(s, IBV_WR_RDMA_WRITE_WITH_IMM, 2 * MTU, 0);
	sends(s, OP_WRITE_FIRST, psn);
	sends(s, OP_WRITE_LAST_IMM, psn + 1);
	stage_end(s);
	s = stage_begin(IBV_QPT_UC);
	writes_whole(s, 3, P(0));
	writes_whole(s, 3, P(3));
	says(s, "done 0 0, done 1 0");
	stage_end(s);
}

/* Another range, or another key, replaces the known one; what continues it extends it. */
static void accepted_ranges(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t key;
		bool in_pieces;
	} writes[] = {
		{0, 1, false},
		{0, 1, true},
		{2 * MTU, 1, false},
		{MTU, 1, true},
		{0, 1, true},
		{2 * MTU, 1, true},
		{8 * MTU, 1, false},
		{MTU, 1, false},
		{3 * MTU, 1, false},
		{MTU, 1, true},
		{2 * MTU, 1, true},
		{2 * MTU, 2, false},
		{2 * MTU, 2, true},
		{2 * MTU, 1, false},
		{0, 1, false},
		{MTU, 1, true},
		{-3ull * MTU, 1, false},
		{-MTU, 1, false},
		{-MTU, 1, false},
	};
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		struct tp_request *r = &s->ring[s->posted % PLACES];

		*r = (struct tp_request){.opcode = IBV_WR_RDMA_WRITE,
					 .remote_addr = writes[i].addr,
					 .length = 2 * MTU,
					 .rkey = writes[i].key};
		s->posted++;
		tp_post(s->tp);
		sends(s, writes[i].in_pieces ? OP_WRITE_ONLY : OP_WRITE_FIRST, P(2 * i));
		sends(s, writes[i].in_pieces ? OP_WRITE_ONLY : OP_WRITE_LAST, P(2 * i + 1));
		acknowledges(s, P(2 * i + 1), ACK, i);
		char done[32];

		snprintf(done, sizeof(done), "done %u 0", i);
		says(s, done);
	}
	stage_end(s);
}

static void psn_wraps(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.sq_psn = 0xfffffe;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	peer_drops(s);
	post(s, IBV_WR_SEND, 4 * MTU, 0);
	post(s, IBV_WR_RDMA_READ, 2 * MTU, 0);
	sends(s, OP_SEND_FIRST, 0xfffffe);
	sends(s, OP_SEND_MIDDLE, 0xffffff);
	sends(s, OP_SEND_MIDDLE, 0);
	sends(s, OP_SEND_LAST, 1);
	sends(s, OP_READ_REQUEST, 2);
	acknowledges(s, 0, AETH_NAK | NAK_SEQUENCE, 0); /* has 0xfffffe and 0xffffff */
	sends(s, OP_SEND_MIDDLE, 0);
	sends(s, OP_SEND_LAST, 1);
	sends(s, OP_READ_REQUEST, 2);
	ARRIVES(s, .opcode = OP_READ_RESPONSE_FIRST, .psn = 2, .syndrome = ACK, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_LAST, .psn = 3, .syndrome = ACK, PAYLOAD(MTU));
	says(s, "deliver 1 0+256, done 0 0, deliver 1 256+256 last, done 1 0");
	sends_nothing(s);
	stage_end(s);
}

static void goes_back_once(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	peer_drops(s);
	for (int i = 0; i < 4; i++)
		post(s, IBV_WR_SEND, 1, 0);
	for (uint32_t i = 0; i < 4; i++)
		sends(s, OP_SEND_ONLY, P(i));
	s->now += 100000;
	acknowledges(s, P(1), AETH_NAK | NAK_SEQUENCE, 1);
	says(s, "done 0 0");
	sends(s, OP_SEND_ONLY, P(1));
	sends(s, OP_SEND_ONLY, P(2));
	acknowledges(s, P(1), AETH_NAK | NAK_SEQUENCE, 1); /* a copy of the NAK */
	sends(s, OP_SEND_ONLY, P(3));
	sends_nothing(s);
	acknowledges(s, P(0), AETH_NAK | NAK_SEQUENCE, 1); /* stale */
	acknowledges(s, P(9), AETH_NAK | NAK_SEQUENCE, 1); /* never sent */
	acknowledges(s, P(4), ACK, 1);			   /* a ghost acknowledgement */
	sends_nothing(s);
	says(s, "");
	acknowledges(s, P(3), ACK, 4);
	acknowledges(s, P(3), ACK, 4);
	says(s, "done 1 0, done 2 0, done 3 0");
	assert_int_equal(tp_counters(s->tp)->resent, 3);
	stage_end(s);
}

/* A peer that keeps out-of-order packets needs only the missing packet. */
static void repeats_one_alone(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (int i = 0; i < 5; i++)
		post(s, IBV_WR_SEND, 1, 0);
	for (uint32_t i = 0; i < 5; i++)
		sends(s, OP_SEND_ONLY, P(i));
	s->now += 100000;
	acknowledges(s, P(1), AETH_NAK | NAK_SEQUENCE, 1);
	says(s, "done 0 0");
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(1));
	assert_true(s->out.ack_request);
	sends(s, OP_SEND_ONLY, P(5));			   /* what is new goes on */
	acknowledges(s, P(1), AETH_NAK | NAK_SEQUENCE, 1); /* a copy of the NAK */
	sends_nothing(s);
	acknowledges(s, P(3), AETH_NAK | NAK_SEQUENCE, 3); /* the next gap */
	says(s, "done 1 0, done 2 0");
	sends(s, OP_SEND_ONLY, P(3));
	sends_nothing(s);
	acknowledges(s, P(5), ACK, 6);
	says(s, "done 3 0, done 4 0, done 5 0");
	assert_int_equal(tp_counters(s->tp)->resent, 2);
	assert_int_equal(tp_deadline(s->tp), TP_NEVER);
	stage_end(s);
}

/* A peer that drops them has nothing after the repeated packet: all is sent again, and after a few
 * such losses at once. */
static void learns_that_the_peer_drops(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	uint32_t psn = 0;

	(void)state;
	for (uint32_t tries = 0; tries <= TP_REPAIRS_MAX; tries++, psn += 3) {
		for (int i = 0; i < 3; i++)
			post(s, IBV_WR_RDMA_WRITE, 1, 0);
		for (uint32_t i = 0; i < 3; i++)
			sends(s, OP_WRITE_ONLY, P(psn + i));
		s->now += MS;
		acknowledges(s, P(psn), AETH_NAK | NAK_SEQUENCE, 0);
		sends(s, OP_WRITE_ONLY, P(psn));
		if (tries < TP_REPAIRS_MAX) {
			sends_nothing(s);
			acknowledges(s, P(psn), ACK, 1);
		}
		sends(s, OP_WRITE_ONLY, P(psn + 1));
		sends(s, OP_WRITE_ONLY, P(psn + 2));
		sends_nothing(s);
		acknowledges(s, P(psn + 2), ACK, 3);
		s->said[0] = '\0';
	}
	stage_end(s);
}

/* The repeated packet is lost, too: the probe repeats only that packet. */
static void repairs_again(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (int i = 0; i < 3; i++)
		post(s, IBV_WR_SEND, 1, 0);
	for (uint32_t i = 0; i < 3; i++)
		sends(s, OP_SEND_ONLY, P(i));
	acknowledges(s, P(0), AETH_NAK | NAK_SEQUENCE, 0);
	sends(s, OP_SEND_ONLY, P(0));
	sends_nothing(s);
	passes(s, TIMEOUT_NS);
	sends(s, OP_SEND_ONLY, P(0));
	sends_nothing(s);
	acknowledges(s, P(2), ACK, 3);
	says(s, "done 0 0, done 1 0, done 2 0");
	assert_int_equal(tp_counters(s->tp)->timeouts, 0);
	stage_end(s);
}

static void nak_ends_it(void **state)
{
	static const struct {
		uint8_t nak;
		const char *said;
	} cases[] = {
		{NAK_INVALID_REQUEST, "done 0 0, done 1 9"},
		{NAK_REMOTE_ACCESS, "done 0 0, done 1 10"},
		{NAK_REMOTE_OPERATION, "done 0 0, done 1 11"},
	};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct stage *s = stage_begin(IBV_QPT_RC);

		for (int n = 0; n < 3; n++)
			post(s, IBV_WR_RDMA_WRITE, 2 * MTU, 0);
		for (uint32_t n = 0; n < 6; n++)
			sends(s, n & 1 ? OP_WRITE_LAST : OP_WRITE_FIRST, P(n));
		acknowledges(s, P(2), AETH_NAK | cases[i].nak, 1);
		says(s, cases[i].said);
		acknowledges(s, P(5), ACK, 3);
		sends_nothing(s);
		assert_int_equal(tp_deadline(s->tp), TP_NEVER);
		stage_end(s);
	}
}

static void rnr_waits_and_gives_up(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.rnr_retry = 2;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 1, 0);
	for (int i = 0; i < 2; i++) {
		sends(s, OP_SEND_ONLY, P(0));
		sends(s, OP_SEND_ONLY, P(1));
		acknowledges(s, P(0), AETH_RNR_NAK | 14, 0);
		acknowledges(s, P(0), AETH_RNR_NAK | 14, 0); /* doesn't count twice */
		acknowledges(s, P(0), AETH_NAK | NAK_SEQUENCE, 0);
		sends_nothing(s);
		assert_int_equal(tp_deadline(s->tp), s->now + 1280000);
		passes(s, 1279999);
		sends_nothing(s);
		passes(s, 1);
	}
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(0), AETH_RNR_NAK | 14, 0);
	says(s, "done 0 13");
	sends_nothing(s);
	stage_end(s);
}

static void rnr_retries_begin_anew(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.rnr_retry = 1;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	for (uint32_t i = 0; i < 3; i++) {
		post(s, IBV_WR_SEND, 1, 0);
		sends(s, OP_SEND_ONLY, P(i));
		acknowledges(s, P(i), AETH_RNR_NAK | 1, i);
		passes(s, 10000);
		sends(s, OP_SEND_ONLY, P(i));
		acknowledges(s, P(i), ACK, i + 1);
	}
	says(s, "done 0 0, done 1 0, done 2 0");
	stage_end(s);
}

/* rnr_retry 7: no limit. */
static void rnr_seven(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	for (int i = 0; i < 100; i++) {
		sends(s, OP_SEND_ONLY, P(0));
		acknowledges(s, P(0), AETH_RNR_NAK | 1, 0);
		passes(s, 10000);
	}
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(0), ACK, 1);
	says(s, "done 0 0");
	stage_end(s);
}

/* No answer: the first packet, then `retries` repetitions, each one timeout after the other. A
 * timeout is four times the program's, but at most 12 ms longer than that. */
static void gives_up_at(uint8_t timeout, uint8_t retries)
{
	struct ibv_qp_attr attr = stage_attr;
	uint8_t packet[WIRE_PACKET_MAX];

	attr.timeout = timeout;
	attr.retry_cnt = retries;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);
	uint64_t begun = s->now, ns = 4096ull << timeout;
	uint64_t end = (4 * ns < ns + 12000000 ? 4 * ns : ns + 12000000) * (retries + 1u);

	post(s, IBV_WR_SEND, 1, 0);
	while (!s->said[0]) {
		while (tp_next(s->tp, s->now, packet))
			;
		assert_int_not_equal(tp_deadline(s->tp), TP_NEVER);
		passes(s, tp_deadline(s->tp) - s->now);
	}
	says(s, "done 0 12");
	assert_int_equal(s->now - begun, end);
	assert_int_equal(tp_counters(s->tp)->timeouts, retries + 1u);
	stage_end(s);
}

static void retries_are_counted(void **state)
{
	(void)state;
	gives_up_at(14, 7);
	gives_up_at(14, 0);
	gives_up_at(10, 3);
	gives_up_at(18, 1);
}

/* An acknowledgement restores all retries. */
static void progress_renews_retries(void **state)
{
	struct ibv_qp_attr attr = stage_attr;
	uint8_t packet[WIRE_PACKET_MAX];

	(void)state;
	attr.timeout = 8;
	attr.retry_cnt = 1;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	for (uint32_t i = 0; i < 3; i++) {
		uint64_t timeouts = tp_counters(s->tp)->timeouts;

		post(s, IBV_WR_SEND, 1, 0);
		while (tp_counters(s->tp)->timeouts == timeouts) {
			while (tp_next(s->tp, s->now, packet))
				;
			passes(s, tp_deadline(s->tp) - s->now);
		}
		while (tp_next(s->tp, s->now, packet))
			;
		acknowledges(s, P(i), ACK, i + 1);
	}
	says(s, "done 0 0, done 1 0, done 2 0");
	stage_end(s);
}

/* Of two acknowledgements that were reordered the newer one's credits count. */
static void stale_credits(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		post(s, IBV_WR_SEND, 1, 0);
		sends(s, OP_SEND_ONLY, P(i));
	}
	acknowledges(s, P(2), AETH_ACK | 4, 3);
	acknowledges(s, P(2), AETH_ACK | 0, 2);
	says(s, "done 0 0, done 1 0, done 2 0");
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(3));
	sends(s, OP_SEND_ONLY, P(4));
	stage_end(s);
}

static void timeout_zero_never_gives_up(void **state)
{
	struct ibv_qp_attr attr = stage_attr;
	uint8_t packet[WIRE_PACKET_MAX];

	(void)state;
	attr.timeout = 0;
	attr.retry_cnt = 0;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	post(s, IBV_WR_SEND, 1, 0);
	for (int i = 0; i < 1000; i++) {
		while (tp_next(s->tp, s->now, packet))
			;
		passes(s, tp_deadline(s->tp) - s->now);
	}
	says(s, "");
	assert_true(s->now > 1000000000000ull); /* and seldom asks */
	stage_end(s);
}

/* A running timer keeps its old duration. */
static void timeout_changes(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.retry_cnt = 0;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	attr.timeout = 0;
	tp_change(s->tp, &attr, IBV_QP_TIMEOUT);
	for (int i = 0; i < 20; i++) {
		passes(s, TIMEOUT_NS);
		while (tp_ready(s->tp, s->now))
			sends(s, OP_SEND_ONLY, P(0));
	}
	says(s, "");
	attr.timeout = 10;
	tp_change(s->tp, &attr, IBV_QP_TIMEOUT);
	for (int i = 0; i < 20 && !s->said[0]; i++) {
		passes(s, 10000ull * MS);
		if (tp_ready(s->tp, s->now))
			sends(s, OP_SEND_ONLY, P(0));
	}
	says(s, "done 0 12");
	stage_end(s);
}

/* The end of a window is lost: the probe repeats the oldest packet, and its answer shows that the
 * rest is missing. */
static void probe_finds_lost_end(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	s->now += 100000;
	acknowledges(s, P(0), ACK, 1); /* now the round trip is known */
	for (uint32_t i = 1; i < 4; i++) {
		post(s, IBV_WR_SEND, 1, 0);
		sends(s, OP_SEND_ONLY, P(i));
	}
	uint64_t begun = s->now;

	passes(s, TIMEOUT_NS);
	assert_true(s->now - begun <= 2 * MS);
	sends(s, OP_SEND_ONLY, P(1));
	assert_true(s->out.ack_request);
	sends_nothing(s);
	acknowledges(s, P(1), ACK, 2);
	sends(s, OP_SEND_ONLY, P(2));
	sends(s, OP_SEND_ONLY, P(3));
	acknowledges(s, P(3), ACK, 4);
	says(s, "done 0 0, done 1 0, done 2 0, done 3 0");
	assert_int_equal(tp_counters(s->tp)->timeouts, 0);
	stage_end(s);
}

/* One probe is sent before each expiry of the transport timer, whatever the round trip is. */
static void probe_precedes_timeout(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.retry_cnt = 0;
	attr.timeout = 11; /* 8.4 ms; nothing is known of the round trip yet */
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	passes(s, (4096ull << 11) - 1);
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(0), ACK, 1);
	says(s, "done 0 0");
	stage_end(s);
}

/* Only the acknowledgement is lost: only the probe is repeated. */
static void probe_finds_lost_acknowledgement(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		post(s, IBV_WR_SEND, 1, 0);
		sends(s, OP_SEND_ONLY, P(i));
	}
	passes(s, TIMEOUT_NS / 2);
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(2), ACK, 3);
	says(s, "done 0 0, done 1 0, done 2 0");
	sends_nothing(s);
	assert_int_equal(tp_counters(s->tp)->resent, 1);
	stage_end(s);
}

/* More than one packet is missing: a burst is repeated, and after the next loss at once. */
static void repeats_a_hole(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	const uint32_t packets = TP_BURST / MTU + 9;

	(void)state;
	s->tp->congestion.window = TP_WINDOW_MAX;
	s->tp->congestion.rtt_ns = MS;
	post(s, IBV_WR_RDMA_WRITE, packets * MTU, 0);
	sends(s, OP_WRITE_FIRST, P(0));
	for (uint32_t i = 1; i < packets - 1; i++)
		sends(s, OP_WRITE_MIDDLE, P(i));
	sends(s, OP_WRITE_LAST, P(packets - 1));
	acknowledges(s, P(1), AETH_NAK | NAK_SEQUENCE, 0);
	sends(s, OP_WRITE_MIDDLE, P(1));
	sends_nothing(s);
	acknowledges(s, P(1), ACK, 0);
	for (uint32_t i = 2; i < TP_BURST / MTU + 2; i++) {
		sends(s, OP_WRITE_MIDDLE, P(i));
		assert_int_equal(s->out.ack_request, i == TP_BURST / MTU + 1);
		if (i == 5) /* in flight already */
			acknowledges(s, P(3), AETH_NAK | NAK_SEQUENCE, 0);
	}
	sends_nothing(s);
	acknowledges(s, P(TP_BURST / MTU + 4), AETH_NAK | NAK_SEQUENCE, 0);
	for (uint32_t i = TP_BURST / MTU + 4; i < packets - 1; i++)
		sends(s, OP_WRITE_MIDDLE, P(i));
	sends(s, OP_WRITE_LAST, P(packets - 1));
	sends_nothing(s);
	acknowledges(s, P(packets - 1), ACK, 1);
	says(s, "done 0 0");
	stage_end(s);
}

/* The memory of a request in the hole is deregistered before it is repeated: neither it nor what
 * follows is repeated, and the core doesn't report that it has packets to send. The request fails
 * in its turn. */
static void repeats_what_is_there(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->tp->congestion.window = TP_WINDOW_MAX;
	for (uint32_t i = 0; i < 4; i++) {
		post(s, IBV_WR_SEND, MTU, 0);
		sends(s, OP_SEND_ONLY, P(i));
	}
	acknowledges(s, P(0), AETH_NAK | NAK_SEQUENCE, 0);
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(0), ACK, 1);
	says(s, "done 0 0");
	sends(s, OP_SEND_ONLY, P(1));
	s->no_fetch = true;
	sends_nothing(s);
	s->no_fetch = false;
	post(s, IBV_WR_SEND, MTU, 0);
	sends_nothing(s); /* the peer would drop it */
	passes(s, 1000 * MS);
	sends(s, OP_SEND_ONLY, P(1));
	assert_true(s->out.ack_request);
	sends_nothing(s);
	acknowledges(s, P(1), ACK, 2);
	says(s, "done 1 0, done 2 4");
	stage_end(s);
}

/* While a packet is missing, a repeated acknowledgement says that others arrive. */
static void goes_on_meanwhile(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->tp->congestion.window = 4 * (MTU + TP_PACKET_COST);
	for (int i = 0; i < 9; i++)
		post(s, IBV_WR_SEND, MTU, 0);
	for (uint32_t i = 0; i < 4; i++)
		sends(s, OP_SEND_ONLY, P(i));
	sends_nothing(s);
	acknowledges(s, P(0), AETH_NAK | NAK_SEQUENCE, 0);
	s->tp->congestion.window = 4 * (MTU + TP_PACKET_COST);
	sends(s, OP_SEND_ONLY, P(0));
	sends_nothing(s);
	acknowledges(s, P(-1), ACK, 0);
	sends(s, OP_SEND_ONLY, P(4));
	sends_nothing(s);
	for (int i = 0; i < 9; i++)
		acknowledges(s, P(-1), ACK, 0);
	for (uint32_t i = 5; i < 8; i++)
		sends(s, OP_SEND_ONLY, P(i));
	sends_nothing(s); /* one more window, no more */
	acknowledges(s, P(7), ACK, 8);
	s->said[0] = '\0';
	sends(s, OP_SEND_ONLY, P(8));
	acknowledges(s, P(8), ACK, 9);
	says(s, "done 8 0");
	stage_end(s);
}

/* Packets that the peer has no room for while one is missing are sent again without a request. */
static void sends_what_is_not_kept(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->tp->congestion.window = TP_WINDOW_MAX;
	post(s, IBV_WR_RDMA_WRITE, (EARLY_MAX + 5) * MTU, 0);
	sends(s, OP_WRITE_FIRST, P(0));
	for (uint32_t i = 1; i < EARLY_MAX + 4; i++)
		sends(s, OP_WRITE_MIDDLE, P(i));
	sends(s, OP_WRITE_LAST, P(EARLY_MAX + 4));
	acknowledges(s, P(2), AETH_NAK | NAK_SEQUENCE, 0);
	sends(s, OP_WRITE_MIDDLE, P(2));
	for (uint32_t i = EARLY_MAX + 2; i < EARLY_MAX + 4; i++)
		sends(s, OP_WRITE_MIDDLE, P(i));
	sends(s, OP_WRITE_LAST, P(EARLY_MAX + 4));
	sends_nothing(s);
	acknowledges(s, P(EARLY_MAX + 4), ACK, 1);
	says(s, "done 0 0");
	assert_int_equal(tp_under_way(s->tp), 0);
	stage_end(s);
}

/* On a path with a long round trip a window is sent in bursts, spread over it; otherwise at
 * once. */
static void paces(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	struct congestion *c = &s->tp->congestion;
	const uint32_t packets = 1024;
	uint32_t sent = 0, bursts = 0;

	(void)state;
	s->now = 1000 * MS;
	c->window = c->threshold = packets * (MTU + TP_PACKET_COST);
	c->rtt_ns = c->own_rtt_ns = 10 * MS;
	post(s, IBV_WR_RDMA_WRITE, packets * MTU, 0);
	for (uint64_t end = s->now + 11 * MS; s->now < end && sent < packets; bursts++) {
		uint32_t before = sent;

		while (tp_next(s->tp, s->now, s->sent))
			sent++;
		assert_true(sent > before);
		assert_true((sent - before - 1) * (MTU + TP_PACKET_COST) < 2 * PACER_BURST);
		if (sent == packets)
			break;
		assert_false(tp_ready(s->tp, s->now));
		assert_true(tp_deadline(s->tp) > s->now);
		s->now = tp_deadline(s->tp);
		tp_expire(s->tp, s->now);
		pull_events(s);
	}
	assert_int_equal(sent, packets);
	assert_true(bursts > 5);
	acknowledges(s, P(packets - 1), ACK, 1);
	c->own_rtt_ns = PACER_RTT_NS - 1;
	c->window = packets * (MTU + TP_PACKET_COST);
	post(s, IBV_WR_RDMA_WRITE, packets * MTU, 0);
	for (uint32_t i = 0; i < packets; i++)
		assert_true(tp_next(s->tp, s->now, s->sent) != 0);
	s->said[0] = '\0';
	stage_end(s);
}

/* The window shrinks by an eighth, once per round trip however many marks arrive. */
static void congestion_is_told(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	struct congestion *c = &s->tp->congestion;

	(void)state;
	c->window = 1 << 20;
	c->rtt_ns = 1000;
	tp_congested(s->tp, 5000);
	assert_int_equal(c->window, (1 << 20) - (1 << 17));
	tp_congested(s->tp, 5999);
	assert_int_equal(c->window, (1 << 20) - (1 << 17));
	tp_congested(s->tp, 6000);
	assert_int_equal(c->window, ((1 << 20) - (1 << 17)) / 8 * 7);
	for (uint64_t now = 7000; now < 200000; now += 1000)
		tp_congested(s->tp, now);
	assert_int_equal(c->window, CONGESTION_FLOOR);
	assert_int_equal(tp_counters(s->tp)->congested, 3 + 193);
	stage_end(s);
}

static void read_in_pieces(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	uint32_t piece = TP_READ_PIECE / MTU;

	(void)state;
	post(s, IBV_WR_RDMA_READ, TP_READ_PIECE + MTU, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_READ_REQUEST, P(0));
	assert_int_equal(s->out.dma_length, TP_READ_PIECE);
	assert_int_equal(s->out.addr, 1000);
	s->tp->congestion.window = TP_WINDOW_MAX;
	sends(s, OP_READ_REQUEST, P(piece));
	assert_int_equal(s->out.dma_length, MTU);
	assert_int_equal(s->out.addr, 1000 + TP_READ_PIECE);
	sends(s, OP_SEND_ONLY, P(piece + 1));
	for (uint32_t i = 0; i < piece; i++)
		ARRIVES(s,
			.opcode = i == 0	   ? OP_READ_RESPONSE_FIRST
				  : i == piece - 1 ? OP_READ_RESPONSE_LAST
						   : OP_READ_RESPONSE_MIDDLE,
			.psn = P(i), .syndrome = ACK, PAYLOAD(MTU));
	assert_non_null(strstr(s->said, "deliver 0 0+256, deliver 0 256+256, "));
	s->said[0] = '\0';
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(piece), .syndrome = ACK, PAYLOAD(MTU));
	says(s, "deliver 0 1048576+256 last, done 0 0");
	acknowledges(s, P(piece + 1), ACK, 3);
	says(s, "done 1 0");
	stage_end(s);
}

/* A response is lost: only the rest is requested, once. */
static void read_rest_is_asked_for(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_RDMA_READ, 5 * MTU - 1, 0);
	sends(s, OP_READ_REQUEST, P(0));
	s->now += 100000;
	ARRIVES(s, .opcode = OP_READ_RESPONSE_FIRST, .psn = P(0), .syndrome = ACK, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_MIDDLE, .psn = P(2), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_MIDDLE, .psn = P(3), PAYLOAD(MTU));
	sends(s, OP_READ_REQUEST, P(1));
	assert_int_equal(s->out.addr, 1000 + MTU);
	assert_int_equal(s->out.dma_length, 4 * MTU - 1);
	ARRIVES(s, .opcode = OP_READ_RESPONSE_LAST, .psn = P(4), .syndrome = ACK, PAYLOAD(MTU - 1));
	sends_nothing(s);
	says(s, "deliver 0 0+256");
	ARRIVES(s, .opcode = OP_READ_RESPONSE_FIRST, .psn = P(1), .syndrome = ACK, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_FIRST, .psn = P(1), .syndrome = ACK, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_MIDDLE, .psn = P(2), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_MIDDLE, .psn = P(3), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_LAST, .psn = P(4), .syndrome = ACK, PAYLOAD(MTU - 1));
	says(s, "deliver 0 256+256, deliver 0 512+256, deliver 0 768+256, deliver 0 1024+255 last, "
		"done 0 0");
	stage_end(s);
}

/* An acknowledgement for a later request shows that the READ's answer was lost. */
static void implicit_nak(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	sends(s, OP_FETCH_ADD, P(1));
	sends(s, OP_SEND_ONLY, P(2));
	s->now += 100000;
	acknowledges(s, P(2), ACK, 3);
	says(s, "done 0 0");
	sends(s, OP_FETCH_ADD, P(1));
	sends(s, OP_SEND_ONLY, P(2));
	ARRIVES(s, .opcode = OP_ATOMIC_ACKNOWLEDGE, .psn = P(1), .syndrome = ACK, .original = 5);
	says(s, "deliver 1 0+8 last, done 1 0");
	acknowledges(s, P(2), ACK, 3);
	says(s, "done 2 0");
	stage_end(s);
}

static void answers_outstanding_are_bounded(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.max_rd_atomic = 2;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	for (int i = 0; i < 3; i++)
		post(s, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0);
	sends(s, OP_COMPARE_SWAP, P(0));
	sends(s, OP_COMPARE_SWAP, P(1));
	sends_nothing(s);
	ARRIVES(s, .opcode = OP_ATOMIC_ACKNOWLEDGE, .psn = P(0), .syndrome = ACK);
	sends(s, OP_COMPARE_SWAP, P(2));
	says(s, "deliver 0 0+8 last, done 0 0");
	stage_end(s);
}

static void fence(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_RDMA_READ, 0, 0);
	post(s, IBV_WR_RDMA_WRITE, 1, 0);
	post(s, IBV_WR_RDMA_WRITE, 1, TP_FENCE);
	sends(s, OP_READ_REQUEST, P(0));
	sends(s, OP_WRITE_ONLY, P(1));
	sends_nothing(s);
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(0), .syndrome = ACK);
	says(s, "deliver 0 0+0 last, done 0 0");
	sends(s, OP_WRITE_ONLY, P(2));
	stage_end(s);
}

/* ATOMIC WRITE and FLUSH complete when a READ's response without bytes comes, and count as READs.
 */
static void empty_answers(void **state)
{
	struct ibv_qp_attr attr = stage_attr;

	(void)state;
	attr.max_rd_atomic = 2;
	struct stage *s = stage_with(IBV_QPT_RC, &attr);

	post(s, IBV_WR_ATOMIC_WRITE, 8, 0);
	post(s, IBV_WR_FLUSH, 0, 0);
	s->ring[1].compare_add = 512;
	s->ring[1].swap = packet_feth(IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	post(s, IBV_WR_SEND, 1, TP_FENCE);
	sends(s, OP_ATOMIC_WRITE, P(0));
	assert_true(s->out.addr == 1000 && s->out.rkey == 77);
	assert_int_equal(s->out.length, 8);
	assert_int_equal(s->out.dma_length, 8);
	assert_int_equal(s->out.payload[7], 0xee);
	sends(s, OP_FLUSH, P(1));
	assert_true(s->out.addr == 1000 && s->out.rkey == 77);
	assert_int_equal(s->out.dma_length, 512);
	assert_int_equal(s->out.feth, 2);
	sends_nothing(s); /* the fence */
	post(s, IBV_WR_RDMA_READ, 1, 0);
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(0), .syndrome = ACK);
	says(s, "done 0 0");
	sends_nothing(s);
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(1), .syndrome = ACK);
	says(s, "done 1 0");
	sends(s, OP_SEND_ONLY, P(2));
	sends(s, OP_READ_REQUEST, P(3));
	stage_end(s);
}

/* A peer that is silent about FLUSH may be a Soft-RoCE, see wire/icrc.h: every second probe has its
 * ICRC or the right one again, and what was answered stays. Other requests don't change it. */
static void flush_tries_the_other_icrc(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	static const bool doubled[] = {false, true, true, false, false, true};

	(void)state;
	post(s, IBV_WR_FLUSH, 0, 0);
	sends(s, OP_FLUSH, P(0));
	for (size_t i = 0; i < sizeof(doubled) / sizeof(*doubled); i++) {
		passes(s, TIMEOUT_NS);
		sends(s, OP_FLUSH, P(0));
		assert_int_equal(tp_flush_doubled(s->tp), doubled[i]);
	}
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(0), .syndrome = ACK);
	says(s, "done 0 0");
	post(s, IBV_WR_SEND, 1, 0);
	for (int probes = -1; probes < 2; probes++) {
		sends(s, OP_SEND_ONLY, P(1));
		assert_true(tp_flush_doubled(s->tp));
		passes(s, TIMEOUT_NS);
	}
	stage_end(s);
}

static void empty_answers_wrong(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_ATOMIC_WRITE, 8, 0);
	sends(s, OP_ATOMIC_WRITE, P(0));
	ARRIVES(s, .opcode = OP_ATOMIC_ACKNOWLEDGE, .psn = P(0), .syndrome = ACK);
	says(s, ""); /* no answer to this request */
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(0), .syndrome = ACK, PAYLOAD(8));
	says(s, "done 0 7");
	stage_end(s);
	s = stage_begin(IBV_QPT_RC);
	s->no_fetch = true;
	post(s, IBV_WR_ATOMIC_WRITE, 8, 0);
	sends_nothing(s);
	says(s, "done 0 4");
	stage_end(s);
}

static void bad_response(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_RDMA_READ, 2 * MTU, 0);
	sends(s, OP_READ_REQUEST, P(0));
	ARRIVES(s, .opcode = OP_READ_RESPONSE_FIRST, .psn = P(0), .syndrome = ACK,
		PAYLOAD(MTU - 4));
	says(s, "done 0 7");
	stage_end(s);
}

/* IBTA 9.7.7.2.5: a message beyond the credits sends its first packet and waits. */
static void credits_limit(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(0), AETH_ACK | 1, 1); /* one more receive */
	says(s, "done 0 0");
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 3 * MTU, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(1));
	sends(s, OP_SEND_FIRST, P(2));
	assert_true(s->out.ack_request);
	sends_nothing(s);
	assert_int_equal(tp_counters(s->tp)->credit_waits, 1);
	acknowledges(s, P(1), AETH_ACK | 0, 2);
	says(s, "done 1 0");
	sends_nothing(s);
	acknowledges(s, P(2), AETH_ACK | 1, 2); /* there was a receive after all */
	sends(s, OP_SEND_MIDDLE, P(3));
	sends(s, OP_SEND_LAST, P(4));
	sends(s, OP_SEND_ONLY, P(5)); /* limited again */
	acknowledges(s, P(4), AETH_ACK | 0, 3);
	acknowledges(s, P(5), AETH_RNR_NAK | 1, 3);
	says(s, "done 2 0");
	passes(s, 10000);
	sends(s, OP_SEND_ONLY, P(5));
	/* WRITEs need no credit. */
	acknowledges(s, P(5), AETH_ACK | 0, 4);
	post(s, IBV_WR_RDMA_WRITE, 1, 0);
	post(s, IBV_WR_RDMA_WRITE, 1, 0);
	sends(s, OP_WRITE_ONLY, P(6));
	sends(s, OP_WRITE_ONLY, P(7));
	says(s, "done 3 0");
	stage_end(s);
}

/* The newest acknowledgement, repeated, has the PSN before the answers that came since. */
static void credits_repeated_after_answers(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_RDMA_READ, 4, 0);
	sends(s, OP_SEND_ONLY, P(0));
	sends(s, OP_READ_REQUEST, P(1));
	acknowledges(s, P(0), AETH_ACK | 0, 1);
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(1), .syndrome = AETH_ACK | 0, .msn = 2,
		PAYLOAD(4));
	says(s, "done 0 0, deliver 1 0+4 last, done 1 0");
	acknowledges(s, P(0), AETH_ACK | 1, 2); /* a receive was posted */
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 3 * MTU, 0);
	sends(s, OP_SEND_ONLY, P(2));
	sends(s, OP_SEND_FIRST, P(3));
	sends_nothing(s);
	stage_end(s);
}

/* A lost credit update doesn't matter: with nothing in flight one message may always be sent. */
static void credits_never_deadlock(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	acknowledges(s, P(0), AETH_ACK | 0, 1);
	for (uint32_t i = 1; i < 5; i++) {
		post(s, IBV_WR_SEND, 1, 0);
		sends(s, OP_SEND_ONLY, P(i));
		sends_nothing(s);
		acknowledges(s, P(i), AETH_ACK | 0, 1); /* a peer that doesn't count MSNs */
	}
	says(s, "done 0 0, done 1 0, done 2 0, done 3 0, done 4 0");
	stage_end(s);
}

static void drains(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	tp_drain(s->tp);
	pull_events(s);
	says(s, "drained"); /* nothing had begun */
	post(s, IBV_WR_SEND, 2 * MTU, 0);
	sends_nothing(s);
	tp_resume(s->tp);
	sends(s, OP_SEND_FIRST, P(0));
	post(s, IBV_WR_SEND, 1, 0);
	tp_drain(s->tp);
	pull_events(s);
	says(s, "");
	sends(s, OP_SEND_LAST, P(1)); /* what has begun goes on */
	sends_nothing(s);
	acknowledges(s, P(1), ACK, 1);
	says(s, "done 0 0, drained");
	sends_nothing(s);
	tp_resume(s->tp);
	sends(s, OP_SEND_ONLY, P(2));
	acknowledges(s, P(2), ACK, 2);
	says(s, "done 1 0");
	stage_end(s);
}

static void fetch_fails_in_turn(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	s->no_fetch = true;
	sends_nothing(s);
	says(s, "");
	acknowledges(s, P(0), ACK, 1);
	says(s, "done 0 0, done 1 4");
	stage_end(s);
}

/* A READ whose own segments are wrong isn't sent, and fails once earlier requests are complete. */
static void check_fails_in_turn(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->bad_segments = true;
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_RDMA_READ, 1, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	sends_nothing(s);
	acknowledges(s, P(0), ACK, 1);
	says(s, "done 0 0, done 1 4");
	sends_nothing(s);
	stage_end(s);
}

static void deliver_fails(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_RDMA_READ, 4, 0);
	sends(s, OP_READ_REQUEST, P(0));
	s->no_deliver = true;
	ARRIVES(s, .opcode = OP_READ_RESPONSE_ONLY, .psn = P(0), .syndrome = ACK, PAYLOAD(4));
	says(s, "deliver 0 0+4 last, done 0 4");
	stage_end(s);
}

static void stops(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	post(s, IBV_WR_SEND, 1, 0);
	post(s, IBV_WR_SEND, 1, 0);
	sends(s, OP_SEND_ONLY, P(0));
	tp_stop(s->tp, false);
	acknowledges(s, P(0), ACK, 1);
	sends_nothing(s);
	assert_int_equal(tp_deadline(s->tp), TP_NEVER);
	stage_end(s);
}

static void uc_is_over_when_sent(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_UC);

	(void)state;
	post(s, IBV_WR_SEND, MTU + 1, 0);
	post(s, IBV_WR_RDMA_WRITE, 1, 0);
	sends(s, OP_SEND_FIRST, P(0));
	assert_int_equal(packet_transport(s->out.opcode), PACKET_UC);
	says(s, "");
	sends(s, OP_SEND_LAST, P(1));
	assert_false(s->out.ack_request);
	says(s, "done 0 0");
	sends(s, OP_WRITE_ONLY, P(2));
	says(s, "done 1 0");
	assert_int_equal(tp_deadline(s->tp), TP_NEVER);
	stage_end(s);
}

/* The bytes in flight never exceed the window, and the window opens again. */
static void window_holds_back(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	uint8_t packet[WIRE_PACKET_MAX];
	uint32_t packets = 0;

	(void)state;
	post(s, IBV_WR_RDMA_WRITE, 1 << 24, 0);
	while (tp_next(s->tp, s->now, packet))
		packets++;
	assert_true(packets * MTU <= CONGESTION_FIRST);
	assert_true(packets * (MTU + TP_PACKET_COST) >= CONGESTION_FIRST);
	assert_false(tp_ready(s->tp, s->now));
	acknowledges(s, P(packets / 2), ACK, 0);
	assert_true(tp_ready(s->tp, s->now));
	stage_end(s);
}

/* Room for a packet or two doesn't open a window that was full; otherwise acknowledgements of small
 * messages would cause equally small bursts. */
static void window_opens_for_a_burst(void **state)
{
	enum { COST = MTU + TP_PACKET_COST };
	struct stage *s = stage_begin(IBV_QPT_RC);
	uint8_t packet[WIRE_PACKET_MAX];
	uint32_t packets = 0, acked = 0, burst = 0;

	(void)state;
	s->tp->congestion.threshold = CONGESTION_FIRST; /* it hardly grows */
	post(s, IBV_WR_RDMA_WRITE, 1 << 24, 0);
	while (tp_next(s->tp, s->now, packet))
		packets++;
	while (!tp_ready(s->tp, s->now)) {
		assert_true(acked < packets);
		acknowledges(s, P(acked++), ACK, 0);
	}
	assert_in_range(acked * COST, TP_BURST - 4 * COST, TP_BURST + COST);
	while (tp_next(s->tp, s->now, packet))
		burst++;
	assert_true(burst * COST >= TP_BURST);
	stage_end(s);
}

/* A small window doesn't wait for more room than one requested acknowledgement gives. */
static void small_window_opens(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	uint8_t packet[WIRE_PACKET_MAX];
	uint32_t asked = 0;

	(void)state;
	s->tp->congestion.window = s->tp->congestion.threshold = CONGESTION_FLOOR;
	post(s, IBV_WR_RDMA_WRITE, 1 << 20, 0);
	for (uint32_t n = 0; tp_next(s->tp, s->now, packet); n++)
		if (packet[8] & 0x80)
			asked = n;
	assert_true(asked > 0);
	assert_false(tp_ready(s->tp, s->now));
	acknowledges(s, P(asked), ACK, 0);
	assert_true(tp_ready(s->tp, s->now));
	stage_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments),
		cmocka_unit_test(write_in_pieces),
		cmocka_unit_test(write_whole),
		cmocka_unit_test(accepted_ranges),
		cmocka_unit_test(psn_wraps),
		cmocka_unit_test(goes_back_once),
		cmocka_unit_test(repeats_one_alone),
		cmocka_unit_test(repeats_a_hole),
		cmocka_unit_test(paces),
		cmocka_unit_test(repeats_what_is_there),
		cmocka_unit_test(goes_on_meanwhile),
		cmocka_unit_test(sends_what_is_not_kept),
		cmocka_unit_test(learns_that_the_peer_drops),
		cmocka_unit_test(repairs_again),
		cmocka_unit_test(nak_ends_it),
		cmocka_unit_test(rnr_waits_and_gives_up),
		cmocka_unit_test(rnr_retries_begin_anew),
		cmocka_unit_test(rnr_seven),
		cmocka_unit_test(retries_are_counted),
		cmocka_unit_test(timeout_zero_never_gives_up),
		cmocka_unit_test(progress_renews_retries),
		cmocka_unit_test(stale_credits),
		cmocka_unit_test(timeout_changes),
		cmocka_unit_test(probe_finds_lost_end),
		cmocka_unit_test(probe_precedes_timeout),
		cmocka_unit_test(probe_finds_lost_acknowledgement),
		cmocka_unit_test(congestion_is_told),
		cmocka_unit_test(read_in_pieces),
		cmocka_unit_test(read_rest_is_asked_for),
		cmocka_unit_test(implicit_nak),
		cmocka_unit_test(answers_outstanding_are_bounded),
		cmocka_unit_test(fence),
		cmocka_unit_test(empty_answers),
		cmocka_unit_test(flush_tries_the_other_icrc),
		cmocka_unit_test(empty_answers_wrong),
		cmocka_unit_test(bad_response),
		cmocka_unit_test(credits_limit),
		cmocka_unit_test(credits_repeated_after_answers),
		cmocka_unit_test(credits_never_deadlock),
		cmocka_unit_test(drains),
		cmocka_unit_test(fetch_fails_in_turn),
		cmocka_unit_test(check_fails_in_turn),
		cmocka_unit_test(deliver_fails),
		cmocka_unit_test(stops),
		cmocka_unit_test(uc_is_over_when_sent),
		cmocka_unit_test(window_holds_back),
		cmocka_unit_test(window_opens_for_a_burst),
		cmocka_unit_test(small_window_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
