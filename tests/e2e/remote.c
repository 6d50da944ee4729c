/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults between a requester (end A) and a responder (end B): how A's requests complete, what
 * becomes of later ones, and what B's program sees. See rig.h.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { BEFORE = 10, WRONG, AFTER, RECEIVE = 100, RECEIVES = 2, SEED = 77 };
enum { NO_EVENT = -1 };

/* A fault in the request itself. */
struct fault {
	struct end_options opt;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	size_t remote;
	/* Makes A's request faulty; `other` is the value that B sent. */
	void (*spoil)(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
		      uint32_t other);
	enum ibv_wc_status status; /* at A */
	int event;		   /* at B, whose QP fails then; NO_EVENT: B sees nothing */
};

/* B's value for A's spoil function: the rkey of a region of another PD. */
struct stranger {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
};

static uint32_t stranger_make(struct stranger *stranger, struct end *end)
{
	struct rig *rig = end->rig;
	uint32_t mine, theirs;

	CHECK(rig, (stranger->pd = ibv_alloc_pd(rig->ctx)));
	CHECK(rig, (stranger->mr =
			    ibv_reg_mr(stranger->pd, end->buf, end->opt.bytes,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
	mine = stranger->mr->rkey;
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	return theirs;
}

static void stranger_end(struct stranger *stranger, struct end *end)
{
	OK(end->rig, ibv_dereg_mr(stranger->mr));
	OK(end->rig, ibv_dealloc_pd(stranger->pd));
}

/* The receives from number `first` on. */
static void flushed(struct end *end, uint64_t first)
{
	for (uint64_t i = first; i < RECEIVES; i++)
		wc_expect(end, end->rcq, RECEIVE + i, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end->rig, end_state(end), IBV_QPS_ERR);
}

/* A correct request. A QP without rights may refuse even WRITEs of length 0: IBTA 9.7.4.1.5 exempts
 * them from the R_Key check only. */
static enum ibv_wr_opcode before_opcode(const struct fault *fault)
{
	return fault->opt.qp_access ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
}

/* A posts one correct request, the faulty one, and one after it; then the QP is in error. */
static void fault_at_requester(struct end *end, const struct fault *fault, uint32_t other)
{
	struct rig *rig = end->rig;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	OK(rig, end_send(end, before_opcode(fault), BEFORE, 0, 0, 0));
	end_request(end, fault->opcode, WRONG, 0, fault->length, fault->remote, &wr, &sge);
	fault->spoil(end, &wr, &sge, other);
	OK(rig, ibv_post_send(end->qp, &wr, &bad));
	OK(rig, end_send(end, IBV_WR_SEND, AFTER, 0, 8, 0));
	wc_expect(end, end->scq, BEFORE, IBV_WC_SUCCESS);
	wc_expect(end, end->scq, WRONG, fault->status);
	wc_expect(end, end->scq, AFTER, IBV_WC_WR_FLUSH_ERR);
	flushed(end, 0);
	/* Requests posted in the error state are flushed, too. */
	OK(rig, end_send(end, IBV_WR_SEND, 55, 0, 8, 0));
	wc_expect(end, end->scq, 55, IBV_WC_WR_FLUSH_ERR);
	OK(rig, end_recv(end, 56, 0, 8));
	wc_expect(end, end->rcq, 56, IBV_WC_WR_FLUSH_ERR);
	wc_none(end, end->scq);
}

/* Whether the request fails when its answer comes: it was executed, and what follows may have
 * been. */
static bool fails_when_answered(const struct fault *fault)
{
	return fault->status == IBV_WC_LOC_PROT_ERR &&
	       (fault->opcode == IBV_WR_RDMA_READ || fault->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		fault->opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
}

static void fault_run(struct rig *rig, const struct fault *fault)
{
	bool untouched = rig->role == RIG_A || !fails_when_answered(fault);
	struct stranger stranger;
	struct end end;
	uint32_t other;

	end_pair(&end, rig, &fault->opt);
	other = stranger_make(&stranger, &end);
	pattern_fill(end.buf, end.opt.bytes, SEED + (uint32_t)rig->role);
	for (uint64_t i = 0; i < RECEIVES; i++)
		OK(rig, end_recv(&end, RECEIVE + i, 0, 64));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		fault_at_requester(&end, fault, other);
	} else if (fault->event != NO_EVENT) {
		bool taken = before_opcode(fault) == IBV_WR_SEND;

		event_expect(rig, (enum ibv_event_type)fault->event, end.qp);
		if (taken)
			wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
		flushed(&end, taken);
	}
	rig_sync(rig);
	if (rig->role == RIG_B && fault->event == NO_EVENT) {
		if (untouched)
			wc_none(&end, end.rcq);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	}
	if (untouched)
		CHECK(rig, pattern_holds(end.buf, end.opt.bytes, SEED + (uint32_t)rig->role));
	stranger_end(&stranger, &end);
	end_close(&end);
}

/* Runs the fault for a small and a large WRITE, a READ and both atomics. */
static void fault_each(struct rig *rig, struct fault fault)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t length;
	} kinds[] = {
		{IBV_WR_RDMA_WRITE, 8},		  {IBV_WR_RDMA_WRITE, 40000},
		{IBV_WR_RDMA_WRITE_WITH_IMM, 16}, {IBV_WR_RDMA_READ, 8},
		{IBV_WR_RDMA_READ, 40000},	  {IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
		{IBV_WR_ATOMIC_CMP_AND_SWP, 8},	  {IBV_WR_ATOMIC_WRITE, 8},
	};

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		fault.opcode = kinds[i].opcode;
		fault.length = kinds[i].length;
		fault_run(rig, &fault);
	}
}

/* Wrong keys and ranges ---------------------------------------------------------------------- */

static void spoil_nothing(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			  uint32_t other)
{
	(void)end, (void)wr, (void)sge, (void)other;
}

static void rkey_set(struct ibv_send_wr *wr, uint32_t rkey)
{
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		wr->wr.atomic.rkey = rkey;
	else
		wr->wr.rdma.rkey = rkey;
}

static void address_set(struct ibv_send_wr *wr, uint64_t address)
{
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		wr->wr.atomic.remote_addr = address;
	else
		wr->wr.rdma.remote_addr = address;
}

static void spoil_rkey(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
		       uint32_t other)
{
	(void)sge, (void)other;
	rkey_set(wr, end->peer.rkey ^ 0x40);
}

static void spoil_rkey_far(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			   uint32_t other)
{
	(void)end, (void)sge, (void)other;
	rkey_set(wr, 0xfffffff1);
}

static void spoil_other_pd(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			   uint32_t other)
{
	(void)end, (void)sge;
	rkey_set(wr, other);
}

/* Its last eight bytes are outside (atomics must stay aligned). */
static void spoil_beyond(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			 uint32_t other)
{
	(void)other;
	address_set(wr, end->peer.addr + end->opt.bytes - sge->length + 8);
}

static void spoil_before(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			 uint32_t other)
{
	(void)sge, (void)other;
	address_set(wr, end->peer.addr - 8);
}

static void spoil_wrap(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
		       uint32_t other)
{
	(void)end, (void)sge, (void)other;
	address_set(wr, UINT64_MAX - 7);
}

#define ACCESS_TEST(test_name, spoil_function)                                     \
	static void test_name(struct rig *rig)                                     \
	{                                                                          \
		fault_each(rig, (struct fault){.spoil = (spoil_function),          \
					       .status = IBV_WC_REM_ACCESS_ERR,    \
					       .event = IBV_EVENT_QP_ACCESS_ERR}); \
	}

ACCESS_TEST(rkey_wrong, spoil_rkey)
ACCESS_TEST(rkey_far, spoil_rkey_far)
ACCESS_TEST(rkey_other_pd, spoil_other_pd)
ACCESS_TEST(range_beyond, spoil_beyond)
ACCESS_TEST(range_before, spoil_before)
ACCESS_TEST(range_wrap, spoil_wrap)

/* Rights: of the region, then of the QP. */
static void rights_of_region(struct rig *rig)
{
	struct fault fault = {.opt = {.mr_access = MR_NONE},
			      .spoil = spoil_nothing,
			      .status = IBV_WC_REM_ACCESS_ERR,
			      .event = IBV_EVENT_QP_ACCESS_ERR};

	fault_each(rig, fault);
	/* Each right is checked separately. */
	fault.opt.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	fault.opcode = IBV_WR_RDMA_WRITE;
	fault.length = 8;
	fault_run(rig, &fault);
	fault.opt.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	fault.opcode = IBV_WR_RDMA_READ;
	fault_run(rig, &fault);
	fault.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	fault_run(rig, &fault);
}

/* An operation that the QP doesn't permit is an invalid request (9.7.4.1.5), not an access
 * error. */
static void rights_of_qp(struct rig *rig)
{
	struct fault fault = {.opt = {.qp_access = QP_NONE},
			      .spoil = spoil_nothing,
			      .status = IBV_WC_REM_INV_REQ_ERR,
			      .event = IBV_EVENT_QP_REQ_ERR};

	fault_each(rig, fault);
	fault.opt.qp_access = IBV_ACCESS_REMOTE_WRITE;
	fault.opcode = IBV_WR_RDMA_READ;
	fault.length = 8;
	fault_run(rig, &fault);
	/* The same without resources for READs and atomics. */
	fault.opt.qp_access = 0;
	fault.opt.no_dest_reads = true;
	fault_run(rig, &fault);
	fault.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	fault_run(rig, &fault);
}

static void atomic_unaligned(struct rig *rig)
{
	struct fault fault = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			      .length = 8,
			      .remote = 4,
			      .spoil = spoil_nothing,
			      .status = IBV_WC_REM_INV_REQ_ERR,
			      .event = IBV_EVENT_QP_REQ_ERR};

	fault_run(rig, &fault);
	fault.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	fault.remote = 1;
	fault_run(rig, &fault);
}

/* Faults of A alone -------------------------------------------------------------------------- */

static void spoil_lkey(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
		       uint32_t other)
{
	(void)wr, (void)other;
	sge->lkey = end->mr->lkey ^ 0x40;
}

static void spoil_local_range(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			      uint32_t other)
{
	(void)wr, (void)other;
	sge->addr = (uintptr_t)end->buf + end->opt.bytes - sge->length + 1;
}

static void lkey_wrong(struct rig *rig)
{
	struct fault fault = {
		.spoil = spoil_lkey, .status = IBV_WC_LOC_PROT_ERR, .event = NO_EVENT};

	fault_each(rig, fault);
	fault.opcode = IBV_WR_SEND;
	for (fault.length = 1; fault.length < 50000; fault.length *= 30)
		fault_run(rig, &fault);
	fault.spoil = spoil_local_range;
	fault.length = 64;
	fault_run(rig, &fault);
	fault_each(rig, fault);
}

/* A READ or an atomic needs a writable target. */
static void target_read_only(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_SEND};
	struct ibv_mr *plain;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	for (int i = 0; i < 3; i++) {
		end_pair(&end, rig, NULL);
		CHECK(rig, (plain = ibv_reg_mr(end.pd, end.buf, 4096, 0)));
		OK(rig, end_recv(&end, RECEIVE, 0, 64));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			end_request(&end, opcodes[i], 1, 0, 8, 0, &wr, &sge);
			sge.lkey = plain->lkey;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 1,
				  opcodes[i] == IBV_WR_SEND ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
		} else if (opcodes[i] == IBV_WR_SEND) {
			wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		OK(rig, ibv_dereg_mr(plain));
		end_close(&end);
	}
}

/* An atomic has eight bytes. */
static void spoil_length(const struct end *end, struct ibv_send_wr *wr, struct ibv_sge *sge,
			 uint32_t other)
{
	(void)end, (void)wr, (void)other;
	sge->length = 0;
}

static void atomic_length(struct rig *rig)
{
	fault_run(rig, &(struct fault){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				       .length = 8,
				       .spoil = spoil_length,
				       .status = IBV_WC_LOC_LEN_ERR,
				       .event = NO_EVENT});
}

/* Receives that can't take the message ------------------------------------------------------- */

/* B's receive is faulty; A sends a message of `length` bytes to it. */
static void receive_fault(struct rig *rig, struct ibv_sge sge, uint32_t length, unsigned int srq,
			  enum ibv_wc_status here, enum ibv_wc_status there)
{
	struct ibv_recv_wr wr = {.wr_id = RECEIVE, .sg_list = &sge, .num_sge = 1}, *bad;
	struct end_options opt = {.srq_depth = srq};
	struct end end;

	end_pair(&end, rig, &opt);
	sge.addr += (uintptr_t)end.buf;
	sge.lkey ^= end.mr->lkey;
	if (rig->role == RIG_B) {
		OK(rig,
		   srq ? ibv_post_srq_recv(end.srq, &wr, &bad) : ibv_post_recv(end.qp, &wr, &bad));
		if (!srq)
			OK(rig, end_recv(&end, RECEIVE + 1, 0, 65536));
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, length, 0));
		OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
		wc_expect(&end, end.scq, 1, there);
		wc_expect(&end, end.scq, 2, IBV_WC_WR_FLUSH_ERR);
	} else {
		wc_expect(&end, end.rcq, RECEIVE, here);
		if (!srq)
			wc_expect(&end, end.rcq, RECEIVE + 1, IBV_WC_WR_FLUSH_ERR);
		else
			event_expect(rig, IBV_EVENT_QP_LAST_WQE_REACHED, end.qp);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

static void receive_short(struct rig *rig)
{
	for (unsigned int srq = 0; srq <= 16; srq += 16) {
		receive_fault(rig, (struct ibv_sge){.length = 8}, 9, srq, IBV_WC_LOC_LEN_ERR,
			      IBV_WC_REM_INV_REQ_ERR);
		receive_fault(rig, (struct ibv_sge){.length = 0}, 1, srq, IBV_WC_LOC_LEN_ERR,
			      IBV_WC_REM_INV_REQ_ERR);
		receive_fault(rig, (struct ibv_sge){.length = 49999}, 50000, srq,
			      IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	}
}

static void receive_lkey(struct rig *rig)
{
	for (unsigned int srq = 0; srq <= 16; srq += 16) {
		receive_fault(rig, (struct ibv_sge){.length = 64, .lkey = 0x40}, 9, srq,
			      IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		receive_fault(rig, (struct ibv_sge){.length = 60000, .lkey = 0x40}, 50000, srq,
			      IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		receive_fault(rig, (struct ibv_sge){.addr = 65535, .length = 64}, 9, srq,
			      IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	}
}

/* Receiver not ready ------------------------------------------------------------------------- */

static void rnr_exceeded_by(struct rig *rig, int retries, enum ibv_wr_opcode opcode,
			    uint32_t length)
{
	/* Timer code 14 is 1 ms. */
	struct end_options opt = {.rnr_retry = retries ? retries : RNR_NONE, .min_rnr_timer = 14};
	struct end end;
	double began;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		began = now_ms();
		OK(rig, end_send(&end, opcode, 1, 0, length, 0));
		OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		CHECK(rig, now_ms() - began >= retries);
		wc_expect(&end, end.scq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		rig_sync(rig);
	} else {
		rig_sync(rig);
		/* The message was given up: a receive that is posted now stays. */
		CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
		OK(rig, end_recv(&end, RECEIVE, 0, 64));
		wc_none(&end, end.rcq);
	}
	end_close(&end);
}

static void rnr_exceeded(struct rig *rig)
{
	for (int retries = 0; retries < 7; retries++)
		rnr_exceeded_by(rig, retries, IBV_WR_SEND, 8);
	rnr_exceeded_by(rig, 2, IBV_WR_SEND, 50000);
	rnr_exceeded_by(rig, 2, IBV_WR_RDMA_WRITE_WITH_IMM, 16);
	rnr_exceeded_by(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
}

/* Retries without limit: neither the RNR counter nor the transport timer ends it. */
static void rnr_waits(struct rig *rig)
{
	struct end end;

	for (unsigned int srq = 0; srq <= 16; srq += 16) {
		/* Over RoCE a silent peer may only be waiting for a processor, so it gets 40 ms. */
		struct end_options opt = {.timeout = rig->carrier == RIG_WIRE ? 11 : 8,
					  .retry_cnt = 1,
					  .srq_depth = srq};

		end_pair(&end, rig, &opt);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
			OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 50000, 0));
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 8, 0));
			wc_none(&end, end.scq);
			rig_sync(rig);
			for (uint64_t id = 1; id <= 3; id++)
				wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
		} else {
			rig_sync(rig);
			for (uint64_t id = 1; id <= 3; id++) {
				OK(rig, end_recv(&end, id, 0, 65536));
				wc_expect(&end, end.rcq, id, IBV_WC_SUCCESS);
				usleep(20000);
			}
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* When A has posted its message, or B the receive for it; and whether A's one was given up. */
struct rnr_moment {
	double at;
	bool given_up;
};

/*
 * A's message finds no receive for a while. Returns whether B's receive came in time: on a machine
 * that gives B no processor for so long, it need not. A message is given up only when the receive
 * came after its last retry, and the last retry isn't before its time.
 */
static bool rnr_message(struct end *end, uint64_t id, double retries_ms)
{
	struct rig *rig = end->rig;
	struct rnr_moment mine = {now_ms(), false}, theirs;
	enum ibv_wc_status status;

	if (rig->role == RIG_B) {
		usleep(100000);
		OK(rig, end_recv(end, id, 0, 8));
		mine.at = now_ms();
		rig_swap(rig, &mine, &theirs, sizeof(mine));
		if (!theirs.given_up)
			wc_expect(end, end->rcq, id, IBV_WC_SUCCESS);
		return !theirs.given_up;
	}
	OK(rig, end_send(end, IBV_WR_SEND, id, 0, 8, 0));
	status = wc_wait(end, end->scq).status;
	mine.given_up = status != IBV_WC_SUCCESS;
	if (mine.given_up) {
		CHECK_EQ(rig, status, IBV_WC_RNR_RETRY_EXC_ERR);
		CHECK(rig, now_ms() - mine.at >= retries_ms);
	}
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	if (mine.given_up)
		CHECK(rig, theirs.at - mine.at >= retries_ms);
	return !mine.given_up;
}

/* A receive in time resets the count: the next message has all its retries again. */
static void rnr_in_time(struct rig *rig)
{
	struct end_options opt = {.rnr_retry = 6, .min_rnr_timer = 24}; /* 6 x 40.96 ms */
	uint64_t id = 0;

	while (id < 3) {
		struct end end;

		end_pair(&end, rig, &opt);
		id = 0;
		while (id < 3 && rnr_message(&end, id + 1, 6 * 40.0))
			id++;
		rig_sync(rig);
		end_close(&end);
	}
}

/* No answer ---------------------------------------------------------------------------------- */

static const enum ibv_wr_opcode every_opcode[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD,
						  IBV_WR_RDMA_WRITE_WITH_IMM};
enum { EVERY = sizeof(every_opcode) / sizeof(every_opcode[0]) };

/* A's request and one after it; they fail after the time of timeout and retry_cnt, or later. */
static void unanswered(struct end *end, enum ibv_wr_opcode opcode)
{
	struct rig *rig = end->rig;
	double began = now_ms(), least = 0.004096 * (1 << end->opt.timeout);

	OK(rig, end_recv(end, RECEIVE, 0, 64));
	OK(rig, end_send(end, opcode, 1, 0, 8, 0));
	OK(rig, end_send(end, IBV_WR_SEND, 2, 0, 8, 0));
	wc_expect(end, end->scq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK(rig, now_ms() - began >= least * (end->opt.retry_cnt + 1));
	wc_expect(end, end->scq, 2, IBV_WC_WR_FLUSH_ERR);
	wc_expect(end, end->rcq, RECEIVE, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(rig, end_state(end), IBV_QPS_ERR);
}

/* B's QP stays in this state. */
static void peer_stays_in(struct rig *rig, enum ibv_qp_state state)
{
	struct end end;

	for (int i = 0; i < EVERY; i++) {
		end_open(&end, rig, NULL);
		if (rig->role == RIG_A || state != IBV_QPS_RESET)
			end_init(&end);
		end_meet(&end);
		if (rig->role == RIG_A) {
			end_rtr(&end);
			end_rts(&end);
			unanswered(&end, every_opcode[i]);
		} else if (state == IBV_QPS_ERR) {
			OK(rig, end_move(&end, IBV_QPS_ERR));
		}
		rig_sync(rig);
		end_close(&end);
	}
}

static void peer_in_reset(struct rig *rig)
{
	peer_stays_in(rig, IBV_QPS_RESET);
}

static void peer_in_init(struct rig *rig)
{
	peer_stays_in(rig, IBV_QPS_INIT);
}

static void peer_in_error(struct rig *rig)
{
	peer_stays_in(rig, IBV_QPS_ERR);
}

/* B's QP has left: by destruction, to RESET, or to ERR; A has communicated with it before, or
 * not. */
static void peer_left_by(struct rig *rig, int how, bool spoken, enum ibv_wr_opcode opcode)
{
	struct end end;

	end_pair(&end, rig, NULL);
	if (spoken && rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_RDMA_READ, 9, 0, 64, 0));
		wc_expect(&end, end.scq, 9, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		if (how < 0) {
			OK(rig, ibv_destroy_qp(end.qp));
			end.qp = NULL;
		} else {
			OK(rig, end_move(&end, (enum ibv_qp_state)how));
		}
	}
	rig_sync(rig);
	if (rig->role == RIG_A)
		unanswered(&end, opcode);
	rig_sync(rig);
	end_close(&end);
}

static void peer_left(struct rig *rig)
{
	static const int ways[] = {-1, IBV_QPS_RESET, IBV_QPS_ERR};

	for (int way = 0; way < 3; way++)
		for (int i = 0; i < EVERY; i++)
			peer_left_by(rig, ways[way], i % 2, every_opcode[i]);
}

/* A waits for a receive at B while B's QP exists; then A gets an error. Each RNR NAK shows that B
 * is alive, so A's timeout is the rig's for the carrier: with a shorter one, a B that waits for a
 * processor would be silent for too long. */
static void rnr_peer_left(struct rig *rig)
{
	static const int ways[] = {-1, IBV_QPS_RESET, IBV_QPS_ERR};
	struct end end;

	for (unsigned int way = 0; way < 3; way++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
			wc_none(&end, end.scq);
		}
		rig_sync(rig);
		if (rig->role == RIG_B) {
			if (ways[way] < 0) {
				OK(rig, ibv_destroy_qp(end.qp));
				end.qp = NULL;
			} else {
				OK(rig, end_move(&end, (enum ibv_qp_state)ways[way]));
			}
		} else {
			wc_expect(&end, end.scq, 1, IBV_WC_RETRY_EXC_ERR);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* More messages wait for receives than the receiver keeps: the rest stays with the sender, and all
 * arrive, once and in order. */
static void rnr_many(struct rig *rig)
{
	enum { MANY = 200, SIZE = 8000 };
	struct end_options opt = {.send_depth = MANY, .recv_depth = MANY, .cqe = MANY};
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		for (uint64_t id = 1; id <= MANY; id++)
			OK(rig, end_send(&end, IBV_WR_SEND, id, 0, id % 3 ? SIZE : 40000, 0));
		wc_none(&end, end.scq);
		rig_sync(rig);
		for (uint64_t id = 1; id <= MANY; id++)
			wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
	} else {
		rig_sync(rig);
		for (uint64_t id = 1; id <= MANY; id++) {
			OK(rig, end_recv(&end, id, 0, 65536));
			CHECK_EQ(rig, wc_expect(&end, end.rcq, id, IBV_WC_SUCCESS).byte_len,
				 id % 3 ? SIZE : 40000);
		}
	}
	rig_sync(rig);
	end_close(&end);
}

static void peer_unknown(struct rig *rig)
{
	static const uint32_t qpns[] = {0x3ff, 0xfffffe, 0x0007, 0xe00001};
	struct end end;

	for (unsigned int i = 0; i < 4; i++) {
		end_open(&end, rig, NULL);
		end_init(&end);
		end_meet(&end);
		/* The first: an index that B's process doesn't use. */
		end.peer.qpn = i ? qpns[i] : end.peer.qpn + qpns[i];
		end_rtr(&end);
		end_rts(&end);
		if (rig->role == RIG_A)
			unanswered(&end, every_opcode[i]);
		rig_sync(rig);
		end_close(&end);
	}
}

/* B's QP is connected to another QP. */
static void peer_of_another(struct rig *rig)
{
	struct end end;

	for (int i = 0; i < EVERY; i++) {
		end_open(&end, rig, NULL);
		end_init(&end);
		end_meet(&end);
		if (rig->role == RIG_B)
			end.peer.qpn += 7;
		end_rtr(&end);
		end_rts(&end);
		if (rig->role == RIG_A)
			unanswered(&end, every_opcode[i]);
		rig_sync(rig);
		end_close(&end);
	}
}

static void psn_wrong(struct rig *rig)
{
	struct end_options opt = {.wrong_psn = rig->role == RIG_B ? 0xfffff0 : 0};
	struct end end;

	for (int i = 0; i < EVERY; i++) {
		end_pair(&end, rig, &opt);
		if (rig->role == RIG_A)
			unanswered(&end, every_opcode[i]);
		rig_sync(rig);
		end_close(&end);
	}
}

const struct rig_test remote_tests[] = {
	{"rkey_wrong", rkey_wrong},
	{"rkey_far", rkey_far},
	{"rkey_other_pd", rkey_other_pd},
	{"range_beyond", range_beyond},
	{"range_before", range_before},
	{"range_wrap", range_wrap},
	{"rights_of_region", rights_of_region},
	{"rights_of_qp", rights_of_qp},
	{"atomic_unaligned", atomic_unaligned},
	{"atomic_length", atomic_length},
	{"lkey_wrong", lkey_wrong},
	{"target_read_only", target_read_only},
	{"receive_short", receive_short},
	{"receive_lkey", receive_lkey},
	{"rnr_exceeded", rnr_exceeded},
	{"rnr_waits", rnr_waits},
	{"rnr_in_time", rnr_in_time},
	{"rnr_peer_left", rnr_peer_left},
	{"rnr_many", rnr_many},
	{"peer_in_reset", peer_in_reset},
	{"peer_in_init", peer_in_init},
	{"peer_in_error", peer_in_error},
	{"peer_left", peer_left},
	{"peer_unknown", peer_unknown},
	{"peer_of_another", peer_of_another},
	{"psn_wrong", psn_wrong},
	{NULL, NULL},
};
