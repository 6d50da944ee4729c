/* SPDX-License-Identifier: BSD-2-Clause */
/* Device memory: its copies, its regions on every carrier, importing it, and wrong arguments. See
 * rig.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

enum { DM_BYTES = 40000, PART_AT = 4, PART_LENGTH = 32768, SEED = 55 };
enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED
};

static uint64_t max_dm_size(struct rig *rig)
{
	struct ibv_device_attr_ex attr;

	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &attr));
	return attr.max_dm_size;
}

static struct ibv_dm *dm_try(struct ibv_context *ctx, size_t length, uint32_t log_align,
			     uint32_t comp_mask)
{
	struct ibv_alloc_dm_attr attr = {
		.length = length, .log_align_req = log_align, .comp_mask = comp_mask};

	return ibv_alloc_dm(ctx, &attr);
}

static struct ibv_dm *dm_make(struct rig *rig, size_t length)
{
	struct ibv_dm *dm = dm_try(rig->ctx, length, 3, 0);

	if (!dm)
		rig_fail(rig, __FILE__, __LINE__, "no device memory: %s", strerror(errno));
	CHECK(rig, dm->context == rig->ctx);
	return dm;
}

/* ------------------------------------------------------------------ copies and regions */

static void dm_copies(struct rig *rig)
{
	struct ibv_dm *dm = dm_make(rig, DM_BYTES);
	uint8_t in[1024], out[1024] = {1, 2, 3};

	OK(rig, ibv_memcpy_from_dm(out, dm, 0, sizeof(out)));
	for (size_t i = 0; i < sizeof(out); i++)
		CHECK_EQ(rig, out[i], 0);
	pattern_fill(in, sizeof(in), SEED);
	OK(rig, ibv_memcpy_to_dm(dm, DM_BYTES - sizeof(in), in, sizeof(in)));
	OK(rig, ibv_memcpy_from_dm(out, dm, DM_BYTES - sizeof(in), sizeof(out)));
	CHECK(rig, !memcmp(in, out, sizeof(in)));
	OK(rig, ibv_memcpy_to_dm(dm, DM_BYTES, in, 0));
	CHECK_EQ(rig, ibv_memcpy_to_dm(dm, DM_BYTES - 4, in, 8), EFAULT);
	CHECK_EQ(rig, ibv_memcpy_from_dm(out, dm, DM_BYTES + 4, 4), EFAULT);
	CHECK_EQ(rig, ibv_memcpy_from_dm(out, dm, UINT64_MAX - 3, 8), EFAULT);
	CHECK_EQ(rig, ibv_memcpy_to_dm(dm, 2, in, 4), EINVAL);
	CHECK_EQ(rig, ibv_memcpy_from_dm(out, dm, 4, 3), EINVAL);
	CHECK_EQ(rig, ibv_memcpy_to_dm(dm, 0, (void *)8, 4), EFAULT);
	OK(rig, ibv_free_dm(dm));
}

/* A region of device memory on both sides, from byte PART_AT of the buffer on. */
struct part {
	struct ibv_dm *dm;
	struct ibv_mr *mr;
};

static struct part part_make(struct end *end, unsigned int access)
{
	struct part part = {.dm = dm_make(end->rig, DM_BYTES)};
	uint32_t theirs;

	part.mr = ibv_reg_dm_mr(end->pd, part.dm, PART_AT, PART_LENGTH, access);
	if (!part.mr)
		rig_fail(end->rig, __FILE__, __LINE__, "no region: %s", strerror(errno));
	CHECK(end->rig, !part.mr->addr && part.mr->length == PART_LENGTH && part.mr->pd == end->pd);
	rig_swap(end->rig, &part.mr->rkey, &theirs, sizeof(theirs));
	end->peer.rkey = theirs;
	end->peer.addr = 0;
	return part;
}

static void part_end(struct end *end, struct part *part)
{
	CHECK_EQ(end->rig, ibv_free_dm(part->dm), EBUSY);
	OK(end->rig, ibv_dereg_mr(part->mr));
	OK(end->rig, ibv_free_dm(part->dm));
}

static void part_fill(struct end *end, const struct part *part, uint32_t seed)
{
	uint8_t *bytes = malloc(PART_LENGTH);

	CHECK(end->rig, bytes);
	pattern_fill(bytes, PART_LENGTH, seed);
	OK(end->rig, ibv_memcpy_to_dm(part->dm, PART_AT, bytes, PART_LENGTH));
	free(bytes);
}

static bool part_holds(struct end *end, const struct part *part, size_t length, uint32_t seed)
{
	uint8_t *bytes = malloc(DM_BYTES);

	CHECK(end->rig, bytes);
	OK(end->rig, ibv_memcpy_from_dm(bytes, part->dm, 0, DM_BYTES));
	bool holds = pattern_holds(bytes + PART_AT, length, seed) && !bytes[0] &&
		     !bytes[PART_AT + PART_LENGTH];

	free(bytes);
	return holds;
}

/* One request from the region, or into it. */
static void part_request(struct end *end, const struct part *part, enum ibv_wr_opcode opcode,
			 uint64_t local, uint64_t remote, uint32_t length,
			 enum ibv_wc_status status)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, opcode, 9, 0, length, remote, &wr, &sge);
	sge.lkey = part->mr->lkey;
	sge.addr = local;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	wc_expect(end, end->scq, 9, status);
}

/* SEND from device memory into device memory. */
static void dm_send(struct rig *rig)
{
	static const uint32_t lengths[] = {8, PART_LENGTH};
	struct end end;

	end_pair(&end, rig, NULL);
	struct part part = part_make(&end, ALL);

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct ibv_sge sge = {0, lengths[i], part.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

		if (rig->role == RIG_B)
			OK(rig, ibv_post_recv(end.qp, &wr, &bad));
		else
			part_fill(&end, &part, SEED + (uint32_t)i);
		rig_sync(rig);
		if (rig->role == RIG_A)
			part_request(&end, &part, IBV_WR_SEND, 0, 0, lengths[i], IBV_WC_SUCCESS);
		else
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
		CHECK(rig, part_holds(&end, &part, lengths[i], SEED + (uint32_t)i));
		rig_sync(rig);
	}
	part_end(&end, &part);
	end_close(&end);
}

/* WRITE and READ between the regions, then an access that isn't within B's. */
static void dm_onesided(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	struct part part = part_make(&end, ALL);

	for (uint32_t round = 0; round < 4; round++) { /* the later ones go by a mapping */
		if (rig->role == RIG_A) {
			part_fill(&end, &part, SEED + round);
			part_request(&end, &part, IBV_WR_RDMA_WRITE, 0, 0, PART_LENGTH,
				     IBV_WC_SUCCESS);
			part_fill(&end, &part, 1);
			part_request(&end, &part, IBV_WR_RDMA_READ, 0, 0, PART_LENGTH,
				     IBV_WC_SUCCESS);
			CHECK(rig, part_holds(&end, &part, PART_LENGTH, SEED + round));
		}
		rig_sync(rig);
		if (rig->role == RIG_B)
			CHECK(rig, part_holds(&end, &part, PART_LENGTH, SEED + round));
		rig_sync(rig);
		usleep(20000);
	}
	if (rig->role == RIG_A)
		part_request(&end, &part, IBV_WR_RDMA_WRITE, 0, PART_LENGTH - 4, 8,
			     IBV_WC_REM_ACCESS_ERR);
	else
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
	rig_sync(rig);
	part_end(&end, &part);
	end_close(&end);
}

static uint64_t word_at(struct rig *rig, struct ibv_dm *dm, uint64_t offset)
{
	uint64_t word;

	OK(rig, ibv_memcpy_from_dm(&word, dm, offset, sizeof(word)));
	return word;
}

/* Both atomics; a word that isn't aligned in the memory is refused (PART_AT is 4). */
static void dm_atomics(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, NULL);
	struct part part = part_make(&end, ALL);

	if (rig->role == RIG_A) {
		for (uint64_t i = 0; i < 3; i++) {
			end_request(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 9, 0, 8, 4, &wr, &sge);
			wr.wr.atomic.compare_add = 5;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 9, IBV_WC_SUCCESS);
			CHECK_EQ(rig, *(uint64_t *)(void *)end.buf, 5 * i);
		}
		end_request(&end, IBV_WR_ATOMIC_CMP_AND_SWP, 9, 0, 8, 4, &wr, &sge);
		wr.wr.atomic.compare_add = 15;
		wr.wr.atomic.swap = 77;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		wc_expect(&end, end.scq, 9, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK_EQ(rig, word_at(rig, part.dm, PART_AT + 4), 77);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 9, 0, 8, 8));
		wc_expect(&end, end.scq, 9, IBV_WC_REM_INV_REQ_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_REQ_ERR, end.qp);
	}
	rig_sync(rig);
	part_end(&end, &part);
	end_close(&end);
}

/* ------------------------------------------------------------------ importing */

/* The context of the original, imported: in this process, or in the other one. */
static struct ibv_context *context_imported(struct rig *rig)
{
	int fd = dup(rig->ctx->cmd_fd);
	struct ibv_context *ctx = fd < 0 ? NULL : ibv_import_device(fd);

	if (!ctx)
		rig_fail(rig, __FILE__, __LINE__, "no imported context: %s", strerror(errno));
	return ctx;
}

static void dm_imported(struct rig *rig)
{
	struct ibv_context *ctx = context_imported(rig);
	struct ibv_dm *dm = dm_make(rig, DM_BYTES), *same;
	uint64_t word = 0x1122334455667788;

	CHECK(rig, (same = ibv_import_dm(ctx, dm->handle)));
	CHECK(rig, same->handle == dm->handle && same->context == ctx);
	CHECK(rig, !ibv_import_dm(ctx, dm->handle ^ 0x4000) && errno == ENOENT);
	OK(rig, ibv_memcpy_to_dm(dm, 16, &word, sizeof(word)));
	CHECK_EQ(rig, word_at(rig, same, 16), word);
	CHECK_EQ(rig, ibv_free_dm(same), EINVAL);

	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, same, 0, 64, ALL);

	CHECK(rig, pd && mr);
	CHECK_EQ(rig, ibv_free_dm(dm), EBUSY);
	ibv_unimport_dm(same);
	OK(rig, ibv_dereg_mr(mr));
	uint32_t handle = dm->handle;

	OK(rig, ibv_free_dm(dm));
	CHECK(rig, !ibv_import_dm(ctx, handle));
	OK(rig, ibv_dealloc_pd(pd));
	OK(rig, ibv_close_device(ctx));
}

/* ------------------------------------------------------------------ wrong arguments */

static void dm_alloc_wrong(struct rig *rig)
{
	uint64_t max = max_dm_size(rig);

	CHECK(rig, max >= DM_BYTES);
	if (rig->role != RIG_A) {
		rig_sync(rig);
		return;
	}
	CHECK(rig, !dm_try(rig->ctx, 0, 0, 0) && errno == EINVAL);
	CHECK(rig, !dm_try(rig->ctx, max + 1, 0, 0) && errno == EINVAL);
	CHECK(rig, !dm_try(rig->ctx, 64, 0, 1) && errno == EINVAL);
	CHECK(rig, !dm_try(rig->ctx, 64, 13, 0) && errno == EINVAL);
	CHECK(rig, !dm_try(rig->ctx, 64, 64, 0) && errno == EINVAL);
	struct ibv_dm *most = dm_try(rig->ctx, max - 4096, 0, 0), *rest = dm_make(rig, 4096);

	CHECK(rig, most && !dm_try(rig->ctx, 4, 0, 0) && errno == ENOMEM);
	OK(rig, ibv_free_dm(rest));
	CHECK(rig, (rest = dm_try(rig->ctx, 4, 12, 0)));
	OK(rig, ibv_free_dm(rest));
	most->handle ^= 0x1000;
	CHECK_EQ(rig, ibv_free_dm(most), ENOENT);
	most->handle ^= 0x1000;
	OK(rig, ibv_free_dm(most));
	rig_sync(rig);
}

static void dm_reg_wrong(struct rig *rig)
{
	struct ibv_dm *dm = dm_make(rig, 100);
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_mr *mr;

	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 0, 104, ALL) && errno == EINVAL);
	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 101, 0, ALL) && errno == EINVAL);
	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 4, UINT64_MAX, ALL) && errno == EINVAL);
	/* ibv_alloc_dm(3): the user must set IBV_ACCESS_ZERO_BASED. */
	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 0, 64, ALL | IBV_ACCESS_MW_BIND) && errno == EINVAL);
	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 0, 64, ALL | IBV_ACCESS_ON_DEMAND) && errno == EINVAL);
	CHECK(rig, !ibv_reg_dm_mr(pd, dm, 0, 64, ALL & ~IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(rig, (mr = ibv_reg_dm_mr(pd, dm, 0, 64, ALL | IBV_ACCESS_RELAXED_ORDERING)));
	CHECK_EQ(rig, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
		 IBV_REREG_MR_ERR_INPUT);
	OK(rig, ibv_dereg_mr(mr));
	CHECK(rig, (mr = ibv_reg_dm_mr(pd, dm, 100, 0, ALL)));
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_free_dm(dm));
	OK(rig, ibv_dealloc_pd(pd));
}

const struct rig_test dm_tests[] = {
	{"dm_copies", dm_copies},	{"dm_send", dm_send},
	{"dm_onesided", dm_onesided},	{"dm_atomics", dm_atomics},
	{"dm_imported", dm_imported},	{"dm_alloc_wrong", dm_alloc_wrong},
	{"dm_reg_wrong", dm_reg_wrong}, {NULL, NULL},
};
