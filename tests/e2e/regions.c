/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kinds of regions: zero-based ones, those with another address for peers (ibv_reg_mr_iova), null
 * regions, and flags that a software device needs not. See rig.h.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

enum { BYTES = 24576, AT = 4096, SEED = 77 };
enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC
};
#define IOVA 0x123456789000ull

/* ------------------------------------------------------------------ other addresses */

/* Registers a part of the end's buffer; A's requests go to B's. `first`: the address of the
 * region's first byte. */
static struct ibv_mr *part_register(struct end *end, struct ibv_mr *mr, uint64_t first)
{
	struct {
		uint32_t rkey;
	} mine = {mr ? mr->rkey : 0}, theirs;

	CHECK(end->rig, mr);
	rig_swap(end->rig, &mine, &theirs, sizeof(mine));
	end->peer.rkey = theirs.rkey;
	end->peer.addr = first;
	return mr;
}

static void request_at(struct end *end, const struct ibv_mr *mr, enum ibv_wr_opcode opcode,
		       uint64_t local, uint64_t remote, uint32_t length, enum ibv_wc_status status)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, opcode, 9, 0, length, remote, &wr, &sge);
	sge.lkey = mr->lkey;
	sge.addr = local;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	wc_expect(end, end->scq, 9, status);
}

/* A writes its region to B's, reads it back, and reaches one byte too far. `first` names the first
 * byte on both sides. */
static void reach_by(struct end *end, struct ibv_mr *mr, uint64_t first)
{
	struct rig *rig = end->rig;

	if (rig->role == RIG_A) {
		pattern_fill(end->buf + AT, BYTES, SEED);
		request_at(end, mr, IBV_WR_RDMA_WRITE, first, 0, BYTES, IBV_WC_SUCCESS);
		memset(end->buf + AT, 0, BYTES);
		request_at(end, mr, IBV_WR_RDMA_READ, first, 0, BYTES, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf + AT, BYTES, SEED));
		request_at(end, mr, IBV_WR_ATOMIC_FETCH_AND_ADD, first, BYTES - 8, 8,
			   IBV_WC_SUCCESS);
		OK(rig, end_send(end, IBV_WR_SEND, 1, 0, 0, 0));
		wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
	} else {
		OK(rig, end_recv(end, 1, 0, 16));
		wc_expect(end, end->rcq, 1, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end->buf + AT, BYTES - 8, SEED));
		CHECK(rig, !end->buf[AT - 1] && !end->buf[AT + BYTES]);
	}
	rig_sync(rig);
	if (rig->role == RIG_A)
		request_at(end, mr, IBV_WR_RDMA_WRITE, first, BYTES - 7, 8, IBV_WC_REM_ACCESS_ERR);
	else
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end->qp);
	rig_sync(rig);
}

static void region_zero_based(struct rig *rig)
{
	struct ibv_mr *mr;
	struct end end;

	end_pair(&end, rig, NULL);
	mr = part_register(&end,
			   ibv_reg_mr(end.pd, end.buf + AT, BYTES, ALL | IBV_ACCESS_ZERO_BASED), 0);
	CHECK(rig, mr->addr == end.buf + AT && mr->length == BYTES);
	reach_by(&end, mr, 0);
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

/* The range of a zero-based region ends where the region ends, on this side as well. */
static void region_zero_based_local(struct rig *rig)
{
	struct ibv_mr *mr;
	struct end end;

	end_pair(&end, rig, NULL);
	mr = part_register(
		&end, ibv_reg_mr(end.pd, end.buf + AT + 16, 64, ALL | IBV_ACCESS_ZERO_BASED), 0);
	if (rig->role == RIG_A)
		request_at(&end, mr, IBV_WR_RDMA_WRITE, 57, 0, 8, IBV_WC_LOC_PROT_ERR);
	rig_sync(rig);
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

static void region_iova(struct rig *rig)
{
	static const uint64_t firsts[] = {IOVA, 0};

	for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
		struct ibv_mr *mr;
		struct end end;

		end_pair(&end, rig, NULL);
		mr = part_register(&end,
				   ibv_reg_mr_iova(end.pd, end.buf + AT, BYTES, firsts[i], ALL),
				   firsts[i]);
		reach_by(&end, mr, firsts[i]);
		OK(rig, ibv_dereg_mr(mr));
		end_close(&end);
	}
}

/* A register call's errno, 0 if it succeeds. */
static int iova_error(struct end *end, size_t offset, size_t length, uint64_t iova, int access)
{
	struct ibv_mr *mr = ibv_reg_mr_iova(end->pd, end->buf + offset, length, iova, access);

	if (!mr)
		return errno;
	OK(end->rig, ibv_dereg_mr(mr));
	return 0;
}

static void region_wrong_arguments(struct rig *rig)
{
	struct end end;

	end_open(&end, rig, NULL);
	/* The address for peers has the same place within a page. */
	CHECK_EQ(rig, iova_error(&end, 8, 64, IOVA + 8, ALL), 0);
	CHECK_EQ(rig, iova_error(&end, 8, 64, IOVA, ALL), EINVAL);
	CHECK_EQ(rig, iova_error(&end, 8, 64, IOVA + 16, ALL), EINVAL);
	/* IBV_ACCESS_ZERO_BASED names the address: the argument doesn't count. */
	CHECK_EQ(rig, iova_error(&end, 8, 64, IOVA, ALL | IBV_ACCESS_ZERO_BASED), 0);
	/* The range for peers must not wrap around. */
	CHECK_EQ(rig, iova_error(&end, 0, 8192, UINT64_MAX - 4095, ALL), EINVAL);
	CHECK_EQ(rig, iova_error(&end, 0, 4095, UINT64_MAX - 4095, ALL), 0);
	/* Writing by others needs writing by this process. */
	CHECK_EQ(rig, iova_error(&end, 0, 64, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_EQ(rig, iova_error(&end, 0, 64, 0, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	CHECK_EQ(rig, iova_error(&end, 0, 64, 0, 1 << 19), EINVAL);
	/* Optional flags are no errors, known or unknown. */
	CHECK_EQ(rig, iova_error(&end, 0, 64, 0, ALL | IBV_ACCESS_RELAXED_ORDERING), 0);
	CHECK_EQ(rig, iova_error(&end, 0, 64, 0, ALL | 1 << 29), 0);
	/* Without IBV_ACCESS_ON_DEMAND it is a hint. */
	CHECK_EQ(rig, iova_error(&end, 0, 64, 0, ALL | IBV_ACCESS_HUGETLB), 0);
	end_close(&end);
}

/* ------------------------------------------------------------------ null regions */

static struct ibv_mr *null_make(struct end *end)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(end->pd);

	if (!mr)
		rig_fail(end->rig, __FILE__, __LINE__, "no null region: %s", strerror(errno));
	CHECK(end->rig, mr->pd == end->pd && mr->context == end->pd->context);
	CHECK(end->rig, !mr->addr && mr->length == SIZE_MAX && !mr->rkey);
	return mr;
}

/* Sends three pieces: of the buffer, of the null region, of the buffer. */
static void post_mixed(struct end *end, const struct ibv_mr *mr, enum ibv_wr_opcode opcode,
		       uint64_t null_at, uint32_t piece)
{
	struct ibv_sge list[] = {
		end_sge(end, 0, piece), {null_at, piece, mr->lkey}, end_sge(end, piece, piece)};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge unused;

	end_request(end, opcode, 3, 0, piece, 0, &wr, &unused);
	wr.sg_list = list;
	wr.num_sge = 3;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	wc_expect(end, end->scq, 3, IBV_WC_SUCCESS);
}

static void check_mixed(struct end *end, uint32_t piece)
{
	CHECK(end->rig, pattern_holds(end->buf, piece, SEED));
	for (uint32_t i = 0; i < piece; i++)
		CHECK_EQ(end->rig, end->buf[piece + i], 0);
	CHECK(end->rig, pattern_holds(end->buf + 2 * (size_t)piece, piece, SEED + 1));
}

/* A sends and writes from a null region: B gets zeros. */
static void null_reads_as_zeros(struct rig *rig)
{
	static const uint32_t pieces[] = {8, 20000};

	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		uint32_t piece = pieces[i];
		struct end end;

		end_pair(&end, rig, NULL);
		struct ibv_mr *mr = null_make(&end);

		memset(end.buf, 0xff, end.opt.bytes);
		pattern_fill(end.buf, piece, SEED);
		pattern_fill(end.buf + piece, piece, SEED + 1);
		if (rig->role == RIG_B)
			OK(rig, end_recv(&end, 1, 0, 3 * piece));
		rig_sync(rig);
		if (rig->role == RIG_A)
			post_mixed(&end, mr, IBV_WR_SEND, 0, piece);
		else
			wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS), check_mixed(&end, piece);
		rig_sync(rig);
		if (rig->role == RIG_B)
			memset(end.buf, 0xff, end.opt.bytes);
		rig_sync(rig);
		if (rig->role == RIG_A)
			post_mixed(&end, mr, IBV_WR_RDMA_WRITE, UINT64_MAX - piece, piece);
		rig_sync(rig);
		if (rig->role == RIG_B)
			check_mixed(&end, piece);
		OK(rig, ibv_dereg_mr(mr));
		end_close(&end);
	}
}

/* Posts a receive of `bytes` in the null region, with the last 8 bytes in the buffer. */
static void recv_null(struct end *end, const struct ibv_mr *mr, uint32_t bytes)
{
	struct ibv_sge list[] = {{0x1000, bytes - 8, mr->lkey}, end_sge(end, 0, 8)};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = list, .num_sge = 2}, *bad;

	OK(end->rig, ibv_post_recv(end->qp, &wr, &bad));
}

/* B receives into a null region, and A reads into one: what arrives is dropped. */
static void null_discards(struct rig *rig)
{
	static const uint32_t sizes[] = {64, 60000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t size = sizes[i];
		struct end end;

		end_pair(&end, rig, NULL);
		struct ibv_mr *mr = null_make(&end);

		pattern_fill(end.buf, size, SEED + (uint32_t)rig->role);
		if (rig->role == RIG_B)
			recv_null(&end, mr, size);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, size, 0));
			wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
			memcpy(end.buf, end.buf + size - 8, 8);
			request_at(&end, mr, IBV_WR_RDMA_READ, 0, 0, size, IBV_WC_SUCCESS);
			request_at(&end, mr, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 32768, 8,
				   IBV_WC_SUCCESS);
			rig_swap(rig, end.buf, (uint8_t[8]){0}, 8);
		} else {
			struct ibv_wc wc = wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
			uint8_t end_of_message[8], mine[8];

			CHECK_EQ(rig, wc.byte_len, size);
			memcpy(mine, end.buf, 8);
			rig_swap(rig, mine, end_of_message, 8);
			CHECK(rig, !memcmp(end_of_message, mine, 8));
		}
		rig_sync(rig);
		OK(rig, ibv_dereg_mr(mr));
		end_close(&end);
	}
}

/* A null region has no rkey: its lkey grants peers nothing. */
static void null_no_rkey(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	struct ibv_mr *mr = part_register(&end, null_make(&end), 0);
	uint32_t mine = mr->lkey, theirs;

	rig_swap(rig, &mine, &theirs, sizeof(mine));
	end.peer.rkey = theirs;
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 8, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_REM_ACCESS_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
	}
	rig_sync(rig);
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

static void null_other_domain(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct end end;

	end_pair(&end, rig, NULL);
	struct ibv_mr *mr = ibv_alloc_null_mr(pd);

	CHECK(rig, mr);
	if (rig->role == RIG_A)
		request_at(&end, mr, IBV_WR_RDMA_WRITE, 0, 0, 8, IBV_WC_LOC_PROT_ERR);
	rig_sync(rig);
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_dealloc_pd(pd));
	end_close(&end);
}

/* A null region doesn't keep its domain; other objects do, and the region outlives it. */
static void null_outlives_domain(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	static uint8_t bytes[64];
	struct ibv_mr *mr = ibv_alloc_null_mr(pd), *other = ibv_alloc_null_mr(pd);
	struct ibv_mr *real = ibv_reg_mr(pd, bytes, sizeof(bytes), 0);

	CHECK(rig, mr && other && real);
	CHECK_EQ(rig, ibv_dealloc_pd(pd), EBUSY);
	OK(rig, ibv_dereg_mr(other));
	OK(rig, ibv_dereg_mr(real));
	OK(rig, ibv_dealloc_pd(pd));
	OK(rig, ibv_dereg_mr(mr));
	pd = ibv_alloc_pd(rig->ctx);
	CHECK(rig, pd);
	OK(rig, ibv_dealloc_pd(pd));
}

/* ibv_alloc_null_mr(3): ibv_rereg_mr() and ibv_bind_mw() are invalid. */
static void null_wrong_calls(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	struct ibv_mr *mr = null_make(&end);
	struct ibv_mw *mw = ibv_alloc_mw(end.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.bind_info = {.mr = mr, .length = 8}};

	CHECK_EQ(rig, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(rig, errno, EINVAL);
	CHECK(rig, mw);
	CHECK_EQ(rig, ibv_bind_mw(end.qp, mw, &bind), EINVAL);
	OK(rig, ibv_dealloc_mw(mw));
	mr->handle ^= 0x5a5a;
	CHECK_EQ(rig, ibv_dereg_mr(mr), ENOENT);
	mr->handle ^= 0x5a5a;
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

const struct rig_test region_tests[] = {
	{"region_zero_based", region_zero_based},
	{"region_zero_based_local", region_zero_based_local},
	{"region_iova", region_iova},
	{"region_wrong_arguments", region_wrong_arguments},
	{"null_reads_as_zeros", null_reads_as_zeros},
	{"null_discards", null_discards},
	{"null_no_rkey", null_no_rkey},
	{"null_other_domain", null_other_domain},
	{"null_outlives_domain", null_outlives_domain},
	{"null_wrong_calls", null_wrong_calls},
	{NULL, NULL},
};
