/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ATOMIC WRITE and FLUSH between two hosts whose stacks may differ: the server has the memory, the
 * client reaches it. It runs with any libibverbs.
 *
 * usage: rxe_placement -g GID-INDEX -p PORT [-s] [SERVER]     (tests/rxe/run, group placement)
 *
 * Both sides do the steps of main() in turn, and meet by TCP before and after each. A request that
 * is refused ends its connection; the next step has a new one. -s: only what
 * succeeds, but more of it.
 */
#include "peer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWERS = 4, ROUNDS = 8, ROUNDS_MORE = 200, FLAG = PART_BYTES - 8, PATIENCE_S = 60 };
enum {
	ALL = REMOTE | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT,
	NO_FLUSH = REMOTE,
	NO_PERSISTENT = REMOTE | IBV_ACCESS_FLUSH_GLOBAL,
	NO_WRITE = IBV_ACCESS_REMOTE_READ,
};
enum { BOTH = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT };

static bool successes;

/* The server's regions, all of the part of the buffer. */
enum region { FULL, PLAIN, READ_ONLY, REGIONS };
static const unsigned int rights[REGIONS] = {
	[FULL] = REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_GLOBAL,
	[PLAIN] = REMOTE | IBV_ACCESS_LOCAL_WRITE,
	[READ_ONLY] = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_FLUSH_GLOBAL,
};
static uint32_t keys[REGIONS];

/* One request of the client's. */
struct attempt {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum region region;
	int64_t offset; /* in the region */
	size_t length;	/* FLUSH only, like these: */
	uint32_t type;
	uint8_t level;
	enum ibv_wc_status wanted;
	uint32_t key_xor;
	unsigned int access; /* of the server's QP; 0: ALL */
	bool no_answers;     /* the server's QP has max_dest_rd_atomic 0 */
	bool ours_only;	     /* the server must be Verbena */
};

#define WRITES .opcode = IBV_WR_ATOMIC_WRITE
#define FLUSHES(t, l) .opcode = IBV_WR_FLUSH, .type = (t), .level = (l), .length = 64

/* What a peer's stack decides. */
static const struct attempt attempts[] = {
	{"ATOMIC WRITE", WRITES, .offset = 64},
	{"ATOMIC WRITE at the end", WRITES, .offset = PART_BYTES - 8},
	{"FLUSH of a range", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE)},
	{"FLUSH of no bytes", .opcode = IBV_WR_FLUSH, .type = IBV_FLUSH_GLOBAL},
	{"FLUSH of the region", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_MR)},
	{"FLUSH of the region, a range outside", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_MR),
	 .offset = 2 * PART_BYTES},
	{"FLUSH of a region that can't be written", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE),
	 .region = READ_ONLY},

	{"ATOMIC WRITE without the region's right", WRITES, .region = READ_ONLY,
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"ATOMIC WRITE after the end", WRITES, .offset = PART_BYTES,
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"ATOMIC WRITE across the end", WRITES, .offset = PART_BYTES - 4,
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"ATOMIC WRITE by a wrong key", WRITES, .key_xor = 1, .wanted = IBV_WC_REM_ACCESS_ERR},
	{"ATOMIC WRITE, misaligned", WRITES, .offset = 4, .wanted = IBV_WC_REM_INV_REQ_ERR},
	{"ATOMIC WRITE without the QP's right", WRITES, .access = NO_WRITE,
	 .wanted = IBV_WC_REM_INV_REQ_ERR},
	{"ATOMIC WRITE to a QP without answers", WRITES, .no_answers = true,
	 .wanted = IBV_WC_REM_INV_REQ_ERR},

	{"FLUSH after the end", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE),
	 .offset = PART_BYTES - 32, .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH before the beginning", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE), .offset = -32,
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH by a wrong key", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_MR), .key_xor = 1,
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH without the region's right", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE),
	 .region = PLAIN, .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH of the region without its right", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_MR),
	 .region = PLAIN, .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH, persistent", FLUSHES(IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE),
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH, persistent, of the region", FLUSHES(IBV_FLUSH_PERSISTENT, IBV_FLUSH_MR),
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH, global and persistent", FLUSHES(BOTH, IBV_FLUSH_RANGE),
	 .wanted = IBV_WC_REM_ACCESS_ERR},
	{"FLUSH without the QP's right", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE),
	 .access = NO_FLUSH, .wanted = IBV_WC_REM_INV_REQ_ERR},
	{"FLUSH, persistent, without the QP's right",
	 FLUSHES(IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE), .access = NO_PERSISTENT,
	 .wanted = IBV_WC_REM_INV_REQ_ERR},
	{"FLUSH, both, without one of the QP's rights", FLUSHES(BOTH, IBV_FLUSH_RANGE),
	 .access = NO_PERSISTENT, .wanted = IBV_WC_REM_INV_REQ_ERR},
	/* Linux 6.12 doesn't look; it has no room for the answer. */
	{"FLUSH to a QP without answers", FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE),
	 .no_answers = true, .ours_only = true, .wanted = IBV_WC_REM_INV_REQ_ERR},
};

static void connect_with(unsigned int access, uint8_t answers)
{
	struct qp_wish wish = {
		.send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
			    IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_FLUSH |
			    IBV_QP_EX_WITH_ATOMIC_WRITE,
		.access = access,
		.answers = answers,
	};

	reconnect(&wish);
}

static void regions_register(void)
{
	for (int i = 0; i < REGIONS; i++) {
		struct ibv_mr *mr = NULL;

		if (side.server)
			CHECK((mr = ibv_reg_mr(side.pd, side.buf + PART, PART_BYTES, rights[i])));
		keys[i] = mr ? (swap_key(mr->rkey), mr->rkey) : swap_key(0);
	}
	if (side.server) {
		CHECK(!ibv_reg_mr(side.pd, side.buf, BYTES,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_PERSISTENT));
		printf("a region that can be flushed to persistence: %s\n", strerror(errno));
		CHECK(errno == EINVAL);
	}
}

static uint64_t word_at(int64_t offset)
{
	uint64_t word;

	memcpy(&word, side.buf + PART + offset, sizeof(word));
	return word;
}

/* ------------------------------------------------------------------ single requests */

static struct ibv_qp_ex *wr_begin(uint64_t id)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(side.qp);

	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	return qp;
}

/* What an ATOMIC WRITE at the offset writes: on the wire as it lies in memory. */
static uint64_t word_of(int64_t offset)
{
	return 0x1122334455667700ull + (uint64_t)offset;
}

static struct ibv_wc attempt_post(const struct attempt *a, uint32_t key)
{
	struct ibv_qp_ex *qp = wr_begin(REQUEST_ID);
	uint64_t address = side.theirs.address + PART + (uint64_t)a->offset,
		 word = word_of(a->offset);

	ibv_wr_start(qp);
	if (a->opcode == IBV_WR_ATOMIC_WRITE)
		ibv_wr_atomic_write(qp, key ^ a->key_xor, address, &word);
	else
		ibv_wr_flush(qp, key ^ a->key_xor, address, a->length, a->type, a->level);
	CHECK(!ibv_wr_complete(qp));
	return completion(REQUEST_ID);
}

/* The server: only an ATOMIC WRITE that succeeds has changed its memory. */
static void memory_check(const struct attempt *a)
{
	bool wrote = a->opcode == IBV_WR_ATOMIC_WRITE && a->wanted == IBV_WC_SUCCESS;

	for (int64_t at = -8; at <= PART_BYTES; at += 8) {
		uint64_t wanted = wrote && at == a->offset ? word_of(at) : 0;

		if (word_at(at) != wanted)
			give_up("%s: %016llx at %lld", a->name, (unsigned long long)word_at(at),
				(long long)at);
	}
	memset(side.buf, 0, BYTES);
}

static void attempt_do(const struct attempt *a, uint32_t key)
{
	if (a->wanted != IBV_WC_SUCCESS)
		connect_with(a->access ? a->access : ALL, a->no_answers ? 0 : ANSWERS);
	if (!side.server) {
		struct ibv_wc wc = attempt_post(a, key);

		expect(a->name, wc.status, a->wanted);
		CHECK(wc.status || wc.opcode == (a->opcode == IBV_WR_FLUSH ? IBV_WC_FLUSH
									   : IBV_WC_ATOMIC_WRITE));
	}
	meet();
	if (side.server)
		memory_check(a);
	meet();
}

static void attempts_do(void)
{
	uint32_t theirs = swap_key(side.verbena);
	bool ours = side.server ? side.verbena : theirs;

	connect_with(ALL, ANSWERS);
	for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++)
		if (ours || !attempts[i].ours_only)
			attempt_do(&attempts[i], keys[attempts[i].region]);
}

/* By a window's key: it can be written through, but not flushed. */
static void window_do(void)
{
	static const struct attempt writes = {"ATOMIC WRITE through a window", WRITES,
					      .offset = 256};
	static const struct attempt flushes = {"FLUSH through a window",
					       FLUSHES(IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE),
					       .wanted = IBV_WC_REM_ACCESS_ERR};
	struct ibv_mw *mw = NULL;
	uint32_t key;

	connect_with(ALL, ANSWERS);
	CHECK(!side.server || (mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_2)));
	key = side.server ? bind_window(mw) : 0;
	key = side.server ? (swap_key(key), key) : swap_key(0);
	attempt_do(&writes, key);
	CHECK(!mw || !ibv_dealloc_mw(mw));
	CHECK(!side.server || (mw = ibv_alloc_mw(side.pd, IBV_MW_TYPE_1)));
	if (side.server) {
		struct ibv_mw_bind bind = {.wr_id = REQUEST_ID,
					   .send_flags = IBV_SEND_SIGNALED,
					   .bind_info = {.mr = side.mr,
							 .addr = (uintptr_t)side.buf + PART,
							 .length = PART_BYTES,
							 .mw_access_flags = REMOTE}};

		CHECK(!ibv_bind_mw(side.qp, mw, &bind));
		expect("ibv_bind_mw", completion(REQUEST_ID).status, IBV_WC_SUCCESS);
	}
	key = swap_key(mw ? mw->rkey : 0);
	key = mw ? mw->rkey : key;
	attempt_do(&flushes, key);
	CHECK(!mw || !ibv_dealloc_mw(mw));
}

/* ------------------------------------------------------------------ what both are for */

static void pattern_fill(uint32_t round)
{
	for (int i = 0; i < FLAG; i++)
		side.buf[PART + i] = (uint8_t)(i * 5 + (int)round);
}

static bool pattern_holds(uint32_t round)
{
	for (int i = 0; i < FLAG; i++)
		if (side.buf[PART + i] != (uint8_t)(i * 5 + (int)round))
			return false;
	return true;
}

/* The server sees the flag of the round, after all that was written before it. */
static void flag_wait(uint32_t round)
{
	const uint64_t *flag = (const uint64_t *)(side.buf + PART + FLAG);
	time_t until = time(NULL) + PATIENCE_S;

	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != round)
		if (time(NULL) > until)
			give_up("round %u: the flag is %llx", round, (unsigned long long)*flag);
	if (!pattern_holds(round))
		give_up("round %u: the flag came before the data", round);
}

/* Linux 6.12 repeats FLUSH with address 0, which only one of the whole region survives: it does so
 * when it has to wait for a slow peer. */
static uint8_t level_of(uint32_t round)
{
	return successes || round % 2 ? IBV_FLUSH_MR : IBV_FLUSH_RANGE;
}

/* WRITE, FLUSH of it, ATOMIC WRITE of a flag, posted as one. */
static void log_post(uint32_t round)
{
	struct ibv_qp_ex *qp = wr_begin(3ull * round);
	uint64_t at = side.theirs.address + PART, flag = round;

	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, keys[FULL], at);
	ibv_wr_set_sge(qp, side.mr->lkey, (uintptr_t)side.buf + PART, FLAG);
	qp->wr_id++;
	ibv_wr_flush(qp, keys[FULL], at, FLAG, IBV_FLUSH_GLOBAL, level_of(round));
	qp->wr_id++;
	ibv_wr_atomic_write(qp, keys[FULL], at + FLAG, &flag);
	CHECK(!ibv_wr_complete(qp));
}

static void log_do(void)
{
	uint32_t rounds = successes ? ROUNDS_MORE : ROUNDS;

	connect_with(ALL, ANSWERS);
	for (uint32_t round = 1; round <= rounds; round++) {
		if (!side.server) {
			pattern_fill(round);
			log_post(round);
			for (uint32_t i = 0; i < 3; i++)
				CHECK(completion(3ull * round + i).status == IBV_WC_SUCCESS);
		} else {
			flag_wait(round);
		}
		meet();
	}
	printf("%u rounds of WRITE, FLUSH, ATOMIC WRITE\n", rounds);
}

/* Sixteen of each at once, more than the server keeps answers for, with READs of what was written.
 */
static void many_post(uint32_t round)
{
	struct ibv_qp_ex *qp = wr_begin(0);
	uint64_t at = side.theirs.address + PART;

	ibv_wr_start(qp);
	for (uint32_t i = 0; i < DEPTH; i++) {
		uint64_t word = 1000ull * round + i;

		qp->wr_id = 3ull * i;
		ibv_wr_atomic_write(qp, keys[FULL], at + 8ull * i, &word);
		qp->wr_id++;
		ibv_wr_flush(qp, keys[FULL], at, 8ull * DEPTH, IBV_FLUSH_GLOBAL, level_of(i));
		qp->wr_id++;
		ibv_wr_rdma_read(qp, keys[FULL], at + 8ull * i);
		ibv_wr_set_sge(qp, side.mr->lkey, (uintptr_t)side.buf + PART + 8ull * i, 8);
	}
	CHECK(!ibv_wr_complete(qp));
}

static void many_do(void)
{
	uint32_t rounds = successes ? ROUNDS_MORE / 10 : ROUNDS;

	connect_with(ALL, ANSWERS);
	for (uint32_t round = 1; round <= rounds && !side.server; round++) {
		memset(side.buf, 0, BYTES);
		many_post(round);
		for (uint64_t i = 0; i < 3ull * DEPTH; i++)
			CHECK(completion(i).status == IBV_WC_SUCCESS);
		for (uint32_t i = 0; i < DEPTH; i++)
			CHECK(word_at(8 * i) == 1000ull * round + i);
	}
	meet();
	printf("%u rounds of %d ATOMIC WRITEs, FLUSHes and READs\n", rounds, DEPTH);
}

/* FLUSHes alone: the kernel doesn't count them among what the peer keeps answers for. */
static void flushes_do(void)
{
	uint32_t rounds = successes ? ROUNDS_MORE / 10 : ROUNDS;

	connect_with(ALL, 1);
	for (uint32_t round = 1; round <= rounds && !side.server; round++) {
		struct ibv_qp_ex *qp = wr_begin(0);

		ibv_wr_start(qp);
		for (uint32_t i = 0; i < 3 * DEPTH; i++) {
			qp->wr_id = i;
			ibv_wr_flush(qp, keys[FULL], side.theirs.address + PART, PART_BYTES,
				     IBV_FLUSH_GLOBAL, level_of(i));
		}
		CHECK(!ibv_wr_complete(qp));
		for (uint64_t i = 0; i < 3 * DEPTH; i++)
			expect("FLUSH of many", completion(i).status, IBV_WC_SUCCESS);
	}
	meet();
	printf("%u rounds of %d FLUSHes\n", rounds, 3 * DEPTH);
}

static void option_take(int option)
{
	successes = option == 's';
}

int main(int argc, char **argv)
{
	if (!peer_begin(argc, argv, "s", option_take))
		return 2;
	regions_register();
	if (!successes) {
		attempts_do();
		window_do();
	}
	log_do();
	many_do();
	flushes_do();
	printf("placement: all well\n");
	return 0;
}
