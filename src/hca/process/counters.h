/* SPDX-License-Identifier: BSD-2-Clause */
/* Which counters this process publishes (shm/counters.h). */
#ifndef VERBENA_HCA_PROCESS_COUNTERS_H
#define VERBENA_HCA_PROCESS_COUNTERS_H

#include "hca/roce/roce.h"
#include "shm/counters.h"

/* Publishes the sender's and the receiver's counters from now on, as they change. */
void counters_attach(struct hca *hca);
/* In a forked child, which publishes nothing: the table is its parent's. */
void counters_leave(struct hca *hca);

/* Publishes what a QP's transport counted since the last call; qp.lock is held. Mostly only packets
 * were counted, which the sender and the receiver count themselves. */
void counters_transport_slow(struct roce_qp *w, uint64_t rare) REQUIRES(w->qp->lock);
static inline void counters_transport(struct roce_qp *w) REQUIRES(w->qp->lock)
{
	const struct tp_counters *c = tp_counters(roce_tp(w));
	uint64_t rare = c->resent + c->timeouts + c->sequence_naks + c->rnr_naks +
			c->rnr_naks_sent + c->out_of_sequence + c->kept + c->duplicates +
			c->credit_waits + c->congested;

	if (unlikely(rare != w->counted_sum))
		counters_transport_slow(w, rare);
}

static inline void counters_rare(struct hca *hca, enum pub_counter place)
{
	pub_count_rare(&hca->pub->counters, place, 1);
}

#endif
