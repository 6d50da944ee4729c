/* SPDX-License-Identifier: BSD-2-Clause */
/* Tag matching: what its tests have in common. See tags.h. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tags.h"

enum { FIN_ID = 5000, FIRST_RECEIVE_SLOT = 32 };

/* ------------------------------------------------------------------ opening */

/* B: the SRQ, its CQ, and a QP in place of the one that end_open() made. */
static void open_receiver(struct tm_end *tm, const struct tm_options *opt)
{
	struct rig *rig = tm->end.rig;
	struct ibv_context *ctx = tm->end.pd->context;
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 1024,
		.channel = tm->end.channel,
		.cq_context = &tm->end,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO,
	};

	OK(rig, ibv_destroy_qp(tm->end.qp));
	OK(rig, ibv_destroy_cq(tm->end.rcq));
	CHECK(rig, (tm->cq = ibv_create_cq_ex(ctx, &cq)));
	tm->end.rcq = ibv_cq_ex_to_cq(tm->cq);
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = TM_RECEIVES, .max_sge = 4},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = tm->end.pd,
		.cq = tm->end.rcq,
		.tm_cap = {.max_num_tags = opt->tags ? opt->tags : TM_TAGS, .max_ops = 16},
	};

	CHECK(rig, (tm->end.srq = ibv_create_srq_ex(ctx, &srq)));
	struct ibv_qp_init_attr qp = {
		.send_cq = tm->end.scq,
		.recv_cq = tm->end.scq, /* nothing comes here */
		.srq = tm->end.srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = opt->own_queue ? 16 : 0, .max_send_sge = 1},
	};

	CHECK(rig, (tm->end.qp = ibv_create_qp(tm->end.pd, &qp)));
}

static void post_receives(struct tm_end *tm)
{
	if (tm->end.rig->role == RIG_A) {
		for (unsigned int i = 0; i < 64; i++)
			OK(tm->end.rig, end_recv(&tm->end, FIN_ID, (TM_SLOTS - 1) * TM_SLOT, 64));
		return;
	}
	for (unsigned int i = 0; i < 16; i++)
		OK(tm->end.rig, end_recv(&tm->end, 1000 + i,
					 (size_t)(FIRST_RECEIVE_SLOT + i) * TM_SLOT, TM_SLOT));
}

void tm_open(struct tm_end *tm, struct rig *rig, const struct tm_options *opt)
{
	static const struct tm_options none;
	const struct end_options end = {.bytes = (size_t)TM_SLOT * TM_SLOTS, .cqe = 512};

	opt = opt ? opt : &none;
	memset(tm, 0, sizeof(*tm));
	end_open(&tm->end, rig, &end);
	if (rig->role == RIG_B)
		open_receiver(tm, opt);
	end_init(&tm->end);
	if (!opt->few_receives)
		post_receives(tm);
	end_meet(&tm->end);
	end_rtr(&tm->end);
	if (!opt->no_rts || rig->role == RIG_A)
		end_rts(&tm->end);
	rig_sync(rig);
}

void tm_close(struct tm_end *tm)
{
	rig_sync(tm->end.rig);
	end_close(&tm->end);
}

/* ------------------------------------------------------------------ B: the list */

int tm_op(struct tm_end *tm, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int err = ibv_post_srq_ops(tm->end.srq, wr, &bad);

	CHECK(tm->end.rig, !err || bad == wr);
	return err;
}

uint32_t tm_add(struct tm_end *tm, unsigned int slot, uint32_t length, uint64_t tag, uint64_t mask,
		int flags)
{
	struct ibv_sge sge = end_sge(&tm->end, (size_t)slot * TM_SLOT, length);
	struct ibv_ops_wr wr = {
		.opcode = IBV_WR_TAG_ADD,
		.flags = flags,
		.tm = {.unexpected_cnt = tm->unexpected,
		       .add = {.recv_wr_id = slot,
			       .sg_list = &sge,
			       .num_sge = length != 0,
			       .tag = tag,
			       .mask = mask}},
	};

	OK(tm->end.rig, tm_op(tm, &wr));
	return wr.tm.handle;
}

void tm_sync(struct tm_end *tm)
{
	struct ibv_ops_wr wr = {
		.wr_id = 77,
		.opcode = IBV_WR_TAG_SYNC,
		.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
		.tm = {.unexpected_cnt = tm->unexpected},
	};

	OK(tm->end.rig, tm_op(tm, &wr));
	tm_expect(tm, 77, IBV_WC_TM_SYNC, 0);
}

/* ------------------------------------------------------------------ B: completions */

static bool next_within(struct tm_end *tm, struct tm_wc *out, int ms)
{
	struct patience patience = patience_of(ms);
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc_tm_info info;

	while (ibv_start_poll(tm->cq, &attr) == ENOENT)
		if (patience_over(&patience))
			return false;
	ibv_wc_read_tm_info(tm->cq, &info);
	*out = (struct tm_wc){
		.id = tm->cq->wr_id,
		.tag = info.tag,
		.priv = info.priv,
		.length = ibv_wc_read_byte_len(tm->cq),
		.imm = ibv_wc_read_imm_data(tm->cq),
		.status = tm->cq->status,
		.opcode = ibv_wc_read_opcode(tm->cq),
		.flags = ibv_wc_read_wc_flags(tm->cq),
	};
	ibv_end_poll(tm->cq);
	return true;
}

struct tm_wc tm_next_at(struct tm_end *tm, const char *file, int line)
{
	struct tm_wc wc = {0};

	if (!next_within(tm, &wc, RIG_SOON_MS))
		rig_fail(tm->end.rig, file, line, "no completion");
	return wc;
}

bool tm_any(struct tm_end *tm, struct tm_wc *out)
{
	return next_within(tm, out, RIG_NEVER_MS);
}

struct tm_wc tm_expect_at(struct tm_end *tm, uint64_t id, enum ibv_wc_opcode opcode,
			  unsigned int flags, const char *file, int line)
{
	struct tm_wc wc = tm_next_at(tm, file, line);

	if (wc.id != id || wc.status != IBV_WC_SUCCESS || wc.opcode != opcode || wc.flags != flags)
		rig_fail(tm->end.rig, file, line,
			 "completion %llu: \"%s\", opcode %d, flags 0x%x; expected %llu, opcode "
			 "%d, flags 0x%x",
			 (unsigned long long)wc.id, ibv_wc_status_str(wc.status), wc.opcode,
			 wc.flags, (unsigned long long)id, opcode, flags);
	return wc;
}

struct tm_wc tm_expect_data(struct tm_end *tm, uint64_t id, uint64_t tag, uint32_t length)
{
	struct rig *rig = tm->end.rig;
	struct tm_wc wc = tm_next(tm), first = wc;

	CHECK_EQ(rig, wc.flags & IBV_WC_TM_MATCH, IBV_WC_TM_MATCH);
	CHECK_EQ(rig, wc.tag, tag);
	if (!(wc.flags & IBV_WC_TM_DATA_VALID)) {
		CHECK_EQ(rig, wc.opcode, IBV_WC_TM_RECV);
		CHECK_EQ(rig, wc.id, id);
		wc = tm_next(tm);
		CHECK_EQ(rig, wc.flags, IBV_WC_TM_DATA_VALID);
		CHECK_EQ(rig, wc.tag, 0);
	}
	CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc.opcode, IBV_WC_TM_RECV);
	CHECK_EQ(rig, wc.id, id);
	CHECK_EQ(rig, wc.length, length);
	return first;
}

/* ------------------------------------------------------------------ A: messages */

void tm_header(struct tm_end *tm, unsigned int slot, enum ibv_tmh_op op, uint64_t tag,
	       uint32_t priv)
{
	struct ibv_tmh tmh = {.opcode = (uint8_t)op, .app_ctx = htobe32(priv), .tag = htobe64(tag)};

	memcpy(tm_at(tm, slot), &tmh, sizeof(tmh));
}

void tm_post(struct tm_end *tm, unsigned int slot, uint32_t length)
{
	OK(tm->end.rig, end_send(&tm->end, IBV_WR_SEND, slot, (size_t)slot * TM_SLOT, length, 0));
}

void tm_eager(struct tm_end *tm, unsigned int slot, uint64_t tag, uint32_t data, uint32_t seed)
{
	tm_header(tm, slot, IBV_TMH_EAGER, tag, seed);
	pattern_fill(tm_at(tm, slot) + TM_TMH, data, seed);
	tm_post(tm, slot, TM_TMH + data);
}

void tm_rendezvous(struct tm_end *tm, unsigned int slot, uint64_t tag, unsigned int from,
		   uint32_t data, uint32_t seed)
{
	struct ibv_rvh rvh = {
		.va = htobe64((uintptr_t)tm_at(tm, from)),
		.rkey = htobe32(tm->end.mr->rkey),
		.len = htobe32(data),
	};

	tm_header(tm, slot, IBV_TMH_RNDV, tag, seed);
	memcpy(tm_at(tm, slot) + TM_TMH, &rvh, sizeof(rvh));
	pattern_fill(tm_at(tm, from), data, seed);
	tm_post(tm, slot, TM_HEADERS);
}

void tm_sent(struct tm_end *tm, unsigned int slot)
{
	wc_expect(&tm->end, tm->end.scq, slot, IBV_WC_SUCCESS);
}

void tm_fin(struct tm_end *tm, unsigned int slot)
{
	const uint8_t *fin = tm_at(tm, TM_SLOTS - 1), *sent = tm_at(tm, slot);
	struct ibv_wc wc = wc_expect(&tm->end, tm->end.rcq, FIN_ID, IBV_WC_SUCCESS);

	CHECK_EQ(tm->end.rig, wc.opcode, IBV_WC_RECV);
	CHECK_EQ(tm->end.rig, wc.byte_len, TM_HEADERS);
	CHECK_EQ(tm->end.rig, fin[0], IBV_TMH_FIN);
	CHECK(tm->end.rig, !memcmp(fin + 1, sent + 1, TM_HEADERS - 1));
}
