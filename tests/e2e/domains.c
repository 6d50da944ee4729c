/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parent and thread domains, moderated completion events, rate limits, and the flags and queries of
 * queue pairs that have no file of their own. See rig.h.
 */
#include <errno.h>
#include <infiniband/later.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

/* ------------------------------------------------------------------ domains */

/* What the program's allocators were asked for. */
struct asked {
	struct ibv_pd *pd; /* the parent domain; NULL: not made yet */
	int made, freed, by_kind[5];
	bool fails, leaves; /* it has no memory; the library shall use its own */
	size_t size[32];
	void *at[32];
};

static void *asked_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
			 uint64_t kind)
{
	struct asked *asked = context;

	if (pd != asked->pd || kind < 1 || kind > 4 || asked->made >= 32)
		abort();
	asked->by_kind[kind]++;
	if (asked->fails)
		return NULL;
	if (asked->leaves)
		return IBV_ALLOCATOR_USE_DEFAULT;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || (uintptr_t)at % alignment)
		abort();
	asked->at[asked->made] = at;
	asked->size[asked->made++] = size;
	return at;
}

static void asked_free(struct ibv_pd *pd, void *context, void *at, uint64_t kind)
{
	struct asked *asked = context;

	for (int i = 0; i < asked->made; i++)
		if (asked->at[i] == at) {
			if (pd != asked->pd || kind < 1 || kind > 4)
				abort();
			munmap(at, asked->size[i]);
			asked->at[i] = NULL;
			asked->freed++;
			return;
		}
	abort();
}

static struct ibv_pd *parent_make(struct rig *rig, struct ibv_pd *pd, struct ibv_td *td,
				  struct asked *asked)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.td = td,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = asked_alloc,
		.free = asked_free,
		.pd_context = asked,
	};

	*asked = (struct asked){0};
	asked->pd = ibv_alloc_parent_domain(rig->ctx, &attr);
	if (!asked->pd)
		rig_fail(rig, __FILE__, __LINE__, "no parent domain: %s", strerror(errno));
	return asked->pd;
}

static struct ibv_cq_ex *cq_in(struct rig *rig, struct ibv_pd *parent, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = parent,
	};

	return ibv_create_cq_ex(rig->ctx, &attr);
}

/* Everything is made with the parent domain, and messages go as with any other. */
static void parent_traffic(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_srq_attr bigger = {.max_wr = 300};
	struct asked asked;
	struct end end;

	CHECK(rig, pd);
	struct ibv_pd *parent = parent_make(rig, pd, NULL, &asked);
	struct end_options options = {.pd = parent, .srq_depth = 16};

	end_pair(&end, rig, &options);
	CHECK_EQ(rig, asked.by_kind[1], 1); /* the QP's send queue */
	CHECK_EQ(rig, asked.by_kind[3], 1); /* the SRQ */
	OK(rig, ibv_modify_srq(end.srq, &bigger, IBV_SRQ_MAX_WR));
	CHECK_EQ(rig, asked.by_kind[3], 2);
	CHECK_EQ(rig, asked.freed, 1);
	for (uint64_t i = 0; i < 20; i++) {
		OK(rig, end_recv(&end, i, 4096, 4096));
		rig_sync(rig);
		pattern_fill(end.buf, 4096, (uint32_t)i + (uint32_t)rig->role);
		OK(rig, end_send(&end, IBV_WR_SEND, i, 0, 4096, 0));
		wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
		CHECK(rig, pattern_holds(end.buf + 4096, 4096, (uint32_t)i + !rig->role));
	}
	CHECK_EQ(rig, ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(rig, ibv_dealloc_pd(pd), EBUSY);
	end_close(&end);
	CHECK_EQ(rig, asked.freed, asked.made);
	OK(rig, ibv_dealloc_pd(parent));
	OK(rig, ibv_dealloc_pd(pd));
}

/* A CQ of a parent domain with a thread domain: made, resized and ended by the allocators. */
static void parent_cq(struct rig *rig)
{
	struct ibv_td_init_attr none = {0};
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_td *td = ibv_alloc_td(rig->ctx, &none);
	struct ibv_poll_cq_attr poll = {0};
	struct asked asked;

	CHECK(rig, pd && td && td->context == rig->ctx);
	struct ibv_pd *parent = parent_make(rig, pd, td, &asked);
	struct ibv_cq_ex *cq = cq_in(rig, parent, 100);

	CHECK(rig, cq);
	CHECK_EQ(rig, asked.by_kind[4], 1);
	OK(rig, ibv_resize_cq(ibv_cq_ex_to_cq(cq), 1000));
	CHECK_EQ(rig, asked.by_kind[4], 2);
	CHECK_EQ(rig, ibv_start_poll(cq, &poll), ENOENT);
	CHECK_EQ(rig, ibv_dealloc_td(td), EBUSY);
	CHECK_EQ(rig, ibv_dealloc_pd(parent), EBUSY);
	OK(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	CHECK_EQ(rig, asked.freed, 2);
	OK(rig, ibv_dealloc_pd(parent));
	OK(rig, ibv_dealloc_td(td));
	OK(rig, ibv_dealloc_pd(pd));
}

/* An allocator without memory fails the call; one that leaves it to the library is never asked to
 * free. */
static void parent_allocator_fails(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq_attr more = {.max_wr = 32};
	struct ibv_cq *cq = ibv_create_cq(rig->ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr qp = {.send_cq = cq,
				      .recv_cq = cq,
				      .qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = 4, .max_recv_wr = 4}};
	struct asked asked;
	struct ibv_srq *made;

	CHECK(rig, pd && cq);
	struct ibv_pd *parent = parent_make(rig, pd, NULL, &asked);

	asked.fails = true;
	CHECK(rig, !ibv_create_srq(parent, &srq) && errno == ENOMEM);
	CHECK(rig, !ibv_create_qp(parent, &qp) && errno == ENOMEM);
	CHECK(rig, !cq_in(rig, parent, 16) && errno == ENOMEM);
	asked.fails = false;
	asked.leaves = true;
	CHECK(rig, (made = ibv_create_srq(parent, &srq)));
	asked.fails = true;
	CHECK_EQ(rig, ibv_modify_srq(made, &more, IBV_SRQ_MAX_WR), ENOMEM);
	OK(rig, ibv_destroy_srq(made));
	CHECK_EQ(rig, asked.freed, 0);
	OK(rig, ibv_destroy_cq(cq));
	OK(rig, ibv_dealloc_pd(parent));
	OK(rig, ibv_dealloc_pd(pd));
}

static int parent_error(struct rig *rig, struct ibv_parent_domain_init_attr attr)
{
	struct ibv_pd *parent = ibv_alloc_parent_domain(rig->ctx, &attr);

	if (!parent)
		return errno;
	OK(rig, ibv_dealloc_pd(parent));
	return 0;
}

static void parent_wrong(struct rig *rig)
{
	struct ibv_td_init_attr bad = {.comp_mask = 1};
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_parent_domain_init_attr attr = {.pd = pd};
	struct asked asked;

	CHECK(rig, pd);
	CHECK_EQ(rig, parent_error(rig, attr), 0);
	attr.pd = NULL;
	CHECK_EQ(rig, parent_error(rig, attr), EINVAL);
	attr.pd = pd;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC; /* needs nothing */
	CHECK_EQ(rig, parent_error(rig, attr), 0);
	attr.comp_mask = 8;
	CHECK_EQ(rig, parent_error(rig, attr), EINVAL);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	CHECK_EQ(rig, parent_error(rig, attr), EINVAL); /* without any */
	attr.alloc = asked_alloc;
	CHECK_EQ(rig, parent_error(rig, attr), EINVAL); /* without the other */
	CHECK(rig, !ibv_alloc_td(rig->ctx, &bad) && errno == EINVAL);
	CHECK(rig, !cq_in(rig, NULL, 16) && errno == EINVAL);
	CHECK(rig, !cq_in(rig, pd, 16) && errno == EINVAL); /* no parent domain */
	attr = (struct ibv_parent_domain_init_attr){.pd = parent_make(rig, pd, NULL, &asked)};
	CHECK_EQ(rig, parent_error(rig, attr), EINVAL); /* of a parent domain */
	OK(rig, ibv_dealloc_pd(attr.pd));
	OK(rig, ibv_dealloc_pd(pd));
}

/* Every kind of object keeps the parent domain. */
static void parent_kept(struct rig *rig)
{
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
	struct asked asked;
	uint8_t byte;

	CHECK(rig, pd);
	struct ibv_pd *parent = parent_make(rig, pd, NULL, &asked);
	struct ibv_mr *mr = ibv_reg_mr(parent, &byte, 1, 0);
	struct ibv_mw *mw;
	struct ibv_ah *ah;

	CHECK(rig, mr && mr->pd == parent);
	CHECK_EQ(rig, ibv_dealloc_pd(parent), EBUSY);
	OK(rig, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	CHECK(rig, (mw = ibv_alloc_mw(parent, IBV_MW_TYPE_2)));
	CHECK_EQ(rig, ibv_dealloc_pd(parent), EBUSY);
	OK(rig, ibv_dealloc_mw(mw));
	OK(rig, ibv_query_gid(rig->ctx, 1, 0, &to.grh.dgid));
	CHECK(rig, (ah = ibv_create_ah(parent, &to)));
	CHECK_EQ(rig, ibv_dealloc_pd(parent), EBUSY);
	OK(rig, ibv_destroy_ah(ah));
	OK(rig, ibv_dealloc_pd(parent));
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_dealloc_pd(pd));
}

/* ------------------------------------------------------------------ moderated events */

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE,
					  .moderate = {count, period_us}};

	return ibv_modify_cq(cq, &attr);
}

static void take_event(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	OK(end->rig, ibv_get_cq_event(end->channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
}

/* B's receive CQ raises one event for four completions. */
static void moderated_by_count(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_B) {
		OK(rig, moderate(end.rcq, 4, 65535));
		OK(rig, ibv_req_notify_cq(end.rcq, 0));
		for (uint64_t i = 0; i < 4; i++)
			OK(rig, end_recv(&end, i, 4096 * i, 64));
	}
	rig_sync(rig);
	for (uint64_t i = 0; i < 4; i++) {
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, i, 0, 64, 0));
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		/* 65.5 ms have not passed, on a machine that isn't very slow; then an event comes
		 * early, and nothing more is known. */
		if (rig->role == RIG_B && i == 3)
			CHECK(rig, channel_readable(end.channel, RIG_SOON_MS));
	}
	if (rig->role == RIG_B) {
		take_event(&end);
		CHECK(rig, !channel_readable(end.channel, RIG_NEVER_MS));
		for (uint64_t i = 0; i < 4; i++)
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Fewer completions raise the event when the period is over. */
static void moderated_by_time(struct rig *rig)
{
	struct end end;
	double since = 0;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_B) {
		OK(rig, moderate(end.rcq, 1000, 50000));
		OK(rig, ibv_req_notify_cq(end.rcq, 0));
		OK(rig, end_recv(&end, 0, 0, 64));
		since = now_ms();
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 64, 0));
		wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
	} else {
		CHECK(rig, channel_readable(end.channel, RIG_SOON_MS));
		CHECK(rig, now_ms() - since >= 50);
		take_event(&end);
		wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Turning moderation off raises what was held back, and later events come at once. */
static void moderation_off(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	OK(rig, moderate(end.scq, 1000, 65535));
	OK(rig, ibv_req_notify_cq(end.scq, 0));
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 64, 4096));
	wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	OK(rig, moderate(end.scq, 0, 0));
	CHECK(rig, channel_readable(end.channel, RIG_SOON_MS));
	take_event(&end);
	OK(rig, moderate(end.scq, 1000, 0)); /* a period of 0 is off, too */
	OK(rig, ibv_req_notify_cq(end.scq, 0));
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 2, 0, 64, 4096));
	CHECK(rig, channel_readable(end.channel, RIG_SOON_MS));
	take_event(&end);
	wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	/* It may end while an event is held back. */
	OK(rig, moderate(end.scq, 1000, 1));
	OK(rig, moderate(end.scq, 1000, 65535));
	OK(rig, ibv_req_notify_cq(end.scq, 0));
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 3, 0, 64, 4096));
	wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

static void moderation_wrong(struct rig *rig)
{
	struct ibv_cq *cq = ibv_create_cq(rig->ctx, 16, NULL, NULL, 0);
	struct ibv_modify_cq_attr attr = {0};
	struct ibv_device_attr_ex device;

	CHECK(rig, cq);
	CHECK_EQ(rig, ibv_modify_cq(cq, &attr), EINVAL);
	attr.attr_mask = IBV_CQ_ATTR_MODERATE | IBV_CQ_ATTR_RESERVED;
	CHECK_EQ(rig, ibv_modify_cq(cq, &attr), EINVAL);
	OK(rig, moderate(cq, 65535, 65535));
	OK(rig, ibv_destroy_cq(cq));
	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &device));
	CHECK_EQ(rig, device.cq_mod_caps.max_cq_count, 65535);
	CHECK_EQ(rig, device.cq_mod_caps.max_cq_period, 65535);
}

/* ------------------------------------------------------------------ completions' fields */

/* Every field that can be asked for. */
static void completion_fields(struct rig *rig)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
			    IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN |
			    IBV_WC_EX_WITH_TM_INFO};
	struct ibv_wc_tm_info tags = {.tag = 1, .priv = 1};
	struct ibv_poll_cq_attr poll = {0};
	struct timespec wall, mono;
	struct end end;

	end_open(&end, rig, NULL);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(rig->ctx, &attr);

	CHECK(rig, cq);
	struct ibv_qp_init_attr qp = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = end.rcq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1}};

	OK(rig, ibv_destroy_qp(end.qp));
	CHECK(rig, (end.qp = ibv_create_qp(end.pd, &qp)));
	end_connect(&end);
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 64, 4096));
	struct patience patience = patience_of(RIG_SOON_MS);

	while (ibv_start_poll(cq, &poll) == ENOENT)
		CHECK(rig, !patience_over(&patience));
	CHECK_EQ(rig, cq->status, IBV_WC_SUCCESS);
	CHECK_EQ(rig, ibv_wc_read_flow_tag(cq), 0);
	CHECK_EQ(rig, ibv_wc_read_cvlan(cq), 0);
	uint64_t then = (uint64_t)wall.tv_sec * 1000000000ull + (uint64_t)wall.tv_nsec;
	uint64_t stamp = ibv_wc_read_completion_wallclock_ns(cq);

	CHECK(rig, stamp + 1000000000ull >= then && stamp - then < 60000000000ull * 10);
	CHECK(rig, ibv_wc_read_completion_ts(cq) >=
			   (uint64_t)mono.tv_sec * 1000000000ull + (uint64_t)mono.tv_nsec);
	ibv_wc_read_tm_info(cq, &tags);
	CHECK(rig, !tags.tag && !tags.priv); /* no tag was matched */
	ibv_end_poll(cq);
	attr.wc_flags = 1 << 20; /* there is none such */
	CHECK(rig, !ibv_create_cq_ex(rig->ctx, &attr) && errno == EOPNOTSUPP);
	rig_sync(rig);
	OK(rig, ibv_destroy_qp(end.qp));
	end.qp = NULL;
	OK(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	end_close(&end);
}

/* ------------------------------------------------------------------ rate limits */

enum { LIMIT_KBPS = 80000, PIECES = 40, PIECE = 10000 }; /* 40 ms for all pieces */

static void limited_send(struct end *end, enum ibv_wr_opcode opcode)
{
	for (uint64_t i = 0; i < PIECES; i++)
		OK(end->rig, end_send(end, opcode, i, 0, PIECE, 0));
	for (uint64_t i = 0; i < PIECES; i++)
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
}

static int limit_rate(struct end *end, uint32_t kbps, uint32_t burst)
{
	struct ibv_qp_rate_limit_attr attr = {.rate_limit = kbps, .max_burst_sz = burst};

	return ibv_modify_qp_rate_limit(end->qp, &attr);
}

/* A's requests take as long as their bytes at the limit; without it they don't have to. */
static void rate_limited(struct rig *rig)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct end end;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_A) {
		end_warm(&end);
		OK(rig, limit_rate(&end, LIMIT_KBPS, 0));
		OK(rig, ibv_query_qp(end.qp, &attr, IBV_QP_RATE_LIMIT, &init));
		CHECK_EQ(rig, attr.rate_limit, LIMIT_KBPS);
		double since = now_ms();

		limited_send(&end, IBV_WR_RDMA_WRITE);
		CHECK(rig, now_ms() - since >= (PIECES - 1) * (double)PIECE * 8 / LIMIT_KBPS);
		/* All may be in one burst. */
		OK(rig, limit_rate(&end, 1, PIECES * PIECE + PIECE));
		OK(rig, limit_rate(&end, 0, 0));
		limited_send(&end, IBV_WR_RDMA_WRITE);
		/* The end of a limit starts what was held back. */
		OK(rig, limit_rate(&end, 1, 0));
		for (uint64_t i = 0; i < 4; i++)
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, i, 0, PIECE, 0));
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .rate_limit = 0};
		OK(rig, ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT));
		for (uint64_t i = 0; i < 4; i++)
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* What is held back is flushed, counts for the queue's size, and is gone after RESET. */
static void rate_limit_flush(struct rig *rig)
{
	static const struct end_options shallow = {.send_depth = 8};
	struct end end;

	end_pair(&end, rig, &shallow);
	if (rig->role == RIG_A) {
		end_warm(&end);
		OK(rig, limit_rate(&end, 1, 0));
		/* The first begins at once, and completes, so there is room for another. */
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 0, 0, PIECE, 0));
		wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
		for (uint64_t i = 1; i < 9; i++)
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, i, 0, PIECE, 0));
		CHECK_EQ(rig, end_send(&end, IBV_WR_RDMA_WRITE, 9, 0, PIECE, 0), ENOMEM);
		OK(rig, end_move(&end, IBV_QPS_ERR));
		for (uint64_t i = 1; i < 9; i++)
			wc_expect(&end, end.scq, i, IBV_WC_WR_FLUSH_ERR);
		OK(rig, end_move(&end, IBV_QPS_RESET));
		CHECK_EQ(rig, limit_rate(&end, 1, 0), EINVAL);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Datagrams and unreliable connections are limited, too. */
static void rate_limited_unreliable(struct rig *rig)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct end_options opt = {.type = types[i]};
		struct end end;

		end_pair(&end, rig, &opt);
		if (rig->role == RIG_A) {
			OK(rig, limit_rate(&end, 800, 0)); /* 10 ms for 1000 bytes */
			double since = now_ms();

			for (uint64_t n = 0; n < 5; n++) {
				end_request(&end, IBV_WR_SEND, n, 0, 1000, 0, &wr, &sge);
				if (types[i] == IBV_QPT_UD) {
					wr.wr.ud.ah = end.ah;
					wr.wr.ud.remote_qpn = end.peer.qpn;
					wr.wr.ud.remote_qkey = QKEY;
				}
				OK(rig, ibv_post_send(end.qp, &wr, &bad));
			}
			for (uint64_t n = 0; n < 5; n++)
				wc_expect(&end, end.scq, n, IBV_WC_SUCCESS);
			CHECK(rig, now_ms() - since >= 40);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* ------------------------------------------------------------------ attributes of queue pairs */

static int qp_ex_error(struct end *end, enum ibv_qp_type type, uint32_t mask, uint32_t flags,
		       uint32_t source)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1},
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | mask,
		.pd = end->pd,
		.create_flags = flags,
		.source_qpn = source,
		.max_tso_header = 64,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->pd->context, &attr);

	if (!qp)
		return errno;
	OK(end->rig, ibv_destroy_qp(qp));
	return 0;
}

/* tests/e2e/groups.c shows what the flags do. */
static void qp_flags_wrong(struct rig *rig)
{
	static const struct end_options datagrams = {.type = IBV_QPT_UD};
	const uint32_t flags = IBV_QP_INIT_ATTR_CREATE_FLAGS;
	const uint32_t source = IBV_QP_CREATE_SOURCE_QPN;
	struct ibv_device_attr_ex device;
	struct end end, connected;

	end_open(&end, rig, &datagrams);
	end_open(&connected, rig, NULL);
	OK(rig, qp_ex_error(&end, IBV_QPT_UD, flags, source, end.qp->qp_num));
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_UD, flags, source, 1), EINVAL);
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_UD, flags, source, connected.qp->qp_num), EINVAL);
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_RC, flags, source, end.qp->qp_num), EINVAL);
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_UC, flags, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0),
		 EINVAL);
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_UD, flags, IBV_QP_CREATE_CVLAN_STRIPPING, 0),
		 EINVAL); /* raw packets only */
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_UD, flags, IBV_QP_CREATE_SCATTER_FCS, 0),
		 EOPNOTSUPP);
	/* No segmentation of large packets, and no claim of any. */
	CHECK_EQ(rig, qp_ex_error(&end, IBV_QPT_UD, IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0, 0),
		 EOPNOTSUPP);
	OK(rig, ibv_query_device_ex(rig->ctx, NULL, &device));
	CHECK_EQ(rig, device.tso_caps.max_tso, 0);
	end_close(&connected);
	end_close(&end);
}

static void qp_queries(struct rig *rig)
{
	struct ibv_ece ece = {0};
	struct end end;

	end_open(&end, rig, NULL);
	OK(rig, ibv_query_ece(end.qp, &ece));
	CHECK(rig, ece.vendor_id && !ece.options && !ece.comp_mask);
	ece.options = 0xff;
	OK(rig, ibv_set_ece(end.qp, &ece));
	CHECK_EQ(rig, ece.options, 0); /* what is accepted: nothing */
	ece.comp_mask = 1;
	CHECK_EQ(rig, ibv_set_ece(end.qp, &ece), EINVAL);
	ece = (struct ibv_ece){.vendor_id = 0x2c9, .options = 1};
	CHECK_EQ(rig, ibv_set_ece(end.qp, &ece), EINVAL);
	CHECK_EQ(rig, ibv_query_qp_data_in_order(end.qp, IBV_WR_RDMA_WRITE, 0), 0);
	CHECK_EQ(rig, ibv_query_qp_data_in_order(end.qp, IBV_WR_RDMA_READ, 0), 0);
	end_close(&end);
}

const struct rig_test domain_tests[] = {
	{"parent_traffic", parent_traffic},
	{"parent_cq", parent_cq},
	{"parent_allocator_fails", parent_allocator_fails},
	{"parent_wrong", parent_wrong},
	{"parent_kept", parent_kept},
	{"moderated_by_count", moderated_by_count},
	{"moderated_by_time", moderated_by_time},
	{"moderation_off", moderation_off},
	{"moderation_wrong", moderation_wrong},
	{"completion_fields", completion_fields},
	{"rate_limited", rate_limited},
	{"rate_limit_flush", rate_limit_flush},
	{"rate_limited_unreliable", rate_limited_unreliable},
	{"qp_flags_wrong", qp_flags_wrong},
	{"qp_queries", qp_queries},
	{NULL, NULL},
};
