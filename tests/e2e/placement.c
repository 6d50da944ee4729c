/* SPDX-License-Identifier: BSD-2-Clause */
/* ATOMIC WRITE and FLUSH: what they do, the rights that they need, and wrong requests. See rig.h.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "faults.h"

enum { SEED = 91, LENGTH = 20000, FLAG = 32768 };
enum { BOTH_FLUSHES = IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT };
enum {
	QP_RIGHTS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | BOTH_FLUSHES,
	MR_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		    IBV_ACCESS_FLUSH_GLOBAL,
};

static const struct end_options flushable = {.mr_access = MR_RIGHTS, .qp_access = QP_RIGHTS};

void placement_qp(struct end *end)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_FLUSH |
				  IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_SEND,
		.cap = {.max_send_wr = 64, .max_recv_wr = 4, .max_recv_sge = 1},
	};

	OK(end->rig, ibv_destroy_qp(end->qp));
	attr.pd = end->pd;
	attr.send_cq = end->scq;
	attr.recv_cq = end->rcq;
	attr.cap.max_send_sge = end->rig->role == RIG_A;
	CHECK(end->rig, (end->qp = ibv_create_qp_ex(end->pd->context, &attr)));
}

/* A connected end with the builders of RC. `opt` NULL: flushable. */
static void placement_open(struct end *end, struct rig *rig, const struct end_options *opt)
{
	end_open(end, rig, opt ? opt : &flushable);
	placement_qp(end);
	end_connect(end);
}

static struct ibv_qp_ex *build(struct end *end, uint64_t id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->qp);

	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

static void flush_post(struct end *end, uint64_t id, uint64_t at, size_t length, uint8_t type,
		       uint8_t level)
{
	struct ibv_qp_ex *ex = build(end, id);

	ibv_wr_flush(ex, end->peer.rkey, end->peer.addr + at, length, type, level);
	OK(end->rig, ibv_wr_complete(ex));
}

static uint64_t *word_of(struct end *end, size_t at)
{
	return (uint64_t *)(void *)(end->buf + at);
}

/* ------------------------------------------------------------------ ATOMIC WRITE */

static void atomic_write_done(struct end *end, uint64_t id)
{
	struct ibv_wc wc = wc_expect(end, end->scq, id, IBV_WC_SUCCESS);

	CHECK_EQ(end->rig, wc.opcode, IBV_WC_ATOMIC_WRITE);
	CHECK_EQ(end->rig, wc.byte_len, 8);
}

/* From registered memory, from inline data, and by the builder, also of a QP that has no segments
 * and no inline data. */
static void atomic_write_words(struct rig *rig)
{
	static const struct end_options opt = {.inline_bytes = 16};
	const uint64_t third = 0x3333333333333333;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		*word_of(&end, 0) = 0x1111111111111111;
		OK(rig, end_send(&end, IBV_WR_ATOMIC_WRITE, 1, 0, 8, 64));
		atomic_write_done(&end, 1);
		*word_of(&end, 0) = 0x2222222222222222;
		end_request(&end, IBV_WR_ATOMIC_WRITE, 2, 0, 8, 72, &wr, &sge);
		wr.send_flags |= IBV_SEND_INLINE;
		sge.lkey = 0;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		atomic_write_done(&end, 2);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK_EQ(rig, *word_of(&end, 56), 0);
		CHECK_EQ(rig, *word_of(&end, 64), 0x1111111111111111);
		CHECK_EQ(rig, *word_of(&end, 72), 0x2222222222222222);
		CHECK_EQ(rig, *word_of(&end, 80), 0);
	}
	rig_sync(rig);
	end_close(&end);
	placement_open(&end, rig, NULL);
	if (rig->role == RIG_B) { /* B's QP has no segments */
		struct ibv_qp_ex *ex = build(&end, 3);

		ibv_wr_atomic_write(ex, end.peer.rkey, end.peer.addr + 8, &third);
		OK(rig, ibv_wr_complete(ex));
		atomic_write_done(&end, 3);
	}
	rig_sync(rig);
	if (rig->role == RIG_A)
		CHECK_EQ(rig, *word_of(&end, 8), third);
	rig_sync(rig);
	end_close(&end);
}

/* A reader at the target sees each word whole. */
static void atomic_write_is_whole(struct rig *rig)
{
	enum { ROUNDS = 300 };
	struct end end;

	placement_open(&end, rig, NULL);
	for (uint64_t i = 1; rig->role == RIG_A && i <= ROUNDS; i++) {
		uint64_t value = i << 32 | i;
		struct ibv_qp_ex *ex = build(&end, i);

		ibv_wr_atomic_write(ex, end.peer.rkey, end.peer.addr, &value);
		OK(rig, ibv_wr_complete(ex));
		atomic_write_done(&end, i);
	}
	struct patience patience = patience_of(RIG_SOON_MS);
	uint64_t seen = 0, last = 0;

	while (rig->role == RIG_B && seen >> 32 != ROUNDS) {
		seen = atomic_load((_Atomic uint64_t *)(void *)end.buf);
		CHECK_EQ(rig, seen >> 32, seen & UINT32_MAX);
		CHECK(rig, seen >= last && !patience_over(&patience));
		last = seen;
	}
	rig_sync(rig);
	end_close(&end);
}

/* The length is checked first, the key before the alignment. */
static void atomic_write_wrong(struct rig *rig)
{
	static const struct {
		uint32_t length, key;
		size_t at;
		enum ibv_wc_status status;
		int event;
	} cases[] = {
		{0, 0, 0, IBV_WC_LOC_LEN_ERR, -1},
		{4, 0, 4, IBV_WC_LOC_LEN_ERR, -1},
		{16, 0, 0, IBV_WC_LOC_LEN_ERR, -1},
		{4096, 0, 0, IBV_WC_LOC_LEN_ERR, -1},
		{8, 0, 4, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{8, 0, 1, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{8, 0x40, 4, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{8, 0, 65532, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
	};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		end_pair(&end, rig, NULL);
		memset(end.buf, 0x5a, end.opt.bytes);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			end_request(&end, IBV_WR_ATOMIC_WRITE, 1, 0, cases[i].length, cases[i].at,
				    &wr, &sge);
			wr.wr.rdma.rkey ^= cases[i].key;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 1, cases[i].status);
		} else if (cases[i].event >= 0) {
			event_expect(rig, (enum ibv_event_type)cases[i].event, end.qp);
		}
		rig_sync(rig);
		for (size_t at = 0; at < 4096; at++)
			CHECK_EQ(rig, end.buf[at], 0x5a);
		end_close(&end);
	}
}

/* ------------------------------------------------------------------ FLUSH */

/* A range, the whole region whatever the range says, and no bytes. */
static void flush_levels(struct rig *rig)
{
	static const struct {
		uint64_t at;
		size_t length;
		uint8_t level;
	} cases[] = {
		{0, 65536, IBV_FLUSH_RANGE},
		{65535, 1, IBV_FLUSH_RANGE},
		{100, 0, IBV_FLUSH_RANGE},
		{0, 0, IBV_FLUSH_MR},
		{1ull << 40, SIZE_MAX, IBV_FLUSH_MR},
	};
	struct end end;

	placement_open(&end, rig, NULL);
	for (uint64_t i = 0; rig->role == RIG_A && i < sizeof(cases) / sizeof(cases[0]); i++) {
		flush_post(&end, i, cases[i].at, cases[i].length, IBV_FLUSH_GLOBAL, cases[i].level);
		CHECK_EQ(rig, wc_expect(&end, end.scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
	}
	rig_sync(rig);
	end_close(&end);
}

/* WRITE, FLUSH, ATOMIC WRITE, as the operations are meant to be used: who sees the flag sees the
 * data. More of them are posted at once than may be outstanding. */
static void flush_between(struct rig *rig)
{
	enum { ROUNDS = 20 };
	struct end end;

	placement_open(&end, rig, NULL);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (rig->role == RIG_A) {
			pattern_fill(end.buf, LENGTH, SEED + (uint32_t)i);
			struct ibv_qp_ex *ex = build(&end, i);

			ex->wr_flags = 0;
			ibv_wr_rdma_write(ex, end.peer.rkey, end.peer.addr);
			ibv_wr_set_sge(ex, end.mr->lkey, (uintptr_t)end.buf, LENGTH);
			for (int n = 0; n < 20; n++)
				ibv_wr_flush(ex, end.peer.rkey, end.peer.addr, LENGTH,
					     IBV_FLUSH_GLOBAL, n % 2);
			for (int n = 0; n < 20; n++)
				ibv_wr_atomic_write(ex, end.peer.rkey, end.peer.addr + FLAG + 8,
						    &i);
			ex->wr_flags = IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_FENCE : 0);
			ibv_wr_atomic_write(ex, end.peer.rkey, end.peer.addr + FLAG, &i);
			OK(rig, ibv_wr_complete(ex));
			atomic_write_done(&end, i);
		} else {
			struct patience patience = patience_of(RIG_SOON_MS);
			_Atomic uint64_t *flag = (_Atomic uint64_t *)(void *)(end.buf + FLAG);

			while (atomic_load(flag) != i)
				CHECK(rig, !patience_over(&patience));
			CHECK(rig, pattern_holds(end.buf, LENGTH, SEED + (uint32_t)i));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

/* How one FLUSH fails, or ATOMIC WRITE (type 0). */
static void placement_fails(struct rig *rig, const struct end_options *opt, uint64_t at,
			    uint8_t type, uint32_t key, enum ibv_wc_status status)
{
	const uint64_t word = 0;
	struct end end;

	placement_open(&end, rig, opt);
	if (rig->role == RIG_A) {
		struct ibv_qp_ex *ex = build(&end, 7);

		if (type)
			ibv_wr_flush(ex, end.peer.rkey ^ key, end.peer.addr + at, 8, type,
				     IBV_FLUSH_RANGE);
		else
			ibv_wr_atomic_write(ex, end.peer.rkey ^ key, end.peer.addr + at, &word);
		OK(rig, ibv_wr_complete(ex));
		wc_expect(&end, end.scq, 7, status);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	} else {
		event_expect(rig,
			     status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
							     : IBV_EVENT_QP_REQ_ERR,
			     end.qp);
	}
	rig_sync(rig);
	end_close(&end);
}

static void flush_refused(struct rig *rig)
{
	const enum ibv_wc_status access = IBV_WC_REM_ACCESS_ERR;

	placement_fails(rig, NULL, 65529, IBV_FLUSH_GLOBAL, 0, access);
	placement_fails(rig, NULL, (uint64_t)-1, IBV_FLUSH_GLOBAL, 0, access);
	placement_fails(rig, NULL, 0, IBV_FLUSH_GLOBAL, 0x40, access);
	placement_fails(rig, NULL, 0, IBV_FLUSH_GLOBAL, 1, access); /* the lkey */
	placement_fails(rig, NULL, 0, IBV_FLUSH_PERSISTENT, 0, access);
	placement_fails(rig, NULL, 0, IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT, 0, access);
}

/* Rights of the region, then of the QP; then its resources. */
static void placement_rights(struct rig *rig)
{
	struct end_options opt = {.mr_access = MR_RIGHTS & ~IBV_ACCESS_FLUSH_GLOBAL,
				  .qp_access = QP_RIGHTS};

	placement_fails(rig, &opt, 0, IBV_FLUSH_GLOBAL, 0, IBV_WC_REM_ACCESS_ERR);
	opt.mr_access = MR_RIGHTS & ~IBV_ACCESS_REMOTE_WRITE;
	placement_fails(rig, &opt, 0, 0, 0, IBV_WC_REM_ACCESS_ERR);
	opt.mr_access = MR_RIGHTS;
	opt.qp_access = QP_RIGHTS & ~IBV_ACCESS_FLUSH_GLOBAL;
	placement_fails(rig, &opt, 0, IBV_FLUSH_GLOBAL, 0, IBV_WC_REM_INV_REQ_ERR);
	opt.qp_access = QP_RIGHTS & ~IBV_ACCESS_FLUSH_PERSISTENT;
	placement_fails(rig, &opt, 0, IBV_FLUSH_PERSISTENT, 0, IBV_WC_REM_INV_REQ_ERR);
	opt.qp_access = QP_RIGHTS & ~IBV_ACCESS_REMOTE_WRITE;
	placement_fails(rig, &opt, 0, 0, 0, IBV_WC_REM_INV_REQ_ERR);
	opt.qp_access = QP_RIGHTS;
	opt.no_dest_reads = true;
	placement_fails(rig, &opt, 0, IBV_FLUSH_GLOBAL, 0, IBV_WC_REM_INV_REQ_ERR);
	placement_fails(rig, &opt, 0, 0, 0, IBV_WC_REM_INV_REQ_ERR);
}

/* Binds a window to B's whole buffer, for all that a window may have; both ends learn its key. */
static struct ibv_mw *window_bound(struct end *end)
{
	struct rig *rig = end->rig;
	struct ibv_mw_bind bind = {
		.wr_id = 9,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {end->mr, (uintptr_t)end->buf, end->opt.bytes,
			      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL},
	};
	struct ibv_mw *mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_1);

	CHECK(rig, mw);
	CHECK_EQ(rig, ibv_bind_mw(end->qp, mw, &bind), EINVAL);
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	OK(rig, ibv_bind_mw(end->qp, mw, &bind));
	wc_expect(end, end->scq, 9, IBV_WC_SUCCESS);
	rig_swap(rig, &mw->rkey, &end->peer.rkey, sizeof(mw->rkey));
	return mw;
}

/* A window's key is good for ATOMIC WRITE, and not for FLUSH. */
static void flush_by_window(struct rig *rig)
{
	struct end_options opt = flushable;
	const uint64_t word = 0x123456789abcdef0;
	struct end end;

	opt.mr_access |= IBV_ACCESS_MW_BIND;
	placement_open(&end, rig, &opt);
	struct ibv_mw *mw = window_bound(&end);

	if (rig->role == RIG_A) {
		struct ibv_qp_ex *ex = build(&end, 1);

		ibv_wr_atomic_write(ex, end.peer.rkey, end.peer.addr + 16, &word);
		OK(rig, ibv_wr_complete(ex));
		atomic_write_done(&end, 1);
		flush_post(&end, 2, 0, 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
		wc_expect(&end, end.scq, 2, IBV_WC_REM_ACCESS_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
		CHECK_EQ(rig, *word_of(&end, 16), word);
	}
	rig_sync(rig);
	OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

/* ------------------------------------------------------------------ wrong arguments */

static int flush_error(struct end *end, size_t length, uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *ex = build(end, 1);

	ibv_wr_flush(ex, end->peer.rkey, end->peer.addr, length, type, level);
	return ibv_wr_complete(ex);
}

static void placement_wrong(struct rig *rig)
{
	enum { FLUSHES = 0x40, ATOMIC_WRITES = 0x80 }; /* on demand, too */
	const uint64_t claimed = 1ull << 38 | 1ull << 40;
	struct ibv_device_attr_ex device;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	placement_open(&end, rig, NULL);
	CHECK_EQ(rig, flush_error(&end, 8, 0, IBV_FLUSH_RANGE), EINVAL);
	CHECK_EQ(rig, flush_error(&end, 8, 4, IBV_FLUSH_RANGE), EINVAL);
	CHECK_EQ(rig, flush_error(&end, 8, 0x11, IBV_FLUSH_RANGE), EINVAL);
	CHECK_EQ(rig, flush_error(&end, 8, IBV_FLUSH_GLOBAL, 2), EINVAL);
	CHECK_EQ(rig, flush_error(&end, 8, IBV_FLUSH_GLOBAL, 4), EINVAL);
	CHECK_EQ(rig, flush_error(&end, (1u << 30) + 1, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE), EINVAL);
	end_request(&end, IBV_WR_FLUSH, 1, 0, 0, 0, &wr, &sge); /* struct ibv_send_wr has no room */
	CHECK_EQ(rig, ibv_post_send(end.qp, &wr, &bad), EINVAL);
	CHECK(rig,
	      !ibv_reg_mr(end.pd, end.buf, 64, IBV_ACCESS_FLUSH_PERSISTENT) && errno == EINVAL);
	wc_none(&end, end.scq);
	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &device));
	CHECK_EQ(rig, device.device_cap_flags_ex & (claimed | 1ull << 39), claimed);
	CHECK(rig, device.odp_caps.per_transport_caps.rc_odp_caps & FLUSHES);
	CHECK(rig, device.odp_caps.per_transport_caps.rc_odp_caps & ATOMIC_WRITES);
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test placement_tests[] = {
	{"atomic_write_words", atomic_write_words},
	{"atomic_write_is_whole", atomic_write_is_whole},
	{"atomic_write_wrong", atomic_write_wrong},
	{"flush_levels", flush_levels},
	{"flush_between", flush_between},
	{"flush_refused", flush_refused},
	{"placement_rights", placement_rights},
	{"flush_by_window", flush_by_window},
	{"placement_wrong", placement_wrong},
	{NULL, NULL},
};
