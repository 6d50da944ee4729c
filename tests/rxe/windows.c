/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows between two hosts whose stacks may differ: the server has the windows, the client
 * reaches them. It runs with any libibverbs.
 *
 * usage: rxe_windows -g GID-INDEX -p PORT [SERVER]      (tests/rxe/run, group windows)
 *
 * Both sides do the steps of main() in turn, and meet by TCP before and after each. A step in which
 * an access is refused ends its connection; the next one has a new one.
 */
#include "peer.h"
#include <stdio.h>
#include <string.h>

enum { SEED = 77 };

static const struct qp_wish wish = {.access = REMOTE, .answers = 1};

/* The client's access through the window. */
static void reach(enum ibv_wr_opcode opcode, uint32_t rkey, enum ibv_wc_status wanted)
{
	struct ibv_sge sge = {(uintptr_t)side.buf + PART, PART_BYTES, side.mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr = {.rdma = {.remote_addr = side.theirs.address + PART, .rkey = rkey}},
	};

	expect(opcode == IBV_WR_RDMA_WRITE ? "WRITE" : "READ", request(&wr), wanted);
}

static void bind_1(struct ibv_mw *mw, size_t length)
{
	struct ibv_mw_bind bind = {.wr_id = 8,
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {.mr = side.mr,
						 .addr = (uintptr_t)side.buf + PART,
						 .length = length,
						 .mw_access_flags = length ? REMOTE : 0}};

	CHECK(!ibv_bind_mw(side.qp, mw, &bind));
	expect("ibv_bind_mw", completion(8).status, IBV_WC_SUCCESS);
}

static void pattern_fill(uint8_t seed)
{
	for (int i = 0; i < PART_BYTES; i++)
		side.buf[PART + i] = (uint8_t)(i * 7 + seed);
}

static bool pattern_holds(uint8_t seed)
{
	for (int i = 0; i < PART_BYTES; i++)
		if (side.buf[PART + i] != (uint8_t)(i * 7 + seed))
			return false;
	return true;
}

/* ------------------------------------------------------------------ steps */

/* The client writes through the window, and reads it back. */
static void step_through(uint32_t key, uint8_t seed)
{
	if (!side.server) {
		pattern_fill(seed);
		reach(IBV_WR_RDMA_WRITE, key, IBV_WC_SUCCESS);
		memset(side.buf, 0, BYTES);
		reach(IBV_WR_RDMA_READ, key, IBV_WC_SUCCESS);
		CHECK(pattern_holds(seed));
	}
	meet();
	if (side.server)
		CHECK(pattern_holds(seed) && !side.buf[PART - 1] && !side.buf[PART + PART_BYTES]);
	meet();
}

/* A message of the client's with this key. What the server's stack says when it refuses differs. */
static void step_invalidates(uint32_t key, bool refused)
{
	struct ibv_sge sge = {(uintptr_t)side.buf, 16, side.mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .invalidate_rkey = key};
	uint32_t theirs = swap_key(side.verbena);
	if (!side.server) {
		enum ibv_wc_status status = request(&wr);

		if (refused && !theirs)
			printf("refused SEND_WITH_INV: %s\n", ibv_wc_status_str(status));
		else
			expect("SEND_WITH_INV", status,
			       refused ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc = completion(RECEIVE_ID);

		printf("receive: %s, flags 0x%x, key 0x%x of 0x%x\n", ibv_wc_status_str(wc.status),
		       wc.wc_flags, wc.invalidated_rkey, key);
		CHECK((wc.status == IBV_WC_SUCCESS) == !refused);
		/* Soft-RoCE gives the kernel's flag, which is another bit. */
		CHECK(refused || !side.verbena || wc.wc_flags & IBV_WC_WITH_INV);
		CHECK(refused || (wc.invalidated_rkey == key && wc.byte_len == 16));
	}
	meet();
}

static void step_refused(uint32_t key)
{
	if (!side.server)
		reach(IBV_WR_RDMA_WRITE, key, IBV_WC_REM_ACCESS_ERR);
	meet();
	reconnect(&wish);
}

static void type_2(void)
{
	struct ibv_mw *mw = NULL;
	uint32_t key;

	reconnect(&wish);
	CHECK(!side.server || (mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_2)));
	key = side.server ? bind_window(mw) : 0;
	key = side.server ? (swap_key(key), key) : swap_key(0);
	step_through(key, SEED);
	step_invalidates(key, false);
	step_refused(key);
	key = side.server ? bind_window(mw) : 0;
	key = side.server ? (swap_key(key), key) : swap_key(0);
	step_through(key, SEED + 1);
	if (side.server) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key};

		expect("LOCAL_INV", request(&wr), IBV_WC_SUCCESS);
	}
	meet();
	step_refused(key);
	step_invalidates(key + 0x10, true);
	reconnect(&wish);
	CHECK(!mw || !ibv_dealloc_mw(mw));
}

static void type_1(void)
{
	struct ibv_mw *mw = NULL;
	uint32_t key;

	CHECK(!side.server || (mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1)));
	if (side.server)
		bind_1(mw, PART_BYTES);
	key = swap_key(mw ? mw->rkey : 0);
	step_through(key, SEED + 2);
	if (side.server)
		bind_1(mw, PART_BYTES / 2); /* the former key ends */
	meet();
	step_refused(key);
	if (side.server)
		bind_1(mw, 0);
	key = swap_key(mw ? mw->rkey : 0);
	step_refused(key);
	CHECK(!mw || !ibv_dealloc_mw(mw));
}

int main(int argc, char **argv)
{
	if (!peer_begin(argc, argv, "", NULL))
		return 2;
	type_2();
	type_1();
	printf("windows: all well\n");
	return 0;
}
