/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder, rule by rule: the effects of a request, and the response. */
#include <string.h>

#include "stage.h"

#define R(n) (RQ_PSN + (n))
enum { ACK = AETH_ACK | AETH_NO_CREDITS, SEQUENCE = AETH_NAK | NAK_SEQUENCE };

static void send_only(struct stage *s, uint32_t psn)
{
	ARRIVES(s, .opcode = OP_SEND_ONLY, .psn = psn, .ack_request = true, PAYLOAD(4));
}

static void read_request(struct stage *s, uint32_t psn, uint64_t addr, uint32_t length)
{
	ARRIVES(s, .opcode = OP_READ_REQUEST, .psn = psn, .ack_request = true, .addr = addr,
		.dma_length = length);
}

static void fetch_add(struct stage *s, uint32_t psn)
{
	ARRIVES(s, .opcode = OP_FETCH_ADD, .psn = psn, .addr = 64, .swap_add = 10);
}

static void acked(struct stage *s, uint32_t psn, uint8_t syndrome, uint32_t msn)
{
	sends(s, OP_ACKNOWLEDGE, psn);
	assert_int_equal(s->out.syndrome, syndrome);
	assert_int_equal(s->out.msn, msn);
}

static void send_is_placed(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 2;
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_SEND_MIDDLE, .psn = R(1), PAYLOAD(MTU));
	sends_nothing(s); /* no acknowledgement was requested */
	ARRIVES(s, .opcode = OP_SEND_LAST_IMM, .psn = R(2), .ack_request = true, .solicited = true,
		PAYLOAD(3));
	ARRIVES(s, .opcode = OP_SEND_ONLY, .psn = R(3), .ack_request = true);
	says(s, "take, place 0+256, place 256+256, place 512+3 last, receive 515 0 imm solicited, "
		"take, receive 0 0");
	acked(s, R(3), ACK, 2); /* one for both */
	sends_nothing(s);
	stage_end(s);
}

static void write_is_executed(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 1;
	ARRIVES(s, .opcode = OP_WRITE_FIRST, .psn = R(0), .addr = 1000, .dma_length = 2 * MTU + 1,
		PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_WRITE_MIDDLE, .psn = R(1), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_WRITE_LAST_IMM, .psn = R(2), PAYLOAD(1));
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(3), .addr = 5, .dma_length = 0,
		.ack_request = true);
	says(s, "write 1000+256, write 1256+256, take, write 1512+1 last, receive 513 0 imm write");
	acked(s, R(3), ACK, 2);
	stage_end(s);
}

static void sequence_nak_once(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 9;
	send_only(s, R(0));
	send_only(s, R(2));
	send_only(s, R(3));
	acked(s, R(1), SEQUENCE, 1); /* also acknowledges the one before */
	send_only(s, R(4));
	sends_nothing(s);
	send_only(s, R(1));
	acked(s, R(1), ACK, 2);
	send_only(s, R(3)); /* the next gap */
	acked(s, R(2), SEQUENCE, 2);
	says(s, "take, place 0+4 last, receive 4 0, take, place 0+4 last, receive 4 0");
	stage_end(s);
}

/* The peer went back, and the packet was lost again: another NAK is sent. */
static void sequence_nak_again(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	send_only(s, R(1));
	send_only(s, R(2));
	acked(s, R(0), SEQUENCE, 0);
	send_only(s, R(1));
	acked(s, R(0), SEQUENCE, 0);
	send_only(s, R(2));
	sends_nothing(s);
	says(s, "");
	stage_end(s);
}

/* Packets were only reordered, and no NAK had been sent yet. */
static void late_packet_takes_nak_back(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 9;
	send_only(s, R(1));
	send_only(s, R(0));
	send_only(s, R(1));
	acked(s, R(1), ACK, 2);
	sends_nothing(s);
	says(s, "take, place 0+4 last, receive 4 0, take, place 0+4 last, receive 4 0");
	stage_end(s);
}

#define TAKEN "take, place 0+4 last, receive 4 0"

/* Out-of-order packets are executed in their turn, each once; a NAK for the next gap is sent at
 * once. */
static void early_packets_wait(void **state)
{
	struct stage *s = stage_keeping();

	(void)state;
	s->receives = 9;
	send_only(s, R(0));
	send_only(s, R(2));
	send_only(s, R(2)); /* twice */
	send_only(s, R(4));
	acked(s, R(1), SEQUENCE, 1);
	says(s, TAKEN);
	send_only(s, R(1));
	says(s, TAKEN ", " TAKEN);
	acked(s, R(3), SEQUENCE, 3);
	send_only(s, R(2)); /* here already */
	acked(s, R(3), SEQUENCE, 3);
	send_only(s, R(3));
	says(s, TAKEN ", " TAKEN);
	acked(s, R(4), ACK, 5);
	sends_nothing(s);
	assert_int_equal(tp_counters(s->tp)->kept, 2);
	stage_end(s);
}

/* The peer learns that packets still arrive, if it asks. */
static void early_packets_are_acknowledged(void **state)
{
	struct stage *s = stage_keeping();

	(void)state;
	s->receives = 9;
	send_only(s, R(0));
	acked(s, R(0), ACK, 1);
	send_only(s, R(2));
	acked(s, R(1), SEQUENCE, 1);
	send_only(s, R(3));
	acked(s, R(0), ACK, 1);
	send_only(s, R(1 + EARLY_MAX)); /* no room */
	sends_nothing(s);
	send_only(s, R(1));
	acked(s, R(3), ACK, 4);
	s->said[0] = '\0';
	stage_end(s);
}

/* Two packets are missing: a peer that repeats one alone learns that; one that repeats all isn't
 * disturbed. */
static void early_packets_wait_for_two(void **state)
{
	struct stage *s = stage_keeping();

	(void)state;
	s->receives = 9;
	send_only(s, R(2));
	acked(s, R(0), SEQUENCE, 0);
	send_only(s, R(0));
	acked(s, R(0), ACK, 1);
	send_only(s, R(1));
	acked(s, R(2), ACK, 3);
	says(s, TAKEN ", " TAKEN ", " TAKEN);
	stage_end(s);
}

/* Parts of a message, and requests that are no messages, keep their order. */
static void early_parts(void **state)
{
	struct stage *s = stage_keeping();

	(void)state;
	fetch_add(s, R(3));
	ARRIVES(s, .opcode = OP_WRITE_LAST, .psn = R(2), PAYLOAD(1));
	ARRIVES(s, .opcode = OP_WRITE_MIDDLE, .psn = R(1), PAYLOAD(MTU));
	says(s, "");
	ARRIVES(s, .opcode = OP_WRITE_FIRST, .psn = R(0), .addr = 1000, .dma_length = 2 * MTU + 1,
		PAYLOAD(MTU));
	says(s, "write 1000+256, write 1256+256, write 1512+1 last, atomic 64");
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(3));
	sends_nothing(s);
	stage_end(s);
}

/* A request that isn't executed makes the peer send all again: kept packets are dropped. */
static void early_packets_are_forgotten(void **state)
{
	struct stage *s = stage_keeping();

	(void)state;
	send_only(s, R(1));
	acked(s, R(0), SEQUENCE, 0);
	send_only(s, R(0));
	sends(s, OP_ACKNOWLEDGE, R(0));
	assert_int_equal(s->out.syndrome, AETH_RNR_NAK | 12);
	s->receives = 9;
	send_only(s, R(0));
	acked(s, R(0), ACK, 1);
	says(s, TAKEN);
	send_only(s, R(2));
	s->access = TP_ACCESS_REFUSED;
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(1), .addr = 8, .dma_length = 4, PAYLOAD(4));
	says(s, "refused 3"); /* and no receive is taken */
	acked(s, R(1), AETH_NAK | NAK_REMOTE_ACCESS, 1);
	assert_int_equal(s->tp->early.count, 0);
	stage_end(s);
}

/* Packets are kept only as far ahead as there are places; and a place may hold an old packet. */
static void early_places(void **state)
{
	struct stage *s = stage_keeping();
	uint32_t places = s->tp->early.places;

	(void)state;
	assert_int_equal(places, EARLY_MAX);
	s->receives = 9;
	send_only(s, R(places));
	assert_int_equal(s->tp->early.count, 0);
	send_only(s, R(2)); /* is never expected, since... */
	assert_int_equal(s->tp->early.count, 1);
	read_request(s, R(0), 0, 4 * MTU);
	send_only(s, R(4));
	says(s, TAKEN);
	send_only(s, R(places + 2)); /* has the same place */
	assert_int_equal(s->tp->early.count, 1);
	for (uint32_t i = 5; i < places + 2; i++)
		ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(i), .addr = 8, .dma_length = 4,
			PAYLOAD(4));
	assert_int_equal(s->tp->early.count, 0);
	assert_int_equal(s->tp->responder->expected, R(places + 3));
	assert_string_equal(s->said + strlen(s->said) - strlen(TAKEN), TAKEN);
	s->said[0] = '\0';
	stage_end(s);
}

static void duplicates_are_not_executed(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 9;
	send_only(s, R(0));
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(1), .addr = 8, .dma_length = 4, PAYLOAD(4));
	acked(s, R(1), ACK, 2);
	says(s, "take, place 0+4 last, receive 4 0, write 8+4 last");
	send_only(s, R(0));
	acked(s, R(1), ACK, 2);
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(1), .addr = 8, .dma_length = 4, PAYLOAD(4));
	acked(s, R(1), ACK, 2);
	send_only(s, R(2) - 0x800000); /* as far back as there is */
	acked(s, R(1), ACK, 2);
	assert_int_equal(tp_counters(s->tp)->duplicates, 3);
	stage_end(s);
}

static void rnr_nak(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	send_only(s, R(0));
	send_only(s, R(1)); /* after it: no response */
	acked(s, R(0), AETH_RNR_NAK | 12, 0);
	sends_nothing(s);
	send_only(s, R(0)); /* repeated: the same response */
	acked(s, R(0), AETH_RNR_NAK | 12, 0);
	s->receives = 1;
	send_only(s, R(0));
	acked(s, R(0), ACK, 1);
	says(s, "take, place 0+4 last, receive 4 0");
	/* A WRITE's data was written, its end waits. */
	ARRIVES(s, .opcode = OP_WRITE_FIRST, .psn = R(1), .addr = 0, .dma_length = MTU + 1,
		PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_WRITE_LAST_IMM, .psn = R(2), PAYLOAD(1));
	says(s, "write 0+256");
	acked(s, R(2), AETH_RNR_NAK | 12, 1);
	s->receives = 1;
	ARRIVES(s, .opcode = OP_WRITE_LAST_IMM, .psn = R(2), .ack_request = true, PAYLOAD(1));
	says(s, "take, write 256+1 last, receive 257 0 imm write");
	acked(s, R(2), ACK, 2);
	assert_int_equal(tp_counters(s->tp)->rnr_naks_sent, 3);
	stage_end(s);
}

static void read_is_answered(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	read_request(s, R(0), 1000, 2 * MTU + 1);
	read_request(s, R(3), 5, 0);
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(4), .ack_request = true, .dma_length = 0);
	says(s, ""); /* nothing is read before it is sent */
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	assert_int_equal(s->out.syndrome, ACK);
	assert_int_equal(s->out.msn, 3);
	sends(s, OP_READ_RESPONSE_MIDDLE, R(1));
	assert_int_equal(s->out.length, MTU);
	sends(s, OP_READ_RESPONSE_LAST, R(2));
	assert_int_equal(s->out.length, 1);
	sends(s, OP_READ_RESPONSE_ONLY, R(3));
	assert_int_equal(s->out.length, 0);
	acked(s, R(4), ACK, 3);
	says(s, "read 1000+256, read 1256+256, read 1512+1");
	sends_nothing(s);
	stage_end(s);
}

/* A duplicate READ, whole or the rest; later requests aren't answered twice. */
static void duplicate_read(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	read_request(s, R(0), 1000, 3 * MTU);
	fetch_add(s, R(3));
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	sends(s, OP_READ_RESPONSE_MIDDLE, R(1));
	read_request(s, R(1), 1000 + MTU, 2 * MTU); /* while it is being answered */
	sends(s, OP_READ_RESPONSE_FIRST, R(1));
	sends(s, OP_READ_RESPONSE_LAST, R(2));
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(3));
	sends_nothing(s);
	read_request(s, R(2), 1000 + 2 * MTU, MTU);
	sends(s, OP_READ_RESPONSE_ONLY, R(2));
	sends_nothing(s);
	read_request(s, R(0), 1000, 3 * MTU);
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	sends(s, OP_READ_RESPONSE_MIDDLE, R(1));
	sends(s, OP_READ_RESPONSE_LAST, R(2));
	sends_nothing(s);
	says(s, "atomic 64, read 1000+256, read 1256+256, read 1256+256, read 1512+256, "
		"read 1512+256, read 1000+256, read 1256+256, read 1512+256");
	/* It differs from the original: dropped. */
	read_request(s, R(0), 1004, 3 * MTU);
	read_request(s, R(1), 1000 + MTU, 3 * MTU);
	sends_nothing(s);
	says(s, "");
	stage_end(s);
}

/* A duplicate's answer doesn't overtake one that was never sent. */
static void duplicate_waits_its_turn(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	read_request(s, R(0), 0, MTU);
	read_request(s, R(1), 0, MTU);
	read_request(s, R(1), 0, MTU);
	sends(s, OP_READ_RESPONSE_ONLY, R(0));
	sends(s, OP_READ_RESPONSE_ONLY, R(1));
	sends_nothing(s);
	says(s, "read 0+256, read 0+256");
	stage_end(s);
}

static void duplicate_atomic(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->word = 5;
	fetch_add(s, R(0));
	fetch_add(s, R(1));
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(0));
	assert_int_equal(s->out.original, 5);
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(1));
	assert_int_equal(s->out.original, 15);
	says(s, "atomic 64, atomic 64");
	fetch_add(s, R(0));
	fetch_add(s, R(1));
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(0));
	assert_int_equal(s->out.original, 5);
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(1));
	assert_int_equal(s->out.original, 15);
	assert_int_equal(s->word, 25);
	says(s, "");
	/* Four answers are kept: two more, then two more, and the first are overwritten. */
	for (uint32_t i = 2; i < 6; i++) {
		fetch_add(s, R(i));
		sends(s, OP_ATOMIC_ACKNOWLEDGE, R(i));
	}
	fetch_add(s, R(0));
	fetch_add(s, R(1));
	sends_nothing(s);
	fetch_add(s, R(2));
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(2));
	assert_int_equal(s->out.original, 25);
	says(s, "atomic 64, atomic 64, atomic 64, atomic 64");
	stage_end(s);
}

/* No response follows the NAK of a refused request, and this side's QP gets an event. */
static void refused(struct stage *s, uint32_t psn, uint8_t nak, const char *said)
{
	says(s, said);
	s->receives = 9;
	acked(s, psn, AETH_NAK | nak, s->out.msn);
	send_only(s, psn + 1);
	sends_nothing(s);
	/* But the NAK may have been lost. */
	send_only(s, psn);
	acked(s, psn, AETH_NAK | nak, s->out.msn);
	sends_nothing(s);
	stage_end(s);
}

#define INVALID(said) refused(s, psn, NAK_INVALID_REQUEST, said)

static void too_many_reads(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		read_request(s, R(i), 0, 4);
	says(s, "refused 2");
	for (uint32_t i = 0; i < 4; i++)
		sends(s, OP_READ_RESPONSE_ONLY, R(i)); /* they were correct */
	says(s, "read 0+4, read 0+4, read 0+4, read 0+4");
	acked(s, R(4), AETH_NAK | NAK_INVALID_REQUEST, 4);
	stage_end(s);
}

static void atomic_write(struct stage *s, uint32_t psn, uint64_t addr, uint32_t length)
{
	ARRIVES(s, .opcode = OP_ATOMIC_WRITE, .psn = psn, .addr = addr, .dma_length = length,
		PAYLOAD(length));
}

/* ATOMIC WRITE and FLUSH are executed once, and answered by a READ's response without bytes, also
 * when they arrive again. */
static void empty_answers(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	atomic_write(s, R(0), 64, 8);
	ARRIVES(s, .opcode = OP_FLUSH, .psn = R(1), .addr = 1000, .dma_length = 256,
		.feth = packet_feth(IBV_FLUSH_GLOBAL, IBV_FLUSH_MR));
	says(s, "store 64, flush 1000+256 1/1");
	for (int again = 0; again < 2; again++) {
		sends(s, OP_READ_RESPONSE_ONLY, R(0));
		assert_int_equal(s->out.length, 0);
		sends(s, OP_READ_RESPONSE_ONLY, R(1));
		assert_int_equal(s->out.msn, 2);
		sends_nothing(s);
		atomic_write(s, R(0), 64, 8);
		ARRIVES(s, .opcode = OP_FLUSH, .psn = R(1));
	}
	sends(s, OP_READ_RESPONSE_ONLY, R(0));
	sends(s, OP_READ_RESPONSE_ONLY, R(1));
	fetch_add(s, R(1)); /* another request than the one that had this PSN */
	sends_nothing(s);
	stage_end(s);
}

static void empty_answers_refused(void **state)
{
	struct ibv_qp_attr none = stage_attr;
	uint32_t psn = R(0);
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	atomic_write(s, psn, 64, 4);
	INVALID("refused 2");
	s = stage_begin(IBV_QPT_RC);
	ARRIVES(s, .opcode = OP_ATOMIC_WRITE, .psn = psn, .addr = 64, .dma_length = 16, PAYLOAD(8));
	INVALID("refused 2");
	s = stage_begin(IBV_QPT_RC);
	atomic_write(s, psn, 68, 8);
	INVALID("store 68, refused 2");
	s = stage_begin(IBV_QPT_RC);
	atomic_write(s, psn, MEMORY, 8);
	refused(s, psn, NAK_REMOTE_ACCESS, "refused 3");
	s = stage_begin(IBV_QPT_RC);
	s->no_memory = true;
	atomic_write(s, psn, 64, 8);
	refused(s, psn, NAK_REMOTE_ACCESS, "store 64, refused 3");
	s = stage_begin(IBV_QPT_RC);
	s->access = TP_ACCESS_REFUSED;
	ARRIVES(s, .opcode = OP_FLUSH, .psn = psn, .dma_length = 8, .feth = 1);
	refused(s, psn, NAK_REMOTE_ACCESS, "flush 0+8 1/0, refused 3");
	s = stage_begin(IBV_QPT_RC);
	s->access = TP_ACCESS_INVALID;
	ARRIVES(s, .opcode = OP_FLUSH, .psn = psn, .dma_length = 8, .feth = 2);
	INVALID("flush 0+8 2/0, refused 2");
	none.max_dest_rd_atomic = 0;
	s = stage_with(IBV_QPT_RC, &none);
	atomic_write(s, psn, 64, 8);
	INVALID("refused 2");
	s = stage_with(IBV_QPT_RC, &none);
	ARRIVES(s, .opcode = OP_FLUSH, .psn = psn, .dma_length = 8, .feth = 1);
	INVALID("refused 2");
}

static void flush(struct stage *s, uint32_t psn)
{
	ARRIVES(s, .opcode = OP_FLUSH, .psn = psn, .dma_length = 8, .feth = 1);
}

/* So many of these were recorded, whatever else was. */
static void executed(struct stage *s, const char *what, uint32_t count)
{
	for (const char *at = s->said; (at = strstr(at, what)); at++)
		count--;
	assert_int_equal(count, 0);
	s->said[0] = '\0';
}

/* A kernel's Soft-RoCE doesn't count FLUSHes among the READs: more of them than those, and READs
 * before and after them, are answered, and answered again. */
static void flushes_beyond_the_reads(void **state)
{
	enum { FLUSHES = TP_ANSWERS_MAX - 6, ALL = FLUSHES + 5 };
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	read_request(s, R(0), 0, 4);
	for (uint32_t i = 1; i <= FLUSHES; i++)
		flush(s, R(i));
	for (uint32_t i = FLUSHES + 1; i < ALL; i++)
		read_request(s, R(i), 0, 4);
	for (uint32_t i = 0; i < ALL; i++) {
		sends(s, OP_READ_RESPONSE_ONLY, R(i));
		assert_int_equal(s->out.length, i && i <= FLUSHES ? 0 : 4);
	}
	sends_nothing(s);
	for (uint32_t i = 1; i <= FLUSHES; i++)
		flush(s, R(i)); /* older than all four READs that may be outstanding, or not */
	for (uint32_t i = 1; i <= FLUSHES; i++)
		sends(s, OP_READ_RESPONSE_ONLY, R(i));
	sends_nothing(s);
	read_request(s, R(0), 0, 4); /* can't be outstanding any more */
	sends_nothing(s);
	read_request(s, R(FLUSHES + 1), 0, 4);
	sends(s, OP_READ_RESPONSE_ONLY, R(FLUSHES + 1));
	executed(s, "flush", FLUSHES);
	stage_end(s);
}

/* All that are kept are still to be sent. */
static void too_many_flushes(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i <= TP_ANSWERS_MAX; i++)
		flush(s, R(i));
	for (uint32_t i = 0; i < TP_ANSWERS_MAX; i++)
		sends(s, OP_READ_RESPONSE_ONLY, R(i));
	acked(s, R(TP_ANSWERS_MAX), AETH_NAK | NAK_INVALID_REQUEST, TP_ANSWERS_MAX);
	executed(s, "flush", TP_ANSWERS_MAX);
	stage_end(s);
}

/* Its own FLUSHes will be understood as the peer's are made. */
static void flush_of_soft_roce(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	flush(s, R(0));
	assert_false(tp_flush_doubled(s->tp));
	ARRIVES(s, .opcode = OP_FLUSH, .psn = R(1), .dma_length = 8, .feth = 1,
		.icrc_doubled = true);
	assert_true(tp_flush_doubled(s->tp));
	executed(s, "flush", 2);
	stage_end(s);
}

static void opcodes_out_of_order(void **state)
{
	static const uint8_t alone[] = {OP_SEND_MIDDLE, OP_SEND_LAST, OP_WRITE_MIDDLE,
					OP_WRITE_LAST};
	static const uint8_t within[] = {OP_SEND_FIRST,	  OP_SEND_ONLY,	   OP_WRITE_FIRST,
					 OP_WRITE_MIDDLE, OP_WRITE_LAST,   OP_WRITE_ONLY,
					 OP_READ_REQUEST, OP_COMPARE_SWAP, OP_FETCH_ADD,
					 OP_ATOMIC_WRITE, OP_FLUSH};
	uint32_t psn = R(0);

	(void)state;
	for (size_t i = 0; i < sizeof(alone); i++) {
		struct stage *s = stage_begin(IBV_QPT_RC);

		ARRIVES(s, .opcode = alone[i], .psn = R(0), PAYLOAD(MTU));
		INVALID("refused 2");
	}
	psn = R(1);
	for (size_t i = 0; i < sizeof(within); i++) {
		struct stage *s = stage_begin(IBV_QPT_RC);
		bool payload = packet_layout(within[i]) & HAS_PAYLOAD;

		s->receives = 1;
		ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), PAYLOAD(MTU));
		ARRIVES(s, .opcode = within[i], .psn = R(1), .dma_length = 2 * MTU,
			PAYLOAD(payload ? MTU : 0));
		INVALID("take, place 0+256, back, refused 2");
	}
}

static void lengths(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t dma_length, length;
	} firsts[] = {
		{OP_SEND_FIRST, 0, MTU - 4},
		{OP_SEND_FIRST, 0, MTU + 4},
		{OP_SEND_ONLY, 0, MTU + 4},
		{OP_WRITE_FIRST, 2 * MTU, MTU - 4},
		{OP_WRITE_FIRST, MTU, MTU}, /* would have to be ONLY */
		{OP_WRITE_FIRST, 4, MTU},
		{OP_WRITE_FIRST, (1u << 31) + 1, MTU},
		{OP_WRITE_ONLY, 8, 4},
		{OP_WRITE_ONLY, 4, 8},
		{OP_WRITE_ONLY, MTU + 4, MTU + 4},
	};
	uint32_t psn = R(0);

	(void)state;
	for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
		struct stage *s = stage_begin(IBV_QPT_RC);

		s->receives = 1;
		ARRIVES(s, .opcode = firsts[i].opcode, .psn = R(0),
			.dma_length = firsts[i].dma_length, PAYLOAD(firsts[i].length));
		INVALID("refused 2");
	}
	struct stage *s = stage_begin(IBV_QPT_RC);

	psn = R(1);
	ARRIVES(s, .opcode = OP_WRITE_FIRST, .psn = R(0), .dma_length = 3 * MTU, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_WRITE_LAST, .psn = R(1), PAYLOAD(MTU));
	INVALID("write 0+256, refused 2");
	s = stage_begin(IBV_QPT_RC);
	ARRIVES(s, .opcode = OP_WRITE_FIRST, .psn = R(0), .dma_length = 2 * MTU, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_WRITE_MIDDLE, .psn = R(1), PAYLOAD(MTU));
	INVALID("write 0+256, refused 2");
	s = stage_begin(IBV_QPT_RC);
	s->receives = 1;
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_SEND_LAST, .psn = R(1));
	INVALID("take, place 0+256, back, refused 2");
}

static void longer_than_the_receive(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	uint32_t psn = R(1);

	(void)state;
	s->receives = 1;
	s->room = MTU + 3;
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_SEND_LAST, .psn = R(1), PAYLOAD(4));
	INVALID("take, place 0+256, receive 256 1, refused -1");
}

static void faults(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(0), .addr = MEMORY, .dma_length = 4,
		PAYLOAD(4));
	refused(s, R(0), NAK_REMOTE_ACCESS, "refused 3");
	s = stage_begin(IBV_QPT_RC);
	read_request(s, R(0), MEMORY, 4);
	refused(s, R(0), NAK_REMOTE_ACCESS, "refused 3");
	s = stage_begin(IBV_QPT_RC);
	s->access = TP_ACCESS_INVALID;
	fetch_add(s, R(0));
	refused(s, R(0), NAK_INVALID_REQUEST, "refused 2");
	s = stage_begin(IBV_QPT_RC);
	s->no_memory = true;
	fetch_add(s, R(0));
	refused(s, R(0), NAK_REMOTE_ACCESS, "atomic 64, refused 3");
	s = stage_begin(IBV_QPT_RC);
	s->receives = 1;
	s->bad_receive = true;
	send_only(s, R(0));
	refused(s, R(0), NAK_REMOTE_OPERATION, "take, receive 0 4, refused -1");
	s = stage_begin(IBV_QPT_RC);
	s->receives = 1;
	s->no_place = true;
	send_only(s, R(0));
	refused(s, R(0), NAK_REMOTE_OPERATION, "take, place 0+4 last, receive 0 4, refused -1");
}

/* Class J: the receive fails, and the request isn't answered, however often it comes; what was
 * executed before it is acknowledged. */
static void invalidation_refused(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 2;
	send_only(s, R(0));
	says(s, "take, place 0+4 last, receive 4 0");
	s->access = TP_ACCESS_REFUSED;
	ARRIVES(s, .opcode = OP_SEND_ONLY_INVALIDATE, .psn = R(1), .rkey = 9, .ack_request = true);
	says(s, "take, invalidate 9, receive 0 9, refused -1");
	acked(s, R(0), AETH_ACK | 31, 1);
	sends_nothing(s);
	ARRIVES(s, .opcode = OP_SEND_ONLY_INVALIDATE, .psn = R(1), .rkey = 9, .ack_request = true);
	send_only(s, R(2));
	sends_nothing(s);
	says(s, "");
	stage_end(s);
}

/* A region is deregistered while a READ of it is answered. */
static void read_loses_its_region(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	read_request(s, R(0), 1000, 3 * MTU);
	sends(s, OP_READ_RESPONSE_FIRST, R(0));
	says(s, "read 1000+256");
	s->access = TP_ACCESS_REFUSED;
	sends(s, OP_ACKNOWLEDGE, R(1));
	assert_int_equal(s->out.syndrome, AETH_NAK | NAK_REMOTE_ACCESS);
	says(s, "refused 3");
	sends_nothing(s);
	stage_end(s);
}

/* The owner stops the QP when a receive completes: with success (its CQ is full) no response
 * follows; with an error the NAK is still sent. Other waiting events are discarded. */
static void stopped_at_completion(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 2;
	s->stops_at_receive = true;
	send_only(s, R(0));
	says(s, "take, place 0+4 last, receive 4 0");
	sends_nothing(s);
	send_only(s, R(1));
	sends_nothing(s);
	stage_end(s);
	s = stage_begin(IBV_QPT_RC);
	s->receives = 1;
	s->room = 3;
	s->stops_at_receive = true;
	send_only(s, R(0));
	refused(s, R(0), NAK_INVALID_REQUEST, "take, receive 0 1");
}

/* Out-of-order packets are executed one by one, as the owner pulls the event of the one before;
 * none after the owner has stopped the core. */
static void early_packets_wait_for_the_owner(void **state)
{
	struct stage *s = stage_keeping();
	struct tp_event e;
	uint8_t bytes[WIRE_PACKET_MAX] = {0};
	struct packet p = {.opcode = OP_SEND_ONLY,
			   .psn = R(0),
			   .dest_qpn = 0x11,
			   .pkey = WIRE_PKEY,
			   PAYLOAD(4)};

	(void)state;
	s->receives = 4;
	for (uint32_t i = 1; i < 4; i++)
		send_only(s, R(i));
	says(s, "");
	uint32_t size = packet_encode(&p, bytes) + 4 + WIRE_ICRC;

	assert_int_equal(packet_decode(bytes, size, &p), PACKET_OK);
	tp_packet(s->tp, &p, s->now);
	says(s, "take, place 0+4 last");
	assert_true(tp_next_event(s->tp, &e));
	assert_int_equal(e.kind, TP_RECEIVED);
	says(s, "");
	assert_true(tp_next_event(s->tp, &e));
	assert_int_equal(e.kind, TP_RECEIVED);
	says(s, "take, place 0+4 last");
	tp_stop(s->tp, true);
	assert_false(tp_next_event(s->tp, &e));
	says(s, "");
	stage_end(s);
}

static void credits_are_told(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->counts_receives = true;
	s->receives = 5;
	send_only(s, R(0));
	acked(s, R(0), AETH_ACK | 4, 1);
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(1), .ack_request = true, PAYLOAD(MTU));
	acked(s, R(1), AETH_ACK | 4, 1); /* a taken receive counts until its message is complete */
	ARRIVES(s, .opcode = OP_SEND_LAST, .psn = R(2), .ack_request = true, PAYLOAD(1));
	acked(s, R(2), AETH_ACK | 3, 2);
	says(s, "take, place 0+4 last, receive 4 0, take, place 0+256, place 256+1 last, "
		"receive 257 0");
	stage_end(s);
}

/* Responses don't delay this side's requests, nor the reverse. */
static void answers_and_requests_take_turns(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	read_request(s, R(0), 0, 64 * MTU);
	post(s, IBV_WR_RDMA_WRITE, 8 * MTU, 0);
	for (uint32_t i = 0, own = 0; i < 64; i++) {
		if (i && i % TP_TURN == 0) {
			sends(s, own ? OP_WRITE_MIDDLE : OP_WRITE_FIRST, SQ_PSN + own);
			own++;
		}
		sends(s,
		      i == 0	? OP_READ_RESPONSE_FIRST
		      : i == 63 ? OP_READ_RESPONSE_LAST
				: OP_READ_RESPONSE_MIDDLE,
		      R(i));
	}
	s->said[0] = '\0';
	stage_end(s);
}

static void established_once(void **state)
{
	static const struct tp_path path = {.mtu = MTU, .remote_qpn = 0x22, .pkey = WIRE_PKEY};
	struct stage *s = stage_begin(IBV_QPT_RC);
	const struct tp_world *world = s->tp->world;

	(void)state;
	tp_init(s->tp, IBV_QPT_RC, world, s, s->ring, PLACES);
	tp_receive_ready(s->tp, &path, &stage_attr); /* RTR */
	s->receives = 9;
	send_only(s, R(0));
	send_only(s, R(1));
	says(s,
	     "take, place 0+4 last, established, receive 4 0, take, place 0+4 last, receive 4 0");
	acked(s, R(1), ACK, 2);
	stage_end(s);
}

/* UC: a message with a gap is dropped, and the receive serves the next one. */
static void uc_gaps(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_UC);

	(void)state;
	s->receives = 2;
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(0), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_SEND_LAST, .psn = R(2), PAYLOAD(4)); /* the middle got lost */
	says(s, "take, place 0+256, back");
	ARRIVES(s, .opcode = OP_SEND_LAST, .psn = R(3), PAYLOAD(4));
	says(s, "");
	ARRIVES(s, .opcode = OP_SEND_FIRST, .psn = R(9), PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_SEND_ONLY, .psn = R(20), PAYLOAD(4)); /* the end got lost */
	says(s, "take, place 0+256, back, take, place 0+4 last, receive 4 0");
	ARRIVES(s, .opcode = OP_WRITE_FIRST, .psn = R(21), .dma_length = MTU + 4, PAYLOAD(MTU));
	ARRIVES(s, .opcode = OP_WRITE_LAST, .psn = R(22), PAYLOAD(4));
	says(s, "write 0+256, write 256+4 last");
	sends_nothing(s);
	stage_end(s);
}

/* UC: without a receive or a right the message is dropped, no NAK is sent, the next message
 * arrives. */
static void uc_drops(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_UC);

	(void)state;
	send_only(s, R(0));
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(1), .addr = MEMORY, .dma_length = 4,
		PAYLOAD(4));
	ARRIVES(s, .opcode = OP_WRITE_ONLY, .psn = R(2), .dma_length = 8, PAYLOAD(4));
	says(s, "");
	assert_int_equal(tp_counters(s->tp)->dropped, 3);
	s->receives = 1;
	send_only(s, R(3));
	says(s, "take, place 0+4 last, receive 4 0");
	s->receives = 1;
	s->room = 3;
	send_only(s, R(4)); /* longer than the receive, which stays for the next message */
	says(s, "take, back");
	s->room = 4;
	send_only(s, R(5));
	says(s, "take, place 0+4 last, receive 4 0");
	sends_nothing(s);
	stage_end(s);
}

/* A kernel's Soft-RoCE would take an acknowledgement with an answer's PSN for the answer. */
static void acknowledges_no_answer(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);

	(void)state;
	s->receives = 9;
	send_only(s, R(0));
	read_request(s, R(1), 0, 1); /* before the SEND is acknowledged */
	sends(s, OP_READ_RESPONSE_ONLY, R(1));
	acked(s, R(0), ACK, 2);
	fetch_add(s, R(2));
	sends(s, OP_ATOMIC_ACKNOWLEDGE, R(2));
	send_only(s, R(0)); /* both got lost */
	acked(s, R(0), ACK, 3);
	send_only(s, R(3));
	acked(s, R(3), ACK, 4);
	says(s, TAKEN ", read 0+1, atomic 64, " TAKEN);
	stage_end(s);
}

/* After 2^22 answers an acknowledgement's PSN would be too old: there is none until the next
 * request that wants one. */
static void acknowledges_nothing_old(void **state)
{
	struct stage *s = stage_begin(IBV_QPT_RC);
	struct responder *r = s->tp->responder;
	uint32_t psn = psn_add(R(1), TP_ANSWERED_MAX - 2);

	(void)state;
	s->receives = 9;
	send_only(s, R(0));
	acked(s, R(0), ACK, 1);
	r->expected = psn;
	fetch_add(s, psn);
	sends(s, OP_ATOMIC_ACKNOWLEDGE, psn);
	send_only(s, R(0));
	acked(s, R(0), ACK, 2);
	fetch_add(s, psn_add(psn, 1));
	sends(s, OP_ATOMIC_ACKNOWLEDGE, psn_add(psn, 1));
	send_only(s, R(0));
	sends_nothing(s);
	read_request(s, psn_add(psn, 2), 0, 3 * MTU);
	for (uint32_t i = 0; i < 3; i++)
		sends(s,
		      i == 0   ? OP_READ_RESPONSE_FIRST
		      : i == 1 ? OP_READ_RESPONSE_MIDDLE
			       : OP_READ_RESPONSE_LAST,
		      psn_add(psn, 2 + i));
	assert_int_equal(psn_diff(r->expected, r->acknowledged), TP_ANSWERED_MAX);
	send_only(s, psn_add(psn, 5));
	acked(s, psn_add(psn, 5), ACK, 5);
	says(s, TAKEN ", atomic 64, atomic 64, read 0+256, read 256+256, read 512+256, " TAKEN);
	stage_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_is_placed),
		cmocka_unit_test(write_is_executed),
		cmocka_unit_test(sequence_nak_once),
		cmocka_unit_test(sequence_nak_again),
		cmocka_unit_test(late_packet_takes_nak_back),
		cmocka_unit_test(early_packets_wait),
		cmocka_unit_test(early_packets_are_acknowledged),
		cmocka_unit_test(early_packets_wait_for_two),
		cmocka_unit_test(early_parts),
		cmocka_unit_test(early_packets_are_forgotten),
		cmocka_unit_test(early_places),
		cmocka_unit_test(early_packets_wait_for_the_owner),
		cmocka_unit_test(duplicates_are_not_executed),
		cmocka_unit_test(rnr_nak),
		cmocka_unit_test(read_is_answered),
		cmocka_unit_test(invalidation_refused),
		cmocka_unit_test(duplicate_read),
		cmocka_unit_test(duplicate_waits_its_turn),
		cmocka_unit_test(duplicate_atomic),
		cmocka_unit_test(too_many_reads),
		cmocka_unit_test(empty_answers),
		cmocka_unit_test(empty_answers_refused),
		cmocka_unit_test(flushes_beyond_the_reads),
		cmocka_unit_test(too_many_flushes),
		cmocka_unit_test(flush_of_soft_roce),
		cmocka_unit_test(opcodes_out_of_order),
		cmocka_unit_test(lengths),
		cmocka_unit_test(longer_than_the_receive),
		cmocka_unit_test(faults),
		cmocka_unit_test(read_loses_its_region),
		cmocka_unit_test(stopped_at_completion),
		cmocka_unit_test(credits_are_told),
		cmocka_unit_test(answers_and_requests_take_turns),
		cmocka_unit_test(established_once),
		cmocka_unit_test(acknowledges_no_answer),
		cmocka_unit_test(acknowledges_nothing_old),
		cmocka_unit_test(uc_gaps),
		cmocka_unit_test(uc_drops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
