/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching in the games of victim.h: the SRQ of QP_RC_SRQ has a list of tags, which the
 * victim's program changes, and the peer's messages to that queue pair begin with headers, right or
 * wrong.
 */
#include "tagged.h"

#include <endian.h>
#include <infiniband/tm_types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hca/verbs/cq.h"
#include "hca/verbs/srq.h"
#include "play.h"
#include "victim.h"

/* Buffers and operations have these and the following wr_ids; the bits say what was seen. */
#define TAG_BASE (1ull << 40)
#define OP_BASE (1ull << 41)
enum { BUFFERS = 4096, LIST = 8 };

static struct tagged_game {
	bool offloads;
	uint64_t next;
	uint32_t handles[BUFFERS];
	bool matched[BUFFERS], over[BUFFERS], op_over[BUFFERS];
} game;

struct ibv_srq *tagged_begin(bool offloads)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 4, .max_sge = 4},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = &victim.pd[0].ibv,
		.cq = victim.recv_cq,
		.tm_cap = {.max_num_tags = LIST, .max_ops = LIST},
	};

	game = (struct tagged_game){.offloads = offloads};
	cq_of(victim.recv_cq)->extended = true;
	return srq_create_tm(&attr);
}

/* A header as a correct peer writes it, or nearly so. Returns its size. */
static uint32_t header_fill(struct input *in, uint8_t head[TAG_HEAD])
{
	struct ibv_tmh tmh = {.opcode = input_u8(in) % 5};
	uint8_t at = input_u8(in), how = input_u8(in);
	struct ibv_rvh rvh = {
		.va = htobe64(PEER_BASE + at * 64u),
		.rkey = htobe32(0x101),
		.len = htobe32(how < 224 ? how * 32u : input_u32(in)),
	};

	tmh.app_ctx = htobe32(how);
	tmh.tag = htobe64(how % 4);
	memcpy(head, &tmh, sizeof(tmh));
	memcpy(head + sizeof(tmh), &rvh, sizeof(rvh));
	return TAG_HEAD;
}

void tagged_message(struct input *in, uint8_t *payload)
{
	header_fill(in, payload);
}

static void op_add(struct input *in, uint64_t unexpected)
{
	struct ibv_sge sge[4];
	uint64_t n = game.next;
	struct ibv_ops_wr wr = {
		.wr_id = OP_BASE + n,
		.opcode = IBV_WR_TAG_ADD,
		.tm = {.unexpected_cnt = (uint32_t)unexpected,
		       .add = {.recv_wr_id = TAG_BASE + n, .sg_list = sge}},
	};
	struct ibv_ops_wr *bad;

	wr.flags = input_u8(in) & 3;
	wr.tm.add.num_sge = fill_sges(in, sge, REGION_LOCAL);
	wr.tm.add.tag = input_u8(in) % 4;
	wr.tm.add.mask = input_u8(in) < 192 ? UINT64_MAX : 0;
	if (n < BUFFERS && !srq_post_ops(victim.srq, &wr, &bad))
		game.handles[game.next++] = wr.tm.handle;
}

void act_tag(struct input *in)
{
	uint8_t what = input_u8(in), head[TAG_HEAD];
	uint64_t unexpected = srq_of(victim.srq)->tags->unexpected + (what & 0x40 ? what & 3 : 0);
	struct ibv_ops_wr *bad, wr = {.opcode = IBV_WR_TAG_SYNC,
				      .flags = what & 0x20 ? IBV_OPS_TM_SYNC : 0,
				      .tm = {.unexpected_cnt = (uint32_t)unexpected}};

	switch (what % 8) {
	case 0: /* in the peer's memory, for messages by reference */
		victim_peer_write(head, header_fill(in, head));
		break;
	case 1:
		wr.opcode = IBV_WR_TAG_DEL;
		wr.tm.handle = game.next && what < 192 ? game.handles[input_u8(in) % game.next]
						       : input_u32(in);
		/* fall through */
	case 2:
		(void)!srq_post_ops(victim.srq, &wr, &bad);
		break;
	default:
		op_add(in, unexpected);
	}
}

bool tagged_completion(const struct ibv_wc *wc)
{
	if (wc->wr_id < TAG_BASE)
		return false;
	if (wc->wr_id >= OP_BASE) {
		MUST(wc->wr_id < OP_BASE + game.next && !game.op_over[wc->wr_id - OP_BASE]);
		game.op_over[wc->wr_id - OP_BASE] = true;
		return true;
	}
	uint64_t n = wc->wr_id - TAG_BASE;
	bool match = wc->wc_flags & IBV_WC_TM_MATCH;

	/* It matches once, and is over once, not before. */
	MUST(n < game.next && !game.over[n] && !(match && game.matched[n]));
	game.matched[n] |= match;
	game.over[n] = wc->status != IBV_WC_SUCCESS || wc->wc_flags & IBV_WC_TM_DATA_VALID;
	MUST(match || game.over[n]);
	MUST(game.matched[n] || wc->status != IBV_WC_SUCCESS);
	return true;
}
