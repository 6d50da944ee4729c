/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC by OFED's calls (infiniband/xrc.h): a receive queue pair that two processes register with,
 * beside today's calls on the same domain; and wrong use. See rig.h and xrc.h.
 */
#include <infiniband/xrc.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "faults.h"
#include "xrc.h"

enum { RECEIVE = 1000, HALF = XRC_BYTES / 2, NO_QP = 0x7ffff };

struct ofed_end {
	struct xrc_end xrc; /* its initiator, PD, CQs and memory are used */
	struct ibv_xrc_domain *domain;
	struct ibv_srq *srq;
	struct ofed_peer {
		uint32_t qpn, srqn;
	} mine, peer;
};

static struct ibv_srq *make_srq(struct ofed_end *end)
{
	struct ibv_srq_init_attr init = {.srq_context = end, .attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_xrc_srq(end->xrc.pd, end->domain, end->xrc.rcq, &init);

	CHECK(end->xrc.rig, srq && srq->srq_context == end && init.attr.max_wr >= 16);
	return srq;
}

/* Both ends have the domain and an SRQ; B makes the receive queue pair. */
static void ofed_open(struct ofed_end *end, struct rig *rig, const char *path)
{
	const struct xrc_options opt = {.file = path};
	struct ibv_xrc_rcv_init_attr init = {0};

	*end = (struct ofed_end){0};
	xrc_open(&end->xrc, rig, &opt);
	xrc_meet(&end->xrc);
	CHECK(rig, (end->domain = ibv_open_xrc_domain(rig->ctx, end->xrc.file, O_CREAT)));
	CHECK(rig, end->domain->context == rig->ctx);
	end->srq = make_srq(end);
	OK(rig, ibv_get_srq_num(end->srq, &end->mine.srqn));
	init.xrc_domain = end->domain;
	if (rig->role == RIG_B)
		OK(rig, ibv_create_xrc_rcv_qp(&init, &end->mine.qpn));
	rig_swap(rig, &end->mine, &end->peer, sizeof(end->mine));
}

/* B moves its queue pair to INIT, A to RTR, for A's initiator. */
static void ofed_connect(struct ofed_end *end)
{
	struct rig *rig = end->xrc.rig;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_xrc_rcv_init_attr init = {0};

	if (rig->role == RIG_B)
		OK(rig, ibv_modify_xrc_rcv_qp(end->domain, end->mine.qpn, &attr,
					      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						      IBV_QP_ACCESS_FLAGS));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		const uint32_t qpn = end->peer.qpn;

		/* A handle isn't needed for this. */
		OK(rig, ibv_query_xrc_rcv_qp(end->domain, qpn, &attr, IBV_QP_STATE, &init));
		CHECK_EQ(rig, attr.qp_state, IBV_QPS_INIT);
		CHECK_EQ(rig, init.qp_type, IBV_QPT_XRC_RECV);
		CHECK(rig, init.xrc_domain == end->domain);
		attr = xrc_path_to(&end->xrc, end->xrc.initiator->qp_num, 0x777);
		OK(rig, ibv_modify_xrc_rcv_qp(end->domain, qpn, &attr,
					      XRC_PATH | IBV_QP_MAX_DEST_RD_ATOMIC |
						      IBV_QP_MIN_RNR_TIMER));
		OK(rig, ibv_reg_xrc_rcv_qp(end->domain, qpn));
		OK(rig, ibv_reg_xrc_rcv_qp(end->domain, qpn)); /* nothing changes */
		xrc_initiator_rts(&end->xrc, qpn, NULL);
	}
	rig_sync(rig);
}

/* A sends to B's SRQ and to its own. */
static void ofed_exchange(struct ofed_end *end)
{
	struct rig *rig = end->xrc.rig;

	OK(rig, xrc_recv(&end->xrc, end->srq, RECEIVE, HALF, 64));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, xrc_send(&end->xrc, IBV_WR_SEND, 1, end->peer.srqn, 0, 8, 0));
		OK(rig, xrc_send(&end->xrc, IBV_WR_SEND, 2, end->mine.srqn, 0, 16, 0));
		xrc_wc(&end->xrc, end->xrc.scq, 1, IBV_WC_SUCCESS);
		xrc_wc(&end->xrc, end->xrc.scq, 2, IBV_WC_SUCCESS);
	}
	struct ibv_wc wc = xrc_wc(&end->xrc, end->xrc.rcq, RECEIVE, IBV_WC_SUCCESS);

	CHECK_EQ(rig, wc.byte_len, rig->role == RIG_A ? 16 : 8);
	CHECK_EQ(rig, wc.qp_num, rig->role == RIG_A ? end->peer.qpn : end->mine.qpn);
	rig_sync(rig);
}

static void xrc_ofed_two_processes(struct rig *rig)
{
	struct ibv_qp_attr attr;
	struct ibv_xrc_rcv_init_attr init;
	struct ofed_end end;
	char path[128];

	ofed_open(&end, rig, xrc_domain_file(rig, path));
	ofed_connect(&end);
	ofed_exchange(&end);
	const uint32_t qpn = rig->role == RIG_A ? end.peer.qpn : end.mine.qpn;

	if (rig->role == RIG_B) { /* A keeps it alive */
		OK(rig, ibv_unreg_xrc_rcv_qp(end.domain, qpn));
		CHECK_EQ(rig, ibv_unreg_xrc_rcv_qp(end.domain, qpn), EINVAL);
	}
	ofed_exchange(&end);
	OK(rig, ibv_destroy_srq(end.srq));
	if (rig->role == RIG_A) {
		CHECK_EQ(rig, ibv_close_xrc_domain(end.domain), EBUSY);
		OK(rig, ibv_unreg_xrc_rcv_qp(end.domain, qpn));
	}
	rig_sync(rig);
	CHECK_EQ(rig, ibv_reg_xrc_rcv_qp(end.domain, qpn), EINVAL); /* it has ended */
	CHECK_EQ(rig, ibv_query_xrc_rcv_qp(end.domain, qpn, &attr, IBV_QP_STATE, &init), EINVAL);
	OK(rig, ibv_close_xrc_domain(end.domain));
	rig_sync(rig);
	xrc_close(&end.xrc);
	unlink(path);
}

static void xrc_ofed_wrong(struct rig *rig)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_xrc_rcv_init_attr init = {0};
	struct ofed_end end;
	uint32_t qpn;
	char path[128];

	ofed_open(&end, rig, xrc_domain_file(rig, path));
	errno = 0;
	CHECK(rig, !ibv_open_xrc_domain(rig->ctx, 12345, O_CREAT) && errno == EBADF);
	CHECK(rig,
	      !ibv_open_xrc_domain(rig->ctx, end.xrc.file, O_CREAT | O_EXCL) && errno == EINVAL);
	CHECK(rig, !ibv_create_xrc_srq(end.xrc.pd, NULL, end.xrc.rcq, &srq) && errno == EINVAL);
	CHECK(rig, !ibv_create_xrc_srq(end.xrc.pd, end.domain, NULL, &srq) && errno == EINVAL);
	CHECK_EQ(rig, ibv_create_xrc_rcv_qp(&init, &qpn), EINVAL); /* no domain */
	CHECK_EQ(rig, ibv_reg_xrc_rcv_qp(end.domain, NO_QP), EINVAL);
	CHECK_EQ(rig, ibv_unreg_xrc_rcv_qp(end.domain, NO_QP), EINVAL);
	CHECK_EQ(rig, ibv_modify_xrc_rcv_qp(end.domain, NO_QP, &attr, IBV_QP_STATE), EINVAL);
	/* A queue pair of another type. */
	CHECK_EQ(rig, ibv_reg_xrc_rcv_qp(end.domain, end.xrc.initiator->qp_num), EINVAL);
	/* A domain of this process only has none of the file's queue pairs. */
	struct ibv_xrc_domain *other = ibv_open_xrc_domain(rig->ctx, -1, O_CREAT);

	CHECK(rig, other);
	qpn = rig->role == RIG_A ? end.peer.qpn : end.mine.qpn;
	CHECK_EQ(rig, ibv_reg_xrc_rcv_qp(other, qpn), EINVAL);
	OK(rig, ibv_close_xrc_domain(other));
	rig_sync(rig);
	if (rig->role == RIG_B) {
		/* RESET leads to INIT only. */
		CHECK_EQ(rig, ibv_modify_xrc_rcv_qp(end.domain, qpn, &attr, IBV_QP_STATE), EINVAL);
		CHECK_EQ(rig, ibv_close_xrc_domain(end.domain), EBUSY);
		OK(rig, ibv_unreg_xrc_rcv_qp(end.domain, qpn));
	}
	CHECK_EQ(rig, ibv_close_xrc_domain(end.domain), EBUSY); /* the SRQ */
	OK(rig, ibv_destroy_srq(end.srq));
	OK(rig, ibv_close_xrc_domain(end.domain));
	rig_sync(rig);
	xrc_close(&end.xrc);
	unlink(path);
}

const struct rig_test ofed_tests[] = {
	{"xrc_ofed_two_processes", xrc_ofed_two_processes},
	{"xrc_ofed_wrong", xrc_ofed_wrong},
	{0},
};
