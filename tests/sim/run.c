/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock: jumps from one event to the next. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "transport/state.h"

enum {
	QUIET_MAX_NS = 30000000,
	STEPS_MAX = 4000000,
};

/* Time after the network has become quiet: enough for timers with all their retries. */
#define DRAIN_NS 120000000000ull

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void arrive(struct sim *sim)
{
	struct flight flight = network_take(sim);
	struct side *side = &sim->side[flight.to];
	struct packet p;

	if (network_whole(&flight)) {
		/* In a block of its exact size, so that the address sanitizer detects a read beyond
		 * it. */
		enum packet_error error = packet_decode(flight.bytes, flight.size, &p);

		SIM_MUST(sim, error == PACKET_OK || sim->plan.hostile,
			 "a packet doesn't decode: %d", error);
		side->arriving = flight.request;
		if (error == PACKET_OK && side->index && sim->plan.processes)
			processes_packet(side, &p, flight.request);
		else if (error == PACKET_OK)
			tp_packet(side->tp, &p, sim->now);
		side_pull_events(side);
	}
	free(flight.bytes);
}

static void expire(struct side *side)
{
	struct sim *sim = side->sim;

	if (tp_deadline(side->tp) > sim->now)
		return;
	tp_expire(side->tp, sim->now);
	side_pull_events(side);
	SIM_MUST(sim, tp_deadline(side->tp) > sim->now, "%c: a deadline doesn't pass",
		 'A' + side->index);
}

static void send(struct side *side)
{
	struct sim *sim = side->sim;
	uint8_t packet[WIRE_PACKET_MAX];

	while (side->link_free_at <= sim->now) {
		bool ready = tp_ready(side->tp, sim->now);
		uint32_t request = side->tp->requester.cursor - SIM_FIRST,
			 begun = side->tp->requester.begun;
		uint32_t size = tp_next(side->tp, sim->now, packet);

		side_pull_events(side);
		SIM_MUST(sim, ready || !size, "%c: sends and wasn't ready", 'A' + side->index);
		if (!size) {
			SIM_MUST(sim, !tp_ready(side->tp, sim->now),
				 "%c: ready, and has nothing to send", 'A' + side->index);
			if (!side->index || !sim->plan.processes)
				return;
			processes_go_on(side); /* with packets that waited for this */
			if (!tp_ready(side->tp, sim->now))
				return;
			continue;
		}
		if (side->tp->requester.begun != begun)
			oracle_begins(side, begun - SIM_FIRST);
		SIM_MUST(sim, size <= WIRE_HEADERS_MAX + sim->plan.mtu + 3u, "a packet of %u bytes",
			 size);
		side->link_free_at = sim->now + (uint64_t)size * sim->plan.ps_per_byte / 1000;
		network_send(sim, side, packet, size, request);
	}
}

static uint64_t side_next(const struct side *side)
{
	uint64_t at = min(tp_deadline(side->tp), side->app_at);

	if (tp_ready(side->tp, side->sim->now))
		at = min(at, side->link_free_at);
	return at;
}

static bool finished(const struct sim *sim)
{
	return side_finished(&sim->side[0]) && side_finished(&sim->side[1]);
}

/* Whether waiting on is pointless: a hostile packet may have ended the peer silently, and then this
 * side never gives up. */
static bool in_vain(const struct sim *sim)
{
	return sim->plan.hostile && sim->now > sim->quiet_at + DRAIN_NS / 20;
}

static void loop(struct sim *sim)
{
	for (uint32_t steps = 0; !finished(sim) && !in_vain(sim); steps++) {
		uint64_t next = min(min(side_next(&sim->side[0]), side_next(&sim->side[1])),
				    network_next(sim));

		SIM_MUST(sim, next != TP_NEVER, "nothing happens any more");
		SIM_MUST(sim, next < sim->quiet_at + DRAIN_NS && steps < STEPS_MAX,
			 "no end: requests %u of %u, %u of %u", sim->side[0].completed,
			 sim->side[0].plan->works, sim->side[1].completed,
			 sim->side[1].plan->works);
		if (next > sim->now)
			sim->now = next;
		for (uint32_t i = 0; i < sim->plan.batch && network_next(sim) <= sim->now; i++)
			arrive(sim);
		for (int i = 0; i < 2; i++) {
			struct side *side = &sim->side[i];

			expire(side);
			if (side->app_at <= sim->now)
				side_app(side);
			send(side);
		}
	}
}

static void add_totals(const struct sim *sim)
{
	sim_totals.packets += sim->packets;
	sim_totals.hostile += sim->plan.hostile;
	sim_totals.uc += sim->plan.type == IBV_QPT_UC;
	sim_totals.xrc += sim->plan.processes != 0;
	for (int i = 0; i < 2; i++) {
		/* All members are uint64_t. */
		const uint64_t *from = (const uint64_t *)tp_counters(sim->side[i].tp);
		uint64_t *to = (uint64_t *)&sim_totals.counters;

		for (size_t k = 0; k < sizeof(struct tp_counters) / sizeof(*to); k++)
			to[k] += from[k];
	}
}

void sim_run(uint64_t seed, bool verbose)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	if (!sim)
		abort();
	plan_make(&sim->plan, seed);
	sim->verbose = verbose;
	if (verbose)
		plan_print(&sim->plan);
	sim->rng.state = seed ^ 0xfeedface;
	sim->now = 1000000;
	sim->quiet_at = sim->now + rng_below(&sim->rng, QUIET_MAX_NS);
	for (uint8_t i = 0; i < 2; i++) {
		sim->side[i].sim = sim;
		sim->side[i].index = i;
		sim->side[i].peer = &sim->side[!i];
		side_begin(sim, &sim->side[i], &sim->plan.side[i]);
	}
	loop(sim);
	add_totals(sim);
	network_end(sim);
	for (int i = 0; i < 2; i++)
		side_end(&sim->side[i]);
	free(sim);
}
