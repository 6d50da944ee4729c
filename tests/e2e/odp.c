/* SPDX-License-Identifier: BSD-2-Clause */
/* On-demand paging: explicit and implicit regions whose pages come and go, and ibv_advise_mr(). See
 * rig.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

enum { PAGES = 16, PAGE = 4096, BYTES = PAGES * PAGE, SEED = 33 };
enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND
};

static uint8_t *pages_map(struct rig *rig, void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	uint8_t *pages = mmap(at, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);

	CHECK(rig, pages != MAP_FAILED);
	return pages;
}

/* The pages are gone, and no other mapping takes their place. */
static void pages_unmap(struct rig *rig, uint8_t *at, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;

	CHECK(rig, mmap(at, length, PROT_NONE, flags, -1, 0) == at);
}

static int pages_present(struct rig *rig, uint8_t *pages)
{
	unsigned char in[PAGES];
	int count = 0;

	OK(rig, mincore(pages, BYTES, in));
	for (int i = 0; i < PAGES; i++)
		count += in[i] & 1;
	return count;
}

/* An on-demand region on each side; A's requests go to B's. */
struct odp {
	struct end end;
	uint8_t *pages;
	struct ibv_mr *mr;
};

static struct ibv_mr *odp_register(struct end *end, uint8_t *pages, bool implicit)
{
	struct ibv_mr *mr = implicit ? ibv_reg_mr(end->pd, NULL, SIZE_MAX, ALL)
				     : ibv_reg_mr(end->pd, pages, BYTES, ALL);

	if (!mr)
		rig_fail(end->rig, __FILE__, __LINE__, "no region: %s", strerror(errno));
	CHECK(end->rig, implicit ? !mr->addr && mr->length == SIZE_MAX
				 : mr->addr == pages && mr->length == BYTES);
	return mr;
}

static void odp_open(struct odp *odp, struct rig *rig, bool implicit)
{
	struct {
		uint64_t addr;
		uint32_t rkey, reserved;
	} mine = {0}, theirs;

	end_pair(&odp->end, rig, NULL);
	odp->pages = pages_map(rig, NULL);
	odp->mr = odp_register(&odp->end, odp->pages, implicit);
	CHECK_EQ(rig, pages_present(rig, odp->pages), 0); /* registering brings none in */
	mine.addr = (uintptr_t)odp->pages;
	mine.rkey = odp->mr->rkey;
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	odp->end.peer.addr = theirs.addr;
	odp->end.peer.rkey = theirs.rkey;
}

static void odp_close(struct odp *odp)
{
	OK(odp->end.rig, ibv_dereg_mr(odp->mr));
	munmap(odp->pages, BYTES);
	end_close(&odp->end);
}

static void odp_request(struct odp *odp, enum ibv_wr_opcode opcode, size_t offset, uint32_t length,
			size_t remote, enum ibv_wc_status status)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(&odp->end, opcode, 9, 0, length, remote, &wr, &sge);
	sge.lkey = odp->mr->lkey;
	sge.addr = (uintptr_t)odp->pages + offset;
	OK(odp->end.rig, ibv_post_send(odp->end.qp, &wr, &bad));
	wc_expect(&odp->end, odp->end.scq, 9, status);
}

static void odp_recv(struct odp *odp, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)odp->pages, BYTES, odp->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	OK(odp->end.rig, ibv_post_recv(odp->end.qp, &wr, &bad));
}

/* One round of everything, between pages that were never touched. */
static void odp_round(struct odp *odp, uint32_t seed)
{
	struct rig *rig = odp->end.rig;

	if (rig->role == RIG_B)
		odp_recv(odp, seed);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		pattern_fill(odp->pages, BYTES / 2, seed);
		odp_request(odp, IBV_WR_SEND, 0, BYTES / 2, 0, IBV_WC_SUCCESS);
	} else {
		wc_expect(&odp->end, odp->end.rcq, seed, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(odp->pages, BYTES / 2, seed));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		odp_request(odp, IBV_WR_RDMA_WRITE, 0, BYTES / 2, BYTES / 2 - 8, IBV_WC_SUCCESS);
		odp_request(odp, IBV_WR_RDMA_READ, BYTES / 2, BYTES / 2, BYTES / 2 - 8,
			    IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(odp->pages + BYTES / 2, BYTES / 2, seed));
		odp_request(odp, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, BYTES - 8, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
}

static void odp_all(struct rig *rig, bool implicit)
{
	struct odp odp;

	odp_open(&odp, rig, implicit);
	odp_round(&odp, SEED);
	/* The same addresses with other pages: what was in the old ones is gone. */
	pages_map(rig, odp.pages);
	CHECK_EQ(rig, odp.pages[0], 0);
	rig_sync(rig);
	odp_round(&odp, SEED + 1);
	odp_close(&odp);
}

static void odp_explicit(struct rig *rig)
{
	odp_all(rig, false);
}

static void odp_implicit(struct rig *rig)
{
	odp_all(rig, true);
}

/* Memory that is allocated after the implicit region was registered belongs to it, too. */
static void odp_implicit_later(struct rig *rig)
{
	struct odp odp;

	odp_open(&odp, rig, true);
	uint8_t *later = pages_map(rig, NULL);
	uint64_t mine = (uintptr_t)later;

	rig_swap(rig, &mine, &odp.end.peer.addr, sizeof(mine));
	if (rig->role == RIG_A) {
		pattern_fill(odp.pages, BYTES, SEED);
		odp_request(&odp, IBV_WR_RDMA_WRITE, 0, BYTES, 0, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK(rig, pattern_holds(later, BYTES, SEED));
	munmap(later, BYTES);
	odp_close(&odp);
}

/* Pages that aren't mapped at the time of an access: refused, wherever they are. */
static void odp_unmapped_there(struct rig *rig)
{
	struct odp odp;

	odp_open(&odp, rig, false);
	if (rig->role == RIG_B)
		pages_unmap(rig, odp.pages + PAGE, PAGE);
	rig_sync(rig);
	if (rig->role == RIG_A)
		odp_request(&odp, IBV_WR_RDMA_WRITE, 0, 64, PAGE, IBV_WC_REM_ACCESS_ERR);
	else
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, odp.end.qp);
	rig_sync(rig);
	odp_close(&odp);
}

static void odp_unmapped_here(struct rig *rig)
{
	struct odp odp;

	odp_open(&odp, rig, false);
	if (rig->role == RIG_A) {
		pages_unmap(rig, odp.pages, PAGE);
		odp_request(&odp, IBV_WR_RDMA_WRITE, 0, 64, 0, IBV_WC_LOC_PROT_ERR);
	}
	rig_sync(rig);
	odp_close(&odp);
}

/* What no program's memory is: the kernel's half of the address space, and the page at 0. */
static void odp_implicit_bounds(struct rig *rig)
{
	static const uint64_t where[] = {1ull << 63, UINT64_MAX - 63, 0};

	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
		struct odp odp;

		odp_open(&odp, rig, true);
		odp.end.peer.addr = where[i];
		if (rig->role == RIG_A)
			odp_request(&odp, IBV_WR_RDMA_WRITE, 0, 64, 0, IBV_WC_REM_ACCESS_ERR);
		else
			event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, odp.end.qp);
		rig_sync(rig);
		odp_close(&odp);
	}
}

/* ------------------------------------------------------------------ advice */

static int advise(struct odp *odp, enum ibv_advise_mr_advice advice, uint32_t flags, uint64_t addr,
		  uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {addr, length, lkey};

	return ibv_advise_mr(odp->end.pd, advice, flags, &sge, 1);
}

static int advise_pages(struct odp *odp, enum ibv_advise_mr_advice advice, uint32_t flags)
{
	return advise(odp, advice, flags, (uintptr_t)odp->pages, BYTES, odp->mr->lkey);
}

static void advise_now(struct rig *rig)
{
	struct odp odp;

	odp_open(&odp, rig, false);
	OK(rig,
	   advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH));
	CHECK_EQ(rig, pages_present(rig, odp.pages), 0);
	OK(rig, advise(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
		       (uintptr_t)odp.pages + PAGE - 1, 2, odp.mr->lkey));
	CHECK_EQ(rig, pages_present(rig, odp.pages), 2);
	OK(rig, advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH));
	CHECK_EQ(rig, pages_present(rig, odp.pages), PAGES);
	OK(rig, advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH));
	munmap(odp.pages + PAGE, PAGE);
	CHECK_EQ(rig, advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH),
		 EFAULT);
	CHECK_EQ(rig, advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0), EFAULT);
	pages_unmap(rig, odp.pages + PAGE, PAGE);
	odp_close(&odp);
}

static void advise_later(struct rig *rig)
{
	struct odp odp;

	odp_open(&odp, rig, true);
	OK(rig, advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0));
	struct patience patience = patience_of(RIG_SOON_MS);

	while (pages_present(rig, odp.pages) < PAGES && !patience_over(&patience))
		usleep(1000);
	CHECK_EQ(rig, pages_present(rig, odp.pages), PAGES);
	/* What can't be prefetched is no error of the call. */
	pages_unmap(rig, odp.pages, BYTES);
	OK(rig, advise_pages(&odp, IBV_ADVISE_MR_ADVICE_PREFETCH, 0));
	odp_close(&odp);
}

/* ibv_advise_mr(3) has the errors. */
static void advise_wrong(struct rig *rig)
{
	const enum ibv_advise_mr_advice read = IBV_ADVISE_MR_ADVICE_PREFETCH,
					write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct odp odp;

	odp_open(&odp, rig, false);
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_mr *other = ibv_reg_mr(pd, odp.pages, BYTES, ALL);
	struct ibv_mr *readable = ibv_reg_mr(odp.end.pd, odp.pages, BYTES, IBV_ACCESS_ON_DEMAND);
	struct ibv_mw *mw = ibv_alloc_mw(odp.end.pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)odp.pages;

	CHECK(rig, pd && other && readable && mw);
	CHECK_EQ(rig, advise_pages(&odp, (enum ibv_advise_mr_advice)3, 0), ENOTSUP);
	CHECK_EQ(rig, advise_pages(&odp, read, 2), EINVAL);
	CHECK_EQ(rig, ibv_advise_mr(odp.end.pd, read, 0, NULL, 0), EINVAL);
	CHECK_EQ(rig, advise(&odp, read, 0, at, BYTES + 1, odp.mr->lkey), EFAULT);
	CHECK_EQ(rig, advise(&odp, read, 0, at - 1, 1, odp.mr->lkey), EFAULT);
	CHECK_EQ(rig, advise(&odp, read, 0, at, 1, odp.mr->lkey ^ 2), ENOENT);
	CHECK_EQ(rig, advise(&odp, read, 0, at, 1, odp.end.mr->lkey), EINVAL); /* pinned */
	CHECK_EQ(rig, advise(&odp, read, 0, at, 1, other->lkey), EPERM);
	OK(rig, advise(&odp, read, IBV_ADVISE_MR_FLAG_FLUSH, at, 1, readable->lkey));
	CHECK_EQ(rig, advise(&odp, write, 0, at, 1, readable->lkey), EPERM);
	CHECK_EQ(rig, advise(&odp, read, 0, at, 1, mw->rkey - 1), ENOENT); /* not bound */
	OK(rig, ibv_dealloc_mw(mw));
	OK(rig, ibv_dereg_mr(readable));
	OK(rig, ibv_dereg_mr(other));
	OK(rig, ibv_dealloc_pd(pd));
	odp_close(&odp);
}

static int reg_error(struct end *end, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, addr, length, access);

	if (!mr)
		return errno;
	OK(end->rig, ibv_dereg_mr(mr));
	return 0;
}

static void odp_reg_wrong(struct rig *rig)
{
	struct ibv_mr *mr;
	struct end end;

	end_open(&end, rig, NULL);
	CHECK_EQ(rig, reg_error(&end, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	CHECK_EQ(rig, reg_error(&end, end.buf, SIZE_MAX, ALL), EINVAL);
	CHECK_EQ(rig, reg_error(&end, NULL, SIZE_MAX, ALL & ~IBV_ACCESS_LOCAL_WRITE), EINVAL);
	/* Huge pages are promised for explicit regions only, and must be there. */
	CHECK_EQ(rig, reg_error(&end, NULL, SIZE_MAX, ALL | IBV_ACCESS_HUGETLB), EINVAL);
	CHECK_EQ(rig, reg_error(&end, end.buf, PAGE, ALL | IBV_ACCESS_HUGETLB), EINVAL);
	CHECK(rig, !ibv_reg_mr_iova(end.pd, NULL, SIZE_MAX, PAGE, ALL) && errno == EINVAL);
	CHECK(rig, (mr = ibv_reg_mr_iova(end.pd, NULL, SIZE_MAX, 0, ALL)));
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

/* What the device claims: the tests above use all of it. */
static void odp_capabilities(struct rig *rig)
{
	const uint32_t ud = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t uc = ud | IBV_ODP_SUPPORT_WRITE;
	const uint32_t rc = uc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
	struct ibv_device_attr_ex attr;

	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &attr));
	CHECK_EQ(rig, attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	CHECK_EQ(rig, attr.odp_caps.per_transport_caps.rc_odp_caps & rc, rc);
	CHECK_EQ(rig, attr.odp_caps.per_transport_caps.uc_odp_caps, uc);
	CHECK_EQ(rig, attr.odp_caps.per_transport_caps.ud_odp_caps, ud);
	CHECK_EQ(rig, attr.xrc_odp_caps,
		 attr.odp_caps.per_transport_caps.rc_odp_caps & ~(uint32_t)IBV_ODP_SUPPORT_RECV);
}

const struct rig_test odp_tests[] = {
	{"odp_explicit", odp_explicit},
	{"odp_implicit", odp_implicit},
	{"odp_implicit_later", odp_implicit_later},
	{"odp_unmapped_there", odp_unmapped_there},
	{"odp_unmapped_here", odp_unmapped_here},
	{"odp_implicit_bounds", odp_implicit_bounds},
	{"advise_now", advise_now},
	{"advise_later", advise_later},
	{"advise_wrong", advise_wrong},
	{"odp_reg_wrong", odp_reg_wrong},
	{"odp_capabilities", odp_capabilities},
	{NULL, NULL},
};
