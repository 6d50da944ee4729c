/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtual clocks of ports (fabric/clocks.h), driven by flows that always have something to
 * send, in the order of their times: shares of links, credits, lanes, waiting, and memory that a
 * hostile process writes to. Nothing here depends on a clock.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fabric/clocks.h"
#include "net.h"

enum { SLOW = 1000, FLOWS = 8 };
#define BEGIN 5000000000000ull
#define SECOND 1000000000ull
#define HDR_4X 200000u /* Mb/s */

/* A net with clocks, and flows. */
struct timed {
	struct net *net;
	struct clocks clocks;
	void *memory;
	struct flow {
		struct clocks_way way;
		struct clocks_hop hop[ROUTE_HOPS_MAX];
		uint64_t next, bytes;
	} flow[FLOWS];
	unsigned int flows;
};

static void timed_begin(struct timed *timed)
{
	struct net *net = net_create();
	size_t bytes = (clocks_bytes(net->fabric.header->ports) + 63) & ~(size_t)63;

	net_configure(net);
	*timed = (struct timed){.net = net, .memory = aligned_alloc(64, bytes)};
	if (!timed->memory)
		abort();
	memset(timed->memory, 0, bytes);
	clocks_locate(&timed->clocks, timed->memory, net->fabric.header->ports, SLOW);
}

static void timed_end(struct timed *timed)
{
	net_free(timed->net);
	free(timed->memory);
}

/* The memory of the ways that tests have one at a time. */
static struct clocks_hop one_hop[ROUTE_HOPS_MAX];

static void way_of(struct timed *timed, uint32_t node, uint16_t lid, uint8_t sl,
		   struct clocks_way *way)
{
	const struct route_query query = {
		.port = net_row(timed->net, node, 1), .destination = lid, .sl = sl, .pkey = 0xffff};
	struct fabric_route route;

	fabric_route_find(&timed->net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_OK);
	clocks_way_set(&timed->clocks, way, &timed->net->fabric, &route);
}

static struct flow *flow_add(struct timed *timed, uint32_t node, uint16_t lid, uint8_t sl)
{
	struct flow *flow = &timed->flow[timed->flows++];

	flow->way = (struct clocks_way){.room = ROUTE_HOPS_MAX, .hop = flow->hop};
	way_of(timed, node, lid, sl, &flow->way);
	flow->next = BEGIN;
	return flow;
}

/* All flows send for so long. */
static void flows_run(struct timed *timed, uint64_t ns)
{
	for (;;) {
		struct flow *flow = timed->flow;
		struct clocks_passage passage;

		for (unsigned int i = 1; i < timed->flows; i++)
			if (timed->flow[i].next < flow->next)
				flow = &timed->flow[i];
		if (flow->next >= BEGIN + ns)
			return;
		passage = clocks_pass(&timed->clocks, &flow->way, CLOCKS_PIECE, BEGIN, flow->next,
				      flow->next);
		assert_true(passage.free >= flow->next && passage.arrived >= flow->next);
		flow->next = passage.free;
		flow->bytes += CLOCKS_PIECE;
	}
}

/* That a flow has got this share of a 4X HDR link in so long, in percent. */
static void share_is(const struct flow *flow, uint64_t ns, unsigned int percent)
{
	uint64_t all = ns / SLOW * HDR_4X / 8000;

	assert_in_range(flow->bytes * 100, all * percent - all, all * percent + all);
}

static uint64_t waited_ms(struct timed *timed, uint32_t node, unsigned int number)
{
	uint64_t ticks = 0;

	for (uint8_t vl = 0; vl < FABRIC_VLS; vl++)
		ticks += clocks_wait_ticks(&timed->clocks, net_row(timed->net, node, number), vl);
	return ticks * SLOW / 1000;
}

/* H4's LID by the cable that H3's goes by, or by the other one. */
static void cable_choose(struct timed *timed, uint8_t number)
{
	struct fabric *fabric = &timed->net->fabric;

	fabric->unicast[(size_t)fabric->nodes[NODE_S1].switch_index * FABRIC_LFT_ENTRIES + LID_H4] =
		number ^ 0xff;
}

static void one_piece(void **state)
{
	struct timed timed;
	struct clocks_way way = {.room = ROUTE_HOPS_MAX, .hop = one_hop};
	struct clocks_passage passage;

	(void)state;
	timed_begin(&timed);
	for (uint32_t row = 0; row < timed.net->fabric.header->ports; row++)
		timed.net->fabric.ports[row].cable_delay_ns = 100;
	way_of(&timed, NODE_H1, LID_H3, 0, &way);
	assert_int_equal(way.hops, 3);
	/* 1000 bytes at 25 GB/s, and three cables, a thousand times slower. */
	passage = clocks_pass(&timed.clocks, &way, 1000, BEGIN, BEGIN, BEGIN);
	assert_int_equal(passage.free, BEGIN + 40 * SLOW);
	assert_int_equal(passage.arrived, BEGIN + 40 * SLOW + 300 * SLOW);
	/* The next one, at the same moment, waits for it, and a third one, later, doesn't. */
	passage = clocks_pass(&timed.clocks, &way, 1000, BEGIN, BEGIN, BEGIN);
	assert_int_equal(passage.arrived, BEGIN + 80 * SLOW + 300 * SLOW);
	passage =
		clocks_pass(&timed.clocks, &way, 1, BEGIN + SECOND, BEGIN + SECOND, BEGIN + SECOND);
	assert_int_equal(passage.arrived, BEGIN + SECOND + 40 + 300 * SLOW);
	assert_int_equal(waited_ms(&timed, NODE_H1, 1), 0);
	/* To itself: no cable. */
	way_of(&timed, NODE_H1, LID_H1, 0, &way);
	passage = clocks_pass(&timed.clocks, &way, 1000, BEGIN, BEGIN, BEGIN);
	assert_int_equal(passage.arrived, BEGIN);
	timed_end(&timed);
}

static void rates(void **state)
{
	static const struct {
		uint8_t width, basic, ext, ext2;
		uint32_t mbps;
	} rates[] = {
		{1, 1, 0, 0, 2000},   {2, 1, 0, 0, 8000},     {8, 2, 0, 0, 48000},
		{2, 4, 0, 0, 32000},  {2, 4, 1, 0, 54544},    {2, 4, 2, 0, 100000},
		{2, 4, 4, 0, 200000}, {16, 4, 8, 0, 200000},  {2, 4, 8, 1, 800000},
		{0, 0, 0, 0, 2000},   {0xff, 4, 4, 0, 50000},
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof rates / sizeof rates[0]; i++) {
		struct fabric_port port = {0};

		port.info[INFO_WIDTH_ACTIVE] = rates[i].width;
		port.info[INFO_SPEED_ACTIVE_ENABLED] = (uint8_t)(rates[i].basic << 4);
		port.info[INFO_EXT_ACTIVE_SUPPORTED] = (uint8_t)(rates[i].ext << 4);
		port_set_ext2(&port, rates[i].ext2, 0, 0);
		assert_int_equal(port_data_mbps(&port), rates[i].mbps);
	}
}

static void one_cable_or_two(void **state)
{
	struct timed timed;

	(void)state;
	for (unsigned int cable = 7; cable <= 8; cable++) {
		timed_begin(&timed);
		cable_choose(&timed, (uint8_t)cable);
		struct flow *a = flow_add(&timed, NODE_H1, LID_H3, 0);
		struct flow *b = flow_add(&timed, NODE_H2, LID_H4, 0);

		flows_run(&timed, SECOND);
		share_is(a, SECOND, cable == 7 ? 50 : 100);
		share_is(b, SECOND, cable == 7 ? 50 : 100);
		/* The ports before the cable wait for credits, the cable itself never does. */
		assert_in_range(waited_ms(&timed, NODE_H1, 1), cable == 7 ? 480 : 0,
				cable == 7 ? 520 : 0);
		assert_in_range(waited_ms(&timed, NODE_H2, 1), cable == 7 ? 480 : 0,
				cable == 7 ? 520 : 0);
		assert_int_equal(waited_ms(&timed, NODE_S1, 7), 0);
		timed_end(&timed);
	}
}

/* Several QPs of one adapter share its port. Opposite directions don't share anything. */
static void one_port(void **state)
{
	struct timed timed;

	(void)state;
	timed_begin(&timed);
	for (int i = 0; i < 4; i++)
		flow_add(&timed, NODE_H1, i & 1 ? LID_H3 : LID_H4, 0);
	struct flow *back = flow_add(&timed, NODE_H3, LID_H1, 0);

	flows_run(&timed, SECOND);
	for (int i = 0; i < 4; i++)
		share_is(&timed.flow[i], SECOND, 25);
	share_is(back, SECOND, 100);
	timed_end(&timed);
}

/* H3's cable carries a quarter, and two adapters send to it. What goes by the same lane to H4 is
 * slowed as well; on another lane it isn't. */
static void credit_stalls(void **state)
{
	struct timed timed;

	(void)state;
	for (uint8_t sl = 0; sl < 2; sl++) {
		timed_begin(&timed);
		cable_choose(&timed, 7);
		net_port(timed.net, NODE_S2, 1)->info[INFO_WIDTH_ACTIVE] = 1;
		struct flow *a = flow_add(&timed, NODE_H2, LID_H3, 0);
		struct flow *b = flow_add(&timed, NODE_H4, LID_H3, 0);
		struct flow *victim = flow_add(&timed, NODE_H1, LID_H4, sl);

		flows_run(&timed, SECOND);
		assert_in_range((a->bytes + b->bytes) * 100 / (SECOND / SLOW * HDR_4X / 8000), 24,
				26);
		assert_in_range(a->bytes * 100 / b->bytes, 95, 105);
		if (sl)
			assert_true(victim->bytes > 6 * a->bytes);
		else
			assert_in_range(victim->bytes * 100 / a->bytes, 90, 110);
		assert_true(waited_ms(&timed, NODE_H2, 1) > 800);
		assert_int_equal(waited_ms(&timed, NODE_S2, 1), 0);
		timed_end(&timed);
	}
}

/* A piece that is still on its way, over a cable of 10 ms, doesn't keep the next port busy. */
static void far_away(void **state)
{
	struct timed timed;

	(void)state;
	timed_begin(&timed);
	cable_choose(&timed, 7);
	net_port(timed.net, NODE_S1, 1)->cable_delay_ns = 10000;
	struct flow *a = flow_add(&timed, NODE_H1, LID_H3, 0);
	struct flow *b = flow_add(&timed, NODE_H2, LID_H4, 0);

	flows_run(&timed, SECOND);
	assert_in_range((a->bytes + b->bytes) * 100 / (SECOND / SLOW * HDR_4X / 8000), 97, 102);
	share_is(b, SECOND, 50);
	timed_end(&timed);
}

/* Whatever stands in the memory, waits are bounded, and the values that make sense are back with
 * the next pieces. */
static void hostile(void **state)
{
	static const uint64_t values[] = {UINT64_MAX,
					  0,
					  1ull << 63,
					  BEGIN - 1,
					  BEGIN + CLOCKS_WAIT_MAX_NS,
					  BEGIN + CLOCKS_WAIT_MAX_NS + 1,
					  BEGIN + CLOCKS_WAIT_MAX_NS - 1};
	struct timed timed;
	uint32_t random = 7;

	(void)state;
	timed_begin(&timed);
	uint32_t ports = timed.clocks.ports;
	uint64_t *words = timed.memory;
	size_t count = clocks_bytes(ports) / sizeof *words;
	struct clocks_way way = {.room = ROUTE_HOPS_MAX, .hop = one_hop};

	way_of(&timed, NODE_H1, LID_H3, 0, &way);
	for (int i = 0; i < 20000; i++) {
		struct clocks_passage passage;

		for (size_t at = 0; at < count; at++) {
			random = random * 1103515245 + 12345;
			words[at] = values[(random >> 16) % (sizeof values / sizeof values[0])];
		}
		passage = clocks_pass(&timed.clocks, &way, CLOCKS_PIECE, BEGIN, BEGIN, BEGIN);
		assert_in_range(passage.free, BEGIN, BEGIN + CLOCKS_WAIT_MAX_NS);
		assert_in_range(passage.arrived, BEGIN,
				BEGIN + 4 * CLOCKS_WAIT_MAX_NS + 4 * SECOND);
		for (uint32_t port = 0; port < ports; port++)
			clocks_wait_ticks(&timed.clocks, port, port % FABRIC_VLS);
	}
	memset(timed.memory, 0xff, clocks_bytes(ports));
	clocks_pass(&timed.clocks, &way, CLOCKS_PIECE, BEGIN, BEGIN, BEGIN);
	assert_in_range(clocks_pass(&timed.clocks, &way, 1, BEGIN, BEGIN, BEGIN).arrived, BEGIN,
			BEGIN + 1000 * SLOW);
	timed_end(&timed);
}

/* Random flows, with pauses: no port sends more than its link carries, and a port to which there is
 * always something to send is never idle for long. */
static void seeds(void **state)
{
	static const uint16_t lids[] = {LID_H1, LID_H2, LID_H3, LID_H4};

	(void)state;
	for (uint32_t seed = 1; seed <= 300; seed++) {
		struct timed timed;
		uint64_t sent[2] = {0}, most = SECOND / 4 / SLOW * HDR_4X / 8000;

		timed_begin(&timed);
		timed.net->random = seed;
		cable_choose(&timed, 7 + seed % 2);
		for (int i = 0; i < FLOWS; i++) {
			uint32_t from = net_random(timed.net) >> 16;
			uint32_t to = net_random(timed.net) >> 16;

			flow_add(&timed, NODE_H1 + from % 4, lids[(from + 1 + to % 3) % 4],
				 (net_random(timed.net) >> 16) % 3);
		}
		flows_run(&timed, SECOND / 4);
		for (int i = 0; i < FLOWS; i++) {
			struct clocks_way *way = &timed.flow[i].way;

			if (way->hop[way->hops - 1].port == net_row(timed.net, NODE_S2, 1))
				sent[0] += timed.flow[i].bytes;
			if (way->hop[0].port == net_row(timed.net, NODE_H1, 1))
				sent[1] += timed.flow[i].bytes;
			assert_true(timed.flow[i].bytes > most / 100);
		}
		assert_true(sent[0] <= most + 2 * FLOWS * CLOCKS_PIECE);
		assert_true(sent[1] <= most + 2 * FLOWS * CLOCKS_PIECE);
		timed_end(&timed);
	}
}

/* Of so short pieces that no clock gets too far ahead of another flow's time to be believed. */
enum { RACERS = 3, RACES = 300000, SHORT = 64 };

struct racer {
	const struct clocks *clocks;
	uint32_t port;
};

/* One cable only takes time, as one to which `rate` was given does. */
static void *race(void *arg)
{
	const struct racer *racer = arg;
	struct clocks_hop hop = {
		.port = racer->port, .mbps = HDR_4X, .before = FABRIC_NONE, .vl = 0};
	struct clocks_way way = {.hops = 1, .room = 1, .hop = &hop};
	uint64_t next = BEGIN;

	for (unsigned int i = 0; i < RACES; i++)
		next = clocks_pass(racer->clocks, &way, SHORT, BEGIN, next, next).free;
	return NULL;
}

/* Flows of several processes on one port at the same moment: it is busy all the time, so it waits
 * for nothing, whichever of its words they have changed. */
static void at_the_same_moment(void **state)
{
	struct timed timed;
	pthread_t thread[RACERS];

	(void)state;
	timed_begin(&timed);
	struct racer racer = {&timed.clocks, net_row(timed.net, NODE_H1, 1)};

	for (unsigned int i = 0; i < RACERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, race, &racer), 0);
	for (unsigned int i = 0; i < RACERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(timed.clocks.clock[racer.port].lane[0].waited, 0);
	timed_end(&timed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_piece),
		cmocka_unit_test(rates),
		cmocka_unit_test(one_cable_or_two),
		cmocka_unit_test(one_port),
		cmocka_unit_test(credit_stalls),
		cmocka_unit_test(far_away),
		cmocka_unit_test(hostile),
		cmocka_unit_test(seeds),
		cmocka_unit_test(at_the_same_moment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
