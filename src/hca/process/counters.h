/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process publishes of its counters (shm/counters.h). */
#ifndef VERBENA_HCA_PROCESS_COUNTERS_H
#define VERBENA_HCA_PROCESS_COUNTERS_H

#include "hca/roce/roce.h"
#include "shm/counters.h"

/* From now on the sender's and the receiver's counters are published as they change. */
void counters_attach(struct hca *hca);
/* The child of a fork publishes nothing: its parent's table isn't its own. */
void counters_leave(struct hca *hca);

/* What a QP's transport counted since the last call; qp.lock held. Most often nothing but packets,
 * which the sender and the receiver count anyway. */
void counters_transport_slow(struct roce_qp *w, uint64_t rare);
static inline void counters_transport(struct roce_qp *w)
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
