/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan of a seed. Every kind of fault is absent in some runs, rare in others, and common in a
 * few; so that each occurs alone and together with the others. */
#include <stdio.h>

#include "sim.h"

uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *rng, uint32_t below)
{
	return (uint32_t)(((rng_next(rng) >> 32) * below) >> 32);
}

bool rng_chance(struct rng *rng, uint32_t millionths)
{
	return millionths && rng_below(rng, 1000000) < millionths;
}

/* Nothing in two runs of three; otherwise from a thousandth to `most`. */
static uint32_t trouble(struct rng *rng, uint32_t most)
{
	static const uint32_t levels[] = {1000, 10000, 50000, 200000};

	if (rng_below(rng, 3))
		return 0;
	uint32_t level = levels[rng_below(rng, 4)];

	return level < most ? level : most;
}

static uint32_t random_psn(struct rng *rng)
{
	if (rng_below(rng, 2))
		return 0xffffff - rng_below(rng, 40);
	return (uint32_t)rng_next(rng) & 0xffffff;
}

static void plan_side(struct plan *plan, struct rng *rng, struct side_plan *side)
{
	static const uint32_t lengths[] = {5000, 40000, 200000, 2200000};
	uint32_t big = rng_below(rng, 100);

	side->works = 1 + rng_below(rng, rng_below(rng, 4) ? 40 : WORKS_MAX);
	side->depth = 1u << rng_below(rng, 7);
	side->receives = 1 + rng_below(rng, RECEIVES_MAX);
	side->max_length = lengths[big < 60 ? 0 : big < 90 ? 1 : big < 99 ? 2 : 3];
	if (side->max_length > 100000 && side->works > 24)
		side->works = 24;
	side->late_receives = !rng_below(rng, 3);
	side->srq = rng_below(rng, 2);
	side->drains = !rng_below(rng, 4);
	side->errors = plan->type == IBV_QPT_RC && !rng_below(rng, 4) ? 30000 : 0;
	side->attr.max_rd_atomic = (uint8_t)(rng_below(rng, 4) ? 1 + rng_below(rng, 16) : 1);
	side->attr.min_rnr_timer = (uint8_t)(1 + rng_below(rng, 16));
	side->attr.rnr_retry = (uint8_t)(rng_below(rng, 4) ? 7 : rng_below(rng, 7));
	side->attr.retry_cnt = (uint8_t)(rng_below(rng, 4) ? 7 : rng_below(rng, 8));
	side->attr.timeout = (uint8_t)(6 + rng_below(rng, 12));
}

void plan_make(struct plan *plan, uint64_t seed)
{
	struct rng rng = {seed * 0x2545f4914f6cdd1dull + 1};
	bool patient = !rng_below(&rng, 3);

	*plan = (struct plan){
		.seed = seed,
		.type = rng_below(&rng, 8) ? IBV_QPT_RC : IBV_QPT_UC,
		.mtu = 256u << rng_below(&rng, 5),
		.latency_ns = 1000 + rng_below(&rng, rng_below(&rng, 4) ? 100000 : 5000000),
		.jitter_ns = 1 + rng_below(&rng, 300000),
		.ps_per_byte = 100 + rng_below(&rng, 10000),
		.batch = 1 + rng_below(&rng, rng_below(&rng, 2) ? 4 : 64),
	};
	plan->faults = (struct network_faults){
		.lose = trouble(&rng, 200000),
		.lose_burst = trouble(&rng, 20000),
		.duplicate = trouble(&rng, 200000),
		.reorder = trouble(&rng, 200000),
		.corrupt = trouble(&rng, 50000),
		.truncate = trouble(&rng, 50000),
	};
	plan->hostile = !rng_below(&rng, 12);
	if (plan->hostile)
		plan->faults.mutate = 30000 + trouble(&rng, 200000);
	for (int i = 0; i < 2; i++)
		plan_side(plan, &rng, &plan->side[i]);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr *attr = &plan->side[i].attr;

		attr->sq_psn = random_psn(&rng);
		plan->side[!i].attr.rq_psn = attr->sq_psn;
		plan->side[!i].attr.max_dest_rd_atomic = attr->max_rd_atomic;
	}
	for (int i = 0; i < 2; i++)
		plan->side[i].keeps = rng_below(&rng, 3);
	/* Chosen by the seed, so that all other seeds stay what they were. */
	if (plan->type == IBV_QPT_RC && seed % 5 == 0) {
		plan->processes = 1 + (uint32_t)(seed / 5 % PROCESSES_MAX);
		plan->they_die = plan->processes > 1 && !patient && seed / 20 % 2;
		plan->side[1].works = 0;
		plan->side[1].drains = false;
		plan->side[1].srq = true;
	}
	static const uint32_t unawaited[] = {0, 500000, 1000000};

	for (int i = 0; i < 2; i++)
		plan->side[i].unawaited = unawaited[seed / 3 % 3];
	/* Neither side gives up, so every request must succeed. */
	for (int i = 0; i < 2 && patient && !plan->hostile; i++) {
		plan->side[i].errors = 0;
		plan->side[i].attr.timeout = 0;
		plan->side[i].attr.rnr_retry = 7;
	}
}

void plan_print(const struct plan *plan)
{
	const struct network_faults *f = &plan->faults;

	printf("seed %llu: %s mtu %u latency %llu ns jitter %llu ns %u ps/byte batch %u%s\n",
	       (unsigned long long)plan->seed,
	       plan->processes		  ? "XRC"
	       : plan->type == IBV_QPT_RC ? "RC"
					  : "UC",
	       plan->mtu, (unsigned long long)plan->latency_ns, (unsigned long long)plan->jitter_ns,
	       plan->ps_per_byte, plan->batch, plan->hostile ? " hostile" : "");
	if (plan->processes)
		printf("%u processes%s\n", plan->processes, plan->they_die ? ", which die" : "");
	printf("millionths: lose %u burst %u duplicate %u reorder %u corrupt %u truncate %u mutate "
	       "%u\n",
	       f->lose, f->lose_burst, f->duplicate, f->reorder, f->corrupt, f->truncate,
	       f->mutate);
	for (int i = 0; i < 2; i++) {
		const struct side_plan *s = &plan->side[i];

		printf("%c: works %u depth %u receives %u%s%s%s%s max %u errors %u unawaited %u "
		       "rd_atomic %u "
		       "rnr timer %u retry %u, timeout %u retry %u\n",
		       'A' + i, s->works, s->depth, s->receives, s->late_receives ? " late" : "",
		       s->srq ? " srq" : "", s->drains ? " drains" : "", s->keeps ? " keeps" : "",
		       s->max_length, s->errors, s->unawaited, s->attr.max_rd_atomic,
		       s->attr.min_rnr_timer, s->attr.rnr_retry, s->attr.timeout,
		       s->attr.retry_cnt);
	}
}
