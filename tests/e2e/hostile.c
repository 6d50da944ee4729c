/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that violates the protocol (end B): it writes arbitrary values into the memory that it
 * shares with end A, at random moments during traffic. A must neither crash nor hang, no memory
 * outside its regions may change, its other connections continue, and it can destroy everything.
 * See rig.h. The seed is printed; HOSTILE_SEED repeats it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rig.h"

/* The layout of a link, see src/shm/ring.h and link.h. */
enum { RING_SLOT = 64, RING_SLOTS = 1024, RING_BYTES = RING_SLOT * RING_SLOTS, RINGS_AT = 4096 };
#define RING_START (0u - 4 * RING_SLOTS)
#define RECORD_MSN (0u - 1024u)
#define QP_EPOCH 0xfeu /* the low bits of the first one */
enum { KINDS = 17, CANARY = 0xc5, GUARD = 65536, BYTES = 65536, ROUNDS = 25 };

struct record {
	uint32_t seq;
	uint8_t kind, flags;
	uint16_t slots;
	uint32_t dst, src, msn, ack, imm, length;
};

static unsigned int seed;

static uint32_t any(uint32_t below)
{
	uint32_t value = (uint32_t)rand_r(&seed) << 16 ^ (uint32_t)rand_r(&seed);

	return below ? value % below : value;
}

/* The hostile end ----------------------------------------------------------------------------- */

static size_t link_bytes(void)
{
	return RINGS_AT + 2 * (size_t)RING_BYTES;
}

/* Maps the link's memory once more, because B's library gives the link up at some point. */
static uint8_t *link_find(struct rig *rig)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	char line[512];

	CHECK(rig, maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:verbena-link") && strstr(line, "rw"))
			start = strtoul(line, NULL, 16);
	fclose(maps);
	CHECK(rig, start);
	uint8_t *link = mremap((void *)start, 0, link_bytes(), MREMAP_MAYMOVE); /* NOLINT */

	CHECK(rig, link != MAP_FAILED);
	return link;
}

static void scribble_bytes(const struct end *end, uint8_t *link)
{
	size_t at = any(4) ? any((uint32_t)link_bytes()) : any(256);
	size_t length = 1 + any(any(8) ? 16 : 4096);

	(void)end;
	for (size_t i = 0; i < length && at + i < link_bytes(); i++)
		link[at + i] = (uint8_t)any(256);
}

/* Writes impossible positions into the counters of both rings. */
static void scribble_positions(const struct end *end, uint8_t *link)
{
	uint32_t value = any(3) ? any(0) : any(4096);

	(void)end;
	memcpy(link + any(4) * 64, &value, sizeof(value));
}

/* What a header's sequence word is at a position. */
static uint32_t mark_of(uint32_t position)
{
	return position | 1;
}

/* The position at which the ring's next record is expected. */
static uint32_t next_position(const uint8_t *ring)
{
	uint32_t position = RING_START;

	for (uint32_t slot = 0; slot < RING_SLOTS; slot++) {
		struct record old;

		memcpy(&old, ring + (size_t)slot * RING_SLOT, sizeof(old));
		uint32_t at = old.seq / RING_SLOTS * RING_SLOTS + slot;

		if (old.seq == mark_of(at) && old.slots && old.slots < 200 &&
		    (int32_t)(at + old.slots - position) > 0)
			position = at + old.slots;
	}
	return position;
}

/* Writes records that look valid: the expected number, known kinds, A's and B's QPs. */
static void scribble_records(const struct end *end, uint8_t *link)
{
	uint32_t key[2] = {end->peer.rkey, end->peer.lkey};

	for (int side = 0; side < 2; side++) {
		uint8_t *ring = link + RINGS_AT + (size_t)side * RING_BYTES;
		uint32_t position = next_position(ring);
		uint8_t *at = ring + (size_t)(position % RING_SLOTS) * RING_SLOT;
		uint32_t room = RING_SLOTS - position % RING_SLOTS;
		struct record record = {
			.kind = (uint8_t)any(KINDS),
			.flags = (uint8_t)any(256),
			.slots = (uint16_t)(any(8) ? 1 + any(room < 64 ? room : 64) : any(2000)),
			.dst = end->peer.qpn | (QP_EPOCH + any(4)) << 24,
			.src = end->qp->qp_num | (QP_EPOCH + any(4)) << 24,
			.msn = any(2) ? RECORD_MSN + any(64) : any(0),
			.ack = any(2) ? RECORD_MSN + any(64) : any(0),
			.imm = any(2) ? any(40) : any(0),
			.length = any(2) ? any(8192) : any(0),
		};
		uint64_t target = end->peer.addr + any(2 * BYTES);

		for (uint32_t i = sizeof(record); i < RING_SLOT * (room < 4 ? room : 4); i++)
			at[i] = (uint8_t)any(256);
		memcpy(at + sizeof(record), &target, sizeof(target));
		memcpy(at + sizeof(record) + 8, &key[any(2)], sizeof(uint32_t));
		record.seq = 0;
		memcpy(at, &record, sizeof(record));
		__atomic_store_n((uint32_t *)(void *)at, mark_of(position), __ATOMIC_RELEASE);
	}
}

typedef void scribble_fn(const struct end *end, uint8_t *link);

static void attack(struct end *end, scribble_fn *scribble)
{
	uint8_t *link = link_find(end->rig);
	double until = now_ms() + 4 + any(12);

	while (now_ms() < until) {
		struct ibv_wc wc;

		scribble(end, link);
		/* Now and then B also continues as a program; errors there concern only B. */
		if (scribble != scribble_records && any(4) == 0 && ibv_poll_cq(end->scq, 1, &wc))
			end_send(end, IBV_WR_SEND, 1, 0, 8, 0);
		if (any(3) == 0)
			usleep(any(200));
	}
}

/* The victim ---------------------------------------------------------------------------------- */

struct victim {
	struct end end;
	uint8_t *area; /* guard, registered memory, guard */
	struct ibv_mr *mr;
};

static void victim_memory(struct victim *victim, struct rig *rig)
{
	struct end *end = &victim->end;

	victim->area = mmap(NULL, 2 * GUARD + BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(rig, victim->area != MAP_FAILED);
	memset(victim->area, CANARY, 2 * GUARD + BYTES);
	OK(rig, ibv_dereg_mr(end->mr));
	munmap(end->buf, end->opt.bytes);
	end->buf = victim->area + GUARD;
	CHECK(rig,
	      (end->mr = ibv_reg_mr(end->pd, end->buf, BYTES,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)));
}

static void victim_intact(const struct victim *victim)
{
	for (size_t i = 0; i < GUARD; i++) {
		CHECK_EQ(victim->end.rig, victim->area[i], CANARY);
		CHECK_EQ(victim->end.rig, victim->area[GUARD + BYTES + i], CANARY);
	}
}

/* Traffic of all kinds for a while; errors are allowed. */
static void victim_traffic(struct victim *victim)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct end *end = &victim->end;
	double until = now_ms() + 25;

	while (now_ms() < until) {
		enum ibv_wr_opcode opcode = opcodes[any(4)];
		struct ibv_wc wc;

		end_recv(end, 1, any(4096), any(BYTES - 4096));
		end_send(end, opcode, 2, 8 * any(1000),
			 opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : any(20000), 8 * any(1000));
		for (int i = 0; i < 8; i++) {
			ibv_poll_cq(end->scq, 1, &wc);
			ibv_poll_cq(end->rcq, 1, &wc);
		}
	}
}

/* A connection of the victim with itself, which is independent of the hostile link. */
static void victim_works(struct rig *rig)
{
	struct end one, other;

	end_open(&one, rig, NULL);
	end_open(&other, rig, NULL);
	end_init(&one);
	end_init(&other);
	OK(rig, ibv_query_gid(rig->ctx, 1, 0, &one.peer.gid));
	other.peer.gid = one.peer.gid;
	one.peer.qpn = other.qp->qp_num;
	other.peer.qpn = one.qp->qp_num;
	one.peer.psn = other.psn;
	other.peer.psn = one.psn;
	end_rtr(&one);
	end_rtr(&other);
	end_rts(&one);
	end_rts(&other);
	OK(rig, end_recv(&other, 1, 0, 64));
	OK(rig, end_send(&one, IBV_WR_SEND, 2, 0, 64, 0));
	wc_expect(&one, one.scq, 2, IBV_WC_SUCCESS);
	wc_expect(&other, other.rcq, 1, IBV_WC_SUCCESS);
	end_close(&one);
	end_close(&other);
}

/* Both ends of one round. The hostile process exits without clean-up. */
static void hostile_round(struct rig *rig, scribble_fn *scribble)
{
	struct end_options opt = {.bytes = BYTES, .cqe = 4096, .rnr_retry = 3};
	struct victim victim;
	double began;

	end_open(&victim.end, rig, &opt);
	if (rig->role == RIG_A)
		victim_memory(&victim, rig);
	end_connect(&victim.end);
	for (uint64_t i = 0; i < 16; i++)
		OK(rig, end_recv(&victim.end, i, 0, 4096));
	/* One message each way, so that the link exists. */
	rig_sync(rig);
	OK(rig, end_send(&victim.end, IBV_WR_SEND, 9, 0, 8, 0));
	wc_expect(&victim.end, victim.end.scq, 9, IBV_WC_SUCCESS);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		attack(&victim.end, scribble);
		rig_sync(rig);
		_exit(0);
	}
	victim_traffic(&victim);
	rig_sync(rig);
	victim_intact(&victim);
	victim_works(rig);
	began = now_ms();
	OK(rig, ibv_destroy_qp(victim.end.qp));
	victim.end.qp = NULL;
	end_close(&victim.end);
	CHECK(rig, now_ms() - began < RIG_SOON_MS);
	victim_intact(&victim);
	OK(rig, ibv_close_device(rig->ctx));
	_exit(0);
}

static void hostile_bytes(struct rig *rig)
{
	hostile_round(rig, scribble_bytes);
}

static void hostile_positions(struct rig *rig)
{
	hostile_round(rig, scribble_positions);
}

static void hostile_records(struct rig *rig)
{
	hostile_round(rig, scribble_records);
}

/* The ring that the process of this QP writes, found by a record that it has sent. */
static uint8_t *ring_of(uint8_t *link, uint32_t qpn)
{
	struct record first;

	memcpy(&first, link + RINGS_AT, sizeof(first));
	return link + RINGS_AT + ((first.src & 0xffffff) == qpn ? 0 : (size_t)RING_BYTES);
}

static void one_message_each_way(struct end *end)
{
	OK(end->rig, end_recv(end, 1, 0, 4096));
	rig_sync(end->rig);
	OK(end->rig, end_send(end, IBV_WR_SEND, 2, 0, 8, 0));
	wc_expect(end, end->scq, 2, IBV_WC_SUCCESS);
	wc_expect(end, end->rcq, 1, IBV_WC_SUCCESS);
}

/* Invalid records that A detects end the link, but don't prevent a new one between the two
 * processes. */
static void hostile_again(struct rig *rig)
{
	struct end_options opt = {.timeout = 14, .retry_cnt = 7};
	struct end end;

	end_pair(&end, rig, &opt);
	one_message_each_way(&end);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		uint8_t *link = link_find(rig);

		uint8_t *ring = ring_of(link, end.qp->qp_num);
		uint32_t position = next_position(ring);
		struct record record = {.seq = mark_of(position), .slots = 0xffff};

		memcpy(ring + (size_t)(position % RING_SLOTS) * RING_SLOT, &record, sizeof(record));
		munmap(link, link_bytes());
		rig_sync(rig);
		/* What B sends now is lost with the link, and B gets an error. */
		OK(rig, end_send(&end, IBV_WR_SEND, 3, 0, 8, 0));
		wc_expect(&end, end.scq, 3, IBV_WC_RETRY_EXC_ERR);
	} else {
		struct patience patience = patience_of(RIG_SOON_MS);
		struct ibv_wc wc;

		while (end_state(&end) != IBV_QPS_ERR && !patience_over(&patience))
			ibv_poll_cq(end.scq, 1, &wc);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		rig_sync(rig);
	}
	OK(rig, ibv_destroy_qp(end.qp));
	end.qp = NULL;
	end_close(&end);
	rig_sync(rig);
	victim_works(rig);
	end_pair(&end, rig, &opt);
	one_message_each_way(&end);
	end_close(&end);
}

int main(void)
{
	static const struct rig_test tests[] = {
		{"hostile_bytes", hostile_bytes},
		{"hostile_positions", hostile_positions},
		{"hostile_records", hostile_records},
		{"hostile_again", hostile_again},
	};
	enum { TESTS = sizeof(tests) / sizeof(tests[0]) };
	const char *given = getenv("HOSTILE_SEED");
	unsigned int passed = 0, failed = 0;

	seed = given ? (unsigned int)strtoul(given, NULL, 10) : (unsigned int)now_ms();
	for (unsigned int i = 0; i < TESTS * 2 * ROUNDS; i++) {
		enum rig_carrier carrier = i % 2 ? RIG_RING : RIG_LOCAL;
		unsigned int before = seed;

		if (rig_run(&tests[i / 2 % TESTS], carrier)) {
			passed++;
		} else {
			printf("FAIL  %s over %s (HOSTILE_SEED=%u)\n", tests[i / 2 % TESTS].name,
			       rig_carrier_names[carrier], before);
			failed++;
		}
		fflush(stdout);
		any(0); /* another seed for the next round's processes */
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed ? 1 : 0;
}
