/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulator of the local carrier's core: one run, and coverage of many; its options are in
 * ../seeds.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../seeds.h"
#include "sim_local.h"

struct sim sim;

/* ------------------------------------------------------------------ one run */

static void process_init(uint32_t number)
{
	struct process *p = &sim.process[number];

	memset(p, 0, offsetof(struct process, arena));
	p->number = number;
	p->slot = number + 1;
	p->timer_at = UINT64_MAX;
	p->srq = (struct receive_queue){
		.shared = true, .head = RECV_QUEUE_START, .tail = RECV_QUEUE_START,
		.done = RECV_QUEUE_START, .freed = RECV_QUEUE_START};
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &p->qp[i];

		qp->process = p;
		qp->index = i;
		qp->qpn = p->slot << LIMIT_QP_BITS | i;
		qp->pair = i / 2;
		qp->side = i % 2;
		qp->rq = &qp->own_rq;
		qp->epoch = PUB_QP_EPOCH_START;
	}
}

/* Frees what remaining QPs still hold. */
static void free_held(void)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++) {
		for (uint32_t k = 0; k < QPS; k++) {
			struct qp *qp = &sim.process[i].qp[k];
			struct list *node;

			if (!qp->lq.held.next)
				continue;
			while ((node = list_pop(&qp->lq.held)))
				if (node != &qp->lq.first.held.node)
					free(container_of(node, struct local_held, node));
		}
		for (uint32_t k = 0; k < sim.plan.processes; k++) {
			struct list *node;

			while ((node = list_pop(&sim.process[i].link[k].backlog)))
				free(container_of(node, struct backlog, node));
		}
	}
}

void sim_run(uint64_t seed, bool verbose)
{
	plan_make(&sim.plan, seed);
	sim.rng.state = seed;
	sim.verbose = verbose;
	sim.now = 1000;
	sim.last_fault = sim.now;
	sim.step = sim.disturbed = 0;
	sim.over = false;
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		process_init(i);
	oracle_init();
	memory_init();
	links_init();
	tasks_init();
	if (verbose)
		plan_print(&sim.plan);
	tasks_run();
	oracle_end();
	free_held();
	links_end();
	totals.calm += sim.plan.calm;
}

/* ------------------------------------------------------------------ what many runs met */

static bool totals_print(void)
{
	static const enum ibv_wc_status statuses[] = {
		IBV_WC_SUCCESS,		IBV_WC_LOC_PROT_ERR,	  IBV_WC_WR_FLUSH_ERR,
		IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,	  IBV_WC_REM_OP_ERR,
		IBV_WC_RETRY_EXC_ERR,	IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_MW_BIND_ERR,
	};
	const struct {
		const char *name;
		uint64_t count;
	} met[] = {
		{"steps", totals.steps},
		{"switches", totals.switches},
		{"requests", totals.requests},
		{"messages received", totals.receives},
		{"into long receives", totals.long_receives},
		{"deregistrations", totals.deregistrations},
		{"that waited", totals.dereg_waits},
		{"QPs to ERR", totals.errors},
		{"QPs reset", totals.resets},
		{"QPs to SQD", totals.drains},
		{"drained later", totals.drained_late},
		{"memory borrowed", totals.lent},
		{"and not taken", totals.not_lent},
		{"QPs destroyed", totals.destroys},
		{"forks", totals.forks},
		{"copies by a mapping", totals.mapped},
		{"WRITEs cut short", totals.refused_in_part},
		{"windows bound", totals.binds},
		{"requests through them", totals.through_windows},
		{"whose memory is mapped", totals.mapped_windows},
		{"through another QP's", totals.wrong_windows},
		{"ended by the peer", totals.invalidated_by_peer},
		{"whose end waited", totals.windows_later},
		{"regions imported", totals.imported},
		{"requests of children", totals.child_requests},
		{"FLUSH by the requester", totals.flushed_here},
		{"FLUSH by the responder", totals.flushed_by_peer},
		{"FLUSH refused", totals.flushes_refused},
		{"processes killed", totals.kills},
		{"... whose last messages had no acknowledgement", totals.taken_of_dead},
		{"processes stopped", totals.stops},
		{"links lost", totals.cuts},
		{"links of one side", totals.halves},
		{"left before the peer", totals.shut},
		{"lost in a fabric", totals.losses},
		{"records mutated", totals.hostile},
		{"acks carried", totals.carried},
		{"reads that waited", totals.gathered},
		{"reads by one call", totals.together},
		{"full rings", totals.ring_full},
		{"rings come round", totals.rings_round},
		{"no receive", totals.rnr},
		{"no tag at first", totals.unmatched},
		{"SENDs the short way", totals.short_ways},
		{"messages held", totals.holds},
		{"no storage", totals.hold_refused},
	};
	bool all = true;

	for (size_t i = 0; i < sizeof(met) / sizeof(met[0]); i++) {
		printf("%-22s %llu\n", met[i].name, (unsigned long long)met[i].count);
		all = all && met[i].count;
	}
	for (uint32_t kind = REC_SEND; kind < REC_KINDS; kind++) {
		printf("records of kind %-6u %llu\n", kind, (unsigned long long)totals.kinds[kind]);
		all = all && (totals.kinds[kind] || kind == REC_UD);
	}
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		printf("status %-15d %llu\n", statuses[i],
		       (unsigned long long)totals.status[statuses[i]]);
		all = all && totals.status[statuses[i]];
	}
	return all;
}

int main(int argc, char **argv)
{
	static const struct seeds seeds = {"sim_local", sim_run, totals_print};

	return seeds_main(argc, argv, &seeds);
}
