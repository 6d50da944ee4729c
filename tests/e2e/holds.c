/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds one object of each kind that verbenad knows, says `ready`, and waits to be killed
 * (holds.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_cq_ex *cq_ex;
static struct ibv_xrcd *xrcd;
static uint8_t memory[8192];

static void hold_regions(void)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
	struct ibv_alloc_dm_attr dm_attr = {.length = 64};
	struct ibv_dm *dm;

	MUST(ibv_reg_mr(pd, memory, sizeof(memory), all));
	MUST(ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE));
	MUST(ibv_alloc_null_mr(pd));
	MUST((dm = ibv_alloc_dm(ctx, &dm_attr)));
	MUST(ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE));
	MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1) && ibv_alloc_mw(pd, IBV_MW_TYPE_2));
}

static void hold_cqs(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 64};
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);

	MUST(channel && (cq = ibv_create_cq(ctx, 64, NULL, channel, 0)));
	MUST((cq_ex = ibv_create_cq_ex(ctx, &attr)));
}

static void hold_srqs(void)
{
	struct ibv_srq_init_attr basic = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = ibv_cq_ex_to_cq(cq_ex),
		.tm_cap = {.max_num_tags = 8, .max_ops = 8},
	};

	MUST(ibv_create_srq(pd, &basic));
	MUST(ibv_create_srq_ex(ctx, &attr));
	MUST((xrcd = ibv_open_xrcd(ctx, &domain)));
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			 IBV_SRQ_INIT_ATTR_XRCD;
	attr.srq_type = IBV_SRQT_XRC;
	attr.xrcd = xrcd;
	MUST(ibv_create_srq_ex(ctx, &attr));
}

static void hold_qps(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						 IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	struct ibv_wq_init_attr wq = {
		.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq};
	struct ibv_flow_attr everything = {
		.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(everything), .port = 1};
	struct ibv_qp *qp = NULL;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = types[i],
			.cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		};

		attr.cap.max_recv_wr = types[i] == IBV_QPT_XRC_SEND ? 0 : 4;
		MUST((qp = ibv_create_qp(pd, &attr)));
	}
	MUST(ibv_create_flow(qp, &everything));
	MUST(ibv_create_qp_ex(ctx, &target));
	MUST(ibv_create_wq(ctx, &wq));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};

	MUST(list && list[0] && (ctx = ibv_open_device(list[0])));
	MUST((pd = ibv_alloc_pd(ctx)));
	hold_regions();
	hold_cqs();
	hold_srqs();
	hold_qps();
	MUST(!ibv_query_gid(ctx, 1, 0, &to.grh.dgid));
	MUST(ibv_create_ah(pd, &to));
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
