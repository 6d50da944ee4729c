/* SPDX-License-Identifier: BSD-2-Clause */
/* See fanout.h. Owns qp.fanout, under qp.lock. */
#include "hca/exec/fanout.h"

#include <stdlib.h>

#include "hca/exec/datagram_send.h"
#include "hca/local/link.h"
#include "hca/local/local_datagram.h"
#include "hca/process/counters.h"

struct fanout *fanout_get(struct qp *qp)
{
	if (unlikely(!qp->fanout))
		qp->fanout = calloc(1, sizeof(*qp->fanout));
	return qp->fanout;
}

/* The next slot to send to; LIMIT_SLOTS: none is left. */
static uint32_t next_slot(const struct fanout *fanout)
{
	for (uint32_t i = 0; i < GROUPS_WORDS; i++)
		if (fanout->left[i])
			return i * 64 + (uint32_t)__builtin_ctzll(fanout->left[i]);
	return LIMIT_SLOTS;
}

static void fanout_strike(struct fanout *fanout, uint32_t slot)
{
	fanout->left[slot / 64] &= ~(1ull << slot % 64);
}

static bool audience_has(const struct audience *audience, const struct link *link)
{
	/* A link that isn't up is waited for. */
	return !audience || !link_is(link, LINK_UP) || audience->reaches(link, audience->arg);
}

enum step fanout_go_on(struct qp *qp, struct send_wqe *wqe, const struct iovec *local, int count,
		       const struct audience *audience)
{
	uint32_t slot;

	while ((slot = next_slot(qp->fanout)) < LIMIT_SLOTS) {
		struct link *link = slot ? link_get_datagram(qp->hca, slot) : NULL;
		enum put put = PUT_DROPPED;

		if (likely(link && !link_is_gone(link)) && audience_has(audience, link))
			put = local_datagram_put(qp, wqe, link, local, count);
		if (put == PUT_WAIT || put == PUT_FAILED)
			return put == PUT_WAIT ? STEP_WAIT : STEP_FAILED;
		fanout_strike(qp->fanout, slot);
	}
	return datagram_sent(qp, wqe);
}

void fanout_skip(struct qp *qp, struct send_wqe *wqe)
{
	uint32_t slot = qp->fanout ? next_slot(qp->fanout) : LIMIT_SLOTS;

	(void)wqe;
	if (slot >= LIMIT_SLOTS)
		return;
	counters_rare(qp->hca, PUB_LOCAL_NOT_TAKEN);
	fanout_strike(qp->fanout, slot);
}
