/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan of a seed. A quarter of the seeds has no faults, so that every request must succeed. */
#include <stdio.h>
#include <string.h>

#include "sim_local.h"

uint64_t rng_next(struct rng *rng)
{
	uint64_t z = (rng->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *rng, uint32_t below)
{
	return below ? (uint32_t)((rng_next(rng) >> 32) * below >> 32) : 0;
}

bool rng_chance(struct rng *rng, uint32_t thousandths)
{
	return thousandths && rng_below(rng, 1000) < thousandths;
}

static uint32_t one_of(struct rng *rng, uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t list[3] = {a, b, c};

	return list[rng_below(rng, 3)];
}

static void plan_pair(struct plan *plan, struct rng *rng, struct pair_plan *pair)
{
	pair->process[0] = (uint8_t)rng_below(rng, plan->processes);
	pair->process[1] =
		rng_chance(rng, 100)
			? pair->process[0]
			: (uint8_t)((pair->process[0] + 1 + rng_below(rng, plan->processes - 1)) %
				    plan->processes);
	pair->type = rng_chance(rng, 150) ? IBV_QPT_UC : IBV_QPT_RC;
	pair->srq = rng_chance(rng, 200);
	pair->same_psn = rng_chance(rng, 300);
	pair->rnr_retry = plan->calm || rng_chance(rng, 600) ? 7 : (uint8_t)rng_below(rng, 8);
	pair->starves = pair->rnr_retry == 7 && pair->type == IBV_QPT_RC && !pair->srq &&
			rng_chance(rng, 150);
	pair->heads = pair->type == IBV_QPT_RC && rng_chance(rng, 200);
	pair->min_rnr_timer = (uint8_t)one_of(rng, 1, 5, 12);
	pair->timeout = (uint8_t)(8 + rng_below(rng, 6));
	pair->retry_cnt = (uint8_t)rng_below(rng, 4);
	pair->max_rd_atomic = (uint8_t)(1 + rng_below(rng, 4));
}

static void plan_ways(struct plan *plan, struct rng *rng)
{
	bool copies = rng_chance(rng, 700);

	for (uint32_t a = 0; a < plan->processes; a++)
		for (uint32_t b = 0; b < a; b++)
			plan->copies[a][b] = plan->copies[b][a] =
				rng_chance(rng, 150) ? !copies : copies;
	plan->by_ring = rng_chance(rng, 200);
	plan->fast_copies = rng_chance(rng, 400);
	plan->hold_bytes = one_of(rng, 1u << 20, 2000, 400);
	plan->no_hold = one_of(rng, 0, 0, 200);
}

static void plan_faults(struct plan *plan, struct rng *rng)
{
	uint32_t span = 200 + rng_below(rng, 3000 * plan->actions / 20);

	plan->err = one_of(rng, 0, 0, 15);
	plan->reset = one_of(rng, 0, 0, 15);
	plan->destroy = one_of(rng, 0, 0, 10);
	plan->reconnect = one_of(rng, 0, 15, 40);
	plan->dereg = one_of(rng, 0, 20, 60);
	plan->unmap = one_of(rng, 0, 0, 10);
	plan->bad_key = one_of(rng, 0, 0, 40);
	plan->long_sends = one_of(rng, 0, 0, 60);
	if (rng_chance(rng, 200)) {
		plan->kill = 1 + rng_below(rng, plan->processes);
		plan->kill_at = rng_below(rng, span);
	}
	if (rng_chance(rng, 200)) {
		plan->stop = 1 + rng_below(rng, plan->processes);
		plan->stop_at = rng_below(rng, span);
		plan->stop_ns = one_of(rng, 20000, 3000000, 400000000);
	}
	if (rng_chance(rng, 50))
		plan->copy_fails_at = 1 + rng_below(rng, span);
	if (rng_chance(rng, 400))
		for (uint32_t n = 1 + rng_below(rng, CUTS); n; n--)
			plan->cut_at[n - 1] = 1 + rng_below(rng, span);
	if (plan->routed)
		plan->lose = one_of(rng, 0, 20, 100);
	if (rng_chance(rng, 100))
		plan->hostile = 1 + rng_below(rng, plan->processes);
}

/* Some processes are stopped for so long that senders give up the unreliable messages that they
 * sent to them, if these are streamed. */
static void plan_long_stop(struct plan *plan, struct rng *rng)
{
	if (plan->stop && rng_chance(rng, 300))
		plan->stop_ns = rng_chance(rng, 700) ? 1700000000 : 25000000000;
}

void plan_make(struct plan *plan, uint64_t seed)
{
	struct rng rng = {seed * 0x2545f4914f6cdd1dull + 12345};

	memset(plan, 0, sizeof(*plan));
	plan->seed = seed;
	plan->calm = rng_chance(&rng, 250);
	plan->processes = rng_chance(&rng, 700) ? 2 : 3;
	plan->pairs = 1 + rng_below(&rng, PAIRS);
	plan->programs = 1 + rng_below(&rng, 2);
	plan->walk = (enum walk)rng_below(&rng, 3);
	plan->switch_chance = one_of(&rng, 5, 30, 200);
	plan->actions = 5 + rng_below(&rng, 30);
	plan->max_length = one_of(&rng, 300, 900, MESSAGE_MAX);
	plan->receives = one_of(&rng, 100, 350, 500);
	plan_ways(plan, &rng);
	plan->routed = rng_chance(&rng, 300);
	if (!plan->calm)
		plan_faults(plan, &rng);
	for (uint32_t i = 0; i < plan->pairs; i++)
		plan_pair(plan, &rng, &plan->pair[i]);
	plan_long_stop(plan, &rng);
	for (uint32_t i = 0; i < plan->pairs;
	     i++) /* not by the dice: a seed's other choices stay */
		plan->pair[i].tags = plan->pair[i].heads && seed % 2;
	plan->reads = seed % 4 == 3 ? 800 : 0; /* nor this */
	/* SQD and borrowed memory don't count as faults. */
	plan->drain = one_of(&rng, 0, 30, 150);
	plan->borrow = one_of(&rng, 0, 0, 300);
	plan->fork = one_of(&rng, 0, 0, 30);
	plan->in_files = one_of(&rng, 0, 0, 300);
	plan->imported = one_of(&rng, 0, 0, 200);
	plan->windows = one_of(&rng, 0, 150, 500);
	plan->flushes = one_of(&rng, 0, 80, 300);
	for (uint32_t i = 0; i < plan->pairs; i++)
		plan->pair[i].flush_rights = flush_some_rights(&rng, 100);
	plan->halves = one_of(&rng, 0, 200, 600);
	plan->late = plan->calm || !plan->halves ? 0 : one_of(&rng, 0, 300, 800);
	if (!plan->hostile) /* whose messages may be as long as the receive */
		plan->long_receives = one_of(&rng, 0, 100, 700);
}

void plan_print(const struct plan *plan)
{
	printf("%u processes, %u pairs, %u threads, %u actions, walk %u%s, counters begin at %u\n",
	       plan->processes, plan->pairs, plan->programs, plan->actions, plan->walk,
	       plan->calm ? ", calm" : "", COUNTER_START(0));
	printf("  hold_bytes %u, kill %u, stop %u, no copies from %u, liar %u%s%s\n  cuts at",
	       plan->hold_bytes, plan->kill, plan->stop, plan->copy_fails_at, plan->hostile,
	       plan->by_ring ? ", by ring" : "", plan->routed ? ", on a fabric" : "");
	for (uint32_t i = 0; i < CUTS; i++)
		printf(" %u", plan->cut_at[i]);
	printf("; links of one side %u, late %u\n", plan->halves, plan->late);
	for (uint32_t i = 0; i < plan->pairs; i++) {
		const struct pair_plan *p = &plan->pair[i];

		printf("  pair %u: processes %u and %u, %s%s%s%s%s%s, rnr_retry %u, timeout %u x "
		       "%u\n",
		       i, p->process[0], p->process[1], p->type == IBV_QPT_RC ? "RC" : "UC",
		       plan->copies[p->process[0]][p->process[1]] ? ", copies" : "",
		       p->srq ? ", SRQ" : "", p->same_psn ? ", same PSN" : "",
		       p->starves ? ", starves" : "",
		       p->tags	  ? ", tags"
		       : p->heads ? ", heads"
				  : "",
		       p->rnr_retry, p->timeout, p->retry_cnt + 1);
	}
}
