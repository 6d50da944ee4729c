/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much gets through a lossy path, in virtual time: one end streams messages to the other over a
 * link with a rate, a delay and a queue; batches of up to 64 KiB are lost as a whole, as the
 * kernel's UDP_SEGMENT sends are. Every figure is the same in every run, so the bounds are exact.
 *
 * usage: goodput            prints the table; exit code 1 if a bound doesn't hold
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "transport/state.h"

enum { BATCH = 65536, DEPTH = 128, HEAP = 1 << 13 };

enum oddity {
	NOTHING,
	DROPS,	 /* the responder drops packets after a missing one */
	UNPACED, /* the pacer is off */
};

struct path_case {
	const char *name;
	uint8_t opcode;
	uint32_t mtu, message;
	uint32_t lose;	       /* lost batches per million */
	uint32_t lose_packets; /* packets lost in addition, per million */
	uint64_t one_way_ns;
	uint32_t megabytes; /* megabytes per second */
	uint32_t queue;	    /* most bytes that wait for the link; more are lost */
	double least;	    /* lower bound, relative to the last loss-free case; 0: this is one */
	enum oddity oddity;
};

struct arrival {
	uint64_t at;
	uint32_t size;
	uint8_t to, bytes[WIRE_PACKET_MAX];
};

struct bench {
	const struct path_case *c;
	struct rng rng;
	struct tp *tp[2];
	struct tp_request ring[2][DEPTH];
	_Alignas(struct packet) uint8_t early[2][TP_EARLY_BYTES];
	uint64_t now, completed, overflowed;
	uint64_t sender_free[2], link_free[2]; /* from when on its processor, its link is free */
	uint32_t batch_left[2];
	bool batch_lost[2];
	/* Arrivals in order, for each direction. */
	struct arrival *queue[2];
	uint32_t head[2], tail[2];
};

struct end {
	struct bench *bench;
	int index;
	uint32_t posted;
};

static struct bench bench;
static struct end ends[2] = {{&bench, 0, 0}, {&bench, 1, 0}};

static bool fetch(void *owner, uint32_t count, uint32_t offset, uint8_t *to, uint32_t n)
{
	(void)owner, (void)count, (void)offset, (void)to, (void)n;
	return true;
}

static enum ibv_wc_status check(void *owner, uint32_t count)
{
	(void)owner, (void)count;
	return IBV_WC_SUCCESS;
}

static bool deliver(void *owner, uint32_t count, uint32_t offset, const uint8_t *from, uint32_t n,
		    bool last)
{
	(void)owner, (void)count, (void)offset, (void)from, (void)n, (void)last;
	return true;
}

static void post(struct end *end)
{
	end->bench->ring[end->index][end->posted++ % DEPTH] = (struct tp_request){
		.opcode = end->bench->c->opcode, .length = end->bench->c->message};
	tp_post(end->bench->tp[end->index]);
}

static uint32_t to_post, rtt_us, window_kb; /* results at the end of a run */

static void pull_events(int i)
{
	struct tp_event e;

	while (tp_next_event(bench.tp[i], &e)) {
		if (e.kind != TP_COMPLETED)
			continue;
		if (e.status != IBV_WC_SUCCESS)
			abort();
		bench.completed += bench.c->message;
		to_post++;
	}
}

static enum tp_take receive_take(void *owner, const struct tp_head *head, uint32_t *room)
{
	(void)owner, (void)head;
	*room = 1u << 31;
	return TP_TAKEN;
}

static bool receive_place(void *owner, uint32_t offset, const uint8_t *from, uint32_t n, bool last)
{
	(void)owner, (void)offset, (void)from, (void)n, (void)last;
	return true;
}

static uint32_t receives_left(void *owner)
{
	(void)owner;
	return UINT32_MAX;
}

static enum tp_access access_granted(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				     uint32_t right)
{
	(void)owner, (void)addr, (void)length, (void)rkey, (void)right;
	return TP_ACCESS_OK;
}

static bool write_here(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from, uint32_t n,
		       bool last)
{
	(void)owner, (void)addr, (void)rkey, (void)from, (void)n, (void)last;
	return true;
}

static bool read_here(void *owner, uint64_t addr, uint32_t rkey, uint8_t *to, uint32_t n)
{
	(void)owner, (void)addr, (void)rkey, (void)to, (void)n;
	return true;
}

static const struct tp_world world = {
	.fetch = fetch,
	.check = check,
	.deliver = deliver,
	.receive_take = receive_take,
	.receive_place = receive_place,
	.receives_left = receives_left,
	.access = access_granted,
	.write = write_here,
	.read = read_here,
};

static void begin(const struct path_case *c)
{
	static const struct ibv_qp_attr attr = {.max_rd_atomic = 16,
						.max_dest_rd_atomic = 16,
						.timeout = 14,
						.retry_cnt = 7,
						.rnr_retry = 7};
	struct tp_path path = {.mtu = c->mtu, .local_qpn = 1, .remote_qpn = 2, .pkey = WIRE_PKEY};

	memset(&bench, 0, sizeof(bench));
	bench.c = c;
	bench.rng.state = 42;
	for (int i = 0; i < 2; i++) {
		bench.tp[i] = malloc(tp_size());
		bench.queue[i] = malloc(HEAP * sizeof(struct arrival));
		if (!bench.tp[i] || !bench.queue[i])
			abort();
		ends[i].posted = 0;
		tp_init(bench.tp[i], IBV_QPT_RC, &world, &ends[i], bench.ring[i], DEPTH);
		if (c->oddity != DROPS)
			tp_keep_early(bench.tp[i], bench.early[i]);
		tp_receive_ready(bench.tp[i], &path, &attr);
		tp_send_ready(bench.tp[i], &attr);
	}
}

/* Sends a packet: into the link's queue, if there is room and its batch isn't lost. */
static void transmit(int from, const uint8_t *bytes, uint32_t size)
{
	const struct path_case *c = bench.c;
	uint64_t cost = (uint64_t)(size + 62) * 1000 / c->megabytes;
	uint64_t begin_at = bench.link_free[from] > bench.now ? bench.link_free[from] : bench.now;

	if (bench.now > bench.sender_free[from])
		bench.batch_left[from] = 0;		/* the sender paused: the batch ended */
	bench.sender_free[from] = bench.now + cost / 2; /* twice as fast as the link */
	if (size > bench.batch_left[from]) {
		bench.batch_left[from] = BATCH;
		bench.batch_lost[from] = rng_chance(&bench.rng, c->lose);
	}
	bench.batch_left[from] -= size;
	if (bench.batch_lost[from] || rng_chance(&bench.rng, c->lose_packets))
		return;
	if ((begin_at - bench.now) * c->megabytes / 1000 > c->queue) {
		bench.overflowed++;
		return;
	}
	struct arrival *a = &bench.queue[!from][bench.tail[!from]++ % HEAP];

	if (bench.tail[!from] - bench.head[!from] >= HEAP)
		abort();
	bench.link_free[from] = begin_at + cost;
	a->at = bench.link_free[from] + c->one_way_ns;
	a->size = size;
	memcpy(a->bytes, bytes, size);
}

static void send(int i)
{
	static uint8_t packet[WIRE_PACKET_MAX];

	while (bench.sender_free[i] <= bench.now) {
		if (bench.c->oddity == UNPACED)
			bench.tp[i]->pacer.left = UINT32_MAX;
		uint32_t size = tp_next(bench.tp[i], bench.now, packet);

		pull_events(i);
		if (!size) {
			bench.batch_left[i] = 0; /* the batch ends here */
			return;
		}
		transmit(i, packet, size);
	}
}

static void arrive(int i)
{
	uint64_t now = bench.now;

	while (bench.head[i] != bench.tail[i] && bench.queue[i][bench.head[i] % HEAP].at <= now) {
		struct arrival *a = &bench.queue[i][bench.head[i]++ % HEAP];
		struct packet p;

		if (packet_decode(a->bytes, a->size + WIRE_ICRC, &p) == PACKET_OK)
			tp_packet(bench.tp[i], &p, now);
		pull_events(i);
	}
	if (tp_deadline(bench.tp[i]) <= now)
		tp_expire(bench.tp[i], now);
	pull_events(i);
}

static uint64_t next_event(void)
{
	uint64_t next = TP_NEVER;

	for (int i = 0; i < 2; i++) {
		uint64_t at = tp_deadline(bench.tp[i]);

		if (bench.head[i] != bench.tail[i] && bench.queue[i][bench.head[i] % HEAP].at < at)
			at = bench.queue[i][bench.head[i] % HEAP].at;
		if (tp_ready(bench.tp[i], bench.now) && bench.sender_free[i] < at)
			at = bench.sender_free[i];
		next = at < next ? at : next;
	}
	return next;
}

/* Returns bytes per second. */
static double run(const struct path_case *c, uint64_t ns)
{
	begin(c);
	to_post = DEPTH;
	while (bench.now < ns) {
		for (; to_post; to_post--)
			post(&ends[0]);
		for (int i = 0; i < 2; i++)
			send(i);
		uint64_t next = next_event();

		if (next == TP_NEVER)
			abort();
		bench.now = next > bench.now ? next : bench.now;
		for (int i = 0; i < 2; i++)
			arrive(i);
	}
	rtt_us = bench.tp[0]->congestion.rtt_ns / 1000;
	window_kb = bench.tp[0]->congestion.window >> 10;
	for (int i = 0; i < 2; i++) {
		free(bench.queue[i]);
		free(bench.tp[i]);
	}
	return (double)bench.completed / (double)ns;
}

#define W IBV_WR_RDMA_WRITE
#define R IBV_WR_RDMA_READ
static const struct path_case cases[] = {
	{"write 64K", W, 4096, 65536, 0, 0, 50000, 3000, 1 << 22, 0, NOTHING},
	{"write 64K, 1% of batches", W, 4096, 65536, 10000, 0, 50000, 3000, 1 << 22, 0.5, NOTHING},
	{"write 64K, 5% of batches", W, 4096, 65536, 50000, 0, 50000, 3000, 1 << 22, 0.5, NOTHING},
	{"write 64K, 1% of packets", W, 4096, 65536, 0, 10000, 50000, 3000, 1 << 22, 0.5, NOTHING},
	{"the same, which are dropped early", W, 4096, 65536, 0, 10000, 50000, 3000, 1 << 22, 0.3,
	 DROPS},
	{"write 64K, 600 MB/s", W, 4096, 65536, 0, 0, 50000, 600, 1 << 22, 0, NOTHING},
	{"write 64K, 600 MB/s, 1% of packets", W, 4096, 65536, 0, 10000, 50000, 600, 1 << 22, 0.5,
	 NOTHING},
	{"the same, dropped", W, 4096, 65536, 0, 10000, 50000, 600, 1 << 22, 0.5, DROPS},
	{"write 64K, mtu 1024", W, 1024, 65536, 0, 0, 50000, 3000, 1 << 22, 0, NOTHING},
	{"write 64K, mtu 1024, 1% of batches", W, 1024, 65536, 10000, 0, 50000, 3000, 1 << 22, 0.5,
	 NOTHING},
	{"write 64K, mtu 1024, 1% of packets", W, 1024, 65536, 0, 10000, 50000, 3000, 1 << 22, 0.1,
	 NOTHING},
	{"read 64K", R, 4096, 65536, 0, 0, 50000, 3000, 1 << 22, 0, NOTHING},
	{"read 64K, 1% of batches", R, 4096, 65536, 10000, 0, 50000, 3000, 1 << 22, 0.5, NOTHING},
	{"read 1M", R, 4096, 1 << 20, 0, 0, 50000, 3000, 1 << 22, 0, NOTHING},
	{"read 1M, 1% of batches", R, 4096, 1 << 20, 10000, 0, 50000, 3000, 1 << 22, 0.5, NOTHING},
	{"write 64K, 10 us", W, 4096, 65536, 0, 0, 5000, 3000, 1 << 22, 0, NOTHING},
	{"write 64K, 10 us, 1% of batches", W, 4096, 65536, 10000, 0, 5000, 3000, 1 << 22, 0.5,
	 NOTHING},
	{"write 64K, 10 us, queue 208K", W, 4096, 65536, 0, 0, 5000, 3000, 212992, 0.7, NOTHING},
	{"write 64K, 100 us, queue 208K", W, 4096, 65536, 0, 0, 50000, 3000, 212992, 0.6, NOTHING},
	{"write 64K, 10 ms", W, 4096, 65536, 0, 0, 5000000, 1000, 1 << 22, 0, NOTHING},
	{"write 64K, 10 ms, 1% of batches", W, 4096, 65536, 10000, 0, 5000000, 1000, 1 << 22, 0.3,
	 NOTHING},
	{"write 64K, 10 ms, queue 4M", W, 4096, 65536, 0, 0, 5000000, 100, 1 << 22, 0, NOTHING},
	{"the same, queue 256K, unpaced", W, 4096, 65536, 0, 0, 5000000, 100, 1 << 18, 0.1,
	 UNPACED},
	{"the same, queue 256K", W, 4096, 65536, 0, 0, 5000000, 100, 1 << 18, 0.5, NOTHING},
	{"write 64K, 40 ms, queue 4M", W, 4096, 65536, 0, 0, 20000000, 50, 1 << 22, 0, NOTHING},
	{"the same, queue 128K, unpaced", W, 4096, 65536, 0, 0, 20000000, 50, 1 << 17, 0.1,
	 UNPACED},
	{"the same, queue 128K", W, 4096, 65536, 0, 0, 20000000, 50, 1 << 17, 0.4, NOTHING},
	{"write 8", W, 4096, 8, 0, 0, 5000, 3000, 1 << 22, 0, NOTHING},
};

int main(void)
{
	double whole = 0;
	int failed = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct path_case *c = &cases[i];
		double rate = run(c, c->one_way_ns > 1000000 ? 2000000000 : 200000000);

		if (c->least == 0)
			whole = rate;
		printf("%-36s %7.3f GB/s  %.2f  rtt %u us window %u KB overflowed %u\n", c->name,
		       rate, rate / whole, rtt_us, window_kb, (uint32_t)bench.overflowed);
		if (c->least != 0 && rate < c->least * whole) {
			printf("  less than %.2f\n", c->least);
			failed = 1;
		}
	}
	return failed;
}
