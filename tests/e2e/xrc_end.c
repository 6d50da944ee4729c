/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc.h. An end owns its objects until xrc_close(). */
#include "xrc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL,
	REMOTE = ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
};

static void open_domain(struct xrc_end *end, const char *file)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	end->file = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	attr.fd = end->file;
	CHECK(end->rig, (end->xrcd = ibv_open_xrcd(end->rig->ctx, &attr)));
}

static void make_srqs(struct xrc_end *end, unsigned int depth)
{
	for (int i = 0; i < XRC_SRQS; i++) {
		struct ibv_srq_init_attr_ex attr = {
			.attr = {.max_wr = depth, .max_sge = 2},
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
			.srq_type = IBV_SRQT_XRC,
			.pd = end->pd,
			.xrcd = end->xrcd,
			.cq = end->rcq,
		};

		CHECK(end->rig, (end->srq[i] = ibv_create_srq_ex(end->rig->ctx, &attr)));
		OK(end->rig, ibv_get_srq_num(end->srq[i], &end->srqn[i]));
	}
	CHECK(end->rig, end->srqn[0] != end->srqn[1]);
}

static void make_qps(struct xrc_end *end, bool builder)
{
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = end->xrcd};
	struct ibv_qp_init_attr_ex initiator = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = end->pd,
		.send_cq = end->scq,
		.cap = {.max_send_wr = 64, .max_send_sge = 2, .max_inline_data = 64},
	};

	if (builder) {
		initiator.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		initiator.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
					   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
					   IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH;
	}
	CHECK(end->rig, (end->target = ibv_create_qp_ex(end->rig->ctx, &target)));
	CHECK(end->rig, (end->initiator = ibv_create_qp_ex(end->rig->ctx, &initiator)));
}

void xrc_open(struct xrc_end *end, struct rig *rig, const struct xrc_options *opt)
{
	static const struct xrc_options defaults;

	opt = opt ? opt : &defaults;
	memset(end, 0, sizeof(*end));
	end->rig = rig;
	CHECK(rig, (end->pd = ibv_alloc_pd(rig->ctx)));
	open_domain(end, opt->file);
	CHECK(rig, (end->scq = ibv_create_cq(rig->ctx, 256, NULL, NULL, 0)));
	CHECK(rig, (end->rcq = ibv_create_cq(rig->ctx, 256, NULL, NULL, 0)));
	make_srqs(end, opt->depth ? opt->depth : 64);
	make_qps(end, opt->builder);
	end->buf =
		mmap(NULL, XRC_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(rig, end->buf != MAP_FAILED);
	CHECK(rig, (end->mr = ibv_reg_mr(end->pd, end->buf, XRC_BYTES, ACCESS)));
}

void xrc_close(struct xrc_end *end)
{
	struct rig *rig = end->rig;

	if (end->initiator)
		OK(rig, ibv_destroy_qp(end->initiator));
	if (end->target)
		OK(rig, ibv_destroy_qp(end->target));
	for (int i = 0; i < XRC_SRQS; i++)
		if (end->srq[i])
			OK(rig, ibv_destroy_srq(end->srq[i]));
	if (end->xrcd)
		OK(rig, ibv_close_xrcd(end->xrcd));
	OK(rig, ibv_destroy_cq(end->scq));
	OK(rig, ibv_destroy_cq(end->rcq));
	OK(rig, ibv_dereg_mr(end->mr));
	OK(rig, ibv_dealloc_pd(end->pd));
	munmap(end->buf, XRC_BYTES);
	if (end->file >= 0)
		close(end->file);
}

void xrc_meet(struct xrc_end *end)
{
	struct xrc_peer mine = {.target = end->target->qp_num,
				.initiator = end->initiator->qp_num,
				.srqn = {end->srqn[0], end->srqn[1]},
				.rkey = end->mr->rkey,
				.psn = 0x777 + 0x100 * (uint32_t)end->rig->role,
				.addr = (uintptr_t)end->buf};

	OK(end->rig, ibv_query_gid(end->rig->ctx, 1, 0, &mine.gid));
	end->gid = mine.gid;
	rig_swap(end->rig, &mine, &end->peer, sizeof(mine));
}

static void to_init(struct xrc_end *end, struct ibv_qp *qp, unsigned int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	OK(end->rig,
	   ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

struct ibv_qp_attr xrc_path_to(struct xrc_end *end, uint32_t qpn, uint32_t rq_psn)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = rq_psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = end->peer.gid, .sgid_index = 0, .hop_limit = 64}},
	};
}

void xrc_target_init(struct xrc_end *end, struct ibv_qp *target, const struct xrc_options *opt)
{
	to_init(end, target,
		!opt || !opt->access	 ? REMOTE
		: opt->access == QP_NONE ? 0
					 : (unsigned int)opt->access);
}

void xrc_target_rtr(struct xrc_end *end, struct ibv_qp *target)
{
	struct ibv_qp_attr attr = xrc_path_to(end, end->peer.initiator, end->peer.psn);

	OK(end->rig, ibv_modify_qp(target, &attr,
				   XRC_PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

void xrc_initiator_rts(struct xrc_end *end, uint32_t target, const struct xrc_options *opt)
{
	struct ibv_qp_attr attr = xrc_path_to(end, target, 0);
	bool far = getenv("VERBENA_CARRIER");

	to_init(end, end->initiator, 0);
	OK(end->rig, ibv_modify_qp(end->initiator, &attr, XRC_PATH));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = far ? 17 : 10; /* 0.5 s: the machine may be busy */
	attr.retry_cnt = far ? 7 : 2;
	attr.rnr_retry = !opt || !opt->rnr_retry      ? 7
			 : opt->rnr_retry == RNR_NONE ? 0
						      : opt->rnr_retry;
	attr.sq_psn = 0x777 + 0x100 * (uint32_t)end->rig->role;
	attr.max_rd_atomic = 16;
	OK(end->rig,
	   ibv_modify_qp(end->initiator, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

void xrc_pair(struct xrc_end *end, struct rig *rig, const struct xrc_options *opt)
{
	xrc_open(end, rig, opt);
	xrc_meet(end);
	xrc_target_init(end, end->target, opt);
	if (!opt || !opt->target_unready)
		xrc_target_rtr(end, end->target);
	xrc_initiator_rts(end, end->peer.target, opt);
	rig_sync(rig);
}

void xrc_request(struct xrc_end *end, enum ibv_wr_opcode opcode, uint64_t id, uint32_t srqn,
		 size_t offset, uint32_t length, size_t remote, struct ibv_send_wr *wr,
		 struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){(uintptr_t)end->buf + offset, length, end->mr->lkey};
	*wr = (struct ibv_send_wr){.wr_id = id,
				   .opcode = opcode,
				   .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = sge,
				   .num_sge = length ? 1 : 0,
				   .imm_data = (uint32_t)id};
	wr->qp_type.xrc.remote_srqn = srqn;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.remote_addr = end->peer.addr + remote;
		wr->wr.atomic.rkey = end->peer.rkey;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.swap = 77;
	} else {
		wr->wr.rdma.remote_addr = end->peer.addr + remote;
		wr->wr.rdma.rkey = end->peer.rkey;
	}
}

int xrc_send(struct xrc_end *end, enum ibv_wr_opcode opcode, uint64_t id, uint32_t srqn,
	     size_t offset, uint32_t length, size_t remote)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	xrc_request(end, opcode, id, srqn, offset, length, remote, &wr, &sge);
	return ibv_post_send(end->initiator, &wr, &bad);
}

int xrc_recv(struct xrc_end *end, struct ibv_srq *srq, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)end->buf + offset, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = length ? 1 : 0}, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

struct ibv_wc xrc_wc_at(struct xrc_end *end, struct ibv_cq *cq, uint64_t id,
			enum ibv_wc_status status, const char *file, int line)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		if (patience_over(&patience))
			rig_fail(end->rig, file, line, "no completion of %llu",
				 (unsigned long long)id);
	if (n != 1 || wc.wr_id != id || wc.status != status)
		rig_fail(end->rig, file, line,
			 "%d completions: of %llu with \"%s\", not %llu: \"%s\"", n,
			 (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			 (unsigned long long)id, ibv_wc_status_str(status));
	return wc;
}

enum ibv_qp_state xrc_state(struct xrc_end *end, struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	OK(end->rig, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

const char *xrc_domain_file(struct rig *rig, char path[128])
{
	pid_t mine = getpid(), theirs;

	rig_swap(rig, &mine, &theirs, sizeof(mine));
	snprintf(path, 128, "/tmp/verbena-xrc-%d-%s-%d", rig->role == RIG_A ? mine : theirs,
		 rig->name, rig->carrier);
	return path;
}
