/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching against a model: end B posts, removes and reports at random, has end A send a few
 * messages, and predicts by which buffer each is received. B alone chooses; A is told. See tags.h.
 *
 * The model is a list in the order of posting, which is searched from the beginning, and two
 * counts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tags.h"

enum { ROUNDS = 400, BATCH = 4, BUFFERS = 12, VALUES = 5, RECEIVES = 16 };

struct message {
	uint8_t op; /* enum ibv_tmh_op */
	uint32_t tag, length, seed;
};

struct batch {
	uint32_t count;
	struct message messages[BATCH];
};

/* A buffer of the model. `held`: posted out of step. */
struct buffer {
	bool posted, held;
	uint32_t handle, order;
	uint64_t tag, mask;
};

struct model {
	struct tm_end *tm;
	uint64_t random;
	struct buffer buffers[BUFFERS]; /* by slot */
	uint32_t orders;
	uint32_t unexpected;   /* messages that matched nothing */
	uint32_t handled;      /* reported */
	uint32_t next_receive; /* of the ordinary ones, in the order of posting */
};

static uint32_t below(struct model *m, uint32_t n)
{
	m->random = m->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(m->random >> 33) % n;
}

/* ------------------------------------------------------------------ operations */

static void model_report(struct model *m, uint32_t count)
{
	m->handled = count;
	for (unsigned int i = 0; i < BUFFERS && m->handled == m->unexpected; i++)
		m->buffers[i].held = false;
}

static void do_add(struct model *m)
{
	static const uint64_t masks[] = {~0ull, 3, 0};
	unsigned int slot = below(m, BUFFERS);
	struct buffer *b = &m->buffers[slot];
	bool report = below(m, 2);

	if (b->posted)
		return;
	*b = (struct buffer){.posted = true,
			     .held = m->handled != m->unexpected,
			     .order = m->orders++,
			     .tag = below(m, VALUES),
			     .mask = masks[below(m, 3)]};
	b->tag &= b->mask;
	m->tm->unexpected = report ? m->unexpected : 12345; /* not looked at without the flag */
	b->handle = tm_add(m->tm, slot, TM_SLOT, b->tag, b->mask, report ? IBV_OPS_TM_SYNC : 0);
	if (report)
		model_report(m, m->unexpected);
}

static void do_remove(struct model *m)
{
	struct buffer *b = &m->buffers[below(m, BUFFERS)];
	struct ibv_ops_wr wr = {
		.wr_id = 600,
		.opcode = IBV_WR_TAG_DEL,
		.flags = IBV_OPS_SIGNALED,
		.tm.handle = b->handle,
	};

	if (!b->order && !b->posted)
		return; /* it never was */
	OK(m->tm->end.rig, tm_op(m->tm, &wr));
	struct tm_wc wc = tm_next(m->tm);

	CHECK_EQ(m->tm->end.rig, wc.id, 600);
	CHECK_EQ(m->tm->end.rig, wc.status, b->posted ? IBV_WC_SUCCESS : IBV_WC_TM_ERR);
	CHECK_EQ(m->tm->end.rig, wc.flags, m->handled == m->unexpected ? 0 : IBV_WC_TM_SYNC_REQ);
	b->posted = false;
}

static void do_report(struct model *m)
{
	uint32_t count = below(m, 4) || !m->unexpected ? m->unexpected : m->unexpected - 1;
	struct ibv_ops_wr wr = {
		.opcode = IBV_WR_TAG_SYNC,
		.flags = IBV_OPS_TM_SYNC,
		.tm.unexpected_cnt = count,
	};

	OK(m->tm->end.rig, tm_op(m->tm, &wr));
	model_report(m, count);
}

/* ------------------------------------------------------------------ messages */

/* The slot of the buffer that the message matches; BUFFERS: none. */
static unsigned int match(const struct model *m, const struct message *message)
{
	unsigned int best = BUFFERS;

	if (message->op != IBV_TMH_EAGER && message->op != IBV_TMH_RNDV)
		return BUFFERS;
	for (unsigned int i = 0; i < BUFFERS; i++) {
		const struct buffer *b = &m->buffers[i];

		if (b->posted && !b->held && (message->tag & b->mask) == b->tag &&
		    (best == BUFFERS || b->order < m->buffers[best].order))
			best = i;
	}
	return best;
}

static void ordinary(struct model *m, const struct message *message)
{
	struct rig *rig = m->tm->end.rig;
	bool tagged = message->op == IBV_TMH_EAGER || message->op == IBV_TMH_RNDV;
	uint32_t length = message->op == IBV_TMH_RNDV ? TM_HEADERS : TM_TMH + message->length;
	uint32_t i = m->next_receive++ % RECEIVES;
	struct tm_wc wc = tm_next(m->tm);

	CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc.id, 1000 + i);
	CHECK_EQ(rig, wc.opcode, tagged ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG);
	CHECK_EQ(rig, wc.flags, 0);
	CHECK_EQ(rig, wc.length, length);
	if (message->op != IBV_TMH_RNDV)
		CHECK(rig,
		      pattern_holds(tm_at(m->tm, 32 + i) + TM_TMH, message->length, message->seed));
	m->unexpected += tagged;
	OK(rig, end_recv(&m->tm->end, 1000 + i, (size_t)(32 + i) * TM_SLOT, TM_SLOT));
}

/* B: the messages of a batch, in their order; of a rendezvous the match is. */
static void receive(struct model *m, const struct batch *batch)
{
	struct rig *rig = m->tm->end.rig;

	for (uint32_t i = 0; i < batch->count; i++) {
		const struct message *message = &batch->messages[i];
		unsigned int slot = match(m, message);

		if (slot == BUFFERS) {
			ordinary(m, message);
			continue;
		}
		struct tm_wc wc = tm_expect_data(m->tm, slot, message->tag, message->length);

		CHECK_EQ(rig, wc.priv, message->seed);
		CHECK(rig, pattern_holds(tm_at(m->tm, slot), message->length, message->seed));
		m->buffers[slot].posted = false;
		if (message->op == IBV_TMH_RNDV)
			break; /* the last one: do_messages() */
	}
}

static void do_messages(struct model *m)
{
	static const uint8_t ops[] = {IBV_TMH_EAGER, IBV_TMH_EAGER, IBV_TMH_EAGER, IBV_TMH_RNDV,
				      IBV_TMH_NO_TAG};
	static const uint32_t lengths[] = {0, 10, 500, 5000, 12000};
	struct batch batch = {.count = 1 + below(m, BATCH)}, ignored;

	for (uint32_t i = 0; i < batch.count; i++) {
		batch.messages[i] = (struct message){.op = ops[below(m, 5)],
						     .tag = below(m, VALUES),
						     .length = lengths[below(m, 5)],
						     .seed = below(m, 1000)};
		/* The end of a READ may come after other messages; so it ends a batch. */
		if (batch.messages[i].op == IBV_TMH_RNDV)
			batch.count = i + 1;
	}
	rig_swap(m->tm->end.rig, &batch, &ignored, sizeof(batch));
	receive(m, &batch);
}

/* A: until B sends an empty batch. */
static void obey(struct tm_end *tm)
{
	struct batch none = {0}, batch;

	for (;;) {
		rig_swap(tm->end.rig, &none, &batch, sizeof(batch));
		if (!batch.count)
			return;
		for (unsigned int i = 0; i < batch.count; i++) {
			const struct message *message = &batch.messages[i];

			if (message->op == IBV_TMH_RNDV) {
				tm_rendezvous(tm, i, message->tag, 20, message->length,
					      message->seed);
				continue;
			}
			tm_header(tm, i, message->op, message->tag, message->seed);
			pattern_fill(tm_at(tm, i) + TM_TMH, message->length, message->seed);
			tm_post(tm, i, TM_TMH + message->length);
		}
		for (unsigned int i = 0; i < batch.count; i++)
			tm_sent(tm, i);
		struct ibv_wc wc;

		while (ibv_poll_cq(tm->end.rcq, 1, &wc) == 1) /* FIN */
			OK(tm->end.rig, end_recv(&tm->end, 0, (TM_SLOTS - 1) * TM_SLOT, 64));
	}
}

static void tags_random(struct rig *rig)
{
	struct tm_end tm;
	struct model m = {.tm = &tm, .random = 20251125 + (uint64_t)rig->carrier};
	struct batch end = {0}, ignored;

	tm_open(&tm, rig, NULL);
	if (rig->role == RIG_A) {
		obey(&tm);
		tm_close(&tm);
		return;
	}
	for (unsigned int i = 0; i < ROUNDS; i++) {
		switch (below(&m, 8)) {
		case 0:
			do_remove(&m);
			break;
		case 1:
			do_report(&m);
			break;
		case 2:
		case 3:
			do_messages(&m);
			break;
		default:
			do_add(&m);
		}
	}
	rig_swap(rig, &end, &ignored, sizeof(end));
	tm_close(&tm);
}

const struct rig_test tag_random_tests[] = {{"tags_random", tags_random}, {0}};
