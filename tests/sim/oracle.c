/* SPDX-License-Identifier: BSD-2-Clause */
/* The oracle: requests take effect at the other side in the order in which they were posted, each
 * once; completions come in that order; bytes read were there. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

void sim_fail(const struct sim *sim, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "seed %llu, %.6f s: ", (unsigned long long)sim->plan.seed,
		(double)sim->now / 1e9);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nreplay: sim --seed %llu -v\n", (unsigned long long)sim->plan.seed);
	abort();
}

void sim_trace(const struct sim *sim, const char *format, ...)
{
	va_list args;

	if (!sim->verbose)
		return;
	printf("%12.3f us  ", (double)sim->now / 1e3);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

bool work_wants_receive(const struct work *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM ||
	       w->opcode == IBV_WR_SEND_WITH_INV || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool work_wants_answer(const struct work *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || w->opcode == IBV_WR_ATOMIC_WRITE ||
	       w->opcode == IBV_WR_FLUSH;
}

/* Requests without a visible effect. */
static bool leaves_no_trace(const struct work *w)
{
	return w->opcode == IBV_WR_RDMA_READ || (w->opcode == IBV_WR_RDMA_WRITE && !w->length);
}

struct work *oracle_executing(struct side *side, bool (*fits)(const struct work *w))
{
	struct side *peer = side->peer;

	SIM_MUST(side->sim, !side->dead, "%c executes after an error", 'A' + side->index);
	if (side->sim->plan.type == IBV_QPT_UC) {
		/* A UC request whose packets were lost is never executed. */
		struct work *w = &peer->works[side->arriving];

		SIM_MUST(side->sim, fits(w), "%c: UC request %u isn't what is executed",
			 'A' + peer->index, side->arriving);
		side->executing = side->arriving;
		return w;
	}
	while (side->executing < peer->posted) {
		struct work *w = &peer->works[side->executing];

		if (fits(w) && !(leaves_no_trace(w)))
			return w;
		SIM_MUST(side->sim, leaves_no_trace(w),
			 "%c: request %u isn't executed, another one is", 'A' + peer->index,
			 side->executing);
		side->executing++;
	}
	sim_fail(side->sim, "%c executes what wasn't posted", 'A' + side->index);
}

void oracle_executed(struct side *side, struct work *w, bool is_end)
{
	if (!is_end)
		return;
	w->executed = true;
	side->executing += side->sim->plan.type == IBV_QPT_RC;
	side->executed_bytes = 0;
}

/* ------------------------------------------------------------------ READs */

/* The WRITEs that touch a READ's range, in the order of posting. */
struct writers {
	uint32_t count;
	uint32_t request[WORKS_MAX];
};

static bool may_write(const struct work *w)
{
	return (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		w->opcode == IBV_WR_ATOMIC_WRITE) &&
	       (!w->wrong || w->wrong == WRONG_FETCH);
}

/* Collected once for each READ: asking every request again for every byte took 40 % of a run. */
static void find_writers(struct side *side, const struct work *read, struct writers *writers)
{
	writers->count = 0;
	for (uint32_t k = 0; k < side->posted; k++) {
		const struct work *w = &side->works[k];

		if (may_write(w) && w->offset < read->offset + read->length &&
		    read->offset < w->offset + w->length)
			writers->request[writers->count++] = k;
	}
}

/* A byte is legal if the last WRITE before the READ left it, or a later one did (also one that
 * failed at its requester after its first packets). */
static bool legal(struct side *side, const struct writers *writers, uint32_t count, uint32_t i)
{
	const struct work *read = &side->works[count];
	uint32_t at = read->offset + i;
	uint8_t value = initial_byte(side->peer, at), found = read->answer[i];

	for (uint32_t n = 0; n < writers->count; n++) {
		uint32_t k = writers->request[n];
		const struct work *other = &side->works[k];

		if (at < other->offset || at - other->offset >= other->length)
			continue;
		if (k >= count && value == found)
			return true;
		value = payload_byte(other->payload, at - other->offset);
		if (k >= count && value == found)
			return true;
	}
	return value == found;
}

void oracle_read_answer(struct side *side, struct work *w)
{
	uint32_t count = (uint32_t)(w - side->works);
	struct writers writers;

	SIM_MUST(side->sim, w->delivered == w->length, "%c: request %u has %u of %u bytes",
		 'A' + side->index, count, w->delivered, w->length);
	if (w->offset < AREA_WRITE) {
		SIM_MUST(side->sim,
			 payload_is(w->answer, initial_seed(side->peer), w->offset, w->length),
			 "%c: READ %u has a wrong byte", 'A' + side->index, count);
		return;
	}
	find_writers(side, w, &writers);
	for (uint32_t i = 0; i < w->length; i++)
		SIM_MUST(side->sim, legal(side, &writers, count, i),
			 "%c: READ %u has a wrong byte at %u", 'A' + side->index, count, i);
}

/* ------------------------------------------------------------------ completions */

enum ibv_wc_status work_status(const struct work *w)
{
	switch (w->wrong) {
	case WRONG_RKEY:
	case WRONG_RANGE:
	case WRONG_SRQ:
		return IBV_WC_REM_ACCESS_ERR;
	case WRONG_INVALIDATE:
		return IBV_WC_RETRY_EXC_ERR; /* class J: the responder doesn't answer */
	case WRONG_ALIGN:
	case WRONG_LENGTH:
		return IBV_WC_REM_INV_REQ_ERR;
	case WRONG_FETCH:
	case WRONG_DELIVER:
		return IBV_WC_LOC_PROT_ERR;
	case WRONG_PLACE:
	case WRONG_RECEIVE:
		return IBV_WC_REM_OP_ERR;
	default:
		return IBV_WC_SUCCESS;
	}
}

void oracle_begins(struct side *side, uint32_t count)
{
	SIM_MUST(side->sim, !side->over, "%c: request %u begins after the end", 'A' + side->index,
		 count);
	SIM_MUST(side->sim, !side->resume_at, "%c: request %u begins in SQD", 'A' + side->index,
		 count);
	if (!(side->works[count].flags & TP_FENCE))
		return;
	for (uint32_t i = side->completed; i < count; i++)
		SIM_MUST(side->sim, !work_wants_answer(&side->works[i]),
			 "%c: request %u doesn't wait for request %u, in spite of its fence",
			 'A' + side->index, count, i);
}

static bool srq_has_died(const struct side *side, const struct work *w)
{
	return w->srqn && side->peer->processes.died[w->srqn - 1];
}

/* Whether a request may end with an error through no fault of its own: exhausted retries, or the
 * end of a process. */
static bool may_give_up(const struct side *side, const struct work *w, enum ibv_wc_status status)
{
	const struct ibv_qp_attr *attr = &side->plan->attr;
	const struct network_faults *f = &side->sim->plan.faults;

	/* A process that has died has ended its SRQ, and lost what it had been told. */
	if (side->sim->plan.they_die &&
	    (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR))
		return status == IBV_WC_RETRY_EXC_ERR ? attr->timeout : srq_has_died(side, w);
	if (status == IBV_WC_RETRY_EXC_ERR)
		return attr->timeout && (side->peer->over || f->lose || f->lose_burst ||
					 f->corrupt || f->truncate || attr->timeout < 12);
	if (status == IBV_WC_RNR_RETRY_EXC_ERR)
		return attr->rnr_retry != 7;
	return false;
}

void oracle_completion(struct side *side, uint32_t count, enum ibv_wc_status status)
{
	struct sim *sim = side->sim;
	struct work *w = &side->works[count];
	char name = 'A' + side->index;

	SIM_MUST(sim, !side->failed, "%c: request %u completes after an error", name, count);
	SIM_MUST(sim, count == side->completed && count < side->posted,
		 "%c: request %u completes, it was request %u's turn", name, count,
		 side->completed);
	w->done = true;
	if (sim->plan.hostile)
		return;
	if (status != IBV_WC_SUCCESS) {
		SIM_MUST(sim, status == work_status(w) || may_give_up(side, w, status),
			 "%c: request %u fails with status %d, wrong %u", name, count, status,
			 w->wrong);
		return;
	}
	SIM_MUST(sim, w->wrong == WRONG_NOTHING || sim->plan.type == IBV_QPT_UC,
		 "%c: request %u succeeds in spite of fault %u", name, count, w->wrong);
	if (sim->plan.type == IBV_QPT_UC)
		return;
	SIM_MUST(sim, w->executed || leaves_no_trace(w),
		 "%c: request %u succeeds and wasn't executed", name, count);
	if (w->opcode == IBV_WR_RDMA_READ)
		oracle_read_answer(side, w);
}
