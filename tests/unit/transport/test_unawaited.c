/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages whose completion no program awaits: which of them ask for an acknowledgement, and how
 * those that didn't ask get one in the end (transport/requester.h). */
#include "stage.h"

#define P(n) (SQ_PSN + (n))
#define R(n) (RQ_PSN + (n))
enum { US = 1000, MS = 1000000, ACK = AETH_ACK | AETH_NO_CREDITS, MAX = PLACES / 4 };

static void sends_only(struct stage *s, uint32_t psn, bool asks)
{
	sends(s, OP_SEND_ONLY, psn);
	assert_int_equal(s->out.ack_request, asks);
}

/* Posts an unawaited message, and expects it. */
static void unawaited(struct stage *s, uint32_t psn, bool asks)
{
	post(s, IBV_WR_SEND, 8, TP_UNAWAITED);
	sends_only(s, psn, asks);
	sends_nothing(s);
}

/* A round trip of 10 us is known, and a message was just sent. */
static struct stage *stream_begin(void)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	post(s, IBV_WR_SEND, 8, 0);
	sends_only(s, P(0), true);
	s->now += 10 * US;
	acknowledges(s, P(0), ACK, 1);
	says(s, "done 0 0");
	return s;
}

static void one_of_many_asks(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	for (uint32_t i = 1; i <= MAX; i++)
		unawaited(s, P(i), false);
	unawaited(s, P(MAX + 1), true);
	unawaited(s, P(MAX + 2), false);
	says(s, "");
	acknowledges(s, P(1), ACK, 2); /* a peer may acknowledge without being asked */
	says(s, "done 1 0");
	acknowledges(s, P(3), ACK, 4);
	says(s, "done 2 0, done 3 0");
	stage_end(s);
}

static void others_ask(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	unawaited(s, P(1), false);
	post(s, IBV_WR_SEND, 8, 0); /* awaited */
	sends_only(s, P(2), true);
	post(s, IBV_WR_SEND, MTU + 1, TP_UNAWAITED); /* of two packets */
	sends(s, OP_SEND_FIRST, P(3));
	assert_false(s->out.ack_request);
	sends(s, OP_SEND_LAST, P(4));
	assert_true(s->out.ack_request);
	s->now += 100 * US; /* it doesn't follow quickly */
	unawaited(s, P(5), true);
	unawaited(s, P(6), false);
	stage_end(s);
}

static void the_first_asks(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->now = 5 * MS;
	unawaited(s, P(0), true);
	stage_end(s);
}

static void old_streams_ask(void **state)
{
	struct stage *s = stream_begin();
	uint32_t psn = 1;

	(void)state;
	for (uint64_t began = s->now; s->now - began < 250 * US; s->now += 50 * US)
		unawaited(s, P(psn++), false);
	unawaited(s, P(psn), true); /* a quarter of the probe's time has passed */
	stage_end(s);
}

static void the_probe_asks_at_the_end(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	unawaited(s, P(1), false);
	unawaited(s, P(2), false);
	unawaited(s, P(3), false);
	passes(s, 2 * MS);
	sends_only(s, P(1), true);
	sends_nothing(s);
	acknowledges(s, P(3), ACK, 4);
	says(s, "done 1 0, done 2 0, done 3 0");
	assert_int_equal(tp_deadline(s->tp), TP_NEVER);
	stage_end(s);
}

static void a_lost_end_is_found(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	unawaited(s, P(1), false);
	unawaited(s, P(2), false); /* lost */
	passes(s, 2 * MS);
	sends_only(s, P(1), true);
	acknowledges(s, P(1), ACK, 2);
	says(s, "done 1 0");
	sends_only(s, P(2), true);
	sends_nothing(s);
	acknowledges(s, P(2), ACK, 3);
	says(s, "done 2 0");
	stage_end(s);
}

static void what_is_repeated_asks(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	peer_drops(s);
	unawaited(s, P(1), false); /* lost */
	unawaited(s, P(2), false);
	unawaited(s, P(3), false);
	acknowledges(s, P(1), AETH_NAK | NAK_SEQUENCE, 1);
	sends_only(s, P(1), true);
	sends_only(s, P(2), true);
	sends_only(s, P(3), true);
	sends_nothing(s);
	stage_end(s);
}

static void the_owner_asks(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	tp_ask(s->tp); /* nothing is outstanding */
	sends_nothing(s);
	unawaited(s, P(1), false);
	unawaited(s, P(2), false);
	tp_ask(s->tp);
	passes(s, 0);
	sends_only(s, P(1), true);
	sends_nothing(s);
	tp_ask(s->tp); /* it has asked */
	passes(s, 0);
	sends_nothing(s);
	acknowledges(s, P(2), ACK, 3);
	says(s, "done 1 0, done 2 0");
	post(s, IBV_WR_SEND, 8, TP_UNAWAITED);
	post(s, IBV_WR_SEND, 8, TP_UNAWAITED);
	tp_ask(s->tp); /* before they are sent */
	sends_only(s, P(3), false);
	sends_only(s, P(4), true);
	sends_nothing(s);
	unawaited(s, P(5), false);
	stage_end(s);
}

static void draining_asks(void **state)
{
	struct stage *s = stream_begin();

	(void)state;
	unawaited(s, P(1), false);
	tp_drain(s->tp);
	pull_events(s);
	passes(s, 0);
	sends_only(s, P(1), true);
	acknowledges(s, P(1), ACK, 2);
	says(s, "done 1 0, drained");
	stage_end(s);
}

static void arrives_unasked(struct stage *s, uint32_t psn)
{
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = psn, .addr = 8, .dma_length = 4, PAYLOAD(4));
	says(s, "write 8+4 last");
}

static void the_end_acknowledges_all(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	tp_acknowledge_all(s->tp); /* nothing has come */
	sends_nothing(s);
	arrives_unasked(s, R(0));
	arrives_unasked(s, R(1));
	sends_nothing(s);
	tp_acknowledge_all(s->tp);
	sends(s, OP_ACKNOWLEDGE, R(1));
	assert_int_equal(s->out.msn, 2);
	tp_acknowledge_all(s->tp); /* it has been said */
	sends_nothing(s);
	stage_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_of_many_asks),
		cmocka_unit_test(others_ask),
		cmocka_unit_test(the_first_asks),
		cmocka_unit_test(old_streams_ask),
		cmocka_unit_test(the_probe_asks_at_the_end),
		cmocka_unit_test(a_lost_end_is_found),
		cmocka_unit_test(what_is_repeated_asks),
		cmocka_unit_test(the_owner_asks),
		cmocka_unit_test(draining_asks),
		cmocka_unit_test(the_end_acknowledges_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
