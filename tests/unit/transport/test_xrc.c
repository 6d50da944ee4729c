/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC: what its two ends do that RC's don't. */
#include <stdlib.h>

#include "stage.h"

#define R(n) (RQ_PSN + (n))
#define S(n) (SQ_PSN + (n))
enum { ACK = AETH_ACK | AETH_NO_CREDITS, OURS = 5, ALSO_OURS = 6, NO_SRQ = 7, THEIRS = 8 };

static struct stage *target(void)
{
	struct stage *s = stage_begin(IBV_QPT_XRC_RECV);

	s->no_srq = NO_SRQ;
	s->elsewhere = THEIRS;
	s->receives = 9;
	return s;
}

static void send_to(struct stage *s, uint32_t psn, uint32_t srqn)
{
	ARRIVES(s, .opcode = OP_SEND_ONLY, .psn = psn, .srqn = srqn, .ack_request = true,
		PAYLOAD(4));
}

static void read_from(struct stage *s, uint32_t psn, uint32_t srqn)
{
	ARRIVES(s, .opcode = OP_READ_REQUEST, .psn = psn, .srqn = srqn, .addr = 64,
		.dma_length = 2 * MTU);
}

static void answers(struct stage *s, uint8_t operation, uint32_t psn, uint8_t syndrome)
{
	sends(s, operation, psn);
	assert_int_equal(s->out.syndrome, syndrome);
}

static void request_names_srq(void **state)
{
	struct stage *s = target();

	(void)state;
	send_to(s, R(0), OURS);
	says(s, "established, aim 5, take, place 0+4 last, receive 4 0");
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(1), .srqn = ALSO_OURS, .addr = 8,
		.dma_length = 1, PAYLOAD(1));
	says(s, "aim 6, write 8+1 last");
	ARRIVES(s, .opcode = OP_FETCH_ADD, .psn = R(2), .srqn = OURS, .addr = 64, .swap_add = 1);
	says(s, "aim 5, atomic 64");
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(2));
	answers(s, OP_ACKNOWLEDGE, R(1), ACK);
	assert_int_equal(packet_transport(s->out.opcode), PACKET_XRC);
	sends_nothing(s);
	stage_end(s);
}

/* An answer is read for the SRQ that its request named, whatever came in between. */
static void answer_remembers_srq(void **state)
{
	struct stage *s = target();

	(void)state;
	read_from(s, R(0), OURS);
	send_to(s, R(2), ALSO_OURS);
	says(s, "established, aim 5, aim 6, take, place 0+4 last, receive 4 0");
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	sends(s, OP_READ_RESPONSE_LAST, R(1));
	says(s, "aim 5, read 64+256, aim 5, read 320+256");
	answers(s, OP_ACKNOWLEDGE, R(2), ACK);
	read_from(s, R(0), ALSO_OURS); /* not that request: dropped */
	sends_nothing(s);
	read_from(s, R(0), OURS);
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	sends(s, OP_READ_RESPONSE_LAST, R(1));
	says(s, "aim 5, read 64+256, aim 5, read 320+256");
	stage_end(s);
}

static void no_such_srq(void **state)
{
	struct stage *s = target();

	(void)state;
	send_to(s, R(0), NO_SRQ);
	says(s, "established, aim 7, refused 3"); /* IBV_EVENT_QP_ACCESS_ERR */
	answers(s, OP_ACKNOWLEDGE, R(0), AETH_NAK | NAK_REMOTE_ACCESS);
	stage_end(s);
}

static void message_keeps_its_srq(void **state)
{
	struct stage *s = target();

	(void)state;
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), .srqn = OURS, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_SEND_LAST, .psn = R(1), .srqn = ALSO_OURS, PAYLOAD(4));
	says(s, "established, aim 5, take, place 0+256, back, refused 2");
	answers(s, OP_ACKNOWLEDGE, R(1), AETH_NAK | NAK_INVALID_REQUEST);
	stage_end(s);
}

/* Each end drops what is for the other one, and what is RC's. */
static void ends_differ(void **state)
{
	struct stage *s = target();

	(void)state;
	acknowledges(s, S(0), ACK, 0);
	s->tp->type = IBV_QPT_RC; /* for arrives() */
	send_to(s, R(0), OURS);
	s->tp->type = IBV_QPT_XRC_RECV;
	assert_int_equal(tp_counters(s->tp)->dropped, 2);
	stage_end(s);

	s = stage_begin(IBV_QPT_XRC_SEND);
	send_to(s, R(0), OURS);
	sends_nothing(s);
	assert_int_equal(tp_counters(s->tp)->dropped, 1);
	stage_end(s);
}

static void initiator_names_srq(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_XRC_SEND);

	(void)state;
	post(s, IBV_WR_SEND, MTU + 1, 0);
	s->ring[0].srqn = OURS;
	post(s, IBV_WR_RDMA_READ, 4, 0);
	s->ring[1].srqn = ALSO_OURS;
	sends(s, OP_SEND_FIRST, S(0));
	assert_int_equal(s->out.srqn, OURS);
	assert_int_equal(packet_transport(s->out.opcode), PACKET_XRC);
	sends(s, OP_SEND_LAST, S(1));
	assert_int_equal(s->out.srqn, OURS);
	sends(s, OP_READ_REQUEST, S(2));
	assert_int_equal(s->out.srqn, ALSO_OURS);
	acknowledges(s, S(1), ACK, 1);
	says(s, "done 0 0");
	stage_end(s);
}

/* ------------------------------------------------------------------ several processes */

static uint8_t *shared(void)
{
	uint8_t *memory = aligned_alloc(64, TP_RESPONDER_BYTES);

	assert_non_null(memory);
	return memory;
}

static struct packet the_send(uint32_t psn, uint32_t srqn)
{
	return (struct packet){
		.opcode = PACKET_XRC | OP_SEND_ONLY, .psn = psn, .srqn = srqn, PAYLOAD(4)};
}

/* The responder goes from one core to another and back: requests are executed once, in order, and
 * acknowledged by the one that has it. */
static void responder_is_handed_on(void **state)
{
	struct stage *a = target(), *b = target();
	uint8_t *memory = shared();
	struct packet p = the_send(R(1), THEIRS);

	(void)state;
	tp_share(a->tp, memory);
	tp_responder_at(b->tp, NULL);
	send_to(a, R(0), OURS);
	says(a, "established, aim 5, take, place 0+4 last, receive 4 0");
	assert_int_equal(tp_srq_of(a->tp, &p), THEIRS);
	assert_false(tp_owes(a->tp)); /* an acknowledgement may be the other's */
	tp_responder_at(a->tp, NULL);
	sends_nothing(a);
	send_to(a, R(1), OURS); /* it has nothing to do with it any more */
	sends_nothing(a);
	assert_int_equal(tp_counters(a->tp)->dropped, 1);

	tp_responder_at(b->tp, memory);
	b->elsewhere = 0;
	send_to(b, R(1), THEIRS);
	says(b, "aim 8, take, place 0+4 last, receive 4 0"); /* not established again */
	answers(b, OP_ACKNOWLEDGE, R(1), ACK);
	assert_int_equal(b->out.msn, 2);
	tp_responder_at(b->tp, NULL);
	tp_responder_at(a->tp, memory);
	send_to(a, R(1), THEIRS); /* a duplicate: anybody acknowledges it */
	send_to(a, R(2), OURS);
	says(a, "aim 5, take, place 0+4 last, receive 4 0");
	answers(a, OP_ACKNOWLEDGE, R(2), ACK);
	stage_end(a);
	stage_end(b);
	free(memory);
}

/* Which packets need the process of their SRQ. */
static void srq_of_packets(void **state)
{
	struct stage *s = target();
	struct packet p = the_send(R(0), THEIRS);

	(void)state;
	assert_int_equal(tp_srq_of(s->tp, &p), THEIRS);
	p.psn = R(1); /* too early */
	assert_int_equal(tp_srq_of(s->tp, &p), 0);
	p.psn = R(-1); /* a duplicate, which is only acknowledged */
	assert_int_equal(tp_srq_of(s->tp, &p), 0);
	p.opcode = PACKET_XRC | OP_READ_REQUEST; /* is read again */
	assert_int_equal(tp_srq_of(s->tp, &p), THEIRS);
	p.opcode = PACKET_XRC | OP_FETCH_ADD; /* its result is kept */
	assert_int_equal(tp_srq_of(s->tp, &p), 0);
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), .srqn = OURS, PAYLOAD(MTU));
	says(s, "established, aim 5, take, place 0+256");
	p = the_send(R(1), THEIRS); /* within a message: is refused here */
	assert_int_equal(tp_srq_of(s->tp, &p), 0);
	stage_end(s);
}

/* A READ's answer is given before the responder may go. */
static void answers_come_first(void **state)
{
	struct stage *s = target();

	(void)state;
	read_from(s, R(0), OURS);
	assert_true(tp_owes(s->tp));
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	assert_true(tp_owes(s->tp));
	sends(s, OP_READ_RESPONSE_LAST, R(1));
	assert_false(tp_owes(s->tp));
	says(s, "established, aim 5, aim 5, read 64+256, aim 5, read 320+256");
	stage_end(s);
}

/* The next core takes a message over whose first half its dead predecessor received: the rest is
 * refused, since the SRQ has ended with that process. */
static void half_a_message(void **state)
{
	struct stage *a = target(), *b = target();
	uint8_t *memory = shared();

	(void)state;
	tp_share(a->tp, memory);
	ARRIVES(a, .opcode = OP_SEND_FIRST, .psn = R(0), .srqn = NO_SRQ - 2, PAYLOAD(MTU));
	says(a, "established, aim 5, take, place 0+256");
	b->no_srq = OURS;
	tp_responder_at(b->tp, memory);
	ARRIVES(b, .opcode = OP_SEND_LAST, .psn = R(1), .srqn = OURS, PAYLOAD(4));
	says(b, "aim 5, back, refused 3");
	answers(b, OP_ACKNOWLEDGE, R(1), AETH_NAK | NAK_REMOTE_ACCESS);
	stage_end(a);
	stage_end(b);
	free(memory);
}

/* A packet that was kept is another process's when its turn comes: the peer repeats it. */
static void kept_packet_is_theirs(void **state)
{
	struct stage *s = stage_keeping_as(IBV_QPT_XRC_RECV);

	(void)state;
	s->elsewhere = THEIRS;
	s->receives = 9;
	send_to(s, R(1), THEIRS);
	answers(s, OP_ACKNOWLEDGE, R(0), AETH_NAK | NAK_SEQUENCE);
	send_to(s, R(0), OURS);
	says(s, "established, aim 5, take, place 0+4 last, receive 4 0, aim 8");
	answers(s, OP_ACKNOWLEDGE, R(1), AETH_NAK | NAK_SEQUENCE);
	assert_int_equal(s->out.msn, 1);
	sends_nothing(s);
	stage_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_names_srq),
		cmocka_unit_test(answer_remembers_srq),
		cmocka_unit_test(no_such_srq),
		cmocka_unit_test(message_keeps_its_srq),
		cmocka_unit_test(ends_differ),
		cmocka_unit_test(initiator_names_srq),
		cmocka_unit_test(responder_is_handed_on),
		cmocka_unit_test(srq_of_packets),
		cmocka_unit_test(answers_come_first),
		cmocka_unit_test(half_a_message),
		cmocka_unit_test(kept_packet_is_theirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
