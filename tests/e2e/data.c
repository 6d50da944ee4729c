/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Data transfer: every opcode with many sizes, gathered and scattered, inline, in order, the last
 * byte last, atomically, and without the receiver's help. See rig.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

/* Around the limits of records, slots, pages and packets. */
static const uint32_t sizes[] = {0,	1,     7,     8,     9,	    63,	    64,	    65,	  255,
				 1000,	2047,  2048,  4095,  4096,  4097,   8191,   8192, 8193,
				 10000, 16384, 32769, 65536, 65537, 262144, 1048579};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), HALF = 2 << 20, BYTES = 2 * HALF };

static const struct end_options big = {.bytes = BYTES};
static const struct end_options big_uc = {.bytes = BYTES, .type = IBV_QPT_UC};

/* The seed of a message of the end with that role. */
static uint32_t seed_of(int role, uint32_t round)
{
	return round * 2 + (uint32_t)role;
}

/* Both ends send to each other at the same time. */
static void exchange(struct end *end, enum ibv_wr_opcode opcode, uint32_t size, uint32_t round)
{
	struct rig *rig = end->rig;
	bool imm = opcode == IBV_WR_SEND_WITH_IMM;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	memset(end->buf + HALF, 0xee, size + 1);
	OK(rig, end_recv(end, round, HALF, size + 1));
	rig_sync(rig);
	pattern_fill(end->buf, size, seed_of(rig->role, round));
	end_request(end, opcode, round, 0, size, 0, &wr, &sge);
	wr.imm_data = htonl(round);
	OK(rig, ibv_post_send(end->qp, &wr, &bad));

	wc = wc_expect(end, end->scq, round, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc.opcode, IBV_WC_SEND);
	wc = wc_expect(end, end->rcq, round, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc.opcode, IBV_WC_RECV);
	CHECK_EQ(rig, wc.byte_len, size);
	CHECK_EQ(rig, wc.wc_flags & IBV_WC_WITH_IMM, imm ? IBV_WC_WITH_IMM : 0);
	if (imm)
		CHECK_EQ(rig, ntohl(wc.imm_data), round);
	CHECK(rig, pattern_holds(end->buf + HALF, size, seed_of(!rig->role, round)));
	CHECK_EQ(rig, end->buf[HALF + size], 0xee);
}

static void exchange_all(struct rig *rig, const struct end_options *opt)
{
	struct end end;

	end_pair(&end, rig, opt);
	for (uint32_t i = 0; i < SIZES; i++)
		exchange(&end, i % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, sizes[i], i);
	for (uint32_t i = 0; i < SIZES; i++)
		exchange(&end, i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, sizes[i], i + SIZES);
	rig_sync(rig); /* the other end can repeat its acknowledgement until here */
	end_close(&end);
}

static void send_rc(struct rig *rig)
{
	exchange_all(rig, &big);
}

static void send_uc(struct rig *rig)
{
	exchange_all(rig, &big_uc);
}

static void write_round(struct end *end, uint32_t size, uint32_t round)
{
	struct rig *rig = end->rig;
	bool imm = round % 2;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	memset(end->buf + HALF, 0xee, size + 1);
	if (imm)
		OK(rig, end_recv(end, round, 0, 0));
	rig_sync(rig);
	pattern_fill(end->buf, size, seed_of(rig->role, round));
	end_request(end, imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, round, 0, size, HALF,
		    &wr, &sge);
	wr.imm_data = htonl(round);
	OK(rig, ibv_post_send(end->qp, &wr, &bad));
	wc = wc_expect(end, end->scq, round, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc.opcode, IBV_WC_RDMA_WRITE);
	if (imm) {
		wc = wc_expect(end, end->rcq, round, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_EQ(rig, wc.byte_len, size);
		CHECK(rig, wc.wc_flags & IBV_WC_WITH_IMM);
		CHECK_EQ(rig, ntohl(wc.imm_data), round);
	}
	/* UC completes when the message is sent; the data has arrived when the peer reports it. */
	if (end->opt.type == IBV_QPT_RC || imm)
		rig_sync(rig);
	else
		for (struct patience patience = patience_of(RIG_SOON_MS);
		     !pattern_holds(end->buf + HALF, size, seed_of(!rig->role, round));)
			CHECK(rig, !patience_over(&patience));
	CHECK(rig, pattern_holds(end->buf + HALF, size, seed_of(!rig->role, round)));
	CHECK_EQ(rig, end->buf[HALF + size], 0xee);
	rig_sync(rig);
}

static void write_all(struct rig *rig, const struct end_options *opt)
{
	struct end end;

	end_pair(&end, rig, opt);
	for (uint32_t i = 0; i < 2 * SIZES; i++)
		write_round(&end, sizes[i % SIZES], i);
	end_close(&end);
}

static void write_rc(struct rig *rig)
{
	write_all(rig, &big);
}

static void write_uc(struct rig *rig)
{
	write_all(rig, &big_uc);
}

static void read_rc(struct rig *rig)
{
	struct end end;
	struct ibv_wc wc;

	end_pair(&end, rig, &big);
	for (uint32_t i = 0; i < SIZES; i++) {
		pattern_fill(end.buf, sizes[i], seed_of(rig->role, i));
		memset(end.buf + HALF, 0xee, sizes[i] + 1);
		rig_sync(rig);
		OK(rig, end_send(&end, IBV_WR_RDMA_READ, i, HALF, sizes[i], 0));
		wc = wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rig, wc.opcode, IBV_WC_RDMA_READ);
		CHECK_EQ(rig, wc.byte_len, sizes[i]);
		CHECK(rig, pattern_holds(end.buf + HALF, sizes[i], seed_of(!rig->role, i)));
		CHECK_EQ(rig, end.buf[HALF + sizes[i]], 0xee);
		rig_sync(rig);
	}
	end_close(&end);
}

/* Segments of odd sizes on both sides, with different boundaries. */
static void pieces(struct rig *rig)
{
	static const uint32_t out[4] = {1, 4095, 30000, 13}, in[3] = {17, 20000, 20000};
	uint32_t total = out[0] + out[1] + out[2] + out[3];
	struct ibv_sge from[4], to[3];
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = to, .num_sge = 3}, *bad_recv;
	struct ibv_send_wr wr, *bad;
	struct end end;
	size_t at = 0;

	end_pair(&end, rig, &big);
	pattern_fill(end.buf, total, seed_of(rig->role, 1));
	/* The pieces are spread over the buffer: the i-th lies 64 KiB x i further on. */
	for (int i = 3; i >= 0; i--) {
		at = 0;
		for (int k = 0; k < i; k++)
			at += out[k];
		memmove(end.buf + at + (size_t)i * 65536, end.buf + at, out[i]);
		from[i] = end_sge(&end, at + (size_t)i * 65536, out[i]);
	}
	for (int i = 0; i < 3; i++)
		to[i] = end_sge(&end, HALF + (size_t)i * 65536, in[i]);
	OK(rig, ibv_post_recv(end.qp, &recv, &bad_recv));
	rig_sync(rig);
	end_request(&end, IBV_WR_SEND, 1, 0, 0, 0, &wr, &from[0]);
	from[0] = end_sge(&end, 0, out[0]);
	wr.num_sge = 4;
	OK(rig, ibv_post_send(end.qp, &wr, &bad));
	wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(rig, wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS).byte_len, total);
	memmove(end.buf + HALF + in[0], end.buf + HALF + 65536, in[1]);
	memmove(end.buf + HALF + in[0] + in[1], end.buf + HALF + 2 * 65536, in[2]);
	CHECK(rig, pattern_holds(end.buf + HALF, total, seed_of(!rig->role, 1)));
	rig_sync(rig);

	/* The same pieces by WRITE, then by READ. */
	memset(end.buf + HALF, 0, total);
	rig_sync(rig);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = end.peer.addr + HALF;
	wr.wr.rdma.rkey = end.peer.rkey;
	OK(rig, ibv_post_send(end.qp, &wr, &bad));
	wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
	rig_sync(rig);
	CHECK(rig, pattern_holds(end.buf + HALF, total, seed_of(!rig->role, 1)));
	end_close(&end);
}

/* Inline data is copied at posting and needs no registered memory. */
static void inline_data(struct rig *rig)
{
	static const struct end_options opt = {.inline_bytes = 220};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	uint8_t mine[220];
	struct end end;

	end_pair(&end, rig, &opt);
	CHECK(rig, end.cap.max_inline_data >= 220);
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t size = round % 221;

		OK(rig, end_recv(&end, round, 0, 256));
		rig_sync(rig);
		pattern_fill(mine, size, seed_of(rig->role, round));
		end_request(&end, round % 3 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, round, 0, size, 1024,
			    &wr, &sge);
		sge.addr = (uintptr_t)mine;
		sge.lkey = 0;
		wr.send_flags |= IBV_SEND_INLINE;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		memset(mine, 0, sizeof(mine));
		wc_expect(&end, end.scq, round, IBV_WC_SUCCESS);
		if (round % 3)
			wc_expect(&end, end.rcq, round, IBV_WC_SUCCESS);
		rig_sync(rig);
		CHECK(rig, pattern_holds(end.buf + (round % 3 ? 0 : 1024), size,
					 seed_of(!rig->role, round)));
		if (!(round % 3)) {
			OK(rig, end_send(&end, IBV_WR_SEND, round, 0, 0, 0));
			wc_expect(&end, end.scq, round, IBV_WC_SUCCESS);
			wc_expect(&end, end.rcq, round, IBV_WC_SUCCESS);
		}
	}
	end_close(&end);
}

/* Only signaled requests complete; the places of the others become free, too. */
static void unsignaled(struct rig *rig)
{
	static const struct end_options opt = {.send_depth = 16, .recv_depth = 16};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &opt);
	for (uint32_t round = 0; rig->role == RIG_A && round < 50; round++) {
		for (uint32_t i = 0; i < 16; i++) {
			end_request(&end, IBV_WR_RDMA_WRITE, round * 16 + i, 0, 8, i * 8, &wr,
				    &sge);
			wr.send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
		}
		wc_expect(&end, end.scq, round * 16 + 15, IBV_WC_SUCCESS);
	}
	if (rig->role == RIG_A)
		wc_none(&end, end.scq);
	rig_sync(rig);
	end_close(&end);
}

/* A fenced SEND carries the bytes that the READ before it has fetched. */
static void fence(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, NULL);
	for (uint32_t round = 0; round < 100; round++) {
		uint32_t size = 1 + round * 97 % 5000;

		if (rig->role == RIG_B) {
			pattern_fill(end.buf, size, round);
			OK(rig, end_recv(&end, round, 32768, size));
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_RDMA_READ, 1, 0, size, 0));
			end_request(&end, IBV_WR_SEND, 2, 0, size, 0, &wr, &sge);
			wr.send_flags |= IBV_SEND_FENCE;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
			wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
		} else {
			wc_expect(&end, end.rcq, round, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end.buf + 32768, size, round));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

/* When a SEND arrives, the earlier WRITEs have arrived, and later ones don't overtake it. */
static void order(struct rig *rig)
{
	static const uint32_t length[] = {8, 3000, 40000, 500000};
	struct end end;

	end_pair(&end, rig, &big);
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t size = length[round % 4];

		if (rig->role == RIG_A) {
			pattern_fill(end.buf, size, round);
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, size, HALF));
			OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, round % 3 ? size : 0, 0));
			OK(rig, end_send(&end, IBV_WR_RDMA_READ, 3, HALF, size, HALF));
			for (uint64_t id = 1; id <= 3; id++)
				wc_expect(&end, end.scq, id, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end.buf + HALF, size, round));
		} else {
			/* Every other receive is posted late: the SEND waits, and the READ after
			 * it. */
			if (round % 2)
				usleep(200);
			OK(rig, end_recv(&end, round, 0, HALF));
			wc_expect(&end, end.rcq, round, IBV_WC_SUCCESS);
			CHECK(rig, pattern_holds(end.buf + HALF, size, round));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

/* Programs poll the last byte of a WRITE: when it has changed, all bytes are there. */
static void last_byte(struct rig *rig)
{
	static const uint32_t length[] = {8, 9, 64, 100, 4096, 5000, 65536, 1 << 20};
	uint8_t *last;
	struct end end;

	end_pair(&end, rig, &big);
	for (uint32_t round = 1; round <= 240; round++) {
		uint32_t size = length[round % 8];

		last = end.buf + HALF + size - 1;
		if (rig->role == RIG_B)
			*last = 0;
		rig_sync(rig);
		if (rig->role == RIG_A) {
			pattern_fill(end.buf, size - 1, round);
			end.buf[size - 1] = (uint8_t)(round % 255 + 1);
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, round, 0, size, HALF));
			wc_expect(&end, end.scq, round, IBV_WC_SUCCESS);
		} else {
			for (struct patience patience = patience_of(RIG_SOON_MS);
			     __atomic_load_n(last, __ATOMIC_ACQUIRE) == 0;)
				CHECK(rig, !patience_over(&patience));
			CHECK_EQ(rig, *last, round % 255 + 1);
			CHECK(rig, pattern_holds(end.buf + HALF, size - 1, round));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

static uint64_t atomic_do(struct end *end, enum ibv_wr_opcode opcode, uint64_t first,
			  uint64_t second)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	uint64_t old;

	end_request(end, opcode, 1, 512, 8, 0, &wr, &sge);
	wr.wr.atomic.compare_add = first;
	wr.wr.atomic.swap = second;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	CHECK_EQ(end->rig, wc_expect(end, end->scq, 1, IBV_WC_SUCCESS).opcode,
		 opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
	memcpy(&old, end->buf + 512, sizeof(old));
	return old;
}

static void atomics(struct rig *rig)
{
	const uint64_t big_number = 0xfedcba9876543210;
	uint64_t *word;
	struct end end;

	end_pair(&end, rig, NULL);
	word = (uint64_t *)end.buf;
	*word = 7;
	rig_sync(rig);
	if (rig->role == RIG_A) {
		CHECK_EQ(rig, atomic_do(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0), 7);
		CHECK_EQ(rig, atomic_do(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, (uint64_t)-2, 0), 12);
		CHECK_EQ(rig, atomic_do(&end, IBV_WR_ATOMIC_CMP_AND_SWP, 9, 1), 10);
		CHECK_EQ(rig, atomic_do(&end, IBV_WR_ATOMIC_CMP_AND_SWP, 10, big_number), 10);
		CHECK_EQ(rig, atomic_do(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0), big_number);
	}
	rig_sync(rig);
	CHECK_EQ(rig, *word, rig->role == RIG_B ? big_number : 7);
	end_close(&end);
}

/* Remote atomics and the owner's own instructions on one word: no update is lost. */
static void atomics_mixed(struct rig *rig)
{
	enum { REMOTE = 4000, OWN = 200000, WINDOW = 32 };
	struct end end;
	uint64_t *word;

	end_pair(&end, rig, NULL);
	word = (uint64_t *)end.buf;
	rig_sync(rig);
	if (rig->role == RIG_B) {
		for (int i = 0; i < OWN; i++)
			__atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
	} else {
		for (int posted = 0, done = 0; done < REMOTE;) {
			struct ibv_send_wr wr, *bad;
			struct ibv_sge sge;
			struct ibv_wc wc;

			if (posted < REMOTE && posted - done < WINDOW) {
				end_request(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, (uint64_t)posted++,
					    512, 8, 0, &wr, &sge);
				wr.wr.atomic.compare_add = 1;
				OK(rig, ibv_post_send(end.qp, &wr, &bad));
				continue;
			}
			wc = wc_wait(&end, end.scq);
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(rig, wc.wr_id, done++);
		}
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		CHECK_EQ(rig, __atomic_load_n(word, __ATOMIC_RELAXED), OWN + REMOTE);
	end_close(&end);
}

/* The receiver calls no verb while all operations reach it. */
static void sleeping_receiver(struct rig *rig)
{
	enum { MESSAGES = 40 };
	uint64_t posted = 0;
	struct end end;

	end_pair(&end, rig, &big);
	if (rig->role == RIG_B) {
		for (uint64_t i = 0; i < MESSAGES; i++)
			OK(rig, end_recv(&end, i, HALF + i * 32768, 32768));
		rig_sync(rig);
		rig_sync(rig); /* blocks until A has all completions */
		for (uint64_t i = 0; i < MESSAGES; i++) {
			uint32_t size = i % 3 ? 32768 : 64;
			struct ibv_wc wc;

			CHECK_EQ(rig, ibv_poll_cq(end.rcq, 1, &wc), 1);
			CHECK_EQ(rig, wc.wr_id, i);
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(rig, wc.byte_len, size);
			CHECK(rig, pattern_holds(end.buf + HALF + i * 32768, size, 5));
		}
		end_close(&end);
		return;
	}
	pattern_fill(end.buf, 32768, 5);
	rig_sync(rig);
	for (uint64_t i = 0; i < MESSAGES; i++) {
		OK(rig, end_send(&end, IBV_WR_SEND, posted++, 0, i % 3 ? 32768 : 64, 0));
		if (i % 8 == 0)
			OK(rig, end_send(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, posted++, 65536, 8, 0));
		if (i % 8 == 1)
			OK(rig, end_send(&end, IBV_WR_RDMA_READ, posted++, 65536, 5000, 0));
	}
	for (uint64_t i = 0; i < posted; i++)
		wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

/* A QP without a receive doesn't block another QP of the same two processes. */
static void no_blocking(struct rig *rig)
{
	struct end stuck, other;

	end_pair(&stuck, rig, NULL);
	end_pair(&other, rig, NULL);
	if (rig->role == RIG_A)
		for (uint64_t i = 0; i < 32; i++)
			OK(rig, end_send(&stuck, IBV_WR_SEND, i, 0, 1000, 0));
	for (uint64_t i = 0; i < 200; i++) {
		if (rig->role == RIG_B)
			OK(rig, end_recv(&other, i, 0, 4096));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&other, IBV_WR_SEND, i, 0, 4096, 0));
			wc_expect(&other, other.scq, i, IBV_WC_SUCCESS);
		} else {
			wc_expect(&other, other.rcq, i, IBV_WC_SUCCESS);
		}
	}
	if (rig->role == RIG_B) {
		for (uint64_t i = 0; i < 32; i++)
			OK(rig, end_recv(&stuck, i, 0, 1000));
		for (uint64_t i = 0; i < 32; i++)
			wc_expect(&stuck, stuck.rcq, i, IBV_WC_SUCCESS);
	} else {
		for (uint64_t i = 0; i < 32; i++)
			wc_expect(&stuck, stuck.scq, i, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&other);
	end_close(&stuck);
}

/* An end that has received everything exits at once: what it acknowledged stays acknowledged. */
static void leave_at_once(struct rig *rig)
{
	for (uint32_t round = 0; round < 30; round++) {
		struct end end;

		end_pair(&end, rig, &big);
		if (rig->role == RIG_B) {
			OK(rig, end_recv(&end, 1, 0, HALF));
			rig_sync(rig);
			wc_expect(&end, end.rcq, 1, IBV_WC_SUCCESS);
			end_close(&end);
			rig_sync(rig);
		} else {
			rig_sync(rig);
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, sizes[round % SIZES], 0));
			if (round % 2)
				rig_sync(rig);
			wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
			if (!(round % 2))
				rig_sync(rig);
			end_close(&end);
		}
	}
}

/* Memory that goes away ---------------------------------------------------------------------- */

/* B deregisters while A writes continuously: each request is either executed or refused. */
static void dereg_under_traffic(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						     IBV_WR_ATOMIC_FETCH_AND_ADD};

	for (uint32_t round = 0; round < 12; round++) {
		struct end end;

		end_pair(&end, rig, NULL);
		if (rig->role == RIG_A) {
			struct ibv_wc wc;

			do {
				OK(rig, end_send(&end, opcodes[round % 3], 1, 0,
						 round % 2 && round % 3 < 2 ? 20000 : 8, 0));
				wc = wc_wait(&end, end.scq);
			} while (wc.status == IBV_WC_SUCCESS);
			CHECK_EQ(rig, wc.status, IBV_WC_REM_ACCESS_ERR);
			CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		} else {
			usleep(2000 + 300 * round);
			OK(rig, ibv_dereg_mr(end.mr));
			end.mr = NULL;
			/* From here on no access may follow. */
			memset(end.buf, 0x11, end.opt.bytes);
			CHECK(rig, mprotect(end.buf, end.opt.bytes, PROT_READ) == 0);
			event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
			CHECK_EQ(rig, end.buf[0], 0x11);
			CHECK_EQ(rig, end.buf[1000], 0x11);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* A receive whose region is deregistered before the message comes. */
static void dereg_under_receive(struct rig *rig)
{
	static const uint32_t lengths[] = {8, 50000};
	struct end end;

	for (int i = 0; i < 2; i++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_B) {
			OK(rig, end_recv(&end, 100, 0, 65536));
			OK(rig, ibv_dereg_mr(end.mr));
			end.mr = NULL;
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, lengths[i], 0));
			wc_expect(&end, end.scq, 1, IBV_WC_REM_OP_ERR);
		} else {
			wc_expect(&end, end.rcq, 100, IBV_WC_LOC_PROT_ERR);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* Sleeps until a completion arrives. */
static struct ibv_wc wc_asleep(struct end *end)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int n;

	while (!(n = ibv_poll_cq(end->rcq, 1, &wc))) {
		OK(end->rig, ibv_req_notify_cq(end->rcq, 0));
		if ((n = ibv_poll_cq(end->rcq, 1, &wc)))
			break;
		CHECK(end->rig, channel_readable(end->channel, RIG_SOON_MS));
		OK(end->rig, ibv_get_cq_event(end->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
	CHECK_EQ(end->rig, n, 1);
	CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
	return wc;
}

/* Long messages back and forth while both programs sleep: the engine thread that continues a
 * message must not fall asleep before its end. */
static void long_asleep(struct rig *rig)
{
	static const struct end_options opt = {.bytes = 4 << 20, .one_cq = true};
	enum { ROUNDS = 200, LENGTH = 4 << 20 };
	struct end end;

	end_pair(&end, rig, &opt);
	OK(rig, end_recv(&end, 0, 0, LENGTH));
	rig_sync(rig);
	for (uint32_t got = 0, sent = 0; got < ROUNDS || sent < ROUNDS;) {
		bool turn = got == sent + (uint32_t)rig->role;

		if (turn && sent < ROUNDS) {
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, LENGTH, 0));
			sent++;
		}
		if (got == ROUNDS)
			continue;
		while (wc_asleep(&end).opcode != IBV_WC_RECV)
			;
		OK(rig, end_recv(&end, 0, 0, LENGTH));
		got++;
	}
	end_settle(&end);
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test data_tests[] = {
	{"send_rc", send_rc},
	{"send_uc", send_uc},
	{"write_rc", write_rc},
	{"write_uc", write_uc},
	{"read_rc", read_rc},
	{"pieces", pieces},
	{"inline_data", inline_data},
	{"unsignaled", unsignaled},
	{"long_asleep", long_asleep},
	{"fence", fence},
	{"order", order},
	{"last_byte", last_byte},
	{"atomics", atomics},
	{"atomics_mixed", atomics_mixed},
	{"sleeping_receiver", sleeping_receiver},
	{"no_blocking", no_blocking},
	{"leave_at_once", leave_at_once},
	{"dereg_under_traffic", dereg_under_traffic},
	{"dereg_under_receive", dereg_under_receive},
	{NULL, NULL},
};
