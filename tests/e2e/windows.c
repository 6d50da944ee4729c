/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: what a bound window grants its peer, and what not; how it is bound, invalidated
 * and ended. See rig.h, windows.h; windows_wrong.c has what is refused at once.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hazard_claim.h"
#include "windows.h"

/* ------------------------------------------------------------------ what a window grants */

static void reach_all(struct end *end)
{
	pattern_fill(end->buf, PART_BYTES, SEED);
	reach(end, IBV_WR_RDMA_WRITE, PART, PART_BYTES, IBV_WC_SUCCESS);
	memset(end->buf, 0, PART_BYTES);
	reach(end, IBV_WR_RDMA_READ, PART, PART_BYTES, IBV_WC_SUCCESS);
	CHECK(end->rig, pattern_holds(end->buf, PART_BYTES, SEED));
	reach(end, IBV_WR_RDMA_WRITE, PART + 1, 3, IBV_WC_SUCCESS);
	reach(end, IBV_WR_ATOMIC_FETCH_AND_ADD, PART + PART_BYTES - 8, 8, IBV_WC_SUCCESS);
}

static void window_grants(struct rig *rig)
{
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, REMOTE);
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A)
		reach_all(&end);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK(rig, !end.buf[PART - 1] && !end.buf[PART + PART_BYTES]);
		OK(rig, ibv_dealloc_mw(mw));
	}
	end_close(&end);
}

/* One access that is refused: B binds `bound`, A reaches for `length` bytes at `remote`. */
struct denied {
	unsigned int bound;
	enum ibv_wr_opcode opcode;
	size_t remote;
	uint32_t length;
};

static void denied_run(struct rig *rig, const struct denied *denied)
{
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, denied->bound);
	}
	key_pass(&end, rkey);
	refused(&end, denied->opcode, denied->remote, denied->length);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

static void window_refuses(struct rig *rig)
{
	static const struct denied all[] = {
		{REMOTE, IBV_WR_RDMA_WRITE, PART - 1, 8},
		{REMOTE, IBV_WR_RDMA_WRITE, PART + PART_BYTES - 7, 8},
		{REMOTE, IBV_WR_RDMA_READ, 0, 8},
		{REMOTE & ~IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE, PART, 8},
		{REMOTE & ~IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, PART, 8},
		{REMOTE & ~IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD, PART, 8},
		{IBV_ACCESS_LOCAL_WRITE, IBV_WR_RDMA_WRITE, PART, 8},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		denied_run(rig, &all[i]);
}

/* A zero-based window's addresses begin with 0. */
static void window_zero_based(struct rig *rig)
{
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, REMOTE | IBV_ACCESS_ZERO_BASED);
	}
	key_pass(&end, rkey);
	end.peer.addr = 0;
	if (rig->role == RIG_A) {
		pattern_fill(end.buf, PART_BYTES, SEED);
		reach(&end, IBV_WR_RDMA_WRITE, 0, PART_BYTES, IBV_WC_SUCCESS);
		reach(&end, IBV_WR_RDMA_READ, PART_BYTES - 8, 8, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK(rig, pattern_holds(end.buf + PART, PART_BYTES, SEED));
	refused(&end, IBV_WR_RDMA_READ, PART_BYTES - 7, 8);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

/* ------------------------------------------------------------------ queue pairs and domains */

/* The program gives a key's last eight bits; the others are the window's, whatever it names. */
static void window_key(struct rig *rig)
{
	enum { TAG = 0x66, WRONG = 0x12300 };
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = (mw->rkey & ~0xffu) | TAG;
		for (int i = 0; i < 2; i++) {
			uint32_t named = i ? TAG : rkey ^ WRONG;

			request_done(&end, bind_request(&end, mw, named, PART, PART_BYTES, REMOTE),
				     IBV_WC_SUCCESS);
			if (!i)
				invalidate(&end, rkey);
		}
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A)
		reach_all(&end);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

/* Two pairs of queue pairs; both of this end are in one protection domain. */
static void two_pairs(struct end *first, struct end *second, struct rig *rig)
{
	struct end_options opt = bindable;

	end_pair(first, rig, &opt);
	opt.pd = first->pd;
	end_pair(second, rig, &opt);
}

/* A window of type 2 is for the queue pair that it was bound by. */
static void window_of_another_qp(struct rig *rig)
{
	struct ibv_mw *mw = NULL;
	struct end other, end;
	uint32_t rkey = 0;

	two_pairs(&end, &other, rig);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, REMOTE);
	}
	key_pass(&end, rkey);
	key_pass(&other, rkey);
	other.peer.addr = end.peer.addr;
	if (rig->role == RIG_A)
		reach(&end, IBV_WR_RDMA_WRITE, PART, 8, IBV_WC_SUCCESS);
	rig_sync(rig);
	refused(&other, IBV_WR_RDMA_WRITE, PART, 8);
	rig_sync(rig);
	if (rig->role == RIG_A)
		reach(&end, IBV_WR_RDMA_WRITE, PART, 8, IBV_WC_SUCCESS);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&other);
	end_close(&end);
}

/* A window of type 1 is for its protection domain; each bind ends what was before. */
static void window_type_1(struct rig *rig)
{
	struct ibv_mw *mw = NULL;
	struct end other, end;

	two_pairs(&end, &other, rig);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_1);
		bind_type_1(&end, mw, 64);
		bind_type_1(&end, mw, PART_BYTES);
	}
	key_pass(&end, mw ? mw->rkey : 0);
	key_pass(&other, mw ? mw->rkey : 0);
	other.peer.addr = end.peer.addr;
	if (rig->role == RIG_A) {
		reach_all(&end);
		reach_all(&other);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		bind_type_1(&end, mw, PART_BYTES);
	rig_sync(rig);
	refused(&other, IBV_WR_RDMA_WRITE, PART, 8); /* the key is an old one */
	key_pass(&end, mw ? mw->rkey : 0);
	if (rig->role == RIG_A)
		reach(&end, IBV_WR_RDMA_WRITE, PART, 8, IBV_WC_SUCCESS);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK_EQ(rig, ibv_dereg_mr(end.mr), EBUSY);
		bind_type_1(&end, mw, 0);
	}
	key_pass(&end, mw ? mw->rkey : 0);
	refused(&end, IBV_WR_RDMA_READ, PART, 8);
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&other);
	end_close(&end);
}

/* After RESET, and in another connection of the same queue pair, the window isn't bound. */
static void window_after_reset(struct rig *rig)
{
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, REMOTE);
		CHECK_EQ(rig, ibv_dereg_mr(end.mr), EBUSY);
	}
	key_pass(&end, rkey);
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_RESET));
	rig_sync(rig);
	end_connect(&end);
	key_pass(&end, rkey);
	refused(&end, IBV_WR_RDMA_WRITE, PART, 8);
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_RESET));
	rig_sync(rig);
	end_connect(&end);
	if (rig->role == RIG_B)
		rkey = part_bind(&end, mw, rkey, REMOTE);
	key_pass(&end, rkey);
	if (rig->role == RIG_A)
		reach(&end, IBV_WR_RDMA_WRITE, PART, 8, IBV_WC_SUCCESS);
	rig_sync(rig);
	/* The end of the queue pair frees it as well. */
	OK(rig, ibv_destroy_qp(end.qp));
	end.qp = NULL;
	OK(rig, ibv_dereg_mr(end.mr));
	end.mr = NULL;
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

/* ------------------------------------------------------------------ invalidating */

static void invalidate_here(struct rig *rig)
{
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		for (int i = 0; i < 600; i++) { /* every tag, more than once */
			rkey = part_bind(&end, mw, rkey ? rkey : mw->rkey, REMOTE);
			invalidate(&end, rkey);
			invalidate(&end, rkey); /* it is free */
		}
		rkey = part_bind(&end, mw, rkey, REMOTE);
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A)
		reach_all(&end);
	rig_sync(rig);
	if (rig->role == RIG_B)
		invalidate(&end, rkey);
	rig_sync(rig);
	refused(&end, IBV_WR_RDMA_WRITE, PART, 8);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, ibv_dereg_mr(end.mr));
		end.mr = NULL;
		OK(rig, ibv_dealloc_mw(mw));
	}
	end_close(&end);
}

/* A invalidates B's window by a message of `length` bytes. */
static void invalidate_by_peer(struct rig *rig, uint32_t length)
{
	struct ibv_mw *mw = NULL;
	struct ibv_sge sge;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, REMOTE);
		OK(rig, end_recv(&end, 100, 0, length + 8));
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A) {
		reach_all(&end);
		pattern_fill(end.buf, length, SEED + 1);
		OK(rig, post_one(&end, send_inv_request(&end, length, end.peer.rkey, &sge)));
		wc_expect(&end, end.scq, 5, IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc = wc_expect(&end, end.rcq, 100, IBV_WC_SUCCESS);

		CHECK_EQ(rig, wc.wc_flags, IBV_WC_WITH_INV);
		CHECK_EQ(rig, wc.invalidated_rkey, rkey);
		CHECK_EQ(rig, wc.byte_len, length);
		CHECK(rig, pattern_holds(end.buf, length, SEED + 1));
	}
	rig_sync(rig);
	refused(&end, IBV_WR_RDMA_READ, PART, 8);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, ibv_dereg_mr(end.mr)); /* nothing is bound to it */
		end.mr = NULL;
		OK(rig, ibv_dealloc_mw(mw));
	}
	end_close(&end);
}

static void send_invalidates(struct rig *rig)
{
	static const uint32_t lengths[] = {0, 100, 20000, 60000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		invalidate_by_peer(rig, lengths[i]);
}

enum wrong_key { KEY_OF_REGION, KEY_OF_NOTHING, KEY_OF_TYPE_1, KEY_OF_ANOTHER_QP, KEYS };

/* A's message names a key that it may not invalidate: its receive fails, and A gets no answer. What
 * A sent before is acknowledged. */
static void send_invalidates_wrong(struct rig *rig, enum wrong_key which)
{
	struct ibv_mw *mw = NULL;
	struct end other, end;
	uint32_t rkey = 0;
	struct ibv_sge sge;

	two_pairs(&end, &other, rig);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, which == KEY_OF_TYPE_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		if (which == KEY_OF_TYPE_1)
			bind_type_1(&end, mw, PART_BYTES);
		rkey = which == KEY_OF_REGION	    ? end.mr->rkey
		       : which == KEY_OF_NOTHING    ? mw->rkey + 0x100000
		       : which == KEY_OF_ANOTHER_QP ? part_bind(&other, mw, mw->rkey, REMOTE)
						    : mw->rkey;
		OK(rig, end_recv(&end, 99, 0, 64));
		OK(rig, end_recv(&end, 100, 0, 64));
		OK(rig, end_recv(&end, 101, 0, 64));
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 4, 0, 16, 0));
		OK(rig, post_one(&end, send_inv_request(&end, 16, end.peer.rkey, &sge)));
		wc_expect(&end, end.scq, 4, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 5, IBV_WC_RETRY_EXC_ERR);
	} else {
		wc_expect(&end, end.rcq, 99, IBV_WC_SUCCESS);
		wc_expect(&end, end.rcq, 100, IBV_WC_REM_INV_REQ_ERR);
		wc_expect(&end, end.rcq, 101, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&other);
	end_close(&end);
}

static void send_invalidates_wrongly(struct rig *rig)
{
	for (enum wrong_key which = 0; which < KEYS; which++)
		send_invalidates_wrong(rig, which);
}

/* ------------------------------------------------------------------ order */

/* BIND, a message, LOCAL_INV, BIND, ... in one list: each is executed in its turn, also while the
 * peer isn't ready for the messages. */
static void requests_in_order(struct rig *rig)
{
	enum { ROUNDS = 12, EACH = 3 };
	struct end_options opt = {.mr_access = BINDABLE, .timeout = TIMEOUT_NONE};
	struct ibv_send_wr wr[ROUNDS * EACH], *bad;
	struct ibv_sge sge;
	struct end end;

	end_open(&end, rig, &opt);
	end_init(&end);
	end_meet(&end);
	for (uint64_t i = 0; i < ROUNDS; i++)
		OK(rig, end_recv(&end, 100 + i, 1024, 64));
	if (rig->role == RIG_B)
		rig_sync(rig);
	end_rtr(&end);
	end_rts(&end);
	struct ibv_mw *mw = mw_make(&end, IBV_MW_TYPE_2);

	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct ibv_send_wr *at = &wr[i * EACH];

		at[0] = bind_request(&end, mw, ibv_inc_rkey(mw->rkey), PART, PART_BYTES, REMOTE);
		end_request(&end, IBV_WR_SEND, 9, 0, 32, 0, &at[1], &sge);
		at[2] = invalidate_request(ibv_inc_rkey(mw->rkey));
		for (unsigned int k = 0; k < EACH; k++)
			at[k].next = i == ROUNDS - 1 && k == EACH - 1 ? NULL : &at[k + 1];
	}
	OK(rig, ibv_post_send(end.qp, wr, &bad));
	if (rig->role == RIG_A) {
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS); /* it needs no peer */
		wc_none(&end, end.scq);
		rig_sync(rig);
	}
	for (unsigned int i = rig->role == RIG_A; i < ROUNDS * EACH; i++)
		wc_expect(&end, end.scq, wr[i].wr_id, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < ROUNDS; i++)
		wc_expect(&end, end.rcq, 100 + i, IBV_WC_SUCCESS);
	rig_sync(rig);
	OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

/* The same requests by the builder interface. */
static void requests_by_builder(struct rig *rig)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE,
		.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4},
	};
	struct ibv_mw *mw;
	struct end end;
	uint32_t rkey, theirs;

	end_open(&end, rig, &bindable);
	OK(rig, ibv_destroy_qp(end.qp));
	attr.pd = end.pd;
	attr.send_cq = end.scq;
	attr.recv_cq = end.rcq;
	CHECK(rig, (end.qp = ibv_create_qp_ex(rig->ctx, &attr)));
	end_connect(&end);
	mw = mw_make(&end, IBV_MW_TYPE_2);
	rkey = ibv_inc_rkey(mw->rkey);
	OK(rig, end_recv(&end, 100, 0, 64));
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(end.qp);
	const struct ibv_mw_bind_info info = {end.mr, (uintptr_t)end.buf + PART, PART_BYTES,
					      REMOTE};

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_bind_mw(qp, mw, rkey, &info);
	qp->wr_id = 2;
	ibv_wr_local_inv(qp, rkey);
	qp->wr_id = 3;
	ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(rkey), &info);
	OK(rig, ibv_wr_complete(qp));
	rkey = ibv_inc_rkey(rkey);
	for (uint64_t id = 1; id <= 3; id++)
		wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
	rig_swap(rig, &rkey, &theirs, sizeof(rkey));
	ibv_wr_start(qp);
	qp->wr_id = 4;
	ibv_wr_rdma_write(qp, theirs, end.peer.addr + PART);
	ibv_wr_set_sge(qp, end.mr->lkey, (uintptr_t)end.buf, 16);
	qp->wr_id = 5;
	ibv_wr_send_inv(qp, theirs);
	ibv_wr_set_sge(qp, end.mr->lkey, (uintptr_t)end.buf, 16);
	OK(rig, ibv_wr_complete(qp));
	wc_expect(&end, end.scq, 4, IBV_WC_SUCCESS);
	wc_expect(&end, end.scq, 5, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc_expect(&end, end.rcq, 100, IBV_WC_SUCCESS).invalidated_rkey, rkey);
	OK(rig, ibv_dereg_mr(end.mr));
	end.mr = NULL;
	OK(rig, ibv_dealloc_mw(mw));
	rig_sync(rig);
	end_close(&end);
}

/* ------------------------------------------------------------------ the end of access */

/* A says that it copies through B's window; until it has ended, B's LOCAL_INV doesn't complete, nor
 * what comes after it. Likewise a bind of type 1. */
static void end_waits_for_copy(struct rig *rig, enum ibv_mw_type type)
{
	_Atomic uint64_t *hazard = NULL;
	struct ibv_mw *mw = NULL;
	struct end end;
	uint32_t rkey = 0;

	end_pair(&end, rig, &bindable);
	end_warm(&end);
	OK(rig, end_recv(&end, 100, 0, 64));
	if (rig->role == RIG_B) {
		mw = mw_make(&end, type);
		if (type == IBV_MW_TYPE_1)
			bind_type_1(&end, mw, PART_BYTES);
		rkey = type == IBV_MW_TYPE_1 ? mw->rkey : part_bind(&end, mw, mw->rkey, REMOTE);
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A) {
		reach(&end, IBV_WR_RDMA_WRITE, PART, 8, IBV_WC_SUCCESS);
		hazard = hazard_claim(&end, end.peer.rkey);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		struct ibv_mw_bind nothing = {.wr_id = 2, .send_flags = IBV_SEND_SIGNALED};

		if (type == IBV_MW_TYPE_2)
			OK(rig, post_one(&end, invalidate_request(rkey)));
		else
			OK(rig, ibv_bind_mw(end.qp, mw, &nothing));
		OK(rig, end_send(&end, IBV_WR_SEND, 3, 0, 8, 0));
		wc_none(&end, end.scq);
		CHECK_EQ(rig, ibv_dereg_mr(end.mr), EBUSY);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		wc_none(&end, end.rcq);
		*hazard = 0;
		wc_expect(&end, end.rcq, 100, IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	refused(&end, IBV_WR_RDMA_WRITE, PART, 8);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, ibv_dereg_mr(end.mr));
		end.mr = NULL;
		OK(rig, ibv_dealloc_mw(mw));
	}
	end_close(&end);
}

static void ends_wait_for_copies(struct rig *rig)
{
	if (rig->carrier == RIG_WIRE || rig->carrier == RIG_RING)
		return; /* no process copies but the window's own */
	end_waits_for_copy(rig, IBV_MW_TYPE_2);
	end_waits_for_copy(rig, IBV_MW_TYPE_1);
}

/* Two queue pairs bind a window of type 1 while a copy holds the end of its binding up: both
 * requests complete. */
static void two_wait_for_copy(struct rig *rig)
{
	_Atomic uint64_t *hazard = NULL;
	struct ibv_mw *mw = NULL;
	struct end other, end;

	if (rig->carrier == RIG_WIRE || rig->carrier == RIG_RING)
		return; /* no process copies but the window's own */
	two_pairs(&end, &other, rig);
	end_warm(&end);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_1);
		bind_type_1(&end, mw, PART_BYTES);
	}
	key_pass(&end, mw ? mw->rkey : 0);
	if (rig->role == RIG_A)
		hazard = hazard_claim(&end, end.peer.rkey);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		struct ibv_mw_bind nothing = {.wr_id = 2, .send_flags = IBV_SEND_SIGNALED};

		OK(rig, ibv_bind_mw(end.qp, mw, &nothing));
		OK(rig, ibv_bind_mw(other.qp, mw, &nothing));
		wc_none(&end, end.scq);
		wc_none(&other, other.scq);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		*hazard = 0;
	} else {
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
		wc_expect(&other, other.scq, 2, IBV_WC_SUCCESS);
		OK(rig, ibv_dealloc_mw(mw));
	}
	rig_sync(rig);
	end_close(&other);
	end_close(&end);
}

static void *dealloc(void *arg)
{
	return (void *)(intptr_t)ibv_dealloc_mw(arg); /* NOLINT */
}

/* A says that it copies with a key that B's window once had, or never: B's window doesn't end
 * before, because its index may come again, with that key. */
static void dealloc_waits_for_copy(struct rig *rig)
{
	_Atomic uint64_t *hazard = NULL;
	struct ibv_mw *mw = NULL;
	pthread_t thread;
	struct end end;
	void *result;

	if (rig->carrier == RIG_WIRE || rig->carrier == RIG_RING)
		return; /* no process copies but the window's own */
	end_pair(&end, rig, &bindable);
	end_warm(&end);
	if (rig->role == RIG_B)
		mw = mw_make(&end, IBV_MW_TYPE_2);
	key_pass(&end, mw ? mw->rkey : 0);
	if (rig->role == RIG_A)
		hazard = hazard_claim(&end, end.peer.rkey ^ 0x66);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, pthread_create(&thread, NULL, dealloc, mw));
		wc_none(&end, end.scq);
		CHECK_EQ(rig, pthread_tryjoin_np(thread, &result), EBUSY);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		*hazard = 0;
	} else {
		OK(rig, pthread_join(thread, &result));
		CHECK(rig, !result);
	}
	rig_sync(rig);
	end_close(&end);
}

enum { LONG = 2 << 20 };

static void *write_all(void *arg)
{
	struct end *end = arg;

	return (void *)(intptr_t)end_send(end, IBV_WR_RDMA_WRITE, 7, 0, LONG, 0); /* NOLINT */
}

/* B ends the window while A's long WRITE goes through it, and uses the memory anew. */
static void end_under_write(struct rig *rig, bool by_dealloc)
{
	struct end_options opt = {.mr_access = BINDABLE, .bytes = LONG, .timeout = 18};
	struct ibv_mw *mw = NULL;
	pthread_t thread;
	struct end end;
	void *result;
	uint32_t rkey = 0;

	end_pair(&end, rig, &opt);
	memset(end.buf, rig->role == RIG_A ? OLD : 0, LONG);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = ibv_inc_rkey(mw->rkey);
		request_done(&end, bind_request(&end, mw, rkey, 0, LONG, REMOTE), IBV_WC_SUCCESS);
	}
	key_pass(&end, rkey);
	if (rig->role == RIG_A) {
		OK(rig, pthread_create(&thread, NULL, write_all, &end));
		OK(rig, pthread_join(thread, &result));
		CHECK_EQ(rig, (intptr_t)result, 0);
		enum ibv_wc_status status = wc_wait(&end, end.scq).status;

		CHECK(rig, status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR);
	} else {
		struct patience patience = patience_of(RIG_SOON_MS);

		while (*(volatile uint8_t *)end.buf != OLD)
			CHECK(rig, !patience_over(&patience));
		if (by_dealloc)
			OK(rig, ibv_dealloc_mw(mw));
		else
			invalidate(&end, rkey);
		memset(end.buf, REUSED, LONG);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK(rig, !memchr(end.buf, OLD, LONG));
		if (!by_dealloc)
			OK(rig, ibv_dealloc_mw(mw));
	}
	end_close(&end);
}

static void ends_under_writes(struct rig *rig)
{
	for (int i = 0; i < 4; i++)
		end_under_write(rig, i % 2);
}

const struct rig_test window_tests[] = {
	{"window_grants", window_grants},
	{"window_refuses", window_refuses},
	{"window_zero_based", window_zero_based},
	{"window_key", window_key},
	{"window_of_another_qp", window_of_another_qp},
	{"window_type_1", window_type_1},
	{"window_after_reset", window_after_reset},
	{"window_invalidate_here", invalidate_here},
	{"window_send_invalidates", send_invalidates},
	{"window_send_invalidates_wrongly", send_invalidates_wrongly},
	{"window_requests_in_order", requests_in_order},
	{"window_requests_by_builder", requests_by_builder},
	{"window_ends_wait_for_copies", ends_wait_for_copies},
	{"window_two_wait_for_copy", two_wait_for_copy},
	{"window_dealloc_waits_for_copy", dealloc_waits_for_copy},
	{"window_ends_under_writes", ends_under_writes},
	{NULL, NULL},
};
