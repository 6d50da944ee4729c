/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests on memory windows that are wrong, each with its errno or status. See rig.h, windows.h.
 */
#include <errno.h>
#include <string.h>

#include "windows.h"

/* ------------------------------------------------------------------ wrong requests */

enum wrong {
	BIND_NO_RIGHT, /* the region's IBV_ACCESS_MW_BIND */
	BIND_READ_ONLY,
	BIND_ZERO_BASED_REGION,
	BIND_BEFORE,
	BIND_BEYOND,
	BIND_REGION_OF_OTHER_PD,
	BIND_WINDOW_OF_OTHER_PD,
	BIND_NOTHING,
	BIND_TWICE,
	BIND_REGION_GONE,
	INVALIDATE_REGION,
	INVALIDATE_KEY,
	INVALIDATE_TYPE_1,
	WRONGS
};

/* What the wrong requests need. */
struct wrong_setting {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw, *theirs;
};

static struct ibv_send_wr wrong_bind(struct end *end, enum wrong wrong, struct wrong_setting *s)
{
	struct ibv_send_wr wr =
		bind_request(end, s->mw, ibv_inc_rkey(s->mw->rkey), PART, PART_BYTES, REMOTE);
	struct ibv_mw_bind_info *info = &wr.bind_mw.bind_info;
	int access = wrong == BIND_NO_RIGHT	       ? IBV_ACCESS_LOCAL_WRITE
		     : wrong == BIND_READ_ONLY	       ? IBV_ACCESS_MW_BIND
		     : wrong == BIND_ZERO_BASED_REGION ? BINDABLE | IBV_ACCESS_ZERO_BASED
						       : BINDABLE;
	struct ibv_pd *pd = wrong == BIND_REGION_OF_OTHER_PD ? s->pd : end->pd;

	CHECK(end->rig, (s->mr = ibv_reg_mr(pd, end->buf, end->opt.bytes, access)));
	info->mr = s->mr;
	if (wrong == BIND_ZERO_BASED_REGION)
		info->addr = PART;
	if (wrong == BIND_BEFORE)
		info->addr = (uintptr_t)end->buf - 1;
	if (wrong == BIND_BEYOND)
		info->length = end->opt.bytes - PART + 1;
	if (wrong == BIND_WINDOW_OF_OTHER_PD) {
		wr.bind_mw.mw = s->theirs;
		wr.bind_mw.rkey = ibv_inc_rkey(s->theirs->rkey);
	}
	if (wrong == BIND_NOTHING)
		info->length = 0;
	return wr;
}

static struct ibv_send_wr wrong_request(struct end *end, enum wrong wrong, struct wrong_setting *s)
{
	if (wrong == INVALIDATE_REGION)
		return invalidate_request(end->mr->rkey);
	if (wrong == INVALIDATE_KEY)
		return invalidate_request(part_bind(end, s->mw, s->mw->rkey, REMOTE) + 1);
	if (wrong == INVALIDATE_TYPE_1)
		return invalidate_request(s->mw->rkey);
	if (wrong == BIND_TWICE)
		part_bind(end, s->mw, s->mw->rkey, REMOTE);
	return wrong_bind(end, wrong, s);
}

/* The request fails with the QP, and a later one isn't executed. */
static void wrong_run(struct rig *rig, enum wrong wrong)
{
	struct wrong_setting s;
	struct end end;

	end_pair(&end, rig, &bindable);
	CHECK(rig, (s.pd = ibv_alloc_pd(rig->ctx)));
	s.mr = NULL;
	s.mw = mw_make(&end, wrong == INVALIDATE_TYPE_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	CHECK(rig, (s.theirs = ibv_alloc_mw(s.pd, IBV_MW_TYPE_2)));
	struct ibv_send_wr wr = wrong_request(&end, wrong, &s);

	if (wrong == BIND_REGION_GONE) {
		OK(rig, ibv_dereg_mr(s.mr));
		wr.bind_mw.bind_info.mr = NULL;
		CHECK_EQ(rig, post_one(&end, wr), EINVAL);
	} else {
		request_done(&end, wr, IBV_WC_MW_BIND_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		OK(rig, post_one(&end, invalidate_request(s.mw->rkey)));
		wc_expect(&end, end.scq, 2, IBV_WC_WR_FLUSH_ERR);
		if (s.mr && wrong != BIND_REGION_GONE)
			OK(rig, ibv_dereg_mr(s.mr));
	}
	rig_sync(rig);
	OK(rig, ibv_dealloc_mw(s.mw));
	OK(rig, ibv_dealloc_mw(s.theirs));
	OK(rig, ibv_dealloc_pd(s.pd));
	end_close(&end);
}

static void wrong_requests(struct rig *rig)
{
	for (enum wrong wrong = 0; wrong < WRONGS; wrong++)
		wrong_run(rig, wrong);
}

/* Calls that fail at once, and change nothing. */
static void wrong_arguments(struct rig *rig)
{
	struct ibv_mw_bind bind = {.bind_info = {.length = 1}};
	struct end end;

	end_pair(&end, rig, &bindable);
	struct ibv_mw *first = mw_make(&end, IBV_MW_TYPE_1), *mw = mw_make(&end, IBV_MW_TYPE_2);
	uint32_t rkey = first->rkey;

	errno = 0;
	CHECK(rig, !ibv_alloc_mw(end.pd, (enum ibv_mw_type)3) && errno == EINVAL);
	CHECK_EQ(rig, ibv_dealloc_pd(end.pd), EBUSY);
	CHECK_EQ(rig, post_one(&end, bind_request(&end, first, rkey + 1, 0, 8, REMOTE)), EINVAL);
	CHECK_EQ(rig, post_one(&end, bind_request(&end, NULL, rkey + 1, 0, 8, REMOTE)), EINVAL);
	CHECK_EQ(rig, post_one(&end, bind_request(&end, mw, mw->rkey + 1, 0, 8, 1 << 7)), EINVAL);
	CHECK_EQ(rig, ibv_bind_mw(end.qp, first, &bind), EINVAL); /* no region */
	CHECK_EQ(rig, ibv_bind_mw(end.qp, mw, &bind), EINVAL);	  /* type 2 */
	bind.bind_info = (struct ibv_mw_bind_info){end.mr, (uintptr_t)end.buf, 8,
						   REMOTE | IBV_ACCESS_ZERO_BASED};
	CHECK_EQ(rig, ibv_bind_mw(end.qp, first, &bind), EINVAL);
	CHECK_EQ(rig, first->rkey, rkey);
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_mw *theirs = pd ? ibv_alloc_mw(pd, IBV_MW_TYPE_1) : NULL;

	CHECK(rig, theirs);
	bind.bind_info.mw_access_flags = REMOTE;
	CHECK_EQ(rig, ibv_bind_mw(end.qp, theirs, &bind), EPERM); /* another domain's region */
	OK(rig, ibv_dealloc_mw(theirs));
	OK(rig, ibv_dealloc_pd(pd));
	wc_none(&end, end.scq);
	CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	mw->handle ^= 1;
	CHECK_EQ(rig, ibv_dealloc_mw(mw), ENOENT);
	mw->handle ^= 1;
	OK(rig, ibv_dealloc_mw(first));
	OK(rig, ibv_dealloc_mw(mw));
	rig_sync(rig);
	end_close(&end);
}

/* Which types of queue pairs have which requests; UC's windows grant what RC's do. */
static void types_of_qps(struct rig *rig)
{
	struct end_options uc = bindable, ud = bindable;
	struct end end;
	uint32_t rkey = 0;

	ud.type = IBV_QPT_UD;
	end_pair(&end, rig, &ud);
	OK(rig, post_one(&end, invalidate_request(1)));
	CHECK_EQ(rig, wc_wait(&end, end.scq).status, IBV_WC_LOC_QP_OP_ERR);
	end_close(&end);
	uc.type = IBV_QPT_UC;
	end_pair(&end, rig, &uc);
	struct ibv_mw *mw = mw_make(&end, IBV_MW_TYPE_2);

	rkey = part_bind(&end, mw, mw->rkey, REMOTE);
	end.buf[PART + 7] = 0;
	key_pass(&end, rkey);
	if (rig->role == RIG_A) {
		memset(end.buf, OLD, 8);
		reach(&end, IBV_WR_RDMA_WRITE, PART, 8, IBV_WC_SUCCESS);
	} else {
		struct patience patience = patience_of(RIG_SOON_MS);

		while (*(volatile uint8_t *)&end.buf[PART + 7] != OLD)
			CHECK(rig, !patience_over(&patience));
		invalidate(&end, rkey);
		/* A request that fails here stops the send queue only. */
		request_done(&end, invalidate_request(rkey + 1), IBV_WC_MW_BIND_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_SQE);
	}
	rig_sync(rig);
	OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

const struct rig_test window_wrong_tests[] = {
	{"window_wrong_requests", wrong_requests},
	{"window_wrong_arguments", wrong_arguments},
	{"window_types_of_qps", types_of_qps},
	{NULL, NULL},
};
