/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC between two ends (docs/xrc.md): every opcode, several SRQs, domains that two processes share,
 * and wrong use. End A initiates, end B has the target, unless it is said otherwise. See rig.h.
 */
#include "xrc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { SEED = 9, RECEIVE = 1000, HALF = XRC_BYTES / 2 };

/* In one packet, in several, by reference, in many. */
static const uint32_t sizes[] = {0, 1, 64, 1024, 5000, 20000, 300000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Traffic ------------------------------------------------------------------------------------ */

static void send_one(struct xrc_end *end, enum ibv_wr_opcode opcode, int srq, uint32_t length)
{
	struct rig *rig = end->rig;
	bool is_write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	if (rig->role == RIG_A) {
		pattern_fill(end->buf, length, SEED + length);
		rig_sync(rig);
		OK(rig, xrc_send(end, opcode, 7, end->peer.srqn[srq], 0, length, HALF));
		xrc_wc(end, end->scq, 7, IBV_WC_SUCCESS);
		rig_sync(rig);
		return;
	}
	OK(rig, xrc_recv(end, end->srq[srq], RECEIVE + srq, HALF, is_write ? 0 : length));
	rig_sync(rig);
	struct ibv_wc wc = xrc_wc(end, end->rcq, RECEIVE + srq, IBV_WC_SUCCESS);

	CHECK_EQ(rig, wc.qp_num, end->target->qp_num);
	CHECK_EQ(rig, wc.byte_len, length);
	CHECK_EQ(rig, wc.opcode, is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	if (opcode != IBV_WR_SEND) {
		CHECK_EQ(rig, wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
		CHECK_EQ(rig, wc.imm_data, 7);
	}
	CHECK(rig, pattern_holds(end->buf + HALF, length, SEED + length));
	rig_sync(rig);
}

static void xrc_messages(struct rig *rig)
{
	struct xrc_end end;

	xrc_pair(&end, rig, NULL);
	for (int i = 0; i < SIZES; i++)
		for (int srq = 0; srq < XRC_SRQS; srq++) {
			send_one(&end, IBV_WR_SEND, srq, sizes[i]);
			send_one(&end, IBV_WR_SEND_WITH_IMM, srq, sizes[i]);
			send_one(&end, IBV_WR_RDMA_WRITE_WITH_IMM, srq, sizes[i]);
		}
	xrc_close(&end);
}

static void xrc_onesided(struct rig *rig)
{
	struct xrc_end end;

	xrc_pair(&end, rig, NULL);
	for (int i = 0; i < SIZES; i++) {
		uint32_t n = sizes[i];

		if (rig->role == RIG_A) {
			pattern_fill(end.buf, n, SEED + n);
			OK(rig, xrc_send(&end, IBV_WR_RDMA_WRITE, 1, end.peer.srqn[0], 0, n, 0));
			xrc_wc(&end, end.scq, 1, IBV_WC_SUCCESS);
			OK(rig, xrc_send(&end, IBV_WR_RDMA_READ, 2, end.peer.srqn[1], HALF, n, 0));
			xrc_wc(&end, end.scq, 2, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end.buf + HALF, n, SEED + n));
		}
		rig_sync(rig);
		if (rig->role == RIG_B)
			CHECK(rig, pattern_holds(end.buf, n, SEED + n));
		rig_sync(rig);
	}
	xrc_close(&end);
}

static void xrc_atomics(struct rig *rig)
{
	struct xrc_end end;
	uint64_t *here, *word;

	xrc_pair(&end, rig, NULL);
	here = (uint64_t *)(void *)(end.buf + 8);
	word = (uint64_t *)(void *)end.buf;
	if (rig->role == RIG_A) {
		for (uint64_t i = 0; i < 10; i++) {
			OK(rig, xrc_send(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, i, end.peer.srqn[i % 2],
					 8, 8, 0));
			xrc_wc(&end, end.scq, i, IBV_WC_SUCCESS);
			CHECK_EQ(rig, *here, i);
		}
		OK(rig, xrc_send(&end, IBV_WR_ATOMIC_CMP_AND_SWP, 11, end.peer.srqn[0], 8, 8, 0));
		xrc_wc(&end, end.scq, 11, IBV_WC_SUCCESS); /* compares with 1 */
		CHECK_EQ(rig, *here, 10);
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK_EQ(rig, __atomic_load_n(word, __ATOMIC_ACQUIRE), 10);
	rig_sync(rig);
	xrc_close(&end);
}

/* The builder interface names the SRQ by ibv_wr_set_xrc_srqn(). */
static void xrc_builder(struct rig *rig)
{
	const struct xrc_options opt = {.builder = true};
	struct xrc_end end;

	xrc_pair(&end, rig, &opt);
	if (rig->role == RIG_B)
		for (int i = 0; i < 20; i++)
			OK(rig, xrc_recv(&end, end.srq[i % 2], RECEIVE + i, HALF + 64u * i, 8));
	else
		memcpy(end.buf, "builder", 8);
	rig_sync(rig);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end.initiator);

	CHECK(rig, ex);
	if (rig->role == RIG_A) {
		ibv_wr_start(ex);
		for (int i = 0; i < 20; i++) {
			ex->wr_id = (uint64_t)i;
			ex->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(ex);
			ibv_wr_set_xrc_srqn(ex, end.peer.srqn[i % 2]);
			ibv_wr_set_inline_data(ex, end.buf, 8);
		}
		OK(rig, ibv_wr_complete(ex));
		for (uint64_t i = 0; i < 20; i++)
			xrc_wc(&end, end.scq, i, IBV_WC_SUCCESS);
	} else {
		for (int i = 0; i < 20; i++) {
			xrc_wc(&end, end.rcq, RECEIVE + (uint64_t)i, IBV_WC_SUCCESS);
			CHECK(rig, !memcmp(end.buf + HALF + 64u * i, "builder", 8));
		}
	}
	rig_sync(rig);
	xrc_close(&end);
}

/* ATOMIC WRITE and FLUSH: to which SRQ, with which key and address. */
struct placement {
	uint32_t srqn, rkey;
	uint64_t addr;
};

static struct placement placement_at(const struct xrc_end *end, int srq, size_t at)
{
	return (struct placement){end->peer.srqn[srq], end->peer.rkey, end->peer.addr + at};
}

static void build_begin(struct xrc_end *end, uint64_t id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->initiator);

	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
}

/* A FLUSH, or of type 0 an ATOMIC WRITE of `value`. */
static void build_placement(struct xrc_end *end, struct placement to, uint8_t type, uint8_t level,
			    uint64_t value)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->initiator);

	if (type)
		ibv_wr_flush(ex, to.rkey, to.addr, 8, type, level);
	else
		ibv_wr_atomic_write(ex, to.rkey, to.addr, &value);
	ibv_wr_set_xrc_srqn(ex, to.srqn);
}

static void place(struct xrc_end *end, uint64_t id, struct placement to, uint8_t type,
		  uint64_t value)
{
	build_begin(end, id);
	build_placement(end, to, type, IBV_FLUSH_RANGE, value);
	OK(end->rig, ibv_wr_complete(ibv_qp_to_qp_ex(end->initiator)));
}

static uint64_t word_at(struct xrc_end *end, size_t at)
{
	return __atomic_load_n((uint64_t *)(void *)(end->buf + at), __ATOMIC_ACQUIRE);
}

/* By the builder, and from registered memory by ibv_post_send(). */
static void xrc_atomic_write(struct rig *rig)
{
	const struct xrc_options opt = {.builder = true};
	struct xrc_end end;
	enum { WORDS = 8, AT = 64 };

	xrc_pair(&end, rig, &opt);
	for (uint64_t i = 0; rig->role == RIG_A && i < WORDS; i++) {
		uint64_t word = ~i;
		size_t at = AT + 8 * i;

		memcpy(end.buf, &word, sizeof(word));
		if (i % 4 < 2)
			place(&end, i, placement_at(&end, i % 2, at), 0, word);
		else
			OK(rig,
			   xrc_send(&end, IBV_WR_ATOMIC_WRITE, i, end.peer.srqn[i % 2], 0, 8, at));
		struct ibv_wc wc = xrc_wc(&end, end.scq, i, IBV_WC_SUCCESS);

		CHECK_EQ(rig, wc.opcode, IBV_WC_ATOMIC_WRITE);
	}
	rig_sync(rig);
	for (uint64_t i = 0; rig->role == RIG_B && i < WORDS; i++)
		CHECK(rig, word_at(&end, AT + 8 * i) == ~i);
	rig_sync(rig);
	xrc_close(&end);
}

/* FLUSH of a range and of a region, among ATOMIC WRITEs, in one list, to two SRQs. */
static void xrc_flush(struct rig *rig)
{
	const struct xrc_options opt = {.builder = true};
	struct xrc_end end;
	enum { ROUNDS = 16 };

	xrc_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		build_begin(&end, 0);
		for (int i = 0; i < ROUNDS; i++) {
			struct placement to = placement_at(&end, i % 2, 64);

			ibv_qp_to_qp_ex(end.initiator)->wr_id = 2 * (uint64_t)i;
			build_placement(&end, to, 0, 0, (uint64_t)i);
			ibv_qp_to_qp_ex(end.initiator)->wr_id++;
			build_placement(&end, to, IBV_FLUSH_GLOBAL,
					i % 4 < 2 ? IBV_FLUSH_RANGE : IBV_FLUSH_MR, 0);
		}
		OK(rig, ibv_wr_complete(ibv_qp_to_qp_ex(end.initiator)));
		for (uint64_t i = 0; i < 2 * ROUNDS; i++) {
			struct ibv_wc wc = xrc_wc(&end, end.scq, i, IBV_WC_SUCCESS);

			CHECK_EQ(rig, wc.opcode, i % 2 ? IBV_WC_FLUSH : IBV_WC_ATOMIC_WRITE);
		}
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK_EQ(rig, word_at(&end, 64), ROUNDS - 1);
	rig_sync(rig);
	xrc_close(&end);
}

/* A message that finds no receive in its SRQ holds back what follows, to whatever SRQ. */
static void xrc_order_of_srqs(struct rig *rig)
{
	struct xrc_end end;

	xrc_pair(&end, rig, NULL);
	if (rig->role == RIG_B)
		for (int i = 0; i < 4; i++)
			OK(rig, xrc_recv(&end, end.srq[1], RECEIVE + i, HALF, 64));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, xrc_send(&end, IBV_WR_SEND, 1, end.peer.srqn[1], 0, 8, 0));
		OK(rig, xrc_send(&end, IBV_WR_SEND, 2, end.peer.srqn[0], 0, 8, 0)); /* waits */
		OK(rig, xrc_send(&end, IBV_WR_SEND, 3, end.peer.srqn[1], 0, 8, 0));
		xrc_wc(&end, end.scq, 1, IBV_WC_SUCCESS);
		rig_sync(rig);
		xrc_wc(&end, end.scq, 2, IBV_WC_SUCCESS);
		xrc_wc(&end, end.scq, 3, IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc;

		xrc_wc(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
		usleep(RIG_NEVER_MS * 1000);
		CHECK_EQ(rig, ibv_poll_cq(end.rcq, 1, &wc), 0);
		OK(rig, xrc_recv(&end, end.srq[0], 5, HALF, 64));
		rig_sync(rig);
		xrc_wc(&end, end.rcq, 5, IBV_WC_SUCCESS);
		xrc_wc(&end, end.rcq, RECEIVE + 1, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	xrc_close(&end);
}

/* An initiator whose target isn't ready waits for it. */
static void xrc_target_late(struct rig *rig)
{
	const struct xrc_options opt = {.target_unready = true};
	struct xrc_end end;

	xrc_pair(&end, rig, &opt);
	if (rig->role == RIG_A && rig->carrier != RIG_WIRE)
		OK(rig, xrc_send(&end, IBV_WR_RDMA_WRITE, 1, end.peer.srqn[0], 0, 8, 0));
	if (rig->role == RIG_B)
		xrc_target_rtr(&end, end.target);
	rig_sync(rig);
	if (rig->role == RIG_A && rig->carrier == RIG_WIRE)
		OK(rig, xrc_send(&end, IBV_WR_RDMA_WRITE, 1, end.peer.srqn[0], 0, 8, 0));
	if (rig->role == RIG_A)
		xrc_wc(&end, end.scq, 1, IBV_WC_SUCCESS);
	rig_sync(rig);
	xrc_close(&end);
}

/* Sharing a domain --------------------------------------------------------------------------- */

/* Both ends have an SRQ in one domain. B's target delivers to A's SRQ, too, in order. */
static void xrc_two_processes(struct rig *rig)
{
	char path[128];
	const struct xrc_options opt = {.file = xrc_domain_file(rig, path)};
	struct xrc_end end;
	enum { TIMES = 30 };

	xrc_pair(&end, rig, &opt);
	for (int i = 0; i < TIMES; i++)
		OK(rig, xrc_recv(&end, end.srq[0], RECEIVE + i, HALF + 64u * i, 64));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (int i = 0; i < 2 * TIMES; i++) {
			uint32_t srqn = i % 2 ? end.srqn[0] : end.peer.srqn[0];

			end.buf[i] = (uint8_t)i;
			OK(rig, xrc_send(&end, IBV_WR_SEND, (uint64_t)i, srqn, (size_t)i, 1, 0));
		}
		for (uint64_t i = 0; i < 2 * TIMES; i++)
			xrc_wc(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < TIMES; i++) {
		struct ibv_wc wc = xrc_wc(&end, end.rcq, RECEIVE + (uint64_t)i, IBV_WC_SUCCESS);

		CHECK_EQ(rig, wc.qp_num, rig->role == RIG_A ? end.peer.target : end.target->qp_num);
		CHECK_EQ(rig, end.buf[HALF + 64 * i], 2 * i + (rig->role == RIG_A));
	}
	rig_sync(rig);
	xrc_close(&end);
	unlink(path);
}

/* Both ends' SRQs are in one domain: A places words in B's memory and, by B's target queue pair, in
 * its own. Then A names its own SRQ with B's key. */
static void xrc_placement_two_processes(struct rig *rig)
{
	char path[128];
	const struct xrc_options opt = {.file = xrc_domain_file(rig, path), .builder = true};
	struct xrc_end end;
	enum { TIMES = 16, AT = 64 };

	xrc_pair(&end, rig, &opt);
	struct placement there = placement_at(&end, 0, AT);
	struct placement here = {end.srqn[0], end.mr->rkey, (uintptr_t)end.buf + AT};

	for (uint64_t i = 1; rig->role == RIG_A && i <= TIMES; i++) {
		place(&end, 2 * i, i % 2 ? here : there, 0, i);
		place(&end, 2 * i + 1, i % 2 ? here : there, IBV_FLUSH_GLOBAL, 0);
		if (i % 4)
			continue; /* they are under way together */
		for (uint64_t id = 2 * i - 6; id < 2 * i + 2; id++)
			xrc_wc(&end, end.scq, id, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	CHECK_EQ(rig, word_at(&end, AT), rig->role == RIG_A ? TIMES - 1 : TIMES);
	rig_sync(rig);
	if (end.mr->rkey == end.peer.rkey) { /* one time in 128 both have drawn the same one */
		xrc_close(&end);
		unlink(path);
		return;
	}
	if (rig->role == RIG_A) {
		there.srqn = here.srqn;
		place(&end, 1, there, IBV_FLUSH_GLOBAL, 0);
		xrc_wc(&end, end.scq, 1, IBV_WC_REM_ACCESS_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.target);
	}
	rig_sync(rig);
	xrc_close(&end);
	unlink(path);
}

/* A opens B's target queue pair, queries and moves it, and keeps it alive. */
static void xrc_open_qp(struct rig *rig)
{
	char path[128];
	const struct xrc_options opt = {.file = xrc_domain_file(rig, path), .target_unready = true};
	struct xrc_end end;
	struct ibv_qp *opened = NULL;

	xrc_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		struct ibv_qp_open_attr attr = {
			.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
				     IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
			.qp_num = end.peer.target,
			.xrcd = end.xrcd,
			.qp_context = &end,
			.qp_type = IBV_QPT_XRC_RECV,
		};

		CHECK(rig, (opened = ibv_open_qp(rig->ctx, &attr)));
		CHECK_EQ(rig, opened->qp_num, end.peer.target);
		CHECK(rig, opened->qp_context == &end);
		CHECK_EQ(rig, xrc_state(&end, opened), IBV_QPS_INIT);
		CHECK_EQ(rig, ibv_close_xrcd(end.xrcd), EBUSY);
		/* B's target is for A's initiator. */
		uint32_t theirs = end.peer.initiator, psn = end.peer.psn;

		end.peer.initiator = end.initiator->qp_num;
		end.peer.psn = 0x777;
		xrc_target_rtr(&end, opened);
		end.peer.initiator = theirs;
		end.peer.psn = psn;
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK_EQ(rig, xrc_state(&end, end.target), IBV_QPS_RTR);
		OK(rig, ibv_destroy_qp(end.target));
		end.target = NULL;
		OK(rig, xrc_recv(&end, end.srq[0], RECEIVE, HALF, 64));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) { /* its maker has closed it */
		OK(rig, xrc_send(&end, IBV_WR_SEND, 1, end.peer.srqn[0], 0, 8, 0));
		xrc_wc(&end, end.scq, 1, IBV_WC_SUCCESS);
		OK(rig, ibv_destroy_qp(opened));
	} else {
		xrc_wc(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) { /* the last handle is gone */
		struct ibv_qp_open_attr attr = {
			.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
				     IBV_QP_OPEN_ATTR_TYPE,
			.qp_num = end.peer.target,
			.xrcd = end.xrcd,
			.qp_type = IBV_QPT_XRC_RECV,
		};
		struct ibv_qp *theirs = ibv_open_qp(rig->ctx, &attr); /* A's own still exists */

		CHECK(rig, theirs);
		OK(rig, ibv_destroy_qp(theirs));
	}
	rig_sync(rig);
	xrc_close(&end);
	unlink(path);
}

/* Refusals ----------------------------------------------------------------------------------- */

/* A's request to this SRQ is refused: both queue pairs are in ERR, and B has an event. */
static void refused(struct xrc_end *end, enum ibv_wr_opcode opcode, uint32_t srqn, uint32_t length)
{
	struct rig *rig = end->rig;

	if (rig->role == RIG_A) {
		OK(rig, xrc_send(end, opcode, 1, srqn, 0, length, 0));
		xrc_wc(end, end->scq, 1, IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(rig, xrc_state(end, end->initiator), IBV_QPS_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end->target);
		CHECK_EQ(rig, xrc_state(end, end->target), IBV_QPS_ERR);
	}
	rig_sync(rig);
}

static void refused_anew(struct rig *rig, enum ibv_wr_opcode opcode, uint32_t length, bool other)
{
	struct xrc_end end, elsewhere;

	xrc_pair(&end, rig, NULL);
	if (other) { /* a domain of its own, with SRQs of its own */
		xrc_open(&elsewhere, rig, NULL);
		xrc_meet(&elsewhere);
		refused(&end, opcode, elsewhere.peer.srqn[0], length);
		xrc_close(&elsewhere);
	} else {
		refused(&end, opcode, end.peer.srqn[0] + 1000, length);
	}
	xrc_close(&end);
}

static void xrc_srq_of_another_domain(struct rig *rig)
{
	refused_anew(rig, IBV_WR_SEND, 8, true);
	refused_anew(rig, IBV_WR_RDMA_WRITE, 8, true);
	refused_anew(rig, IBV_WR_RDMA_READ, 8, true);
	refused_anew(rig, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, true);
	refused_anew(rig, IBV_WR_ATOMIC_WRITE, 8, true);
	refused_anew(rig, IBV_WR_SEND, 100000, true);
}

static void xrc_no_such_srq(struct rig *rig)
{
	refused_anew(rig, IBV_WR_SEND, 8, false);
	refused_anew(rig, IBV_WR_RDMA_WRITE, 0, false);
	refused_anew(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 8, false);
}

/* The SRQ ends while a message waits for a receive of it. */
static void xrc_srq_ends(struct rig *rig)
{
	struct xrc_end end;

	xrc_pair(&end, rig, NULL);
	if (rig->role == RIG_A)
		OK(rig, xrc_send(&end, IBV_WR_SEND, 1, end.peer.srqn[0], 0, 8, 0));
	usleep(20000);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, ibv_destroy_srq(end.srq[0]));
		end.srq[0] = NULL;
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.target);
	} else {
		xrc_wc(&end, end.scq, 1, IBV_WC_REM_ACCESS_ERR);
	}
	rig_sync(rig);
	xrc_close(&end);
}

/* The target queue pair's rights, and the memory's domain: the SRQ's. */
static void xrc_rights(struct rig *rig)
{
	const struct xrc_options none = {.access = QP_NONE};
	struct xrc_end end;

	xrc_pair(&end, rig, &none);
	if (rig->role == RIG_A) {
		OK(rig, xrc_send(&end, IBV_WR_RDMA_WRITE, 1, end.peer.srqn[0], 0, 8, 0));
		xrc_wc(&end, end.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_REQ_ERR, end.target);
	}
	rig_sync(rig);
	xrc_close(&end);
	xrc_pair(&end, rig, NULL);
	struct ibv_pd *other = ibv_alloc_pd(rig->ctx);
	struct ibv_mr *mr =
		ibv_reg_mr(other, end.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	uint32_t rkey = mr->rkey;

	rig_swap(rig, &rkey, &end.peer.rkey, sizeof(rkey));
	refused(&end, IBV_WR_RDMA_WRITE, end.peer.srqn[0], 8);
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_dealloc_pd(other));
	xrc_close(&end);
}

/* How one FLUSH fails, or ATOMIC WRITE (type 0). */
struct placement_case {
	uint32_t other_srq; /* added to the SRQ's number */
	bool no_srq;	    /* it names B's initiator, whose protection domain is the region's */
	uint8_t type;
	size_t at;
	int access;	   /* of the target; 0: all */
	int region_access; /* of a region in another protection domain; 0: the end's own region */
	enum ibv_wc_status status;
};

static void placement_fails(struct rig *rig, const struct placement_case *c)
{
	const struct xrc_options opt = {.access = c->access, .builder = true};
	struct ibv_mr *mr = NULL;
	struct ibv_pd *other;
	struct xrc_end end;

	xrc_pair(&end, rig, &opt);
	CHECK(rig, (other = ibv_alloc_pd(rig->ctx)));
	if (c->region_access) {
		CHECK(rig, (mr = ibv_reg_mr(other, end.buf, 4096, c->region_access)));
		rig_swap(rig, &mr->rkey, &end.peer.rkey, sizeof(mr->rkey));
	}
	if (rig->role == RIG_A) {
		struct placement to = placement_at(&end, 0, c->at);

		to.srqn = c->no_srq ? end.peer.initiator : to.srqn + c->other_srq;
		place(&end, 1, to, c->type, 0);
		xrc_wc(&end, end.scq, 1, c->status);
		CHECK_EQ(rig, xrc_state(&end, end.initiator), IBV_QPS_ERR);
	} else {
		event_expect(rig,
			     c->status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
								: IBV_EVENT_QP_REQ_ERR,
			     end.target);
		CHECK_EQ(rig, xrc_state(&end, end.target), IBV_QPS_ERR);
	}
	rig_sync(rig);
	if (mr)
		OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_dealloc_pd(other));
	xrc_close(&end);
}

/* The SRQ, the target's rights, the region's protection domain and range, the alignment. */
static void xrc_placement_refused(struct rig *rig)
{
	const enum ibv_wc_status access = IBV_WC_REM_ACCESS_ERR, invalid = IBV_WC_REM_INV_REQ_ERR;
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL;
	const struct placement_case cases[] = {
		{.type = 0, .other_srq = 1000, .status = access},
		{.type = IBV_FLUSH_GLOBAL, .other_srq = 1000, .status = access},
		{.type = 0, .no_srq = true, .status = access},
		{.type = IBV_FLUSH_GLOBAL, .no_srq = true, .status = access},
		{.type = 0, .access = QP_NONE, .status = invalid},
		{.type = 0, .access = IBV_ACCESS_FLUSH_GLOBAL, .status = invalid},
		{.type = IBV_FLUSH_GLOBAL, .access = QP_NONE, .status = invalid},
		{.type = IBV_FLUSH_GLOBAL, .access = IBV_ACCESS_REMOTE_WRITE, .status = invalid},
		{.type = IBV_FLUSH_PERSISTENT, .status = invalid},
		{.type = 0, .region_access = all, .status = access},
		{.type = IBV_FLUSH_GLOBAL, .region_access = all, .status = access},
		{.type = 0, .at = XRC_BYTES, .status = access},
		{.type = IBV_FLUSH_GLOBAL, .at = XRC_BYTES - 4, .status = access},
		{.type = 0, .at = 4, .status = invalid},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		placement_fails(rig, &cases[i]);
}

/* A message that is longer than its receive; no receive and no retries. */
static void xrc_receives(struct rig *rig)
{
	const struct xrc_options impatient = {.rnr_retry = RNR_NONE};
	struct xrc_end end;

	xrc_pair(&end, rig, NULL);
	if (rig->role == RIG_B)
		OK(rig, xrc_recv(&end, end.srq[0], RECEIVE, HALF, 8));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, xrc_send(&end, IBV_WR_SEND, 1, end.peer.srqn[0], 0, 9, 0));
		xrc_wc(&end, end.scq, 1, IBV_WC_REM_INV_REQ_ERR);
	} else {
		xrc_wc(&end, end.rcq, RECEIVE, IBV_WC_LOC_LEN_ERR);
	}
	rig_sync(rig);
	xrc_close(&end);
	xrc_pair(&end, rig, &impatient);
	if (rig->role == RIG_A) {
		OK(rig, xrc_send(&end, IBV_WR_SEND, 1, end.peer.srqn[0], 0, 9, 0));
		xrc_wc(&end, end.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	}
	rig_sync(rig);
	xrc_close(&end);
}

/* RESET and a second connection. */
static void xrc_again(struct rig *rig)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct xrc_end end;

	xrc_pair(&end, rig, NULL);
	for (int i = 0; i < 3; i++) {
		send_one(&end, IBV_WR_SEND, 0, 100);
		OK(rig, ibv_modify_qp(end.target, &reset, IBV_QP_STATE));
		OK(rig, ibv_modify_qp(end.initiator, &reset, IBV_QP_STATE));
		rig_sync(rig);
		xrc_target_init(&end, end.target, NULL);
		xrc_target_rtr(&end, end.target);
		xrc_initiator_rts(&end, end.peer.target, NULL);
		rig_sync(rig);
	}
	send_one(&end, IBV_WR_SEND, 1, 20000);
	xrc_close(&end);
}

/* Wrong arguments ---------------------------------------------------------------------------- */

static void open_refused(struct rig *rig, uint32_t mask, int fd, int oflags, int error)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = mask, .fd = fd, .oflags = oflags};

	errno = 0;
	CHECK(rig, !ibv_open_xrcd(rig->ctx, &attr));
	CHECK_EQ(rig, errno, error);
}

static void xrc_wrong_domains(struct rig *rig)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct ibv_xrcd_init_attr attr = {.comp_mask = both, .oflags = O_CREAT | O_EXCL};
	char path[] = "/tmp/verbena-xrc-XXXXXX";
	int fd = mkstemp(path);

	open_refused(rig, IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT, EINVAL);
	open_refused(rig, IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT, EINVAL);
	open_refused(rig, both | IBV_XRCD_INIT_ATTR_RESERVED, -1, O_CREAT, EOPNOTSUPP);
	open_refused(rig, both, 12345, O_CREAT, EBADF);
	open_refused(rig, both, fd, 0, EAGAIN); /* no domain has been made */
	attr.fd = fd;
	struct ibv_xrcd *first = ibv_open_xrcd(rig->ctx, &attr);

	CHECK(rig, first);
	open_refused(rig, both, fd, O_CREAT | O_EXCL, EINVAL);
	attr.oflags = 0;
	struct ibv_xrcd *second = ibv_open_xrcd(rig->ctx, &attr);

	CHECK(rig, second);
	OK(rig, ibv_close_xrcd(first));
	OK(rig, ibv_close_xrcd(second));
	open_refused(rig, both, fd, 0, EAGAIN);
	close(fd);
	unlink(path);
}

static void qp_refused(struct xrc_end *end, struct ibv_qp_init_attr_ex attr, int error)
{
	errno = 0;
	CHECK(end->rig, !ibv_create_qp_ex(end->rig->ctx, &attr));
	CHECK_EQ(end->rig, errno, error);
}

static void srq_refused(struct xrc_end *end, struct ibv_srq_init_attr_ex attr, int error)
{
	errno = 0;
	CHECK(end->rig, !ibv_create_srq_ex(end->rig->ctx, &attr));
	CHECK_EQ(end->rig, errno, error);
}

static void xrc_wrong_objects(struct rig *rig)
{
	struct xrc_end end;
	const struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq_init_attr_ex srq = {.attr = {.max_wr = 8, .max_sge = 1},
					   .comp_mask =
						   IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					   .srq_type = IBV_SRQT_XRC};
	uint32_t number;

	xrc_open(&end, rig, NULL);
	struct ibv_qp_init_attr_ex qp = {.qp_type = IBV_QPT_XRC_SEND,
					 .comp_mask = IBV_QP_INIT_ATTR_PD,
					 .pd = end.pd,
					 .send_cq = end.scq,
					 .recv_cq = end.rcq,
					 .srq = end.srq[0]};

	qp_refused(&end, target, EINVAL); /* no domain */
	qp_refused(&end, qp, EINVAL);	  /* an initiator with an SRQ */
	qp.qp_type = IBV_QPT_RC;
	qp_refused(&end, qp, EINVAL); /* an XRC SRQ for RC */
	srq.pd = end.pd;
	srq_refused(&end, srq, EINVAL);
	srq.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
	srq.xrcd = end.xrcd;
	srq_refused(&end, srq, EINVAL); /* no CQ */
	CHECK_EQ(rig, ibv_close_xrcd(end.xrcd), EBUSY);
	CHECK_EQ(rig, ibv_destroy_cq(end.rcq), EBUSY);
	struct ibv_srq_init_attr basic = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *plain = ibv_create_srq(end.pd, &basic);

	CHECK(rig, plain);
	CHECK_EQ(rig, ibv_get_srq_num(plain, &number), EOPNOTSUPP);
	OK(rig, ibv_destroy_srq(plain));
	xrc_close(&end);
}

/* An initiator has no receive queue: what is asked for one is ignored, whatever it is. */
static void xrc_ignores_receive_caps(struct rig *rig)
{
	struct xrc_end end;

	xrc_open(&end, rig, NULL);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = end.pd,
		.send_cq = end.scq,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = UINT32_MAX,
			.max_send_sge = 1,
			.max_recv_sge = UINT32_MAX},
	};
	struct ibv_qp *qp = ibv_create_qp_ex(rig->ctx, &attr);

	CHECK(rig, qp);
	CHECK_EQ(rig, attr.cap.max_recv_wr, 0);
	CHECK_EQ(rig, attr.cap.max_recv_sge, 0);
	OK(rig, ibv_destroy_qp(qp));
	xrc_close(&end);
}

static void xrc_wrong_opens(struct rig *rig)
{
	struct xrc_end end, other;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr recv = {0}, *bad_recv;

	xrc_open(&end, rig, NULL);
	xrc_open(&other, rig, NULL);
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						     IBV_QP_OPEN_ATTR_TYPE,
					.qp_num = end.target->qp_num,
					.xrcd = other.xrcd,
					.qp_type = IBV_QPT_XRC_RECV};

	CHECK(rig, !ibv_open_qp(rig->ctx, &attr) && errno == EINVAL); /* of another domain */
	attr.xrcd = end.xrcd;
	attr.qp_num = end.initiator->qp_num;
	CHECK(rig, !ibv_open_qp(rig->ctx, &attr) && errno == EINVAL);
	attr.qp_num = end.target->qp_num;
	attr.qp_type = IBV_QPT_RC;
	CHECK(rig, !ibv_open_qp(rig->ctx, &attr) && errno == EINVAL);
	attr.qp_type = IBV_QPT_XRC_RECV;
	attr.comp_mask &= ~(uint32_t)IBV_QP_OPEN_ATTR_XRCD;
	CHECK(rig, !ibv_open_qp(rig->ctx, &attr) && errno == EINVAL);
	CHECK_EQ(rig, ibv_post_send(end.target, &send, &bad_send), EINVAL);
	CHECK_EQ(rig, ibv_post_recv(end.target, &recv, &bad_recv), EINVAL);
	CHECK_EQ(rig, ibv_post_recv(end.initiator, &recv, &bad_recv), EINVAL);
	xrc_close(&other);
	xrc_close(&end);
}

const struct rig_test xrc_tests[] = {
	{"xrc_messages", xrc_messages},
	{"xrc_onesided", xrc_onesided},
	{"xrc_atomics", xrc_atomics},
	{"xrc_builder", xrc_builder},
	{"xrc_atomic_write", xrc_atomic_write},
	{"xrc_flush", xrc_flush},
	{"xrc_order_of_srqs", xrc_order_of_srqs},
	{"xrc_target_late", xrc_target_late},
	{"xrc_two_processes", xrc_two_processes},
	{"xrc_placement_two_processes", xrc_placement_two_processes},
	{"xrc_open_qp", xrc_open_qp},
	{"xrc_srq_of_another_domain", xrc_srq_of_another_domain},
	{"xrc_no_such_srq", xrc_no_such_srq},
	{"xrc_srq_ends", xrc_srq_ends},
	{"xrc_rights", xrc_rights},
	{"xrc_placement_refused", xrc_placement_refused},
	{"xrc_receives", xrc_receives},
	{"xrc_again", xrc_again},
	{"xrc_wrong_domains", xrc_wrong_domains},
	{"xrc_wrong_objects", xrc_wrong_objects},
	{"xrc_ignores_receive_caps", xrc_ignores_receive_caps},
	{"xrc_wrong_opens", xrc_wrong_opens},
	{0},
};
