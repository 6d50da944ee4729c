/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives that are longer than their memory. As on an adapter, only the bytes that a message
 * places need a region: perftest's receives with an SRQ reach beyond the end of theirs. See rig.h.
 */
#include <string.h>

#include "faults.h"

enum { GRH = 40, RECEIVE = 100, BYTES = 65536, BEYOND = 4096, BAD_KEY = 0x40, SEED = 5 };

struct reach {
	enum ibv_qp_type type;
	unsigned int srq_depth;
	uint32_t length; /* the message's */
};

static uint32_t placed(const struct reach *reach)
{
	return reach->length + (reach->type == IBV_QPT_UD ? GRH : 0);
}

/* B posts the receive, and A sends the message. */
static void reach_open(struct end *end, struct rig *rig, const struct reach *reach,
		       const struct ibv_sge *sge, int count)
{
	const struct end_options opt = {
		.type = reach->type, .srq_depth = reach->srq_depth, .bytes = BYTES};
	struct ibv_sge list[2];
	struct ibv_recv_wr wr = {.wr_id = RECEIVE, .sg_list = list, .num_sge = count}, *bad;

	end_pair(end, rig, &opt);
	for (int i = 0; i < count; i++) {
		list[i] = sge[i];
		list[i].addr += (uintptr_t)end->buf;
		list[i].lkey ^= end->mr->lkey;
	}
	if (rig->role == RIG_A)
		pattern_fill(end->buf, reach->length, SEED);
	else if (end->srq)
		OK(rig, ibv_post_srq_recv(end->srq, &wr, &bad));
	else
		OK(rig, ibv_post_recv(end->qp, &wr, &bad));
	rig_sync(rig);
	if (rig->role == RIG_A)
		OK(rig, end_send(end, IBV_WR_SEND, 1, 0, reach->length, 0));
}

/* The message arrives `at` bytes into B's buffer. */
static void arrives(struct rig *rig, const struct reach *reach, const struct ibv_sge *sge,
		    int count, size_t at)
{
	struct end end;

	reach_open(&end, rig, reach, sge, count);
	if (rig->role == RIG_A) {
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc = wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);

		CHECK_EQ(rig, wc.byte_len, placed(reach));
		CHECK(rig, pattern_holds(end.buf + at + placed(reach) - reach->length,
					 reach->length, SEED));
		CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* The message reaches what isn't memory. */
static void fails(struct rig *rig, const struct reach *reach, const struct ibv_sge *sge, int count)
{
	struct end end;

	reach_open(&end, rig, reach, sge, count);
	if (rig->role == RIG_A) {
		wc_expect(&end, end.scq, 1,
			  reach->type == IBV_QPT_RC ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.rcq, RECEIVE, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

/* The region ends with the message, and one byte before its end. */
static void beyond_the_region(struct rig *rig, const struct reach *reach)
{
	const uint32_t at = BYTES - placed(reach);
	const struct ibv_sge fits = {.addr = at, .length = placed(reach) + BEYOND};
	const struct ibv_sge short_by_one = {.addr = at + 1, .length = placed(reach) + BEYOND};

	arrives(rig, reach, &fits, 1, at);
	fails(rig, reach, &short_by_one, 1);
}

/* The second segment has a wrong key; the message ends with the first one, and a byte later. */
static void beyond_the_first_segment(struct rig *rig, const struct reach *reach)
{
	struct ibv_sge list[2] = {{.addr = 16, .length = placed(reach)},
				  {.addr = 0, .length = BEYOND, .lkey = BAD_KEY}};

	arrives(rig, reach, list, 2, 16);
	list[0].length--;
	fails(rig, reach, list, 2);
	/* The second one is too long, and the message needs a part of it. */
	list[0].length = placed(reach) / 2;
	list[1] = (struct ibv_sge){.addr = 16 + list[0].length, .length = BYTES};
	arrives(rig, reach, list, 2, 16);
}

static void reach_by(struct rig *rig, enum ibv_qp_type type, const uint32_t *lengths, int count)
{
	struct reach reach = {.type = type};

	for (reach.srq_depth = 0; reach.srq_depth <= 4; reach.srq_depth += 4) {
		for (int i = 0; i < count; i++) {
			reach.length = lengths[i];
			beyond_the_region(rig, &reach);
			beyond_the_first_segment(rig, &reach);
		}
	}
}

/* Short; of some packets; long enough that a peer copies it from the sender. */
static const uint32_t lengths[] = {64, 3000, 50000};

static void receive_reach_rc(struct rig *rig)
{
	reach_by(rig, IBV_QPT_RC, lengths, 3);
}

static void receive_reach_uc(struct rig *rig)
{
	reach_by(rig, IBV_QPT_UC, lengths, 3);
}

static void receive_reach_ud(struct rig *rig)
{
	static const uint32_t datagrams[] = {0, 64, 1000};

	reach_by(rig, IBV_QPT_UD, datagrams, 3);
}

/* A message of no bytes places none. */
static void receive_reach_nothing(struct rig *rig)
{
	const struct ibv_sge none = {.addr = BYTES, .length = BEYOND, .lkey = BAD_KEY};
	struct reach reach = {.type = IBV_QPT_RC};

	arrives(rig, &reach, &none, 1, 0);
	reach.type = IBV_QPT_UC;
	arrives(rig, &reach, &none, 1, 0);
}

const struct rig_test reach_tests[] = {
	{"receive_reach_rc", receive_reach_rc},
	{"receive_reach_uc", receive_reach_uc},
	{"receive_reach_ud", receive_reach_ud},
	{"receive_reach_nothing", receive_reach_nothing},
	{NULL, NULL},
};
