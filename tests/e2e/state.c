/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a queue pair: its transitions and their required attributes, what becomes of work
 * requests, and the events. See rig.h.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

/* Attributes ---------------------------------------------------------------------------------- */

#define MASK_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define MASK_RTR                                                                        \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define MASK_RTS                                                                               \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

/* Valid values for every transition; the tests change one each. */
static struct ibv_qp_attr attributes(const struct end *end, enum ibv_qp_state state)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .sl = 3,
			    .grh = {.dgid = end->peer.gid,
				    .hop_limit = 64,
				    .traffic_class = 12,
				    .flow_label = 0x12345}},
		.path_mtu = IBV_MTU_2048,
		.dest_qp_num = end->peer.qpn,
		.rq_psn = end->peer.psn,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 17,
		.timeout = 13,
		.retry_cnt = 4,
		.rnr_retry = 5,
		.sq_psn = end->psn,
		.max_rd_atomic = 2,
	};
}

/* Without any one of the required attributes, or with one that isn't allowed, the transition fails
 * without effect. */
static void mask_is_exact(struct end *end, enum ibv_qp_state to, int mask, int foreign)
{
	struct ibv_qp_attr attr = attributes(end, to);
	enum ibv_qp_state from = end_state(end);

	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
		if (!(mask & bit) || bit == IBV_QP_STATE)
			continue;
		CHECK_EQ(end->rig, ibv_modify_qp(end->qp, &attr, mask & ~bit), EINVAL);
	}
	for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
		if (foreign & bit)
			CHECK_EQ(end->rig, ibv_modify_qp(end->qp, &attr, mask | bit), EINVAL);
	CHECK_EQ(end->rig, end_state(end), from);
	OK(end->rig, ibv_modify_qp(end->qp, &attr, mask));
	CHECK_EQ(end->rig, end_state(end), to);
}

static void masks(struct rig *rig)
{
	struct end end;

	end_open(&end, rig, NULL);
	end_meet(&end);
	mask_is_exact(&end, IBV_QPS_INIT, MASK_INIT, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_QKEY);
	mask_is_exact(&end, IBV_QPS_RTR, MASK_RTR, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_QKEY);
	mask_is_exact(&end, IBV_QPS_RTS, MASK_RTS, IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	rig_sync(rig);
	end_close(&end);
}

/* Transitions that don't exist, from each state. */
static void transitions(struct rig *rig)
{
	static const struct {
		enum ibv_qp_state from, to;
	} none[] = {
		{IBV_QPS_RESET, IBV_QPS_RTR}, {IBV_QPS_RESET, IBV_QPS_RTS},
		{IBV_QPS_RESET, IBV_QPS_SQD}, {IBV_QPS_INIT, IBV_QPS_RTS},
		{IBV_QPS_INIT, IBV_QPS_SQD},  {IBV_QPS_RTR, IBV_QPS_INIT},
		{IBV_QPS_RTR, IBV_QPS_SQD},   {IBV_QPS_RTS, IBV_QPS_INIT},
		{IBV_QPS_RTS, IBV_QPS_RTR},   {IBV_QPS_RTS, IBV_QPS_SQE},
		{IBV_QPS_SQD, IBV_QPS_RTR},   {IBV_QPS_SQD, IBV_QPS_INIT},
		{IBV_QPS_ERR, IBV_QPS_INIT},  {IBV_QPS_ERR, IBV_QPS_RTS},
		{IBV_QPS_ERR, IBV_QPS_SQD},
	};
	struct end end;

	end_open(&end, rig, NULL);
	end_meet(&end);
	for (unsigned int i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		enum ibv_qp_state from = none[i].from;
		struct ibv_qp_attr attr;

		OK(rig, end_move(&end, IBV_QPS_RESET));
		if (from == IBV_QPS_ERR)
			OK(rig, end_move(&end, IBV_QPS_ERR));
		else if (from != IBV_QPS_RESET)
			end_init(&end);
		if (from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD)
			end_rtr(&end);
		if (from == IBV_QPS_RTS || from == IBV_QPS_SQD)
			end_rts(&end);
		if (from == IBV_QPS_SQD)
			OK(rig, end_move(&end, IBV_QPS_SQD));
		attr = attributes(&end, none[i].to);
		CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), EINVAL);
		CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, MASK_INIT), EINVAL);
		CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, MASK_RTR), EINVAL);
		CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, MASK_RTS), EINVAL);
		CHECK_EQ(rig, end_state(&end), from);
	}
	CHECK_EQ(rig, end_move(&end, (enum ibv_qp_state)9), EINVAL);
	rig_sync(rig);
	end_close(&end);
}

#define REFUSED(mask, field, value)                                           \
	do {                                                                  \
		struct ibv_qp_attr spoiled = right;                           \
		spoiled.field = (value);                                      \
		CHECK_EQ(rig, ibv_modify_qp(end.qp, &spoiled, mask), EINVAL); \
		CHECK_EQ(rig, end_state(&end), from);                         \
	} while (0)

static void values(struct rig *rig)
{
	enum ibv_qp_state from = IBV_QPS_RESET;
	struct ibv_qp_attr right;
	struct end end;

	end_open(&end, rig, NULL);
	end_meet(&end);
	right = attributes(&end, IBV_QPS_INIT);
	REFUSED(MASK_INIT, port_num, 0);
	REFUSED(MASK_INIT, port_num, 2);
	REFUSED(MASK_INIT, pkey_index, 1);
	OK(rig, ibv_modify_qp(end.qp, &right, MASK_INIT));

	from = IBV_QPS_INIT;
	right = attributes(&end, IBV_QPS_RTR);
	REFUSED(MASK_RTR, path_mtu, (enum ibv_mtu)0);
	REFUSED(MASK_RTR, path_mtu, (enum ibv_mtu)(IBV_MTU_4096 + 1));
	REFUSED(MASK_RTR, dest_qp_num, 0x1000000);
	REFUSED(MASK_RTR, max_dest_rd_atomic, 255);
	REFUSED(MASK_RTR, min_rnr_timer, 32);
	REFUSED(MASK_RTR, ah_attr.is_global, 0);
	REFUSED(MASK_RTR, ah_attr.port_num, 2);
	REFUSED(MASK_RTR, ah_attr.grh.sgid_index, 200);
	REFUSED(MASK_RTR | IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_RTS);
	OK(rig, ibv_modify_qp(end.qp, &right, MASK_RTR));

	from = IBV_QPS_RTR;
	right = attributes(&end, IBV_QPS_RTS);
	REFUSED(MASK_RTS, timeout, 32);
	REFUSED(MASK_RTS, retry_cnt, 8);
	REFUSED(MASK_RTS, rnr_retry, 8);
	REFUSED(MASK_RTS, max_rd_atomic, 255);
	OK(rig, ibv_modify_qp(end.qp, &right, MASK_RTS));
	rig_sync(rig);
	end_close(&end);
}

static void query(struct rig *rig)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr set, got;
	struct end end;

	end_open(&end, rig, &(struct end_options){.all_signaled = true, .inline_bytes = 32});
	end_meet(&end);
	set = attributes(&end, IBV_QPS_INIT);
	OK(rig, ibv_modify_qp(end.qp, &set, MASK_INIT));
	set.qp_state = IBV_QPS_RTR;
	OK(rig, ibv_modify_qp(end.qp, &set, MASK_RTR));
	set.qp_state = IBV_QPS_RTS;
	OK(rig, ibv_modify_qp(end.qp, &set, MASK_RTS));
	OK(rig, ibv_query_qp(end.qp, &got, 0x1fffff, &init));
	CHECK_EQ(rig, got.qp_state, IBV_QPS_RTS);
	CHECK_EQ(rig, got.cur_qp_state, IBV_QPS_RTS);
	CHECK_EQ(rig, got.path_mtu, set.path_mtu);
	CHECK_EQ(rig, got.rq_psn, set.rq_psn);
	CHECK_EQ(rig, got.sq_psn, set.sq_psn);
	CHECK_EQ(rig, got.dest_qp_num, set.dest_qp_num);
	CHECK_EQ(rig, got.qp_access_flags, set.qp_access_flags);
	CHECK_EQ(rig, got.max_rd_atomic, set.max_rd_atomic);
	CHECK_EQ(rig, got.max_dest_rd_atomic, set.max_dest_rd_atomic);
	CHECK_EQ(rig, got.min_rnr_timer, set.min_rnr_timer);
	CHECK_EQ(rig, got.port_num, 1);
	CHECK_EQ(rig, got.timeout, set.timeout);
	CHECK_EQ(rig, got.retry_cnt, set.retry_cnt);
	CHECK_EQ(rig, got.rnr_retry, set.rnr_retry);
	CHECK_EQ(rig, got.ah_attr.sl, set.ah_attr.sl);
	CHECK_EQ(rig, got.ah_attr.grh.flow_label, set.ah_attr.grh.flow_label);
	CHECK_EQ(rig, got.ah_attr.grh.traffic_class, set.ah_attr.grh.traffic_class);
	CHECK_EQ(rig, got.ah_attr.grh.hop_limit, set.ah_attr.grh.hop_limit);
	CHECK_EQ(rig, got.sq_draining, 0);
	CHECK(rig, init.send_cq == end.scq && init.recv_cq == end.rcq && !init.srq);
	CHECK_EQ(rig, init.qp_type, IBV_QPT_RC);
	CHECK_EQ(rig, init.sq_sig_all, 1);
	CHECK(rig, init.cap.max_send_wr >= 64 && init.cap.max_inline_data >= 32);
	rig_sync(rig);
	end_close(&end);
}

/* Posting ------------------------------------------------------------------------------------- */

static void posting_states(struct rig *rig)
{
	struct end end;

	end_open(&end, rig, NULL);
	CHECK_EQ(rig, end_recv(&end, 1, 0, 8), EINVAL);
	CHECK_EQ(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0), EINVAL);
	end_init(&end);
	OK(rig, end_recv(&end, 1, 0, 8));
	end_meet(&end);
	end_rtr(&end);
	OK(rig, end_recv(&end, 2, 0, 8));
	end_rts(&end);
	rig_sync(rig);
	OK(rig, end_send(&end, IBV_WR_SEND, 3, 0, 8, 0));
	OK(rig, end_send(&end, IBV_WR_SEND, 4, 0, 8, 0));
	wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
	wc_expect(&end, end.scq, 4, IBV_WC_SUCCESS);
	wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
	wc_expect(&end, end.rcq, 2, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

/* To ERR and RESET with work in it ------------------------------------------------------------ */

static void error_flushes(struct rig *rig)
{
	static const uint32_t lengths[] = {8, 50000};
	struct end end;

	for (int i = 0; i < 2; i++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_A) {
			for (uint64_t id = 1; id <= 10; id++)
				OK(rig, end_send(&end, id % 3 ? IBV_WR_SEND : IBV_WR_RDMA_READ, id,
						 0, lengths[i], 0));
			for (uint64_t id = 1; id <= 10; id++)
				OK(rig, end_recv(&end, id, 0, 8));
			usleep(1000);
			OK(rig, end_move(&end, IBV_QPS_ERR));
			/* All of them are in the CQs when the verb returns. */
			for (uint64_t id = 1; id <= 10; id++) {
				wc_expect(&end, end.scq, id, IBV_WC_WR_FLUSH_ERR);
				wc_expect(&end, end.rcq, id, IBV_WC_WR_FLUSH_ERR);
			}
			wc_none(&end, end.scq);
			memset(end.buf, 0xdd, end.opt.bytes);
			rig_sync(rig);
		} else {
			rig_sync(rig);
			/* A's messages ended with A's QP; in particular no later bytes arrive. */
			OK(rig, end_recv(&end, 1, 0, 65536));
			wc_none(&end, end.rcq);
			CHECK_EQ(rig, end.buf[0], 0);
			CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* RESET discards everything: the CQs are empty, and the QP can be connected again. */
static void reset_forgets(struct rig *rig)
{
	struct ibv_wc wc;
	struct end end;

	end_pair(&end, rig, NULL);
	for (uint64_t round = 0; round < 20; round++) {
		OK(rig, end_recv(&end, 1, 0, 65536));
		OK(rig, end_recv(&end, 2, 0, 65536));
		rig_sync(rig);
		OK(rig, end_send(&end, IBV_WR_SEND, 3, 0, round % 2 ? 8 : 50000, 0));
		OK(rig, end_send(&end, IBV_WR_RDMA_READ, 4, 1000, 1000, 0));
		if (round % 3) {
			wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
			wc_expect(&end, end.scq, 4, IBV_WC_SUCCESS);
			wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
			rig_sync(rig);
		}
		for (uint64_t id = 10; id < 30; id++)
			OK(rig, end_send(&end, IBV_WR_SEND, id, 0, 64, 0));
		if (round % 2)
			OK(rig, end_move(&end, IBV_QPS_ERR));
		OK(rig, end_move(&end, IBV_QPS_RESET));
		CHECK_EQ(rig, ibv_poll_cq(end.scq, 1, &wc), 0);
		CHECK_EQ(rig, ibv_poll_cq(end.rcq, 1, &wc), 0);
		rig_sync(rig);
		CHECK_EQ(rig, ibv_poll_cq(end.rcq, 1, &wc), 0);
		end_connect(&end);
	}
	end_close(&end);
}

/* Destroying a QP removes its work requests and its completions from the CQs. */
static void destroy_with_work(struct rig *rig)
{
	struct ibv_wc wc;
	struct end end;

	for (int round = 0; round < 10; round++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_B && round % 2)
			OK(rig, end_recv(&end, 1, 0, 65536));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			for (uint64_t id = 1; id <= 5; id++)
				OK(rig, end_send(&end, IBV_WR_SEND, id, 0, 30000, 0));
			OK(rig, ibv_destroy_qp(end.qp));
			end.qp = NULL;
			CHECK_EQ(rig, ibv_poll_cq(end.scq, 1, &wc), 0);
			memset(end.buf, 0xdd, end.opt.bytes);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* SQD ----------------------------------------------------------------------------------------- */

static int drain(struct end *end, bool notify)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify};

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

/* Requests that have begun finish, others wait, and attributes may change meanwhile. */
static void sqd_drains(struct rig *rig)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = 9, .retry_cnt = 6, .timeout = 12};
	struct ibv_qp_init_attr init;
	struct end end;

	end_pair(&end, rig, NULL);
	/* A request before: a request begins at once only if the link is up. */
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, 0, 0, 8));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 8, 0));
		wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
	}
	if (rig->role == RIG_B) {
		rig_sync(rig);
		OK(rig, end_recv(&end, 1, 0, 8));
		wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		rig_sync(rig);
		OK(rig, end_recv(&end, 2, 0, 8));
		wc_none(&end, end.rcq);
		rig_sync(rig);
		wc_expect(&end, end.rcq, 2, IBV_WC_SUCCESS);
		rig_sync(rig); /* it can repeat its acknowledgement until here */
		end_close(&end);
		return;
	}
	OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
	usleep(1000);
	OK(rig, drain(&end, true));
	CHECK_EQ(rig, end_state(&end), IBV_QPS_SQD);
	OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
	OK(rig, ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init));
	CHECK_EQ(rig, attr.sq_draining, 1);
	CHECK(rig, !event_seen(rig, IBV_EVENT_SQ_DRAINED, end.qp, RIG_NEVER_MS));
	rig_sync(rig);
	event_expect(rig, IBV_EVENT_SQ_DRAINED, end.qp);
	wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	OK(rig, ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init));
	CHECK_EQ(rig, attr.sq_draining, 0);
	rig_sync(rig);
	attr = (struct ibv_qp_attr){.min_rnr_timer = 9, .retry_cnt = 6, .timeout = 12};
	OK(rig,
	   ibv_modify_qp(end.qp, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_RETRY_CNT | IBV_QP_TIMEOUT));
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_RTS));
	wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

static void sqd_idle(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	OK(rig, drain(&end, true));
	event_expect(rig, IBV_EVENT_SQ_DRAINED, end.qp);
	OK(rig, end_move(&end, IBV_QPS_RTS));
	OK(rig, drain(&end, false));
	CHECK(rig, !event_seen(rig, IBV_EVENT_SQ_DRAINED, end.qp, RIG_NEVER_MS));
	/* The responder continues in SQD. */
	OK(rig, end_recv(&end, 7, 0, 8));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_move(&end, IBV_QPS_RTS));
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 2, 0, 8, 0));
		OK(rig, end_send(&end, IBV_WR_RDMA_READ, 3, 0, 8, 0));
		for (uint64_t id = 1; id <= 3; id++)
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
	} else {
		wc_expect(&end, end.rcq, 7, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	/* SQD to ERR flushes the waiting requests. */
	if (rig->role == RIG_A)
		OK(rig, drain(&end, false));
	OK(rig, end_send(&end, IBV_WR_SEND, 9, 0, 8, 0));
	OK(rig, end_move(&end, IBV_QPS_ERR));
	wc_expect(&end, end.scq, 9, IBV_WC_WR_FLUSH_ERR);
	rig_sync(rig);
	end_close(&end);
}

/* Events -------------------------------------------------------------------------------------- */

static void comm_established(struct rig *rig)
{
	struct end end;

	end_open(&end, rig, NULL);
	end_init(&end);
	OK(rig, end_recv(&end, 1, 0, 8));
	OK(rig, end_recv(&end, 2, 0, 8));
	end_meet(&end);
	end_rtr(&end);
	if (rig->role == RIG_A) {
		end_rts(&end);
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
		OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
	} else {
		event_expect(rig, IBV_EVENT_COMM_EST, end.qp);
		wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
		wc_expect(&end, end.rcq, 2, IBV_WC_SUCCESS);
		CHECK(rig, !event_seen(rig, IBV_EVENT_COMM_EST, end.qp, RIG_NEVER_MS));
		end_rts(&end);
	}
	rig_sync(rig);
	end_close(&end);
}

static void last_wqe_reached(struct rig *rig)
{
	struct end_options opt = {.srq_depth = 8};
	struct end end;

	end_pair(&end, rig, &opt);
	OK(rig, end_recv(&end, 1, 0, 8));
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_ERR));
	event_expect(rig, IBV_EVENT_QP_LAST_WQE_REACHED, end.qp);
	/* The SRQ's receives don't belong to this QP. */
	wc_none(&end, end.rcq);
	rig_sync(rig);
	end_close(&end);
}

struct late_ack {
	struct ibv_async_event event;
	double when;
};

static void *ack_later(void *argument)
{
	struct late_ack *late = argument;

	usleep(100000);
	late->when = now_ms();
	ibv_ack_async_event(&late->event);
	return NULL;
}

/* ibv_destroy_qp waits until the event that was taken is acknowledged. */
static void destroy_waits_for_ack(struct rig *rig)
{
	struct end_options opt = {.srq_depth = 8};
	struct late_ack late;
	pthread_t thread;
	struct end end;

	end_pair(&end, rig, &opt);
	/* In turn: over `self` both read the events of one context. */
	for (int turn = RIG_A; turn <= RIG_B; turn++) {
		rig_sync(rig);
		if (rig->role != turn)
			continue;
		OK(rig, end_move(&end, IBV_QPS_ERR));
		OK(rig, ibv_get_async_event(rig->ctx, &late.event));
		CHECK_EQ(rig, late.event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
		CHECK(rig, late.event.element.qp == end.qp);
		CHECK_EQ(rig, pthread_create(&thread, NULL, ack_later, &late), 0);
		OK(rig, ibv_destroy_qp(end.qp));
		CHECK(rig, now_ms() >= late.when && late.when > 0);
		end.qp = NULL;
		pthread_join(thread, NULL);
	}
	rig_sync(rig);
	end_close(&end);
}

/* An event that wasn't read is removed with its QP. */
static void destroy_forgets_events(struct rig *rig)
{
	struct end_options opt = {.srq_depth = 8};
	struct end end;

	end_pair(&end, rig, &opt);
	for (int turn = RIG_A; turn <= RIG_B; turn++) {
		rig_sync(rig);
		if (rig->role != turn)
			continue;
		OK(rig, end_move(&end, IBV_QPS_ERR));
		OK(rig, ibv_destroy_qp(end.qp));
		CHECK(rig, !event_seen(rig, IBV_EVENT_QP_LAST_WQE_REACHED, end.qp, RIG_NEVER_MS));
		end.qp = NULL;
	}
	rig_sync(rig);
	end_close(&end);
}

/* Limits of READs ----------------------------------------------------------------------------- */

/* READs beyond max_rd_atomic wait; 0 at the requester works as 1, as on a ConnectX. */
static void reads_in_flight(struct rig *rig)
{
	for (int round = 0; round < 2; round++) {
		struct end_options opt = {.no_reads = round};
		struct end end;

		end_pair(&end, rig, &opt);
		if (rig->role == RIG_B)
			pattern_fill(end.buf, 32768, 3);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			for (uint64_t id = 0; id < 64; id++)
				OK(rig,
				   end_send(&end,
					    id % 2 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD,
					    id, id % 2 ? id * 512 : 40000, id % 2 ? 512 : 8,
					    id % 2 ? id * 512 : 40000));
			for (uint64_t id = 0; id < 64; id++)
				wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* B receives a message, ends its QP when it has seen that and, if `stops`, does nothing more until
 * A has its completion. */
static void end_after_receiving(struct rig *rig, uint64_t round, bool stops, pid_t peer)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, round, 0, 64));
	rig_sync(rig);
	if (rig->role == RIG_B) {
		wc_expect(&end, end.rcq, round, IBV_WC_SUCCESS);
		OK(rig, end_move(&end, IBV_QPS_ERR));
		if (stops)
			raise(SIGSTOP);
	} else {
		OK(rig, end_send(&end, IBV_WR_SEND, round, 0, 64, 0));
		wc_expect(&end, end.scq, round, IBV_WC_SUCCESS);
		if (stops) {
			rig_await_stop(peer);
			OK(rig, kill(peer, SIGCONT));
		}
	}
	rig_sync(rig);
	end_close(&end);
}

/* A message that the program has seen arrive was acknowledged, although the program then ends its
 * QP at once: an adapter acknowledges before it reports. */
static void ended_after_receiving(struct rig *rig)
{
	for (uint64_t round = 1; round <= 20; round++)
		end_after_receiving(rig, round, false, 0);
}

/* The same where the process does nothing more from then on. */
static void stopped_after_receiving(struct rig *rig)
{
	pid_t mine = getpid(), theirs;

	if (rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO)
		return; /* a thread can't be stopped alone */
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	for (uint64_t round = 1; round <= 5; round++)
		end_after_receiving(rig, round, true, theirs);
}

const struct rig_test state_tests[] = {
	{"masks", masks},
	{"transitions", transitions},
	{"values", values},
	{"query", query},
	{"posting_states", posting_states},
	{"error_flushes", error_flushes},
	{"reset_forgets", reset_forgets},
	{"destroy_with_work", destroy_with_work},
	{"sqd_drains", sqd_drains},
	{"sqd_idle", sqd_idle},
	{"comm_established", comm_established},
	{"last_wqe_reached", last_wqe_reached},
	{"destroy_waits_for_ack", destroy_waits_for_ack},
	{"destroy_forgets_events", destroy_forgets_events},
	{"reads_in_flight", reads_in_flight},
	{"ended_after_receiving", ended_after_receiving},
	{"stopped_after_receiving", stopped_after_receiving},
	{NULL, NULL},
};
