/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC: the target's processes. As in the HCA (src/hca/exec/xrc_wire.h) one of them is the holder,
 * whose core has the responder. A packet for another's SRQ goes there with the responder, once the
 * holder has given its answers; until then it waits, and what follows it.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct kept {
	struct kept *next;
	uint32_t request;
	struct packet packet;
	uint8_t payload[];
};

void processes_begin(struct side *side, const struct tp_path *path)
{
	struct processes *all = &side->processes;
	uint32_t count = side->sim->plan.processes;

	all->last = &all->first;
	all->responder = aligned_alloc(64, TP_RESPONDER_BYTES);
	if (!all->responder)
		abort();
	for (uint32_t i = 0; i < count; i++) {
		struct tp *tp = all->tp[i] = malloc(tp_size());

		all->early[i] = side->plan->keeps ? malloc(TP_EARLY_BYTES) : NULL;
		if (!tp || (side->plan->keeps && !all->early[i]))
			abort();
		tp_init(tp, IBV_QPT_XRC_RECV, &sim_world, side, NULL, 0);
		if (side->plan->keeps)
			tp_keep_early(tp, all->early[i]);
		tp_receive_ready(tp, path, &side->plan->attr);
		if (i)
			tp_responder_at(tp, NULL);
		else
			tp_share(tp, all->responder);
	}
	side->tp = all->tp[0];
}

void processes_end(struct side *side)
{
	struct processes *all = &side->processes;

	for (struct kept *kept = all->first, *next; kept; kept = next) {
		next = kept->next;
		free(kept);
	}
	for (uint32_t i = 0; i < side->sim->plan.processes; i++) {
		free(all->tp[i]);
		free(all->early[i]);
	}
	free(all->responder);
}

enum tp_access processes_aim(struct side *side, uint32_t srqn)
{
	const struct processes *all = &side->processes;

	side->aimed = srqn;
	if (!srqn || srqn > side->sim->plan.processes || all->died[srqn - 1])
		return TP_ACCESS_REFUSED;
	return srqn - 1 == all->holder ? TP_ACCESS_OK : TP_ACCESS_ELSEWHERE;
}

static void hold(struct side *side, uint32_t process)
{
	struct processes *all = &side->processes;

	tp_responder_at(side->tp, NULL);
	sim_trace(side->sim, "%c process %u holds", 'A' + side->index, process);
	all->holder = process;
	side->tp = all->tp[process];
	tp_responder_at(side->tp, all->responder);
	sim_totals.handed_on++;
}

/* False: the packet waits for answers. */
static bool take_or_pass(struct side *side, const struct packet *p, uint32_t request)
{
	struct processes *all = &side->processes;
	uint32_t srqn = tp_srq_of(side->tp, p);

	if (srqn && srqn <= side->sim->plan.processes && !all->died[srqn - 1] &&
	    srqn - 1 != all->holder) {
		if (tp_owes(side->tp))
			return false;
		hold(side, srqn - 1);
	}
	side->arriving = request;
	tp_packet(side->tp, p, side->sim->now);
	side_pull_events(side);
	return true;
}

void processes_packet(struct side *side, const struct packet *p, uint32_t request)
{
	struct processes *all = &side->processes;

	processes_go_on(side);
	if (!all->first && take_or_pass(side, p, request))
		return;
	struct kept *kept = malloc(sizeof(*kept) + p->length);

	if (!kept)
		abort();
	*kept = (struct kept){.request = request, .packet = *p};
	kept->packet.payload = kept->payload;
	if (p->length)
		memcpy(kept->payload, p->payload, p->length);
	*all->last = kept;
	all->last = &kept->next;
	sim_totals.waited++;
}

void processes_go_on(struct side *side)
{
	struct processes *all = &side->processes;

	while (all->first && take_or_pass(side, &all->first->packet, all->first->request)) {
		struct kept *kept = all->first;

		all->first = kept->next;
		if (!all->first)
			all->last = &all->first;
		free(kept);
	}
}

void processes_die(struct side *side)
{
	struct processes *all = &side->processes;
	struct sim *sim = side->sim;
	uint32_t dead, heir;

	if (!sim->plan.they_die || rng_below(&sim->rng, 100))
		return;
	dead = rng_below(&sim->rng, sim->plan.processes);
	heir = (dead + 1) % sim->plan.processes;
	if (all->died[dead] || all->died[heir])
		return;
	sim_trace(sim, "%c process %u dies", 'A' + side->index, dead);
	all->died[dead] = true;
	sim_totals.died++;
	if (all->holder == dead)
		hold(side, heir);
}
