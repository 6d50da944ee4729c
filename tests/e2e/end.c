/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rig's ends: a queue pair with all that it needs, and short functions for tests. See rig.h. An
 * end owns its objects until end_close().
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "rig.h"

enum {
	ACCESS_ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC
};

static void defaults_fill(struct end_options *opt)
{
	opt->type = opt->type ? opt->type : IBV_QPT_RC;
	opt->send_depth = opt->send_depth ? opt->send_depth : 64;
	opt->recv_depth = opt->recv_depth ? opt->recv_depth : 64;
	opt->sge = opt->sge ? opt->sge : 4;
	opt->cqe = opt->cqe ? opt->cqe : 256;
	opt->bytes = opt->bytes ? opt->bytes : 65536;
	opt->mr_access = !opt->mr_access	     ? ACCESS_ALL
			 : opt->mr_access == MR_NONE ? IBV_ACCESS_LOCAL_WRITE
						     : opt->mr_access;
	opt->qp_access = !opt->qp_access	     ? ACCESS_ALL & ~IBV_ACCESS_LOCAL_WRITE
			 : opt->qp_access == QP_NONE ? 0
						     : opt->qp_access;
	/* More patience: a network between hosts loses packets, and over RoCE a silent peer may
	 * only be waiting for a processor; the thread sanitizer makes it ten times slower. */
	bool far = getenv("RIG_HOSTS") || getenv("VERBENA_CARRIER");
#ifdef __SANITIZE_THREAD__
	const int far_timeout = 17;
#else
	const int far_timeout = 14;
#endif

	opt->timeout = !opt->timeout		      ? far ? far_timeout : 10
		       : opt->timeout == TIMEOUT_NONE ? 0
						      : opt->timeout;
	opt->retry_cnt = opt->retry_cnt ? opt->retry_cnt : far ? 7 : 2;
	opt->rnr_retry = !opt->rnr_retry ? 7 : opt->rnr_retry == RNR_NONE ? 0 : opt->rnr_retry;
	opt->min_rnr_timer = opt->min_rnr_timer ? opt->min_rnr_timer : 1;
}

static void qp_make(struct end *end)
{
	const struct end_options *opt = &end->opt;
	struct ibv_qp_init_attr attr = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.srq = end->srq,
		.qp_type = opt->type,
		.sq_sig_all = opt->all_signaled,
		.cap = {.max_send_wr = opt->send_depth,
			.max_recv_wr = end->srq ? 0 : opt->recv_depth,
			.max_send_sge = opt->sge,
			.max_recv_sge = opt->sge,
			.max_inline_data = opt->inline_bytes},
	};

	end->qp = ibv_create_qp(end->pd, &attr);
	if (!end->qp)
		rig_fail(end->rig, __FILE__, __LINE__, "no QP: %s", strerror(errno));
	end->cap = attr.cap;
}

/* The first half in a memory file, the other one in a System V segment: a region that spans two
 * mappings. */
static void memory_share(struct end *end)
{
	struct rig *rig = end->rig;
	size_t page = (size_t)sysconf(_SC_PAGESIZE),
	       bytes = (end->opt.bytes + page - 1) & ~(page - 1);
	size_t half = bytes / 2 & ~(page - 1);
	size_t file = half ? half : bytes;

	end->buf_fd = memfd_create("end", MFD_CLOEXEC);
	CHECK(rig, end->buf_fd >= 0);
	OK(rig, ftruncate(end->buf_fd, (off_t)file));
	CHECK(rig, mmap(end->buf, file, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, end->buf_fd,
			0) == end->buf);
	if (!half)
		return;
	int id = shmget(IPC_PRIVATE, bytes - half, 0600);

	CHECK(rig, id >= 0);
	CHECK(rig, shmat(id, end->buf + half, SHM_REMAP) == end->buf + half);
	OK(rig, shmctl(id, IPC_RMID, NULL));
}

static void memory_make(struct end *end)
{
	end->buf = mmap(NULL, end->opt.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	CHECK(end->rig, end->buf != MAP_FAILED);
	end->buf_fd = -1;
	if (end->rig->carrier == RIG_FOUND)
		memory_share(end);
}

void end_open(struct end *end, struct rig *rig, const struct end_options *opt)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_sge = 4}};

	memset(end, 0, sizeof(*end));
	end->rig = rig;
	if (opt)
		end->opt = *opt;
	defaults_fill(&end->opt);
	opt = &end->opt;
	end->psn = (uint32_t)(0x123456 + 0x1111 * rig->role);

	CHECK(rig, (end->pd = opt->pd ? opt->pd : ibv_alloc_pd(rig->ctx)));
	struct ibv_context *ctx = end->pd->context;

	CHECK(rig, (end->channel = ibv_create_comp_channel(ctx)));
	CHECK(rig, (end->scq = ibv_create_cq(ctx, (int)opt->cqe, end, end->channel, 0)));
	end->rcq = end->scq;
	if (!opt->one_cq)
		CHECK(rig, (end->rcq = ibv_create_cq(ctx, (int)opt->cqe, end, end->channel, 0)));
	if (opt->srq_depth) {
		srq.attr.max_wr = opt->srq_depth;
		CHECK(rig, (end->srq = ibv_create_srq(end->pd, &srq)));
	}
	qp_make(end);
	memory_make(end);
	CHECK(rig, (end->mr = ibv_reg_mr(end->pd, end->buf, opt->bytes, opt->mr_access)));
}

void end_close(struct end *end)
{
	struct rig *rig = end->rig;

	if (end->ah)
		OK(rig, ibv_destroy_ah(end->ah));
	if (end->qp)
		OK(rig, ibv_destroy_qp(end->qp));
	if (end->srq)
		OK(rig, ibv_destroy_srq(end->srq));
	OK(rig, ibv_destroy_cq(end->scq));
	if (end->rcq != end->scq)
		OK(rig, ibv_destroy_cq(end->rcq));
	OK(rig, ibv_destroy_comp_channel(end->channel));
	if (end->mr)
		OK(rig, ibv_dereg_mr(end->mr));
	if (!end->opt.pd)
		OK(rig, ibv_dealloc_pd(end->pd));
	munmap(end->buf, end->opt.bytes);
	if (end->buf_fd >= 0)
		close(end->buf_fd);
}

void end_init(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = QKEY,
				   .qp_access_flags = (unsigned int)end->opt.qp_access};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= end->opt.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	OK(end->rig, ibv_modify_qp(end->qp, &attr, mask));
}

/* What the other end must know. */
static struct end_peer as_peer(struct end *end)
{
	OK(end->rig, ibv_query_gid(end->rig->ctx, 1, 0, &end->gid));
	return (struct end_peer){.qpn = end->qp->qp_num,
				 .psn = end->psn,
				 .lkey = end->mr->lkey,
				 .rkey = end->mr->rkey,
				 .qkey = QKEY,
				 .addr = (uintptr_t)end->buf,
				 .gid = end->gid};
}

void end_meet(struct end *end)
{
	struct end_peer mine = as_peer(end);

	rig_swap(end->rig, &mine, &end->peer, sizeof(mine));
}

static struct ibv_ah_attr way_to_peer(const struct end *end)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = end->peer.gid, .sgid_index = 0, .hop_limit = 64},
	};
}

static void change_state(struct end *end, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(end->qp, attr, mask);

	if (err && end->opt.may_fail)
		CHECK_EQ(end->rig, end_state(end), IBV_QPS_ERR);
	else
		OK(end->rig, err);
}

void end_rtr(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = end->peer.qpn,
		.rq_psn = (end->peer.psn + end->opt.wrong_psn) & 0xffffff,
		.max_dest_rd_atomic = end->opt.no_dest_reads ? 0 : 16,
		.min_rnr_timer = (uint8_t)end->opt.min_rnr_timer,
	};
	int mask = IBV_QP_STATE;

	if (end->opt.type != IBV_QPT_UD) {
		attr.ah_attr = way_to_peer(end);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	} else if (!end->ah) {
		attr.ah_attr = way_to_peer(end);
		CHECK(end->rig, (end->ah = ibv_create_ah(end->pd, &attr.ah_attr)));
	}
	if (end->opt.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	change_state(end, &attr, mask);
}

void end_rts(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = end->psn,
		.timeout = (uint8_t)end->opt.timeout,
		.retry_cnt = (uint8_t)end->opt.retry_cnt,
		.rnr_retry = (uint8_t)end->opt.rnr_retry,
		.max_rd_atomic = end->opt.no_reads ? 0 : 16,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (end->opt.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	change_state(end, &attr, mask);
}

void end_connect(struct end *end)
{
	end_init(end);
	end_meet(end);
	end_rtr(end);
	end_rts(end);
	rig_sync(end->rig);
}

void end_join(struct end *one, struct end *other)
{
	end_init(one);
	end_init(other);
	one->peer = as_peer(other);
	other->peer = as_peer(one);
	end_rtr(one);
	end_rtr(other);
	end_rts(one);
	end_rts(other);
}

void end_pair(struct end *end, struct rig *rig, const struct end_options *opt)
{
	end_open(end, rig, opt);
	end_connect(end);
}

int end_move(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state end_state(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	OK(end->rig, ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Posting ------------------------------------------------------------------------------------ */

struct ibv_sge end_sge(const struct end *end, size_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)(end->buf + offset), .length = length, .lkey = end->mr->lkey};
}

int end_recv(struct end *end, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = end_sge(end, offset, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return end->srq ? ibv_post_srq_recv(end->srq, &wr, &bad)
			: ibv_post_recv(end->qp, &wr, &bad);
}

void end_request(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset,
		 uint32_t length, size_t remote, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	*sge = end_sge(end, offset, length);
	*wr = (struct ibv_send_wr){.wr_id = id,
				   .opcode = opcode,
				   .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = sge,
				   .num_sge = 1};
	if (end->opt.type == IBV_QPT_UD) {
		wr->wr.ud.ah = end->ah;
		wr->wr.ud.remote_qpn = end->peer.qpn;
		wr->wr.ud.remote_qkey = end->peer.qkey;
		return;
	}
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = end->peer.addr + remote;
		wr->wr.atomic.rkey = end->peer.rkey;
	} else {
		wr->wr.rdma.remote_addr = end->peer.addr + remote;
		wr->wr.rdma.rkey = end->peer.rkey;
	}
}

int end_send(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset,
	     uint32_t length, size_t remote)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, opcode, id, offset, length, remote, &wr, &sge);
	return ibv_post_send(end->qp, &wr, &bad);
}

/* Completions -------------------------------------------------------------------------------- */

/* Polls until there is a completion or the time is over; returns whether there is one. */
static bool wc_within(struct end *end, struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	struct patience patience = patience_of(ms);
	int got;

	while ((got = ibv_poll_cq(cq, 1, wc)) == 0) {
		if (patience_over(&patience))
			return false;
	}
	CHECK_EQ(end->rig, got, 1);
	return true;
}

struct ibv_wc wc_wait(struct end *end, struct ibv_cq *cq)
{
	struct ibv_wc wc = {0};

	if (!wc_within(end, cq, &wc, RIG_SOON_MS))
		rig_fail(end->rig, __FILE__, __LINE__, "no completion");
	return wc;
}

struct ibv_wc wc_expect_at(struct end *end, struct ibv_cq *cq, uint64_t id,
			   enum ibv_wc_status status, const char *file, int line)
{
	struct ibv_wc wc = {0};

	if (!wc_within(end, cq, &wc, RIG_SOON_MS))
		rig_fail(end->rig, file, line, "no completion; expected request %llu with \"%s\"",
			 (unsigned long long)id, ibv_wc_status_str(status));
	if (wc.status != status || wc.wr_id != id)
		rig_fail(end->rig, file, line,
			 "request %llu completed with \"%s\" (%d); expected request %llu with "
			 "\"%s\" (%d)",
			 (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.status,
			 (unsigned long long)id, ibv_wc_status_str(status), status);
	if (end->qp && wc.qp_num != end->qp->qp_num)
		rig_fail(end->rig, file, line, "the completion names QP 0x%x, ours is 0x%x",
			 wc.qp_num, end->qp->qp_num);
	return wc;
}

void wc_none_at(struct end *end, struct ibv_cq *cq, const char *file, int line)
{
	struct ibv_wc wc = {0};

	if (wc_within(end, cq, &wc, RIG_NEVER_MS))
		rig_fail(end->rig, file, line,
			 "request %llu completed with \"%s\" (%d); expected nothing",
			 (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.status);
}

/* Data --------------------------------------------------------------------------------------- */

static uint8_t pattern_at(size_t position, uint32_t seed)
{
	return (uint8_t)((position * 131) ^ (position >> 8) ^ (seed * 29) ^ (seed >> 8));
}

/*
 * The engine reads these bytes for a peer's READ, and nothing within this process orders the two:
 * the thread sanitizer sees a race at each byte that the engine read in an earlier round. The races
 * are suppressed (tests/tsan.supp), but the sanitizer searches a list of all earlier ones at each,
 * which takes tens of seconds for a mebibyte.
 */
__attribute__((no_sanitize("thread"))) void pattern_fill(uint8_t *at, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = pattern_at(i, seed);
}

/* An adapter's writes wouldn't be seen by the thread sanitizer. */
__attribute__((no_sanitize("thread"))) bool pattern_holds(const uint8_t *at, size_t length,
							  uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != pattern_at(i, seed))
			return false;
	return true;
}

void end_warm(struct end *end)
{
	OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, ~0ull, 0, 0, 0));
	wc_expect(end, end->scq, ~0ull, IBV_WC_SUCCESS);
}

void end_settle(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

	OK(end->rig, ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	event_expect(end->rig, IBV_EVENT_SQ_DRAINED, end->qp);
	OK(end->rig, end_move(end, IBV_QPS_RTS));
}
